use super::*;
use serde_json::json;

const HOUR: Duration = Duration::from_secs(3600);
const NOTHING: ScanEnd = ScanEnd::Published { again_in: None };

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Of an agent that has its lease and its volumes, and whose first scan ended at 0.
fn at_rest() -> AgentSchedule {
    let mut schedule = AgentSchedule::new(RENEW_LEASE_EVERY, HOUR, at(0));
    schedule.renew_lease_every(HOUR * 1000, at(0));
    (schedule.restore.due, schedule.restore.attempts) = (None, 1);
    schedule
}

fn scan(schedule: &mut AgentSchedule, now: Duration) -> ScanReason {
    match schedule.start_due(now) {
        Some(Work::Scan(reason)) => reason,
        other => panic!("{other:?} instead of a scan at {now:?}"),
    }
}

fn job(name: &str, volume: &str) -> NodeJob {
    serde_json::from_value(json!({
        "apiVersion": "quarry.dev/v1alpha1", "kind": "NodeJob", "metadata": {"name": name, "uid": name},
        "spec": {
            "action": "Cleanup", "nodeName": "n", "owner": {"kind": "Volume", "name": "v", "uid": volume},
            "device": {"sparseFile": {"volumeUID": volume}}, "precondition": {"nodeUID": "n", "specHash": "h"}, "attempt": 1,
        },
    }))
    .unwrap()
}

#[test]
fn a_burst_of_events_is_one_scan_and_its_follow_ups() {
    let mut schedule = at_rest();
    for (name, millis) in [("sda", 0), ("sda1", 1), ("sda2", 3)] {
        schedule.on_device_event(name.into(), at(1000 + millis));
    }
    assert_eq!(schedule.next_due(), Some(at(1004)), "debounced from the first event on");
    let reason = scan(&mut schedule, at(1004));
    assert_eq!(reason.touched, ["sda", "sda1", "sda2"].map(str::to_owned).into());
    assert!(!reason.everything && schedule.scan.next_due().is_none(), "one scan at a time");
    schedule.scan_finished(NOTHING, at(1005));
    for due in [1304, 2004, 4004, 11004] {
        assert!(schedule.expects_follow_ups());
        assert_eq!(schedule.next_due(), Some(at(due)));
        let reason = ScanReason { restored: true, ..ScanReason::default() };
        assert_eq!(scan(&mut schedule, at(due)), reason);
        schedule.scan_finished(NOTHING, at(due + 1));
    }
    assert!(!schedule.expects_follow_ups());
    assert_eq!(schedule.next_due(), Some(at(11005) + SCAN_ANYWAY));
}

#[test]
fn scanning_takes_at_most_half_of_the_time() {
    let mut schedule = at_rest();
    schedule.request_scan(at(0));
    scan(&mut schedule, at(4));
    schedule.request_scan(at(5));
    schedule.scan_finished(NOTHING, at(504));
    assert_eq!(schedule.next_due(), Some(at(1004)));
    scan(&mut schedule, at(1004));
    schedule.request_scan(at(1004));
    schedule.scan_finished(NOTHING, at(1005));
    assert_eq!(schedule.next_due(), Some(at(1005) + SCAN_GAP));
}

#[test]
fn a_failed_scan_is_repeated_with_its_reason_after_a_backoff() {
    let mut schedule = at_rest();
    schedule.on_events_lost(at(0));
    schedule.on_device_event("sda".into(), at(0));
    let mut now = at(4);
    for seconds in [1, 2, 4, 8, 16, 30, 30] {
        let reason = scan(&mut schedule, now);
        assert!(reason.everything && reason.touched.contains("sda"));
        schedule.scan_finished(ScanEnd::Failed, now);
        assert_eq!(schedule.next_due(), Some(now + Duration::from_secs(seconds)));
        now += Duration::from_secs(seconds);
    }
    scan(&mut schedule, now);
    schedule.scan_finished(NOTHING, now);
    schedule.request_scan(now);
    scan(&mut schedule, now + SCAN_GAP);
    schedule.scan_finished(ScanEnd::Failed, now + SCAN_GAP);
    assert_eq!(
        schedule.next_due(),
        Some(now + SCAN_GAP + Duration::from_secs(1)),
        "from 1 s again"
    );
}

