use super::*;

// invariant: 6
#[test]
fn settling_restarts_with_every_change_and_not_with_the_agent() {
    let mut settling = Settling::default();
    let at = Duration::from_secs;
    let disk = || [blank("sda", "5000c50000000001")];
    let first = published(&disk(), None, &[], &mut settling, at(0));
    assert_eq!((state(&first, 0).1, settling.next(SETTLING_TIME)), (vec!["TooNew"], Some(at(60))));
    let settled = published(&disk(), Some(&first), &[], &mut settling, at(60));
    assert_eq!(
        (state(&settled, 0), settling.next(SETTLING_TIME)),
        ((DeviceState::Available, vec![]), None)
    );
    // A write to an unused disk, a re-plug, another size: it starts again.
    for change in [
        Facts { writes: 8, ..blank("sda", "5000c50000000001") },
        Facts { diskseq: Some(9), ..blank("sda", "5000c50000000001") },
        Facts { size: 2 << 30, ..blank("sda", "5000c50000000001") },
    ] {
        let mut settling = settling.clone();
        assert_eq!(
            state(&published(&[change], Some(&settled), &[], &mut settling, at(70)), 0).1,
            ["TooNew"]
        );
    }
    let mut restarted = Settling::default();
    assert_eq!(
        state(&published(&disk(), Some(&settled), &[], &mut restarted, at(0)), 0).0,
        DeviceState::Available
    );
    let mut swapped = Settling::default();
    let other = [Facts { diskseq: Some(9), ..blank("sda", "5000c50000000002") }];
    assert_eq!(
        state(&published(&other, Some(&settled), &[], &mut swapped, at(0)), 0).1,
        ["TooNew"]
    );
}

#[test]
fn writes_to_a_device_in_use_do_not_make_it_new() {
    let mut settling = Settling::default();
    let exclusive_open = |writes| {
        [Facts {
            exclusive_open: ExclusiveOpen::Exclusively,
            writes,
            ..blank("sda", "5000c50000000001")
        }]
    };
    published(&exclusive_open(1), None, &[], &mut settling, Duration::ZERO);
    let settled = published(&exclusive_open(2), None, &[], &mut settling, SETTLING_TIME);
    assert_eq!(state(&settled, 0).1, ["HeldExclusively"]);
}
