//! What both kinds of guest have: commands, a shared directory, access to the API, a private
//! directory.

use super::{
    AGENT_DATA, API_IN_GUEST, API_URL_IN_GUEST, Output, PATIENCE, SHARE_IN_GUEST, channel::Channel,
    process::Process, relay::Relay, target, until,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};
use tempfile::TempDir;

/// A running guest; `Qemu` and `Uml` dereference to it.
pub struct Guest {
    // Dropped in this order: the process before its working directory.
    pub(super) process: Process,
    pub(super) channel: Channel,
    pub(super) relay: Relay,
    pub(super) name: String,
    pub(super) dir: TempDir,
}

impl Guest {
    /// Its host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A directory that is `SHARE_IN_GUEST` in the guest.
    pub fn share(&self) -> PathBuf {
        self.dir.path().join("share")
    }

    /// Runs a shell command in the guest, within the usual time limit.
    #[track_caller]
    pub fn exec(&mut self, command: &str) -> Output {
        self.exec_within(command, PATIENCE)
    }

    #[track_caller]
    pub fn exec_within(&mut self, command: &str, limit: Duration) -> Output {
        match self.channel.exec(command, limit) {
            Ok(output) => output,
            Err(why) => panic!("{}: {command}: {why}\n{}", self.name, self.process.last_output()),
        }
    }

    /// Runs a command that must succeed; returns its standard output.
    #[track_caller]
    pub fn run(&mut self, command: &str) -> String {
        let output = self.exec(command);
        assert!(
            output.success(),
            "{}: {command}: code {}\n{}{}",
            self.name,
            output.code,
            output.stdout,
            output.stderr
        );
        output.stdout
    }

    /// Repeats a command until its standard output matches; returns that output.
    #[track_caller]
    pub fn until(
        &mut self,
        what: &str,
        command: &str,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> String {
        until(what, || {
            let output = self.exec(command);
            if wanted(&output.stdout) {
                Ok(output.stdout)
            } else {
                Err(format!("{}{}", output.stdout, output.stderr))
            }
        })
    }

    /// Starts a background program; its output goes to `NAME.log` in the share. Returns its PID.
    #[track_caller]
    pub fn spawn(&mut self, name: &str, command: &str) -> u32 {
        let pid = self.run(&format!("cd /; setsid sh -c 'exec {command}' </dev/null >>{SHARE_IN_GUEST}/{name}.log 2>&1 & echo $!"));
        pid.trim().parse().unwrap_or_else(|_| panic!("{name}: no PID: {pid:?}"))
    }

    /// Output of a program started by `spawn`.
    pub fn log_of(&self, name: &str) -> String {
        fs::read_to_string(self.share().join(format!("{name}.log"))).unwrap_or_default()
    }

    /// Copies a file of this machine into the share; returns its path in the guest.
    pub fn bring(&self, file: &Path) -> String {
        let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
        let place = self.share().join(&name);
        // A debug binary has 100 MB: copy it only where a hard link is impossible.
        let copied = fs::hard_link(file, &place).or_else(|_| fs::copy(file, &place).map(drop));
        copied.unwrap_or_else(|error| panic!("copying {} into the guest: {error}", file.display()));
        format!("{SHARE_IN_GUEST}/{name}")
    }

    /// Copies the quarry binary under test (QUARRY_BIN) into the guest; returns its path there. It
    /// is kept in the guest's memory: run from the share it would be read page by page, which takes
    /// an emulated guest seconds at each start.
    #[track_caller]
    pub fn bring_quarry(&mut self) -> String {
        let shared = self.bring(stripped_binary());
        self.run(&format!(
            "dd if={shared} of=/run/quarry-bin bs=256k 2>/dev/null && chmod +x /run/quarry-bin"
        ));
        "/run/quarry-bin".into()
    }

    /// Mounts this disk for the node's persistent state: links of device claims, the agent's data
    /// directory, the machine-id. With it, a restarted guest is the same machine. Everything else
    /// in a guest is in its memory.
    #[track_caller]
    pub fn mount_state_disk(&mut self, by_id: &str) {
        self.until("the state disk exists", "ls /dev/disk/by-id", |names| {
            names.lines().any(|name| name == by_id)
        });
        self.run(&format!(
            "set -e
             disk=/dev/disk/by-id/{by_id}
             mount -t ext4 $disk /mnt 2>/dev/null || {{ mkfs.ext4 -q $disk; mount -t ext4 $disk /mnt; }}
             [ -e /mnt/machine-id ] || cp /etc/machine-id /mnt/machine-id
             cat /mnt/machine-id > /etc/machine-id
             mkdir -p /mnt/quarry-data {AGENT_DATA}; mount --bind /mnt/quarry-data {AGENT_DATA}; sync"
        ));
    }

    /// Forwards the guest's connections to `API_IN_GUEST` to this port on the host's loopback;
    /// `None` closes them. Returns the URL to use in the guest.
    pub fn api_at(&self, port: Option<u16>) -> &'static str {
        self.relay.to(port);
        API_IN_GUEST
    }

