use super::*;
use crate::device::{group_with_overdue, returning_path::RETURN_TIME};

const WWN: &str = "6000c50000000001";

fn map(paths: &[&str]) -> Facts {
    Facts {
        name: "dm-0".into(),
        mapped_name: Some("mpatha".into()),
        kind: "mpath".into(),
        diskseq: Some(50),
        evidence: evidence(&[("sysfs:dm-uuid", "mpath-36000c5")]),
        slaves: paths.iter().map(|name| (*name).to_owned()).collect(),
        ..blank("dm-0", WWN)
    }
}

fn path(name: &str, diskseq: u64, taken: bool) -> Facts {
    let holders = if taken { vec!["dm-0".to_owned()] } else { Vec::new() };
    Facts { diskseq: Some(diskseq), holders, ..blank(name, WWN) }
}

/// Scans as the agent does.
fn scan(
    seen: &[Facts],
    previous: Option<&NodeInventoryStatus>,
    settling: &mut Settling,
    now: u64,
) -> NodeInventoryStatus {
    let now = Duration::from_secs(now);
    let overdue = settling.overdue_paths(now);
    let known = group_with_overdue(seen, previous, Some("boot"), &[], &overdue);
    settling.observe(&known, previous, Some("boot"), now, SETTLING_TIME);
    status(
        NodeFacts { boot_id: Some("boot".into()), ..NodeFacts::default() },
        &known,
        settling,
        &NodeInventorySpec::default(),
    )
}

/// A settled map over one path: the other one was lost.
fn one_path_left(settling: &mut Settling) -> NodeInventoryStatus {
    let both = [map(&["sda", "sdb"]), path("sda", 1, true), path("sdb", 2, true)];
    let first = scan(&both, None, settling, 0);
    let settled = scan(&both, Some(&first), settling, 100);
    let left = scan(&[map(&["sda"]), path("sda", 1, true)], Some(&settled), settling, 200);
    assert_eq!(state(&left, 0), (DeviceState::Available, vec![]));
    left
}

// invariant: 3
#[test]
fn a_path_that_returns_to_a_known_map_withdraws_nothing() {
    let mut settling = Settling::default();
    let left = one_path_left(&mut settling);
    let bare = [map(&["sda"]), path("sda", 1, true), path("sdb", 3, false)];
    let back = scan(&bare, Some(&left), &mut settling, 300);
    assert_eq!(back.devices.len(), 1, "the path is no device of its own: {back:?}");
    assert_eq!(state(&back, 0), (DeviceState::Available, vec![]));
    assert_eq!(back.devices[0].paths, ["sda", "sdb"]);
    assert_eq!(settling.next(SETTLING_TIME), Some(Duration::from_secs(300) + RETURN_TIME));
    // Another scan, a restart of the agent: the same answer.
    assert_eq!(scan(&bare, Some(&back), &mut settling, 330), back);
    assert_eq!(scan(&bare, Some(&back), &mut Settling::default(), 330), back);
    // multipathd takes it: nothing changes, and nothing is waited for.
    let taken = [map(&["sda", "sdb"]), path("sda", 1, true), path("sdb", 3, true)];
    assert_eq!(scan(&taken, Some(&back), &mut settling, 340), back);
    assert_eq!(settling.next(SETTLING_TIME), None);
}

#[test]
fn a_path_that_multipathd_does_not_take_is_a_duplicate() {
    let mut settling = Settling::default();
    let left = one_path_left(&mut settling);
    let bare = [map(&["sda"]), path("sda", 1, true), path("sdb", 3, false)];
    let mut status = scan(&bare, Some(&left), &mut settling, 300);
    let end = 300 + RETURN_TIME.as_secs();
    status = scan(&bare, Some(&status), &mut settling, end - 1);
    assert_eq!(status.devices.len(), 1);
    for now in [end, end + 10, end + 1000] {
        status = scan(&bare, Some(&status), &mut settling, now);
        assert_eq!(state(&status, 0).1, ["DuplicateIdentity"]);
        assert_eq!(state(&status, 1).1[0], "DuplicateIdentity");
    }
    // Also for an agent that was restarted since, and without the wait (a wipe, a confirmation).
    let restarted = scan(&bare, Some(&status), &mut Settling::default(), 0);
    assert_eq!(state(&restarted, 0).1, ["DuplicateIdentity"]);
    assert_eq!(group(&bare, Some(&status), Some("boot"), &[]).len(), 2);
    // Unplugged and plugged in again, it may be taken this time.
    let again = [map(&["sda"]), path("sda", 1, true), path("sdb", 4, false)];
    status = scan(&again, Some(&status), &mut settling, end + 2000);
    assert_eq!(state(&status, 0), (DeviceState::Available, vec![]));
}

