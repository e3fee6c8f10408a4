//! Publishing what the node has: written only when it changed, never at rest.
//!
//! The scan reads, core decides (`quarry_core::device`), this file writes. The last object is kept from the watch, so that a
//! disk that appears costs one write and one read; without a watch, or after a conflict, the object is read first.

use super::{
    Agent, AgentError, chain,
    device_claims::{ClaimReports, UnreportedClaims},
    report::status_patch,
};
use crate::{
    device_claim::{NodeView, known},
    node_ops::{DeviceOps, LedgerOps, NodeScan, ScanRequest},
};
use jiff::SignedDuration;
use k8s_openapi::{
    api::core::v1::{Event, Node},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use quarry_api::{NodeInventory, NodeInventoryStatus, names};
use quarry_core::{
    agent_schedule::ScanReason,
    device::{
        events::changes,
        inventory::{NodeFacts, status, unseen},
        status_patch::json_patch,
    },
    event::{AboutObject, EVENTS_OF_CLUSTER_OBJECTS, PendingEvent},
};
use quarry_failpoint::failpoint;
use serde_json::json;
use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

const TRIES: usize = 5;
/// After a scan that failed as a whole.
const SCAN_AGAIN: Duration = Duration::from_secs(10);
/// Devices have their own time limits, far below this. Something else is in the way then, and that is reported.
const SCAN_LIMIT: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    Changed,
    Unchanged,
    /// The operator has not created this node's NodeInventory yet.
    NoInventory,
}

/// The result, and when the next scan is due: a device will have settled, or may have answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    pub published: Published,
    pub again_in: Option<Duration>,
}

impl<H: DeviceOps + LedgerOps> Agent<H> {
    pub async fn publish_inventory(&self, reason: ScanReason) -> Result<Publication, AgentError> {
        let name = self.options.node_name.as_str();
        let attempt = || format!("publishing the inventory of {name}");
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut current = self.known_inventory().await?;
        let restored = reason.restored;
        let request = ScanRequest {
            everything: reason.everything,
            touched: reason.touched,
            unmanaged_pvs: current
                .as_ref()
                .map(|current| current.spec.unmanaged_pvs.clone())
                .unwrap_or_default(),
            spare: current
                .as_ref()
                .filter(|current| !current.spec.device_claims.is_empty())
                .map(|current| NodeView::of(current).spared())
                .unwrap_or_default(),
            proves: false,
        };
        let limit = (SCAN_LIMIT, &self.scanning);
        let scan = self
            .runner
            .call_within("scanning the devices", limit, move |ops| ops.scan_node(&request));
        let (node, mut scan) = futures::join!(nodes.get_opt(name), scan);
        let node_uid = node.map_err(AgentError::api(attempt()))?.and_then(|node| node.metadata.uid);
        let (mut tries, mut fresh) = (0, UnreportedClaims::default());
        loop {
            let Some(inventory) = current else {
                // Scanned even before there is an inventory: the settling time runs from the first sight.
                let again_in = scan.as_ref().ok().map(|scan| {
                    let (nothing, none) = (NodeInventory::default(), ClaimReports::default());
                    self.assess(scan, &nothing, node_uid.clone(), none, restored).1
                });
                return Ok(Publication {
                    published: Published::NoInventory,
                    again_in: again_in.flatten(),
                });
            };
            let attended = match &mut scan {
                Ok(scan) => self.attend(scan, &inventory, &mut fresh).await,
                Err(_) => Ok(ClaimReports::default()),
            };
            let seen = match (&scan, attended) {
                (Ok(scan), Ok(attended)) => Ok((scan, attended)),
                (Err(error), _) => Err(error.message()),
                (Ok(_), Err(error)) => Err(error.message()),
            };
            let (mut wanted, again_in) = match seen {
                Ok((scan, attended)) => {
                    let refused = attended.again_in;
                    let (status, settles_in) =
                        self.assess(scan, &inventory, node_uid.clone(), attended, restored);
                    (status, settles_in.into_iter().chain(scan.again_in).chain(refused).min())
                }
                // Reported where people read it, and no device stays Available that cannot be scanned.
                Err(error) => {
                    tracing::warn!(error, "failed to scan the devices; the inventory reports it");
                    (unseen(inventory.status.clone().unwrap_or_default(), &error), Some(SCAN_AGAIN))
                }
            };
            wanted.last_change =
                inventory.status.as_ref().and_then(|status| status.last_change.clone());
            if inventory.status.as_ref() == Some(&wanted) {
                return Ok(Publication { published: Published::Unchanged, again_in });
            }
            wanted.last_change = Some(Time(self.options.clock.now()));
            match self.write_inventory(&inventory, &wanted).await {
                Ok(()) => {
                    if let Some(before) = &inventory.status {
                        self.publish_events(&inventory, &changes(before, &wanted)).await;
                    }
                    return Ok(Publication { published: Published::Changed, again_in });
                }
                // 422: a step of the patch does not fit any more; the same as a conflict.
                Err(kube::Error::Api(refusal))
                    if matches!(refusal.code, 409 | 422) && tries < TRIES =>
                {
                    tries += 1
                }
                Err(error) => return Err(AgentError::api(attempt())(error)),
            }
            current = self.read_inventory().await?;
        }
    }

