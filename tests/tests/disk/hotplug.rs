//! The agent as a process: disks come, change and go; too many events, no API, a device that vanishes while it is read.

use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use quarry_api::{
    NodeInventoryStatus,
    node_inventory::{Device, DeviceState},
};
use quarry_tests::{
    disk::{MIB, Mounted, run},
    process::Parts,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A loop device over a file of ours; detached when dropped.
struct Disk {
    name: String,
    file: PathBuf,
}

impl Disk {
    fn attach(folder: &TempDir, name: &str, size: u64) -> Self {
        let file = folder.path().join(name);
        let made = fs::File::create(&file).unwrap();
        made.set_len(size).unwrap();
        let device = run("losetup", &["--find", "--show", file.to_str().unwrap()]);
        Disk { name: device.trim().trim_start_matches("/dev/").to_owned(), file }
    }

    fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// As the kernel sends it, once more.
    fn event(&self) {
        fs::write(format!("/sys/block/{}/uevent", self.name), "change").unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !Command::new("losetup")
            .args(["--detach", &self.path()])
            .status()
            .is_ok_and(|status| status.success())
        {
            eprintln!("{} was not attached any more", self.name);
        }
    }
}

fn find<'a>(status: &'a NodeInventoryStatus, disk: &Disk) -> Option<&'a Device> {
    let file = disk.file.to_str();
    status.devices.iter().find(|device| device.backing_file.as_deref() == file)
}

fn reasons(device: &Device) -> Vec<&str> {
    device.reasons.iter().map(|told| told.reason.as_str()).collect()
}

/// In KiB.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn a_disk_comes_changes_and_goes() {
    let folder = tempfile::tempdir().unwrap();
    let parts = Parts::start(folder.path()).await;
    parts.wait_inventory("is published", |status| status.node_uid.is_some()).await;
    let disk = Disk::attach(&folder, "a.img", 64 * MIB);
    let seen = parts.wait_inventory("shows it", |status| find(status, &disk).is_some()).await;
    let device = find(&seen, &disk).unwrap();
    assert_eq!(
        (device.kind.as_str(), device.size, device.state, reasons(device)),
        ("loop", 64 << 20, DeviceState::Unknown, vec!["TooNew"])
    );
    assert!(
        device.identity.as_ref().unwrap().starts_with(&format!("file:{}#", disk.file.display())),
        "{device:?}"
    );

    run("mkfs.ext4", &["-q", &disk.path()]);
    // Without a udev daemon nobody tells that a device was written to: the kernel is asked to.
    disk.event();
    let seen = parts
        .wait_inventory("shows the file system", |status| {
            find(status, &disk).is_some_and(|device| device.fs_type.is_some())
        })
        .await;
    let device = find(&seen, &disk).unwrap();
    assert_eq!(
        (device.fs_type.as_deref(), device.state),
        (Some("ext4"), DeviceState::NotAvailable)
    );
    assert!(reasons(device).contains(&"Signature"));

    let file = disk.file.to_str().unwrap().to_owned();
    let grown = fs::File::options().write(true).open(&disk.file).unwrap();
    grown.set_len(128 << 20).unwrap();
    run("losetup", &["--set-capacity", &disk.path()]);
    parts
        .wait_inventory("shows its new size", |status| {
            find(status, &disk).is_some_and(|device| device.size == 128 << 20)
        })
        .await;
    drop(disk);
    let gone = |status: &NodeInventoryStatus| {
        !status.devices.iter().any(|device| device.backing_file.as_deref() == Some(file.as_str()))
    };
    parts.wait_inventory("does not show it any more", gone).await;

    let events: Api<Event> = Api::namespaced(parts.client(), "default");
    // They follow the status.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let told: Vec<String> = events
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .into_iter()
            .filter_map(|event| event.reason)
            .collect();
        if ["DeviceAppeared", "DeviceDisappeared", "DeviceVerdictChanged"]
            .iter()
            .all(|reason| told.iter().any(|seen| seen == reason))
        {
            break;
        }
        assert!(Instant::now() < deadline, "{told:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    parts.stop().await;
}

#[tokio::test]
async fn a_mount_and_a_swap_are_seen_when_they_come_and_when_they_go() {
    let folder = tempfile::tempdir().unwrap();
    // Before the agent is there: a plug is followed by looks that would see a mount as well.
    let (disk, swap) =
        (Disk::attach(&folder, "a.img", 64 * MIB), Disk::attach(&folder, "b.img", 64 * MIB));
    run("mkfs.ext4", &["-q", &disk.path()]);
    run("mkswap", &["--quiet", &swap.path()]);
    let parts = Parts::start(folder.path()).await;
    let shown = |status: &NodeInventoryStatus, disk: &Disk, reason: &str| {
        find(status, disk).is_some_and(|device| reasons(device).contains(&reason))
    };
    parts
        .wait_inventory("shows both", |status| {
            find(status, &disk).is_some() && find(status, &swap).is_some()
        })
        .await;
    for _ in 0..2 {
        let mounted = Mounted::new(&[&disk.path()], &folder.path().join("mnt"));
        parts.wait_inventory("shows the mount", |status| shown(status, &disk, "Mounted")).await;
        drop(mounted);
        parts
            .wait_inventory("shows that it is over", |status| !shown(status, &disk, "Mounted"))
            .await;
    }
    run("swapon", &[&swap.path()]);
    let seen = parts.wait_inventory("shows the swap", |status| shown(status, &swap, "Swap")).await;
    run("swapoff", &[&swap.path()]);
    assert!(!shown(&seen, &disk, "Mounted"));
    parts.wait_inventory("shows that it is off", |status| !shown(status, &swap, "Swap")).await;
    parts.stop().await;
}

