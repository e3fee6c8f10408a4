//! Threads for probes: a device that does not answer costs one thread and a few seconds, never the scan.
//!
//! Each probe has a thread to itself; threads end with the scan, so at rest there is none. A probe that is silent for
//! a moment no longer counts against the number that may run at once: one hung device does not hold up the queue. A
//! thread that is stuck is remembered by its device, which gets no second one until the first comes back. It is not
//! waited for, not even at shutdown: the process can end, because the first read of a probe can be left behind
//! (`sys::interruptible_read`).

use super::{
    image::Image,
    probe::{ProbeResult, Question, probe},
};
use crate::sys::DevNumber;
use quarry_core::device::Content;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A probe that takes longer is slow or hung: the next may start.
const SILENT_AFTER: Duration = Duration::from_millis(250);
/// More threads than this are not started for probes that may still answer: each holds two megabytes.
const MOST: usize = 64;
/// A fabric that is dead: more threads than this do not wait for its disks. As many as the largest node has paths, so that
/// no other disk goes unasked because of them; such a thread holds its stack alone, of which it uses a few pages.
const MOST_STUCK: usize = 4096;
/// libblkid keeps little on the stack; what is not touched costs nothing.
const STACK: usize = 512 << 10;

/// One device, as long as it is the same one.
pub type Key = (String, DevNumber, Option<u64>);

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered(Box<ProbeResult>),
    /// No longer waited for; it may still answer in time.
    Slow,
    TimedOut,
}

pub struct Pool {
    sender: Sender<(Key, ProbeResult)>,
    receiver: Receiver<(Key, ProbeResult)>,
    /// Threads of earlier runs that have not come back, and since when they run.
    stuck: BTreeMap<Key, Instant>,
    /// Those that have since; with what they found, if it is not too old.
    back: Vec<(Key, Option<ProbeResult>)>,
    answer_within: Duration,
    shelf: Arc<Shelf>,
}

impl Pool {
    pub fn new(answer_within: Duration) -> Self {
        let (sender, receiver) = mpsc::channel();
        Pool {
            sender,
            receiver,
            stuck: BTreeMap::new(),
            back: Vec::new(),
            answer_within,
            shelf: Arc::default(),
        }
    }

    /// Devices whose thread has not come back, and whether that is too long by now.
    pub fn silent(&self) -> impl Iterator<Item = (&Key, Outcome)> {
        let late = |since: &Instant| since.elapsed() >= self.answer_within;
        self.stuck.iter().map(move |(key, since)| {
            (key, if late(since) { Outcome::TimedOut } else { Outcome::Slow })
        })
    }

    /// Devices whose thread has come back since. What was read too slowly is old by now and is not used.
    pub fn returned(&mut self) -> Vec<(Key, Option<ProbeResult>)> {
        while let Ok((key, probed)) = self.receiver.try_recv() {
            self.free(key, probed);
        }
        std::mem::take(&mut self.back)
    }

    fn free(&mut self, key: Key, probed: ProbeResult) {
        let in_time =
            self.stuck.remove(&key).is_some_and(|since| since.elapsed() < self.answer_within);
        self.back.push((key, in_time.then_some(probed)));
    }

    /// No thread is out, and none has come back since the last question.
    pub fn is_quiet(&self) -> bool {
        self.stuck.is_empty() && self.back.is_empty()
    }

    /// Keys of devices that have no second thread.
    pub fn stuck(&self) -> HashSet<Key> {
        self.stuck.keys().cloned().collect()
    }

