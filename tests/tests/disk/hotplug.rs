//! The agent as a process: disks are attached, changed and detached; too many events, no API, a
//! device that vanishes while it is read.

use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use quarry_api::{
    NodeInventoryStatus,
    node_inventory::{Device, DeviceState},
};
use quarry_tests::{
    disk::{MIB, Mounted, run},
    process::Processes,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A loop device over a temporary file; detached on drop.
struct Disk {
    name: String,
    file: PathBuf,
}

impl Disk {
    fn attach(dir: &TempDir, name: &str, size: u64) -> Self {
        let file = dir.path().join(name);
        let created = fs::File::create(&file).unwrap();
        created.set_len(size).unwrap();
        let device = run("losetup", &["--find", "--show", file.to_str().unwrap()]);
        Disk { name: device.trim().trim_start_matches("/dev/").to_owned(), file }
    }

    fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Makes the kernel send its event again.
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
            eprintln!("{} was already detached", self.name);
        }
    }
}

fn find<'a>(status: &'a NodeInventoryStatus, disk: &Disk) -> Option<&'a Device> {
    let file = disk.file.to_str();
    status.devices.iter().find(|device| device.backing_file.as_deref() == file)
}

fn reasons(device: &Device) -> Vec<&str> {
    device.reasons.iter().map(|entry| entry.reason.as_str()).collect()
}

/// Resident memory in KiB.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

// invariant: 6
#[tokio::test]
async fn disk_is_followed_from_attach_to_detach() {
    let dir = tempfile::tempdir().unwrap();
    let processes = Processes::start(dir.path()).await;
    processes.wait_inventory("is published", |status| status.node_uid.is_some()).await;
    let disk = Disk::attach(&dir, "a.img", 64 * MIB);
    let seen = processes.wait_inventory("shows it", |status| find(status, &disk).is_some()).await;
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
    // Without a udev daemon there is no event after a write to a device, so the kernel is asked to
    // send one.
    disk.event();
    let seen = processes
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
    processes
        .wait_inventory("shows its new size", |status| {
            find(status, &disk).is_some_and(|device| device.size == 128 << 20)
        })
        .await;
    drop(disk);
    let detached = |status: &NodeInventoryStatus| {
        !status.devices.iter().any(|device| device.backing_file.as_deref() == Some(file.as_str()))
    };
    processes.wait_inventory("no longer shows it", detached).await;

    let events: Api<Event> = Api::namespaced(processes.client(), "default");
    // Events are published after the status.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let published: Vec<String> = events
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .into_iter()
            .filter_map(|event| event.reason)
            .collect();
        if ["DeviceAppeared", "DeviceDisappeared", "DeviceVerdictChanged"]
            .iter()
            .all(|reason| published.iter().any(|seen| seen == reason))
        {
            break;
        }
        assert!(Instant::now() < deadline, "{published:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    processes.stop().await;
}

#[tokio::test]
async fn mount_and_swap_are_reported_when_added_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    // Before the agent starts: attaching a disk causes scans, which would also find a mount.
    let (disk, swap) =
        (Disk::attach(&dir, "a.img", 64 * MIB), Disk::attach(&dir, "b.img", 64 * MIB));
    run("mkfs.ext4", &["-q", &disk.path()]);
    run("mkswap", &["--quiet", &swap.path()]);
    let processes = Processes::start(dir.path()).await;
    let shown = |status: &NodeInventoryStatus, disk: &Disk, reason: &str| {
        find(status, disk).is_some_and(|device| reasons(device).contains(&reason))
    };
    processes
        .wait_inventory("shows both", |status| {
            find(status, &disk).is_some() && find(status, &swap).is_some()
        })
        .await;
    for _ in 0..2 {
        let mounted = Mounted::new(&[&disk.path()], &dir.path().join("mnt"));
        processes.wait_inventory("shows the mount", |status| shown(status, &disk, "Mounted")).await;
        drop(mounted);
        processes
            .wait_inventory("shows that it is unmounted", |status| !shown(status, &disk, "Mounted"))
            .await;
    }
    // Seen by the scan of another event, and unmounted before the watch looked again.
    let mounted = Mounted::new(&[&disk.path()], &dir.path().join("mnt"));
    disk.event();
    processes.wait_inventory("shows the mount", |status| shown(status, &disk, "Mounted")).await;
    drop(mounted);
    processes
        .wait_inventory("shows that it is unmounted", |status| !shown(status, &disk, "Mounted"))
        .await;
    run("swapon", &[&swap.path()]);
    let seen =
        processes.wait_inventory("shows the swap", |status| shown(status, &swap, "Swap")).await;
    run("swapoff", &[&swap.path()]);
    assert!(!shown(&seen, &disk, "Mounted"));
    processes.wait_inventory("shows that it is off", |status| !shown(status, &swap, "Swap")).await;
    processes.stop().await;
}

