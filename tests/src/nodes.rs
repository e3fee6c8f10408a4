//! Fixture of the three-node part of the cluster tier: the cluster of `scripts/kube-nodes` that this
//! process runs in, with Quarry installed from `deploy/` by an overlay that sets another namespace.
//!
//! Nodes are switched off and on, their network is cut, disks are plugged in and pulled. Every wait
//! polls with a deadline; no test depends on which of two processes is faster. What a fixture changes
//! it restores when it is dropped.

use crate::lab::{get, kubectl, repository, run, text, try_run, until};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
    sync::OnceLock,
    time::Duration,
};

pub const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// Not the one of `deploy/`: everything must follow the overlay.
pub const NAMESPACE: &str = "storage";
pub const LIMIT: Duration = Duration::from_secs(60);

pub fn directory() -> PathBuf {
    let directory = std::env::var("QUARRY_LAB_DIR").expect("set by the runner of the tier");
    assert!(Path::new(&directory).join("nodes").exists(), "{directory} has one node, not three");
    PathBuf::from(directory)
}

/// `kube-nodes COMMAND DIR ARGUMENTS…`
pub fn nodes(command: &str, arguments: &[&str]) -> String {
    let output = try_nodes(command, arguments);
    let printed = text(&output.stdout);
    assert!(
        output.status.success(),
        "kube-nodes {command} {arguments:?}\n{printed}{}",
        text(&output.stderr)
    );
    printed.trim().to_owned()
}

fn try_nodes(command: &str, arguments: &[&str]) -> Output {
    let script = repository().join("scripts/kube-nodes");
    let directory = directory();
    let base = [command, directory.to_str().expect("the path of the lab is UTF-8")];
    try_run(&script.to_string_lossy(), &[&base, arguments].concat(), None)
}

/// kubectl in the namespace of Quarry.
pub fn kubectl_there(arguments: &[&str]) -> String {
    kubectl(&[&["-n", NAMESPACE], arguments].concat())
}

/// Installs Quarry once per test binary: two operators on two nodes, of which one leads. Every test
/// begins with all nodes on and connected, whatever a failed one has left.
pub fn installed() {
    static DONE: OnceLock<()> = OnceLock::new();
    for node in NODES {
        if !try_nodes("node", &[node, "true"]).status.success() {
            power_on(node);
        }
        nodes("cable", &[node, "in"]);
    }
    DONE.get_or_init(|| {
        install();
        until("every agent has published its inventory", LIMIT, || {
            let count = NODES.iter().filter(|node| {
                get(&["nodeinventory", node])
                    .is_some_and(|inventory| inventory["status"]["nodeUID"].is_string())
            });
            let count = count.count();
            if count == NODES.len() { Ok(()) } else { Err(format!("{count} inventories")) }
        });
    });
    agents_ready();
}

fn install() {
    let overlay = directory().join("overlay");
    fs::create_dir_all(&overlay).expect("the directory of the lab is writable");
    let to = repository().join("deploy");
    let relative = format!("--relative-to={}", overlay.display());
    let deploy = run("realpath", &[&relative, &to.to_string_lossy()]).trim().to_owned();
    let labels = json!({"app.kubernetes.io/name": "quarry-operator"});
    let apart = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}]);
    let affinity =
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}});
    let patch = json!([
        {"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": ["operator", "--agent-settling-time=1s"]},
        {"op": "add", "path": "/spec/template/spec/affinity", "value": affinity},
    ]);
    let kustomization = json!({
        "namespace": NAMESPACE,
        "resources": [deploy],
        "replicas": [{"name": "quarry-operator", "count": 2}],
        "patches": [{"target": {"kind": "Deployment", "name": "quarry-operator"}, "patch": patch.to_string()}],
    });
    fs::write(overlay.join("kustomization.yaml"), kustomization.to_string())
        .expect("the overlay is writable");
    until("the manifests are accepted", LIMIT, || {
        let output = try_run("kubectl", &["apply", "-k", &overlay.to_string_lossy()], None);
        // The first attempt may name kinds whose CRDs are not served yet.
        if output.status.success() { Ok(()) } else { Err(text(&output.stderr)) }
    });
    agents_ready();
}

