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
    let refused = Some(status::refused(&seen));
    let steps = |steps: Vec<Step>| Plan { steps, refused: refused.clone(), ..Plan::default() };
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

// invariant: 9
#[test]
fn a_refused_step_is_reported_with_the_answer_and_its_job() {
    let mut seen = observed(json!({}));
    let first = plan(&seen, now());
    let planned = first.refused.clone().unwrap();
    let refusal = status::report_refusal(&seen, &planned, "Volume v1: CreateJob", "quota", now());
    assert_eq!(
        refusal.status.conditions[0].message.as_deref(),
        Some("Volume v1: CreateJob: the API server refuses it, and it is retried: quota")
    );
    assert_eq!(refusal.status.phase, Some(Phase::Failed));
    assert_eq!((refusal.events.len(), refusal.events[0].warning), (1, true));
    let silent = Plan { refused: None, ..first.clone() };
    assert_eq!(check(&seen, &silent), vec![Violation::SilentRefusal]);
    apply(&mut seen, &first);
    assert_eq!(check(&seen, &first).last(), Some(&Violation::RefusalWithoutJob));
    seen.volume.status = Some(refusal.status);
    let again = status::report_refusal(&seen, &planned, "Volume v1: CreateJob", "quota", now());
    assert_eq!(again.events, [], "reported once");
}
