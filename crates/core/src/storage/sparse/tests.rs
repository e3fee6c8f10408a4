use super::*;
use quarry_api::node_job::FsType;

fn target(format: Format) -> PrepareVolume {
    PrepareVolume { uid: "u".into(), size: Bytes(1 << 20), format }
}

fn xfs() -> Format {
    Format::Filesystem { fs: FsType::Xfs, options: vec![] }
}

fn ready(partitioned: bool) -> Observed {
    Observed {
        in_ledger: true,
        file: Some(File { size: Bytes(1 << 20), partitioned }),
        ..Observed::default()
    }
}

fn attached(partition: Option<(String, Bytes)>) -> Vec<Loop> {
    vec![Loop { name: "loop3".into(), partition, users: vec![] }]
}

#[test]
fn a_fresh_volume_is_built_as_a_draft_and_published_last() {
    let Next::Steps(steps) =
        plan_prepare(&target(xfs()), &Observed { in_ledger: true, ..Observed::default() })
    else {
        panic!()
    };
    assert_eq!(
        steps,
        [Step::MakeDraft { size: Bytes(1 << 20) }, Step::FormatDraft(xfs()), Step::PublishDraft]
    );
}

#[test]
fn a_leftover_draft_is_rebuilt_and_never_continued() {
    let seen = Observed { in_ledger: true, draft: true, ..Observed::default() };
    let Next::Steps(steps) = plan_prepare(&target(xfs()), &seen) else { panic!() };
    assert_eq!(steps[0], Step::DiscardDraft);
}

// invariant: 1
#[test]
fn a_file_that_the_ledger_does_not_know_is_left_alone() {
    for seen in [
        Observed { in_ledger: false, ..ready(false) },
        Observed { draft: true, ..Observed::default() },
    ] {
        assert_eq!(plan_prepare(&target(xfs()), &seen), Next::Refused(Refusal::UnknownFile));
        assert_eq!(plan_cleanup(&seen), Next::Refused(Refusal::UnknownFile));
    }
}

// invariant: 1
#[test]
fn a_finished_file_is_never_formatted_again() {
    for seen in [ready(false), ready(true)] {
        for format in [xfs(), Format::Partition] {
            if let Next::Steps(steps) = plan_prepare(&target(format), &seen) {
                assert!(!steps.iter().any(|s| matches!(
                    s,
                    Step::FormatDraft(_)
                        | Step::MakeDraft { .. }
                        | Step::DiscardDraft
                        | Step::RemoveFile
                )));
            }
        }
    }
}

// invariant: 1
#[test]
fn another_size_or_content_is_refused() {
    let mut seen = ready(false);
    seen.file = Some(File { size: Bytes(5), partitioned: false });
    assert!(matches!(
        plan_prepare(&target(xfs()), &seen),
        Next::Refused(Refusal::OtherSize { .. })
    ));
    assert!(matches!(
        plan_prepare(&target(Format::Partition), &ready(false)),
        Next::Refused(Refusal::OtherContent(_))
    ));
}

#[test]
fn without_udev_the_link_is_made_with_udev_it_is_awaited() {
    let mut seen = Observed { loops: attached(None), ..ready(false) };
    assert_eq!(
        plan_prepare(&target(xfs()), &seen),
        Next::Steps(vec![Step::MakeLink { device: "loop3".into() }])
    );
    seen.udev = true;
    assert_eq!(
        plan_prepare(&target(xfs()), &seen),
        Next::Steps(vec![Step::AwaitLink { device: "loop3".into() }])
    );
}

// invariant: 3
#[test]
fn a_link_to_a_real_disk_is_never_replaced() {
    let seen = Observed { loops: attached(None), link: Link::To("sda1".into()), ..ready(false) };
    assert!(matches!(
        plan_prepare(&target(xfs()), &seen),
        Next::Refused(Refusal::OtherDeviceLink { .. })
    ));
    let stale = Observed { link: Link::To("loop9".into()), ..seen };
    assert_eq!(
        plan_prepare(&target(xfs()), &stale),
        Next::Steps(vec![Step::MakeLink { device: "loop3".into() }])
    );
}

#[test]
fn a_block_volume_needs_its_partition_before_its_link() {
    let seen = Observed { loops: attached(None), ..ready(true) };
    assert_eq!(
        plan_prepare(&target(Format::Partition), &seen),
        Next::Steps(vec![Step::AddPartition { device: "loop3".into() }])
    );
    let seen = Observed {
        loops: attached(Some(("loop3p1".into(), Bytes(99)))),
        link: Link::To("loop3p1".into()),
        ..ready(true)
    };
    let Next::Done(Done::Prepared(result)) = plan_prepare(&target(Format::Partition), &seen) else {
        panic!()
    };
    assert_eq!(
        (result.path.as_str(), result.device_name.as_str(), result.capacity),
        ("/dev/disk/by-partlabel/u", "loop3", 99)
    );
}

// invariant: 2
#[test]
fn a_device_in_use_is_not_detached_and_its_file_not_removed() {
    for user in [
        User::Mount("/mnt".into()),
        User::Swap,
        User::Holder("dm-0".into()),
        User::LoopOnTop("loop9".into()),
        User::Exclusive,
    ] {
        let seen = Observed {
            loops: vec![Loop { name: "loop3".into(), partition: None, users: vec![user] }],
            ..ready(false)
        };
        assert!(matches!(plan_cleanup(&seen), Next::Refused(Refusal::InUse { .. })));
    }
}

// invariant: 2
#[test]
fn the_file_goes_only_when_no_loop_is_left() {
    let seen = Observed { loops: attached(None), link: Link::To("loop3".into()), ..ready(false) };
    assert_eq!(plan_cleanup(&seen), Next::Steps(vec![Step::Detach { device: "loop3".into() }]));
    let seen = Observed { loops: vec![], ..seen };
    assert_eq!(plan_cleanup(&seen), Next::Steps(vec![Step::RemoveLink, Step::RemoveFile]));
    assert_eq!(
        plan_cleanup(&Observed { in_ledger: true, ..Observed::default() }),
        Next::Done(Done::Removed)
    );
    assert_eq!(
        plan_cleanup(&Observed::default()),
        Next::Done(Done::Removed),
        "nothing was ever made"
    );
}
