use super::*;

#[test]
fn events_name_what_appeared_disappeared_and_changed() {
    let mut settling = Settling::default();
    let disks = |names: &[&str]| -> Vec<Facts> {
        names
            .iter()
            .enumerate()
            .map(|(n, name)| blank(name, &format!("5000c5000000000{n}")))
            .collect()
    };
    let before = published(&disks(&["sda", "sdb"]), None, &[], &mut settling, Duration::ZERO);
    let mut now = disks(&["sda"]);
    now[0].content = Content::Found(Found { fs_type: Some("ext4".into()), ..Found::default() });
    now.push(Facts { volume_uid: Some("u".into()), ..blank("sdc", "5000c50000000009") });
    let after = published(&now, Some(&before), &[], &mut settling, Duration::from_secs(1));
    let findings: Vec<String> = changes(&before, &after)
        .into_iter()
        .map(|one| format!("{} {}", one.reason, one.message))
        .collect();
    assert_eq!(
        findings,
        [
            "DeviceAppeared sdc (disk, 1Gi, wwn:5000c50000000009) appeared: NotAvailable, because it is the storage of a Volume: u",
            "DeviceDisappeared sdb (disk, 1Gi, wwn:5000c50000000001) disappeared; it was Unknown, because it has been unchanged for less than the settling time",
            "DeviceVerdictChanged sda (disk, 1Gi, wwn:5000c50000000000) was Unknown, now NotAvailable, because it contains data: ext4; it has been unchanged for less than the settling time",
        ]
    );
    assert!(changes(&after, &after).is_empty());
    let many: Vec<Facts> =
        (0..50).map(|n| blank(&format!("sd{n}"), &format!("5000c500000001{n:02}"))).collect();
    let crowd = published(&many, Some(&after), &[], &mut settling, Duration::from_secs(2));
    assert!(changes(&after, &crowd).len() <= 20);
}
