//! The HardwareData of a host: created when an inspection ends, rebuilt from the status, kept in step with it.
//!
//! It wins over `status.hardware`, which is left out where it does not fit, and never shortened.

use super::{
    Step, annotations,
    status::{CONDITION_HARDWARE_DATA, Draft},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt};
use quarry_api::{
    BareMetalHost, HardwareData, HardwareDataSpec,
    bare_metal_host::{HardwareDetails, ProvisioningState as State},
    names,
};

/// Bytes of JSON. etcd refuses requests above 1.5 MiB; names, owner references and the request itself need some.
pub const HARDWARE_DATA_LIMIT: usize = 1_400_000;
/// Bytes of JSON. The host has a spec, a status and `managedFields` besides.
pub const STATUS_HARDWARE_LIMIT: usize = 1_000_000;

/// The reason of `quarry.dev/HardwareDataStored` for hardware that no object can contain.
const TOO_LARGE: &str = "TooLarge";

pub(super) fn size(hardware: &HardwareDetails) -> usize {
    serde_json::to_vec(hardware).map_or(usize::MAX, |json| json.len())
}

pub(super) fn build(host: &BareMetalHost, hardware: HardwareDetails) -> HardwareData {
    let mut made =
        HardwareData::new(&host.name_any(), HardwareDataSpec { hardware: Some(hardware) });
    made.metadata.namespace = host.namespace();
    made.metadata.finalizers = Some(vec![names::HARDWARE_DATA_FINALIZER.to_owned()]);
    made.metadata.owner_references = host.controller_owner_ref(&()).map(|owner| vec![owner]);
    made
}

pub(super) fn is_claimed(data: &HardwareData, host: &BareMetalHost) -> bool {
    data.finalizers().iter().any(|one| one == names::HARDWARE_DATA_FINALIZER)
        && data.owner_references().iter().any(|owner| Some(&owner.uid) == host.uid().as_ref())
}

/// What an inspection, or an annotation, found. An older HardwareData is replaced: its spec is immutable.
pub(super) fn store(draft: &mut Draft<'_>, hardware: &HardwareDetails) {
    let host = &draft.seen.host;
    let old = draft.seen.hardware_data.as_ref();
    let same = old.is_some_and(|old| old.spec.hardware.as_ref() == Some(hardware));
    let bytes = size(hardware);
    if bytes > HARDWARE_DATA_LIMIT {
        return keep_old(draft, hardware, bytes);
    }
    draft.clear_condition(CONDITION_HARDWARE_DATA);
    if !same {
        if old.is_some() {
            draft.steps.extend([Step::ReleaseHardwareData, Step::DeleteHardwareData]);
        }
        let made = Box::new(build(host, hardware.clone()));
        draft.steps.push(Step::CreateHardwareData(made));
    }
    copy_to_status(draft, hardware);
}

/// No object can contain what was found. An older HardwareData stays, and the report says of when it is: what was true
/// once helps more than nothing.
fn keep_old(draft: &mut Draft<'_>, found: &HardwareDetails, bytes: usize) {
    let old = draft.seen.hardware_data.as_ref();
    let stored = match old {
        Some(_) => "the HardwareData stays as an earlier inspection found it",
        None => "no HardwareData is created",
    };
    let message = format!(
        "the hardware has {} disks and {} network interfaces, {bytes} bytes in all, and an object can contain {HARDWARE_DATA_LIMIT}: {stored}; present fewer disks to the host, such as by zoning of the storage network, then annotate it with {}=\"\"",
        found.storage.len(),
        found.nics.len(),
        names::INSPECT_ANNOTATION,
    );
    match old.and_then(|old| old.spec.hardware.as_ref()) {
        Some(hardware) => copy_to_status(draft, hardware),
        None => draft.status.hardware = None,
    }
    // Its time is that of this inspection: what is stored later is not older than it.
    draft.clear_condition(CONDITION_HARDWARE_DATA);
    draft.condition(CONDITION_HARDWARE_DATA, TOO_LARGE, &message);
}

