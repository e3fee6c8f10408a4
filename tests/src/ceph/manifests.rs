//! The objects of a Ceph cluster: those that Rook keeps for one, and the daemons of the lab.

use super::{BOOTSTRAP_USER, Ceph, IMAGE, NAMESPACE};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{fmt::Write, path::Path};

const ADMIN_CAPS: &[(&str, &str)] =
    &[("mds", "allow *"), ("mon", "allow *"), ("osd", "allow *"), ("mgr", "allow *")];

/// Settings for a cluster of a few small OSDs on one host, in memory and on a disk that others fill.
/// Neither fsid nor monitors are in it, as in Rook's: every daemon and every call has to name them.
const OVERRIDES: &str = "[global]
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 3
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_max_pg_log_entries = 100
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_warn_on_pool_no_redundancy = false
mon_data_avail_warn = 2
mon_data_avail_crit = 1
mgr_initial_modules = iostat
auth_allow_insecure_global_id_reclaim = false
";

/// Keys of the users that exist from the start.
pub struct Keys {
    mon: String,
    admin: String,
    mgr: String,
    bootstrap: String,
}

const USERS: [&str; 4] = ["mon.", "client.admin", "mgr.a", BOOTSTRAP_USER];

impl Keys {
    pub fn random() -> Keys {
        Keys { mon: new_key(), admin: new_key(), mgr: new_key(), bootstrap: new_key() }
    }

    /// From the keyring of the monitors.
    pub fn parse(keyring: &str) -> Keys {
        let [mon, admin, mgr, bootstrap] = USERS.map(|user| {
            let section = keyring.split(&format!("[{user}]")).nth(1).unwrap_or_default();
            let line = section.lines().find_map(|line| line.trim().strip_prefix("key = "));
            line.unwrap_or_else(|| panic!("the keyring has no {user}")).to_owned()
        });
        Keys { mon, admin, mgr, bootstrap }
    }

    /// Every user in it exists when the store of the monitor has been created.
    fn keyring_of_monitors(&self) -> String {
        let mgr = [("mon", "allow profile mgr"), ("osd", "allow *"), ("mds", "allow *")];
        [
            keyring(USERS[0], &self.mon, &[("mon", "allow *")]),
            keyring(USERS[1], &self.admin, ADMIN_CAPS),
            keyring(USERS[2], &self.mgr, &mgr),
            keyring(USERS[3], &self.bootstrap, &[("mon", "allow profile bootstrap-osd")]),
        ]
        .concat()
    }
}

/// A new key: its type, its time of creation (none), its length, and 16 random bytes.
fn new_key() -> String {
    let mut bytes = vec![1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0];
    bytes.extend(uuid::Uuid::new_v4().as_bytes());
    STANDARD.encode(bytes)
}

fn keyring(user: &str, key: &str, caps: &[(&str, &str)]) -> String {
    let mut text = format!("[{user}]\n\tkey = {key}\n");
    for (service, allowed) in caps {
        writeln!(text, "\tcaps {service} = \"{allowed}\"").expect("a string can be extended");
    }
    text
}

fn list(items: Vec<Value>) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// A namespace that enforces a level of Pod Security.
pub fn namespace(name: &str, level: &str) -> Value {
    let labels = json!({"pod-security.kubernetes.io/enforce": level});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn secret(namespace: &str, name: &str, data: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
        "type": "kubernetes.io/rook", "stringData": data,
    })
}

fn config_map(namespace: &str, name: &str, data: Value) -> Value {
    let metadata = json!({"name": name, "namespace": namespace});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
}

impl Ceph {
    fn mon_host(&self) -> String {
        format!("[v2:{0}:3300,v1:{0}:6789]", self.address)
    }
}

/// What Rook keeps in the namespace of a cluster: names and fields are its own.
pub fn cluster(ceph: &Ceph, namespace: &str, fsid: &str) -> Value {
    let Ceph { address, keys, .. } = ceph;
    let node = json!({"Name": crate::lab::NODE, "Hostname": crate::lab::NODE, "Address": address});
    let csi = json!([{
        "clusterID": namespace, "monitors": [format!("{address}:6789")], "namespace": "",
    }]);
    let endpoints = json!({
        "data": format!("a={address}:6789"), "maxMonId": "0",
        "mapping": json!({"node": {"a": node}}).to_string(), "outOfQuorum": "",
        "csi-cluster-config-json": csi.to_string(),
    });
    let mon = json!({
        "fsid": fsid, "mon-secret": keys.mon,
        "ceph-username": USERS[1], "ceph-secret": keys.admin,
    });
    let config = json!({"mon_host": ceph.mon_host(), "mon_initial_members": "a"});
    let admin = keyring(USERS[1], &keys.admin, ADMIN_CAPS);
    list(vec![
        config_map(namespace, "rook-ceph-mon-endpoints", endpoints),
        config_map(namespace, "rook-config-override", json!({"config": OVERRIDES})),
        secret(namespace, "rook-ceph-mon", mon),
        secret(namespace, "rook-ceph-config", config),
        secret(namespace, "rook-ceph-admin-keyring", json!({"keyring": admin})),
        secret(namespace, "rook-ceph-mons-keyring", json!({"keyring": keys.keyring_of_monitors()})),
    ])
}

