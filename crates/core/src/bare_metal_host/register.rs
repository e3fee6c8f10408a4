//! The node of a host in Ironic: created, found again, kept as the spec says, with credentials that work.
//!
//! Asked in every state: a database that was lost, a node that was deleted or renamed by hand, a new password or a new
//! address of the BMC are all repaired here.

use super::{
    IronicView, Step, driver,
    driver::Driver,
    port, secret,
    status::{CONDITION_ACCEPTED, CONDITION_CREDENTIALS, Draft, Flow, error_type},
};
use crate::event::PendingEvent;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use quarry_api::{
    BareMetalHost,
    bare_metal_host::{
        AutomatedCleaningMode, CredentialsStatus, ErrorType, ProvisioningState as State,
    },
    names,
};
use quarry_ironic::{Call, NewNode, NewPort, Node, PatchOp, ProvisionState, ProvisionTarget};

/// Ironic verifies credentials in seconds.
const VERIFYING_AGAIN: SignedDuration = SignedDuration::from_secs(1);
const AT_ONCE: SignedDuration = SignedDuration::ZERO;
/// A Secret that is missing is not watched: it has no label yet.
const SECRET_AGAIN: SignedDuration = SignedDuration::from_secs(30);
const MAINTENANCE_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// Neither part can contain the separator. The same as upstream: its nodes are found.
pub fn node_name(host: &BareMetalHost) -> String {
    format!("{}~{}", host.namespace().unwrap_or_default(), host.name_any())
}

pub(super) struct Credentials {
    pub username: String,
    pub password: String,
}

/// `Err`: what is wrong with the Secret.
pub(super) fn credentials(secret: &Secret) -> Result<Credentials, String> {
    let name = format!("{}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
    let text = |key: &str| {
        let value = secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| &bytes.0);
        let value = value.filter(|bytes| !bytes.is_empty());
        let value = value.ok_or_else(|| {
            format!("Secret {name} has no key {key:?} with the BMC's {key}; add it")
        })?;
        let text = String::from_utf8(value.clone());
        let text =
            text.map_err(|_| format!("key {key:?} of Secret {name} is not text; replace it"))?;
        // Editors, and `echo` without -n, add a line end, which no BMC has in a password; as upstream.
        match text.trim() {
            "" => Err(format!("key {key:?} of Secret {name} is empty; replace it")),
            text => Ok(text.to_owned()),
        }
    };
    Ok(Credentials { username: text("username")?, password: text("password")? })
}

fn registration_error(state: &State) -> ErrorType {
    match error_type(state) {
        ErrorType::ProvisionedRegistration => ErrorType::ProvisionedRegistration,
        _ => ErrorType::Registration,
    }
}

/// `Continue` once Ironic has the node, with credentials that it has verified.
pub(super) fn register(draft: &mut Draft<'_>) -> Flow {
    let kind = registration_error(draft.state());
    let host = &draft.seen.host;
    let Some(bmc) = host.bmc() else { return Flow::Continue };
    let Some(secret) = &draft.seen.secret else {
        let (namespace, name) = (host.namespace().unwrap_or_default(), &bmc.credentials_name);
        draft.fail(kind, format!("Secret {namespace}/{name}, which spec.bmc.credentialsName names, does not exist; create it with the keys username and password"));
        return draft.again_in(SECRET_AGAIN);
    };
    if !is_claimed(secret, host) {
        // First: it is watched from then on, and has another version, which is recorded when it is tried.
        draft.steps.push(Step::ClaimSecret);
        return draft.again_in(AT_ONCE);
    }
    let (credentials, driver) =
        match (credentials(secret), driver::parse(bmc, &draft.seen.settings)) {
            (Ok(credentials), Ok(driver)) => (credentials, driver),
            (Err(problem), _) => return draft.refuse(kind, problem),
            (_, Err(problem)) => return draft.refuse(kind, problem.to_string()),
        };
    let Some(node) = draft.node() else {
        return create(draft, kind, &driver, &credentials);
    };
    draft.status.provisioning.id.clone_from(&node.uuid);
    // A deletion or a detachment of the host that did not come to its end.
    if is_maintained_by_us(node) && !draft.is_deleted() {
        return draft.call(Call::ClearMaintenance { id: node.uuid.clone() }, AT_ONCE);
    }
    if is_maintained_by_hand(node) && !draft.is_deleted() {
        return wait_for_maintenance(draft, node);
    }
    let renew = !draft.status.tried_credentials.matches(secret);
    let mut changes = changes(host, node, &driver, &credentials, renew);
    changes.extend(boot_mode(draft, node));
    if !changes.is_empty() && !draft.may_retry(&kind) {
        return keep_waiting(draft, kind);
    }
    if !changes.is_empty() && node.reservation.is_none() && !super::is_busy(node) {
        draft.status.tried_credentials = CredentialsStatus::of(secret);
        if renew && node.provision_state != ProvisionState::Enroll {
            secret::await_use(draft, secret);
        }
        if node.provision_state == ProvisionState::Enroll && has_failed(node) {
            draft.retry_at_once(kind);
        } else if draft.has_error(&kind) {
            draft.clear_error();
        }
        return draft.call(Call::PatchNode { id: node.uuid.clone(), ops: changes }, AT_ONCE);
    }
    match node.provision_state {
        ProvisionState::Enroll => enroll(draft, kind, node),
        ProvisionState::Verifying => draft.again_in(VERIFYING_AGAIN),
        _ => {
            registered(draft, kind, secret);
            Flow::Continue
        }
    }
}

