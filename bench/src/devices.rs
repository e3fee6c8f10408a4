//! Devices: a scan compared with what the Local Storage Operator's daemon runs, and how soon a new
//! disk is reported.
//!
//! Loop devices over sparse files of 64 MiB: half of them blank, a quarter ext4, a quarter xfs.
//! Cold: page, inode and dentry caches are dropped before each scan, of both sides. Loop nodes
//! created here are removed again: idle ones would slow down every later run, of both sides.

use crate::{bare::run, figures, story::Writes};
use anyhow::{Context, Result};
use futures::TryStreamExt;
use kube::{
    Api,
    runtime::{WatchStreamExt, watcher},
};
use quarry_api::{NodeInventory, names};
use quarry_node::{
    HostRoot, act,
    inspect::{Limits, Scan, Scanner},
    uevent::{KernelEvent, Uevents},
};
use quarry_tests::process::{NODE, Processes};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    pin::pin,
    time::{Duration, Instant},
};

const SIZES: [usize; 4] = [16, 64, 256, 1024];
const ROUNDS: usize = 7;

/// Loop devices; detached on drop.
struct LoopDisks {
    dir: tempfile::TempDir,
    devices: Vec<String>,
    /// Loop nodes that existed before.
    before: BTreeSet<u32>,
}

fn loop_nodes() -> BTreeSet<u32> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("loop")?.parse().ok())
        .collect()
}

impl LoopDisks {
    fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        for kind in ["blank", "ext4", "xfs"] {
            let file = dir.path().join(kind);
            fs::File::create(&file)?.set_len(if kind == "xfs" { 320 << 20 } else { 64 << 20 })?;
            if kind != "blank" {
                run(&format!("mkfs.{kind}"), &["-q", &file.to_string_lossy()])?;
            }
        }
        Ok(LoopDisks { dir, devices: Vec::new(), before: loop_nodes() })
    }

    fn grow_to(&mut self, count: usize) -> Result<()> {
        while self.devices.len() < count {
            let number = self.devices.len();
            let kind = ["blank", "ext4", "blank", "xfs"][number % 4];
            let device = self.attach(&format!("disk-{number}"), kind)?;
            self.devices.push(device);
        }
        run("udevadm", &["settle", "--timeout=60"]).map(drop)
    }

    fn attach(&self, name: &str, kind: &str) -> Result<String> {
        let (from, to) = (self.dir.path().join(kind), self.file(name));
        run("cp", &["--sparse=always", &from.to_string_lossy(), &to.to_string_lossy()])?;
        run("losetup", &["--find", "--show", &to.to_string_lossy()])
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for LoopDisks {
    fn drop(&mut self) {
        for device in &self.devices {
            if let Err(error) = run("losetup", &["--detach", device]) {
                eprintln!("{error}");
            }
        }
        // udev may still have some open: they become idle in a moment.
        let _ = run("udevadm", &["settle", "--timeout=60"]);
        let Ok(host) = HostRoot::view(Path::new("/")) else { return };
        for number in loop_nodes().difference(&self.before) {
            if let Err(error) = act::detach::remove_idle(&host, *number) {
                eprintln!("{}", error.message());
            }
        }
    }
}

fn drop_caches() -> Result<()> {
    run("sync", &[])?;
    fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed())
}

/// What the discovery daemon of the Local Storage Operator runs for every scan.
fn peer() -> Result<()> {
    run("blkid", &["-s", "TYPE"])?;
    run(
        "lsblk",
        &[
            "--pairs",
            "-b",
            "-o",
            "NAME,ROTA,TYPE,SIZE,MODEL,VENDOR,RO,RM,STATE,KNAME,SERIAL,PARTLABEL",
        ],
    )
    .map(drop)
}

fn scan(scanner: &mut Scanner, scan: Scan<'_>) -> Result<usize> {
    Ok(scanner.scan(scan).map_err(|error| anyhow::anyhow!(error.message()))?.devices.len())
}

fn fresh() -> Result<Scanner> {
    let host = HostRoot::view(Path::new("/")).map_err(|error| anyhow::anyhow!(error.message()))?;
    Ok(Scanner::new(host, Limits::default()))
}

/// First scan, cold and warm, and a scan without changes, compared with the peer, interleaved.
fn scans(count: usize) -> Result<()> {
    let nothing = BTreeSet::new();
    let mut known = fresh()?;
    let seen = scan(&mut known, Scan::Everything)?;
    let (mut cold, mut warm, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    let (mut peer_cold, mut peer_warm) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        drop_caches()?;
        cold.push(timed(|| scan(&mut fresh()?, Scan::Everything))?);
        drop_caches()?;
        peer_cold.push(timed(peer)?);
        warm.push(timed(|| scan(&mut fresh()?, Scan::Everything))?);
        peer_warm.push(timed(peer)?);
        rest.push(timed(|| scan(&mut known, Scan::Changed { touched: &nothing }))?);
    }
    let [cold, warm, rest, peer_cold, peer_warm] = [cold, warm, rest, peer_cold, peer_warm]
        .map(|samples| figures::Samples::new(samples).percentile(50));
    let ratio = |peer: Duration, ours: Duration| peer.as_secs_f64() / ours.as_secs_f64().max(1e-9);
    println!(
        "figure: {count} loop devices ({seen} block devices found), medians of {ROUNDS}: first scan cold {} (peer {}, {:.1}x), warm {} (peer {}, {:.1}x; aim 10x, at least 5x), nothing changed {} ({:.0}x; aim at least 100x)",
        figures::milliseconds(cold),
        figures::milliseconds(peer_cold),
        ratio(peer_cold, cold),
        figures::milliseconds(warm),
        figures::milliseconds(peer_warm),
        ratio(peer_warm, warm),
        figures::milliseconds(rest),
        ratio(peer_warm, rest),
    );
    Ok(())
}

