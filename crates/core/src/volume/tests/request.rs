//! What a Volume requests, and bad input.

use super::*;

// invariant: 8, 9
#[test]
fn bad_input_is_reported_and_nothing_is_started() {
    let cases: Vec<(&str, Observed, Phase, &str)> = vec![
        (
            "size 0",
            observed(json!({"spec": {"sparseLoopDevice": {"size": "0"}}})),
            Phase::Failed,
            "is 0",
        ),
        (
            "negative",
            observed(json!({"spec": {"sparseLoopDevice": {"size": "-1Gi"}}})),
            Phase::Failed,
            "negative",
        ),
        (
            "no type",
            observed(json!({"spec": {"sparseLoopDevice": null}})),
            Phase::Failed,
            "no type is set",
        ),
        (
            "two types",
            observed(json!({"spec": {"rawBlockDevice": {"devicePath": "/dev/sdb"}}})),
            Phase::Failed,
            "sparseLoopDevice and rawBlockDevice",
        ),
        (
            "other type",
            observed(
                json!({"spec": {"sparseLoopDevice": null, "rawBlockDevice": {"devicePath": "/dev/sdb"}}}),
            ),
            Phase::Failed,
            "only sparseLoopDevice",
        ),
        (
            "no node",
            Observed { node: None, ..observed(json!({})) },
            Phase::Pending,
            "node n1 does not exist",
        ),
        (
            "no class",
            Observed { class: None, ..observed(json!({})) },
            Phase::Pending,
            "StorageClass fast does not exist",
        ),
        (
            "no agent",
            Observed { agent: Presence::Never, ..observed(json!({})) },
            Phase::Pending,
            "no agent has been seen on node n1",
        ),
        (
            "agent gone",
            Observed { agent: Presence::Absent { since: now() }, ..observed(json!({})) },
            Phase::Pending,
            "absent since 2026-01-01T00:00:00Z",
        ),
        ("no fsType", with_class(json!({})), Phase::Failed, "has no parameter fsType"),
        (
            "bad fsType",
            with_class(json!({"fsType": "zfs"})),
            Phase::Failed,
            "\"zfs\", which is not supported",
        ),
        (
            "bad option",
            with_class(json!({"fsType": "xfs", "mkfsOptions": "[\"-N\"]"})),
            Phase::Failed,
            "\"-N\"",
        ),
        (
            "bad list",
            with_class(json!({"fsType": "xfs", "mkfsOptions": "-K"})),
            Phase::Failed,
            "JSON list",
        ),
    ];
    for (case, seen, expected, words) in cases {
        let reported = plan(&seen, now());
        assert!(reported.steps.is_empty(), "{case}: {:?}", reported.steps);
        assert_eq!(phase(&reported), expected, "{case}");
        assert!(message(&reported).contains(words), "{case}: {}", message(&reported));
        assert_eq!(reported.events.len(), 1, "{case}: one event");
        assert!(
            explain::explain(&seen).iter().any(|line| line.verdict != explain::Verdict::Ok),
            "{case}: explain shows it"
        );
        let mut after = seen.clone();
        apply(&mut after, &reported);
        let again = plan(&after, now());
        assert_eq!(again.status, after.volume.status, "{case}: said once");
        assert!(again.events.is_empty(), "{case}: reported once");
        delete(&mut after);
        after.volume.metadata.finalizers = Some(vec![names::VOLUME_FINALIZER.into()]);
        assert_eq!(
            step_names(&plan(&after, now())),
            ["ReleaseVolume"],
            "{case}: nothing started, so it goes at once"
        );
    }
}

fn with_class(parameters: Value) -> Observed {
    let mut seen = observed(json!({}));
    seen.class = Some(
        serde_json::from_value(
            json!({"metadata": {"name": "fast"}, "provisioner": "x", "parameters": parameters}),
        )
        .unwrap(),
    );
    seen
}

#[test]
fn a_block_volume_needs_no_fs_type() {
    let mut seen = with_class(json!({}));
    seen.volume.spec.mode = quarry_api::volume::VolumeMode::Block;
    assert_eq!(step_names(&plan(&seen, now())), ["AddFinalizer", "RecordJob", "CreateJob"]);
}
