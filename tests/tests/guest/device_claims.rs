//! LocalVolumeSets on the hardware of a guest: each gets exactly the disks that it describes, and
//! keeps them across renames by the kernel and power failures. Disks that move between nodes:
//! `device_claims_moved.rs`.

use crate::{
    cluster::{Cluster, has},
    volumes::{all_confirmed, is_offered, path, serial_behind},
};
use kube::ResourceExt;
use quarry_api::{NodeJob, names, node_inventory::DeviceState, node_job::JobPhase};
use quarry_tests::guest::{AGENT_DATA, Disk, Guest, Image, MIB, Qemu, until};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt};

/// The disk for the node's persistent state. LocalVolumeSets match it too, and must not claim it.
fn own_disk() -> Disk {
    Disk::virtio("SYSTEM")
}
const OWN_DISK: &str = "virtio-SYSTEM";

fn disks() -> Vec<Disk> {
    vec![
        own_disk(),
        Disk::nvme("NV1"),
        Disk::scsi("HDD1")
            .vendor("SEAGATE")
            .model("ST2000LM")
            .wwn(0x5000_c500_0000_0021)
            .rotation(7200),
        Disk::scsi("HDD2")
            .vendor("SEAGATE")
            .model("ST4000LM")
            .wwn(0x5000_c500_0000_0022)
            .rotation(7200)
            .size(128 * MIB),
        Disk::scsi("SSD1").vendor("ACME").model("FLASH").rotation(1),
        Disk::sata("SATA1").model("INTEL_SSDSC2").rotation(1),
        // Not selected by any LocalVolumeSet.
        Disk::scsi("OTHER").vendor("OTHER").model("DISK").rotation(1),
    ]
}

/// Each LocalVolumeSet, the disk that only this set matches, and the name of that disk's link.
fn sets() -> [(&'static str, Value, &'static str, &'static str); 5] {
    [
        ("by-model", json!({"models": ["ssdsc2"]}), "SATA1", "ata-INTEL_SSDSC2_SATA1"),
        ("by-model-of-nvme", json!({"models": ["nvme_ctrl"]}), "NV1", "nvme-QEMU_NVMe_Ctrl_NV1"),
        (
            "by-vendor",
            json!({"vendors": ["acme"], "deviceTypes": ["disk"]}),
            "SSD1",
            "scsi-0ACME_FLASH_SSD1",
        ),
        (
            "rotational",
            json!({"deviceMechanicalProperties": ["Rotational"], "maxSize": "100Mi"}),
            "HDD1",
            "wwn-0x5000c50000000021",
        ),
        ("by-size", json!({"minSize": "100Mi"}), "HDD2", "wwn-0x5000c50000000022"),
    ]
}

// invariant: 3
#[test]
fn sets_keep_exactly_their_disks_across_renames() {
    let cluster = Cluster::start(&["sets"]);
    for (name, inclusion, _, _) in sets() {
        cluster.make_set(name, None, inclusion);
    }
    let classes = sets().map(|(name, ..)| name);
    let disks = disks();
    let mut guest = Qemu::boot("sets", &disks);
    guest.mount_state_disk(OWN_DISK);
    cluster.start_agent(&mut guest, "100ms");
    let before = cluster.offered(&[&guest], &classes);
    for (class, _, serial, by_id) in sets() {
        let pv = &before[class];
        assert_eq!(path(pv), format!("{}/{class}/{by_id}", names::LINK_DIRECTORY));
        assert_eq!(pv.annotations()[names::LSO_DEVICE_ID_ANNOTATION], by_id, "{class}");
        assert_eq!(serial_behind(&mut guest, pv), serial, "{class}");
    }
    let named = names_of(&mut guest);
    for (class, _, serial, _) in sets() {
        assert_eq!(
            before[class].annotations()[names::LSO_DEVICE_NAME_ANNOTATION],
            named[serial],
            "{class}"
        );
    }
    let status = cluster.status("sets");
    let other = crate::cluster::of(&status, "OTHER").unwrap();
    assert_eq!(
        other.state,
        DeviceState::Available,
        "an unselected disk is still available: {other:?}"
    );
    assert!(has(crate::cluster::of(&status, "SYSTEM").unwrap(), "Mounted"));
    assert_eq!(status.device_claims.len(), classes.len());

    // The disk with the first letter is plugged in last: it gets another letter then, in any order
    // of the others.
    let late = disks
        .iter()
        .filter(|disk| disk.can_be_plugged())
        .filter(|disk| named[disk.serial().unwrap()].starts_with("sd"));
    let late = late.min_by_key(|disk| &named[disk.serial().unwrap()]).unwrap();
    guest.run("sync");
    drop(guest);
    let others: Vec<Disk> =
        disks.iter().rev().filter(|disk| disk.id() != late.id()).cloned().collect();
    let mut guest = Qemu::boot("sets", &others);
    guest.mount_state_disk(OWN_DISK);
    cluster.start_agent(&mut guest, "100ms");
    cluster
        .inventory(&guest, "is of this boot", |now| (now.boot_id != status.boot_id).then_some(()));
    guest.plug(late);
    cluster.inventory(&guest, "all device claims are confirmed and linked", |now| {
        (now.boot_id != status.boot_id && all_confirmed(now, classes.len())).then_some(())
    });
    let renamed = names_of(&mut guest);
    let serial = late.serial().unwrap();
    assert_ne!(renamed[serial], named[serial], "the kernel has other names now: {renamed:?}");
    let after = cluster.offered(&[&guest], &classes);
    for (class, _, serial, _) in sets() {
        assert_eq!(after[class].uid(), before[class].uid(), "{class}: the same PersistentVolume");
        assert_eq!(serial_behind(&mut guest, &after[class]), serial, "{class}: on the same disk");
    }
    assert!(cluster.jobs().is_empty(), "nothing was wiped");
}

/// The kernel name of each disk, by serial.
fn names_of(guest: &mut Guest) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    guest
        .lsblk("NAME,SERIAL")
        .iter()
        .map(|device| (text(&device["serial"]), text(&device["name"])))
        .collect()
}

