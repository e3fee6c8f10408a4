//! The peer: the bare commands that prepare the same storage by hand.

use anyhow::{Context, Result, ensure};
use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    ensure!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// truncate, losetup, mkfs.xfs, wait for the link: how long that took. Cleaned up outside the measured time.
pub fn sample(folder: &Path) -> Result<Duration> {
    let uuid = uuid::Uuid::new_v4().to_string();
    let file = folder.join(format!("bare-{uuid}"));
    let name = file.to_string_lossy().into_owned();
    let begun = Instant::now();
    run("truncate", &["-s", "1G", &name])?;
    let device = run("losetup", &["--find", "--show", &name])?;
    let format = run("mkfs.xfs", &["-q", "-f", "-m", &format!("uuid={uuid}"), &device]);
    let link = PathBuf::from(format!("/dev/disk/by-uuid/{uuid}"));
    let deadline = Instant::now() + Duration::from_secs(10);
    // udev now and then misses the end of mkfs while it is busy with the device: then somebody asks it to look again.
    let mut nudge = Instant::now() + Duration::from_millis(200);
    while format.is_ok() && !link.exists() && Instant::now() < deadline {
        if Instant::now() > nudge {
            run("udevadm", &["trigger", "--action=change", &device])?;
            nudge += Duration::from_millis(200);
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    let took = begun.elapsed();
    let found = link.exists();
    run("losetup", &["--detach", &device])?;
    std::fs::remove_file(&file)?;
    format?;
    ensure!(found, "no link for the bare volume: is udev running?");
    Ok(took)
}
