//! Device claims on real devices: what is confirmed or refused, the link and who may move it,
//! paths.

use super::devices::{Loop, MIB, file, poke};
use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use quarry_api::node_inventory::{ClaimContent, ClaimReport, ClaimState, DeviceClaim};
use quarry_core::device::{ExclusiveOpen, Facts};
use quarry_node::{DeviceOps, LinuxNode, NodeView, ScanRequest, Spare};
use quarry_tests::{
    device_claim::{SET, World, claim_of},
    disk::{Bed, Links, Mounted, eventually, run},
};
use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;

pub const O_EXCL: i32 = 0o200;

/// A node with an API and its own devices.
pub struct Ground {
    pub world: World,
    pub ops: Arc<LinuxNode>,
    pub directory: TempDir,
    pub bed: Bed,
}

impl Ground {
    pub async fn new() -> Self {
        let bed = Bed::new(Links::Own);
        // Below the node's root: a loop device is identified by the path of its file there.
        let directory = tempfile::tempdir_in(&bed.root).unwrap();
        Ground { world: World::new().await, ops: bed.ops(), directory, bed }
    }

    pub fn disk(&self, name: &str, size: u64) -> (Loop, PathBuf) {
        let path = file(self.directory.path(), name, size);
        (Loop::new(&path), path)
    }

    /// What a scan reports about it now.
    pub fn facts(&self, device: &Loop) -> Facts {
        let request =
            ScanRequest { touched: [device.name.clone()].into(), ..ScanRequest::default() };
        let scan = self.ops.scan_node(&request).unwrap();
        scan.devices.into_iter().find(|facts| facts.name == device.name).unwrap()
    }

    pub fn claim(&self, device: &Loop) -> DeviceClaim {
        claim_of(&self.facts(device), self.world.owner())
    }

    /// One scan with these device claims.
    pub async fn look(&self, claims: &[DeviceClaim]) -> Vec<ClaimReport> {
        self.world.claim(claims).await;
        self.world.publish(&self.ops).await.device_claims
    }

    pub async fn report(&self, claim: &DeviceClaim) -> ClaimReport {
        self.look(std::slice::from_ref(claim)).await.remove(0)
    }

    /// Same input, same reports, and no write except our own write of the spec. Other devices of
    /// the machine may change in the meantime.
    async fn assert_rest(&self, claims: &[DeviceClaim], reports: &[ClaimReport]) {
        for _ in 0..20 {
            let before = self.world.server.write_count();
            assert_eq!(self.look(claims).await, reports);
            if self.world.server.write_count() == before + 1 {
                return;
            }
        }
        panic!("every scan writes");
    }

    pub fn link(&self, claim: &DeviceClaim) -> PathBuf {
        self.bed.at(&claim.link)
    }

    pub fn link_target(&self, claim: &DeviceClaim) -> Option<PathBuf> {
        self.bed.link_target(&claim.link)
    }
}

/// Asserts that the device is not opened exclusively. Another agent on this machine may have it
/// open for a moment.
#[track_caller]
pub fn assert_free(device: &Loop) {
    eventually("the device is free", || {
        OpenOptions::new().read(true).custom_flags(O_EXCL).open(device.dev()).is_ok()
    });
}

// invariant: 1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blank_device_is_confirmed_linked_and_released() {
    let ground = Ground::new().await;
    let (devices, claims): (Vec<Loop>, Vec<DeviceClaim>) = (0..4)
        .map(|index| {
            let device = ground.disk(&format!("d{index}"), (8 + index) * MIB).0;
            let claim = ground.claim(&device);
            (device, claim)
        })
        .unzip();
    let reports = ground.look(&claims).await;
    for ((device, claim), report) in devices.iter().zip(&claims).zip(&reports) {
        let actual =
            (report.state, report.device.as_deref(), report.linked, report.message.as_deref());
        assert_eq!(actual, (ClaimState::Confirmed, Some(device.name.as_str()), true, None));
        assert_eq!(
            (&report.identity, &report.owner_uid, report.round),
            (&claim.identity, &ground.world.set_uid, 1)
        );
        assert_eq!(ground.link_target(claim), Some(PathBuf::from(device.dev())));
        assert_free(device);
    }
    // The published state was read after the devices were released.
    let status = ground.world.status().await;
    for device in &devices {
        let row = status.devices.iter().find(|row| row.name == device.name).unwrap();
        assert_eq!(
            row.reasons.iter().map(|entry| entry.reason.as_str()).collect::<Vec<_>>(),
            ["Claimed"],
            "{row:?}"
        );
    }
    ground.assert_rest(&claims, &reports).await;
}

