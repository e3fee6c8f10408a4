//! What a controller is: one `impl Controller`, one line in `registry.rs`, and nothing else to edit.
//!
//! Flow of `reconcile`: `observe` gathers what the decision needs and decides nothing; `plan` and `check` are pure and
//! live in `quarry-core`; `apply` carries the plan out, in order, each step idempotent, the status last.
//!
//! Guarantees: nothing of a plan that `check` objects to is applied; the objection is logged, published as an Event
//! and retried with backoff. A process that dies anywhere continues from the objects.
//!
//! Caveats: `reconcile` is called with stale caches, by two leaders at once, and in any order; `apply` must carry the
//! resourceVersion or UID that was observed. Next to read: `trigger.rs`, `volume/mod.rs` (an example).

use crate::{Context, events, trigger::Triggers};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use quarry_core::event::PendingEvent;
use std::{fmt::Display, future::Future, time::Duration};

/// Controllers of one group are switched on and off together: `--controllers` names groups.
pub type Group = &'static str;

pub trait Controller: 'static {
    /// In logs and metrics.
    const NAME: &'static str;
    const GROUP: Group;
    /// Fields that the installed CRDs must serve. A group whose CRDs lack one stays off: the API server would drop
    /// what is written to it without a word.
    const NEEDS: &'static [Need];
    /// How long a key waits for further changes before it is reconciled.
    const DEBOUNCE: Duration = Duration::ZERO;
    /// Enqueued once at the start, besides what the triggers enqueue.
    const INITIAL_KEYS: &'static [&'static str] = &[];

    type Observed: Send + Sync;
    type Plan: Send;
    type Violation: Display + Send + Sync;

    /// Which kinds are watched, and which keys a change of them enqueues.
    fn triggers(triggers: &mut Triggers<'_>);

    /// `None`: there is nothing to decide, the object is gone.
    fn observe(
        context: &Context,
        key: &str,
    ) -> impl Future<Output = Result<Option<Self::Observed>, Failure>> + Send;

    fn plan(observed: &Self::Observed, now: Timestamp) -> Self::Plan;

    /// Every rule that the plan breaks; written apart from `plan`. Not empty means a defect in `plan`.
    fn check(observed: &Self::Observed, plan: &Self::Plan) -> Vec<Self::Violation>;

    fn apply(
        context: &Context,
        observed: &Self::Observed,
        plan: Self::Plan,
    ) -> impl Future<Output = Result<Next, Failure>> + Send;

    /// Part of the plan that stands without the rest: applied when the whole is refused.
    fn fallback(_observed: &Self::Observed, _now: Timestamp) -> Option<Self::Plan> {
        None
    }

    /// The object that an Event about this key is attached to.
    fn subject(_observed: &Self::Observed) -> Option<ObjectReference> {
        None
    }

    /// Since when the object has been waiting: feeds the backoff, so that no counter must survive a restart.
    fn waiting_since(_context: &Context, _key: &str) -> Option<Timestamp> {
        None
    }

    /// One reconcile of one key.
    fn reconcile(
        context: &Context,
        key: &str,
    ) -> impl Future<Output = Result<Next, Failure>> + Send {
        async move {
            let Some(observed) = Self::observe(context, key).await? else {
                return Ok(Next::AwaitChange);
            };
            let plan = Self::plan(&observed, context.now());
            let violations = Self::check(&observed, &plan);
            if violations.is_empty() {
                return Self::apply(context, &observed, plan).await;
            }
            Err(refuse::<Self>(context, key, &observed, &violations).await)
        }
    }
}

/// The one path of a refused plan: a defect of the planner, so it is reported loudly.
async fn refuse<C: Controller + ?Sized>(
    context: &Context,
    key: &str,
    observed: &C::Observed,
    violations: &[C::Violation],
) -> Failure {
    let reasons = violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    tracing::error!(controller = C::NAME, key, reasons, "refused a plan");
    let message = format!(
        "nothing was changed, because the plan breaks an invariant: {reasons}; report this as a defect of Quarry"
    );
    let subject = C::subject(observed);
    if let Some(subject) = subject.filter(|_| context.is_unpublished(PLAN_REFUSED, key, &message)) {
        let event = PendingEvent { warning: true, reason: PLAN_REFUSED, message };
        events::publish_on(context, subject, &[event]).await;
    }
    if let Some(part) = C::fallback(observed, context.now())
        && C::check(observed, &part).is_empty()
        && let Err(failure) = C::apply(context, observed, part).await
    {
        return failure;
    }
    Failure {
        attempt: format!("{} {key}: the plan was refused: {reasons}", C::NAME),
        source: None,
        conflict: false,
    }
}

pub const PLAN_REFUSED: &str = "PlanRefused";

/// Fields of one CRD that a controller reads or writes.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    pub crd: &'static str,
    pub fields: &'static [&'static str],
}

/// What a reconcile asks of its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    AwaitChange,
    Requeue(SignedDuration),
}

impl From<Option<SignedDuration>> for Next {
    fn from(requeue: Option<SignedDuration>) -> Self {
        requeue.map_or(Next::AwaitChange, Next::Requeue)
    }
}

/// A reconcile that could not be finished. Always retried.
#[derive(Debug, thiserror::Error)]
#[error("{attempt}")]
pub struct Failure {
    pub attempt: String,
    #[source]
    pub source: Option<kube::Error>,
    /// The cache was stale: retried as soon as it has caught up. Otherwise with backoff.
    pub conflict: bool,
}

impl Failure {
    pub fn api(attempt: impl Into<String>, source: kube::Error) -> Self {
        let conflict = matches!(&source, kube::Error::Api(status) if status.code == 409);
        Failure { attempt: attempt.into(), source: Some(source), conflict }
    }

    /// The API server's answer when it refuses the object itself: not when it is gone, changed or overloaded.
    pub fn refusal(&self) -> Option<&str> {
        match &self.source {
            Some(kube::Error::Api(answer))
                if (400..500).contains(&answer.code) && ![404, 409, 429].contains(&answer.code) =>
            {
                Some(&answer.message)
            }
            _ => None,
        }
    }

    /// Something outside is awaited; retried with backoff.
    pub fn waiting(attempt: impl Into<String>) -> Self {
        Failure { attempt: attempt.into(), source: None, conflict: false }
    }

    pub fn stale(attempt: impl Into<String>) -> Self {
        Failure { attempt: attempt.into(), source: None, conflict: true }
    }
}
