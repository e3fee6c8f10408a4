//! The RAID of a host: what the spec asks for, what was recorded, and whether the two agree.
//!
//! Owns: settings as values. `status.provisioning.raid` is the snapshot: recorded before anything is erased or built,
//! with the disks that were picked, and used alone from then on. Never calls Ironic. Next to read: `phases.rs` (what is
//! requested from Ironic), `pick.rs` (which disks), `verify.rs`, `root.rs`, and `../raid_rules.rs`.

pub mod phases;
pub mod pick;
pub mod root;
pub mod verify;

use super::{
    annotations, driver,
    raid_rules::{has_hints, invalid},
    status::{CONDITION_ACCEPTED, Draft},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use quarry_api::{
    BareMetalHost,
    bare_metal_host::{
        BareMetalHostStatus, HardwareRaidVolume, ProvisioningState as State, RaidConfig,
        SoftwareRaidVolume, hardware::Storage, raid::RaidList,
    },
    names,
};

pub use quarry_api::bare_metal_host::conditions::raid::{
    ABANDONED, CHANGED_WHILE_PROVISIONED, CURRENT as CONDITION_CURRENT, DIFFERS, ERASING,
    MADE_BY_HAND, MATCHES, NOT_SEEN, PREPARING, RECORDED as CONDITION_RECORDED, REPORTED,
    VERIFIED as CONDITION_VERIFIED,
};

/// What the spec asks for explicitly, in one form. `None`: what is there stays.
pub fn desired(host: &BareMetalHost) -> Option<RaidConfig> {
    let config = host.raid()?;
    let hardware = config.hardware_raid_volumes.requested();
    let software = config.software_raid_volumes.requested();
    if hardware.is_none() && software.is_none() {
        return None;
    }
    let software = software.filter(|_| !ignores_software(&config));
    let list = |volumes: Option<Vec<_>>| volumes.map_or(RaidList::Absent, RaidList::List);
    Some(RaidConfig {
        hardware_raid_volumes: list(hardware.map(|all| all.iter().map(plain_hardware).collect())),
        software_raid_volumes: match software {
            Some(all) => RaidList::List(all.iter().map(plain_software).collect()),
            None => RaidList::Absent,
        },
    })
}

/// Hardware volumes are used, and software volumes ignored.
fn ignores_software(config: &RaidConfig) -> bool {
    volumes(config.hardware_raid_volumes.requested()) > 0
        && volumes(config.software_raid_volumes.requested()) > 0
}

fn volumes<T>(list: Option<&[T]>) -> usize {
    list.map_or(0, <[T]>::len)
}

/// A size of 0 means the same as none.
fn plain_hardware(volume: &HardwareRaidVolume) -> HardwareRaidVolume {
    let size_gibibytes = volume.size_gibibytes.filter(|size| *size > 0);
    HardwareRaidVolume { size_gibibytes, ..volume.clone() }
}

fn plain_software(volume: &SoftwareRaidVolume) -> SoftwareRaidVolume {
    let size_gibibytes = volume.size_gibibytes.filter(|size| *size > 0);
    SoftwareRaidVolume { size_gibibytes, ..volume.clone() }
}

/// Everything that is wrong with what the spec asks for.
pub fn problems(host: &BareMetalHost) -> Vec<String> {
    let Some(mut config) = host.raid() else { return Vec::new() };
    // What is ignored cannot be wrong.
    if ignores_software(&config) {
        config.software_raid_volumes = RaidList::Absent;
    }
    let levels = host.bmc().and_then(driver::hardware_raid).map(|raid| raid.levels);
    invalid(&config, has_hints(host), levels)
}

/// What is recorded for these settings. Hardware volumes take the disks of software volumes that were built before, also
/// where a record that was never `applied` was to remove them.
pub fn snapshot(old: Option<&RaidConfig>, applied: bool, settings: RaidConfig) -> RaidConfig {
    let arrays = old.and_then(|old| old.software_raid_volumes.requested());
    let had_arrays = arrays.is_some_and(|arrays| !arrays.is_empty() || !applied);
    let takes_disks = volumes(settings.hardware_raid_volumes.requested()) > 0;
    match had_arrays && takes_disks && settings.software_raid_volumes.requested().is_none() {
        true => RaidConfig { software_raid_volumes: RaidList::List(Vec::new()), ..settings },
        false => settings,
    }
}

/// The snapshot has volumes of a kind that these settings leave alone: fine where they exist, and not to be built.
pub fn exceeds(snapshot: Option<&RaidConfig>, settings: &RaidConfig) -> bool {
    let Some(snapshot) = snapshot else { return false };
    let hardware = volumes(snapshot.hardware_raid_volumes.requested()) > 0
        && settings.hardware_raid_volumes.requested().is_none();
    hardware || has_arrays(snapshot) && settings.software_raid_volumes.requested().is_none()
}

/// Whether the snapshot was recorded for these settings. Disks that the settings leave open were picked.
pub fn covers(snapshot: Option<&RaidConfig>, settings: &RaidConfig) -> bool {
    let Some(snapshot) = snapshot else { return false };
    let hardware = match settings.hardware_raid_volumes.requested() {
        None => true,
        Some(wanted) => snapshot.hardware_raid_volumes.requested().is_some_and(|known| {
            known.len() == wanted.len()
                && known.iter().zip(wanted).all(|(known, wanted)| is_picked_for(known, wanted))
        }),
    };
    let software = match settings.software_raid_volumes.requested() {
        None => true,
        Some(wanted) => snapshot
            .software_raid_volumes
            .requested()
            .is_some_and(|known| known.iter().map(plain_software).eq(wanted.iter().cloned())),
    };
    hardware && software
}

fn is_picked_for(known: &HardwareRaidVolume, wanted: &HardwareRaidVolume) -> bool {
    let mut known = plain_hardware(known);
    if wanted.controller.is_empty() {
        known.controller.clear();
    }
    if wanted.physical_disks.is_empty() {
        known.physical_disks.clear();
    }
    known == *wanted
}

/// The snapshot has volumes, not only requests to remove some.
pub fn has_volumes(config: &RaidConfig) -> bool {
    volumes(config.hardware_raid_volumes.requested()) > 0 || has_arrays(config)
}

/// The snapshot has software volumes.
pub fn has_arrays(config: &RaidConfig) -> bool {
    volumes(config.software_raid_volumes.requested()) > 0
}

/// The snapshot was built. Other operators record it when they begin, and leave the state `preparing` at the end.
pub fn is_applied(status: &BareMetalHostStatus) -> bool {
    match verified(status) {
        Some(found) => ![PREPARING, ABANDONED, ERASING].contains(&found.reason.as_str()),
        None => status.provisioning.state != State::Preparing,
    }
}

fn verified(status: &BareMetalHostStatus) -> Option<&Condition> {
    status.conditions.iter().find(|one| one.type_ == CONDITION_VERIFIED)
}

fn has_reason(status: &BareMetalHostStatus, reason: &str) -> bool {
    verified(status).is_some_and(|found| found.reason == reason)
}

/// Volumes that were recorded are being erased, and nothing keeps them any more.
pub fn is_erasing(status: &BareMetalHostStatus) -> bool {
    has_reason(status, ERASING)
}

/// An inspection or the node has shown that the volumes are not what was recorded.
pub fn is_different(status: &BareMetalHostStatus) -> bool {
    has_reason(status, DIFFERS)
}

/// What was recorded and is known to be there: the root disk may be selected by it.
pub fn built(status: &BareMetalHostStatus) -> Option<&RaidConfig> {
    status.provisioning.raid.as_ref().filter(|_| is_applied(status))
}

/// The settings were removed while they were applied: no more is erased or built for them.
pub(super) fn abandon(draft: &mut Draft<'_>) {
    let message = "spec.raid was removed before the volumes were built: some of them may exist; to erase them, set the lists of spec.raid to []";
    draft.set(CONDITION_VERIFIED, "Unknown", ABANDONED, message);
}

/// Recorded before the first volume goes.
pub(super) fn begin_erasing(draft: &mut Draft<'_>) {
    draft.set(CONDITION_VERIFIED, "Unknown", ERASING, "the volumes are erased");
}

/// Nothing is left to prepare: a host may be provisioned.
pub fn is_prepared(host: &BareMetalHost, status: &BareMetalHostStatus) -> bool {
    let recorded = status.provisioning.raid.as_ref();
    match desired(host) {
        Some(wanted) => covers(recorded, &wanted) && is_applied(status),
        None => recorded.is_none() || is_applied(status) || has_reason(status, ABANDONED),
    }
}

/// Deprovisioning leaves the RAID volumes of this host alone.
pub fn is_retained(host: &BareMetalHost) -> bool {
    annotations::get(host, names::RETAIN_RAID_ANNOTATION).is_some()
}

/// Records new settings, before anything is done for them.
pub(super) fn record(draft: &mut Draft<'_>, settings: RaidConfig) {
    let applied = is_applied(&draft.status);
    let old = draft.status.provisioning.raid.take();
    draft.status.provisioning.raid = Some(snapshot(old.as_ref(), applied, settings));
    draft.set(CONDITION_VERIFIED, "Unknown", PREPARING, "the volumes are not built yet");
}

/// Nothing of it is on the host any more.
pub(super) fn forget(draft: &mut Draft<'_>) {
    draft.status.provisioning.raid = None;
    for kind in [CONDITION_VERIFIED, CONDITION_CURRENT] {
        draft.clear_condition(kind);
    }
}

/// An inspection shows the arrays, or that they are not there.
pub(super) fn seen(draft: &mut Draft<'_>, storage: &[Storage]) {
    let recorded = draft.status.provisioning.raid.as_ref().filter(|_| is_applied(&draft.status));
    if let Some(found) = recorded.and_then(|recorded| verify::compare_software(recorded, storage)) {
        show(draft, found, "an inspection found");
    }
}

/// What is worth knowing about the RAID of a host in any state.
pub(super) fn report(draft: &mut Draft<'_>) {
    let host = &draft.seen.host;
    if host.raid().is_some_and(|config| ignores_software(&config)) {
        draft.condition(
            CONDITION_ACCEPTED,
            "SoftwareRAIDIgnored",
            "spec.raid has hardware and software volumes: the hardware volumes are used, and the software volumes ignored; remove one of the two lists",
        );
    }
    let in_use = matches!(draft.state(), State::Provisioned | State::Provisioning);
    let recorded = draft.status.provisioning.raid.as_ref();
    if in_use && desired(host).is_some_and(|wanted| !covers(recorded, &wanted)) {
        draft.set(
            CONDITION_CURRENT,
            "False",
            CHANGED_WHILE_PROVISIONED,
            "spec.raid differs from status.provisioning.raid, and the RAID of a host that is in use is not changed; deprovision the host to apply it",
        );
    } else {
        draft.clear_condition(CONDITION_CURRENT);
    }
    report_unrecorded(draft);
    // Of another operator, which has no such condition: an inspection must not begin it again.
    if draft.status.provisioning.raid.is_some()
        && verified(&draft.status).is_none()
        && super::is_stable(draft.state())
    {
        draft.set(
            CONDITION_VERIFIED,
            "Unknown",
            NOT_SEEN,
            "the volumes were recorded by another operator",
        );
    }
    let Some(arrays) = draft.seen.arrays.as_ref().filter(|_| wants_arrays(host)) else { return };
    let Some(recorded) = draft.status.provisioning.raid.clone() else { return };
    show(draft, verify::compare_arrays(&recorded, arrays), "the host's node shows");
}

/// The node of the host is asked for arrays that were not seen yet.
pub fn wants_arrays(host: &BareMetalHost) -> bool {
    let Some(status) = &host.status else { return false };
    let verified = status.conditions.iter().find(|one| one.type_ == CONDITION_VERIFIED);
    status.provisioning.state == State::Provisioned
        && status.provisioning.raid.as_ref().is_some_and(has_arrays)
        && verified.is_none_or(|found| found.status != "True")
}

/// Arrays that no settings requested are worth a warning: they are shown where they are, and no step waits for them.
pub fn warns_of_arrays(host: &BareMetalHost) -> bool {
    let Some(status) = &host.status else { return false };
    status.provisioning.state == State::Provisioned
        && status.provisioning.raid.is_none()
        && !host.spec.externally_provisioned
        && !is_retained(host)
}

fn show(draft: &mut Draft<'_>, found: Result<(), String>, who: &str) {
    match found {
        Ok(()) => {
            let message = format!("{who} the arrays of status.provisioning.raid");
            draft.set(CONDITION_VERIFIED, "True", MATCHES, &message);
        }
        Err(difference) => {
            let message = format!(
                "{who} other arrays than those of status.provisioning.raid: {difference}; to build them, deprovision the host, or set spec.raid.softwareRAIDVolumes to [] and then back while the host is available"
            );
            draft.set(CONDITION_VERIFIED, "False", DIFFERS, &message);
        }
    }
}

/// Volumes that were made by hand are erased with the rest when the host is deprovisioned: said while it can be prevented.
fn report_unrecorded(draft: &mut Draft<'_>) {
    let host = &draft.seen.host;
    let concerned = matches!(draft.state(), State::Available | State::Provisioned)
        && draft.status.provisioning.raid.is_none()
        && !host.spec.externally_provisioned
        && !is_retained(host);
    let data = draft.seen.hardware_data.as_ref().and_then(|data| data.spec.hardware.as_ref());
    let hardware = data.or(draft.status.hardware.as_ref());
    let mut found: Vec<String> = hardware
        .filter(|_| concerned)
        .map_or_else(Vec::new, |hardware| verify::made_by_hand(&hardware.storage));
    // The operating system may have built some since.
    for array in draft.seen.arrays.iter().flatten().filter(|_| concerned) {
        let name = format!("/dev/{}", array.name);
        if !found.contains(&name) {
            found.push(name);
        }
    }
    if found.is_empty() {
        return draft.clear_condition(CONDITION_RECORDED);
    }
    let message = format!(
        "{} look like RAID volumes, and spec.raid does not describe them: they are erased when the host is deprovisioned; to keep them, annotate the host with {}=\"\"",
        found.join(", "),
        names::RETAIN_RAID_ANNOTATION
    );
    draft.set(CONDITION_RECORDED, "False", MADE_BY_HAND, &message);
}
