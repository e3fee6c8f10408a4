//! Devices and device claims on the machine: held while they are read, verified by what was read then, and released.
//!
//! Facts decide whether a device is opened at all: one that timed out, is only observed or is in use is not. While a
//! device is held the scanner reads it again, and only that reading counts.

use super::LinuxNode;
use crate::{
    act::{
        claim_link,
        hold::{Held, OpenPurpose, Opened, Verified},
        wipe,
    },
    device_claim::{
        ConfirmRequest, Confirmation, HeldDevice, HoldRequest, LinkDevice, LinkState, LinkTask,
        Spare, frozen, no_device,
    },
    error::NodeError,
    host_root::HostRoot,
    inspect::loops,
    ledger::{Ledger, Record},
    node_ops::{DeviceOps, NodeScan, ScanRequest},
    progress::Progress,
    sys::DevNumber,
};
use jiff::Timestamp;
use quarry_api::{
    node_inventory::{DeviceClaim, PathReport},
    node_job::WipePolicy,
};
use quarry_core::{
    device::GroupedDevice,
    device_claim::confirm::{Expected, find, verify},
};
use quarry_failpoint::failpoint;
use rustix::{fs::FileType, io::Errno};
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

impl DeviceOps for LinuxNode {
    fn scan_node(&self, request: &ScanRequest) -> Result<NodeScan, NodeError> {
        self.scan(request).map(|(scan, _)| scan)
    }

    fn confirm(&self, request: &ConfirmRequest) -> Result<Confirmation, NodeError> {
        self.confirm_claims(request)
    }

    fn follow_links(&self, tasks: &[LinkTask]) -> Result<Vec<LinkState>, NodeError> {
        Ok(tasks.iter().map(|task| claim_link::follow(&self.host, task)).collect())
    }

    fn resolve(&self, paths: &[String]) -> Result<Vec<PathReport>, NodeError> {
        Ok(paths.iter().map(|path| resolve_path(&self.host, path)).collect())
    }

    fn hold(&self, request: &HoldRequest) -> Result<Box<dyn HeldDevice>, NodeError> {
        self.hold_for_wipe(request)
    }
}

impl LinuxNode {
    fn confirm_claims(&self, request: &ConfirmRequest) -> Result<Confirmation, NodeError> {
        let ConfirmRequest { claims, view, scan } = request;
        let before = view.known(scan);
        let opened: Vec<Result<Held<Opened>, String>> = claims
            .iter()
            .map(|claim| {
                self.open_claimed(
                    claim,
                    Expected::of_claim(claim),
                    &before,
                    request,
                    OpenPurpose::Reading,
                )
            })
            .collect();
        let names: BTreeSet<String> =
            opened.iter().flatten().map(|held| held.name().to_owned()).collect();
        if names.is_empty() {
            let results = opened.into_iter().map(|held| held.map(drop)).collect();
            return Ok(Confirmation { results, scan: scan.clone() });
        }
        failpoint!("confirm.held");
        let (seen, silent) =
            self.scan(&ScanRequest { touched: names.clone(), proves: true, ..request.around() })?;
        let known = view.known(&seen);
        // All stay held until the last one is linked.
        let mut verified: Vec<Held<Verified>> = Vec::new();
        let mut results = Vec::new();
        for (claim, held) in claims.iter().zip(opened) {
            let confirmed = held.and_then(|held| {
                check_answered(&held, &silent)?;
                let held = held.verify(claim, Expected::of_claim(claim), &known, &view.spec)?;
                let facts = &find(claim, &known)?.facts;
                claim_link::lead(self.host(), &claim.link, &LinkDevice::from(facts))
                    .map_err(|error| error.message())?;
                Ok(held)
            });
            results.push(confirmed.map(|held| verified.push(held)));
        }
        failpoint!("confirm.linked");
        let confirmed = claims.iter().zip(&results).filter(|(_, answer)| answer.is_ok());
        self.record_new(
            confirmed.map(|(claim, _)| Record::confirmed(Timestamp::now(), claim)).collect(),
        )?;
        failpoint!("confirm.recorded");
        drop(verified);
        // What the last scan saw of them was us. Of their partitions, too.
        let partitions =
            names.iter().flat_map(|name| loops::partitions(self.host(), &name.replace('/', "!")));
        let touched = names.iter().cloned().chain(partitions).collect();
        let scan = self.scan_node(&ScanRequest { touched, ..request.around() })?;
        Ok(Confirmation { results, scan })
    }

    /// Not opened unless the last scan speaks for it: a device that hangs or is not as claimed is left alone.
    fn open_claimed(
        &self,
        claim: &DeviceClaim,
        expected: Expected,
        known: &[GroupedDevice],
        request: &ConfirmRequest,
        purpose: OpenPurpose,
    ) -> Result<Held<Opened>, String> {
        claim_link::parse(&claim.link)?;
        if let Some(why) = self.ledger().history().outdated(claim) {
            return Err(why);
        }
        verify(claim, expected, known, &request.view.spec)?;
        let facts = &find(claim, known)?.facts;
        Held::open(self.host(), &facts.name, purpose).map_err(|error| error.message())
    }

