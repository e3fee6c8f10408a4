//! The proxy between a simulated process and the API: every call waits here for the scheduler's permission, is
//! numbered, and may meet a fault. A crash is not an answer: the call never returns, and the process is ended.
//! Next to read: `process.rs` (what waits for whom).

use crate::{
    fault::{FaultKind, FaultPoint, Injector, Track},
    kind::Kind,
    lock,
    world::World,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use quarry_apiserver::ApiService;
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};
use tokio::sync::oneshot;
use tower::{Service, ServiceExt};

/// What everything in one run shares; in a run with several clusters all but the world.
pub struct Shared {
    pub world: Mutex<World>,
    pub injector: Arc<Mutex<Injector>>,
    /// What happened, for people: printed when a run fails.
    pub trace: Arc<Mutex<Vec<String>>>,
    pub violations: Arc<Mutex<Vec<String>>>,
}

impl Shared {
    pub fn note(&self, line: impl FnOnce() -> String) {
        lock(&self.trace).push(line());
    }
}

/// Calls that wait for permission, and whether the process has died in one.
#[derive(Default)]
pub struct Gate {
    waiting: Mutex<VecDeque<oneshot::Sender<()>>>,
    crashed: Mutex<Option<FaultKind>>,
}

impl Gate {
    /// One more call that waits.
    pub fn wait(&self, call: oneshot::Sender<()>) {
        lock(&self.waiting).push_back(call);
    }

    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        lock(&self.waiting).len()
    }

    /// Lets the oldest call through.
    pub fn release(&self) {
        if let Some(sender) = lock(&self.waiting).pop_front() {
            // The waiting task may have been dropped meanwhile.
            let _ = sender.send(());
        }
    }

    pub fn crash(&self, how: FaultKind) {
        *lock(&self.crashed) = Some(how);
    }

    pub fn crashed(&self) -> Option<FaultKind> {
        *lock(&self.crashed)
    }
}

#[derive(Clone)]
pub struct FaultProxy {
    pub service: ApiService,
    pub track: Track,
    pub gate: Arc<Gate>,
    pub shared: Arc<Shared>,
}

impl Service<Request<Body>> for FaultProxy {
    type Response = Response<Full<Bytes>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let proxy = self.clone();
        Box::pin(async move {
            let (sender, permission) = oneshot::channel();
            proxy.gate.wait(sender);
            if permission.await.is_err() {
                std::future::pending::<()>().await;
            }
            proxy.pass(request).await
        })
    }
}

impl FaultProxy {
    async fn pass(&self, request: Request<Body>) -> Result<Response<Full<Bytes>>, io::Error> {
        let label = format!("{} {}", request.method(), request.uri().path());
        let possible = possible(request.method(), self.has_stale_answer(&request));
        let fault = lock(&self.shared.injector).pass(self.track, &label, &possible);
        self.shared.note(|| match fault {
            Some((when, what)) => format!("{}: {label}  <== {what:?} {when:?}", self.track),
            None => format!("{}: {label}", self.track),
        });
        match fault {
            Some((FaultPoint::Before, FaultKind::Crash)) => return self.die().await,
            Some((FaultPoint::Before, FaultKind::Error)) => {
                return Ok(status(500, "InternalError", "simulated failure"));
            }
            Some((FaultPoint::Before, FaultKind::Conflict)) => {
                return Ok(status(
                    409,
                    "Conflict",
                    "simulated conflict: the object has been modified",
                ));
            }
            Some((_, FaultKind::Stale)) => {
                if let Some(answer) = self.stale_answer(request.uri().path()) {
                    return Ok(answer);
                }
            }
            _ => {}
        }
        let response = match self.service.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        match fault {
            Some((FaultPoint::After, FaultKind::Crash)) => return self.die().await,
            Some((FaultPoint::After, FaultKind::Error)) => {
                return Err(io::Error::new(
                    io::ErrorKind::ConnectionReset,
                    "simulated: the answer was lost",
                ));
            }
            _ => {}
        }
        let (parts, body) = response.into_parts();
        let bytes = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(never) => match never {},
        };
        if !parts.status.is_success() {
            let reason = serde_json::from_slice(&bytes)
                .map(|status: Value| status["reason"].clone())
                .unwrap_or_default();
            self.shared.note(|| format!("    answer {}: {reason}", parts.status.as_u16()));
        }
        Ok(Response::from_parts(parts, Full::new(bytes)))
    }

    async fn die<T>(&self) -> T {
        self.gate.crash(FaultKind::Crash);
        std::future::pending().await
    }

    fn has_stale_answer(&self, request: &Request<Body>) -> bool {
        let asked = if request.method() == Method::GET {
            Kind::of_path(request.uri().path())
        } else {
            None
        };
        asked.is_some_and(|(kind, name)| lock(&self.shared.world).has_stale(kind, name))
    }

    fn stale_answer(&self, path: &str) -> Option<Response<Full<Bytes>>> {
        let world = lock(&self.shared.world);
        match Kind::of_path(path)? {
            (kind, Some(name)) => Some(match world.stale(kind, name)? {
                Some(object) => answer(200, object),
                None => status(404, "NotFound", "simulated: not there yet"),
            }),
            (kind, None) => Some(answer(200, &world.stale_list(kind)?)),
        }
    }
}

/// What can go wrong with a call. A create meets no conflict: 409 there means that the object exists.
fn possible(method: &Method, stale: bool) -> Vec<(FaultPoint, FaultKind)> {
    let mut possible = vec![
        (FaultPoint::Before, FaultKind::Crash),
        (FaultPoint::After, FaultKind::Crash),
        (FaultPoint::Before, FaultKind::Error),
    ];
    if method != Method::GET {
        possible.push((FaultPoint::After, FaultKind::Error));
    }
    if *method == Method::PATCH || *method == Method::PUT || *method == Method::DELETE {
        possible.push((FaultPoint::Before, FaultKind::Conflict));
    }
    if stale {
        possible.push((FaultPoint::Before, FaultKind::Stale));
    }
    possible
}

fn answer(code: u16, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn status(code: u16, reason: &str, message: &str) -> Response<Full<Bytes>> {
    answer(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}),
    )
}
