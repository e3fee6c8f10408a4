use super::deletion::{Deletable, decide_deletable};
use super::*;
use crate::presence::Presence;
use quarry_api::node_job::JobPhase;
use quarry_api::volume::Phase;
use serde_json::{Value, json};

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
        inventory_changed: None,
        other_pv: None,
    }
}

/// Applies a plan as the operator would, without an API.
fn apply(seen: &mut Observed, plan: &Plan) {
    check::check(seen, plan).unwrap();
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

#[test]
fn the_story_takes_three_writes_then_two_then_none() {
    let mut seen = observed(json!({}));
    let first = plan(&seen, now());
    assert_eq!(step_names(&first), ["AddFinalizer", "RecordJob", "CreateJob"]);
    assert_eq!(phase(&first), Phase::Pending);
    apply(&mut seen, &first);
    assert!(plan(&seen, now()).steps.is_empty(), "nothing is written while the job runs");
    finish(&mut seen, JobPhase::Succeeded, "");
    let second = plan(&seen, now());
    assert_eq!(step_names(&second), ["CreatePv"]);
    apply(&mut seen, &second);
    assert_eq!(seen.volume.phase(), Some(Phase::Available));
    let at_rest = plan(&seen, now());
    assert!(at_rest.steps.is_empty() && at_rest.notes.is_empty());
    assert_eq!(at_rest.status, seen.volume.status);
}

#[test]
fn the_persistent_volume_is_as_the_seed_says() {
    let seen = available();
    insta::assert_yaml_snapshot!(seen.pv.unwrap());
}

#[test]
fn the_job_carries_its_whole_precondition() {
    let mut seen = observed(json!({"spec": {"mode": "Block"}}));
    let first = plan(&seen, now());
    apply(&mut seen, &first);
    insta::assert_yaml_snapshot!(seen.job.unwrap());
}

#[test]
fn a_recorded_job_that_was_never_created_is_created_under_the_same_name() {
    let mut seen = observed(json!({}));
    let first = plan(&seen, now());
    apply(&mut seen, &first);
    let made = seen.job.take().unwrap();
    let again = plan(&seen, now());
    assert_eq!(step_names(&again), ["CreateJob"]);
    let Step::CreateJob(job) = &again.steps[0] else { panic!() };
    assert_eq!(job.metadata.name, made.metadata.name);
}

#[test]
fn bad_input_is_told_with_its_remedy_and_nothing_is_started() {
    let cases: Vec<(&str, Observed, Phase, &str)> = vec![
        (
            "size 0",
            observed(json!({"spec": {"sparseLoopDevice": {"size": "0"}}})),
            Phase::Failed,
            "is 0",
        ),
        (
            "negative",
            observed(json!({"spec": {"sparseLoopDevice": {"size": "-1Gi"}}})),
            Phase::Failed,
            "negative",
        ),
        (
            "no type",
            observed(json!({"spec": {"sparseLoopDevice": null}})),
            Phase::Failed,
            "no type is set",
        ),
        (
            "two types",
            observed(json!({"spec": {"rawBlockDevice": {"devicePath": "/dev/sdb"}}})),
            Phase::Failed,
            "sparseLoopDevice and rawBlockDevice",
        ),
        (
            "other type",
            observed(
                json!({"spec": {"sparseLoopDevice": null, "rawBlockDevice": {"devicePath": "/dev/sdb"}}}),
            ),
            Phase::Failed,
            "only sparseLoopDevice",
        ),
        (
            "no node",
            Observed { node: None, ..observed(json!({})) },
            Phase::Pending,
            "node n1 does not exist",
        ),
        (
            "no class",
            Observed { class: None, ..observed(json!({})) },
            Phase::Pending,
            "StorageClass fast does not exist",
        ),
        (
            "no agent",
            Observed { agent: Presence::Never, ..observed(json!({})) },
            Phase::Pending,
            "no agent has been seen on node n1",
        ),
        (
            "agent gone",
            Observed { agent: Presence::Absent { since: now() }, ..observed(json!({})) },
            Phase::Pending,
            "absent since 2026-01-01T00:00:00Z",
        ),
        ("no fsType", with_class(json!({})), Phase::Failed, "has no parameter fsType"),
        (
            "bad fsType",
            with_class(json!({"fsType": "zfs"})),
            Phase::Failed,
            "\"zfs\", which is not supported",
        ),
        (
            "bad option",
            with_class(json!({"fsType": "xfs", "mkfsOptions": "[\"-N\"]"})),
            Phase::Failed,
            "\"-N\"",
        ),
        (
            "bad list",
            with_class(json!({"fsType": "xfs", "mkfsOptions": "-K"})),
            Phase::Failed,
            "JSON list",
        ),
    ];
    for (case, seen, expected, words) in cases {
        let told = plan(&seen, now());
        assert!(told.steps.is_empty(), "{case}: {:?}", told.steps);
        assert_eq!(phase(&told), expected, "{case}");
        assert!(message(&told).contains(words), "{case}: {}", message(&told));
        assert_eq!(told.notes.len(), 1, "{case}: one event");
        assert!(
            explain::explain(&seen).iter().any(|line| line.verdict != explain::Verdict::Ok),
            "{case}: explain shows it"
        );
        let mut after = seen.clone();
        apply(&mut after, &told);
        let again = plan(&after, now());
        assert_eq!(again.status, after.volume.status, "{case}: said once");
        assert!(again.notes.is_empty(), "{case}: told once");
        delete(&mut after);
        after.volume.metadata.finalizers = Some(vec![names::VOLUME_FINALIZER.into()]);
        assert_eq!(
            step_names(&plan(&after, now())),
            ["ReleaseVolume"],
            "{case}: nothing started, so it goes at once"
        );
    }
}

fn with_class(parameters: Value) -> Observed {
    let mut seen = observed(json!({}));
    seen.class = Some(
        serde_json::from_value(
            json!({"metadata": {"name": "fast"}, "provisioner": "x", "parameters": parameters}),
        )
        .unwrap(),
    );
    seen
}

#[test]
fn a_block_volume_needs_no_fs_type() {
    let mut seen = with_class(json!({}));
    seen.volume.spec.mode = quarry_api::volume::VolumeMode::Block;
    assert_eq!(step_names(&plan(&seen, now())), ["AddFinalizer", "RecordJob", "CreateJob"]);
}

#[test]
fn a_persistent_volume_of_somebody_else_is_left_alone() {
    let mut seen = observed(json!({}));
    seen.pv = Some(
        serde_json::from_value(
            json!({"metadata": {"name": "v1", "uid": "x", "resourceVersion": "1"}}),
        )
        .unwrap(),
    );
    let told = plan(&seen, now());
    assert!(told.steps.is_empty());
    assert!(message(&told).contains("belongs to somebody else"));
}

#[test]
fn a_failed_job_is_final_until_a_retry_is_asked_for() {
    let mut seen = observed(json!({}));
    let first = plan(&seen, now());
    apply(&mut seen, &first);
    finish(&mut seen, JobPhase::Failed, "mkfs.xfs: boom");
    let failed = plan(&seen, now());
    assert!(failed.steps.is_empty());
    assert!(message(&failed).contains("boom") && message(&failed).contains("kubectl annotate"));
    apply(&mut seen, &failed);
    assert!(plan(&seen, now()).notes.is_empty());
    seen.volume.metadata.annotations =
        Some([(names::RETRY_ANNOTATION.to_owned(), "1".to_owned())].into());
    let again = plan(&seen, now());
    assert_eq!(step_names(&again), ["RecordJob", "CreateJob"]);
    apply(&mut seen, &again);
    assert_eq!(seen.job.as_ref().unwrap().spec.attempt, 2);
    finish(&mut seen, JobPhase::Failed, "boom again");
    assert!(plan(&seen, now()).steps.is_empty(), "the same annotation asks only once");
}

#[test]
fn the_device_name_follows_the_inventory() {
    let mut seen = available();
    seen.device = Some(Device {
        name: "loop8".into(),
        kind: "loop".into(),
        size: 1,
        volume_uid: Some(UID.into()),
        ..Device::default()
    });
    let told = plan(&seen, now());
    assert_eq!(told.status.unwrap().device_name.as_deref(), Some("loop8"));
}

#[test]
fn template_labels_reach_an_existing_persistent_volume() {
    let mut seen = available();
    seen.volume.spec.template =
        serde_json::from_value(json!({"metadata": {"labels": {"tier": "gold"}}})).unwrap();
    let told = plan(&seen, now());
    assert_eq!(step_names(&told), ["UpdatePvMetadata"]);
    apply(&mut seen, &told);
    assert!(plan(&seen, now()).steps.is_empty());
}

#[test]
fn deletion_deletes_the_pv_first_then_cleans_up_then_lets_go() {
    let mut seen = available();
    delete(&mut seen);
    let first = plan(&seen, now());
    assert_eq!(step_names(&first), ["DeletePv"]);
    apply(&mut seen, &first);
    let second = plan(&seen, now());
    assert_eq!(step_names(&second), ["RecordJob", "CreateJob"]);
    assert_eq!(phase(&second), Phase::Terminating);
    apply(&mut seen, &second);
    assert!(plan(&seen, now()).steps.is_empty());
    finish(&mut seen, JobPhase::Succeeded, "");
    let last = plan(&seen, now());
    assert_eq!(step_names(&last), ["ReleasePv", "ReleaseVolume"]);
    apply(&mut seen, &last);
    assert_eq!(plan(&seen, now()), Plan::default());
}

#[test]
fn a_bound_volume_is_never_reclaimed() {
    for bound in [
        json!({"spec": {"claimRef": {"namespace": "ns", "name": "data", "uid": "c"}}, "status": {"phase": "Bound"}}),
        json!({"spec": {"claimRef": {"namespace": "ns", "name": "data", "uid": "c"}}, "status": {"phase": "Available"}}),
        json!({"status": {"phase": "Pending"}}),
        json!({"status": {"phase": "Whatever"}}),
        json!({"status": null}),
    ] {
        let mut seen = available();
        let mut pv = serde_json::to_value(seen.pv.take().unwrap()).unwrap();
        merge(&mut pv, &bound);
        seen.pv = Some(serde_json::from_value(pv).unwrap());
        assert!(
            matches!(decide_deletable(&seen.volume, seen.pv.as_ref()), Deletable::No(_)),
            "{bound}"
        );
        delete(&mut seen);
        let first = plan(&seen, now());
        assert_eq!(step_names(&first), ["DeletePv"]);
        apply(&mut seen, &first);
        let waits = plan(&seen, now());
        assert!(waits.steps.is_empty(), "{bound}: {:?}", waits.steps);
        assert_eq!(phase(&waits), Phase::Terminating);
        assert!(message(&waits).contains("delete that claim"), "{}", message(&waits));
    }
}

#[test]
fn a_pv_that_another_finalizer_holds_is_waited_for() {
    let mut seen = available();
    delete(&mut seen);
    let first = plan(&seen, now());
    apply(&mut seen, &first);
    seen.pv
        .as_mut()
        .unwrap()
        .metadata
        .finalizers
        .as_mut()
        .unwrap()
        .push("kubernetes.io/pv-protection".into());
    let waits = plan(&seen, now());
    assert!(waits.steps.is_empty() && message(&waits).contains("pv-protection"));
}

#[test]
fn a_running_preparation_ends_before_the_deletion_goes_on() {
    let mut seen = observed(json!({}));
    let first = plan(&seen, now());
    apply(&mut seen, &first);
    delete(&mut seen);
    let waits = plan(&seen, now());
    assert!(waits.steps.is_empty());
    assert_eq!(phase(&waits), Phase::Pending);
    apply(&mut seen, &waits);
    for end in [JobPhase::Succeeded, JobPhase::Failed] {
        let mut ended = seen.clone();
        finish(&mut ended, end, "x");
        assert_eq!(
            step_names(&plan(&ended, now())),
            ["RecordJob", "CreateJob"],
            "the storage is cleaned up, no PersistentVolume is made"
        );
    }
}

#[test]
fn a_failed_cleanup_is_retried_with_backoff_as_another_job() {
    let mut seen = available();
    seen.pv = None;
    delete(&mut seen);
    let first = plan(&seen, now());
    apply(&mut seen, &first);
    finish(&mut seen, JobPhase::Failed, "loop3 is mounted at /mnt");
    let waits = plan(&seen, now());
    assert_eq!((waits.steps.len(), phase(&waits)), (0, Phase::Failed));
    assert!(message(&waits).contains("mounted at /mnt"));
    assert_eq!(waits.requeue, Some(SignedDuration::from_secs(10)));
    apply(&mut seen, &waits);
    let later = now() + SignedDuration::from_secs(10);
    let again = plan(&seen, later);
    assert_eq!(step_names(&again), ["RecordJob", "CreateJob"]);
    apply(&mut seen, &again);
    assert_eq!(seen.job.unwrap().spec.attempt, 2);
}

#[test]
fn storage_on_a_node_that_is_gone_is_given_up_only_when_told_so() {
    let mut seen = available();
    seen.pv = None;
    seen.node = None;
    delete(&mut seen);
    let waits = plan(&seen, now());
    assert!(waits.steps.is_empty() && message(&waits).contains("quarry.dev/abandon-node=n1"));
    seen.volume.metadata.annotations =
        Some([("quarry.dev/abandon-node".to_owned(), "n1".to_owned())].into());
    assert_eq!(step_names(&plan(&seen, now())), ["ReleaseVolume"]);
}

#[test]
fn the_seeds_deletion_criteria() {
    let deletable = |phase: Option<&str>, pv: Option<&str>| {
        let mut seen = available();
        seen.volume.status =
            phase.map(|phase| serde_json::from_value(json!({"phase": phase})).unwrap());
        let pv = pv.map(|phase| {
            let mut pv = seen.pv.clone().unwrap();
            pv.status = serde_json::from_value(json!({"phase": phase})).unwrap();
            pv
        });
        decide_deletable(&seen.volume, pv.as_ref()) == Deletable::Yes
    };
    for (phase, pv, expected) in [
        (None, None, false),
        (Some("Pending"), None, false),
        (Some("Terminating"), None, false),
        (Some("Pending"), Some("Available"), false),
        (Some("Available"), None, true),
        (Some("Failed"), None, true),
        (Some("Available"), Some("Available"), true),
        (Some("Available"), Some("Released"), true),
        (Some("Available"), Some("Failed"), true),
        (Some("Available"), Some("Bound"), false),
        (Some("Failed"), Some("Bound"), false),
        (Some("Available"), Some("Pending"), false),
    ] {
        assert_eq!(deletable(phase, pv), expected, "{phase:?} {pv:?}");
    }
}

#[test]
fn check_refuses_what_a_mistaken_planner_could_propose() {
    let mut seen = available();
    let used = {
        let mut pv = seen.pv.clone().unwrap();
        pv.status = serde_json::from_value(json!({"phase": "Bound"})).unwrap();
        pv
    };
    seen.pv = Some(used);
    let job = jobs::cleanup_job(&seen, "node-uid", 1);
    let recorded = StatusUpdate {
        job: Some(jobs::handle(jobs::UNPREPARE, &job)),
        ..status::StatusUpdate::new(Phase::Terminating, None, "")
    }
    .into_status(&seen.volume, now());
    let steps = |steps: Vec<Step>| Plan { steps, ..Plan::default() };
    assert_eq!(
        check::check(
            &seen,
            &steps(vec![Step::RecordJob(recorded.clone()), Step::CreateJob(Box::new(job.clone()))])
        ),
        Err(check::Violation::CleanupOfUsedStorage)
    );
    assert_eq!(
        check::check(&seen, &steps(vec![Step::CreateJob(Box::new(job.clone()))])),
        Err(check::Violation::JobWithoutRecord)
    );
    assert_eq!(
        check::check(&seen, &steps(vec![Step::ReleaseVolume])),
        Err(check::Violation::StorageLeftBehind)
    );
    assert_eq!(
        check::check(&seen, &steps(vec![Step::CreatePv(Box::default())])),
        Err(check::Violation::UnprovenPublication)
    );
    seen.pv.as_mut().unwrap().metadata.owner_references = None;
    assert_eq!(
        check::check(
            &seen,
            &steps(vec![Step::DeletePv { uid: "x".into(), resource_version: "1".into() }])
        ),
        Err(check::Violation::UnmanagedPv)
    );
    seen.volume.metadata.finalizers = None;
    assert_eq!(
        check::check(
            &seen,
            &steps(vec![Step::RecordJob(recorded), Step::CreateJob(Box::new(job))])
        ),
        Err(check::Violation::JobWithoutFinalizer)
    );
}

use status::StatusUpdate;

#[test]
fn a_device_that_went_missing_is_told_and_its_name_is_dropped() {
    let mut seen = available();
    assert_eq!(phase(&plan(&seen, now())), Phase::Available, "the inventory has not caught up yet");
    let later = now() + SignedDuration::from_secs(9);
    seen.inventory_changed = Some(now() + SignedDuration::from_secs(5));
    let told = plan(&seen, later);
    assert_eq!(phase(&told), Phase::Failed);
    assert!(message(&told).contains("restart the agent"), "{}", message(&told));
    assert_eq!(told.status.as_ref().unwrap().device_name, None);
    apply(&mut seen, &told);
    let again = plan(&seen, later);
    assert_eq!(again.status, seen.volume.status, "said once, and it stays so");
    assert!(again.notes.is_empty());
    seen.device = Some(Device {
        name: "loop4".into(),
        kind: "loop".into(),
        size: 1,
        volume_uid: Some(UID.into()),
        ..Device::default()
    });
    let back = plan(&seen, now());
    assert_eq!(
        (phase(&back), back.status.unwrap().device_name.as_deref()),
        (Phase::Available, Some("loop4"))
    );
    // With PersistentVolume and device gone there is still a file: it is cleaned up, not forgotten.
    seen.device = None;
    seen.pv = None;
    delete(&mut seen);
    assert_eq!(step_names(&plan(&seen, now())), ["RecordJob", "CreateJob"]);
}

#[test]
fn storage_that_another_persistent_volume_publishes_is_not_cleaned_up() {
    let mut seen = available();
    seen.pv = None;
    seen.other_pv = Some("copy".into());
    delete(&mut seen);
    let waits = plan(&seen, now());
    assert!(
        waits.steps.is_empty() && message(&waits).contains("PersistentVolume copy publishes"),
        "{}",
        message(&waits)
    );
    let copy: PersistentVolume =
        serde_json::from_value(json!({"metadata": {"name": "copy"}, "spec": {"local": {"path": format!("/dev/disk/by-uuid/{UID}")}}})).unwrap();
    assert_eq!(
        pv::published_elsewhere([std::sync::Arc::new(copy)], &seen.volume).as_deref(),
        Some("copy")
    );
}

#[test]
fn a_job_for_a_node_that_was_made_anew_is_planned_again() {
    let mut seen = observed(json!({}));
    let first = plan(&seen, now());
    apply(&mut seen, &first);
    finish(&mut seen, JobPhase::Failed, "the Node object was made anew since the job was planned");
    seen.node.as_mut().unwrap().metadata.uid = Some("another".into());
    assert_eq!(step_names(&plan(&seen, now())), ["RecordJob", "CreateJob"]);
}

#[test]
fn a_claim_ref_of_the_template_reserves_the_persistent_volume() {
    let mut seen = observed(
        json!({"spec": {"template": {"spec": {"claimRef": {"name": "db", "namespace": "shop"}}}}}),
    );
    let first = plan(&seen, now());
    apply(&mut seen, &first);
    finish(&mut seen, JobPhase::Succeeded, "");
    let second = plan(&seen, now());
    apply(&mut seen, &second);
    let claim = seen.pv.unwrap().spec.unwrap().claim_ref.unwrap();
    assert_eq!((claim.name.as_deref(), claim.namespace.as_deref()), (Some("db"), Some("shop")));
}
