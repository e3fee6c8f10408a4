use super::*;
use crate::agent_daemon_set::{
    DaemonSetStep,
    confinement::{InstalledPolicy, gaps},
};
use jiff::Timestamp;
use quarry_api::{
    LocalVolumeDiscoveryResult,
    local_volume_discovery::{DiscoveryPhase, LocalVolumeDiscoveryResultStatus},
    names,
};
use serde_json::{Value, json};

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn present() -> Presence {
    Presence::Present { until: now() + SignedDuration::from_secs(40) }
}

fn discovery(name: &str, extra: Value) -> LocalVolumeDiscovery {
    let mut object = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeDiscovery",
        "metadata": {"name": name, "namespace": "quarry-system", "uid": format!("uid-{name}"), "generation": 4, "creationTimestamp": "2025-12-01T00:00:00Z"},
        "spec": {},
    });
    for (path, value) in extra.as_object().unwrap() {
        let (part, field) = path.split_once('.').unwrap();
        object[part][field] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn node(name: &str, agent: Presence) -> NodeObservation {
    let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "disk": "hdd"}}});
    NodeObservation {
        node: Arc::new(serde_json::from_value(node).unwrap()),
        agent,
        reported: true,
        problems: Vec::new(),
    }
}

fn tainted(name: &str) -> NodeObservation {
    let node = json!({"metadata": {"name": name}, "spec": {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]}});
    NodeObservation {
        node: Arc::new(serde_json::from_value(node).unwrap()),
        agent: present(),
        reported: true,
        problems: Vec::new(),
    }
}

fn observed(extra: Value, nodes: Vec<NodeObservation>) -> Observed {
    let discovery = discovery("disks", extra);
    Observed {
        discoveries: vec![Arc::new(discovery.clone())],
        discovery,
        namespace: "quarry-system".into(),
        nodes,
        daemon_set: None,
    }
}

/// The report, by how agents are deployed in the cases below.
fn report_in(case: &str, seen: &Observed, at: Timestamp) -> Report {
    let agents = match case {
        "agents are missing and the operator deploys none" => Agents::Elsewhere,
        "an unmanaged DaemonSet" => Agents::NameTaken,
        "no policy confines the agents" => {
            Agents::NotConfined(gaps("quarry-system", &InstalledPolicy::default()))
        }
        "no DaemonSet" => Agents::Refused,
        _ => Agents::Deployed,
    };
    let answer = "pods \"quarry-agent\" is forbidden: quota";
    report_refusal(seen, &status::decide(seen, &agents), answer, at)
}

/// With agents that the DaemonSet deployed.
fn report(seen: &Observed, at: Timestamp) -> Report {
    report_in("", seen, at)
}