fn create(
    draft: &mut Draft<'_>,
    kind: ErrorType,
    driver: &Driver,
    credentials: &Credentials,
) -> Flow {
    if !matches!(draft.seen.ironic, IronicView::Seen(_)) {
        return Flow::Stop;
    }
    if !draft.may_retry(&kind) {
        return keep_waiting(draft, kind);
    }
    let host = &draft.seen.host;
    if !draft.status.provisioning.id.is_empty() {
        let message = format!(
            "Ironic does not have node {} any more; the host is registered again",
            draft.status.provisioning.id
        );
        draft.events.push(PendingEvent { warning: true, reason: "NodeMissing", message });
        draft.status.provisioning.id.clear();
    }
    if let Some(secret) = &draft.seen.secret {
        draft.status.tried_credentials = CredentialsStatus::of(secret);
    }
    draft.clear_condition(CONDITION_CREDENTIALS);
    if draft.has_error(&kind) {
        draft.clear_error();
    }
    let new = NewNode {
        name: Some(node_name(host)),
        driver: driver.driver.to_owned(),
        driver_info: driver.with_credentials(&credentials.username, &credentials.password),
        boot_interface: driver.boot_interface.map(str::to_owned),
        inspect_interface: Some("agent".to_owned()),
        automated_clean: Some(is_cleaned(host)),
        disable_power_off: host.spec.disable_power_off.then_some(true),
        properties: driver::properties(host.spec.boot_mode.as_ref(), &host.spec.architecture),
        ..NewNode::default()
    };
    draft.call(Call::CreateNode(Box::new(new)), AT_ONCE)
}

/// The failure is known and its backoff is not over: reported as before.
pub(super) fn keep_waiting(draft: &mut Draft<'_>, kind: ErrorType) -> Flow {
    let message = draft.status.error_message.clone();
    draft.fail(kind, message)
}

pub(super) fn is_cleaned(host: &BareMetalHost) -> bool {
    host.spec.automated_cleaning_mode != Some(AutomatedCleaningMode::Disabled)
}

fn changes(
    host: &BareMetalHost,
    node: &Node,
    driver: &Driver,
    credentials: &Credentials,
    renew: bool,
) -> Vec<PatchOp> {
    let mut ops =
        driver.changes(&node.driver_info, &credentials.username, &credentials.password, renew);
    if node.driver != driver.driver {
        ops.insert(0, PatchOp::add("/driver", driver.driver));
    }
    let name = node_name(host);
    if node.name.as_deref() != Some(&name) {
        ops.push(PatchOp::add("/name", name));
    }
    let boot = driver.boot_interface.filter(|boot| node.boot_interface.as_deref() != Some(boot));
    ops.extend(boot.map(|boot| PatchOp::add("/boot_interface", boot)));
    if node.automated_clean != Some(is_cleaned(host)) {
        ops.push(PatchOp::add("/automated_clean", is_cleaned(host)));
    }
    // Ironic powers hosts off for its own purposes, too. One that cannot leave it refuses the whole node.
    if node.disable_power_off.unwrap_or_default() != host.spec.disable_power_off {
        ops.push(PatchOp::add("/disable_power_off", host.spec.disable_power_off));
    }
    ops
}

/// A host in use boots as it was deployed; its node gets the new mode when it is used no more.
fn boot_mode(draft: &Draft<'_>, node: &Node) -> Option<PatchOp> {
    let in_use = matches!(
        draft.state(),
        State::Provisioning
            | State::Provisioned
            | State::ExternallyProvisioned
            | State::Deprovisioning
    );
    if in_use {
        return None;
    }
    let mode = draft.seen.host.spec.boot_mode.as_ref();
    let changed = driver::changed_capabilities(node.properties.get("capabilities"), mode)?;
    Some(PatchOp::add("/properties/capabilities", changed))
}

fn has_failed(node: &Node) -> bool {
    node.last_error.as_ref().is_some_and(|error| !error.is_empty())
}

/// The reason of the maintenance that a deletion needs.
pub(super) const MAINTENANCE: &str = "the host is deleted";

fn is_maintained_by_us(node: &Node) -> bool {
    node.maintenance && node.maintenance_reason.as_deref() == Some(MAINTENANCE)
}

/// Ironic itself notes why it set maintenance.
pub(super) fn is_maintained_by_hand(node: &Node) -> bool {
    node.maintenance && node.fault.as_ref().is_none_or(String::is_empty)
}

