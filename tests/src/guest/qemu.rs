//! A Debian kernel on hardware emulated by QEMU, without KVM.
//!
//! Booting takes some seconds, restoring a saved guest less than one: use `restore` for most tests,
//! and `boot` for tests that need disks from the start. The first test that needs the state saves
//! it in the cache, under a name derived from kernel, initramfs, QEMU version and command line.
//! NVMe disks and a mounted share cannot be saved; both are added after the restore.

use super::{
    Disk, Guest, SHARE_IN_GUEST, channel::Channel, disk::Bus, kit, logs, process::Process,
    qmp::Qmp, relay::Relay, until,
};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    ops::{Deref, DerefMut},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Maximum number of PCI disks plugged at the same time.
const PCI_PORTS: usize = 12;

pub struct Qemu {
    guest: Guest,
    qmp: Qmp,
    plugged: Vec<(Disk, String)>,
}

impl Deref for Qemu {
    type Target = Guest;
    fn deref(&self) -> &Guest {
        &self.guest
    }
}

impl DerefMut for Qemu {
    fn deref_mut(&mut self) -> &mut Guest {
        &mut self.guest
    }
}

impl Qemu {
    /// A guest without disks, from the saved state.
    pub fn restore(name: &str) -> Self {
        let state = saved_state();
        let mut qemu = Self::start(name, &[], &["-incoming".into(), "defer".into()]);
        // Only now that the host's end of the port is open: a guest that finds it closed would have
        // to retry.
        qemu.qmp
            .call("migrate-incoming", json!({"uri": format!("exec:cat '{}'", state.display())}));
        until("the saved guest runs", || match qemu.qmp.call("query-status", json!({}))["status"]
            .as_str()
        {
            Some("running") => Ok(()),
            other => Err(format!("{other:?}\n{}", qemu.guest.process.last_output())),
        });
        qemu.set_identity();
        qemu
    }

    /// A guest with these disks from boot on. Their names (sda, sdb) differ between boots.
    pub fn boot(name: &str, disks: &[Disk]) -> Self {
        let mut qemu = Self::boot_without_identity(name, disks);
        qemu.set_identity();
        qemu
    }

    fn boot_without_identity(name: &str, disks: &[Disk]) -> Self {
        let mut qemu = Self::start(name, disks, &[]);
        if let Err(why) = qemu.guest.channel.ready() {
            panic!("{name} does not boot: {why}\n{}", qemu.guest.process.last_output());
        }
        qemu
    }

    fn set_identity(&mut self) {
        let mount = format!(
            "mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share {SHARE_IN_GUEST}"
        );
        self.guest.set_identity(&mount);
    }

    fn start(name: &str, disks: &[Disk], more: &[OsString]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(1);
        let log = logs().join(format!("{name}.{}.log", COUNT.fetch_add(1, Ordering::Relaxed)));
        let dir = tempfile::Builder::new().prefix("quarry-guest-").tempdir().unwrap();
        fs::create_dir(dir.path().join("share")).unwrap();
        let relay = Relay::listen(&dir.path().join("api"));
        let mut arguments = command_line();
        let mut plugged: Vec<(Disk, String)> = Vec::new();
        for disk in disks {
            let place = free_place(&plugged, disk);
            if disk.bus() == Bus::Sas && !arguments.contains(&"mptsas1068,id=sas".into()) {
                arguments.extend(["-device".into(), "mptsas1068,id=sas".into()]);
            }
            arguments.extend(["-blockdev".into(), disk.node().to_string().into()]);
            arguments.extend(["-device".into(), disk.device(&place).to_string().into()]);
            plugged.push((disk.clone(), place));
        }
        arguments.extend_from_slice(more);
        let mut process = Process::start("qemu-system-x86_64", &arguments, dir.path(), &log, None);
        let qmp = Qmp::new(connect(&dir.path().join("qmp"), &mut process));
        let channel = Channel::new(connect(&dir.path().join("exec"), &mut process));
        Qemu { guest: Guest { process, channel, relay, name: name.to_owned(), dir }, qmp, plugged }
    }

    /// Plugs in a disk. The guest sees it a moment later.
    #[track_caller]
    pub fn plug(&mut self, disk: &Disk) {
        assert!(
            disk.can_be_plugged(),
            "SATA and SAS disks cannot be plugged into a running guest; pass them to Qemu::boot"
        );
        let place = free_place(&self.plugged, disk);
        self.qmp.call("blockdev-add", disk.node());
        self.qmp.call("device_add", disk.device(&place));
        self.plugged.push((disk.clone(), place));
    }

    /// Unplugs a disk and waits until the guest has released it.
    #[track_caller]
    pub fn unplug(&mut self, disk: &Disk) {
        let index = self
            .plugged
            .iter()
            .position(|(known, _)| known.id() == disk.id())
            .expect("the disk is plugged in");
        self.qmp.call("device_del", json!({"id": disk.id()}));
        self.qmp.event("DEVICE_DELETED", |data| data["device"] == disk.id());
        self.qmp.call("blockdev-del", json!({"node-name": disk.node_name()}));
        self.plugged.remove(index);
    }