/// Monitor, manager and a pod to run commands in.
pub fn daemons(ceph: &Ceph, monitor_data: &Path) -> Value {
    let Ceph { fsid, address, keys } = ceph;
    let flags = [
        "--fsid".to_owned(),
        fsid.clone(),
        "--mon-host".to_owned(),
        ceph.mon_host(),
        "--mon-initial-members=a".to_owned(),
        "--log-to-file=false".to_owned(),
        "--log-to-stderr=true".to_owned(),
        "--mon-cluster-log-to-file=false".to_owned(),
    ];
    let run = |program: &str, own: &[&str]| {
        let own = own.iter().map(|one| (*one).to_owned());
        let all = std::iter::once(program.to_owned()).chain(own).chain(flags.clone());
        json!(all.collect::<Vec<_>>())
    };
    let mon = ["--id=a", "--mon-data=/data", "--public-addr", address, "--keyring=/keys/keyring"];
    let create = run("ceph-mon", &[&mon[..], &["--mkfs"]].concat());
    let script = "[ -e /data/store.db ] || exec \"$@\"";
    let mut once = json!(["bash", "-ec", script, "once"]);
    let words = once.as_array_mut().expect("it was built as a list");
    words.extend(create.as_array().cloned().unwrap_or_default());
    let data = json!({"name": "data", "hostPath": {"path": monitor_data, "type": "Directory"}});
    let mut monitor = deployment("rook-ceph-mon", "-a", "rook-ceph-mons-keyring");
    let pod = &mut monitor["spec"]["template"]["spec"];
    push(&mut pod["volumes"], data);
    push(&mut pod["containers"][0]["volumeMounts"], json!({"name": "data", "mountPath": "/data"}));
    pod["initContainers"] = json!([pod["containers"][0]]);
    pod["initContainers"][0]["name"] = json!("init-mon-fs");
    pod["initContainers"][0]["command"] = once;
    pod["containers"][0]["command"] = run("ceph-mon", &[&mon[..], &["--foreground"]].concat());
    let mut manager = deployment("rook-ceph-mgr", "-a", "rook-ceph-mgr-a-keyring");
    manager["spec"]["template"]["spec"]["containers"][0]["command"] =
        run("ceph-mgr", &["--id=a", "--foreground", "--keyring=/keys/keyring"]);
    let mut tools = deployment("rook-ceph-tools", "", "rook-ceph-admin-keyring");
    let container = &mut tools["spec"]["template"]["spec"]["containers"][0];
    container["command"] = json!(["sleep", "infinity"]);
    let arguments = format!("--mon-host {} --keyring /keys/keyring", ceph.mon_host());
    container["env"] = json!([{"name": "CEPH_ARGS", "value": arguments}]);
    let key = json!({"keyring": keyring(USERS[2], &keys.mgr, &[])});
    list(vec![secret(NAMESPACE, "rook-ceph-mgr-a-keyring", key), monitor, manager, tools])
}

fn push(list: &mut Value, item: Value) {
    list.as_array_mut().expect("it was built as a list").push(item);
}

/// One pod in the network of the node, as root without capabilities, with a keyring in /keys.
fn deployment(app: &str, suffix: &str, keyring: &str) -> Value {
    let labels = json!({"app": app, "rook_cluster": NAMESPACE});
    let config =
        json!({"name": "rook-config-override", "items": [{"key": "config", "path": "ceph.conf"}]});
    let container = json!({
        "name": app.trim_start_matches("rook-ceph-"), "image": IMAGE, "imagePullPolicy": "Never",
        "securityContext": {
            "runAsUser": 0, "runAsGroup": 0, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/ceph"},
            {"name": "run", "mountPath": "/run/ceph"},
            {"name": "keys", "mountPath": "/keys"},
        ],
    });
    let pod = json!({
        "hostNetwork": true, "terminationGracePeriodSeconds": 2, "containers": [container],
        "volumes": [
            {"name": "config", "configMap": config},
            {"name": "run", "emptyDir": {"medium": "Memory"}},
            {"name": "keys", "secret": {"secretName": keyring}},
        ],
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": format!("{app}{suffix}"), "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "strategy": {"type": "Recreate"}, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    })
}
