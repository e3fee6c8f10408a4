//! Policies on BareMetalHosts: what upstream's webhook refuses and a schema cannot see, and warnings about fields that
//! are not used.
//!
//! CEL reads no JSON: of an annotation with JSON only the form is checked here. What gets past it, the planner reports
//! in the status. Next to read: `../bare_metal_host/fields.rs`.

use super::{Policy, policy};
use crate::{bare_metal_host::fields::UNUSED, names};
use serde_json::{Value, json};

pub const NAME: &str = "quarry-bare-metal-host";
pub const WARNINGS_NAME: &str = "quarry-bare-metal-host-warnings";

fn rules() -> Value {
    json!([{"apiGroups": ["metal3.io"], "apiVersions": ["v1alpha1"], "operations": ["CREATE", "UPDATE"], "resources": ["baremetalhosts"]}])
}

/// Warns about every field of the table.
pub fn warnings() -> Policy {
    let validations: Vec<Value> = UNUSED
        .iter()
        .map(|unused| json!({"expression": format!("!({})", unused.given), "message": unused.message}))
        .collect();
    policy(WARNINGS_NAME, rules(), json!([]), json!(validations), "Warn")
}

/// Whether the annotation at `key` has the value that it had: one from before this policy must not block other changes.
fn unchanged(key: &str) -> String {
    format!(
        "(oldObject != null && has(oldObject.metadata.annotations) && {key} in oldObject.metadata.annotations && oldObject.metadata.annotations[{key}] == object.metadata.annotations[{key}])"
    )
}

/// True if the annotation is absent or unchanged, or the expression over `value` holds.
fn annotation(name: &str, expression: &str) -> String {
    let key = format!("'{name}'");
    let value = format!("object.metadata.annotations[{key}]");
    format!(
        "!has(object.metadata.annotations) || !({key} in object.metadata.annotations) || {} || ({})",
        unchanged(&key),
        expression.replace("value", &value)
    )
}

/// Empty, or the outline of a JSON object.
fn object_or_empty(value: &str) -> String {
    format!(r"{value} == '' || {value}.matches('^\\s*[{{](.|\\s)*[}}]\\s*$')")
}

/// Refuses malformed annotations, names that Ironic mistakes, and references to Secrets of other namespaces. A host that
/// is being deleted is exempt: its finalizer must go.
pub fn refusals() -> Policy {
    let reboot = format!(
        "key == '{}' || key.startsWith('{}')",
        names::REBOOT_ANNOTATION,
        names::REBOOT_ANNOTATION_PREFIX
    );
    let entry = "object.metadata.annotations[key]";
    let same = unchanged("key");
    let arguments = object_or_empty(entry);
    let mode = format!(
        r#"!{entry}.contains('"mode"') || {entry}.matches('"mode"\\s*:\\s*"(hard|soft|)"')"#
    );
    let inspection_off = format!(
        "(has(object.spec.inspectionMode) && object.spec.inspectionMode == 'disabled') || ('{inspect}' in object.metadata.annotations && object.metadata.annotations['{inspect}'] == '{off}')",
        inspect = names::INSPECT_ANNOTATION,
        off = names::INSPECT_DISABLED,
    );
    let same_namespace = |field: &str| {
        json!({
            "expression": format!("!has(object.spec.{field}) || !has(object.spec.{field}.namespace) || object.spec.{field}.namespace == '' || object.spec.{field}.namespace == object.metadata.namespace"),
            "message": format!("spec.{field}: the Secret must be in the namespace of the host; remove namespace, or copy the Secret"),
            "reason": "Forbidden",
        })
    };
    let validations = json!([
        {
            "expression": "oldObject != null || !object.metadata.name.matches('^([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$')",
            "message": "the name of a BareMetalHost must not be a UUID, because Ironic would take it for the ID of a node; use another name",
        },
        {
            "expression": format!("!has(object.metadata.annotations) || object.metadata.annotations.all(key, !({reboot}) || {same} || (({arguments}) && ({mode})))"),
            "message": "annotation reboot.metal3.io must be empty or a JSON object; its mode must be hard or soft",
        },
        {
            "expression": annotation(names::INSPECT_ANNOTATION, "value in ['', 'disabled']"),
            "message": "annotation inspect.metal3.io must be empty or \"disabled\"",
        },
        {
            "expression": annotation(names::HARDWARE_DETAILS_ANNOTATION, &object_or_empty("value")),
            "message": "annotation inspect.metal3.io/hardwaredetails must be a JSON object",
        },
        {
            "expression": annotation(names::HARDWARE_DETAILS_ANNOTATION, &format!("value == '' || {inspection_off}")),
            "message": "annotation inspect.metal3.io/hardwaredetails needs inspection to be disabled; set spec.inspectionMode to disabled",
        },
        {
            "expression": annotation(names::STATUS_ANNOTATION, &object_or_empty("value")),
            "message": "annotation baremetalhost.metal3.io/status must be a JSON object",
        },
        same_namespace("userData"),
        same_namespace("networkData"),
        same_namespace("metaData"),
    ]);
    let conditions = json!([{"name": "not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)"}]);
    policy(NAME, rules(), conditions, validations, "Deny")
}