/// Waits until every node has its agent.
pub fn agents_ready() {
    until("every node has its agent", LIMIT, || {
        let set = get(&["-n", NAMESPACE, "daemonset", "quarry-agent"]).unwrap_or_default();
        let ready = set["status"]["numberReady"].as_u64().unwrap_or_default();
        if ready == NODES.len() as u64 { Ok(()) } else { Err(set["status"].to_string()) }
    });
}

/// The pod of a node's agent: the one that stays.
pub fn agent_pod(node: &str) -> Option<Value> {
    let on_node = format!("spec.nodeName={node}");
    let label = "app.kubernetes.io/name=quarry-agent";
    let pods = get(&["-n", NAMESPACE, "pods", "-l", label, "--field-selector", &on_node])?;
    let mut pods = pods["items"].as_array().cloned().unwrap_or_default();
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    if pods.len() == 1 { pods.pop() } else { None }
}

/// The process of a node's agent: its PID here, and whether it is stopped.
pub fn agent_process(node: &str) -> Option<(u32, bool)> {
    let name = format!("NODE_NAME={node}");
    let entries = fs::read_dir("/proc").ok()?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.into_iter().find_map(|pid| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mut words = command.split(|byte| *byte == 0);
        let ours = words.next()?.ends_with(b"quarry")
            && words.next()? == b"agent"
            && environment.split(|byte| *byte == 0).any(|one| one == name.as_bytes());
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok().filter(|_| ours)?;
        let state = stat.rsplit_once(") ")?.1.chars().next()?;
        Some((pid, state == 'T'))
    })
}

/// The token that the running agent of a node uses, read from its own file system.
pub fn agent_token(node: &str) -> String {
    until(&format!("the agent of {node} has a token"), LIMIT, || {
        let (pid, _) = agent_process(node).ok_or("no process")?;
        let path = format!("/proc/{pid}/root/var/run/secrets/kubernetes.io/serviceaccount/token");
        fs::read_to_string(path).map_err(|error| error.to_string())
    })
}

/// The pod of the operator that leads, and its node.
pub fn leader() -> (String, String) {
    until("an operator leads", LIMIT, || {
        let lease = get(&["-n", NAMESPACE, "lease", "quarry-operator"]).ok_or("no Lease")?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        let pod = get(&["-n", NAMESPACE, "pod", &holder]).unwrap_or_default();
        match pod["spec"]["nodeName"].as_str() {
            Some(node) if !holder.is_empty() => Ok((holder, node.to_owned())),
            _ => Err(lease["spec"].to_string()),
        }
    })
}

/// The nodes on which the leader does not run.
pub fn other_nodes() -> Vec<&'static str> {
    let (_, node) = leader();
    NODES.into_iter().filter(|one| *one != node).collect()
}

/// Kills every process of the node, as a power cut does.
pub fn power_off(node: &str) {
    nodes("power", &[node, "off"]);
}

/// Until the node is Ready.
pub fn power_on(node: &str) {
    nodes("power", &[node, "on"]);
}

/// A node whose network is cut; connected again on drop.
pub struct CutNetwork<'a>(&'a str);

impl<'a> CutNetwork<'a> {
    pub fn of(node: &'a str) -> Self {
        nodes("cable", &[node, "out"]);
        CutNetwork(node)
    }
}

impl Drop for CutNetwork<'_> {
    fn drop(&mut self) {
        try_nodes("cable", &[self.0, "in"]);
    }
}

/// An agent that stops itself at a failpoint: from then on its node does what it was doing.
pub struct StoppedAgent {
    node: String,
    failpoint: String,
}

