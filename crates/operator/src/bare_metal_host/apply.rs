//! Carries out a plan: the steps before the call, the call, the steps after it, the status, the Events.

use crate::{
    Context,
    controller::{Failure, Next},
    events,
    writer::{Written, is_code},
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Resource, ResourceExt};
use quarry_api::{BareMetalHost, HardwareData, bare_metal_host::BareMetalHostStatus, names};
use quarry_core::bare_metal_host::{
    FRESH, FormerSecret, IronicView, Observed, Plan, Report, Step, report_failure, report_refusal,
    report_success,
};
use quarry_ironic::Performed;
use serde_json::{Value, json};

/// After a write of our own the cache is behind: its event enqueues the host sooner than this.
const AFTER_WRITE: SignedDuration = SignedDuration::from_secs(1);

pub async fn apply(context: &Context, seen: &Observed, plan: Plan) -> Result<Next, Failure> {
    let applied = carry_out(context, seen, plan).await;
    if let Err(failure) = &applied {
        publish_refusal(context, seen, failure).await;
    }
    applied
}

/// The API server refuses what the plan asks for: reported where users look, not only in the operator's log. Where the
/// status itself is refused, the Event is all that is left.
async fn publish_refusal(context: &Context, seen: &Observed, failure: &Failure) {
    let Some(answer) = failure.refusal() else { return };
    // Steps before the one that was refused may have changed the host: what they wrote must stay.
    let live = hosts(context, &seen.host).get_opt(&seen.host.name_any()).await;
    let host = match live {
        Ok(Some(live)) if live.uid() == seen.host.uid() => live,
        Ok(_) => return,
        Err(error) => {
            tracing::warn!(host = key(&seen.host), %error, "failed to report a refusal");
            return;
        }
    };
    let changed = Observed { host: host.clone(), ..seen.clone() };
    let report = report_refusal(&changed, &failure.attempt, answer, context.now());
    if let Err(failed) = write(context, &host, &report).await {
        let cause = failed.source.as_ref().map(ToString::to_string);
        tracing::warn!(host = key(&seen.host), error = %failed, cause, "failed to report a refusal");
    }
    let is_new = |message: &str| context.is_unpublished("WriteRefused", &key(&host), message);
    let events: Vec<_> =
        report.events.iter().filter(|event| is_new(&event.message)).cloned().collect();
    events::publish(context, &host, &events).await;
}

async fn carry_out(context: &Context, seen: &Observed, plan: Plan) -> Result<Next, Failure> {
    let Some(hosts) = &context.hosts else { return Ok(Next::AwaitChange) };
    if let IronicView::Seen(view) = &seen.ironic
        && plan.call.is_some()
        && view.age > FRESH
    {
        hosts.ironic.expire(&seen.host);
        return Ok(Next::Requeue(SignedDuration::ZERO));
    }
    let mut current = Some(seen.host.clone());
    for step in &plan.steps {
        current = apply_step(context, seen, current, step).await?;
    }
    if plan.call.is_some() {
        check_current(context, current.as_ref()).await?;
    }
    let limit = hosts.settings.max_busy_hosts;
    let mut report = match &plan.call {
        None => report_success(seen, &plan, None, context.now()),
        Some(call) => match hosts.ironic.perform(call, limit, context.now()).await {
            Ok(performed) => {
                tracing::info!(host = key(&seen.host), call = %call, "applied");
                let created = match &performed {
                    Performed::Node(node) => Some(node.uuid.as_str()),
                    Performed::Port(_) | Performed::Accepted => None,
                };
                for step in &plan.after {
                    current = apply_step(context, seen, current, step).await?;
                }
                report_success(seen, &plan, created, context.now())
            }
            Err(error) => {
                tracing::warn!(host = key(&seen.host), %error, "failed to change Ironic");
                context.metrics.count_ironic_error(error.meaning.as_str());
                report_failure(seen, Some(call), &error, context.now())
            }
        },
    };
    if plan.call.is_none() {
        for step in &plan.after {
            current = apply_step(context, seen, current, step).await?;
        }
    }
    let Some(host) = current else { return Ok(Next::AwaitChange) };
    let changed = write(context, &host, &report).await?;
    events::publish(context, &host, &report.events).await;
    let wrote = changed || host.resource_version() != seen.host.resource_version();
    if wrote {
        report.requeue = report.requeue.map(|delay| delay.max(AFTER_WRITE));
    }
    Ok(report.requeue.into())
}

/// Ironic's answer carries no version of the host. A cache that is far behind may show one that was paused, inspected or
/// switched on since: nothing is requested for it.
async fn check_current(context: &Context, host: Option<&BareMetalHost>) -> Result<(), Failure> {
    let Some(host) = host else { return Ok(()) };
    let live = hosts(context, host).get_opt(&host.name_any()).await;
    let live =
        live.map_err(|error| Failure::api(format!("reading BareMetalHost {}", key(host)), error))?;
    let same = live.is_some_and(|live| {
        live.uid() == host.uid() && live.resource_version() == host.resource_version()
    });
    if same {
        return Ok(());
    }
    Err(Failure::stale(format!("BareMetalHost {}: it has changed since it was read", key(host))))
}

