//! The objects of a file, checked as an API server would: by the schemas and rules of their kinds, in this process.
//!
//! Never sends anything to a cluster: the checks run against an embedded API in memory.

use anyhow::{Context, anyhow, bail};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::PostParams, client::Body};
use quarry_api::admission;
use quarry_apiserver::{Options, Server};
use quarry_core::device_claim::demand::{of_local_volume, of_set};
use quarry_view::sets::plan::OwnerObject;
use serde_json::{Value, json};
use std::{io::Read, path::Path};

/// The objects of a file, and warnings about them.
#[derive(Debug, Default)]
pub struct Contents {
    pub objects: Vec<OwnerObject>,
    pub warnings: Vec<String>,
}

pub fn read_text(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("reading standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).map_err(|error| {
        anyhow!(
            "reading {}: {error}; name a file with LocalVolumeSets or LocalVolumes (-f FILE), or - for standard input",
            path.display()
        )
    })
}

/// An error lists every problem of every object.
pub async fn parse(text: &str, name: &str, namespace: &str) -> anyhow::Result<Contents> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        anyhow!(
            "{name} is not YAML or JSON: {}",
            error.to_string().lines().next().unwrap_or_default()
        )
    })?;
    let mut contents = Contents::default();
    let mut problems = Vec::new();
    let server = server(namespace).await?;
    for document in documents.into_iter().flat_map(items) {
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        let title =
            format!("{kind} {}", document["metadata"]["name"].as_str().unwrap_or("without a name"));
        let path = match (document["apiVersion"].as_str().unwrap_or_default(), kind.as_str()) {
            ("local.storage.openshift.io/v1alpha1", "LocalVolumeSet") => "localvolumesets",
            ("local.storage.openshift.io/v1", "LocalVolume") => "localvolumes",
            (version, "LocalVolumeSet" | "LocalVolume") => {
                let right = if kind == "LocalVolume" { "v1" } else { "v1alpha1" };
                problems.push(format!("{title}: apiVersion: {version:?} is not served; write local.storage.openshift.io/{right}"));
                continue;
            }
            _ => {
                contents.warnings.push(format!(
                    "{title} is ignored: only LocalVolumeSets and LocalVolumes are planned"
                ));
                continue;
            }
        };
        let (found, wrong, warnings) = check(&server, document, path, namespace).await?;
        problems.extend(wrong.into_iter().map(|problem| format!("{title}: {problem}")));
        contents.warnings.extend(warnings.into_iter().map(|warning| format!("{title}: {warning}")));
        contents.objects.extend(found);
    }
    if !problems.is_empty() {
        bail!("{name} is invalid:\n  {}", problems.join("\n  "));
    }
    if contents.objects.is_empty() {
        bail!(
            "{name} contains no LocalVolumeSet and no LocalVolume; start with the example in docs/guide/sets.md"
        );
    }
    Ok(contents)
}

/// The documents of a List; an empty document is none.
fn items(document: Value) -> Vec<Value> {
    match document {
        Value::Null => Vec::new(),
        Value::Object(mut map)
            if map
                .get("kind")
                .and_then(Value::as_str)
                .is_some_and(|kind| kind.ends_with("List")) =>
        {
            match map.remove("items") {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            }
        }
        other => vec![other],
    }
}

/// An embedded API in memory, with the definitions that this version installs.
async fn server(namespace: &str) -> anyhow::Result<Client> {
    let mut options = Options::new(quarry_api::crds());
    options.policies = admission::embedded_policies()
        .into_iter()
        .map(|policy| (policy.policy, policy.binding))
        .collect();
    let client = Server::try_in_memory(options)?.client(namespace);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let place: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
    namespaces
        .create(&PostParams::default(), &place)
        .await
        .with_context(|| format!("--namespace {namespace}"))?;
    Ok(client)
}

