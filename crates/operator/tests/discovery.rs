//! The whole operator on the embedded API: discovery, its results, the agents' DaemonSet, the spec of inventories.

#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    coordination::v1::Lease,
    core::v1::{Event, Namespace, Node, PersistentVolume, Pod},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use quarry_api::{
    LocalVolumeDiscovery, LocalVolumeDiscoveryResult, NodeInventory, admission, crds, names,
};
use quarry_apiserver::{BuiltIn, Options, Server};
use quarry_core::agent_daemon_set::DaemonSetSettings;
use quarry_operator::{OperatorOptions, Registry, group};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{
    fmt::Debug,
    time::{Duration, Instant},
};
use tokio_util::sync::{CancellationToken, DropGuard};

const NAMESPACE: &str = names::DEFAULT_NAMESPACE;

struct World {
    server: Server,
    client: Client,
    _stop: DropGuard,
}

impl World {
    /// An operator without volumes: agents run only where an object requires them, and the kind is not served.
    async fn start(refuses_daemon_sets: bool) -> Self {
        Self::start_with(refuses_daemon_sets, admission::policies()).await
    }

    async fn start_with(refuses_daemon_sets: bool, policies: Vec<admission::Policy>) -> Self {
        let served = crds().into_iter().filter(|crd| crd.spec.names.kind != "Volume").collect();
        let mut options = Options::new(served);
        options.extra_kinds = vec![BuiltIn::of::<DaemonSet>(), BuiltIn::of::<Pod>()];
        options.policies =
            policies.into_iter().map(|policy| (policy.policy, policy.binding)).collect();
        if refuses_daemon_sets {
            let policy = json!({"metadata": {"name": "none"}, "spec": {
                "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["daemonsets"]}]},
                "validations": [{"expression": "false", "message": "no privileged pods here"}],
            }});
            let binding = json!({"metadata": {"name": "none"}, "spec": {"policyName": "none", "validationActions": ["Deny"]}});
            options.policies.push((
                serde_json::from_value(policy).unwrap(),
                serde_json::from_value(binding).unwrap(),
            ));
        }
        let server = Server::in_memory(options);
        let client = server.client("default");
        let stop = CancellationToken::new();
        let world = World { server, client, _stop: stop.clone().drop_guard() };
        world
            .create::<Namespace>(
                Api::all(world.client.clone()),
                json!({"metadata": {"name": NAMESPACE}}),
            )
            .await;
        let options = OperatorOptions {
            namespace: NAMESPACE.into(),
            registry: Registry::standard().select(&[
                group::NODE_INVENTORY,
                group::AGENT_DAEMON_SET,
                group::DISCOVERY,
            ]),
            election_identity: None,
            agent_daemon_set: Some(DaemonSetSettings {
                namespace: NAMESPACE.into(),
                image: "quarry:1".into(),
                image_pull_policy: "Never".into(),
                data_dir: "/var/lib/quarry".into(),
                rescan_interval: SignedDuration::from_mins(60),
                settling_time: SignedDuration::from_mins(1),
                deployment: Some(("quarry-operator".into(), "deployment-uid".into())),
            }),
            job_retention: SignedDuration::from_hours(1),
            hosts: None,
            check_crds: false,
        };
        tokio::spawn(quarry_operator::run(world.client.clone(), options, None, stop));
        world
    }

    async fn create<K>(&self, api: Api<K>, object: Value) -> K
    where
        K: Clone + Debug + DeserializeOwned + serde::Serialize,
    {
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    async fn node(&self, name: &str, labels: Value) {
        let mut labels = labels;
        labels["kubernetes.io/hostname"] = json!(name);
        self.create::<Node>(
            Api::all(self.client.clone()),
            json!({"metadata": {"name": name, "labels": labels}}),
        )
        .await;
    }

    /// As the node's agent does it: a lease, and the inventory's status.
    async fn agent(&self, node: &str, devices: Value) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let uid = nodes.get(node).await.unwrap().metadata.uid.unwrap();
        self.lease(node).await;
        self.report(node, &uid, devices).await;
    }

