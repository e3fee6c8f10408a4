//! From a new Volume to an Available one.

use super::*;

// invariant: 8
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
    assert!(at_rest.steps.is_empty() && at_rest.events.is_empty());
    assert_eq!(at_rest.status, seen.volume.status);
}

#[test]
fn the_pv_is_as_specified() {
    let seen = available();
    insta::assert_yaml_snapshot!(seen.pv.unwrap());
}

// invariant: 2
#[test]
fn the_job_carries_its_whole_precondition() {
    let mut seen = observed(json!({"spec": {"mode": "Block"}}));
    let first = plan(&seen, now());
    apply(&mut seen, &first);
    insta::assert_yaml_snapshot!(seen.job.unwrap());
}

// invariant: 3
#[test]
fn a_recorded_job_is_created_under_the_same_name() {
    let mut seen = observed(json!({}));
    let first = plan(&seen, now());
    apply(&mut seen, &first);
    let made = seen.job.take().unwrap();
    let again = plan(&seen, now());
    assert_eq!(step_names(&again), ["CreateJob"]);
    let Step::CreateJob(job) = &again.steps[0] else { panic!() };
    assert_eq!(job.metadata.name, made.metadata.name);
}

// invariant: 3
#[test]
fn an_unmanaged_pv_is_left_alone() {
    let mut seen = observed(json!({}));
    seen.pv = Some(
        serde_json::from_value(
            json!({"metadata": {"name": "v1", "uid": "x", "resourceVersion": "1"}}),
        )
        .unwrap(),
    );
    let reported = plan(&seen, now());
    assert!(reported.steps.is_empty());
    assert!(message(&reported).contains("is not managed by this Volume"));
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
    assert!(plan(&seen, now()).events.is_empty());
    seen.volume.metadata.annotations =
        Some([(names::RETRY_ANNOTATION.to_owned(), "1".to_owned())].into());
    let again = plan(&seen, now());
    assert_eq!(step_names(&again), ["RecordJob", "CreateJob"]);
    apply(&mut seen, &again);
    assert_eq!(seen.job.as_ref().unwrap().spec.attempt, 2);
    finish(&mut seen, JobPhase::Failed, "boom again");
    assert!(plan(&seen, now()).steps.is_empty(), "the same annotation asks only once");
}

/// The device of the Volume, with its link.
fn loop_device(name: &str) -> Device {
    Device {
        name: name.into(),
        kind: "loop".into(),
        size: 1,
        volume_uid: Some(UID.into()),
        link: Some(format!("/dev/disk/by-uuid/{UID}")),
        ..Device::default()
    }
}

#[test]
fn the_device_name_follows_the_inventory() {
    let mut seen = available();
    seen.device = Some(loop_device("loop8"));
    let reported = plan(&seen, now());
    assert_eq!(reported.status.unwrap().device_name.as_deref(), Some("loop8"));
}

#[test]
fn template_labels_are_added_to_an_existing_pv() {
    let mut seen = available();
    seen.volume.spec.template =
        serde_json::from_value(json!({"metadata": {"labels": {"tier": "gold"}}})).unwrap();
    let reported = plan(&seen, now());
    assert_eq!(step_names(&reported), ["UpdatePvMetadata"]);
    apply(&mut seen, &reported);
    assert!(plan(&seen, now()).steps.is_empty());
}

