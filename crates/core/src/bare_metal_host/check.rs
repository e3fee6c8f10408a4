//! What may never be planned for a host, whatever the planner decided. Written apart from it.

use super::{IronicView, Observed, Plan, Step, raid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use quarry_api::{bare_metal_host::ProvisioningState as State, names};
use quarry_ironic::{
    Call, CleanStep, Node, ProvisionState, ProvisionTarget, secret::without_credentials,
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("a paused host is changed")]
    Paused,
    #[error("{0} is not the node of this host")]
    OtherNode(String),
    #[error("a second node is created for the host")]
    SecondNode,
    #[error("a node that runs an operating system is cleaned, inspected or undeployed")]
    ActiveNode,
    #[error("an inspection is requested before the state and the annotations of the host say so")]
    UnrecordedInspection,
    #[error("the node of a host is deleted that is neither deleted nor detached")]
    NodeDeleted,
    #[error("a host is released while Ironic has its node, or may have it")]
    ReleasedEarly,
    #[error("a HardwareData is deleted without another that replaces it")]
    HardwareLost,
    #[error("the HardwareData of a host that is in use is replaced")]
    HardwareReplaced,
    #[error("the ID of the host's node is forgotten while Ironic has the node")]
    NodeForgotten,
    #[error("a Secret is released that the host uses")]
    SecretReleased,
    #[error("a credential is written where others read it")]
    CredentialShown,
    #[error(
        "RAID is erased or built without recorded settings, and not at the end of the host's use"
    )]
    RaidWithoutSettings,
    #[error("RAID is erased although the host is used by others, or its volumes are retained")]
    RaidRetained,
    #[error("RAID is built without erasing what a run that was cut off may have left")]
    RaidBuiltOver,
    #[error("the record of RAID volumes is dropped before they are erased")]
    RaidForgotten,
    #[error(
        "an image is deployed before the host is prepared for its settings, or without a record"
    )]
    DeployedEarly,
    #[error("an image is removed that the host is not deprovisioned from")]
    Undeployed,
}

pub fn check(seen: &Observed, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    let host = &seen.host;
    let annotated =
        |name: &str| host.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(name));
    if annotated(names::PAUSED_ANNOTATION) && *plan != Plan::default() {
        found.push(Violation::Paused);
    }
    let node = match &seen.ironic {
        IronicView::Seen(seen) => seen.node.as_ref(),
        IronicView::NotAsked | IronicView::Failed(_) => None,
    };
    let deleted = host.metadata.deletion_timestamp.is_some();
    let detached = annotated(names::DETACHED_ANNOTATION);
    if let Some(call) = &plan.call {
        found.extend(check_call(call, node, deleted || detached, host.state()));
    }
    if let Some(call) = &plan.call {
        found.extend(check_raid(seen, call));
        found.extend(check_deployment(seen, call));
    }
    found.extend(check_record(seen, plan, deleted));
    let inspects =
        matches!(plan.call, Some(Call::SetProvisionState { target: ProvisionTarget::Inspect, .. }));
    // In `preparing` the BMC is asked for its drives, which reboots nothing.
    let asks_bmc = host.state() == State::Preparing
        && node.is_some_and(|node| node.inspect_interface.as_deref() != Some("agent"));
    let requested = annotated(names::INSPECT_ANNOTATION)
        && !plan.steps.iter().any(|step| matches!(step, Step::RecordInspection(_)));
    if inspects && !asks_bmc && (host.state() != State::Inspecting || requested) {
        found.push(Violation::UnrecordedInspection);
    }
    let steps = || plan.steps.iter().chain(&plan.after);
    let releases = steps().any(|step| matches!(step, Step::RemoveFinalizer));
    let deletes = steps().any(|step| matches!(step, Step::DeleteHardwareData));
    let creates = steps().any(|step| matches!(step, Step::CreateHardwareData(_)));
    let asked = matches!(seen.ironic, IronicView::Seen(_));
    let was_managed = host.status.as_ref().is_some_and(|status| !status.provisioning.id.is_empty());
    let surely_gone = node.is_none() && (asked || !was_managed);
    // As often as upstream tries, and all of them without Ironic.
    let gone_for_good = matches!(seen.ironic, IronicView::Failed(_))
        && host.status.as_ref().is_some_and(|status| {
            let away = |one: &Condition| one.type_ == super::CONDITION_IRONIC;
            status.error_count > 3 && status.conditions.iter().any(away)
        });
    if releases && !(deleted && (surely_gone || detached || gone_for_good)) {
        found.push(Violation::ReleasedEarly);
    }
    if deletes && !creates && !deleted {
        found.push(Violation::HardwareLost);
    }
    let in_use = matches!(
        host.state(),
        State::Provisioned | State::ExternallyProvisioned | State::Provisioning
    );
    if in_use && (deletes || creates) && !deleted && !annotated(names::HARDWARE_DETAILS_ANNOTATION)
    {
        found.push(Violation::HardwareReplaced);
    }
    if let Some(status) = &plan.status
        && node.is_some()
        && status.provisioning.id.is_empty()
        && was_managed
    {
        found.push(Violation::NodeForgotten);
    }
    let named = host.bmc().map(|bmc| bmc.credentials_name.as_str());
    let releases_used = steps().any(|step| match step {
        Step::ReleaseFormerSecret(name) => Some(name.as_str()) == named,
        Step::ReleaseSecret => !deleted,
        _ => false,
    });
    if releases_used {
        found.push(Violation::SecretReleased);
    }
    if shows_credential(seen, plan) {
        found.push(Violation::CredentialShown);
    }
    found
}