    async fn lease(&self, node: &str) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let name = names::agent_lease(node);
        let renewed = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
        let lease = json!({"metadata": {"name": name}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 40, "renewTime": renewed}});
        if leases.get_opt(&name).await.unwrap().is_none() {
            self.create(leases, lease).await;
        }
    }

    async fn report(&self, node: &str, uid: &str, devices: Value) {
        let inventories: Api<NodeInventory> = Api::all(self.client.clone());
        self.until("the inventory is made", async || {
            inventories.get_opt(node).await.unwrap().ok_or_else(String::new)
        })
        .await;
        let change = json!({"status": {"nodeUID": uid, "devices": devices}});
        inventories
            .patch_status(node, &PatchParams::default(), &Patch::Merge(change))
            .await
            .unwrap();
    }

    fn discoveries(&self) -> Api<LocalVolumeDiscovery> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn result(&self, node: &str) -> Option<LocalVolumeDiscoveryResult> {
        let api: Api<LocalVolumeDiscoveryResult> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.get_opt(&names::discovery_result(node)).await.unwrap()
    }

    /// The paths in the result of the node, if there is one with a time.
    async fn rows(&self, node: &str) -> Option<Vec<String>> {
        let status = self
            .result(node)
            .await?
            .status
            .filter(|status| !status.discovered_time_stamp.is_empty())?;
        Some(status.discovered_devices.into_iter().map(|device| device.path).collect())
    }

    async fn rows_are(&self, node: &str, wanted: &[&str]) {
        self.until(&format!("{node} lists {wanted:?}"), async || {
            let rows = self.rows(node).await;
            if rows.as_ref().is_some_and(|rows| rows == wanted) {
                Ok(())
            } else {
                Err(format!("{rows:?}"))
            }
        })
        .await;
    }

    async fn set(&self) -> Option<DaemonSet> {
        let api: Api<DaemonSet> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.get_opt(names::AGENT_DAEMON_SET).await.unwrap()
    }

    async fn until<T>(&self, what: &str, mut probe: impl AsyncFnMut() -> Result<T, String>) -> T {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match probe().await {
                Ok(value) => return value,
                Err(seen) => {
                    assert!(Instant::now() < deadline, "gave up on: {what}; last seen: {seen}")
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the conditions say so: `Type=Status Reason` for each, and the words in any message.
    async fn says(
        &self,
        api: &Api<LocalVolumeDiscovery>,
        name: &str,
        conditions: &[&str],
        words: &str,
    ) -> LocalVolumeDiscovery {
        self.until(&format!("{name} says {conditions:?} {words:?}"), async || {
            let found = api.get(name).await.unwrap();
            let status = found.status.clone().unwrap_or_default();
            let said = |wanted: &&str| {
                status.conditions.iter().any(|one| {
                    format!(
                        "{}={} {}",
                        one.kind,
                        one.status,
                        one.reason.as_deref().unwrap_or_default()
                    ) == **wanted
                })
            };
            let reported = status
                .conditions
                .iter()
                .any(|one| one.message.as_deref().unwrap_or_default().contains(words));
            if reported && conditions.iter().all(said) {
                Ok(found)
            } else {
                Err(format!("{status:?}"))
            }
        })
        .await
    }
}

fn in_rack(rack: &str) -> Value {
    json!({"spec": {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": [rack]}]}]}}})
}

fn discovery(name: &str, spec: &Value) -> Value {
    let mut object = spec.clone();
    object["metadata"] = json!({"name": name});
    object["apiVersion"] = json!("local.storage.openshift.io/v1alpha1");
    object["kind"] = json!("LocalVolumeDiscovery");
    object
}

fn disk(name: &str, identity: &str) -> Value {
    json!({"name": name, "type": "disk", "size": 1 << 30, "identity": identity, "state": "Available"})
}

// invariant: 8
#[tokio::test]
async fn selected_nodes_get_results_and_nothing_is_written_at_rest() {
    let world = World::start(false).await;
    world.node("n1", json!({"rack": "a"})).await;
    world.node("n2", json!({"rack": "b"})).await;
    world.agent("n2", json!([disk("sda", "wwn:2")])).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(world.set().await.is_none(), "nothing requires agents");

    let api = world.discoveries();
    let made = world.create(api.clone(), discovery("disks", &in_rack("a"))).await;
    let waiting = [
        "Available=False AgentsMissing",
        "Progressing=True AgentsMissing",
        "Degraded=False AsExpected",
    ];
    world.says(&api, "disks", &waiting, "no agent has been seen on node n1").await;
    let set = world.set().await.unwrap();
    let owners: Vec<String> =
        set.metadata.owner_references.unwrap().into_iter().map(|owner| owner.uid).collect();
    assert_eq!(owners, [made.metadata.uid.unwrap()]);
    assert!(json!(set.spec)["template"]["spec"]["affinity"].to_string().contains("\"rack\""));

    world.agent("n1", json!([disk("sda", "wwn:1")])).await;
    let found = world
        .says(
            &api,
            "disks",
            &["Available=True Discovering", "Progressing=False AsExpected"],
            "the devices of 1 node are listed",
        )
        .await;
    assert_eq!(json!(found.status)["phase"], "Discovering");
    assert_eq!(found.status.unwrap().observed_generation, found.metadata.generation);
    world.rows_are("n1", &["/dev/sda"]).await;
    assert!(world.result("n2").await.is_none(), "n2 is not selected");
    world.agent("n1", json!([disk("sda", "wwn:1"), disk("sdb", "wwn:3")])).await;
    world.rows_are("n1", &["/dev/sda", "/dev/sdb"]).await;
    let events: Api<Event> = Api::namespaced(world.client.clone(), NAMESPACE);
    let wanted = ["CreatedDiscoveryResultObject", "UpdatedDiscoveredDeviceList", "Discovering"];
    world
        .until("all Events are published", async || {
            let reported: Vec<String> = events
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .into_iter()
                .filter_map(|event| event.reason)
                .collect();
            if wanted.iter().all(|wanted| reported.iter().any(|reason| reason == wanted)) {
                Ok(())
            } else {
                Err(format!("{reported:?}"))
            }
        })
        .await;

    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = world.server.write_counts();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.server.write_counts(), before, "at rest nothing is written");

    // Deselected: the other node's is made, this one's stays as it was.
    api.patch("disks", &PatchParams::default(), &Patch::Merge(in_rack("b"))).await.unwrap();
    world.rows_are("n2", &["/dev/sda"]).await;
    let kept = world.result("n1").await;
    world.agent("n1", json!([])).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.result("n1").await, kept, "no updates any more");

    // Deleted by hand: recreated while it is wanted, and not otherwise.
    let results: Api<LocalVolumeDiscoveryResult> = Api::namespaced(world.client.clone(), NAMESPACE);
    for node in ["n1", "n2"] {
        results.delete(&names::discovery_result(node), &DeleteParams::default()).await.unwrap();
    }
    world.rows_are("n2", &["/dev/sda"]).await;
    assert!(world.result("n1").await.is_none());

    api.delete("disks", &DeleteParams::default()).await.unwrap();
    world
        .until("the agents go with the last asker", async || {
            if world.set().await.is_none() { Ok(()) } else { Err(String::new()) }
        })
        .await;
    assert!(world.result("n2").await.is_some(), "results stay");
}

#[tokio::test]
async fn a_node_without_any_device_has_an_empty_list() {
    let world = World::start(false).await;
    world.node("n1", json!({})).await;
    world.create(world.discoveries(), discovery("disks", &json!({"spec": {}}))).await;
    world.agent("n1", json!([])).await;
    world.rows_are("n1", &[]).await;
    let written = json!(world.result("n1").await.unwrap().status);
    assert!(written["discoveredDevices"].is_array(), "an empty list is written, too: {written}");
}

#[tokio::test]
async fn one_discovery_in_the_operators_namespace_is_in_force() {
    let world = World::start(false).await;
    world.node("n1", json!({})).await;
    let api = world.discoveries();
    world.create(api.clone(), discovery("first", &in_rack("nowhere"))).await;
    let second: LocalVolumeDiscovery =
        serde_json::from_value(discovery("second", &json!({"spec": {}}))).unwrap();
    let refused = api.create(&PostParams::default(), &second).await.unwrap_err().to_string();
    assert!(refused.contains("change first instead"), "{refused}");
    let failed = ["Degraded=True NoNodeSelected", "Available=False NoNodeSelected"];
    let found =
        world.says(&api, "first", &failed, "rack In (nowhere) (no node has the label rack)").await;
    assert_eq!(json!(found.status)["phase"], "DiscoveryFailed");
    // The first one itself may be changed.
    api.patch("first", &PatchParams::default(), &Patch::Merge(in_rack("a"))).await.unwrap();
    world.says(&api, "first", &["Degraded=True NoNodeSelected"], "rack In (a)").await;
    let wrong = json!({"spec": {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "Gt", "values": ["x"]}]}]}}});
    api.patch("first", &PatchParams::default(), &Patch::Merge(wrong)).await.unwrap();
    let words = "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].values contains \"x\"";
    world.says(&api, "first", &["Degraded=True InvalidSpec"], words).await;

    let elsewhere: Api<LocalVolumeDiscovery> = Api::namespaced(world.client.clone(), "default");
    world.create(elsewhere.clone(), discovery("stray", &json!({"spec": {}}))).await;
    world
        .says(
            &elsewhere,
            "stray",
            &["Degraded=True OutsideOperatorNamespace"],
            "create it in namespace quarry-system",
        )
        .await;

    // One that is going does not count.
    let held = json!({"metadata": {"finalizers": ["test/held"]}});
    api.patch("first", &PatchParams::default(), &Patch::Merge(held)).await.unwrap();
    api.delete("first", &DeleteParams::default()).await.unwrap();
    world.create(api.clone(), discovery("second", &json!({"spec": {}}))).await;
    world.says(&api, "second", &["Progressing=True AgentsMissing"], "node n1").await;
}

