//! Tests of the patch formats.

use super::*;
use crate::kind::builtin::builtin_merge_keys;
use proptest::prelude::*;
use serde_json::json;

fn strategic(current: Value, patch: Value) -> Value {
    apply(PatchKind::Strategic, &current, &patch, builtin_merge_keys).unwrap()
}

#[test]
fn lists_with_a_merge_key_are_merged() {
    let current = json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]}});
    assert_eq!(
        strategic(
            current.clone(),
            json!({"status": {"conditions": [{"type": "B", "status": "False"}]}})
        ),
        json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}]}})
    );
    assert_eq!(
        strategic(
            current.clone(),
            json!({"status": {"conditions": [{"type": "A", "$patch": "delete"}]}})
        ),
        json!({"status": {"conditions": [{"type": "B", "status": "True"}]}})
    );
    assert_eq!(
        strategic(
            current,
            json!({"status": {"conditions": [{"type": "C"}, {"$patch": "replace"}]}})
        ),
        json!({"status": {"conditions": [{"type": "C"}]}})
    );
}

#[test]
fn lists_without_a_merge_key_are_replaced() {
    let current = json!({"spec": {"accessModes": ["a", "b"]}});
    let patch = json!({"spec": {"accessModes": ["c"]}});
    assert_eq!(strategic(current, patch.clone()), patch);
}

#[test]
fn scalar_lists_are_merged_as_sets() {
    let current = json!({"metadata": {"finalizers": ["held", "other"]}});
    assert_eq!(
        strategic(current.clone(), json!({"metadata": {"finalizers": ["more", "held"]}})),
        json!({"metadata": {"finalizers": ["more", "held", "other"]}})
    );
    assert_eq!(
        strategic(current, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["held"]}})),
        json!({"metadata": {"finalizers": ["other"]}})
    );
}

#[test]
fn items_keep_the_order_of_the_patch() {
    let current = json!({"status": {"addresses": [{"type": "A"}, {"type": "B"}, {"type": "X"}]}});
    let patch = json!({"status": {
        "addresses": [{"type": "C"}], "$setElementOrder/addresses": [{"type": "B"}, {"type": "C"}, {"type": "A"}],
    }});
    let wanted = json!({"status": {"addresses": [{"type": "B"}, {"type": "C"}, {"type": "A"}, {"type": "X"}]}});
    assert_eq!(strategic(current, patch), wanted);
}

#[test]
fn maps_are_replaced_deleted_or_kept_by_key() {
    let current = json!({"spec": {"a": {"x": 1, "y": 2}, "b": 1}});
    assert_eq!(
        strategic(
            current.clone(),
            json!({"spec": {"a": {"$patch": "replace", "z": 3}, "b": null}})
        ),
        json!({"spec": {"a": {"z": 3}}})
    );
    assert_eq!(
        strategic(current, json!({"spec": {"a": {"$retainKeys": ["y", "z"], "z": 3}}})),
        json!({"spec": {"a": {"y": 2, "z": 3}, "b": 1}})
    );
}

#[test]
fn test_of_an_absent_path_against_null_passes() {
    let current = json!({"metadata": {"name": "a"}});
    let patch = |value: Value| apply(PatchKind::Json, &current, &value, builtin_merge_keys);
    let add = json!({"op": "add", "path": "/metadata/finalizers", "value": ["f"]});
    let out =
        patch(json!([{"op": "test", "path": "/metadata/finalizers", "value": null}, add.clone()]))
            .unwrap();
    assert_eq!(out["metadata"]["finalizers"], json!(["f"]));
    for refused in [
        json!([{"op": "test", "path": "/metadata/name", "value": null}, add]),
        json!([{"op": "remove", "path": "/nowhere"}]),
        json!([{"op": "unheard-of", "path": "/a"}]),
    ] {
        assert_eq!(patch(refused).map_err(|error| error.code), Err(422));
    }
    assert_eq!(patch(json!({"op": "add"})).map_err(|error| error.code), Err(400));
}

fn any_object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![(-3i64..3).prop_map(Value::from), "[ab]{0,2}".prop_map(Value::from)];
    let inner = leaf.prop_recursive(2, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    prop::collection::btree_map("[abc]", inner, 0..4)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

proptest! {
    #[test]
    fn merge_patches_are_idempotent(current in any_object(), patch in any_object()) {
        for kind in [PatchKind::Merge, PatchKind::Strategic] {
            let once = apply(kind, &current, &patch, builtin_merge_keys).unwrap();
            prop_assert_eq!(apply(kind, &once, &patch, builtin_merge_keys).unwrap(), once);
        }
    }

    #[test]
    fn both_merges_agree_without_keyed_lists(current in any_object(), patch in any_object()) {
        let merged = apply(PatchKind::Merge, &current, &patch, builtin_merge_keys).unwrap();
        prop_assert_eq!(apply(PatchKind::Strategic, &current, &patch, builtin_merge_keys).unwrap(), merged);
    }
}