    /// Probes all of them, and waits for none longer than `patience`; by kernel name.
    ///
    /// A question is asked for when a thread is free for it: what it takes to put it together is done while others are
    /// being answered.
    pub fn run(
        &mut self,
        questions: impl Iterator<Item = Question>,
        patience: Duration,
        at_once: usize,
    ) -> HashMap<String, Outcome> {
        let patience = patience.min(self.answer_within);
        let mut waiting = questions.peekable();
        let mut running: BTreeMap<Key, Running> = BTreeMap::new();
        let mut idle: Vec<Worker> = Vec::new();
        let mut outcomes = HashMap::new();
        self.shelf.open();
        loop {
            let now = Instant::now();
            let lively = |running: &BTreeMap<Key, Running>| {
                running.values().filter(|probe| now - probe.started < SILENT_AFTER).count()
            };
            while lively(&running) < at_once.max(1) && running.len() < MOST.max(at_once) {
                let Some(question) = waiting.next() else { break };
                let key = (question.name.clone(), question.number, question.diskseq);
                if self.stuck.len() >= MOST_STUCK {
                    let content = Content::Unreadable(format!(
                        "it was not asked, because {MOST_STUCK} other devices do not answer"
                    ));
                    outcomes.insert(
                        key.0,
                        Outcome::Answered(Box::new(ProbeResult {
                            content,
                            ..ProbeResult::default()
                        })),
                    );
                    continue;
                }
                match idle.pop().map_or_else(|| self.hire(), Ok) {
                    Ok(worker) => {
                        // It waits for nothing else: its end of the channel is open.
                        let _ = worker.questions.send((question, key.clone()));
                        running.insert(key, Running { started: Instant::now(), worker });
                    }
                    Err(error) => {
                        let content = Content::Unreadable(format!(
                            "no thread could be started to read it: {error}"
                        ));
                        outcomes.insert(
                            key.0,
                            Outcome::Answered(Box::new(ProbeResult {
                                content,
                                ..ProbeResult::default()
                            })),
                        );
                    }
                }
            }
            if running.is_empty() {
                break;
            }
            let nobody_waits = waiting.peek().is_none();
            let until = |started| {
                if nobody_waits || now - started >= SILENT_AFTER {
                    patience
                } else {
                    SILENT_AFTER.min(patience)
                }
            };
            let next = running
                .values()
                .map(|probe| probe.started + until(probe.started))
                .min()
                .unwrap_or(now);
            match self.receiver.recv_timeout(next.saturating_duration_since(now)) {
                Ok((key, probed)) => match running.remove(&key) {
                    Some(probe) => {
                        idle.push(probe.worker);
                        outcomes.insert(key.0, Outcome::Answered(Box::new(probed)));
                    }
                    // One of an earlier run.
                    None => self.free(key, probed),
                },
                Err(_) => {
                    let now = Instant::now();
                    let late: Vec<Key> = running
                        .iter()
                        .filter(|(_, probe)| now - probe.started >= patience)
                        .map(|(key, _)| key.clone())
                        .collect();
                    for key in late {
                        // Its worker goes with it: this thread is never waited for, which ends when it comes back.
                        let Some(probe) = running.remove(&key) else { continue };
                        let late = now - probe.started >= self.answer_within;
                        outcomes.insert(
                            key.0.clone(),
                            if late { Outcome::TimedOut } else { Outcome::Slow },
                        );
                        self.stuck.insert(key, probe.started);
                    }
                }
            }
        }
        self.shelf.close();
        // Afterwards there is no thread left but stuck ones.
        for Worker { questions, thread } in idle {
            drop(questions);
            let _ = thread.join();
        }
        outcomes
    }

    /// A thread that answers one question after another, as long as there may be more.
    fn hire(&self) -> io::Result<Worker> {
        let (sender, shelf) = (self.sender.clone(), Arc::clone(&self.shelf));
        let (questions, asked) = mpsc::channel::<(Question, Key)>();
        let work = move || {
            while let Ok((question, key)) = asked.recv() {
                let probed = catch_unwind(AssertUnwindSafe(|| {
                    probe(&question, || LentImage::from(Arc::clone(&shelf)))
                }))
                .unwrap_or_else(|_| {
                    // A bug in the probe must look neither like a blank device nor like a hung one.
                    let content = Content::Unreadable(
                        "its content made the probe fail; please report this".to_owned(),
                    );
                    ProbeResult { content, ..ProbeResult::default() }
                });
                // Without a receiver the scanner is gone, and the answer is not needed.
                let _ = sender.send((key, probed));
            }
        };
        let thread =
            thread::Builder::new().name("quarry-probe".to_owned()).stack_size(STACK).spawn(work)?;
        Ok(Worker { questions, thread })
    }
}

struct Worker {
    questions: Sender<(Question, Key)>,
    thread: JoinHandle<()>,
}

struct Running {
    started: Instant,
    worker: Worker,
}

/// Images for the probes of one run; closed afterwards, so that none is kept at rest.
#[derive(Default)]
struct Shelf(Mutex<Option<Vec<Image>>>);

impl Shelf {
    fn open(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    }

    fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Goes back to its shelf when dropped.
struct LentImage {
    image: Option<Image>,
    shelf: Arc<Shelf>,
}

impl From<Arc<Shelf>> for LentImage {
    fn from(shelf: Arc<Shelf>) -> Self {
        let taken =
            shelf.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(Vec::pop);
        LentImage { image: Some(taken.unwrap_or_else(Image::new)), shelf }
    }
}

impl Deref for LentImage {
    type Target = Image;

    fn deref(&self) -> &Image {
        self.image.as_ref().expect("taken in drop alone")
    }
}

impl DerefMut for LentImage {
    fn deref_mut(&mut self) -> &mut Image {
        self.image.as_mut().expect("taken in drop alone")
    }
}

impl Drop for LentImage {
    fn drop(&mut self) {
        if let Some(shelf) = self.shelf.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            shelf.extend(self.image.take());
        }
    }
}
