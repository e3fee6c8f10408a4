//! What the ledger of a node records about claimed devices, as confirmation and wipe ask for it.
//!
//! The API may be older than the node (restored from a backup): a device claim that the ledger knows to be over is
//! neither confirmed nor linked again, and its PersistentVolume is not wiped. The node's ledger and the simulator feed
//! the same value. Next to read: `confirm.rs`.

use super::confirm::Remembered;
use quarry_api::{node_inventory::DeviceClaim, node_job::WipePolicy};
use std::collections::{HashMap, HashSet};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// By PersistentVolume and PVC whose data was erased: the most thorough policy.
    erased: HashMap<DataOf, WipePolicy>,
    /// The UIDs of the PersistentVolumes whose data is retained.
    retained: HashSet<String>,
    devices: HashMap<String, DeviceHistory>,
}

/// Whose data: of a PersistentVolume, while one PVC was bound to it. A PVC that is bound to it later has other data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DataOf {
    pv_uid: String,
    pvc_uid: Option<String>,
}

impl DataOf {
    pub fn new(pv_uid: &str, pvc_uid: Option<&str>) -> Self {
        DataOf { pv_uid: pv_uid.to_owned(), pvc_uid: pvc_uid.map(str::to_owned) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DeviceHistory {
    /// The last device claim that was confirmed, its owner and round.
    last: Option<Confirmed>,
    /// Device claims that were released, or followed by another one.
    past: HashSet<String>,
    /// A discard was tried, and the data was still there.
    discard_ineffective: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Confirmed {
    claim: String,
    owner_uid: String,
    round: i64,
    /// The data of this round was wiped, or is retained: the next PersistentVolume needs another round.
    over: bool,
}

/// Which device claim this is. One of an earlier version has no ID and is distinguished by its owner.
pub fn claim_key(claim: &DeviceClaim) -> &str {
    if claim.id.is_empty() { &claim.owner.uid } else { &claim.id }
}

impl History {
    pub fn confirm(&mut self, identity: &str, claim: &str, owner_uid: &str, round: i64) {
        let device = self.devices.entry(identity.to_owned()).or_default();
        if let Some(last) = device.last.take().filter(|last| last.claim != claim) {
            device.past.insert(last.claim);
        }
        device.last = Some(Confirmed {
            claim: claim.to_owned(),
            owner_uid: owner_uid.to_owned(),
            round,
            over: false,
        });
    }

    /// Whether the last record about the device says just this.
    pub fn is_confirmed(&self, identity: &str, claim: &str, round: i64) -> bool {
        self.last(identity).is_some_and(|last| last.claim == claim && last.round == round)
    }

    /// The link of the device claim is removed, and the device claim ends.
    pub fn release(&mut self, identity: &str, claim: &str) {
        let device = self.devices.entry(identity.to_owned()).or_default();
        device.past.insert(claim.to_owned());
    }

    pub fn is_released(&self, identity: &str, claim: &str) -> bool {
        self.devices.get(identity).is_some_and(|device| device.past.contains(claim))
    }

    pub fn erase(&mut self, identity: &str, data: DataOf, policy: WipePolicy) {
        let known = self.erased.entry(data).or_insert(policy);
        *known = policy.max(*known);
        self.end_round(identity);
    }

    /// A wipe begins to write: what an earlier one left is not there any more.
    pub fn begin_erase(&mut self, data: &DataOf) {
        self.erased.remove(data);
    }

    pub fn retain(&mut self, identity: &str, pv_uid: &str) {
        self.retained.insert(pv_uid.to_owned());
        self.end_round(identity);
    }

    pub fn is_retained(&self, pv_uid: &str) -> bool {
        self.retained.contains(pv_uid)
    }

    pub fn distrust_discard(&mut self, identity: &str) {
        self.devices.entry(identity.to_owned()).or_default().discard_ineffective = true;
    }

    /// A discard of this device was seen to leave data.
    pub fn is_discard_ineffective(&self, identity: &str) -> bool {
        self.devices.get(identity).is_some_and(|device| device.discard_ineffective)
    }

    fn end_round(&mut self, identity: &str) {
        if let Some(last) = self.devices.get_mut(identity).and_then(|device| device.last.as_mut()) {
            last.over = true;
        }
    }

    fn last(&self, identity: &str) -> Option<&Confirmed> {
        self.devices.get(identity)?.last.as_ref()
    }

    /// What counts for a wipe of this data.
    pub fn remembered(&self, identity: &str, data: &DataOf) -> Remembered {
        Remembered {
            erased: self.erased.get(data).copied(),
            retained: self.retained.contains(&data.pv_uid),
            confirmed: self.last(identity).map(|last| (last.owner_uid.clone(), last.round)),
        }
    }

    /// Why this device claim must not be confirmed or linked any more; `None`: it is current, or new.
    ///
    /// What a wipe of it records counts only after the operator has read it.
    pub fn outdated(&self, claim: &DeviceClaim) -> Option<String> {
        self.superseded(claim).or_else(|| {
            let ended = if claim.job.is_some() { None } else { self.ended(claim) };
            ended.map(records)
        })
    }

    /// Another device claim, or another round, followed on the device: its data is not that of this one. Asked before a
    /// wipe, too.
    pub fn superseded(&self, claim: &DeviceClaim) -> Option<String> {
        let key = claim_key(claim);
        if self.is_released(&claim.identity, key) {
            return Some(records("that the device claim was released, or followed by another"));
        }
        let last = self.last(&claim.identity).filter(|last| last.claim == key)?;
        (last.round > claim.round).then(|| records("a later round of the device claim"))
    }

    /// The data of this round was wiped, or is retained.
    fn ended(&self, claim: &DeviceClaim) -> Option<&'static str> {
        let used = claim.last_pv.as_ref().filter(|last| !last.resolved);
        let used = used.map(|last| DataOf::new(&last.uid, last.pvc_uid.as_deref()));
        if used.as_ref().is_some_and(|data| self.erased.contains_key(data)) {
            return Some("that the data of its PersistentVolume was wiped");
        }
        if used.is_some_and(|data| self.retained.contains(&data.pv_uid)) {
            return Some("that the data of its PersistentVolume is retained");
        }
        let last = self.last(&claim.identity).filter(|last| last.claim == claim_key(claim))?;
        (last.round == claim.round && last.over)
            .then_some("that the data of this round was wiped or is retained")
    }
}

fn records(what: &str) -> String {
    format!("the ledger of this node records {what}; the API may have been restored from a backup")
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_api::node_inventory::{ClaimJob, ClaimOwner, LastPv};

    fn claim(id: &str, round: i64) -> DeviceClaim {
        DeviceClaim {
            identity: "wwn:1".into(),
            id: id.into(),
            owner: ClaimOwner { uid: "set".into(), ..ClaimOwner::default() },
            round,
            ..DeviceClaim::default()
        }
    }

    fn data() -> DataOf {
        DataOf::new("pv", None)
    }

    fn confirmed(claims: &[(&str, i64)]) -> History {
        let mut history = History::default();
        for (id, round) in claims {
            history.confirm("wwn:1", id, "set", *round);
        }
        history
    }

    // invariant: 10
    #[test]
    fn a_claim_that_the_ledger_knows_to_be_over_is_outdated() {
        let why = |history: &History, claim: &DeviceClaim| history.outdated(claim);
        let history = confirmed(&[("a", 1), ("a", 2)]);
        assert_eq!(why(&history, &claim("a", 2)), None, "the current one");
        assert_eq!(why(&history, &claim("a", 3)), None, "the next round");
        assert_eq!(why(&history, &claim("b", 1)), None, "a new device claim");
        assert!(why(&history, &claim("a", 1)).unwrap().contains("a later round"));
        let history = confirmed(&[("a", 5), ("b", 1)]);
        assert!(why(&history, &claim("a", 5)).unwrap().contains("followed by another"));
        assert!(why(&history, &claim("a", 9)).unwrap().contains("followed by another"));
        let mut history = confirmed(&[("a", 1)]);
        history.release("wwn:1", "a");
        assert!(why(&history, &claim("a", 1)).unwrap().contains("released"));
        assert_eq!(why(&history, &claim("b", 1)), None);
        let other = DeviceClaim { identity: "wwn:2".into(), ..claim("a", 1) };
        assert_eq!(why(&history, &other), None, "another device");
    }

    // invariant: 10
    #[test]
    fn a_round_whose_data_was_wiped_or_retained_is_outdated() {
        let wiped = |history: &mut History| history.erase("wwn:1", data(), WipePolicy::Quick);
        let retained = |history: &mut History| history.retain("wwn:1", "pv");
        for end in [&wiped as &dyn Fn(&mut History), &retained] {
            let mut history = confirmed(&[("a", 1)]);
            end(&mut history);
            assert!(history.outdated(&claim("a", 1)).is_some());
            assert_eq!(history.outdated(&claim("a", 2)), None, "the next round");
            let last_pv = Some(LastPv { uid: "pv".into(), ..LastPv::default() });
            let restored = DeviceClaim { last_pv, ..claim("a", 2) };
            assert!(history.outdated(&restored).is_some(), "of that PersistentVolume");
            let job = Some(ClaimJob { name: "wipe-1".into(), attempt: 1 });
            let under_way = DeviceClaim { job, ..restored };
            assert_eq!(history.outdated(&under_way), None, "the wipe is not reported yet");
            history.confirm("wwn:1", "b", "set", 1);
            assert!(history.outdated(&under_way).is_some(), "another device claim followed");
            assert!(history.superseded(&under_way).unwrap().contains("followed by another"));
        }
    }

    #[test]
    fn the_most_thorough_wipe_counts() {
        let mut history = History::default();
        history.erase("wwn:1", data(), WipePolicy::Zero);
        history.erase("wwn:1", data(), WipePolicy::Quick);
        assert_eq!(history.remembered("wwn:1", &data()).erased, Some(WipePolicy::Zero));
        let later = DataOf::new("pv", Some("later"));
        assert_eq!(history.remembered("wwn:1", &later).erased, None, "the data of another PVC");
    }
}
