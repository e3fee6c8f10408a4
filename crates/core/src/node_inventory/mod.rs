//! The operator's half of a NodeInventory: which nodes have one, and what the cluster knows about their devices.
//!
//! It is deleted with its Node, except while it has device claims or records data on its disks: the machine may come
//! back, so a finalizer keeps the inventory. Next to read: `quarantine.rs`, `unmanaged_pv.rs`.

mod check;

pub use check::{Violation, check};

use crate::{
    device_claim::{self, Demand, NodeWorld, Stage},
    event::PendingEvent,
    inventory_room,
    quarantine::{self, RemoteIdentity},
};
use jiff::Timestamp;
use quarry_api::{
    NodeInventory, NodeInventorySpec, NodeInventoryStatus, names,
    node_inventory::{ClaimOwner, DeviceClaim, UnmanagedPv},
};

#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub name: String,
    pub node_exists: bool,
    pub inventory: Option<NodeInventory>,
    /// The unmanaged PersistentVolumes on this node.
    pub unmanaged_pvs: Vec<UnmanagedPv>,
    /// Devices of other nodes with an identity of this node.
    pub elsewhere: Vec<RemoteIdentity>,
    /// What device claims are planned from; `None` where the kinds that own them are not watched: what is claimed stays.
    pub world: Option<NodeWorld>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The write to the NodeInventory, first of all: what is on record there must be durable before anything else.
    pub inventory: Option<Step>,
    /// `None` where device claims are not planned.
    pub claims: Option<device_claim::Plan>,
    /// Events on owners of new device claims, published once the inventory was written.
    pub new_claims: Vec<(ClaimOwner, PendingEvent)>,
    /// Device claims without an owner that cannot end, by device.
    pub ownerless: Vec<(String, Stage)>,
}

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

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Create(Box<NodeInventory>),
    /// At the version that was read.
    Update(Box<Update>),
    /// By UID and version: a node that comes back in between keeps its inventory.
    Delete {
        uid: String,
        resource_version: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    pub resource_version: String,
    pub spec: NodeInventorySpec,
    /// The complete list; `None` if it is unchanged.
    pub finalizers: Option<Vec<String>>,
    /// Removes the annotation that releases device claims: it was about a machine that was gone then.
    pub answered: bool,
}

