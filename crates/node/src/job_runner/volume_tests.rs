//! The runner over operations that only remember: the order of intent, steps and outcome, and what follows a failure.

use super::*;
use crate::workers::Workers;
use quarry_api::{
    NodeJob,
    node_inventory::{DeviceClaim, RetainedData},
    quantity::Bytes,
};
use quarry_core::{
    job::{Intent, Outcome},
    storage::sparse::{File, Link, Loop, Observed, Sparse, Step, User},
};
use serde_json::json;
use std::sync::{Arc, Mutex, MutexGuard};

const UID: &str = "0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab";

#[derive(Default)]
struct World {
    seen: Observed,
    size: Bytes,
    diary: Vec<String>,
    /// Fail this step, that many times, in a way that may or may not pass.
    broken: Option<(&'static str, u32, bool)>,
}

#[derive(Default)]
struct Fake(Mutex<World>);

impl Fake {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

impl VolumeOps<Sparse> for Fake {
    fn observe(&self, _: &Uid) -> Result<Observed, NodeError> {
        Ok(self.world().seen.clone())
    }

    fn observe_shared(&self, _: &Uid) -> Result<Observed, NodeError> {
        Ok(self.world().seen.clone())
    }

    fn apply(&self, _: &Uid, step: &Step) -> Result<(), NodeError> {
        let mut world = self.world();
        let name = Sparse::describe(step);
        if let Some((broken, left, retryable)) = &mut world.broken
            && *broken == name
            && *left > 0
        {
            *left -= 1;
            let retryable = *retryable;
            world.diary.push(format!("failed {name}"));
            return Err(NodeError::Other {
                attempt: format!("{name} failed"),
                retryable,
                source: None,
            });
        }
        world.diary.push(name.to_owned());
        let size = world.size;
        let seen = &mut world.seen;
        match step {
            Step::DiscardDraft => seen.draft = false,
            Step::MakeDraft { size } => {
                seen.draft = true;
                world.size = *size;
            }
            Step::FormatDraft(_) => {}
            Step::PublishDraft => {
                seen.draft = false;
                seen.file = Some(File { size, partitioned: false });
            }
            Step::Attach { .. } => {
                seen.loops = vec![Loop { name: "loop3".into(), partition: None, users: vec![] }]
            }
            Step::MakeLink { device } => seen.link = Link::To(device.clone()),
            Step::Detach { .. } => seen.loops.clear(),
            Step::RemoveLink => seen.link = Link::Absent,
            Step::RemoveFile => seen.file = None,
            Step::AddPartition { .. } | Step::AwaitLink { .. } | Step::AwaitNoLink => {
                panic!("not in these tests")
            }
        }
        Ok(())
    }

    fn known_volumes(&self) -> Result<Vec<Uid>, NodeError> {
        Ok(Vec::new())
    }
}

impl LedgerOps for Fake {
    fn record_intent(&self, _: &Intent) -> Result<(), NodeError> {
        let mut world = self.world();
        world.seen.in_ledger = true;
        world.diary.push("intent".into());
        Ok(())
    }

    fn record_outcome(&self, entry: &Outcome) -> Result<(), NodeError> {
        self.world().diary.push(format!("outcome {:?}", entry.result));
        Ok(())
    }

    fn record_retained(&self, _: &[RetainedData]) -> Result<(), NodeError> {
        panic!("a volume's task retains nothing")
    }

    fn record_released(&self, _: &[DeviceClaim]) -> Result<(), NodeError> {
        panic!("a volume's task releases nothing")
    }

    fn outdated(&self, _: &[DeviceClaim]) -> Result<Vec<Option<String>>, NodeError> {
        panic!("a volume's task has no device claim")
    }

