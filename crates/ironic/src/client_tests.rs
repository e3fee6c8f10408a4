//! Tests of the client over a scripted transport: versions, pages, and what each query returns.

use super::*;
use crate::call::{PatchOp, PowerTarget};
use crate::error::Reach;
use crate::transport::{SendFuture, TransportError};
use serde_json::json;

/// Answers requests in order and keeps them.
#[derive(Default)]
struct Script {
    answers: Mutex<Vec<Result<Response, TransportError>>>,
    requests: Mutex<Vec<Request>>,
}

impl Transport for Script {
    fn send(&self, request: Request) -> SendFuture<'_> {
        self.requests.lock().unwrap().push(request);
        let answer = self.answers.lock().unwrap().remove(0);
        Box::pin(async move { answer })
    }
}

fn ok(body: Value) -> Result<Response, TransportError> {
    Ok(Response { status: 200, body: body.to_string().into_bytes() })
}

fn fault(status: u16, text: &str) -> Result<Response, TransportError> {
    let inner = json!({"faultstring": text}).to_string();
    let body = json!({"error_message": inner}).to_string().into_bytes();
    Ok(Response { status, body })
}

fn versions(min: &str, max: &str) -> Result<Response, TransportError> {
    ok(json!({"id": "v1", "version": {"min_version": min, "version": max}}))
}

fn client(answers: Vec<Result<Response, TransportError>>) -> (Client, Arc<Script>) {
    let script = Arc::new(Script { answers: Mutex::new(answers), ..Script::default() });
    (Client::with_transport(script.clone()), script)
}

fn paths(script: &Script) -> Vec<String> {
    script.requests.lock().unwrap().iter().map(|request| request.path.clone()).collect()
}

#[tokio::test]
async fn the_newest_common_version_is_used() {
    for (max, used) in [("1.115", "1.109"), ("1.109", "1.109"), ("1.93", "1.93"), ("1.89", "1.89")]
    {
        let (client, script) = client(vec![versions("1.1", max), ok(json!({"drivers": []}))]);
        assert_eq!(client.drivers().await.unwrap(), Vec::<String>::new());
        let requests = script.requests.lock().unwrap();
        assert_eq!(requests[0].version, None);
        assert_eq!(requests[1].version.unwrap().to_string(), used);
    }
}

#[tokio::test]
async fn too_old_and_too_new_versions_are_refused() {
    let (old, _) = client(vec![versions("1.1", "1.82")]);
    let error = old.drivers().await.unwrap_err();
    assert_eq!(error.meaning, Meaning::Unsupported);
    assert_eq!(
        error.message,
        "Ironic offers API versions 1.1 to 1.82, and one of 1.89 to 1.109 is required; upgrade Ironic"
    );
    let (new, _) = client(vec![versions("1.200", "1.250")]);
    let error = new.drivers().await.unwrap_err();
    assert!(error.message.ends_with("upgrade Quarry"), "{error}");
    let (other, _) = client(vec![ok(json!({"hello": "world"}))]);
    let error = other.drivers().await.unwrap_err();
    assert_eq!(error.meaning, Meaning::Malformed);
    assert!(error.message.contains("--ironic-url"), "{error}");
}

#[tokio::test]
async fn the_version_is_negotiated_once() {
    let drivers = || ok(json!({"drivers": [{"name": "redfish"}]}));
    let (client, script) = client(vec![versions("1.1", "1.115"), drivers(), drivers()]);
    client.drivers().await.unwrap();
    assert_eq!(client.clone().drivers().await.unwrap(), ["redfish"]);
    assert_eq!(paths(&script), ["/v1", "/v1/drivers", "/v1/drivers"]);
}

#[tokio::test]
async fn a_replaced_ironic_is_negotiated_with_again() {
    let (client, script) = client(vec![
        versions("1.1", "1.115"),
        fault(406, "Request not acceptable."),
        versions("1.1", "1.93"),
        ok(json!({"drivers": []})),
    ]);
    client.drivers().await.unwrap();
    assert_eq!(paths(&script), ["/v1", "/v1/drivers", "/v1", "/v1/drivers"]);
    assert_eq!(client.version().await.unwrap(), Microversion::new(1, 93));
}

#[tokio::test]
async fn the_same_version_refused_twice_is_an_error() {
    let (client, script) = client(vec![
        versions("1.1", "1.115"),
        fault(406, "Request not acceptable."),
        versions("1.1", "1.115"),
    ]);
    assert_eq!(client.drivers().await.unwrap_err().meaning, Meaning::Unsupported);
    assert_eq!(paths(&script).len(), 3);
}

#[tokio::test]
async fn a_failed_negotiation_is_repeated_at_the_next_call() {
    let down = TransportError { reach: Reach::ConnectionRefused, message: "down".to_owned() };
    let (client, _) = client(vec![Err(down), versions("1.1", "1.115"), ok(json!({"drivers": []}))]);
    let error = client.drivers().await.unwrap_err();
    assert_eq!(error.meaning, Meaning::Unreachable(Reach::ConnectionRefused));
    client.drivers().await.unwrap();
}

