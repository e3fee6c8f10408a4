//! What sets and LocalVolumes report.

use super::*;
use crate::device_claim::{
    demand::NodeMatch,
    status::{NodePart, Observed, StatusUpdate, accounts, decide as say},
};
use quarry_api::local_volume_discovery::OperatorCondition;

#[test]
fn a_refusal_without_a_reason_has_a_text() {
    assert_eq!(Eligibility::Refused(Vec::new()).message(), "the agent has not reported a verdict");
    let reported = DeviceReason { reason: "Mounted".into(), detail: "/data".into() };
    assert!(Eligibility::Refused(vec![reported]).message().contains("/data"));
    let owner = ClaimOwner {
        kind: "LocalVolumeSet".into(),
        namespace: Some("ns".into()),
        name: "a".into(),
        uid: "u".into(),
    };
    assert_eq!(Eligibility::Taken(owner).message(), "LocalVolumeSet ns/a has it");
}

#[test]
fn a_second_path_to_a_claimed_device_is_reported() {
    let mut world =
        world(vec![local_volume("lv", &["/dev/sda", "/dev/again"])], vec![disk("sda", 1)]);
    let report =
        |path: &str| PathReport { path: path.into(), device: Some("sda".into()), problem: None };
    world.inventory.status.as_mut().unwrap().paths = vec![report("/dev/sda"), report("/dev/again")];
    for _ in 0..3 {
        let reported = account(&world, "uid-lv")[1].eligibility.clone();
        assert_eq!(
            reported,
            super::super::Eligibility::NoDevice(
                "another path of this object resolves to the same device".into()
            )
        );
        assert_eq!(step(&mut world).claims.len(), 1);
    }
}

/// The owner with this UID, as it sees one node.
pub(super) fn observed(
    world: &NodeWorld,
    uid: &str,
    conditions: Vec<OperatorCondition>,
) -> Observed {
    let demand = world.demands.iter().find(|demand| demand.owner.uid == uid).unwrap().clone();
    let covers = world.node.as_ref().map_or(NodeMatch::NotSelected, |node| demand.match_node(node));
    let own = claim_contexts(world).into_iter().filter(|ctx| ctx.claim.owner.uid == uid);
    let claims = own
        .map(|ctx| {
            (
                ctx.device.map_or("gone".into(), |device| device.name.clone()),
                decide(world, &ctx, now()).stage,
            )
        })
        .collect();
    let outdated = claim_contexts(world).into_iter().filter(|ctx| {
        ctx.pv.is_some() && ctx.demand.is_some_and(|demand| !demand.makes(ctx.claim))
    });
    let outdated = outdated.filter_map(|ctx| Some(ctx.device?.name.clone())).collect();
    let part = NodePart {
        node: "n1".into(),
        covers,
        problem: None,
        claims,
        outdated,
        rows: account(world, uid),
    };
    Observed {
        demand,
        in_namespace: true,
        namespace: "quarry-system".into(),
        parts: vec![part],
        conditions,
    }
}

pub(super) fn condition<'a>(update: &'a StatusUpdate, kind: &str) -> (&'a str, &'a str, &'a str) {
    let found = update.conditions.iter().find(|condition| condition.kind == kind).unwrap();
    (
        &found.status,
        found.reason.as_deref().unwrap_or_default(),
        found.message.as_deref().unwrap_or_default(),
    )
}

#[test]
fn a_set_counts_its_devices_and_reports_once() {
    let world = published();
    let update = say(&observed(&world, "uid-fast", vec![]), now());
    assert_eq!(
        (update.provisioned, condition(&update, "Available")),
        (1, ("True", "Provisioned", "1 provisioned on 1 node"))
    );
    assert_eq!(
        (
            condition(&update, "Progressing").0,
            condition(&update, "Degraded").0,
            condition(&update, "DaemonSetsAvailable").0
        ),
        ("False", "False", "True")
    );
    assert_eq!(
        update.notes.iter().map(|note| note.reason).collect::<Vec<_>>(),
        ["ProvisionedDevices"]
    );
    let later = now() + SignedDuration::from_hours(1);
    let again = say(&observed(&world, "uid-fast", update.conditions.clone()), later);
    assert_eq!(
        (again.conditions, again.notes),
        (update.conditions, vec![]),
        "times move with the status of a condition alone"
    );
}