fn copy_to_status(draft: &mut Draft<'_>, hardware: &HardwareDetails) {
    let bytes = size(hardware);
    if bytes <= STATUS_HARDWARE_LIMIT {
        draft.status.hardware = Some(hardware.clone());
        return;
    }
    draft.status.hardware = None;
    let message = format!(
        "status.hardware is left out: the hardware takes {bytes} bytes, and {STATUS_HARDWARE_LIMIT} fit; read HardwareData {} instead",
        draft.seen.host.name_any()
    );
    draft.condition(CONDITION_HARDWARE_DATA, "StatusOmitted", &message);
}

/// Copies in both directions: one that was restored or moved here without the other, or is of another version.
pub(super) fn synchronize(draft: &mut Draft<'_>) {
    let host = &draft.seen.host;
    let Some(data) = &draft.seen.hardware_data else { return rebuild(draft) };
    if data.metadata.deletion_timestamp.is_some() {
        // Deleted by hand: it goes, and is rebuilt from the status.
        if data.finalizers().iter().any(|one| is_ours(one)) && may_rebuild(draft) {
            draft.steps.push(Step::ReleaseHardwareData);
        } else if super::is_stable(draft.state()) {
            let message = "the HardwareData is deleted, and waits: a host that is in use is not inspected again; save the object, then remove its finalizer baremetalhost.metal3.io/hardwareData, and create it again from the copy";
            draft.condition(CONDITION_HARDWARE_DATA, "Deleted", message);
        }
        return;
    }
    // One that was created by hand instead of an inspection belongs to its creator.
    if !is_claimed(data, host) && !annotations::is_inspection_disabled(host) {
        draft.steps.push(Step::ClaimHardwareData);
    }
    let reported = draft.found_condition(CONDITION_HARDWARE_DATA).cloned();
    let outdated =
        reported.filter(|reported| reported.reason == TOO_LARGE && is_older(data, reported));
    if let Some(hardware) = data.spec.hardware.as_ref()
        && draft.status.hardware.as_ref() != Some(hardware)
        && (outdated.is_none() || size(hardware) <= STATUS_HARDWARE_LIMIT)
    {
        copy_to_status(draft, hardware);
    }
    let is_stale = draft
        .found_condition(CONDITION_HARDWARE_DATA)
        .is_some_and(|one| one.reason != "StatusOmitted");
    if is_stale && outdated.is_none() {
        draft.clear_condition(CONDITION_HARDWARE_DATA);
    }
}

/// It was stored before the report: the inspection that is reported did not find it.
fn is_older(data: &HardwareData, report: &Condition) -> bool {
    let created = data.metadata.creation_timestamp.as_ref();
    created.is_none_or(|created| created.0 <= report.last_transition_time.0)
}

/// The finalizers that this operator and the design before it use.
pub fn is_ours(finalizer: &str) -> bool {
    [names::HARDWARE_DATA_FINALIZER, names::HOST_FINALIZER].contains(&finalizer)
}

/// Only where the status is certainly that of the machine now.
fn may_rebuild(draft: &Draft<'_>) -> bool {
    matches!(draft.state(), State::Available | State::Ready | State::Inspecting)
}

fn rebuild(draft: &mut Draft<'_>) {
    let host = &draft.seen.host;
    // From the annotation.
    if draft.steps.iter().any(|step| matches!(step, Step::CreateHardwareData(_))) {
        return;
    }
    let in_use = matches!(
        draft.state(),
        State::Provisioned | State::ExternallyProvisioned | State::Provisioning
    );
    if in_use && draft.status.operation_history.inspect.end.is_some() {
        let message = "the HardwareData of this host is missing, and a host that is in use is not inspected; restore it from a backup, or deprovision the host";
        draft.condition(CONDITION_HARDWARE_DATA, "Missing", message);
        return;
    }
    let available = matches!(draft.state(), State::Available | State::Ready);
    let Some(hardware) = draft.status.hardware.clone().filter(|_| available) else { return };
    if size(&hardware) <= HARDWARE_DATA_LIMIT && !draft.is_deleted() {
        draft.steps.push(Step::CreateHardwareData(Box::new(build(host, hardware))));
        draft.event("HardwareDataRebuilt", "Created HardwareData from status.hardware");
    }
}

/// An inspection has found more than any object can contain: another one would find the same.
pub(super) fn is_too_large(draft: &Draft<'_>) -> bool {
    draft.found_condition(CONDITION_HARDWARE_DATA).is_some_and(|one| one.reason == TOO_LARGE)
}
