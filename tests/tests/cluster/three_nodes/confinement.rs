//! Agents of real nodes, in a namespace that the manifests do not name: the token of each gives
//! access to the objects of its own node only, and none is started without the policy.

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Event};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use quarry_api::{NodeInventory, NodeJob};
use quarry_tests::{
    lab::{apply, get, kubectl, quarry, text, try_run, until},
    nodes::{LIMIT, NAMESPACE, NODES, agent_token, agents_ready, installed, kubectl_there},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// A client with the token that a running agent uses.
struct Agent {
    runtime: Runtime,
    client: Client,
}

impl Agent {
    fn of(node: &str) -> Self {
        let view = ["config", "view", "--minify", "--raw", "-o"];
        let server = kubectl(&[&view[..], &["jsonpath={.clusters[0].cluster.server}"]].concat());
        let mut config = kube::Config::new(server.parse().expect("the address of the API server"));
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(agent_token(node).into());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be started");
        let client = runtime.block_on(async { Client::try_from(config) });
        Agent { runtime, client: client.expect("the client can be made") }
    }

    /// Writes the status of a NodeInventory.
    fn report(&self, node: &str) -> Result<(), String> {
        let api: Api<NodeInventory> = Api::all(self.client.clone());
        let change = Patch::Merge(json!({"status": {"problems": []}}));
        let parameters = PatchParams::default();
        self.runtime
            .block_on(api.patch_status(node, &parameters, &change))
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// Writes the status of a NodeJob.
    fn finish(&self, job: &str) -> Result<(), String> {
        let api: Api<NodeJob> = Api::all(self.client.clone());
        let change = Patch::Merge(json!({"status": {"message": "forged"}}));
        let parameters = PatchParams::default();
        self.runtime
            .block_on(api.patch_status(job, &parameters, &change))
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// Writes the Lease of a node.
    fn renew(&self, namespace: &str, node: &str) -> Result<(), String> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        let change = Patch::Merge(json!({"metadata": {"annotations": {"probe": "x"}}}));
        let name = format!("quarry-agent-{node}");
        let parameters = PatchParams::default();
        self.runtime
            .block_on(api.patch(&name, &parameters, &change))
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// Creates an Event about a NodeInventory.
    fn publish(&self, namespace: &str, node: &str) -> Result<(), String> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let mut about =
            json!({"apiVersion": "quarry.dev/v1alpha1", "kind": "NodeInventory", "name": node});
        if namespace != "default" {
            about["namespace"] = json!(namespace);
        }
        let event = json!({"metadata": {"generateName": "probe-"}, "involvedObject": about, "reason": "Probe", "message": "m", "type": "Normal"});
        let event: Event = serde_json::from_value(event).expect("a complete Event");
        let created = self
            .runtime
            .block_on(async { api.create(&PostParams::default(), &event).await.map(drop) });
        created.map_err(|error| error.to_string())
    }
}

/// A job for a node that its agent refuses: there is no such Volume.
fn refused_job(node: &str) -> String {
    let name = format!("probe-{node}");
    let device = json!({"sparseFile": {"volumeUID": "00000000-0000-0000-0000-000000000000"}});
    let spec = json!({
        "action": "Cleanup", "nodeName": node, "device": device, "attempt": 1,
        "owner": {"kind": "Volume", "name": "none", "uid": "none"},
        "precondition": {"nodeUID": "none", "specHash": "none"},
    });
    let job = json!({"apiVersion": "quarry.dev/v1alpha1", "kind": "NodeJob", "metadata": {"name": name}, "spec": spec});
    apply(&job.to_string());
    until("the agent has refused the job", LIMIT, || {
        let job = get(&["nodejob", &name]).unwrap_or_default();
        if job["status"]["phase"] == "Failed" { Ok(()) } else { Err(job.to_string()) }
    });
    name
}

#[test]
fn each_agents_token_reaches_its_own_node_only() {
    installed();
    let jobs = NODES.map(refused_job);
    for node in NODES {
        let agent = Agent::of(node);
        for (other, job) in NODES.iter().zip(&jobs) {
            let writes = [
                ("NodeInventory", agent.report(other)),
                ("NodeJob", agent.finish(job)),
                ("Lease", agent.renew(NAMESPACE, other)),
                ("Event", agent.publish("default", other)),
            ];
            for (kind, result) in writes {
                let what = format!("{kind} of {other} by the agent of {node}");
                if node == *other {
                    assert_eq!(result, Ok(()), "{what}");
                    continue;
                }
                let refused = result.expect_err(&what);
                let policy = "ValidatingAdmissionPolicy 'quarry-agent-own-node'";
                assert!(refused.contains(policy) && refused.contains("own node"), "{refused}");
            }
        }
        // RBAC allows Events in all namespaces, the policy does not.
        let refused = agent.publish("kube-system", node).expect_err("in another namespace");
        assert!(refused.contains("in the namespace default"), "{refused}");
        let refused = agent.renew("kube-system", node).expect_err("in another namespace");
        assert!(refused.contains("forbidden"), "{refused}");
    }
    for job in &jobs {
        let found = get(&["nodejob", job]).unwrap_or_default();
        assert_eq!(found["status"]["message"], "forged", "by its own agent only: {found}");
        kubectl(&["delete", "nodejob", job]);
    }
}

/// Installs the policies again.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        let policies = text(&quarry(&["policies"]).stdout);
        try_run("kubectl", &["apply", "-f", "-"], Some(&policies));
    }
}

/// The message of the Event that the operator's Deployment has.
fn withheld() -> Option<String> {
    let field = "reason=AgentsNotConfined,involvedObject.kind=Deployment";
    let events = get(&["-n", NAMESPACE, "events", "--field-selector", field])?;
    let message = |event: &Value| event["message"].as_str().map(str::to_owned);
    events["items"].as_array()?.iter().find_map(message)
}

#[test]
fn no_agent_is_started_without_the_policy() {
    installed();
    let restore = Restore;
    kubectl(&["delete", "validatingadmissionpolicybinding", "quarry-agent-own-node"]);
    kubectl_there(&["delete", "daemonset", "quarry-agent"]);
    // The next leader verifies it when it starts.
    let label = "app.kubernetes.io/name=quarry-operator";
    kubectl_there(&["delete", "pods", "-l", label, "--wait=false"]);
    let message = until("the operator reports why it starts none", LIMIT, || {
        withheld().ok_or_else(|| kubectl_there(&["get", "pods,events"]))
    });
    let missing = "ValidatingAdmissionPolicyBinding quarry-agent-own-node does not exist";
    assert!(message.contains(missing) && message.contains("namespace storage"), "{message}");
    assert!(get(&["-n", NAMESPACE, "daemonset", "quarry-agent"]).is_none(), "none is started");
    drop(restore);
    agents_ready();
}
