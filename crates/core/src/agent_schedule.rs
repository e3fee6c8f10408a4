//! When an agent does what: renew its lease, restore volumes, run jobs, scan devices.
//!
//! One pure value: events and the current time come in, work comes out. The agent's loop and the simulator both drive
//! it, so what is simulated is what runs. `now` is a monotonic time since any fixed moment. Owns every debounce, due
//! time and backoff of the agent's loop; does nothing itself. Next to read: `job/queue.rs` (its jobs),
//! `crates/node/src/agent/run.rs` (the loop).

use crate::{
    backoff::Backoff,
    job::queue::{Queue, RunEnd},
};
use quarry_api::NodeJob;
use std::{
    collections::{BTreeSet, VecDeque},
    mem,
    time::Duration,
};

/// One plug causes several kernel events within this time.
pub const DEBOUNCE: Duration = Duration::from_millis(4);
/// A pod mounts many things at once.
pub const MOUNT_DEBOUNCE: Duration = Duration::from_millis(200);
pub const RENEW_LEASE_EVERY: Duration = Duration::from_secs(10);
const LEASE_RETRY: Duration = Duration::from_secs(1);
/// Mounts of other namespaces cause no event, and netlink may lose some: a scan that costs no write when nothing
/// changed.
const SCAN_ANYWAY: Duration = Duration::from_secs(600);
/// udev makes its links some time after the kernel's event, and no event of that reaches a pod.
const FOLLOW_UPS: [Duration; 4] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
];
/// Between two scans at least this, or as long as the last one took: scanning takes at most half of the time.
const SCAN_GAP: Duration = Duration::from_millis(20);
const LONGEST_SCAN_GAP: Duration = Duration::from_secs(30);
const SCAN_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// A node that is short of loop devices for a moment must not lack a volume until its agent is restarted.
/// A restore that hangs does not hide for ever that devices are missing.
const RESTORE_LIMIT: Duration = Duration::from_secs(120);
const RESTORE_BACKOFF: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(600));

/// Why the devices are scanned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanReason {
    /// Read every device again.
    pub everything: bool,
    /// The kernel has sent an event about these, by kernel name.
    pub touched: BTreeSet<String>,
    /// The agent has tried to restore all Volumes before: one that has no device now is really without.
    pub restored: bool,
}

/// What is to be started now. Each kind runs once at a time, jobs excepted.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    RenewLease,
    Restore,
    Job(Box<NodeJob>),
    Scan(ScanReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    Published {
        /// When the next scan is due: a device will have settled, or may have answered.
        again_in: Option<Duration>,
    },
    Failed,
}

#[derive(Clone, Debug)]
pub struct AgentSchedule {
    pub jobs: Queue,
    lease: Lease,
    restore: Restore,
    scan: Scan,
}

#[derive(Clone, Debug)]
struct Lease {
    every: Duration,
    due: Duration,
    /// A renewal runs since then.
    running: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Restore {
    /// `None`: every volume has its device.
    due: Option<Duration>,
    running: bool,
    /// How many have ended, complete or not.
    attempts: u32,
    /// The first attempt counts as ended from then on at the latest.
    limit: Duration,
}

#[derive(Clone, Debug)]
struct Scan {
    rescan_interval: Duration,
    /// What the next scan is for.
    reason: ScanReason,
    /// The kernel sent an event: udev may follow.
    by_kernel: bool,
    requested: Option<Duration>,
    again: Option<Duration>,
    follow_ups: VecDeque<Duration>,
    anyway: Duration,
    rescan: Duration,
    not_before: Duration,
    failures: u32,
    running: Option<(Duration, ScanReason)>,
}

impl AgentSchedule {
    /// Of an agent that has just started. Every `rescan_interval`, every device is read again.
    pub fn new(renew_lease_every: Duration, rescan_interval: Duration, now: Duration) -> Self {
        AgentSchedule {
            jobs: Queue::default(),
            lease: Lease { every: renew_lease_every, due: now, running: None },
            restore: Restore {
                due: Some(now),
                running: false,
                attempts: 0,
                limit: now + RESTORE_LIMIT,
            },
            scan: Scan {
                rescan_interval,
                reason: ScanReason::default(),
                by_kernel: false,
                requested: None,
                again: None,
                follow_ups: VecDeque::new(),
                anyway: now + SCAN_ANYWAY,
                rescan: now + rescan_interval,
                not_before: now,
                failures: 0,
                running: None,
            },
        }
    }

    /// The kernel sent an event about this device.
    pub fn on_device_event(&mut self, name: String, now: Duration) {
        self.scan.reason.touched.insert(name);
        self.on_kernel_event(now);
    }

    /// The kernel sent more events than could be received: any device may have changed.
    pub fn on_events_lost(&mut self, now: Duration) {
        self.scan.reason.everything = true;
        self.on_kernel_event(now);
    }

