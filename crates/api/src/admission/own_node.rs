//! The policy that confines an agent to the objects of its own node.
//!
//! It matches the agents' service account of every namespace, so that an overlay which moves Quarry to another namespace
//! moves no agent out of its reach: kustomize changes namespaces of objects, never an expression. The node is a claim of
//! the token. Whether an installed policy confines the agents of a namespace: `quarry_core::agent_daemon_set`.

use super::Policy;
use crate::names;
use serde_json::{Value, json};

/// The name of the policy and of its binding.
pub const NAME: &str = "quarry-agent-own-node";

/// The claim of a token that is bound to a pod: the node of the pod.
const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

/// True for requests of agents, whatever the namespace of their account.
pub fn any_namespace() -> String {
    format!(
        "request.userInfo.username.startsWith('system:serviceaccount:') && request.userInfo.username.endsWith(':{}')",
        names::AGENT_SERVICE_ACCOUNT
    )
}

/// True for requests of the agents of one namespace only.
pub fn one_namespace(namespace: &str) -> String {
    let account = names::AGENT_SERVICE_ACCOUNT;
    format!("request.userInfo.username == 'system:serviceaccount:{namespace}:{account}'")
}

pub fn policy() -> Policy {
    let conditions = json!([{"name": "an-agent", "expression": any_namespace()}]);
    super::policy(NAME, rules(), conditions, validations(), "Deny")
}