// invariant: 3
#[test]
fn two_paths_give_one_pv_and_only_with_a_multipath_map() {
    let cluster = Cluster::start(&["paths"]);
    cluster.make_set("paths", None, json!({"deviceTypes": ["disk", "mpath"], "vendors": ["ACME"]}));
    let mut guest = Qemu::restore("paths");
    let disk = Disk::scsi("MP1").vendor("ACME").model("ARRAY").wwn(0x5000_c500_0000_0029);
    let second = disk.second_path();
    guest.plug(&disk);
    guest.plug(&second);
    guest.until("both paths exist", "lsblk -dnro WWN", |shown| {
        shown.matches("0x5000c50000000029").count() == 2
    });
    cluster.start_agent(&mut guest, "100ms");
    let settled = |device: &&quarry_api::node_inventory::Device| {
        device.settled && has(device, "DuplicateIdentity")
    };
    cluster.inventory(&guest, "both paths are quarantined", |status| {
        (status.devices.iter().filter(settled).count() == 2).then_some(())
    });
    assert_eq!(cluster.spec("paths").device_claims, [], "neither is claimed");

    guest.start_multipathd();
    let pv = cluster.offered(&[&guest], &["paths"]).remove("paths").unwrap();
    assert_eq!(path(&pv), format!("{}/paths/wwn-0x5000c50000000029", names::LINK_DIRECTORY));
    let behind = format!("lsblk -dnro TYPE,NAME \"$(readlink -f {})\"", path(&pv));
    assert_eq!(guest.run(&behind).trim(), "mpath mpatha");
    assert_eq!(cluster.spec("paths").device_claims.len(), 1);

    // A path that is lost and comes back changes nothing, whether multipathd or the agent sees it first.
    guest.unplug(&second);
    cluster.inventory(&guest, "one path is left", |status| {
        status.devices.iter().find(|device| device.paths.len() == 1).map(drop)
    });
    guest.plug(&second);
    let two_paths = |status: &quarry_api::NodeInventoryStatus| {
        let whole = status.devices.iter().any(|device| device.paths.len() == 2);
        (status.devices.len() == 1 && whole && all_confirmed(status, 1)).then_some(())
    };
    cluster.inventory(&guest, "two paths again", two_paths);
    guest.until("multipathd has added the path", "lsblk -nro NAME,TYPE", |shown| {
        shown.matches(" mpath").count() == 2
    });
    cluster.inventory(&guest, "still two paths", two_paths);
    assert_eq!(cluster.offered(&[&guest], &["paths"])["paths"].uid(), pv.uid());
    assert_eq!(guest.run(&behind).trim(), "mpath mpatha");
}

const SECRET: &str = "secret user data";
/// Fills a disk with recognizable data.
fn fill(guest: &mut Guest, by_id: &str, mebibytes: u64) {
    guest.run(&format!("yes \"{SECRET}\" | dd of=/dev/disk/by-id/{by_id} bs=1M count={mebibytes} iflag=fullblock oflag=direct conv=fsync 2>/dev/null"));
}

/// Number of bytes the guest has written to this disk.
fn written(guest: &mut Qemu, backend: &str) -> u64 {
    let stats = guest.qmp("query-blockstats", json!({}));
    let of = stats.as_array().into_iter().flatten().find(|one| one["qdev"] == backend);
    of.and_then(|one| one["stats"]["wr_bytes"].as_u64())
        .unwrap_or_else(|| panic!("{backend} is not among {stats}"))
}

fn holds_secret(bytes: &[u8]) -> bool {
    bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
}

