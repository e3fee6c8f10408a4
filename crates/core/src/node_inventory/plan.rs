//! The write to a NodeInventory, with its device claims, and the Events that follow. Checked in `check.rs`.

use super::{Observed, Plan, Step, Update};
use crate::{
    device_claim::{self, Demand, NodeWorld, Stage},
    event::PendingEvent,
    inventory_room, quarantine,
};
use jiff::Timestamp;
use quarry_api::{
    NodeInventory, NodeInventorySpec, NodeInventoryStatus, names,
    node_inventory::{ClaimOwner, DeviceClaim, UnmanagedPv},
};

pub fn plan(seen: &Observed, now: Timestamp) -> Plan {
    let claims = seen.world.as_ref().map(|world| device_claim::plan(world, now));
    let both = || seen.world.as_ref().zip(claims.as_ref());
    Plan {
        inventory: plan_inventory(seen, claims.as_ref()),
        new_claims: both().map(|(world, plan)| new_claims(world, plan)).unwrap_or_default(),
        ownerless: seen.world.as_ref().map(|world| ownerless(world, now)).unwrap_or_default(),
        claims,
    }
}

/// What the cluster knows about the devices, without a decision about them: the agent must know it in any case.
pub fn plan_without_claims(seen: &Observed) -> Plan {
    Plan { inventory: plan_inventory(seen, None), ..Plan::default() }
}

/// How many devices an Event names.
const NAMED: usize = 8;

/// One Event per owner and node, however many devices.
fn new_claims(world: &NodeWorld, plan: &device_claim::Plan) -> Vec<(ClaimOwner, PendingEvent)> {
    let old = &world.inventory.spec.device_claims;
    let is_new = |claim: &&DeviceClaim| {
        let same = |old: &DeviceClaim| {
            (&old.identity, &old.owner.uid) == (&claim.identity, &claim.owner.uid)
        };
        !old.iter().any(same)
    };
    let devices = || world.inventory.status.iter().flat_map(|status| &status.devices);
    let event = |demand: &Demand| {
        let own = plan.claims.iter().filter(is_new);
        let own: Vec<&DeviceClaim> =
            own.filter(|claim| claim.owner.uid == demand.owner.uid).collect();
        let claimed = devices().filter(|device| {
            own.iter().any(|claim| device_claim::is_device(device, &claim.identity))
        });
        let names: Vec<&str> = claimed.map(|device| device.name.as_str()).collect();
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let owner = device_claim::owner_text(&demand.owner);
        let listed = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        let message = format!("{owner} claims {listed}{more} of node {}", world.name);
        let event = PendingEvent { warning: false, reason: "FoundMatchingDisk", message };
        (!own.is_empty()).then(|| (demand.owner.clone(), event))
    };
    world.demands.iter().filter_map(event).collect()
}

/// Device claims whose owner was removed by force: no object is left that could report them but the inventory.
fn ownerless(world: &NodeWorld, now: Timestamp) -> Vec<(String, Stage)> {
    let contexts = device_claim::claim_contexts(world);
    let left = contexts.iter().filter(|ctx| ctx.demand.is_none());
    let name = |ctx: &device_claim::ClaimContext<'_>| {
        ctx.device.map_or(&ctx.claim.identity, |device| &device.name).clone()
    };
    left.map(|ctx| (name(ctx), device_claim::decide(world, ctx, now).stage)).collect()
}

/// The Event about device claims without an owner; empty when there is nothing to report.
pub fn ownerless_message(ownerless: &[(String, Stage)]) -> String {
    let waiting = ownerless
        .iter()
        .filter(|(_, stage)| !stage.detail().is_empty() && !matches!(stage, Stage::Terminating(_)));
    let texts = waiting.take(NAMED).map(|(device, stage)| format!("{device}: {}", stage.detail()));
    let text = texts.collect::<Vec<_>>().join("; ");
    if text.is_empty() { text } else { format!("the owner of these devices is gone: {text}") }
}

