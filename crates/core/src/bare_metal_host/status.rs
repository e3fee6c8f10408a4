//! What is reported about a host: state, error with count and backoff, operation history, conditions.
//!
//! Words as upstream. A status is computed once, at the end of a plan, and written only where it differs.

use super::{Observed, Plan, Step, annotations};
use crate::event::PendingEvent;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use quarry_api::{
    bare_metal_host::{
        BareMetalHostStatus, BootMode, ErrorType, OperationalStatus, ProvisioningState as State,
    },
    names,
    node_job::hex_digest,
};
use quarry_ironic::{Call, Error, Meaning, Node, secret::without_credentials};

/// False while Ironic cannot be asked. Absent: it answers.
pub const CONDITION_IRONIC: &str = "quarry.dev/IronicReachable";
/// Whether the HardwareData of an inspected host exists. Absent: it does.
pub const CONDITION_HARDWARE_DATA: &str = "quarry.dev/HardwareDataStored";
/// False while a request in the spec is not carried out.
pub const CONDITION_ACCEPTED: &str = "quarry.dev/Accepted";
/// False while the API server refuses a write that the host needs. Absent: all were accepted.
pub const CONDITION_WRITTEN: &str = "quarry.dev/Written";
/// Unknown from a request that changes the power until the host is as it was requested.
pub const CONDITION_POWER: &str = "quarry.dev/PowerApplied";
/// Unknown while Ironic has new credentials of a registered host and may not have used them yet.
pub const CONDITION_CREDENTIALS: &str = "quarry.dev/CredentialsVerified";

/// A plan in the making.
pub(super) struct Draft<'a> {
    pub seen: &'a Observed,
    pub now: Timestamp,
    pub status: BareMetalHostStatus,
    pub steps: Vec<Step>,
    pub call: Option<Call>,
    pub after: Vec<Step>,
    pub events: Vec<PendingEvent>,
    pub requeue: Option<SignedDuration>,
    /// Something in the spec is not carried out, and this plan says so.
    refused: bool,
    /// Everything in the spec was considered: what an earlier plan refused counts no more.
    considered: bool,
}

/// Whether the next question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Stop,
}

impl<'a> Draft<'a> {
    pub fn new(seen: &'a Observed, now: Timestamp) -> Self {
        Draft {
            seen,
            now,
            status: seen.host.status.clone().unwrap_or_default(),
            steps: Vec::new(),
            call: None,
            after: Vec::new(),
            events: Vec::new(),
            requeue: None,
            refused: false,
            considered: false,
        }
    }

