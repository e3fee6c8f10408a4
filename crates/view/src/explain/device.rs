//! Everything about one device, of this machine or of a node. Pure: the caller read the facts, owners and Events.

use super::{
    checks::{CheckGroup, groups},
    evidence::{EvidenceView, evidence},
};
use crate::{
    devices::DeviceView,
    events::{EventView, recent},
    hosts::DeviceRaid,
    sets::summary::{ClaimView, claims},
    text::{Field, size},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use quarry_api::{
    NodeInventory,
    node_inventory::DeviceState,
    reason::{Class, Meaning, Reason, ReasonCode},
};
use quarry_core::{
    device_claim::{
        is_device, owner_text, wipe_remnant_text,
        world::{demands, node_world},
    },
    source::Source,
};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceExplanation {
    /// `device sdb on node n1: Available (disk, 50Gi)`
    pub title: String,
    /// Its other names.
    pub names: Vec<Field>,
    pub identity: IdentityView,
    pub groups: Vec<CheckGroup>,
    pub owners: Vec<String>,
    /// Its device claims with their stages, and its wipe remnants.
    pub claims: Vec<String>,
    /// How inspection of the host saw it; `None` where its node is not joined with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// What it is in the software RAID of its host; `None` where it is nothing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raid: Option<String>,
    pub state: DeviceState,
    pub verdict: String,
    pub remedies: Vec<Remedy>,
    /// What limits this explanation as a whole.
    pub notes: Vec<String>,
    /// `None` without a cluster.
    pub events: Option<Vec<EventView>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdentityView {
    /// The identity, `none` or `unknown`.
    pub text: String,
    pub evidence: Vec<EvidenceView>,
    /// Why there is no evidence.
    pub note: Option<&'static str>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// The reason of a device that it is about; `None` for anything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub text: String,
}

impl Remedy {
    pub fn new(text: impl Into<String>) -> Self {
        Remedy { reason: None, text: text.into() }
    }

    pub fn of_reason(reason: &str, text: &str) -> Self {
        Remedy { reason: Some(reason.to_owned()), text: text.to_owned() }
    }
}

/// What the caller read besides the device.
#[derive(Clone, Debug, Default)]
pub struct DeviceContext {
    /// `this machine` or `node n1`.
    pub place: String,
    pub owners: Vec<String>,
    pub claims: Vec<String>,
    pub host: Option<String>,
    pub raid: Option<DeviceRaid>,
    /// `None` without a cluster.
    pub events: Option<Vec<Event>>,
    pub notes: Vec<String>,
}

pub fn explain(view: &DeviceView, context: DeviceContext) -> DeviceExplanation {
    let about = |event: &&Event| is_about(event, view);
    DeviceExplanation {
        title: title(view, &context.place),
        names: names(view),
        identity: identity(view),
        groups: groups(view),
        owners: context.owners,
        claims: context.claims,
        host: context.host,
        remedies: remedies(view, context.raid.as_ref()),
        raid: context.raid.map(|raid| raid.text),
        state: view.device.state,
        verdict: verdict(view),
        notes: context.notes,
        events: context
            .events
            .map(|events| recent(&events.iter().filter(about).cloned().collect::<Vec<_>>())),
    }
}

fn title(view: &DeviceView, place: &str) -> String {
    let device = &view.device;
    let mut traits = vec![device.kind.clone(), size(device.size)];
    traits.extend(device.vendor.iter().chain(&device.model).cloned());
    traits.extend(device.serial.iter().map(|serial| format!("serial {serial}")));
    traits.extend(device.transport.clone());
    let (name, state) = (&device.name, device.state.as_str());
    format!("device {name} on {place}: {state} ({})", traits.join(", "))
}

fn names(view: &DeviceView) -> Vec<Field> {
    let device = &view.device;
    let mut names = Vec::new();
    let mut add = |name: &'static str, text: Option<String>| {
        names.extend(text.map(|text| Field::new(name, text)));
    };
    add("mapped as", device.mapped_name.as_ref().map(|name| format!("/dev/mapper/{name}")));
    let label = device.part_label.as_ref().map_or_else(String::new, |one| format!(", label {one}"));
    add("partition", device.parent.as_ref().map(|disk| format!("of {disk}{label}")));
    add("paths", Some(device.paths.join(", ")).filter(|paths| !paths.is_empty()));
    add("file", device.backing_file.clone());
    add("device ID", device.device_id.clone());
    add("link", device.link.clone());
    let uuid = device.fs_uuid.as_ref().map_or_else(String::new, |uuid| format!(", UUID {uuid}"));
    add("contains", device.fs_type.as_ref().map(|fs| format!("{fs}{uuid}")));
    names
}

fn identity(view: &DeviceView) -> IdentityView {
    let device = &view.device;
    let hidden = view.identity_is_hidden();
    let text = match &device.identity {
        Some(identity) => identity.clone(),
        None if hidden => "unknown".to_owned(),
        None => "none".to_owned(),
    };
    let note = match (&device.identity, device.evidence.is_empty()) {
        (_, false) => None,
        (None, true) if hidden => Some("could not be read without opening the device"),
        (None, true) => Some("neither the kernel nor udev has a WWN, serial or UUID of it"),
        (Some(_), true) => Some(
            "its evidence is not in the NodeInventory; run `quarry explain` on the node itself",
        ),
    };
    IdentityView { text, evidence: evidence(device), note }
}

fn verdict(view: &DeviceView) -> String {
    match (view.device.state, view.local.is_some()) {
        (DeviceState::Available, false) => "Available: every check passed".to_owned(),
        (DeviceState::Available, true) => {
            "Available, as far as one scan of this machine can show".to_owned()
        }
        (state @ (DeviceState::NotAvailable | DeviceState::Unknown), _) => {
            state.as_str().to_owned()
        }
    }
}

/// Each remedy once. A member of the host's RAID has that of the host instead of those that take an array apart.
fn remedies(view: &DeviceView, raid: Option<&DeviceRaid>) -> Vec<Remedy> {
    if let Some(remedy) = raid.and_then(|raid| raid.remedy.as_ref()) {
        let kept = remedies(view, None).into_iter().filter(|one| !is_of_raid(one));
        return std::iter::once(Remedy::new(remedy.clone())).chain(kept).collect();
    }
    let given = view.device.reasons.iter();
    let mut codes: Vec<&ReasonCode> = given.map(|given| &given.reason).collect();
    codes.dedup();
    let reasons: Vec<Reason> = codes.iter().filter_map(|code| code.known()).collect();
    let applicable = applicable(&reasons);
    let applies = |code: &&ReasonCode| code.known().is_none_or(|one| applicable.contains(&one));
    let remedy = |code: &ReasonCode| Remedy::of_reason(code.as_str(), code.remedy());
    codes.into_iter().filter(applies).map(remedy).collect()
}

/// What makes a member of an array unavailable.
fn is_of_raid(remedy: &Remedy) -> bool {
    let about = [
        Reason::HasHolders,
        Reason::HasChildren,
        Reason::HeldExclusively,
        Reason::Signature,
        Reason::PartitionTable,
    ];
    about.iter().any(|reason| remedy.reason.as_deref() == Some(reason.as_str()))
}

/// The reasons whose remedies apply: how to erase a device is no advice while something uses it.
pub fn applicable(reasons: &[Reason]) -> Vec<Reason> {
    let used = reasons.iter().copied().any(is_used);
    reasons.iter().copied().filter(|reason| !used || !erases(*reason)).collect()
}

/// Following an erasing remedy would destroy data in use.
fn is_used(reason: Reason) -> bool {
    reason.class() == Class::Use
        || reason.means(Meaning::Owned)
        || reason.means(Meaning::Quarantine)
}

/// Its remedy erases something.
fn erases(reason: Reason) -> bool {
    reason.class() == Class::Content
}

/// The device has a device claim, so that its stage is worth reading the cluster for.
pub fn is_claimed(inventory: &NodeInventory, view: &DeviceView) -> bool {
    let claims = &inventory.spec.device_claims;
    claims.iter().any(|claim| is_device(&view.device, &claim.identity))
}

/// The device claims of a device with their stages, one text each.
pub fn claim_texts(
    source: &impl Source,
    inventory: &NodeInventory,
    view: &DeviceView,
    now: Timestamp,
) -> Vec<String> {
    let Some(inventory) = source.inventory(&inventory.name_any()) else { return Vec::new() };
    let world = node_world(source, &inventory, demands(source), now);
    let mine = claims(&world, |claim| is_device(&view.device, &claim.identity), now);
    mine.iter().map(claim_text).collect()
}

/// What Quick wipes left on the device, one text each.
pub fn wipe_remnant_texts(inventory: &NodeInventory, view: &DeviceView) -> Vec<String> {
    let remnants = inventory.spec.wipe_remnants.iter();
    let mine = remnants.filter(|remnant| is_device(&view.device, &remnant.identity));
    mine.map(|remnant| format!("{} {}", view.device.name, wipe_remnant_text(remnant))).collect()
}

fn claim_text(view: &ClaimView) -> String {
    let owner = owner_text(&view.claim.owner);
    let mut text = format!("of {owner}, {}", view.stage.as_str());
    let detail = view.stage.detail();
    if !detail.is_empty() {
        text.push_str(&format!(": {detail}"));
    }
    if let Some(pv) = view.pv.as_ref().filter(|pv| !detail.contains(pv.as_str())) {
        text.push_str(&format!("; PersistentVolume {pv}"));
    }
    text.push_str(&format!("; link {}", view.claim.link));
    if let Some(job) = &view.claim.job {
        text.push_str(&format!("; NodeJob {}", job.name));
    }
    text
}

/// Events name the device first (`quarry_core::device::events`), or its identity.
fn is_about(event: &Event, view: &DeviceView) -> bool {
    let message = event.message.as_deref().unwrap_or_default();
    let named = message.strip_prefix(view.device.name.as_str());
    let identity = view.device.identity.as_deref();
    named.is_some_and(|rest| rest.starts_with(" ("))
        || identity.is_some_and(|identity| message.contains(identity))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::samples::{device, machine};
    use serde_json::json;

    #[test]
    fn only_events_about_this_device_are_shown() {
        let sdb = &machine()[4];
        let event = |message: &str| {
            let event = json!({"metadata": {}, "involvedObject": {}, "message": message});
            serde_json::from_value::<Event>(event).unwrap()
        };
        assert!(is_about(&event("sdb (disk, 3.6Ti) appeared: Available"), sdb));
        assert!(is_about(&event("quarantined wwn:5000c500a1b2c3d4"), sdb));
        for other in ["sdb1 (part, 1Gi) appeared", "sda (disk) like sdb", ""] {
            assert!(!is_about(&event(other), sdb), "{other}");
        }
    }

    fn remedy_texts(view: &DeviceView) -> String {
        remedies(view, None).into_iter().map(|remedy| remedy.text).collect()
    }

    #[test]
    fn erasing_a_device_in_use_is_never_a_remedy() {
        for used in [0, 1, 2, 3, 6] {
            let text = remedy_texts(&machine()[used]);
            assert!(!text.contains("wipefs"), "{text}");
        }
        let unused = device(json!({"reasons": [{"reason": "Signature", "detail": "xfs"}]}));
        assert!(remedy_texts(&unused).contains("wipefs"));
    }

    #[test]
    fn a_member_of_the_raid_of_its_host_is_left_alone() {
        let member = device(json!({"reasons": [
            {"reason": "HasHolders", "detail": "md127"}, {"reason": "Signature", "detail": "linux_raid_member"},
            {"reason": "Removable"},
        ]}));
        let raid = DeviceRaid { text: "member of md127".into(), remedy: Some("leave it".into()) };
        let context = DeviceContext { raid: Some(raid), ..DeviceContext::default() };
        let explained = explain(&member, context);
        assert_eq!(explained.raid.as_deref(), Some("member of md127"));
        let texts: Vec<&str> = explained.remedies.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(texts[0], "leave it");
        assert_eq!(texts.len(), 2, "{texts:?}");
        let raid = DeviceRaid { text: "member of md127".into(), remedy: None };
        let context = DeviceContext { raid: Some(raid), ..DeviceContext::default() };
        assert!(explain(&member, context).remedies[0].text.contains("mdadm"));
    }

    #[test]
    fn an_available_disk_has_no_remedies() {
        let explained = explain(&machine()[4], DeviceContext::default());
        assert_eq!(explained.verdict, "Available: every check passed");
        assert!(explained.remedies.is_empty(), "{explained:?}");
    }
}
