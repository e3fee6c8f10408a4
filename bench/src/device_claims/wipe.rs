//! Wipes of loop devices by the agent's code, compared with the commands of an administrator.
//! Interleaved.

use crate::{bare, figures};
use anyhow::{Context, Result, anyhow, ensure};
use quarry_api::{
    NodeInventorySpec,
    node_inventory::{ClaimContent, DeviceClaim},
    node_job::WipePolicy,
};
use quarry_core::{device::group, device_claim::confirm::Expected};
use quarry_node::{
    HostRoot, NodeError, Progress,
    act::{
        hold::{Held, OpenPurpose},
        wipe::{DiscardRecord, wipe},
    },
    inspect::{Limits, Scan, Scanner},
};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

const ROUNDS: usize = 5;

/// A first wipe, on a device whose discards erase.
struct NoLedger;

impl DiscardRecord for NoLedger {
    fn is_ineffective(&self) -> bool {
        false
    }

    fn record_ineffective(&self) -> Result<(), NodeError> {
        Ok(())
    }
}

struct Loop {
    file: PathBuf,
    device: String,
}

impl Loop {
    fn attach(dir: &Path, name: &str, size: u64) -> Result<Self> {
        let file = dir.join(name);
        fs::File::create(&file)?.set_len(size)?;
        let output = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on"])
            .arg(&file)
            .output()?;
        ensure!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Loop { file, device: String::from_utf8(output.stdout)?.trim().to_owned() })
    }

    /// Writes every block, so that the wipe has work to do.
    fn fill(&self, size: u64) -> Result<()> {
        let count = format!("count={}", size >> 22);
        bare::run(
            "dd",
            &[
                "if=/dev/urandom",
                &format!("of={}", self.device),
                "bs=4M",
                &count,
                "oflag=direct",
                "status=none",
            ],
        )
        .map(drop)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = bare::run("losetup", &["--detach", &self.device]) {
            eprintln!("{error:#}");
        }
        if let Err(error) = fs::remove_file(&self.file) {
            eprintln!("{}: {error}", self.file.display());
        }
    }
}

/// Holds, verifies and wipes; returns the time of the wipe only.
fn ours(host: &HostRoot, disk: &Loop, policy: WipePolicy) -> Result<Duration> {
    let describe = |error: quarry_node::NodeError| anyhow!(error.message());
    let name = disk.device.trim_start_matches("/dev/");
    let held = Held::open(host, name, OpenPurpose::Writing).map_err(describe)?;
    let mut scanner = Scanner::new(host.clone(), Limits::default());
    let touched: BTreeSet<String> = [name.to_owned()].into();
    let seen = scanner.scan(Scan::Changed { touched: &touched }).map_err(describe)?;
    let known = group(&seen.devices, None, None, &[]);
    let device = known
        .iter()
        .find(|device| device.facts.name == name)
        .context("the loop device is found")?;
    let claim = DeviceClaim {
        identity: device.identified.identity.clone().context("the loop device has an identity")?,
        size: i64::try_from(device.facts.size)?,
        content: ClaimContent::Any,
        ..DeviceClaim::default()
    };
    let verified = held
        .verify(&claim, Expected::Erasable, &known, &NodeInventorySpec::default())
        .map_err(|why| anyhow!(why))?;
    let started = Instant::now();
    wipe(host, &verified, policy, &NoLedger, &Progress::default()).map_err(describe)?;
    Ok(started.elapsed())
}

fn timed(peer: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let started = Instant::now();
    peer()?;
    Ok(started.elapsed())
}

fn compare(what: &str, ours: Vec<Duration>, peer: Vec<Duration>) {
    let (ours, peer) =
        (figures::Samples::new(ours).percentile(50), figures::Samples::new(peer).percentile(50));
    let ratio = peer.as_secs_f64() / ours.as_secs_f64().max(1e-9);
    println!(
        "figure: {what}, medians of {ROUNDS}: quarry {}, peer {}, {ratio:.2} of its speed (aim: at least 0.95)",
        figures::milliseconds(ours),
        figures::milliseconds(peer)
    );
}

pub fn run_all(size: u64) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let host = HostRoot::view("/").map_err(|error| anyhow!(error.message()))?;
    let large = Loop::attach(dir.path(), "large", 1 << 40)?;
    let mut quick = Vec::new();
    for _ in 0..ROUNDS {
        bare::run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=1,nodiscard", &large.device])?;
        quick.push(ours(&host, &large, WipePolicy::Quick)?);
    }
    println!(
        "figure: quick wipe of 1 TiB (sparse, ext4), median of {ROUNDS}: {} (aim: < 100 ms)",
        figures::milliseconds(figures::Samples::new(quick).percentile(50))
    );
    drop(large);
    let disk = Loop::attach(dir.path(), "disk", size)?;
    let (mut discard, mut blkdiscard, mut zero, mut dd) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        disk.fill(size)?;
        discard.push(ours(&host, &disk, WipePolicy::Discard)?);
        disk.fill(size)?;
        blkdiscard.push(timed(|| bare::run("blkdiscard", &[&disk.device]).map(drop))?);
        disk.fill(size)?;
        zero.push(ours(&host, &disk, WipePolicy::Zero)?);
        disk.fill(size)?;
        let count = format!("count={}", size >> 22);
        dd.push(timed(|| {
            bare::run(
                "dd",
                &[
                    "if=/dev/zero",
                    &format!("of={}", disk.device),
                    "bs=4M",
                    &count,
                    "oflag=direct",
                    "conv=fsync",
                    "status=none",
                ],
            )
            .map(drop)
        })?);
    }
    let gib = size as f64 / f64::from(1 << 30);
    compare(&format!("Discard of {gib} GiB compared with blkdiscard"), discard, blkdiscard);
    compare(&format!("Zero of {gib} GiB compared with dd"), zero, dd);
    Ok(())
}

pub fn run() -> Result<()> {
    run_all(2 << 30)
}
