//! Whether the installed admission policy confines the agents of a namespace to their own nodes.
//!
//! RBAC cannot express "its own node": without the policy an agent's token may write the status of every node. So agents
//! are started only where the API server has a policy and a binding that refuse at least what ours do. Wider is
//! accepted (more rules, more validations), narrower is a gap. Expressions are compared as text: nothing here evaluates
//! CEL, and an expression that Quarry did not write proves nothing.

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};
use quarry_api::admission::{Policy, own_node};

/// The policy on agents and its binding, as the API server has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstalledPolicy {
    pub policy: Option<ValidatingAdmissionPolicy>,
    pub binding: Option<ValidatingAdmissionPolicyBinding>,
}

/// What the installed policy leaves open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gap {
    #[error("{kind} {name} does not exist", name = own_node::NAME)]
    Missing { kind: &'static str },
    #[error("{kind} {name} is being deleted", name = own_node::NAME)]
    Terminating { kind: &'static str },
    #[error("the binding names the policy {policy}")]
    OtherPolicy { policy: String },
    #[error("spec.validationActions of the binding lacks Deny")]
    NotDenied,
    #[error("spec.failurePolicy is not Fail")]
    FailsOpen,
    #[error("the condition \"{expression}\" does not match the agents of namespace {namespace}")]
    Account { namespace: String, expression: String },
    #[error("{field} exempts objects")]
    Exempts { field: &'static str },
    #[error("spec.matchConstraints does not cover {resource}")]
    Uncovered { resource: String },
    #[error("the rule \"{message}\" is missing")]
    Unchecked { message: String },
}

/// The reason in conditions, Events and logs.
pub const NOT_CONFINED: &str = "AgentsNotConfined";

/// The text for conditions, Events and logs.
pub fn not_confined(namespace: &str, gaps: &[Gap]) -> String {
    let gaps = gaps.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    format!(
        "no agents are started, because no admission policy confines the account of the agents in namespace {namespace} to their own nodes: {gaps}; \
         install the policies: `quarry policies | kubectl apply -f -`"
    )
}

/// Everything that keeps the installed policy from confining the agents of this namespace; empty: they are confined.
pub fn gaps(namespace: &str, installed: &InstalledPolicy) -> Vec<Gap> {
    let ours = own_node::policy();
    let mut found = match &installed.policy {
        None => vec![Gap::Missing { kind: "ValidatingAdmissionPolicy" }],
        Some(policy) => policy_gaps(namespace, policy, &ours),
    };
    match &installed.binding {
        None => found.push(Gap::Missing { kind: "ValidatingAdmissionPolicyBinding" }),
        Some(binding) => found.extend(binding_gaps(binding)),
    }
    found
}

fn policy_gaps(namespace: &str, policy: &ValidatingAdmissionPolicy, ours: &Policy) -> Vec<Gap> {
    let spec = policy.spec.clone().unwrap_or_default();
    let wanted = ours.policy.spec.clone().unwrap_or_default();
    let mut found = Vec::new();
    if policy.metadata.deletion_timestamp.is_some() {
        found.push(Gap::Terminating { kind: "ValidatingAdmissionPolicy" });
    }
    // The default of the API server is Fail.
    if spec.failure_policy.as_deref().is_some_and(|value| value != "Fail") {
        found.push(Gap::FailsOpen);
    }
    // Evaluated once per parameter: without one, perhaps not at all.
    if spec.param_kind.is_some() {
        found.push(Gap::Exempts { field: "spec.paramKind" });
    }
    // Every condition must hold: one that is not known to hold for our agents exempts them.
    let accepted = [own_node::any_namespace(), own_node::one_namespace(namespace)];
    for condition in spec.match_conditions.iter().flatten() {
        if !accepted.contains(&condition.expression) {
            let expression = condition.expression.clone();
            found.push(Gap::Account { namespace: namespace.to_owned(), expression });
        }
    }
    let constraints = spec.match_constraints.unwrap_or_default();
    found.extend(exempts(&constraints, "spec.matchConstraints of the policy"));
    let rules = constraints.resource_rules.unwrap_or_default();
    let wanted_rules = wanted.match_constraints.and_then(|all| all.resource_rules);
    for rule in wanted_rules.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            if !rules.iter().any(|one| covers(one, rule, resource)) {
                let group = rule.api_groups.iter().flatten().next().cloned().unwrap_or_default();
                let resource = format!("{resource}.{group}").trim_end_matches('.').to_owned();
                found.push(Gap::Uncovered { resource });
            }
        }
    }
    let has = |expression: &str| {
        spec.validations.iter().flatten().any(|one| one.expression == expression)
    };
    for validation in wanted.validations.iter().flatten() {
        if !has(&validation.expression) {
            let message = validation.message.clone().unwrap_or_default();
            found.push(Gap::Unchecked { message });
        }
    }
    found
}