#[test]
fn a_scan_repeats_when_a_device_settles_and_fully_every_hour() {
    let mut schedule = at_rest();
    schedule.request_scan(at(0));
    scan(&mut schedule, at(4));
    schedule.scan_finished(ScanEnd::Published { again_in: Some(at(60_000)) }, at(5));
    assert_eq!(schedule.next_due(), Some(at(60_005)));
    let mut scans = 0;
    let now = loop {
        let now = schedule.next_due().unwrap();
        let reason = scan(&mut schedule, now);
        schedule.scan_finished(NOTHING, now);
        scans += 1;
        if reason.everything {
            break now;
        }
    };
    assert_eq!((now, scans), (HOUR, 7), "at rest every ten minutes");
}

#[test]
fn a_scan_knows_whether_volumes_were_restored_before_it() {
    let starting = || {
        let mut schedule = AgentSchedule::new(HOUR * 1000, HOUR, at(0));
        assert_eq!(schedule.start_due(at(0)), Some(Work::RenewLease));
        assert_eq!(schedule.start_due(at(0)), Some(Work::Restore));
        schedule.request_scan(at(0));
        assert!(!scan(&mut schedule, at(4)).restored, "it runs beside the restore");
        schedule
    };
    for complete in [true, false] {
        let mut schedule = starting();
        schedule.restore_finished(complete, at(10));
        schedule.scan_finished(NOTHING, at(50));
        assert!(scan(&mut schedule, at(1000)).restored, "also what could not be restored is known");
    }
    let mut hung = starting();
    hung.scan_finished(NOTHING, at(50));
    hung.request_scan(RESTORE_LIMIT);
    assert!(scan(&mut hung, RESTORE_LIMIT + DEBOUNCE).restored);
}

#[test]
fn volumes_are_restored_before_jobs_and_never_beside_them() {
    let mut schedule = AgentSchedule::new(RENEW_LEASE_EVERY, HOUR, at(0));
    schedule.renew_lease_every(HOUR, at(0));
    schedule.jobs.seen(job("a", "v"));
    assert_eq!(schedule.start_due(at(0)), Some(Work::Restore));
    assert_eq!(schedule.start_due(at(0)), None, "no job beside a restore");
    schedule.restore_finished(false, at(1000));
    let Some(Work::Job(started)) = schedule.start_due(at(1000)) else { panic!() };
    assert_eq!(started.metadata.name.as_deref(), Some("a"));
    scan(&mut schedule, at(1004));
    assert_eq!(schedule.next_due(), Some(HOUR), "no restore beside a job");
    schedule.job_finished("a", RunEnd::Reported, at(20_000));
    assert_eq!(schedule.next_due(), Some(at(11_000)));
    for seconds in [20, 40, 80, 160, 320, 600, 600] {
        let now = at(30_000);
        assert_eq!(schedule.start_due(now), Some(Work::Restore));
        schedule.restore_finished(false, now);
        assert_eq!(schedule.restore_due(), Some(now + Duration::from_secs(seconds)));
        schedule.restore.due = Some(now);
    }
    assert_eq!(schedule.start_due(at(30_000)), Some(Work::Restore));
    schedule.restore_finished(true, at(30_000));
    assert_eq!(schedule.restore_due(), None);
}

#[test]
fn the_lease_is_renewed_in_time_and_soon_after_a_failure() {
    let mut schedule = AgentSchedule::new(RENEW_LEASE_EVERY, HOUR, at(0));
    assert_eq!(schedule.start_due(at(0)), Some(Work::RenewLease));
    schedule.lease_finished(true, at(300));
    assert_eq!(
        schedule.lease.next_due(),
        Some(RENEW_LEASE_EVERY),
        "from the start of the last one"
    );
    assert_eq!(schedule.start_due(at(10_000)), Some(Work::RenewLease));
    assert_eq!(schedule.lease.next_due(), None);
    schedule.lease_finished(false, at(12_000));
    assert_eq!(schedule.lease.next_due(), Some(at(13_000)));
}
