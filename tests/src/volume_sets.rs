//! LocalVolumeSets in the cluster of the lab, for tests that need PersistentVolumes on loop disks.

use crate::lab::{
    NAMESPACE, apply, get, restore_operator, rollout, set_operator_arguments, try_run, until,
};
use serde_json::{Value, json};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);

/// Agents with a short settling time. Drop restores the settings and removes everything the tests
/// created.
pub struct ShortSettlingTime;

impl ShortSettlingTime {
    pub fn set() -> Self {
        ShortSettlingTime::with(&[])
    }

    /// With more arguments of the operator.
    pub fn with(arguments: &[&str]) -> Self {
        set_operator_arguments(&[&["operator", "--agent-settling-time=1s"], arguments].concat());
        rollout();
        until("the agent has a short settling time", LIMIT, || {
            let pods = get(&["-n", NAMESPACE, "pods", "-l", "app.kubernetes.io/name=quarry-agent"])
                .unwrap_or_default();
            let is_updated = |pod: &Value| {
                pod["spec"]["containers"][0]["args"].to_string().contains("--settling-time=1s")
                    && pod["status"]["containerStatuses"][0]["ready"] == true
            };
            if pods["items"].as_array().is_some_and(|pods| pods.len() == 1 && is_updated(&pods[0]))
            {
                Ok(())
            } else {
                Err(pods.to_string())
            }
        });
        ShortSettlingTime
    }
}

impl Drop for ShortSettlingTime {
    fn drop(&mut self) {
        try_run(
            "kubectl",
            &["delete", "pods,pvc", "--all", "--wait=false", "--grace-period=0"],
            None,
        );
        try_run(
            "kubectl",
            &["-n", NAMESPACE, "delete", "localvolumesets,localvolumes", "--all", "--timeout=60s"],
            None,
        );
        restore_operator();
    }
}

/// A LocalVolumeSet for loop disks of one size in MiB: the machine may have others.
pub fn set(name: &str, mebibytes: u64, more: Value) {
    let size = format!("{mebibytes}Mi");
    let mut spec = json!({"storageClassName": name, "deviceInclusionSpec": {"deviceTypes": ["loop"], "minSize": size, "maxSize": size}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    apply(&json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}).to_string());
}

/// The PersistentVolumes of an owner, found as consumers of the upstream ones find them.
pub fn pvs_of(owner: &str) -> Vec<Value> {
    let label = format!(
        "storage.openshift.com/owner-name={owner},storage.openshift.com/owner-namespace={NAMESPACE}"
    );
    get(&["pv", "-l", &label])
        .and_then(|list| list["items"].as_array().cloned())
        .unwrap_or_default()
}