fn binding_gaps(binding: &ValidatingAdmissionPolicyBinding) -> Vec<Gap> {
    let spec = binding.spec.clone().unwrap_or_default();
    let mut found = Vec::new();
    if binding.metadata.deletion_timestamp.is_some() {
        found.push(Gap::Terminating { kind: "ValidatingAdmissionPolicyBinding" });
    }
    let policy = spec.policy_name.unwrap_or_default();
    if policy != own_node::NAME {
        found.push(Gap::OtherPolicy { policy });
    }
    if !spec.validation_actions.iter().flatten().any(|action| action == "Deny") {
        found.push(Gap::NotDenied);
    }
    if spec.param_ref.is_some() {
        found.push(Gap::Exempts { field: "spec.paramRef of the binding" });
    }
    if let Some(resources) = &spec.match_resources {
        const FIELD: &str = "spec.matchResources of the binding";
        found.extend(exempts(resources, FIELD));
        // Rules of a binding narrow those of the policy.
        if resources.resource_rules.as_ref().is_some_and(|rules| !rules.is_empty()) {
            found.push(Gap::Exempts { field: FIELD });
        }
    }
    found
}

/// Selectors and exclusions take objects out. The API server fills in empty selectors, which select everything.
fn exempts(resources: &MatchResources, field: &'static str) -> Option<Gap> {
    let selects = [&resources.namespace_selector, &resources.object_selector];
    let selects = selects.into_iter().flatten().any(|selector| *selector != Default::default());
    let excludes = resources.exclude_resource_rules.as_ref().is_some_and(|all| !all.is_empty());
    (selects || excludes).then_some(Gap::Exempts { field })
}

