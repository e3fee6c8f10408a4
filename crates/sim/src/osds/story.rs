//! The stories of OSDs: what people do, to the API, to devices and to Ceph, each when its time has come.

use super::machine::{FSID, Machine, OTHER_FSID};
use crate::{kind::Kind, world::World};
use quarry_api::names::ceph;
use quarry_ceph::{Content, Label};
use serde_json::{Value, json};
use std::time::Duration;

pub const CLUSTER: &str = "c1";
pub const SET: &str = "s";
const CLASS: &str = "local";
const FAST: &str = "local-fast";

#[derive(Clone, Debug)]
pub enum Step {
    Create(Kind, Value),
    /// Its name is found when the time has come.
    Delete(Kind, fn(&View<'_>) -> String),
    Patch(Kind, &'static str, Value),
    Status(Kind, &'static str, Value),
    Await(&'static str, fn(&View<'_>) -> bool),
    /// Something happens to a device, or to Ceph.
    Machine(&'static str, fn(&mut Machine)),
    Pause(Duration),
}

pub struct View<'a> {
    pub world: &'a World,
    pub machine: &'a Machine,
}

impl View<'_> {
    fn condition(&self, cluster: &str) -> Option<&Value> {
        let cluster = self.world.get(Kind::CephCluster, cluster)?;
        let all = cluster["status"]["conditions"].as_array()?;
        all.iter().find(|one| one["type"] == ceph::DEVICE_SETS_READY)
    }

    pub fn says(&self, cluster: &str, words: &str) -> bool {
        let found = self.condition(cluster);
        found.is_some_and(|one| one["message"].as_str().is_some_and(|text| text.contains(words)))
    }

    /// As many OSDs run as there are to be.
    fn is_ready(&self, count: usize) -> bool {
        let found = self.condition(CLUSTER);
        self.machine.running.len() == count
            && found.is_some_and(|one| one["status"] == "True")
            && self.says(CLUSTER, &format!("{count} Running"))
    }

    fn is_blocked(&self, cluster: &str, reason: &str) -> bool {
        self.condition(cluster).is_some_and(|one| one["reason"] == reason)
    }

    fn first(&self, kind: Kind) -> String {
        let found = self.world.all(kind).find(|one| {
            // Not the `ceph.conf` of all of them.
            kind != Kind::ConfigMap || one["metadata"]["labels"][ceph::PVC_LABEL].is_string()
        });
        let name = found.and_then(|one| one["metadata"]["name"].as_str());
        name.unwrap_or_default().to_owned()
    }
}

#[derive(Clone, Debug)]
pub struct Story {
    pub name: &'static str,
    pub steps: Vec<Step>,
    /// How far each operator is always behind.
    pub operators: Vec<Duration>,
    /// PVCs that there may be.
    pub claims: usize,
    /// Nothing is tried again at its end.
    pub rests: bool,
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
    })
}

pub fn volume(name: &str, class: &str, node: &str) -> Value {
    let of_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Block", "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": class, "local": {"path": format!("/mnt/{name}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [of_node]}]}},
        },
    })
}

fn secret(name: &str, data: Value) -> Step {
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data,
    });
    Step::Create(Kind::Secret, object)
}

fn template(role: &str, class: &str) -> Value {
    json!({
        "metadata": {"name": role},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

fn set(count: usize, templates: &[Value]) -> Value {
    json!([{"name": SET, "count": count, "volumeClaimTemplates": templates}])
}

fn cluster(name: &str, sets: &Value) -> Step {
    let object = json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "metadata": {"name": name},
        "spec": {
            "cephVersion": {"image": "quay.example/ceph:v16"}, "dataDirHostPath": "/var/lib/rook",
            "storage": {"storageClassDeviceSets": sets},
        },
    });
    Step::Create(Kind::CephCluster, object)
}

/// Nodes, classes, access to Ceph, and these volumes.
fn ground(volumes: &[(&str, &str, &str)]) -> Vec<Step> {
    let class = |name: &str| {
        let object = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
        });
        Step::Create(Kind::Class, object)
    };
    let mut steps = vec![
        Step::Create(Kind::Node, node("n1")),
        Step::Create(Kind::Node, node("n2")),
        class(CLASS),
        class(FAST),
        secret(ceph::MON_SECRET, json!({"fsid": FSID})),
        secret(ceph::CONFIG_SECRET, json!({"mon_host": "10.0.0.1"})),
        secret(ceph::ADMIN_KEYRING_SECRET, json!({"keyring": "[client.admin]\n  key = x\n"})),
    ];
    let all = volumes.iter();
    steps.extend(all.map(|(name, class, node)| Step::Create(Kind::Pv, volume(name, class, node))));
    steps
}

