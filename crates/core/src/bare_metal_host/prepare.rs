//! The state `preparing`: RAID is built, on explicit settings only.
//!
//! Settings are validated, then recorded with the disks that were picked, then built from the record. A host leaves this
//! state when its volumes are what was recorded.

use super::{
    IronicView, annotations,
    clean::{self, Mark, POLL},
    driver::{self, HardwareRaid},
    power,
    raid::{self, phases, pick, verify},
    register::keep_waiting,
    state_machine,
    status::{Draft, Flow},
};
use jiff::SignedDuration;
use quarry_api::{
    BareMetalHost,
    bare_metal_host::{ErrorType, ProvisioningState as State, RaidConfig},
    node_job::hex_digest,
};
use quarry_ironic::{Call, Node, PatchOp, ProvisionState, ProvisionTarget};

const KIND: ErrorType = ErrorType::Preparation;
const AT_ONCE: SignedDuration = SignedDuration::ZERO;
/// The phase in which the BMC lists its drives.
pub(super) const DRIVES: &str = "drives";

/// What a BMC lists is read only where it is used.
pub(super) fn wants_drives(host: &BareMetalHost, node: &Node) -> bool {
    let reported = host.status.as_ref().is_some_and(|status| !status.error_message.is_empty());
    host.state() == State::Preparing
        && !reported
        && node.provision_state == ProvisionState::Manageable
        && Mark::of(node).is_some_and(|mark| mark.phase == DRIVES && mark.is_past(node))
}

/// What Ironic knows of the hardware is the list of drives, and no inspection.
pub(super) fn is_list_of_drives(node: &Node) -> bool {
    Mark::of(node).is_some_and(|mark| mark.phase == DRIVES)
}

/// The interface of a later inspection, after the BMC was asked for its drives.
pub(super) fn restored_inspection(node: &Node) -> Option<PatchOp> {
    let is_other = node.inspect_interface.as_deref().is_some_and(|one| one != "agent");
    is_other.then(|| PatchOp::add("/inspect_interface", "agent"))
}

/// `Continue` when the host is available.
pub(super) fn prepare(draft: &mut Draft<'_>) -> Flow {
    let host = &draft.seen.host;
    let Some(node) = draft.node() else { return Flow::Stop };
    if matches!(node.provision_state, ProvisionState::Cleaning | ProvisionState::CleanWait) {
        draft.clear_error();
        return clean::poll(draft);
    }
    if host.spec.externally_provisioned {
        draft.enter(State::ExternallyProvisioned);
        return Flow::Continue;
    }
    // The state first: what is requested in it must be found in it.
    if host.state() != State::Preparing && !raid::is_prepared(host, &draft.status) {
        return draft.again_in(AT_ONCE);
    }
    let problems = raid::problems(host);
    if !problems.is_empty() {
        return refuse(draft, &problems.join("; "));
    }
    let hardware = host.bmc().and_then(driver::hardware_raid);
    let recorded = draft.status.provisioning.raid.clone();
    let applied = raid::is_applied(&draft.status);
    if let Some(settings) = raid::desired(host)
        && (!raid::covers(recorded.as_ref(), &settings)
            || !applied && raid::exceeds(recorded.as_ref(), &settings))
    {
        return record(draft, node, hardware, settings);
    }
    if let Some(recorded) = &recorded
        && !applied
    {
        if raid::desired(host).is_none() {
            raid::abandon(draft);
            draft.enter(State::Available);
            return Flow::Continue;
        }
        let hinted = super::raid_rules::has_hints(host);
        let phases = phases::building(recorded, hardware, hinted);
        let run = run_of(host, recorded);
        if clean::run(draft, &KIND, &run, &phases) == Flow::Stop {
            return Flow::Stop;
        }
        if let Err(difference) = built(recorded, node) {
            return differs(draft, node, &difference);
        }
        report_built(draft, recorded, node);
    }
    draft.enter(State::Available);
    Flow::Continue
}

/// The same settings are the same run: a restart finds what it began.
fn run_of(host: &BareMetalHost, recorded: &RaidConfig) -> String {
    let uid = host.metadata.uid.as_deref().unwrap_or_default();
    let settings = serde_json::to_string(recorded).unwrap_or_default();
    hex_digest(&["prepare", uid, &settings])
}

/// Nothing is requested for invalid settings, and nothing repeated until they change. Power and inspection go on.
fn refuse(draft: &mut Draft<'_>, problem: &str) -> Flow {
    draft.refuse(KIND, problem);
    if annotations::asks_for_inspection(&draft.seen.host) {
        draft.enter(State::Inspecting);
        return draft.again_in(AT_ONCE);
    }
    power::switch(draft)
}

fn record(
    draft: &mut Draft<'_>,
    node: &Node,
    hardware: Option<&HardwareRaid>,
    settings: RaidConfig,
) -> Flow {
    let settings = match hardware.filter(|_| pick::is_needed(&settings)) {
        None => settings,
        Some(hardware) => match drives(draft, node, hardware, settings) {
            Ok(settings) => settings,
            Err(flow) => return flow,
        },
    };
    // Ironic still shows the failure of the settings before these.
    draft.carry_on(&KIND);
    raid::record(draft, settings);
    draft.again_in(AT_ONCE)
}

