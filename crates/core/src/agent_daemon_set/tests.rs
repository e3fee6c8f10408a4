use super::*;

pub fn settings(image: &str) -> DaemonSetSettings {
    DaemonSetSettings {
        namespace: "quarry-system".into(),
        image: image.into(),
        image_pull_policy: "IfNotPresent".into(),
        data_dir: "/var/lib/quarry".into(),
        rescan_interval: SignedDuration::from_mins(60),
        settling_time: SignedDuration::from_mins(1),
        deployment: Some(("quarry-operator".into(), "u".into())),
    }
}

fn everywhere() -> AgentDemand {
    AgentDemand { everywhere: true, ..AgentDemand::default() }
}

fn requester(uid: &str, terms: Value, tolerations: Value) -> AgentRequester {
    AgentRequester {
        api_version: "local.storage.openshift.io/v1alpha1".into(),
        kind: "LocalVolumeDiscovery".into(),
        name: "disks".into(),
        uid: uid.into(),
        selector: serde_json::from_value(if terms.is_null() {
            terms
        } else {
            json!({"nodeSelectorTerms": terms})
        })
        .unwrap(),
        tolerations: serde_json::from_value(tolerations).unwrap(),
    }
}

fn kept(name: &str, taints: Value) -> Arc<Node> {
    Arc::new(
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"taints": taints}}))
            .unwrap(),
    )
}

fn rack(value: &str) -> Value {
    json!([{"matchExpressions": [{"key": "rack", "operator": "In", "values": [value]}]}])
}

/// Owners, affinity and tolerations.
fn shape(demand: &AgentDemand) -> Value {
    let Some(set) = desired(&settings("a:1"), demand) else { return Value::Null };
    let pod = set.spec.unwrap().template.spec.unwrap();
    let owners: Vec<String> = set
        .metadata
        .owner_references
        .unwrap_or_default()
        .into_iter()
        .map(|owner| format!("{}/{}", owner.kind, owner.uid))
        .collect();
    json!({"owners": owners, "affinity": pod.affinity, "tolerations": pod.tolerations})
}

#[test]
fn the_same_wish_is_never_outdated() {
    let set = desired(&settings("a:1"), &everywhere()).unwrap();
    assert!(!outdated(&set, &desired(&settings("a:1"), &everywhere()).unwrap()));
    assert!(outdated(&set, &desired(&settings("a:2"), &everywhere()).unwrap()));
    let with_asker =
        AgentDemand { requesters: vec![requester("d", rack("a"), json!([]))], ..everywhere() };
    assert!(outdated(&set, &desired(&settings("a:1"), &with_asker).unwrap()), "another owner");
    // The garbage collector and we may list owners in another order.
    let mut turned = desired(&settings("a:1"), &with_asker).unwrap();
    turned.metadata.owner_references.as_mut().unwrap().reverse();
    assert!(!outdated(&turned, &desired(&settings("a:1"), &with_asker).unwrap()));
}

#[test]
fn agents_run_where_they_are_needed() {
    let exists = json!([{"operator": "Exists"}]);
    let cases = [
        (
            "volumes are on: everywhere, whatever else is asked",
            AgentDemand { requesters: vec![requester("d", rack("a"), json!([]))], ..everywhere() },
        ),
        ("no object requests agents", AgentDemand::default()),
        (
            "a selector",
            AgentDemand {
                requesters: vec![requester("d", rack("a"), exists)],
                ..AgentDemand::default()
            },
        ),
        (
            "no selector: all nodes, even beside another one",
            AgentDemand {
                requesters: vec![
                    requester("d", Value::Null, json!([])),
                    requester("e", rack("a"), json!([])),
                ],
                ..AgentDemand::default()
            },
        ),
        (
            "empty terms mean no node, not all",
            AgentDemand {
                requesters: vec![requester("d", json!([{}]), json!([]))],
                ..AgentDemand::default()
            },
        ),
        (
            "two ask alike, one node is kept with its taint",
            AgentDemand {
                requesters: vec![
                    requester("d", rack("a"), json!([{"key": "k", "operator": "Exists"}])),
                    requester("e", rack("a"), json!([{"key": "k", "operator": "Exists"}])),
                ],
                kept_nodes: vec![kept(
                    "n7",
                    json!([{"key": "dedicated", "value": "db", "effect": "NoExecute"}]),
                )],
                ..AgentDemand::default()
            },
        ),
        (
            "only kept ones",
            AgentDemand {
                kept_nodes: vec![kept("n7", json!(null)), kept("n8", json!(null))],
                ..AgentDemand::default()
            },
        ),
    ];
    let shown: Vec<Value> =
        cases.iter().map(|(case, demand)| json!({"case": case, "set": shape(demand)})).collect();
    insta::assert_yaml_snapshot!(shown);
}