    pub fn node(&self) -> Option<&'a Node> {
        match &self.seen.ironic {
            super::IronicView::Seen(seen) => seen.node.as_ref(),
            super::IronicView::NotAsked | super::IronicView::Failed(_) => None,
        }
    }

    pub fn state(&self) -> &State {
        &self.status.provisioning.state
    }

    pub fn is_deleted(&self) -> bool {
        self.seen.host.metadata.deletion_timestamp.is_some()
    }

    pub fn event(&mut self, reason: &'static str, message: impl Into<String>) {
        self.events.push(PendingEvent { warning: false, reason, message: message.into() });
    }

    pub fn again_in(&mut self, delay: SignedDuration) -> Flow {
        self.requeue = Some(self.requeue.map_or(delay, |known| known.min(delay)));
        Flow::Stop
    }

    /// Requests one change of Ironic, and looks at its result soon.
    pub fn call(&mut self, call: Call, again: SignedDuration) -> Flow {
        self.call = Some(call);
        self.again_in(again)
    }

    /// A new state begins without errors.
    pub fn enter(&mut self, state: State) {
        let time = Time(self.now);
        let old = std::mem::replace(&mut self.status.provisioning.state, state.clone());
        let history = &mut self.status.operation_history;
        if let Some(metric) = history.of_mut(&old).filter(|metric| metric.end.is_none()) {
            metric.end = Some(time.clone());
        }
        if let Some(metric) = history.of_mut(&state) {
            metric.start = Some(time);
            metric.end = None;
        }
        if matches!(state, State::Registering | State::Inspecting | State::Provisioning) {
            let mode = self.seen.host.spec.boot_mode.clone();
            self.status.provisioning.boot_mode = Some(mode.unwrap_or(BootMode::Uefi));
        }
        self.status.error_count = 0;
        self.clear_condition(CONDITION_POWER);
        self.clear_error();
    }

    /// The count stays: it is that of the state.
    pub fn clear_error(&mut self) {
        self.status.error_type = None;
        self.status.error_message.clear();
        self.status.operational_status = OperationalStatus::Ok;
    }

    pub fn has_error(&self, kind: &ErrorType) -> bool {
        self.status.error_type.as_ref() == Some(kind)
    }

    /// The cause of the last failure may be gone, and Ironic still shows that failure: the next attempt is not delayed,
    /// and what Ironic shows is not taken for its result. Lasts until that attempt, for a second or two.
    pub fn retry_at_once(&mut self, kind: ErrorType) {
        self.clear_error();
        self.status.error_type = Some(kind);
    }

    /// An attempt of several calls goes on after each of them, also one that a change of the spec began.
    pub fn carry_on(&mut self, kind: &ErrorType) {
        if self.has_error(kind) {
            self.retry_at_once(kind.clone());
        }
    }

    /// A failure that was reported, and whose next attempt has not begun.
    pub fn has_reported(&self, kind: &ErrorType) -> bool {
        self.has_error(kind) && !self.status.error_message.is_empty()
    }

    /// Everything is as the spec asks, as far as it is carried out.
    pub fn succeed(&mut self) {
        self.clear_error();
        self.status.error_count = 0;
    }

    /// Records a failure, once; the attempt is repeated after a backoff.
    pub fn fail(&mut self, kind: ErrorType, message: impl Into<String>) -> Flow {
        let message = message.into();
        let known = self.has_error(&kind) && self.status.error_message == message;
        if !known {
            self.status.error_count += 1;
            let reason = event_reason(&kind);
            self.events.push(PendingEvent { warning: true, reason, message: message.clone() });
        }
        self.status.operational_status = OperationalStatus::Error;
        self.status.error_type = Some(kind);
        self.status.error_message = message;
        let rest = self.remaining();
        // A failure that lasts beyond its backoff is not observed more often for that.
        let waits = known && rest > SignedDuration::ZERO;
        let wait = if waits { rest } else { self.backoff() };
        self.again_in(wait.max(SignedDuration::from_secs(1)))
    }

    /// As `fail`, for what only a person can change: nothing is repeated until then.
    pub fn refuse(&mut self, kind: ErrorType, message: impl Into<String>) -> Flow {
        let flow = self.fail(kind, message);
        self.requeue = None;
        flow
    }

    /// Whether an attempt that failed with this error may be repeated now: after its backoff, or when the spec or the
    /// credentials have changed since.
    pub fn may_retry(&self, kind: &ErrorType) -> bool {
        !self.has_error(kind)
            || self.status.error_message.is_empty()
            || self.remaining() <= SignedDuration::ZERO
            || self.is_changed()
    }

    /// The spec or the credentials changed since the last report.
    pub fn is_changed(&self) -> bool {
        let secret = self.seen.secret.as_ref();
        super::is_changed(&self.seen.host)
            || secret.is_some_and(|secret| !self.status.tried_credentials.matches(secret))
    }

    fn backoff(&self) -> SignedDuration {
        backoff(self.status.error_count, self.seen.host.metadata.uid.as_deref().unwrap_or_default())
    }

    fn remaining(&self) -> SignedDuration {
        let Some(updated) = &self.status.last_updated else { return SignedDuration::ZERO };
        self.backoff() - self.now.duration_since(updated.0)
    }

    /// A report that is no error of the host.
    pub fn condition(&mut self, kind: &str, reason: &str, message: &str) {
        self.refused |= kind == CONDITION_ACCEPTED;
        self.set(kind, "False", reason, message);
    }

    pub fn set(&mut self, kind: &str, value: &str, reason: &str, message: &str) {
        set_condition(&mut self.status.conditions, kind, value, reason, message, self.now, None);
    }

    /// A report that is no problem: something is awaited. One that is known keeps its time.
    pub fn pending(&mut self, kind: &str, reason: &str, message: &str) {
        let all = &mut self.status.conditions;
        set_condition(all, kind, "Unknown", reason, message, self.now, None);
    }

    pub fn found_condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|one| one.type_ == kind)
    }

    pub fn clear_condition(&mut self, kind: &str) {
        self.status.conditions.retain(|one| one.type_ != kind);
    }

    /// Decided at the end of the plan: a condition that is still true keeps its time.
    pub fn consider_all(&mut self) {
        self.considered = true;
    }

    /// Ironic may quote the password of a BMC in an error.
    fn hide_credentials(&mut self) {
        let secrets = super::check::passwords(self.seen);
        let hide = |text: &mut String| {
            let hidden = without_credentials(text, &secrets);
            if hidden != without_credentials(text, &[]) {
                *text = hidden;
            }
        };
        hide(&mut self.status.error_message);
        self.status.conditions.iter_mut().for_each(|one| hide(&mut one.message));
        self.events.iter_mut().for_each(|one| hide(&mut one.message));
    }

    pub fn finish(mut self) -> Plan {
        if self.considered && !self.refused {
            self.clear_condition(CONDITION_ACCEPTED);
        }
        self.hide_credentials();
        let old = self.seen.host.status.clone().unwrap_or_default();
        // A change of the spec by this plan is observed by it: no second write says so.
        let edits = self.steps.iter().any(|step| matches!(step, Step::SetArchitecture(_)));
        let generation = self.seen.host.metadata.generation;
        let generation = generation.map(|generation| generation + i64::from(edits));
        conclude(&mut self.status, self.seen, generation, self.now);
        let status = (self.status != old).then(|| {
            self.status.last_updated = Some(Time(self.now));
            Box::new(self.status)
        });
        Plan {
            steps: self.steps,
            call: self.call,
            after: self.after,
            status,
            events: self.events,
            requeue: self.requeue,
        }
    }
}