/// The settings with the disks that the BMC lists. `Err`: the list is not there yet.
fn drives(
    draft: &mut Draft<'_>,
    node: &Node,
    hardware: &HardwareRaid,
    settings: RaidConfig,
) -> Result<RaidConfig, Flow> {
    let id = node.uuid.clone();
    let mark = Mark::of(node).filter(|mark| mark.phase == DRIVES);
    match node.provision_state {
        ProvisionState::Manageable => {}
        ProvisionState::Available => {
            let target = ProvisionTarget::Manage;
            return Err(draft.call(Call::SetProvisionState { id, target }, AT_ONCE));
        }
        ProvisionState::Inspecting | ProvisionState::InspectWait => {
            draft.clear_error();
            return Err(draft.again_in(POLL));
        }
        ProvisionState::InspectFailed if mark.is_some() => {
            return Err(not_listed(draft, node));
        }
        _ if state_machine::has_failed(node) => return Err(state_machine::recover(draft, node)),
        _ => return Err(state_machine::unexpected(draft, node, power::AT_REST)),
    }
    match mark.map(|mark| mark.is_past(node)) {
        // Refused for what the BMC listed: with other settings it is asked again.
        Some(true) if draft.has_reported(&KIND) => {
            if draft.is_changed() {
                return Err(clean::again(draft, &KIND, node));
            }
            let message = draft.status.error_message.clone();
            Err(refuse(draft, &message))
        }
        Some(true) => {
            let IronicView::Seen(seen) = &draft.seen.ironic else { return Err(Flow::Stop) };
            let Some(inventory) = &seen.inventory else { return Err(draft.again_in(AT_ONCE)) };
            let found = &inventory.storage_controllers;
            pick::pick(settings, found).map_err(|problem| refuse(draft, &problem))
        }
        Some(false) => {
            // What fails from here on is this attempt.
            draft.clear_error();
            let target = ProvisionTarget::Inspect;
            Err(draft.call(Call::SetProvisionState { id, target }, POLL))
        }
        None => {
            draft.carry_on(&KIND);
            let mut ops = Vec::new();
            if node.inspect_interface.as_deref() != Some(hardware.inspect) {
                ops.push(PatchOp::add("/inspect_interface", hardware.inspect));
            }
            ops.push(Mark::announce(node, DRIVES));
            Err(draft.call(Call::PatchNode { id, ops }, AT_ONCE))
        }
    }
}

/// How often a BMC is asked for its drives: it may only be busy.
const LISTINGS: i64 = 3;

/// The BMC does not list its drives: after a few attempts nothing is repeated until the settings change.
fn not_listed(draft: &mut Draft<'_>, node: &Node) -> Flow {
    if !draft.has_error(&KIND) {
        let Some(error) = state_machine::error_of(draft, node) else { return draft.again_in(POLL) };
        let next = match draft.status.error_count + 1 < LISTINGS {
            true => "it is asked again",
            false => "it is not asked again until spec.raid changes",
        };
        return draft.fail(KIND, format!("spec.raid.hardwareRAIDVolumes leaves the disks open, and the BMC does not list its drives: {error}; name controller and physicalDisks, or set sizeGibibytes; {next}"));
    }
    if draft.status.error_count >= LISTINGS && draft.has_reported(&KIND) && !draft.is_changed() {
        let message = draft.status.error_message.clone();
        return refuse(draft, &message);
    }
    if !draft.may_retry(&KIND) {
        return keep_waiting(draft, KIND);
    }
    draft.carry_on(&KIND);
    match Mark::remove(node) {
        Some(op) => {
            let call = Call::PatchNode { id: node.uuid.clone(), ops: vec![op] };
            draft.call(call, AT_ONCE)
        }
        None => state_machine::recover(draft, node),
    }
}

/// What Ironic recorded of the last phase.
fn built(recorded: &RaidConfig, node: &Node) -> Result<(), String> {
    let found = node.raid().map_err(|error| format!("raid_config cannot be read: {error}"))?;
    if let Some(volumes) = recorded.hardware_raid_volumes.requested()
        && !raid::has_arrays(recorded)
    {
        return verify::compare_hardware(volumes, &found.logical_disks);
    }
    let arrays = recorded.software_raid_volumes.requested().unwrap_or_default();
    match found.logical_disks.len() == arrays.len() {
        true => Ok(()),
        false => Err(format!("Ironic recorded {} arrays", found.logical_disks.len())),
    }
}

/// The volumes are not those of the snapshot: built again, after a backoff.
fn differs(draft: &mut Draft<'_>, node: &Node, difference: &str) -> Flow {
    // Not applied, so that it is built again.
    draft.set(raid::CONDITION_VERIFIED, "False", raid::PREPARING, difference);
    if !draft.has_error(&KIND) {
        return draft.fail(KIND, format!("Ironic reports RAID volumes other than those in status.provisioning.raid: {difference}; they are built again"));
    }
    clean::again(draft, &KIND, node)
}

fn report_built(draft: &mut Draft<'_>, recorded: &RaidConfig, node: &Node) {
    match raid::has_arrays(recorded) {
        true => draft.set(
            raid::CONDITION_VERIFIED,
            "Unknown",
            raid::NOT_SEEN,
            "Ironic has built the arrays and does not look at them; an inspection or the host's node shows them",
        ),
        false => {
            let found = node.raid().map(|found| found.logical_disks).unwrap_or_default();
            let found: Vec<String> = found.iter().map(verify::describe_reported).collect();
            let found = if found.is_empty() { "no volumes".to_owned() } else { found.join("; ") };
            let message = format!("{}{found}", raid::REPORTED);
            draft.set(raid::CONDITION_VERIFIED, "True", raid::MATCHES, &message);
        }
    }
    draft.event("PreparationComplete", "RAID is built as recorded in status.provisioning.raid");
}
