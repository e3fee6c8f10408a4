//! A disk that accepts discards and ignores them: its data must be gone all the same after a wipe.

use crate::{cluster::Cluster, volumes::is_offered};
use kube::ResourceExt;
use quarry_api::{NodeJob, node_job::JobPhase};
use quarry_tests::guest::{AGENT_DATA, Disk, Image, MIB, Qemu};
use serde_json::json;

const SECRET: &str = "secret user data";
/// In the middle of the disk, between the places that are sampled. Everything else is zero, as after an interrupted
/// zeroing.
const PLACE: u64 = MIB + MIB / 4;

// invariant: 1
#[test]
fn ineffective_discard_is_noticed_and_the_disk_is_zeroed() {
    let cluster = Cluster::start(&["discard"]);
    cluster.make_class("discarded", "Discard");
    cluster.make_set("discarded", None, json!({"vendors": ["0x1af4"]}));
    // Its driver takes discards from the guest and does nothing about them.
    let disk = Disk::virtio("KEEPS").image(Image::volatile(48 * MIB));
    let state = Disk::virtio("SYSTEM");
    let mut guest = Qemu::restore("discard");
    guest.plug(&state);
    guest.plug(&disk);
    guest.mount_state_disk("virtio-SYSTEM");
    cluster.start_agent(&mut guest, "100ms");
    let mut last = None;
    for (round, how) in
        [(1, "its data is still there after a discard"), (2, "left data before")].into_iter()
    {
        let pv = cluster.volumes_are(&[&guest], "it is offered", |found| {
            let [pv] = found.get("discarded")?.as_slice() else { return None };
            (is_offered(pv) && pv.uid() != last).then(|| pv.clone())
        });
        last = pv.uid();
        cluster.bind(&pv);
        let write = format!(
            "yes '{SECRET}' | dd of=/dev/disk/by-id/virtio-KEEPS bs=4096 count=1 seek={} iflag=fullblock oflag=direct conv=fsync,notrunc 2>/dev/null",
            PLACE / 4096
        );
        guest.run(&write);
        cluster.release(&pv);
        let message = cluster.volumes_are(&[&guest], "its wipe has ended", |_| {
            let jobs = cluster.jobs();
            // An attempt may fail on a busy machine, where the disk does not answer in time.
            let of_pv = |job: &&NodeJob| {
                job.spec.device.claimed.as_ref().map(|device| &device.pv_uid) == last.as_ref()
            };
            let statuses = jobs.iter().filter(of_pv).filter_map(|job| job.status.clone());
            statuses
                .filter(|status| status.phase == Some(JobPhase::Succeeded))
                .find_map(|status| status.message)
        });
        assert!(message.contains(how), "round {round}: {message}");
        let read = format!(
            "dd if=/dev/disk/by-id/virtio-KEEPS bs=4096 count=1 skip={} iflag=direct 2>/dev/null | tr -d '\\0' | wc -c",
            PLACE / 4096
        );
        assert_eq!(guest.run(&read).trim(), "0", "round {round}: the data is gone");
    }
    let ledger = guest.run(&format!("cat {AGENT_DATA}/ledger*"));
    assert_eq!(ledger.matches("discard-ineffective").count(), 1, "noticed once: {ledger}");
}
