//! One virtual clock for all: tokio's paused time, seen as wall-clock time by API, operator and agent.

use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use tokio::time::Instant;

/// Where every run begins: 2026-01-01T00:00:00Z.
const BEGIN: i64 = 1_767_225_600;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: Instant,
}

impl Clock {
    /// Starts now; needs a runtime whose time is paused.
    pub fn start() -> Self {
        Clock { zero: Instant::now() }
    }

    pub fn now(&self) -> Timestamp {
        let begin = Timestamp::from_second(BEGIN).unwrap_or_default();
        begin + SignedDuration::try_from(self.zero.elapsed()).unwrap_or_default()
    }

    pub fn as_function(self) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
        Arc::new(move || self.now())
    }
}
