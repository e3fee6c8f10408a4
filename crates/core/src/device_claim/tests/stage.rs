//! The words of the stages.

use super::*;

#[test]
fn every_stage_has_a_name_and_a_detail() {
    let text = || "why".to_owned();
    let stages = [
        (Stage::Frozen(text()), "Frozen", false),
        (Stage::Claimed, "Claimed", false),
        (Stage::Refused(text()), "Refused", false),
        (Stage::Blocked(text()), "Blocked", false),
        (Stage::Confirmed, "Confirmed", false),
        (Stage::Available, "Available", true),
        (Stage::Bound(text()), "Bound", true),
        (Stage::Retained(text()), "Retained", false),
        (Stage::Releasing(text()), "Releasing", false),
        (Stage::Wiping(text()), "Wiping", false),
        (Stage::WipeFailed(text()), "WipeFailed", false),
        (Stage::Missing(text()), "Missing", false),
        (Stage::Terminating(text()), "Terminating", false),
        (Stage::RemovalFailed(text()), "RemovalFailed", false),
        (Stage::Conflict(text()), "Conflict", true),
    ];
    for (stage, word, provisioned) in stages {
        let bare = matches!(stage, Stage::Claimed | Stage::Confirmed | Stage::Available);
        assert_eq!(
            (stage.as_str(), stage.is_provisioned(), stage.detail()),
            (word, provisioned, if bare { "" } else { "why" })
        );
    }
}

#[test]
fn empty_details_are_omitted() {
    let object = json!({
        "metadata": {"name": "s", "namespace": "quarry-system", "uid": "u", "annotations": {names::INCLUDE_NOT_LOCAL_ANNOTATION: "NBD, ,iscsi"}},
        "spec": {"storageClassName": "s"},
    });
    let DeviceSelection::Set(asked) = of_set(&serde_json::from_value(object).unwrap()).selection
    else {
        panic!()
    };
    assert_eq!(asked.not_local, ["nbd", "iscsi"]);
    let fs_type = |text: &str| {
        let spec = json!({"storageClassDevices": [{"storageClassName": "s", "fsType": text, "devicePaths": ["/dev/sda"]}]});
        let object = json!({"metadata": {"name": "s", "uid": "u"}, "spec": spec});
        let demand = of_local_volume(&serde_json::from_value(object).unwrap());
        let DeviceSelection::Paths(asked) = demand.selection else { panic!() };
        asked[0].settings.fs_type.clone()
    };
    assert_eq!((fs_type("xfs").as_deref(), fs_type("")), (Some("xfs"), None));
}
