//! Which job runs next: one at a time per volume or device, a few at once per node, failed ones after a backoff.
//!
//! Pure: events and times come in, jobs come out. What is queued is rebuilt from the API at every start.

use super::Task;
use crate::backoff::Backoff;
use quarry_api::{
    NodeJob,
    ids::{Identity, Uid},
    node_job::JobPhase,
};
use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

const MAX_CONCURRENT: usize = 8;
/// Counted apart: a wipe may take hours, and no volume waits for it.
const MAX_CONCURRENT_WIPES: usize = 8;
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

#[derive(Clone, Debug, Default)]
pub struct Queue {
    jobs: BTreeMap<String, Entry>,
    /// Names seen since the watch was restarted.
    listed: Option<HashSet<String>>,
}

#[derive(Clone, Debug)]
struct Entry {
    job: NodeJob,
    lane: Lane,
    state: State,
    failures: u32,
    /// The UID of the job that was started last: the one of its name may be another by now.
    started: Option<String>,
    /// Deleted while it ran.
    deleted: bool,
}

/// What no two jobs may touch at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Lane {
    Volume(Uid),
    Device(Identity),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// `None`: may start at once.
    Waiting {
        until: Option<Duration>,
    },
    Running,
    /// Reported; the watch has not delivered that back yet.
    Reported,
}

/// What a run that has ended means for its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The API has its result, or it was not ours to run.
    Reported,
    /// Its result could not be reported, or the API did not know it: it is run again later.
    RunAgain,
}

impl Lane {
    fn of(job: &NodeJob) -> Self {
        match Task::try_from(&job.spec) {
            Ok(Task::Volume(task)) => Lane::Volume(task.uid().clone()),
            Ok(Task::Wipe(wipe)) => Lane::Device(wipe.identity),
            // Touches nothing: it is only failed.
            Err(_) => Lane::Volume(Uid::from(job.spec.owner.uid.as_str())),
        }
    }

    fn is_device(&self) -> bool {
        match self {
            Lane::Volume(_) => false,
            Lane::Device(_) => true,
        }
    }
}

