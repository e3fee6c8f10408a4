//! Owns the Table form of objects, which kubectl prints.

use super::partial;
use crate::kind::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};

/// What each row contains besides its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

/// `objects` are in their stored form. Later tables of a watch omit the header.
pub fn table<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a Value>,
    metadata: Value,
    include: Include,
    header: bool,
    now: Timestamp,
) -> Value {
    let rows: Vec<Value> = objects
        .map(|object| {
            let mut row = json!({"cells": resource.columns.cells(object, now)});
            match include {
                Include::None => row["object"] = Value::Null,
                Include::Metadata => row["object"] = partial(object),
                Include::Object => row["object"] = resource.show(object),
            }
            row
        })
        .collect();
    let columns = if header { resource.columns.definitions() } else { Value::Null };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns, "rows": rows,
    })
}
