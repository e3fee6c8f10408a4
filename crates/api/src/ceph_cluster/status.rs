//! The status of a CephCluster, in upstream's shape.
//!
//! Owns: conditions; every other field belongs to upstream's operator and is kept. Quarry writes the conditions whose
//! types begin with `quarry.dev/`, and nothing else.

use super::{Other, schema};
use crate::null_as_default;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::open(&[]))]
pub struct CephClusterStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub conditions: Vec<CephCondition>,
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Other,
}

/// A condition as upstream writes it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::open(&[]))]
pub struct CephCondition {
    #[serde(default, rename = "type", deserialize_with = "null_as_default")]
    pub kind: String,
    /// True, False or Unknown.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: String,
    /// The cause in one word.
    #[serde(
        default,
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub reason: String,
    /// The cause and the remedy.
    #[serde(
        default,
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub message: String,
    /// When the condition was last written with another content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_heartbeat_time: Option<Time>,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Option<Time>,
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Other,
}

impl CephClusterStatus {
    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&CephCondition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}
