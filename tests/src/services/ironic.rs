//! Ironic's API as the tests see it, without Quarry: nodes, their states, their inventories.

use super::{Answer, LIMIT, Lab, System, request, until};
use serde_json::{Value, json};
use std::time::Duration;

const VERSION: &str = "X-OpenStack-Ironic-API-Version: 1.109";

pub struct Ironic {
    url: String,
    user: Option<String>,
}

impl Ironic {
    pub fn new(url: &str) -> Self {
        Ironic { url: url.to_owned(), user: None }
    }

    pub fn as_user(mut self, user: &str, password: &str) -> Self {
        self.user = Some(format!("{user}:{password}"));
        self
    }

    /// One request; `path` begins with `/v1`. `Err`: Ironic cannot be reached.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer, String> {
        let mut more = vec!["--header", VERSION];
        if let Some(user) = &self.user {
            more.extend(["--user", user]);
        }
        request(method, &format!("{}{path}", self.url), body, &more)
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None).unwrap()
    }

    /// Creates a node with a port, and returns its UUID. The password may be a wrong one.
    #[track_caller]
    pub fn enroll(&self, system: &System, password: &str) -> String {
        let lab = Lab::get();
        let node = json!({
            "name": format!("lab~{}", system.name),
            "driver": "redfish",
            "boot_interface": "redfish-virtual-media",
            "deploy_interface": "direct",
            "inspect_interface": "agent",
            "raid_interface": "agent",
            "driver_info": {
                "deploy_iso": lab.deploy_iso,
                "redfish_address": system.redfish,
                "redfish_system_id": format!("/redfish/v1/Systems/{}", system.uuid),
                "redfish_username": lab.bmc_user,
                "redfish_password": password,
            },
        });
        let node = self.send("POST", "/v1/nodes", Some(&node)).unwrap().ok();
        let uuid = node["uuid"].as_str().unwrap().to_owned();
        let port = json!({"node_uuid": uuid, "address": system.mac});
        self.send("POST", "/v1/ports", Some(&port)).unwrap().ok();
        uuid
    }

    /// Asks for a provision state. While Ironic keeps the node locked it is asked again.
    #[track_caller]
    pub fn provision(&self, node: &str, target: &str) {
        let path = format!("/v1/nodes/{node}/states/provision");
        until(&format!("{target} is accepted"), LIMIT, || {
            let answer = self.send("PUT", &path, Some(&json!({"target": target})))?;
            if answer.status == 409 { Err(answer.text) } else { Ok(answer.ok()) }
        });
    }

    /// Waits until a node is in a state and Ironic is done with it; returns the node.
    #[track_caller]
    pub fn wait(&self, node: &str, state: &str, limit: Duration) -> Value {
        until(&format!("node {node} is {state}"), limit, || {
            let found = self.send("GET", &format!("/v1/nodes/{node}"), None)?.body;
            let done = found["target_provision_state"].is_null() || state.ends_with("failed");
            if found["provision_state"] == state && done && found["reservation"].is_null() {
                return Ok(found);
            }
            let keys = ["provision_state", "target_provision_state", "reservation", "last_error"];
            Err(keys.map(|key| format!("{key} {}", found[key])).join(", "))
        })
    }

    /// `manage`, and waits for `manageable`.
    #[track_caller]
    pub fn manage(&self, node: &str) -> Value {
        self.provision(node, "manage");
        self.wait(node, "manageable", LIMIT)
    }

    /// Deletes the nodes of a system, in whatever state they are.
    pub(super) fn remove_nodes(&self, system: &System) {
        let listed = self.get("/v1/nodes?fields=uuid,driver_info&limit=1000").ok();
        for node in listed["nodes"].as_array().unwrap() {
            let path = node["driver_info"]["redfish_system_id"].as_str().unwrap_or_default();
            if !path.contains(&system.uuid) {
                continue;
            }
            let node = format!("/v1/nodes/{}", node["uuid"].as_str().unwrap());
            until(&format!("{node} is deleted"), LIMIT, || {
                // In maintenance a node can be deleted in every state, but not while it is locked.
                let maintenance = format!("{node}/maintenance");
                self.send("PUT", &maintenance, Some(&json!({"reason": "end of test"})))?;
                let answer = self.send("DELETE", &node, None)?;
                if matches!(answer.status, 204 | 404) { Ok(()) } else { Err(answer.text) }
            });
        }
    }
}
