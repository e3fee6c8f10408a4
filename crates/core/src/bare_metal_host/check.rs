//! What may never be planned for a host, whatever the planner decided. Written apart from it.

use super::{IronicView, Observed, Plan, Step};
use quarry_api::{bare_metal_host::ProvisioningState as State, names};
use quarry_ironic::{Call, Node, ProvisionState, ProvisionTarget};

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
        found.extend(check_call(call, node, deleted || detached));
    }
    let inspects =
        matches!(plan.call, Some(Call::SetProvisionState { target: ProvisionTarget::Inspect, .. }));
    let requested = annotated(names::INSPECT_ANNOTATION)
        && !plan.steps.iter().any(|step| matches!(step, Step::RecordInspection(_)));
    if inspects && (host.state() != State::Inspecting || requested) {
        found.push(Violation::UnrecordedInspection);
    }
    let steps = || plan.steps.iter().chain(&plan.after);
    let releases = steps().any(|step| matches!(step, Step::RemoveFinalizer));
    let deletes = steps().any(|step| matches!(step, Step::DeleteHardwareData));
    let creates = steps().any(|step| matches!(step, Step::CreateHardwareData(_)));
    let asked = matches!(seen.ironic, IronicView::Seen(_));
    let was_managed = host.status.as_ref().is_some_and(|status| !status.provisioning.id.is_empty());
    let surely_gone = node.is_none() && (asked || !was_managed);
    if releases && !(deleted && (surely_gone || detached)) {
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

fn check_call(call: &Call, node: Option<&Node>, may_delete: bool) -> Vec<Violation> {
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

/// What must not be shown. A short word would be found in any text by chance.
pub(super) fn passwords(seen: &Observed) -> Vec<String> {
    let data = seen.secret.iter().filter_map(|secret| secret.data.as_ref());
    data.filter_map(|data| data.get("password"))
        .filter_map(|value| String::from_utf8(value.0.clone()).ok())
        .map(|text| text.trim().to_owned())
        .filter(|text| text.len() >= 6)
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
    secrets.iter().any(|secret| texts.iter().any(|text| text.contains(secret)))
}