impl StoppedAgent {
    /// Replaces the node's agent by one that stops at the failpoint when it gets there. The
    /// DaemonSet has the variable only while that pod is created; it replaces no pod on its own.
    pub fn at(node: &str, failpoint: &str) -> Self {
        let env = |entry: Value| {
            json!({"spec": {"template": {"spec": {"containers": [{"name": "agent", "env": [entry]}]}}}}).to_string()
        };
        let patch = |entry: Value| {
            kubectl_there(&["patch", "daemonset", "quarry-agent", "-p", &env(entry)]);
        };
        let value = format!("{failpoint}!stop");
        patch(json!({"name": "QUARRY_FAILPOINT", "value": value}));
        replace_agent(node, Some(&value));
        patch(json!({"name": "QUARRY_FAILPOINT", "$patch": "delete"}));
        StoppedAgent { node: node.to_owned(), failpoint: failpoint.to_owned() }
    }

    /// Waits until the agent is there.
    pub fn reached(&self) -> u32 {
        until(&format!("the agent of {} is at {}", self.node, self.failpoint), LIMIT, || {
            match agent_process(&self.node) {
                Some((pid, true)) => Ok(pid),
                other => Err(format!("{other:?}")),
            }
        })
    }

    /// A power cut while it is there; then the node starts again, with an agent as all others.
    pub fn power_cycle(self, meanwhile: impl FnOnce()) {
        self.reached();
        power_off(&self.node);
        meanwhile();
        // The pod that would start again has the failpoint.
        let pod = agent_pod(&self.node);
        let pod = pod.as_ref().and_then(|pod| pod["metadata"]["name"].as_str());
        if let Some(pod) = pod {
            kubectl_there(&["delete", "pod", pod, "--force", "--grace-period=0"]);
        }
        power_on(&self.node);
        agents_ready();
    }

    /// The agent continues, and keeps running.
    pub fn resume(self) {
        let pid = self.reached();
        run("kill", &["-CONT", &pid.to_string()]);
    }
}

