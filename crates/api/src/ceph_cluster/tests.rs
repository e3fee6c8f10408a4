//! Round trips, roles and problems of device sets, and the schema of the kind.

use super::{device_set::config, fields::warned, *};
use crate::{crds, names::ceph};
use serde_json::{Value, json};

fn set(fields: Value) -> DeviceSet {
    serde_json::from_value(fields).unwrap()
}

/// A set that is valid, with these fields replaced.
fn with(fields: Value) -> Value {
    let mut base = json!({"name": "a", "count": 1, "volumeClaimTemplates": [template("data")]});
    for (key, value) in fields.as_object().unwrap() {
        base[key] = value.clone();
    }
    base
}

fn template(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"resources": {"requests": {"storage": "10Gi"}}}})
}

fn templates(names: &[&str]) -> Value {
    names.iter().map(|name| template(name)).collect()
}

fn spec(storage: Value) -> CephClusterSpec {
    serde_json::from_value(json!({"storage": storage})).unwrap()
}

fn texts(storage: Value) -> Vec<String> {
    problems(&spec(storage)).iter().map(ToString::to_string).collect()
}

/// The problems of one set.
fn found(fields: Value) -> Vec<String> {
    texts(json!({"storageClassDeviceSets": [with(fields)]}))
}

fn only(fields: Value, expected: &str) {
    let found = found(fields);
    let path = "spec.storage.storageClassDeviceSets[0].";
    assert_eq!(found, [format!("{path}{expected}")]);
}

#[test]
fn unlisted_fields_survive_at_every_level() {
    let object = json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "metadata": {"name": "c", "namespace": "n"},
        "spec": {
            "cephVersion": {"image": "ceph/ceph:v19", "allowUnsupported": true},
            "dataDirHostPath": "/var/lib/rook",
            "external": {"enable": false, "more": 1},
            "mon": {"count": 3, "volumeClaimTemplate": {"spec": {}}},
            "placement": {"all": {"tolerations": [{"key": "k", "operator": "Exists"}], "more": [1]}},
            "priorityClassNames": {"osd": "high"},
            "resources": {"osd": {"limits": {"memory": "4Gi"}}},
            "storage": {
                "config": {"a": "b"}, "fullRatio": 0.9, "useAllDevices": false, "onlyApplyOSDPlacement": true,
                "storageClassDeviceSets": [{
                    "name": "s", "count": 1, "more": {"x": null}, "portable": false, "config": {"z": "1"},
                    "placement": {"more": true},
                    "volumeClaimTemplates": [{
                        "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "more": 2},
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}},
                    }],
                }],
            },
        },
        "status": {
            "phase": "Ready", "message": "m", "state": "Created", "observedGeneration": 2,
            "ceph": {"health": "HEALTH_OK", "fsid": "f", "details": {"x": {"severity": "s"}}},
            "storage": {"deviceClasses": [{"name": "ssd"}], "osd": {"storeType": {"bluestore": 3}}},
            "version": {"image": "i", "version": "19.2.3-0"},
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "ClusterCreated", "message": "ok", "more": 1,
                "lastHeartbeatTime": "2026-05-01T10:00:00Z", "lastTransitionTime": "2026-05-01T09:00:00Z",
            }],
        },
    });
    let read: CephCluster = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), object);
    let status = read.status.unwrap();
    assert_eq!(status.condition("Ready").unwrap().reason, "ClusterCreated");
    assert!(status.condition(ceph::DEVICE_SETS_READY).is_none());
}

#[test]
fn null_is_absent_and_numbers_are_quantities() {
    let spec: CephClusterSpec = serde_json::from_value(json!({
        "cephVersion": null, "dataDirHostPath": null, "external": null, "placement": {"all": null},
        "resources": {"osd": {"requests": {"cpu": 2, "memory": "4Gi"}}, "prepareosd": null}, "priorityClassNames": null,
        "storage": {
            "storageClassDeviceSet": null, "config": null, "useAllDevices": null,
            "storageClassDeviceSets": [{
                "name": "s", "count": 3, "resources": null, "placement": null, "preparePlacement": null, "config": {"a": null},
                "portable": null, "encrypted": null, "schedulerName": null,
                "volumeClaimTemplates": [{"metadata": null, "spec": {"resources": {"requests": {"storage": 1}}}}],
            }],
        },
    }))
    .unwrap();
    let osd = &spec.resources["osd"];
    assert_eq!(osd.requests.as_ref().unwrap()["cpu"].0, "2");
    assert_eq!(spec.resources.len(), 1);
    let set = spec.device_sets().next().unwrap();
    assert!(set.resources.is_none() && set.config.is_empty() && set.portable.is_none());
    let storage = set.volume_claim_templates[0].spec.resources.as_ref().unwrap();
    assert_eq!(storage.requests.as_ref().unwrap()["storage"].0, "1");
    assert_eq!(problems(&spec), []);
    assert!(serde_json::from_value::<CephClusterSpec>(json!({"storage": null})).is_ok());
}

