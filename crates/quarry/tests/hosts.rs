//! BareMetalHosts and HardwareData at the embedded API, with the policies: upstream's manifests are accepted, unused
//! fields are warned about, and what upstream's webhook refuses is refused.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "reads the fixtures")]

use kube::api::{Api, DeleteParams, Patch, PatchParams};
use quarry_api::{BareMetalHost, HardwareData, admission, bare_metal_host::fields::UNUSED};
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
    let path = match object["kind"].as_str().unwrap() {
        "Secret" => "/api/v1/namespaces/default/secrets",
        "BareMetalHost" => "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts",
        "HardwareData" => "/apis/metal3.io/v1alpha1/namespaces/default/hardwaredata",
        other => panic!("no path for {other}"),
    };
    let request = http::Request::post(path)
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

fn host(spec: Value, annotations: Value) -> Value {
    json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "h", "annotations": annotations}, "spec": spec})
}

fn fixtures() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/hosts.yaml");
    serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap()
}

#[tokio::test]
async fn upstream_manifests_are_accepted_unchanged() {
    let client = server();
    let all = fixtures();
    assert!(all.len() >= 13, "{}", all.len());
    for object in all {
        let (code, warnings, stored) = create(&client, &object).await;
        assert_eq!((code, &warnings), (201, &vec![]), "{object}: {stored}");
        // Nothing is dropped or rewritten: what was given is still there.
        for part in ["spec", "data"] {
            let (given, kept) = (&object[part], &stored[part]);
            for (name, value) in given.as_object().into_iter().flatten() {
                assert!(contains(&kept[name], value), "{name}: {value} became {}", kept[name]);
            }
        }
        match stored["kind"].as_str().unwrap() {
            "BareMetalHost" => drop(serde_json::from_value::<BareMetalHost>(stored).unwrap()),
            "HardwareData" => drop(serde_json::from_value::<HardwareData>(stored).unwrap()),
            _ => {}
        }
    }
}

