//! The documented order of uninstalling, run as it stands in the guide.

use quarry_tests::lab::{
    LoopDisk, NAMESPACE, NODE, apply, get, install, installed, kubectl, repository,
    set_operator_arguments, text, try_run, until,
};
use serde_json::json;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);

/// The shell commands of a section of a guide.
fn commands(page: &str, section: &str) -> String {
    let text = std::fs::read_to_string(repository().join(page)).expect("the guide is readable");
    let section = text.split("\n## ").find(|part| part.starts_with(section));
    let block = section.and_then(|part| part.split("```sh\n").nth(1)?.split("```").next());
    block.unwrap_or_else(|| panic!("{page} has no commands in section {section:?}")).to_owned()
}

#[test]
fn the_documented_uninstall_leaves_nothing_behind() {
    installed();
    let disk = LoopDisk::attach("uninstall", 96 << 20);
    set_operator_arguments(&["operator", "--agent-settling-time=1s"]);
    let inclusion = json!({"deviceTypes": ["loop"], "minSize": "96Mi", "maxSize": "96Mi"});
    let spec = json!({"storageClassName": "leaving", "deviceInclusionSpec": inclusion});
    let metadata = json!({"name": "leaving", "namespace": NAMESPACE});
    let kind = json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": metadata, "spec": spec});
    apply(&kind.to_string());
    until("the set has a PersistentVolume", LIMIT, || {
        let set = get(&["-n", NAMESPACE, "localvolumeset", "leaving"]).unwrap_or_default();
        let count = &set["status"]["totalProvisionedDeviceCount"];
        if *count == 1 { Ok(()) } else { Err(set["status"].to_string()) }
    });
    // As if a PersistentVolume had been wiped with Quick before: its record holds the inventory.
    let entry = json!({"identity": "wwn:1", "pvName": "old", "pvUID": "uid"});
    let patch = json!({"spec": {"wipeRemnants": [entry]}}).to_string();
    kubectl(&["patch", "nodeinventory", NODE, "--type=merge", "-p", &patch]);
    until("the inventory is held", LIMIT, || {
        let inventory = get(&["nodeinventory", NODE]).unwrap_or_default();
        let held = inventory["metadata"]["finalizers"].is_array();
        if held { Ok(()) } else { Err(inventory["metadata"].to_string()) }
    });
    let script = commands("docs/operations/install.md", "Uninstall");
    let script = format!("set -eu\ncd '{}'\n{script}", repository().display());
    let output = try_run("timeout", &["180", "bash", "-c", &script], None);
    let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{:?}\n{printed}", output.status);
    until("nothing of Quarry is left", LIMIT, || {
        let pvs = get(&["pv", "-l", "storage.openshift.com/owner-name=leaving"]);
        let pvs = pvs.map(|list| list["items"].as_array().map_or(0, Vec::len)).unwrap_or_default();
        let left = [
            get(&["namespace", NAMESPACE]),
            get(&["crd", "nodeinventories.quarry.dev"]),
            get(&["crd", "localvolumesets.local.storage.openshift.io"]),
            get(&["storageclass", "leaving"]),
            get(&["clusterrole", "quarry-operator-deviceclaims"]),
        ];
        let left: Vec<String> = left
            .into_iter()
            .flatten()
            .map(|object| object["metadata"]["name"].to_string())
            .collect();
        if left.is_empty() && pvs == 0 { Ok(()) } else { Err(format!("{left:?}, {pvs} PVs")) }
    });
    drop(disk);
    install();
}
