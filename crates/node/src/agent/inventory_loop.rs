//! When the agent looks at its devices: on kernel events, after jobs, when a disk has settled, now and then.
//!
//! The first event of a burst is answered at once, the rest are gathered; however many come, looking takes at most half
//! of the time. At rest nothing is read but once in ten minutes.

use super::{Agent, Published, ScanReason, chain, uevent::KernelEvent, uevent::Uevents};
use crate::node_ops::NodeOps;
use futures::{StreamExt, TryStreamExt};
use kube::{
    Api,
    core::DeserializeGuard,
    runtime::{WatchStreamExt, watcher},
};
use quarry_api::NodeInventory;
use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout_at},
};

/// A plug gives several events within this time.
const DEBOUNCE: Duration = Duration::from_millis(4);
/// Between two looks at least this, or as long as the last one took.
const BREATHE: Duration = Duration::from_millis(20);
/// Mounts of other namespaces come without an event, and netlink may lose some: a look that costs no write when nothing
/// changed.
const LOOK_ANYWAY: Duration = Duration::from_secs(600);
/// udev makes its links some time after the kernel's event, and nobody tells a pod when it has.
const AFTER_EVENTS: [Duration; 4] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
];
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Rung when there is something to look at; remembers what until somebody looks.
#[derive(Debug, Default)]
pub(super) struct RescanTrigger {
    pending: Mutex<Pending>,
    rung: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    occasion: ScanReason,
    /// The kernel told: udev may follow.
    by_kernel: bool,
}

impl RescanTrigger {
    pub fn ring(&self) {
        self.rung.notify_one();
    }

    fn heard(&self, heard: KernelEvent) {
        {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            pending.by_kernel = true;
            match heard {
                KernelEvent::Device(name) => drop(pending.occasion.touched.insert(name)),
                KernelEvent::Lost => pending.occasion.everything = true,
            }
        }
        self.ring();
    }

    fn take(&self) -> Pending {
        mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A look that failed: what it was for is still to be looked at.
    fn put_back(&self, occasion: ScanReason) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.occasion.everything |= occasion.everything;
        pending.occasion.touched.extend(occasion.touched);
    }
}

impl<H: NodeOps> Agent<H> {
    pub(super) async fn keep_inventory(self: Arc<Self>, bell: Arc<RescanTrigger>) {
        let mut follow_ups: VecDeque<Instant> = VecDeque::new();
        let (mut again, mut pause) = (None, FIRST_PAUSE);
        let mut rescan = Instant::now() + self.options.rescan_interval;
        loop {
            let due = [
                Some(Instant::now() + LOOK_ANYWAY),
                Some(rescan),
                again,
                follow_ups.front().copied(),
            ]
            .into_iter()
            .flatten()
            .min();
            if timeout_at(due.unwrap_or(rescan), bell.rung.notified()).await.is_ok() {
                sleep(DEBOUNCE).await;
            }
            let Pending { mut occasion, by_kernel } = bell.take();
            let begun = Instant::now();
            if by_kernel {
                follow_ups = AFTER_EVENTS.iter().map(|after| begun + *after).collect();
            }
            while follow_ups.front().is_some_and(|due| *due <= begun) {
                follow_ups.pop_front();
            }
            if rescan <= begun {
                occasion.everything = true;
                rescan = begun + self.options.rescan_interval;
            }
            match self.publish_inventory(occasion.clone()).await {
                Ok(publication) => {
                    if publication.published == Published::NoInventory {
                        // The watch tells when the operator has made it.
                        tracing::debug!("the operator has not made the NodeInventory yet");
                    }
                    again = publication.again_in.map(|after| Instant::now() + after);
                    pause = FIRST_PAUSE;
                }
                Err(error) => {
                    tracing::warn!(
                        error = error.message(),
                        "the inventory is published again in a moment"
                    );
                    bell.put_back(occasion);
                    bell.ring();
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
            if follow_ups.is_empty() {
                crate::sys::give_memory_back();
            }
            sleep_until(Instant::now() + begun.elapsed().max(BREATHE).min(LONGEST_PAUSE)).await;
        }
    }

    /// Publishes once the object is there, and again should somebody change it.
    pub(super) async fn watch_inventory(self: Arc<Self>, bell: Arc<RescanTrigger>) {
        let inventories: Api<DeserializeGuard<NodeInventory>> = Api::all(self.client.clone());
        let config =
            watcher::Config::default().fields(&format!("metadata.name={}", self.options.node_name));
        let mut events = watcher(inventories, config).default_backoff().boxed();
        loop {
            let event = match events.try_next().await {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(
                        error = chain(&error),
                        "the watch on the inventory broke; it is taken up again"
                    );
                    continue;
                }
            };
            let news = match event {
                watcher::Event::Init | watcher::Event::InitDone => false,
                watcher::Event::Delete(_) => self.keep(None),
                watcher::Event::Apply(DeserializeGuard(Ok(inventory)))
                | watcher::Event::InitApply(DeserializeGuard(Ok(inventory))) => {
                    self.keep(Some(inventory))
                }
                watcher::Event::Apply(DeserializeGuard(Err(invalid)))
                | watcher::Event::InitApply(DeserializeGuard(Err(invalid))) => {
                    tracing::error!(
                        error = invalid.error,
                        "this node's NodeInventory cannot be read: correct or delete it"
                    );
                    self.keep(None)
                }
            };
            if news {
                bell.ring();
            }
        }
    }
}

/// A device that somebody attaches or detaches behind our back is published as it is.
pub(super) async fn watch_kernel(bell: Arc<RescanTrigger>) {
    let events = match Uevents::open() {
        Ok(events) => events,
        Err(error) => {
            tracing::warn!(%error, "no kernel events: the inventory is refreshed after jobs and every few minutes only");
            return;
        }
    };
    loop {
        match events.next().await {
            Ok(heard) => bell.heard(heard),
            Err(error) => {
                tracing::warn!(%error, "reading kernel events");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
}
