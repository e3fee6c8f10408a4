//! The six examples of the design, and fifty OSDs with one that hangs, on the real scheduler and nodes without a machine.
//!
//! Pods there run at once and do nothing: this shows where they are scheduled, what they request, that each OSD goes its
//! own way, and how many writes it takes.

use super::{DeviceSets, LIMIT, cluster, list, reports, template};
use quarry_ceph::{OsdInfo, PrepareResult};
use quarry_tests::{
    ceph::{Ceph, disks::local_class},
    kwok::{Kwok, end_pod},
    lab::{NAMESPACE, apply, get, kubectl, repository, until},
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const ZONES: [&str; 3] = ["us-west-1a", "us-west-1b", "us-west-1c"];
const PREPARE: &str = "app=rook-ceph-osd-prepare";
const OSDS: &str = "app=rook-ceph-osd";
const PVC: &str = "ceph.rook.io/pvc";

/// Two nodes in each zone.
fn nodes() -> Kwok {
    Kwok::start(&[
        ("sim-a1", ZONES[0]),
        ("sim-a2", ZONES[0]),
        ("sim-b1", ZONES[1]),
        ("sim-b2", ZONES[1]),
        ("sim-c1", ZONES[2]),
        ("sim-c2", ZONES[2]),
    ])
}

/// Everything that the classes left: PersistentVolumes of nodes that are gone. Gone on drop.
struct Classes(Vec<&'static str>);

impl Classes {
    fn new(kwok: &Kwok, all: &[(&'static str, usize, u64)]) -> Self {
        for (class, per_node, mebibytes) in all {
            local_class(class);
            kwok.block_pvs(class, *per_node, *mebibytes);
        }
        Classes(all.iter().map(|(class, _, _)| *class).collect())
    }
}

impl Drop for Classes {
    fn drop(&mut self) {
        use quarry_tests::lab::try_run;
        for class in &self.0 {
            let label = format!("quarry.dev/lab-class={class}");
            try_run("kubectl", &["delete", "pv", "-l", &label, "--wait=false"], None);
            try_run("kubectl", &["delete", "storageclass", class], None);
        }
    }
}

fn field<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn label<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"]["labels"][name].as_str().unwrap_or_default()
}

/// Waits for that many prepare pods on nodes, and returns them.
fn scheduled(namespace: &str, count: usize) -> Vec<Value> {
    until(&format!("{count} prepare pods of {namespace} run"), LIMIT, || {
        let pods = list(namespace, "pods", PREPARE);
        let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        if running == count { Ok(pods) } else { Err(json!(pods).to_string()) }
    })
}

/// Ends a prepare pod as `quarry osd prepare` would.
fn prepared(namespace: &str, pod: &Value, id: u32) {
    let claim = label(pod, PVC);
    let found = get(&["-n", namespace, "pvc", claim]).expect("the PVC of a pod exists");
    let osd = OsdInfo {
        id,
        cluster: "ceph".into(),
        uuid: field(&found, "/metadata/uid").parse().expect("a UID is a UUID"),
        device_class: String::new(),
        block_path: "/dev/rook/device0".into(),
        metadata_path: String::new(),
        wal_path: String::new(),
        location: String::new(),
        mode: "raw".into(),
        store: "bluestore".into(),
        encrypted: false,
        node_name: field(pod, "/spec/nodeName").into(),
        pvc_name: claim.into(),
    };
    let result = PrepareResult::completed(osd, format!("prepared osd.{id}"));
    let text = serde_json::to_string(&result).expect("a result is plain data");
    end_pod(namespace, field(pod, "/metadata/name"), &text);
}

/// The zone of each pod's node, by set.
fn zones(pods: &[Value]) -> BTreeMap<&str, Vec<&'static str>> {
    let mut found: BTreeMap<&str, Vec<&'static str>> = BTreeMap::new();
    for pod in pods {
        let node = field(pod, "/spec/nodeName");
        let at = match node.as_bytes().get(4) {
            Some(b'a') => 0,
            Some(b'b') => 1,
            _ => 2,
        };
        found.entry(label(pod, "ceph.rook.io/DeviceSet")).or_default().push(ZONES[at]);
    }
    found.values_mut().for_each(|all| all.sort_unstable());
    found
}

/// Device path and claim of each device of a pod, and the node that the claim's volume is on.
fn device_nodes(pod: &Value) -> BTreeSet<String> {
    let namespace = field(pod, "/metadata/namespace");
    let volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    let claims = volumes.iter().map(|one| field(one, "/persistentVolumeClaim/claimName"));
    let nodes = claims.filter(|name| !name.is_empty()).map(|name| {
        let claim = get(&["-n", namespace, "pvc", name]).unwrap_or_default();
        let pv = get(&["pv", field(&claim, "/spec/volumeName")]).unwrap_or_default();
        let path = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values/0";
        field(&pv, path).to_owned()
    });
    nodes.collect()
}

fn example(number: usize) -> String {
    let file = repository().join("tests/fixtures/ceph-examples.yaml");
    let text = std::fs::read_to_string(file).expect("the fixture can be read");
    let namespace = format!("namespace: example-{number},");
    let found = text.split("\n---\n").find(|one| one.contains(&namespace));
    found.expect("every example has its namespace").to_owned()
}

fn requests(pod: &Value) -> &str {
    field(pod, "/spec/containers/0/resources/requests/memory")
}

#[test]
fn the_six_examples_are_scheduled_as_designed() {
    let ceph = Ceph::shared();
    let names = ["example-1", "example-2", "example-3", "example-4", "example-5", "example-6"];
    let device_sets = DeviceSets::on(&names);
    let kwok = nodes();
    const TIB: u64 = 1 << 20;
    let classes = Classes::new(
        &kwok,
        &[
            ("gp2-ebs", 8, 10 * TIB),
            ("cluster1-local-storage", 1, TIB),
            ("cluster1-hdd-storage", 1, TIB),
            ("cluster1-nvme-storage", 1, TIB),
        ],
    );
    for (at, name) in names.iter().enumerate() {
        ceph.join(name, &ceph.fsid);
        apply(&example(at + 1));
    }
    let mut id = 0;
    for (name, count) in names.iter().zip([3, 9, 6, 3, 3]) {
        let pods = scheduled(name, count);
        let zones = zones(&pods);
        match *name {
            "example-1" => assert_eq!(zones["cluster1-set1"], ZONES, "one per zone"),
            "example-2" => {
                for (at, set) in
                    ["cluster1-set1", "cluster1-set2", "cluster1-set3"].iter().enumerate()
                {
                    assert_eq!(zones[set], [ZONES[at]; 3], "{set} stays in its zone");
                }
            }
            "example-4" => {
                let nodes: BTreeSet<&str> =
                    pods.iter().map(|pod| field(pod, "/spec/nodeName")).collect();
                assert_eq!(nodes.len(), 3, "one device per node: {nodes:?}");
            }
            _ => {}
        }
        for pod in &pods {
            let there = device_nodes(pod);
            let here = BTreeSet::from([field(pod, "/spec/nodeName").to_owned()]);
            assert_eq!(there, here, "all devices of an OSD are on its node");
            assert_eq!(label(pod, "rook.io/cluster"), "cluster1");
            prepared(name, pod, id);
            id += 1;
        }
        reports(name, "True", &format!("{count} Running"));
        let osds = list(name, "pods", OSDS);
        assert_eq!(osds.len(), count);
        for pod in &osds {
            let wanted = match (*name, label(pod, "ceph.rook.io/DeviceSet")) {
                ("example-3", "cluster1-set2") => "8Gi",
                ("example-1" | "example-2" | "example-3", _) => "4Gi",
                _ => "",
            };
            assert_eq!(requests(pod), wanted, "{name}");
            let claim = label(pod, PVC);
            let prepared_on = pods.iter().find(|one| label(one, PVC) == claim).expect("prepared");
            assert_eq!(pod["spec"]["nodeName"], prepared_on["spec"]["nodeName"]);
        }
        if *name == "example-5" {
            let devices = osds[0]["spec"]["containers"][0]["volumeDevices"].to_string();
            for path in ["/dev/rook/device0", "/dev/rook/device1"] {
                assert!(devices.contains(path), "{path} in {devices}");
            }
        }
    }
    reports("example-6", "False", "osdsPerDevice");
    assert_eq!(list("example-6", "pvc", "").len(), 0, "nothing is made of a set that is refused");
    drop(device_sets);
    drop(classes);
    drop(kwok);
}

/// Writes of the operator's metrics, all kinds.
fn writes() -> u64 {
    let operator = list(NAMESPACE, "pods", "app.kubernetes.io/name=quarry-operator");
    let running = operator.iter().find(|pod| pod["status"]["phase"] == "Running");
    let pod = running.map(|pod| field(pod, "/metadata/name")).expect("the operator runs");
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:8080/proxy/metrics");
    let metrics = kubectl(&["get", "--raw", &path]);
    let counts = metrics.lines().filter(|line| line.starts_with("quarry_api_writes_total{"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
}

#[test]
fn one_of_fifty_osds_that_hangs_stops_no_other() {
    let ceph = Ceph::shared();
    let namespace = "osds-many";
    let device_sets = DeviceSets::on(&[namespace]);
    let kwok = nodes();
    let count = if std::env::var_os("FULL").is_some() { 500 } else { 50 };
    let classes = Classes::new(&kwok, &[("lab-many", count / 6 + 1, 1024)]);
    ceph.join(namespace, &ceph.fsid);
    let before = writes();
    let set =
        json!({"name": "many", "count": count, "volumeClaimTemplates": [template("", "lab-many")]});
    cluster(namespace, "ceph/ceph:v19.2.3", json!({"storageClassDeviceSets": [set]}));
    let pods = scheduled(namespace, count);
    for (id, pod) in (0..).zip(pods.iter().skip(1)) {
        prepared(namespace, pod, id);
    }
    reports(namespace, "False", &format!("1 Preparing, {} Running", count - 1));
    let per_osd = (writes() - before) as f64 / count as f64;
    eprintln!("figure: {per_osd:.1} API writes per OSD");
    assert!(per_osd <= 6.0, "{per_osd} API writes per OSD");
    let zones = zones(&pods);
    let there = |zone: &str| zones["many"].iter().filter(|one| **one == zone).count();
    let fair = count / 3 - 1..=count / 3 + 2;
    assert!(ZONES.iter().all(|zone| fair.contains(&there(zone))), "spread softly: {zones:?}");
    drop(device_sets);
    drop(classes);
    drop(kwok);
}
