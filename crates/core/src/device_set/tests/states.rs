//! From a PVC to a running OSD, and where it stops.

use super::{super::OsdState, World, completed, failed, from, set};
use kube::ResourceExt;
use serde_json::json;
use std::sync::Arc;

#[test]
fn an_osd_goes_from_pvc_to_job_to_deployment() {
    let mut world = World::new(json!([set("set1", 1)]));
    world.apply(usize::MAX);
    assert_eq!(world.steps(), ["CreateJob"]);
    world.apply(usize::MAX);
    assert_eq!(world.steps(), [""; 0]);
    assert_eq!(world.message(), "OSDs: 1 Preparing");
    world.prepare(0);
    assert_eq!(world.steps(), ["CreateDeployment", "RecordResult"]);
    world.apply(usize::MAX);
    assert_eq!(world.message(), "OSDs: 1 Starting");
    world.start();
    assert_eq!(world.report().0, "True");
    assert_eq!(world.plan().steps, [], "at rest");
    assert_eq!(world.plan().status, None, "at rest");
}

#[test]
fn a_lost_result_is_found_by_preparing_again() {
    let mut world = World::new(json!([set("set1", 1)]));
    world.apply(usize::MAX);
    world.apply(usize::MAX);
    world.prepare(0);
    world.seen.pods.clear();
    assert_eq!(world.steps(), ["DeleteJob"]);
    world.settle();
    assert_eq!(world.message(), "OSDs: 1 Running");
    assert_eq!(world.registered.len(), 1, "adopted");
}

#[test]
fn a_recorded_result_outlives_job_and_pod() {
    let mut world = World::new(json!([set("set1", 1)]));
    world.settle();
    world.seen.jobs.clear();
    world.seen.pods.clear();
    assert_eq!(world.steps(), [""; 0]);
    world.seen.deployments.clear();
    assert_eq!(world.steps(), ["CreateDeployment"]);
}

// invariant: 1
#[test]
fn what_is_refused_is_reported_and_tried_again_only_later() {
    let mut world = World::new(json!([set("set1", 2)]));
    world.apply(usize::MAX);
    world.apply(usize::MAX);
    world.refuse(0, "NotBlank");
    world.prepare(1);
    world.settle();
    let (_, reason, message) = world.report();
    assert_eq!(reason, "OSDsFailing");
    assert!(message.contains("1 Refused, 1 Running"), "{message}");
    assert!(message.contains("set1[0] Refused: NotBlank: the reason in words"), "{message}");
    assert_eq!(world.steps(), [""; 0], "one minute after it failed");
    world.seen.jobs[0].status = Some(from(json!({"conditions": [
        {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"},
    ]})));
    assert_eq!(world.steps(), ["DeleteJob"], "the device may have been wiped since");
}

#[test]
fn a_pod_without_a_node_says_what_the_scheduler_says() {
    let mut world = World::new(json!([set("set1", 2)]));
    world.apply(usize::MAX);
    world.apply(usize::MAX);
    let owner = world.seen.jobs[0].uid().unwrap();
    world.seen.pods.push(from(json!({
        "metadata": {"name": "p", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]},
    })));
    world.prepare(1);
    world.apply(usize::MAX);
    world.start();
    let message = world.message();
    assert!(message.contains("1 Running, 1 Unscheduled"), "{message}");
    assert!(message.contains("0/3 nodes are available"), "{message}");
}

#[test]
fn a_failed_job_is_polled_slowly_and_made_again() {
    let mut world = World::new(json!([set("set1", 1)]));
    world.apply(usize::MAX);
    world.apply(usize::MAX);
    world.end_pod(0, &failed("MonitorsUnreachable"));
    let soon = world.plan().requeue.unwrap();
    world.job_is(0, "Failed");
    let later = world.plan().requeue.unwrap();
    assert!(soon < later, "{soon:?} while the Job still tries, {later:?} after it");
    assert!(world.message().contains("PrepareFailed"));
}

// invariant: 5
#[test]
fn a_deployment_on_other_pvcs_is_reported_and_left() {
    let mut world = World::new(json!([set("set1", 1)]));
    world.settle();
    let pod = world.seen.deployments[0].spec.as_mut().unwrap().template.spec.as_mut().unwrap();
    for volume in pod.volumes.iter_mut().flatten() {
        if let Some(claim) = &mut volume.persistent_volume_claim {
            claim.claim_name = "another".into();
        }
    }
    assert_eq!(world.steps(), [""; 0]);
    assert!(world.message().contains("does not use PVC"));
}

