//! Owns the rules of PersistentVolume, PersistentVolumeClaim and StorageClass: defaults, and the
//! checks that protect data. Never binds PVCs: a PersistentVolume without a bound PVC is Available.

use super::builtin::builtin_merge_keys;
use super::{Hooks, quantity};
use crate::status::{FieldError, Problem, Shown};
use serde_json::{Map, Value, json};

pub const PERSISTENT_VOLUME: Hooks =
    Hooks { prepare: prepare_pv, validate: validate_pv, merge_keys: builtin_merge_keys };
pub const CLAIM: Hooks =
    Hooks { prepare: prepare_pvc, validate: validate_pvc, merge_keys: builtin_merge_keys };
pub const CLASS: Hooks =
    Hooks { prepare: prepare_class, validate: validate_class, merge_keys: builtin_merge_keys };

const SOURCES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "hostPath",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];
const ACCESS_MODES: [&str; 4] =
    ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn default(object: &mut Value, field: &str, value: &str) {
    if object[field].as_str().unwrap_or_default().is_empty() {
        object[field] = value.into();
    }
}

fn prepare_pv(object: &mut Value, old: Option<&Value>, now: &str) {
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    default(&mut object["spec"], "persistentVolumeReclaimPolicy", "Retain");
    default(&mut object["spec"], "volumeMode", "Filesystem");
    if object["spec"]["storageClassName"] == "" {
        object["spec"].as_object_mut().map(|spec| spec.remove("storageClassName"));
    }
    if old.is_none() {
        // No binder runs here; a PersistentVolume that the binder would leave unbound is Available
        // immediately.
        let bound = object["spec"]["claimRef"]["uid"].as_str().is_some_and(|uid| !uid.is_empty());
        object["status"] = json!({"phase": if bound { "Pending" } else { "Available" }});
    }
    if old.is_none_or(|old| old["status"]["phase"] != object["status"]["phase"]) {
        object["status"]["lastPhaseTransitionTime"] = now.into();
    }
}

fn sources(spec: &Value) -> Vec<&'static str> {
    SOURCES.into_iter().filter(|source| spec[*source].is_object()).collect()
}