    /// Makes the API of this kubeconfig, which serves on the host's loopback, reachable from the
    /// guest; returns the path of a kubeconfig for use in the guest.
    pub fn join(&self, kubeconfig: &Path) -> String {
        let text = fs::read_to_string(kubeconfig)
            .unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()));
        let server = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("server: "))
            .expect("a kubeconfig has a server");
        let port =
            server.rsplit(':').next().and_then(|port| port.trim_end_matches('/').parse().ok());
        self.relay.to(Some(port.unwrap_or_else(|| panic!("{server} has no port"))));
        // The certificate is for localhost, which in a guest resolves to the API's address.
        fs::write(self.share().join("kubeconfig"), text.replace(server, API_URL_IN_GUEST)).unwrap();
        format!("{SHARE_IN_GUEST}/kubeconfig")
    }

    /// Every block device, from `lsblk` in the guest.
    #[track_caller]
    pub fn lsblk(&mut self, columns: &str) -> Vec<serde_json::Value> {
        let text = self.run(&format!("lsblk -J -b -o {columns}"));
        let parsed: serde_json::Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        parsed["blockdevices"].as_array().cloned().unwrap_or_default()
    }

    /// Starts multipathd with Debian's rules: from then on, two paths to one disk become a
    /// multipath map.
    #[track_caller]
    pub fn start_multipathd(&mut self) {
        self.run(
            "set -e
             mkdir -p /run/udev/rules.d; cp /usr/share/multipath/*.rules /run/udev/rules.d/; udevadm control --reload
             printf 'defaults {\n find_multipaths no\n user_friendly_names yes\n}\n' > /etc/multipath.conf
             modprobe -a dm_multipath dm_service_time",
        );
        self.spawn("multipathd", "multipathd -d");
        self.until("multipathd answers", "multipathd show daemon", |answer| {
            answer.contains("running") || answer.contains("idle")
        });
    }

    /// Sets what distinguishes this guest from others restored from the same state.
    pub(super) fn set_identity(&mut self, mount_share: &str) {
        let (name, now) = (self.name.clone(), jiff::Timestamp::now());
        let (boot, machine) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4().simple().to_string());
        self.run(&format!(
            "set -e
             hostname {name}; date -s @{} >/dev/null
             {mount_share}
             echo {machine} > /run/etc/machine-id
             echo {boot} > /run/boot-id; mount --bind /run/boot-id /proc/sys/kernel/random/boot_id",
            now.as_second()
        ));
    }
}

/// The binary under test without debug information, which is half of its size; created once per
/// process.
fn stripped_binary() -> &'static Path {
    static STRIPPED: OnceLock<PathBuf> = OnceLock::new();
    STRIPPED.get_or_init(|| {
        let binary =
            std::env::var_os("QUARRY_BIN").expect("QUARRY_BIN is set by the tier's runner");
        let dir = target().join("guest");
        fs::create_dir_all(&dir).unwrap();
        let partial = dir.join(format!("quarry.{}", std::process::id()));
        let stripped = Command::new("strip").arg("-o").arg(&partial).arg(&binary).status();
        assert!(
            stripped.is_ok_and(|status| status.success()),
            "strip failed to create {} from {}",
            partial.display(),
            binary.display()
        );
        let path = dir.join("quarry");
        // Guests of other processes may use the old file, so it is replaced, not written to.
        fs::rename(&partial, &path).unwrap();
        path
    })
}