pub(super) fn plan_inventory(seen: &Observed, claims: Option<&device_claim::Plan>) -> Option<Step> {
    let Some(found) = &seen.inventory else { return seen.node_exists.then(|| create(seen)) };
    let going = found.metadata.deletion_timestamp.is_some();
    let mut spec = found.spec.clone();
    if let Some(planned) = claims.cloned() {
        let device_claim::Plan {
            claims,
            paths,
            machine_id,
            retained_data,
            wipe_remnants,
            steps: _,
            requeue: _,
        } = planned;
        (spec.device_claims, spec.paths, spec.machine_id, spec.retained_data, spec.wipe_remnants) =
            (claims, paths, machine_id, retained_data, wipe_remnants);
    }
    spec.ledger_id = ledger_id(seen, found, &spec);
    // Its Volumes depend on the recorded ledger: another one, on a node that comes back, must not pass for it.
    let depends = spec.ledger_id.is_some() && seen.has_volumes;
    let remembers_any = remembers(&spec) || remembers(&found.spec) || depends;
    if !seen.node_exists && !remembers_any && !going {
        return Some(Step::Delete {
            uid: found.metadata.uid.clone()?,
            resource_version: found.metadata.resource_version.clone()?,
        });
    }
    // Without the Node it is unknown which PersistentVolumes are on it: the list stays unchanged.
    if seen.node_exists {
        (spec.unmanaged_pvs, spec.unmanaged_pvs_omitted) =
            fitting(&seen.unmanaged_pvs, &spec, found.status.as_ref());
    }
    spec.quarantine = quarantine::plan(found, &seen.elsewhere);
    // Deleting the inventory of a node that does not exist discards the data on its disks, but not its device claims,
    // which back PersistentVolumes.
    let given_up = going && !seen.node_exists && spec.device_claims.is_empty();
    let finalizers = finalizers(found, given_up || !remembers(&spec));
    let answered = is_answered(seen, found);
    if spec == found.spec && finalizers.is_none() && !answered {
        return None;
    }
    Some(Step::Update(Box::new(Update {
        resource_version: found.metadata.resource_version.clone()?,
        spec,
        finalizers,
        answered,
    })))
}

/// Something that must outlive the Node: device claims, and the data on its disks.
fn remembers(spec: &NodeInventorySpec) -> bool {
    !spec.device_claims.is_empty()
        || !spec.retained_data.is_empty()
        || !spec.wipe_remnants.is_empty()
}

/// The recorded ledger stays until the node has nothing that depends on it, or an administrator accepts another one: what
/// was prepared or claimed by a ledger that is lost is unknown to the one that replaces it.
fn ledger_id(seen: &Observed, found: &NodeInventory, spec: &NodeInventorySpec) -> Option<String> {
    let recorded = found.spec.ledger_id.clone();
    let reported = found.status.as_ref().and_then(|status| status.ledger_id.clone());
    let Some(reported) = reported else { return recorded };
    let accepted = found.metadata.annotations.as_ref().is_some_and(|annotations| {
        annotations.get(names::ACCEPT_LEDGER_ANNOTATION) == Some(&reported)
    });
    let depends = !spec.device_claims.is_empty() || seen.has_volumes;
    recorded.filter(|_| depends && !accepted).or(Some(reported))
}

/// The machine is back, or the device claims are gone: the annotation that released them must not apply again.
fn is_answered(seen: &Observed, found: &NodeInventory) -> bool {
    let released = found.metadata.annotations.as_ref().is_some_and(|annotations| {
        annotations.contains_key(names::RELEASE_DEVICE_CLAIMS_ANNOTATION)
    });
    let machine = found.status.as_ref().map(|status| status.machine_id.as_deref());
    released && seen.node_exists && !device_claim::is_other_machine(&found.spec, machine)
}

/// As many as fit beside the rest of the spec, and the number of the others.
fn fitting(
    all: &[UnmanagedPv],
    spec: &NodeInventorySpec,
    status: Option<&NodeInventoryStatus>,
) -> (Vec<UnmanagedPv>, Option<i64>) {
    if all.is_empty() {
        return (Vec::new(), None);
    }
    let room = inventory_room::for_unmanaged_pvs(spec, status);
    let size = |pv: &UnmanagedPv| {
        pv.name.len() + pv.path.len() + pv.device_id.as_ref().map_or(0, |id| id.len() + 14) + 24
    };
    let ends = all.iter().scan(0, |end, pv| {
        *end += size(pv);
        Some(*end)
    });
    let fitting = ends.take_while(|end| *end <= room).count();
    let left_out = i64::try_from(all.len() - fitting).ok().filter(|left_out| *left_out > 0);
    (all[..fitting].to_vec(), left_out)
}

fn create(seen: &Observed) -> Step {
    let (unmanaged_pvs, unmanaged_pvs_omitted) =
        fitting(&seen.unmanaged_pvs, &NodeInventorySpec::default(), None);
    let mut made = NodeInventory::new(
        &seen.name,
        NodeInventorySpec { unmanaged_pvs, unmanaged_pvs_omitted, ..NodeInventorySpec::default() },
    );
    made.metadata.labels = Some(
        [(quarry_api::crds::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned())].into(),
    );
    Step::Create(Box::new(made))
}

/// The finalizer is set exactly while something must be kept. The API refuses a new finalizer on an object that is being
/// deleted.
fn finalizers(found: &NodeInventory, free: bool) -> Option<Vec<String>> {
    let present = found.metadata.finalizers.clone().unwrap_or_default();
    let held = present.iter().any(|finalizer| finalizer == names::DEVICE_CLAIMS_FINALIZER);
    match (held, free) {
        (true, true) => Some(
            present
                .into_iter()
                .filter(|finalizer| finalizer != names::DEVICE_CLAIMS_FINALIZER)
                .collect(),
        ),
        (false, false) if found.metadata.deletion_timestamp.is_none() => {
            Some(present.into_iter().chain([names::DEVICE_CLAIMS_FINALIZER.to_owned()]).collect())
        }
        (true | false, _) => None,
    }
}
