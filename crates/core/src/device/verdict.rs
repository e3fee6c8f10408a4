//! The verdict on one device: every reason that applies, and the state that follows.
//!
//! Unknown is no: a device that was not read, could not be read or contradicts itself is never Available (invariant 4).

use super::{
    facts::{Content, ExclusiveOpen, Facts},
    identity::same_identity,
    reason::Reason,
    records::DataRecord,
};
use quarry_api::node_inventory::{
    DeviceClaim, DeviceReason, DeviceState, NodeInventorySpec, RetainedData,
};

/// A reason with its detail. Ordered as the table.
pub type Finding = (Reason, String);

/// How many details of one reason are listed; the rest is summarized by its number.
const NAMED: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub state: DeviceState,
    pub reasons: Vec<DeviceReason>,
}

/// Every reason against a device; `more` are reasons that need other devices or earlier scans (`group.rs`, `settle.rs`).
pub fn judge(
    facts: &Facts,
    identities: &[String],
    spec: &NodeInventorySpec,
    more: Vec<Finding>,
) -> Verdict {
    let mut findings = more;
    findings.extend(node_reasons(facts));
    findings.extend(cluster_reasons(identities, spec));
    if findings.is_empty() {
        findings.extend(unasked(facts));
    }
    findings.sort();
    findings.dedup();
    let state = findings
        .iter()
        .map(|(reason, _)| reason.row().state)
        .min_by_key(|state| *state != DeviceState::NotAvailable)
        .unwrap_or(DeviceState::Available);
    let reasons =
        findings.into_iter().map(|(reason, detail)| DeviceReason::new(reason, detail)).collect();
    Verdict { state, reasons }
}

/// The reasons that follow from the facts of the device alone.
pub fn node_reasons(facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut say = |reason: Reason, detail: &str| findings.push((reason, detail.to_owned()));
    if let Some(uid) = &facts.volume_uid {
        say(Reason::BacksVolume, uid);
    }
    for pv in &facts.backs {
        say(Reason::BacksPersistentVolume, pv);
    }
    some(Reason::Mounted, &facts.mounts, &mut say);
    some(Reason::HasHolders, &facts.holders, &mut say);
    some(Reason::LoopOnTop, &facts.loops_on_top, &mut say);
    if facts.swap {
        say(Reason::Swap, "");
    }
    if !facts.partitions.is_empty() {
        say(Reason::HasChildren, &facts.partitions.join(", "));
    }
    match facts.exclusive_open {
        ExclusiveOpen::Exclusively => say(Reason::HeldExclusively, ""),
        ExclusiveOpen::Free | ExclusiveOpen::Unasked => {}
    }
    if let Some(why) = boot(facts) {
        say(Reason::BootLabel, &why);
    }
    if facts.read_only {
        say(Reason::ReadOnly, "");
    }
    if facts.removable {
        say(Reason::Removable, "");
    }
    if facts.state.as_deref() == Some("suspended") {
        say(Reason::Suspended, "");
    }
    if facts.observed_only {
        say(Reason::ObservedOnly, "");
    }
    if let Some(why) = &facts.not_local {
        say(Reason::NotLocal, why);
    }
    match &facts.content {
        Content::Blank | Content::Unread => {}
        Content::Found(found) => {
            for signature in found.ambivalent.iter().chain(&found.fs_type) {
                say(Reason::Signature, signature);
            }
            if let Some(table) = &found.table {
                say(Reason::PartitionTable, table);
            }
            if found.ambivalent.is_empty() && found.fs_type.is_none() && found.table.is_none() {
                say(Reason::UnknownData, "");
            }
        }
        Content::UnknownData => say(Reason::UnknownData, ""),
        Content::NoMedium => say(Reason::NoMedium, ""),
        Content::Unreadable(why) => say(Reason::Unreadable, why),
        Content::TimedOut => say(Reason::TimedOut, ""),
        Content::NotPermitted => say(Reason::NotPermitted, ""),
    }
    if facts.size == 0 && facts.content != Content::NoMedium {
        say(Reason::ZeroSize, "");
    }
    findings
}

fn some(reason: Reason, names: &[String], say: &mut impl FnMut(Reason, &str)) {
    for name in names.iter().take(NAMED) {
        say(reason, name);
    }
    if names.len() > NAMED {
        say(reason, &format!("… and {} more", names.len() - NAMED));
    }
}

/// No reason was found, but the device was not really read: unknown is no.
fn unasked(facts: &Facts) -> Option<Finding> {
    match (&facts.content, facts.exclusive_open) {
        (Content::Blank, ExclusiveOpen::Free) => None,
        (Content::Blank, _) => {
            Some((Reason::NotPermitted, "it could not be opened exclusively".to_owned()))
        }
        _ => Some((Reason::Unreadable, "it was not read".to_owned())),
    }
}

/// "EFI System" and "BIOS boot".
const BOOT_TYPES: [&str; 2] =
    ["c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "21686148-6449-6e6f-744e-656564454649"];

fn boot(facts: &Facts) -> Option<String> {
    let partition = facts.partition.as_ref()?;
    if let Some(label) = partition
        .label
        .as_ref()
        .filter(|label| ["bios", "boot"].iter().any(|word| label.to_lowercase().contains(word)))
    {
        return Some(label.clone());
    }
    let kind = partition.type_id.as_ref()?;
    BOOT_TYPES.iter().any(|boot| kind.eq_ignore_ascii_case(boot)).then(|| format!("type {kind}"))
}

/// What the cluster knows about the device with these identities. By any of them: a device claim on the serial holds
/// when the stronger WWN is found later.
pub fn cluster_reasons(identities: &[String], spec: &NodeInventorySpec) -> Vec<Finding> {
    let is_of = |claim: &&DeviceClaim| {
        identities.contains(&claim.identity) || same_identity(&claim.identifiers, identities)
    };
    let claims = spec.device_claims.iter().filter(is_of).map(|claim| {
        let owner = &claim.owner;
        let place =
            owner.namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
        (Reason::Claimed, format!("{} {place}{}", owner.kind, owner.name))
    });
    let quarantine =
        spec.quarantine.iter().filter(|entry| identities.contains(&entry.identity)).map(|entry| {
            // An unknown reason of a later version still blocks the device.
            (entry.reason.known().unwrap_or(Reason::AmbiguousIdentity), entry.detail.clone())
        });
    let retained = spec
        .retained_data
        .iter()
        .filter(|retained| retained.is_device(identities))
        .map(|retained| (Reason::RetainedData, retained_data_detail(retained)));
    let left_out = spec
        .unmanaged_pvs_omitted
        .filter(|count| *count > 0)
        .map(|count| (Reason::UnlistedPersistentVolumes, format!("{count} are omitted")));
    claims.chain(quarantine).chain(retained).chain(left_out).collect()
}

/// The PersistentVolume that left the data, with its UID.
pub fn retained_data_detail(retained: &RetainedData) -> String {
    format!("{}, UID {}", retained.pv_name, retained.pv_uid)
}
