//! Wipes on real devices: what each policy leaves, what blocks a wipe, what happens when the disk
//! vanishes or the agent dies.

use super::{
    device_claims::{Ground, O_EXCL},
    devices::{Loop, MIB, file, poke},
    exported_file::ExportedFile,
    kills::{finish, killed_at},
};
use quarry_api::{
    node_inventory::DeviceClaim,
    node_job::{JobPhase, WipePolicy},
    quantity::Bytes,
};
use quarry_core::{
    device::Content,
    job::{Outcome, OutcomeResult, Task, WipeDevice},
};
use quarry_node::{
    DeviceOps, HeldDevice, HoldRequest, LedgerOps, NodeView, Progress,
    agent::{JobOutcome, RunResult},
    failpoints::ALL,
};
use quarry_tests::{
    device_claim::World,
    disk::{Bed, Links, Mounted, eventually, run},
};
use std::{
    collections::{BTreeSet, hash_map::DefaultHasher},
    fs::{self, OpenOptions},
    hash::{Hash, Hasher},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const PATTERN: &[u8] = b"secret user data ";

/// Fills the file with data.
pub fn fill(path: &Path) {
    let size = fs::metadata(path).unwrap().len() as usize;
    let mut bytes = PATTERN.repeat(size / PATTERN.len() + 1);
    bytes.truncate(size);
    fs::write(path, bytes).unwrap();
}

/// Pages that are not zero.
fn found(path: &Path) -> Vec<usize> {
    let zero = [0; 4096];
    fs::read(path)
        .unwrap()
        .chunks(4096)
        .enumerate()
        .filter(|(_, page)| **page != zero[..page.len()])
        .map(|(at, _)| at)
        .collect()
}

/// Asserts that the first and last MiB are zero, and data between them is not.
#[track_caller]
fn assert_quick(left: &[usize], path: &Path, when: &str) {
    let pages = (fs::metadata(path).unwrap().len() / 4096) as usize;
    assert!(
        left.iter().all(|page| (256..pages - 256).contains(page)),
        "{when}: an end is not zero"
    );
    assert!(left.len() > pages / 2, "{when}: the middle stays");
}

fn hash(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    fs::read(path).unwrap().hash(&mut hasher);
    hasher.finish()
}

fn view(world: &World, claim: &DeviceClaim) -> NodeView {
    let _ = world;
    NodeView {
        spec: quarry_api::NodeInventorySpec {
            device_claims: vec![claim.clone()],
            ..Default::default()
        },
        ..NodeView::default()
    }
}

fn hold(ground: &Ground, claim: &DeviceClaim) -> Result<Box<dyn HeldDevice>, String> {
    hold_for(ground, claim, WipePolicy::Quick)
}

fn hold_for(
    ground: &Ground,
    claim: &DeviceClaim,
    policy: WipePolicy,
) -> Result<Box<dyn HeldDevice>, String> {
    let view = view(&ground.world, claim);
    let request =
        HoldRequest { claim: claim.clone(), pv_uid: "p".into(), pvc_uid: None, policy, view };
    ground.ops.hold(&request).map_err(|error| error.message())
}

// invariant: 2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_policy_erases_exactly_what_it_promises() {
    let ground = Ground::new().await;
    let (bystander, other) = ground.disk("bystander", 32 * MIB);
    fill(&other);
    let untouched = hash(&other);
    for policy in WipePolicy::ALL {
        for sector in ["512", "4096"] {
            let path =
                file(ground.directory.path(), &format!("{policy:?}-{sector}"), 32 * MIB + 4096);
            fill(&path);
            let device = Loop::with(&["-b", sector], &path);
            run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-E", "nodiscard", &device.dev()]);
            let world = World::new().await;
            let claim = quarry_tests::device_claim::claim_of(&ground.facts(&device), world.owner());
            let (ran, job) = world.wipe(&ground.ops, &claim, policy).await;
            let status = job.status.unwrap();
            assert!(
                matches!(ran, RunResult::Finished(JobOutcome::Erased(_)))
                    && status.phase == Some(JobPhase::Succeeded),
                "{policy:?} {sector}: {:?}",
                status.message
            );
            let left = found(&path);
            match policy {
                WipePolicy::Quick => assert_quick(&left, &path, sector),
                WipePolicy::Discard | WipePolicy::Zero => {
                    assert!(left.is_empty(), "{policy:?} {sector}: {left:?}")
                }
            }
            assert_eq!(ground.facts(&device).content, Content::Blank);
            assert_eq!(
                Command::new("blkid").args(["-p", &device.dev()]).output().unwrap().status.code(),
                Some(2),
                "blkid finds nothing"
            );
            super::device_claims::assert_free(&device);
        }
    }
    assert_eq!(hash(&other), untouched, "{} must not change", bystander.name);
    // The ledger has everything that may be needed later.
    let ledger = fs::read_to_string(ground.bed.data.join("ledger")).unwrap();
    let first: Vec<&str> = ledger.lines().skip(1).take(2).collect();
    for word in [
        "\"kind\":\"intent\"",
        "\"action\":\"Wipe\"",
        "\"device\":\"file:/",
        "\"pv\":{\"name\":\"local-pv-",
        "Quick of",
    ] {
        assert!(first[0].contains(word), "{word}: {}", first[0]);
    }
    assert!(
        first[1].contains("\"result\":\"succeeded\"") && first[1].contains("signatures removed"),
        "{}",
        first[1]
    );
    assert_eq!(ledger.lines().count(), 13);
}

