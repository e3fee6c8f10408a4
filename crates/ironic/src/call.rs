//! Every change that can be requested from Ironic, as a value: a plan contains at most one.
//!
//! Owns the form of each request. Never sends one, and never prints a credential: Debug and Display
//! name what changes, and hide values that may be secret.
//! Next to read: `transport.rs` (the request), `client.rs` (`Client::perform`).

use crate::node::{NewNode, NewPort};
use crate::raid::RaidConfig;
use crate::secret::{Guarded, HIDDEN, Secret};
use crate::transport::{Method, Request, encode};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::fmt;

/// One change. `id` is a UUID: a name could have been given to another node in the meantime.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    CreateNode(Box<NewNode>),
    DeleteNode { id: String },
    PatchNode { id: String, ops: Vec<PatchOp> },
    CreatePort(NewPort),
    DeletePort { id: String },
    SetProvisionState { id: String, target: ProvisionTarget },
    SetPower { id: String, target: PowerTarget },
    SetRaid { id: String, config: RaidConfig },
    SetMaintenance { id: String, reason: String },
    ClearMaintenance { id: String },
}

/// One operation of a JSON patch. Ironic refuses `test`.
#[derive(Clone, PartialEq)]
pub enum PatchOp {
    /// Also replaces what is there.
    Add { path: String, value: Value },
    /// Refused if there is nothing.
    Replace { path: String, value: Value },
    /// Refused if there is nothing.
    Remove { path: String },
}

impl PatchOp {
    pub fn add(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::Add { path: path.into(), value: value.into() }
    }

    pub fn remove(path: impl Into<String>) -> Self {
        Self::Remove { path: path.into() }
    }

    pub fn path(&self) -> &str {
        match self {
            Self::Add { path, .. } | Self::Replace { path, .. } | Self::Remove { path } => path,
        }
    }

    fn parts(&self) -> (&'static str, &str, Option<&Value>) {
        match self {
            Self::Add { path, value } => ("add", path, Some(value)),
            Self::Replace { path, value } => ("replace", path, Some(value)),
            Self::Remove { path } => ("remove", path, None),
        }
    }
}

impl Serialize for PatchOp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (op, path, value) = self.parts();
        let mut fields = Map::new();
        fields.insert("op".to_owned(), op.into());
        fields.insert("path".to_owned(), path.into());
        if let Some(value) = value {
            fields.insert("value".to_owned(), value.clone());
        }
        fields.serialize(serializer)
    }
}

impl fmt::Debug for PatchOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op, path, value) = self.parts();
        write!(f, "{op} {path}")?;
        let Some(value) = value else { return Ok(()) };
        match guarded_key(path) {
            // The whole object: shown as one.
            Some("") => match value {
                Value::Object(fields) => write!(f, " = {:?}", Guarded(fields.clone())),
                _ => write!(f, " = {HIDDEN}"),
            },
            Some(key) => {
                let key = key.to_owned();
                write!(f, " = {:?}", Guarded::from_iter([(key, value.clone())]))
            }
            None => write!(f, " = {}", crate::secret::redacted(&json!({ path: value }))[path]),
        }
    }
}

/// The key below `driver_info` or `instance_info`; empty: the object itself; None: elsewhere.
fn guarded_key(path: &str) -> Option<&str> {
    let rest = ["/driver_info", "/instance_info"].iter().find_map(|one| path.strip_prefix(one))?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

/// One step of manual cleaning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CleanStep {
    /// `raid`, `deploy`, `bios`, `firmware`, …
    pub interface: String,
    pub step: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
}

impl CleanStep {
    pub fn new(interface: impl Into<String>, step: impl Into<String>) -> Self {
        Self { interface: interface.into(), step: step.into(), args: Map::new() }
    }
}

impl fmt::Display for CleanStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.interface, self.step)
    }
}

/// A verb of Ironic's provisioning.
#[derive(Debug, Clone, PartialEq)]
pub enum ProvisionTarget {
    Manage,
    Provide,
    Inspect,
    Clean {
        steps: Vec<CleanStep>,
    },
    /// `configdrive` may contain credentials; it is an object, or text as Ironic defines it.
    Active {
        configdrive: Option<ConfigDrive>,
    },
    Deleted,
    Abort,
    Adopt,
}

/// The data that an instance reads at its first boot. Never printed.
#[derive(Debug, Clone, PartialEq)]
pub enum ConfigDrive {
    /// `meta_data`, `network_data`, `user_data`, `vendor_data`.
    Parts(Guarded),
    /// A URL, or an image in base64.
    Text(Secret),
}