#[tokio::test]
async fn a_refused_daemon_set_is_reported_with_the_answer() {
    let world = World::start(true).await;
    world.node("n1", json!({})).await;
    let api = world.discoveries();
    world.create(api.clone(), discovery("disks", &json!({"spec": {}}))).await;
    let found = world
        .says(
            &api,
            "disks",
            &["Degraded=True DaemonSetFailed", "Available=False DaemonSetFailed"],
            "no privileged pods here",
        )
        .await;
    assert_eq!(json!(found.status)["phase"], "DiscoveryFailed");
}

// invariant: 9
#[tokio::test]
async fn without_its_policy_no_agent_is_started() {
    let world = World::start_with(false, admission::embedded_policies()).await;
    world.node("n1", json!({})).await;
    let api = world.discoveries();
    world.create(api.clone(), discovery("disks", &json!({"spec": {}}))).await;
    let failed = ["Degraded=True AgentsNotConfined", "Available=False AgentsNotConfined"];
    let found = world
        .says(
            &api,
            "disks",
            &failed,
            "ValidatingAdmissionPolicy quarry-agent-own-node does not exist",
        )
        .await;
    assert_eq!(json!(found.status)["phase"], "DiscoveryFailed");
    let events: Api<Event> = Api::namespaced(world.client.clone(), NAMESPACE);
    world
        .until("the operator's Deployment has an Event", async || {
            let all = events.list(&ListParams::default()).await.unwrap().items;
            let on_deployment = |event: &&Event| {
                event.involved_object.kind.as_deref() == Some("Deployment")
                    && event.reason.as_deref() == Some("AgentsNotConfined")
            };
            match all.iter().find(on_deployment).and_then(|event| event.message.clone()) {
                Some(message) => Ok(message),
                None => Err(format!("{all:?}")),
            }
        })
        .await;
    assert!(world.set().await.is_none(), "nothing is deployed");
}