// invariant: 2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quick_wipe_removes_every_format() {
    let ground = Ground::new().await;
    let make: [(&str, &[&str]); 6] = [
        ("mkfs.xfs", &["-q", "-f"]),
        ("mkfs.btrfs", &["-q", "-f"]),
        ("mkfs.ext4", &["-q", "-F"]),
        ("mkswap", &["-f"]),
        ("mkfs.vfat", &[]),
        ("wipefs", &["-a"]),
    ];
    for (tool, options) in make {
        let (device, path) = ground.disk(tool, 320 * MIB);
        run(tool, &[options, &[&device.dev()]].concat());
        // Also with a copy of the partition table at both ends.
        run("sgdisk", &["-Z", &device.dev()]);
        run(tool, &[options, &[&device.dev()]].concat());
        let claim = ground.claim(&device);
        hold(&ground, &claim).unwrap().wipe(WipePolicy::Quick, &Progress::default()).unwrap();
        assert_eq!(ground.facts(&device).content, Content::Blank, "{tool}");
        let found = Command::new("wipefs").args(["-n", &device.dev()]).output().unwrap();
        assert!(found.stdout.is_empty(), "{tool}: {}", String::from_utf8_lossy(&found.stdout));
        drop(device);
        fs::remove_file(path).unwrap();
    }
}

// invariant: 2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_removed_unless_they_are_in_use() {
    let ground = Ground::new().await;
    let (device, _) = ground.disk("d", 64 * MIB);
    run("sgdisk", &["-n", "1:0:+16M", "-n", "2:0:0", &device.dev()]);
    let names = device.add_partitions();
    assert_eq!(names.len(), 2);
    let claim = ground.claim(&device);
    let wipe = || {
        hold(&ground, &claim).and_then(|held| {
            held.wipe(WipePolicy::Quick, &Progress::default()).map_err(|error| error.message())
        })
    };
    run("mkfs.ext4", &["-q", &format!("/dev/{}", names[1])]);
    let mounted =
        Mounted::new(&[&format!("/dev/{}", names[1])], &ground.directory.path().join("mnt"));
    let refused = wipe().unwrap_err();
    assert!(refused.contains("mounted") || refused.contains("Mounted"), "{refused}");
    drop(mounted);
    // O_EXCL on the disk does not detect a loop device over a partition.
    let top = Loop::new(Path::new(&format!("/dev/{}", names[0])));
    let refused = wipe().unwrap_err();
    assert!(refused.contains(&top.name), "{refused}");
    let attached = format!("/sys/block/{}/loop", top.name);
    drop(top);
    // udev may have it open for a moment, and the kernel detaches it after that.
    eventually("the loop device is detached", || !Path::new(&attached).exists());
    // Nor a process that opened it without O_EXCL: reported before the first byte is written.
    let opened = fs::File::open(format!("/dev/{}", names[0])).unwrap();
    let refused = wipe().unwrap_err();
    assert!(refused.contains("opened by another process"), "{refused}");
    drop(opened);
    assert!(
        matches!(ground.facts(&device).content, Content::Found(found) if found.table.as_deref() == Some("gpt")),
        "nothing was touched"
    );
    wipe().unwrap();
    assert!(
        !Path::new(&format!("/sys/block/{}/{}", device.name, names[0])).exists(),
        "the kernel has removed them"
    );
    assert_eq!(ground.facts(&device).content, Content::Blank);
}

