//! Deletion of a Volume.

use super::*;

#[test]
fn deletion_removes_pv_then_storage_then_finalizer() {
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

// invariant: 4, 5
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
        assert!(message(&waits).contains("delete that PVC"), "{}", message(&waits));
    }
}

// invariant: 5
#[test]
fn a_pv_kept_by_another_finalizer_is_waited_for() {
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
fn deletion_waits_for_a_running_preparation() {
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

// invariant: 9
#[test]
fn a_failed_cleanup_is_retried_with_backoff() {
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

// invariant: 9
#[test]
fn storage_on_a_gone_node_is_abandoned_only_by_annotation() {
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

// invariant: 5
#[test]
fn storage_that_another_pv_publishes_is_not_cleaned_up() {
    let mut seen = available();
    seen.pv = None;
    seen.other_pv = Some("copy".into());
    delete(&mut seen);
    let waits = plan(&seen, now());
    assert!(
        waits.steps.is_empty() && message(&waits).contains("PersistentVolume copy also publishes"),
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

/// An agent that has lost its ledger finds nothing of the Volume, which proves nothing.
// invariant: 10
#[test]
fn nothing_is_prepared_or_removed_with_another_ledger() {
    let mut seen = observed(json!({}));
    seen.other_ledger = Some("the ledger is another one; restore it".into());
    let waiting = plan(&seen, now());
    assert!(waiting.steps.iter().all(|step| step.name() == "AddFinalizer"), "{waiting:?}");
    let message = waiting.status.unwrap().conditions[0].message.clone();
    assert_eq!(message.as_deref(), Some("the ledger is another one; restore it"));
    let mut seen = observed(
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [names::VOLUME_FINALIZER]}, "status": {"phase": "Available", "deviceName": "loop1"}}),
    );
    assert_eq!(plan(&seen, now()).steps.len(), 2, "a job is recorded and created");
    seen.other_ledger = Some("the ledger is another one; restore it".into());
    let blocked = plan(&seen, now());
    assert_eq!(blocked.steps, []);
    let message = blocked.status.unwrap().conditions[0].message.clone();
    assert!(message.unwrap().contains("the ledger is another one"));
}