#[test]
fn a_set_without_devices_reports_why() {
    let none = world(
        vec![set("s", 1, json!({}))],
        vec![Device { kind: "loop".into(), ..disk("loop1", 1) }],
    );
    let text = "0 provisioned on 1 node; no device matches, because of deviceTypes (`quarry explain set/s` shows each device)";
    assert_eq!(
        condition(&say(&observed(&none, "uid-s", vec![]), now()), "Available"),
        ("False", "NoMatchingDevice", text)
    );
    let empty = world(vec![set("s", 1, json!({}))], vec![]);
    assert!(
        condition(&say(&observed(&empty, "uid-s", vec![]), now()), "Available")
            .2
            .ends_with("; no device is known there yet")
    );
    let spec = json!({"deviceInclusionSpec": {"deviceTypes": [], "deviceMechanicalProperties": ["Rotational"], "minSize": "1Ti", "models": ["x"], "vendors": ["y"]},
        "deviceExclusionSpec": {"deviceNameFilter": ["sd*"]}});
    let strict = world(
        vec![set("s", 1, spec), set("t", 2, json!({"deviceInclusionSpec": {"maxSize": "1Gi"}}))],
        vec![disk("sda", 1)],
    );
    let reported = |uid: &str| {
        condition(&say(&observed(&strict, uid, vec![]), now()), "Available").2.to_owned()
    };
    assert!(reported("uid-s").contains("because of deviceMechanicalProperties, deviceNameFilter, deviceTypes, minSize, models, vendors ("), "{}", reported("uid-s"));
    assert!(reported("uid-t").contains("because of maxSize ("));
    // Of what is asked for and refused, the reasons.
    let refused = world(
        vec![set("s", 1, json!({}))],
        vec![with_reason(disk("sda", 1), "Mounted", DeviceState::NotAvailable)],
    );
    let text = "0 provisioned on 1 node; other devices: Refused 1 (Mounted 1)";
    assert_eq!(
        condition(&say(&observed(&refused, "uid-s", vec![]), now()), "Available"),
        ("False", "NoMatchingDevice", text)
    );
    let young = world(
        vec![set("s", 1, json!({}))],
        vec![with_reason(disk("sda", 1), "TooNew", DeviceState::Unknown)],
    );
    let update = say(&observed(&young, "uid-s", vec![]), now());
    assert_eq!(
        (condition(&update, "Available").1, condition(&update, "Progressing").0),
        ("Waiting", "True")
    );
    let new = |update: &StatusUpdate| {
        update
            .notes
            .iter()
            .filter(|note| note.reason == "DiscoveredNewDevice")
            .map(|note| note.message.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(new(&update), ["sda of n1: it has been unchanged for less than the settling time"]);
    let mut both = young.clone();
    both.inventory.status.as_mut().unwrap().devices.push(with_reason(
        disk("sdb", 2),
        "TooNew",
        DeviceState::Unknown,
    ));
    let more = say(&observed(&both, "uid-s", update.conditions), now());
    assert_eq!(
        new(&more),
        ["sdb of n1: it has been unchanged for less than the settling time"],
        "each is reported once"
    );
    assert_eq!(new(&say(&observed(&both, "uid-s", more.conditions), now())), [""; 0]);
    let elsewhere = set(
        "s",
        1,
        json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]}}),
    );
    let unselected = world(vec![elsewhere], vec![disk("sda", 1)]);
    let update = say(&observed(&unselected, "uid-s", vec![]), now());
    assert_eq!(condition(&update, "Available").1, "NoNodeSelected");
    let mut outside = observed(&young, "uid-s", vec![]);
    outside.in_namespace = false;
    assert!(
        condition(&say(&outside, now()), "Degraded")
            .2
            .contains("create the object in namespace quarry-system")
    );
    let full = world(vec![set("s", 1, json!({"maxDeviceCount": 0}))], vec![disk("sda", 1)]);
    let update = say(&observed(&full, "uid-s", vec![]), now());
    assert!(
        update.notes.iter().any(|note| note.reason == "ErrorMaxCountReached"),
        "{:?}",
        update.notes
    );
}

