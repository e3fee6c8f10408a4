//! Tests of `plan.rs` and `check.rs`.

use super::{
    DaemonSetObserved, DaemonSetSettings, DaemonSetStep, HASH_ANNOTATION, Observed, Plan, PodId,
    check::{Violation, check},
    confinement::InstalledPolicy,
    plan,
};
use jiff::SignedDuration;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use quarry_api::{NodeInventory, NodeJob, admission::own_node, names};
use serde_json::{Value, json};
use std::sync::Arc;

fn seen(volumes: bool, found: Option<DaemonSet>) -> Observed {
    let settings = DaemonSetSettings {
        namespace: "quarry-system".into(),
        image: "quarry:1".into(),
        image_pull_policy: "IfNotPresent".into(),
        data_dir: "/var/lib/quarry".into(),
        rescan_interval: SignedDuration::from_mins(60),
        settling_time: SignedDuration::from_mins(1),
        deployment: None,
    };
    let daemon_set = Some(DaemonSetObserved {
        settings,
        volumes,
        requesters: Vec::new(),
        nodes: Vec::new(),
        inventories: Vec::new(),
        jobs: Vec::new(),
        found,
        installed: confined(),
    });
    Observed { daemon_set, pods: Vec::new() }
}

fn job(node: &str, phase: Option<&str>) -> Arc<NodeJob> {
    let object = json!({
        "apiVersion": "quarry.dev/v1alpha1", "kind": "NodeJob", "metadata": {"name": "j"},
        "spec": {
            "action": "Prepare", "nodeName": node, "device": {}, "attempt": 1,
            "owner": {"kind": "Volume", "name": "v", "uid": "u"},
            "precondition": {"nodeUID": "x", "specHash": "h"},
        },
        "status": {"phase": phase},
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

fn inventory(node: &str, claims: Value) -> Arc<NodeInventory> {
    let object = json!({
        "apiVersion": "quarry.dev/v1alpha1", "kind": "NodeInventory", "metadata": {"name": node},
        "spec": {"deviceClaims": claims},
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

/// Our policy and its binding are installed.
fn confined() -> InstalledPolicy {
    let ours = own_node::policy();
    InstalledPolicy { policy: Some(ours.policy), binding: Some(ours.binding) }
}

/// The same cluster without the policy.
fn unconfined(mut seen: Observed) -> Observed {
    seen.daemon_set.as_mut().unwrap().installed = InstalledPolicy::default();
    seen
}

/// As the API server returns it.
fn created() -> DaemonSet {
    let Some(DaemonSetStep::Create(set)) = step(&plan(&seen(true, None))) else { panic!() };
    let mut set = *set;
    set.metadata.uid = Some("u".into());
    set.metadata.resource_version = Some("7".into());
    set
}

fn step(plan: &Plan) -> Option<DaemonSetStep> {
    plan.daemon_set.as_ref().map(|plan| plan.step.clone())
}

fn pod(name: &str, hash: &str, ready: bool) -> Pod {
    let status = if ready { "True" } else { "False" };
    let object = json!({
        "metadata": {"name": name, "uid": name, "annotations": {HASH_ANNOTATION: hash}},
        "spec": {"nodeName": format!("node-{name}"), "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": status}]},
    });
    serde_json::from_value(object).unwrap()
}

fn current_hash() -> String {
    created().metadata.annotations.unwrap()[HASH_ANNOTATION].clone()
}

#[test]
fn the_daemon_set_is_created_kept_updated_and_deleted() {
    let kept = seen(true, Some(created()));
    assert_eq!(step(&plan(&kept)), Some(DaemonSetStep::Nothing), "same input, no writes");
    let mut old = created();
    old.metadata.annotations.as_mut().unwrap().insert(HASH_ANNOTATION.into(), "old".into());
    let update = plan(&seen(true, Some(old)));
    assert!(
        matches!(step(&update), Some(DaemonSetStep::Update { resource_version, .. }) if resource_version == "7")
    );
    let unneeded = seen(false, Some(created()));
    let delete = DaemonSetStep::Delete { uid: "u".into(), resource_version: "7".into() };
    assert_eq!(step(&plan(&unneeded)), Some(delete));
    let mut deleting = created();
    deleting.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    assert_eq!(step(&plan(&seen(true, Some(deleting)))), Some(DaemonSetStep::AwaitDeletion));
    let unmanaged = DaemonSet::default();
    assert_eq!(step(&plan(&seen(true, Some(unmanaged)))), Some(DaemonSetStep::LeaveAlone));
    assert_eq!(step(&plan(&seen(false, None))), Some(DaemonSetStep::Nothing));
    let elsewhere = Observed { daemon_set: None, ..seen(true, None) };
    assert_eq!(step(&plan(&elsewhere)), None);
}

#[test]
fn outdated_agents_are_replaced_one_at_a_time_when_idle() {
    let hash = current_hash();
    let replaced = |pods: &[Pod], busy: &[&str]| {
        let mut seen = seen(true, Some(created()));
        seen.pods = pods.to_vec();
        let jobs = busy.iter().map(|node| job(node, Some("Running")));
        let daemon_set = seen.daemon_set.as_mut().unwrap();
        daemon_set.jobs = jobs.chain([job("node-a", Some("Failed"))]).collect();
        let plan = plan(&seen);
        assert_eq!(check(&seen, &plan), []);
        (plan.replace.map(|pod| pod.name), plan.requeue.as_secs())
    };
    let (old, new) = (|name| pod(name, "old", true), |name, ready| pod(name, &hash, ready));
    assert_eq!(replaced(&[new("a", true)], &[]), (None, 60));
    assert_eq!(replaced(&[old("a"), old("b")], &[]), (Some("a".into()), 5));
    assert_eq!(replaced(&[old("a"), old("b")], &["node-a"]), (Some("b".into()), 5));
    assert_eq!(replaced(&[old("a"), new("b", false)], &[]), (None, 5), "b is not proven yet");
    let broken = pod("a", "old", false);
    assert_eq!(replaced(&[broken, new("b", false)], &[]), (Some("a".into()), 5));
}

// invariant: 2
#[test]
fn nodes_with_claims_or_unfinished_jobs_keep_their_agent() {
    let nodes = ["a", "b", "c"].map(|name| {
        let object = json!({"metadata": {"name": name}});
        Arc::new(serde_json::from_value(object).unwrap())
    });
    let claims = json!([{"identity": "wwn:1", "owner": {"kind": "LocalVolumeSet", "namespace": "s", "name": "fast", "uid": "x"}}]);
    let wanted = |inventories: &[Arc<NodeInventory>], jobs: &[Arc<NodeJob>]| {
        let mut seen = seen(false, None);
        let observed = seen.daemon_set.as_mut().unwrap();
        observed.nodes = nodes.to_vec();
        (observed.inventories, observed.jobs) = (inventories.to_vec(), jobs.to_vec());
        let wanted = plan(&seen).daemon_set.unwrap().wanted;
        let mut wrong = plan(&seen);
        seen.daemon_set.as_mut().unwrap().found = Some(created());
        wrong.daemon_set.as_mut().unwrap().step =
            DaemonSetStep::Delete { uid: "u".into(), resource_version: "7".into() };
        let refused = check(&seen, &wrong) == [Violation::NeededAgents];
        assert_eq!(wanted.is_some(), refused, "plan and check agree");
        let terms = wanted.map(|set| set.spec.unwrap().template.spec.unwrap().affinity.unwrap());
        let terms = serde_json::to_value(terms).unwrap().to_string();
        ["a", "b", "c"].map(|name| terms.contains(&format!("\"values\":[\"{name}\"]")))
    };
    let used = [inventory("a", claims.clone()), inventory("b", json!([]))];
    assert_eq!(wanted(&used, &[job("c", None)]), [true, false, true]);
    assert_eq!(wanted(&used[1..], &[job("c", Some("Succeeded"))]), [false; 3]);
    assert_eq!(wanted(&[inventory("gone", claims)], &[job("gone", None)]), [false; 3]);
}

#[test]
fn check_reports_every_violation() {
    let mut seen = seen(true, Some(created()));
    seen.pods = vec![pod("a", "old", true)];
    seen.daemon_set.as_mut().unwrap().jobs = vec![job("node-a", None)];
    let mut wrong = plan(&seen);
    let delete = DaemonSetStep::Delete { uid: "u".into(), resource_version: "7".into() };
    wrong.daemon_set.as_mut().unwrap().step = delete.clone();
    wrong.replace = Some(PodId { name: "a".into(), uid: "a".into() });
    assert_eq!(check(&seen, &wrong), [Violation::NeededAgents, Violation::BusyAgent]);
    wrong.replace = Some(PodId { name: "a".into(), uid: String::new() });
    seen.daemon_set.as_mut().unwrap().found.as_mut().unwrap().metadata.labels =
        Some([("app".to_owned(), names::AGENT_DAEMON_SET.to_owned())].into());
    let all = [Violation::NotOurs, Violation::NeededAgents, Violation::NoAgent];
    assert_eq!(check(&seen, &wrong), all);
}

#[test]
fn agents_are_started_only_if_a_policy_confines_them() {
    let withheld = |seen: Observed| {
        let plan = plan(&seen);
        let gaps = plan.daemon_set.as_ref().unwrap().gaps().map(<[_]>::len);
        assert_eq!(check(&seen, &plan), []);
        (gaps, plan.replace, plan.requeue.as_secs())
    };
    assert_eq!(withheld(unconfined(seen(true, None))), (Some(2), None, 5), "none is created");
    let mut outdated = seen(true, Some(created()));
    outdated.pods = vec![pod("a", "old", true)];
    assert_eq!(withheld(unconfined(outdated)), (Some(2), None, 5), "none is replaced");
    assert_eq!(withheld(seen(true, Some(created()))), (None, None, 60));
    // Of another namespace than the one that the policy names.
    let mut elsewhere = seen(true, None);
    let set = elsewhere.daemon_set.as_mut().unwrap();
    let spec = set.installed.policy.as_mut().unwrap().spec.as_mut().unwrap();
    spec.match_conditions.as_mut().unwrap()[0].expression =
        own_node::one_namespace("quarry-system");
    assert_eq!(withheld(elsewhere.clone()), (None, None, 60));
    elsewhere.daemon_set.as_mut().unwrap().settings.namespace = "storage".into();
    assert_eq!(withheld(elsewhere), (Some(1), None, 5));
    // What nothing needs is removed nevertheless.
    let unneeded = unconfined(seen(false, Some(created())));
    assert!(matches!(step(&plan(&unneeded)), Some(DaemonSetStep::Delete { .. })));
}

#[test]
fn check_refuses_to_start_unconfined_agents() {
    let create = plan(&seen(true, None));
    assert_eq!(check(&unconfined(seen(true, None)), &create), [Violation::NotConfined]);
    let mut old = created();
    old.metadata.annotations.as_mut().unwrap().insert(HASH_ANNOTATION.into(), "old".into());
    let update = plan(&seen(true, Some(old.clone())));
    assert_eq!(check(&unconfined(seen(true, Some(old))), &update), [Violation::NotConfined]);
    let mut outdated = seen(true, Some(created()));
    outdated.pods = vec![pod("a", "old", true)];
    let replace = plan(&outdated);
    assert!(replace.replace.is_some());
    assert_eq!(check(&unconfined(outdated), &replace), [Violation::NotConfined]);
}
