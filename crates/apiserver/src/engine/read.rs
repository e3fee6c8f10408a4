//! Owns get and list: selectors, pages that stay consistent across writes, lists at an earlier
//! version.

use super::store::key;
use super::{Answer, Answered, Engine, ListOptions, Request, Stored};
use crate::kind::Resource;
use crate::status::ApiError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct List {
    pub items: Vec<Arc<Stored>>,
    pub version: u64,
    pub continue_token: String,
    pub remaining: Option<usize>,
}

impl Engine {
    pub(super) fn read(&self, request: &Request) -> Result<Answer, ApiError> {
        let resource = self.resource(request);
        let at = key(&request.namespace, &request.name);
        match self.store.get(resource.bucket, &at) {
            Some(found) => Ok(Answer::object(200, found.clone())),
            None => Err(ApiError::not_found(&resource.named(), &request.name)),
        }
    }

    pub(super) fn list(
        &self,
        request: &Request,
        options: &ListOptions,
    ) -> Result<Answer, ApiError> {
        let list = self.select(request, options)?;
        Ok(Answer { code: 200, body: Answered::List(list), warnings: Vec::new() })
    }

    pub(super) fn select(
        &self,
        request: &Request,
        options: &ListOptions,
    ) -> Result<List, ApiError> {
        let resource = self.resource(request);
        check_fields(resource, &options.fields)?;
        let newest = self.store.version();
        if options.at_least > newest {
            return Err(too_large(options.at_least, newest));
        }
        let (version, after) = match (&options.continue_token, options.exact) {
            (token, _) if !token.is_empty() => {
                let (version, start) = parse_token(token)?;
                if version < self.store.compacted() || version > newest {
                    return Err(ApiError::expired(
                        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
                    ));
                }
                (version, Some(start))
            }
            (_, Some(version)) if version < self.store.compacted() => {
                return Err(ApiError::expired(
                    "The resourceVersion for the provided list is too old.",
                ));
            }
            (_, Some(version)) => (version, None),
            _ => (newest, None),
        };
        let earlier: BTreeMap<_, _>;
        let objects = if version == newest {
            self.store.bucket(resource.bucket)
        } else {
            earlier = self.store.bucket_at(resource.bucket, version);
            &earlier
        };
        let prefix = if request.namespace.is_empty() {
            String::new()
        } else {
            format!("{}/", request.namespace)
        };
        let mut matching = objects
            .range::<String, _>(prefix.clone()..)
            .take_while(|(at, _)| at.starts_with(&prefix))
            .filter(|(at, _)| after.as_ref().is_none_or(|after| *at > after))
            .filter(|(_, stored)| matches(resource, options, &stored.value));
        let mut list = List { version, ..List::default() };
        if options.limit == 0 {
            list.items = matching.map(|(_, stored)| stored.clone()).collect();
            return Ok(list);
        }
        let mut last = None;
        for (at, stored) in matching.by_ref().take(options.limit) {
            list.items.push(stored.clone());
            last = Some(at.clone());
        }
        let rest = matching.count();
        if rest > 0
            && let Some(last) = last
        {
            list.continue_token = make_token(version, &last);
            // With a selector, kube-apiserver does not count the remaining items either.
            let counted = options.labels.is_empty() && options.fields.is_empty();
            list.remaining = counted.then_some(rest);
        }
        Ok(list)
    }
}

pub(super) fn matches(resource: &Resource, options: &ListOptions, object: &Value) -> bool {
    options.labels.matches(object["metadata"]["labels"].as_object())
        && options.fields.matches(object, |object, label| resource.field_text(object, label))
}

/// A field selector may use only the fields that the kind supports.
pub(super) fn check_fields(
    resource: &Resource,
    fields: &crate::select::FieldSelector,
) -> Result<(), ApiError> {
    for field in fields.fields() {
        if resource.selects_by(field) {
            continue;
        }
        let message = if resource.custom || !resource.selectable.is_empty() {
            format!("field label not supported: {field}")
        } else {
            format!(
                "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            )
        };
        return Err(ApiError::bad_request(message));
    }
    Ok(())
}

pub(super) fn too_large(asked: u64, newest: u64) -> ApiError {
    let message = format!("Timeout: Too large resource version: {asked}, current: {newest}");
    ApiError::new(504, "Timeout", message).with_details(json!({
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }))
}

fn make_token(version: u64, last: &str) -> String {
    BASE64.encode(
        json!({"v": "meta.k8s.io/v1", "rv": version, "start": format!("/{last}\u{0}")}).to_string(),
    )
}

fn parse_token(token: &str) -> Result<(u64, String), ApiError> {
    let refuse = |why: &str| {
        ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
    };
    let bytes = BASE64.decode(token).map_err(|_| refuse("it is not base64"))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| refuse("it is not JSON"))?;
    let start = value["start"]
        .as_str()
        .and_then(|start| start.strip_prefix('/'))
        .map(|start| start.trim_end_matches('\u{0}'));
    match (value["rv"].as_u64(), start) {
        (Some(version), Some(start)) if value["v"] == "meta.k8s.io/v1" => {
            Ok((version, start.to_owned()))
        }
        _ => Err(refuse("the server does not recognize this encoded version")),
    }
}
