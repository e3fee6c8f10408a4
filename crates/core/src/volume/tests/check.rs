//! Every violation on its own.

use super::*;

// invariant: 1, 3, 5
#[test]
fn check_finds_every_violation() {
    let mut seen = available();
    let used = {
        let mut pv = seen.pv.clone().unwrap();
        pv.status = serde_json::from_value(json!({"phase": "Bound"})).unwrap();
        pv
    };
    seen.pv = Some(used);
    let job = jobs::cleanup_job(&seen, "node-uid", 1);
    let recorded = StatusUpdate {
        job: Some(jobs::handle(jobs::UNPREPARE, &job)),
        ..status::StatusUpdate::new(Phase::Terminating, None, "")
    }
    .into_status(&seen.volume, now());
    let steps = |steps: Vec<Step>| Plan { steps, ..Plan::default() };
    assert_eq!(
        check(
            &seen,
            &steps(vec![Step::RecordJob(recorded.clone()), Step::CreateJob(Box::new(job.clone()))])
        ),
        vec![Violation::CleanupOfUsedStorage]
    );
    assert_eq!(
        check(&seen, &steps(vec![Step::CreateJob(Box::new(job.clone()))])),
        vec![Violation::JobWithoutRecord, Violation::CleanupOfUsedStorage],
        "every violation is reported"
    );
    assert_eq!(check(&seen, &steps(vec![Step::ReleaseVolume])), vec![Violation::StorageLeftBehind]);
    assert_eq!(
        check(&seen, &steps(vec![Step::CreatePv(Box::default())])),
        vec![Violation::UnprovenPublication, Violation::UnmanagedPv]
    );
    seen.pv.as_mut().unwrap().metadata.owner_references = None;
    assert_eq!(
        check(
            &seen,
            &steps(vec![Step::DeletePv { uid: "x".into(), resource_version: "1".into() }])
        ),
        vec![Violation::UnmanagedPv]
    );
    seen.volume.metadata.finalizers = None;
    assert_eq!(
        check(&seen, &steps(vec![Step::RecordJob(recorded), Step::CreateJob(Box::new(job))])),
        vec![Violation::JobWithoutFinalizer]
    );
}
