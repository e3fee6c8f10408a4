//! Where the pods of OSDs run: the set's placement, merged over the cluster's as upstream does.
//!
//! Tolerations are joined, required node terms must all hold, preferences are appended; affinity between pods and spread
//! of the set replace the cluster's. A set without any placement is spread softly over zones and nodes.

use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelector, NodeSelectorTerm, PodAffinity, PodAffinityTerm, PodAntiAffinity,
};
use quarry_api::{
    CephCluster,
    ceph_cluster::{DeviceSet, Placement, daemon},
    names::ceph,
};
use serde_json::{Value, json};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Of the OSDs of a set.
pub fn of_osd(cluster: &CephCluster, set: &DeviceSet) -> Placement {
    let own = set.placement.clone().or_else(|| given(cluster, daemon::OSD));
    over_all(cluster, own, set)
}

/// Of the prepare Jobs of a set. They choose the node: a local volume stays where it is prepared.
pub fn of_prepare(cluster: &CephCluster, set: &DeviceSet) -> Placement {
    let own = set.prepare_placement.clone().or_else(|| set.placement.clone());
    let own = own.or_else(|| given(cluster, daemon::PREPARE_OSD));
    over_all(cluster, own.or_else(|| given(cluster, daemon::OSD)), set)
}

fn given(cluster: &CephCluster, key: &str) -> Option<Placement> {
    cluster.spec.placement.get(key).filter(|one| **one != Placement::default()).cloned()
}

fn over_all(cluster: &CephCluster, own: Option<Placement>, set: &DeviceSet) -> Placement {
    let only_own = cluster.spec.storage.only_apply_osd_placement.unwrap_or_default();
    let all = given(cluster, daemon::ALL).filter(|_| !only_own);
    let mut merged = match (all, own) {
        (None, None) => spread(cluster, set),
        (Some(one), None) | (None, Some(one)) => one,
        (Some(all), Some(own)) => merge(all, own),
    };
    default_keys(&mut merged);
    merged
}

/// A preference: where nodes or devices are few, OSDs share nodes.
fn spread(cluster: &CephCluster, _set: &DeviceSet) -> Placement {
    let labels = json!({ceph::CLUSTER_LABEL: kube::ResourceExt::name_any(cluster)});
    let constraint = |key: &str| {
        json!({
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels},
        })
    };
    let constraints = json!([constraint(ZONE), constraint(HOSTNAME)]);
    Placement {
        topology_spread_constraints: serde_json::from_value(constraints).unwrap_or_default(),
        ..Placement::default()
    }
}

fn merge(all: Placement, own: Placement) -> Placement {
    let mut tolerations = all.tolerations;
    tolerations.extend(own.tolerations);
    let or = |own: Vec<_>, all: Vec<_>| if own.is_empty() { all } else { own };
    Placement {
        node_affinity: merge_nodes(all.node_affinity, own.node_affinity),
        pod_affinity: own.pod_affinity.or(all.pod_affinity),
        pod_anti_affinity: own.pod_anti_affinity.or(all.pod_anti_affinity),
        tolerations,
        topology_spread_constraints: or(
            own.topology_spread_constraints,
            all.topology_spread_constraints,
        ),
        other: own.other,
    }
}

fn merge_nodes(all: Option<NodeAffinity>, own: Option<NodeAffinity>) -> Option<NodeAffinity> {
    let (all, own) = match (all, own) {
        (None, one) | (one, None) => return one,
        (Some(all), Some(own)) => (all, own),
    };
    let mut preferred =
        all.preferred_during_scheduling_ignored_during_execution.unwrap_or_default();
    preferred.extend(own.preferred_during_scheduling_ignored_during_execution.unwrap_or_default());
    Some(NodeAffinity {
        preferred_during_scheduling_ignored_during_execution: Some(preferred)
            .filter(|all| !all.is_empty()),
        required_during_scheduling_ignored_during_execution: both(
            all.required_during_scheduling_ignored_during_execution,
            own.required_during_scheduling_ignored_during_execution,
        ),
    })
}

/// Terms are alternatives: each of one side with each of the other.
fn both(all: Option<NodeSelector>, own: Option<NodeSelector>) -> Option<NodeSelector> {
    let (all, own) = match (all, own) {
        (None, one) | (one, None) => return one,
        (Some(all), Some(own)) => (all, own),
    };
    let join = |a: &NodeSelectorTerm, b: &NodeSelectorTerm| {
        let both = |a: &Option<Vec<_>>, b: &Option<Vec<_>>| {
            let joined: Vec<_> = a.iter().chain(b).flatten().cloned().collect();
            Some(joined).filter(|all| !all.is_empty())
        };
        NodeSelectorTerm {
            match_expressions: both(&a.match_expressions, &b.match_expressions),
            match_fields: both(&a.match_fields, &b.match_fields),
        }
    };
    let own = &own.node_selector_terms;
    let terms = all.node_selector_terms.iter();
    Some(NodeSelector {
        node_selector_terms: terms.flat_map(|a| own.iter().map(move |b| join(a, b))).collect(),
    })
}

/// A term without a key separates nothing, and the API server refuses it: nodes are meant.
fn default_keys(placement: &mut Placement) {
    let fill = |term: &mut PodAffinityTerm| {
        if term.topology_key.is_empty() {
            term.topology_key = HOSTNAME.to_owned();
        }
    };
    if let Some(PodAffinity {
        required_during_scheduling_ignored_during_execution: required,
        preferred_during_scheduling_ignored_during_execution: preferred,
    }) = &mut placement.pod_affinity
    {
        required.iter_mut().flatten().for_each(fill);
        preferred.iter_mut().flatten().for_each(|one| fill(&mut one.pod_affinity_term));
    }
    if let Some(PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: required,
        preferred_during_scheduling_ignored_during_execution: preferred,
    }) = &mut placement.pod_anti_affinity
    {
        required.iter_mut().flatten().for_each(fill);
        preferred.iter_mut().flatten().for_each(|one| fill(&mut one.pod_affinity_term));
    }
}

/// As fields of the spec of a pod.
pub fn apply(pod: &mut Value, placement: &Placement) {
    let mut affinity = json!({});
    for (key, value) in [
        ("nodeAffinity", json!(placement.node_affinity)),
        ("podAffinity", json!(placement.pod_affinity)),
        ("podAntiAffinity", json!(placement.pod_anti_affinity)),
    ] {
        if !value.is_null() {
            affinity[key] = value;
        }
    }
    if affinity.as_object().is_some_and(|all| !all.is_empty()) {
        pod["affinity"] = affinity;
    }
    if !placement.tolerations.is_empty() {
        pod["tolerations"] = json!(placement.tolerations);
    }
    if !placement.topology_spread_constraints.is_empty() {
        pod["topologySpreadConstraints"] = json!(placement.topology_spread_constraints);
    }
}
