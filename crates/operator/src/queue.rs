//! A work queue of keys: each key is reconciled by one worker at a time, waits at most once, and keeps its earliest time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::Notify, time::Instant};

pub struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

struct State<T> {
    /// When each waiting key is due; the number keeps the order of arrival among equals.
    due: BTreeMap<(Instant, u64), T>,
    waiting: HashMap<T, (Instant, u64)>,
    working: BTreeSet<T>,
    arrivals: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let state = State {
            due: BTreeMap::new(),
            waiting: HashMap::new(),
            working: BTreeSet::new(),
            arrivals: 0,
        };
        Queue { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl<T: Clone + Eq + Hash + Ord> Queue<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Due at `at`, unless it is due earlier already.
    pub fn push(&self, key: T, at: Instant) {
        let mut state = self.state();
        if let Some(slot) = state.waiting.get(&key).copied() {
            if slot.0 <= at {
                return;
            }
            state.due.remove(&slot);
        }
        state.arrivals += 1;
        let slot = (at, state.arrivals);
        state.due.insert(slot, key.clone());
        state.waiting.insert(key, slot);
        drop(state);
        self.changed.notify_one();
    }

    /// The next key that is due and not being worked on. Call `done` when the work has ended.
    pub async fn next(&self) -> T {
        loop {
            let enqueue = {
                let mut state = self.state();
                let now = Instant::now();
                let slot = state
                    .due
                    .iter()
                    .find(|((at, _), key)| *at <= now && !state.working.contains(*key))
                    .map(|(slot, _)| *slot);
                if let Some(key) = slot.and_then(|slot| state.due.remove(&slot)) {
                    state.waiting.remove(&key);
                    state.working.insert(key.clone());
                    return key;
                }
                state.due.keys().map(|(at, _)| *at).find(|at| *at > now)
            };
            match enqueue {
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.changed.notified() => {}
                },
                None => self.changed.notified().await,
            }
        }
    }

    pub fn done(&self, key: &T) {
        self.state().working.remove(key);
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_reconciled_once_at_a_time_and_not_lost() {
        let queue = Queue::default();
        let now = Instant::now();
        queue.push("a", now);
        queue.push("a", now + Duration::from_secs(5));
        assert_eq!(queue.next().await, "a");
        queue.push("a", now);
        assert!(
            tokio::time::timeout(Duration::from_secs(1), queue.next()).await.is_err(),
            "it is being worked on"
        );
        queue.done(&"a");
        assert_eq!(queue.next().await, "a");
        queue.done(&"a");
        assert!(
            tokio::time::timeout(Duration::from_secs(60), queue.next()).await.is_err(),
            "the later time was dropped"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_time_wins() {
        let queue = Queue::default();
        let now = Instant::now();
        queue.push("a", now + Duration::from_secs(60));
        queue.push("a", now + Duration::from_secs(1));
        queue.next().await;
        assert_eq!(now.elapsed(), Duration::from_secs(1));
    }
}