#[tokio::test]
async fn a_daemon_set_of_another_project_is_left_alone() {
    let world = World::start(false).await;
    world.node("n1", json!({})).await;
    let labels = json!({"app": "theirs"});
    let theirs = json!({"metadata": {"name": names::AGENT_DAEMON_SET}, "spec": {
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "theirs:1"}]}},
    }});
    let sets: Api<DaemonSet> = Api::namespaced(world.client.clone(), NAMESPACE);
    let made = world.create(sets.clone(), theirs).await;
    let api = world.discoveries();
    world.create(api.clone(), discovery("disks", &json!({"spec": {}}))).await;
    let failed = ["Degraded=True DaemonSetFailed", "Available=False DaemonSetFailed"];
    let found = world
        .says(
            &api,
            "disks",
            &failed,
            "DaemonSet quarry-agent in namespace quarry-system is not managed by Quarry",
        )
        .await;
    assert_eq!(json!(found.status)["phase"], "DiscoveryFailed");
    assert_eq!(world.set().await.unwrap(), made);
    api.delete("disks", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.set().await.unwrap(), made);
}

#[tokio::test]
async fn a_node_is_listed_when_its_own_agent_has_reported() {
    let world = World::start(false).await;
    world.node("n1", json!({})).await;
    let api = world.discoveries();
    world.create(api.clone(), discovery("disks", &json!({"spec": {}}))).await;
    world.lease("n1").await;
    let waiting = [
        "Available=False DevicesNotReported",
        "Progressing=True DevicesNotReported",
        "Degraded=False AsExpected",
    ];
    world.says(&api, "disks", &waiting, "1 of 1 node has not reported its devices yet: n1").await;
    // What the machine said that had this name before does not count.
    world.report("n1", "another", json!([disk("sda", "wwn:1")])).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.says(&api, "disks", &waiting, "n1").await;
    world.agent("n1", json!([disk("sda", "wwn:1")])).await;
    world
        .says(&api, "disks", &["Available=True Discovering"], "the devices of 1 node are listed")
        .await;
}