async fn write(context: &Context, host: &BareMetalHost, report: &Report) -> Result<bool, Failure> {
    match &report.status {
        Some(status) => write_status(context, host, status).await.map(|after| after.is_some()),
        None => Ok(false),
    }
}

/// Only what differs; fields of the status that this version does not know stay.
async fn write_status(
    context: &Context,
    host: &BareMetalHost,
    status: &BareMetalHostStatus,
) -> Result<Option<BareMetalHost>, Failure> {
    write_status_value(context, host, &json!(status)).await
}

async fn write_status_value(
    context: &Context,
    host: &BareMetalHost,
    status: &Value,
) -> Result<Option<BareMetalHost>, Failure> {
    let name = host.name_any();
    let old = host.status.as_ref().map_or_else(|| json!({}), |status| json!(status));
    let version = host.resource_version().unwrap_or_default();
    let api = hosts(context, host);
    let written = context.writer.patch_status(&api, &name, &version, &old, status).await;
    let failed =
        |error| Failure::api(format!("BareMetalHost {}: writing the status", key(host)), error);
    match written.map_err(failed)? {
        Written::Changed(after) => {
            let state = after.state();
            tracing::info!(host = key(host), %state, "updated status");
            Ok(Some(after))
        }
        Written::Unchanged => Ok(None),
    }
}

fn key(host: &BareMetalHost) -> String {
    format!("{}/{}", host.namespace().unwrap_or_default(), host.name_any())
}

fn hosts(context: &Context, host: &BareMetalHost) -> Api<BareMetalHost> {
    Api::namespaced(context.client.clone(), &host.namespace().unwrap_or_default())
}

/// The host as it is after the step; `None`: it may be gone.
async fn apply_step(
    context: &Context,
    seen: &Observed,
    current: Option<BareMetalHost>,
    step: &Step,
) -> Result<Option<BareMetalHost>, Failure> {
    let Some(host) = current else { return Ok(None) };
    let (name, version) = (host.name_any(), host.resource_version().unwrap_or_default());
    let failed =
        |error| Failure::api(format!("BareMetalHost {}: {}", key(&host), step.name()), error);
    let patch = |changes: Value| {
        let (api, name, version) = (hosts(context, &host), name.clone(), version.clone());
        async move { context.writer.patch(&api, &name, &version, changes).await }
    };
    let after = match step {
        Step::AddFinalizer => {
            let all: Vec<&str> = host
                .finalizers()
                .iter()
                .map(String::as_str)
                .chain([names::HOST_FINALIZER])
                .collect();
            Some(patch(json!({"metadata": {"finalizers": all}})).await.map_err(failed)?)
        }
        Step::RemoveFinalizer => {
            let kept: Vec<&String> =
                host.finalizers().iter().filter(|one| *one != names::HOST_FINALIZER).collect();
            gone_is_fine(patch(json!({"metadata": {"finalizers": kept}})).await).map_err(failed)?;
            None
        }
        Step::RemoveAnnotations(gone) => {
            let gone: serde_json::Map<String, Value> =
                gone.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
            Some(patch(json!({"metadata": {"annotations": gone}})).await.map_err(failed)?)
        }
        Step::SetArchitecture(architecture) => {
            Some(patch(json!({"spec": {"architecture": architecture}})).await.map_err(failed)?)
        }
        Step::RecordInspection(before) => {
            let changes =
                json!({names::INSPECT_ANNOTATION: null, names::INSPECTION_ANNOTATION: before});
            Some(patch(json!({"metadata": {"annotations": changes}})).await.map_err(failed)?)
        }
        Step::WriteStatus(status) => {
            let after = write_status(context, &host, status).await?;
            Some(after.unwrap_or(host.clone()))
        }
        Step::RestoreStatus(status) => {
            let after = write_status_value(context, &host, status).await?;
            Some(after.unwrap_or(host.clone()))
        }
        Step::ClaimSecret => {
            // A leader that is behind would mark it for a host that is gone: with its owner, it would be deleted.
            check_current(context, Some(&host)).await?;
            claim_secret(context, seen).await.map_err(failed)?;
            Some(host.clone())
        }
        Step::ReleaseSecret => {
            if let Some(secret) = &seen.secret {
                let shared = seen.secret_is_shared;
                release_secret(context, seen, secret, shared).await.map_err(failed)?;
            }
            Some(host.clone())
        }
        Step::ReleaseFormerSecret(name) => {
            let former = seen.former_secrets.iter().find(|one| one.secret.name_any() == *name);
            if let Some(former) = former {
                let FormerSecret { secret, is_shared } = former;
                release_secret(context, seen, secret, *is_shared).await.map_err(failed)?;
            }
            Some(host.clone())
        }
        Step::CreateHardwareData(_)
        | Step::ReleaseHardwareData
        | Step::ClaimHardwareData
        | Step::DeleteHardwareData => {
            apply_hardware_data(context, seen, step).await.map_err(failed)?;
            Some(host.clone())
        }
    };
    tracing::info!(host = key(&host), step = step.name(), "applied");
    Ok(after)
}

