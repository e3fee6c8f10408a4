//! Which steps of a plan still hold when they are applied. A create carries no version of the NodeInventory: what the
//! plan was made from may be outdated by then, so it is compared with the inventory as it is now.
//!
//! Part of the checks: uses facts and `check.rs`, never the modules that plan; a tidy test holds this.

use super::{Index, NodeWorld, Step, check::check_publication};
use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::StorageClass};
use quarry_api::NodeInventory;
use std::collections::BTreeSet;

/// The PersistentVolumes of these steps that may be created by what the inventory says now: the device claim and its
/// report are those that the plan was made from, and nothing else that has become known since forbids it.
pub fn publishable(world: &NodeWorld, live: &NodeInventory, steps: &[Step]) -> BTreeSet<String> {
    if live.metadata.uid != world.inventory.metadata.uid {
        return BTreeSet::new();
    }
    let now = NodeWorld { inventory: live.clone(), ..world.clone() };
    let (before, after) = (Index::new(world), Index::new(&now));
    let holds = |pv: &PersistentVolume, name: &str| {
        let claims = before.claim_of_pv(name).zip(after.claim_of_pv(name));
        let same = claims.is_some_and(|(old, new)| {
            old == new && before.ctx(old).report == after.ctx(new).report
        });
        same && check_publication(&now, &after, pv).is_empty()
    };
    let created = steps.iter().filter_map(created_pv);
    let created = created.filter_map(|pv| Some((pv, pv.metadata.name.as_ref()?)));
    created.filter(|(pv, name)| holds(pv, name)).map(|(_, name)| name.clone()).collect()
}

/// Whether the step may be applied, given what is publishable of all steps. A StorageClass is created only for a
/// PersistentVolume that is created as well: one that comes too late would be left behind without an owner.
pub fn may_apply(step: &Step, steps: &[Step], publishable: &BTreeSet<String>) -> bool {
    let holds = |pv: &PersistentVolume| {
        pv.metadata.name.as_ref().is_some_and(|name| publishable.contains(name))
    };
    match step {
        Step::CreatePv(pv) => holds(pv),
        Step::CreateClass(class) => {
            steps.iter().filter_map(created_pv).any(|pv| holds(pv) && is_of_class(pv, class))
        }
        Step::DeletePv { .. } | Step::ReleasePv { .. } | Step::CreateJob(_) => true,
    }
}

fn created_pv(step: &Step) -> Option<&PersistentVolume> {
    match step {
        Step::CreatePv(pv) => Some(pv),
        Step::CreateClass(_)
        | Step::DeletePv { .. }
        | Step::ReleasePv { .. }
        | Step::CreateJob(_) => None,
    }
}

fn is_of_class(pv: &PersistentVolume, class: &StorageClass) -> bool {
    let name = pv.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    name == class.metadata.name.as_ref()
}
