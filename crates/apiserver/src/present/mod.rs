//! Owns the output forms of objects: complete, as tables (`table`, `columns`) and metadata only;
//! and how the API describes itself (`discovery`, `openapi`). Never changes an object and never
//! reads the store.

mod age;
mod columns;
mod discovery;
mod jsonpath;
mod openapi;
mod table;
#[cfg(test)]
mod tests;

pub use columns::{Columns, CustomColumn};
pub use discovery::{aggregated, group, group_list, resource_list, version};
pub use jsonpath::JsonPath;
pub use openapi::{custom_openapi, document, index, openapi_name};
pub use table::{Include, table};

use serde_json::{Value, json};

/// Metadata only, for clients that need nothing else.
pub fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
