//! What may never be done to the agents' DaemonSet or to an agent, whatever the planner decided.

use super::{
    DaemonSetObserved, DaemonSetPlan, DaemonSetStep, Observed, Plan, confinement::InstalledPolicy,
};
use quarry_api::{admission::own_node, crds::MANAGED_BY_LABEL, names};
use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("a DaemonSet that Quarry did not create is changed")]
    NotOurs,
    #[error("the agents are removed although a device claim, a job or an object needs them")]
    NeededAgents,
    #[error("an agent is replaced while a job runs on its node (invariant 2)")]
    BusyAgent,
    #[error("a pod is deleted that is no agent's, or without its UID")]
    NoAgent,
    #[error("agents are started although no admission policy confines them to their own nodes")]
    NotConfined,
}

pub fn check(seen: &Observed, plan: &Plan) -> Vec<Violation> {
    let mut found = match (&seen.daemon_set, &plan.daemon_set) {
        (Some(seen), Some(plan)) => check_daemon_set(seen, plan),
        (None, Some(_)) => vec![Violation::NotOurs],
        (_, None) => Vec::new(),
    };
    if plan.replace.is_some() && !seen.daemon_set.as_ref().is_some_and(is_confined) {
        found.push(Violation::NotConfined);
    }
    if let Some(pod) = &plan.replace {
        let known = seen.pods.iter().find(|one| {
            !pod.uid.is_empty()
                && one.metadata.uid.as_ref() == Some(&pod.uid)
                && one.metadata.name.as_ref() == Some(&pod.name)
        });
        match known {
            None => found.push(Violation::NoAgent),
            Some(one) => {
                let node = one.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
                if node.is_some_and(|node| seen.busy_nodes.contains(node)) {
                    found.push(Violation::BusyAgent);
                }
            }
        }
    }
    found
}

pub fn check_daemon_set(seen: &DaemonSetObserved, plan: &DaemonSetPlan) -> Vec<Violation> {
    let labels = seen.found.as_ref().and_then(|found| found.metadata.labels.as_ref());
    let label = labels.and_then(|labels| labels.get(MANAGED_BY_LABEL));
    let ours = label.is_some_and(|by| by == names::MANAGED_BY);
    let needed = seen.demand.everywhere
        || !seen.demand.kept_nodes.is_empty()
        || seen.demand.requesters.iter().any(|requester| requester.selector.is_none());
    let starts = matches!(plan.step, DaemonSetStep::Create(_) | DaemonSetStep::Update { .. });
    if starts && !is_confined(seen) {
        return vec![Violation::NotConfined];
    }
    match &plan.step {
        DaemonSetStep::Nothing
        | DaemonSetStep::LeaveAlone
        | DaemonSetStep::AwaitDeletion
        | DaemonSetStep::Withhold(_) => Vec::new(),
        DaemonSetStep::Create(_) if seen.found.is_some() => vec![Violation::NotOurs],
        DaemonSetStep::Create(_) => Vec::new(),
        DaemonSetStep::Update { .. } if ours => Vec::new(),
        DaemonSetStep::Delete { .. } if ours && !needed => Vec::new(),
        DaemonSetStep::Delete { .. } if ours => vec![Violation::NeededAgents],
        DaemonSetStep::Update { .. } | DaemonSetStep::Delete { .. } => vec![Violation::NotOurs],
    }
}

/// Whether the policy that was read applies to every write of the account which the pods would have, and refuses what
/// ours refuses.
fn is_confined(seen: &DaemonSetObserved) -> bool {
    let InstalledPolicy { policy: Some(policy), binding: Some(binding) } = &seen.installed else {
        return false;
    };
    let alive = policy.metadata.deletion_timestamp.is_none()
        && binding.metadata.deletion_timestamp.is_none();
    let (policy, binding) = (json!(policy.spec), json!(binding.spec));
    let has = |list: &Value, wanted: &str| {
        list.as_array().is_some_and(|list| list.iter().any(|one| one == wanted || one == "*"))
    };
    let refuses = binding["policyName"] == own_node::NAME
        && has(&binding["validationActions"], "Deny")
        && policy["failurePolicy"] != "Ignore";
    let is_empty = |value: &Value| [json!(null), json!({}), json!([])].contains(value);
    let all_objects = |matched: &Value| {
        ["namespaceSelector", "objectSelector", "excludeResourceRules"]
            .iter()
            .all(|field| is_empty(&matched[field]))
    };
    let constraints = &policy["matchConstraints"];
    let exempts_none = all_objects(constraints)
        && all_objects(&binding["matchResources"])
        && is_empty(&binding["matchResources"]["resourceRules"])
        && is_empty(&binding["paramRef"])
        && is_empty(&policy["paramKind"]);
    let namespace = &seen.settings.namespace;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let matches_account = list(&policy["matchConditions"]).iter().all(|one| {
        one["expression"] == own_node::any_namespace()
            || one["expression"] == own_node::one_namespace(namespace)
    });
    let covers = |group: &str, resource: &str, operation: &str| {
        list(&constraints["resourceRules"]).iter().any(|rule| {
            has(&rule["apiGroups"], group)
                && has(&rule["operations"], operation)
                && list(&rule["resources"]).contains(&json!(resource))
                && is_empty(&rule["resourceNames"])
        })
    };
    let covers_writes = WRITES.iter().all(|(group, resource)| {
        ["CREATE", "UPDATE", "DELETE"].iter().all(|operation| covers(group, resource, operation))
    });
    let ours = json!(own_node::policy().policy.spec);
    let found = list(&policy["validations"]);
    let validates = list(&ours["validations"])
        .iter()
        .all(|ours| found.iter().any(|one| one["expression"] == ours["expression"]));
    alive && refuses && exempts_none && matches_account && covers_writes && validates
}

/// What agents write.
const WRITES: [(&str, &str); 4] = [
    (names::GROUP, "nodeinventories/status"),
    (names::GROUP, "nodejobs/status"),
    ("coordination.k8s.io", "leases"),
    ("", "events"),
];
