//! What every controller is given: client, caches, clock, metrics.

use crate::{cache::Caches, driver::ControllerName, metrics::Metrics, writer::Writer};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub caches: Arc<Caches>,
    pub writer: Writer,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    /// The operator's own namespace: leases and the agents' DaemonSet live there.
    pub namespace: String,
    /// How long a finished NodeJob is kept.
    pub job_retention: SignedDuration,
    /// The agents' DaemonSet to make; `None` where agents are run by other means.
    pub agent_daemon_set: Option<quarry_core::agent_daemon_set::DaemonSetSettings>,
    /// What was last said of the devices of a node, as a hash; by owner and node.
    pub accounts: Arc<Mutex<HashMap<(String, String), u64>>>,
    /// Those that are on.
    pub controllers: Vec<ControllerName>,
}

impl Context {
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Whether the last account of this owner's devices on this node was another one. Only remembered: whoever leads next
    /// tells it once more. Nothing to say is no news.
    pub fn is_news(&self, owner: &str, node: &str, message: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if message.is_empty() {
            accounts.remove(&(owner.to_owned(), node.to_owned()));
            return false;
        }
        accounts.insert((owner.to_owned(), node.to_owned()), hasher.finish())
            != Some(hasher.finish())
    }

    /// The owner is gone.
    pub fn forget_accounts(&self, owner: &str) {
        self.accounts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(of, _), _| of != owner);
    }

    pub fn runs(&self, controller: ControllerName) -> bool {
        self.controllers.contains(&controller)
    }
}

/// What a reconcile asks of its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing until something changes.
    AwaitChange,
    Requeue(SignedDuration),
}

/// A reconcile that could not be finished. Always retried; `since` feeds the backoff.
#[derive(Debug, thiserror::Error)]
#[error("{attempt}")]
pub struct Failure {
    pub attempt: String,
    #[source]
    pub source: Option<kube::Error>,
    /// The cache was behind (a conflict): try again as soon as it has caught up. Otherwise with backoff.
    pub at_once: bool,
}

impl Failure {
    pub fn api(attempt: impl Into<String>, source: kube::Error) -> Self {
        let at_once = matches!(&source, kube::Error::Api(status) if status.code == 409);
        Failure { attempt: attempt.into(), source: Some(source), at_once }
    }

    /// What the API server says when it refuses the thing itself: neither gone nor changed nor too much at once.
    pub fn refusal(&self) -> Option<&str> {
        match &self.source {
            Some(kube::Error::Api(answer))
                if (400..500).contains(&answer.code) && ![404, 409, 429].contains(&answer.code) =>
            {
                Some(&answer.message)
            }
            _ => None,
        }
    }

    pub fn behind(attempt: impl Into<String>) -> Self {
        Failure { attempt: attempt.into(), source: None, at_once: true }
    }
}