fn terms(key: &str, operator: &str, values: Value) -> Value {
    json!({"spec.nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]}})
}

// invariant: 9
#[test]
fn the_status_has_the_state_and_the_remedy() {
    let absent = || Presence::Absent { since: "2025-12-31T23:00:00Z".parse().unwrap() };
    let mut problem = node("n1", present());
    problem.problems = vec!["cannot read /host/sys/block: permission denied".into()];
    let silent = |name: &str| NodeObservation { reported: false, ..node(name, present()) };
    let cases = [
        (
            "all agents are there",
            observed(json!({}), vec![node("n1", present()), node("n2", present())]),
        ),
        (
            "agents are missing",
            observed(
                json!({}),
                vec![node("n1", present()), node("n2", absent()), node("n3", Presence::Never)],
            ),
        ),
        (
            "agents are missing and the operator deploys none",
            observed(json!({}), vec![node("n1", Presence::Never)]),
        ),
        (
            "one agent has said nothing yet",
            observed(json!({}), vec![node("n1", present()), silent("n2")]),
        ),
        (
            "no agent has said anything yet",
            observed(json!({}), vec![silent("n1"), silent("n2"), tainted("cp")]),
        ),
        ("the only agent has said nothing yet", observed(json!({}), vec![silent("n1")])),
        ("an unmanaged DaemonSet", observed(json!({}), vec![node("n1", present())])),
        ("no policy confines the agents", observed(json!({}), vec![node("n1", Presence::Never)])),
        (
            "a tainted node is left out",
            observed(json!({}), vec![node("n1", present()), tainted("cp")]),
        ),
        (
            "a tainted node is tolerated",
            observed(
                json!({"spec.tolerations": [{"operator": "Exists"}]}),
                vec![node("n1", present()), tainted("cp")],
            ),
        ),
        ("only tainted nodes", observed(json!({}), vec![tainted("cp")])),
        (
            "no node matches",
            observed(
                terms("disk", "In", json!(["nvme", "ssd"])),
                vec![node("n1", present()), node("n2", present())],
            ),
        ),
        (
            "no node matches, by name",
            observed(
                json!({"spec.nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]}]}}),
                vec![node("n1", present())],
            ),
        ),
        ("no node at all", observed(json!({}), vec![])),
        (
            "the selector is wrong",
            observed(terms("disk", "Like", json!(["ssd"])), vec![node("n1", present())]),
        ),
        (
            "another namespace",
            observed(json!({"metadata.namespace": "default"}), vec![node("n1", present())]),
        ),
        (
            "an older one",
            Observed {
                discoveries: vec![Arc::new(discovery(
                    "first",
                    json!({"metadata.creationTimestamp": "2025-01-01T00:00:00Z"}),
                ))],
                ..observed(json!({}), vec![node("n1", present())])
            },
        ),
        ("no DaemonSet", observed(json!({}), vec![node("n1", present())])),
        ("an agent has trouble", observed(json!({}), vec![problem])),
        (
            "on its way out",
            observed(
                json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z"}),
                vec![node("n1", present())],
            ),
        ),
    ];
    let shown: Vec<Value> = cases
        .iter()
        .map(|(case, seen)| {
            let plan = report_in(case, seen, now());
            let again = Observed { discovery: LocalVolumeDiscovery { status: plan.status.clone(), ..seen.discovery.clone() }, ..seen.clone() };
            let second = report_in(case, &again, now() + SignedDuration::from_secs(10));
            assert_eq!((&second.status, &second.events), (&plan.status, &Vec::new()), "{case}: a plan on its own result is empty");
            let conditions: Vec<String> = plan
                .status
                .iter()
                .flat_map(|status| &status.conditions)
                .map(|one| format!("{}={} {}: {}", one.kind, one.status, one.reason.as_deref().unwrap_or_default(), one.message.as_deref().unwrap_or_default()))
                .collect();
            json!({
                "case": case, "phase": plan.status.as_ref().and_then(|status| status.phase), "conditions": conditions,
                "requeue": plan.requeue.map(|after| after.as_secs()),
                "events": plan.events.iter().map(|note| format!("{} {}", if note.warning { "Warning" } else { "Normal" }, note.reason)).collect::<Vec<_>>(),
            })
        })
        .collect();
    insta::assert_yaml_snapshot!(shown);
}

// invariant: 8
#[test]
fn times_move_with_the_status_of_a_condition_alone() {
    let mut seen = observed(json!({}), vec![node("n1", present())]);
    let first = report(&seen, now()).status.unwrap();
    seen.discovery.status = Some(first.clone());
    seen.discovery.metadata.generation = Some(5);
    seen.nodes.push(node("n2", present()));
    let later = now() + SignedDuration::from_secs(60);
    let second = report(&seen, later).status.unwrap();
    assert_eq!(second.observed_generation, Some(5));
    assert_eq!(second.conditions[0].message.as_deref(), Some("the devices of 2 nodes are listed"));
    assert_eq!(
        second.conditions[0].last_transition_time, first.conditions[0].last_transition_time,
        "still True"
    );
    seen.nodes[1].agent = Presence::Never;
    let third = report(&seen, later).status.unwrap();
    assert_eq!(third.conditions[0].last_transition_time.as_ref().unwrap().0, later);
    assert_eq!(third.phase, Some(DiscoveryPhase::Discovering));
}

#[test]
fn the_oldest_of_the_operators_namespace_is_in_force() {
    let all = [
        discovery("b", json!({})),
        discovery("a", json!({})),
        discovery("older", json!({"metadata.creationTimestamp": "2025-01-01T00:00:00Z"})),
        discovery(
            "oldest-elsewhere",
            json!({"metadata.namespace": "other", "metadata.creationTimestamp": "2020-01-01T00:00:00Z"}),
        ),
        discovery(
            "going",
            json!({"metadata.creationTimestamp": "2020-01-01T00:00:00Z", "metadata.deletionTimestamp": "2026-01-01T00:00:00Z"}),
        ),
    ];
    let name = |all: &[LocalVolumeDiscovery]| {
        active(all, "quarry-system").and_then(|one| one.metadata.name.clone())
    };
    assert_eq!(name(&all).as_deref(), Some("older"));
    assert_eq!(name(&all[..2]).as_deref(), Some("a"), "the same age: by name");
    assert_eq!(name(&all[3..]), None);
}

#[test]
fn an_invalid_selector_asks_for_no_agent_and_covers_no_node() {
    let wrong = discovery("disks", terms("disk", "Gt", json!(["many"])));
    assert_eq!(agent_requester(&wrong), None);
    assert_eq!(coverage(&wrong, &node("n1", present()).node), Coverage::NotSelected);
    assert_eq!(agent_requester(&discovery("disks", json!({}))).unwrap().selector, None);
}

fn inventory(devices: Value) -> Arc<NodeInventory> {
    let object = json!({"apiVersion": "quarry.dev/v1alpha1", "kind": "NodeInventory", "metadata": {"name": "n1"}, "spec": {}, "status": {"devices": devices}});
    Arc::new(serde_json::from_value(object).unwrap())
}

fn devices() -> Value {
    json!([
        {"name": "sda", "type": "disk", "size": 480_000_000_000_i64, "model": "SAMSUNG MZ7LN512", "vendor": "ATA", "serial": "S1", "deviceID": "/dev/disk/by-id/wwn-0x5002538d00000000", "state": "NotAvailable"},
        {"name": "sda1", "type": "part", "size": 1_000_000, "parent": "sda", "fsType": "xfs", "state": "NotAvailable"},
        {"name": "sdb", "type": "disk", "size": 4_000_000_000_000_i64, "rotational": true, "deviceID": "wwn-0x5", "state": "Available", "settled": true},
        {"name": "sdc", "type": "disk", "size": 1024, "readOnly": true, "state": "Available"},
        {"name": "sdd", "type": "disk", "size": 1024, "state": "Available"},
        {"name": "sdd1", "type": "part", "size": 512, "parent": "sdd", "state": "Available"},
        {"name": "dm-0", "mappedName": "vg-lv", "type": "lvm", "size": 1024, "state": "Unknown", "reasons": [{"reason": "Suspended"}]},
        {"name": "dm-1", "type": "mpath", "size": 1024, "paths": ["sde", "sdf"], "state": "Unknown"},
        {"name": "dm-2", "type": "crypt", "size": 1024, "state": "NotAvailable"},
        {"name": "cciss!c0d0", "type": "disk", "size": 1024, "state": "Available"},
        {"name": "loop0", "type": "loop", "size": 1024, "backingFile": "/x", "state": "Available"},
        {"name": "loop1", "type": "loop", "size": 0, "state": "NotAvailable"},
        {"name": "zram0", "type": "disk", "size": 0, "state": "NotAvailable", "reasons": [{"reason": "ZeroSize"}]},
        {"name": "sr0", "type": "rom", "size": 1024, "state": "NotAvailable"},
    ])
}

/// Of a node that a LocalVolumeDiscovery covers.
fn asked() -> result::Observed {
    result::Observed {
        name: "n1".into(),
        namespace: "quarry-system".into(),
        discoveries: vec![Arc::new(discovery("disks", json!({})))],
        node: Some(node("n1", present()).node),
        inventory: Some(inventory(devices())),
        result: None,
    }
}

/// As the operator applies it.
fn applied(seen: &mut result::Observed, plan: &result::Plan) {
    assert_eq!(result::check(seen, plan), vec![]);
    for step in &plan.steps {
        match step {
            result::Step::Create(made) => {
                seen.result = Some(LocalVolumeDiscoveryResult { ..(**made).clone() })
            }
            result::Step::Label { labels, .. } => seen
                .result
                .as_mut()
                .unwrap()
                .metadata
                .labels
                .get_or_insert_default()
                .extend(labels.clone()),
        }
    }
    let result = seen.result.as_mut().unwrap();
    result.metadata.resource_version = Some("1".into());
    if plan.status.is_some() {
        result.status = plan.status.clone();
    }
}

fn reported_by(node_uid: &str) -> Arc<NodeInventory> {
    let mut inventory = (*inventory(devices())).clone();
    inventory.status.as_mut().unwrap().node_uid = Some(node_uid.to_owned());
    Arc::new(inventory)
}

#[test]
fn a_result_shows_no_report_of_another_machine() {
    let mut seen = asked();
    seen.inventory = Some(reported_by("another"));
    assert_eq!(result::plan(&seen, now()), result::Plan::default());
    seen.node = None;
    seen.inventory = Some(inventory(devices()));
    assert_eq!(result::plan(&seen, now()), result::Plan::default(), "the Node does not exist");
}

#[test]
fn a_refused_result_is_reported_with_the_answer() {
    let mut seen = asked();
    let first = result::plan(&seen, now());
    let refused = first.refused.as_ref().unwrap().with_answer("quota");
    assert_eq!(
        (refused.warning, refused.reason, refused.message.as_str()),
        (
            true,
            result::CREATE_FAILED,
            "node n1: the API server refuses the result, retrying: quota"
        )
    );
    applied(&mut seen, &first);
    seen.inventory = Some(inventory(json!([])));
    assert_eq!(result::plan(&seen, now()).refused.unwrap().reason, result::UPDATE_FAILED);
}

#[test]
fn a_result_holds_every_row_with_every_field() {
    let mut seen = asked();
    let first = result::plan(&seen, now());
    applied(&mut seen, &first);
    insta::assert_yaml_snapshot!(seen.result);
    assert_eq!(first.events[0].reason, "CreatedDiscoveryResultObject");
    assert_eq!(
        first.events[0].message,
        "n1: created the list of discovered devices with 10 devices"
    );
}

// invariant: 8
#[test]
fn a_result_is_written_when_its_rows_differ_and_only_then() {
    let mut seen = asked();
    let first = result::plan(&seen, now());
    applied(&mut seen, &first);
    let later = now() + SignedDuration::from_hours(1);
    assert_eq!(
        result::plan(&seen, later),
        result::Plan::default(),
        "a plan on its own result is empty"
    );
    // What no row shows changes nothing.
    let mut changed = devices();
    changed[2]["settled"] = json!(false);
    changed[2]["diskseq"] = json!(9);
    seen.inventory = Some(inventory(changed.clone()));
    assert_eq!(result::plan(&seen, later), result::Plan::default());
    changed[2]["state"] = json!("NotAvailable");
    changed.as_array_mut().unwrap().remove(1);
    changed
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "sdz", "type": "disk", "size": 1, "state": "Unknown"}));
    seen.inventory = Some(inventory(changed));
    let change = result::plan(&seen, later);
    assert_eq!(change.status.as_ref().unwrap().discovered_time_stamp, "2026-01-01T01:00:00Z");
    assert_eq!(
        change.events[0].message,
        "n1: the list of discovered devices has changed to 10 devices; new: /dev/sdz; gone: /dev/sda1; changed: /dev/sdb"
    );
    applied(&mut seen, &change);
    assert_eq!(result::plan(&seen, later), result::Plan::default());
}

#[test]
fn a_result_of_an_uncovered_node_stays_unchanged() {
    let mut seen = asked();
    let first = result::plan(&seen, now());
    applied(&mut seen, &first);
    seen.discoveries.clear();
    seen.inventory = Some(inventory(json!([])));
    assert_eq!(result::plan(&seen, now()), result::Plan::default());
    seen.result = None;
    assert_eq!(
        result::plan(&seen, now()),
        result::Plan::default(),
        "deleted by hand and not wanted: it stays deleted"
    );
    seen.discoveries = asked().discoveries;
    assert_eq!(result::plan(&seen, now()).steps.len(), 1, "deleted by hand and covered: recreated");
    seen.inventory =
        Some(Arc::new(NodeInventory { status: None, ..(*inventory(json!([]))).clone() }));
    assert_eq!(
        result::plan(&seen, now()),
        result::Plan::default(),
        "no agent has said anything yet"
    );
}

#[test]
fn a_result_of_another_node_or_deleted_is_not_written() {
    let mut seen = asked();
    let first = result::plan(&seen, now());
    applied(&mut seen, &first);
    seen.inventory = Some(inventory(json!([])));
    seen.result.as_mut().unwrap().spec.node_name = "n2".into();
    let plan = result::plan(&seen, now());
    assert!(plan.steps.is_empty() && plan.status.is_none() && plan.events[0].warning);
    let mistaken = result::Plan {
        status: Some(LocalVolumeDiscoveryResultStatus::default()),
        refused: first.refused.clone(),
        ..result::Plan::default()
    };
    assert_eq!(result::check(&seen, &mistaken), vec![result::Violation::OtherNode]);
    let mut wrong = result::Observed { discoveries: Vec::new(), ..seen.clone() };
    wrong.inventory = Some(reported_by("another"));
    assert_eq!(
        result::check(&wrong, &result::Plan { refused: None, ..mistaken }),
        vec![
            result::Violation::NotAsked,
            result::Violation::OtherNode,
            result::Violation::OtherMachine,
            result::Violation::SilentRefusal
        ]
    );
    seen.result.as_mut().unwrap().metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    assert_eq!(result::plan(&seen, now()), result::Plan::default());
    let mut owned = asked();
    let mut first = result::plan(&owned, now());
    if let result::Step::Create(made) = &mut first.steps[0] {
        made.metadata.owner_references = Some(Vec::new());
    }
    owned.result = None;
    assert_eq!(result::check(&owned, &first), vec![result::Violation::Owned]);
}

#[test]
fn removed_labels_are_restored_without_new_rows() {
    let mut seen = asked();
    let first = result::plan(&seen, now());
    applied(&mut seen, &first);
    seen.result.as_mut().unwrap().metadata.labels = None;
    let plan = result::plan(&seen, now());
    assert_eq!((plan.steps.len(), plan.status.is_none()), (1, true));
    applied(&mut seen, &plan);
    let labels = seen.result.unwrap().metadata.labels.unwrap();
    assert_eq!(names::DISCOVERY_NODE_LABELS.map(|key| labels[key].as_str()), ["n1", "n1"]);
}

#[test]
fn check_reports_every_violation_of_a_discovery_plan() {
    let mut seen = observed(json!({}), vec![node("n1", present())]);
    let right = plan(&seen, now());
    assert_eq!((check(&seen, &right), right.refused.clone()), (vec![], None));
    let older = json!({"metadata.creationTimestamp": "2025-01-01T00:00:00Z"});
    seen.discoveries.push(Arc::new(discovery("first", older)));
    let step = DaemonSetStep::Nothing;
    let mut wrong =
        Plan { daemon_set: Some(DaemonSetPlan { step, wanted: None }), ..right.clone() };
    let status = wrong.report.status.as_mut().unwrap();
    let degraded = status.conditions.iter_mut().find(|one| one.kind == "Degraded").unwrap();
    degraded.status = "True".into();
    let deployed = [Violation::NotDeployedHere, Violation::NotInForce, Violation::SilentRefusal];
    let reported = [Violation::AvailableNotInForce, Violation::Unexplained("Degraded".into())];
    assert_eq!(check(&seen, &wrong), [&deployed[..], &reported[..]].concat());
    seen.discovery.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    assert_eq!(check(&seen, &right), [Violation::StatusOfDeleted, Violation::AvailableNotInForce]);
}