/// Everything that an agent may write by its roles.
fn rules() -> Value {
    let writes = ["CREATE", "UPDATE", "DELETE"];
    json!([
        {"apiGroups": [names::GROUP], "apiVersions": ["*"], "operations": writes, "resources": ["nodeinventories", "nodeinventories/status", "nodejobs", "nodejobs/status"]},
        {"apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "operations": writes, "resources": ["leases"]},
        // A write through events.k8s.io is converted to this version before it is evaluated.
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": writes, "resources": ["events"]},
    ])
}

fn validations() -> Value {
    let events = names::EVENTS_OF_CLUSTER_OBJECTS;
    let named =
        format!("(has(request.userInfo.extra) && '{NODE_CLAIM}' in request.userInfo.extra)");
    let node = format!("request.userInfo.extra['{NODE_CLAIM}'][0]");
    let target = "(request.operation == 'DELETE' ? oldObject : object)";
    let own_object = format!(
        "request.resource.resource == 'nodeinventories' ? {target}.metadata.name == {node} : \
         request.resource.resource == 'nodejobs' ? {target}.spec.nodeName == {node} : \
         request.resource.resource == 'leases' ? {target}.metadata.name == 'quarry-agent-' + {node} : true"
    );
    // The name of the account is the last of four parts: system, serviceaccount, namespace, name.
    let own_namespace = "request.namespace == request.userInfo.username.split(':')[2]";
    // Both the old and the new object: an Event of another node is not to be taken over.
    let own_event = format!(
        "request.namespace == '{events}' && [object, oldObject].all(one, one == null || \
         (one.involvedObject.kind == 'NodeInventory' && one.involvedObject.name == {node}))"
    );
    json!([
        {
            "expression": named,
            "message": "the token of an agent must be bound to a pod on a node; this one names no node",
        },
        {
            "expression": format!("!{named} || ({own_object})"),
            "message": "an agent may change only the objects of its own node",
        },
        {
            "expression": format!("request.resource.resource != 'leases' || {own_namespace}"),
            "message": "an agent may write Leases only in the namespace of its service account",
        },
        {
            "expression": format!("request.resource.resource != 'events' || !{named} || ({own_event})"),
            "message": format!("an agent may write Events only about the NodeInventory of its own node, in the namespace {events}"),
        },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_cel::{
        KubeCelExt,
        cel::{Context, Program, Value as Cel, to_value},
    };

    /// One write, evaluated as the API server does it: `Ok` if it is allowed or the policy is not about it, else the
    /// first message.
    fn judge(account: &str, node: Option<&str>, write: &Value) -> Result<(), String> {
        let extra = node.map_or(json!({}), |node| json!({NODE_CLAIM: [node]}));
        let mut request = write["request"].clone();
        request["operation"] = json!(request["operation"].as_str().unwrap_or("UPDATE"));
        request["userInfo"] = json!({"username": account, "extra": extra});
        let base = Context::default().with_all();
        let mut context = base.new_inner_scope();
        for (name, value) in [
            ("request", &request),
            ("object", &write["object"]),
            ("oldObject", &write["oldObject"]),
        ] {
            context.add_variable_from_value(name, to_value(value).unwrap());
        }
        let holds = |text: &str| {
            let program = Program::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            // An expression that fails refuses the write: failurePolicy is Fail.
            program.execute(&context) == Ok(Cel::Bool(true))
        };
        let spec = policy().policy.spec.unwrap();
        if !spec.match_conditions.unwrap().iter().all(|one| holds(&one.expression)) {
            return Ok(());
        }
        match spec.validations.unwrap().into_iter().find(|one| !holds(&one.expression)) {
            None => Ok(()),
            Some(refused) => Err(refused.message.unwrap()),
        }
    }

    fn agent_of(namespace: &str) -> String {
        format!("system:serviceaccount:{namespace}:{}", names::AGENT_SERVICE_ACCOUNT)
    }

    fn inventory(name: &str) -> Value {
        json!({"request": {"resource": {"resource": "nodeinventories"}}, "object": {"metadata": {"name": name}}})
    }

    fn job(node: &str) -> Value {
        json!({"request": {"resource": {"resource": "nodejobs"}}, "object": {"metadata": {"name": "j"}, "spec": {"nodeName": node}}})
    }

    fn lease(namespace: &str, name: &str) -> Value {
        json!({"request": {"resource": {"resource": "leases"}, "namespace": namespace}, "object": {"metadata": {"name": name}}})
    }

    fn event(namespace: &str, kind: &str, name: &str) -> Value {
        json!({"request": {"resource": {"resource": "events"}, "namespace": namespace}, "object": {"involvedObject": {"kind": kind, "name": name}}})
    }

    #[test]
    fn agents_of_any_namespace_write_only_to_their_own_node() {
        for namespace in ["quarry-system", "storage", "kube-system"] {
            let judge = |node, write: &Value| judge(&agent_of(namespace), node, write);
            let lease = |name: &str| lease(namespace, name);
            for own in [inventory("n1"), job("n1"), lease("quarry-agent-n1")] {
                assert_eq!(judge(Some("n1"), &own), Ok(()), "{namespace}: {own}");
            }
            for other in [inventory("n2"), job("n2"), lease("quarry-agent-n2"), lease("x")] {
                let refused = judge(Some("n1"), &other).unwrap_err();
                assert!(
                    refused.contains("only the objects of its own node"),
                    "{namespace}: {other}"
                );
                let refused = judge(None, &other).unwrap_err();
                assert!(refused.contains("names no node"), "{namespace}: {other}");
            }
            let mut delete = inventory("n2");
            delete["request"]["operation"] = json!("DELETE");
            delete["oldObject"] = delete["object"].take();
            assert!(judge(Some("n1"), &delete).is_err(), "{namespace}");
        }
    }

    #[test]
    fn leases_of_agents_stay_in_their_namespace() {
        let judge = |write: &Value| judge(&agent_of("storage"), Some("n1"), write);
        assert_eq!(judge(&lease("storage", "quarry-agent-n1")), Ok(()));
        for elsewhere in ["quarry-system", "default", "kube-node-lease"] {
            let refused = judge(&lease(elsewhere, "quarry-agent-n1")).unwrap_err();
            assert!(refused.contains("only in the namespace of its service account"), "{refused}");
        }
    }

    #[test]
    fn events_of_agents_are_about_their_node_in_one_namespace() {
        let judge = |write: &Value| judge(&agent_of("storage"), Some("n1"), write);
        let own = event("default", "NodeInventory", "n1");
        assert_eq!(judge(&own), Ok(()));
        let mut taken_over = own.clone();
        taken_over["oldObject"] = event("default", "NodeInventory", "n2")["object"].clone();
        for other in [
            event("storage", "NodeInventory", "n1"),
            event("kube-system", "Pod", "n1"),
            event("default", "Pod", "n1"),
            event("default", "NodeInventory", "n2"),
            taken_over,
        ] {
            let refused = judge(&other).unwrap_err();
            assert!(refused.contains("only about the NodeInventory"), "{other}: {refused}");
        }
    }

    #[test]
    fn other_accounts_are_not_restricted() {
        for account in ["admin", "system:node:n1", "system:serviceaccount:quarry-system:other"] {
            assert_eq!(judge(account, None, &inventory("n2")), Ok(()), "{account}");
        }
    }
}
