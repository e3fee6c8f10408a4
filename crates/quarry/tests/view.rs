//! Views over the operator's caches and over a snapshot that a client listed are the same.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume},
};
use quarry_api::{
    BareMetalHost, HardwareData, LocalVolume, LocalVolumeSet, NodeInventory, Volume, names,
};
use quarry_core::source::Source;
use quarry_operator::cache::{Cached, Caches};
use quarry_view::{Snapshot, devices, hosts, sets, volumes};
use serde_json::{Value, json};
use std::sync::Arc;

const NAMESPACE: &str = names::DEFAULT_NAMESPACE;

fn read<K: serde::de::DeserializeOwned>(object: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(object).unwrap())
}

fn node(name: &str) -> Arc<Node> {
    read(
        json!({"metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}}}),
    )
}

fn inventory(name: &str, claims: Value, devices: &[(&str, &str)]) -> Arc<NodeInventory> {
    let device = |(name, identity): &(&str, &str)| json!({"name": name, "type": "disk", "size": 1 << 30, "identity": identity, "state": "Available", "settled": true});
    let devices: Vec<Value> = devices.iter().map(device).collect();
    read(json!({"metadata": {"name": name}, "spec": {"machineID": "m", "deviceClaims": claims},
        "status": {"machineID": "m", "devices": devices}}))
}

fn lease(node: &str) -> Arc<Lease> {
    let spec = json!({"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"});
    read(json!({"metadata": {"name": names::agent_lease(node)}, "spec": spec}))
}

fn pv(node: &str, identity: &str) -> Arc<PersistentVolume> {
    let on_node = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]);
    read(
        json!({"metadata": {"name": names::local_pv(node, identity), "uid": "pv", "finalizers": [names::PV_FINALIZER],
            "annotations": {names::IDENTITY_ANNOTATION: identity, names::ROUND_ANNOTATION: "1"}},
        "spec": {"local": {"path": "/mnt/local-storage/fast/a"}, "storageClassName": "fast", "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"namespace": "shop", "name": "db", "uid": "c"}, "nodeAffinity": {"required": {"nodeSelectorTerms": on_node}}},
        "status": {"phase": "Bound"}}),
    )
}

fn put<K: Cached>(caches: &Caches, object: &Arc<K>) {
    caches.store().put(object.clone());
    K::reindex(None, Some(object), caches);
}

/// Two nodes that share an identity, a device claim with a bound PersistentVolume, an absent agent.
fn sources() -> (Caches, Snapshot) {
    let owner =
        json!({"kind": "LocalVolumeSet", "namespace": NAMESPACE, "name": "fast", "uid": "u1"});
    let claim = json!([{"identity": "wwn:a", "owner": owner, "storageClassName": "fast", "volumeMode": "Block",
        "size": 1 << 30, "link": "/mnt/local-storage/fast/a", "round": 1}]);
    let (caches, mut snapshot) = (Caches::new(NAMESPACE), Snapshot::new(NAMESPACE));
    for object in [node("n1"), node("n2"), node("n3")] {
        put(&caches, &object);
        snapshot.nodes.insert(object.metadata.name.clone().unwrap(), object);
    }
    let first = inventory("n1", claim, &[("sda", "wwn:a"), ("sdb", "wwn:b"), ("sdc", "wwn:c")]);
    for object in [first, inventory("n2", json!([]), &[("vda", "wwn:c"), ("vdb", "wwn:d")])] {
        put(&caches, &object);
        snapshot.add_inventory((*object).clone());
    }
    let object = lease("n1");
    put(&caches, &object);
    snapshot.leases = Some([(object.metadata.name.clone().unwrap(), object)].into());
    let object = pv("n1", "wwn:a");
    put(&caches, &object);
    snapshot.pvs.insert(object.metadata.name.clone().unwrap(), object);
    let metadata = json!({"name": "fast", "namespace": NAMESPACE, "uid": "u1", "finalizers": [names::OWNER_FINALIZER]});
    let set: Arc<LocalVolumeSet> =
        read(json!({"metadata": metadata, "spec": {"storageClassName": "fast"}}));
    put(&caches, &set);
    snapshot.sets.push(set);
    let metadata = json!({"name": "named", "namespace": NAMESPACE, "uid": "u2", "finalizers": [names::OWNER_FINALIZER]});
    let paths = json!([{"storageClassName": "named", "devicePaths": ["/dev/sdb"]}]);
    let volume: Arc<LocalVolume> =
        read(json!({"metadata": metadata, "spec": {"storageClassDevices": paths}}));
    put(&caches, &volume);
    snapshot.local_volumes.push(volume);
    let spec =
        json!({"nodeName": "n1", "storageClassName": "c", "sparseLoopDevice": {"size": "1Gi"}});
    let volume: Arc<Volume> = read(json!({"metadata": {"name": "v1", "uid": "v"}, "spec": spec}));
    put(&caches, &volume);
    snapshot.volumes.insert("v1".into(), volume);
    let metadata = json!({"name": "rack-1", "namespace": "metal", "uid": "h"});
    let host: Arc<BareMetalHost> = read(
        json!({"metadata": metadata, "spec": {"online": true}, "status": {"provisioning": {"state": "available", "ID": "i"}}}),
    );
    put(&caches, &host);
    snapshot.add_host((*host).clone());
    let disk =
        |name: &str, serial: &str| json!({"name": name, "serialNumber": serial, "model": "M"});
    let data: Arc<HardwareData> = read(
        json!({"metadata": {"name": "rack-1", "namespace": "metal"}, "spec": {"hardware": {"storage": [disk("/dev/sda", "s1")]}}}),
    );
    put(&caches, &data);
    snapshot.add_hardware_data((*data).clone());
    (caches, snapshot)
}

fn views(source: &impl Source) -> Value {
    let now: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
    let owners = sets::list(source, None, now);
    json!({
        "devices": devices::list(source), "notes": devices::notes(source, now),
        "rows": sets::rows::rows(source, &owners), "sets": owners,
        "volumes": volumes::list(source, None), "hosts": hosts::list(source, None, None),
        "host": hosts::explain::explain(source, "metal", "rack-1", None, &[]),
    })
}

#[test]
fn caches_and_a_snapshot_give_the_same_views() {
    let (caches, snapshot) = sources();
    let expected = views(&snapshot);
    assert_eq!(views(&caches), expected);
    let device = &expected["sets"][0]["nodes"][0]["devices"][0];
    assert_eq!((&device["device"], &device["eligibility"]), (&json!("sda"), &json!("Bound")));
    assert_eq!(expected["volumes"][0]["name"], "v1");
    assert_eq!(
        (&expected["hosts"][0]["disks"], &expected["host"]["name"]),
        (&json!(1), &json!("rack-1"))
    );
}
