//! One line of the table of devices.

use super::{DeviceView, tree};
use quarry_api::node_inventory::DeviceState;
use quarry_core::device::Reason;
use serde::Serialize;

/// What a table shows of one device. `-` stands for none, `?` for what could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceRow {
    pub node: String,
    /// In front of the name: `├─` for what is below another device.
    pub branch: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub size: i64,
    pub model: Option<String>,
    /// Its name below /dev/disk/by-id, else its identity.
    pub id: String,
    pub fs_type: String,
    pub state: DeviceState,
    pub vendor: Option<String>,
    pub serial: Option<String>,
    pub transport: Option<String>,
    pub rotational: bool,
    pub read_only: bool,
    pub removable: bool,
    pub mounts: Vec<String>,
    pub identity: Option<String>,
    /// How many sources identify it.
    pub evidence: usize,
    /// Every reason as text, in the order of the table of reasons.
    pub why: String,
}

/// The rows of these devices as a tree. `root_helps`: what is not permitted now is readable by root.
pub fn rows(devices: &[DeviceView], root_helps: bool) -> Vec<DeviceRow> {
    let ordered = tree::ordered(devices).into_iter();
    ordered.map(|(branch, view)| DeviceRow { branch, ..DeviceRow::new(view, root_helps) }).collect()
}

impl DeviceRow {
    /// A row alone, without branches.
    pub fn new(view: &DeviceView, root_helps: bool) -> Self {
        let device = &view.device;
        let unknown = if view.is_unread() { "?" } else { "-" };
        DeviceRow {
            node: view.node.clone(),
            branch: String::new(),
            name: view.title().to_owned(),
            kind: device.kind.clone(),
            size: device.size,
            model: device.model.clone(),
            id: id(view),
            fs_type: device.fs_type.clone().unwrap_or_else(|| unknown.to_owned()),
            state: device.state,
            vendor: device.vendor.clone(),
            serial: device.serial.clone(),
            transport: device.transport.clone(),
            rotational: device.rotational,
            read_only: device.read_only,
            removable: device.removable,
            mounts: view.details(Reason::Mounted).map(str::to_owned).collect(),
            identity: device.identity.clone(),
            evidence: device.evidence.len(),
            why: why(view, root_helps),
        }
    }
}

fn id(view: &DeviceView) -> String {
    let link = view.device.device_id.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
    let none = if view.identity_is_hidden() { "?" } else { "-" };
    link.or(view.device.identity.as_deref()).unwrap_or(none).to_owned()
}

fn why(view: &DeviceView, root_helps: bool) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut last = None;
    for given in &view.device.reasons {
        let reason = given.reason.known();
        match reason {
            Some(Reason::NotPermitted) if root_helps => texts.push("needs root".to_owned()),
            // Several of the same kind: one text with all details.
            Some(reason) if last == Some(reason) && !given.detail.is_empty() => {
                match texts.last_mut() {
                    Some(text) => text.push_str(&format!(", {}", given.detail)),
                    None => texts.push(reason.message(&given.detail)),
                }
            }
            Some(reason) => texts.push(reason.message(&given.detail)),
            None => texts.push(given.reason.message(&given.detail)),
        }
        last = reason;
    }
    texts.join("; ")
}
