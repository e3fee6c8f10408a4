//! Tests of tables, ages and JSONPath.

use super::*;
use serde_json::json;

#[test]
fn jsonpath_finds_column_values() {
    let object = json!({"status": {"conditions": [
        {"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"},
    ]}, "spec": {"a.b": 1, "list": [{"n": "x"}, {"n": "y"}]}, "metadata": {"labels": {"example.com/a": "l"}}});
    for (path, wanted) in [
        (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
        (".status.conditions[?(@.type!='Ready')].status", json!(["False"])),
        (".status.conditions[0].type", json!(["Other"])),
        (".status.conditions[-1].type", json!(["Ready"])),
        (".spec.list[*].n", json!(["x", "y"])),
        (".spec.a\\.b", json!([1])),
        (".metadata.labels['example.com/a']", json!(["l"])),
        ("{.spec.list[0].n}", json!(["x"])),
        (".spec.none.deeper", json!([])),
        (".spec.list[?(nonsense)]", json!([])),
    ] {
        assert_eq!(json!(JsonPath::parse(path).find(&object)), wanted, "{path}");
    }
}

#[test]
fn ages_are_printed_like_kubectl_does() {
    for (seconds, wanted) in [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_520, "3h12m"),
        (28_800, "8h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (-5, "<invalid>"),
    ] {
        assert_eq!(age::human(seconds), wanted, "{seconds}");
    }
}

#[test]
fn built_in_kinds_have_kubectl_columns() {
    let now = "2026-01-01T01:00:00Z".parse().unwrap();
    let pv = json!({
        "metadata": {"name": "pv", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "c"}, "volumeMode": "Block"},
        "status": {"phase": "Bound"},
    });
    assert_eq!(
        Columns::PersistentVolume.cells(&pv, now),
        json!([
            "pv", "1Gi", "RWO,RWX", "Retain", "Bound", "n/c", "", "<unset>", "", "60m", "Block"
        ])
    );
    let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(Columns::Node.cells(&node, now)[1], "Ready,SchedulingDisabled");
    for columns in [
        Columns::Node,
        Columns::Event,
        Columns::PersistentVolumeClaim,
        Columns::Lease,
        Columns::Secret,
    ] {
        let heads = columns.definitions().as_array().unwrap().len();
        assert_eq!(columns.cells(&json!({}), now).as_array().unwrap().len(), heads, "{columns:?}");
    }
}
