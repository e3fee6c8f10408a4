//! The Secrets of a host: when new credentials count as good, and what becomes of a Secret that the host used and uses
//! no more, because its spec names another one, or none. Never reads what is in them.

use super::{
    FormerSecret, Step,
    status::{CONDITION_CREDENTIALS, Draft},
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use quarry_api::{BareMetalHost, names};

/// Names of the Secrets that the status has and the spec has not. Each is in the host's own namespace.
pub fn former_names(host: &BareMetalHost) -> Vec<String> {
    let named = host.bmc().map(|bmc| bmc.credentials_name.as_str());
    let status = host.status.iter();
    let known = status.flat_map(|status| [&status.good_credentials, &status.tried_credentials]);
    let known = known.filter_map(|one| one.reference.as_ref()?.name.clone());
    let mut former: Vec<String> =
        known.filter(|name| !name.is_empty() && Some(name.as_str()) != named).collect();
    former.sort();
    former.dedup();
    former
}

/// A step of every plan, before the status forgets the name.
pub(super) fn release_former(draft: &mut Draft<'_>) {
    let seen = draft.seen;
    let held = seen.former_secrets.iter().filter(|former| is_held(former, &seen.host));
    draft.steps.extend(held.map(|former| Step::ReleaseFormerSecret(former.secret.name_any())));
}

/// Marked for this host, or by one that left its mark and is gone.
fn is_held(former: &FormerSecret, host: &BareMetalHost) -> bool {
    let FormerSecret { secret, is_shared } = former;
    is_owned(secret, host)
        || !is_shared && secret.finalizers().iter().any(|one| one == names::HOST_SECRET_FINALIZER)
}

pub(super) fn is_owned(secret: &Secret, host: &BareMetalHost) -> bool {
    secret.owner_references().iter().any(|owner| Some(&owner.uid) == host.uid().as_ref())
}

/// How long Ironic may take to notice that it cannot log in any more. By its defaults it reads the power state of each
/// node every 60 seconds, and sets the fault `power failure` after three more failures.
const NOTICED_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// A node that is registered is not verified again, and a power state that is read without a change leaves no sign:
/// only a failure does. New credentials therefore count as good when Ironic has had the time to report one, and has
/// reported none. (To request the power state that it has would prove more, and may change it.) A node that is enrolled
/// is verified, which is proof at once.
pub(super) fn await_use(draft: &mut Draft<'_>, secret: &Secret) {
    let message = format!(
        "Ironic has the new credentials of Secret {}/{}; they count as good if it reports no power failure for {} minutes",
        secret.namespace().unwrap_or_default(),
        secret.name_any(),
        NOTICED_WITHIN.as_mins(),
    );
    // Its time begins with these.
    draft.clear_condition(CONDITION_CREDENTIALS);
    draft.pending(CONDITION_CREDENTIALS, "NotUsedYet", &message);
}

pub(super) fn are_used(draft: &Draft<'_>) -> bool {
    let Some(since) = draft.found_condition(CONDITION_CREDENTIALS) else { return true };
    let reads_power =
        draft.node().is_some_and(|node| node.fault.is_none() && node.power_state.is_some());
    reads_power && draft.now.duration_since(since.last_transition_time.0) >= NOTICED_WITHIN
}
