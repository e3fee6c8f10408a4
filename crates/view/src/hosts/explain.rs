//! Everything about one host: state, error, what it waits for, hardware, node and disks. Pure: the caller read it all.

use super::{
    advice::{is_refused, problems, remedies, waits_for},
    consumer, model, power,
    raid::{self, RaidView},
    state_text, tone, without_credentials,
};
use crate::{
    Tone,
    events::{EventView, recent},
    explain::device::Remedy,
    text::{Field, size, split_remedy},
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Condition};
use kube::ResourceExt;
use quarry_api::{
    BareMetalHost, HardwareData,
    bare_metal_host::{
        CredentialsStatus, HardwareDetails, OperationalStatus, ProvisioningState as State,
    },
    names,
    node_inventory::Device,
};
use quarry_core::{
    bare_metal_host::{CONDITION_HARDWARE_DATA, annotations, backoff},
    host_join::{self, HostJoin, JoinedBy, Outcome, disk_count, joins},
    host_rival::Rival,
    source::Source,
};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostExplanation {
    pub namespace: String,
    pub name: String,
    /// The provisioning state; `new` before an operator has seen it.
    pub state: String,
    /// When it got into this state, where that is recorded.
    pub since: Option<Timestamp>,
    /// The operational status; `None` before an operator has seen it.
    pub status: Option<String>,
    pub terminating: bool,
    /// `None`: not known.
    pub powered_on: Option<bool>,
    pub online: bool,
    pub created: Option<Timestamp>,
    pub tone: Tone,
    /// BMC, credentials, node in Ironic, consumer.
    pub details: Vec<Field>,
    pub error: Option<HostError>,
    /// What is not carried out, and is no error of the machine.
    pub problems: Vec<String>,
    /// `None`: it waits for nothing.
    pub waits_for: Option<String>,
    /// Empty when there is nothing to do.
    pub remedies: Vec<Remedy>,
    pub hardware: Vec<Field>,
    pub node: JoinView,
    pub disks: Vec<DiskLine>,
    /// Requested, recorded and seen; absent without RAID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raid: Option<RaidView>,
    /// Annotations that have an effect.
    pub annotations: Vec<AnnotationView>,
    pub conditions: Vec<Condition>,
    pub events: Vec<EventView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostError {
    /// `registration error`
    #[serde(rename = "type")]
    pub kind: String,
    /// Without the remedy.
    pub message: String,
    /// Failures since the state was entered.
    pub count: i64,
    pub since: Option<Timestamp>,
    /// `None`: nothing is repeated before the host is changed.
    pub next_attempt: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinView {
    /// `None`: there is none, or it is not certain.
    pub name: Option<String>,
    /// How it was found, or why not.
    pub text: String,
}

/// Who sees a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SeenBy {
    Both,
    /// Only inspection of the host.
    Host,
    Node,
}

impl SeenBy {
    pub fn as_str(self) -> &'static str {
        match self {
            SeenBy::Both => "both",
            SeenBy::Host => "only host",
            SeenBy::Node => "only node",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskLine {
    pub seen_by: SeenBy,
    /// As inspection named it, once per path.
    pub names: Vec<String>,
    /// Its name on the node.
    pub device: Option<String>,
    pub size: i64,
    /// Vendor and model, serial, WWN.
    pub text: String,
    /// What both sides disagree about, or why they cannot be compared.
    pub note: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AnnotationView {
    pub name: String,
    pub effect: String,
}

/// `None` when the source has no such host.
pub fn explain(
    source: &impl Source,
    namespace: &str,
    name: &str,
    rival: Option<&Rival>,
    events: &[Event],
) -> Option<HostExplanation> {
    let is_it = |one: &HostJoin| one.namespace == namespace && one.name == name;
    let join = joins(source).into_iter().find(is_it)?;
    let hosts = source.hosts();
    let host = hosts
        .iter()
        .find(|host| host.namespace().as_deref() == Some(namespace) && host.name_any() == name)?;
    let data = source.hardware_data(namespace, name);
    let hardware = host_join::hardware(host, data.as_deref());
    let status = host.status.clone().unwrap_or_default();
    let inventory = join.node().and_then(|node| source.inventory(node));
    let on_node = inventory.iter().find_map(|one| one.status.as_ref());
    let devices = on_node.map(|status| status.devices.as_slice());
    Some(HostExplanation {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        state: state_text(&host.state()),
        since: since(host),
        status: match &status.operational_status {
            OperationalStatus::None => None,
            known => Some(known.as_str().to_owned()),
        },
        terminating: host.metadata.deletion_timestamp.is_some(),
        powered_on: power(host),
        online: host.spec.online,
        created: host.metadata.creation_timestamp.as_ref().map(|time| time.0),
        tone: tone(host),
        details: details(host),
        error: error(host),
        problems: problems(host),
        waits_for: waits_for(host, rival),
        remedies: remedies(host, rival),
        hardware: hardware_fields(host, data.as_deref(), hardware),
        node: node(&join),
        disks: disks(devices.unwrap_or_default(), &join),
        raid: raid::view(host, hardware, devices),
        annotations: effects(host),
        conditions: status.conditions,
        events: recent(events),
    })
}

/// When the state began. The status has it for operations; for states at rest a condition does.
fn since(host: &BareMetalHost) -> Option<Timestamp> {
    let status = host.status.as_ref()?;
    let history = &status.operation_history;
    let condition = |kind: &str| {
        let mut all = status.conditions.iter();
        all.find(|one| one.type_ == kind && one.status == "True")
            .map(|one| one.last_transition_time.clone())
    };
    let time = match &status.provisioning.state {
        State::Registering => history.register.start.clone(),
        State::Inspecting => history.inspect.start.clone(),
        State::Provisioning => history.provision.start.clone(),
        State::Deprovisioning => history.deprovision.start.clone(),
        State::Ready | State::Available => condition("AvailableForProvisioning"),
        State::Provisioned | State::ExternallyProvisioned => condition("Provisioned"),
        State::PoweringOffBeforeDelete | State::Deleting => {
            host.metadata.deletion_timestamp.clone()
        }
        State::None
        | State::Unmanaged
        | State::MatchProfile
        | State::Preparing
        | State::Other(_) => None,
    };
    time.map(|time| time.0)
}

fn error(host: &BareMetalHost) -> Option<HostError> {
    let status = host.status.as_ref()?;
    let kind = status.error_type.as_ref()?;
    let since = status.last_updated.as_ref().map(|time| time.0);
    let wait = backoff(status.error_count, host.metadata.uid.as_deref().unwrap_or_default());
    Some(HostError {
        kind: kind.as_str().to_owned(),
        message: split_remedy(&status.error_message).0.to_owned(),
        count: status.error_count,
        since,
        next_attempt: since.filter(|_| !is_refused(host)).map(|since| since + wait),
    })
}

fn details(host: &BareMetalHost) -> Vec<Field> {
    let status = host.status.clone().unwrap_or_default();
    let mut fields = Vec::new();
    if let Some(bmc) = host.bmc() {
        fields.push(Field::new("BMC", without_credentials(&bmc.address)));
        fields.push(Field::new("credentials", credentials(host, &bmc.credentials_name)));
    }
    let id = &status.provisioning.id;
    if !id.is_empty() {
        fields.push(Field::new("Ironic node", id.clone()));
    }
    fields.extend(consumer(host).map(|consumer| Field::new("consumer", consumer)));
    if !host.spec.description.is_empty() {
        fields.push(Field::new("description", host.spec.description.clone()));
    }
    fields
}

/// Names and versions of Secrets, never what is in them.
fn credentials(host: &BareMetalHost, secret: &str) -> String {
    let status = host.status.clone().unwrap_or_default();
    let version = |one: &CredentialsStatus| {
        let name = one.reference.as_ref().and_then(|secret| secret.name.clone());
        name.map(|name| (name, one.version.clone()))
    };
    let what = match (version(&status.tried_credentials), version(&status.good_credentials)) {
        (None, None) => "not tried yet".to_owned(),
        (tried, Some(good)) if tried.as_ref().is_none_or(|tried| *tried == good) => {
            format!("good in version {}", good.1)
        }
        (Some(tried), good) => {
            let good = good.map_or_else(
                || "none was good before".to_owned(),
                |good| format!("last good: Secret {}, version {}", good.0, good.1),
            );
            format!("tried in version {}, not good yet ({good})", tried.1)
        }
        (None, Some(good)) => format!("good in version {}", good.1),
    };
    format!("Secret {secret}, {what}")
}

fn hardware_fields(
    host: &BareMetalHost,
    data: Option<&HardwareData>,
    hardware: Option<&HardwareDetails>,
) -> Vec<Field> {
    let mut fields = Vec::new();
    if let Some(found) = hardware {
        let serial = &found.system_vendor.serial_number;
        let serial = if serial.is_empty() { String::new() } else { format!(", serial {serial}") };
        fields.extend(model(found).map(|model| Field::new("machine", format!("{model}{serial}"))));
        let cpu = &found.cpu;
        if cpu.count > 0 {
            let words = [cpu.model.as_str(), cpu.arch.as_str()];
            let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
            fields.push(Field::new("CPUs", format!("{} ({})", cpu.count, words.join(", "))));
        }
        if found.ram_mebibytes > 0 {
            fields.push(Field::new("memory", size(found.ram_mebibytes << 20)));
        }
        let bytes: i64 = found.storage.iter().map(|disk| disk.size_bytes).sum();
        let (disks, paths) = (disk_count(found), found.storage.len());
        let paths = if paths > disks { format!(", {paths} paths") } else { size_text(bytes) };
        fields.push(Field::new("disks", format!("{disks}{paths}")));
        let macs: std::collections::BTreeSet<&str> =
            found.nics.iter().map(|nic| nic.mac.as_str()).collect();
        fields.push(Field::new("interfaces", macs.len().to_string()));
    }
    fields.push(Field::new("HardwareData", stored(host, data)));
    fields
}

fn size_text(bytes: i64) -> String {
    if bytes > 0 { format!(", {} in all", size(bytes)) } else { String::new() }
}

fn stored(host: &BareMetalHost, data: Option<&HardwareData>) -> String {
    let conditions = host.status.iter().flat_map(|status| &status.conditions);
    let mut problems = conditions
        .filter(|one| one.type_ == CONDITION_HARDWARE_DATA && one.status == "False")
        .map(|one| split_remedy(&one.message).0.to_owned());
    match (data, problems.next()) {
        (Some(_), None) => "stored".to_owned(),
        (Some(_), Some(problem)) => format!("stored; {problem}"),
        (None, Some(problem)) => format!("none: {problem}"),
        (None, None) if annotations::is_inspection_disabled(host) => {
            "none: inspection is disabled".to_owned()
        }
        (None, None) => match host.state() {
            State::None | State::Unmanaged | State::Registering | State::Inspecting => {
                "none yet: it is created when an inspection ends".to_owned()
            }
            _ => "none".to_owned(),
        },
    }
}

fn node(join: &HostJoin) -> JoinView {
    let matched = join.disks.iter().filter(|disk| disk.matched_by.is_some()).count();
    let text = match &join.outcome {
        Outcome::NotJoined(why) => why.message(),
        Outcome::Joined { node, .. } if !join.devices_known => {
            format!("by its provider ID; the agent of node {node} has not published its devices")
        }
        Outcome::Joined { by: JoinedBy::ProviderId, .. } if join.disks.is_empty() => {
            "by its provider ID".to_owned()
        }
        Outcome::Joined { by: JoinedBy::ProviderId, .. } if matched == 0 => {
            "by its provider ID; no disk of the host could be matched".to_owned()
        }
        Outcome::Joined { by: JoinedBy::ProviderId, .. } => "by its provider ID".to_owned(),
        Outcome::Joined { by: JoinedBy::Disks { matching: 1 }, .. } => {
            "by the only disk of both".to_owned()
        }
        Outcome::Joined { by: JoinedBy::Disks { matching }, .. } => {
            format!("by {matching} equal disks")
        }
    };
    JoinView { name: join.node().map(str::to_owned), text }
}

fn disks(devices: &[Device], join: &HostJoin) -> Vec<DiskLine> {
    let by_name: std::collections::HashMap<&str, _> =
        devices.iter().map(|device| (device.name.as_str(), device)).collect();
    let line = |disk: &host_join::JoinedDisk| {
        let device = disk.device.as_ref().and_then(|name| by_name.get(name.as_str()));
        let seen_by = match (&disk.host, &disk.device) {
            (Some(_), Some(_)) => SeenBy::Both,
            (Some(_), None) => SeenBy::Host,
            (None, _) => SeenBy::Node,
        };
        let mut words: Vec<String> = Vec::new();
        let mut bytes = 0;
        if let Some(host) = &disk.host {
            bytes = host.size;
            words.extend([host.vendor.clone(), host.model.clone()]);
            words.extend(label("serial", &host.serial));
            words.extend(label("WWN", &host.wwn));
        } else if let Some(device) = device {
            words.extend(device.vendor.iter().chain(&device.model).cloned());
            words.extend(device.serial.iter().flat_map(|serial| label("serial", serial)));
            words.extend(device.identity.clone());
        }
        let on_node = device.map_or(0, |device| device.size);
        let differs = bytes > 0 && on_node > 0 && bytes != on_node;
        let note = differs
            .then(|| format!("{} in the inspection, {} on the node", size(bytes), size(on_node)));
        words.retain(|word| !word.is_empty());
        DiskLine {
            seen_by,
            names: disk.host.as_ref().map(|host| host.names.clone()).unwrap_or_default(),
            device: disk.device.clone(),
            size: if bytes > 0 { bytes } else { on_node },
            text: words.join(", "),
            note,
        }
    };
    join.disks.iter().map(line).collect()
}

fn label(name: &str, value: &str) -> Option<String> {
    (!value.is_empty()).then(|| format!("{name} {value}"))
}

/// What each annotation that the operator acts on does now.
fn effects(host: &BareMetalHost) -> Vec<AnnotationView> {
    let mut found = Vec::new();
    let given = host.metadata.annotations.iter().flatten();
    for (name, value) in given {
        let effect = match name.as_str() {
            names::PAUSED_ANNOTATION if value == names::PAUSED_BY_CAPM3 => {
                "nothing is done to the host; Cluster API's provider set it".to_owned()
            }
            names::PAUSED_ANNOTATION => "nothing is done to the host".to_owned(),
            names::DETACHED_ANNOTATION => match annotations::detached(host) {
                Ok(Some(arguments)) => {
                    let force = if arguments.force { ", in any state" } else { "" };
                    let action = match arguments.delete_action.as_str() {
                        "delete" => "removes it without Ironic",
                        _ => "waits until it is attached",
                    };
                    format!("Ironic does not manage the host{force}; a deletion {action}")
                }
                Ok(None) => continue,
                Err(error) => error.to_string(),
            },
            names::STATUS_ANNOTATION => {
                "the status to restore where the host has none, such as after a move".to_owned()
            }
            names::INSPECT_ANNOTATION if value == names::INSPECT_DISABLED => {
                "the host is never inspected".to_owned()
            }
            names::INSPECT_ANNOTATION => "the host is inspected again once it is available".into(),
            names::RETAIN_RAID_ANNOTATION => {
                "its RAID volumes stay when it is deprovisioned or deleted".to_owned()
            }
            names::HARDWARE_DETAILS_ANNOTATION => {
                "hardware instead of an inspection, where that is disabled".to_owned()
            }
            names::REBOOT_ANNOTATION => match annotations::reboot(host) {
                Ok(Some(request)) => {
                    let how = if request.hard { "at once" } else { "after a shutdown" };
                    format!("the host is powered off {how}, then on")
                }
                Ok(None) => continue,
                Err(error) => error.to_string(),
            },
            key if key.starts_with(names::REBOOT_ANNOTATION_PREFIX) => {
                "the host stays powered off until its client removes this".to_owned()
            }
            _ => continue,
        };
        found.push(AnnotationView { name: name.clone(), effect });
    }
    found
}
