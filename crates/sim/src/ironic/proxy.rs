//! The way of a simulated operator to the simulated Ironic: every request waits for the scheduler's permission, is
//! numbered, and may meet a fault. `Direct` is the same without either.

use super::SimIronic;
use crate::{
    fault::{FaultKind, FaultPoint, Track},
    fault_proxy::{Gate, Shared},
    lock,
};
use quarry_ironic::{
    Method, Reach, Request, Response, Transport, TransportError, transport::SendFuture,
};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// Never fails. A request that was not recorded is noted, and is not answered.
pub struct Direct(pub Arc<Mutex<SimIronic>>);

impl Transport for Direct {
    fn send(&self, request: Request) -> SendFuture<'_> {
        let answer = lock(&self.0).answer(&request);
        Box::pin(async move { answer.ok_or_else(not_recorded) })
    }
}

pub struct IronicProxy {
    pub ironic: Arc<Mutex<SimIronic>>,
    pub track: Track,
    pub gate: Arc<Gate>,
    pub shared: Arc<Shared>,
}

impl Transport for IronicProxy {
    fn send(&self, request: Request) -> SendFuture<'_> {
        Box::pin(async move {
            let (sender, permission) = oneshot::channel();
            self.gate.wait(sender);
            if permission.await.is_err() {
                std::future::pending::<()>().await;
            }
            self.pass(&request).await
        })
    }
}

impl IronicProxy {
    async fn pass(&self, request: &Request) -> Result<Response, TransportError> {
        let path = request.path.split('?').next().unwrap_or_default();
        let target = request.body.as_ref().and_then(|body| body["target"].as_str());
        let label = format!(
            "{} {path}{}",
            request.method.as_str(),
            target.map_or_else(String::new, |target| format!(" {target}"))
        );
        let possible = possible(request);
        let fault = lock(&self.shared.injector).pass(self.track, &label, &possible);
        self.shared.note(|| match fault {
            Some((when, what)) => format!("{}: {label}  <== {what:?} {when:?}", self.track),
            None => format!("{}: {label}", self.track),
        });
        match fault {
            Some((FaultPoint::Before, FaultKind::Crash)) => return self.die().await,
            Some((FaultPoint::Before, FaultKind::Error)) => {
                return Err(unreachable(Reach::ConnectionRefused, "connection refused"));
            }
            Some((FaultPoint::Before, FaultKind::Busy)) => {
                return Ok(Response { status: 503, body: b"simulated: no conductor".to_vec() });
            }
            Some((FaultPoint::Before, FaultKind::Conflict)) => {
                return lock(&self.ironic).locked(request).ok_or_else(not_recorded);
            }
            _ => {}
        }
        let answer = lock(&self.ironic).answer(request);
        self.shared.note(|| {
            let status = answer.as_ref().map(|answer| answer.status);
            format!("    Ironic answers {}", status.unwrap_or_default())
        });
        match fault {
            Some((FaultPoint::After, FaultKind::Crash)) => self.die().await,
            Some((FaultPoint::After, FaultKind::Error)) => {
                Err(unreachable(Reach::Timeout, "simulated: the answer was lost"))
            }
            _ => answer.ok_or_else(not_recorded),
        }
    }

    async fn die<T>(&self) -> T {
        self.gate.crash(FaultKind::Crash);
        std::future::pending().await
    }
}

fn unreachable(reach: Reach, message: &str) -> TransportError {
    TransportError { reach, message: message.to_owned() }
}

fn not_recorded() -> TransportError {
    unreachable(Reach::Broken, "the simulated Ironic does not know this request")
}

/// What can go wrong with a request. Ironic locks a node, and refuses only what changes it.
fn possible(request: &Request) -> Vec<(FaultPoint, FaultKind)> {
    let mut possible = vec![
        (FaultPoint::Before, FaultKind::Crash),
        (FaultPoint::After, FaultKind::Crash),
        (FaultPoint::Before, FaultKind::Error),
        (FaultPoint::Before, FaultKind::Busy),
    ];
    if request.method != Method::Get {
        possible.push((FaultPoint::After, FaultKind::Error));
        if request.path.starts_with("/v1/nodes/") {
            possible.push((FaultPoint::Before, FaultKind::Conflict));
        }
    }
    possible
}
