//! Claimed devices on the simulated node: what `crates/node/src/linux/device.rs` does, with the same decisions.

use crate::disk::{Disk, SeededBug};
use quarry_api::{
    node_inventory::{DeviceClaim, PathReport},
    node_job::WipePolicy,
};
use quarry_core::{
    device::GroupedDevice,
    device_claim::{
        confirm::{Expected, find, verify},
        history::claim_key,
    },
};
use quarry_node::{
    ConfirmRequest, Confirmation, HoldRequest, LinkDevice, LinkGoal, LinkState, LinkTask,
    NodeError, NodeScan, NodeView,
};

/// What a scan sees.
pub fn scan(disk: &Disk) -> NodeScan {
    NodeScan {
        devices: disk.scan_node(),
        problems: Vec::new(),
        again_in: None,
        boot_id: Some(format!("boot-{}", disk.boots)),
        machine_id: Some(disk.machine_id()),
        ledger_id: Some(disk.ledger_id()),
    }
}

impl Disk {
    pub fn confirm(&mut self, request: &ConfirmRequest) -> Confirmation {
        let known = request.view.known(&scan(self));
        let results = request
            .claims
            .iter()
            .map(|claim| self.confirm_one(claim, &known, &request.view))
            .collect();
        Confirmation { results, scan: scan(self) }
    }

    /// Some are confirmed and linked, the others are not yet.
    pub fn confirm_half(&mut self, request: &ConfirmRequest) -> Confirmation {
        let some = request.claims.iter().take(request.claims.len().div_ceil(2)).cloned().collect();
        self.confirm(&ConfirmRequest { claims: some, ..request.clone() })
    }

    fn confirm_one(
        &mut self,
        claim: &DeviceClaim,
        known: &[GroupedDevice],
        view: &NodeView,
    ) -> Result<(), String> {
        let device = find(claim, known)?;
        if self.seeded_bug != Some(SeededBug::ConfirmAnything) {
            verify(claim, Expected::of_claim(claim), known, &view.spec)?;
            if self.is_held(&device.facts.name) {
                return Err(format!(
                    "{} is opened exclusively by another process",
                    device.facts.name
                ));
            }
        }
        if self.seeded_bug == Some(SeededBug::EraseNeighbours) {
            self.disks.values_mut().for_each(|disk| (disk.signature, disk.data) = (None, None));
        }
        self.lead(&claim.link, &LinkDevice::from(&device.facts));
        let (key, owner) = (claim_key(claim), claim.owner.uid.as_str());
        self.history.confirm(&claim.identity, key, owner, claim.round);
        Ok(())
    }

    fn lead(&mut self, link: &str, device: &LinkDevice) {
        let first = || self.disks.keys().next().map(|name| format!("/dev/{name}"));
        let wrong =
            if self.seeded_bug == Some(SeededBug::MislinkAnything) { first() } else { None };
        let target = device.persistent_names.first().cloned();
        let target = target.unwrap_or_else(|| format!("/dev/{}", device.name));
        self.claim_links.insert(link.to_owned(), wrong.unwrap_or(target));
    }

    pub fn follow_links(&mut self, tasks: &[LinkTask]) -> Vec<LinkState> {
        tasks
            .iter()
            .map(|task| LinkState { linked: self.follow_link(task), ..LinkState::default() })
            .collect()
    }

    fn follow_link(&mut self, task: &LinkTask) -> bool {
        let leads_to = |disk: &Disk, device: &LinkDevice| {
            disk.behind(&task.link) == Some(device.name.as_str())
        };
        match &task.goal {
            LinkGoal::Lead(device) => {
                if !leads_to(self, device) {
                    self.lead(&task.link, device);
                }
                true
            }
            LinkGoal::Observe(device) => {
                device.as_ref().is_some_and(|device| leads_to(self, device))
            }
            LinkGoal::Await => {
                if self.behind(&task.link).is_some() {
                    self.claim_links.remove(&task.link);
                }
                false
            }
            LinkGoal::Remove => {
                if self.seeded_bug != Some(SeededBug::KeepLinks) {
                    self.claim_links.remove(&task.link);
                }
                false
            }
        }
    }

    pub fn resolve(&self, paths: &[String]) -> Vec<PathReport> {
        let report = |path: &String| {
            let name = self.at(path).map(str::to_owned);
            let problem = name.is_none().then(|| "does not exist".to_owned());
            PathReport { path: path.clone(), device: name, problem }
        };
        paths.iter().map(report).collect()
    }