// invariant: 1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_that_differs_from_its_claim_is_refused() {
    let ground = Ground::new().await;
    let (device, path) = ground.disk("d", 16 * MIB);
    let claim = ground.claim(&device);
    let refused = async |claim: &DeviceClaim, words: &str| {
        let report = ground.report(claim).await;
        let message = report.message.clone().unwrap_or_default();
        assert_eq!(
            (report.state, report.linked),
            (ClaimState::Refused, false),
            "{words}: {report:?}"
        );
        assert!(message.contains(words), "{words}: {message}");
        assert!(ground.link_target(claim).is_none(), "{words}");
    };
    poke(&path, 5000, b"user data");
    refused(&claim, "unrecognized data").await;
    poke(&path, 5000, &[0; 10]);
    // Written without the kernel's knowledge: an event causes a new read.
    ground.facts(&device);

    refused(&DeviceClaim { size: claim.size + 512, ..claim.clone() }, "bytes, the device claim")
        .await;
    refused(
        &DeviceClaim { identity: "wwn:5000c50000000009".into(), ..claim.clone() },
        "is missing",
    )
    .await;
    for link in ["/mnt/local-storage/fast/../../../etc/x", "/etc/passwd", ""] {
        let report = ground.report(&DeviceClaim { link: link.into(), ..claim.clone() }).await;
        assert_eq!(report.state, ClaimState::Refused, "{link:?}");
        assert!(report.message.unwrap().contains("is not a link of a device claim"));
    }

    let held = OpenOptions::new().read(true).custom_flags(O_EXCL).open(device.dev()).unwrap();
    refused(&claim, "opened exclusively by another process").await;
    drop(held);

    // The kubelet creates a loop device over a Block volume, which O_EXCL does not detect.
    let top = Loop::new(Path::new(&device.dev()));
    refused(&claim, &top.name).await;
    drop(top);

    // A second loop device over the same file is the same device twice.
    let twin = Loop::new(&path);
    refused(&claim, "both have the identity").await;
    drop(twin);

    run("mkfs.ext4", &["-q", "-F", &device.dev()]);
    let any = DeviceClaim { content: ClaimContent::Any, ..claim.clone() };
    let mounted = Mounted::new(&[&device.dev()], &ground.directory.path().join("mnt"));
    refused(&any, "mounted").await;
    drop(mounted);
    refused(&claim, "ext4").await;
    // An administrator named the device: its content stays.
    let before = fs::read(&path).unwrap();
    assert_eq!(ground.report(&any).await.state, ClaimState::Confirmed);
    assert_eq!(ground.link_target(&any), Some(PathBuf::from(device.dev())));
    assert!(before == fs::read(&path).unwrap(), "no byte was written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_has_one_owner_even_with_conflicting_claims() {
    let ground = Ground::new().await;
    let (device, _) = ground.disk("d", 8 * MIB);
    let claim = ground.claim(&device);
    let mut rival = claim.clone();
    rival.owner.name = "other".into();
    rival.owner.uid = "another".into();
    rival.link = format!("/mnt/local-storage/{SET}/rival");
    for report in ground.look(&[claim.clone(), rival.clone()]).await {
        assert_eq!(report.state, ClaimState::Refused);
        assert!(report.message.as_ref().unwrap().contains("claimed by"), "{report:?}");
    }
    assert!(ground.link_target(&claim).is_none() && ground.link_target(&rival).is_none());
    assert_eq!(ground.report(&rival).await.state, ClaimState::Confirmed);
}