// invariant: 3
#[test]
fn only_a_path_of_a_map_that_was_there_returns() {
    let mut settling = Settling::default();
    let left = one_path_left(&mut settling);
    let bare = path("sdb", 3, false);
    let duplicates = |seen: &[Facts], previous: Option<&NodeInventoryStatus>, boot: &str| {
        let known = group(seen, previous, Some(boot), &[]);
        known.iter().filter(|one| one.findings.iter().any(is_duplicate)).count()
    };
    fn is_duplicate((reason, _): &(Reason, String)) -> bool {
        *reason == Reason::DuplicateIdentity
    }
    let seen = [map(&["sda"]), path("sda", 1, true), bare.clone()];
    assert_eq!(duplicates(&seen, Some(&left), "boot"), 0);
    assert_eq!(duplicates(&seen, None, "boot"), 2, "no map is known");
    assert_eq!(duplicates(&seen, Some(&left), "another boot"), 2);
    // The map is gone: two bare paths.
    let flushed = [path("sda", 1, false), bare.clone()];
    assert_eq!(duplicates(&flushed, Some(&left), "boot"), 2);
    // Another map under the same kernel name.
    let other = [Facts { diskseq: Some(51), ..map(&["sda"]) }, path("sda", 1, true), bare.clone()];
    assert_eq!(duplicates(&other, Some(&left), "boot"), 2);
    // It was a device of its own before there was a map over the other path.
    let both = [path("sda", 1, false), bare.clone()];
    let apart = scan(&both, None, &mut Settling::default(), 0);
    let mut mixed = apart.clone();
    mixed.devices.extend(left.devices.clone());
    assert_eq!(duplicates(&seen, Some(&mixed), "boot"), 2);
    // A disk of another identity is another disk.
    let stray = [map(&["sda"]), path("sda", 1, true), blank("sdb", "6000c50000000002")];
    assert_eq!(group(&stray, Some(&left), Some("boot"), &[]).len(), 2);
}

// invariant: 1
#[test]
fn use_of_a_returning_path_counts_for_its_map() {
    let mut settling = Settling::default();
    let left = one_path_left(&mut settling);
    let used = Facts {
        mounts: vec!["/mnt".into()],
        partitions: vec!["sdb1".into()],
        ..path("sdb", 3, false)
    };
    let part = Facts {
        kind: "part".into(),
        parent: Some("sdb".into()),
        loops_on_top: vec!["loop3".into()],
        evidence: evidence(&[("partition:uuid", "a1b2c3d4-01")]),
        ..blank("sdb1", WWN)
    };
    let seen = [map(&["sda"]), path("sda", 1, true), used, part];
    let back = scan(&seen, Some(&left), &mut settling, 300);
    assert_eq!(back.devices.len(), 1);
    assert_eq!(
        state(&back, 0),
        (DeviceState::NotAvailable, vec!["Mounted", "LoopOnTop", "TooNew"])
    );
}

#[test]
fn a_returning_path_that_reports_less_weakens_no_identity() {
    let mut settling = Settling::default();
    let full =
        [("sysfs:wwid", "naa.6000c50000000001"), ("sysfs:vpd80", "S1"), ("sysfs:model", "M")];
    let known = |facts: Facts| Facts { evidence: evidence(&full), ..facts };
    let both = [map(&["sda", "sdb"]), known(path("sda", 1, true)), known(path("sdb", 2, true))];
    let first = scan(&both, None, &mut settling, 0);
    let bare = Facts { evidence: evidence(&full[1..]), ..path("sdb", 3, false) };
    let seen = [map(&["sda"]), known(path("sda", 1, true)), bare];
    let back = scan(&seen, Some(&first), &mut settling, 100);
    assert_eq!(back.devices[0].identity, first.devices[0].identity);
    assert_eq!(state(&back, 0), (DeviceState::Available, vec![]));
}
