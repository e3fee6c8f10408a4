//! Owns HTTP: one tower service for in-process clients and for the listener. Parses requests
//! (`path`, `query`, `accept`), calls the engine, waits until the outcome is durable, and renders
//! it (`render`, `watch`).

mod accept;
mod path;
mod query;
mod render;
#[cfg(test)]
mod tests;
mod watch;

use crate::engine::{Body as ObjectBody, Outside, Request as Call, Verb, parse_json};
use crate::kind::Resource;
use crate::patch::PatchKind;
use crate::present;
use crate::server::Inner;
use crate::status::ApiError;
use accept::Form;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use path::{Route, Target};
use query::Query;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Body of a response: complete, or a stream of watch events.
pub type ApiBody = UnsyncBoxBody<Bytes, Infallible>;

/// Maximum request size, as in kube-apiserver.
const BODY_MAX: usize = 3 << 20;

/// The API as a service; every clone is the same server.
#[derive(Clone)]
pub struct ApiService {
    inner: Arc<Inner>,
}

impl ApiService {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = match Limited::new(body, BODY_MAX).collect().await {
                Ok(body) => body.to_bytes(),
                Err(why) => {
                    let error = if why.is::<http_body_util::LengthLimitError>() {
                        ApiError::new(
                            413,
                            "RequestEntityTooLarge",
                            format!("Request entity too large: limit is {BODY_MAX}"),
                        )
                    } else {
                        ApiError::bad_request(format!("failed to read the body: {why}"))
                    };
                    return Ok(failure(&error));
                }
            };
            let answer = answer(inner, &parts, body).await;
            Ok(answer.unwrap_or_else(|error| failure(&error)))
        })
    }
}

async fn answer(
    inner: Arc<Inner>,
    parts: &http::request::Parts,
    body: Bytes,
) -> Result<Response<ApiBody>, ApiError> {
    let registry = inner.registry.clone();
    let path = parts.uri.path();
    let route = path::route(&registry, path)?;
    if !matches!(route, Route::Objects(_))
        && parts.method != Method::GET
        && parts.method != Method::HEAD
    {
        return Err(ApiError::method_not_allowed(
            "the server does not allow this method on the requested resource",
        ));
    }
    if matches!(route, Route::Health) {
        return Ok(plain(200, "text/plain; charset=utf-8", Bytes::from_static(b"ok")));
    }
    let header =
        parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let form = match accept::negotiate(header) {
        Ok(form) => form,
        // kubectl requests OpenAPI as protobuf first; only JSON is available.
        Err(_) if matches!(route, Route::OpenApi { .. } | Route::OpenApiIndex) => Form::Whole,
        Err(error) => return Err(error),
    };
    let group_unknown = |group: &str| path::unknown(&format!("the group {group} is not served"));
    if let (Route::CoreVersions | Route::Groups, Form::Discovery(version)) = (&route, form) {
        let document =
            present::aggregated(&registry, matches!(route, Route::CoreVersions), version);
        let content =
            format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        return Ok(plain(200, &content, document.to_string().into()));
    }
    match route {
        Route::Health => Ok(plain(200, "text/plain; charset=utf-8", Bytes::from_static(b"ok"))),
        Route::Version => Ok(json_body(200, &present::version())),
        Route::CoreVersions => {
            let document = json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []});
            Ok(json_body(200, &document))
        }
        Route::Groups => Ok(json_body(200, &present::group_list(&registry))),
        Route::Group(group) => {
            let found = present::group(&registry, &group).ok_or_else(|| group_unknown(&group))?;
            Ok(json_body(200, &found))
        }
        Route::Resources { group, version } => {
            let found = present::resource_list(&registry, &group, &version)
                .ok_or_else(|| group_unknown(&group))?;
            Ok(json_body(200, &found))
        }
        Route::OpenApiIndex => Ok(json_body(200, &present::index(&registry))),
        Route::OpenApi { group, version } => {
            let found = present::document(&registry, &group, &version)
                .ok_or_else(|| group_unknown(&group))?;
            Ok(json_body(200, &found))
        }
        Route::Nothing { kind, version } => {
            let at = inner.committer.engine().version().to_string();
            let empty = json!({"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": at}, "items": []});
            Ok(json_body(200, &empty))
        }
        Route::Objects(target) => objects(&inner, parts, body, target, form).await,
    }
}

async fn objects(
    inner: &Arc<Inner>,
    parts: &http::request::Parts,
    body: Bytes,
    target: Target,
    form: Form,
) -> Result<Response<ApiBody>, ApiError> {
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let registry = inner.registry.clone();
    let resource = registry.get(target.resource);
    let Target { resource: id, namespace, name, status } = target;
    if parts.method == Method::GET && query.is_watch() {
        let mut list = query.list()?;
        // `?watch` on the path of one object is a watch with its name as selector.
        if !name.is_empty() {
            list.fields = crate::select::FieldSelector::parse(&format!("metadata.name={name}"))?;
        }
        let options = query.watch()?;
        let call =
            Call { resource: id, namespace, name: String::new(), status: false, verb: Verb::Get };
        return watch::start(inner.clone(), call, list, options, form, query.include()).await;
    }
    let verb = verb(resource, parts, &query, body, &name, &namespace)?;
    let call = Call { resource: id, namespace, name, status, verb };
    let now = (inner.clock)();
    let (outcome, pending) = {
        let mut engine = inner.committer.engine();
        let outcome = engine.handle(call, &Outside { now, uids: &*inner.uids });
        let pending = inner.committer.enqueue(&mut engine);
        (outcome, pending)
    };
    // A refusal may also depend on changes that are not durable yet.
    inner.committer.wait(pending).await?;
    render::answer(resource, outcome?, form, query.include(), now)
}

