//! What a prepare run reports: upstream's keys in the ConfigMap of an OSD (`status`), and the termination message.
//!
//! Kubernetes keeps 4096 bytes of a termination message and cuts off the rest, which would leave no JSON: the text
//! here is always shorter. `reason` is Quarry's own key; upstream ignores it. Contains no keys of Ceph.

use crate::Uuid;
use serde::{Deserialize, Serialize};

/// Kubernetes keeps this many bytes of a termination message.
pub const MAX_BYTES: usize = 4096;

/// Upstream's `OrchestrationStatus`. An unknown key is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrepareResult {
    #[serde(default)]
    pub osds: Vec<OsdInfo>,
    pub status: RunStatus,
    #[serde(rename = "pvc-backed-osd", default)]
    pub pvc_backed_osd: bool,
    #[serde(default)]
    pub message: String,
    /// Why it failed; `None` if it did not, or in a result of upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    Starting,
    Orchestrating,
    Completed,
    Failed,
}

/// Upstream's `OSDInfo`, without the fields of OSDs on logical volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsdInfo {
    pub id: u32,
    #[serde(default)]
    pub cluster: String,
    pub uuid: Uuid,
    #[serde(rename = "device-class", default)]
    pub device_class: String,
    /// The data device in the pod. Upstream's key also holds paths of logical volumes.
    #[serde(rename = "lv-path", default)]
    pub block_path: String,
    #[serde(rename = "metadata-path", default)]
    pub metadata_path: String,
    #[serde(rename = "wal-path", default)]
    pub wal_path: String,
    /// As `root=default host=node-1`.
    #[serde(default)]
    pub location: String,
    /// `raw`.
    #[serde(rename = "lv-mode", default)]
    pub mode: String,
    /// `bluestore`.
    #[serde(default)]
    pub store: String,
    #[serde(default)]
    pub encrypted: bool,
    #[serde(rename = "nodeName", default)]
    pub node_name: String,
    #[serde(rename = "pvcName", default)]
    pub pvc_name: String,
}

/// Why a prepare run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// A flag, or a mounted file, that cannot be used.
    InvalidInput,
    /// A device belongs to an OSD of another cluster.
    OtherCluster,
    /// A device belongs to another OSD of this cluster.
    OtherOsd,
    /// A device contains other data.
    NotBlank,
    /// A device of this OSD in the place of another, or together with one that is not of this OSD.
    DeviceMismatch,
    TooSmall,
    /// The monitors serve another cluster.
    FsidMismatch,
    /// The device is of an OSD that the cluster no longer has.
    UnknownOsd,
    /// The OSD was registered with another key.
    KeyMismatch,
    /// The monitors refuse the bootstrap key.
    AccessDenied,
    /// Another process has the device open.
    DeviceBusy,
    DeviceUnreadable,
    /// The device is read-only, or this process may not write to it.
    NotWritable,
    MonitorsUnreachable,
    /// A command of Ceph failed, or printed what cannot be understood.
    CommandFailed,
    /// A mounted file cannot be read, or the working directory not written.
    MountUnusable,
    /// The next try may fare better; also a reason of a later version.
    #[serde(other)]
    Unknown,
}

impl Reason {
    /// Whether a person must change something first; trying again ends the same way, and nothing was changed.
    pub fn is_refusal(self) -> bool {
        match self {
            Reason::InvalidInput
            | Reason::OtherCluster
            | Reason::OtherOsd
            | Reason::NotBlank
            | Reason::DeviceMismatch
            | Reason::TooSmall
            | Reason::FsidMismatch
            | Reason::UnknownOsd
            | Reason::KeyMismatch => true,
            // A key is replaced in a running cluster, and the mounted Secret follows after a while.
            Reason::AccessDenied
            | Reason::DeviceBusy
            | Reason::DeviceUnreadable
            | Reason::NotWritable
            | Reason::MonitorsUnreachable
            | Reason::CommandFailed
            | Reason::MountUnusable
            | Reason::Unknown => false,
        }
    }

    /// 3: refused; 1: may be retried. For `podFailurePolicy` of the Job.
    pub fn exit_code(self) -> u8 {
        if self.is_refusal() { REFUSED } else { RETRY }
    }
}

/// Exit code of a refusal.
pub const REFUSED: u8 = 3;
/// Exit code of a failure that may pass.
pub const RETRY: u8 = 1;

