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