    fn hold_for_wipe(&self, request: &HoldRequest) -> Result<Box<dyn HeldDevice>, NodeError> {
        let HoldRequest { claim, pv_uid: _, pvc_uid: _, policy, view } = request;
        let (known, discard_ineffective) = {
            let ledger = self.ledger();
            let history = ledger.history();
            if let Some(why) = history.superseded(claim) {
                return Err(NodeError::Refused(format!("{why}; nothing is wiped")));
            }
            let known = history.remembered(&claim.identity, &request.data());
            (known, history.is_discard_ineffective(&claim.identity))
        };
        let expected = Expected::of_wipe(claim, &known).map_err(NodeError::Refused)?;
        let refused = |why: String| NodeError::Refused(expected.explain(why));
        let around = ScanRequest {
            unmanaged_pvs: view.spec.unmanaged_pvs.clone(),
            spare: view.spared(),
            ..ScanRequest::default()
        };
        let (scan, _) = self.scan(&around)?;
        if let Some(why) = frozen(&view.spec, &scan) {
            return Err(NodeError::Refused(why.into()));
        }
        let before = view.known(&scan);
        verify(claim, expected, &before, &view.spec).map_err(refused)?;
        let name = find(claim, &before).map_err(NodeError::Refused)?.facts.name.clone();
        failpoint!("wipe.seen");
        let held = Held::open(self.host(), &name, OpenPurpose::Writing)?;
        failpoint!("wipe.opened");
        let (seen, silent) =
            self.scan(&ScanRequest { touched: [name].into(), proves: true, ..around })?;
        check_answered(&held, &silent).map_err(NodeError::Refused)?;
        let held = held.verify(claim, expected, &view.known(&seen), &view.spec).map_err(refused)?;
        if known.covers(*policy) {
            // Done before, and the report of it was lost: what is on unread parts of the device is not ours to erase.
            return Ok(Box::new(Erased(held)));
        }
        let discard = Discard {
            ledger: self.ledger.clone(),
            identity: claim.identity.clone(),
            ineffective: discard_ineffective,
        };
        Ok(Box::new(WipeTarget { host: self.host().clone(), held, discard }))
    }

    /// The numbers of devices that must not be opened exclusively.
    pub(super) fn spared(&self, spare: &[Spare]) -> BTreeSet<DevNumber> {
        let host = self.host();
        let boot_id = host.boot_id();
        let behind = |spare: &Spare| {
            let stat = host
                .stat(Path::new(&spare.link))
                .ok()
                .filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice)?;
            Some(DevNumber::from_stat(stat.st_rdev))
        };
        let named = |spare: &Spare| {
            let directory = host.sys_block(
                &spare.name.as_ref().filter(|_| spare.boot_id == boot_id)?.replace('/', "!"),
            );
            let read = |attribute: &str| fs::read_to_string(directory.join(attribute)).ok();
            let diskseq: Option<u64> = read("diskseq")
                .or_else(|| read("../diskseq"))
                .and_then(|text| text.trim().parse().ok());
            let same = spare.diskseq.is_none() || diskseq.is_none() || spare.diskseq == diskseq;
            read("dev").filter(|_| same).and_then(|text| DevNumber::parse(&text))
        };
        spare.iter().flat_map(|spare| [behind(spare), named(spare)]).flatten().collect()
    }
}

impl ConfirmRequest {
    fn around(&self) -> ScanRequest {
        ScanRequest {
            unmanaged_pvs: self.view.spec.unmanaged_pvs.clone(),
            spare: self.view.spared(),
            ..ScanRequest::default()
        }
    }
}

/// A device that has not answered while it was held was judged by what it said before.
fn check_answered(held: &Held<Opened>, silent: &[String]) -> Result<(), String> {
    if silent.iter().any(|name| name == held.name()) {
        return Err(format!("{} does not answer", held.name()));
    }
    Ok(())
}

/// A device that was erased for this volume before, and is blank.
struct Erased(Held<Verified>);

impl HeldDevice for Erased {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn is_wiped(&self) -> bool {
        true
    }

    fn wipe(self: Box<Self>, _: WipePolicy, _: &Progress) -> Result<String, NodeError> {
        Ok("erased before, and blank: nothing was written".into())
    }
}

struct WipeTarget {
    host: HostRoot,
    held: Held<Verified>,
    discard: Discard,
}

/// What the ledger knows about discards of this device, and learns.
struct Discard {
    ledger: Arc<Mutex<Ledger>>,
    identity: String,
    ineffective: bool,
}

impl wipe::DiscardRecord for Discard {
    fn is_ineffective(&self) -> bool {
        self.ineffective
    }

    fn record_ineffective(&self) -> Result<(), NodeError> {
        let record = Record::discard_ineffective(Timestamp::now(), &self.identity);
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).append(&record)
    }
}

impl HeldDevice for WipeTarget {
    fn name(&self) -> &str {
        self.held.name()
    }

    fn is_wiped(&self) -> bool {
        false
    }

    fn wipe(self: Box<Self>, policy: WipePolicy, progress: &Progress) -> Result<String, NodeError> {
        wipe::wipe(&self.host, &self.held, policy, &self.discard, progress)
    }
}

/// The device at the end of a path of the node.
fn resolve_path(host: &HostRoot, path: &str) -> PathReport {
    if !path.starts_with('/') {
        return no_device(path, "is not an absolute path");
    }
    let stat = match host.stat(Path::new(path)) {
        Ok(stat) => stat,
        Err(Errno::NOENT | Errno::NOTDIR) => return no_device(path, "does not exist"),
        Err(error) => {
            return no_device(path, format!("cannot be followed: {}", std::io::Error::from(error)));
        }
    };
    let is = match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => {
            let number = DevNumber::from_stat(stat.st_rdev);
            return match host.block_name(number) {
                Some(name) => {
                    PathReport { path: path.to_owned(), device: Some(name), problem: None }
                }
                None => no_device(
                    path,
                    format!(
                        "is a device node {}:{} that the kernel has no device for",
                        number.major, number.minor
                    ),
                ),
            };
        }
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device",
        FileType::Symlink | FileType::Fifo | FileType::Socket | FileType::Unknown => {
            "something else"
        }
    };
    no_device(path, format!("is {is}, not a block device"))
}
