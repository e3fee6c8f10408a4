//! Kinds of storage that a Volume can be made of, each one pure backend.
//!
//! Flow: an executor observes the volume on the node, asks the backend what is `next`, applies the steps and observes
//! again, until there is nothing left to do or the backend refuses. Guarantees: a backend is a function of task and
//! observation alone, so a crash anywhere needs no memory; a refusal comes before the first step. Caveat: between
//! observation and step the node may change; what only counts while a device is held is checked again by the step.
//! Next to read: `sparse.rs` (the only one so far), `crates/node/src/job_runner` (what drives it).

pub mod sparse;

use crate::job::VolumeTask;
use quarry_api::{ids::Uid, node_job::JobResult};
use std::fmt;

pub trait Backend: Send + Sync + 'static {
    /// What is seen of one volume on the node.
    type Observed: Send + 'static;
    /// One operation on the node. Each is atomic or harmless to repeat.
    type Step: fmt::Debug + Send + Sync + 'static;
    type Refusal: fmt::Display;

    /// What follows for the task from what is seen now.
    fn next(task: &VolumeTask, seen: &Self::Observed) -> Next<Self::Step, Self::Refusal>;

    /// What a finished volume of ours lacks to be used, as after a boot; without a task.
    fn next_restore(uid: &Uid, seen: &Self::Observed) -> Next<Self::Step, Self::Refusal>;

    /// What removes the remains of a preparation that failed; `None`: there are none. Never touches finished storage.
    fn discard(seen: &Self::Observed) -> Option<Self::Step>;

    /// What the step does, for people: continues "the agent is ...".
    fn describe(step: &Self::Step) -> &'static str;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<S, R> {
    /// Apply these in order, then observe again.
    Steps(Vec<S>),
    Done(Done),
    /// Nothing is done, and trying the same again at once does not help.
    Refused(R),
}

/// How a volume's task ends well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    Prepared(JobResult),
    /// Nothing of the volume is on the node.
    Removed,
}
