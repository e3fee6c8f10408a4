//! Owns content negotiation: which response form the Accept header requests. JSON only; clients
//! that prefer protobuf accept JSON as their second choice.

use crate::status::ApiError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Whole,
    Table,
    Partial,
    /// Aggregated discovery, with its version.
    Discovery(&'static str),
}

pub fn negotiate(header: &str) -> Result<Form, ApiError> {
    if header.trim().is_empty() {
        return Ok(Form::Whole);
    }
    for range in header.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "application/json" | "application/*" | "*/*") {
            continue;
        }
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let get = |key: &str| {
            parameters.iter().find(|(known, _)| *known == key).map_or("", |(_, value)| *value)
        };
        match (get("as"), get("g"), get("v")) {
            ("", _, _) => return Ok(Form::Whole),
            ("Table", "meta.k8s.io", "v1") => return Ok(Form::Table),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
                return Ok(Form::Partial);
            }
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => {
                return Ok(Form::Discovery("v2"));
            }
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => {
                return Ok(Form::Discovery("v2beta1"));
            }
            _ => {}
        }
    }
    Err(ApiError::new(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json",
    ))
}
