//! The NodeInventory controller: every Node has one, with what the cluster knows about its devices and who gets them;
//! the node's agent fills in the rest. Device claims are planned here, per node, and what follows from them is done
//! once the inventory records it. Decided in `quarry_core::{node_inventory, device_claim}`.

mod apply;
mod observe;
mod triggers;

pub use apply::apply_claims;
pub use observe::observe_world;
pub use triggers::{inventory_devices_differ, node_differs};

use crate::{
    Context,
    cache::{Cached, Caches},
    controller::{Controller, Failure, Group, Need, Next},
    node_index,
    registry::group,
    trigger::Triggers,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::{Resource, ResourceExt};
use quarry_api::NodeInventory;
use quarry_core::node_inventory::{self, Observed, Plan, Violation};

impl Cached for NodeInventory {
    fn reindex(before: Option<&Self>, after: Option<&Self>, caches: &Caches) -> Vec<String> {
        node_index::follow_inventory(before, after, caches)
    }
}

pub struct NodeInventoryController;

impl Controller for NodeInventoryController {
    const NAME: &'static str = "nodeinventory";
    const GROUP: Group = group::NODE_INVENTORY;
    const NEEDS: &'static [Need] = &[];
    type Observed = Observed;
    type Plan = Plan;
    type Violation = Violation;

    fn triggers(triggers: &mut Triggers<'_>) {
        triggers::register(triggers);
    }

    async fn observe(context: &Context, node: &str) -> Result<Option<Observed>, Failure> {
        observe::observe(context, node).await.map(Some)
    }

    fn plan(observed: &Observed, now: Timestamp) -> Plan {
        node_inventory::plan(observed, now)
    }

    fn check(observed: &Observed, plan: &Plan) -> Vec<Violation> {
        node_inventory::check(observed, plan)
    }

    async fn apply(context: &Context, observed: &Observed, plan: Plan) -> Result<Next, Failure> {
        apply::apply(context, observed, plan).await
    }

    fn fallback(observed: &Observed, _now: Timestamp) -> Option<Plan> {
        Some(node_inventory::plan_without_claims(observed))
    }

    fn subject(observed: &Observed) -> Option<ObjectReference> {
        observed.inventory.as_ref().map(|inventory| inventory.object_ref(&()))
    }

    fn waiting_since(context: &Context, node: &str) -> Option<Timestamp> {
        context.caches.get::<Node>(node)?.creation_timestamp().map(|time| time.0)
    }
}