fn wait_for_maintenance(draft: &mut Draft<'_>, node: &Node) -> Flow {
    let reason = node.maintenance_reason.as_deref().filter(|reason| !reason.is_empty());
    let message = format!(
        "node {} is in maintenance in Ironic{}; the host is left alone until an administrator ends it: baremetal node maintenance unset {0}",
        node.uuid,
        reason.map_or_else(String::new, |reason| format!(" ({reason})"))
    );
    draft.condition(CONDITION_ACCEPTED, "Maintenance", &message);
    draft.again_in(MAINTENANCE_AGAIN)
}

/// A node that Ironic has not verified yet, or not successfully.
fn enroll(draft: &mut Draft<'_>, kind: ErrorType, node: &Node) -> Flow {
    let host = &draft.seen.host;
    let failed = node.last_error.as_deref().filter(|error| !error.is_empty());
    if let Some(error) = failed.filter(|_| !draft.has_error(&kind) && !draft.is_changed()) {
        let remedy = "check spec.bmc.address, that the BMC can be reached from Ironic, and the Secret with its credentials";
        return draft.fail(kind, format!("{}; {remedy}", trimmed(error)));
    }
    if !draft.may_retry(&kind) {
        return keep_waiting(draft, kind);
    }
    let IronicView::Seen(seen) = &draft.seen.ironic else { return Flow::Stop };
    let Some(ports) = &seen.ports else { return draft.again_in(AT_ONCE) };
    let is_boot = |address: &str| address.eq_ignore_ascii_case(&host.spec.boot_mac_address);
    if let Some(taken) = seen.taken.iter().find(|taken| is_boot(&taken.address)) {
        return draft.fail(kind, port::duplicate_boot_address(taken));
    }
    let missing = port::missing_addresses(host, draft.seen.hardware_data.as_ref(), ports);
    let is_taken = |address: &&String| seen.taken.iter().any(|taken| taken.address == **address);
    if let Some(address) = missing.iter().find(|address| !is_taken(address)).cloned() {
        let pxe_enabled = is_boot(&address);
        let port = NewPort { node_uuid: node.uuid.clone(), address, pxe_enabled };
        if draft.has_error(&kind) {
            // One call is not the whole attempt.
            draft.retry_at_once(kind);
        }
        return draft.call(Call::CreatePort(port), AT_ONCE);
    }
    port::skip(draft, &seen.taken);
    if draft.has_error(&kind) {
        draft.clear_error();
    }
    draft.clear_condition(CONDITION_CREDENTIALS);
    let call = Call::SetProvisionState { id: node.uuid.clone(), target: ProvisionTarget::Manage };
    draft.call(call, VERIFYING_AGAIN)
}

fn registered(draft: &mut Draft<'_>, kind: ErrorType, secret: &Secret) {
    draft.consider_all();
    // A failed adoption has the same type of error, and is not over with the registration.
    let is_adopted =
        draft.node().is_none_or(|node| node.provision_state != ProvisionState::AdoptFailed);
    if draft.has_error(&kind) && is_adopted {
        draft.clear_error();
    }
    // Not those that Ironic does not have yet, because it works on the node.
    if !draft.status.tried_credentials.matches(secret) || !secret::are_used(draft) {
        return;
    }
    draft.clear_condition(CONDITION_CREDENTIALS);
    let good = CredentialsStatus::of(secret);
    if draft.status.good_credentials != good {
        // A change of labels alone gives the Secret another version.
        draft.event("BMCAccessValidated", "Verified access to BMC");
        draft.status.good_credentials = good;
    }
}

/// Ironic's errors may list every disk of a machine.
pub(super) fn trimmed(error: &str) -> String {
    const LONGEST: usize = 1000;
    let text = quarry_ironic::secret::without_credentials(error.trim(), &[]);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// What went wrong, before where it did: Ironic and its agent wrap the cause of a failed step into several reports.
pub(super) fn cause(error: &str) -> String {
    let text = trimmed(error);
    let step = between(&text, "'step': '", "'");
    // The agent's report is quoted with either mark, according to what it contains.
    let found = ["'details': '", "'details': \"", "'message': '", "'message': \""]
        .iter()
        .find_map(|start| between(&text, start, &start[start.len() - 1..]))
        .filter(|found| !found.trim().is_empty());
    match (found, step) {
        (Some(found), Some(step)) => format!("{} (in step {step})", found.trim()),
        (Some(found), None) => found.trim().to_owned(),
        (None, _) => text,
    }
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = &text[text.find(start)? + start.len()..];
    Some(rest.find(end).map_or(rest, |end| &rest[..end]))
}

/// Labelled, held by our finalizer, and owned by the host.
pub(super) fn is_claimed(secret: &Secret, host: &BareMetalHost) -> bool {
    let (key, value) = names::HOST_SECRET_LABEL;
    secret.labels().get(key).is_some_and(|found| found == value)
        && secret.finalizers().iter().any(|one| one == names::HOST_SECRET_FINALIZER)
        && secret::is_owned(secret, host)
}
