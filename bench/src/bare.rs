//! The peer: the bare commands that prepare the same storage manually.

use anyhow::{Context, Result, ensure};
use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// Runs a command that must succeed; returns its trimmed output.
pub fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    ensure!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Duration of truncate, losetup, mkfs.xfs and waiting for the link. Cleanup is not measured.
pub fn sample(dir: &Path) -> Result<Duration> {
    let uuid = uuid::Uuid::new_v4().to_string();
    let file = dir.join(format!("bare-{uuid}"));
    let name = file.to_string_lossy().into_owned();
    let started = Instant::now();
    run("truncate", &["-s", "1G", &name])?;
    let device = run("losetup", &["--find", "--show", &name])?;
    let format = run("mkfs.xfs", &["-q", "-f", "-m", &format!("uuid={uuid}"), &device]);
    let link = PathBuf::from(format!("/dev/disk/by-uuid/{uuid}"));
    let deadline = Instant::now() + Duration::from_secs(10);
    // udev sometimes misses the end of mkfs while it is busy with the device: then it is triggered
    // again.
    let mut next_trigger = Instant::now() + Duration::from_millis(200);
    while format.is_ok() && !link.exists() && Instant::now() < deadline {
        if Instant::now() > next_trigger {
            run("udevadm", &["trigger", "--action=change", &device])?;
            next_trigger += Duration::from_millis(200);
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    let took = started.elapsed();
    let found = link.exists();
    run("losetup", &["--detach", &device])?;
    std::fs::remove_file(&file)?;
    format?;
    ensure!(found, "no link for the bare volume; check that udev is running");
    Ok(took)
}