#[tokio::test]
async fn a_node_with_device_claims_keeps_agent_and_inventory() {
    let world = World::start(false).await;
    world.node("n1", json!({})).await;
    let inventories: Api<NodeInventory> = Api::all(world.client.clone());
    world.agent("n1", json!([disk("sda", "wwn:1")])).await;
    let claim = json!({"spec": {"deviceClaims": [{"identity": "wwn:1", "owner": {"kind": "LocalVolumeSet", "name": "s", "uid": "x"}}]}});
    inventories.patch("n1", &PatchParams::default(), &Patch::Merge(claim)).await.unwrap();
    let set = world
        .until("the claim keeps its agent", async || world.set().await.ok_or_else(String::new))
        .await;
    assert!(json!(set.spec)["template"]["spec"]["affinity"].to_string().contains("\"n1\""));
    assert_eq!(
        set.metadata.owner_references.unwrap()[0].uid,
        "deployment-uid",
        "no asker's deletion takes it away"
    );
    world
        .until("the finalizer is there", async || {
            let found =
                inventories.get("n1").await.unwrap().metadata.finalizers.unwrap_or_default();
            if found == [names::DEVICE_CLAIMS_FINALIZER] {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    nodes.delete("n1", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(inventories.get("n1").await.unwrap().spec.device_claims.len(), 1);
    inventories
        .patch("n1", &PatchParams::default(), &Patch::Merge(json!({"spec": {"deviceClaims": []}})))
        .await
        .unwrap();
    let gone = async || {
        if inventories.get_opt("n1").await.unwrap().is_none() { Ok(()) } else { Err(String::new()) }
    };
    world.until("it goes with its last claim", gone).await;
}

// invariant: 3
#[tokio::test]
async fn an_inventory_holds_what_only_the_cluster_knows() {
    let world = World::start(false).await;
    let inventories: Api<NodeInventory> = Api::all(world.client.clone());
    for node in ["n1", "n2", "n3"] {
        world.node(node, json!({})).await;
    }
    world.agent("n1", json!([disk("sda", "wwn:1"), disk("sdb", "wwn:9")])).await;
    world.agent("n2", json!([disk("sdx", "wwn:9")])).await;
    world.agent("n3", json!([disk("sda", "wwn:3")])).await;
    let spec = async |node: &str| json!(inventories.get(node).await.unwrap().spec);
    let holds = async |node: &str, wanted: Value| {
        let reported = async || {
            let found = spec(node).await;
            if found == wanted { Ok(()) } else { Err(found.to_string()) }
        };
        world.until(&format!("the inventory of {node} has {wanted}"), reported).await;
    };
    let elsewhere = |detail: &str| json!([{"identity": "wwn:9", "reason": "IdentityElsewhere", "detail": detail}]);
    holds("n1", json!({"quarantine": elsewhere("sdx of node n2")})).await;
    holds("n2", json!({"quarantine": elsewhere("sdb of node n1")})).await;
    holds("n3", json!({})).await;
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n3"]}]}]}});
    let pv = json!({"metadata": {"name": "lso", "annotations": {names::LSO_DEVICE_ID_ANNOTATION: "wwn-3"}}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/mnt/local-storage/fast/wwn-3"}, "nodeAffinity": affinity, "storageClassName": "fast",
    }});
    let pvs: Api<PersistentVolume> = Api::all(world.client.clone());
    world.create(pvs.clone(), pv).await;
    holds("n3", json!({"unmanagedPVs": [{"name": "lso", "path": "/mnt/local-storage/fast/wwn-3", "deviceID": "wwn-3"}]})).await;
    // Kubernetes holds a volume with a finalizer of its own until it is unused; here it is unused.
    let free = json!({"metadata": {"finalizers": null}});
    pvs.patch("lso", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    pvs.delete("lso", &DeleteParams::default()).await.unwrap();
    holds("n3", json!({})).await;
    // The disk is seen by one node only, again.
    world.agent("n2", json!([])).await;
    holds("n1", json!({})).await;
    holds("n2", json!({})).await;
}
