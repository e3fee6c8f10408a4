//! Every command of Ceph that Quarry runs, as a value: program, arguments, and what it reads from standard input.
//!
//! A key is passed on standard input alone, never as an argument, and is not shown by `Debug`. `ceph` waits 300
//! seconds for a monitor unless it is limited, so every call is. The user is an argument, never in `CEPH_ARGS`:
//! `ceph-osd` reads that variable, too, and would run as that user. Next to read: `activate.rs`.

use crate::{Key, Role, Secret, Uuid};
use serde_json::json;

/// For the whole connection; a command that has connected is answered within moments, or its caller ends it.
pub const CONNECT_TIMEOUT_SECONDS: u32 = 15;

/// Variables that change what a command of Ceph does. They are removed from its environment.
pub const REMOVED_VARIABLES: [&str; 3] = ["CEPH_ARGS", "CEPH_CONF", "CEPH_KEYRING"];

/// Not run through a shell. Standard input is empty unless `stdin` is set: no command may ask a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub program: &'static str,
    pub args: Vec<String>,
    pub env: Vec<(&'static str, String)>,
    pub stdin: Option<Secret>,
}

impl Command {
    fn new(program: &'static str, args: &[&str]) -> Self {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Self { program, args, env: vec![("LC_ALL", "C".to_owned())], stdin: None }
    }

    fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    fn pair(self, name: &str, value: impl Into<String>) -> Self {
        self.arg(name).arg(value)
    }

    fn stdin(mut self, text: Secret) -> Self {
        self.stdin = Some(text);
        self
    }

    /// Program and arguments, as the command of a container.
    pub fn argv(&self) -> Vec<String> {
        std::iter::once(self.program.to_owned()).chain(self.args.iter().cloned()).collect()
    }
}

/// How `ceph` reaches the monitors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Path of `ceph.conf`.
    pub conf: String,
    /// As `client.bootstrap-osd`.
    pub user: String,
    /// Path of the user's keyring.
    pub keyring: String,
}

impl Session {
    fn ceph(&self, args: &[&str]) -> Command {
        let mut command = Command::new("ceph", &[])
            .pair("--conf", &self.conf)
            .pair("--name", &self.user)
            .pair("--keyring", &self.keyring)
            .pair("--connect-timeout", CONNECT_TIMEOUT_SECONDS.to_string());
        command.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        command
    }

    fn json(&self, args: &[&str]) -> Command {
        self.ceph(args).pair("--format", "json")
    }

    /// Which cluster the monitors serve. Read with `status::parse_fsid`.
    pub fn fsid(&self) -> Command {
        self.json(&["fsid"])
    }

    /// Read with `status::parse_status`.
    pub fn status(&self) -> Command {
        self.json(&["status"])
    }

    /// Read with `osd::parse_osd_dump`.
    pub fn osd_dump(&self) -> Command {
        self.json(&["osd", "dump"])
    }

    /// Read with `osd::parse_osd_tree`.
    pub fn osd_tree(&self) -> Command {
        self.json(&["osd", "tree"])
    }

    /// Read with `osd::parse_osd_metadata`.
    pub fn osd_metadata(&self) -> Command {
        self.json(&["osd", "metadata"])
    }

    /// Registers the OSD, or answers with its ID if it is registered with this key. Read with `osd::parse_new_id`.
    /// `id`: of a destroyed OSD that this one replaces.
    pub fn osd_new(
        &self,
        uuid: &Uuid,
        id: Option<u32>,
        key: &Key,
        device_class: Option<&str>,
    ) -> Command {
        let mut secrets = json!({ "cephx_secret": key.reveal() });
        if let Some(class) = device_class {
            secrets["crush_device_class"] = class.into();
        }
        let mut command = self.ceph(&["osd", "new", uuid.as_str()]);
        if let Some(id) = id {
            command = command.arg(id.to_string());
        }
        command.pair("-i", "-").stdin(Secret::new(secrets.to_string()))
    }

    /// Writes the map of the monitors to a file, for mkfs.
    pub fn mon_getmap(&self, file: &str) -> Command {
        self.ceph(&["mon", "getmap"]).pair("-o", file)
    }
}

/// Read with `label::parse_label`.
pub fn show_label(device: &str) -> Command {
    Command::new("ceph-bluestore-tool", &["show-label", "--dev", device])
}

/// Writes the files that `ceph-osd` needs, keyring included, from the label into a directory.
pub fn prime_osd_dir(device: &str, directory: &str) -> Command {
    Command::new("ceph-bluestore-tool", &["prime-osd-dir", "--dev", device])
        .pair("--path", directory)
        .arg("--no-mon-config")
}

/// Makes BlueStore use a device that has grown. Without growth it changes nothing.
pub fn bluefs_bdev_expand(directory: &str) -> Command {
    Command::new("ceph-bluestore-tool", &["bluefs-bdev-expand", "--path", directory])
        .arg("--no-mon-config")
}