impl ProvisionTarget {
    /// Ironic's word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Manage => "manage",
            Self::Provide => "provide",
            Self::Inspect => "inspect",
            Self::Clean { .. } => "clean",
            Self::Active { .. } => "active",
            Self::Deleted => "deleted",
            Self::Abort => "abort",
            Self::Adopt => "adopt",
        }
    }

    fn body(&self) -> Value {
        match self {
            Self::Clean { steps } => json!({"target": "clean", "clean_steps": steps}),
            Self::Active { configdrive: Some(ConfigDrive::Parts(parts)) } => {
                json!({"target": "active", "configdrive": parts})
            }
            Self::Active { configdrive: Some(ConfigDrive::Text(text)) } => {
                json!({"target": "active", "configdrive": text.reveal()})
            }
            Self::Manage
            | Self::Provide
            | Self::Inspect
            | Self::Active { configdrive: None }
            | Self::Deleted
            | Self::Abort
            | Self::Adopt => json!({"target": self.as_str()}),
        }
    }
}

/// A change of power. Time limits are in seconds; Ironic refuses 0, so 1 is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerTarget {
    On,
    Off,
    Reboot,
    /// Asks the operating system, and fails after the limit if it does not follow.
    SoftOff {
        timeout: Option<u32>,
    },
    SoftReboot {
        timeout: Option<u32>,
    },
}

impl PowerTarget {
    /// Ironic's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::On => "power on",
            Self::Off => "power off",
            Self::Reboot => "rebooting",
            Self::SoftOff { .. } => "soft power off",
            Self::SoftReboot { .. } => "soft rebooting",
        }
    }

    fn body(self) -> Value {
        match self {
            Self::SoftOff { timeout: Some(limit) } | Self::SoftReboot { timeout: Some(limit) } => {
                json!({"target": self.as_str(), "timeout": limit.max(1)})
            }
            Self::On
            | Self::Off
            | Self::Reboot
            | Self::SoftOff { .. }
            | Self::SoftReboot { .. } => {
                json!({"target": self.as_str()})
            }
        }
    }
}

impl Call {
    /// The request that makes this change. Fails only if a value cannot be written as JSON.
    pub fn request(&self) -> Result<Request, serde_json::Error> {
        let node = |id: &str, rest: &str| format!("/v1/nodes/{}{rest}", encode(id));
        let (method, path, body) = match self {
            Self::CreateNode(new) => {
                (Method::Post, "/v1/nodes".to_owned(), Some(serde_json::to_value(new)?))
            }
            Self::DeleteNode { id } => (Method::Delete, node(id, ""), None),
            Self::PatchNode { id, ops } => {
                (Method::Patch, node(id, ""), Some(serde_json::to_value(ops)?))
            }
            Self::CreatePort(new) => {
                (Method::Post, "/v1/ports".to_owned(), Some(serde_json::to_value(new)?))
            }
            Self::DeletePort { id } => (Method::Delete, format!("/v1/ports/{}", encode(id)), None),
            Self::SetProvisionState { id, target } => {
                (Method::Put, node(id, "/states/provision"), Some(target.body()))
            }
            Self::SetPower { id, target } => {
                (Method::Put, node(id, "/states/power"), Some(target.body()))
            }
            Self::SetRaid { id, config } => {
                (Method::Put, node(id, "/states/raid"), Some(serde_json::to_value(config)?))
            }
            Self::SetMaintenance { id, reason } => {
                (Method::Put, node(id, "/maintenance"), Some(json!({ "reason": reason })))
            }
            Self::ClearMaintenance { id } => (Method::Delete, node(id, "/maintenance"), None),
        };
        Ok(Request::new(method, path, body))
    }
}

/// What is attempted, as in "failed to create node ns~host".
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateNode(new) => {
                let name = new.name.as_deref().or(new.uuid.as_deref()).unwrap_or("without a name");
                write!(f, "create node {name} with driver {}", new.driver)
            }
            Self::DeleteNode { id } => write!(f, "delete node {id}"),
            Self::PatchNode { id, ops } => {
                write!(f, "update {} of node {id}", list(ops.iter().map(PatchOp::path)))
            }
            Self::CreatePort(new) => {
                write!(f, "create port {} of node {}", new.address, new.node_uuid)
            }
            Self::DeletePort { id } => write!(f, "delete port {id}"),
            Self::SetProvisionState { id, target: ProvisionTarget::Clean { steps } } => {
                write!(f, "clean node {id} with {}", list(steps))
            }
            Self::SetProvisionState { id, target } => {
                write!(f, "request {} of node {id}", target.as_str())
            }
            Self::SetPower { id, target } => write!(f, "request {} of node {id}", target.as_str()),
            Self::SetRaid { id, config } => {
                write!(f, "set {} RAID volumes for node {id}", config.logical_disks.len())
            }
            Self::SetMaintenance { id, .. } => write!(f, "set maintenance of node {id}"),
            Self::ClearMaintenance { id } => write!(f, "clear maintenance of node {id}"),
        }
    }
}

fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