// invariant: 5
#[test]
fn an_id_that_another_pvc_uses_is_a_conflict() {
    let mut world = World::new(json!([set("set1", 2)]));
    world.apply(usize::MAX);
    world.apply(usize::MAX);
    world.prepare(0);
    world.settle();
    let uid = world.claim(1).uid().unwrap();
    world.seen.deployments.retain(|one| one.name_any() == "rook-ceph-osd-0");
    for result in &mut world.seen.results {
        result.data = Some([("status".to_owned(), completed(0, &uid))].into());
    }
    world.seen.pods.clear();
    assert_eq!(world.steps(), [""; 0]);
    assert!(world.message().contains("two OSDs cannot have one ID"), "{}", world.message());
}

// invariant: 3
#[test]
fn nothing_is_done_beside_another_operator() {
    let mut world = World::new(json!([set("set1", 1)]));
    world.seen.rook = Some("rook-ceph/rook-ceph-operator".into());
    assert_eq!(world.steps(), [""; 0]);
    let (status, reason, message) = world.report();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ServedByRook"));
    assert!(message.contains("scale it to 0"));
}

// invariant: 3
#[test]
fn a_namespace_has_the_osds_of_its_oldest_cluster() {
    let mut world = World::new(json!([set("set1", 1)]));
    let mut other = world.seen.cluster.clone();
    other.metadata.name = Some("c0".into());
    world.seen.others = vec![Arc::new(other.clone())];
    assert_eq!(world.report().1, "OtherClusterServed", "of equal age: by name");
    assert_eq!(world.steps(), [""; 0]);
    other.metadata.creation_timestamp = from(json!("2026-01-01T01:00:00Z"));
    world.seen.others = vec![Arc::new(other)];
    assert_eq!(world.steps(), ["ApplyConfig", "CreateClaim"]);
}

#[test]
fn what_the_cluster_lacks_is_named() {
    let mut world = World::new(json!([set("set1", 1)]));
    world.seen.access = Err("Secret ceph/rook-ceph-mon does not exist".into());
    let (_, reason, message) = world.report();
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("NotReachable", "Secret ceph/rook-ceph-mon does not exist")
    );
    assert_eq!(world.steps(), [""; 0]);
    let mut world = World::of(
        json!({"cephVersion": {}, "storage": {"storageClassDeviceSets": [set("set1", 1)]}}),
    );
    assert!(world.message().contains("spec.cephVersion.image is missing"));
    let mut world = World::of(
        json!({"external": {"enable": true}, "storage": {"storageClassDeviceSets": [set("set1", 1)]}}),
    );
    assert_eq!(world.report().1, "External");
    let mut world = World::new(json!([]));
    assert_eq!(world.report(), Default::default(), "no sets, no condition");
}

#[test]
fn sets_that_are_refused_stop_no_other() {
    let mut encrypted = set("encrypted", 1);
    encrypted["encrypted"] = json!(true);
    let mut several = set("several", 1);
    several["config"] = json!({"osdsPerDevice": "2"});
    let mut unknown = set("right", 1);
    unknown["config"] = json!({"colour": "red"});
    let mut world = World::new(json!([encrypted, several, unknown]));
    world.settle();
    let message = world.message();
    for words in ["encrypted", "osdsPerDevice", "1 Running", "colour"] {
        assert!(message.contains(words), "{words} in {message}");
    }
    assert_eq!(world.seen.claims.len(), 1);
}

#[test]
fn every_state_has_its_word_in_the_list() {
    let text = String::new;
    let all = [
        OsdState::New,
        OsdState::Unprepared,
        OsdState::Unscheduled(text()),
        OsdState::Preparing,
        OsdState::ResultLost,
        OsdState::PrepareFailed(text()),
        OsdState::Refused(text()),
        OsdState::Prepared,
        OsdState::Starting,
        OsdState::Running,
        OsdState::NotReady(text()),
        OsdState::ClaimLost(text()),
        OsdState::Conflict(text()),
    ];
    assert_eq!(all.map(|state| state.word()), OsdState::WORDS);
}
