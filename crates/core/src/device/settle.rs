//! How long each device has been unchanged: a device is not claimed before it has settled (invariant 6).
//!
//! Time is monotonic and comes in as an argument. The wait is bound to the identity: a disk swapped under the same
//! kernel name starts again. A restarted agent trusts its own last status for the same boot and disk.

use super::{
    facts::ExclusiveOpen,
    group::GroupedDevice,
    returning_path::{Path, PathWaits},
};
use quarry_api::node_inventory::NodeInventoryStatus;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// kubelet may be about to format a disk that looks blank.
pub const SETTLING_TIME: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default)]
pub struct Settling {
    ages: BTreeMap<String, DeviceAge>,
    paths: PathWaits,
}

#[derive(Clone, Debug, PartialEq)]
struct DeviceAge {
    state: State,
    since: Duration,
    settled: bool,
}

/// What must stay unchanged.
#[derive(Clone, Debug, PartialEq)]
struct State {
    identity: Option<String>,
    diskseq: Option<u64>,
    size: u64,
    content: String,
    /// Of an unused device: a write announces that something starts to use it.
    writes: Option<u64>,
}

impl Settling {
    /// Records the devices of this scan.
    pub fn observe(
        &mut self,
        known: &[GroupedDevice],
        previous: Option<&NodeInventoryStatus>,
        boot_id: Option<&str>,
        now: Duration,
        needed: Duration,
    ) {
        let first = self.ages.is_empty();
        let mut ages = BTreeMap::new();
        for device in known {
            let state = state(device);
            let name = device.facts.name.clone();
            let mut entry = match self.ages.remove(&name) {
                Some(entry) if entry.state == state => entry,
                Some(_) => DeviceAge { state, since: now, settled: false },
                None => {
                    let settled = first && was_settled(device, previous, boot_id);
                    DeviceAge { state, since: now, settled }
                }
            };
            // The storage of our Volumes needs no settling.
            entry.settled |=
                device.facts.volume_uid.is_some() || now.saturating_sub(entry.since) >= needed;
            ages.insert(name, entry);
        }
        self.ages = ages;
        self.paths.observe(known, now);
    }

    /// The multipath paths that have waited too long for their map; known before devices are grouped.
    pub fn overdue_paths(&self, now: Duration) -> BTreeSet<Path> {
        self.paths.overdue(now)
    }

    pub fn is_settled(&self, name: &str) -> bool {
        self.ages.get(name).is_some_and(|age| age.settled)
    }

    /// When the next device will have settled, or the wait of a returning path ends.
    pub fn next(&self, needed: Duration) -> Option<Duration> {
        let unsettled = self.ages.values().filter(|age| !age.settled);
        unsettled.map(|age| age.since + needed).chain(self.paths.next()).min()
    }
}

fn state(device: &GroupedDevice) -> State {
    let facts = &device.facts;
    // It is in use: writes announce nothing new.
    let used = !facts.mounts.is_empty()
        || !facts.holders.is_empty()
        || !facts.loops_on_top.is_empty()
        || !facts.partitions.is_empty()
        || !facts.backs.is_empty()
        || facts.swap
        || facts.exclusive_open == ExclusiveOpen::Exclusively
        || facts.volume_uid.is_some();
    State {
        identity: device.identified.identity.clone(),
        diskseq: facts.diskseq,
        size: facts.size,
        content: format!("{:?}", facts.content),
        writes: (!used).then_some(facts.writes),
    }
}

fn was_settled(
    device: &GroupedDevice,
    previous: Option<&NodeInventoryStatus>,
    boot_id: Option<&str>,
) -> bool {
    let Some(previous) =
        previous.filter(|previous| boot_id.is_some() && previous.boot_id.as_deref() == boot_id)
    else {
        return false;
    };
    let facts = &device.facts;
    let diskseq = facts.diskseq.and_then(|seq| i64::try_from(seq).ok());
    previous.devices.iter().any(|was| {
        was.settled
            && was.name == facts.name
            && diskseq.is_some()
            && was.diskseq == diskseq
            && was.identity == device.identified.identity
            && u64::try_from(was.size) == Ok(facts.size)
            && was.fs_type.as_deref() == super::inventory::fs_type(facts)
    })
}