    fn ledger_id(&self) -> Result<String, NodeError> {
        Ok("l".into())
    }
}

fn job(action: &str, parameters: serde_json::Value) -> NodeJob {
    serde_json::from_value(json!({
        "apiVersion": "quarry.dev/v1alpha1", "kind": "NodeJob", "metadata": {"name": "j"},
        "spec": {
            "action": action, "nodeName": "n", "owner": {"kind": "Volume", "name": "v", "uid": UID},
            "device": {"sparseFile": {"volumeUID": UID}}, "precondition": {"nodeUID": "n", "specHash": "h"},
            "parameters": parameters, "attempt": 1,
        },
    }))
    .unwrap()
}

fn xfs() -> serde_json::Value {
    json!({"size": 1 << 30, "filesystem": {"type": "xfs"}})
}

async fn run(ops: &Arc<Fake>, job: &NodeJob) -> JobOutcome {
    let JobRun { job, task: Task::Volume(task) } = JobRun::try_from(job).unwrap() else { panic!() };
    let runner = JobRunner::new(ops.clone(), Workers::Inline);
    runner.run_volume::<Sparse>(&job, &task, &Progress::default()).await
}

// invariant: 10
#[tokio::test(start_paused = true)]
async fn the_intent_comes_first_and_the_outcome_last() {
    let ops = Arc::new(Fake::default());
    let JobOutcome::Prepared(result) = run(&ops, &job("Prepare", xfs())).await else { panic!() };
    assert_eq!((result.device_name.as_str(), result.capacity), ("loop3", 1 << 30));
    insta::assert_snapshot!(ops.world().diary.join("\n"), @"
    intent
    making the file
    making the file system
    finishing the file
    attaching the loop device
    making the persistent link
    outcome Succeeded
    ");
    ops.world().diary.clear();
    assert_eq!(run(&ops, &job("Cleanup", json!(null))).await, JobOutcome::Removed);
    insta::assert_snapshot!(ops.world().diary.join("\n"), @"
    intent
    detaching the loop device
    removing the persistent link
    removing the file
    outcome Succeeded
    ");
}

// invariant: 1
#[tokio::test(start_paused = true)]
async fn a_refusal_leaves_no_intent() {
    let ops = Arc::new(Fake::default());
    ops.world().seen.file = Some(File { size: Bytes(5), partitioned: false });
    for job in [job("Prepare", xfs()), job("Cleanup", json!(null))] {
        let JobOutcome::Failed(why) = run(&ops, &job).await else { panic!() };
        assert!(why.contains("not made by this agent"), "{why}");
    }
    assert_eq!(ops.world().diary, ["outcome Failed", "outcome Failed"]);
}

#[tokio::test(start_paused = true)]
async fn a_retryable_step_is_retried_from_a_new_observation() {
    let ops = Arc::new(Fake::default());
    ops.world().broken = Some(("attaching the loop device", 3, true));
    assert!(matches!(run(&ops, &job("Prepare", xfs())).await, JobOutcome::Prepared(_)));
    let diary = ops.world().diary.clone();
    assert_eq!(diary.iter().filter(|line| *line == "failed attaching the loop device").count(), 3);
    assert_eq!(
        diary.iter().filter(|line| *line == "making the file").count(),
        1,
        "the finished file is not made again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_format_leaves_no_draft() {
    let ops = Arc::new(Fake::default());
    ops.world().broken = Some(("making the file system", 99, false));
    assert_eq!(
        run(&ops, &job("Prepare", xfs())).await,
        JobOutcome::Failed("making the file system failed".into())
    );
    let world = ops.world();
    assert!(!world.seen.draft && world.seen.file.is_none());
    assert_eq!(
        world.diary[1..],
        [
            "making the file",
            "failed making the file system",
            "removing an unfinished file",
            "outcome Failed"
        ]
    );
}

// invariant: 1
#[tokio::test(start_paused = true)]
async fn a_failed_attach_keeps_the_finished_file() {
    let ops = Arc::new(Fake::default());
    ops.world().broken = Some(("attaching the loop device", 99, false));
    assert!(matches!(run(&ops, &job("Prepare", xfs())).await, JobOutcome::Failed(_)));
    assert!(ops.world().seen.file.is_some());
}

// invariant: 2
#[tokio::test(start_paused = true)]
async fn a_device_in_use_is_reported_and_nothing_is_done() {
    let ops = Arc::new(Fake::default());
    ops.world().seen = Observed {
        in_ledger: true,
        file: Some(File { size: Bytes(5), partitioned: false }),
        loops: vec![Loop {
            name: "loop3".into(),
            partition: None,
            users: vec![User::Mount("/mnt".into())],
        }],
        ..Observed::default()
    };
    let JobOutcome::Failed(why) = run(&ops, &job("Cleanup", json!(null))).await else { panic!() };
    assert!(why.contains("loop3 is mounted at /mnt"), "{why}");
    assert_eq!(ops.world().diary, ["outcome Failed"]);
}
