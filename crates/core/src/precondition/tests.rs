use super::{check as check_task, *};
use crate::job::Task;
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
        "precondition": {"nodeUID": "node", "specHash": spec_hash(&volume(false).spec)},
        "parameters": (action == "Prepare").then(|| json!({"size": 1 << 30, "partition": {}})), "attempt": 1,
    }))
    .unwrap()
}

fn check(job: &NodeJobSpec, live: &VolumePrecondition) -> Result<(), PreconditionError> {
    let Ok(Task::Volume(task)) = Task::try_from(job) else { panic!("{job:?}") };
    check_task(job, &task, live)
}

fn live(deleted: bool) -> VolumePrecondition {
    VolumePrecondition {
        node_uid: Some("node".into()),
        owner: Some(volume(deleted)),
        pv: None,
        pvc_uid: None,
        other_ledger: false,
        ledger_unrecorded: false,
    }
}

// invariant: 10
#[test]
fn no_job_runs_with_another_ledger() {
    for (job, deleted) in [(job("Prepare"), false), (job("Cleanup"), true)] {
        assert_eq!(check(&job, &live(deleted)), Ok(()));
        let other = VolumePrecondition { other_ledger: true, ..live(deleted) };
        assert_eq!(check(&job, &other), Err(PreconditionError::OtherLedger));
    }
}

// invariant: 10
#[test]
fn jobs_wait_until_the_ledger_is_recorded() {
    for (job, deleted) in [(job("Prepare"), false), (job("Cleanup"), true)] {
        let unrecorded = VolumePrecondition { ledger_unrecorded: true, ..live(deleted) };
        let waits = check(&job, &unrecorded).unwrap_err();
        assert_eq!(waits, PreconditionError::LedgerUnrecorded);
        assert!(waits.is_transient() && !PreconditionError::OtherLedger.is_transient());
    }
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
    assert_eq!(
        check(&job("Cleanup"), &VolumePrecondition { pv: Some(pv(json!({}))), ..live(true) }),
        Ok(())
    );
}

// invariant: 2
#[test]
fn a_change_since_the_plan_voids_the_job() {
    for action in ["Prepare", "Cleanup"] {
        let deleted = action == "Cleanup";
        assert_eq!(
            check(&job(action), &VolumePrecondition { node_uid: None, ..live(deleted) }),
            Err(PreconditionError::OtherNode)
        );
        assert_eq!(
            check(
                &job(action),
                &VolumePrecondition { node_uid: Some("recreated".into()), ..live(deleted) }
            ),
            Err(PreconditionError::OtherNode)
        );
        assert_eq!(
            check(&job(action), &VolumePrecondition { owner: None, ..live(deleted) }),
            Err(PreconditionError::OwnerGone)
        );
        let mut other = volume(deleted);
        other.metadata.uid = Some("another".into());
        assert_eq!(
            check(&job(action), &VolumePrecondition { owner: Some(other), ..live(deleted) }),
            Err(PreconditionError::OtherOwner)
        );
        let mut changed = volume(deleted);
        changed.spec.storage_class_name = "slow".into();
        assert_eq!(
            check(&job(action), &VolumePrecondition { owner: Some(changed), ..live(deleted) }),
            Err(PreconditionError::SpecChanged)
        );
    }
    assert_eq!(check(&job("Prepare"), &live(true)), Err(PreconditionError::OwnerTerminating));
    assert_eq!(check(&job("Cleanup"), &live(false)), Err(PreconditionError::OwnerNotTerminating));
}

// invariant: 2, 5
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
        let answer = check(
            &job("Cleanup"),
            &VolumePrecondition { pv: Some(pv(changes.clone())), ..live(true) },
        );
        assert!(matches!(answer, Err(PreconditionError::PvInUse(_))), "{changes}: {answer:?}");
    }
    // Released, and its very claim is still there: not yet.
    let released = pv(json!({"/status/phase": "Released", "/spec": claimed}));
    let with_claim = |uid: &str| {
        check(
            &job("Cleanup"),
            &VolumePrecondition {
                pv: Some(released.clone()),
                pvc_uid: Some(uid.into()),
                ..live(true)
            },
        )
    };
    assert!(matches!(with_claim("claim"), Err(PreconditionError::PvInUse(_))));
    assert_eq!(with_claim("a new claim of the same name"), Ok(()));
}

