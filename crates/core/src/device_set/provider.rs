//! What differs between kinds of storage daemons: one small trait, and Ceph's answer to it.
//!
//! A provider turns devices into containers and reads what they report. It plans nothing, and knows neither PVCs nor
//! Jobs. Commands and output of Ceph are in `quarry-ceph`.

use super::Access;
use quarry_api::{
    CephCluster,
    ceph_cluster::{
        DeviceSet, TemplateRole,
        device_set::{config, device_path},
    },
};
use quarry_ceph::{
    Activate, DeviceTuning, PrepareResult, RunOsd, RunStatus, Uuid, activate,
    command::crush_location, result::Reason,
};
use serde_json::{Value, json};

/// One daemon, as far as its containers need to know it.
pub struct Daemon<'a> {
    pub cluster: &'a CephCluster,
    pub access: &'a Access,
    pub set: &'a DeviceSet,
    pub roles: &'a [TemplateRole],
    /// Of the data PVC: name and UID.
    pub claim: &'a str,
    pub uuid: &'a str,
    /// `None`: the node that the pod runs on.
    pub crush_host: Option<&'a str>,
}

/// What a prepare run has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    pub id: u32,
    pub uuid: Uuid,
    /// As `root=default host=node-1`.
    pub location: String,
    pub device_class: String,
    /// The node that it was prepared on; empty in results of earlier versions of upstream.
    pub node: String,
}

/// Why a prepare run has made nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// One word.
    pub reason: String,
    pub message: String,
    /// Trying again ends the same way, until a person changes something.
    pub is_refusal: bool,
}

pub trait Provider {
    /// Settings of a set that this provider cannot honour, each with its field and remedy.
    fn problems(&self, set: &DeviceSet) -> Vec<String>;

