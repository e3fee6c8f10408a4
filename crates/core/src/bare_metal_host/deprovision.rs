//! The state `deprovisioning`: the image is removed, and with it the RAID of the host, whatever made it.
//!
//! Also entered when a host is deleted that was provisioned or prepared. `quarry.dev/retain-raid` leaves the volumes; a
//! host that was provisioned by other means is never erased. The record of the volumes goes in the write that ends it.

use super::{
    clean::{self, Mark, POLL},
    driver, raid,
    raid::phases::{self, Phase},
    register::keep_waiting,
    state_machine,
    status::{Draft, Flow},
};
use crate::event::PendingEvent;
use quarry_api::bare_metal_host::{ErrorType, Image, ProvisioningState as State};
use quarry_api::node_job::hex_digest;
use quarry_ironic::{Call, Node, ProvisionState, ProvisionTarget};

const KIND: ErrorType = ErrorType::Provisioning;
/// A host that is deleted goes after this many failures; as upstream.
pub(super) const TRIES: i64 = 3;

/// What is erased, in this order. Empty: nothing may be.
pub(super) fn phases(draft: &Draft<'_>) -> Vec<Phase> {
    let host = &draft.seen.host;
    if host.spec.externally_provisioned {
        return Vec::new();
    }
    let hardware = host.bmc().and_then(driver::hardware_raid);
    if is_retained(draft) {
        // Ironic erases the metadata when it removes an image. A node that it had lost was never undeployed.
        let lost =
            draft.node().is_some_and(|node| node.provision_state != ProvisionState::Available);
        let cleaned = super::register::is_cleaned(host);
        let deployed = !draft.status.provisioning.image.url.is_empty();
        let tried = draft.status.error_count > TRIES;
        return match lost && cleaned && deployed && !tried {
            true => phases::retaining(hardware),
            false => Vec::new(),
        };
    }
    phases::erasing(hardware)
}

/// The volumes stay, unless some of them are erased already.
fn is_retained(draft: &Draft<'_>) -> bool {
    raid::is_retained(&draft.seen.host) && !raid::is_erasing(&draft.status)
}

/// Each deprovisioning is a run of its own: what an earlier one erased does not count.
fn run_of(draft: &Draft<'_>) -> String {
    let uid = draft.seen.host.metadata.uid.as_deref().unwrap_or_default();
    let start = draft.status.operation_history.deprovision.start.as_ref();
    let start = start.map(|time| time.0.to_string()).unwrap_or_default();
    hex_digest(&["deprovision", uid, &start])
}

/// `Continue` when it has ended.
pub(super) fn deprovision(draft: &mut Draft<'_>) -> Flow {
    if gives_up(draft) {
        report_left(draft);
        leave(draft);
        return Flow::Continue;
    }
    let Some(node) = draft.node() else {
        if !draft.is_deleted() {
            return Flow::Stop;
        }
        // Neither a node nor a BMC to register one with.
        report_left(draft);
        leave(draft);
        return Flow::Continue;
    };
    let id = node.uuid.clone();
    let phases = phases(draft);
    let run = run_of(draft);
    match node.provision_state {
        ProvisionState::Active
        | ProvisionState::DeployWait
        | ProvisionState::DeployFailed
        | ProvisionState::Error => undeploy(draft, node),
        ProvisionState::Deploying
        | ProvisionState::Deleting
        | ProvisionState::Inspecting
        | ProvisionState::Adopting => draft.again_in(POLL),
        // A ramdisk that builds RAID for a host that is deleted. Automated cleaning, which ends at `available`, goes on.
        ProvisionState::CleanWait | ProvisionState::InspectWait
            if draft.is_deleted()
                && node.target_provision_state == Some(ProvisionState::Manageable)
                && !is_erasing(node, &run, &phases) =>
        {
            let target = ProvisionTarget::Abort;
            draft.call(Call::SetProvisionState { id, target }, POLL)
        }
        ProvisionState::InspectWait => draft.again_in(POLL),
        _ if begins_erasing(draft, &phases) => {
            raid::begin_erasing(draft);
            draft.again_in(jiff::SignedDuration::ZERO)
        }
        _ => match clean::run(draft, &KIND, &run, &phases) {
            Flow::Stop => Flow::Stop,
            Flow::Continue => end(draft),
        },
    }
}

