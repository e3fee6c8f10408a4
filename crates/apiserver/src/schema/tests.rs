//! Tests of pruning, defaulting and validation: tables of schemas and values, and property tests.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn schema(value: Value) -> Schema {
    compile(&value).unwrap()
}

fn problems(raw: Value, value: Value) -> Vec<String> {
    validate(&schema(raw), &value, None).iter().map(ToString::to_string).collect()
}

#[test]
fn messages_equal_those_of_kube_apiserver() {
    let object = |property: Value| json!({"type": "object", "properties": {"a": property}});
    for (property, value, wanted) in [
        (
            json!({"type": "string"}),
            json!(5),
            r#"a: Invalid value: "integer": a in body must be of type string: "integer""#,
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            "a: Invalid value: 0: a in body should be greater than or equal to 1",
        ),
        (
            json!({"type": "integer", "maximum": 1, "exclusiveMaximum": true}),
            json!(1),
            "a: Invalid value: 1: a in body should be less than 1",
        ),
        (
            json!({"type": "number", "multipleOf": 2}),
            json!(3),
            "a: Invalid value: 3: a in body should be a multiple of 2",
        ),
        (
            json!({"type": "string", "enum": ["x", "y"]}),
            json!("z"),
            r#"a: Unsupported value: "z": supported values: "x", "y""#,
        ),
        (
            json!({"type": "string", "pattern": "^x$"}),
            json!("z"),
            r#"a: Invalid value: "z": a in body should match '^x$'"#,
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("z"),
            r#"a: Invalid value: "z": a in body should be at least 2 chars long"#,
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("zzz"),
            "a: Too long: may not be more than 2 bytes",
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("no"),
            r#"a: Invalid value: "no": a in body must be of type date-time: "no""#,
        ),
        (
            json!({"type": "array", "minItems": 1, "items": {}}),
            json!([]),
            "a: Invalid value: 0: a in body should have at least 1 items",
        ),
        (
            json!({"type": "array", "maxItems": 1, "items": {}}),
            json!([1, 2]),
            "a: Too many: 2: must have at most 1 items",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["a", "a"]),
            r#"a[1]: Duplicate value: "a""#,
        ),
        (json!({"type": "object", "required": ["b"]}), json!({}), "a.b: Required value"),
        (
            json!({"type": "object", "not": {"required": ["b"]}, "properties": {"b": {}}}),
            json!({"b": 1}),
            r#"<nil>: Invalid value: "": "a" must not validate the schema (not)"#,
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            r#"a: Invalid value: "boolean": a in body must be of type integer,string: "boolean""#,
        ),
    ] {
        assert_eq!(problems(object(property), json!({"a": value})), [wanted]);
    }
}

#[test]
fn all_problems_are_reported_together() {
    let raw = json!({"type": "object", "required": ["x"], "properties": {
        "a": {"type": "string"}, "b": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "integer"}}}},
    }});
    assert_eq!(problems(raw, json!({"a": 1, "b": [{"c": 1}, {"c": "x"}, 5]})).len(), 4);
}

#[test]
fn unchanged_values_are_not_validated_again() {
    let schema = schema(json!({"type": "object", "properties": {
        "a": {"type": "string", "enum": ["x"]},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items":
            {"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "integer", "minimum": 5}}}},
    }}));
    let old = json!({"a": "old", "l": [{"name": "one", "v": 1}]});
    let new = json!({"a": "old", "b": 1, "l": [{"name": "two", "v": 2}, {"name": "one", "v": 1}]});
    let found: Vec<String> =
        validate(&schema, &new, Some(&old)).iter().map(|error| error.field.clone()).collect();
    assert_eq!(found, ["l[0].v"]);
    assert_eq!(validate(&schema, &new, None).len(), 3);
}

#[test]
fn unknown_fields_are_pruned_and_reported() {
    let schema = schema(json!({"type": "object", "properties": {
        "a": {"type": "object", "properties": {"b": {"type": "string"}}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"in": {"type": "object"}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"k": {}}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"k": {}}}},
        "nul": {"type": "string", "nullable": true},
    }}));
    let mut value = json!({
        "x": 1, "a": {"b": null, "c": 2}, "open": {"y": 1, "in": {"z": 1}}, "map": {"m": {"k": 1, "n": 2}},
        "list": [{"k": 1}, {"q": 1}], "nul": null,
    });
    assert_eq!(prune(&schema, &mut value), ["a.c", "list[1].q", "map.m.n", "open.in.z", "x"]);
    assert_eq!(
        value,
        json!({"a": {}, "open": {"y": 1, "in": {}}, "map": {"m": {"k": 1}}, "list": [{"k": 1}, {}], "nul": null})
    );
}