#[test]
fn sets_of_both_keys_are_joined_plural_first() {
    let spec = spec(json!({
        "storageClassDeviceSet": [with(json!({"name": "c"}))],
        "storageClassDeviceSets": [with(json!({"name": "a"})), with(json!({"name": "b"}))],
    }));
    let names: Vec<&str> = spec.device_sets().map(|set| set.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let paths: Vec<String> = spec.storage.device_sets_with_paths().map(|(path, _)| path).collect();
    assert_eq!(paths[2], "spec.storage.storageClassDeviceSet[0]");
}

#[test]
fn templates_have_roles_by_name_and_metadata_device() {
    use TemplateRole::{Data, Metadata, Wal};
    let roles = |names: &[&str], device: &str| {
        let config = if device.is_empty() { json!({}) } else { json!({"metadataDevice": device}) };
        set(with(json!({"volumeClaimTemplates": templates(names), "config": config}))).roles()
    };
    for (names, device, expected) in [
        (&["data"][..], "", vec![Data]),
        (&["anything"], "", vec![Data]),
        (&["wal"], "", vec![Data]),
        (&[""], "", vec![Data]),
        (&["", "metadata"], "", vec![Data, Metadata]),
        (&["wal", "data", "metadata"], "", vec![Wal, Data, Metadata]),
        (&["osd-data", "osd-metadata", "osd-wal"], "", vec![Data, Metadata, Wal]),
        (&["osd-data", "osd-metadata"], "/dev/rook/device1", vec![Data, Metadata]),
        (&["", ""], "/dev/rook/device1", vec![Data, Metadata]),
        (&["disk", "fast"], "/dev/rook/device1", vec![Data, Metadata]),
        (&["disk", "wal", "fast"], "/dev/rook/device2", vec![Data, Wal, Metadata]),
    ] {
        assert_eq!(roles(names, device), Ok(expected), "{names:?} {device}");
    }
    for (names, device, expected) in [
        (&[][..], "", RoleProblem::NoTemplates),
        (&["metadata", "wal"], "", RoleProblem::NoData),
        (&["data", "osd-"], "", RoleProblem::Unknown { template: 1 }),
        (&["data", "cache"], "", RoleProblem::Unknown { template: 1 }),
        (&["", "data"], "", RoleProblem::Duplicate { template: 1, earlier: 0, role: Data }),
        (
            &["data", "x", "metadata"],
            "/dev/rook/device1",
            RoleProblem::Duplicate { template: 2, earlier: 1, role: Metadata },
        ),
        (&["data"], "/dev/rook/device1", RoleProblem::MetadataDeviceNotFound),
        (&["data", "metadata"], "/dev/sdb", RoleProblem::MetadataDeviceNotFound),
        (&["data", "metadata"], "/dev/rook/device01", RoleProblem::MetadataDeviceNotFound),
        (&["data", "metadata"], "/dev/rook/device0", RoleProblem::MetadataDeviceIsFirst),
        (
            &["data", "wal"],
            "/dev/rook/device1",
            RoleProblem::MetadataDeviceNamed { template: 1, role: Wal },
        ),
    ] {
        assert_eq!(roles(names, device), Err(vec![expected]), "{names:?} {device}");
    }
}

#[test]
fn a_valid_set_has_no_problems() {
    for fields in [
        json!({}),
        json!({"count": 0}),
        json!({"encrypted": false, "config": {"osdsPerDevice": "1", "future": "x"}}),
        json!({"resources": {"requests": {"cpu": 2, "memory": "4Gi"}, "limits": {"cpu": "2000m", "memory": "8Gi"}}}),
        json!({"config": {"deviceClass": "nvme", "initialWeight": "1.5", "primaryAffinity": "0.5"}}),
    ] {
        assert_eq!(found(fields.clone()), Vec::<String>::new(), "{fields}");
    }
}

#[test]
fn each_problem_names_its_field_and_remedy() {
    only(
        json!({"name": "A_b"}),
        "name \"A_b\" is not a valid name; use at most 63 lower case letters, digits, '-' and '.'",
    );
    only(
        json!({"name": ""}),
        "name is missing; use at most 63 lower case letters, digits, '-' and '.'",
    );
    only(json!({"count": -1}), "count is -1; set the number of OSDs; 0 requests none");
    only(json!({"count": null}), "count is missing; set the number of OSDs; 0 requests none");
    only(
        json!({"encrypted": true}),
        "encrypted is true, and OSDs are not encrypted by this version; remove it, or use devices that encrypt",
    );
    only(
        json!({"config": {"encryptedDevice": "true"}}),
        "config.encryptedDevice is true, and OSDs are not encrypted by this version; remove it, or use devices that encrypt",
    );
    for value in ["3", "0", "many"] {
        only(
            json!({"config": {"osdsPerDevice": value}}),
            &format!(
                "config.osdsPerDevice is {value:?}, and this version runs one OSD per device; set it to \"1\" or remove it"
            ),
        );
    }
    only(
        json!({"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "100m"}}}),
        "resources.limits.cpu is 100m, below the request of 500m; raise the limit or lower the request",
    );
    only(
        json!({"resources": {"limits": {"memory": "4GiB"}}}),
        "resources.limits.memory \"4GiB\" is not a quantity; use a number with an optional suffix, such as 10Gi, 500M or 1e9; give a number with an optional suffix, such as 500m or 4Gi",
    );
    only(
        json!({"config": {"metadataDevice": "/dev/rook/device0"}, "volumeClaimTemplates": templates(&["data", "metadata"])}),
        "config.metadataDevice \"/dev/rook/device0\" is the device of the first template, which is for data; use /dev/rook/device1",
    );
    only(
        json!({"config": {"metadataDevice": "md0"}}),
        "config.metadataDevice \"md0\" is the device of no template; remove it, or add a template for metadata",
    );
    only(
        json!({"volumeClaimTemplates": templates(&["data", "cache"])}),
        "volumeClaimTemplates[1].metadata.name \"cache\" states no role; use data, metadata or wal",
    );
    only(
        json!({"volumeClaimTemplates": templates(&["data", "osd-data"])}),
        "volumeClaimTemplates[1].metadata.name has the role data, as spec.storage.storageClassDeviceSets[0].volumeClaimTemplates[0]; use each of data, metadata and wal once",
    );
    only(
        json!({"volumeClaimTemplates": []}),
        "volumeClaimTemplates is empty; add a template for the data device of each OSD",
    );
    only(
        json!({"config": {"deviceClass": "--force"}}),
        "config.deviceClass \"--force\" is not a device class; use letters, digits, '-', '_' and '.', as in ssd",
    );
    only(
        json!({"config": {"initialWeight": "heavy"}}),
        "config.initialWeight \"heavy\" is not a weight; give a number that is not negative, in units of 1 TiB, as in 1.5",
    );
    only(
        json!({"config": {"primaryAffinity": "2"}}),
        "config.primaryAffinity \"2\" is not a primary affinity; give a number from 0 to 1",
    );
}

#[test]
fn problems_of_templates_name_the_template() {
    let one = |template: Value| json!({"volumeClaimTemplates": [template]});
    let size = json!({"requests": {"storage": "10Gi"}});
    let missing = "volumeClaimTemplates[0].spec.resources.requests.storage is missing; give the size of the device, such as 10Gi; 1 accepts a device of any size";
    only(one(json!({"spec": {}})), missing);
    only(one(json!({"spec": {"resources": {"limits": {"storage": 1}}}})), missing);
    only(
        one(json!({"spec": {"resources": size, "volumeMode": "Filesystem"}})),
        "volumeClaimTemplates[0].spec.volumeMode is Filesystem, and an OSD needs a block device; set it to Block or remove it",
    );
    only(
        one(json!({"metadata": {"name": "My Disk"}, "spec": {"resources": size}})),
        "volumeClaimTemplates[0].metadata.name \"My Disk\" is not a valid name; use data, metadata or wal",
    );
    let labels = one(json!({"metadata": {"labels": {"a b": "c"}}, "spec": {"resources": size}}));
    assert_eq!(found(labels).len(), 1);
    let zero = found(one(json!({"spec": {"resources": {"requests": {"storage": 0}}}})));
    assert!(zero[0].contains("requests.storage is 0; give"), "{zero:?}");
}

#[test]
fn a_name_that_sets_share_is_a_problem_of_each() {
    let all = texts(json!({
        "storageClassDeviceSets": [with(json!({})), with(json!({"name": "b"}))],
        "storageClassDeviceSet": [with(json!({}))],
    }));
    assert_eq!(
        all,
        [
            "spec.storage.storageClassDeviceSets[0].name \"a\" is also the name of spec.storage.storageClassDeviceSet[0]; use a name of its own for each set",
            "spec.storage.storageClassDeviceSet[0].name \"a\" is also the name of spec.storage.storageClassDeviceSets[0]; use a name of its own for each set",
        ]
    );
}

#[test]
fn resources_of_the_cluster_are_a_problem_of_their_sets() {
    let spec: CephClusterSpec = serde_json::from_value(json!({
        "resources": {"osd": {"requests": {"memory": "4Gi"}, "limits": {"memory": "2Gi"}}},
        "storage": {"storageClassDeviceSets": [
            with(json!({})),
            with(json!({"name": "b", "resources": {"requests": {"memory": "1Gi"}}})),
            with(json!({"name": "c"})),
        ]},
    }))
    .unwrap();
    let all = problems(&spec);
    assert_eq!(all.iter().map(|problem| problem.set).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(
        problems::message(&all),
        "spec.resources.osd.limits.memory is 2Gi, below the request of 4Gi; raise the limit or lower the request"
    );
}

#[test]
fn settings_come_from_the_data_template_first() {
    let mut data = template("data");
    data["metadata"]["annotations"] = json!({"crushDeviceClass": "hybrid"});
    let set = set(with(json!({
        "volumeClaimTemplates": [template("metadata"), data],
        "config": {"deviceClass": "ssd", "crushDeviceClass": "hdd", "initialWeight": "2", "other": "x"},
    })));
    let class =
        ("volumeClaimTemplates[1].metadata.annotations.crushDeviceClass".to_owned(), "hybrid");
    assert_eq!(set.crush_device_class(), Some(class));
    assert_eq!(set.crush_initial_weight(), Some(("config.initialWeight".to_owned(), "2")));
    assert_eq!(set.primary_affinity(), None);
    assert_eq!(set.unknown_config().collect::<Vec<_>>(), ["other"]);
}

#[test]
fn terms_without_topology_key_get_the_hostname() {
    let term = json!({"labelSelector": {}});
    let placement: Placement = serde_json::from_value(json!({
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}],
            "requiredDuringSchedulingIgnoredDuringExecution": [term, {"topologyKey": "zone"}],
        },
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": null}]},
    }))
    .unwrap();
    let written = serde_json::to_value(placement.with_topology_keys()).unwrap();
    let keys: Vec<Value> = [
        "/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm/topologyKey",
        "/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/topologyKey",
        "/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/1/topologyKey",
        "/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/topologyKey",
    ]
    .iter()
    .map(|path| written.pointer(path).unwrap().clone())
    .collect();
    let host = "kubernetes.io/hostname";
    assert_eq!(keys, [host, host, "zone", host]);
}

#[test]
fn priority_class_is_its_own_or_that_of_all() {
    let spec: CephClusterSpec =
        serde_json::from_value(json!({"priorityClassNames": {"all": "low", "osd": "high"}}))
            .unwrap();
    assert_eq!(spec.priority_class(daemon::OSD), Some("high"));
    assert_eq!(spec.priority_class(daemon::PREPARE_OSD), Some("low"));
}

fn schema() -> Value {
    let all = crds();
    let crd = all.iter().find(|crd| crd.spec.names.kind == "CephCluster").unwrap();
    serde_json::to_value(crd.spec.versions[0].schema.as_ref().unwrap()).unwrap()["openAPIV3Schema"]
        .clone()
}

/// Every object below spec and status either keeps unlisted fields or is a map.
#[test]
fn no_object_of_the_schema_drops_fields() {
    fn walk(schema: &Value, path: &str) {
        // Kubernetes' own types without an extension: what they do not list, no Kubernetes knows.
        let closed = ["tolerations[]", "nodeSelectorTerms[]", "matchFields[]"];
        let selector = path.contains("nodeAffinity.") && !path.ends_with("Execution[]");
        if schema["type"] == "object" && !selector && !closed.iter().any(|end| path.ends_with(end))
        {
            let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
            assert!(open || schema["additionalProperties"].is_object(), "{path}");
        }
        assert!(schema["default"].is_null(), "{path} has a default");
        assert!(schema["nullable"].is_null(), "{path} is nullable");
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            walk(property, &format!("{path}.{name}"));
        }
        for (inner, suffix) in [("items", "[]"), ("additionalProperties", ".*")] {
            if schema[inner].is_object() {
                walk(&schema[inner], &format!("{path}{suffix}"));
            }
        }
    }
    for part in ["spec", "status"] {
        walk(&schema()["properties"][part], part);
    }
}

#[test]
fn required_fields_are_those_of_upstream() {
    let schema = schema();
    let storage = &schema["properties"]["spec"]["properties"]["storage"]["properties"];
    for key in DEVICE_SET_KEYS {
        let set = &storage[key]["items"];
        assert_eq!(set["required"], json!(["count", "name", "volumeClaimTemplates"]), "{key}");
        assert_eq!(set["properties"]["volumeClaimTemplates"]["items"]["required"], json!(["spec"]));
    }
    assert_eq!(schema["required"], json!(["spec"]));
    assert!(schema["properties"]["spec"]["required"].is_null());
}

#[test]
fn messages_of_warnings_have_a_remedy() {
    let rows = warned();
    assert_eq!(rows.len(), 9);
    for row in rows {
        assert!(row.message.contains("; "), "{}", row.message);
        assert!(!row.message.ends_with('.'), "{}", row.message);
    }
    assert!(config::KNOWN.contains(&config::METADATA_DEVICE));
}
