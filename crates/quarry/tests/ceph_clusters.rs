//! CephClusters at the embedded API, with the policies: upstream's manifests and the examples are accepted, what is not
//! built yet is warned about, and what no OSD can be created from is refused.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "reads the fixtures")]

use quarry_api::{
    CephCluster, admission,
    ceph_cluster::{fields::warned, problems},
};
use quarry_apiserver::{Options, Server};
use serde_json::{Value, json};
use std::fs;

fn server() -> kube::Client {
    let mut options = Options::new(quarry_api::crds());
    options.policies = admission::embedded_policies()
        .into_iter()
        .map(|policy| (policy.policy, policy.binding))
        .collect();
    Server::in_memory(options).client("default")
}

/// Status code, warnings and body.
async fn create(client: &kube::Client, object: &Value) -> (u16, Vec<String>, Value) {
    let mut object = object.clone();
    object["metadata"] = json!({"generateName": "c-"});
    let request = http::Request::post("/apis/ceph.rook.io/v1/namespaces/default/cephclusters")
        .header("content-type", "application/json")
        .body(kube::client::Body::from(object.to_string().into_bytes()))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|one| one.to_str().unwrap().to_owned()).collect();
    let body = response.into_body().collect_bytes().await.unwrap();
    (code, warnings, serde_json::from_slice(&body).unwrap())
}

