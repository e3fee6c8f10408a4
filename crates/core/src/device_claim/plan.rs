//! The plan of one node: every device claim's next transition, orphaned PersistentVolumes, and new device claims.

use super::{
    Index, NodeWorld, Plan, Step, assign, disk_of, is_forgotten, is_frozen, machine_id,
    state_machine::{self, Erased},
};
use crate::device::{group::published_candidates, records::DataRecord};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{
    node_inventory::{DeviceClaim, RetainedData},
    node_job::hex_digest,
};
use std::sync::Arc;

/// Which demand takes which device, and what happens to existing device claims.
pub fn plan(world: &NodeWorld, now: Timestamp) -> Plan {
    let spec = &world.inventory.spec;
    let (mut retained_data, mut wipe_remnants) =
        (spec.retained_data.clone(), spec.wipe_remnants.clone());
    retained_data.retain(|data| !is_forgotten(world, &data.pv_uid));
    wipe_remnants.retain(|left| !is_forgotten(world, &left.pv_uid));
    let mut plan = Plan {
        machine_id: spec.machine_id.clone(),
        retained_data,
        wipe_remnants,
        ..Plan::default()
    };
    let index = Index::new(world);
    for claim in &world.inventory.spec.device_claims {
        let ctx = index.ctx(claim);
        let transition = state_machine::decide(world, &ctx, now);
        plan.claims.extend(transition.claim);
        if let Some(erased) = transition.erased {
            plan.retained_data.retain(|retained| !is_on(retained, claim));
            plan.wipe_remnants.retain(|left| !is_on(left, claim));
            match erased {
                Erased::Whole => {}
                Erased::Signatures(left) => plan.wipe_remnants.push(left),
            }
        }
        plan.retained_data.extend(unrecorded(transition.keeps, &plan.retained_data));
        for step in transition.steps {
            if !plan.steps.contains(&step) {
                plan.steps.push(step);
            }
        }
        plan.requeue = [plan.requeue, transition.requeue].into_iter().flatten().min();
    }
    for (_, step, keeps) in orphans(world, &index) {
        plan.steps.push(step);
        plan.retained_data.extend(unrecorded(keeps, &plan.retained_data));
    }
    if !is_frozen(world) {
        locate(world, &index, &mut plan.retained_data);
        locate(world, &index, &mut plan.wipe_remnants);
    }
    let assignment = assign::assign(world, &index);
    for claim in assignment.claims {
        let claim = with_own_link(claim, &plan.claims);
        plan.claims.push(with_id(claim, world, now));
    }
    plan.claims.sort();
    plan.retained_data.sort();
    plan.wipe_remnants.sort();
    plan.paths = assignment.paths;
    // The machine is recorded with the first device claim, and kept as long as there is one.
    plan.machine_id =
        if plan.claims.is_empty() { None } else { plan.machine_id.or_else(|| machine_id(world)) };
    plan
}

/// The ID of a new device claim: the next one on the same device, by the same owner, is another.
fn with_id(claim: DeviceClaim, world: &NodeWorld, now: Timestamp) -> DeviceClaim {
    let version = world.inventory.metadata.resource_version.as_deref().unwrap_or_default();
    let parts = [&world.name, &claim.identity, &claim.owner.uid, version, &now.to_string()];
    let id = hex_digest(&parts)[..16].to_owned();
    DeviceClaim { id, ..claim }
}

/// One link, one device claim: by-id names are not unique where the firmware of two disks gives both the same.
fn with_own_link(claim: DeviceClaim, others: &[DeviceClaim]) -> DeviceClaim {
    if others.iter().all(|other| other.link != claim.link) {
        return claim;
    }
    let link = format!("{}-{}", claim.link, &hex_digest(&[&claim.identity])[..16]);
    DeviceClaim { link, ..claim }
}

fn unrecorded(new: Option<RetainedData>, known: &[RetainedData]) -> Option<RetainedData> {
    let key = |data: &RetainedData| (data.identity.clone(), data.pv_uid.clone());
    new.filter(|new| !known.iter().any(|old| key(old) == key(new)))
}

/// On the claimed device, or on a partition that it had.
fn is_on(record: &impl DataRecord, claim: &DeviceClaim) -> bool {
    *record.identity() == claim.identity || record.disk().as_ref() == Some(&claim.identity)
}

/// Records the disk of a partition, and everything that identifies the device, while it is certain which one that is: it
/// is needed when the partition is gone, or the device shows less.
fn locate(world: &NodeWorld, index: &Index<'_>, records: &mut [impl DataRecord]) {
    for record in records.iter_mut() {
        let entry =
            index.device(record.identity()).filter(|entry| index.identity_problem(entry).is_none());
        let Some(entry) = entry else { continue };
        if record.disk().is_none() {
            *record.disk_mut() =
                disk_of(world, entry.device).and_then(|disk| disk.identity.clone());
        }
        if record.identifiers().is_empty() {
            let all = published_candidates(entry.device);
            *record.identifiers_mut() =
                if all.len() > 1 { all.into_iter().collect() } else { Vec::new() };
        }
    }
}

/// PersistentVolumes of ours that are being deleted and whose device claim is gone.
fn orphans<'a>(
    world: &'a NodeWorld,
    index: &'a Index<'_>,
) -> impl Iterator<Item = (&'a Arc<PersistentVolume>, Step, Option<RetainedData>)> {
    let unclaimed = |found: &&Arc<PersistentVolume>| {
        found.metadata.name.as_deref().is_some_and(|name| index.claim_of_pv(name).is_none())
    };
    world.pvs.iter().filter(unclaimed).filter_map(|found| {
        state_machine::orphan(world, found).map(|(step, keeps)| (found, step, keeps))
    })
}