#[tokio::test]
async fn all_pages_are_read() {
    let (client, script) = client(vec![
        versions("1.1", "1.115"),
        // The link names a host that we cannot reach.
        ok(json!({"nodes": [{"uuid": "a"}, {"uuid": "b"}], "next": "http://inside/v1/nodes?x"})),
        ok(json!({"nodes": [{"uuid": "c"}], "next": null})),
    ]);
    let nodes = client.nodes().await.unwrap();
    let found: Vec<&str> = nodes.iter().map(|node| node.uuid.as_str()).collect();
    assert_eq!(found, ["a", "b", "c"]);
    let paths = paths(&script);
    let fields = Node::fields(MAX_VERSION);
    assert_eq!(paths[1], format!("/v1/nodes?fields={fields}"));
    assert_eq!(paths[2], format!("/v1/nodes?fields={fields}&marker=b"));
}

/// Seen with `max_limit = 1`: the same port again, with a next page, for ever.
#[tokio::test]
async fn a_port_is_looked_up_in_one_page() {
    let page =
        json!({"ports": [{"uuid": "p", "address": "0a:00:00:00:00:01"}], "next": "http://h"});
    let (client, script) = client(vec![versions("1.1", "1.115"), ok(page)]);
    let port = client.port_by_mac("0A:00:00:00:00:01").await.unwrap().unwrap();
    assert_eq!(port.uuid, "p");
    let expected = format!("/v1/ports?address=0a%3A00%3A00%3A00%3A00%3A01&fields={}", Port::FIELDS);
    assert_eq!(paths(&script)[1], expected);
}

#[tokio::test]
async fn pages_without_an_end_are_refused() {
    let page = || ok(json!({"nodes": [{"uuid": "a"}], "next": "http://h/v1/nodes"}));
    let (endless, _) = client(vec![versions("1.1", "1.115"), page(), page()]);
    assert_eq!(endless.nodes().await.unwrap_err().meaning, Meaning::Malformed);
    let empty = ok(json!({"nodes": [], "next": "http://h/v1/nodes"}));
    let (empty, _) = client(vec![versions("1.1", "1.115"), empty]);
    assert_eq!(empty.nodes().await.unwrap_err().meaning, Meaning::Malformed);
}

#[tokio::test]
async fn an_unreadable_node_is_named() {
    let page = ok(json!({"nodes": [{"uuid": "a"}, {"uuid": "b", "maintenance": "maybe"}]}));
    let (client, _) = client(vec![versions("1.1", "1.115"), page]);
    let error = client.nodes().await.unwrap_err();
    assert!(error.message.contains("nodes, b:"), "{error}");
}

#[tokio::test]
async fn a_missing_node_is_none_and_a_lost_path_is_not() {
    let (client, _) = client(vec![
        versions("1.1", "1.115"),
        fault(404, "Node n could not be found."),
        Ok(Response { status: 404, body: b"<html><body>nothing here</body></html>".to_vec() }),
    ]);
    assert_eq!(client.node("n").await.unwrap(), None);
    assert_eq!(client.node("n").await.unwrap_err().meaning, Meaning::Malformed);
}

#[tokio::test]
async fn a_missing_inventory_is_not_a_missing_node() {
    let (client, _) = client(vec![
        versions("1.1", "1.115"),
        fault(404, "Node inventory record for node 1 could not be found."),
        fault(404, "Node n could not be found."),
    ]);
    assert_eq!(client.inventory("n").await.unwrap(), None);
    assert_eq!(client.inventory("n").await.unwrap_err().meaning, Meaning::NotFound);
}

#[tokio::test]
async fn changes_return_what_ironic_returned() {
    let (client, script) = client(vec![
        versions("1.1", "1.115"),
        ok(json!({"uuid": "a", "extra": {"x": 1}})),
        Ok(Response { status: 202, body: Vec::new() }),
    ]);
    let ops = vec![PatchOp::add("/extra/x", 1)];
    let patched = client.perform(&Call::PatchNode { id: "a".to_owned(), ops }).await.unwrap();
    assert!(matches!(patched, Performed::Node(node) if node.extra["x"] == 1));
    let call = Call::SetPower { id: "a".to_owned(), target: PowerTarget::On };
    assert_eq!(client.perform(&call).await.unwrap(), Performed::Accepted);
    assert_eq!(script.requests.lock().unwrap()[2].version, Some(MAX_VERSION));
}

#[tokio::test]
async fn a_quoted_password_does_not_reach_the_error() {
    let (client, _) = client(vec![
        versions("1.1", "1.115"),
        fault(400, "Couldn't apply patch: value 'hunter22' at fault"),
    ]);
    let ops = vec![PatchOp::add("/driver_info/redfish_password", "hunter22")];
    let error = client.perform(&Call::PatchNode { id: "a".to_owned(), ops }).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter22") && shown.contains("redfish_password"), "{shown}");
}
