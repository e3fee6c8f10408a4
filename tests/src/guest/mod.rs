//! The guest tier's ground: other kernels, booted in processes of this machine.
//!
//! `Qemu` is a Debian kernel on emulated hardware: disks of every bus, plugged and pulled at run time, power cuts; its
//! booted state is saved once and restored for each test. `Uml` is User Mode Linux: md, LVM, partitions, scsi_debug, in
//! two seconds. In both `run` is a shell command inside, `share` a folder that guest and host see, `api_at` the one
//! TCP server of this machine that the guest reaches. Neither touches a disk of this machine.
//!
//! What they boot is made by `scripts/guest`. A guest ends when its value is dropped, when this process ends, or when its time is up.
//! Read next: `qemu.rs`, then `disk.rs` for the hardware.

mod channel;
mod disk;
mod machine;
mod process;
mod qemu;
mod qmp;
mod relay;
mod uml;

pub use channel::Output;
pub use disk::{Disk, Image, MIB};
pub use machine::Guest;
pub use qemu::Qemu;
pub use uml::Uml;

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

/// Where a guest finds the server given to `Guest::api_at`.
pub const API_IN_GUEST: &str = "10.0.2.100:6443";
const API_URL_IN_GUEST: &str = "https://localhost:6443";
/// Where a guest finds the shared folder.
pub const SHARE_IN_GUEST: &str = "/share";
/// The agent's folder in a guest.
pub const AGENT_DATA: &str = "/run/quarry-data";
/// How long anything in a guest may take before a test gives up. An emulated processor on a busy machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The longest life of a guest.
const LIFETIME: Duration = Duration::from_secs(300);

/// The folder with kernels and initramfs, made when it is not there.
fn kit() -> &'static PathBuf {
    static KIT: OnceLock<PathBuf> = OnceLock::new();
    KIT.get_or_init(|| {
        let script = repository().join("scripts/setup");
        let output = Command::new(&script)
            .arg("guest")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{} guest failed: its messages are above",
            script.display()
        );
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    })
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default()
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}

/// Serial logs are kept here, for whoever wonders why a guest died.
fn logs() -> PathBuf {
    let logs = target().join("test-logs/guests");
    std::fs::create_dir_all(&logs).unwrap();
    logs
}

/// Polls until `probe` gives a value; fails with what was last seen.
#[track_caller]
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match probe() {
            Ok(value) => return value,
            Err(seen) if Instant::now() > deadline => {
                panic!("not within {PATIENCE:?}: {what}\nlast seen: {seen}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
