//! Three nodes of one cluster, each with its agent: the verdict on a disk depends on what the other
//! nodes report.

use crate::cluster::{Cluster, has, is_available, of};
use quarry_api::node_inventory::DeviceState;
use quarry_core::device::Reason;
use quarry_tests::guest::{Disk, Qemu};
use std::thread;

// invariant: 3
#[test]
fn disk_on_two_nodes_is_quarantined_until_one_is_left() {
    let names = ["rack-a", "rack-b", "rack-c"];
    let cluster = Cluster::start(&names);
    let mut nodes = names
        .map(|name| thread::spawn(move || Qemu::restore(name)))
        .map(|node| node.join().unwrap());
    let shared = || Disk::scsi("SHARED").vendor("ACME").model("LUN").wwn(0x5000_c500_0000_0042);
    let (on_a, on_b) = (shared(), shared());
    for node in &mut nodes {
        let own = Disk::nvme(&format!("OWN-{}", node.name()));
        node.plug(&own);
        cluster.start_agent(node, "1s");
    }
    let [a, b, c] = &mut nodes;
    for node in [&*a, &*b, &*c] {
        let own =
            cluster.device(node, &format!("OWN-{}", node.name()), "is Available", is_available);
        assert_eq!(own.identity, Some(format!("serial:QEMU NVMe Ctrl:OWN-{}", node.name())));
    }
    let mut boots: Vec<_> = names
        .iter()
        .map(|name| cluster.status(name))
        .map(|status| (status.boot_id, status.machine_id))
        .collect();
    boots.sort();
    boots.dedup();
    assert_eq!(boots.len(), 3, "each is a separate machine: {boots:?}");

    a.plug(&on_a);
    let seen =
        cluster.device(a, "SHARED", "is Available while only one node shows it", is_available);
    assert_eq!(seen.identity.as_deref(), Some("wwn:5000c50000000042"));
    b.plug(&on_b);
    for (node, other) in [(&*a, "rack-b"), (&*b, "rack-a")] {
        let device = cluster.device(node, "SHARED", "is quarantined", |device| {
            has(device, Reason::IdentityElsewhere.as_str())
        });
        assert_eq!(device.state, DeviceState::NotAvailable);
        let why =
            device.reasons.iter().find(|entry| entry.reason == Reason::IdentityElsewhere).unwrap();
        assert!(why.detail.contains(other), "the other side is named: {why:?}");
        cluster.result(node.name(), "the disk is not available", |devices| {
            devices.iter().any(|device| {
                device.serial == "SHARED" && device.status.state == DeviceState::NotAvailable
            })
        });
        cluster.inventory(node, "one is quarantined", |status| {
            status.summary.as_ref().filter(|summary| summary.quarantined == 1).map(drop)
        });
    }
    cluster
        .wait_event("DeviceVerdictChanged", &["wwn:5000c50000000042", "was Available", "rack-b"]);
    assert!(of(&cluster.status("rack-c"), "SHARED").is_none());
    assert!(
        of(&cluster.status("rack-c"), "OWN-rack-c").is_some_and(is_available),
        "an uninvolved node is not affected"
    );

    b.unplug(&on_b);
    cluster.wait_absent(b, "SHARED");
    cluster.device(a, "SHARED", "is Available again", is_available);
    cluster.inventory(a, "nothing is quarantined", |status| {
        status.summary.as_ref().filter(|summary| summary.quarantined == 0).map(drop)
    });
}
