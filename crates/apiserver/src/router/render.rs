//! Owns responses: the engine's result as JSON, in the form the client requested. Stored JSON is
//! sent unchanged unless another form is requested.

use super::accept::Form;
use super::{ApiBody, json_body, plain};
use crate::engine::{Answer, Answered, List, Stored};
use crate::kind::Resource;
use crate::present::{Include, partial, table};
use crate::status::ApiError;
use bytes::Bytes;
use http::{HeaderValue, Response};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub fn answer(
    resource: &Resource,
    answer: Answer,
    form: Form,
    include: Include,
    now: Timestamp,
) -> Result<Response<ApiBody>, ApiError> {
    let mut response = match &answer.body {
        Answered::Status(status) => json_body(answer.code, status),
        Answered::Object(stored) => match form {
            Form::Table => {
                let metadata = json!({"resourceVersion": stored.metadata()["resourceVersion"]});
                json_body(
                    answer.code,
                    &table(resource, [&stored.value].into_iter(), metadata, include, true, now),
                )
            }
            Form::Partial => json_body(answer.code, &partial(&stored.value)),
            Form::Whole | Form::Discovery(_) => {
                plain(answer.code, "application/json", whole(resource, stored))
            }
        },
        Answered::List(list) => {
            plain(answer.code, "application/json", render_list(resource, list, form, include, now))
        }
    };
    for warning in &answer.warnings {
        if let Some(value) = warning_header(warning) {
            response.headers_mut().append(http::header::WARNING, value);
        }
    }
    Ok(response)
}

/// An object as JSON in the resource's form.
pub fn whole(resource: &Resource, stored: &Stored) -> Bytes {
    if resource.shows_stored() {
        stored.json.clone()
    } else {
        resource.show(&stored.value).to_string().into()
    }
}

fn render_list(
    resource: &Resource,
    list: &List,
    form: Form,
    include: Include,
    now: Timestamp,
) -> Bytes {
    let metadata = list_metadata(resource.custom && form == Form::Whole, list);
    match form {
        Form::Table => {
            let objects = list.items.iter().map(|stored| &stored.value);
            table(resource, objects, metadata, include, true, now).to_string().into()
        }
        Form::Partial => {
            let items: Vec<Value> =
                list.items.iter().map(|stored| partial(&stored.value)).collect();
            json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata, "items": items,
            })
            .to_string()
            .into()
        }
        Form::Whole | Form::Discovery(_) => {
            let head = json!({"apiVersion": resource.api_version(), "kind": resource.list_kind, "metadata": metadata});
            let mut out = head.to_string();
            // Built by string concatenation: the items are JSON already, and there may be many.
            out.truncate(out.len() - 1);
            out.push_str(",\"items\":[");
            for (index, stored) in list.items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&item(resource, stored));
            }
            out.push_str("]}");
            out.into()
        }
    }
}

/// Items of built-in lists have no `kind` and `apiVersion`, as in kube-apiserver.
fn item(resource: &Resource, stored: &Stored) -> String {
    if resource.custom {
        return String::from_utf8_lossy(&whole(resource, stored)).into_owned();
    }
    let mut object = resource.show(&stored.value);
    if let Some(map) = object.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
    }
    object.to_string()
}

/// Only complete lists of custom resources have an empty continue token.
fn list_metadata(always_token: bool, list: &List) -> Value {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), list.version.to_string().into());
    if always_token || !list.continue_token.is_empty() {
        metadata.insert("continue".into(), list.continue_token.clone().into());
    }
    if let Some(remaining) = list.remaining {
        metadata.insert("remainingItemCount".into(), remaining.into());
    }
    Value::Object(metadata)
}

fn warning_header(text: &str) -> Option<HeaderValue> {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let quoted = clean.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_str(&format!("299 - \"{quoted}\""))
        .ok()
        .or_else(|| HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()).ok())
}
