//! Discovery on the real cluster: disks appear and vanish, nodes are selected and deselected, one
//! LocalVolumeDiscovery is enough.

use quarry_tests::lab::{
    LoopDisk, NAMESPACE, NODE, apply, get, installed, kubectl, kubectl_refused, restore_operator,
    set_operator_arguments, text, try_run, until, wait_condition, wait_deleted,
};
use serde_json::{Value, json};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn discovery(namespace: &str, name: &str, spec: &Value) -> String {
    let object = json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeDiscovery", "metadata": {"name": name, "namespace": namespace}, "spec": spec});
    object.to_string()
}

fn hosts(names: &[&str]) -> Value {
    json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": names}]}]}})
}

fn condition(namespace: &str, name: &str, condition: &str, status: &str, words: &str) -> Value {
    let object = [namespace, "localvolumediscovery", name];
    wait_condition(&object, condition, status, words, LIMIT)
}

/// The result of a node, found as consumers of the upstream kind find it.
fn result_of(node: &str) -> Option<Value> {
    let list = get(&[
        "-n",
        NAMESPACE,
        "localvolumediscoveryresults",
        "-l",
        &format!("discovery-result-node={node}"),
    ])?;
    list["items"].as_array()?.first().cloned()
}

fn rows(node: &str) -> Vec<Value> {
    result_of(node)
        .and_then(|result| result["status"]["discoveredDevices"].as_array().cloned())
        .unwrap_or_default()
}

fn agent_pods(node: &str) -> Vec<Value> {
    let on_node = format!("spec.nodeName={node}");
    let pods = get(&[
        "-n",
        NAMESPACE,
        "pods",
        "-l",
        "app.kubernetes.io/name=quarry-agent",
        "--field-selector",
        &on_node,
    ])
    .unwrap_or_default();
    pods["items"].as_array().cloned().unwrap_or_default()
}

fn owner_kinds() -> Vec<String> {
    let set = get(&["-n", NAMESPACE, "daemonset", "quarry-agent"]).unwrap_or_default();
    let mut kinds: Vec<String> = set["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|owner| owner["kind"].as_str().unwrap_or_default().to_owned())
        .collect();
    kinds.sort();
    kinds
}

/// On drop: no LocalVolumeDiscovery, no fake nodes, the operator as in `deploy/`.
struct Tidy;

impl Drop for Tidy {
    fn drop(&mut self) {
        try_run(
            "kubectl",
            &["delete", "localvolumediscoveries", "--all", "--all-namespaces", "--wait=false"],
            None,
        );
        try_run("kubectl", &["delete", "nodes", "-l", "fake=true", "--wait=false"], None);
        restore_operator();
        try_run(
            "kubectl",
            &["-n", NAMESPACE, "delete", "localvolumediscoveryresults", "--all", "--wait=false"],
            None,
        );
        // No kubelet runs there to end them.
        for pod in
            agent_pods("").into_iter().chain(agent_pods("fake-1")).chain(agent_pods("fake-2"))
        {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            try_run(
                "kubectl",
                &["-n", NAMESPACE, "delete", "pod", &name, "--force", "--grace-period=0"],
                None,
            );
        }
    }
}

/// A Node object without a machine: enough for selection.
fn fake_node(name: &str, labels: &Value, taints: &Value) {
    let mut labels = labels.clone();
    labels["fake"] = json!("true");
    labels["kubernetes.io/hostname"] = json!(name);
    apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}).to_string());
}