/// Two minutes after the first failure, doubled with each one up to 2^9 minutes, less up to a half, as upstream: hosts
/// that failed together are not repeated together. The part is fixed for a host and a count, so that the same input has the same plan.
pub fn backoff(failures: i64, uid: &str) -> SignedDuration {
    let exponent = u32::try_from(failures.clamp(0, 9)).unwrap_or_default();
    let whole = 60_000 * 2_i64.pow(exponent);
    let digest = hex_digest(&[uid, &failures.to_string()]);
    let part = i64::from_str_radix(&digest[..3], 16).unwrap_or_default();
    SignedDuration::from_millis(whole - whole / 2 * part / 4096)
}

fn event_reason(kind: &ErrorType) -> &'static str {
    match kind {
        ErrorType::ProvisionedRegistration => "ProvisionedRegistrationError",
        ErrorType::Registration => "RegistrationError",
        ErrorType::Inspection => "InspectionError",
        ErrorType::Preparation => "PreparationError",
        ErrorType::Provisioning => "ProvisioningError",
        ErrorType::PowerManagement => "PowerManagementError",
        ErrorType::Detach => "DetachError",
        ErrorType::Servicing => "ServicingError",
        ErrorType::Other(_) => "Error",
    }
}

/// What an error in this state is called.
pub(super) fn error_type(state: &State) -> ErrorType {
    match state {
        State::None | State::Unmanaged | State::Registering => ErrorType::Registration,
        State::Inspecting => ErrorType::Inspection,
        State::MatchProfile | State::Preparing => ErrorType::Preparation,
        State::Provisioning | State::Deprovisioning => ErrorType::Provisioning,
        State::Provisioned | State::ExternallyProvisioned => ErrorType::ProvisionedRegistration,
        State::Ready | State::Available | State::PoweringOffBeforeDelete | State::Deleting => {
            ErrorType::PowerManagement
        }
        State::Other(_) => ErrorType::Registration,
    }
}

/// The conditions of upstream, from the rest of the status: types, values and reasons are its own.
fn conclude(
    status: &mut BareMetalHostStatus,
    seen: &Observed,
    generation: Option<i64>,
    now: Timestamp,
) {
    let operational = status.operational_status.clone();
    let failed = operational == OperationalStatus::Error;
    let message = status.error_message.clone();
    let Some(mut found) = conditions_of(&status.provisioning.state, failed) else { return };
    match operational {
        OperationalStatus::Error => found.ready = ("False", "Error"),
        OperationalStatus::Servicing => found.ready = ("False", "Servicing"),
        OperationalStatus::Detached => {
            found.ready = ("False", "Detached");
            found.progressing = ("False", "Detached");
        }
        _ => {}
    }
    let detached = operational == OperationalStatus::Detached;
    if found.has_power && !detached && has_power_failure(seen) {
        found.manageable = ("False", "PowerFailure");
    }
    // Ironic's own judgement of the hardware is not read.
    let healthy = ("Unknown", "Unknown");
    let all = [
        ("Manageable", found.manageable),
        ("AvailableForProvisioning", found.available),
        ("Provisioned", found.provisioned),
        ("Ready", found.ready),
        ("Progressing", found.progressing),
        ("Healthy", healthy),
    ];
    for (kind, (value, reason)) in all {
        let message = if kind == "Ready" { message.as_str() } else { "" };
        set_condition(&mut status.conditions, kind, value, reason, message, now, generation);
    }
}