#[tokio::test]
async fn a_flood_of_events_costs_no_memory_and_what_is_lost_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let parts = Parts::start(folder.path()).await;
    let disks: Vec<Disk> =
        (0..8).map(|number| Disk::attach(&folder, &format!("{number}.img"), 16 * MIB)).collect();
    parts
        .wait_inventory("shows all", |status| disks.iter().all(|disk| find(status, disk).is_some()))
        .await;
    let pid = parts.agent_pid().unwrap();
    // First a few: they fill caches of the allocator.
    let flood = |count: usize| (0..count).for_each(|number| disks[number % disks.len()].event());
    flood(2_000);
    let mark = Disk::attach(&folder, "mark.img", 16 * MIB);
    parts.wait_inventory("goes on after the flood", |status| find(status, &mark).is_some()).await;
    let before = resident(pid);
    flood(10_000);
    drop(mark);
    let mark = Disk::attach(&folder, "mark2.img", 16 * MIB);
    parts
        .wait_inventory("goes on after the second flood", |status| find(status, &mark).is_some())
        .await;
    let grown = resident(pid).saturating_sub(before);
    println!(
        "figure: agent after 12,000 events: {} KiB resident, grown by {grown} KiB in the last 10,000",
        resident(pid)
    );
    assert!(grown < 4096, "grown by {grown} KiB");

    // While it does not listen, more come than the socket holds; among those that are lost is a new disk's.
    signal(pid, Signal::STOP);
    flood(5_000);
    let lost = Disk::attach(&folder, "lost.img", 16 * MIB);
    flood(100);
    signal(pid, Signal::CONT);
    parts
        .wait_inventory("shows the disk whose event was lost", |status| {
            find(status, &lost).is_some()
        })
        .await;
    drop((disks, mark, lost));
    parts.stop().await;
    // udev has got all of them, too: the tests behind this one need it.
    run("udevadm", &["settle", "--timeout=120"]);
}

#[tokio::test]
async fn what_happened_without_the_api_is_told_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = Parts::start(folder.path()).await;
    let first = Disk::attach(&folder, "first.img", 16 * MIB);
    parts.wait_inventory("shows the first", |status| find(status, &first).is_some()).await;
    parts.api_down().await;
    let second = Disk::attach(&folder, "second.img", 16 * MIB);
    let gone = first.file.to_str().unwrap().to_owned();
    drop(first);
    parts.api_up().await;
    let caught_up = |status: &NodeInventoryStatus| {
        find(status, &second).is_some()
            && !status
                .devices
                .iter()
                .any(|device| device.backing_file.as_deref() == Some(gone.as_str()))
    };
    parts.wait_inventory("has caught up", caught_up).await;
    drop(second);
    parts.stop().await;
}

/// Attached and detached as fast as it goes: whatever the agent is reading vanishes under it, and it ends up right.
#[tokio::test]
async fn a_device_that_vanishes_while_it_is_read_hurts_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let parts = Parts::start(folder.path()).await;
    let stays = Disk::attach(&folder, "stays.img", 16 * MIB);
    parts.wait_inventory("shows the one that stays", |status| find(status, &stays).is_some()).await;
    for round in 0..60 {
        drop(Disk::attach(&folder, &format!("flies-{}.img", round % 3), 16 * MIB));
    }
    let settled = |status: &NodeInventoryStatus| {
        find(status, &stays).is_some()
            && !status.devices.iter().any(|device| {
                device.backing_file.as_ref().is_some_and(|file| file.contains("flies-"))
            })
    };
    let status = parts.wait_inventory("shows only the one that stays", settled).await;
    assert!(status.problems.is_empty(), "{:?}", status.problems);
    drop(stays);
    parts.stop().await;
}

#[tokio::test]
async fn at_rest_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let parts = Parts::start(folder.path()).await;
    let disk = Disk::attach(&folder, "a.img", 16 * MIB);
    parts.wait_inventory("shows it", |status| find(status, &disk).is_some()).await;
    // Events without a change in the device: looked at, and nothing is written.
    let before = parts.writes();
    for _ in 0..50 {
        disk.event();
    }
    let mark = Disk::attach(&folder, "mark.img", 16 * MIB);
    parts.wait_inventory("shows the mark", |status| find(status, &mark).is_some()).await;
    assert!(
        parts.writes() - before <= 4,
        "{} writes for one new disk and its Event",
        parts.writes() - before
    );
    drop((disk, mark));
    parts.stop().await;
}