#[test]
fn loop_disk_appears_and_vanishes_in_the_result() {
    installed();
    let _tidy = Tidy;
    apply(&discovery(NAMESPACE, "disks", &hosts(&[NODE])));
    let object =
        condition(NAMESPACE, "disks", "Available", "True", "the devices of 1 node are listed");
    assert_eq!(object["status"]["phase"], "Discovering");
    assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"]);
    until("both own the agents", LIMIT, || {
        if owner_kinds() == ["Deployment", "LocalVolumeDiscovery"] {
            Ok(())
        } else {
            Err(format!("{:?}", owner_kinds()))
        }
    });

    let disk = LoopDisk::attach("hotplug", 64 << 20);
    until("the inventory shows the disk", LIMIT, || {
        let inventory = get(&["nodeinventory", NODE]).unwrap_or_default();
        let devices = inventory["status"]["devices"].as_array().cloned().unwrap_or_default();
        if devices.iter().any(|device| device["name"] == disk.name()) {
            Ok(())
        } else {
            Err(inventory["status"].to_string())
        }
    });
    let row = until("the result shows the disk", LIMIT, || {
        rows(NODE)
            .into_iter()
            .find(|row| row["path"] == disk.device.as_str())
            .ok_or_else(|| format!("{:?}", result_of(NODE)))
    });
    assert_eq!(
        (row["type"].as_str(), row["size"].as_i64()),
        (Some("loop"), Some(64 << 20)),
        "{row}"
    );
    for field in ["deviceID", "path", "model", "type", "vendor", "serial", "property", "fstype"] {
        assert!(row[field].is_string(), "{field} in {row}");
    }
    assert!(row["status"]["state"].is_string(), "{row}");
    let result = result_of(NODE).unwrap();
    assert_eq!(result["spec"]["nodeName"], NODE);
    assert_eq!(result["metadata"]["labels"]["local.storage.openshift.io/discovery-node"], NODE);
    assert!(
        result["metadata"]["ownerReferences"].is_null(),
        "a result stays when its LocalVolumeDiscovery is deleted"
    );
    assert!(result["status"]["discoveredTimeStamp"].as_str().unwrap().ends_with('Z'));

    let device = disk.device.clone();
    drop(disk);
    until("the disk is removed from the result", LIMIT, || {
        if rows(NODE).iter().all(|row| row["path"] != device.as_str()) {
            Ok(())
        } else {
            Err(format!("{:?}", rows(NODE)))
        }
    });
    let matching =
        kubectl(&["-n", NAMESPACE, "get", "events", "-o", "jsonpath={.items[*].reason}"]);
    for reason in ["CreatedDiscoveryResultObject", "UpdatedDiscoveredDeviceList"] {
        assert!(matching.contains(reason), "{matching}");
    }

    kubectl(&["-n", NAMESPACE, "delete", "localvolumediscovery", "disks"]);
    until("the operator's Deployment still owns the agents", LIMIT, || {
        if owner_kinds() == ["Deployment"] { Ok(()) } else { Err(format!("{:?}", owner_kinds())) }
    });
    assert_eq!(agent_pods(NODE).len(), 1, "volumes are on: the agent stays");
    assert!(result_of(NODE).is_some(), "the result stays");
}

/// Waits until the one agent of the node is that of the current DaemonSet: an earlier test may have changed its
/// settings, and the operator replaces agents one by one.
fn wait_current_agent() {
    let hash = |object: &Value| object["metadata"]["annotations"]["quarry.dev/agent-hash"].clone();
    until("the agent is that of the current DaemonSet", LIMIT, || {
        let set = get(&["-n", NAMESPACE, "daemonset", "quarry-agent"]).unwrap_or_default();
        let template = &set["spec"]["template"];
        let restored = !template["spec"].to_string().contains("--settling-time=1s");
        let pods = agent_pods(NODE);
        match pods.as_slice() {
            [pod]
                if restored
                    && hash(pod) == hash(template)
                    && pod["metadata"]["deletionTimestamp"].is_null()
                    && pod["status"]["containerStatuses"][0]["ready"] == true =>
            {
                Ok(())
            }
            _ => Err(format!("{pods:?}")),
        }
    });
}

