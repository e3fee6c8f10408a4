//! What may never be done to the agents' DaemonSet or to an agent, whatever the planner decided.

use super::{
    DaemonSetObserved, DaemonSetPlan, DaemonSetStep, Observed, Plan, confinement::InstalledPolicy,
};
use quarry_api::{NodeJob, admission::own_node, crds::MANAGED_BY_LABEL, names, node_job::JobPhase};
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
                let runs = |job: &NodeJob| may_run(job) && Some(&job.spec.node_name) == node;
                let jobs = seen.daemon_set.iter().flat_map(|seen| &seen.jobs);
                if jobs.into_iter().any(|job| runs(job)) {
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
    let mut found = Vec::new();
    let mut forbid = |broken: bool, violation: Violation| {
        if broken {
            found.push(violation);
        }
    };
    match &plan.step {
        DaemonSetStep::Nothing
        | DaemonSetStep::LeaveAlone
        | DaemonSetStep::AwaitDeletion
        | DaemonSetStep::Withhold(_) => {}
        DaemonSetStep::Create(_) => {
            forbid(seen.found.is_some(), Violation::NotOurs);
            forbid(!is_confined(seen), Violation::NotConfined);
        }
        DaemonSetStep::Update { .. } => {
            forbid(!ours, Violation::NotOurs);
            forbid(!is_confined(seen), Violation::NotConfined);
        }
        DaemonSetStep::Delete { .. } => {
            forbid(!ours, Violation::NotOurs);
            forbid(is_needed(seen), Violation::NeededAgents);
        }
    }
    found
}

/// A Volume may be on any node, an object requests agents everywhere, or a node still needs its own.
fn is_needed(seen: &DaemonSetObserved) -> bool {
    let exists =
        |name: &str| seen.nodes.iter().any(|node| node.metadata.name.as_deref() == Some(name));
    let claims = seen.inventories.iter().any(|inventory| {
        !inventory.spec.device_claims.is_empty()
            && inventory.metadata.name.as_deref().is_some_and(exists)
    });
    let works = seen.jobs.iter().any(|job| may_run(job) && exists(&job.spec.node_name));
    let requested = seen.requesters.iter().any(|requester| requester.selector.is_none());
    seen.volumes || claims || works || requested
}

fn may_run(job: &NodeJob) -> bool {
    let phase = job.status.as_ref().and_then(|status| status.phase);
    !matches!(phase, Some(JobPhase::Succeeded | JobPhase::Failed))
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