    /// The whole status, from what was seen and what the cluster knows.
    fn assess(
        &self,
        scan: &NodeScan,
        inventory: &NodeInventory,
        node_uid: Option<String>,
        attended: ClaimReports,
        restored: bool,
    ) -> (NodeInventoryStatus, Option<Duration>) {
        let (previous, boot_id) = (inventory.status.as_ref(), scan.boot_id.as_deref());
        let (now, needed) = (self.options.clock.elapsed(), self.options.settling_time);
        let mut settling = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known(inventory, scan, &settling.overdue_paths(now));
        settling.observe(&known, previous, boot_id, now, needed);
        let facts = NodeFacts {
            node_uid,
            machine_id: scan.machine_id.clone(),
            ledger_id: scan.ledger_id.clone(),
            boot_id: scan.boot_id.clone(),
            restored_boot_id: if restored {
                scan.boot_id.clone()
            } else {
                previous.and_then(|previous| previous.restored_boot_id.clone())
            },
            agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            claims: attended.claims,
            paths: attended.paths,
            problems: scan.problems.clone(),
        };
        let settles_in = settling.next(needed).map(|due| due.saturating_sub(now));
        (status(facts, &known, &settling, &inventory.spec), settles_in)
    }
}

impl<H> Agent<H> {
    async fn write_inventory(
        &self,
        inventory: &NodeInventory,
        wanted: &NodeInventoryStatus,
    ) -> kube::Result<()> {
        let inventories: Api<NodeInventory> = Api::all(self.client.clone());
        let version = inventory.metadata.resource_version.as_deref();
        let few = inventory
            .status
            .as_ref()
            .and_then(|old| json_patch(version?, old, wanted))
            .and_then(|patch| serde_json::from_value(patch).ok());
        let patch = match few {
            Some(few) => Patch::Json(few),
            None => Patch::Merge(status_patch(version, inventory.status.as_ref(), wanted)),
        };
        failpoint!("inventory.before");
        let written =
            inventories.patch_status(&inventory.name_any(), &PatchParams::default(), &patch).await;
        failpoint!("inventory.after");
        let written = written?;
        if self.kept().is_some() {
            self.keep(Some(written));
        }
        Ok(())
    }

    /// From the watch where there is one.
    async fn known_inventory(&self) -> Result<Option<NodeInventory>, AgentError> {
        match self.kept() {
            Some(kept) => Ok(Some(NodeInventory::clone(&kept))),
            None => self.read_inventory().await,
        }
    }

    async fn read_inventory(&self) -> Result<Option<NodeInventory>, AgentError> {
        let name = self.options.node_name.as_str();
        let inventories: Api<NodeInventory> = Api::all(self.client.clone());
        inventories
            .get_opt(name)
            .await
            .map_err(AgentError::api(format!("reading the inventory of {name}")))
    }

    fn kept(&self) -> Option<Arc<NodeInventory>> {
        self.kept_inventory.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps what is newer: an event may be older than our own last write. `true` when it is news.
    pub(super) fn keep(&self, inventory: Option<NodeInventory>) -> bool {
        let version = |inventory: &NodeInventory| {
            inventory.resource_version().and_then(|version| version.parse::<u64>().ok())
        };
        let mut kept = self.kept_inventory.lock().unwrap_or_else(PoisonError::into_inner);
        let older = match (&*kept, &inventory) {
            (Some(kept), Some(new)) => {
                kept.uid() == new.uid() && version(kept).is_some() && version(new) <= version(kept)
            }
            (None, Some(_)) | (_, None) => false,
        };
        if older {
            return false;
        }
        *kept = inventory.map(Arc::new);
        true
    }

    /// As Events on the NodeInventory, as far as the API takes them; the log has them anyway.
    pub(super) async fn publish_events(&self, inventory: &NodeInventory, pending: &[PendingEvent]) {
        let about = AboutObject {
            reference: inventory.object_ref(&()),
            namespace: EVENTS_OF_CLUSTER_OBJECTS.to_owned(),
            component: names::AGENT_SERVICE_ACCOUNT.to_owned(),
            host: Some(self.options.node_name.clone()),
        };
        let events: Api<Event> = Api::namespaced(self.client.clone(), &about.namespace);
        for one in pending {
            tracing::info!(reason = one.reason, "{}", one.message);
            let event =
                about.event(one.warning, one.reason, &one.message, self.options.clock.now());
            // Published before, in the same words: the API has it, and an agent does not read Events.
            match events.create(&PostParams::default(), &event).await {
                Ok(_) => {}
                Err(kube::Error::Api(refusal)) if refusal.code == 409 => {
                    let again = json!({"lastTimestamp": event.last_timestamp});
                    let name = event.metadata.name.as_deref().unwrap_or_default();
                    if let Err(error) =
                        events.patch(name, &PatchParams::default(), &Patch::Merge(&again)).await
                    {
                        tracing::warn!(error = chain(&error), "failed to update Event");
                    }
                }
                Err(error) => tracing::warn!(error = chain(&error), "failed to publish Event"),
            }
        }
    }
}

/// A clock of the wall that jumps must not settle a disk.
pub(super) fn since(start: jiff::Timestamp, now: jiff::Timestamp) -> Duration {
    Duration::try_from(now.duration_since(start).max(SignedDuration::ZERO)).unwrap_or_default()
}
