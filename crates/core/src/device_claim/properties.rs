//! What holds in every generated world: the planner never breaks an invariant, assigns no device twice, does not depend
//! on any order, and plans nothing on its own result.

use super::{check::check, demand::of_set, *};
use proptest::prelude::*;
use quarry_api::{
    NodeInventorySpec, NodeInventoryStatus,
    node_inventory::{ClaimState, DeviceReason, DeviceState},
};
use serde_json::json;

fn a_set(index: usize) -> impl Strategy<Value = Demand> {
    (0..4u8, proptest::option::of(0..4i32), 0..3i32, any::<bool>(), any::<bool>(), proptest::option::of(0..2u8)).prop_map(move |(age, max, min, deleted, protected, kind)| {
        let max = max.map(|max| max.max(min));
        let mut spec = json!({"storageClassName": format!("class-{index}"), "minDeviceCount": min, "maxDeviceCount": max});
        if let Some(kind) = kind {
            spec["deviceInclusionSpec"] = json!({"deviceTypes": [if kind == 0 { "disk" } else { "loop" }]});
        }
        let object = json!({
            "metadata": {"name": format!("s{index}"), "namespace": "q", "uid": format!("uid-{index}"), "creationTimestamp": format!("2026-01-01T00:00:0{age}Z"),
                "deletionTimestamp": (deleted && index > 1).then_some("2026-01-01T01:00:00Z"), "finalizers": if protected || index == 0 { json!([names::OWNER_FINALIZER]) } else { json!([]) }},
            "spec": spec,
        });
        of_set(&serde_json::from_value(object).unwrap())
    })
}

fn a_device(index: usize) -> impl Strategy<Value = Device> {
    let reasons = prop::sample::subsequence(
        vec![
            "TooNew",
            "Signature",
            "Mounted",
            "Removable",
            "NotLocal",
            "Claimed",
            "IdentityElsewhere",
        ],
        0..2,
    );
    (any::<bool>(), any::<bool>(), reasons, 1..3u8).prop_map(
        move |(settled, is_loop, reasons, scale)| Device {
            name: format!("sd{index}"),
            kind: if is_loop { "loop" } else { "disk" }.into(),
            size: i64::from(scale) << 30,
            identity: Some(format!("serial:m:{index}")),
            settled: settled || index < 2,
            state: if reasons.is_empty() {
                DeviceState::Available
            } else {
                DeviceState::NotAvailable
            },
            reasons: reasons
                .into_iter()
                .map(|reason| DeviceReason { reason: reason.into(), detail: String::new() })
                .collect(),
            ..Device::default()
        },
    )
}

prop_compose! {
    fn a_world()(demands in (a_set(0), a_set(1), a_set(2)), devices in (a_device(0), a_device(1), a_device(2), a_device(3), a_device(4)), shared in proptest::option::of(0..5u8), present in any::<bool>()) -> NodeWorld {
        let mut inventory = NodeInventory::new("n1", NodeInventorySpec::default());
        let devices = vec![devices.0, devices.1, devices.2, devices.3, devices.4];
        inventory.status = Some(NodeInventoryStatus { machine_id: Some("m".into()), devices, ..NodeInventoryStatus::default() });
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "node", "labels": {"kubernetes.io/hostname": "n1"}}})).unwrap();
        let elsewhere = shared.map(|index| RemoteIdentity { identity: format!("serial:m:{index}"), node: "n2".into(), device: "sdx".into() });
        NodeWorld { name: "n1".into(), node: Some(Arc::new(node)), inventory, demands: vec![demands.0, demands.1, demands.2], elsewhere: elsewhere.into_iter().collect(), agent_present: present, ..NodeWorld::default() }
    }
}

/// The agent's answers, by a mask: confirmed or refused.
fn answer(world: &mut NodeWorld, mask: u8) {
    let claims = world.inventory.spec.device_claims.clone();
    let reports = claims.iter().enumerate().map(|(index, claim)| ClaimReport {
        identity: claim.identity.clone(),
        owner_uid: claim.owner.uid.clone(),
        round: claim.round,
        state: match (claim.terminating, mask >> (index % 8) & 1) {
            (true, _) => ClaimState::Removed,
            (false, 0) => ClaimState::Refused,
            (false, _) => ClaimState::Confirmed,
        },
        linked: true,
        ..ClaimReport::default()
    });
    world.inventory.status.as_mut().unwrap().device_claims = reports.collect();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    // invariant: 3
    #[test]
    fn no_plan_breaks_an_invariant_or_depends_on_an_order(world in a_world(), masks in proptest::collection::vec(any::<u8>(), 3)) {
        let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
        let mut world = world;
        for mask in masks {
            let planned = plan(&world, now);
            prop_assert_eq!(check(&world, &planned), vec![]);
            let mut other = world.clone();
            other.demands.reverse();
            other.inventory.status.as_mut().unwrap().devices.reverse();
            prop_assert_eq!(&plan(&other, now).claims, &planned.claims);
            for (index, claim) in planned.claims.iter().enumerate() {
                prop_assert!(!planned.claims[..index].iter().any(|one| one.identity == claim.identity), "twice: {}", claim.identity);
            }
            for demand in &world.demands {
                let had = world.inventory.spec.device_claims.iter().filter(|claim| claim.owner.uid == demand.owner.uid).count();
                let has = planned.claims.iter().filter(|claim| claim.owner.uid == demand.owner.uid && !claim.terminating).count();
                if let demand::DeviceSelection::Set(set) = &demand.selection {
                    prop_assert!(has <= set.max.unwrap_or(usize::MAX).max(had));
                    prop_assert!(has == 0 || has >= set.min || has <= had);
                }
            }
            world.inventory.spec.device_claims = planned.claims.clone();
            world.inventory.spec.machine_id = planned.machine_id.clone();
            let again = plan(&world, now);
            prop_assert_eq!(&again.claims, &planned.claims, "a plan on its own result is empty");
            answer(&mut world, mask);
        }
    }
}
