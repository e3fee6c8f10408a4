use super::{plan::plan_inventory, *};
use quarry_api::names;
use serde_json::{Value, json};

fn plan(seen: &Observed) -> Option<Step> {
    plan_inventory(seen, None)
}

fn seen(node_exists: bool, extra: Value) -> Observed {
    let mut object = json!({"apiVersion": "quarry.dev/v1alpha1", "kind": "NodeInventory", "metadata": {"name": "n1", "uid": "u", "resourceVersion": "7"}, "spec": {}});
    for (key, value) in extra.as_object().unwrap() {
        let (part, field) = key.split_once('.').unwrap();
        object[part][field] = value.clone();
    }
    Observed {
        name: "n1".into(),
        node_exists,
        inventory: Some(serde_json::from_value(object).unwrap()),
        ..Observed::default()
    }
}

fn claims() -> Value {
    json!([{"identity": "wwn:1", "owner": {"kind": "LocalVolumeSet", "namespace": "s", "name": "fast", "uid": "x"}}])
}

fn unmanaged() -> Vec<UnmanagedPv> {
    vec![UnmanagedPv {
        name: "lso".into(),
        path: "/mnt/local-storage/fast/x".into(),
        device_id: None,
    }]
}

fn update(step: Option<Step>) -> Update {
    match step {
        Some(Step::Update(update)) => *update,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_inventory_follows_its_node() {
    let nothing = Observed { name: "n1".into(), unmanaged_pvs: unmanaged(), ..Observed::default() };
    assert_eq!(plan(&nothing), None);
    let Some(Step::Create(made)) = plan(&Observed { node_exists: true, ..nothing }) else {
        panic!()
    };
    assert_eq!(made.spec.unmanaged_pvs, unmanaged());
    assert_eq!(plan(&seen(true, json!({}))), None);
    assert_eq!(
        plan(&seen(false, json!({}))),
        Some(Step::Delete { uid: "u".into(), resource_version: "7".into() })
    );
    assert_eq!(
        plan(&seen(false, json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z"}))),
        None
    );
}

// invariant: 3
#[test]
fn an_inventory_with_device_claims_outlives_its_node() {
    let held = update(plan(&seen(true, json!({"spec.deviceClaims": claims()}))));
    assert_eq!(held.finalizers, Some(vec![names::DEVICE_CLAIMS_FINALIZER.to_owned()]));
    let finalizers = json!(["other/one", names::DEVICE_CLAIMS_FINALIZER]);
    assert_eq!(
        plan(&seen(
            true,
            json!({"spec.deviceClaims": claims(), "metadata.finalizers": finalizers})
        )),
        None
    );
    assert_eq!(
        plan(&seen(
            false,
            json!({"spec.deviceClaims": claims(), "metadata.finalizers": finalizers})
        )),
        None,
        "not deleted with its node"
    );
    let known = json!([{"name": "lso", "path": "/dev/x"}]);
    let gone = seen(
        false,
        json!({"spec.deviceClaims": claims(), "metadata.finalizers": finalizers, "spec.unmanagedPVs": known}),
    );
    assert_eq!(plan(&gone), None, "the list of its PersistentVolumes stays");
    let released = update(plan(&seen(true, json!({"metadata.finalizers": finalizers}))));
    assert_eq!(released.finalizers, Some(vec!["other/one".to_owned()]));
    // Deleted by hand: kept while there are device claims, released with the last one, never given a new finalizer.
    let going = json!({"spec.deviceClaims": claims(), "metadata.finalizers": finalizers, "metadata.deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(plan(&seen(true, going)), None);
    let free = json!({"metadata.finalizers": finalizers, "metadata.deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(update(plan(&seen(false, free))).finalizers, Some(vec!["other/one".to_owned()]));
    assert_eq!(
        plan(&seen(
            true,
            json!({"spec.deviceClaims": claims(), "metadata.deletionTimestamp": "2026-01-01T00:00:00Z", "metadata.finalizers": ["x/y"]})
        )),
        None
    );
}

/// The record of data on its disks is kept for as long as the node may come back.
// invariant: 1
#[test]
fn an_inventory_with_retained_data_outlives_its_node() {
    let entry = json!([{"identity": "wwn:1", "pvName": "p", "pvUID": "u"}]);
    let finalizers = json!([names::DEVICE_CLAIMS_FINALIZER]);
    for list in ["spec.retainedData", "spec.wipeRemnants"] {
        let held = update(plan(&seen(true, json!({list: entry}))));
        assert_eq!(
            held.finalizers,
            Some(vec![names::DEVICE_CLAIMS_FINALIZER.to_owned()]),
            "{list}"
        );
        assert_eq!(
            plan(&seen(false, json!({list: entry, "metadata.finalizers": finalizers}))),
            None,
            "{list}: not deleted with its node"
        );
        let going = |node: bool| {
            plan(&seen(
                node,
                json!({list: entry, "metadata.finalizers": finalizers, "metadata.deletionTimestamp": "2026-01-01T00:00:00Z"}),
            ))
        };
        assert_eq!(going(true), None, "{list}: the node exists, and so does the data");
        assert_eq!(update(going(false)).finalizers, Some(vec![]), "{list}");
        // What a plan has just learned counts as well.
        let learned =
            seen(false, json!({"spec.deviceClaims": claims(), "metadata.finalizers": finalizers}));
        let mut planned = device_claim::Plan::default();
        if list == "spec.retainedData" {
            planned.retained_data = serde_json::from_value(entry.clone()).unwrap();
        } else {
            planned.wipe_remnants = serde_json::from_value(entry.clone()).unwrap();
        }
        let step = update(plan_inventory(&learned, Some(&planned)));
        assert_eq!(
            (step.finalizers, step.spec.retained_data.len() + step.spec.wipe_remnants.len()),
            (None, 1)
        );
    }
    let both = json!({"spec.retainedData": entry, "spec.deviceClaims": claims(), "metadata.finalizers": finalizers, "metadata.deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(plan(&seen(false, both)), None, "its device claims back PersistentVolumes");
}

/// A node that comes back with an empty data directory must not pass for the one that prepared its Volumes.
// invariant: 10
#[test]
fn the_ledger_of_volumes_outlives_their_node() {
    let gone = |has_volumes: bool| Observed {
        has_volumes,
        ..seen(false, json!({"spec.ledgerID": "old"}))
    };
    assert!(matches!(plan(&gone(false)), Some(Step::Delete { .. })));
    assert_eq!(plan(&gone(true)), None);
    let wrong = Plan { inventory: plan(&gone(false)), ..Plan::default() };
    assert_eq!(check(&gone(true), &wrong), vec![Violation::DeletedWithRecords]);
}

#[test]
fn the_release_annotation_counts_once() {
    let released = json!({names::RELEASE_DEVICE_CLAIMS_ANNOTATION: "m1"});
    let with = |node: bool, machine: &str| {
        let extra = json!({"metadata.annotations": released, "spec.deviceClaims": claims(), "spec.machineID": "m1", "metadata.finalizers": [names::DEVICE_CLAIMS_FINALIZER]});
        let mut seen = seen(node, extra);
        seen.inventory.as_mut().unwrap().status = Some(quarry_api::NodeInventoryStatus {
            machine_id: Some(machine.into()),
            ..quarry_api::NodeInventoryStatus::default()
        });
        plan(&seen)
    };
    assert!(update(with(true, "m1")).answered, "the machine is back");
    assert_eq!((with(true, "m2"), with(false, "m1")), (None, None), "it is meant");
}

// invariant: 10
#[test]
fn another_ledger_is_recorded_only_when_nothing_depends_on_it() {
    let with = |has_volumes: bool, claimed: bool, accept: &str| {
        let mut extra = json!({"spec.ledgerID": "old", "metadata.annotations": {names::ACCEPT_LEDGER_ANNOTATION: accept}});
        if claimed {
            extra["spec.deviceClaims"] = claims();
        }
        let mut seen = Observed { has_volumes, ..seen(true, extra) };
        let found = seen.inventory.as_mut().unwrap();
        found.status = Some(quarry_api::NodeInventoryStatus {
            ledger_id: Some("new".into()),
            ..Default::default()
        });
        let step = plan(&seen);
        match step {
            Some(Step::Update(update)) => update.spec.ledger_id,
            _ => seen.inventory.unwrap().spec.ledger_id,
        }
    };
    let (old, new) = (Some("old".to_owned()), Some("new".to_owned()));
    assert_eq!(with(false, false, ""), new, "nothing depends on it");
    for (has_volumes, claimed) in [(true, false), (false, true)] {
        assert_eq!(with(has_volumes, claimed, ""), old);
        assert_eq!(with(has_volumes, claimed, "other"), old);
        assert_eq!(with(has_volumes, claimed, "new"), new, "accepted");
    }
    let first = seen(true, json!({"status.ledgerID": "first"}));
    assert_eq!(update(plan(&first)).spec.ledger_id.as_deref(), Some("first"));
}

#[test]
fn unmanaged_pvs_that_do_not_fit_are_counted() {
    let mut seen = seen(true, json!({}));
    seen.unmanaged_pvs = (0..9000)
        .map(|n| UnmanagedPv {
            name: format!("local-pv-{n:08}"),
            path: "/x".repeat(40),
            device_id: Some("wwn".into()),
        })
        .collect();
    let spec = update(plan(&seen)).spec;
    let bytes = serde_json::to_vec(&spec.unmanaged_pvs).unwrap().len();
    assert!((500_000..=600_000).contains(&bytes), "{bytes}");
    assert_eq!(
        spec.unmanaged_pvs_omitted,
        Some(9000 - i64::try_from(spec.unmanaged_pvs.len()).unwrap())
    );
    seen.inventory.as_mut().unwrap().spec = spec;
    assert_eq!(plan(&seen), None, "a plan on its own result is empty");
    seen.unmanaged_pvs.truncate(3);
    let spec = update(plan(&seen)).spec;
    assert_eq!((spec.unmanaged_pvs.len(), spec.unmanaged_pvs_omitted), (3, None));
}

// invariant: 8
#[test]
fn what_the_cluster_knows_is_written_once() {
    let mut seen = seen(
        true,
        json!({"spec.deviceClaims": claims(), "metadata.finalizers": [names::DEVICE_CLAIMS_FINALIZER]}),
    );
    seen.unmanaged_pvs = unmanaged();
    seen.elsewhere =
        vec![RemoteIdentity { identity: "wwn:1".into(), node: "n2".into(), device: "sdb".into() }];
    let update = update(plan(&seen));
    insta::assert_yaml_snapshot!(update.spec);
    assert_eq!((update.resource_version.as_str(), update.finalizers), ("7", None));
    seen.inventory.as_mut().unwrap().spec = update.spec;
    assert_eq!(plan(&seen), None, "a plan on its own result is empty");
    seen.elsewhere.clear();
    seen.unmanaged_pvs.clear();
    let cleared = super::tests::update(plan(&seen)).spec;
    assert!(
        cleared.quarantine.is_empty()
            && cleared.unmanaged_pvs.is_empty()
            && cleared.device_claims.len() == 1
    );
}

#[test]
fn check_reports_every_violation_of_an_inventory_plan() {
    let seen = seen(true, json!({"spec.deviceClaims": claims()}));
    let planned = |step| Plan { inventory: Some(step), ..Plan::default() };
    let delete = Step::Delete { uid: "u".into(), resource_version: "7".into() };
    assert_eq!(check(&seen, &planned(delete)), [Violation::DeletedWithRecords]);
    let mut spec = seen.inventory.as_ref().unwrap().spec.clone();
    spec.device_claims[0].round = 2;
    let finalizers = Some(Vec::new());
    let wrong = Update { resource_version: "7".into(), spec, finalizers, answered: false };
    let wrong = planned(Step::Update(Box::new(wrong)));
    assert_eq!(check(&seen, &wrong), [Violation::UnplannedRecords, Violation::Unprotected]);
    let unplanned = Plan { claims: Some(device_claim::Plan::default()), ..Plan::default() };
    assert_eq!(check(&seen, &unplanned), [Violation::UnplannedRecords]);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(check(&seen, &super::plan(&seen, now)), []);
}