#[test]
fn an_unmanaged_pv_counts_only_if_it_publishes_our_storage() {
    let unmanaged = |path: &str| {
        pv(
            json!({"/metadata/ownerReferences": null, "/spec/local/path": path, "/status/phase": "Bound"}),
        )
    };
    assert_eq!(
        check(&job("Cleanup"), &VolumePrecondition { pv: Some(unmanaged("/mnt/x")), ..live(true) }),
        Ok(())
    );
    let answer = check(
        &job("Cleanup"),
        &VolumePrecondition {
            pv: Some(unmanaged(&format!("/dev/disk/by-uuid/{UID}"))),
            ..live(true)
        },
    );
    assert!(matches!(answer, Err(PreconditionError::PvInUse(_))));
}

mod wipe {
    use super::super::{PreconditionError, WipePrecondition, check_wipe as check_task};
    use crate::{device_claim::claim_hash, job::Task};
    use quarry_api::{NodeInventory, NodeJobSpec, names, node_inventory::DeviceClaim};
    use serde_json::{Value, json};

    fn claim() -> DeviceClaim {
        serde_json::from_value(json!({
            "identity": "wwn:1", "owner": {"kind": "LocalVolumeSet", "namespace": "q", "name": "fast", "uid": "owner"}, "storageClassName": "fast",
            "size": 4096, "link": "/mnt/local-storage/fast/wwn-1", "round": 3, "job": {"name": "wipe-1", "attempt": 1},
        }))
        .unwrap()
    }

    fn job() -> NodeJobSpec {
        serde_json::from_value(json!({
            "action": "Wipe", "nodeName": "n1", "owner": {"kind": "LocalVolumeSet", "namespace": "q", "name": "fast", "uid": "owner"},
            "device": {"claimed": {"identity": "wwn:1", "size": 4096, "pvName": "pv", "pvUID": "pv-uid"}},
            "precondition": {"nodeUID": "node", "specHash": claim_hash(&claim())}, "parameters": {"size": 4096, "wipe": {"policy": "Quick"}}, "attempt": 1,
        }))
        .unwrap()
    }

