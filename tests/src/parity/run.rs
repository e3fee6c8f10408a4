//! Owns a run: sends each conversation to both servers, cleans up after it, and collects the
//! differences.

use super::compare::{Answer, covers, differences};
use super::conversation::{Conversation, Exchange, Known, conversations, fill, fill_value, known};
use super::{policies, widgets};
use http::{Request, header};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Namespace of the conversations.
const NAMESPACE: &str = "parity";

/// Result of a run.
#[derive(Debug, Default)]
pub struct Report {
    pub conversations: usize,
    pub requests: usize,
    /// Number of refused requests.
    pub refused: usize,
    /// Number of conversations with a refusal.
    pub rejections: usize,
    /// Differences that are not in the list of known ones.
    pub differences: Vec<String>,
    /// Number of known differences that occurred.
    pub known: usize,
    /// Known differences that did not occur.
    pub stale: Vec<String>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.differences.is_empty() && self.stale.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} conversations ({} with refusals), {} requests ({} refused), {} known differences, {} unknown, {} stale",
            self.conversations,
            self.rejections,
            self.requests,
            self.refused,
            self.known,
            self.differences.len(),
            self.stale.len()
        )?;
        self.differences.iter().chain(&self.stale).try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// Runs all conversations against both servers. The real one needs Quarry's CRDs; the tests' own
/// kind and policies are installed into it.
pub async fn run_all(embedded: Client, real: Client) -> Report {
    install(&real).await;
    for client in [&embedded, &real] {
        make_namespace(client).await;
    }
    let known = known();
    let mut report = Report::default();
    let mut used: BTreeSet<usize> = BTreeSet::new();
    for conversation in conversations() {
        let ours = converse(&embedded, &conversation).await;
        let theirs = converse(&real, &conversation).await;
        report.conversations += 1;
        report.rejections += usize::from(theirs.iter().any(|answer| answer.code() >= 400));
        for (index, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            report.requests += 1;
            report.refused += usize::from(theirs.code() >= 400);
            let exchange = &conversation.requests[index];
            let about = format!(
                "{}, request {} ({} {})",
                conversation.name,
                index + 1,
                exchange.method,
                exchange.path
            );
            if let Some(expected) = exchange.expect
                && u64::from(expected) != theirs.code()
            {
                report.differences.push(format!(
                    "{about}: expected {expected}, the real server returned {}",
                    theirs.value
                ));
            }
            for (at, left, right) in differences(&ours.value, &theirs.value) {
                match explain(&known, &conversation.name, &at) {
                    Some(line) => {
                        report.known += 1;
                        used.insert(line);
                    }
                    None => report.differences.push(format!(
                        "{about}: at {at}\n      embedded {left}\n      real     {right}"
                    )),
                }
            }
        }
    }
    let stale = known.iter().enumerate().filter(|(line, _)| !used.contains(line));
    report.stale.extend(
        stale.map(|(_, known)| format!("no longer differs: {} {:?}", known.conversation, known.at)),
    );
    report
}

/// Runs all conversations against the embedded API only and checks every expected code.
pub async fn run_embedded(client: Client) -> Report {
    make_namespace(&client).await;
    let mut report = Report::default();
    for conversation in conversations() {
        let answers = converse(&client, &conversation).await;
        report.conversations += 1;
        report.rejections += usize::from(answers.iter().any(|answer| answer.code() >= 400));
        for (exchange, answer) in conversation.requests.iter().zip(answers) {
            report.requests += 1;
            report.refused += usize::from(answer.code() >= 400);
            if let Some(expected) = exchange.expect
                && u64::from(expected) != answer.code()
            {
                let about = format!("{}, {} {}", conversation.name, exchange.method, exchange.path);
                report
                    .differences
                    .push(format!("{about}: expected {expected}, got {}", answer.value));
            }
        }
    }
    report
}

fn explain(known: &[Known], conversation: &str, at: &str) -> Option<usize> {
    known.iter().position(|known| {
        (known.conversation == "*" || known.conversation == conversation)
            && known.at.iter().any(|pattern| covers(pattern, at))
    })
}