#[test]
fn the_account_of_a_node_is_reported_once_it_is_idle() {
    let reported = |world: &NodeWorld| {
        accounts(&observed(world, "uid-fast", vec![]))
            .into_iter()
            .map(|summary| summary.event.message)
            .collect::<Vec<_>>()
    };
    let mut world = published();
    let more = [
        with_reason(disk("sdb", 2), "Mounted", DeviceState::NotAvailable),
        with_reason(disk("sdc", 3), "Signature", DeviceState::NotAvailable),
    ];
    world.inventory.status.as_mut().unwrap().devices.extend(more);
    world
        .inventory
        .status
        .as_mut()
        .unwrap()
        .devices
        .push(Device { kind: "loop".into(), ..disk("loop0", 4) });
    assert_eq!(
        reported(&world),
        ["node n1: 3 match: Available 1, Refused 2 (Mounted 1, Signature 1)"]
    );
    let news = |world: &NodeWorld| accounts(&observed(world, "uid-fast", vec![])).remove(0).news;
    let mut bound = world.clone();
    phase(&mut bound, "Bound");
    assert_eq!(reported(&bound), ["node n1: 3 match: Bound 1, Refused 2 (Mounted 1, Signature 1)"]);
    assert_eq!(news(&bound), news(&world), "a bind is no news");
    world.inventory.status.as_mut().unwrap().devices.push(with_reason(
        disk("sdd", 5),
        "TooNew",
        DeviceState::Unknown,
    ));
    assert_eq!(reported(&world), [""; 0], "one more is settling");
    // A device claim without a PersistentVolume is not reported as one.
    let mut held = published();
    held.pvs.clear();
    held.inventory.status.as_mut().unwrap().device_claims[0].linked = false;
    assert_eq!(reported(&held), ["node n1: 1 match: Blocked 1"]);
    let mut ending = published();
    ending.demands[0].terminating = true;
    assert_eq!(reported(&ending), [""; 0]);
    // Kept by its policy: a decision is asked for, nothing went wrong.
    let mut kept = published();
    let name = kept.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut kept, &name, |pv| pv["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain"));
    phase(&mut kept, "Released");
    let update = say(&observed(&kept, "uid-fast", vec![]), now());
    assert_eq!(
        update.notes.last().map(|note| (note.warning, note.reason)),
        Some((false, "VolumeRetained"))
    );
}