// invariant: 8
#[test]
fn a_changed_selection_changes_the_set_and_replaces_no_pod() {
    let demand = |value: &str| AgentDemand {
        requesters: vec![requester("d", rack(value), json!([]))],
        ..AgentDemand::default()
    };
    let (old, new) = (
        desired(&settings("a:1"), &demand("a")).unwrap(),
        desired(&settings("a:1"), &demand("b")).unwrap(),
    );
    assert!(outdated(&old, &new));
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "annotations": old.spec.unwrap().template.metadata.unwrap().annotations}, "spec": {"nodeName": "n", "containers": []},
    }))
    .unwrap();
    assert!(replaceable(std::slice::from_ref(&pod), &new, |_| false).is_empty());
    let all = desired(&settings("a:1"), &everywhere()).unwrap();
    assert!(replaceable(std::slice::from_ref(&pod), &all, |_| false).is_empty());
    let patch = changes(&all);
    assert!(
        patch["spec"]["template"]["spec"].as_object().unwrap().contains_key("affinity"),
        "a merge must remove it: {patch}"
    );
    assert!(patch["spec"]["template"]["spec"]["affinity"].is_null());
}

#[test]
fn an_agent_with_a_running_job_is_not_replaced() {
    let pod = |node: &str| -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": node}, "spec": {"nodeName": node, "containers": []}}),
        )
        .unwrap()
    };
    let pods = [pod("a"), pod("b")];
    let set = desired(&settings("a:1"), &everywhere()).unwrap();
    let names: Vec<_> = replaceable(&pods, &set, |node| node == "a")
        .iter()
        .map(|pod| pod.metadata.name.clone().unwrap())
        .collect();
    assert_eq!(names, ["b"]);
}

#[test]
fn other_times_are_given_to_the_agents_and_replace_them() {
    let times = |rescan_interval, settling_time| {
        desired(
            &DaemonSetSettings { rescan_interval, settling_time, ..settings("a:1") },
            &everywhere(),
        )
        .unwrap()
    };
    let args = |set: &DaemonSet| {
        set.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0]
            .args
            .clone()
            .unwrap()[3..]
            .join(" ")
    };
    let (minutes, millis) = (SignedDuration::from_mins, SignedDuration::from_millis);
    let usual = times(minutes(60), minutes(1));
    assert_eq!(args(&usual), "--rescan-interval=1h --settling-time=1m");
    assert_eq!(args(&times(minutes(90), millis(0))), "--rescan-interval=1h 30m --settling-time=0s");
    assert_eq!(
        args(&times(minutes(10), millis(500))),
        "--rescan-interval=10m --settling-time=500ms"
    );
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "annotations": usual.spec.as_ref().unwrap().template.metadata.as_ref().unwrap().annotations}, "spec": {"containers": []},
    }))
    .unwrap();
    assert!(replaceable(std::slice::from_ref(&pod), &usual, |_| false).is_empty());
    assert_eq!(
        replaceable(std::slice::from_ref(&pod), &times(minutes(60), minutes(2)), |_| false).len(),
        1
    );
}

#[test]
fn only_a_set_that_we_made_is_ours() {
    let mut set = desired(&settings("a:1"), &everywhere()).unwrap();
    assert!(is_ours(&set));
    set.metadata.labels = None;
    assert!(!is_ours(&set));
}
