//! Which job runs next: one at a time for a volume or a device, a few at once for the node, failed ones after a pause.
//!
//! Pure: events and times come in, jobs come out. What is queued is rebuilt from the API at every start.

use super::job::is_finished;
use quarry_api::{NodeJob, node_job::Action};
use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};
use tokio::time::Instant;

const MAX_CONCURRENT: usize = 8;
/// Counted apart: a wipe may take hours, and no volume waits for it.
const WIPES_AT_ONCE: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub struct Queue {
    jobs: BTreeMap<String, Entry>,
    /// Names seen since the watch began anew.
    listed: Option<HashSet<String>>,
}

#[derive(Debug)]
struct Entry {
    job: NodeJob,
    state: State,
    failures: u32,
    /// The UID of the job that was started last: the one of its name may be another by now.
    started: Option<String>,
    /// Deleted while it ran.
    deleted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting {
        until: Option<Instant>,
    },
    Running,
    /// Reported; the watch has not delivered that back yet.
    Reported,
}

impl Queue {
    pub fn relist(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// What the new list does not have was deleted meanwhile.
    pub fn relisted(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.jobs.retain(|name, entry| {
                entry.deleted = !listed.contains(name);
                entry.state == State::Running || !entry.deleted
            });
        }
    }

    pub fn seen(&mut self, job: NodeJob) {
        let Some(name) = job.metadata.name.clone() else { return };
        if let Some(listed) = &mut self.listed {
            listed.insert(name.clone());
        }
        match self.jobs.get_mut(&name) {
            Some(entry) if entry.state == State::Running => {
                (entry.job, entry.deleted) = (job, false)
            }
            Some(_) if is_finished(&job) => drop(self.jobs.remove(&name)),
            // The same name with another UID is another job.
            Some(entry) if entry.job.metadata.uid == job.metadata.uid => entry.job = job,
            None if is_finished(&job) => {}
            Some(_) | None => {
                self.jobs.insert(
                    name,
                    Entry {
                        job,
                        state: State::Waiting { until: None },
                        failures: 0,
                        started: None,
                        deleted: false,
                    },
                );
            }
        }
    }

    pub fn deleted(&mut self, name: &str) {
        match self.jobs.get_mut(name) {
            Some(entry) if entry.state == State::Running => entry.deleted = true,
            Some(_) => drop(self.jobs.remove(name)),
            None => {}
        }
    }

    /// The jobs to start now; they count as running.
    pub fn take_due(&mut self, now: Instant) -> Vec<NodeJob> {
        let running = || self.jobs.values().filter(|entry| entry.state == State::Running);
        let (wipes, others): (Vec<&Entry>, Vec<&Entry>) =
            running().partition(|entry| is_wipe(&entry.job));
        let (mut wipes, mut others) = (
            WIPES_AT_ONCE.saturating_sub(wipes.len()),
            MAX_CONCURRENT.saturating_sub(others.len()),
        );
        let mut busy: HashSet<String> = running().map(|entry| touches(&entry.job)).collect();
        let mut due = Vec::new();
        for entry in self.jobs.values_mut() {
            let room = if is_wipe(&entry.job) { &mut wipes } else { &mut others };
            let ready = matches!(entry.state, State::Waiting { until } if until.is_none_or(|until| until <= now));
            if ready && *room > 0 && busy.insert(touches(&entry.job)) {
                entry.state = State::Running;
                entry.started = entry.job.metadata.uid.clone();
                due.push(entry.job.clone());
                *room -= 1;
            }
        }
        due
    }

    /// Whether a job on a volume runs; wipes do not count.
    pub fn has_volumes_running(&self) -> bool {
        self.jobs.values().any(|entry| entry.state == State::Running && !is_wipe(&entry.job))
    }

    pub fn reported(&mut self, name: &str) {
        if let Some(entry) = self.ended(name) {
            entry.state = State::Reported;
        }
    }

    /// To be run again, later each time.
    pub fn put_off(&mut self, name: &str, now: Instant) {
        if let Some(entry) = self.ended(name) {
            let pause =
                FIRST_PAUSE.saturating_mul(2u32.saturating_pow(entry.failures)).min(LONGEST_PAUSE);
            entry.failures = entry.failures.saturating_add(1);
            entry.state = State::Waiting { until: Some(now + pause) };
        }
    }

    /// The entry of a job that no longer runs, unless what happened meanwhile decides by itself.
    fn ended(&mut self, name: &str) -> Option<&mut Entry> {
        let entry = self.jobs.get_mut(name)?;
        if entry.deleted || is_finished(&entry.job) {
            self.jobs.remove(name);
            return None;
        }
        if entry.started != entry.job.metadata.uid {
            (entry.state, entry.failures) = (State::Waiting { until: None }, 0);
            return None;
        }
        self.jobs.get_mut(name)
    }

    /// When to look again, if nothing else happens.
    pub fn next_due(&self) -> Option<Instant> {
        let waiting = self.jobs.values().filter_map(|entry| match entry.state {
            State::Waiting { until } => until,
            State::Running | State::Reported => None,
        });
        waiting.min()
    }
}

