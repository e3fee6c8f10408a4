//! Owns the order between engine and disk: a change is returned, read or watched only once it is
//! durable. With a durable backend, one thread writes all changes since its last write as one
//! batch, so that a hundred writers share a few disk flushes. In memory, every change counts
//! immediately and there is no thread. When a batch fails, the engine rolls back to the last
//! durable version and every affected writer gets the error.

use crate::backend::{Backend, Batch, CommitError};
use crate::engine::{Change, Engine};
use crate::status::ApiError;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};

/// The last durable version, and the number of failed batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub version: u64,
    pub failures: u64,
}

type Outcome = Result<(), String>;

struct Job {
    changes: Vec<Change>,
    version: u64,
    done: oneshot::Sender<Outcome>,
}

pub struct Committer {
    engine: Arc<Mutex<Engine>>,
    progress: watch::Sender<Progress>,
    /// `None`: in memory.
    writer: Option<Mutex<Writer>>,
}

/// Connection to the writer thread.
enum Writer {
    Open { queue: Sender<Job>, thread: JoinHandle<()> },
    Closed,
}

/// Locks the engine. A poisoned lock is ignored: every object was validated before it was stored,
/// so a panic cannot have left an invalid one.
pub fn lock(engine: &Mutex<Engine>) -> MutexGuard<'_, Engine> {
    engine.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What a request waits for after it left the engine.
pub enum Pending {
    /// It changed something: waits for its own batch.
    Write(oneshot::Receiver<Outcome>),
    /// It only read: waits for every version it may have read.
    Read(u64, Progress),
    /// The store is closed; the request fails.
    Closed,
}

impl Committer {
    pub fn in_memory(engine: Engine) -> Self {
        let progress = watch::Sender::new(Progress { version: engine.version(), failures: 0 });
        Self { engine: Arc::new(Mutex::new(engine)), progress, writer: None }
    }

    pub fn durable(engine: Engine, backend: impl Backend + 'static) -> std::io::Result<Self> {
        let progress = watch::Sender::new(Progress { version: engine.version(), failures: 0 });
        let engine = Arc::new(Mutex::new(engine));
        let (sender, receiver) = channel();
        let worker = Worker { engine: engine.clone(), progress: progress.clone(), backend };
        let thread = std::thread::Builder::new()
            .name("api-commit".into())
            .spawn(move || worker.run(&receiver))?;
        Ok(Self {
            engine,
            progress,
            writer: Some(Mutex::new(Writer::Open { queue: sender, thread })),
        })
    }

    pub fn engine(&self) -> MutexGuard<'_, Engine> {
        lock(&self.engine)
    }

    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Enqueues what the engine changed. Called with the engine still locked, so that batches keep
    /// the engine's order.
    pub fn enqueue(&self, engine: &mut Engine) -> Pending {
        let changes = engine.take_pending();
        let version = engine.version();
        let Some(writer) = &self.writer else {
            if !changes.is_empty() {
                self.progress.send_modify(|progress| progress.version = version);
            }
            return Pending::Read(0, Progress::default());
        };
        let writer = writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Writer::Open { queue, .. } = &*writer else { return Pending::Closed };
        if changes.is_empty() {
            return Pending::Read(version, *self.progress.borrow());
        }
        let (done, wait) = oneshot::channel();
        // Sending fails only when the thread has ended; the waiting request then sees its channel
        // closed.
        let _ = queue.send(Job { changes, version, done });
        Pending::Write(wait)
    }

    /// Returns once everything the request changed or read is on disk.
    pub async fn wait(&self, pending: Pending) -> Result<(), ApiError> {
        match pending {
            Pending::Write(wait) => match wait.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(why)) => Err(ApiError::internal(why)),
                Err(_) => Err(closed()),
            },
            Pending::Closed => Err(closed()),
            Pending::Read(version, seen) => {
                if seen.version >= version {
                    return Ok(());
                }
                let mut progress = self.progress.subscribe();
                let reached = progress
                    .wait_for(|now| now.version >= version || now.failures != seen.failures)
                    .await;
                match reached {
                    Ok(now) if now.version >= version => Ok(()),
                    _ => Err(ApiError::internal(
                        "failed to write the store during this read; retry the request",
                    )),
                }
            }
        }
    }

    /// Writes what is queued, closes the file and refuses every later request.
    pub fn close(&self) {
        let Some(writer) = &self.writer else { return };
        let mut writer = writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Writer::Open { queue, thread } = std::mem::replace(&mut *writer, Writer::Closed) {
            // The thread ends when its queue is closed, after writing the queued jobs.
            drop(queue);
            let _ = thread.join();
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.close();
    }
}