/// Whether `rule` is about every write to `resource` that `wanted` is about.
fn covers(
    rule: &NamedRuleWithOperations,
    wanted: &NamedRuleWithOperations,
    resource: &str,
) -> bool {
    let all = |have: &Option<Vec<String>>, need: &Option<Vec<String>>| {
        let have = |value: &String| have.iter().flatten().any(|one| one == "*" || one == value);
        need.iter().flatten().all(have)
    };
    all(&rule.api_groups, &wanted.api_groups)
        && all(&rule.api_versions, &wanted.api_versions)
        && all(&rule.operations, &wanted.operations)
        && rule.resources.iter().flatten().any(|one| one == resource)
        && rule.resource_names.as_ref().is_none_or(Vec::is_empty)
        && rule.scope.as_deref().is_none_or(|scope| scope == "*")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_daemon_set::{
        AgentDemand, DaemonSetObserved, DaemonSetPlan, DaemonSetSettings, DaemonSetStep,
        check::check_daemon_set, desired, tests::settings,
    };
    use serde_json::{Value, json};

    /// As the API server returns it: with the defaults that it fills in, and `change` merged in.
    fn installed(policy: Value, binding: Value) -> InstalledPolicy {
        let ours = own_node::policy();
        let mut made = json!(ours.policy);
        made["spec"]["matchConstraints"]["matchPolicy"] = json!("Equivalent");
        made["spec"]["matchConstraints"]["namespaceSelector"] = json!({});
        made["spec"]["matchConstraints"]["objectSelector"] = json!({});
        for rule in made["spec"]["matchConstraints"]["resourceRules"].as_array_mut().unwrap() {
            rule["scope"] = json!("*");
        }
        let mut bound = json!(ours.binding);
        merge(&mut made, policy);
        merge(&mut bound, binding);
        InstalledPolicy {
            policy: Some(serde_json::from_value(made).unwrap()),
            binding: Some(serde_json::from_value(bound).unwrap()),
        }
    }

    fn merge(into: &mut Value, change: Value) {
        match change {
            Value::Object(fields) => {
                fields.into_iter().for_each(|(key, value)| merge(&mut into[key], value))
            }
            Value::Null => {}
            other => *into = other,
        }
    }

    /// The gaps; the checker, which is written apart, must agree on whether there are any.
    fn seen(namespace: &str, policy: Value, binding: Value) -> Vec<Gap> {
        found(namespace, installed(policy, binding))
    }

    fn found(namespace: &str, installed: InstalledPolicy) -> Vec<Gap> {
        let gaps = gaps(namespace, &installed);
        let settings = DaemonSetSettings { namespace: namespace.into(), ..settings("quarry:1") };
        let demand = AgentDemand { everywhere: true, ..AgentDemand::default() };
        let wanted = desired(&settings, &demand).map(Box::new);
        let seen = DaemonSetObserved {
            settings,
            volumes: true,
            requesters: Vec::new(),
            nodes: Vec::new(),
            inventories: Vec::new(),
            jobs: Vec::new(),
            found: None,
            installed,
        };
        let step = DaemonSetStep::Create(wanted.clone().unwrap());
        let violations = check_daemon_set(&seen, &DaemonSetPlan { step, wanted });
        assert_eq!(violations.is_empty(), gaps.is_empty(), "{gaps:?} {violations:?}");
        gaps
    }

    const NONE: Value = Value::Null;

    #[test]
    fn our_policy_confines_the_agents_of_every_namespace() {
        for namespace in ["quarry-system", "storage"] {
            assert_eq!(seen(namespace, NONE, NONE), []);
        }
    }

    #[test]
    fn a_policy_that_names_another_namespace_confines_nothing() {
        let named =
            json!([{"name": "an-agent", "expression": own_node::one_namespace("quarry-system")}]);
        let policy = json!({"spec": {"matchConditions": named}});
        assert_eq!(seen("quarry-system", policy.clone(), NONE), []);
        let found = seen("storage", policy, NONE);
        assert!(matches!(found.as_slice(), [Gap::Account { .. }]), "{found:?}");
        let text = not_confined("storage", &found);
        assert!(text.contains("does not match the agents of namespace storage"), "{text}");
        assert!(text.ends_with("install the policies: `quarry policies | kubectl apply -f -`"));
    }

    // invariant: 4
    #[test]
    fn every_way_to_exempt_an_agent_is_a_gap() {
        let missing = |kind| Gap::Missing { kind };
        assert_eq!(
            found("quarry-system", InstalledPolicy::default()),
            [missing("ValidatingAdmissionPolicy"), missing("ValidatingAdmissionPolicyBinding")]
        );
        let kind = "ValidatingAdmissionPolicyBinding";
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(seen("n", NONE, deleted), [Gap::Terminating { kind }]);
        for action in ["Audit", "Warn"] {
            let binding = json!({"spec": {"validationActions": [action]}});
            assert_eq!(seen("n", NONE, binding), [Gap::NotDenied]);
        }
        let other = json!({"spec": {"policyName": "another"}});
        assert_eq!(seen("n", NONE, other), [Gap::OtherPolicy { policy: "another".into() }]);
        let ignore = json!({"spec": {"failurePolicy": "Ignore"}});
        assert_eq!(seen("n", ignore, NONE), [Gap::FailsOpen]);
        let selector = json!({"namespaceSelector": {"matchLabels": {"a": "b"}}});
        let narrowed = json!({"spec": {"matchConstraints": selector.clone()}});
        let field = "spec.matchConstraints of the policy";
        assert_eq!(seen("n", narrowed, NONE), [Gap::Exempts { field }]);
        let rule = json!({"apiGroups": ["quarry.dev"], "apiVersions": ["*"], "operations": ["*"], "resources": ["nodejobs"]});
        let field = "spec.matchResources of the binding";
        for resources in [
            selector,
            json!({"resourceRules": [rule.clone()]}),
            json!({"excludeResourceRules": [rule.clone()]}),
        ] {
            let narrowed = json!({"spec": {"matchResources": resources}});
            assert_eq!(seen("n", NONE, narrowed), [Gap::Exempts { field }]);
        }
        let fewer = json!({"spec": {"matchConstraints": {"resourceRules": [rule]}}});
        let open: Vec<String> = seen("n", fewer, NONE).iter().map(ToString::to_string).collect();
        let uncovered = [
            "nodeinventories.quarry.dev",
            "nodeinventories/status.quarry.dev",
            "nodejobs/status.quarry.dev",
            "leases.coordination.k8s.io",
            "events",
        ];
        assert_eq!(
            open,
            uncovered.map(|one| format!("spec.matchConstraints does not cover {one}"))
        );
        let lenient = json!({"spec": {"validations": [{"expression": "true", "message": "m"}]}});
        let count = own_node::policy().policy.spec.unwrap().validations.unwrap().len();
        let open = seen("n", lenient, NONE);
        assert_eq!(open.len(), count);
        assert!(open.iter().all(|gap| matches!(gap, Gap::Unchecked { .. })), "{open:?}");
    }

    #[test]
    fn a_stricter_policy_is_accepted() {
        let mut stricter = json!(own_node::policy().policy);
        let more = json!({"expression": "request.operation != 'DELETE'", "message": "none"});
        stricter["spec"]["validations"].as_array_mut().unwrap().push(more);
        stricter["spec"]["matchConditions"] = json!([]);
        let rules = stricter["spec"]["matchConstraints"]["resourceRules"].as_array_mut().unwrap();
        rules.push(json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["pods"]}));
        let policy = Some(serde_json::from_value(stricter).unwrap());
        assert_eq!(found("n", InstalledPolicy { policy, ..installed(NONE, NONE) }), []);
    }
}
