//! Fixture of the guest tier: other kernels, booted in processes of this machine.
//!
//! `Qemu` is a Debian kernel on emulated hardware: disks of every bus, hot plug, power failures;
//! its booted state is saved once and restored for each test. `Uml` is User Mode Linux: md, LVM,
//! partitions, scsi_debug, booted in two seconds. In both, `run` runs a shell command in the guest,
//! `share` is a directory shared with the host, and `api_at` is the only TCP server the guest can
//! reach. Neither touches a disk of this machine.
//! A guest ends on drop, when this process ends, or at its time limit. Read next: `qemu.rs`, then
//! `disk.rs`. `scripts/guest` builds what they boot.

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

/// Address of the server given to `Guest::api_at`, in a guest.
pub const API_IN_GUEST: &str = "10.0.2.100:6443";
const API_URL_IN_GUEST: &str = "https://localhost:6443";
/// Mount point of the shared directory in a guest.
pub const SHARE_IN_GUEST: &str = "/share";
/// The agent's data directory in a guest.
pub const AGENT_DATA: &str = "/run/quarry-data";
/// Time limit for every wait on a guest. An emulated CPU on a busy machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum lifetime of a guest.
const LIFETIME: Duration = Duration::from_secs(300);

/// The directory with kernels and initramfs; built if it does not exist.
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
        assert!(output.status.success(), "{} guest failed; its output is above", script.display());
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    })
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default()
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}

/// Serial logs are kept here, to debug guests that died.
fn logs() -> PathBuf {
    let logs = target().join("test-logs/guests");
    std::fs::create_dir_all(&logs).unwrap();
    logs
}

/// Polls until `probe` returns a value; panics with the last state at the time limit.
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
