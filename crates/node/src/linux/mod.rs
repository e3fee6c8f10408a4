//! The node itself: holds the node's lock for as long as it lives, and does what `NodeOps` says.
//!
//! Calls block; the agent makes them on its workers. Next to read: `volume.rs`, `device.rs`, `ledger.rs`.

mod device;
mod ledger;
mod volume;

use crate::{
    error::NodeError,
    host_root::HostRoot,
    inspect::{
        probe::Certainty,
        scan::{Limits, Reach, Scan, ScanResult, Scanner},
        unmanaged_pvs,
    },
    ledger::Ledger,
    lock::Lock,
    node_ops::{NodeScan, ScanRequest},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// One silent disk must not keep the others from being seen; it is read again soon.
const PATIENCE: Duration = Duration::from_millis(300);

pub struct LinuxNode {
    host: HostRoot,
    ledger: Arc<Mutex<Ledger>>,
    scanner: Mutex<Scanner>,
    _lock: Lock,
    /// `None`: real disks are only observed.
    _real_disks: Option<Lock>,
}

impl LinuxNode {
    /// Fails with the other's PID while another agent runs on this node, or one that uses real disks on this machine.
    pub fn open(host: HostRoot, observe_only: bool) -> Result<Self, NodeError> {
        let lock = Lock::take(&host)?;
        let real_disks = (!observe_only).then(|| Lock::take_real_disks(&host)).transpose()?;
        let ledger = Ledger::open(&host.ledger())?;
        let reach = if observe_only { Reach::OwnLoops } else { Reach::Everything };
        let scanner =
            Scanner::new(host.clone(), Limits { reach, patience: PATIENCE, ..Limits::default() });
        Ok(LinuxNode {
            host,
            ledger: Arc::new(Mutex::new(ledger)),
            scanner: Mutex::new(scanner),
            _lock: lock,
            _real_disks: real_disks,
        })
    }

    pub fn host(&self) -> &HostRoot {
        &self.host
    }

    /// A scan, and the devices that have not answered yet: what it says of those is old.
    fn scan(&self, request: &ScanRequest) -> Result<(NodeScan, Vec<String>), NodeError> {
        let scan = if request.everything {
            Scan::Everything
        } else {
            Scan::Changed { touched: &request.touched }
        };
        let spared = self.spared(&request.spare);
        let scanned = {
            let mut scanner = self.scanner.lock().unwrap_or_else(PoisonError::into_inner);
            scanner.spare(spared);
            scanner
                .scan_with(scan, if request.proves { Certainty::Prove } else { Certainty::Look })?
        };
        let ScanResult { devices, problems, again_in, boot_id, silent, .. } = scanned;
        let mut devices = devices.to_vec();
        self.mark_volumes(&mut devices)?;
        unmanaged_pvs::mark_unmanaged(&self.host, &mut devices, &request.unmanaged_pvs);
        let machine_id = self.host.machine_id()?;
        let ledger_id = Some(self.ledger().id().to_owned());
        Ok((NodeScan { devices, problems, again_in, boot_id, machine_id, ledger_id }, silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent of a cluster and a standalone Quarry, or two of these, know nothing of each other's device claims.
    // invariant: 10
    #[test]
    fn two_nodes_on_a_machine_do_not_share_real_disks() {
        let root = tempfile::tempdir().unwrap();
        let host = |data: &str| HostRoot::open(root.path(), data).unwrap();
        let first = LinuxNode::open(host("/var/lib/quarry"), false).unwrap();
        let Err(refused) = LinuxNode::open(host("/other"), false) else { panic!() };
        assert!(refused.to_string().contains("data directory /var/lib/quarry"), "{refused}");
        let observing = LinuxNode::open(host("/other"), true).unwrap();
        drop((first, observing));
        LinuxNode::open(host("/other"), false).unwrap();
    }
}
