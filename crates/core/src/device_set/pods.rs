//! The prepare Job and the Deployment of one OSD, as objects.
//!
//! Both run without privileges, as Pod Security `restricted` demands: a Block PVC is a device node that the group of
//! disks may write. The UUID of the OSD is the UID of its data PVC. Next to read: `provider.rs` (their commands).

use super::{
    Access, Observed, Settings, claims,
    osd::Osd,
    placement,
    provider::{
        BINARY_DIRECTORY, CONF_FILE, Daemon, KEYRING_FILE, OSD_DIRECTORY, OVERRIDE_FILE, Prepared,
        Provider, RUN_DIRECTORY, WORK_DIRECTORY,
    },
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, ResourceRequirements},
};
use kube::ResourceExt;
use quarry_api::{
    CephCluster,
    ceph_cluster::{DeviceSet, daemon, device_set::device_path},
    crds::MANAGED_BY_LABEL,
    names::{self, ceph},
    node_job::hex_digest,
};
use quarry_ceph::{config::ceph_conf, result::REFUSED};
use serde_json::{Map, Value, json};

/// The user of the daemons in upstream's images.
const CEPH_USER: i64 = 167;
/// The group that udev gives disks to.
const DISK_GROUP: i64 = 6;
/// A prepare run that has a node and does not end: its pod is ended, and another one tries. Waiting for a node or a
/// device does not count.
const PREPARE_LIMIT: i64 = 900;
const PREPARE_TRIES: i32 = 4;
/// Until then the log of a prepare run can be read.
const KEEP_JOB: i32 = 3600;

/// On a CephCluster: the user of its OSD pods, where the device nodes belong to root alone.
pub const USER_ANNOTATION: &str = "quarry.dev/osd-user";

/// The name of the ConfigMap with `ceph.conf`.
pub fn config_name(cluster: &CephCluster) -> String {
    format!("quarry-ceph-conf-{}", cluster.name_any())
}

/// `ceph.conf` of the OSDs. `Err`: the settings that cannot be used, and the remedy.
pub fn config(cluster: &CephCluster, access: &Access) -> Result<ConfigMap, String> {
    let defaults = [("log_to_file", "false"), ("log_to_stderr", "true")];
    let text = ceph_conf(&access.fsid, &access.mon_host, &defaults, &access.config_override)
        .map_err(|error| error.to_string())?;
    Ok(made(json!({
        "metadata": {
            "name": config_name(cluster), "namespace": cluster.namespace(),
            "labels": {ceph::CLUSTER_LABEL: cluster.name_any(), MANAGED_BY_LABEL: names::MANAGED_BY},
            "ownerReferences": claims::owner(cluster),
        },
        "data": {"ceph.conf": text},
    })))
}

/// The name of the prepare Job of a data PVC, as upstream makes it.
pub fn job_name(claim: &str) -> String {
    let plain = format!("{}-{claim}", ceph::PREPARE_APP);
    if plain.len() <= 63 {
        return plain;
    }
    format!("{}-{}", ceph::PREPARE_APP, &hex_digest(&[claim])[..32])
}

/// The name of the ConfigMap with the result, as upstream's.
pub fn result_name(claim: &str) -> String {
    format!("rook-ceph-osd-{claim}-status")
}

fn labels(cluster: &CephCluster, osd: &Osd<'_>, app: &str) -> Value {
    let namespace = cluster.namespace().unwrap_or_default();
    json!({
        ceph::APP_LABEL: app,
        ceph::ROOK_CLUSTER_LABEL: names::label_value(&namespace),
        ceph::CLUSTER_LABEL: names::label_value(&cluster.name_any()),
        ceph::DEVICE_SET_LABEL: osd.set.name,
        ceph::SET_INDEX_LABEL: osd.index.to_string(),
        ceph::PVC_LABEL: osd.data_claim(),
        MANAGED_BY_LABEL: names::MANAGED_BY,
    })
}

fn daemon_of<'a>(
    observed: &'a Observed,
    osd: &'a Osd<'_>,
    access: &'a Access,
    crush_host: Option<&'a str>,
) -> Daemon<'a> {
    Daemon {
        cluster: &observed.cluster,
        access,
        set: osd.set,
        roles: &osd.roles,
        claim: osd.data_claim(),
        uuid: osd.data_uid(),
        crush_host,
    }
}

/// The user of the pods: the image's, or the one that the cluster names.
fn user(cluster: &CephCluster) -> i64 {
    let given = cluster.annotations().get(USER_ANNOTATION).and_then(|text| text.parse().ok());
    given.unwrap_or(CEPH_USER)
}

