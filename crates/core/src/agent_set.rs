//! The agents' DaemonSet as the operator wants it, and which agent pods it may replace.

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use quarry_api::{names, node_job::hex_digest};
use serde_json::json;

/// What the DaemonSet is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub namespace: String,
    pub image: String,
    pub image_pull_policy: String,
    /// The folder on each node that holds volumes, ledger and lock.
    pub data_dir: String,
    /// The operator's Deployment, as owner (not controller): agents go when the operator is removed.
    pub deployment: Option<(String, String)>,
}

/// On the DaemonSet and on its pods: which wish they were made from.
pub const HASH_ANNOTATION: &str = "quarry.dev/agent-hash";

/// The DaemonSet, complete. `OnDelete`: the operator replaces agents, never one with a running job.
pub fn desired(wanted: &Wanted) -> DaemonSet {
    let labels = json!({"app.kubernetes.io/name": names::AGENT_DAEMON_SET, crate_label(): names::MANAGED_BY});
    let pod = json!({
        "serviceAccountName": names::AGENT_SERVICE_ACCOUNT,
        "hostPID": true,
        // Nodes that are tainted still have storage: an agent that is kept away would leave volumes behind.
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 20,
        "containers": [{
            "name": "agent",
            "image": wanted.image,
            "imagePullPolicy": wanted.image_pull_policy,
            "args": ["agent", "--host-root=/host", format!("--data-dir={}", wanted.data_dir)],
            "env": [
                {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            ],
            "securityContext": {"privileged": true, "readOnlyRootFilesystem": true},
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
            "volumeMounts": [
                {"name": "host", "mountPath": "/host", "mountPropagation": "HostToContainer"},
                {"name": "dev", "mountPath": "/dev"},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }],
        "volumes": [
            {"name": "host", "hostPath": {"path": "/"}},
            {"name": "dev", "hostPath": {"path": "/dev"}},
            {"name": "tmp", "emptyDir": {}},
        ],
    });
    let hash = hex_digest(&[&pod.to_string(), &labels.to_string()])[..16].to_owned();
    let owners: Vec<_> = wanted
        .deployment
        .iter()
        .map(|(name, uid)| json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": uid, "controller": false}))
        .collect();
    let set = json!({
        "metadata": {
            "name": names::AGENT_DAEMON_SET,
            "namespace": wanted.namespace,
            "labels": labels,
            "annotations": {HASH_ANNOTATION: hash},
            "ownerReferences": owners,
        },
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": names::AGENT_DAEMON_SET}},
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": labels, "annotations": {HASH_ANNOTATION: hash}}, "spec": pod},
        },
    });
    serde_json::from_value(set).expect("the DaemonSet is a constant of this file but for strings; its test builds it")
}

fn crate_label() -> &'static str {
    quarry_api::crds::MANAGED_BY_LABEL
}

fn hash_of(annotations: Option<&std::collections::BTreeMap<String, String>>) -> Option<&str> {
    annotations.and_then(|annotations| annotations.get(HASH_ANNOTATION)).map(String::as_str)
}

/// Whether the DaemonSet that is there was made from another wish.
pub fn outdated(found: &DaemonSet, wanted: &DaemonSet) -> bool {
    hash_of(found.metadata.annotations.as_ref()) != hash_of(wanted.metadata.annotations.as_ref())
        || found.metadata.owner_references != wanted.metadata.owner_references
}

/// The agent pods to replace: made from another wish, and without a job under way on their node.
pub fn replaceable<'a>(pods: &'a [Pod], wanted: &DaemonSet, busy: impl Fn(&str) -> bool) -> Vec<&'a Pod> {
    pods.iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .filter(|pod| hash_of(pod.metadata.annotations.as_ref()) != hash_of(wanted.metadata.annotations.as_ref()))
        .filter(|pod| !pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(&busy))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(image: &str) -> Wanted {
        Wanted {
            namespace: "quarry-system".into(),
            image: image.into(),
            image_pull_policy: "IfNotPresent".into(),
            data_dir: "/var/lib/quarry".into(),
            deployment: Some(("quarry-operator".into(), "u".into())),
        }
    }

    #[test]
    fn the_same_wish_is_never_outdated() {
        let set = desired(&wanted("a:1"));
        assert!(!outdated(&set, &desired(&wanted("a:1"))));
        assert!(outdated(&set, &desired(&wanted("a:2"))));
    }

    #[test]
    fn an_agent_with_a_running_job_is_not_replaced() {
        let pod = |node: &str| -> Pod { serde_json::from_value(json!({"metadata": {"name": node}, "spec": {"nodeName": node, "containers": []}})).unwrap() };
        let pods = [pod("a"), pod("b")];
        let set = desired(&wanted("a:1"));
        let names: Vec<_> = replaceable(&pods, &set, |node| node == "a").iter().map(|pod| pod.metadata.name.clone().unwrap()).collect();
        assert_eq!(names, ["b"]);
    }
}