    /// Takes the device claim's disk; its name.
    pub fn hold(&mut self, request: &HoldRequest) -> Result<String, NodeError> {
        let HoldRequest { claim, pv_uid: _, pvc_uid: _, policy: _, view } = request;
        let superseded = self.history.superseded(claim);
        if let Some(why) = superseded.filter(|_| self.seeded_bug != Some(SeededBug::ForgetOutcomes))
        {
            return Err(NodeError::Refused(why));
        }
        let expected = Expected::of_wipe(claim, &self.remembered(&claim.identity, &request.data()))
            .map_err(NodeError::Refused)?;
        let known = view.known(&scan(self));
        let name = find(claim, &known).map_err(NodeError::Refused)?.facts.name.clone();
        if self.seeded_bug != Some(SeededBug::HoldAnything) {
            verify(claim, expected, &known, &view.spec)
                .map_err(|why| NodeError::Refused(expected.explain(why)))?;
            if self.is_held(&name) {
                return Err(NodeError::InUse {
                    device: name,
                    users: "opened exclusively by another process".into(),
                });
            }
        }
        self.held.insert(name.clone());
        Ok(name)
    }

    pub fn wipe(&mut self, name: &str, policy: WipePolicy) -> Result<String, NodeError> {
        let half = self.seeded_bug == Some(SeededBug::WipeHalf);
        let Some(found) = self.disks.get_mut(name) else {
            return Err(NodeError::Refused(format!(
                "simulated: {name} was unplugged while it was erased"
            )));
        };
        found.signature = None;
        if found.broken {
            return Err(NodeError::Other {
                attempt: format!("simulated: writing to {name}"),
                retryable: false,
                source: None,
            });
        }
        // A quick wipe leaves what cannot be mounted any more; nothing else distinguishes it from data in use.
        if !half {
            found.data = None;
        }
        Ok(format!("simulated {}", policy.as_str()))
    }

    /// The beginning of the disk is zero already, its end is not.
    pub fn wipe_half(&mut self, name: &str) {
        if let Some(found) = self.disks.get_mut(name) {
            found.signature = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw_disks::RawDisk;
    use quarry_api::NodeInventorySpec;

    fn disk() -> Disk {
        let mut disk = Disk::new(false, true);
        disk.plug("sda", RawDisk::new(1));
        disk
    }

    fn claim() -> DeviceClaim {
        let link = "/mnt/local-storage/fast/x".to_owned();
        DeviceClaim {
            identity: "wwn:5000c50000000001".into(),
            size: 1 << 40,
            link,
            ..DeviceClaim::default()
        }
    }

    fn request() -> ConfirmRequest {
        let view = NodeView {
            spec: NodeInventorySpec {
                device_claims: vec![claim()],
                ..NodeInventorySpec::default()
            },
            ..NodeView::default()
        };
        ConfirmRequest { claims: vec![claim()], view, scan: NodeScan::default() }
    }

    #[test]
    fn a_blank_free_disk_is_confirmed_and_linked_and_no_other() {
        let mut blank = disk();
        assert_eq!(blank.confirm(&request()).results, [Ok(())]);
        assert_eq!(blank.behind("/mnt/local-storage/fast/x"), Some("sda"));
        let spoil: [fn(&mut Disk); 3] = [
            |disk| disk.disks.get_mut("sda").unwrap().signature = Some("ext4".into()),
            |disk| disk.disks.get_mut("sda").unwrap().taken = true,
            |disk| drop(disk.mounts.insert("sda".into(), "/mnt".into())),
        ];
        for (at, spoil) in spoil.into_iter().enumerate() {
            let mut spoilt = disk();
            spoil(&mut spoilt);
            assert!(spoilt.confirm(&request()).results[0].is_err(), "{at}");
            assert!(spoilt.claim_links.is_empty());
            spoilt.seeded_bug = Some(SeededBug::ConfirmAnything);
            assert_eq!(spoilt.confirm(&request()).results, [Ok(())], "{at}");
        }
    }

    #[test]
    fn a_held_disk_is_held_once_and_a_wipe_leaves_nothing() {
        let mut disk = disk();
        disk.disks.get_mut("sda").unwrap().signature = Some("ext4".into());
        disk.disks.get_mut("sda").unwrap().data = Some("mine".into());
        let hold = HoldRequest {
            claim: claim(),
            pv_uid: "p".into(),
            pvc_uid: None,
            policy: WipePolicy::Quick,
            view: request().view,
        };
        assert_eq!(disk.hold(&hold).unwrap(), "sda");
        assert!(disk.hold(&hold).unwrap_err().retryable());
        disk.wipe_half("sda");
        assert_eq!(disk.disks["sda"].data.as_deref(), Some("mine"));
        disk.wipe("sda", WipePolicy::Zero).unwrap();
        assert_eq!((&disk.disks["sda"].data, &disk.disks["sda"].signature), (&None, &None));
    }
}
