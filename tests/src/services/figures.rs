//! What a host costs: requests to Ironic, writes to the API, and the time in which Ironic was done and Quarry had not
//! looked. Counts are asserted by tests; seconds are printed.

use super::{
    LIMIT, Lab, Quarry, Request, System,
    quarry::{EVENTS, HARDWARE_DATA, HOSTS, SECRETS, Watch},
    until,
};
use serde_json::Value;

/// Counts from its creation on.
pub struct Meter {
    before: usize,
    watches: Option<[Watch; 4]>,
}

pub struct Cost {
    pub requests: Vec<Request>,
    /// To hosts, HardwareData and Secrets, without the one that created the host.
    pub writes: usize,
    pub events: usize,
}

impl Meter {
    /// After the Secret and before the host is created.
    pub fn start(quarry: &Quarry, system: &System) -> Self {
        let watches = [HOSTS, HARDWARE_DATA, SECRETS, EVENTS].map(|path| quarry.watch(path));
        // Each shows what is there first: the Secret.
        until("the watches have begun", LIMIT, || match watches[2].writes().len() {
            0 => Err("not yet".to_owned()),
            _ => Ok(()),
        });
        Meter { before: system.requests().len(), watches: Some(watches) }
    }

    /// Requests alone, for the address of a system.
    pub fn requests(system: &System) -> Self {
        Meter { before: system.requests().len(), watches: None }
    }

    /// What led to this version of the host.
    pub fn read(&self, system: &System, host: &Value) -> Cost {
        let requests = system.requests().split_off(self.before).into_iter();
        let requests = requests.filter(|one| one.agent.starts_with("quarry")).collect();
        let Some(watches) = &self.watches else { return Cost { requests, writes: 0, events: 0 } };
        until("the watches have caught up", LIMIT, || {
            let versions = watches[0].writes().into_iter();
            let mut versions = versions.map(|one| one["metadata"]["resourceVersion"].clone());
            if versions.any(|one| one == host["metadata"]["resourceVersion"]) {
                Ok(())
            } else {
                Err("not yet".to_owned())
            }
        });
        let [hosts, data, secrets, events] = watches.each_ref().map(|watch| watch.writes().len());
        // The test created the host, and the Secret before the watch, which shows it once.
        Cost { requests, writes: hosts - 1 + data + secrets - 1, events }
    }
}

impl Cost {
    /// Seconds between each time at which Ironic was done with the node and the next request.
    pub fn idle(&self, node: &str) -> f64 {
        let (first, last) = match (self.requests.first(), self.requests.last()) {
            (Some(first), Some(last)) => (first.time, last.time),
            _ => return 0.0,
        };
        let done = Lab::get().done(node).into_iter();
        let done = done.filter(|time| (first..=last).contains(time));
        let next = |time: f64| self.requests.iter().map(|one| one.time).find(|next| *next >= time);
        done.filter_map(|time| Some(next(time)? - time)).sum()
    }

    /// For a figure.
    pub fn line(&self, host: &Value) -> String {
        let node = host["status"]["provisioning"]["ID"].as_str().unwrap_or_default();
        let Cost { requests, writes, events } = self;
        let (requests, idle) = (requests.len(), self.idle(node));
        format!("{requests} requests to Ironic, {writes} writes, {events} Events, {idle:.1} s idle")
    }

    pub fn lines(&self) -> Vec<String> {
        let one = |one: &Request| format!("{} {} {}", one.method, one.path, one.status);
        self.requests.iter().map(one).collect()
    }
}