    /// Resizes a disk of the running guest. QEMU refuses this for NVMe.
    #[track_caller]
    pub fn resize(&mut self, disk: &Disk, bytes: u64) {
        self.qmp.call("block_resize", json!({"node-name": disk.node_name(), "size": bytes}));
    }

    /// Sends any command to QEMU's control socket.
    #[track_caller]
    pub fn qmp(&mut self, command: &str, arguments: Value) -> Value {
        self.qmp.call(command, arguments)
    }

    /// Kills the guest like a power failure. Returns its disks, in their current state, for the
    /// next boot.
    pub fn power_cut(mut self) -> Vec<Disk> {
        self.guest.process.kill();
        self.plugged.drain(..).map(|(disk, _)| disk).collect()
    }
}

/// The bus for a disk; a PCI or SATA bus has room for one.
fn free_place(plugged: &[(Disk, String)], disk: &Disk) -> String {
    let free = |prefix: &str, count: usize| {
        let places = (0..count).map(|index| format!("{prefix}{index}"));
        places
            .into_iter()
            .find(|place| !plugged.iter().any(|(_, taken)| taken == place))
            .unwrap_or_else(|| panic!("all {count} buses {prefix}* are in use"))
    };
    match disk.bus() {
        Bus::Nvme | Bus::Virtio => free("port", PCI_PORTS),
        Bus::Sata => free("ide.", 6),
        Bus::Scsi(controller) => format!("scsi{controller}.0"),
        Bus::Sas => "sas.0".into(),
        Bus::Usb => "usb.0".into(),
    }
}

/// The same for every guest: paths are relative to the guest's directory.
fn command_line() -> Vec<OsString> {
    let kit = kit();
    let mut arguments: Vec<OsString> =
        ["-nodefaults", "-no-user-config", "-no-reboot"].map(Into::into).to_vec();
    let mut add = |option: &str, value: &str| arguments.extend([option.into(), value.into()]);
    add("-display", "none");
    add("-machine", "q35");
    add("-accel", "tcg,tb-size=128");
    add("-cpu", "max");
    add("-m", "384");
    add("-kernel", &kit.join("vmlinux").to_string_lossy());
    add("-initrd", &kit.join("initramfs").to_string_lossy());
    add("-append", "console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check cryptomgr.notests");
    add("-chardev", "stdio,id=console,signal=off");
    add("-serial", "chardev:console");
    add("-qmp", "unix:qmp,server=on,wait=off");
    add("-device", "virtio-serial-pci");
    add("-chardev", "socket,id=exec,path=exec,server=on,wait=off");
    add("-device", "virtserialport,chardev=exec,name=lab.exec");
    add(
        "-netdev",
        "user,id=net,restrict=on,guestfwd=tcp:10.0.2.100:6443-cmd:socat -lf api.log - UNIX-CONNECT:api",
    );
    add("-device", "virtio-net-pci,netdev=net,romfile=");
    add("-virtfs", "local,path=share,mount_tag=share,security_model=none");
    add("-device", "virtio-scsi-pci,id=scsi0");
    add("-device", "virtio-scsi-pci,id=scsi1");
    add("-device", "qemu-xhci,id=usb");
    for port in 0..PCI_PORTS {
        add(
            "-device",
            &format!("pcie-root-port,id=port{port},chassis={},slot={}", port + 1, port + 1),
        );
    }
    arguments
}

fn connect(socket: &Path, process: &mut Process) -> UnixStream {
    until(&format!("QEMU listens on {}", socket.display()), || {
        assert!(!process.ended(), "QEMU exited immediately\n{}", process.last_output());
        UnixStream::connect(socket).map_err(|error| error.to_string())
    })
}

/// File of the saved guest; the first caller on this machine boots and saves it.
fn saved_state() -> &'static PathBuf {
    static STATE: OnceLock<PathBuf> = OnceLock::new();
    STATE.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        command_line().hash(&mut hasher);
        // In the kit's directory, whose name identifies kernel, initramfs and QEMU version.
        let state = kit().join(format!("state-{:016x}", hasher.finish()));
        let lock = File::create(kit().join("state.lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        if !state.exists() {
            let partial = state.with_extension("partial");
            let mut qemu = Qemu::boot_without_identity("saved", &[]);
            qemu.qmp.call("migrate-set-parameters", json!({"max-bandwidth": 1_u64 << 40}));
            qemu.qmp.call("migrate", json!({"uri": format!("exec:cat > '{}'", partial.display())}));
            until("the guest is saved", || match &qemu.qmp.call("query-migrate", json!({})) {
                info if info["status"] == "completed" => Ok(()),
                info if info["status"] == "failed" => {
                    panic!("saving a guest failed: {info}\n{}", qemu.guest.process.last_output())
                }
                info => Err(info.to_string()),
            });
            fs::rename(&partial, &state).unwrap();
        }
        state
    })
}
