//! What happens on the node and in the API that the loop must know: kernel events, mounts, the NodeInventory.
//!
//! Each source is a task that sends triggers and decides nothing. Next to read: `run.rs`, which receives them.

use super::{
    Agent, chain,
    uevent::{KernelEvent, Uevents},
};
use futures::{StreamExt, TryStreamExt};
use kube::{
    Api,
    core::DeserializeGuard,
    runtime::{WatchStreamExt, watcher},
};
use quarry_api::NodeInventory;
use std::{sync::Arc, time::Duration};
use tokio::{sync::mpsc::Sender, time::sleep};

/// Why the loop may have something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RescanTrigger {
    Kernel(KernelEvent),
    /// A disk came into use or went out of it.
    MountsChanged,
    InventoryChanged,
}

/// After an error of the socket itself: it may last.
const READ_AGAIN: Duration = Duration::from_secs(1);

impl<H: Send + Sync + 'static> Agent<H> {
    /// The inventory is published once the object is there, and again whenever it is changed.
    pub(super) async fn watch_inventory(self: Arc<Self>, triggers: Sender<RescanTrigger>) {
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
                        "failed to watch the NodeInventory, retrying"
                    );
                    continue;
                }
            };
            let changed = match event {
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
                        "failed to read the NodeInventory of this node; correct or delete it"
                    );
                    self.keep(None)
                }
            };
            if changed && triggers.send(RescanTrigger::InventoryChanged).await.is_err() {
                return;
            }
        }
    }
}

/// A device that is attached or detached by others is published as it is.
pub(super) async fn watch_kernel(triggers: Sender<RescanTrigger>) {
    let events = match Uevents::open() {
        Ok(events) => events,
        Err(error) => {
            tracing::warn!(%error, "failed to watch kernel events; the inventory is refreshed after jobs and every few minutes only");
            return;
        }
    };
    loop {
        match events.next().await {
            Ok(event) => {
                if triggers.send(RescanTrigger::Kernel(event)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "failed to read kernel events");
                sleep(READ_AGAIN).await;
            }
        }
    }
}