/// Cleanings that touch RAID, and their settings.
fn check_raid(seen: &Observed, call: &Call) -> Vec<Violation> {
    let host = &seen.host;
    let steps: &[CleanStep] = match call {
        Call::SetProvisionState { target: ProvisionTarget::Clean { steps }, .. } => steps,
        Call::SetRaid { .. } => &[],
        _ => return Vec::new(),
    };
    let recorded = host.status.as_ref().and_then(|status| status.provisioning.raid.as_ref());
    let mut found = Vec::new();
    match host.state() {
        // The record was written before: it is in the host that was observed.
        State::Preparing
            if recorded.is_some()
                && raid::desired(host).is_some()
                && !host.spec.externally_provisioned => {}
        State::Deprovisioning if matches!(call, Call::SetProvisionState { .. }) => {
            let builds = steps.iter().any(|step| step.step == "create_configuration");
            found.extend(builds.then_some(Violation::RaidWithoutSettings));
            let annotations = host.metadata.annotations.as_ref();
            let retained =
                annotations.is_some_and(|all| all.contains_key(names::RETAIN_RAID_ANNOTATION));
            let deletes = steps.iter().any(|step| step.step == "delete_configuration");
            let in_use = host.spec.externally_provisioned;
            // What is erased in part is erased.
            let begun = host.status.as_ref().is_some_and(raid::is_erasing);
            found.extend(
                (retained && deletes && !begun || in_use).then_some(Violation::RaidRetained),
            );
        }
        _ => found.push(Violation::RaidWithoutSettings),
    }
    let position = |name: &str| steps.iter().position(|step| step.step == name);
    let built = position("create_configuration");
    if built.is_some_and(|built| position("delete_configuration").is_none_or(|at| at > built)) {
        found.push(Violation::RaidBuiltOver);
    }
    found
}

fn check_deployment(seen: &Observed, call: &Call) -> Option<Violation> {
    let host = &seen.host;
    let Call::SetProvisionState { target, .. } = call else { return None };
    let status = host.status.as_ref();
    let recorded = status.is_some_and(|status| !status.provisioning.image.url.is_empty());
    match target {
        ProvisionTarget::Active { .. } | ProvisionTarget::Provide => {
            // The settings may have changed since it began: the record says whether it is built.
            let unfinished = [raid::PREPARING, raid::ERASING];
            let prepared = status.is_some_and(|status| {
                let mut all = status.conditions.iter();
                !all.any(|one| {
                    one.type_ == raid::CONDITION_VERIFIED
                        && unfinished.contains(&one.reason.as_str())
                })
            });
            let ready = host.state() == State::Provisioning && recorded && prepared;
            (!ready).then_some(Violation::DeployedEarly)
        }
        ProvisionTarget::Deleted => {
            let ends = host.state() == State::Deprovisioning && !host.spec.externally_provisioned;
            (!ends).then_some(Violation::Undeployed)
        }
        _ => None,
    }
}