/// As kube-apiserver: null in a map is dropped where its values are not nullable, and kept where fields are not listed.
#[test]
fn null_in_a_map_counts_as_absent() {
    let schema = schema(json!({"type": "object", "properties": {
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "numbers": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true}},
        "nullable": {"type": "object", "additionalProperties": {"type": "string", "nullable": true}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}));
    let mut value = json!({
        "map": {"a": null, "b": "c"}, "numbers": {"a": null}, "nullable": {"a": null}, "open": {"a": null},
    });
    assert!(prune(&schema, &mut value).is_empty());
    assert_eq!(
        value,
        json!({"map": {"b": "c"}, "numbers": {}, "nullable": {"a": null}, "open": {"a": null}})
    );
}

#[test]
fn defaults_are_set_inside_defaults() {
    let schema = schema(json!({"type": "object", "properties": {
        "a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 3}}},
        "n": {"type": "string", "nullable": true, "default": "x"},
        "l": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "string", "default": "d"}}}},
    }}));
    let mut value = json!({"l": [{}, {"c": "e"}], "n": null});
    apply_defaults(&schema, &mut value);
    assert_eq!(value, json!({"a": {"b": 3}, "l": [{"c": "d"}, {"c": "e"}], "n": null}));
}

#[test]
fn string_formats_are_checked() {
    for (name, good, bad) in [
        ("date-time", "2026-01-01T00:00:00Z", "2026-01-01"),
        ("date", "2026-01-01", "yesterday"),
        ("ipv4", "10.0.0.1", "10.0.0"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
        ("uuid", "25433403-4f21-4097-84d5-e27c60078621", "25433403"),
        ("byte", "aGk=", "a!"),
        ("duration", "1h30m", "1 hour"),
        ("hostname", "a.example.com", "-a"),
        ("mac", "00:11:22:33:44:55", "00:11"),
    ] {
        assert!(format::holds(name, good), "{name} {good}");
        assert!(!format::holds(name, bad), "{name} {bad}");
    }
    assert!(format::holds("unknown-format", "anything"));
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5i64..5).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string", "default": "a"})),
        Just(json!({"type": "string", "nullable": true})),
        Just(json!({"type": "integer", "minimum": 0})),
        Just(json!({"type": "boolean"})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            inner.clone().prop_map(|values| json!({"type": "object", "additionalProperties": values})),
            prop::collection::btree_map("[abc]", inner, 0..3)
                .prop_map(|map| { json!({"type": "object", "properties": map.into_iter().collect::<serde_json::Map<_, _>>()}) }),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_are_idempotent(raw in any_schema(), mut value in any_value()) {
        let schema = schema(raw);
        prune(&schema, &mut value);
        apply_defaults(&schema, &mut value);
        let once = value.clone();
        prop_assert!(prune(&schema, &mut value).is_empty());
        apply_defaults(&schema, &mut value);
        prop_assert_eq!(value, once);
    }

    #[test]
    fn unchanged_object_is_always_valid(raw in any_schema(), value in any_value()) {
        prop_assert!(validate(&schema(raw), &value, Some(&value)).is_empty());
    }

    #[test]
    fn pruning_keeps_a_valid_object_valid(raw in any_schema(), mut value in any_value()) {
        let schema = schema(raw);
        // Most random pairs do not match; they count as passed, not as rejected inputs.
        if validate(&schema, &value, None).is_empty() {
            prune(&schema, &mut value);
            prop_assert_eq!(validate(&schema, &value, None), vec![]);
        }
    }
}
