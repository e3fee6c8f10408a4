//! Reading of fields that upstream's manifests write in more than one form.
//!
//! Owns: null for a map or a value of one, and quantities that are numbers (`cpu: 2`), which Kubernetes' own types read
//! only as text.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, ResourceRequirements};
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A map. Null is an empty one, and a null value is left out.
pub fn map<'de, D, T>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let read: Option<BTreeMap<String, Option<T>>> = Deserialize::deserialize(deserializer)?;
    let given = read.unwrap_or_default().into_iter();
    Ok(given.filter_map(|(key, value)| Some((key, value?))).collect())
}

/// Writes the quantities below `requests` and `limits` as text.
fn quantities_as_text(resources: &mut Map<String, Value>) {
    for list in ["requests", "limits"] {
        let list = resources.get_mut(list).and_then(Value::as_object_mut);
        for value in list.into_iter().flat_map(Map::values_mut) {
            if let Value::Number(number) = value {
                *value = Value::String(number.to_string());
            }
        }
    }
}

fn parse<T: DeserializeOwned, E: Error>(object: Map<String, Value>) -> Result<T, E> {
    serde_json::from_value(Value::Object(object)).map_err(E::custom)
}

/// Resource requirements; null is absent.
pub fn resources<'de, D>(deserializer: D) -> Result<Option<ResourceRequirements>, D::Error>
where
    D: Deserializer<'de>,
{
    let read: Option<Map<String, Value>> = Deserialize::deserialize(deserializer)?;
    read.map(|mut object| {
        quantities_as_text(&mut object);
        parse(object)
    })
    .transpose()
}

pub fn resource_map<'de, D>(
    deserializer: D,
) -> Result<BTreeMap<String, ResourceRequirements>, D::Error>
where
    D: Deserializer<'de>,
{
    let read: BTreeMap<String, Map<String, Value>> = map(deserializer)?;
    read.into_iter()
        .map(|(key, mut object)| {
            quantities_as_text(&mut object);
            Ok((key, parse(object)?))
        })
        .collect()
}

/// The spec of a PVC; null is an empty one.
pub fn claim_spec<'de, D>(deserializer: D) -> Result<PersistentVolumeClaimSpec, D::Error>
where
    D: Deserializer<'de>,
{
    let read: Option<Map<String, Value>> = Deserialize::deserialize(deserializer)?;
    let mut object = read.unwrap_or_default();
    if let Some(resources) = object.get_mut("resources").and_then(Value::as_object_mut) {
        quantities_as_text(resources);
    }
    parse(object)
}
