//! Validation of a Volume that reports all problems at once.
//!
//! The API server refuses the same by schema and CEL; this runs again in the planner, because a cluster may serve the
//! upstream CRD (which has no rules), and in the CLI before anything is sent.

use crate::{quantity::QuantityError, volume::Volume};
use k8s_openapi::api::core::v1::ObjectReference;
use std::fmt;

/// One problem of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, as a path from the object's root.
    pub field: &'static str,
    /// What is wrong.
    pub wrong: String,
    /// What would be accepted.
    pub allowed: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.field, self.wrong, self.allowed)
    }
}

/// All problems as one text, for the message of a condition.
pub fn message(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join(". ")
}

const TYPES: &str =
    "set exactly one of spec.sparseLoopDevice, spec.rawBlockDevice, spec.lvmLogicalVolume";

/// Every problem of the Volume's spec; empty means valid.
pub fn validate_volume(volume: &Volume) -> Vec<Problem> {
    let spec = &volume.spec;
    let mut problems = Vec::new();
    if spec.node_name.is_empty() {
        problems.push(Problem {
            field: "spec.nodeName",
            wrong: "is empty".into(),
            allowed: "set the node that has the storage".into(),
        });
    }
    if spec.storage_class_name.is_empty() {
        problems.push(Problem {
            field: "spec.storageClassName",
            wrong: "is empty".into(),
            allowed: "set the name of a StorageClass".into(),
        });
    }
    let given: Vec<&str> = [
        ("sparseLoopDevice", spec.sparse_loop_device.is_some()),
        ("rawBlockDevice", spec.raw_block_device.is_some()),
        ("lvmLogicalVolume", spec.lvm_logical_volume.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, given)| given.then_some(name))
    .collect();
    match given.as_slice() {
        [] => problems.push(Problem {
            field: "spec",
            wrong: "no type is set".into(),
            allowed: TYPES.into(),
        }),
        [_] => {}
        several => problems.push(Problem {
            field: "spec",
            wrong: format!("{} are set", several.join(" and ")),
            allowed: TYPES.into(),
        }),
    }
    if let Some(sparse) = &spec.sparse_loop_device {
        problems.extend(size_problem(
            "spec.sparseLoopDevice.size",
            sparse.size.bytes().map(|bytes| bytes.0),
        ));
    }
    if let Some(lvm) = &spec.lvm_logical_volume {
        problems.extend(size_problem(
            "spec.lvmLogicalVolume.size",
            lvm.size.bytes().map(|bytes| bytes.0),
        ));
    }
    problems.extend(claim_ref_problem(volume));
    problems.extend(template_problems(volume));
    problems
}

/// A claimRef reserves the PersistentVolume: without the name of a PVC it would reserve it for none.
fn claim_ref_problem(volume: &Volume) -> Option<Problem> {
    let reference = volume.spec.template.as_ref()?.spec.as_ref()?.get("claimRef")?;
    let problem = |wrong: String| {
        Some(Problem {
            field: "spec.template.spec.claimRef",
            wrong,
            allowed: "set only name and namespace of the PVC, or remove claimRef".into(),
        })
    };
    match serde_json::from_value::<ObjectReference>(reference.clone()) {
        Err(error) => problem(format!("is not a reference ({error})")),
        Ok(pvc)
            if pvc.name.as_deref().is_none_or(str::is_empty)
                || pvc.namespace.as_deref().is_none_or(str::is_empty) =>
        {
            problem("names no PVC".into())
        }
        // The binder writes the UID of the PVC that it has bound: a UID written beforehand would look bound.
        Ok(pvc) if pvc.uid.is_some() => problem("has a uid".into()),
        Ok(_) => None,
    }
}

/// What the PersistentVolume could not be created with, reported before anything is prepared.
fn template_problems(volume: &Volume) -> Vec<Problem> {
    let Some(metadata) =
        volume.spec.template.as_ref().and_then(|template| template.metadata.as_ref())
    else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    for (key, value) in &metadata.labels {
        if !is_qualified_name(key) || !is_label_value(value) {
            problems.push(Problem {
                field: "spec.template.metadata.labels",
                wrong: format!("{key:?}: {value:?} is not a label"),
                allowed: "use letters, digits, '-', '_' and '.', at most 63 of them (a key may have a DNS prefix and '/')".into(),
            });
        }
    }
    for key in metadata.annotations.keys().filter(|key| !is_qualified_name(&key.to_lowercase())) {
        problems.push(Problem {
            field: "spec.template.metadata.annotations",
            wrong: format!("{key:?} is not a key"),
            allowed: "use letters, digits, '-', '_' and '.', at most 63 of them, after an optional DNS prefix and '/'".into(),
        });
    }
    problems
}

pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_plain_name(text)
}

pub(crate) fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        None => is_plain_name(key),
        Some((prefix, name)) => {
            let label = |part: &str| {
                !part.is_empty()
                    && part
                        .bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                    && !part.starts_with('-')
                    && !part.ends_with('-')
            };
            prefix.len() <= 253 && prefix.split('.').all(label) && is_plain_name(name)
        }
    }
}

fn is_plain_name(text: &str) -> bool {
    let ends = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    text.len() <= 63
        && ends(text.bytes().next())
        && ends(text.bytes().last())
        && text.bytes().all(inner)
}

fn size_problem(field: &'static str, size: Result<u64, QuantityError>) -> Option<Problem> {
    let allowed = "give a size greater than 0, such as 10Gi".to_owned();
    match size {
        Ok(0) => Some(Problem { field, wrong: "is 0".into(), allowed }),
        Ok(_) => None,
        Err(error) => Some(Problem { field, wrong: error.to_string(), allowed }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(spec: serde_json::Value) -> Vec<String> {
        let volume: Volume = serde_json::from_value(json!({
            "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "metadata": {"name": "v"}, "spec": spec,
        }))
        .unwrap();
        validate_volume(&volume).iter().map(|p| p.to_string()).collect()
    }

    #[test]
    fn a_valid_volume_has_no_problems() {
        assert!(problems(json!({"nodeName": "n", "storageClassName": "c", "sparseLoopDevice": {"size": "1.5Gi"}})).is_empty());
    }

    #[test]
    fn all_problems_are_reported_with_remedies() {
        let found = problems(
            json!({"nodeName": "", "storageClassName": "", "sparseLoopDevice": {"size": "0"}, "lvmLogicalVolume": {"vgName": "v", "size": "-1"}}),
        );
        assert_eq!(found.len(), 5, "{found:#?}");
        assert!(found.iter().any(|t| t
            == "spec: sparseLoopDevice and lvmLogicalVolume are set; set exactly one of spec.sparseLoopDevice, spec.rawBlockDevice, spec.lvmLogicalVolume"));
        assert!(
            found.iter().any(|t| t
                == "spec.sparseLoopDevice.size: is 0; give a size greater than 0, such as 10Gi")
        );
        assert!(found.iter().any(|t| t == "spec.lvmLogicalVolume.size: \"-1\" is negative; give a size greater than 0, such as 10Gi"));
    }

    #[test]
    fn a_claim_ref_must_name_a_pvc() {
        let with = |reference: serde_json::Value| {
            problems(
                json!({"nodeName": "n", "storageClassName": "c", "sparseLoopDevice": {"size": "1Gi"}, "template": {"spec": {"claimRef": reference}}}),
            )
        };
        assert!(with(json!({"name": "data", "namespace": "shop"})).is_empty());
        for bad in [
            json!("data"),
            json!({"name": "data"}),
            json!({"name": 5, "namespace": "shop"}),
            json!({"name": "data", "namespace": "shop", "uid": "u"}),
            json!({"name": "data", "namespace": "shop", "uid": 5}),
            json!(null),
        ] {
            assert_eq!(with(bad.clone()).len(), 1, "{bad}");
        }
    }

    #[test]
    fn invalid_labels_are_reported_before_preparation() {
        let with = |metadata: serde_json::Value| {
            problems(
                json!({"nodeName": "n", "storageClassName": "c", "sparseLoopDevice": {"size": "1Gi"}, "template": {"metadata": metadata}}),
            )
        };
        assert!(with(json!({"labels": {"tier": "gold", "example.com/a_B.c": ""}, "annotations": {"example.com/Note": "any text at all!"}})).is_empty());
        for bad in [
            json!({"labels": {"a b": "c"}}),
            json!({"labels": {"a": "c d!"}}),
            json!({"labels": {"-a": ""}}),
            json!({"labels": {"A/b": "x"}}),
            json!({"annotations": {"a b": "c"}}),
            json!({"labels": {"": "x"}}),
        ] {
            assert_eq!(with(bad.clone()).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_missing_type_is_reported() {
        assert_eq!(problems(json!({"nodeName": "n", "storageClassName": "c"})).len(), 1);
    }
}