/// Value and reason of each condition.
struct Conditions {
    manageable: (&'static str, &'static str),
    available: (&'static str, &'static str),
    provisioned: (&'static str, &'static str),
    ready: (&'static str, &'static str),
    progressing: (&'static str, &'static str),
    /// Ironic reads the power state in this state of the host.
    has_power: bool,
}

/// `None`: a state of a newer version, whose conditions stay.
fn conditions_of(state: &State, failed: bool) -> Option<Conditions> {
    let progressing = |reason| Conditions {
        manageable: ("True", "Manageable"),
        available: ("False", "NotAvailable"),
        provisioned: ("False", "NotProvisioned"),
        ready: ("False", "NotProvisioned"),
        progressing: ("True", reason),
        has_power: true,
    };
    Some(match state {
        State::None | State::Unmanaged => Conditions {
            manageable: ("False", "NotManaged"),
            progressing: ("False", "NotProgressing"),
            has_power: false,
            ..progressing("")
        },
        State::Registering => Conditions {
            manageable: ("False", if failed { "RegistrationFailed" } else { "Registering" }),
            has_power: false,
            ..progressing("Registering")
        },
        State::Inspecting | State::MatchProfile => progressing("Inspecting"),
        State::Preparing => progressing("Preparing"),
        State::Ready | State::Available => Conditions {
            available: ("True", "Available"),
            progressing: ("False", "NotProgressing"),
            ..progressing("")
        },
        State::Provisioning => progressing("Provisioning"),
        State::Provisioned | State::ExternallyProvisioned => Conditions {
            provisioned: ("True", "Provisioned"),
            ready: ("True", "Provisioned"),
            progressing: ("False", "NotProgressing"),
            ..progressing("")
        },
        State::Deprovisioning => progressing("Deprovisioning"),
        State::PoweringOffBeforeDelete => progressing("PoweringOffBeforeDelete"),
        State::Deleting => Conditions { has_power: false, ..progressing("Deleting") },
        State::Other(_) => return None,
    })
}

fn has_power_failure(seen: &Observed) -> bool {
    match &seen.ironic {
        super::IronicView::Seen(seen) => {
            let fault = seen.node.as_ref().and_then(|node| node.fault.as_deref());
            fault == Some(super::power::POWER_FAILURE)
        }
        super::IronicView::NotAsked | super::IronicView::Failed(_) => false,
    }
}

fn set_condition(
    all: &mut Vec<Condition>,
    kind: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
    generation: Option<i64>,
) {
    let new = Condition {
        type_: kind.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: Time(now),
    };
    match all.iter_mut().find(|one| one.type_ == kind) {
        Some(old) if old.status == new.status => {
            let last_transition_time = old.last_transition_time.clone();
            *old = Condition { last_transition_time, ..new };
        }
        Some(old) => *old = new,
        None => all.push(new),
    }
}

/// What is written after a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub status: Option<Box<BareMetalHostStatus>>,
    pub events: Vec<PendingEvent>,
    pub requeue: Option<SignedDuration>,
}

/// The call was accepted. `created`: the ID of the new node, which is recorded.
pub fn report_success(
    seen: &Observed,
    plan: &Plan,
    created: Option<&str>,
    now: Timestamp,
) -> Report {
    let mut status = plan.status.clone();
    if let Some(id) = created {
        let known = || Box::new(seen.host.status.clone().unwrap_or_default());
        let status = status.get_or_insert_with(known);
        if status.provisioning.id != id {
            status.provisioning.id = id.to_owned();
            status.last_updated = Some(Time(now));
        }
    }
    Report { status, events: plan.events.clone(), requeue: plan.requeue }
}