// invariant: 1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_swapped_under_its_name_is_detected() {
    let ground = Ground::new().await;
    let (device, _) = ground.disk("d", 8 * MIB);
    let claim = ground.claim(&device);
    // Swapped before the first scan: the same name, the same size, blank.
    let other = file(ground.directory.path(), "other", 8 * MIB);
    run("losetup", &["-d", &device.dev()]);
    eventually("the device is detached", || {
        !Path::new(&format!("/sys/block/{}/loop", device.name)).exists()
    });
    run("losetup", &[&device.dev(), &other.to_string_lossy()]);
    let report = ground.report(&claim).await;
    assert_eq!((report.state, report.device), (ClaimState::Refused, None));
    assert!(report.message.unwrap().contains("is missing"));
    assert!(ground.link_target(&claim).is_none());

    // Swapped after it was confirmed: the link must not point to the new device.
    let newcomer = claim_of(&ground.facts(&device), ground.world.owner());
    assert_eq!(ground.report(&newcomer).await.state, ClaimState::Confirmed);
    run("losetup", &["-d", &device.dev()]);
    eventually("the device is detached", || {
        !Path::new(&format!("/sys/block/{}/loop", device.name)).exists()
    });
    let third = file(ground.directory.path(), "third", 8 * MIB);
    run("losetup", &[&device.dev(), &third.to_string_lossy()]);
    let report = ground.report(&newcomer).await;
    assert_eq!((report.state, report.device, report.linked), (ClaimState::Confirmed, None, false));
    assert!(
        ground.link_target(&newcomer).is_none(),
        "a pod must not get the third device through that link"
    );
    // When the right device is back, under any name, the link is restored.
    let back = Loop::new(&other);
    assert_ne!(back.name, device.name);
    let report = ground.report(&newcomer).await;
    assert_eq!(
        (report.state, report.device.as_deref(), report.linked),
        (ClaimState::Confirmed, Some(back.name.as_str()), true)
    );
    assert_eq!(ground.link_target(&newcomer), Some(PathBuf::from(back.dev())));
}

// invariant: 2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_link_is_repaired_by_identity() {
    let ground = Ground::new().await;
    let (device, path) = ground.disk("d", 8 * MIB);
    let (other, _) = ground.disk("other", 8 * MIB);
    let claim = ground.claim(&device);
    let link = ground.link(&claim);
    assert!(ground.report(&claim).await.linked);
    // In use from here on, as by the kubelet: the device is never opened exclusively again.
    run("mkfs.ext4", &["-q", "-F", &device.dev()]);
    let mounted = Mounted::new(&[&device.dev()], &ground.directory.path().join("mnt"));
    let break_it: [&dyn Fn(); 4] = [
        &|| fs::remove_file(&link).unwrap(),
        &|| {
            fs::remove_file(&link).unwrap();
            symlink(other.dev(), &link).unwrap();
        },
        &|| {
            fs::remove_file(&link).unwrap();
            symlink("/dev/disk/by-id/gone", &link).unwrap();
        },
        &|| fs::remove_dir_all(ground.bed.at("/mnt/local-storage")).unwrap(),
    ];
    for (at, break_it) in break_it.iter().enumerate() {
        break_it();
        let report = ground.report(&claim).await;
        assert_eq!(
            (report.state, report.linked, report.message),
            (ClaimState::Confirmed, true, None),
            "{at}"
        );
        assert_eq!(ground.link_target(&claim), Some(PathBuf::from(device.dev())), "{at}");
    }
    // A persistent name appeared: it is better than one that lasts until the next boot.
    let by_id = ground.bed.at("/dev/disk/by-id");
    fs::create_dir_all(&by_id).unwrap();
    symlink(format!("../../{}", device.name), by_id.join("wwn-0x5")).unwrap();
    assert!(ground.report(&claim).await.linked);
    assert_eq!(fs::read_link(&link).unwrap(), PathBuf::from("/dev/disk/by-id/wwn-0x5"));
    // It points to another device now.
    fs::remove_file(by_id.join("wwn-0x5")).unwrap();
    symlink(format!("../../{}", other.name), by_id.join("wwn-0x5")).unwrap();
    assert!(ground.report(&claim).await.linked);
    assert_eq!(ground.link_target(&claim), Some(PathBuf::from(device.dev())));

    let events: Api<Event> = Api::namespaced(ground.world.client.clone(), "default");
    let messages = events
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some("SymlinkRecreated"));
    let messages = messages.filter_map(|event| event.message).collect::<Vec<_>>().join("\n");
    for why in [
        "it was missing",
        "which is another device",
        "it led to no device",
        "it led there by /run/quarry/links/",
    ] {
        assert!(messages.contains(why), "{why}: {messages}");
    }

    // Something that is not a link stays and is reported.
    fs::remove_file(&link).unwrap();
    fs::create_dir(&link).unwrap();
    let report = ground.report(&claim).await;
    assert_eq!((report.state, report.linked), (ClaimState::Confirmed, false));
    assert!(report.message.unwrap().contains("is not a link"));
    fs::remove_dir(&link).unwrap();
    assert!(ground.report(&claim).await.linked);

    let ending = DeviceClaim { terminating: true, ..claim.clone() };
    let class = ground.bed.at("/mnt/local-storage/fast");
    let read_only = Mounted::new(&["--bind", "-o", "ro", class.to_str().unwrap()], &class);
    let report = ground.report(&ending).await;
    assert_eq!(report.state, ClaimState::RemovalFailed);
    assert!(report.message.as_ref().unwrap().contains("Read-only"), "{report:?}");
    drop(read_only);
    let report = ground.report(&ending).await;
    assert_eq!(
        (report.state, report.linked, report.message.clone()),
        (ClaimState::Removed, false, None)
    );
    assert!(
        !ground.bed.at("/mnt/local-storage/fast").exists(),
        "the empty directory is removed too"
    );
    assert!(mounted.0.join("lost+found").exists() && path.exists(), "the mount stays");
    ground.assert_rest(&[ending], &[ClaimReport { device: None, ..report }]).await;
}

