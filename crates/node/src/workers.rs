//! Where blocking calls run: a few threads that live as long as the agent.
//!
//! Not tokio's blocking pool: its threads come and go, and a tool is killed when the thread that started it ends
//! (`sys::die_with_parent`). Simulated operations do not block and are called in place.

use crate::error::NodeError;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};
use tokio::sync::oneshot;

type Call = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
pub enum Workers {
    /// In place, on the caller's thread.
    Inline,
    /// The other end of the channel does the work.
    Pool(mpsc::Sender<Call>),
    /// As `Pool`, and what takes long gets a thread of its own.
    Threads(mpsc::Sender<Call>),
}

/// Whether a call that has a limit is still out.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<AtomicBool>);

/// Until it is dropped, with the call or without it.
struct InFlightGuard(InFlight);

impl InFlight {
    fn begin(&self) -> Option<InFlightGuard> {
        (!self.0.swap(true, Ordering::AcqRel)).then(|| InFlightGuard(self.clone()))
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

impl Workers {
    /// The threads end when the last clone is dropped and their work is done.
    pub fn pool(count: usize) -> Result<Self, NodeError> {
        let (sender, receiver) = mpsc::channel::<Call>();
        let receiver = Arc::new(Mutex::new(receiver));
        for number in 0..count.max(1) {
            let receiver = receiver.clone();
            let work = move || {
                loop {
                    let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(task) = next else { break };
                    // A panic must end the call, not the thread.
                    let _ = catch_unwind(AssertUnwindSafe(task));
                }
            };
            thread::Builder::new()
                .name(format!("quarry-worker-{number}"))
                .spawn(work)
                .map_err(NodeError::io("starting a worker thread"))?;
        }
        Ok(Workers::Threads(sender))
    }

    pub async fn call<H, T>(
        &self,
        ops: &Arc<H>,
        doing: &'static str,
        call: impl FnOnce(&H) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError>
    where
        H: Send + Sync + 'static,
        T: Send + 'static,
    {
        let sender = match self {
            Workers::Inline => return call(ops),
            Workers::Pool(sender) | Workers::Threads(sender) => sender,
        };
        let (answer, answered) = oneshot::channel();
        let ops = ops.clone();
        let task: Call = Box::new(move || {
            // The job may have been abandoned; the step itself is finished all the same.
            let _ = answer.send(call(&ops));
        });
        let lost = || NodeError::WorkerLost(doing.to_owned());
        sender.send(task).map_err(|_| lost())?;
        answered.await.map_err(|_| lost())?
    }

    /// As `call`, but waits no longer than `limit`. While one is still running, no second one is started: it would wait for the
    /// same thing, on a thread of its own.
    pub async fn call_within<H, T>(
        &self,
        ops: &Arc<H>,
        doing: &'static str,
        (limit, out): (Duration, &InFlight),
        call: impl FnOnce(&H) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError>
    where
        H: Send + Sync + 'static,
        T: Send + 'static,
    {
        match self {
            Workers::Inline | Workers::Pool(_) => return self.call(ops, doing, call).await,
            Workers::Threads(_) => {}
        }
        let overdue = || {
            NodeError::Overdue {
            attempt: doing.to_owned(),
            seconds: limit.as_secs(),
            check:
                "a file system of the node may not answer: check its mounts and its kernel log; the attempt continues when that file system answers"
                    .to_owned(),
        }
        };
        let Some(begun) = out.begin() else { return Err(overdue()) };
        let work = self.call(ops, doing, move |ops| {
            let done = call(ops);
            drop(begun);
            done
        });
        tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(overdue()))
    }

    /// For what takes hours: no other work waits behind it. It must start no tool, which would end with its thread.
    pub async fn call_apart<H, T>(
        &self,
        ops: &Arc<H>,
        doing: &'static str,
        call: impl FnOnce(&H) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError>
    where
        H: Send + Sync + 'static,
        T: Send + 'static,
    {
        match self {
            Workers::Inline | Workers::Pool(_) => return self.call(ops, doing, call).await,
            Workers::Threads(_) => {}
        }
        let (answer, answered) = oneshot::channel();
        let ops = ops.clone();
        // The job may have been abandoned: then the process ends, and the thread with it.
        let work = move || drop(answer.send(call(&ops)));
        thread::Builder::new()
            .name("quarry-long".to_owned())
            .spawn(work)
            .map_err(NodeError::io("starting a thread"))?;
        answered.await.map_err(|_| NodeError::WorkerLost(doing.to_owned()))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_the_call_and_not_the_worker() {
        let workers = Workers::pool(1).unwrap();
        let ops = Arc::new(());
        let lost: Result<(), _> = workers.call(&ops, "breaking", |_| panic!("on purpose")).await;
        assert!(lost.unwrap_err().to_string().contains("while breaking"));
        assert_eq!(workers.call(&ops, "adding", |_| Ok(1 + 1)).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_call_that_hangs_is_waited_for_once() {
        let workers = Workers::pool(2).unwrap();
        let (ops, out, soon) = (Arc::new(()), InFlight::default(), Duration::from_millis(20));
        let (release, released) = mpsc::channel::<()>();
        let late = workers
            .call_within(&ops, "looking", (soon, &out), move |()| Ok(released.recv().is_ok()))
            .await
            .unwrap_err();
        assert!(
            late.message().contains("looking") && late.message().contains("may not answer"),
            "{}",
            late.message()
        );
        let again = workers.call_within(&ops, "looking", (soon, &out), |()| Ok(())).await;
        assert!(again.is_err(), "the first one is still out");
        release.send(()).unwrap();
        let limit = Duration::from_secs(60);
        let deadline = std::time::Instant::now() + limit;
        while let Err(error) =
            workers.call_within(&ops, "looking", (limit, &out), |()| Ok(())).await
        {
            assert!(std::time::Instant::now() < deadline, "{error}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn a_long_call_delays_no_other() {
        let workers = Workers::pool(1).unwrap();
        let ops = Arc::new(());
        let (release, released) = mpsc::channel::<()>();
        let long = workers.call_apart(&ops, "waiting", move |()| Ok(released.recv().is_ok()));
        let short = async {
            assert_eq!(workers.call(&ops, "adding", |()| Ok(2)).await.unwrap(), 2);
            release.send(()).unwrap();
        };
        let (long, ()) = futures::join!(long, short);
        assert!(long.unwrap());
        let lost: Result<(), _> =
            workers.call_apart(&ops, "breaking", |()| panic!("on purpose")).await;
        assert!(lost.unwrap_err().to_string().contains("while breaking"));
    }
}