/// Formats the devices that the links in `directory` lead to; where an earlier run has formatted them already, it
/// checks them and writes what is missing in the label. For that the directory must contain `files`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mkfs<'a> {
    pub conf: &'a str,
    pub id: u32,
    pub uuid: &'a Uuid,
    /// Contains `block`, and `block.db` and `block.wal` where there are any.
    pub directory: &'a str,
    pub monmap: &'a str,
    pub key: &'a Key,
}

impl Mkfs<'_> {
    /// Names and contents. mkfs writes them as well, but does not find them in a new directory if an earlier run was
    /// killed between formatting and the label's last keys: it then fails for good.
    pub fn files(&self) -> [(&'static str, String); 2] {
        [("type", "bluestore\n".to_owned()), ("fsid", format!("{}\n", self.uuid))]
    }

    pub fn command(&self) -> Command {
        // In the background it would be a process of its own, which outlives its caller.
        Command::new("ceph-osd", &["--mkfs", "--foreground"])
            .pair("--conf", self.conf)
            .pair("--id", self.id.to_string())
            .pair("--osd-uuid", self.uuid.as_str())
            .pair("--osd-data", self.directory)
            .pair("--osd-objectstore", "bluestore")
            .pair("--monmap", self.monmap)
            // From standard input it is stored in the label, from a keyring it is not. Without a line break at its
            // end, which would be stored as well.
            .pair("--keyfile", "-")
            .stdin(Secret::new(self.key.reveal()))
    }
}

/// Fixed settings for slow or fast devices (`tuneDeviceClass`, `tuneFastDeviceClass`), those of upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceTuning {
    #[default]
    None,
    Slow,
    Fast,
}

impl DeviceTuning {
    /// Slow wins, as upstream.
    pub fn new(slow: bool, fast: bool) -> Self {
        match (slow, fast) {
            (true, _) => DeviceTuning::Slow,
            (false, true) => DeviceTuning::Fast,
            (false, false) => DeviceTuning::None,
        }
    }

    pub fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            DeviceTuning::None => &[],
            DeviceTuning::Slow => &[
                ("osd-recovery-sleep", "0.1"),
                ("osd-snap-trim-sleep", "2"),
                ("osd-delete-sleep", "2"),
            ],
            DeviceTuning::Fast => &[
                ("osd-op-num-threads-per-shard", "2"),
                ("osd-op-num-shards", "8"),
                ("osd-recovery-sleep", "0"),
                ("osd-snap-trim-sleep", "0"),
                ("osd-delete-sleep", "0"),
                ("bluestore-min-alloc-size", "4096"),
                ("bluestore-prefer-deferred-size", "0"),
                ("bluestore-compression-min-blob-size", "8192"),
                ("bluestore-compression-max-blob-size", "65536"),
                ("bluestore-max-blob-size", "65536"),
                ("bluestore-cache-size", "3221225472"),
                ("bluestore-throttle-cost-per-io", "4000"),
                ("bluestore-deferred-batch-ops", "16"),
            ],
        }
    }
}

/// `ceph-osd` itself, in the foreground.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOsd<'a> {
    pub conf: &'a str,
    pub id: u32,
    pub uuid: &'a Uuid,
    pub fsid: &'a Uuid,
    /// As `activate` has filled it.
    pub directory: &'a str,
    /// As `root=default host=node-1`.
    pub crush_location: &'a str,
    /// Used when the OSD first appears in the CRUSH map; `None`: by size.
    pub initial_weight: Option<&'a str>,
    pub tuning: DeviceTuning,
}

impl RunOsd<'_> {
    pub fn command(&self) -> Command {
        let mut command = Command::new("ceph-osd", &["--foreground"])
            .pair("--conf", self.conf)
            .pair("--id", self.id.to_string())
            .pair("--fsid", self.fsid.as_str())
            .pair("--osd-uuid", self.uuid.as_str())
            .pair("--osd-data", self.directory)
            .pair("--keyring", format!("{}/keyring", self.directory))
            .arg(format!("--crush-location={}", self.crush_location))
            // The pod's log is the log. With `default-`: the cluster's own configuration wins.
            .arg("--default-log-to-stderr=true")
            .arg("--default-err-to-stderr=true")
            .arg("--default-log-to-file=false");
        if let Some(weight) = self.initial_weight {
            command = command.arg(format!("--osd-crush-initial-weight={weight}"));
        }
        for (name, value) in self.tuning.settings() {
            command = command.arg(format!("--{name}={value}"));
        }
        command
    }
}

/// `root=default host=H`, then other levels; dots are not allowed in names of CRUSH.
pub fn crush_location(root: &str, host: &str, levels: &[(&str, &str)]) -> String {
    let all = [("root", root), ("host", host)].into_iter().chain(levels.iter().copied());
    let all = all.map(|(level, name)| format!("{level}={}", name.replace('.', "-")));
    all.collect::<Vec<String>>().join(" ")
}

/// Path of a device's link in the OSD's directory.
pub fn link_path(directory: &str, role: Role) -> String {
    format!("{directory}/{}", role.link())
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
