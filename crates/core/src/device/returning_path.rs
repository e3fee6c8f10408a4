//! A multipath path that comes back: bare until multipathd adds it to the map that was there all the time.
//!
//! Such a path belongs to that map and makes no duplicate of it, so that nothing is withdrawn. Decided by the map that
//! the last status of this boot shows, and for a bounded time: a path that multipathd does not take is a second device
//! with the same identity (`group.rs`). It is never Available meanwhile: it is listed as a path of its map.

use super::{
    facts::Facts,
    group::{GroupedDevice, published_candidates},
    identity::{identify, same_identity},
};
use quarry_api::node_inventory::{Device, NodeInventoryStatus};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// multipathd adds a path within seconds; a loaded node may take longer.
pub const RETURN_TIME: Duration = Duration::from_secs(60);

/// A disk under its kernel name: a new one has another sequence number.
pub type Path = (String, Option<u64>);

pub fn path_of(facts: &Facts) -> Path {
    (facts.name.clone(), facts.diskseq)
}

/// The bare paths that return to a map, with that map's name. `maps` are those of this scan with their identities,
/// `overdue` the paths that multipathd did not take in time.
pub fn returning_paths<'a>(
    seen: &'a [Facts],
    maps: &[(&'a Facts, Vec<String>)],
    previous: &NodeInventoryStatus,
    overdue: &BTreeSet<Path>,
) -> BTreeMap<&'a str, &'a str> {
    let taken: BTreeSet<&str> =
        maps.iter().flat_map(|(map, _)| &map.slaves).map(String::as_str).collect();
    let bare = |facts: &&Facts| {
        facts.kind == "disk"
            && !taken.contains(facts.name.as_str())
            && !overdue.contains(&path_of(facts))
            // It was a device of its own before: two disks of one identity, or paths that no map ever had.
            && !previous.devices.iter().any(|was| is_same_disk(was, facts))
    };
    let known: Vec<&(&Facts, Vec<String>)> =
        maps.iter().filter(|(map, identities)| was_there(map, identities, previous)).collect();
    if known.is_empty() {
        return BTreeMap::new();
    }
    let home = |path: &'a Facts| {
        let candidates = identify(path).candidates;
        let mut homes =
            known.iter().filter(|(_, identities)| same_identity(&candidates, identities));
        // Between two maps nothing is guessed.
        let (map, _) = homes.next()?;
        homes.next().is_none().then_some((path.name.as_str(), map.name.as_str()))
    };
    seen.iter().filter(bare).filter_map(home).collect()
}

fn is_same_disk(was: &Device, facts: &Facts) -> bool {
    was.name == facts.name
        && was.diskseq == facts.diskseq.and_then(|number| i64::try_from(number).ok())
}

fn was_there(map: &Facts, identities: &[String], previous: &NodeInventoryStatus) -> bool {
    previous.devices.iter().any(|was| {
        was.kind == map.kind
            && is_same_disk(was, map)
            && identities.iter().any(|one| published_candidates(was).contains(one))
    })
}

/// Since when each returning path has been waiting for multipathd.
#[derive(Clone, Debug, Default)]
pub struct PathWaits {
    since: BTreeMap<Path, Duration>,
    /// Those that the last scan found waiting.
    waiting: BTreeSet<Path>,
}

impl PathWaits {
    /// The paths that have waited for too long.
    pub fn overdue(&self, now: Duration) -> BTreeSet<Path> {
        let late = |since: &Duration| now.saturating_sub(*since) >= RETURN_TIME;
        self.since.iter().filter(|(_, since)| late(since)).map(|(path, _)| path.clone()).collect()
    }

    /// Records which paths wait now. A path that was taken by its map, or is gone, starts again when it returns.
    pub fn observe(&mut self, known: &[GroupedDevice], now: Duration) {
        self.waiting = known.iter().flat_map(|device| device.returning.iter().cloned()).collect();
        let listed: BTreeSet<Path> = known.iter().map(|device| path_of(&device.facts)).collect();
        self.since.retain(|path, _| self.waiting.contains(path) || listed.contains(path));
        for path in &self.waiting {
            self.since.entry(path.clone()).or_insert(now);
        }
    }

    /// When the next wait ends.
    pub fn next(&self) -> Option<Duration> {
        self.waiting
            .iter()
            .filter_map(|path| self.since.get(path))
            .min()
            .map(|at| *at + RETURN_TIME)
    }
}
