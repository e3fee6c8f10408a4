//! PVCs: names, labels, indices; and what is never made again.

use super::{World, from, set, template};
use kube::ResourceExt;
use quarry_api::names::ceph;
use serde_json::json;
use std::collections::BTreeSet;

#[test]
fn missing_pvcs_are_created_with_the_labels_of_upstream() {
    let mut world = World::new(json!([set("set1", 2)]));
    assert_eq!(world.steps(), ["ApplyConfig", "CreateClaim", "CreateClaim"]);
    world.apply(3);
    for (index, claim) in world.seen.claims.iter().enumerate() {
        let labels = claim.labels();
        assert_eq!(labels[ceph::DEVICE_SET_LABEL], "set1");
        assert_eq!(labels[ceph::SET_INDEX_LABEL], index.to_string());
        assert_eq!(labels[ceph::DEVICE_SET_PVC_ID_LABEL], format!("set1-data-{index}"));
        let spec = claim.spec.as_ref().unwrap();
        assert_eq!(spec.volume_mode.as_deref(), Some("Block"));
        assert_eq!(claim.metadata.owner_references, None, "data outlives the object");
    }
}

#[test]
fn names_of_sets_that_look_alike_do_not_collide() {
    let long = "a".repeat(60);
    let mut world = World::new(json!([set("a.b", 3), set("a-b", 3), set(&long, 2)]));
    world.settle();
    let names: BTreeSet<String> = world.seen.claims.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names.len(), 8);
    assert!(names.iter().all(|name| name.len() <= 63), "{names:?}");
    assert_eq!(world.registered.len(), 8);
    assert_eq!(world.report().0, "True");
}

#[test]
fn the_default_class_is_used_or_its_absence_reported() {
    let mut one = set("set1", 1);
    one["volumeClaimTemplates"][0]["spec"]["storageClassName"] = json!(null);
    let mut world = World::new(json!([one]));
    assert!(world.message().contains("the cluster has no default StorageClass"));
    assert_eq!(world.steps(), ["ApplyConfig"]);
    world.seen.classes.push(from(json!({
        "metadata": {"name": "main", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "none",
    })));
    assert_eq!(world.steps(), ["ApplyConfig", "CreateClaim"]);
}

#[test]
fn a_class_that_does_not_exist_is_named_and_stops_no_other_set() {
    let mut wrong = set("wrong", 1);
    wrong["volumeClaimTemplates"] = json!([template("data", "nowhere")]);
    let mut world = World::new(json!([wrong, set("right", 1)]));
    world.settle();
    let (status, reason, message) = world.report();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidDeviceSets"));
    assert!(message.contains("StorageClass nowhere, which does not exist"), "{message}");
    assert!(message.contains("1 Running"), "{message}");
}

// invariant: 5
#[test]
fn a_lost_data_pvc_is_reported_and_not_made_again() {
    let mut world = World::new(json!([set("set1", 2)]));
    world.settle();
    let lost = world.seen.claims.remove(0);
    assert_eq!(world.steps(), [""; 0]);
    let message = world.message();
    assert!(message.contains("1 ClaimLost, 1 Running"), "{message}");
    assert!(message.contains("its data cannot be recreated"), "{message}");
    // The name again, by hand: another volume, so another UID.
    let mut again = lost.clone();
    again.metadata.uid = Some(world.uid());
    world.seen.claims.insert(0, again);
    world.seen.deployments.remove(0);
    assert!(world.steps().iter().all(|step| *step != "CreateDeployment"), "{:?}", world.steps());
}

#[test]
fn a_metadata_pvc_follows_its_data_pvc() {
    let mut one = set("set1", 1);
    one["volumeClaimTemplates"] = json!([template("metadata", "disks"), template("data", "disks")]);
    let mut world = World::new(json!([one]));
    world.apply(2);
    assert_eq!(world.claim(0).labels()[ceph::DEVICE_SET_PVC_ID_LABEL], "set1-data-0");
    assert_eq!(world.steps(), ["CreateClaim"]);
    world.settle();
    assert_eq!(world.seen.claims.len(), 2);
    world
        .seen
        .claims
        .retain(|one| one.labels()[ceph::DEVICE_SET_PVC_ID_LABEL] == "set1-metadata-0");
    assert_eq!(world.steps(), [""; 0], "the data PVC is lost");
    assert!(world.message().contains("data"));
}

#[test]
fn a_lower_count_and_a_removed_set_are_reported_only() {
    let mut world = World::new(json!([set("set1", 3), set("set2", 1)]));
    world.settle();
    let sets = json!([set("set1", 1)]);
    world.seen.cluster.spec.storage = from(json!({"storageClassDeviceSets": sets}));
    assert_eq!(world.steps(), [""; 0]);
    let message = world.message();
    assert!(message.contains("set set1 has 3 OSDs, and its count is 1: they stay"), "{message}");
    assert!(message.contains("set set2 is not in spec.storage any more"), "{message}");
}

#[test]
fn scaling_up_adds_above_the_highest_index() {
    let mut world = World::new(json!([set("set1", 2)]));
    world.settle();
    let sets = json!([set("set1", 4)]);
    world.seen.cluster.spec.storage = from(json!({"storageClassDeviceSets": sets}));
    world.settle();
    let of = |claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim| {
        claim.labels()[ceph::SET_INDEX_LABEL].clone()
    };
    let indices: Vec<String> = world.seen.claims.iter().map(of).collect();
    assert_eq!(indices, ["0", "1", "2", "3"]);
    assert_eq!(world.message(), "OSDs: 4 Running");
}

#[test]
fn pvcs_and_deployments_of_upstream_are_adopted() {
    let mut world = World::new(json!([set("set1", 1)]));
    world.seen.claims.push(from(json!({
        "metadata": {"name": "set1-data-0abcde", "namespace": "ceph", "uid": "00000000-0000-4000-8000-0000000000aa", "labels": {
            "ceph.rook.io/DeviceSet": "set1", "ceph.rook.io/setIndex": "0", "ceph.rook.io/DeviceSetPVCId": "set1-data-0",
        }},
        "spec": {"volumeMode": "Block"},
    })));
    world.seen.deployments.push(from(json!({
        "metadata": {"name": "rook-ceph-osd-0", "namespace": "ceph", "labels": {"ceph.rook.io/pvc": "set1-data-0abcde"}},
        "spec": {"selector": {}, "template": {"spec": {"containers": [], "volumes": [
            {"name": "d", "persistentVolumeClaim": {"claimName": "set1-data-0abcde"}},
        ]}}},
    })));
    world.start();
    assert_eq!(world.steps(), ["ApplyConfig"]);
    assert_eq!(world.message(), "OSDs: 1 Running");
}
