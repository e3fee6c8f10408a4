//! Owns the order between engine and disk: a change is answered, read or watched only once it is durable.
//! With a durable backend one thread writes what has gathered since its last write as one batch, so that a
//! hundred writers share a few disk flushes; in memory every change counts at once, without a thread.
//! When a batch fails, everything after the last durable version is taken back and its writers are told.

use crate::backend::{Backend, Batch, CommitError};
use crate::engine::{Change, Engine};
use crate::status::ApiError;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};

/// How far the disk got, and how often it failed.
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
    /// Nothing: in memory.
    writer: Option<Mutex<Writer>>,
}

/// The way to the thread that writes.
enum Writer {
    Open { queue: Sender<Job>, thread: JoinHandle<()> },
    Closed,
}

/// The engine's lock. A panic while it was held leaves objects that were validated one by one: go on.
pub fn lock(engine: &Mutex<Engine>) -> MutexGuard<'_, Engine> {
    engine.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What a request must wait for after it left the engine.
pub enum Pending {
    /// It changed something: its own batch.
    Write(oneshot::Receiver<Outcome>),
    /// It only read: everything it may have seen.
    Read(u64, Progress),
    /// Nothing is read or written any more.
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

    /// Hands over what the engine changed. Called with the engine still locked: batches keep its order.
    pub fn hand_over(&self, engine: &mut Engine) -> Pending {
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
        // A send fails only when the thread is gone; the writer then sees its channel closed.
        let _ = queue.send(Job { changes, version, done });
        Pending::Write(wait)
    }

    /// Returns once everything the request changed or saw is on the disk.
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
                        "the store could not be written while this was read; read again",
                    )),
                }
            }
        }
    }

    /// Writes what is queued, lets go of the file, and refuses everything from then on.
    pub fn close(&self) {
        let Some(writer) = &self.writer else { return };
        let mut writer = writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Writer::Open { queue, thread } = std::mem::replace(&mut *writer, Writer::Closed) {
            // The thread ends with its queue, after writing what is in it.
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
    ApiError::new(503, "ServiceUnavailable", "the store is closed: Quarry is shutting down")
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
                        // A writer that went away does not mind.
                        let _ = job.done.send(Ok(()));
                    }
                }
                Err(why) => self.give_up(jobs, queue, &why),
            }
        }
    }

    fn give_up(&self, mut jobs: Vec<Job>, queue: &Receiver<Job>, why: &CommitError) {
        let mut message = why.to_string();
        let mut source = std::error::Error::source(why);
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        tracing::error!(error = message, "the store was not written");
        let mut engine = lock(&self.engine);
        // What is queued by now was computed on top of what just failed.
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
    async fn a_full_disk_refuses_writes_and_loses_nothing() {
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