// invariant: 2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_in_use_is_not_wiped() {
    let ground = Ground::new().await;
    fs::create_dir(ground.bed.root.join("etc")).unwrap();
    fs::write(ground.bed.root.join("etc/machine-id"), "0123\n").unwrap();
    let (device, path) = ground.disk("d", 16 * MIB);
    run("mkfs.ext4", &["-q", "-F", &device.dev()]);
    let claim = ground.claim(&device);
    let before = hash(&path);
    let refused = |words: &str| {
        let why = hold(&ground, &claim).unwrap_err();
        assert!(why.contains(words), "{words}: {why}");
    };
    let exclusive = OpenOptions::new().read(true).custom_flags(O_EXCL).open(device.dev()).unwrap();
    refused("opened exclusively");
    drop(exclusive);
    let top = Loop::new(Path::new(&device.dev()));
    refused(&top.name);
    drop(top);
    let bound = ground.directory.path().join("node");
    fs::write(&bound, "").unwrap();
    let bind = Mounted::new_file(&["--bind", &device.dev()], &bound);
    refused("node");
    drop(bind);
    run("blockdev", &["--setro", &device.dev()]);
    ground.facts(&device);
    refused("read");
    run("blockdev", &["--setrw", &device.dev()]);
    ground.facts(&device);
    let mounted = Mounted::new(&[&device.dev(), "-o", "ro"], &ground.directory.path().join("mnt"));
    refused("mounted");
    drop(mounted);
    assert_eq!(hash(&path), before, "no byte was written");
    // A device of another size, a second owner, and a device in quarantine.
    for (change, words) in [
        (
            (|claim, _| claim.size += 512) as fn(&mut DeviceClaim, &mut NodeView),
            "bytes, the device claim",
        ),
        (
            |claim, view| {
                view.spec.device_claims.push(DeviceClaim {
                    owner: quarry_api::node_inventory::ClaimOwner {
                        uid: "x".into(),
                        ..claim.owner.clone()
                    },
                    ..claim.clone()
                })
            },
            "is also claimed by",
        ),
        (
            |claim, view| {
                view.spec.quarantine.push(quarry_api::node_inventory::Quarantine {
                    identity: claim.identity.clone(),
                    reason: "DuplicateIdentity".into(),
                    detail: "n2".into(),
                })
            },
            "quarantine",
        ),
        (|_, view| view.spec.machine_id = Some("another".into()), "another machine"),
        (|_, view| view.spec.ledger_id = Some("another".into()), "the ledger in the data"),
    ] {
        let (mut changed_claim, mut view) = (claim.clone(), view(&ground.world, &claim));
        change(&mut changed_claim, &mut view);
        let policy = WipePolicy::Quick;
        let request =
            HoldRequest { claim: changed_claim, pv_uid: "p".into(), pvc_uid: None, policy, view };
        let why = ground.ops.hold(&request).unwrap_err().message();
        assert!(why.contains(words), "{words}: {why}");
    }
    // While the agent holds it, no other process gets it.
    let held = hold(&ground, &claim).unwrap();
    let others: [&mut dyn FnMut() -> bool; 3] = [
        &mut || OpenOptions::new().read(true).custom_flags(O_EXCL).open(device.dev()).is_ok(),
        &mut || {
            Command::new("mount")
                .args([device.dev(), ground.directory.path().join("mnt").display().to_string()])
                .output()
                .unwrap()
                .status
                .success()
        },
        &mut || {
            Command::new("mkfs.xfs")
                .args(["-q", "-f", &device.dev()])
                .output()
                .unwrap()
                .status
                .success()
        },
    ];
    for (at, other) in others.into_iter().enumerate() {
        assert!(!other(), "{at} got a device that is held");
    }
    drop(held);
    assert_eq!(hash(&path), before, "held and released: no byte was written");
}