pub fn is_finished(job: &NodeJob) -> bool {
    job.status.as_ref().and_then(|status| status.phase).is_some_and(JobPhase::finished)
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
                let entry = Entry {
                    lane: Lane::of(&job),
                    job,
                    state: State::Waiting { until: None },
                    failures: 0,
                    started: None,
                    deleted: false,
                };
                self.jobs.insert(name, entry);
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

    /// A job to start now; it counts as running.
    pub fn start_due(&mut self, now: Duration) -> Option<NodeJob> {
        let (name, _) = self.startable().find(|(_, at)| *at <= now)?;
        let name = name.to_owned();
        let entry = self.jobs.get_mut(&name)?;
        entry.state = State::Running;
        entry.started = entry.job.metadata.uid.clone();
        Some(entry.job.clone())
    }

    /// When the next job can start if no running one ends before; `None`: not before something happens.
    pub fn next_due(&self) -> Option<Duration> {
        self.startable().map(|(_, at)| at).min()
    }

    /// Waiting jobs that no running one keeps from starting, and from when on.
    fn startable(&self) -> impl Iterator<Item = (&str, Duration)> {
        let running: HashSet<&Lane> = self.running().collect();
        let wipes = running.iter().filter(|lane| lane.is_device()).count();
        let others = running.len() - wipes;
        self.jobs.iter().filter_map(move |(name, entry)| {
            let State::Waiting { until } = entry.state else { return None };
            let room = if entry.lane.is_device() {
                wipes < MAX_CONCURRENT_WIPES
            } else {
                others < MAX_CONCURRENT
            };
            (room && !running.contains(&entry.lane))
                .then(|| (name.as_str(), until.unwrap_or_default()))
        })
    }

    fn running(&self) -> impl Iterator<Item = &Lane> {
        self.jobs.values().filter(|entry| entry.state == State::Running).map(|entry| &entry.lane)
    }

    /// Whether a job on a volume runs; wipes do not count.
    pub fn has_volumes_running(&self) -> bool {
        self.running().any(|lane| !lane.is_device())
    }

    pub fn finished(&mut self, name: &str, end: RunEnd, now: Duration) {
        let Some(entry) = self.ended(name) else { return };
        match end {
            RunEnd::Reported => entry.state = State::Reported,
            RunEnd::RunAgain => {
                entry.failures = entry.failures.saturating_add(1);
                let until = Some(now + BACKOFF.after_failures(entry.failures));
                entry.state = State::Waiting { until };
            }
        }
    }

    /// The entry of a job that no longer runs, unless what happened meanwhile already decides.
    fn ended(&mut self, name: &str) -> Option<&mut Entry> {
        let entry = self.jobs.get_mut(name)?;
        if entry.deleted || is_finished(&entry.job) {
            self.jobs.remove(name);
            return None;
        }
        if entry.started != entry.job.metadata.uid {
            (entry.state, entry.failures) = (State::Waiting { until: None }, 0);
            entry.lane = Lane::of(&entry.job);
            return None;
        }
        self.jobs.get_mut(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: Duration = Duration::from_secs(100);

    /// All that can start now.
    fn take_due(queue: &mut Queue, now: Duration) -> Vec<NodeJob> {
        std::iter::from_fn(|| queue.start_due(now)).collect()
    }

    fn reported(queue: &mut Queue, name: &str) {
        queue.finished(name, RunEnd::Reported, NOW);
    }

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
    fn one_job_per_volume_and_a_few_at_once() {
        let mut queue = Queue::default();
        queue.seen(job("a", "v1", None));
        queue.seen(job("b", "v1", None));
        for number in 0..20 {
            queue.seen(job(&format!("c{number:02}"), &format!("w{number}"), None));
        }
        let due = take_due(&mut queue, NOW);
        assert_eq!(due.len(), MAX_CONCURRENT);
        assert!(names(&due).contains(&"a") && !names(&due).contains(&"b"));
        assert!(take_due(&mut queue, NOW).is_empty());
        reported(&mut queue, "a");
        assert_eq!(names(&take_due(&mut queue, NOW)), ["b"]);
    }

    fn wipe(name: &str, identity: &str) -> NodeJob {
        let mut job = job(name, "set", None);
        job.spec.action = quarry_api::node_job::Action::Wipe;
        job.spec.parameters =
            serde_json::from_value(json!({"size": 1, "wipe": {"policy": "Zero"}})).unwrap();
        job.spec.device = serde_json::from_value(
            json!({"claimed": {"identity": identity, "size": 1, "pvName": "p", "pvUID": "p"}}),
        )
        .unwrap();
        job
    }

    #[test]
    fn wipes_run_one_per_device_and_delay_no_volume() {
        let mut queue = Queue::default();
        queue.seen(wipe("a1", "wwn:1"));
        queue.seen(wipe("a2", "wwn:1"));
        queue.seen(wipe("b", "wwn:2"));
        assert_eq!(names(&take_due(&mut queue, NOW)), ["a1", "b"]);
        assert!(!queue.has_volumes_running());
        for number in 0..20 {
            queue.seen(wipe(&format!("c{number:02}"), &format!("wwn:c{number}")));
        }
        assert_eq!(take_due(&mut queue, NOW).len(), MAX_CONCURRENT_WIPES - 2);
        queue.seen(job("v", "v1", None));
        assert_eq!(names(&take_due(&mut queue, NOW)), ["v"]);
        assert!(queue.has_volumes_running());
        reported(&mut queue, "a1");
        assert_eq!(names(&take_due(&mut queue, NOW)), ["a2"]);
    }

    #[test]
    fn a_reported_job_is_not_started_by_a_stale_event() {
        let mut queue = Queue::default();
        queue.seen(job("a", "v", None));
        take_due(&mut queue, NOW);
        reported(&mut queue, "a");
        queue.seen(job("a", "v", None));
        assert!(take_due(&mut queue, NOW).is_empty());
        queue.seen(job("a", "v", Some("Succeeded")));
        assert!(queue.jobs.is_empty());
    }

    #[test]
    fn an_unreported_job_runs_again_after_a_growing_backoff() {
        let mut queue = Queue::default();
        queue.seen(job("a", "v", Some("Running")));
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let start = queue.next_due().unwrap_or_default().max(NOW);
            assert_eq!(take_due(&mut queue, start).len(), 1);
            queue.finished("a", RunEnd::RunAgain, start);
            assert_eq!(queue.next_due(), Some(start + Duration::from_secs(seconds)));
            assert!(take_due(&mut queue, start).is_empty());
        }
    }

    #[test]
    fn a_new_list_forgets_what_was_deleted_meanwhile() {
        let mut queue = Queue::default();
        queue.seen(job("a", "v1", None));
        queue.seen(job("b", "v2", None));
        queue.relist();
        queue.seen(job("b", "v2", None));
        queue.relisted();
        assert_eq!(names(&take_due(&mut queue, NOW)), ["b"]);
    }

    #[test]
    fn a_job_recreated_while_the_old_one_ran_is_run_as_well() {
        let mut queue = Queue::default();
        queue.seen(job("a", "v", None));
        take_due(&mut queue, NOW);
        queue.deleted("a");
        let mut recreated = job("a", "v", None);
        recreated.metadata.uid = Some("another".into());
        queue.seen(recreated);
        reported(&mut queue, "a");
        assert_eq!(take_due(&mut queue, NOW)[0].metadata.uid.as_deref(), Some("another"));
    }

    #[test]
    fn a_job_deleted_while_it_ran_is_forgotten_when_it_ends() {
        for end in [RunEnd::Reported, RunEnd::RunAgain] {
            let mut queue = Queue::default();
            queue.seen(job("a", "v", None));
            take_due(&mut queue, NOW);
            queue.deleted("a");
            queue.finished("a", end, NOW);
            assert!(queue.jobs.is_empty());
        }
    }

    #[test]
    fn a_job_that_must_wait_for_another_is_not_due() {
        let mut queue = Queue::default();
        queue.seen(job("a", "v", None));
        take_due(&mut queue, NOW);
        queue.seen(job("b", "v", None));
        assert_eq!(queue.next_due(), None);
        reported(&mut queue, "a");
        assert_eq!(queue.next_due(), Some(Duration::ZERO));
    }
}