/// How soon a node that Ironic works on is asked again.
const LOCKED_AGAIN: SignedDuration = SignedDuration::from_secs(2);
/// What was planned does not fit the node any more: it is observed and planned again.
const OUTDATED_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// What passes in seconds is not worth a report; what lasts this long is.
const LASTING: SignedDuration = SignedDuration::from_mins(5);

/// Ironic could not be asked, or refused the call. The rest of the plan's status is not written: it is not true.
pub fn report_failure(
    seen: &Observed,
    call: Option<&Call>,
    error: &Error,
    now: Timestamp,
) -> Report {
    let mut draft = Draft::new(seen, now);
    draft.clear_condition(CONDITION_WRITTEN);
    let state = draft.state().clone();
    match error.meaning {
        Meaning::Locked => {
            report_lasting(&mut draft, error);
            draft.again_in(LOCKED_AGAIN);
        }
        Meaning::WrongState | Meaning::Maintenance | Meaning::NotFound => {
            report_lasting(&mut draft, error);
            draft.again_in(OUTDATED_AGAIN);
        }
        Meaning::Unreachable(_) | Meaning::Unauthorized | Meaning::Failed | Meaning::Malformed => {
            unreachable(&mut draft, error);
        }
        Meaning::Conflict | Meaning::Unsupported | Meaning::Refused => {
            draft.clear_condition(CONDITION_IRONIC);
            let message = error.to_string();
            if let Some(secret) = &seen.secret {
                draft.status.tried_credentials =
                    quarry_api::bare_metal_host::CredentialsStatus::of(secret);
            }
            // Each request that fails is a failure of its own, also one with the same answer: the backoff grows.
            draft.status.error_message.clear();
            let updates = matches!(
                call,
                Some(Call::CreateNode(_) | Call::CreatePort(_) | Call::PatchNode { .. })
            );
            let kind = match error_type(&state) {
                // At rest a node is only updated to what the spec says of it.
                ErrorType::PowerManagement if updates => ErrorType::Registration,
                kind => kind,
            };
            draft.fail(kind, message);
        }
    }
    let plan = draft.finish();
    Report { status: plan.status, events: plan.events, requeue: plan.requeue }
}

/// Ironic does not carry out the same request for minutes, which is no error of the host.
fn report_lasting(draft: &mut Draft<'_>, error: &Error) {
    let since = draft.status.last_updated.as_ref().map(|time| draft.now.duration_since(time.0));
    let known = draft.found_condition(CONDITION_IRONIC).is_some();
    if !known && since.is_none_or(|since| since < LASTING) {
        return;
    }
    let id = &draft.status.provisioning.id;
    let message = format!(
        "{error}; it is retried; if this does not end, check which conductor holds the node: baremetal node show {id} --fields provision_state reservation"
    );
    draft.condition(CONDITION_IRONIC, error.meaning.as_str(), &message);
}

/// The API server refused a write of the plan (a policy, a missing right, a limit): the rest of the plan was not carried
/// out, and is tried again. `attempt`: which write.
pub fn report_refusal(seen: &Observed, attempt: &str, answer: &str, now: Timestamp) -> Report {
    let mut draft = Draft::new(seen, now);
    let message = format!(
        "{attempt} was refused by the API server, and is retried: {}; correct the role of the operator, or the policy or limit that refuses it",
        super::register::trimmed(answer)
    );
    draft.condition(CONDITION_WRITTEN, "Refused", &message);
    draft.events.push(PendingEvent { warning: true, reason: "WriteRefused", message });
    let plan = draft.finish();
    // Published with the report: each refusal once.
    let events = if plan.status.is_some() { plan.events } else { Vec::new() };
    Report { status: plan.status, events, requeue: None }
}

/// Not an error of the host: its state stays as it is.
pub(super) fn unreachable(draft: &mut Draft<'_>, error: &Error) {
    let remedy = match annotations::get(&draft.seen.host, names::DETACHED_ANNOTATION) {
        None if draft.is_deleted() => {
            "; to delete the host without Ironic, annotate it with baremetalhost.metal3.io/detached='{\"deleteAction\":\"delete\"}'"
        }
        Some(_) | None => "",
    };
    let message = format!("{error}; it is retried{remedy}");
    draft.condition(CONDITION_IRONIC, error.meaning.as_str(), &message);
    draft.again_in(SignedDuration::from_secs(15));
}