fn pod_security(cluster: &CephCluster) -> Value {
    let user = user(cluster);
    json!({
        "runAsUser": user, "runAsGroup": user, "fsGroup": user, "runAsNonRoot": user != 0,
        "supplementalGroups": [DISK_GROUP],
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

fn security() -> Value {
    json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "privileged": false,
        "capabilities": {"drop": ["ALL"]},
    })
}

fn devices(osd: &Osd<'_>) -> Value {
    let each = osd.claims.0.keys();
    each.map(|at| json!({"name": format!("device{at}"), "devicePath": device_path(*at)})).collect()
}

fn device_volumes(osd: &Osd<'_>) -> Vec<Value> {
    let each = osd.claims.0.iter().map(|(at, claim)| {
        json!({"name": format!("device{at}"), "persistentVolumeClaim": {"claimName": claim.name_any()}})
    });
    each.collect()
}

/// A set's own, else the cluster's for its device class, else those of all OSDs.
fn resources(cluster: &CephCluster, set: &DeviceSet) -> Option<ResourceRequirements> {
    let is_given = |one: &&ResourceRequirements| one.limits.is_some() || one.requests.is_some();
    let of = |key: &str| cluster.spec.resources.get(key).filter(is_given);
    let class =
        set.crush_device_class().map(|(_, class)| format!("{}{class}", daemon::OSD_CLASS_PREFIX));
    let own = set.resources.as_ref().filter(is_given);
    own.or_else(|| of(&class?)).or_else(|| of(daemon::OSD)).cloned()
}

fn set_common(pod: &mut Value, cluster: &CephCluster, set: &DeviceSet) {
    if let Some(class) = cluster.spec.priority_class(daemon::OSD) {
        pod["priorityClassName"] = class.into();
    }
    if let Some(scheduler) = set.scheduler() {
        pod["schedulerName"] = scheduler.into();
    }
}

/// Why the image of the cluster cannot be used.
pub fn image(cluster: &CephCluster) -> Result<&str, String> {
    let image = cluster.spec.ceph_version.image.as_str();
    match image.is_empty() {
        true => {
            Err("spec.cephVersion.image is missing; set it to the image of the monitors".to_owned())
        }
        false => Ok(image),
    }
}

pub fn prepare_job(
    observed: &Observed,
    provider: &dyn Provider,
    osd: &Osd<'_>,
    access: &Access,
    image: &str,
) -> Job {
    let cluster = &observed.cluster;
    let Settings { image: own, image_pull_policy } = &observed.settings;
    let portable_host = osd.set.portable.unwrap_or_default().then(|| osd.data_claim());
    let command = provider.prepare_command(&daemon_of(observed, osd, access, portable_host));
    let labels = labels(cluster, osd, ceph::PREPARE_APP);
    let mut volumes = device_volumes(osd);
    volumes.extend([
        json!({"name": "binary", "emptyDir": {}}),
        json!({"name": "work", "emptyDir": {}}),
        json!({"name": "tmp", "emptyDir": {}}),
        json!({"name": "run", "emptyDir": {}}),
        json!({"name": "keyring", "secret": {"secretName": access.keyring_secret, "items": [{"key": "keyring", "path": "keyring"}]}}),
        json!({"name": "override", "configMap": {"name": ceph::CONFIG_OVERRIDE_CONFIG_MAP, "optional": true}}),
    ]);
    let mut container = json!({
        "name": "prepare",
        "image": image,
        "command": command,
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "securityContext": security(),
        "terminationMessagePolicy": "File",
        "volumeDevices": devices(osd),
        "volumeMounts": [
            {"name": "binary", "mountPath": BINARY_DIRECTORY, "readOnly": true},
            {"name": "work", "mountPath": WORK_DIRECTORY},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "run", "mountPath": RUN_DIRECTORY},
            {"name": "keyring", "mountPath": parent(KEYRING_FILE), "readOnly": true},
            {"name": "override", "mountPath": parent(OVERRIDE_FILE), "readOnly": true},
        ],
    });
    if let Some(resources) = cluster.spec.resources.get(daemon::PREPARE_OSD) {
        container["resources"] = json!(resources);
    }
    let mut pod = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "activeDeadlineSeconds": PREPARE_LIMIT,
        "securityContext": pod_security(cluster),
        "initContainers": [{
            "name": "binary",
            "image": own,
            "imagePullPolicy": image_pull_policy,
            "args": ["osd", "install", BINARY_DIRECTORY],
            "securityContext": security(),
            "volumeMounts": [{"name": "binary", "mountPath": BINARY_DIRECTORY}],
        }],
        "containers": [container],
        "volumes": volumes,
    });
    set_common(&mut pod, cluster, osd.set);
    placement::apply(&mut pod, &placement::of_prepare(cluster, osd.set));
    made(json!({
        "metadata": {
            "name": job_name(osd.data_claim()), "namespace": cluster.namespace(),
            "labels": labels, "ownerReferences": claims::owner(cluster),
        },
        "spec": {
            "backoffLimit": PREPARE_TRIES,
            "ttlSecondsAfterFinished": KEEP_JOB,
            // What a person must change first is not tried again.
            "podFailurePolicy": {"rules": [
                {"action": "FailJob", "onExitCodes": {"containerName": "prepare", "operator": "In", "values": [REFUSED]}},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }))
}

/// What the prepare Job has reported, kept when its pod is gone.
pub fn result(cluster: &CephCluster, osd: &Osd<'_>, text: &str) -> ConfigMap {
    let (status_key, status) = ceph::STATUS_LABEL;
    let claim = osd.data_claim();
    let mut labels = labels(cluster, osd, ceph::OSD_APP);
    labels[status_key] = status.into();
    labels[ceph::NODE_LABEL] = names::label_value(claim).into();
    made(json!({
        "metadata": {
            "name": result_name(claim), "namespace": cluster.namespace(),
            "labels": labels, "ownerReferences": claims::owner(cluster),
        },
        "data": {"status": text},
    }))
}

pub fn deployment_name(id: u32) -> String {
    format!("rook-ceph-osd-{id}")
}

/// `node`: where the OSD stays; `None`: it is portable.
pub fn deployment(
    observed: &Observed,
    provider: &dyn Provider,
    osd: &Osd<'_>,
    access: &Access,
    image: &str,
    prepared: &Prepared,
    node: Option<&str>,
) -> Deployment {
    let cluster = &observed.cluster;
    let host = node.unwrap_or_else(|| osd.data_claim());
    let daemon = daemon_of(observed, osd, access, Some(host));
    let mut labels = labels(cluster, osd, ceph::OSD_APP);
    for (key, value) in [
        (ceph::OSD_ID_LABEL, prepared.id.to_string()),
        (ceph::PORTABLE_LABEL, node.is_none().to_string()),
        (ceph::DEVICE_CLASS_LABEL, prepared.device_class.clone()),
        (ceph::OSD_STORE_LABEL, "bluestore".to_owned()),
        (ceph::ENCRYPTED_LABEL, "false".to_owned()),
    ] {
        labels[key] = value.into();
    }
    let mounts = json!([
        {"name": "osd", "mountPath": OSD_DIRECTORY},
        {"name": "run", "mountPath": RUN_DIRECTORY},
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "conf", "mountPath": parent(CONF_FILE), "readOnly": true},
    ]);
    let container = |name: &str, command: Vec<String>| {
        json!({
            "name": name, "image": image, "command": command, "securityContext": security(),
            "volumeDevices": devices(osd), "volumeMounts": mounts,
        })
    };
    let mut run = container("osd", provider.run_command(&daemon, prepared));
    if let (Some(run), Value::Object(probes)) = (run.as_object_mut(), provider.probes(prepared)) {
        run.extend(probes);
    }
    let mut activate = container("activate", provider.activate_command(&daemon, prepared));
    if let Some(resources) = resources(cluster, osd.set) {
        run["resources"] = json!(resources);
        activate["resources"] = json!(resources);
    }
    let mut volumes = device_volumes(osd);
    volumes.extend(["osd", "run", "tmp"].map(|name| json!({"name": name, "emptyDir": {}})));
    volumes.push(json!({"name": "conf", "configMap": {"name": config_name(cluster)}}));
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 60,
        "securityContext": pod_security(cluster),
        "initContainers": [activate],
        "containers": [run],
        "volumes": volumes,
    });
    set_common(&mut pod, cluster, osd.set);
    placement::apply(&mut pod, &placement::of_osd(cluster, osd.set));
    if let Some(node) = node {
        pod["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    }
    let selector: Map<String, Value> =
        [ceph::APP_LABEL, ceph::ROOK_CLUSTER_LABEL, ceph::OSD_ID_LABEL]
            .map(|key| (key.to_owned(), labels[key].clone()))
            .into_iter()
            .collect();
    made(json!({
        "metadata": {
            "name": deployment_name(prepared.id), "namespace": cluster.namespace(),
            "labels": labels, "ownerReferences": claims::owner(cluster),
        },
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 2,
            // Two pods must never have one device.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }))
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("/", |(parent, _)| parent)
}

/// Constants of this file, and values that were read as these types.
fn made<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the object is a constant of this file except for strings and parts that were read with these types; its tests build it")
}
