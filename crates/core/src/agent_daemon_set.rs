//! The DaemonSet of the agents, and which agent pods the operator may replace.
//!
//! While the Volume controller is on, agents run on all nodes: a Volume may be on any. Otherwise they run on the nodes that
//! an object requests, and where a device claim or an unfinished job still needs one. The selection of nodes is not part
//! of the hash of a pod: a changed selection adds and removes pods and replaces none. No agent is started unless an
//! admission policy confines it to its own node (`confinement.rs`).

pub mod check;
pub mod confinement;
mod plan;

pub use plan::{
    DaemonSetObserved, DaemonSetPlan, DaemonSetStep, Observed, Plan, PodId, plan, plan_daemon_set,
};

use jiff::SignedDuration;
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, NodeSelector, NodeSelectorTerm, Pod, Toleration},
};
use quarry_api::{names, node_job::hex_digest};
use serde_json::{Value, json};
use std::sync::Arc;

/// The settings of the DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSetSettings {
    pub namespace: String,
    pub image: String,
    pub image_pull_policy: String,
    /// The directory on each node for volumes, ledger and lock.
    pub data_dir: String,
    /// How often an agent reads every device again, and how long a device must be unchanged.
    pub rescan_interval: SignedDuration,
    pub settling_time: SignedDuration,
    /// The operator's Deployment, as owner (not controller): agents are removed with the operator.
    pub deployment: Option<(String, String)>,
}

/// Where agents are needed, and by which objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentDemand {
    /// The Volume controller is on.
    pub everywhere: bool,
    pub requesters: Vec<AgentRequester>,
    /// Nodes with device claims or unfinished jobs: they keep their agent.
    pub kept_nodes: Vec<Arc<Node>>,
}

/// An object that requests agents.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentRequester {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    /// `None`: all nodes.
    pub selector: Option<NodeSelector>,
    pub tolerations: Vec<Toleration>,
}

/// On the DaemonSet and on its pods: the hash of their settings.
pub const HASH_ANNOTATION: &str = "quarry.dev/agent-hash";
/// On the DaemonSet only: the hash of the selected nodes.
pub const NODES_ANNOTATION: &str = "quarry.dev/agent-nodes";

/// The DaemonSet, complete; `None` if no agent is needed. `OnDelete`: the operator replaces agents, never one
/// with a running job.
pub fn desired(settings: &DaemonSetSettings, demand: &AgentDemand) -> Option<DaemonSet> {
    let selection = selection(demand)?;
    let labels = json!({"app.kubernetes.io/name": names::AGENT_DAEMON_SET, crate_label(): names::MANAGED_BY});
    let mut pod = json!({
        "serviceAccountName": names::AGENT_SERVICE_ACCOUNT,
        "hostPID": true,
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 20,
        "containers": [{
            "name": "agent",
            "image": settings.image,
            "imagePullPolicy": settings.image_pull_policy,
            "args": [
                "agent",
                "--host-root=/host",
                format!("--data-dir={}", settings.data_dir),
                format!("--rescan-interval={:#}", settings.rescan_interval),
                format!("--settling-time={:#}", settings.settling_time),
            ],
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
    let nodes = hex_digest(&[&selection.affinity.to_string(), &selection.tolerations.to_string()])
        [..16]
        .to_owned();
    pod["affinity"] = selection.affinity;
    pod["tolerations"] = selection.tolerations;
    let set = json!({
        "metadata": {
            "name": names::AGENT_DAEMON_SET,
            "namespace": settings.namespace,
            "labels": labels,
            "annotations": {HASH_ANNOTATION: hash, NODES_ANNOTATION: nodes},
            "ownerReferences": owners(settings, demand),
        },
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": names::AGENT_DAEMON_SET}},
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": labels, "annotations": {HASH_ANNOTATION: hash}}, "spec": pod},
        },
    });
    Some(serde_json::from_value(set).expect("the DaemonSet is a constant of this file except for strings and lists of valid objects; its test builds it"))
}

struct Selection {
    /// Null: all nodes.
    affinity: Value,
    tolerations: Value,
}

fn selection(demand: &AgentDemand) -> Option<Selection> {
    if demand.everywhere {
        // Tainted nodes still have storage: without an agent, Volumes would be left behind.
        return Some(Selection {
            affinity: Value::Null,
            tolerations: json!([{"operator": "Exists"}]),
        });
    }
    let all = demand.requesters.iter().any(|requester| requester.selector.is_none());
    // An empty term matches nothing, and a selector of only such terms must not become no selector.
    let is_empty = |term: &NodeSelectorTerm| {
        [&term.match_expressions, &term.match_fields]
            .iter()
            .all(|list| list.as_ref().is_none_or(Vec::is_empty))
    };
    let mut terms: Vec<Value> = Vec::new();
    let chosen = demand
        .requesters
        .iter()
        .filter_map(|requester| requester.selector.as_ref())
        .flat_map(|selector| &selector.node_selector_terms);
    let kept = demand.kept_nodes.iter().filter_map(|node| node.metadata.name.as_deref());
    // One term per node: matchFields takes one value only.
    let kept = kept.map(|name| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}));
    for term in chosen.filter(|term| !is_empty(term)).map(|term| json!(term)).chain(kept) {
        if !terms.contains(&term) {
            terms.push(term);
        }
    }
    if !all && terms.is_empty() {
        return None;
    }
    let affinity = if all {
        Value::Null
    } else {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
    };
    let mut tolerations: Vec<Value> = Vec::new();
    let taints =
        demand.kept_nodes.iter().filter_map(|node| node.spec.as_ref()?.taints.as_ref()).flatten();
    let needed =
        taints.map(|taint| json!({"key": taint.key, "operator": "Exists", "effect": taint.effect}));
    for toleration in demand
        .requesters
        .iter()
        .flat_map(|requester| &requester.tolerations)
        .map(|toleration| json!(toleration))
        .chain(needed)
    {
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    Some(Selection {
        affinity,
        tolerations: if tolerations.is_empty() { Value::Null } else { Value::Array(tolerations) },
    })
}

/// All requesters; also the operator's Deployment while agents are needed anyway, so that deleting the last requester
/// does not remove them.
fn owners(settings: &DaemonSetSettings, demand: &AgentDemand) -> Vec<Value> {
    let owner = |version: &str, kind: &str, name: &str, uid: &str| json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": false});
    let deployment = settings
        .deployment
        .iter()
        .filter(|_| demand.everywhere || !demand.kept_nodes.is_empty())
        .map(|(name, uid)| owner("apps/v1", "Deployment", name, uid));
    deployment
        .chain(demand.requesters.iter().map(|requester| {
            owner(&requester.api_version, &requester.kind, &requester.name, &requester.uid)
        }))
        .collect()
}

fn crate_label() -> &'static str {
    quarry_api::crds::MANAGED_BY_LABEL
}

fn annotation<'a>(set: &'a DaemonSet, key: &str) -> Option<&'a str> {
    set.metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(key))
        .map(String::as_str)
}