fn cluster(spec: Value) -> Value {
    json!({"apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "metadata": {"name": "c"}, "spec": spec})
}

/// A cluster with one set: a valid one, with these fields replaced.
fn with(fields: &Value) -> Value {
    let mut set = json!({"name": "a", "count": 1, "volumeClaimTemplates": templates(&["data"])});
    for (key, value) in fields.as_object().unwrap() {
        set[key] = value.clone();
    }
    cluster(json!({"storage": {"storageClassDeviceSets": [set]}}))
}

fn templates(names: &[&str]) -> Value {
    let one = |name: &&str| json!({"metadata": {"name": name}, "spec": {"resources": {"requests": {"storage": 1}}}});
    names.iter().map(one).collect()
}

fn fixtures(file: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/fixtures/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The same without nulls in fields: the API server drops those.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let given = map.iter().filter(|(_, value)| !value.is_null());
            given.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[tokio::test]
async fn upstream_manifests_and_examples_are_accepted_unchanged() {
    let client = server();
    for (file, count) in [("ceph-clusters.yaml", 6), ("ceph-examples.yaml", 6)] {
        let all = fixtures(file);
        assert_eq!(all.len(), count, "{file}");
        for object in all {
            let (code, warnings, stored) = create(&client, &object).await;
            assert_eq!(code, 201, "{object}: {stored}");
            let expected = object["metadata"]["annotations"]["warnings"].as_str().unwrap();
            assert_eq!(warnings.len().to_string(), expected, "{warnings:?}");
            assert_eq!(stored["spec"], without_nulls(&object["spec"]));
            drop(serde_json::from_value::<CephCluster>(stored).unwrap());
        }
    }
}

/// Of the manifests, only those with what is not built yet have problems.
#[test]
fn problems_of_the_manifests_are_what_is_not_built() {
    let mut found = Vec::new();
    for object in fixtures("ceph-clusters.yaml").into_iter().chain(fixtures("ceph-examples.yaml")) {
        let read: CephCluster = serde_json::from_value(object).unwrap();
        found.extend(problems(&read.spec).into_iter().map(|problem| problem.field));
    }
    assert_eq!(
        found,
        [
            "spec.storage.storageClassDeviceSets[0].encrypted",
            "spec.storage.storageClassDeviceSet[0].config.osdsPerDevice",
        ]
    );
}

#[tokio::test]
async fn invalid_sets_are_refused_with_field_and_remedy() {
    let client = server();
    let two = |device: &str| json!({"config": {"metadataDevice": device}, "volumeClaimTemplates": templates(&["data", "metadata"])});
    for (fields, words) in [
        (json!({"name": "Set_1"}), "name must be a valid name; use at most 63"),
        (json!({"name": "a".repeat(64)}), "name must be a valid name; use at most 63"),
        (json!({"count": -1}), "count must not be negative; set the number"),
        (json!({"count": null}), "count: Required value"),
        (json!({"volumeClaimTemplates": []}), "volumeClaimTemplates is empty; add"),
        (
            json!({"volumeClaimTemplates": templates(&["metadata", "wal"])}),
            "has no template for data; name",
        ),
        (
            json!({"volumeClaimTemplates": templates(&["data", "cache"])}),
            "states no role; use data, metadata or wal",
        ),
        (
            json!({"volumeClaimTemplates": templates(&["", "data"])}),
            "several templates for one role; use each",
        ),
        (two("/dev/rook/device0"), "config.metadataDevice must be the device"),
        (two("/dev/rook/device2"), "config.metadataDevice must be the device"),
        (two("/dev/sdb"), "config.metadataDevice must be the device"),
        (
            json!({"volumeClaimTemplates": [{"spec": {"volumeMode": "Filesystem", "resources": {"requests": {"storage": 1}}}}]}),
            "volumeMode must be Block, because",
        ),
        (
            json!({"volumeClaimTemplates": [{"spec": {}}]}),
            "resources.requests.storage is missing; give",
        ),
    ] {
        let object = with(&fields);
        let (code, _, body) = create(&client, &object).await;
        assert_eq!(code, 422, "{fields}: {body}");
        let message = body["message"].as_str().unwrap();
        assert!(message.contains(words), "{fields}: {message}");
        assert!(message.contains("spec.storage.storageClassDeviceSets[0]"), "{message}");
        // What admission refuses is a problem for the planner, too.
        let read: CephCluster = serde_json::from_value(object).unwrap();
        assert_eq!(problems(&read.spec).len(), 1, "{fields}: {:?}", problems(&read.spec));
    }
}

#[tokio::test]
async fn names_are_unique_over_both_keys() {
    let client = server();
    let set = with(&json!({}))["spec"]["storage"]["storageClassDeviceSets"][0].clone();
    for storage in [
        json!({"storageClassDeviceSets": [set, set]}),
        json!({"storageClassDeviceSet": [set, set]}),
        json!({"storageClassDeviceSets": [set], "storageClassDeviceSet": [set]}),
    ] {
        let (code, _, body) = create(&client, &cluster(json!({"storage": storage}))).await;
        assert_eq!(code, 422, "{body}");
        let message = body["message"].as_str().unwrap();
        assert!(message.contains("use a name of its own for each set"), "{message}");
    }
}

#[tokio::test]
async fn every_warning_is_given_and_the_object_accepted() {
    let client = server();
    let term = json!({"labelSelector": {"matchLabels": {"a": "b"}}});
    let set = |fields: Value| with(&fields);
    let beside = |spec: Value| {
        let mut object = with(&json!({}));
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        object
    };
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let no_key = "set.placement: a term without topologyKey";
    let encrypted = "set.encrypted: true";
    let hosts = "spec.storage: devices of hosts";
    let network = "spec.network: host";
    let tried = [
        (
            no_key,
            set(
                json!({"placement": {"podAntiAffinity": {preferred: [{"weight": 1, "podAffinityTerm": term}]}}}),
            ),
        ),
        (no_key, set(json!({"preparePlacement": {"podAffinity": {required: [term]}}}))),
        (no_key, beside(json!({"placement": {"all": {"podAntiAffinity": {required: [term]}}}}))),
        (encrypted, set(json!({"encrypted": true}))),
        (encrypted, set(json!({"config": {"encryptedDevice": "true"}}))),
        ("set.config.osdsPerDevice above 1", set(json!({"config": {"osdsPerDevice": "2"}}))),
        ("set.config: a key that is not known", set(json!({"config": {"databaseSizeMB": "1"}}))),
        (
            "set.resources.limits below requests",
            set(json!({"resources": {"requests": {"cpu": 1}, "limits": {"cpu": "500m"}}})),
        ),
        (
            "set.tuneFastDeviceClass beside tuneDeviceClass",
            set(json!({"tuneDeviceClass": true, "tuneFastDeviceClass": true})),
        ),
        (hosts, cluster(json!({"storage": {"useAllDevices": true}}))),
        (hosts, cluster(json!({"storage": {"nodes": [{"name": "n"}]}}))),
        (network, cluster(json!({"network": {"provider": "host"}}))),
        (network, cluster(json!({"network": {"hostNetwork": true}}))),
        ("spec.external beside device sets", beside(json!({"external": {"enable": true}}))),
    ];
    for (field, object) in &tried {
        let row = warned().into_iter().find(|row| row.field == *field).unwrap();
        let (code, warnings, body) = create(&client, object).await;
        assert_eq!(code, 201, "{field}: {body}");
        assert_eq!(warnings.len(), 1, "{field}: {warnings:?}");
        let message = row.message.replace('"', "\\\"");
        assert!(warnings[0].contains(&message), "{field}: {warnings:?}");
    }
    for row in warned() {
        assert!(tried.iter().any(|(field, _)| *field == row.field), "{} is not tried", row.field);
    }
}

#[tokio::test]
async fn values_without_effect_are_not_warned_about() {
    let client = server();
    let object = with(&json!({
        "placement": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}},
        "preparePlacement": {"podAffinity": null},
        "config": {"osdsPerDevice": "1", "encryptedDevice": "false"},
        "encrypted": false,
        "resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": "1000m"}},
    }));
    let (code, warnings, body) = create(&client, &object).await;
    assert_eq!((code, warnings), (201, vec![]), "{body}");
    for spec in [
        json!({"storage": null, "network": null}),
        json!({"storage": {"nodes": [], "useAllDevices": false}, "network": {"provider": ""}}),
        json!({"external": {"enable": true}, "storage": {"storageClassDeviceSets": []}}),
    ] {
        let (code, warnings, body) = create(&client, &cluster(spec)).await;
        assert_eq!((code, warnings), (201, vec![]), "{body}");
    }
}
