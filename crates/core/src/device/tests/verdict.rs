use super::*;

fn reasons_of(facts: &Facts) -> (DeviceState, Vec<String>) {
    let verdict = judge(facts, &[], &NodeInventorySpec::default(), Vec::new());
    (verdict.state, verdict.reasons.into_iter().map(|found| found.reason.to_string()).collect())
}

// invariant: 1, 4
#[test]
fn only_a_blank_free_disk_is_available() {
    assert_eq!(reasons_of(&blank("sda", "5000c50000000001")), (DeviceState::Available, vec![]));
    for (content, exclusive_open) in
        [(Content::Unread, ExclusiveOpen::Free), (Content::Blank, ExclusiveOpen::Unasked)]
    {
        let (state, reasons) = reasons_of(&Facts { content, exclusive_open, ..blank("sda", "5") });
        assert_eq!((state, reasons.len()), (DeviceState::Unknown, 1), "unknown is no: {reasons:?}");
    }
}

/// Each reason of the node by the one fact that brings it about.
// invariant: 1, 7
#[test]
fn each_fact_has_its_reason() {
    let found = |fs: Option<&str>, table: Option<&str>| {
        Content::Found(Found {
            fs_type: fs.map(Into::into),
            table: table.map(Into::into),
            ..Found::default()
        })
    };
    type Change = Box<dyn Fn(&mut Facts)>;
    let cases: Vec<(Reason, Change)> = vec![
        (Reason::ReadOnly, Box::new(|facts| facts.read_only = true)),
        (Reason::Removable, Box::new(|facts| facts.removable = true)),
        (Reason::HasChildren, Box::new(|facts| facts.partitions = vec!["sda1".into()])),
        (Reason::HasHolders, Box::new(|facts| facts.holders = vec!["dm-0".into()])),
        (Reason::Mounted, Box::new(|facts| facts.mounts = vec!["/mnt".into()])),
        (Reason::Swap, Box::new(|facts| facts.swap = true)),
        (Reason::Signature, Box::new(move |facts| facts.content = found(Some("ext4"), None))),
        (Reason::PartitionTable, Box::new(move |facts| facts.content = found(None, Some("gpt")))),
        (
            Reason::BootLabel,
            Box::new(|facts| {
                facts.partition = Some(Partition {
                    label: Some("BIOS Boot Partition".into()),
                    ..Partition::default()
                })
            }),
        ),
        (
            Reason::BootLabel,
            Box::new(|facts| {
                facts.partition = Some(Partition {
                    type_id: Some("C12A7328-F81F-11D2-BA4B-00A0C93EC93B".into()),
                    ..Partition::default()
                })
            }),
        ),
        (Reason::Suspended, Box::new(|facts| facts.state = Some("suspended".into()))),
        (
            Reason::HeldExclusively,
            Box::new(|facts| facts.exclusive_open = ExclusiveOpen::Exclusively),
        ),
        (Reason::LoopOnTop, Box::new(|facts| facts.loops_on_top = vec!["loop3".into()])),
        (Reason::UnknownData, Box::new(|facts| facts.content = Content::UnknownData)),
        (Reason::BacksPersistentVolume, Box::new(|facts| facts.backs = vec!["local-pv-1".into()])),
        (Reason::BacksVolume, Box::new(|facts| facts.volume_uid = Some("u".into()))),
        (Reason::ObservedOnly, Box::new(|facts| facts.observed_only = true)),
        (Reason::NotLocal, Box::new(|facts| facts.not_local = Some("iscsi".into()))),
        (Reason::Unreadable, Box::new(|facts| facts.content = Content::Unreadable("EIO".into()))),
        (Reason::TimedOut, Box::new(|facts| facts.content = Content::TimedOut)),
        (Reason::NotPermitted, Box::new(|facts| facts.content = Content::NotPermitted)),
        (Reason::NoMedium, Box::new(|facts| facts.content = Content::NoMedium)),
        (Reason::ZeroSize, Box::new(|facts| facts.size = 0)),
    ];
    for (reason, change) in cases {
        let mut facts = blank("sda", "5000c50000000001");
        change(&mut facts);
        assert_eq!(reasons_of(&facts), (reason.row().state, vec![reason.as_str().to_owned()]));
    }
}

// invariant: 4, 9
#[test]
fn all_reasons_are_reported_and_the_certain_ones_decide() {
    let facts = Facts {
        read_only: true,
        content: Content::TimedOut,
        mounts: (0..9).map(|n| format!("/m{n}")).collect(),
        ..blank("sda", "5")
    };
    let (state, reasons) = reasons_of(&facts);
    assert_eq!(state, DeviceState::NotAvailable);
    assert_eq!(
        reasons.iter().filter(|reason| *reason == "Mounted").count(),
        5,
        "four by name, the rest by number"
    );
    assert!(reasons.contains(&"TimedOut".into()) && reasons.contains(&"ReadOnly".into()));
}

#[test]
fn cluster_reasons_apply_by_identity() {
    let owner = ClaimOwner {
        kind: "LocalVolumeSet".into(),
        namespace: Some("ns".into()),
        name: "fast".into(),
        uid: "u".into(),
    };
    let spec = NodeInventorySpec {
        device_claims: vec![DeviceClaim {
            identity: "wwn:1".into(),
            owner,
            ..DeviceClaim::default()
        }],
        quarantine: vec![Quarantine {
            identity: "wwn:2".into(),
            reason: "IdentityElsewhere".into(),
            detail: "n2/sdb".into(),
        }],
        retained_data: vec![RetainedData {
            identity: "wwn:4".into(),
            pv_name: "local-pv-1".into(),
            pv_uid: "u".into(),
            ..RetainedData::default()
        }],
        ..NodeInventorySpec::default()
    };
    let of = |identity: &str| {
        judge(&blank("sda", "5"), &["serial:m:s".into(), identity.into()], &spec, Vec::new())
            .reasons
    };
    assert_eq!(
        (of("wwn:1")[0].reason.as_str(), of("wwn:1")[0].detail.as_str()),
        ("Claimed", "LocalVolumeSet ns/fast")
    );
    assert_eq!(
        (of("wwn:2")[0].reason.as_str(), of("wwn:2")[0].detail.as_str()),
        ("IdentityElsewhere", "n2/sdb")
    );
    assert_eq!(
        (of("wwn:4")[0].reason.as_str(), of("wwn:4")[0].detail.as_str()),
        ("RetainedData", "local-pv-1, UID u")
    );
    assert!(of("wwn:3").is_empty());
}

#[test]
fn every_reason_of_the_table_occurs() {
    // Those that need other devices or the cluster; the others are in `each_fact_has_its_reason`.
    let elsewhere = [
        Reason::IdentityElsewhere,
        Reason::DuplicateIdentity,
        Reason::IdentityChanged,
        Reason::AmbiguousIdentity,
        Reason::NoIdentity,
        Reason::Claimed,
        Reason::RetainedData,
        Reason::UnlistedPersistentVolumes,
        Reason::TooNew,
    ];
    assert_eq!(TABLE.len(), elsewhere.len() + 22);
}
