use super::{Device, DeviceClaim, disk, now, set, step, world};
use crate::{
    device_claim::{
        Stage,
        owner::{ClassUse, Observed, OwnerFields, OwnerStatus, Plan, Step, Violation, check, plan},
        world::NodeFacts,
    },
    presence::Presence,
};
use jiff::Timestamp;
use quarry_api::names;
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};

/// A node with this disk, and the device claims that were planned for it.
fn facts(disks: Vec<Device>, claims: Vec<DeviceClaim>) -> NodeFacts {
    let world = world(Vec::new(), disks);
    let mut inventory = world.inventory;
    inventory.spec.device_claims = claims;
    NodeFacts {
        name: world.name,
        node: world.node,
        inventory: Arc::new(inventory),
        pvs: Vec::new(),
        classes: BTreeMap::new(),
        jobs: BTreeMap::new(),
        elsewhere: Vec::new(),
        agent: Presence::Present { until: Timestamp::MAX },
    }
}

/// The device claim that the set "fast" gets on sda.
fn claim() -> DeviceClaim {
    let mut world = world(vec![set("fast", 1, json!({}))], vec![disk("sda", 1)]);
    step(&mut world).claims.remove(0)
}

fn observed(terminating: bool, finalizers: &[&str], claims: &[DeviceClaim]) -> Observed {
    let mut demand = set("fast", 1, json!({}));
    demand.terminating = terminating;
    Observed {
        demands: vec![demand.clone()],
        demand,
        namespace: "quarry-system".into(),
        conditions: Vec::new(),
        generation: Some(3),
        fields: OwnerFields::LocalVolumeSet,
        nodes: vec![facts(vec![disk("sda", 1)], claims.to_vec())],
        finalizers: finalizers.iter().map(|one| (*one).to_owned()).collect(),
        resource_version: "7".into(),
        classes: vec![
            ClassUse { name: "free".into(), uid: "1".into(), ..ClassUse::default() },
            ClassUse {
                name: "used".into(),
                uid: "2".into(),
                requested: true,
                ..ClassUse::default()
            },
        ],
    }
}

fn next(seen: &Observed) -> Step {
    plan(seen, now()).step
}

fn only(step: Step) -> Plan {
    Plan { stages: Vec::new(), step }
}

#[test]
fn the_finalizer_comes_first_and_goes_last() {
    let own = names::OWNER_FINALIZER;
    let added = next(&observed(false, &["other/x"], &[]));
    assert_eq!(added, Step::SetFinalizers(vec!["other/x".into(), own.into()]));
    let seen = observed(true, &["other/x", own], &[claim()]);
    assert!(matches!(next(&seen), Step::Report(_)), "a device claim is left");
    let seen = observed(true, &["other/x", own], &[]);
    let Step::Release { delete_classes, finalizers } = next(&seen) else { panic!() };
    assert_eq!(finalizers, ["other/x"]);
    assert_eq!(delete_classes, [seen.classes[0].clone()], "only the unused class");
    assert!(matches!(next(&observed(false, &[own], &[])), Step::Report(_)));
}

#[test]
fn the_status_has_the_form_of_its_kind() {
    let own = names::OWNER_FINALIZER;
    let mut seen = observed(false, &[own], &[claim()]);
    let status = |seen: &Observed| match next(seen) {
        Step::Report(report) => serde_json::to_value(report.status).unwrap(),
        other => panic!("{other:?}"),
    };
    let of_set = status(&seen);
    assert_eq!(of_set["totalProvisionedDeviceCount"], json!(0));
    assert_eq!(of_set["observedGeneration"], json!(3));
    let generations = vec![Default::default()];
    seen.fields = OwnerFields::LocalVolume { management_state: Some(String::new()), generations };
    let of_volume = status(&seen);
    assert_eq!(
        (&of_volume["managementState"], &of_volume["readyReplicas"]),
        (&json!("Managed"), &json!(0))
    );
    assert_eq!(of_volume["generations"].as_array().unwrap().len(), 1, "others write it");
    assert_eq!(of_volume["conditions"], of_set["conditions"]);
}

#[test]
fn nodes_that_do_not_concern_the_owner_are_skipped() {
    let own = names::OWNER_FINALIZER;
    let mut seen = observed(false, &[own], &[claim()]);
    seen.nodes[0].agent = Presence::Present { until: now() };
    let requeue = |seen: &Observed| match plan(seen, now()).step {
        Step::Report(report) => report.requeue.map(|after| after.as_secs()),
        other => panic!("{other:?}"),
    };
    let stages = |seen: &Observed| plan(seen, now()).stages;
    assert_eq!((stages(&seen), requeue(&seen)), (vec![Stage::Claimed], Some(1)));
    seen.nodes[0].node = None;
    assert!(matches!(stages(&seen)[..], [Stage::Frozen(_)]), "the device claim is still there");
    seen.nodes = vec![NodeFacts { node: None, ..facts(vec![disk("sda", 1)], Vec::new()) }];
    assert_eq!((stages(&seen), requeue(&seen)), (vec![], None), "not selected, nothing claimed");
    seen = Observed { namespace: "elsewhere".into(), ..observed(false, &[own], &[claim()]) };
    assert_eq!((stages(&seen), requeue(&seen)), (vec![], None), "of another namespace");
}

#[test]
fn check_reports_every_violation_of_an_owner_plan() {
    let own = names::OWNER_FINALIZER;
    let seen = observed(false, &["other/x", own], &[claim()]);
    let delete_classes = vec![seen.classes[1].clone()];
    let wrong = only(Step::Release { delete_classes, finalizers: vec![] });
    let all = [
        Violation::ReleasedAlive,
        Violation::ReleasedWithClaims,
        Violation::OtherFinalizer,
        Violation::UsedClass("used".into()),
    ];
    assert_eq!(check(&seen, &wrong), all);
    let deleted = observed(true, &[own], &[]);
    let again = only(Step::SetFinalizers(vec![own.into()]));
    assert_eq!(check(&deleted, &again), [Violation::HeldWhileDeleted]);
    let outside = Observed { namespace: "x".into(), ..observed(false, &[own], &[]) };
    for seen in [observed(false, &[], &[]), deleted, observed(false, &[own], &[]), outside] {
        assert_eq!(check(&seen, &plan(&seen, now())), []);
    }
}

#[test]
fn check_reports_every_violation_of_an_owner_status() {
    let seen = observed(false, &[names::OWNER_FINALIZER], &[claim()]);
    let Step::Report(mut report) = next(&seen) else { panic!() };
    assert_eq!(check(&seen, &only(Step::Report(report.clone()))), []);
    let OwnerStatus::LocalVolumeSet(status) = &mut report.status else { panic!() };
    status.observed_generation = Some(2);
    status.total_provisioned_device_count = Some(2);
    status.conditions[0].message = None;
    let all = [
        Violation::OtherStatus,
        Violation::TooManyProvisioned,
        Violation::Unexplained("Available".into()),
    ];
    assert_eq!(check(&seen, &only(Step::Report(report))), all);
}
