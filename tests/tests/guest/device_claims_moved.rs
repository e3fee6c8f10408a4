//! A disk that is unplugged from the node that claims it and plugged into another one.

use crate::{
    cluster::{Cluster, has},
    volumes::{is_offered, serial_behind},
};
use kube::ResourceExt;
use quarry_api::{
    NodeJob,
    node_inventory::{Device, DeviceClaim},
    node_job::JobPhase,
};
use quarry_core::{device::Reason, device_claim::status::EVENT_TROUBLE};
use quarry_tests::guest::{Disk, MIB, Qemu, until};
use serde_json::json;
use std::{fs::File, os::unix::fs::FileExt, thread};

const IDENTITY: &str = "wwn:5000c50000000051";
const SECRET: &[u8] = b"secret user data";
/// An offset that a check for blank disks does not read.
const HIDDEN: u64 = 9 * MIB + 4096 * 3;

/// Whether it is quarantined there, with all of these words about the other node.
fn is_quarantined_with(device: &Device, words: &[&str]) -> bool {
    let entry = device.reasons.iter().find(|entry| entry.reason == Reason::IdentityElsewhere);
    entry.is_some_and(|entry| words.iter().all(|word| entry.detail.contains(word)))
}

// invariant: 3
#[test]
fn moved_disk_stays_with_the_node_that_claims_it() {
    let names = ["first", "second"];
    let cluster = Cluster::start(&names);
    for name in names {
        cluster.make_set(&format!("on-{name}"), Some(name), json!({"vendors": ["ACME"]}));
    }
    let [mut first, mut second] = names
        .map(|name| thread::spawn(move || Qemu::restore(name)))
        .map(|node| node.join().unwrap());
    let disk =
        Disk::scsi("MOVED").vendor("ACME").model("DISK").wwn(0x5000_c500_0000_0051).size(16 * MIB);
    File::options()
        .write(true)
        .open(disk.bytes().path())
        .unwrap()
        .write_all_at(SECRET, HIDDEN)
        .unwrap();
    let bytes = disk.bytes().contents();
    first.plug(&disk);
    for node in [&mut first, &mut second] {
        cluster.start_agent(node, "100ms");
    }
    let shared = cluster.offered(&[&first, &second], &["on-first"]).remove("on-first").unwrap();

    // In both at the same time, like a shared LUN: in quarantine from now on. Nothing new is done
    // with it, and what was published before the second node showed it stays.
    second.plug(&disk);
    cluster.device(&second, "MOVED", "is the first one's", |device| {
        is_quarantined_with(device, &["of node first"])
    });
    cluster.device(&first, "MOVED", "is seen on the second", |device| {
        is_quarantined_with(device, &["of node second"])
    });
    assert_eq!(cluster.spec("second").device_claims, []);
    assert_eq!(cluster.spec("first").device_claims.len(), 1);
    second.unplug(&disk);
    cluster.wait_absent(&second, "MOVED");
    let pv = cluster.offered(&[&first, &second], &["on-first"]).remove("on-first").unwrap();
    assert_eq!(pv.uid(), shared.uid(), "a later rival withdraws nothing");

    // Removed from the first node: the device claim still counts. Each side names the other.
    first.unplug(&disk);
    cluster.wait_absent(&first, "MOVED");
    second.plug(&disk);
    cluster.wait_event(EVENT_TROUBLE, &[IDENTITY, "is missing", "reconnect it"]);
    let here = cluster.device(&second, "MOVED", "is claimed by the first", |device| {
        is_quarantined_with(
            device,
            &["the device claim of LocalVolumeSet", "/on-first", "of node first"],
        )
    });
    let quarantine = cluster.spec("first").quarantine;
    assert_eq!(quarantine.len(), 1, "{quarantine:?}");
    assert_eq!(
        (quarantine[0].identity.as_str(), quarantine[0].detail.clone()),
        (IDENTITY, format!("{} of node second", here.name))
    );

    // Released in the meantime: it waits for its device, and no other node wipes it. Other disks
    // are processed.
    cluster.bind(&pv);
    cluster.release(&pv);
    let other =
        Disk::scsi("OWN").vendor("ACME").model("DISK").wwn(0x5000_c500_0000_0052).size(16 * MIB);
    second.plug(&other);
    let own = cluster.volumes_are(
        &[&first, &second],
        "the second offers its own disk, the first waits",
        |found| {
            let waits =
                found.get("on-first")?.iter().any(|pv| pv.metadata.deletion_timestamp.is_some());
            found.get("on-second")?.iter().find(|pv| waits && is_offered(pv)).cloned()
        },
    );
    assert_eq!(serial_behind(&mut second, &own), "OWN");
    assert_eq!(
        cluster
            .spec("second")
            .device_claims
            .iter()
            .map(|claim| &claim.identity)
            .collect::<Vec<_>>(),
        ["wwn:5000c50000000052"]
    );
    assert!(cluster.jobs().is_empty(), "no job wipes a disk that is not there");
    assert!(disk.bytes().contents() == bytes, "not a byte of it has changed");

    // Back: wiped on its own node, and offered again.
    second.unplug(&disk);
    cluster.wait_absent(&second, "MOVED");
    first.plug(&disk);
    let again = cluster.volumes_are(&[&first, &second], "the first offers it again", |found| {
        found.get("on-first")?.iter().find(|new| is_offered(new) && new.uid() != pv.uid()).cloned()
    });
    assert_eq!(
        (again.name_any(), serial_behind(&mut first, &again)),
        (pv.name_any(), "MOVED".to_owned())
    );
    until("nothing is quarantined", || match names.map(|node| cluster.spec(node).quarantine) {
        all if all.iter().all(Vec::is_empty) => Ok(()),
        all => Err(format!("{all:?}\n{}", cluster.log())),
    });
    // An attempt may fail before it erases anything, on a machine that is too busy to read the disk in time.
    let jobs = cluster.jobs();
    let succeeded = |job: &&NodeJob| {
        job.status.as_ref().and_then(|status| status.phase) == Some(JobPhase::Succeeded)
    };
    assert_eq!(jobs.iter().filter(succeeded).count(), 1, "{jobs:?}");
    assert!(jobs.iter().all(|job| job.spec.node_name == "first"), "{jobs:?}");

    // Moved permanently: the second node claims it after the first has released it.
    first.unplug(&disk);
    cluster.wait_absent(&first, "MOVED");
    second.plug(&disk);
    cluster.device(&second, "MOVED", "is the first one's still", |device| {
        has(device, Reason::IdentityElsewhere.as_str())
    });
    cluster.delete_set("on-first");
    cluster.volumes_are(&[&first, &second], "the second has both", |found| {
        (found.len() == 1
            && found.get("on-second")?.iter().filter(|pv| is_offered(pv)).count() == 2)
            .then_some(())
    });
    let claims: Vec<DeviceClaim> = cluster.spec("first").device_claims;
    assert_eq!(claims, [], "nothing is left on the first");
    assert_eq!(first.run("ls -A /mnt/local-storage/on-first 2>/dev/null || true"), "");
}