async fn converse(client: &Client, conversation: &Conversation) -> Vec<Answer> {
    let mut saved = BTreeMap::from([("ns".to_owned(), NAMESPACE.to_owned())]);
    let mut created: Vec<String> = Vec::new();
    let mut answers = Vec::new();
    for exchange in &conversation.requests {
        let path = fill(&exchange.path, &saved);
        let (code, warnings, body) = send(client, exchange, &path, &saved).await;
        let document: Value = serde_json::from_slice(&body).unwrap_or_default();
        if exchange.method == "POST" && code == 201 {
            let name = document["metadata"]["name"].as_str().unwrap_or_default();
            created.push(format!("{}/{name}", path.split('?').next().unwrap_or_default()));
        }
        for (name, pointer) in &exchange.save {
            let value = document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            saved.insert(name.clone(), value.to_owned());
        }
        answers.push(Answer::new(code, warnings, &body));
    }
    clean_up(client, created).await;
    answers
}

async fn send(
    client: &Client,
    exchange: &Exchange,
    path: &str,
    saved: &BTreeMap<String, String>,
) -> (u16, Vec<String>, Vec<u8>) {
    let body = match (&exchange.raw, &exchange.body) {
        (Some(raw), _) => raw.clone().into_bytes(),
        (None, Some(body)) => fill_value(body, saved).to_string().into_bytes(),
        (None, None) => Vec::new(),
    };
    let accept = exchange.accept.as_deref().unwrap_or("application/json");
    let mut request = Request::builder()
        .method(exchange.method.as_str())
        .uri(path)
        .header(header::ACCEPT, accept);
    if !body.is_empty() || exchange.content_type.is_some() {
        request = request.header(
            header::CONTENT_TYPE,
            exchange.content_type.as_deref().unwrap_or("application/json"),
        );
    }
    let request = request.body(Body::from(body)).expect("a conversation contains valid requests");
    let response = client
        .send(request)
        .await
        .unwrap_or_else(|why| panic!("{} {path}: {why}", exchange.method));
    let warnings = response.headers().get_all(header::WARNING).iter();
    let warnings =
        warnings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.expect("an answer ends").to_bytes().to_vec();
    (code, warnings, body)
}

/// Deletes the objects of a conversation, including their finalizers, and waits until they are
/// gone.
async fn clean_up(client: &Client, created: Vec<String>) {
    for path in created.into_iter().rev() {
        for _ in 0..100 {
            let release = json!({"metadata": {"finalizers": null}}).to_string();
            let patch = Request::patch(path.as_str())
                .header(header::CONTENT_TYPE, "application/merge-patch+json")
                .body(Body::from(release.into_bytes()));
            let delete =
                Request::delete(format!("{path}?gracePeriodSeconds=0")).body(Body::empty());
            let get = Request::get(path.as_str()).body(Body::empty());
            for request in [delete, patch].into_iter().flatten() {
                // It may be deleted already; the check below decides.
                let _ = client.send(request).await;
            }
            let probe = client.send(get.expect("a path that worked before")).await;
            if probe.is_ok_and(|answer| answer.status() == 404) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn make_namespace(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace =
        serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).expect("a namespace");
    // It exists already in a second run.
    let _ = namespaces.create(&PostParams::default(), &namespace).await;
}

/// Installs the tests' kind and policies and waits until the server applies them.
async fn install(real: &Client) {
    let params = PostParams::default();
    let _ = Api::all(real.clone()).create(&params, &widgets()).await;
    for one in policies() {
        let _ = Api::all(real.clone()).create(&params, &one.policy).await;
        let _ = Api::all(real.clone()).create(&params, &one.binding).await;
    }
    make_namespace(real).await;
    let probe = |label: &str| {
        let probe = json!({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": "probe", "labels": {label: "yes"}}, "spec": {"size": "12"},
        });
        let path = format!("/apis/example.com/v1/namespaces/{NAMESPACE}/widgets?dryRun=All");
        Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(probe.to_string().into_bytes()))
            .expect("a valid request")
    };
    // The deny policy needs parameters, which are part of a conversation; so only the warning of
    // the other policy is waited for here.
    for _ in 0..300 {
        let warned = real.send(probe("warned")).await;
        let works = warned.is_ok_and(|answer| answer.headers().contains_key(header::WARNING));
        if works {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the real API server did not apply the tests' admission policies within 30 s");
}