const TWO: [(&str, &str, &str); 2] = [("pv-a", CLASS, "n1"), ("pv-b", CLASS, "n2")];

fn data() -> [Value; 1] {
    [template("data", CLASS)]
}

fn made(count: usize) -> Vec<Step> {
    let mut steps = ground(&TWO);
    steps.push(cluster(CLUSTER, &set(count, &data())));
    steps
}

fn one_ready() -> Step {
    Step::Await("one OSD runs", |view| view.is_ready(1))
}

fn two_ready() -> Step {
    Step::Await("two OSDs run", |view| view.is_ready(2))
}

fn story(name: &'static str, claims: usize, steps: Vec<Step>) -> Story {
    Story { name, steps, operators: vec![Duration::ZERO], claims, rests: true }
}

fn with(first: Vec<Step>, then: impl IntoIterator<Item = Step>) -> Vec<Step> {
    first.into_iter().chain(then).collect()
}

fn metadata() -> Vec<Step> {
    // Only the second node has both.
    let volumes = [("pv-a", CLASS, "n1"), ("pv-b", CLASS, "n2"), ("pv-f", FAST, "n2")];
    let templates = [template("data", CLASS), template("metadata", FAST)];
    with(ground(&volumes), [cluster(CLUSTER, &set(1, &templates)), one_ready()])
}

fn scaled() -> Vec<Step> {
    let wanted = json!({"spec": {"storage": {"storageClassDeviceSets": set(2, &data())}}});
    let less = json!({"spec": {"storage": {"storageClassDeviceSets": set(1, &data())}}});
    with(
        made(1),
        [
            one_ready(),
            Step::Patch(Kind::CephCluster, CLUSTER, wanted),
            two_ready(),
            Step::Patch(Kind::CephCluster, CLUSTER, less),
            Step::Await("fewer are reported, and stay", |view| {
                view.says(CLUSTER, "its count is 1") && view.machine.running.len() == 2
            }),
        ],
    )
}

/// What another cluster's OSD has left.
fn foreign() -> Content {
    let uuid: quarry_ceph::Uuid = "1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10".parse().expect("a UUID");
    Content::Label(Label {
        osd_uuid: uuid,
        size: 1 << 30,
        description: "main".to_owned(),
        ceph_fsid: OTHER_FSID.parse().ok(),
        whoami: Some(0),
        osd_key: Some(Machine::bootstrap_key()),
        ready: true,
    })
}

fn fill(machine: &mut Machine, volume: &str, content: Content) {
    machine.add_device(volume);
    if let Some(device) = machine.devices.get_mut(volume) {
        device.content = content;
    }
}

fn refused() -> Vec<Step> {
    let data_on_it = |machine: &mut Machine| {
        fill(machine, "pv-a", Content::Other("ext4 file system".to_owned()))
    };
    with(
        vec![Step::Machine("a device has data", data_on_it)],
        with(
            made(2),
            [
                Step::Await("one is refused, the other runs", |view| {
                    view.says(CLUSTER, "ext4") && view.machine.running.len() == 1
                }),
                Step::Machine("the device is wiped", |machine| {
                    fill(machine, "pv-a", Content::Blank);
                }),
                two_ready(),
            ],
        ),
    )
}

fn of_another_cluster() -> Vec<Step> {
    with(
        vec![Step::Machine("a device of another cluster", |machine| {
            fill(machine, "pv-a", foreign());
        })],
        with(
            made(2),
            [
                Step::Await("one is refused, the other runs", |view| {
                    view.says(CLUSTER, OTHER_FSID) && view.machine.running.len() == 1
                }),
                Step::Pause(Duration::from_secs(1200)),
                Step::Await("it is as it was", |view| {
                    view.machine.devices["pv-a"].content == foreign()
                        && view.machine.ceph.osds.len() == 1
                }),
            ],
        ),
    )
}

