//! Admission policies as values: what a schema cannot express.
//!
//! Evaluated by the API server (and by the embedded one, except for the policy on agents); no webhook, so that no
//! outage of Quarry blocks writes of others.

pub mod bare_metal_host;
pub mod ceph_cluster;
pub mod own_node;

use crate::names;
use k8s_openapi::{
    api::admissionregistration::v1::{
        ParamKind, ParamRef, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use serde_json::{Value, json};

/// A policy with its binding.
#[derive(Clone, Debug)]
pub struct Policy {
    pub policy: ValidatingAdmissionPolicy,
    pub binding: ValidatingAdmissionPolicyBinding,
}

/// Every policy that Quarry installs. None names a namespace: an overlay may install Quarry into any.
pub fn policies() -> Vec<Policy> {
    let mut all = embedded_policies();
    all.push(own_node::policy());
    all
}

/// Those that the embedded API evaluates: it has no node-bound tokens.
pub fn embedded_policies() -> Vec<Policy> {
    vec![
        volume_warnings(),
        local_volume_warnings(),
        local_volume_set_warnings(),
        one_discovery(),
        class_of_set(),
        class_of_local_volume(),
        bare_metal_host::warnings(),
        bare_metal_host::refusals(),
        ceph_cluster::warnings(),
    ]
}

/// Warns about fields that are accepted for compatibility and not used.
fn volume_warnings() -> Policy {
    let rules = json!([{"apiGroups": ["storage.metalk8s.scality.com"], "apiVersions": ["v1alpha1"], "operations": ["CREATE", "UPDATE"], "resources": ["volumes"]}]);
    let validations = json!([
        {
            "expression": "!has(object.spec.template) || !has(object.spec.template.spec) || object.spec.template.spec.all(field, field == 'claimRef')",
            "message": "of spec.template.spec only claimRef is used; Quarry sets every other field of the PersistentVolume",
        },
        {
            "expression": "!has(object.spec.template) || !has(object.spec.template.metadata) || object.spec.template.metadata.all(field, field == 'labels' || field == 'annotations')",
            "message": "of spec.template.metadata only labels and annotations are used",
        },
        {
            "expression": "!has(object.spec.rawBlockDevice) && !has(object.spec.lvmLogicalVolume)",
            "message": "this version prepares only sparseLoopDevice; this Volume becomes Failed, and nothing is done on the node",
        },
    ]);
    policy("quarry-volume-warnings", rules, json!([]), validations, "Warn")
}

fn local_volume_warnings() -> Policy {
    let rules = json!([{"apiGroups": ["local.storage.openshift.io"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["localvolumes"]}]);
    let validations = json!([
        {
            "expression": "!has(object.spec.logLevel) || object.spec.logLevel in ['', 'Normal']",
            "message": "spec.logLevel is not used; set the environment variable RUST_LOG of the operator",
        },
        {
            "expression": "!has(object.spec.storageClassDevices) || object.spec.storageClassDevices.all(one, !has(one.devicePaths) || one.devicePaths.all(path, path.startsWith('/dev/disk/by-') || path.startsWith('/dev/mapper/')))",
            "message": "a kernel name such as /dev/sdb may be another disk after a reboot; it is resolved once, then the device is known by its identity; use a path below /dev/disk/by-id",
        },
        {
            "expression": "!has(object.spec.storageClassDevices) || object.spec.storageClassDevices.all(one, !has(one.volumeMode) || one.volumeMode != 'Block' || !has(one.fsType) || one.fsType == '')",
            "message": FS_TYPE_OF_BLOCK,
        },
    ]);
    policy("quarry-local-volume-warnings", rules, json!([]), validations, "Warn")
}

/// Public install guides of the upstream operator set both.
const FS_TYPE_OF_BLOCK: &str = "fsType is ignored with volumeMode Block, which has no file system; remove fsType, or set volumeMode to Filesystem";

fn local_volume_set_warnings() -> Policy {
    let rules = json!([{"apiGroups": ["local.storage.openshift.io"], "apiVersions": ["v1alpha1"], "operations": ["CREATE", "UPDATE"], "resources": ["localvolumesets"]}]);
    let no_mode = "(!has(object.spec.volumeMode) || object.spec.volumeMode == '')";
    let no_fs_type = "((!has(object.spec.fsType) || object.spec.fsType == '') && (!has(object.spec.fstype) || object.spec.fstype == ''))";
    let validations = json!([
        {
            "expression": format!("{no_mode} || !(object.spec.volumeMode in ['Block', 'block']) || {no_fs_type}"),
            "message": FS_TYPE_OF_BLOCK,
        },
        {
            "expression": format!("!{no_mode} || !{no_fs_type}"),
            "message": "without volumeMode and fsType the devices are published as Block, unlike by the Local Storage Operator; set volumeMode",
        },
    ]);
    policy("quarry-local-volume-set-warnings", rules, json!([]), validations, "Warn")
}

/// One LocalVolumeDiscovery per namespace, with any name: a second one is refused with the name of the first. One that is
/// being deleted does not count. The planner decides about what races past this.
fn one_discovery() -> Policy {
    let rules = json!([{"apiGroups": ["local.storage.openshift.io"], "apiVersions": ["v1alpha1"], "operations": ["CREATE"], "resources": ["localvolumediscoveries"]}]);
    let validations = json!([{
        "expression": "has(params.metadata.deletionTimestamp) || params.metadata.name == object.metadata.name",
        "message": "a LocalVolumeDiscovery exists in this namespace already; change that one instead",
        "messageExpression": "'a LocalVolumeDiscovery exists in this namespace already; change ' + params.metadata.name + ' instead'",
        "reason": "Forbidden",
    }]);
    with_params(
        policy("quarry-one-discovery", rules, json!([]), validations, "Deny"),
        "local.storage.openshift.io/v1alpha1",
        "LocalVolumeDiscovery",
    )
}

/// A StorageClass of another provisioner is refused. Checked when it is named: one that is replaced later must not block
/// changing or deleting the objects that name it.
fn class_of_set() -> Policy {
    let rules = json!([{"apiGroups": ["local.storage.openshift.io"], "apiVersions": ["v1alpha1"], "operations": ["CREATE", "UPDATE"], "resources": ["localvolumesets"]}]);
    let named = "(object.spec.storageClassName == params.metadata.name)";
    let before = "(oldObject != null && oldObject.spec.storageClassName == params.metadata.name)";
    class_policy("quarry-class-of-set", rules, "spec.storageClassName", named, before)
}

fn class_of_local_volume() -> Policy {
    let rules = json!([{"apiGroups": ["local.storage.openshift.io"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["localvolumes"]}]);
    let names = |object: &str| {
        format!(
            "has({object}.spec.storageClassDevices) && {object}.spec.storageClassDevices.exists(one, one.storageClassName == params.metadata.name)"
        )
    };
    let before = format!("(oldObject != null && {})", names("oldObject"));
    class_policy(
        "quarry-class-of-local-volume",
        rules,
        "spec.storageClassDevices.storageClassName",
        &format!("({})", names("object")),
        &before,
    )
}

fn class_policy(name: &str, rules: Value, field: &str, named: &str, before: &str) -> Policy {
    let validations = json!([{
        "expression": format!("params.provisioner == 'kubernetes.io/no-provisioner' || !{named} || {before}"),
        "message": format!("{field} names a StorageClass of another provisioner; use another name: a StorageClass that does not exist is created"),
        "messageExpression": format!(
            "'{field}: StorageClass ' + params.metadata.name + ' belongs to the provisioner ' + params.provisioner + '; use another name: a StorageClass that does not exist is created'"
        ),
    }]);
    with_params(
        policy(name, rules, json!([]), validations, "Deny"),
        "storage.k8s.io/v1",
        "StorageClass",
    )
}

/// Evaluated once per object of this kind.
fn with_params(mut made: Policy, api_version: &str, kind: &str) -> Policy {
    if let (Some(policy), Some(binding)) = (&mut made.policy.spec, &mut made.binding.spec) {
        policy.param_kind = Some(ParamKind {
            api_version: Some(api_version.to_owned()),
            kind: Some(kind.to_owned()),
        });
        binding.param_ref = Some(ParamRef {
            selector: Some(LabelSelector::default()),
            parameter_not_found_action: Some("Allow".into()),
            ..ParamRef::default()
        });
    }
    made
}

fn policy(name: &str, rules: Value, conditions: Value, validations: Value, action: &str) -> Policy {
    let labels = json!({crate::crds::MANAGED_BY_LABEL: names::MANAGED_BY});
    let policy = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules}, "matchConditions": conditions, "validations": validations},
    });
    let binding = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"policyName": name, "validationActions": [action]},
    });
    const STATIC: &str = "the policies are constants of this file, built and parsed by its tests";
    Policy {
        policy: serde_json::from_value(policy).expect(STATIC),
        binding: serde_json::from_value(binding).expect(STATIC),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_parses_and_is_bound_to_itself() {
        for Policy { policy, binding } in policies() {
            assert_eq!(binding.spec.unwrap().policy_name, policy.metadata.name);
            assert!(!policy.spec.unwrap().validations.unwrap().is_empty());
        }
    }
}