// invariant: 2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan_never_blocks_mounting_a_confirmed_device() {
    let ground = Ground::new().await;
    let (device, _) = ground.disk("d", 64 * MIB);
    let (free, _) = ground.disk("free", 8 * MIB);
    let claim = ground.claim(&device);
    assert_eq!(ground.report(&claim).await.state, ClaimState::Confirmed);
    // Result of an exclusive open; other agents on this machine may hold a device for a moment.
    let asked = |everything: bool, spare: Vec<Spare>| {
        let scan = ground
            .ops
            .scan_node(&ScanRequest { everything, spare, ..ScanRequest::default() })
            .unwrap();
        [&device, &free].map(|device| {
            scan.devices.iter().find(|facts| facts.name == device.name).unwrap().exclusive_open
                != ExclusiveOpen::Unasked
        })
    };
    let agent = ground.world.agent(&ground.ops);
    let rescan = quarry_node::agent::ScanReason { everything: true, ..Default::default() };
    for _ in 0..20 {
        agent.publish_inventory(rescan.clone()).await.unwrap();
        let inventory = ground.world.all().get(quarry_tests::device_claim::NODE).await.unwrap();
        assert_eq!(
            asked(false, NodeView::of(&inventory).spared()),
            [false, true],
            "not opened exclusively, not even in a rescan"
        );
    }
    // By its link only, as after a boot; and by its name only, as when the link is lost.
    let link = Spare { link: claim.link.clone(), ..Spare::default() };
    assert_eq!(asked(true, vec![link]), [false, true]);
    let facts = ground.facts(&device);
    let name = Spare {
        name: Some(facts.name),
        diskseq: facts.diskseq,
        boot_id: ground.world.status().await.boot_id,
        ..Spare::default()
    };
    assert_eq!(asked(true, vec![name.clone()]), [false, true]);
    assert_eq!(
        asked(true, vec![Spare { diskseq: Some(1), ..name.clone() }]),
        [true, true],
        "another disk under its name"
    );
    assert_eq!(asked(true, vec![name]), [false, true]);
    assert_eq!(
        asked(false, Vec::new()),
        [true, true],
        "opened again once it is no longer excluded"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_are_followed_on_the_node_and_checked() {
    let ground = Ground::new().await;
    let (device, _) = ground.disk("d", 8 * MIB);
    let links = ground.bed.at("/dev/disk/by-path");
    fs::create_dir_all(&links).unwrap();
    symlink(format!("../../{}", device.name), links.join("pci-1")).unwrap();
    symlink("nowhere", links.join("gone")).unwrap();
    // An absolute link is resolved on the node, not on this machine.
    symlink(device.dev(), ground.bed.root.join("run/disk")).unwrap();
    symlink("/etc/hostname", ground.bed.root.join("run/out")).unwrap();
    symlink("loop", ground.bed.root.join("run/loop")).unwrap();
    fs::write(ground.bed.root.join("run/file"), "x").unwrap();
    let asked = [
        (device.dev(), Some(device.name.as_str()), ""),
        ("/dev/disk/by-path/pci-1".into(), Some(device.name.as_str()), ""),
        ("/run/disk".into(), Some(device.name.as_str()), ""),
        ("/run/../../../dev/disk/by-path/pci-1".into(), Some(device.name.as_str()), ""),
        ("/dev/disk/by-path/gone".into(), None, "does not exist"),
        ("/dev/no-such-disk".into(), None, "does not exist"),
        ("/run/out".into(), None, "does not exist"),
        ("/run/loop".into(), None, "cannot be followed"),
        ("/run/file".into(), None, "is a file, not a block device"),
        ("/run".into(), None, "is a directory, not a block device"),
        ("/dev/null".into(), None, "is a character device, not a block device"),
        ("dev/sda".into(), None, "is not an absolute path"),
    ];
    let paths: Vec<&str> = asked.iter().map(|(path, ..)| path.as_str()).collect();
    ground.world.ask_paths(&paths).await;
    let reports = ground.world.publish(&ground.ops).await.paths;
    assert_eq!(reports.len(), asked.len());
    for (report, (path, device, problem)) in reports.iter().zip(&asked) {
        assert_eq!((&report.path, report.device.as_deref()), (path, *device), "{report:?}");
        assert!(report.problem.as_deref().unwrap_or_default().contains(problem), "{report:?}");
    }
    assert_eq!(ground.world.publish(&ground.ops).await.paths, reports);
}

/// After a boot kernel names are dealt out again, and kubelet may follow a link before the agent has scanned.
// invariant: 2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn link_without_a_by_id_name_dangles_after_a_boot() {
    let ground = Ground::new().await;
    let (device, _) = ground.disk("d", 8 * MIB);
    let claim = ground.claim(&device);
    assert!(ground.report(&claim).await.linked);
    let target = fs::read_link(ground.link(&claim)).unwrap();
    assert!(target.starts_with("/run/quarry/links"), "{target:?}: not a kernel name");
    // A boot empties /run. The agent has not scanned yet.
    fs::remove_dir_all(ground.bed.at("/run/quarry")).unwrap();
    assert_eq!(ground.link_target(&claim), None, "it leads nowhere, whatever device has the name");
    assert!(fs::symlink_metadata(ground.link(&claim)).is_ok(), "the path of the PV stays");
    assert!(ground.report(&claim).await.linked, "the identity was seen in this boot");
    assert_eq!(ground.link_target(&claim), Some(PathBuf::from(device.dev())));
    // Names that the content of a device chooses are no better.
    let by_id = ground.bed.at("/dev/disk/by-id");
    fs::create_dir_all(&by_id).unwrap();
    for name in ["lvm-pv-uuid-aBcD", "md-name-any:0", "dm-name-data"] {
        symlink(format!("../../{}", device.name), by_id.join(name)).unwrap();
    }
    assert!(ground.report(&claim).await.linked);
    assert_eq!(fs::read_link(ground.link(&claim)).unwrap(), target);
    let ending = DeviceClaim { terminating: true, ..claim.clone() };
    assert_eq!(ground.report(&ending).await.state, ClaimState::Removed);
    let left = fs::read_dir(ground.bed.at("/run/quarry/links")).unwrap().count();
    assert_eq!(left, 0, "nothing of it is left in /run either");
}