fn monitors_down() -> Vec<Step> {
    with(
        vec![Step::Machine("the monitors are down", |machine| machine.ceph.is_reachable = false)],
        with(
            made(1),
            [
                Step::Await("the failure is reported", |view| {
                    view.says(CLUSTER, "PrepareFailed: MonitorsUnreachable")
                }),
                Step::Machine("the monitors are up", |machine| machine.ceph.is_reachable = true),
                one_ready(),
            ],
        ),
    )
}

fn hangs() -> Vec<Step> {
    with(
        vec![Step::Machine("a device hangs", |machine| {
            machine.hang.insert("pv-a".to_owned());
        })],
        with(
            made(2),
            [
                Step::Await("the other one runs", |view| {
                    view.machine.running.len() == 1 && view.says(CLUSTER, "1 Running")
                }),
                Step::Pause(Duration::from_secs(1000)),
                Step::Machine("the device responds", |machine| machine.hang.clear()),
                two_ready(),
            ],
        ),
    )
}

/// All that is known of an OSD but its device is gone: it is found again by preparing, which adopts.
fn forgotten() -> Vec<Step> {
    with(
        made(1),
        [
            one_ready(),
            Step::Delete(Kind::ConfigMap, |view| view.first(Kind::ConfigMap)),
            Step::Delete(Kind::PrepareJob, |view| view.first(Kind::PrepareJob)),
            Step::Delete(Kind::Deployment, |view| view.first(Kind::Deployment)),
            Step::Await("it is gone", |view| view.machine.running.is_empty()),
            one_ready(),
        ],
    )
}

fn claim_lost() -> Vec<Step> {
    with(
        made(1),
        [
            one_ready(),
            Step::Delete(Kind::OsdClaim, |view| view.first(Kind::OsdClaim)),
            Step::Await("it is reported", |view| view.says(CLUSTER, "1 ClaimLost")),
        ],
    )
}

fn no_device() -> Vec<Step> {
    let third = volume("pv-c", CLASS, "n1");
    let mut steps = ground(&TWO[..1]);
    steps.extend([
        cluster(CLUSTER, &set(2, &data())),
        Step::Await("one has no device", |view| {
            view.says(CLUSTER, "1 Unscheduled") && view.machine.running.len() == 1
        }),
        Step::Create(Kind::Pv, third),
        two_ready(),
    ]);
    steps
}

fn rook() -> Vec<Step> {
    let name = ceph::OPERATOR_APP;
    let labels = json!({ceph::APP_LABEL: name});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "x"}]}},
        },
    });
    let mut steps = vec![
        Step::Create(Kind::Deployment, deployment),
        Step::Status(Kind::Deployment, name, json!({"status": {"readyReplicas": 1}})),
    ];
    steps.extend(made(1));
    steps.extend([
        Step::Await("it is reported", |view| view.is_blocked(CLUSTER, "ServedByRook")),
        Step::Pause(Duration::from_secs(300)),
        Step::Await("nothing was touched", |view| {
            view.world.all(Kind::OsdClaim).count() == 0
                && view.world.all(Kind::ConfigMap).count() == 0
        }),
        Step::Status(Kind::Deployment, name, json!({"status": {"readyReplicas": 0}})),
        one_ready(),
    ]);
    steps
}

fn second_cluster() -> Vec<Step> {
    let sets = json!([{"name": "other", "count": 1, "volumeClaimTemplates": data()}]);
    with(
        made(1),
        [
            one_ready(),
            cluster("c2", &sets),
            Step::Await("the second is not served", |view| {
                view.is_blocked("c2", "OtherClusterServed")
            }),
        ],
    )
}

pub fn stories() -> Vec<Story> {
    let two = [Duration::ZERO, Duration::from_secs(3)];
    vec![
        story("life", 2, with(made(2), [two_ready()])),
        story("metadata", 2, metadata()),
        story("scaled", 2, scaled()),
        story("refused", 2, refused()),
        Story { rests: false, ..story("another-cluster", 2, of_another_cluster()) },
        story("monitors-down", 1, monitors_down()),
        story("hangs", 2, hangs()),
        story("forgotten", 1, forgotten()),
        story("claim-lost", 1, claim_lost()),
        story("no-device", 2, no_device()),
        story("rook", 1, rook()),
        story("second-cluster", 1, second_cluster()),
        Story { operators: two.to_vec(), ..story("two-leaders", 2, with(made(2), [two_ready()])) },
    ]
}

pub fn find(name: &str) -> Option<Story> {
    stories().into_iter().find(|story| story.name == name)
}