fn is_wipe(job: &NodeJob) -> bool {
    job.spec.action == Action::Wipe
}

/// What no other job may touch meanwhile: the device, or the owner's one volume.
fn touches(job: &NodeJob) -> String {
    match &job.spec.device.claimed {
        Some(claimed) => format!("device {}", claimed.identity),
        None => job.spec.owner.uid.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(name: &str, volume: &str, phase: Option<&str>) -> NodeJob {
        serde_json::from_value(json!({
            "apiVersion": "quarry.dev/v1alpha1", "kind": "NodeJob", "metadata": {"name": name, "uid": name},
            "spec": {
                "action": "Cleanup", "nodeName": "n", "owner": {"kind": "Volume", "name": "v", "uid": volume}, "device": {},
                "precondition": {"nodeUID": "n", "specHash": "h"}, "attempt": 1,
            },
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    fn names(jobs: &[NodeJob]) -> Vec<&str> {
        jobs.iter().filter_map(|job| job.metadata.name.as_deref()).collect()
    }

    #[test]
    fn one_job_a_volume_and_a_few_at_once() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.seen(job("a", "v1", None));
        queue.seen(job("b", "v1", None));
        for number in 0..20 {
            queue.seen(job(&format!("c{number:02}"), &format!("w{number}"), None));
        }
        let due = queue.take_due(now);
        assert_eq!(due.len(), MAX_CONCURRENT);
        assert!(names(&due).contains(&"a") && !names(&due).contains(&"b"));
        assert!(queue.take_due(now).is_empty());
        queue.reported("a");
        assert_eq!(names(&queue.take_due(now)), ["b"]);
    }

    fn wipe(name: &str, identity: &str) -> NodeJob {
        let mut job = job(name, "set", None);
        job.spec.action = Action::Wipe;
        job.spec.device = serde_json::from_value(
            json!({"claimed": {"identity": identity, "size": 1, "pvName": "p", "pvUID": "p"}}),
        )
        .unwrap();
        job
    }

    #[test]
    fn wipes_are_one_a_device_however_many_the_owner_has_and_hold_no_volume_up() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.seen(wipe("a1", "wwn:1"));
        queue.seen(wipe("a2", "wwn:1"));
        queue.seen(wipe("b", "wwn:2"));
        assert_eq!(names(&queue.take_due(now)), ["a1", "b"]);
        assert!(!queue.has_volumes_running());
        for number in 0..20 {
            queue.seen(wipe(&format!("c{number:02}"), &format!("wwn:c{number}")));
        }
        assert_eq!(queue.take_due(now).len(), WIPES_AT_ONCE - 2);
        queue.seen(job("v", "v1", None));
        assert_eq!(names(&queue.take_due(now)), ["v"]);
        assert!(queue.has_volumes_running());
        queue.reported("a1");
        assert_eq!(names(&queue.take_due(now)), ["a2"]);
    }

    #[test]
    fn a_reported_job_is_not_started_by_a_stale_event() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.seen(job("a", "v", None));
        queue.take_due(now);
        queue.reported("a");
        queue.seen(job("a", "v", None));
        assert!(queue.take_due(now).is_empty());
        queue.seen(job("a", "v", Some("Succeeded")));
        assert!(queue.jobs.is_empty());
    }

    #[test]
    fn what_could_not_be_reported_runs_again_after_a_growing_pause() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.seen(job("a", "v", Some("Running")));
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let start = queue.next_due().unwrap_or(now);
            assert_eq!(queue.take_due(start).len(), 1);
            queue.put_off("a", start);
            assert_eq!(queue.next_due(), Some(start + Duration::from_secs(seconds)));
            assert!(queue.take_due(start).is_empty());
        }
    }

    #[test]
    fn a_new_list_forgets_what_was_deleted_while_we_did_not_watch() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.seen(job("a", "v1", None));
        queue.seen(job("b", "v2", None));
        queue.relist();
        queue.seen(job("b", "v2", None));
        queue.relisted();
        assert_eq!(names(&queue.take_due(now)), ["b"]);
    }

    #[test]
    fn a_job_made_anew_while_the_old_one_ran_is_run_as_well() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.seen(job("a", "v", None));
        queue.take_due(now);
        queue.deleted("a");
        let mut anew = job("a", "v", None);
        anew.metadata.uid = Some("another".into());
        queue.seen(anew);
        queue.reported("a");
        assert_eq!(queue.take_due(now)[0].metadata.uid.as_deref(), Some("another"));
    }

    #[test]
    fn a_job_deleted_while_it_ran_is_forgotten_when_it_ends() {
        let now = Instant::now();
        for end in
            [Queue::reported, |queue: &mut Queue, name: &str| queue.put_off(name, Instant::now())]
        {
            let mut queue = Queue::default();
            queue.seen(job("a", "v", None));
            queue.take_due(now);
            queue.deleted("a");
            end(&mut queue, "a");
            assert!(queue.jobs.is_empty());
        }
    }
}
