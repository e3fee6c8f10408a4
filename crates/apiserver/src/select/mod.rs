//! Owns label and field selectors: parsed from a query string, matched against objects. Which fields a
//! kind lets one select by is the kind's own (`kind::Resource::field_labels`).

mod field;
mod label;
#[cfg(test)]
mod tests;

pub use field::FieldSelector;
pub use label::LabelSelector;