fn plan_inventory(seen: &Observed, claims: Option<&device_claim::Plan>) -> Option<Step> {
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
    if !seen.node_exists && !remembers(&spec) && !remembers(&found.spec) && !going {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn plan(seen: &Observed) -> Option<Step> {
        plan_inventory(seen, None)
    }

    fn seen(node_exists: bool, extra: Value) -> Observed {
        let mut object = json!({"apiVersion": "quarry.dev/v1alpha1", "kind": "NodeInventory", "metadata": {"name": "n1", "uid": "u", "resourceVersion": "7"}, "spec": {}});
        for (key, value) in extra.as_object().unwrap() {
            let (part, field) = key.split_once('.').unwrap();
            object[part][field] = value.clone();
        }
        Observed {
            name: "n1".into(),
            node_exists,
            inventory: Some(serde_json::from_value(object).unwrap()),
            ..Observed::default()
        }
    }

    fn claims() -> Value {
        json!([{"identity": "wwn:1", "owner": {"kind": "LocalVolumeSet", "namespace": "s", "name": "fast", "uid": "x"}}])
    }

    fn foreign() -> Vec<UnmanagedPv> {
        vec![UnmanagedPv {
            name: "lso".into(),
            path: "/mnt/local-storage/fast/x".into(),
            device_id: None,
        }]
    }

    fn update(step: Option<Step>) -> Update {
        match step {
            Some(Step::Update(update)) => *update,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_inventory_follows_its_node() {
        let nothing =
            Observed { name: "n1".into(), unmanaged_pvs: foreign(), ..Observed::default() };
        assert_eq!(plan(&nothing), None);
        let Some(Step::Create(made)) = plan(&Observed { node_exists: true, ..nothing }) else {
            panic!()
        };
        assert_eq!(made.spec.unmanaged_pvs, foreign());
        assert_eq!(plan(&seen(true, json!({}))), None);
        assert_eq!(
            plan(&seen(false, json!({}))),
            Some(Step::Delete { uid: "u".into(), resource_version: "7".into() })
        );
        assert_eq!(
            plan(&seen(false, json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z"}))),
            None
        );
    }

    // invariant: 3
    #[test]
    fn an_inventory_with_device_claims_outlives_its_node() {
        let held = update(plan(&seen(true, json!({"spec.deviceClaims": claims()}))));
        assert_eq!(held.finalizers, Some(vec![names::DEVICE_CLAIMS_FINALIZER.to_owned()]));
        let finalizers = json!(["other/one", names::DEVICE_CLAIMS_FINALIZER]);
        assert_eq!(
            plan(&seen(
                true,
                json!({"spec.deviceClaims": claims(), "metadata.finalizers": finalizers})
            )),
            None
        );
        assert_eq!(
            plan(&seen(
                false,
                json!({"spec.deviceClaims": claims(), "metadata.finalizers": finalizers})
            )),
            None,
            "not deleted with its node"
        );
        let known = json!([{"name": "lso", "path": "/dev/x"}]);
        let gone = seen(
            false,
            json!({"spec.deviceClaims": claims(), "metadata.finalizers": finalizers, "spec.unmanagedPVs": known}),
        );
        assert_eq!(plan(&gone), None, "the list of its PersistentVolumes stays");
        let released = update(plan(&seen(true, json!({"metadata.finalizers": finalizers}))));
        assert_eq!(released.finalizers, Some(vec!["other/one".to_owned()]));
        // Deleted by hand: kept while there are device claims, released with the last one, never given a new finalizer.
        let going = json!({"spec.deviceClaims": claims(), "metadata.finalizers": finalizers, "metadata.deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(plan(&seen(true, going)), None);
        let free = json!({"metadata.finalizers": finalizers, "metadata.deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(update(plan(&seen(false, free))).finalizers, Some(vec!["other/one".to_owned()]));
        assert_eq!(
            plan(&seen(
                true,
                json!({"spec.deviceClaims": claims(), "metadata.deletionTimestamp": "2026-01-01T00:00:00Z", "metadata.finalizers": ["x/y"]})
            )),
            None
        );
    }

    /// The record of data on its disks is kept for as long as the node may come back.
    // invariant: 1
    #[test]
    fn an_inventory_with_retained_data_outlives_its_node() {
        let entry = json!([{"identity": "wwn:1", "pvName": "p", "pvUID": "u"}]);
        let finalizers = json!([names::DEVICE_CLAIMS_FINALIZER]);
        for list in ["spec.retainedData", "spec.wipeRemnants"] {
            let held = update(plan(&seen(true, json!({list: entry}))));
            assert_eq!(
                held.finalizers,
                Some(vec![names::DEVICE_CLAIMS_FINALIZER.to_owned()]),
                "{list}"
            );
            assert_eq!(
                plan(&seen(false, json!({list: entry, "metadata.finalizers": finalizers}))),
                None,
                "{list}: not deleted with its node"
            );
            let going = |node: bool| {
                plan(&seen(
                    node,
                    json!({list: entry, "metadata.finalizers": finalizers, "metadata.deletionTimestamp": "2026-01-01T00:00:00Z"}),
                ))
            };
            assert_eq!(going(true), None, "{list}: the node exists, and so does the data");
            assert_eq!(update(going(false)).finalizers, Some(vec![]), "{list}");
            // What a plan has just learned counts as well.
            let learned = seen(
                false,
                json!({"spec.deviceClaims": claims(), "metadata.finalizers": finalizers}),
            );
            let mut planned = device_claim::Plan::default();
            if list == "spec.retainedData" {
                planned.retained_data = serde_json::from_value(entry.clone()).unwrap();
            } else {
                planned.wipe_remnants = serde_json::from_value(entry.clone()).unwrap();
            }
            let step = update(plan_inventory(&learned, Some(&planned)));
            assert_eq!(
                (step.finalizers, step.spec.retained_data.len() + step.spec.wipe_remnants.len()),
                (None, 1)
            );
        }
        let both = json!({"spec.retainedData": entry, "spec.deviceClaims": claims(), "metadata.finalizers": finalizers, "metadata.deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(plan(&seen(false, both)), None, "its device claims back PersistentVolumes");
    }

    #[test]
    fn the_release_annotation_counts_once() {
        let released = json!({names::RELEASE_DEVICE_CLAIMS_ANNOTATION: "m1"});
        let with = |node: bool, machine: &str| {
            let extra = json!({"metadata.annotations": released, "spec.deviceClaims": claims(), "spec.machineID": "m1", "metadata.finalizers": [names::DEVICE_CLAIMS_FINALIZER]});
            let mut seen = seen(node, extra);
            seen.inventory.as_mut().unwrap().status = Some(quarry_api::NodeInventoryStatus {
                machine_id: Some(machine.into()),
                ..quarry_api::NodeInventoryStatus::default()
            });
            plan(&seen)
        };
        assert!(update(with(true, "m1")).answered, "the machine is back");
        assert_eq!((with(true, "m2"), with(false, "m1")), (None, None), "it is meant");
    }

    #[test]
    fn unmanaged_pvs_that_do_not_fit_are_counted() {
        let mut seen = seen(true, json!({}));
        seen.unmanaged_pvs = (0..9000)
            .map(|n| UnmanagedPv {
                name: format!("local-pv-{n:08}"),
                path: "/x".repeat(40),
                device_id: Some("wwn".into()),
            })
            .collect();
        let spec = update(plan(&seen)).spec;
        let bytes = serde_json::to_vec(&spec.unmanaged_pvs).unwrap().len();
        assert!((500_000..=600_000).contains(&bytes), "{bytes}");
        assert_eq!(
            spec.unmanaged_pvs_omitted,
            Some(9000 - i64::try_from(spec.unmanaged_pvs.len()).unwrap())
        );
        seen.inventory.as_mut().unwrap().spec = spec;
        assert_eq!(plan(&seen), None, "a plan on its own result is empty");
        seen.unmanaged_pvs.truncate(3);
        let spec = update(plan(&seen)).spec;
        assert_eq!((spec.unmanaged_pvs.len(), spec.unmanaged_pvs_omitted), (3, None));
    }

    // invariant: 8
    #[test]
    fn what_the_cluster_knows_is_written_once() {
        let mut seen = seen(
            true,
            json!({"spec.deviceClaims": claims(), "metadata.finalizers": [names::DEVICE_CLAIMS_FINALIZER]}),
        );
        seen.unmanaged_pvs = foreign();
        seen.elsewhere = vec![RemoteIdentity {
            identity: "wwn:1".into(),
            node: "n2".into(),
            device: "sdb".into(),
        }];
        let update = update(plan(&seen));
        insta::assert_yaml_snapshot!(update.spec);
        assert_eq!((update.resource_version.as_str(), update.finalizers), ("7", None));
        seen.inventory.as_mut().unwrap().spec = update.spec;
        assert_eq!(plan(&seen), None, "a plan on its own result is empty");
        seen.elsewhere.clear();
        seen.unmanaged_pvs.clear();
        let cleared = super::tests::update(plan(&seen)).spec;
        assert!(
            cleared.quarantine.is_empty()
                && cleared.unmanaged_pvs.is_empty()
                && cleared.device_claims.len() == 1
        );
    }

    #[test]
    fn check_reports_every_violation_of_an_inventory_plan() {
        let seen = seen(true, json!({"spec.deviceClaims": claims()}));
        let planned = |step| Plan { inventory: Some(step), ..Plan::default() };
        let delete = Step::Delete { uid: "u".into(), resource_version: "7".into() };
        assert_eq!(check(&seen, &planned(delete)), [Violation::DeletedWithRecords]);
        let mut spec = seen.inventory.as_ref().unwrap().spec.clone();
        spec.device_claims[0].round = 2;
        let finalizers = Some(Vec::new());
        let wrong = Update { resource_version: "7".into(), spec, finalizers, answered: false };
        let wrong = planned(Step::Update(Box::new(wrong)));
        assert_eq!(check(&seen, &wrong), [Violation::UnplannedRecords, Violation::Unprotected]);
        let unplanned = Plan { claims: Some(device_claim::Plan::default()), ..Plan::default() };
        assert_eq!(check(&seen, &unplanned), [Violation::UnplannedRecords]);
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(check(&seen, &super::plan(&seen, now)), []);
    }
}
