//! What is reported about a host: state, error with count and backoff, operation history, conditions.
//!
//! Words as upstream. A status is computed once, at the end of a plan, and written only where it differs.

use super::{Observed, Plan, Step, annotations};
use crate::event::PendingEvent;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use quarry_api::{
    bare_metal_host::{
        BareMetalHostStatus, ErrorType, OperationalStatus, ProvisioningState as State,
    },
    names,
    node_job::hex_digest,
};
use quarry_ironic::{Call, Error, Meaning, Node};

/// False while Ironic cannot be asked. Absent: it answers.
pub const CONDITION_IRONIC: &str = "quarry.dev/IronicReachable";
/// Whether the HardwareData of an inspected host exists. Absent: it does.
pub const CONDITION_HARDWARE_DATA: &str = "quarry.dev/HardwareDataStored";
/// False while a request in the spec is not carried out.
pub const CONDITION_ACCEPTED: &str = "quarry.dev/Accepted";

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
        self.status.error_count = 0;
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
        let wait = if known { self.remaining() } else { self.backoff() };
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
        !self.has_error(kind) || self.remaining() <= SignedDuration::ZERO || self.is_changed()
    }

    /// The spec or the credentials changed since the last report.
    pub fn is_changed(&self) -> bool {
        let known = self.status.conditions.iter().filter_map(|one| one.observed_generation).max();
        let secret = self.seen.secret.as_ref();
        known.is_some_and(|known| Some(known) != self.seen.host.metadata.generation)
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
        set_condition(&mut self.status.conditions, kind, "False", reason, message, self.now, None);
    }

    pub fn clear_condition(&mut self, kind: &str) {
        self.status.conditions.retain(|one| one.type_ != kind);
    }

    pub fn finish(mut self) -> Plan {
        let old = self.seen.host.status.clone().unwrap_or_default();
        conclude(&mut self.status, self.seen, self.now);
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

/// Doubles from one minute with each failure up to 2^9 minutes, less up to a half: hosts that failed together are not
/// repeated together. The part is fixed for a host and a count, so that the same input has the same plan.
pub fn backoff(failures: i64, uid: &str) -> SignedDuration {
    let exponent = u32::try_from(failures.clamp(0, 9)).unwrap_or_default();
    let whole = 60_000 * 2_i64.pow(exponent) / 2;
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

/// The conditions of upstream, from the rest of the status.
fn conclude(status: &mut BareMetalHostStatus, seen: &Observed, now: Timestamp) {
    let state = status.provisioning.state.clone();
    let error = status.error_type.clone();
    let detached = status.operational_status == OperationalStatus::Detached;
    let deleted = seen.host.metadata.deletion_timestamp.is_some();
    let registered = !matches!(state, State::None | State::Unmanaged | State::Registering);
    let unregistered =
        matches!(error, Some(ErrorType::Registration | ErrorType::ProvisionedRegistration));
    let stable = super::is_stable(&state);
    let used = seen.host.spec.image.is_some() || seen.host.spec.custom_deploy.is_some();
    let healthy = error.is_none();
    let generation = seen.host.metadata.generation;
    let name = reason(&state);
    let message = status.error_message.clone();
    let mut set = |kind: &str, holds: bool, reason: &str, message: &str| {
        let value = if holds { "True" } else { "False" };
        let all = &mut status.conditions;
        set_condition(all, kind, value, reason, message, now, generation);
    };
    let failed = error.as_ref().map_or("", |kind| event_reason(kind));
    let manageable = registered && !unregistered && !detached;
    set("Manageable", manageable, if detached { "Detached" } else { &name }, "");
    let available = matches!(state, State::Available | State::Ready);
    set(
        "AvailableForProvisioning",
        available && healthy && !used && !deleted && !detached,
        &name,
        "",
    );
    let provisioned = matches!(state, State::Provisioned | State::ExternallyProvisioned);
    set("Provisioned", provisioned, &name, "");
    set("Progressing", registered_or_registering(&state) && !stable && healthy, &name, "");
    set("Healthy", healthy, if healthy { "OK" } else { failed }, &message);
    set("Ready", stable && healthy && !deleted, &name, &message);
}

fn registered_or_registering(state: &State) -> bool {
    !matches!(state, State::None | State::Unmanaged)
}

/// `externally provisioned` as `ExternallyProvisioned`.
fn reason(state: &State) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).filter(char::is_ascii_alphanumeric).collect::<String>()
    };
    let text: String = state.as_str().split_whitespace().map(word).collect();
    if text.is_empty() { "New".to_owned() } else { text }
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

/// Ironic could not be asked, or refused the call. The rest of the plan's status is not written: it is not true.
pub fn report_failure(seen: &Observed, error: &Error, now: Timestamp) -> Report {
    let mut draft = Draft::new(seen, now);
    let state = draft.state().clone();
    match error.meaning {
        Meaning::Locked => {
            draft.again_in(LOCKED_AGAIN);
        }
        Meaning::WrongState | Meaning::Maintenance | Meaning::NotFound => {
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
            draft.fail(error_type(&state), message);
        }
    }
    let plan = draft.finish();
    Report { status: plan.status, events: plan.events, requeue: plan.requeue }
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