async fn check(
    server: &Client,
    mut document: Value,
    path: &str,
    namespace: &str,
) -> anyhow::Result<(Option<OwnerObject>, Vec<String>, Vec<String>)> {
    let mut wrong = Vec::new();
    match document["metadata"]["namespace"].as_str() {
        Some(other) if other != namespace => wrong.push(format!(
            "metadata.namespace: {other} is not the operator's namespace, so it would have no effect; use {namespace}, or -n for an operator in another namespace"
        )),
        Some(_) => {}
        None if document["metadata"].is_object() => document["metadata"]["namespace"] = namespace.into(),
        None => {}
    }
    let mut sent = document.clone();
    if sent["metadata"].is_object() {
        sent["metadata"]["namespace"] = namespace.into();
    }
    // Once for unknown fields, which are all that the API reports then, and once for everything else.
    let (_, refusal, _) = send(server, &sent, path, namespace, "Strict").await?;
    let unknown: Vec<String> = refusal["message"]
        .as_str()
        .and_then(|text| text.split_once("strict decoding error: "))
        .map(|(_, fields)| fields.split(", ").map(str::to_owned).collect())
        .unwrap_or_default();
    let (accepted, answer, mut warnings) = send(server, &sent, path, namespace, "Ignore").await?;
    warnings.dedup();
    // The planner names field and remedy best; the API reports the rest.
    let object = read(&document, path);
    let planner = object.as_ref().map(problems).unwrap_or_default();
    let refusals = if accepted { Vec::new() } else { causes(&answer) };
    let is_known = |refusal: &String| {
        planner.iter().any(|problem| {
            problem
                .split(':')
                .next()
                .and_then(|field| field.rsplit('.').next())
                .is_some_and(|leaf| refusal.contains(leaf))
        })
    };
    wrong.extend(refusals.into_iter().filter(|refusal| !is_known(refusal)));
    wrong.extend(unknown.into_iter().map(|text| format!("{text}; correct its name or remove it")));
    wrong.extend(planner);
    Ok((object, wrong, warnings))
}

/// Whether it would be accepted, the response, and its warnings.
async fn send(
    server: &Client,
    object: &Value,
    path: &str,
    namespace: &str,
    fields: &str,
) -> anyhow::Result<(bool, Value, Vec<String>)> {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let uri = format!(
        "/apis/{version}/namespaces/{namespace}/{path}?dryRun=All&fieldValidation={fields}"
    );
    let request = http::Request::post(uri)
        .header("content-type", "application/json")
        .body(Body::from(object.to_string().into_bytes()))?;
    let response = server.send(request).await.context("checking the file")?;
    let warnings = response
        .headers()
        .get_all("warning")
        .iter()
        .map(|header| warning(&String::from_utf8_lossy(header.as_bytes())))
        .collect();
    let accepted = response.status().is_success();
    Ok((
        accepted,
        serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?,
        warnings,
    ))
}

/// `299 - "text"`
fn warning(header: &str) -> String {
    let text = header.split_once('"').map_or(header, |(_, text)| text).trim_end_matches('"');
    text.replace("\\\"", "\"")
}

fn causes(answer: &Value) -> Vec<String> {
    let causes = answer["details"]["causes"].as_array().into_iter().flatten();
    let causes: Vec<String> = causes
        // That some rules were not checked follows from the other problems.
        .filter(|cause| {
            !cause["message"]
                .as_str()
                .is_some_and(|message| message.contains("some validation rules were not checked"))
        })
        .map(|cause| {
            match (
                cause["field"].as_str().unwrap_or_default(),
                cause["message"].as_str().unwrap_or_default(),
            ) {
                ("" | "<nil>", message) => message.to_owned(),
                (field, message) => format!("{field}: {message}"),
            }
        })
        .collect();
    if causes.is_empty() {
        vec![answer["message"].as_str().unwrap_or("it was refused").to_owned()]
    } else {
        causes
    }
}

fn read(document: &Value, path: &str) -> Option<OwnerObject> {
    if path == "localvolumesets" {
        serde_json::from_value(document.clone()).ok().map(|set| OwnerObject::Set(Box::new(set)))
    } else {
        serde_json::from_value(document.clone())
            .ok()
            .map(|volume| OwnerObject::LocalVolume(Box::new(volume)))
    }
}