/// Recorded first: an annotation that comes too late must not keep a record of volumes that are gone.
fn begins_erasing(draft: &Draft<'_>, phases: &[Phase]) -> bool {
    !phases.is_empty()
        && !is_retained(draft)
        && draft.status.provisioning.raid.is_some()
        && !raid::is_erasing(&draft.status)
}

fn is_erasing(node: &Node, run: &str, phases: &[Phase]) -> bool {
    Mark::of(node).is_some_and(|mark| phases.iter().any(|phase| phase.key(run) == mark.phase))
}

fn undeploy(draft: &mut Draft<'_>, node: &Node) -> Flow {
    let failed = node.provision_state == ProvisionState::Error;
    if failed && !draft.has_error(&KIND) {
        let Some(error) = state_machine::error_of(draft, node) else { return draft.again_in(POLL) };
        return draft.fail(KIND, error);
    }
    if !draft.may_retry(&KIND) {
        return keep_waiting(draft, KIND);
    }
    if let Some(flow) = clean::maintenance(draft, &KIND, node) {
        return flow;
    }
    if !clean::has_room(draft) {
        return Flow::Stop;
    }
    draft.clear_error();
    draft.event("DeprovisioningStarted", "Image deprovisioning started");
    let target = ProvisionTarget::Deleted;
    draft.call(Call::SetProvisionState { id: node.uuid.clone(), target }, POLL)
}

fn end(draft: &mut Draft<'_>) -> Flow {
    draft.event("DeprovisioningComplete", "Image deprovisioning completed");
    if !is_retained(draft) && !draft.seen.host.spec.externally_provisioned {
        raid::forget(draft);
    }
    leave(draft);
    Flow::Continue
}

fn leave(draft: &mut Draft<'_>) {
    let provisioning = &mut draft.status.provisioning;
    provisioning.image = Image::default();
    provisioning.root_device_hints = None;
    provisioning.custom_deploy = None;
    draft.enter(match draft.is_deleted() {
        true => State::PoweringOffBeforeDelete,
        false => State::Available,
    });
}

/// A host that is deleted and cannot be erased goes all the same, and an Event says what stays.
pub(super) fn gives_up(draft: &Draft<'_>) -> bool {
    draft.is_deleted() && draft.status.error_count > TRIES
}

/// What stays on the machine of a host that is released without being erased.
pub(super) fn report_left(draft: &mut Draft<'_>) {
    let image = &draft.status.provisioning.image.url;
    let mut left = Vec::new();
    if !image.is_empty() {
        left.push(format!("the image {image}"));
    }
    let recorded = draft.status.provisioning.raid.as_ref();
    if let Some(raid) = recorded.filter(|raid| raid::has_volumes(raid)) {
        let count = |list: Option<usize>, kind: &str| {
            list.filter(|count| *count > 0).map(|count| format!("{count} {kind} RAID volumes"))
        };
        let hardware = raid.hardware_raid_volumes.requested().map(<[_]>::len);
        let software = raid.software_raid_volumes.requested().map(<[_]>::len);
        left.extend(count(hardware, "hardware"));
        left.extend(count(software, "software"));
    } else if !image.is_empty() {
        left.push("any RAID volumes".to_owned());
    }
    if left.is_empty() {
        return;
    }
    let error = &draft.status.error_message;
    let message = format!(
        "the host is deleted without being erased: {} stay on the machine; the last error was: {error}",
        left.join(" and ")
    );
    draft.events.push(PendingEvent { warning: true, reason: "NotErased", message });
}
