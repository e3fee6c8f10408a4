//! Owns the three patch formats: JSON patch, merge patch, and strategic merge patch for built-in
//! kinds. Never validates the result; the engine does, as for any update.

mod json;
mod strategic;
#[cfg(test)]
mod tests;

pub use json::json_patch;
pub use strategic::{MergeKeys, strategic_merge};

use crate::status::ApiError;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    Json,
    Merge,
    Strategic,
}

/// The patched copy of `current`.
pub fn apply(
    kind: PatchKind,
    current: &Value,
    patch: &Value,
    keys: MergeKeys,
) -> Result<Value, ApiError> {
    match kind {
        PatchKind::Json => json_patch(current, patch),
        PatchKind::Merge => {
            if !patch.is_object() {
                return Err(ApiError::bad_request(
                    "error decoding patch: a merge patch is a JSON object",
                ));
            }
            let mut out = current.clone();
            json_patch::merge(&mut out, patch);
            Ok(out)
        }
        PatchKind::Strategic => {
            if !patch.is_object() {
                return Err(ApiError::bad_request(
                    "error decoding patch: a strategic merge patch is a JSON object",
                ));
            }
            strategic_merge(current, patch, keys)
        }
    }
}