    fn check_wipe<'a>(
        name: &str,
        job: &NodeJobSpec,
        live: &'a WipePrecondition,
    ) -> Result<&'a DeviceClaim, PreconditionError> {
        let Ok(Task::Wipe(device)) = Task::try_from(job) else { panic!("{job:?}") };
        check_task(name, job, &device, live)
    }

    /// Everything as it must be, but for the changes: paths into inventory, PersistentVolume, node, owner and claim.
    fn live(changes: Value) -> WipePrecondition {
        let mut world = json!({
            "node": "node", "owner": "owner", "pvc": null,
            "inventory": {"apiVersion": "quarry.dev/v1alpha1", "kind": "NodeInventory", "metadata": {"name": "n1"}, "spec": {"deviceClaims": [claim()]}},
            "pv": {
                "metadata": {"name": "pv", "uid": "pv-uid", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [names::PV_FINALIZER],
                    "annotations": {names::IDENTITY_ANNOTATION: "wwn:1", names::ROUND_ANNOTATION: "3"}},
                "spec": {"persistentVolumeReclaimPolicy": "Delete", "local": {"path": "/mnt/local-storage/fast/wwn-1"},
                    "claimRef": {"namespace": "d", "name": "c", "uid": "claim"}},
                "status": {"phase": "Released"},
            },
        });
        for (path, value) in changes.as_object().unwrap() {
            *world.pointer_mut(path).unwrap() = value.clone();
        }
        let text = |key: &str| world[key].as_str().map(str::to_owned);
        let inventory: Option<NodeInventory> =
            serde_json::from_value(world["inventory"].clone()).unwrap();
        WipePrecondition {
            node_uid: text("node"),
            owner_uid: text("owner"),
            inventory,
            pv: serde_json::from_value(world["pv"].clone()).unwrap(),
            pvc_uid: text("pvc"),
        }
    }

    #[test]
    fn a_wipe_runs_only_for_the_reason_it_was_planned_for() {
        assert_eq!(check_wipe("wipe-1", &job(), &live(json!({}))), Ok(&claim()));
        // Another claim of the same name, made since, is no reason to wait.
        assert!(check_wipe("wipe-1", &job(), &live(json!({"/pvc": "another"}))).is_ok());
        let in_use = |void: &PreconditionError, update: &str| matches!(void, PreconditionError::PvInUse(why) if why.contains(update));
        for (changes, expected) in [
            (json!({"/node": "other"}), PreconditionError::OtherNode),
            (json!({"/node": null}), PreconditionError::OtherNode),
            (json!({"/owner": null}), PreconditionError::OwnerGone),
            (json!({"/owner": "other"}), PreconditionError::OtherOwner),
            (json!({"/inventory": null}), PreconditionError::ClaimGone),
            (json!({"/inventory/spec/deviceClaims": []}), PreconditionError::ClaimGone),
            (
                json!({"/inventory/spec/deviceClaims/0/identity": "wwn:2"}),
                PreconditionError::ClaimGone,
            ),
            (
                json!({"/inventory/spec/deviceClaims/0/owner/uid": "other"}),
                PreconditionError::ClaimGone,
            ),
            (json!({"/inventory/spec/deviceClaims/0/job": null}), PreconditionError::ClaimChanged),
            (
                json!({"/inventory/spec/deviceClaims/0/job/name": "wipe-2"}),
                PreconditionError::ClaimChanged,
            ),
            (json!({"/inventory/spec/deviceClaims/0/round": 4}), PreconditionError::ClaimChanged),
            (json!({"/inventory/spec/deviceClaims/0/size": 8192}), PreconditionError::ClaimChanged),
            (json!({"/pv": null}), PreconditionError::PvGone("pv".into())),
            (json!({"/pv/metadata/uid": "other"}), PreconditionError::PvGone("pv".into())),
        ] {
            assert_eq!(
                check_wipe("wipe-1", &job(), &live(changes.clone())),
                Err(expected),
                "{changes}"
            );
        }
        for (changes, update) in [
            (json!({"/pv/spec/persistentVolumeReclaimPolicy": "Retain"}), "keeps its data"),
            (json!({"/pv/spec/local/path": "/elsewhere"}), "keeps its data"),
            (json!({"/pv/metadata/annotations": {}}), "keeps its data"),
            (json!({"/pv/metadata/deletionTimestamp": null}), "is not being deleted"),
            (json!({"/pv/status/phase": "Bound"}), "is bound"),
            (json!({"/pvc": "claim"}), "still exists"),
            (json!({"/pv/spec/claimRef/uid": null, "/pvc": "claim"}), "was never bound"),
            (json!({"/pv/spec/claimRef/uid": null}), "was never bound"),
            (json!({"/pv/spec/claimRef": null}), "was never bound"),
        ] {
            let void = check_wipe("wipe-1", &job(), &live(changes.clone())).unwrap_err();
            assert!(in_use(&void, update), "{changes}: {void}");
        }
        // Its annotations were pruned: its name says which device it is.
        let name = names::local_pv(&job().node_name, "wwn:1");
        let mut pruned = job();
        pruned.device.claimed.as_mut().unwrap().pv_name = name.clone();
        assert!(
            check_wipe(
                "wipe-1",
                &pruned,
                &live(json!({"/pv/metadata/name": name, "/pv/metadata/annotations": {}}))
            )
            .is_ok()
        );
        let mut resized = job();
        resized.device.claimed.as_mut().unwrap().size = 1;
        resized.parameters.as_mut().unwrap().size = 1;
        assert_eq!(
            check_wipe("wipe-1", &resized, &live(json!({}))),
            Err(PreconditionError::ClaimChanged)
        );
    }
}