#[test]
fn deselected_node_loses_its_agent_but_keeps_its_result() {
    installed();
    let _tidy = Tidy;
    apply(&discovery(NAMESPACE, "disks", &hosts(&[NODE])));
    until("the result exists", LIMIT, || {
        if rows(NODE).is_empty() { Err(format!("{:?}", result_of(NODE))) } else { Ok(()) }
    });
    let uid = |pods: &[Value]| {
        pods.iter().map(|pod| pod["metadata"]["uid"].to_string()).collect::<Vec<_>>()
    };
    wait_current_agent();
    let before = uid(&agent_pods(NODE));
    set_operator_arguments(&[
        "operator",
        "--controllers=nodeinventory,nodejob,agentdaemonset,discovery",
    ]);
    until("only the LocalVolumeDiscovery requires agents", Duration::from_secs(90), || {
        if owner_kinds() == ["LocalVolumeDiscovery"] {
            Ok(())
        } else {
            Err(format!("{:?}", owner_kinds()))
        }
    });
    let set = get(&["-n", NAMESPACE, "daemonset", "quarry-agent"]).unwrap();
    assert!(set["spec"]["template"]["spec"]["affinity"].to_string().contains(NODE), "{set}");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(uid(&agent_pods(NODE)), before, "a changed selection replaces no agent");

    fake_node("fake-1", &json!({}), &json!([]));
    apply(&discovery(NAMESPACE, "disks", &hosts(&["fake-1"])));
    until("the agent ends", LIMIT, || {
        if agent_pods(NODE).is_empty() {
            Ok(())
        } else {
            Err(format!("{:?}", uid(&agent_pods(NODE))))
        }
    });
    let kept = result_of(NODE).unwrap();
    condition(NAMESPACE, "disks", "Progressing", "True", "no agent has been seen on node fake-1");
    let disk = LoopDisk::attach("unseen", 64 << 20);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(result_of(NODE).unwrap(), kept, "no updates any more");

    apply(&discovery(NAMESPACE, "disks", &hosts(&[NODE])));
    until("the agent is back and has caught up", Duration::from_secs(90), || {
        if rows(NODE).iter().any(|row| row["path"] == disk.device.as_str()) {
            Ok(())
        } else {
            Err(format!("{:?}", rows(NODE)))
        }
    });
    drop(disk);
    kubectl(&["-n", NAMESPACE, "delete", "localvolumediscovery", "disks"]);
    until("nothing requires agents: no agents", LIMIT, || {
        match get(&["-n", NAMESPACE, "daemonset", "quarry-agent"]) {
            None => Ok(()),
            Some(set) => Err(set["metadata"].to_string()),
        }
    });
    assert!(result_of(NODE).is_some(), "the result stays");
    drop(_tidy);
    until("with volumes the agent is back", Duration::from_secs(90), || {
        let ready = agent_pods(NODE).iter().any(|pod| pod["status"]["phase"] == "Running");
        if ready { Ok(()) } else { Err(format!("{:?}", agent_pods(NODE))) }
    });
}

// invariant: 9
#[test]
fn second_discovery_is_refused_and_errors_have_a_remedy() {
    installed();
    let _tidy = Tidy;
    fake_node(
        "fake-1",
        &json!({"rack": "a"}),
        &json!([{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]),
    );
    fake_node("fake-2", &json!({"rack": "b"}), &json!([]));
    let rack = |operator: &str, value: &str| json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": operator, "values": [value]}]}]}});
    apply(&discovery(NAMESPACE, "first", &rack("In", "c")));
    let object = condition(
        NAMESPACE,
        "first",
        "Degraded",
        "True",
        "rack In (c) (the label rack exists with a, b)",
    );
    assert_eq!(object["status"]["phase"], "DiscoveryFailed");
    // The API server applies a new policy after a delay: use dry runs until it does.
    let second = discovery(NAMESPACE, "second", &json!({}));
    until("a second one is refused", LIMIT, || {
        let answer = try_run("kubectl", &["create", "--dry-run=server", "-f", "-"], Some(&second));
        if answer.status.success() { Err("accepted".to_owned()) } else { Ok(()) }
    });
    let refused = kubectl_refused(&["create", "-f", "-"], Some(&second));
    assert!(refused.contains("change first instead"), "{refused}");

    // The first one may be changed.
    apply(&discovery(NAMESPACE, "first", &rack("Gt", "high")));
    condition(
        NAMESPACE,
        "first",
        "Degraded",
        "True",
        "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].values contains \"high\"",
    );
    apply(&discovery(NAMESPACE, "first", &rack("In", "a")));
    condition(NAMESPACE, "first", "Degraded", "True", "fake-1 (dedicated=db:NoSchedule)");
    let mut tolerant = rack("In", "a");
    tolerant["tolerations"] = json!([{"key": "dedicated", "operator": "Exists"}]);
    apply(&discovery(NAMESPACE, "first", &tolerant));
    condition(NAMESPACE, "first", "Progressing", "True", "no agent has been seen on node fake-1");

    apply(&discovery("default", "stray", &json!({})));
    condition("default", "stray", "Degraded", "True", "create it in namespace quarry-system");
    let shown = text(&try_run("kubectl", &["get", "localvolumediscoveries", "-A"], None).stdout);
    assert!(shown.contains("PHASE") && shown.contains("DiscoveryFailed"), "{shown}");
    kubectl(&["-n", NAMESPACE, "delete", "localvolumediscovery", "first"]);
    apply(&discovery(NAMESPACE, "second", &hosts(&[NODE])));
    condition(NAMESPACE, "second", "Available", "True", "the devices of 1 node are listed");
    for node in ["fake-1", "fake-2"] {
        kubectl(&["delete", "node", node]);
        wait_deleted("nodeinventory", node);
    }
}
