//! Owns label and field selectors: parsed from a query string, matched against objects. The kind
//! decides which fields can be selected (`kind::Resource::field_labels`).

mod field;
mod label;
#[cfg(test)]
mod tests;

pub use field::FieldSelector;
pub use label::LabelSelector;
