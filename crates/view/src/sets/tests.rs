use super::*;
use crate::{Snapshot, sets::plan::plan, snapshot::ByName};
use quarry_api::names;
use serde_json::{Value, json};
use std::sync::Arc;

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn disk(name: &str, more: Value) -> Value {
    let mut device = json!({"name": name, "type": "disk", "size": 53_687_091_200_i64, "identity": format!("wwn:{name}"),
        "state": "Available", "settled": true});
    for (key, value) in more.as_object().unwrap() {
        device[key] = value.clone();
    }
    device
}

/// Node n1 with a device claim, an available disk, one with data and two optical drives; n2 has a taint.
fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::new(names::DEFAULT_NAMESPACE);
    let node = |name: &str, taints: Value| json!({"metadata": {"name": name, "uid": name}, "spec": {"taints": taints}});
    let taint = json!([{"key": "dedicated", "effect": "NoSchedule"}]);
    for (name, taints) in [("n1", json!([])), ("n2", taint)] {
        snapshot.nodes.insert(name.into(), Arc::new(of(node(name, taints))));
    }
    let owner = json!({"kind": "LocalVolumeSet", "namespace": names::DEFAULT_NAMESPACE, "name": "fast", "uid": "u1"});
    let claim = json!({"identity": "wwn:sda", "owner": owner, "storageClassName": "fast", "volumeMode": "Block",
        "size": 53_687_091_200_i64, "link": "/mnt/local-storage/fast/sda", "round": 1});
    let reasons = |reason: &str, detail: &str| json!({"state": "NotAvailable", "reasons": [{"reason": reason, "detail": detail}]});
    let optical = |name: &str| disk(name, json!({"type": "rom", "identity": null}));
    let devices = json!([
        disk("sda", reasons("Claimed", "LocalVolumeSet quarry-system/fast")),
        disk("sdb", json!({})),
        disk("sdc", reasons("Signature", "xfs")),
        optical("sr0"),
        optical("sr1"),
    ]);
    let spec = json!({"machineID": "m", "deviceClaims": [claim]});
    let status = json!({"machineID": "m", "devices": devices});
    snapshot.add_inventory(of(json!({"metadata": {"name": "n1"}, "spec": spec, "status": status})));
    let metadata = json!({"name": "fast", "namespace": names::DEFAULT_NAMESPACE, "uid": "u1",
        "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": [names::OWNER_FINALIZER]});
    let set = json!({"metadata": metadata, "spec": {"storageClassName": "fast"}});
    snapshot.sets.push(Arc::new(of(set)));
    snapshot
}

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

#[test]
fn an_owner_is_counted_per_node() {
    insta::assert_json_snapshot!(list(&snapshot(), None, now()));
}

#[test]
fn a_set_has_one_row_per_node_that_concerns_it() {
    let snapshot = snapshot();
    insta::assert_json_snapshot!(rows::rows(&snapshot, &list(&snapshot, None, now())));
}

#[test]
fn a_plan_folds_devices_that_do_not_match() {
    let mut snapshot = snapshot();
    let summary = plan::summaries_of(&mut snapshot, &["u1".to_owned()], now()).remove(0);
    insta::assert_json_snapshot!(plan(&snapshot, &summary, None));
}

#[test]
fn an_absent_agent_is_noted_at_its_node() {
    let mut snapshot = snapshot();
    snapshot.leases = Some(ByName::new());
    let owners = list(&snapshot, Some("n1"), now());
    let note = owners[0].nodes[0].note.as_deref().unwrap_or_default();
    assert!(note.starts_with("no agent has been seen on node n1"), "{note}");
}

#[test]
fn a_missing_owner_lists_those_that_exist() {
    let owner = OwnerRef::Set("slow".into());
    assert_eq!(
        missing(&snapshot(), &owner),
        "namespace quarry-system has no LocalVolumeSet slow; use one of: fast (or another namespace with -n)"
    );
    assert_eq!(live(&snapshot(), &OwnerRef::Set("fast".into())).as_deref(), Some("u1"));
}