fn gone_is_fine<K>(answer: Result<K, kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Err(error) if is_code(&error, 404) => Ok(()),
        other => other.map(|_| ()),
    }
}

async fn apply_hardware_data(
    context: &Context,
    seen: &Observed,
    step: &Step,
) -> Result<(), kube::Error> {
    let namespace = seen.host.namespace().unwrap_or_default();
    let api: Api<HardwareData> = Api::namespaced(context.client.clone(), &namespace);
    let name = seen.host.name_any();
    if let Step::CreateHardwareData(made) = step {
        return context.writer.create(&api, made).await.map(|_| ());
    }
    // As it was observed: a read may find an older state, but a write by version does not.
    let Some(found) = &seen.hardware_data else { return Ok(()) };
    let version = found.resource_version().unwrap_or_default();
    let changes = match step {
        Step::ReleaseHardwareData => {
            let ours = [names::HARDWARE_DATA_FINALIZER, names::HOST_FINALIZER];
            let kept: Vec<&String> =
                found.finalizers().iter().filter(|one| !ours.contains(&one.as_str())).collect();
            json!({"metadata": {"finalizers": kept}})
        }
        Step::ClaimHardwareData => {
            // The name of an earlier design is removed where it is found.
            let others = found.finalizers().iter().map(String::as_str);
            let others = others.filter(|one| {
                ![names::HARDWARE_DATA_FINALIZER, names::HOST_FINALIZER].contains(one)
            });
            let finalizers: Vec<&str> = others.chain([names::HARDWARE_DATA_FINALIZER]).collect();
            let owner = seen.host.controller_owner_ref(&());
            let kept =
                found.owner_references().iter().filter(|one| one.kind != "BareMetalHost").cloned();
            let owners: Vec<_> = kept.chain(owner).collect();
            json!({"metadata": {"finalizers": finalizers, "ownerReferences": owners}})
        }
        Step::DeleteHardwareData => {
            // Without the version: the step before this one has changed it.
            let uid = found.uid().unwrap_or_default();
            return context.writer.delete(&api, &name, &uid, None).await;
        }
        Step::AddFinalizer
        | Step::RemoveFinalizer
        | Step::ClaimSecret
        | Step::ReleaseSecret
        | Step::ReleaseFormerSecret(_)
        | Step::RemoveAnnotations(_)
        | Step::RecordInspection(_)
        | Step::SetArchitecture(_)
        | Step::CreateHardwareData(_)
        | Step::WriteStatus(_)
        | Step::RestoreStatus(_) => return Ok(()),
    };
    gone_is_fine(context.writer.patch(&api, &name, &version, changes).await)
}

async fn claim_secret(context: &Context, seen: &Observed) -> Result<(), kube::Error> {
    let Some(secret) = &seen.secret else { return Ok(()) };
    let (key, value) = names::HOST_SECRET_LABEL;
    let finalizers: Vec<&str> = with(secret.finalizers(), names::HOST_SECRET_FINALIZER);
    let owner = seen.host.owner_ref(&());
    let others =
        secret.owner_references().iter().filter(|one| Some(&one.uid) != seen.host.uid().as_ref());
    let owners: Vec<_> = others.cloned().chain(owner).collect();
    let changes = json!({"metadata": {"labels": {key: value}, "finalizers": finalizers, "ownerReferences": owners}});
    patch_secret(context, secret, changes).await
}

async fn release_secret(
    context: &Context,
    seen: &Observed,
    secret: &Secret,
    is_shared: bool,
) -> Result<(), kube::Error> {
    let kept: Vec<&String> = secret
        .finalizers()
        .iter()
        .filter(|one| is_shared || *one != names::HOST_SECRET_FINALIZER)
        .collect();
    let owners: Vec<_> = secret
        .owner_references()
        .iter()
        .filter(|one| Some(&one.uid) != seen.host.uid().as_ref())
        .collect();
    let mut changes = json!({"metadata": {"finalizers": kept, "ownerReferences": owners}});
    // Of a host that is deleted it stays: what is watched has a version that a leader which is behind cannot overwrite.
    let deleted = seen.host.metadata.deletion_timestamp.is_some();
    if !is_shared && !deleted {
        changes["metadata"]["labels"] = json!({names::HOST_SECRET_LABEL.0: null});
    }
    gone_is_fine(patch_secret(context, secret, changes).await)
}

async fn patch_secret(
    context: &Context,
    secret: &Secret,
    changes: Value,
) -> Result<(), kube::Error> {
    let api: Api<Secret> =
        Api::namespaced(context.client.clone(), &secret.namespace().unwrap_or_default());
    let version = secret.resource_version().unwrap_or_default();
    context.writer.patch(&api, &secret.name_any(), &version, changes).await.map(|_| ())
}

fn with<'a>(all: &'a [String], one: &'a str) -> Vec<&'a str> {
    let others = all.iter().map(String::as_str).filter(|known| *known != one);
    others.chain([one]).collect()
}