impl PrepareResult {
    pub fn completed(osd: OsdInfo, message: impl Into<String>) -> Self {
        Self {
            osds: vec![osd],
            status: RunStatus::Completed,
            pvc_backed_osd: true,
            message: message.into(),
            reason: None,
        }
    }

    pub fn failed(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            osds: Vec::new(),
            status: RunStatus::Failed,
            pvc_backed_osd: true,
            message: message.into(),
            reason: Some(reason),
        }
    }

    /// JSON in one line, below [`MAX_BYTES`]: of a long message the beginning.
    pub fn to_json(&self) -> String {
        let mut result = self.clone();
        let mut keep = self.message.chars().count();
        loop {
            let text = serde_json::to_string(&result)
                .expect("text, numbers and enums without data always serialize");
            if text.len() < MAX_BYTES || keep == 0 {
                return text;
            }
            keep = keep.saturating_sub((text.len() - MAX_BYTES).div_ceil(6).max(16));
            result.message = self.message.chars().take(keep).chain(['…']).collect();
        }
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text)
            .map_err(|error| format!("reading the result of a prepare run: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osd() -> OsdInfo {
        OsdInfo {
            id: 4,
            cluster: "ceph".into(),
            uuid: "1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10".parse().unwrap(),
            device_class: "ssd".into(),
            block_path: "/dev/rook/device0".into(),
            metadata_path: "/dev/rook/device1".into(),
            wal_path: String::new(),
            location: "root=default host=node-1".into(),
            mode: "raw".into(),
            store: "bluestore".into(),
            encrypted: false,
            node_name: "node-1".into(),
            pvc_name: "set1-data-0".into(),
        }
    }

    #[test]
    fn keys_are_spelled_as_upstream() {
        insta::assert_snapshot!(PrepareResult::completed(osd(), "prepared").to_json(), @r#"{"osds":[{"id":4,"cluster":"ceph","uuid":"1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10","device-class":"ssd","lv-path":"/dev/rook/device0","metadata-path":"/dev/rook/device1","wal-path":"","location":"root=default host=node-1","lv-mode":"raw","store":"bluestore","encrypted":false,"nodeName":"node-1","pvcName":"set1-data-0"}],"status":"completed","pvc-backed-osd":true,"message":"prepared"}"#);
        insta::assert_snapshot!(PrepareResult::failed(Reason::NotBlank, "x").to_json(), @r#"{"osds":[],"status":"failed","pvc-backed-osd":true,"message":"x","reason":"NotBlank"}"#);
    }

    #[test]
    fn result_is_read_back() {
        for result in [
            PrepareResult::completed(osd(), "adopted"),
            PrepareResult::failed(Reason::MonitorsUnreachable, "x"),
        ] {
            assert_eq!(PrepareResult::parse(&result.to_json()), Ok(result));
        }
    }

    #[test]
    fn result_of_upstream_is_read() {
        let text = r#"{"osds":[{"id":0,"cluster":"ceph","uuid":"1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10","device-part-uuid":"",
            "device-class":"hdd","lv-path":"/mnt/set1-data-0","metadata-path":"","wal-path":"","skip-lv-release":true,"location":
            "root=default host=h","lv-backed-pv":false,"lv-mode":"raw","store":"bluestore","topologyAffinity":"","encrypted":false,
            "exportService":false,"nodeName":"","pvcName":"","device-type":""}],"status":"completed","pvc-backed-osd":true,"message":""}"#;
        let result = PrepareResult::parse(text).unwrap();
        assert_eq!((result.osds[0].id, result.status), (0, RunStatus::Completed));
        assert_eq!(result.reason, None);
        let later = r#"{"status":"failed","reason":"SomethingNew"}"#;
        assert_eq!(PrepareResult::parse(later).unwrap().reason, Some(Reason::Unknown));
    }

    #[test]
    fn termination_message_is_never_cut_off() {
        for message in ["x".repeat(10_000), "\"\u{1}ü\n".repeat(3_000), "x".repeat(4_000)] {
            let text = PrepareResult::failed(Reason::CommandFailed, message.clone()).to_json();
            assert!(text.len() < MAX_BYTES && text.len() > 3_000, "{}", text.len());
            let read = PrepareResult::parse(&text).unwrap();
            assert!(message.starts_with(read.message.trim_end_matches('…')));
        }
    }

    #[test]
    fn refusals_have_their_own_exit_code() {
        assert_eq!(Reason::OtherCluster.exit_code(), 3);
        assert_eq!(Reason::MonitorsUnreachable.exit_code(), 1);
    }
}
