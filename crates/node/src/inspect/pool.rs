//! Threads for probes: a device that does not answer costs one thread and a few seconds, never the scan.
//!
//! Each probe runs on a thread of its own that ends with it, so at rest there is none. A probe that is silent for a
//! moment no longer counts against the number that may run at once: one hung device does not hold up the queue. A
//! thread that is stuck is remembered by its device, which gets no second one until the first comes back. Nobody
//! waits for it, neither at shutdown: the process can end, because the first read of a probe can be killed.

use super::{
    image::Image,
    probe::{Probed, Question, probe},
};
use crate::sys::DevNumber;
use quarry_core::device::Content;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
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
/// libblkid keeps little on the stack; what is not touched costs nothing.
const STACK: usize = 512 << 10;

/// One device, as long as it is the same one.
pub type Key = (String, DevNumber, Option<u64>);

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered(Box<Probed>),
    TimedOut,
}

pub struct Pool {
    sender: Sender<(Key, Probed)>,
    receiver: Receiver<(Key, Probed)>,
    /// Threads of earlier runs that have not come back.
    stuck: BTreeMap<String, Vec<Key>>,
    /// Devices whose thread has, by name.
    back: Vec<String>,
    shelf: Arc<Shelf>,
}

impl Pool {
    pub fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        Pool { sender, receiver, stuck: BTreeMap::new(), back: Vec::new(), shelf: Arc::default() }
    }

    pub fn is_stuck(&self, key: &Key) -> bool {
        self.stuck.get(&key.0).is_some_and(|keys| keys.contains(key))
    }

    /// Names of devices whose stuck thread has come back since. What it found is old by now and is not used.
    pub fn returned(&mut self) -> Vec<String> {
        while let Ok((key, _)) = self.receiver.try_recv() {
            self.free(key);
        }
        std::mem::take(&mut self.back)
    }

    fn free(&mut self, key: Key) {
        if let Some(keys) = self.stuck.get_mut(&key.0) {
            keys.retain(|other| *other != key);
            if keys.is_empty() {
                self.stuck.remove(&key.0);
            }
        }
        self.back.push(key.0);
    }

    /// Probes all of them; by kernel name.
    pub fn run(&mut self, questions: Vec<Question>, answer_within: Duration, at_once: usize) -> HashMap<String, Outcome> {
        let mut waiting = VecDeque::from(questions);
        let mut running: BTreeMap<Key, Running> = BTreeMap::new();
        let mut ended = Vec::new();
        let mut outcomes = HashMap::with_capacity(waiting.len());
        self.shelf.open();
        loop {
            let now = Instant::now();
            let lively = |running: &BTreeMap<Key, Running>| running.values().filter(|probe| now - probe.started < SILENT_AFTER).count();
            while lively(&running) < at_once.max(1) && running.len() < MOST.max(at_once) {
                let Some(question) = waiting.pop_front() else { break };
                let key = (question.name.clone(), question.number, question.diskseq);
                match self.start(question, key.clone()) {
                    Ok(thread) => {
                        running.insert(key, Running { started: now, thread });
                    }
                    Err(error) => {
                        let content = Content::Unreadable(format!("no thread could be started to read it: {error}"));
                        outcomes.insert(key.0, Outcome::Answered(Box::new(Probed { content, ..Probed::default() })));
                    }
                }
            }
            if running.is_empty() {
                break;
            }
            let patience = |started| if waiting.is_empty() || now - started >= SILENT_AFTER { answer_within } else { SILENT_AFTER.min(answer_within) };
            let next = running.values().map(|probe| probe.started + patience(probe.started)).min().unwrap_or(now);
            match self.receiver.recv_timeout(next.saturating_duration_since(now)) {
                Ok((key, probed)) => match running.remove(&key) {
                    Some(probe) => {
                        ended.push(probe.thread);
                        outcomes.insert(key.0, Outcome::Answered(Box::new(probed)));
                    }
                    // One of an earlier run.
                    None => self.free(key),
                },
                Err(_) => {
                    let now = Instant::now();
                    let late: Vec<Key> = running.iter().filter(|(_, probe)| now - probe.started >= answer_within).map(|(key, _)| key.clone()).collect();
                    for key in late {
                        // Its handle goes with it: nobody ever waits for this thread.
                        running.remove(&key);
                        outcomes.insert(key.0.clone(), Outcome::TimedOut);
                        self.stuck.entry(key.0.clone()).or_default().push(key);
                    }
                }
            }
        }
        self.shelf.close();
        // They have answered and are about to end: afterwards there is no thread left but stuck ones.
        for thread in ended {
            let _ = thread.join();
        }
        outcomes
    }

    fn start(&self, question: Question, key: Key) -> io::Result<JoinHandle<()>> {
        let (sender, shelf) = (self.sender.clone(), Arc::clone(&self.shelf));
        let work = move || {
            let probed = catch_unwind(AssertUnwindSafe(|| probe(&question, || Lent::from(shelf)))).unwrap_or_else(|_| {
                // A bug in the probe must look neither like a blank device nor like a hung one.
                let content = Content::Unreadable("its content made the probe fail; please report this".to_owned());
                Probed { content, ..Probed::default() }
            });
            // Without a receiver the scanner is gone, and nobody wants to know.
            let _ = sender.send((key, probed));
        };
        thread::Builder::new().name("quarry-probe".to_owned()).stack_size(STACK).spawn(work)
    }
}

struct Running {
    started: Instant,
    thread: JoinHandle<()>,
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
struct Lent {
    image: Option<Image>,
    shelf: Arc<Shelf>,
}

impl From<Arc<Shelf>> for Lent {
    fn from(shelf: Arc<Shelf>) -> Self {
        let taken = shelf.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(Vec::pop);
        Lent { image: Some(taken.unwrap_or_else(Image::new)), shelf }
    }
}

impl Deref for Lent {
    type Target = Image;

    fn deref(&self) -> &Image {
        self.image.as_ref().expect("taken in drop alone")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Image {
        self.image.as_mut().expect("taken in drop alone")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(shelf) = self.shelf.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            shelf.extend(self.image.take());
        }
    }
}
