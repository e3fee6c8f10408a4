//! A simulated process: one future at a time, advanced until it waits for the scheduler, sleeps, ends or crashes.

use crate::{fault::FaultKind, fault_proxy::Gate, node_ops::Crash};
use futures::future::BoxFuture;
use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    task::Poll,
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

/// Where a process stands after a turn.
pub enum Turn<T> {
    Done(T),
    /// An API call or a disk operation waits for permission.
    Waits,
    /// It waits for time to pass.
    Sleeps,
    Crashed(FaultKind),
}

/// Long enough to tell a sleeping process from one that is handing a request to its client.
const BLINK: Duration = Duration::from_millis(1);

/// Runs the process until it comes to a stop, or until `limit` when it only sleeps.
///
/// `asked` counts the disk operations that wait: one more than before, of these or of API calls, is a stop.
pub async fn turn<T>(
    future: &mut BoxFuture<'static, T>,
    gate: &Gate,
    mut asked: impl FnMut() -> usize,
    limit: Option<Instant>,
) -> Turn<T> {
    // A turn that follows an act stops at whatever waits; one that only lets time pass stops at what is new.
    let known = if limit.is_some() { gate.waiting() + asked() } else { 0 };
    let mut bell = pin!(sleep_until(limit.unwrap_or_else(|| Instant::now() + BLINK)));
    poll_fn(|context| {
        let polled = match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(polled) => polled,
            Err(payload) if payload.is::<Crash>() => {
                return Poll::Ready(Turn::Crashed(gate.crashed().unwrap_or(FaultKind::Crash)));
            }
            Err(payload) => resume_unwind(payload),
        };
        if let Some(how) = gate.crashed() {
            return Poll::Ready(Turn::Crashed(how));
        }
        if let Poll::Ready(value) = polled {
            return Poll::Ready(Turn::Done(value));
        }
        if gate.waiting() + asked() > known {
            return Poll::Ready(Turn::Waits);
        }
        bell.as_mut().poll(context).map(|()| Turn::Sleeps)
    })
    .await
}