/// Another process tries to mount the device all the time, before, during and after the job: both
/// never succeed.
// invariant: 2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mount_and_wipe_never_both_succeed() {
    let ground = Ground::new().await;
    let (device, path) = ground.disk("d", 64 * MIB);
    let at = ground.directory.path().join("mnt");
    fs::create_dir_all(&at).unwrap();
    let (mut wipes, mut mounts) = (0, 0);
    for round in 0..24 {
        run("mkfs.ext4", &["-q", "-F", &device.dev()]);
        let claim = ground.claim(&device);
        let stop = Arc::new(AtomicBool::new(false));
        let mounter = {
            let (stop, dev, at) = (stop.clone(), device.dev(), at.clone());
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(700 * round));
                while !stop.load(Ordering::Relaxed) {
                    let mounted =
                        Command::new("mount").args(["-t", "ext4", &dev]).arg(&at).output().unwrap();
                    if mounted.status.success() {
                        // A successful mount has an intact file system.
                        fs::write(at.join("mine"), "mine").unwrap();
                        return true;
                    }
                }
                false
            })
        };
        let policy = WipePolicy::ALL[round as usize % 3];
        let wiped = hold(&ground, &claim).and_then(|held| {
            held.wipe(policy, &Progress::default()).map_err(|error| error.message())
        });
        stop.store(true, Ordering::Relaxed);
        let mounted = mounter.join().unwrap();
        if mounted {
            mounts += 1;
            assert_eq!(fs::read_to_string(at.join("mine")).unwrap(), "mine");
            run("umount", &[&at.to_string_lossy()]);
            run("fsck.ext4", &["-fn", &device.dev()]);
        }
        match wiped {
            Ok(_) => {
                wipes += 1;
                assert!(!mounted, "round {round}: both");
                assert_eq!(ground.facts(&device).content, Content::Blank);
            }
            Err(why) => assert!(
                mounted || why.contains("opened exclusively"),
                "round {round}: neither, {why}"
            ),
        }
    }
    assert!(path.exists());
    println!("figure: 24 races of mount and wipe: {wipes} wiped, {mounts} mounted, never both");
}

// invariant: 2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn device_swapped_under_its_name_is_not_erased() {
    let ground = Ground::new().await;
    let (device, path) = ground.disk("d", 16 * MIB);
    fill(&path);
    let claim = ground.claim(&device);
    let other = file(ground.directory.path(), "other", 16 * MIB);
    fill(&other);
    let (ours, theirs) = (hash(&path), hash(&other));
    run("losetup", &["-d", &device.dev()]);
    eventually("it is idle", || !Path::new(&format!("/sys/block/{}/loop", device.name)).exists());
    run("losetup", &[&device.dev(), &other.to_string_lossy()]);
    assert!(hold(&ground, &claim).unwrap_err().contains("is missing"));
    assert_eq!((hash(&path), hash(&other)), (ours, theirs));
    // Detached while it is held: the kernel waits, and the verified device is erased.
    let newcomer = ground.claim(&device);
    let held = hold(&ground, &newcomer).unwrap();
    run("losetup", &["-d", &device.dev()]);
    assert!(
        !Command::new("losetup")
            .args([&device.dev(), &path.to_string_lossy().into_owned()])
            .output()
            .unwrap()
            .status
            .success()
    );
    held.wipe(WipePolicy::Zero, &Progress::default()).unwrap();
    assert_eq!(hash(&path), ours);
    assert!(found(&other).is_empty());
    eventually("it is idle", || !Path::new(&format!("/sys/block/{}/loop", device.name)).exists());
}

