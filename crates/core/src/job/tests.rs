use super::*;
use serde_json::{Value, json};

const UID: &str = "0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab";

fn volume_spec(action: &str, parameters: Value) -> NodeJobSpec {
    serde_json::from_value(json!({
        "action": action, "nodeName": "n", "owner": {"kind": "Volume", "name": "v", "uid": UID},
        "device": {"sparseFile": {"volumeUID": UID}}, "precondition": {"nodeUID": "n", "specHash": "h"},
        "parameters": parameters, "attempt": 1,
    }))
    .unwrap()
}

fn wipe_spec(parameters: Value) -> NodeJobSpec {
    serde_json::from_value(json!({
        "action": "Wipe", "nodeName": "n", "owner": {"kind": "LocalVolumeSet", "name": "s", "uid": "set"},
        "device": {"claimed": {"identity": "wwn:5", "size": 4096, "pvName": "p", "pvUID": "p-uid"}},
        "precondition": {"nodeUID": "n", "specHash": "h"}, "parameters": parameters, "attempt": 1,
    }))
    .unwrap()
}

fn parse(spec: &NodeJobSpec) -> Result<Task, InvalidTask> {
    Task::try_from(spec)
}

#[test]
fn a_spec_that_does_not_fit_its_action_is_no_task() {
    let mut other = volume_spec("Cleanup", json!(null));
    other.owner.uid = "1b0f1f9e-3c1c-4a5e-8e0e-0123456789ab".into();
    assert_eq!(parse(&other), Err(InvalidTask::OtherVolume));
    let log = json!({"size": 1 << 30, "filesystem": {"type": "xfs", "mkfsOptions": ["-l", "logdev=/dev/sda"]}});
    assert!(matches!(parse(&volume_spec("Prepare", log)), Err(InvalidTask::MkfsOption(_))));
    for (parameters, invalid) in [
        (json!(null), InvalidTask::NoFormat),
        (json!({"size": 1}), InvalidTask::NoFormat),
        (json!({"size": 1, "filesystem": {"type": "xfs"}, "partition": {}}), InvalidTask::NoFormat),
        (json!({"size": -1, "partition": {}}), InvalidTask::Size(-1)),
        (json!({"size": 0, "partition": {}}), InvalidTask::Size(0)),
    ] {
        assert_eq!(parse(&volume_spec("Prepare", parameters)), Err(invalid));
    }
    for parameters in [
        json!(null),
        json!({"size": 4096, "partition": {}}),
        json!({"size": 1, "wipe": {"policy": "Zero"}}),
    ] {
        assert_eq!(parse(&wipe_spec(parameters)), Err(InvalidTask::NoWipePolicy));
    }
    let wipe = json!({"size": 4096, "wipe": {"policy": "Zero"}});
    let mut no_pv = wipe_spec(wipe.clone());
    no_pv.device.claimed.as_mut().unwrap().pv_name = String::new();
    assert_eq!(parse(&no_pv), Err(InvalidTask::NoSubject));
    let no_device = NodeJobSpec { action: Action::Wipe, ..volume_spec("Cleanup", wipe.clone()) };
    assert_eq!(parse(&no_device), Err(InvalidTask::NoClaimedDevice));
    let no_file = NodeJobSpec { action: Action::Cleanup, ..wipe_spec(wipe) };
    assert_eq!(parse(&no_file), Err(InvalidTask::NoSparseFile));
}

#[test]
fn a_task_is_spelled_as_the_spec_it_was_parsed_from() {
    for (spec, text) in [
        (
            volume_spec("Prepare", json!({"size": 1 << 30, "filesystem": {"type": "xfs"}})),
            "1Gi xfs",
        ),
        (
            volume_spec(
                "Prepare",
                json!({"size": 1 << 30, "filesystem": {"type": "ext4", "mkfsOptions": ["-m", "0"]}}),
            ),
            "1Gi ext4 -m 0",
        ),
        (volume_spec("Prepare", json!({"size": 4096, "partition": {}})), "4Ki, one partition"),
        (volume_spec("Cleanup", json!(null)), "remove"),
        (wipe_spec(json!({"size": 4096, "wipe": {"policy": "Discard"}})), "Discard of 4Ki"),
    ] {
        let task = parse(&spec).unwrap();
        let spelled = NodeJobSpec {
            action: task.action(),
            device: task.device(),
            parameters: task.parameters(),
            ..spec.clone()
        };
        // The name of a job is a hash of its spec.
        assert_eq!((spelled.job_name(), &spelled), (spec.job_name(), &spec));
        assert_eq!(task.describe(), text);
    }
}
