//! A host that was moved here, or restored from a backup, brings its status along, in an annotation.

use super::{
    Step, annotations, hardware_data,
    status::{CONDITION_ACCEPTED, Draft, Flow},
};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quarry_api::{bare_metal_host::ProvisioningState as State, names};
use serde_json::{Map, Value, json};

/// Only where the host has no status: the annotation of a host that lives here is out of date.
pub(super) fn restore(draft: &mut Draft<'_>) -> Flow {
    let host = &draft.seen.host;
    if annotations::get(host, names::STATUS_ANNOTATION).is_none() {
        return Flow::Continue;
    }
    let forget = Step::RemoveAnnotations(vec![names::STATUS_ANNOTATION]);
    // A report about an annotation that cannot be read gives it no state: once corrected, it is restored.
    let is_new = host.status.as_ref().is_none_or(|status| {
        let provisioning = &status.provisioning;
        status.last_updated.is_none()
            || (provisioning.state == State::None && provisioning.id.is_empty())
    });
    if !is_new {
        draft.steps.push(forget);
        return Flow::Continue;
    }
    let saved = annotations::saved_status(host);
    match saved.and_then(|saved| Ok(saved.zip(annotations::saved_fields(host)?))) {
        Ok(Some((mut saved, text))) => {
            let data = draft.seen.hardware_data.as_ref();
            let stored = data.and_then(|data| data.spec.hardware.clone());
            let unknown = if stored.is_some() { without(text, "hardware") } else { text };
            saved.hardware = stored.or(saved.hardware);
            if saved.hardware.as_ref().is_some_and(|hardware| {
                hardware_data::size(hardware) > super::STATUS_HARDWARE_LIMIT
            }) {
                saved.hardware = None;
            }
            // It counts from now on: a backoff begins again.
            saved.last_updated = Some(Time(draft.now));
            let unknown =
                if saved.hardware.is_none() { without(unknown, "hardware") } else { unknown };
            let mut whole = json!(saved);
            add_unknown(&mut whole, &Value::Object(unknown));
            draft.status = saved;
            draft.steps.extend([Step::RestoreStatus(whole), forget]);
            draft.again_in(SignedDuration::ZERO);
        }
        // Nothing is done to a machine whose state is unknown.
        Ok(None) => {}
        Err(error) => {
            draft.condition(CONDITION_ACCEPTED, "InvalidAnnotation", &error.to_string());
        }
    }
    Flow::Stop
}

fn without(mut fields: Map<String, Value>, name: &str) -> Map<String, Value> {
    fields.remove(name);
    fields
}

/// What was saved by a version that knows more: every field that the known ones do not have. A known field is missing
/// only where it is empty, so that empty ones are left out: the schema may refuse them (`errorType: ""`).
fn add_unknown(known: &mut Value, saved: &Value) {
    match (known, saved) {
        (Value::Object(known), Value::Object(saved)) => {
            for (name, value) in saved {
                match known.get_mut(name) {
                    Some(part) => add_unknown(part, value),
                    None if is_empty(value) => {}
                    None => drop(known.insert(name.clone(), value.clone())),
                }
            }
        }
        (Value::Array(known), Value::Array(saved)) if known.len() == saved.len() => {
            known.iter_mut().zip(saved).for_each(|(known, saved)| add_unknown(known, saved));
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}
