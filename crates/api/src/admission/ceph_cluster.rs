//! Warnings about CephClusters. Nothing is refused here: a policy applies also where upstream's CRD is installed and its
//! operator serves the object. What is refused is in our CRD.
//!
//! Next to read: `../ceph_cluster/fields.rs`.

use super::{Policy, policy};
use crate::ceph_cluster::fields::warned;
use serde_json::{Value, json};

pub const WARNINGS_NAME: &str = "quarry-ceph-cluster-warnings";

/// Warns about every row of the table. An object without a spec is left to its schema.
pub fn warnings() -> Policy {
    let rules = json!([{"apiGroups": ["ceph.rook.io"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["cephclusters"]}]);
    let rows = warned();
    let validations: Vec<Value> = rows
        .iter()
        .flat_map(|row| row.given.iter().map(|given| (given, &row.message)))
        .map(|(given, message)| json!({"expression": format!("!({given})"), "message": message}))
        .collect();
    let conditions = json!([{"name": "has-a-spec", "expression": "has(object.spec)"}]);
    policy(WARNINGS_NAME, rules, conditions, json!(validations), "Warn")
}
