//! Jobs and Deployments: devices, resources, placement, security.

use super::{World, set, template};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};

fn pods(world: &World) -> Vec<PodSpec> {
    let jobs = world.seen.jobs.iter().map(|one| one.spec.as_ref().unwrap().template.spec.clone());
    let daemons = world.seen.deployments.iter();
    let daemons = daemons.map(|one| one.spec.as_ref().unwrap().template.spec.clone());
    jobs.chain(daemons).flatten().collect()
}

fn running(spec: Value) -> World {
    let mut world = World::of(spec);
    world.settle();
    assert_eq!(world.report().0, "True", "{}", world.message());
    world
}

#[test]
fn pods_need_no_privileges() {
    let world = running(json!({"storage": {"storageClassDeviceSets": [set("set1", 1)]}}));
    for pod in pods(&world) {
        let security = pod.security_context.as_ref().unwrap();
        assert_eq!(security.run_as_non_root, Some(true));
        for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
            let own = container.security_context.as_ref().unwrap();
            assert_eq!(own.allow_privilege_escalation, Some(false));
            assert_eq!(
                own.capabilities.as_ref().unwrap().drop.as_deref(),
                Some(&["ALL".to_owned()][..])
            );
        }
        assert!(pod.volumes.iter().flatten().all(|volume| volume.host_path.is_none()));
    }
}

#[test]
fn each_template_is_a_device_of_both_pods() {
    let mut two = set("set1", 1);
    two["config"] = json!({"metadataDevice": "/dev/rook/device1"});
    two["volumeClaimTemplates"] =
        json!([template("osd-data", "disks"), template("osd-metadata", "disks")]);
    let world = running(json!({"storage": {"storageClassDeviceSet": [two]}}));
    for pod in pods(&world) {
        let devices = pod.containers[0].volume_devices.as_ref().unwrap();
        let paths: Vec<&str> = devices.iter().map(|one| one.device_path.as_str()).collect();
        assert_eq!(paths, ["/dev/rook/device0", "/dev/rook/device1"]);
    }
    let job = json!(world.seen.jobs[0]).to_string();
    assert!(
        job.contains("--data=/dev/rook/device0") && job.contains("--metadata=/dev/rook/device1"),
        "{job}"
    );
}

#[test]
fn resources_of_a_set_replace_those_of_the_cluster() {
    let mut own = set("own", 1);
    own["resources"] = json!({"requests": {"memory": "8Gi"}});
    let mut unset = set("unset", 1);
    unset["resources"] = json!(null);
    let world = running(json!({
        "resources": {"osd": {"requests": {"memory": "4Gi"}}},
        "storage": {"storageClassDeviceSets": [own, unset]},
    }));
    let memory = |at: usize| {
        let deployment = json!(world.seen.deployments[at]);
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        (
            deployment["metadata"]["labels"]["ceph.rook.io/DeviceSet"].clone(),
            container["resources"]["requests"]["memory"].clone(),
        )
    };
    let found = [memory(0), memory(1)];
    assert!(found.contains(&(json!("own"), json!("8Gi"))), "{found:?}");
    assert!(found.contains(&(json!("unset"), json!("4Gi"))), "{found:?}");
}

#[test]
fn placement_of_a_set_joins_that_of_the_cluster() {
    let term = |key: &str| {
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "Exists"}]},
        ]}})
    };
    let mut own = set("set1", 1);
    own["placement"] = json!({
        "nodeAffinity": term("fast"), "tolerations": [{"key": "b"}],
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": {"labelSelector": {"matchLabels": {"rook.io/cluster": "c1"}}}},
        ]},
    });
    let world = running(json!({
        "placement": {"all": {"nodeAffinity": term("storage"), "tolerations": [{"key": "a"}]}},
        "storage": {"storageClassDeviceSets": [own]},
    }));
    for pod in pods(&world) {
        let text = json!(pod.affinity).to_string();
        assert!(text.contains("fast") && text.contains("storage"), "{text}");
        assert!(text.contains(r#""topologyKey":"kubernetes.io/hostname""#), "{text}");
        let keys: Vec<_> =
            pod.tolerations.iter().flatten().filter_map(|one| one.key.as_deref()).collect();
        assert!(keys.contains(&"a") && keys.contains(&"b"), "{keys:?}");
    }
}

#[test]
fn osds_without_placement_are_spread_softly() {
    let world = running(json!({"storage": {"storageClassDeviceSets": [set("set1", 1)]}}));
    for pod in pods(&world) {
        let all = pod.topology_spread_constraints.unwrap_or_default();
        let keys: Vec<&str> = all.iter().map(|one| one.topology_key.as_str()).collect();
        assert_eq!(keys, ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]);
        assert!(all.iter().all(|one| one.when_unsatisfiable == "ScheduleAnyway"));
    }
}

#[test]
fn an_osd_on_a_local_volume_stays_on_its_node() {
    let local = running(json!({"storage": {"storageClassDeviceSets": [set("set1", 1)]}}));
    let mut movable = set("set1", 1);
    movable["portable"] = json!(true);
    let portable = running(json!({"storage": {"storageClassDeviceSets": [movable]}}));
    let selector = |world: &World| {
        let pod = world.seen.deployments[0].spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        pod.node_selector.clone().unwrap_or_default()
    };
    assert_eq!(selector(&local)["kubernetes.io/hostname"], "n1");
    assert!(selector(&portable).is_empty());
}
