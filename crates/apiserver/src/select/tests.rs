//! Tests of label and field selectors.

use super::*;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn labels(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

#[test]
fn every_operator_matches_as_in_kubernetes() {
    let object = labels(json!({"tier": "one", "n": "7", "example.com/x": ""}));
    for (text, wanted) in [
        ("", true),
        ("tier=one", true),
        ("tier==one", true),
        ("tier = two", false),
        ("tier!=two", true),
        ("absent!=x", true),
        ("tier in (one, two)", true),
        ("tier notin (one)", false),
        ("absent notin (one)", true),
        ("tier", true),
        ("!tier", false),
        ("!absent", true),
        ("n>6", true),
        ("n<7", false),
        ("tier>1", false),
        ("example.com/x=", true),
        ("tier=one,n in (7,8),!absent", true),
        ("tier=one,n=8", false),
    ] {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.matches(Some(&object)), wanted, "{text}");
    }
    assert!(LabelSelector::parse("!a").unwrap().matches(None));
}

#[test]
fn invalid_selectors_are_refused() {
    for text in ["a in b", "a in (b", "a=b c", "a b", ",", "a>x", "-a=b", "a=b/c"] {
        assert_eq!(LabelSelector::parse(text).map_err(|error| error.code), Err(400), "{text}");
    }
    assert_eq!(FieldSelector::parse("metadata.name").map_err(|error| error.code), Err(400));
}

#[test]
fn selector_object_matches_like_its_text() {
    let selector = LabelSelector::from_object(&json!({
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}, {"key": "e", "operator": "DoesNotExist"}],
    }));
    assert!(selector.matches(Some(&labels(json!({"a": "b", "c": "x"})))));
    assert!(!selector.matches(Some(&labels(json!({"a": "b", "c": "d"})))));
    let odd = LabelSelector::from_object(
        &json!({"matchExpressions": [{"key": "c", "operator": "Like"}]}),
    );
    assert!(!odd.matches(Some(&labels(json!({"c": "d"})))), "an unknown operator selects nothing");
}

#[test]
fn fields_are_compared_as_text_with_escapes() {
    let read = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let object = json!({"a": "x,y=z", "b": "2"});
    for (text, wanted) in [("a=x\\,y\\=z", true), ("b=2,a!=q", true), ("b!=2", false), ("c=", true)]
    {
        assert_eq!(FieldSelector::parse(text).unwrap().matches(&object, read), wanted, "{text}");
    }
}

proptest! {
    #[test]
    fn in_and_notin_are_opposites(value in "[a-c]", list in prop::collection::vec("[a-c]", 1..3), present in any::<bool>()) {
        let object = if present { labels(json!({"k": value})) } else { Map::new() };
        let list = list.join(",");
        let yes = LabelSelector::parse(&format!("k in ({list})")).unwrap().matches(Some(&object));
        let no = LabelSelector::parse(&format!("k notin ({list})")).unwrap().matches(Some(&object));
        prop_assert_ne!(yes, no);
    }

    #[test]
    fn parser_never_panics(text in ".{0,40}") {
        let _ = LabelSelector::parse(&text);
        let _ = FieldSelector::parse(&text);
    }
}
