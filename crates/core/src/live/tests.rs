use super::*;
use serde_json::{Value, json};

const UID: &str = "11111111-2222-3333-4444-555555555555";

fn volume(deleted: bool) -> Volume {
    let mut object = json!({
        "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "metadata": {"name": "v1", "uid": UID},
        "spec": {"nodeName": "n1", "storageClassName": "fast", "mode": "Filesystem", "sparseLoopDevice": {"size": "1Gi"}},
    });
    if deleted {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    serde_json::from_value(object).unwrap()
}

fn job(action: &str) -> NodeJobSpec {
    serde_json::from_value(json!({
        "action": action, "nodeName": "n1", "owner": {"kind": "Volume", "name": "v1", "uid": UID}, "device": {"sparseFile": {"volumeUID": UID}},
        "precondition": {"nodeUID": "node", "specHash": spec_hash(&volume(false).spec)}, "attempt": 1,
    }))
    .unwrap()
}

fn live(deleted: bool) -> Live {
    Live { node_uid: Some("node".into()), owner: Some(volume(deleted)), pv: None, claim_uid: None }
}

/// A PersistentVolume of the volume, being deleted and free, with changes.
fn pv(changes: Value) -> PersistentVolume {
    let mut object = json!({
        "metadata": {"name": "v1", "uid": "pv", "deletionTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [{"apiVersion": "a", "kind": "Volume", "name": "v1", "uid": UID, "controller": true}]},
        "spec": {"local": {"path": format!("/dev/disk/by-uuid/{UID}")}},
        "status": {"phase": "Available"},
    });
    for (path, value) in changes.as_object().unwrap() {
        *object.pointer_mut(path).unwrap() = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_job_whose_reason_is_still_true_may_act() {
    assert_eq!(check(&job("Prepare"), &live(false)), Ok(()));
    assert_eq!(check(&job("Cleanup"), &live(true)), Ok(()));
    assert_eq!(check(&job("Cleanup"), &Live { pv: Some(pv(json!({}))), ..live(true) }), Ok(()));
}

#[test]
fn whatever_changed_since_the_plan_voids_the_job() {
    for action in ["Prepare", "Cleanup"] {
        let deleted = action == "Cleanup";
        assert_eq!(check(&job(action), &Live { node_uid: None, ..live(deleted) }), Err(Void::OtherNode));
        assert_eq!(check(&job(action), &Live { node_uid: Some("anew".into()), ..live(deleted) }), Err(Void::OtherNode));
        assert_eq!(check(&job(action), &Live { owner: None, ..live(deleted) }), Err(Void::OwnerGone));
        let mut other = volume(deleted);
        other.metadata.uid = Some("another".into());
        assert_eq!(check(&job(action), &Live { owner: Some(other), ..live(deleted) }), Err(Void::OtherOwner));
        let mut changed = volume(deleted);
        changed.spec.storage_class_name = "slow".into();
        assert_eq!(check(&job(action), &Live { owner: Some(changed), ..live(deleted) }), Err(Void::SpecChanged));
    }
    assert_eq!(check(&job("Prepare"), &live(true)), Err(Void::OwnerTerminating));
    assert_eq!(check(&job("Cleanup"), &live(false)), Err(Void::OwnerNotTerminating));
}

#[test]
fn storage_of_a_used_persistent_volume_is_not_cleaned_up() {
    let claimed = json!({"local": {"path": format!("/dev/disk/by-uuid/{UID}")}, "claimRef": {"namespace": "shop", "name": "db", "uid": "claim"}});
    for changes in [
        json!({"/metadata/deletionTimestamp": null}),
        json!({"/status/phase": "Bound", "/spec": claimed}),
        json!({"/status/phase": "Available", "/spec": claimed}),
        json!({"/status/phase": "Pending"}),
        json!({"/status/phase": "Mystery"}),
        json!({"/status": null}),
    ] {
        let answer = check(&job("Cleanup"), &Live { pv: Some(pv(changes.clone())), ..live(true) });
        assert!(matches!(answer, Err(Void::PvInUse(_))), "{changes}: {answer:?}");
    }
    // Released, and its very claim is still there: not yet.
    let released = pv(json!({"/status/phase": "Released", "/spec": claimed}));
    let with_claim = |uid: &str| check(&job("Cleanup"), &Live { pv: Some(released.clone()), claim_uid: Some(uid.into()), ..live(true) });
    assert!(matches!(with_claim("claim"), Err(Void::PvInUse(_))));
    assert_eq!(with_claim("a new claim of the same name"), Ok(()));
}

#[test]
fn somebody_elses_persistent_volume_counts_only_if_it_publishes_our_storage() {
    let foreign = |path: &str| pv(json!({"/metadata/ownerReferences": null, "/spec/local/path": path, "/status/phase": "Bound"}));
    assert_eq!(check(&job("Cleanup"), &Live { pv: Some(foreign("/mnt/x")), ..live(true) }), Ok(()));
    let answer = check(&job("Cleanup"), &Live { pv: Some(foreign(&format!("/dev/disk/by-uuid/{UID}"))), ..live(true) });
    assert!(matches!(answer, Err(Void::PvInUse(_))));
}