#[test]
fn a_missing_device_is_reported_and_its_name_removed() {
    let mut seen = available();
    assert_eq!(phase(&plan(&seen, now())), Phase::Available, "the inventory has not caught up yet");
    let later = now() + SignedDuration::from_secs(9);
    seen.inventory_changed = Some(now() + SignedDuration::from_secs(5));
    let reported = plan(&seen, later);
    assert_eq!(phase(&reported), Phase::Failed);
    assert!(message(&reported).contains("restart the agent"), "{}", message(&reported));
    assert_eq!(reported.status.as_ref().unwrap().device_name, None);
    apply(&mut seen, &reported);
    let again = plan(&seen, later);
    assert_eq!(again.status, seen.volume.status, "said once, and it stays so");
    assert!(again.events.is_empty());
    seen.device = Some(loop_device("loop4"));
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

// invariant: 9
#[test]
fn a_volume_whose_link_leads_elsewhere_is_unavailable() {
    let mut seen = available();
    let later = now() + SignedDuration::from_secs(60);
    seen.device = Some(loop_device("loop4"));
    seen.inventory_changed = Some(now() + SignedDuration::from_secs(20));
    assert_eq!(phase(&plan(&seen, later)), Phase::Available);
    seen.device.as_mut().unwrap().link = None;
    let missing = plan(&seen, later);
    assert_eq!(phase(&missing), Phase::Failed);
    assert!(message(&missing).contains("is missing or does not lead to loop4"));
    seen.rival_device = Some("sdb".into());
    let reported = plan(&seen, later);
    let words = format!("/dev/disk/by-uuid/{UID} on node n1 does not lead to loop4");
    assert!(message(&reported).contains(&words), "{}", message(&reported));
    assert!(message(&reported).contains("sdb has the same UUID; remove sdb"));
    assert_eq!(reported.status.as_ref().unwrap().device_name.as_deref(), Some("loop4"));
    apply(&mut seen, &reported);
    let again = plan(&seen, later);
    assert_eq!(again.status, seen.volume.status, "reported once, and it stays so");
    assert!(again.events.is_empty());
    seen.device = Some(loop_device("loop4"));
    assert_eq!(phase(&plan(&seen, later)), Phase::Available, "also while the other is there");
}

#[test]
fn the_rival_of_a_volume_has_its_uuid_or_label() {
    let device = |name: &str| Device { name: name.into(), ..Device::default() };
    let own = Device { fs_uuid: Some(UID.into()), ..loop_device("loop4") };
    let part = |name: &str, parent: &str| Device {
        part_label: Some(UID.into()),
        parent: Some(parent.into()),
        ..device(name)
    };
    let copy = Device { fs_uuid: Some(UID.into()), ..device("sdb") };
    let found = |devices: &[Device]| observed::rival(devices, &volume(json!({})));
    assert_eq!(found(&[own.clone(), part("loop4p1", "loop4"), device("sdc")]), None);
    assert_eq!(found(&[own.clone(), copy]).as_deref(), Some("sdb"));
    assert_eq!(found(&[own, part("sdb1", "sdb")]).as_deref(), Some("sdb1"));
    assert_eq!(found(&[part("sdb1", "sdb")]).as_deref(), Some("sdb1"), "ours is not attached");
}

/// A scan beside the preparation may be published after it, and one after a boot before the devices are attached.
#[test]
fn a_device_that_may_still_come_is_no_failure() {
    let mut seen = available();
    let just = now() + SignedDuration::from_secs(2);
    seen.inventory_changed = Some(now() + SignedDuration::from_secs(1));
    for device in [None, Some(Device { link: None, ..loop_device("loop4") })] {
        seen.device = device;
        let waiting = plan(&seen, just);
        assert_eq!(phase(&waiting), Phase::Available);
        assert_eq!(waiting.requeue, Some(SignedDuration::from_secs(3)));
        assert_eq!(phase(&plan(&seen, just + SignedDuration::from_secs(3))), Phase::Failed);
        let booting = Observed { restored: false, ..seen.clone() };
        let reported = plan(&booting, now() + SignedDuration::from_secs(900));
        assert_eq!((phase(&reported), reported.requeue), (Phase::Available, None));
    }
    // What failed before the boot stays so until the device is there.
    seen.device = None;
    let failed = plan(&seen, now() + SignedDuration::from_secs(60));
    apply(&mut seen, &failed);
    seen.restored = false;
    assert_eq!(phase(&plan(&seen, now() + SignedDuration::from_secs(90))), Phase::Failed);
}

/// As upstream.
// invariant: 9
#[test]
fn a_volume_whose_pv_was_deleted_stays_available() {
    let mut seen = available();
    let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now());
    seen.pv.as_mut().unwrap().metadata.deletion_timestamp = Some(time);
    let reported = plan(&seen, now());
    assert_eq!((phase(&reported), step_names(&reported)), (Phase::Available, vec![]));
    let text = message(&reported);
    assert!(text.contains("PersistentVolume v1 was deleted and is terminating"), "{text}");
    assert!(text.contains("delete Volume v1 when its PVC is gone"), "{text}");
    let events: Vec<_> = reported.events.iter().map(|note| (note.reason, note.warning)).collect();
    assert_eq!(events, [("PvTerminating", true)]);
    let line = explain::explain(&seen).into_iter().find(|line| line.check == "pv").unwrap();
    assert_eq!((line.verdict, line.text), (explain::Verdict::Problem, text));
    apply(&mut seen, &reported);
    let again = plan(&seen, now());
    assert!(again.events.is_empty() && again.status == seen.volume.status, "reported once");
    // A PersistentVolume that Failed, or whose device is missing, is not Available.
    seen.pv.as_mut().unwrap().status = serde_json::from_value(json!({"phase": "Failed"})).unwrap();
    assert_eq!(phase(&plan(&seen, now())), Phase::Failed);
}

#[test]
fn a_job_for_a_recreated_node_is_planned_again() {
    let mut seen = observed(json!({}));
    let first = plan(&seen, now());
    apply(&mut seen, &first);
    finish(&mut seen, JobPhase::Failed, "the Node was recreated after the job was planned");
    seen.node.as_mut().unwrap().metadata.uid = Some("another".into());
    assert_eq!(step_names(&plan(&seen, now())), ["RecordJob", "CreateJob"]);
}

#[test]
fn a_claim_ref_of_the_template_reserves_the_pv() {
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