fn owner_uids(set: &DaemonSet) -> Vec<&str> {
    let mut uids: Vec<&str> =
        set.metadata.owner_references.iter().flatten().map(|owner| owner.uid.as_str()).collect();
    uids.sort_unstable();
    uids
}

/// Whether the existing DaemonSet differs from the target.
pub fn outdated(found: &DaemonSet, target: &DaemonSet) -> bool {
    [HASH_ANNOTATION, NODES_ANNOTATION]
        .iter()
        .any(|key| annotation(found, key) != annotation(target, key))
        || owner_uids(found) != owner_uids(target)
}

/// The patch from the existing DaemonSet to the target. Absent fields are set to null: a merge would keep them.
pub fn changes(target: &DaemonSet) -> Value {
    let mut template = json!(target.spec.as_ref().map(|spec| &spec.template));
    for field in ["affinity", "tolerations"] {
        if template["spec"].get(field).is_none() {
            template["spec"][field] = Value::Null;
        }
    }
    json!({
        "metadata": {"annotations": target.metadata.annotations, "ownerReferences": target.metadata.owner_references.clone().unwrap_or_default()},
        "spec": {"template": template},
    })
}

/// Managed by Quarry: another DaemonSet of that name is left alone.
pub fn is_ours(found: &DaemonSet) -> bool {
    found
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(crate_label()))
        .is_some_and(|by| by == names::MANAGED_BY)
}

/// The text about a DaemonSet of that name that Quarry does not manage, for log and conditions.
pub fn name_taken(namespace: &str) -> String {
    format!(
        "DaemonSet {} in namespace {namespace} is not managed by Quarry; delete it, label it {}={} to hand it over, or run the operator in another namespace",
        names::AGENT_DAEMON_SET,
        crate_label(),
        names::MANAGED_BY
    )
}

/// The agent pods to replace: with other settings, and without a running job on their node.
pub fn replaceable<'a>(
    pods: &'a [Pod],
    target: &DaemonSet,
    busy: impl Fn(&str) -> bool,
) -> Vec<&'a Pod> {
    let hash = |pod: &'a Pod| {
        pod.metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(HASH_ANNOTATION))
            .map(String::as_str)
    };
    pods.iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .filter(|pod| hash(pod) != annotation(target, HASH_ANNOTATION))
        .filter(|pod| {
            !pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(&busy)
        })
        .collect()
}

#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod tests;