#[tokio::test]
async fn event_flood_costs_no_memory_and_lost_events_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let processes = Processes::start(dir.path()).await;
    let disks: Vec<Disk> =
        (0..8).map(|number| Disk::attach(&dir, &format!("{number}.img"), 16 * MIB)).collect();
    processes
        .wait_inventory("shows all", |status| disks.iter().all(|disk| find(status, disk).is_some()))
        .await;
    let pid = processes.agent_pid().unwrap();
    // A few first, because they fill caches of the allocator.
    let flood = |count: usize| (0..count).for_each(|number| disks[number % disks.len()].event());
    flood(2_000);
    let mark = Disk::attach(&dir, "mark.img", 16 * MIB);
    processes
        .wait_inventory("is updated after the flood", |status| find(status, &mark).is_some())
        .await;
    let before = resident(pid);
    flood(10_000);
    drop(mark);
    let mark = Disk::attach(&dir, "mark2.img", 16 * MIB);
    processes
        .wait_inventory("is updated after the second flood", |status| find(status, &mark).is_some())
        .await;
    let grown = resident(pid).saturating_sub(before);
    println!(
        "figure: agent after 12,000 events: {} KiB resident, grown by {grown} KiB in the last 10,000",
        resident(pid)
    );
    assert!(grown < 4096, "grown by {grown} KiB");

    // While the agent is stopped, more events arrive than the socket can hold; the event of a new
    // disk is among those lost.
    signal(pid, Signal::STOP);
    flood(5_000);
    let lost = Disk::attach(&dir, "lost.img", 16 * MIB);
    flood(100);
    signal(pid, Signal::CONT);
    processes
        .wait_inventory("shows the disk whose event was lost", |status| {
            find(status, &lost).is_some()
        })
        .await;
    drop((disks, mark, lost));
    processes.stop().await;
    // udev has received all of them too, and the next tests need it.
    run("udevadm", &["settle", "--timeout=120"]);
}

#[tokio::test]
async fn changes_during_an_api_outage_are_reported_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = Processes::start(dir.path()).await;
    let first = Disk::attach(&dir, "first.img", 16 * MIB);
    processes.wait_inventory("shows the first", |status| find(status, &first).is_some()).await;
    processes.api_down().await;
    let second = Disk::attach(&dir, "second.img", 16 * MIB);
    let detached = first.file.to_str().unwrap().to_owned();
    drop(first);
    processes.api_up().await;
    let caught_up = |status: &NodeInventoryStatus| {
        find(status, &second).is_some()
            && !status
                .devices
                .iter()
                .any(|device| device.backing_file.as_deref() == Some(detached.as_str()))
    };
    processes.wait_inventory("has caught up", caught_up).await;
    drop(second);
    processes.stop().await;
}

/// Attached and detached as fast as possible: devices vanish while the agent reads them, and its
/// result is still right.
// invariant: 4
#[tokio::test]
async fn device_that_vanishes_while_read_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let processes = Processes::start(dir.path()).await;
    let stays = Disk::attach(&dir, "stays.img", 16 * MIB);
    processes
        .wait_inventory("shows the one that stays", |status| find(status, &stays).is_some())
        .await;
    for round in 0..60 {
        drop(Disk::attach(&dir, &format!("flies-{}.img", round % 3), 16 * MIB));
    }
    let settled = |status: &NodeInventoryStatus| {
        find(status, &stays).is_some()
            && !status.devices.iter().any(|device| {
                device.backing_file.as_ref().is_some_and(|file| file.contains("flies-"))
            })
    };
    let status = processes.wait_inventory("shows only the one that stays", settled).await;
    assert!(status.problems.is_empty(), "{:?}", status.problems);
    drop(stays);
    processes.stop().await;
}

// invariant: 8
#[tokio::test]
async fn nothing_is_written_without_changes() {
    let dir = tempfile::tempdir().unwrap();
    let processes = Processes::start(dir.path()).await;
    let disk = Disk::attach(&dir, "a.img", 16 * MIB);
    processes.wait_inventory("shows it", |status| find(status, &disk).is_some()).await;
    // Events without a change: the device is read, and nothing is written.
    let before = processes.writes();
    for _ in 0..50 {
        disk.event();
    }
    let mark = Disk::attach(&dir, "mark.img", 16 * MIB);
    processes.wait_inventory("shows the mark", |status| find(status, &mark).is_some()).await;
    assert!(
        processes.writes() - before <= 4,
        "{} writes for one new disk and its Event",
        processes.writes() - before
    );
    drop((disk, mark));
    processes.stop().await;
}
