//! `NodeOps` on the simulated disk: every operation is numbered, may meet a fault, and is checked by a witness.
//!
//! A crash unwinds with a payload of its own, which the scheduler catches: everything the agent remembers is dropped.

use crate::{
    device_ops,
    disk::{Disk, Record, SeededBug},
    fault::{FaultKind, FaultPoint, Track},
    fault_proxy::{Gate, Shared},
    invariant, lock,
    versioned::Versioned,
};
use quarry_api::{
    ids::Uid,
    node_inventory::{DeviceClaim, PathReport, RetainedData},
    node_job::WipePolicy,
};
use quarry_core::{
    device_claim::history::claim_key,
    job::{Intent, Outcome},
    storage::sparse::{Observed, Sparse, Step},
};
use quarry_node::{
    ConfirmRequest, Confirmation, DeviceOps, HeldDevice, HoldRequest, LedgerOps, LinkState,
    LinkTask, NodeError, NodeScan, Progress, ScanRequest, VolumeOps,
};
use std::sync::{Arc, Mutex};

/// The payload of a simulated crash.
pub struct Crash;

#[derive(Clone)]
pub struct SimNode {
    pub disk: Arc<Mutex<Versioned<Disk>>>,
    pub gate: Arc<Gate>,
    pub shared: Arc<Shared>,
}

const READ: [(FaultPoint, FaultKind); 4] = [
    (FaultPoint::Before, FaultKind::Crash),
    (FaultPoint::After, FaultKind::Crash),
    (FaultPoint::Before, FaultKind::Error),
    (FaultPoint::Before, FaultKind::Busy),
];
const WRITE: [(FaultPoint, FaultKind); 8] = [
    (FaultPoint::Before, FaultKind::Crash),
    (FaultPoint::After, FaultKind::Crash),
    (FaultPoint::Before, FaultKind::PowerCut),
    (FaultPoint::After, FaultKind::PowerCut),
    (FaultPoint::Before, FaultKind::Error),
    (FaultPoint::After, FaultKind::Error),
    (FaultPoint::Before, FaultKind::Busy),
    (FaultPoint::During, FaultKind::PowerCut),
];

impl SimNode {
    fn operate<T>(
        &self,
        label: &str,
        possible: &[(FaultPoint, FaultKind)],
        half: impl FnOnce(&mut Disk, FaultKind),
        whole: impl FnOnce(&mut Disk) -> Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        let fault = lock(&self.shared.injector).pass(Track::Disk, label, possible);
        self.shared.note(|| match fault {
            Some((when, what)) => format!("disk: {label}  <== {what:?} {when:?}"),
            None => format!("disk: {label}"),
        });
        match fault {
            Some((FaultPoint::Before, FaultKind::Crash | FaultKind::PowerCut)) => self.die(fault),
            Some((FaultPoint::Before, FaultKind::Error)) => return Err(failure(label, false)),
            Some((FaultPoint::Before, FaultKind::Busy)) => return Err(failure(label, true)),
            Some((FaultPoint::During, what)) => {
                half(&mut lock(&self.disk), what);
                self.die(fault);
            }
            _ => {}
        }
        let done = whole(&mut lock(&self.disk));
        if let Err(error) = &done {
            self.shared.note(|| format!("    {}", error.message()));
        }
        match fault {
            Some((FaultPoint::After, FaultKind::Crash | FaultKind::PowerCut)) => self.die(fault),
            Some((FaultPoint::After, _)) => Err(failure(label, false)),
            _ => done,
        }
    }

    fn die(&self, fault: Option<(FaultPoint, FaultKind)>) -> ! {
        self.gate.crash(fault.map_or(FaultKind::Crash, |(_, what)| what));
        // Past the panic hook: this is no failure of the program.
        std::panic::resume_unwind(Box::new(Crash))
    }

    fn read<T>(&self, label: &str, whole: impl FnOnce(&Disk) -> T) -> Result<T, NodeError> {
        self.operate(label, &READ, |_, _| {}, |disk| Ok(whole(disk)))
    }

    fn append(&self, label: &str, record: Record) -> Result<(), NodeError> {
        // Cut short: the line is not whole, and dropped at the next start.
        self.operate(
            label,
            &WRITE,
            |_, _| {},
            |disk| {
                if record.outcome.is_some() || disk.seeded_bug != Some(SeededBug::ForgetIntents) {
                    disk.record(record);
                }
                Ok(())
            },
        )
    }
}

fn failure(label: &str, retryable: bool) -> NodeError {
    NodeError::Other { attempt: format!("simulated failure: {label}"), retryable, source: None }
}

impl VolumeOps<Sparse> for SimNode {
    fn observe(&self, uid: &Uid) -> Result<Observed, NodeError> {
        self.read("observe", |disk| disk.observe(uid.as_str()))
    }

    fn observe_shared(&self, uid: &Uid) -> Result<Observed, NodeError> {
        self.read("observe shared", |disk| disk.observe(uid.as_str()))
    }

    fn apply(&self, uid: &Uid, step: &Step) -> Result<(), NodeError> {
        let uid = uid.as_str();
        let mut possible = WRITE.to_vec();
        if lock(&self.disk).clone().apply_half(uid, step, false) {
            possible.push((FaultPoint::During, FaultKind::Crash));
        }
        if !lock(&self.disk).clone().apply_half(uid, step, true) {
            possible.retain(|(when, _)| *when != FaultPoint::During);
        }
        let label = format!("{step:?}");
        let half = |disk: &mut Disk, what: FaultKind| {
            disk.apply_half(uid, step, what == FaultKind::PowerCut);
        };
        self.operate(&label, &possible, half, |disk| {
            let wrong = invariant::witness(uid, step, disk, &lock(&self.shared.world));
            lock(&self.shared.violations).extend(wrong);
            disk.apply(uid, step)
        })
    }

