//! The agents' DaemonSet as the operator wants it, and which agent pods it may replace.
//!
//! While volumes are on, agents run everywhere: a Volume may be on any node. Otherwise they run where somebody asks,
//! and where a claim or an unfinished job still needs hands. Which nodes are meant is no part of a pod's own hash: a
//! changed selection adds and removes pods (the DaemonSet controller does), it replaces none.

pub mod check;
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

/// What the DaemonSet is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSetSettings {
    pub namespace: String,
    pub image: String,
    pub image_pull_policy: String,
    /// The folder on each node that holds volumes, ledger and lock.
    pub data_dir: String,
    /// How often an agent reads every device again, and how long a device must have been there, unchanged.
    pub rescan_interval: SignedDuration,
    pub settling_time: SignedDuration,
    /// The operator's Deployment, as owner (not controller): agents go when the operator is removed.
    pub deployment: Option<(String, String)>,
}

/// Where agents are wanted, and by whom.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentDemand {
    /// Volumes are on.
    pub everywhere: bool,
    pub requesters: Vec<AgentRequester>,
    /// Nodes with claims or unfinished jobs: they keep their agent, whoever stopped asking.
    pub kept_nodes: Vec<Arc<Node>>,
}

/// An object that asks for agents.
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

/// On the DaemonSet and on its pods: which wish they were made from.
pub const HASH_ANNOTATION: &str = "quarry.dev/agent-hash";
/// On the DaemonSet alone: which nodes it is for.
pub const NODES_ANNOTATION: &str = "quarry.dev/agent-nodes";

/// The DaemonSet, complete; `None` when nobody needs an agent. `OnDelete`: the operator replaces agents, never one
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
    Some(serde_json::from_value(set).expect("the DaemonSet is a constant of this file but for strings and lists of valid objects; its test builds it"))
}

struct Selection {
    /// Null: all nodes.
    affinity: Value,
    tolerations: Value,
}

fn selection(demand: &AgentDemand) -> Option<Selection> {
    if demand.everywhere {
        // Nodes that are tainted still have storage: an agent that is kept away would leave volumes behind.
        return Some(Selection {
            affinity: Value::Null,
            tolerations: json!([{"operator": "Exists"}]),
        });
    }
    let all = demand.requesters.iter().any(|requester| requester.selector.is_none());
    // An empty term matches nothing, and a selector of such terms alone must not end up as none at all.
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
    // One term for each: a field takes one value only.
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

/// Everybody who asks; the operator's Deployment while agents are needed whoever asks, so that the deletion of the
/// last asker does not take them away.
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

/// Whether the DaemonSet that is there was made from another wish.
pub fn outdated(found: &DaemonSet, target: &DaemonSet) -> bool {
    [HASH_ANNOTATION, NODES_ANNOTATION]
        .iter()
        .any(|key| annotation(found, key) != annotation(target, key))
        || owner_uids(found) != owner_uids(target)
}

/// What turns the one that is there into the wanted one. Fields that may be absent are named with a null: a merge
/// would keep them.
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

/// Ours to change or delete: somebody else's DaemonSet of that name is left alone.
pub fn is_ours(found: &DaemonSet) -> bool {
    found
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(crate_label()))
        .is_some_and(|by| by == names::MANAGED_BY)
}

/// What to do about a DaemonSet of that name which is not ours: one sentence for log and conditions.
pub fn name_taken(namespace: &str) -> String {
    format!(
        "the DaemonSet {} in namespace {namespace} is not Quarry's and is left alone: delete it, or run the operator in another namespace (if it is Quarry's after all, label it {}={})",
        names::AGENT_DAEMON_SET,
        crate_label(),
        names::MANAGED_BY
    )
}

/// The agent pods to replace: made from another wish, and without a job under way on their node.
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