// invariant: 10
#[test]
fn wipe_is_repeated_after_a_power_failure() {
    let cluster = Cluster::start(&["cut"]);
    cluster.make_class("zeroed", "Zero");
    cluster.make_set("zeroed", None, json!({"vendors": ["0x1af4"]}));
    // One disk that loses unflushed writes and must be written block by block, because a single
    // command would zero it otherwise. One disk in use. One disk that the LocalVolumeSet matches,
    // but that contains data.
    let wiped = Disk::virtio("WIPED").set("write-zeroes", false).image(Image::volatile(48 * MIB));
    let (used, strange) =
        (Disk::virtio("USED").size(16 * MIB), Disk::virtio("STRANGE").size(16 * MIB));
    let filled = File::options().write(true).open(strange.bytes().path()).unwrap();
    (0..16).for_each(|mebibyte| filled.write_all_at(SECRET.as_bytes(), mebibyte * MIB).unwrap());
    let mut guest = Qemu::restore("cut");
    for disk in [&own_disk(), &wiped, &used, &strange] {
        guest.plug(disk);
    }
    guest.mount_state_disk(OWN_DISK);
    cluster.start_agent(&mut guest, "100ms");
    let both = cluster.volumes_are(&[&guest], "two are offered", |found| {
        let pvs = found.get("zeroed").filter(|pvs| pvs.len() == 2 && pvs.iter().all(is_offered))?;
        Some(
            pvs.iter()
                .map(|pv| (pv.annotations()[names::LSO_DEVICE_ID_ANNOTATION].clone(), pv.clone()))
                .collect::<BTreeMap<_, _>>(),
        )
    });
    let (of_wiped, of_used) = (&both["virtio-WIPED"], &both["virtio-USED"]);
    for pv in both.values() {
        cluster.bind(pv);
    }
    fill(&mut guest, "virtio-WIPED", 48);
    fill(&mut guest, "virtio-USED", 16);
    let neighbours = [&used, &strange].map(|disk| disk.bytes().contents());

    // So slow that the power can fail in the middle. Only QEMU knows the progress: a read of the
    // disk would wait behind the wipe.
    let backend = format!("/machine/peripheral/{}/virtio-backend", wiped.id());
    guest.qmp("block_set_io_throttle", json!({"id": backend, "bps_wr": 8 * MIB, "bps": 0, "bps_rd": 0, "iops": 0, "iops_rd": 0, "iops_wr": 0}));
    let before = written(&mut guest, &backend);
    cluster.release(of_wiped);
    until("the wipe has begun", || match written(&mut guest, &backend) - before {
        started if started > 4 * MIB => Ok(()),
        bytes => Err(format!("{bytes} bytes written, {}", json!(cluster.jobs()))),
    });
    let mut disks = guest.power_cut();
    let jobs = cluster.jobs();
    // An earlier one may have failed: where the machine is slow, udev still reads the disk that was just filled.
    let phase = |job: &NodeJob| job.status.as_ref().and_then(|status| status.phase);
    let begun: Vec<_> = jobs.iter().filter(|job| phase(job) != Some(JobPhase::Failed)).collect();
    assert_eq!(begun.len(), 1, "{}", json!(jobs));
    assert_ne!(phase(begun[0]), Some(JobPhase::Succeeded));
    assert!(holds_secret(&wiped.bytes().contents()), "it was not finished");

    let mut guest = Qemu::restore("cut");
    disks.reverse();
    for disk in &disks {
        guest.plug(disk);
    }
    guest.mount_state_disk(OWN_DISK);
    let ledger = guest.run(&format!("cat {AGENT_DATA}/ledger*"));
    let last = ledger.lines().rfind(|line| line.contains("intent") || line.contains("outcome"));
    let is_open = last.is_some_and(|line| line.contains("intent"));
    assert!(is_open, "the started wipe is recorded, and not as ended: {ledger}");
    cluster.start_agent(&mut guest, "100ms");
    let again = cluster.volumes_are(&[&guest], "the wiped one is offered again", |found| {
        let is_new = |pv: &&k8s_openapi::api::core::v1::PersistentVolume| {
            pv.name_any() == of_wiped.name_any() && pv.uid() != of_wiped.uid() && is_offered(pv)
        };
        found.get("zeroed")?.iter().find(is_new).cloned()
    });
    assert_eq!(serial_behind(&mut guest, &again), "WIPED");
    let kept = cluster.volumes()["zeroed"]
        .iter()
        .find(|pv| pv.name_any() == of_used.name_any())
        .and_then(ResourceExt::uid);
    assert_eq!(kept, of_used.uid(), "the one in use is still the same");
    assert!(cluster.jobs().iter().all(|job| {
        job.spec.device.claimed.as_ref().is_some_and(|device| device.identity.ends_with(":WIPED"))
    }));
    // The verified zeros were on the disk: the data stays erased after another power failure.
    drop(guest.power_cut());
    assert!(!holds_secret(&wiped.bytes().contents()), "nothing of the old data is left");
    for (disk, before) in [&used, &strange].iter().zip(neighbours) {
        assert!(holds_secret(&before), "{:?} held data", disk.serial());
        assert!(disk.bytes().contents() == before, "{:?} was changed", disk.serial());
    }
}