    fn known_volumes(&self) -> Result<Vec<Uid>, NodeError> {
        let known = self.read("known volumes", Disk::known_volumes)?;
        Ok(known.into_iter().map(Uid::from).collect())
    }
}

impl LedgerOps for SimNode {
    fn record_intent(&self, entry: &Intent) -> Result<(), NodeError> {
        self.append("intent", Record { task: entry.task.clone(), outcome: None })
    }

    fn record_outcome(&self, entry: &Outcome) -> Result<(), NodeError> {
        let record = Record { task: entry.task.clone(), outcome: Some(entry.result) };
        self.append("outcome", record)
    }

    fn record_retained(&self, retained: &[RetainedData]) -> Result<(), NodeError> {
        let known =
            |disk: &Disk| retained.iter().all(|data| disk.history.is_retained(&data.pv_uid));
        if known(&lock(&self.disk)) {
            return Ok(());
        }
        let possible: Vec<(FaultPoint, FaultKind)> =
            WRITE.into_iter().filter(|(when, _)| *when != FaultPoint::During).collect();
        self.operate(
            "retain",
            &possible,
            |_, _| {},
            |disk| {
                for data in retained {
                    disk.history.retain(&data.identity, &data.pv_uid);
                }
                Ok(())
            },
        )
    }

    fn record_released(&self, claims: &[DeviceClaim]) -> Result<(), NodeError> {
        let key = |claim: &DeviceClaim| (claim.identity.clone(), claim_key(claim).to_owned());
        let known = |disk: &Disk| {
            claims.iter().map(key).all(|(device, claim)| disk.history.is_released(&device, &claim))
        };
        if known(&lock(&self.disk)) {
            return Ok(());
        }
        let possible: Vec<(FaultPoint, FaultKind)> =
            WRITE.into_iter().filter(|(when, _)| *when != FaultPoint::During).collect();
        self.operate(
            "release",
            &possible,
            |_, _| {},
            |disk| {
                for (device, claim) in claims.iter().map(key) {
                    disk.history.release(&device, &claim);
                }
                Ok(())
            },
        )
    }

    // From memory, as on the machine: it cannot fail.
    fn outdated(&self, claims: &[DeviceClaim]) -> Result<Vec<Option<String>>, NodeError> {
        Ok(lock(&self.disk).outdated(claims))
    }

    fn ledger_id(&self) -> Result<String, NodeError> {
        Ok(lock(&self.disk).ledger_id())
    }
}

impl DeviceOps for SimNode {
    fn scan_node(&self, _: &ScanRequest) -> Result<NodeScan, NodeError> {
        self.read("scan", device_ops::scan)
    }

    fn confirm(&self, request: &ConfirmRequest) -> Result<Confirmation, NodeError> {
        self.operate(
            "confirm",
            &WRITE,
            |disk, _| drop(disk.confirm_half(request)),
            |disk| Ok(disk.confirm(request)),
        )
    }

    fn follow_links(&self, tasks: &[LinkTask]) -> Result<Vec<LinkState>, NodeError> {
        let writes = {
            let mut tried = lock(&self.disk).clone();
            tried.follow_links(tasks);
            tried.claim_links != lock(&self.disk).claim_links
        };
        let possible: Vec<(FaultPoint, FaultKind)> = if writes {
            WRITE.into_iter().filter(|(when, _)| *when != FaultPoint::During).collect()
        } else {
            READ.to_vec()
        };
        self.operate("links", &possible, |_, _| {}, |disk| Ok(disk.follow_links(tasks)))
    }

    fn resolve(&self, paths: &[String]) -> Result<Vec<PathReport>, NodeError> {
        self.read("resolve", |disk| disk.resolve(paths))
    }

    fn hold(&self, request: &HoldRequest) -> Result<Box<dyn HeldDevice>, NodeError> {
        let holder = self.clone();
        self.operate(
            "hold",
            &READ,
            |_, _| {},
            |disk| {
                let identity = &request.claim.identity;
                let wiped = disk.remembered(identity, &request.data()).covers(request.policy);
                let name = disk.hold(request)?;
                Ok(Box::new(Held { ops: holder, name, identity: identity.clone(), wiped })
                    as Box<dyn HeldDevice>)
            },
        )
    }
}

/// A disk that the agent holds; released however that ends.
struct Held {
    ops: SimNode,
    name: String,
    identity: String,
    wiped: bool,
}

impl HeldDevice for Held {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_wiped(&self) -> bool {
        self.wiped
    }

    fn wipe(self: Box<Self>, policy: WipePolicy, _: &Progress) -> Result<String, NodeError> {
        if self.wiped {
            return Ok("erased before, and blank".into());
        }
        let (name, identity) = (&self.name, &self.identity);
        let possible = [&WRITE[..], &[(FaultPoint::During, FaultKind::Crash)]].concat();
        let shared = &self.ops.shared;
        self.ops.operate(
            &format!("wipe {name}"),
            &possible,
            |disk, _| disk.wipe_half(name),
            |disk| {
                let wrong = invariant::witness_wipe(name, identity, disk, &lock(&shared.world));
                lock(&shared.violations).extend(wrong);
                disk.wipe(name, policy)
            },
        )
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut disk = lock(&self.ops.disk);
        disk.held.remove(&self.name);
        // Closing what was open for writing makes an event.
        disk.uevents += 1;
    }
}