/// An API that was restored from a backup shows a device claim that this node has released since.
// invariant: 10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_device_claim_is_not_linked_again() {
    let ground = Ground::new().await;
    let (device, _) = ground.disk("d", 8 * MIB);
    let claim = DeviceClaim { id: "first".into(), ..ground.claim(&device) };
    let report = ground.report(&claim).await;
    assert_eq!((report.state, report.linked), (ClaimState::Confirmed, true));
    let later = DeviceClaim { round: claim.round + 1, ..claim.clone() };
    assert_eq!(ground.report(&later).await.state, ClaimState::Confirmed);
    // The status is as old as the spec: it says that the device is confirmed.
    ground.world.restore_status(&[report]).await;
    let restored = ground.report(&claim).await;
    assert_eq!((restored.state, restored.linked), (ClaimState::Outdated, false));
    assert!(restored.message.unwrap().contains("a later round"));
    assert_eq!(ground.link_target(&claim), None);
    // Released, then restored: as another device claim it would be confirmed again.
    assert!(ground.report(&later).await.linked);
    let ending = DeviceClaim { terminating: true, ..later.clone() };
    assert_eq!(ground.report(&ending).await.state, ClaimState::Removed);
    assert_eq!(ground.report(&later).await.state, ClaimState::Outdated);
    let next = DeviceClaim { id: "second".into(), round: 1, ..claim };
    assert_eq!(ground.report(&next).await.state, ClaimState::Confirmed);
}