/// Whether the second MiB of a file that was full of data starts with zero.
pub fn has_begun(path: &Path) -> bool {
    let mut byte = [1];
    fs::File::open(path)
        .is_ok_and(|file| file.read_exact_at(&mut byte, MIB).is_ok() && byte[0] == 0)
}

/// The device at the end is not the verified one: what was erased is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_resized_during_a_wipe_is_not_reported_as_erased() {
    let ground = Ground::new().await;
    let (device, path) = ground.disk("d", 16 * MIB);
    let held = hold(&ground, &ground.claim(&device)).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(24 * MIB).unwrap();
    run("losetup", &["-c", &device.dev()]);
    let why = held.wipe(WipePolicy::Quick, &Progress::default()).unwrap_err().message();
    assert!(why.contains("it is not the same disk any more"), "{why}");
}

// invariant: 2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_pulled_during_a_wipe_fails_the_job() {
    let ground = Ground::new().await;
    let path = file(ground.directory.path(), "image", 256 * MIB);
    fill(&path);
    let export = ground.directory.path().join("export");
    let mut export_daemon = ExportedFile::new(&path, &export);
    let device = Loop::new(&export);
    let world = World::new().await;
    let claim = quarry_tests::device_claim::claim_of(&ground.facts(&device), world.owner());
    world.claim(std::slice::from_ref(&claim)).await;
    let pv = world.release(&claim).await;
    let job = world.wipe_job(&claim, &pv, WipePolicy::Zero).await;
    let running = {
        let (agent, job) = (world.agent(&ground.ops), job.clone());
        tokio::spawn(async move { agent.run_job(&job).await.unwrap() })
    };
    // Some of it is erased, most is not.
    eventually("the wipe has started", || has_begun(&path));
    export_daemon.pull();
    let ran = running.await.unwrap();
    let RunResult::Finished(JobOutcome::Failed(why)) = &ran else { panic!("{ran:?}") };
    assert!(why.contains("check the node's kernel log"), "{why}");
    assert!(!found(&path).is_empty(), "the wipe was in progress");
    let ledger = fs::read_to_string(ground.bed.data.join("ledger")).unwrap();
    assert!(ledger.lines().last().unwrap().contains("\"result\":\"failed\""), "{ledger}");
    let _ = Command::new("umount").arg("-l").arg(&export).output();
}

