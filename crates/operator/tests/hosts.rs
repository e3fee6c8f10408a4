//! The host controller at the embedded API, without Ironic: what is written to the objects, and what is reported when a
//! write is refused.
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

use jiff::SignedDuration;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
        core::v1::{ConfigMap, Event, Secret},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use quarry_api::{BareMetalHost, crds, names};
use quarry_apiserver::{Options, Server};
use quarry_core::bare_metal_host::{CONDITION_WRITTEN, HostSettings};
use quarry_ironic::{Reach, Request, Transport, TransportError, transport::SendFuture};
use quarry_operator::{
    OperatorOptions, Registry,
    bare_metal_host::{HostOptions, Ironic},
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

struct NoIronic;

impl Transport for NoIronic {
    fn send(&self, _: Request) -> SendFuture<'_> {
        let refused = TransportError { reach: Reach::ConnectionRefused, message: "refused".into() };
        Box::pin(async move { Err(refused) })
    }
}

/// An operator that drives hosts until it is dropped.
struct Running {
    client: Client,
    stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn start(server: &Server) -> Running {
    let ironic = Ironic::fixed(quarry_ironic::Client::with_transport(Arc::new(NoIronic)));
    let client = server.client("default");
    let options = OperatorOptions {
        namespace: names::DEFAULT_NAMESPACE.into(),
        registry: Registry::standard().select(&["hosts"]),
        election_identity: None,
        agent_daemon_set: None,
        job_retention: SignedDuration::from_hours(1),
        hosts: Some(HostOptions::new(ironic, HostSettings::default())),
        check_crds: true,
    };
    let stop = CancellationToken::new();
    tokio::spawn(quarry_operator::run(client.clone(), options, None, stop.clone()));
    Running { client, stop }
}

async fn until<T, F: Future<Output = Option<T>>>(what: &str, check: impl Fn() -> F) -> T {
    let found = async {
        loop {
            if let Some(found) = check().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.unwrap_or_else(|_| panic!("{what}"))
}

fn host(metadata: Value) -> BareMetalHost {
    let mut metadata = metadata;
    metadata["name"] = json!("h1");
    serde_json::from_value(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": metadata, "spec": {"online": true},
    }))
    .unwrap()
}

/// The CRD of a newer metal3: its status has fields that this version does not know.
fn newer_crds() -> Vec<CustomResourceDefinition> {
    let mut all = crds::crds();
    let hosts = all.iter_mut().find(|crd| crd.name_any() == "baremetalhosts.metal3.io").unwrap();
    let mut object = json!(hosts);
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
    for path in [status.to_owned(), format!("{status}/provisioning/properties")] {
        let fields = object.pointer_mut(&path).unwrap().as_object_mut().unwrap();
        fields.insert("future".into(), json!({"type": "string"}));
    }
    *hosts = serde_json::from_value(object).unwrap();
    all
}

/// Fields of the CRD that this version does not know survive; the API server drops what its CRD does not have.
#[tokio::test]
async fn a_restored_status_keeps_the_fields_that_the_crd_has() {
    let server = Server::in_memory(Options::new(newer_crds()));
    let running = start(&server);
    let saved = json!({
        "operationalStatus": "OK", "errorMessage": "", "errorCount": 0, "poweredOn": true,
        "future": "kept", "beyond": "dropped",
        "provisioning": {"state": "available", "ID": "aaaa", "image": {"url": ""}, "future": "kept", "beyond": 1},
    });
    let annotations = json!({names::STATUS_ANNOTATION: saved.to_string()});
    let hosts: Api<BareMetalHost> = Api::namespaced(running.client.clone(), "default");
    hosts.create(&PostParams::default(), &host(json!({"annotations": annotations}))).await.unwrap();
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("metal3.io", "v1alpha1", "BareMetalHost"),
        "baremetalhosts",
    );
    let raw: Api<DynamicObject> = Api::namespaced_with(running.client.clone(), "default", &kind);
    // The report that Ironic does not answer is a later write: it must leave them alone, too.
    let found = until("no report", || async {
        let found = raw.get("h1").await.unwrap();
        let reported = found.data["status"]["conditions"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["type"] == "quarry.dev/IronicReachable"));
        (reported && found.annotations().is_empty()).then_some(found.data["status"].clone())
    })
    .await;
    assert_eq!(found["provisioning"]["state"], "available");
    assert_eq!((&found["future"], &found["beyond"]), (&json!("kept"), &Value::Null));
    let provisioning = &found["provisioning"];
    assert_eq!((&provisioning["future"], &provisioning["beyond"]), (&json!("kept"), &Value::Null));
}

