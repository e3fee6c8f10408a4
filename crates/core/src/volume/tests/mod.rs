//! Volumes made by hand; each file tests the module of its name.

use super::{
    check::{Violation, check},
    deletion::{Deletable, decide_deletable},
    *,
};
use crate::presence::Presence;
use quarry_api::node_job::JobPhase;
use quarry_api::volume::Phase;
use serde_json::{Value, json};
use status::StatusUpdate;

const UID: &str = "11111111-2222-3333-4444-555555555555";

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn volume(extra: Value) -> Volume {
    let mut object = json!({
        "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume",
        "metadata": {"name": "v1", "uid": UID, "resourceVersion": "5"},
        "spec": {"nodeName": "n1", "storageClassName": "fast", "mode": "Filesystem", "sparseLoopDevice": {"size": "1Gi"}},
    });
    merge(&mut object, &extra);
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

fn observed(extra: Value) -> Observed {
    Observed {
        volume: volume(extra),
        pv: None,
        class: Some(serde_json::from_value(json!({"metadata": {"name": "fast"}, "provisioner": "kubernetes.io/no-provisioner", "parameters": {"fsType": "xfs"}, "mountOptions": ["noatime"]})).unwrap()),
        node: Some(serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "node-uid"}})).unwrap()),
        agent: Presence::Present { until: Timestamp::MAX },
        job: None,
        device: None,
        rival_device: None,
        inventory_changed: None,
        other_ledger: None,
        restored: true,
        other_pv: None,
    }
}

/// Applies a plan as the operator would, without an API.
fn apply(seen: &mut Observed, plan: &Plan) {
    assert_eq!(check(seen, plan), vec![]);
    for step in &plan.steps {
        match step {
            Step::AddFinalizer => {
                seen.volume.metadata.finalizers = Some(vec![names::VOLUME_FINALIZER.into()])
            }
            Step::RecordJob(status) => seen.volume.status = Some(status.clone()),
            Step::CreateJob(job) => seen.job = Some((**job).clone()),
            Step::CreatePv(pv) => {
                let mut pv = (**pv).clone();
                pv.metadata.uid = Some("pv-uid".into());
                pv.metadata.resource_version = Some("9".into());
                pv.status = serde_json::from_value(json!({"phase": "Available"})).unwrap();
                seen.pv = Some(pv);
            }
            Step::UpdatePvMetadata(patch) => {
                let labels = seen.pv.as_mut().unwrap().metadata.labels.get_or_insert_default();
                labels.extend(patch.labels.clone());
            }
            Step::DeletePv { .. } => {
                seen.pv.as_mut().unwrap().metadata.deletion_timestamp =
                    Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()))
            }
            Step::ReleasePv { .. } => seen.pv = None,
            Step::ReleaseVolume => seen.volume.metadata.finalizers = None,
        }
    }
    if plan.status.is_some() {
        seen.volume.status = plan.status.clone();
    }
    // `observe` looks up the job that the status names, no other.
    if seen.job_handle().is_none() {
        seen.job = None;
    }
}

fn finish(seen: &mut Observed, phase: JobPhase, message: &str) {
    let job = seen.job.as_mut().unwrap();
    job.status = serde_json::from_value(json!({
        "phase": phase, "message": message, "completionTime": "2026-01-01T00:00:00Z",
        "result": {"path": format!("/dev/disk/by-uuid/{UID}"), "deviceName": "loop3", "capacity": 1 << 30},
    }))
    .unwrap();
}

fn step_names(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(Step::name).collect()
}

fn message(plan: &Plan) -> String {
    plan.status.as_ref().unwrap().conditions[0].message.clone().unwrap_or_default()
}

fn phase(plan: &Plan) -> Phase {
    plan.status.as_ref().unwrap().phase.unwrap()
}

fn available() -> Observed {
    let mut seen = observed(json!({}));
    let first = plan(&seen, now());
    apply(&mut seen, &first);
    finish(&mut seen, JobPhase::Succeeded, "");
    let second = plan(&seen, now());
    apply(&mut seen, &second);
    seen
}

fn delete(seen: &mut Observed) {
    seen.volume.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
}

mod check;
mod deletion;
mod deploy;
mod finalize;
mod request;