/// Deletes the agent of a node and waits until the new one, with this failpoint, is ready.
pub fn replace_agent(node: &str, failpoint: Option<&str>) {
    let old = agent_pod(node).unwrap_or_default();
    let name = old["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    kubectl_there(&["delete", "pod", &name, "--grace-period=1", "--wait=false"]);
    until(&format!("{node} has a new agent"), LIMIT, || {
        let pod = agent_pod(node).unwrap_or_default();
        let container = &pod["spec"]["containers"][0];
        let env = container["env"].as_array().cloned().unwrap_or_default();
        let set = env.iter().find(|one| one["name"] == "QUARRY_FAILPOINT");
        let right = set.and_then(|one| one["value"].as_str()) == failpoint;
        let is_new = pod["metadata"]["uid"] != old["metadata"]["uid"];
        let ready = pod["status"]["containerStatuses"][0]["ready"] == true;
        if is_new && right && ready { Ok(()) } else { Err(pod["status"].to_string()) }
    });
}

/// A disk with a world-wide name, which can be plugged in anywhere; pulled on drop.
pub struct Disk {
    pub name: String,
    /// `/dev/loop7`
    pub device: String,
}

impl Disk {
    pub fn new(name: &str, mebibytes: u64, at: &[&str]) -> Self {
        let size = format!("{mebibytes}M");
        let device = nodes("disk", &[&[name, size.as_str()], at].concat());
        Disk { name: name.to_owned(), device }
    }

    /// Plugged in at these nodes from now on, and at no other.
    pub fn plug(&self, at: &[&str]) {
        nodes("plug", &[&[self.name.as_str()], at].concat());
    }

    /// As a node's inventory lists it.
    pub fn on(&self, node: &str) -> Option<Value> {
        let inventory = get(&["nodeinventory", node])?;
        let devices = inventory["status"]["devices"].as_array().cloned().unwrap_or_default();
        let name = self.device.trim_start_matches("/dev/");
        devices.into_iter().find(|device| device["name"] == name)
    }

    /// Waits until the node lists it with (or without) these reasons.
    pub fn wait_listed(&self, node: &str, reasons: &[&str]) -> Value {
        until(&format!("{node} lists {} with {reasons:?}", self.name), LIMIT, || {
            let device = self.on(node).ok_or("not listed")?;
            let all = device["reasons"].as_array().cloned().unwrap_or_default();
            let has = |reason: &str| all.iter().any(|one| one["reason"] == reason);
            if reasons.iter().all(|reason| has(reason)) {
                Ok(device)
            } else {
                Err(device.to_string())
            }
        })
    }

    /// Whether these bytes are anywhere on it.
    pub fn contains(&self, secret: &str) -> bool {
        let file = directory().join("san").join(format!("{}.img", self.name));
        // A search in a debug build would take seconds.
        let found = try_run("grep", &["-qaF", secret, &file.to_string_lossy()], None);
        assert!(matches!(found.status.code(), Some(0 | 1)), "{}", text(&found.stderr));
        found.status.success()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        try_nodes("plug", &[&self.name]);
    }
}

/// A LocalVolumeSet for the disks of one size; deleted on drop, with what uses it.
pub struct Set(pub String);

impl Set {
    pub fn new(name: &str, mebibytes: u64) -> Self {
        let size = format!("{mebibytes}Mi");
        let inclusion = json!({"deviceTypes": ["loop"], "minSize": size, "maxSize": size});
        let spec = json!({"storageClassName": name, "volumeMode": "Block", "deviceInclusionSpec": inclusion});
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let set = json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": metadata, "spec": spec});
        crate::lab::apply(&set.to_string());
        Set(name.to_owned())
    }

    pub fn pvs(&self) -> Vec<Value> {
        let label = format!("storage.openshift.com/owner-name={}", self.0);
        let list = get(&["pv", "-l", &label]).unwrap_or_default();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until it has this many PersistentVolumes, all Available.
    pub fn wait_available(&self, count: usize) -> Vec<Value> {
        self.wait_pvs(&format!("{count} Available"), |pvs| {
            pvs.len() == count && pvs.iter().all(is_available)
        })
    }

    pub fn wait_pvs(&self, what: &str, is_met: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        until(&format!("{} has {what}", self.0), LIMIT, || {
            let pvs = self.pvs();
            if is_met(&pvs) { Ok(pvs) } else { Err(json!(pvs).to_string()) }
        })
    }

    /// Waits until a device of a node is at this stage, as `quarry sets` shows it.
    pub fn wait_stage(&self, node: &str, stage: &str) {
        until(&format!("{} is {stage} on {node}", self.0), LIMIT, || {
            let shown = crate::lab::quarry(&["sets", "-n", NAMESPACE, "-o", "json"]);
            let all: Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
            let own = all.as_array().into_iter().flatten().find(|one| one["name"] == self.0);
            let nodes = own.and_then(|own| own["nodes"].as_array().cloned()).unwrap_or_default();
            let found = nodes.iter().filter(|one| one["node"] == node);
            let mut devices = found.flat_map(|one| one["devices"].as_array().cloned());
            let met = devices.any(|all| all.iter().any(|device| device["eligibility"] == stage));
            if met { Ok(()) } else { Err(text(&shown.stdout) + &text(&shown.stderr)) }
        });
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let arguments = ["delete", "pods,pvc", "--all", "--grace-period=0", "--timeout=30s"];
        try_run("kubectl", &arguments, None);
        let delete = ["-n", NAMESPACE, "delete", "localvolumeset", &self.0, "--timeout=30s"];
        try_run("kubectl", &delete, None);
    }
}

pub fn is_available(pv: &Value) -> bool {
    pv["status"]["phase"] == "Available" && pv["metadata"]["deletionTimestamp"].is_null()
}

/// The node of a PersistentVolume, by its affinity.
pub fn node_of(pv: &Value) -> &str {
    let terms = &pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    terms[0]["matchExpressions"][0]["values"][0].as_str().unwrap_or_default()
}

/// The NodeJobs of an owner, by its UID.
pub fn jobs_of(owner: &str) -> Vec<Value> {
    let list = get(&["nodejobs"]).unwrap_or_default();
    let mut jobs = list["items"].as_array().cloned().unwrap_or_default();
    jobs.retain(|job| job["spec"]["owner"]["uid"] == owner);
    jobs
}