    /// Command of the container that prepares the devices.
    fn prepare_command(&self, daemon: &Daemon<'_>) -> Vec<String>;

    /// Of the termination message, or the ConfigMap.
    fn parse_result(&self, text: &str) -> Result<Prepared, Failed>;

    /// Command of the init container of the daemon's pod.
    fn activate_command(&self, daemon: &Daemon<'_>, prepared: &Prepared) -> Vec<String>;

    /// Command of the daemon.
    fn run_command(&self, daemon: &Daemon<'_>, prepared: &Prepared) -> Vec<String>;

    /// Probes of the daemon's container.
    fn probes(&self, prepared: &Prepared) -> Value;
}

/// Where the files of an OSD are in its pod.
pub const OSD_DIRECTORY: &str = "/var/lib/ceph/osd/ceph";
/// Where the admin socket is.
pub const RUN_DIRECTORY: &str = "/run/ceph";
pub const CONF_FILE: &str = "/etc/ceph/ceph.conf";
/// Where the init container copies our binary and its libraries: those of the Ceph image may be older.
pub const BINARY_DIRECTORY: &str = "/quarry";
pub const KEYRING_FILE: &str = "/etc/ceph/keyring-store/keyring";
pub const OVERRIDE_FILE: &str = "/etc/ceph/override/config";
pub const WORK_DIRECTORY: &str = "/var/lib/ceph/osd/prepare";

pub struct CephProvider;

impl CephProvider {
    fn device(daemon: &Daemon<'_>, role: TemplateRole) -> Option<String> {
        daemon.roles.iter().position(|one| *one == role).map(device_path)
    }
}

impl Provider for CephProvider {
    fn problems(&self, set: &DeviceSet) -> Vec<String> {
        let unknown: Vec<&str> = set.unknown_config().collect();
        let text = format!(
            "config of set {} has keys that are not used: {}; remove them, or leave them for other versions",
            set.name,
            unknown.join(", ")
        );
        if unknown.is_empty() { Vec::new() } else { vec![text] }
    }

    fn prepare_command(&self, daemon: &Daemon<'_>) -> Vec<String> {
        let mut command: Vec<String> = vec![
            format!("{BINARY_DIRECTORY}/ld.so"),
            "--library-path".into(),
            BINARY_DIRECTORY.into(),
            format!("{BINARY_DIRECTORY}/quarry"),
            "osd".into(),
            "prepare".into(),
            format!("--uuid={}", daemon.uuid),
            format!("--fsid={}", daemon.access.fsid),
            format!("--mon-host={}", daemon.access.mon_host.trim()),
            format!("--keyring={KEYRING_FILE}"),
            format!("--config-override={OVERRIDE_FILE}"),
            format!("--pvc-name={}", daemon.claim),
            format!("--work-dir={WORK_DIRECTORY}"),
        ];
        for (flag, role) in [
            ("data", TemplateRole::Data),
            ("metadata", TemplateRole::Metadata),
            ("wal", TemplateRole::Wal),
        ] {
            command.extend(Self::device(daemon, role).map(|path| format!("--{flag}={path}")));
        }
        let class = daemon.set.crush_device_class().map(|(_, class)| class);
        command.extend(class.map(|class| format!("--device-class={class}")));
        command.extend(daemon.crush_host.map(|host| format!("--crush-host={host}")));
        command
    }

    fn parse_result(&self, text: &str) -> Result<Prepared, Failed> {
        let unknown = |message: String| Failed {
            reason: "Unreadable".to_owned(),
            message,
            is_refusal: false,
        };
        let result = PrepareResult::parse(text).map_err(unknown)?;
        match (result.status, result.osds.first()) {
            (RunStatus::Completed, Some(osd)) => Ok(Prepared {
                id: osd.id,
                uuid: osd.uuid.clone(),
                location: osd.location.clone(),
                device_class: osd.device_class.clone(),
                node: osd.node_name.clone(),
            }),
            // Upstream counts this as success, and no OSD ever appears.
            (RunStatus::Completed, None) => Err(Failed {
                reason: "NoDevice".to_owned(),
                message: format!("no device was prepared: {}", result.message),
                is_refusal: false,
            }),
            _ => {
                let reason = result.reason.unwrap_or(Reason::Unknown);
                Err(Failed {
                    reason: format!("{reason:?}"),
                    message: result.message,
                    is_refusal: reason.is_refusal(),
                })
            }
        }
    }

    fn activate_command(&self, daemon: &Daemon<'_>, prepared: &Prepared) -> Vec<String> {
        let [data, metadata, wal] = [TemplateRole::Data, TemplateRole::Metadata, TemplateRole::Wal]
            .map(|role| Self::device(daemon, role));
        activate(&Activate {
            id: prepared.id,
            uuid: &prepared.uuid,
            fsid: &daemon.access.fsid,
            directory: OSD_DIRECTORY,
            data: &data.unwrap_or_else(|| device_path(0)),
            metadata: metadata.as_deref(),
            wal: wal.as_deref(),
        })
    }

    fn run_command(&self, daemon: &Daemon<'_>, prepared: &Prepared) -> Vec<String> {
        let set = daemon.set;
        let slow = set.tune_device_class.unwrap_or_default();
        let fast = set.tune_fast_device_class.unwrap_or_default();
        let weight = set.crush_initial_weight().map(|(_, weight)| weight.to_owned());
        let location = match daemon.crush_host {
            Some(host) if prepared.location.is_empty() => crush_location("default", host, &[]),
            _ => prepared.location.clone(),
        };
        let command = RunOsd {
            conf: CONF_FILE,
            id: prepared.id,
            uuid: &prepared.uuid,
            fsid: &daemon.access.fsid,
            directory: OSD_DIRECTORY,
            crush_location: &location,
            initial_weight: weight.as_deref(),
            tuning: DeviceTuning::new(slow, fast),
        };
        command.command().argv()
    }

    fn probes(&self, prepared: &Prepared) -> Value {
        let socket = format!("{RUN_DIRECTORY}/ceph-osd.{}.asok", prepared.id);
        let ask = |wanted: &str| {
            let script = format!("ceph --admin-daemon {socket} status {wanted}");
            json!({"command": ["/bin/sh", "-c", script]})
        };
        json!({
            // Available means that Ceph has the OSD as active, not only that the process runs.
            "startupProbe": {
                "exec": ask("| grep -q '\"state\": \"active\"'"),
                "periodSeconds": 3, "timeoutSeconds": 10, "failureThreshold": 1200,
            },
            "livenessProbe": {
                "exec": ask("> /dev/null"),
                "periodSeconds": 60, "timeoutSeconds": 20, "failureThreshold": 5,
            },
        })
    }
}

/// Keys of `config` that this provider reads, for documents and tests.
pub const CONFIG_KEYS: [&str; 7] = config::KNOWN;
