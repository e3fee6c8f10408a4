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

/// True if the annotation is absent or the expression over `value` holds.
fn annotation(name: &str, expression: &str) -> String {
    let value = format!("object.metadata.annotations['{name}']");
    format!(
        "!has(object.metadata.annotations) || !('{name}' in object.metadata.annotations) || ({})",
        expression.replace("value", &value)
    )
}

/// Empty, or the outline of a JSON object.
fn object_or_empty(value: &str) -> String {
    format!(r"{value} == '' || {value}.matches('^\\s*[{{](.|\\s)*[}}]\\s*$')")
}

/// Refuses malformed annotations and references to Secrets of other namespaces.
pub fn refusals() -> Policy {
    let reboot = format!(
        "key == '{}' || key.startsWith('{}')",
        names::REBOOT_ANNOTATION,
        names::REBOOT_ANNOTATION_PREFIX
    );
    let entry = "object.metadata.annotations[key]";
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
            "expression": format!("!has(object.spec.{field}) || !has(object.spec.{field}.namespace) || object.spec.{field}.namespace in ['', object.metadata.namespace]"),
            "message": format!("spec.{field}: the Secret must be in the namespace of the host; remove namespace, or copy the Secret"),
            "reason": "Forbidden",
        })
    };
    let validations = json!([
        {
            "expression": format!("!has(object.metadata.annotations) || object.metadata.annotations.all(key, !({reboot}) || (({arguments}) && ({mode})))"),
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
    policy(NAME, rules(), json!([]), validations, "Deny")
}