#[test]
fn trouble_and_blocked_deletions_have_a_remedy() {
    let mut world = published();
    world.inventory.status.as_mut().unwrap().devices.clear();
    let update = say(&observed(&world, "uid-fast", vec![]), now());
    assert!(condition(&update, "Degraded").2.contains("reconnect it"), "{update:?}");
    assert_eq!(update.notes.last().map(|note| note.reason), Some("ErrorProvisioningDisk"));
    let mut gone = published();
    gone.node = None;
    let update = say(&observed(&gone, "uid-fast", vec![]), now());
    let (name, message) =
        (gone.pvs[0].metadata.name.clone().unwrap(), condition(&update, "Degraded").2);
    assert!(
        message.contains(&format!("PersistentVolume {name}: node n1 does not exist")),
        "{update:?}"
    );
    let mut bound = published();
    phase(&mut bound, "Bound");
    bound.demands[0].terminating = true;
    let update = say(&observed(&bound, "uid-fast", vec![]), now());
    let (status, reason, message) = condition(&update, "Degraded");
    assert_eq!((status, reason), ("True", "DeletionBlocked"));
    assert!(
        message.contains("sda of n1: PersistentVolume local-pv-")
            && message.contains("is bound to PVC d/c"),
        "{message}"
    );
    // Each that blocks is named, however many.
    let mut many = observed(&bound, "uid-fast", vec![]);
    let stage = many.parts[0].claims[0].1.clone();
    many.parts[0].claims = (0..20).map(|number| (format!("sd{number}"), stage.clone())).collect();
    let update = say(&many, now());
    assert!(
        (0..20).all(|number| condition(&update, "Degraded")
            .2
            .contains(&format!("sd{number} of n1: "))),
        "{update:?}"
    );
    // Deleted by hand while it is bound; a link that cannot be removed; an agent that does not answer.
    let name = bound.pvs[0].metadata.name.clone().unwrap();
    change_pv(&mut bound, &name, |pv| pv["metadata"]["deletionTimestamp"] = json!(NOW));
    let update = say(&observed(&bound, "uid-fast", vec![]), now());
    assert!(condition(&update, "Available").2.contains("is bound to PVC d/c"), "{update:?}");
    let mut stuck = published();
    stuck.pvs.clear();
    stuck.demands[0].terminating = true;
    stuck.inventory.spec.device_claims[0].terminating = true;
    let report = &mut stuck.inventory.status.as_mut().unwrap().device_claims[0];
    (report.state, report.message) =
        (ClaimState::RemovalFailed, Some("the link could not be removed: read-only".into()));
    let update = say(&observed(&stuck, "uid-fast", vec![]), now());
    let (status, reason, message) = condition(&update, "Degraded");
    assert_eq!((status, reason), ("True", "DeletionBlocked"));
    assert!(message.contains("the link could not be removed: read-only"), "{update:?}");
    assert_eq!(
        update.notes.last().map(|note| note.reason),
        Some("ErrorRemovingSymLink"),
        "{update:?}"
    );
    // What the agent said before it knew that the claim ends is no trouble with the link.
    let report = &mut stuck.inventory.status.as_mut().unwrap().device_claims[0];
    (report.state, report.message) = (ClaimState::Refused, Some("sda is busy".into()));
    let update = say(&observed(&stuck, "uid-fast", vec![]), now());
    assert_eq!((condition(&update, "Degraded").0, update.notes.len()), ("False", 0), "{update:?}");
    let invalid =
        super::world(vec![set("s", 1, json!({"minDeviceCount": 3, "maxDeviceCount": 2}))], vec![]);
    assert_eq!(
        condition(&say(&observed(&invalid, "uid-s", vec![]), now()), "Available").1,
        "InvalidSpec"
    );
}

#[test]
fn a_path_that_cannot_be_used_is_always_reported() {
    let mut world = world(
        vec![local_volume("lv", &["/dev/sda", "/dev/sdb"])],
        vec![with_reason(disk("sda", 1), "HasChildren", DeviceState::NotAvailable)],
    );
    let report = |path: &str, device: Option<&str>, problem: Option<&str>| PathReport {
        path: path.into(),
        device: device.map(str::to_owned),
        problem: problem.map(str::to_owned),
    };
    world.inventory.status.as_mut().unwrap().paths = vec![
        report("/dev/sda", Some("sda"), None),
        report("/dev/sdb", None, Some("it does not exist")),
    ];
    let update = say(&observed(&world, "uid-lv", vec![]), now());
    let message = condition(&update, "Degraded").2;
    assert!(
        message.contains("/dev/sda of n1: has partitions")
            && message.contains("/dev/sdb of n1: it does not exist"),
        "{message}"
    );
    // Whatever else is wrong.
    let mut both = observed(&world, "uid-lv", vec![]);
    both.parts[0].claims = vec![("sdc".into(), Stage::Retained("decide".into()))];
    let update = say(&both, now());
    let message = condition(&update, "Degraded").2;
    assert!(
        message.contains("sdc of n1: decide")
            && message.contains("/dev/sdb of n1: it does not exist"),
        "{message}"
    );
}