/// The YAML of a page; a fragment that begins with `spec` is that of a host.
fn examples(page: &str) -> Vec<Value> {
    let path = format!("{}/../../docs/guide/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let blocks = text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let documents = blocks.flat_map(|block| serde_saphyr::from_multiple::<Value>(block).unwrap());
    documents
        .map(|document| match &document["kind"] {
            Value::Null => {
                let mut spec = document["spec"].clone();
                spec["online"] = json!(true);
                host(spec, json!({}))
            }
            _ => document,
        })
        .filter(|object| object["kind"] == "BareMetalHost")
        .collect()
}

#[tokio::test]
async fn hosts_of_the_guides_are_accepted() {
    for (page, expected) in
        [("hosts.md", 1), ("raid.md", 2), ("provisioning.md", 1), ("bmc-to-pod.md", 1)]
    {
        let found = examples(page);
        assert_eq!(found.len(), expected, "{page}");
        for mut object in found {
            object["metadata"].as_object_mut().unwrap().remove("namespace");
            let (code, warnings, body) = create(&server(), &object).await;
            assert_eq!((code, warnings), (201, vec![]), "{page}: {body}");
        }
    }
}

/// Whether `kept` has all of `given`; defaults may have been added.
fn contains(kept: &Value, given: &Value) -> bool {
    match (kept, given) {
        (Value::Object(kept), Value::Object(given)) => {
            given.iter().all(|(name, value)| kept.get(name).is_some_and(|one| contains(one, value)))
        }
        (Value::Array(kept), Value::Array(given)) => {
            kept.len() == given.len()
                && kept.iter().zip(given).all(|(one, other)| contains(one, other))
        }
        (kept, given) => kept == given,
    }
}

#[tokio::test]
async fn every_unused_field_is_warned_about_and_accepted() {
    let disk = json!([{"level": "1"}]);
    for (field, spec) in [
        ("spec.taints", json!({"taints": [{"key": "a", "effect": "NoSchedule"}]})),
        ("spec.firmware", json!({"firmware": {"sriovEnabled": true}})),
        ("spec.hardwareProfile", json!({"hardwareProfile": "libvirt"})),
        ("spec.preprovisioningNetworkDataName", json!({"preprovisioningNetworkDataName": "n"})),
        (
            "spec.networkInterfaces",
            json!({"networkInterfaces": [{"name": "eno1", "hostNetworkAttachment": {"name": "a"}}]}),
        ),
        ("spec.customDeploy", json!({"customDeploy": {"method": "install_mine"}})),
        ("spec.networkData", json!({"networkData": {"name": "n"}})),
        ("spec.metaData", json!({"metaData": {"name": "m"}})),
        (
            "spec.image.ociAuthSecretName",
            json!({"image": {"url": "oci://registry/image", "ociAuthSecretName": "a"}}),
        ),
        ("spec.inspectionMode: fast", json!({"inspectionMode": "fast"})),
        (
            "spec.raid.hardwareVolumes beside hardwareRAIDVolumes",
            json!({"raid": {"hardwareVolumes": disk, "hardwareRAIDVolumes": []}}),
        ),
        (
            "spec.raid.softwareVolumes beside softwareRAIDVolumes",
            json!({"raid": {"softwareVolumes": disk, "softwareRAIDVolumes": disk}}),
        ),
        (
            "spec.raid.softwareRAIDVolumes beside hardwareRAIDVolumes",
            json!({"raid": {"hardwareRAIDVolumes": disk, "softwareVolumes": disk}}),
        ),
    ] {
        let unused = UNUSED.iter().find(|unused| unused.field == field).unwrap();
        let mut spec = spec;
        spec["online"] = json!(true);
        let (code, warnings, body) = create(&server(), &host(spec, json!({}))).await;
        assert_eq!(code, 201, "{body}");
        assert_eq!(warnings.len(), 1, "{field}: {warnings:?}");
        assert!(warnings[0].contains(unused.message), "{field}: {warnings:?}");
    }
    assert_eq!(UNUSED.len(), 13, "each is tried above");
}

#[tokio::test]
async fn null_lists_and_empty_values_are_not_warned_about() {
    let spec = json!({
        "online": true, "taints": [], "hardwareProfile": "", "firmware": {}, "networkData": {}, "metaData": {"name": ""},
        "raid": {"hardwareVolumes": [{"level": 1}], "hardwareRAIDVolumes": null, "softwareVolumes": null, "softwareRAIDVolumes": []},
    });
    let (code, warnings, body) = create(&server(), &host(spec, json!({}))).await;
    assert_eq!((code, warnings), (201, vec![]), "{body}");
    assert_eq!(body["spec"]["raid"]["hardwareRAIDVolumes"], json!(null));
    assert!(body["spec"]["raid"].as_object().unwrap().contains_key("hardwareRAIDVolumes"));
}

#[tokio::test]
async fn malformed_annotations_are_refused() {
    for (annotations, words) in [
        (json!({"reboot.metal3.io": "hard"}), "must be empty or a JSON object"),
        (json!({"reboot.metal3.io/key": r#"{"mode": "medium"}"#}), "must be hard or soft"),
        (json!({"inspect.metal3.io": "no"}), "must be empty or \"disabled\""),
        (json!({"inspect.metal3.io/hardwaredetails": "{}"}), "needs inspection to be disabled"),
        (
            json!({"inspect.metal3.io": "disabled", "inspect.metal3.io/hardwaredetails": "[1]"}),
            "hardwaredetails must be a JSON object",
        ),
        (json!({"baremetalhost.metal3.io/status": "OK"}), "status must be a JSON object"),
    ] {
        let (code, _, body) =
            create(&server(), &host(json!({"online": true}), annotations.clone())).await;
        assert_eq!(code, 422, "{annotations}: {body}");
        assert!(body["message"].as_str().unwrap().contains(words), "{annotations}: {body}");
    }
    for annotations in [
        json!({"reboot.metal3.io": ""}),
        json!({"reboot.metal3.io": "{\n \"force\": true }"}),
        json!({"reboot.metal3.io/a": r#"{"mode":""}"#}),
        json!({"rebooting.metal3.io": "anything"}),
        json!({"inspect.metal3.io": ""}),
        json!({"baremetalhost.metal3.io/detached": "any text"}),
        json!({"baremetalhost.metal3.io/status": ""}),
    ] {
        let (code, _, body) =
            create(&server(), &host(json!({"online": true}), annotations.clone())).await;
        assert_eq!(code, 201, "{annotations}: {body}");
    }
    let off = json!({"online": true, "inspectionMode": "disabled"});
    let details = json!({"inspect.metal3.io/hardwaredetails": "{\n\"hostname\": \"h\"}"});
    assert_eq!(create(&server(), &host(off, details)).await.0, 201);
}

/// One that was written before the policy existed must not block a finalizer, nor a deletion.
#[tokio::test]
async fn unchanged_annotations_do_not_block_other_changes() {
    let options = Options::new(quarry_api::crds());
    let policies = admission::embedded_policies();
    let directory = tempfile::tempdir().unwrap();
    let bad = json!({"reboot.metal3.io": "hard"});
    let before = Server::open(directory.path(), Options::new(quarry_api::crds())).unwrap();
    let object = host(json!({"online": true}), bad);
    assert_eq!(create(&before.client("default"), &object).await.0, 201);
    before.close();
    drop(before);
    let policies = policies.into_iter().map(|policy| (policy.policy, policy.binding)).collect();
    let server = Server::open(directory.path(), Options { policies, ..options }).unwrap();
    let hosts: Api<BareMetalHost> = Api::namespaced(server.client("default"), "default");
    let patch = |body: Value| {
        let hosts = hosts.clone();
        async move { hosts.patch("h", &PatchParams::default(), &Patch::Merge(body)).await }
    };
    patch(json!({"metadata": {"finalizers": ["baremetalhost.metal3.io"]}})).await.unwrap();
    let changed = patch(json!({"metadata": {"annotations": {"reboot.metal3.io": "soft"}}})).await;
    assert!(changed.unwrap_err().to_string().contains("must be empty or a JSON object"));
    hosts.delete("h", &DeleteParams::default()).await.unwrap();
    patch(json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert!(hosts.get_opt("h").await.unwrap().is_none());
}

#[tokio::test]
async fn names_that_ironic_mistakes_are_refused() {
    for (name, code) in [
        ("9c0b1a2f-1111-2222-3333-444455556666", 422),
        ("9c0b1a2f111122223333444455556666", 422),
        ("9c0b1a2f-1111-2222-3333-44445555666", 201),
        ("rack-7.unit-12", 201),
    ] {
        let mut object = host(json!({"online": true}), json!({}));
        object["metadata"]["name"] = json!(name);
        let (found, _, body) = create(&server(), &object).await;
        assert_eq!(found, code, "{name}: {body}");
    }
}

#[tokio::test]
async fn secrets_of_other_namespaces_are_refused() {
    for field in ["userData", "networkData", "metaData"] {
        let with = |namespace: &str| {
            host(json!({"online": true, field: {"name": "s", "namespace": namespace}}), json!({}))
        };
        let (code, _, body) = create(&server(), &with("kube-system")).await;
        assert_eq!(code, 403, "{body}");
        assert!(body["message"].as_str().unwrap().contains(&format!("spec.{field}: the Secret")));
        assert_eq!(create(&server(), &with("default")).await.0, 201);
    }
}
