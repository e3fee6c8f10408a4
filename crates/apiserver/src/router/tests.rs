//! Tests of paths, content negotiation and responses that are visible only over HTTP.

use super::accept::negotiate;
use super::*;
use crate::server::{Options, Server};
use tower::ServiceExt;

fn server() -> Server {
    Server::in_memory(Options::new(Vec::new()))
}

async fn ask(
    server: &Server,
    method: &str,
    path: &str,
    content_type: &str,
    body: &str,
) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content_type)
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

#[test]
fn accept_header_decides_the_form() {
    for (header, wanted) in [
        ("", Ok(Form::Whole)),
        ("*/*", Ok(Form::Whole)),
        ("application/vnd.kubernetes.protobuf,application/json", Ok(Form::Whole)),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Ok(Form::Table)),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Ok(Form::Whole)),
        ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Ok(Form::Partial)),
        (
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Ok(Form::Discovery("v2")),
        ),
        ("text/plain", Err(406)),
    ] {
        assert_eq!(negotiate(header).map_err(|error| error.code), wanted, "{header}");
    }
}

#[test]
fn paths_name_their_objects() {
    let server = server();
    let registry = &server.inner.registry;
    let found = |path: &str| match path::route(registry, path) {
        Ok(Route::Objects(target)) => {
            let resource = registry.get(target.resource);
            format!("{} {}/{} {}", resource.plural, target.namespace, target.name, target.status)
        }
        Ok(other) => format!("{other:?}"),
        Err(error) => error.code.to_string(),
    };
    for (path, wanted) in [
        ("/api/v1/nodes", "nodes / false"),
        ("/api/v1/nodes/n1/status", "nodes /n1 true"),
        ("/api/v1/namespaces/x", "namespaces /x false"),
        ("/api/v1/namespaces/x/status", "namespaces /x true"),
        ("/api/v1/namespaces/x/configmaps/m%2Fn", "configmaps x/m/n false"),
        ("/apis/coordination.k8s.io/v1/leases", "leases / false"),
        ("/api/v1/configmaps/m", "404"),
        ("/api/v1/namespaces/x/nodes", "404"),
        ("/api/v1/nodes/n1/scale", "404"),
        ("/apis/apps/v1/deployments", "404"),
        ("/readyz/ping", "Health"),
    ] {
        assert_eq!(found(path), wanted, "{path}");
    }
}

#[tokio::test]
async fn unsupported_requests_get_a_clear_error() {
    let server = server();
    let (code, body) =
        ask(&server, "PATCH", "/api/v1/nodes/n", "application/apply-patch+yaml", "{}").await;
    assert_eq!(code, 415);
    assert!(
        body["message"].as_str().unwrap().starts_with("server-side apply is not supported"),
        "{body}"
    );
    let (code, body) =
        ask(&server, "POST", "/api/v1/namespaces", "application/vnd.kubernetes.protobuf", "k8s")
            .await;
    assert_eq!(code, 415);
    assert!(body["message"].as_str().unwrap().contains("kubectl apply -f"), "{body}");
    let (code, body) = ask(&server, "GET", "/api/v1/namespaces/default/pods/p", "", "").await;
    assert_eq!(code, 404);
    assert!(
        body["message"].as_str().unwrap().contains("not served by Quarry's embedded API"),
        "{body}"
    );
    let (code, _) =
        ask(&server, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", "{}")
            .await;
    assert_eq!(code, 405);
    let (code, body) = ask(&server, "GET", "/api/v1/namespaces/default/pods", "", "").await;
    assert_eq!(
        (code, &body["kind"]),
        (200, &json!("PodList")),
        "kubectl describe lists pods; there are none"
    );
}

#[tokio::test]
async fn yaml_bodies_are_accepted_and_huge_ones_refused() {
    let server = server();
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: b}\n";
    let path = "/api/v1/namespaces/default/configmaps";
    assert_eq!(ask(&server, "POST", path, "application/yaml", yaml).await.0, 201);
    let huge = format!(
        "{{\"metadata\":{{\"name\":\"h\"}},\"data\":{{\"a\":\"{}\"}}}}",
        "x".repeat(BODY_MAX)
    );
    assert_eq!(ask(&server, "POST", path, "application/json", &huge).await.0, 413);
    let large = format!(
        "{{\"metadata\":{{\"name\":\"h\"}},\"data\":{{\"a\":\"{}\"}}}}",
        "x".repeat(2 << 20)
    );
    assert_eq!(ask(&server, "POST", path, "application/json", &large).await.0, 422);
}

#[tokio::test]
async fn openapi_describes_every_group() {
    let server = server();
    let (_, index) = ask(&server, "GET", "/openapi/v3", "", "").await;
    for path in index["paths"].as_object().unwrap().values() {
        let url = path["serverRelativeURL"].as_str().unwrap();
        let (code, document) = ask(&server, "GET", url, "", "").await;
        assert_eq!(code, 200, "{url}");
        // Every reference resolves: kubectl explain follows them.
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(document["components"]["schemas"].get(name).is_some(), "{url}: {name}");
        }
    }
}