/// User and system time of a process, in kernel ticks of 10 ms.
fn ticks(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

/// `sizes`: numbers of devices, increasing; defaults are used if empty.
pub async fn run_all(sizes: &[usize]) -> Result<()> {
    let mut disks = LoopDisks::new()?;
    let dir = tempfile::tempdir()?;
    for count in if sizes.is_empty() { &SIZES } else { sizes } {
        disks.grow_to(*count)?;
        scans(*count)?;
        let dir = dir.path().join(count.to_string());
        fs::create_dir_all(&dir)?;
        if *count == 256 {
            hotplug(&disks, &dir).await?;
        } else {
            memory(&dir, *count).await?;
        }
    }
    Ok(())
}

async fn memory(dir: &Path, count: usize) -> Result<()> {
    let started = Instant::now();
    let processes = Processes::start(dir).await;
    processes.wait_inventory("shows all", |status| status.devices.len() >= count).await;
    let shown = started.elapsed();
    let pid = processes.agent_pid().context("the agent runs")?;
    // Wait for the scans that follow udev's events.
    tokio::time::sleep(Duration::from_secs(15)).await;
    println!(
        "figure: agent with {count} loop devices: all listed {} after its start, {}",
        figures::milliseconds(shown),
        figures::memory(pid)
    );
    processes.stop().await;
    Ok(())
}

/// Time from the kernel event to the NodeInventory at a watcher; then an idle minute.
async fn hotplug(disks: &LoopDisks, dir: &Path) -> Result<()> {
    let processes = Processes::start(dir).await;
    processes
        .wait_inventory("shows all", |status| status.devices.len() >= disks.devices.len())
        .await;
    let events = Uevents::open()?;
    let api: Api<NodeInventory> = Api::all(processes.client());
    let mut watch = pin!(
        watcher(api, watcher::Config::default().fields(&format!("metadata.name={NODE}")))
            .applied_objects()
    );
    let mut samples = Vec::new();
    for number in 0..500 {
        let name = format!("plug-{}", number % 2);
        let file = disks.file(&name).to_string_lossy().into_owned();
        let mut device = String::new();
        for there in [true, false] {
            let act = async {
                if there {
                    device = disks.attach(&name, "blank")?;
                } else {
                    run("losetup", &["--detach", &device])?;
                }
                anyhow::Ok(())
            };
            act.await?;
            // The event is in our socket since then: the agent got its own copy at the same time.
            let wanted = device.trim_start_matches("/dev/").to_owned();
            let started = loop {
                match events.next().await? {
                    KernelEvent::Device(name) if name == wanted => break Instant::now(),
                    _ => {}
                }
            };
            while let Some(inventory) = watch.try_next().await? {
                let devices = inventory.status.unwrap_or_default().devices;
                if devices
                    .iter()
                    .any(|device| device.backing_file.as_deref() == Some(file.as_str()))
                    == there
                {
                    break;
                }
            }
            samples.push(started.elapsed());
            // The remaining events of this plug belong to it.
            while tokio::time::timeout(Duration::from_millis(30), events.next()).await.is_ok() {}
        }
    }
    let count = samples.len();
    let samples = figures::Samples::new(samples);
    println!(
        "figure: kernel event to NodeInventory at a watcher, {} loop devices ({count} samples): p50 {} p99 {} (aim: < 50 ms, < 250 ms)",
        disks.devices.len(),
        figures::milliseconds(samples.percentile(50)),
        figures::milliseconds(samples.percentile(99))
    );
    let pid = processes.agent_pid().context("the agent runs")?;
    // Settled: writes before this belong to the change, not to the idle minute.
    processes
        .wait_inventory("has settled", |status| status.devices.iter().all(|device| device.settled))
        .await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    let writes = Writes::watch(&processes.client(), names::DEFAULT_NAMESPACE).await?;
    let (before, used) = (writes.counts(), ticks(pid)?);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let used = ticks(pid)? - used;
    let written = crate::story::difference(&writes.counts(), &before);
    println!(
        "figure: idle agent with {} loop devices: {} (aim: < 20), {:.2} s of CPU in 60 s (aim: 0.00, in ticks of 0.01), writes {written:?} (aim: leases only)",
        disks.devices.len(),
        figures::memory(pid),
        used as f64 / 100.0
    );
    processes.stop().await;
    Ok(())
}