    fn on_kernel_event(&mut self, now: Duration) {
        self.scan.by_kernel = true;
        self.request_scan(now);
    }

    /// Something changed that a scan would show: a mount, the NodeInventory.
    pub fn request_scan(&mut self, now: Duration) {
        self.scan.requested.get_or_insert(now + DEBOUNCE);
    }

    /// What is due, the most pressing first; it counts as running until its end is reported.
    pub fn start_due(&mut self, now: Duration) -> Option<Work> {
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        if due(self.lease.next_due()) {
            self.lease.running = Some(now);
            return Some(Work::RenewLease);
        }
        if due(self.restore_due()) {
            self.restore.running = true;
            return Some(Work::Restore);
        }
        if !self.restore.running
            && let Some(job) = self.jobs.start_due(now)
        {
            return Some(Work::Job(Box::new(job)));
        }
        let restored = self.restore.attempts > 0 || self.restore.limit <= now;
        due(self.scan.next_due())
            .then(|| Work::Scan(ScanReason { restored, ..self.scan.start(now) }))
    }

    /// When something is due next, if nothing else happens. Not before now once `start_due` returned `None`.
    pub fn next_due(&self) -> Option<Duration> {
        let jobs = self.jobs.next_due().filter(|_| !self.restore.running);
        [self.lease.next_due(), self.restore_due(), jobs, self.scan.next_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Never beside a job: a restore and a cleanup of the same volume would undo each other.
    fn restore_due(&self) -> Option<Duration> {
        self.restore.due.filter(|_| !self.restore.running && !self.jobs.has_volumes_running())
    }

    pub fn lease_finished(&mut self, renewed: bool, now: Duration) {
        let begun = self.lease.running.take().unwrap_or(now);
        self.lease.due = if renewed { begun + self.lease.every } else { now + LEASE_RETRY };
    }

    /// Changes how often the lease is renewed; the next time is then.
    pub fn renew_lease_every(&mut self, every: Duration, now: Duration) {
        (self.lease.every, self.lease.due) = (every, now + every);
    }

    /// `complete`: every volume has its device.
    pub fn restore_finished(&mut self, complete: bool, now: Duration) {
        self.restore.running = false;
        self.restore.attempts = self.restore.attempts.saturating_add(1);
        let delay = RESTORE_BACKOFF.after_failures(self.restore.attempts);
        self.restore.due = (!complete).then(|| now + delay);
        self.request_scan(now);
    }

    pub fn job_finished(&mut self, name: &str, end: RunEnd, now: Duration) {
        self.jobs.finished(name, end, now);
        self.request_scan(now);
    }

    pub fn scan_finished(&mut self, end: ScanEnd, now: Duration) {
        self.scan.finish(end, now);
    }

    /// Whether scans will follow soon after the last kernel event.
    pub fn expects_follow_ups(&self) -> bool {
        !self.scan.follow_ups.is_empty()
    }
}

impl Lease {
    fn next_due(&self) -> Option<Duration> {
        self.running.is_none().then_some(self.due)
    }
}

impl Scan {
    fn next_due(&self) -> Option<Duration> {
        if self.running.is_some() {
            return None;
        }
        let follow_up = self.follow_ups.front().copied();
        let wanted = [self.requested, self.again, follow_up, Some(self.anyway), Some(self.rescan)];
        wanted.into_iter().flatten().min().map(|due| due.max(self.not_before))
    }

    fn start(&mut self, now: Duration) -> ScanReason {
        if mem::take(&mut self.by_kernel) {
            self.follow_ups = FOLLOW_UPS.iter().map(|after| now + *after).collect();
        }
        while self.follow_ups.front().is_some_and(|due| *due <= now) {
            self.follow_ups.pop_front();
        }
        let mut reason = mem::take(&mut self.reason);
        if self.rescan <= now {
            reason.everything = true;
            self.rescan = now + self.rescan_interval;
        }
        (self.requested, self.again) = (None, None);
        self.running = Some((now, reason.clone()));
        reason
    }

    fn finish(&mut self, end: ScanEnd, now: Duration) {
        let Some((begun, reason)) = self.running.take() else { return };
        let gap = now.saturating_sub(begun).clamp(SCAN_GAP, LONGEST_SCAN_GAP);
        self.not_before = now + gap;
        self.anyway = now + SCAN_ANYWAY;
        match end {
            ScanEnd::Published { again_in } => {
                self.failures = 0;
                self.again = again_in.map(|after| now + after);
            }
            ScanEnd::Failed => {
                // What it was for is still to be seen.
                self.reason.everything |= reason.everything;
                self.reason.touched.extend(reason.touched);
                self.requested = Some(now);
                self.failures = self.failures.saturating_add(1);
                self.not_before = now + SCAN_BACKOFF.after_failures(self.failures).max(gap);
            }
        }
    }
}

#[cfg(test)]
mod tests;
