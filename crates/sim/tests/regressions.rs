//! What the simulator has found once: each mistake with the faults that showed it, by the call they strike.

use quarry_sim::{
    explore::some_points,
    fault::{Fault, FaultKind, Point, Track},
    story::find,
};

fn holds(name: &str, wanted: impl Fn(&Point, &Fault) -> bool) {
    let Some(story) = find(name) else { panic!("there is no story {name:?}") };
    let summary = some_points(&story, wanted);
    assert!(summary.runs > 1, "no fault was picked: the calls have other names now");
    assert!(summary.failures.is_empty(), "{}", summary.failures[0]);
}

/// An operator whose cache was far behind made a PersistentVolume from a preparation that had been cleaned up since.
#[test]
fn nothing_is_published_from_a_cache_that_is_behind() {
    holds("two-operators", |point, fault| {
        point.track == Track::Watch(0)
            && point.call.starts_with("Volume")
            && fault.what == FaultKind::Late
    });
}

/// A job that a Volume no longer named was kept for ever when the event that said so was lost.
#[test]
fn a_job_is_forgotten_although_an_event_was_lost() {
    holds("failed-then-retried", |point, fault| {
        point.track == Track::Watch(0)
            && point.call.starts_with("Volume")
            && fault.what == FaultKind::Lost
    });
}

/// One failed observation at the agent's start left a volume without its device until the next start.
#[test]
fn a_device_comes_back_although_the_first_try_failed() {
    let at_start = |call: &str| {
        call == "known volumes"
            || call == "observe shared"
            || call.starts_with("Attach")
            || call.starts_with("AwaitLink")
    };
    holds("restart-and-reboot", |point, fault| {
        point.track == Track::Disk
            && at_start(&point.call)
            && matches!(fault.what, FaultKind::Error | FaultKind::Busy)
    });
}

/// An answer older than the watch ("no such job") made the agent drop the job for good.
#[test]
fn a_job_is_run_although_the_api_did_not_know_it_yet() {
    holds("ext4", |point, fault| {
        point.track == Track::Agent
            && point.call.contains("/nodejobs/")
            && fault.what == FaultKind::Stale
    });
}

/// The StorageClass that we made stayed when its event was late and its owner went meanwhile.
#[test]
fn a_class_that_was_seen_late_goes_with_its_owner() {
    holds("set", |point, fault| {
        point.track == Track::Watch(0)
            && point.call.starts_with("Class")
            && fault.what == FaultKind::Late
    });
}

/// An operator that was behind made the StorageClass once more after its owner had gone.
#[test]
fn a_class_is_not_made_from_a_cache_that_is_behind() {
    holds("set-two-operators", |point, fault| {
        let claimed = point.track == Track::Operator(0)
            && point.call.starts_with("POST")
            && point.call.ends_with("quarry-system/events");
        claimed && fault.what == FaultKind::Crash
    });
}

/// After a restore of an older API a volume was offered with data whose owner was forgotten.
#[test]
fn what_is_offered_with_data_is_withdrawn() {
    holds("set-restored-unused", |point, fault| {
        point.track == Track::Agent
            && point.call.ends_with("/nodeinventories/n1/status")
            && fault.what == FaultKind::Error
    });
}

/// After a restore of an older API a device was wiped once more, for a volume whose data was long gone.
#[test]
fn what_was_erased_once_is_not_erased_again() {
    holds("set-restored-in-mid-wipe", |point, fault| {
        point.track == Track::Disk && point.call == "hold" && fault.what == FaultKind::Crash
    });
}

/// A set whose only node was gone said that it selects no node, and not what became of its disks.
#[test]
fn a_set_reports_a_node_that_is_gone() {
    holds("set-node-gone", |point, fault| {
        point.track == Track::Watch(0)
            && point.call.starts_with("Node ")
            && fault.what == FaultKind::Lost
    });
}

/// A claim never ended: an answer older than the cache showed its PersistentVolume, and no event came after it was gone.
#[test]
fn a_claim_ends_although_an_answer_was_old() {
    holds("set-overlap", |point, fault| {
        point.track == Track::Operator(0)
            && point.call.starts_with("GET /api/v1/persistentvolumes/")
            && fault.what == FaultKind::Stale
    });
}

/// A wipe whose outcome was not in the ledger counted as done, and was done again after a restore of an older API.
#[test]
fn a_wipe_is_not_done_before_the_ledger_says_so() {
    holds("set-restored-in-mid-wipe", |point, fault| {
        point.track == Track::Disk
            && point.call == "outcome"
            && matches!(fault.what, FaultKind::Error | FaultKind::Busy)
    });
}

/// An operator that saw volumes late put one on record as used that had been wiped, released and recreated since: every later
/// plan of the node was refused.
#[test]
fn a_volume_that_was_seen_late_does_not_come_back() {
    holds("set-two-operators", |point, fault| {
        point.track == Track::Watch(0)
            && point.call.starts_with("Pv")
            && fault.what == FaultKind::Late
    });
}