fn closed() -> ApiError {
    ApiError::new(503, "ServiceUnavailable", "the store is closed because Quarry is shutting down")
}

struct Worker<B> {
    engine: Arc<Mutex<Engine>>,
    progress: watch::Sender<Progress>,
    backend: B,
}

impl<B: Backend> Worker<B> {
    fn run(mut self, queue: &Receiver<Job>) {
        while let Ok(first) = queue.recv() {
            let mut jobs = vec![first];
            jobs.extend(queue.try_iter());
            let version = jobs.iter().map(|job| job.version).max().unwrap_or_default();
            let changes =
                jobs.iter_mut().flat_map(|job| std::mem::take(&mut job.changes)).collect();
            match self.backend.commit(&Batch { changes, version }) {
                Ok(()) => {
                    self.progress.send_modify(|progress| progress.version = version);
                    for job in jobs {
                        // The request may have been canceled; nothing is left to do then.
                        let _ = job.done.send(Ok(()));
                    }
                }
                Err(why) => self.fail_batch(jobs, queue, &why),
            }
        }
    }

    fn fail_batch(&self, mut jobs: Vec<Job>, queue: &Receiver<Job>, why: &CommitError) {
        let mut message = why.to_string();
        let mut source = std::error::Error::source(why);
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        tracing::error!(error = message, "failed to write the store");
        let mut engine = lock(&self.engine);
        // Jobs queued by now were computed on top of the failed changes.
        jobs.extend(queue.try_iter());
        engine.roll_back(self.progress.borrow().version);
        self.progress.send_modify(|progress| progress.failures += 1);
        drop(engine);
        for job in jobs {
            let _ = job.done.send(Err(message.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::backend::{Backend, Batch, CommitError};
    use crate::commit::Committer;
    use crate::server::{Options, Server};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, ListParams, PostParams};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A disk that is full while the flag is set.
    struct Flaky(Arc<AtomicBool>);

    impl Backend for Flaky {
        fn commit(&mut self, _: &Batch) -> Result<(), CommitError> {
            if self.0.load(Ordering::SeqCst) {
                let source = std::io::Error::from(std::io::ErrorKind::StorageFull).into();
                return Err(CommitError::Full { path: "api.redb".into(), source });
            }
            Ok(())
        }
    }

    #[tokio::test]
    async fn full_disk_refuses_writes_and_loses_nothing() {
        let full = Arc::new(AtomicBool::new(false));
        let backend = Flaky(full.clone());
        let server = Server::with_committer(Options::new(Vec::new()), |engine| {
            Committer::durable(engine, backend).expect("a thread starts")
        });
        let maps: Api<ConfigMap> = Api::default_namespaced(server.client("default"));
        let map = |name: &str| {
            let mut map = ConfigMap::default();
            map.metadata.name = Some(name.into());
            map
        };
        maps.create(&PostParams::default(), &map("a")).await.unwrap();
        full.store(true, Ordering::SeqCst);
        let (one, two) = (map("b"), map("c"));
        let params = PostParams::default();
        let (one, two) = tokio::join!(maps.create(&params, &one), maps.create(&params, &two));
        for refused in [one, two] {
            let kube::Error::Api(status) = refused.unwrap_err() else { panic!("no status") };
            assert_eq!(status.code, 500);
            assert!(status.message.contains("free space"), "{}", status.message);
        }
        assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1, "reads go on");
        full.store(false, Ordering::SeqCst);
        maps.create(&PostParams::default(), &map("b")).await.unwrap();
        assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 2);
    }
}