/// `status.provisioning.raid` outlives the volumes, and a host is provisioned only with the settings of now.
fn check_record(seen: &Observed, plan: &Plan, deleted: bool) -> Vec<Violation> {
    let (host, mut found) = (&seen.host, Vec::new());
    let old = host.status.as_ref().and_then(|status| status.provisioning.raid.as_ref());
    let Some(new) = plan.status.as_deref() else { return found };
    let lost = old.is_some_and(raid::has_volumes) && new.provisioning.raid.is_none();
    if lost && host.state() != State::Deprovisioning {
        found.push(Violation::RaidForgotten);
    }
    let begins =
        new.provisioning.state == State::Provisioning && host.state() != State::Provisioning;
    if begins && (deleted || !raid::is_prepared(host, new)) {
        found.push(Violation::DeployedEarly);
    }
    found
}

fn check_call(call: &Call, node: Option<&Node>, may_delete: bool, state: State) -> Vec<Violation> {
    let mut found = Vec::new();
    let id = match call {
        Call::CreateNode(_) => {
            if node.is_some() {
                found.push(Violation::SecondNode);
            }
            None
        }
        Call::DeleteNode { id }
        | Call::PatchNode { id, .. }
        | Call::SetProvisionState { id, .. }
        | Call::SetPower { id, .. }
        | Call::SetRaid { id, .. }
        | Call::SetMaintenance { id, .. }
        | Call::ClearMaintenance { id } => Some(id),
        Call::CreatePort(port) => Some(&port.node_uuid),
        Call::DeletePort { .. } => None,
    };
    if let Some(id) = id.filter(|id| node.is_none_or(|node| node.uuid != **id)) {
        found.push(Violation::OtherNode(id.clone()));
    }
    if matches!(call, Call::DeleteNode { .. }) && !may_delete {
        found.push(Violation::NodeDeleted);
    }
    let runs = node.is_some_and(|node| {
        matches!(
            node.provision_state,
            ProvisionState::Active
                | ProvisionState::Deploying
                | ProvisionState::DeployWait
                | ProvisionState::DeployHold
                | ProvisionState::Servicing
                | ProvisionState::ServiceWait
        )
    });
    if let Call::SetProvisionState { target, .. } = call
        && runs
    {
        match target {
            ProvisionTarget::Adopt | ProvisionTarget::Abort => {}
            ProvisionTarget::Deleted if state == State::Deprovisioning => {}
            ProvisionTarget::Manage
            | ProvisionTarget::Provide
            | ProvisionTarget::Inspect
            | ProvisionTarget::Clean { .. }
            | ProvisionTarget::Active { .. }
            | ProvisionTarget::Deleted => found.push(Violation::ActiveNode),
        }
    }
    found
}

/// What must not be shown.
pub(super) fn passwords(seen: &Observed) -> Vec<String> {
    let data = seen.secret.iter().filter_map(|secret| secret.data.as_ref());
    data.filter_map(|data| data.get("password"))
        .filter_map(|value| String::from_utf8(value.0.clone()).ok())
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
        .collect()
}

/// In the status or an Event.
fn shows_credential(seen: &Observed, plan: &Plan) -> bool {
    let secrets = passwords(seen);
    let mut texts: Vec<&str> = plan.events.iter().map(|event| event.message.as_str()).collect();
    let status = plan.status.as_deref();
    texts.extend(status.map(|status| status.error_message.as_str()));
    texts.extend(
        status.iter().flat_map(|status| &status.conditions).map(|one| one.message.as_str()),
    );
    // A short one is found in any text by chance: only as a whole word.
    texts.iter().any(|text| without_credentials(text, &secrets) != without_credentials(text, &[]))
}