fn verb(
    resource: &Resource,
    parts: &http::request::Parts,
    query: &Query,
    body: Bytes,
    name: &str,
    namespace: &str,
) -> Result<Verb, ApiError> {
    let one = !name.is_empty();
    match parts.method {
        Method::GET | Method::HEAD if one => Ok(Verb::Get),
        Method::GET | Method::HEAD => Ok(Verb::List(query.list()?)),
        Method::POST if one => Err(ApiError::method_not_allowed(
            "the server does not allow this method on the requested resource",
        )),
        Method::POST | Method::PUT if resource.namespaced && namespace.is_empty() => {
            Err(path::unknown("objects of this kind are created in a namespace"))
        }
        Method::POST => {
            Ok(Verb::Create(object(resource, parts, &body)?, query.write("CreateOptions")?))
        }
        Method::PUT | Method::PATCH if !one => Err(ApiError::bad_request("name must be provided")),
        Method::PUT => {
            Ok(Verb::Update(object(resource, parts, &body)?, query.write("UpdateOptions")?))
        }
        Method::PATCH => {
            let (kind, body) = patch(resource, parts, &body)?;
            Ok(Verb::Patch(kind, body, query.write("PatchOptions")?))
        }
        Method::DELETE => {
            let given = if body.is_empty() { Value::Null } else { parse(parts, &body)?.value };
            let options = query.delete(&given)?;
            if one {
                Ok(Verb::Delete(options))
            } else {
                Ok(Verb::DeleteCollection(query.list()?, options))
            }
        }
        _ => Err(ApiError::method_not_allowed(
            "the server does not allow this method on the requested resource",
        )),
    }
}

fn content_type(parts: &http::request::Parts) -> &str {
    let header = parts
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    header.split(';').next().unwrap_or_default().trim()
}

fn parse(parts: &http::request::Parts, body: &[u8]) -> Result<ObjectBody, ApiError> {
    match content_type(parts) {
        "" | "application/json" | "*/*" => {
            let (value, duplicates) =
                parse_json(body).map_err(|why| ApiError::bad_request(why.to_string()))?;
            Ok(ObjectBody { value, duplicates })
        }
        "application/yaml" | "application/x-yaml" => {
            let text =
                std::str::from_utf8(body).map_err(|why| ApiError::bad_request(why.to_string()))?;
            let value = serde_saphyr::from_str(text)
                .map_err(|why| ApiError::bad_request(why.to_string()))?;
            Ok(ObjectBody { value, duplicates: Vec::new() })
        }
        "application/vnd.kubernetes.protobuf" => Err(ApiError::unsupported_media_type(
            "Quarry's embedded API accepts JSON and YAML, not protobuf; instead of kubectl create KIND, use kubectl apply -f, or pipe the object to it with --dry-run=client -o yaml",
        )),
        _ => Err(ApiError::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml",
        )),
    }
}

fn object(
    resource: &Resource,
    parts: &http::request::Parts,
    body: &[u8],
) -> Result<ObjectBody, ApiError> {
    parse(parts, body).map_err(|error| match error.code {
        400 => ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {}",
            resource.kind, error.message
        )),
        _ => error,
    })
}

fn patch(
    resource: &Resource,
    parts: &http::request::Parts,
    body: &[u8],
) -> Result<(PatchKind, ObjectBody), ApiError> {
    let accepted = if resource.custom {
        "application/json-patch+json, application/merge-patch+json"
    } else {
        "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json"
    };
    let kind = match content_type(parts) {
        "application/json-patch+json" => PatchKind::Json,
        "application/merge-patch+json" => PatchKind::Merge,
        "application/strategic-merge-patch+json" if !resource.custom => PatchKind::Strategic,
        "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
            return Err(ApiError::unsupported_media_type(format!(
                "server-side apply is not supported by Quarry's embedded API; use kubectl apply without --server-side, or a patch of type {accepted}"
            )));
        }
        _ => {
            return Err(ApiError::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            )));
        }
    };
    let (value, duplicates) = parse_json(body)
        .map_err(|why| ApiError::bad_request(format!("error decoding patch: {why}")))?;
    Ok((kind, ObjectBody { value, duplicates }))
}

pub(crate) fn failure(error: &ApiError) -> Response<ApiBody> {
    json_body(error.code, &error.to_value())
}

fn json_body(code: u16, value: &Value) -> Response<ApiBody> {
    plain(code, "application/json", value.to_string().into())
}

fn plain(code: u16, content_type: &str, body: Bytes) -> Response<ApiBody> {
    respond(code, content_type, Full::new(body).boxed_unsync())
}

fn respond(code: u16, content_type: &str, body: ApiBody) -> Response<ApiBody> {
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
}