fn validate_pv(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    validate_access_modes(spec, "", errors);
    match spec["capacity"].as_object() {
        None => {
            errors.push(FieldError::required("spec.capacity", ""));
            errors.push(FieldError::new(
                "spec.capacity",
                Problem::NotSupported(Shown::Json(Value::Null), vec!["storage".into()]),
            ));
        }
        Some(capacity) => validate_capacity(capacity, errors),
    }
    match sources(spec).as_slice() {
        [] => errors.push(FieldError::required("spec", "must specify a volume type")),
        [_] => {}
        [_, more @ ..] => {
            for source in more {
                errors.push(FieldError::forbidden(
                    format!("spec.{source}"),
                    "may not specify more than 1 volume type",
                ));
            }
        }
    }
    if spec["local"].is_object() {
        let path = spec["local"]["path"].as_str().unwrap_or_default();
        if path.is_empty() {
            errors.push(FieldError::required("spec.local.path", ""));
        } else if path.split('/').any(|part| part == "..") {
            errors.push(FieldError::invalid("spec.local.path", path, "must not contain '..'"));
        }
        if !spec["nodeAffinity"]["required"].is_object() {
            errors.push(FieldError::required(
                "spec.nodeAffinity",
                "Local volume requires node affinity",
            ));
        }
    }
    validate_choice(
        spec,
        "spec",
        "persistentVolumeReclaimPolicy",
        &["Delete", "Recycle", "Retain"],
        errors,
    );
    validate_choice(spec, "spec", "volumeMode", &["Block", "Filesystem"], errors);
    let Some(old) = old else { return };
    let only_sources = |spec: &Value| SOURCES.map(|source| spec[source].clone());
    if only_sources(&old["spec"]) != only_sources(spec) {
        errors.push(FieldError::forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    if old["spec"]["volumeMode"] != spec["volumeMode"] {
        errors.push(FieldError::invalid(
            "volumeMode",
            spec["volumeMode"].clone(),
            "field is immutable",
        ));
    }
    if old["spec"]["nodeAffinity"].is_object()
        && old["spec"]["nodeAffinity"] != spec["nodeAffinity"]
    {
        errors.push(FieldError::new(
            "nodeAffinity",
            Problem::Invalid(
                Shown::Json(spec["nodeAffinity"].clone()),
                "field is immutable, except for updating from beta label to GA".into(),
            ),
        ));
    }
}

fn validate_capacity(capacity: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    for (name, amount) in capacity {
        let at = format!("spec.capacity[{name}]");
        let text = amount.as_str().unwrap_or_default();
        if name != "storage" {
            errors.push(FieldError::new(
                "spec.capacity",
                Problem::NotSupported(Shown::Json(capacity.clone().into()), vec!["storage".into()]),
            ));
        } else if !quantity::is_positive(text) {
            errors.push(FieldError::invalid(at, text, "must be greater than zero"));
        }
    }
}

fn validate_access_modes(spec: &Value, hint: &str, errors: &mut Vec<FieldError>) {
    let modes = spec["accessModes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if modes.is_empty() {
        errors.push(FieldError::required("spec.accessModes", hint));
    }
    for mode in modes {
        if !ACCESS_MODES.iter().any(|known| mode == known) {
            let known = ACCESS_MODES.iter().map(|mode| (*mode).into()).collect();
            errors.push(FieldError::new(
                "spec.accessModes",
                Problem::NotSupported(Shown::Json(mode.clone()), known),
            ));
        }
    }
}

fn validate_choice(
    object: &Value,
    at: &str,
    field: &str,
    allowed: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let value = &object[field];
    if !value.is_null() && !allowed.iter().any(|known| value == known) {
        let allowed = allowed.iter().map(|known| (*known).into()).collect();
        let at = if at.is_empty() { field.to_owned() } else { format!("{at}.{field}") };
        errors
            .push(FieldError::new(at, Problem::NotSupported(Shown::Json(value.clone()), allowed)));
    }
}

fn prepare_pvc(object: &mut Value, old: Option<&Value>, _now: &str) {
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    default(&mut object["spec"], "volumeMode", "Filesystem");
    if old.is_none() {
        object["status"] = json!({"phase": "Pending"});
    }
}

fn validate_pvc(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &object["spec"];
    validate_access_modes(spec, "at least 1 access mode is required", errors);
    match spec["resources"]["requests"]["storage"].as_str() {
        None => errors.push(FieldError::required("spec.resources[storage]", "")),
        Some(text) if !quantity::is_positive(text) => {
            errors.push(FieldError::invalid(
                "spec.resources[storage]",
                text,
                "must be greater than zero",
            ));
        }
        Some(_) => {}
    }
    validate_choice(spec, "spec", "volumeMode", &["Block", "Filesystem"], errors);
    let Some(old) = old else { return };
    // A PVC is immutable except for its volume, and for its size once it is bound.
    let bound = old["status"]["phase"] == "Bound";
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(map) = spec.as_object_mut() {
            map.remove("volumeName");
            if bound {
                map.remove("resources");
                map.remove("volumeAttributesClassName");
            }
        }
        spec
    };
    let unbound = old["spec"]["volumeName"].as_str().unwrap_or_default().is_empty();
    let rebound = !unbound && old["spec"]["volumeName"] != spec["volumeName"];
    if fixed(&old["spec"]) != fixed(spec) || rebound {
        errors.push(FieldError::forbidden("spec", "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"));
    }
}

fn prepare_class(object: &mut Value, _old: Option<&Value>, _now: &str) {
    default(object, "reclaimPolicy", "Delete");
    default(object, "volumeBindingMode", "Immediate");
}

fn validate_class(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if object["provisioner"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    }
    validate_choice(object, "", "reclaimPolicy", &["Delete", "Retain"], errors);
    validate_choice(
        object,
        "",
        "volumeBindingMode",
        &["Immediate", "WaitForFirstConsumer"],
        errors,
    );
    let Some(old) = old else { return };
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        if old[field] != object[field] {
            errors.push(FieldError::invalid(field, object[field].clone(), "field is immutable"));
        }
    }
}