// invariant: 10
#[test]
fn claims_and_wipes_survive_a_kill_at_every_failpoint() {
    let bed = Bed::new(Links::Own);
    let dir = tempfile::tempdir_in(&bed.root).unwrap();
    let path = file(dir.path(), "d", 32 * MIB);
    // A second device to wipe: the ledger records the owner the first was confirmed for, and a wipe
    // has another owner.
    let wiped = file(dir.path(), "wiped", 32 * MIB);
    let other = file(dir.path(), "other", 8 * MIB);
    fill(&other);
    let (device, second, bystander) = (Loop::new(&path), Loop::new(&wiped), Loop::new(&other));
    let untouched = hash(&other);
    let scan = bed.ops().scan_node(&quarry_node::ScanRequest::default()).unwrap();
    let claim_of = |device: &Loop| {
        quarry_tests::device_claim::claim_of(
            scan.devices.iter().find(|facts| facts.name == device.name).unwrap(),
            Default::default(),
        )
    };
    let claim = claim_of(&device);
    let text = serde_json::to_string(&claim).unwrap();
    let ending =
        serde_json::to_string(&DeviceClaim { terminating: true, ..claim.clone() }).unwrap();
    let of = |prefixes: &'static [&'static str]| {
        ALL.iter()
            .copied()
            .filter(move |point| prefixes.iter().any(|prefix| point.starts_with(prefix)))
    };
    let mut met = BTreeSet::new();
    for point in of(&["claim", "confirm", "inventory"]) {
        for (order, expected) in
            [(&text, "\"state\":\"Confirmed\",\"device\""), (&ending, "\"state\":\"Removed\"")]
        {
            if killed_at(&bed, &["scan", order], point) {
                met.insert(point);
            }
            let output = finish(&bed, &["scan", order], point);
            assert!(output.contains(expected), "{point}: {output}");
            let ended = order == &ending;
            assert_eq!(
                bed.link_target(&claim.link),
                (!ended).then(|| device.dev().into()),
                "{point}"
            );
            assert!(!ended || !bed.at("/mnt/local-storage/fast").exists(), "{point}");
        }
    }
    for point in of(&["wipe", "ledger", "status.finished"]) {
        for policy in WipePolicy::ALL {
            fill(&wiped);
            poke(&wiped, 0, &[0; 4096]);
            let order =
                ["wipe", &serde_json::to_string(&claim_of(&second)).unwrap(), policy.as_str()];
            if killed_at(&bed, &order, point) {
                met.insert(point);
                finish(&bed, &order, point);
            }
            let left = found(&wiped);
            match policy {
                WipePolicy::Quick => assert_quick(&left, &wiped, point),
                WipePolicy::Discard | WipePolicy::Zero => {
                    assert!(left.is_empty(), "{policy:?} after a kill at {point}: {left:?}")
                }
            }
        }
    }
    let wanted: BTreeSet<&str> =
        of(&["claim", "confirm", "wipe", "ledger", "status.finished", "inventory"]).collect();
    let missed: Vec<_> = wanted.difference(&met).collect();
    assert!(missed.is_empty(), "never reached: {missed:?}");
    assert_eq!(hash(&other), untouched, "{} must not change", bystander.name);
    println!("figure: device claims and wipes killed at {} failpoints", met.len());
}

/// The report of a Quick wipe was lost, and the class says Zero when it is asked for again.
// invariant: 10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quick_wipe_does_not_count_for_a_zero_policy() {
    let ground = Ground::new().await;
    let (device, path) = ground.disk("d", 8 * MIB);
    fill(&path);
    for end in [0, 7 * MIB] {
        poke(&path, end, &vec![0; MIB as usize]);
    }
    let claim = ground.claim(&device);
    let outcome = |policy: WipePolicy| Outcome {
        job: "wipe-1".into(),
        task: Task::Wipe(WipeDevice {
            identity: claim.identity.as_str().into(),
            size: Bytes(8 * MIB),
            pv: "local-pv-1".into(),
            pv_uid: "p".into(),
            pvc_uid: None,
            policy,
        }),
        result: OutcomeResult::Succeeded,
        text: String::new(),
    };
    ground.ops.record_outcome(&outcome(WipePolicy::Quick)).unwrap();
    assert!(hold_for(&ground, &claim, WipePolicy::Quick).unwrap().is_wiped());
    let held = hold_for(&ground, &claim, WipePolicy::Zero).unwrap();
    assert!(!held.is_wiped(), "most of the data is still there");
    held.wipe(WipePolicy::Zero, &Progress::default()).unwrap();
    assert!(found(&path).is_empty());
    ground.ops.record_outcome(&outcome(WipePolicy::Zero)).unwrap();
    assert!(hold_for(&ground, &claim, WipePolicy::Zero).unwrap().is_wiped());
    // Written to since, by an owner that the API does not know any more: neither policy erases that.
    poke(&path, 4096, b"new data");
    for policy in WipePolicy::ALL {
        let why = hold_for(&ground, &claim, policy).map(drop).unwrap_err();
        assert!(why.contains("was written to since"), "{policy:?}: {why}");
    }
}
