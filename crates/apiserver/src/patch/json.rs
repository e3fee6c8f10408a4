//! Owns JSON patch with kube-apiserver's semantics: a `test` of an absent path against null passes
//! (kube's finalizer helper relies on it), everything else is RFC 6902.

use crate::status::ApiError;
use json_patch::PatchOperation;
use serde_json::{Value, json};

/// Maximum number of operations, as in kube-apiserver.
const MAX_OPERATIONS: usize = 10_000;

pub fn json_patch(current: &Value, patch: &Value) -> Result<Value, ApiError> {
    let Some(list) = patch.as_array() else {
        return Err(ApiError::bad_request(
            "error decoding patch: a JSON patch is a list of operations",
        ));
    };
    let operations: Vec<PatchOperation> = list
        .iter()
        .map(|op| serde_json::from_value(op.clone()))
        .collect::<Result<_, _>>()
        .map_err(|_| refused())?;
    if operations.len() > MAX_OPERATIONS {
        let why = format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        );
        return Err(ApiError::new(413, "RequestEntityTooLarge", why));
    }
    let mut out = current.clone();
    for operation in &operations {
        match operation {
            PatchOperation::Test(test) => {
                let found = out.pointer(test.path.as_str()).unwrap_or(&Value::Null);
                if *found != test.value {
                    return Err(refused());
                }
            }
            // kube-apiserver's library adds the key when `replace` names a missing key of an
            // existing object.
            PatchOperation::Replace(replace) if out.pointer(replace.path.as_str()).is_none() => {
                let add = PatchOperation::Add(json_patch::AddOperation {
                    path: replace.path.clone(),
                    value: replace.value.clone(),
                });
                json_patch::patch(&mut out, &[add]).map_err(|_| refused())?;
            }
            other => {
                json_patch::patch(&mut out, std::slice::from_ref(other)).map_err(|_| refused())?
            }
        }
    }
    Ok(out)
}

/// kube-apiserver's message; it does not say which operation failed.
fn refused() -> ApiError {
    ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request")
        .with_details(json!({}))
}