fn problems(object: &OwnerObject) -> Vec<String> {
    match object {
        OwnerObject::Set(set) => of_set(set).problems,
        OwnerObject::LocalVolume(volume) => of_local_volume(volume).problems,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn parsed(object: &Value) -> Contents {
        parse(&object.to_string(), "file", "quarry-system").await.unwrap()
    }

    /// The objects, or why they are refused.
    async fn result(object: &Value) -> Result<Vec<OwnerObject>, String> {
        let read = parse(&object.to_string(), "file", "quarry-system").await;
        read.map(|contents| contents.objects).map_err(|error| error.to_string())
    }

    fn set(spec: Value) -> Value {
        json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
            "metadata": {"name": "fast"}, "spec": spec})
    }

    fn local_volume(entry: Value) -> Value {
        json!({"apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume",
            "metadata": {"name": "fast"}, "spec": {"storageClassDevices": [entry]}})
    }

    #[tokio::test]
    async fn fs_type_with_block_is_a_warning() {
        let path = "/dev/disk/by-id/wwn-1";
        for object in [
            set(json!({"storageClassName": "c", "volumeMode": "Block", "fsType": "ext4"})),
            set(json!({"storageClassName": "c", "volumeMode": "block", "fstype": "ext4"})),
            local_volume(
                json!({"storageClassName": "c", "volumeMode": "Block", "fsType": "xfs", "devicePaths": [path]}),
            ),
        ] {
            let Contents { objects, warnings } = parsed(&object).await;
            assert_eq!(objects.len(), 1);
            let [warning] = warnings.as_slice() else { panic!("{object}: {warnings:?}") };
            assert!(warning.contains("fsType is ignored with volumeMode Block"), "{warning}");
        }
        for object in [
            set(
                json!({"storageClassName": "c", "volumeMode": "Block", "fsType": "", "fstype": ""}),
            ),
            set(json!({"storageClassName": "c", "fsType": "xfs"})),
            local_volume(json!({"storageClassName": "c", "fsType": "xfs", "devicePaths": [path]})),
        ] {
            assert_eq!(parsed(&object).await.warnings, [""; 0], "{object}");
        }
        let bare = parsed(&set(json!({"storageClassName": "c"}))).await.warnings;
        assert!(bare.len() == 1 && bare[0].contains("are published as Block"), "{bare:?}");
    }

    #[tokio::test]
    async fn more_paths_than_a_node_can_resolve_are_refused() {
        let volume = |count: usize| {
            let entries: Vec<Value> = (0..count)
                .collect::<Vec<_>>()
                .chunks(200)
                .map(|part| {
                    let paths: Vec<String> =
                        part.iter().map(|n| format!("/dev/disk/by-id/x-{n}")).collect();
                    json!({"storageClassName": "c", "devicePaths": paths})
                })
                .collect();
            let mut object = local_volume(json!({}));
            object["spec"]["storageClassDevices"] = json!(entries);
            object
        };
        assert_eq!(parsed(&volume(1000)).await.objects.len(), 1);
        let refused = parse(&volume(1001).to_string(), "file", "quarry-system").await.unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("names more than 1000 devicePaths; create several"), "{text}");
    }

    /// Every optional field of the schema, one after the other and all at once.
    #[tokio::test]
    async fn an_explicit_null_equals_an_absent_field() {
        let crds = serde_json::to_value(quarry_api::crds()).unwrap();
        let schema = |kind: &str| {
            let all = crds.as_array().unwrap();
            let crd = all.iter().find(|crd| crd["spec"]["names"]["kind"] == kind).unwrap();
            crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
        };
        let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]});
        let set = set(json!({
            "storageClassName": "c", "volumeMode": "Filesystem", "minDeviceCount": 1, "maxDeviceCount": 2,
            "nodeSelector": selector, "tolerations": [{"key": "a", "operator": "Exists"}],
            "deviceInclusionSpec": {"minSize": "1Gi", "maxSize": "2Gi", "deviceTypes": ["disk"]},
            "deviceExclusionSpec": {"deviceNameFilter": ["sd*"]},
        }));
        let volume = local_volume(
            json!({"storageClassName": "c", "volumeMode": "Filesystem", "devicePaths": ["/dev/disk/by-id/x"]}),
        );
        for (kind, object) in [("LocalVolumeSet", set), ("LocalVolume", volume)] {
            let mut places = Vec::new();
            optional(&schema(kind), &object["spec"], "/spec", &mut places);
            assert!(places.len() > 7, "{places:?}");
            let mut all = object.clone();
            // The innermost first: one that is null has no fields.
            for place in &places {
                let mut one = object.clone();
                insert(&mut one, place);
                // Without a field of a selector it may be refused: then in the same words.
                let (with, without) = (result(&one).await, result(&removed(&object, place)).await);
                assert_eq!(with, without, "{kind} {place}");
                if with.is_ok() {
                    insert(&mut all, place);
                }
                let text =
                    |one: &Value| serde_json::from_value::<quarry_api::LocalVolume>(one.clone());
                assert!(kind != "LocalVolume" || text(&one).is_ok(), "{place} is read as well");
            }
            assert_eq!(parsed(&all).await.objects.len(), 1, "{kind}");
        }
    }

    /// The pointers of all fields that the schema does not require, where the object has their parent.
    fn optional(schema: &Value, object: &Value, at: &str, places: &mut Vec<String>) {
        let required = |name: &str| {
            schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name))
        };
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let place = format!("{at}/{name}");
            match &object[name] {
                inner @ Value::Object(_) => optional(property, inner, &place, places),
                Value::Array(items) => {
                    for (index, item) in items.iter().enumerate() {
                        optional(&property["items"], item, &format!("{place}/{index}"), places);
                    }
                }
                _ => {}
            }
            if !required(name) {
                places.push(place);
            }
        }
    }

    fn insert(object: &mut Value, place: &str) {
        let (parent, name) = place.rsplit_once('/').unwrap();
        if let Some(parent) = object.pointer_mut(parent).filter(|parent| parent.is_object()) {
            parent[name] = Value::Null;
        }
    }

    fn removed(object: &Value, place: &str) -> Value {
        let mut object = object.clone();
        let (parent, name) = place.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
        object
    }
}