/// Finalizer, label and owner reference go; what others added stays.
#[tokio::test]
async fn a_secret_that_no_host_names_is_given_back() {
    let server = Server::in_memory(Options::new(crds::crds()));
    let client = server.client("default");
    let hosts: Api<BareMetalHost> = Api::namespaced(client.clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let made = hosts.create(&PostParams::default(), &host(json!({}))).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let map = serde_json::from_value(json!({"metadata": {"name": "mine"}})).unwrap();
    let map = maps.create(&PostParams::default(), &map).await.unwrap();
    let owners = [made.owner_ref(&()).unwrap(), map.owner_ref(&()).unwrap()];
    let (label, value) = names::HOST_SECRET_LABEL;
    for name in ["recorded", "claimed-only"] {
        let secret = json!({"metadata": {
            "name": name, "labels": {label: value, "mine": "yes"},
            "finalizers": [names::HOST_SECRET_FINALIZER, "example.com/mine"],
            "ownerReferences": owners,
        }});
        secrets
            .create(&PostParams::default(), &serde_json::from_value(secret).unwrap())
            .await
            .unwrap();
    }
    let recorded = json!({"credentials": {"name": "recorded", "namespace": "default"}, "credentialsVersion": "1"});
    let status = json!({"status": {
        "operationalStatus": "discovered", "errorMessage": "", "errorCount": 0, "poweredOn": false,
        "provisioningFailCount": 0, "provisioning": {"state": "unmanaged", "ID": ""}, "goodCredentials": recorded,
    }});
    hosts.patch_status("h1", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let running = start(&server);
    for name in ["recorded", "claimed-only"] {
        let released = until(name, || async {
            let secret = secrets.get(name).await.unwrap();
            (secret.finalizers() == ["example.com/mine"]).then_some(secret)
        })
        .await;
        assert_eq!(released.labels().keys().collect::<Vec<_>>(), ["mine"]);
        assert_eq!(released.owner_references(), &owners[1..]);
    }
    drop(running);
}

/// A policy of the cluster that forbids finalizers on hosts.
fn policy() -> (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding) {
    let rules = json!([{"apiGroups": ["metal3.io"], "apiVersions": ["v1alpha1"], "operations": ["UPDATE"], "resources": ["baremetalhosts"]}]);
    let policy = json!({
        "metadata": {"name": "no-finalizers"},
        "spec": {
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": "!has(object.metadata.finalizers)", "message": "no finalizers here"}],
        },
    });
    let binding = json!({"metadata": {"name": "no-finalizers"}, "spec": {"policyName": "no-finalizers", "validationActions": ["Deny"]}});
    (serde_json::from_value(policy).unwrap(), serde_json::from_value(binding).unwrap())
}

#[tokio::test]
async fn a_write_that_is_refused_is_reported_on_the_host() {
    let mut options = Options::new(crds::crds());
    options.policies = vec![policy()];
    let server = Server::in_memory(options);
    let running = start(&server);
    let hosts: Api<BareMetalHost> = Api::namespaced(running.client.clone(), "default");
    hosts.create(&PostParams::default(), &host(json!({}))).await.unwrap();
    let message = until("no condition", || async {
        let status = hosts.get("h1").await.unwrap().status?;
        let found = status.conditions.into_iter().find(|one| one.type_ == CONDITION_WRITTEN)?;
        assert_eq!((found.status.as_str(), found.reason.as_str()), ("False", "Refused"));
        Some(found.message)
    })
    .await;
    assert!(message.starts_with("BareMetalHost default/h1: AddFinalizer was refused"), "{message}");
    assert!(message.contains("no finalizers here"), "{message}");
    let events: Api<Event> = Api::namespaced(running.client.clone(), "default");
    let event = until("no Event", || async {
        let all = events.list(&Default::default()).await.unwrap().items;
        all.into_iter().find(|event| event.reason.as_deref() == Some("WriteRefused"))
    })
    .await;
    assert_eq!(event.message.as_deref(), Some(message.as_str()));
}
