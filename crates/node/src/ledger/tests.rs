use super::*;
use quarry_api::{
    node_inventory::ClaimOwner,
    node_job::{FsType, WipePolicy},
    quantity::Bytes,
};
use quarry_core::{
    device_claim::confirm::Remembered,
    job::{Format, PrepareVolume, VolumeTask, WipeDevice},
};
use std::fs;

fn prepare(uid: &str) -> Task {
    let format = Format::Filesystem { fs: FsType::Xfs, options: Vec::new() };
    Task::Volume(VolumeTask::Prepare(PrepareVolume {
        uid: uid.into(),
        size: Bytes(1 << 30),
        format,
    }))
}

fn wipe(pv: &str, pv_uid: &str) -> Task {
    Task::Wipe(WipeDevice {
        identity: "wwn:5".into(),
        size: Bytes(4096),
        pv: pv.into(),
        pv_uid: pv_uid.into(),
        pvc_uid: None,
        policy: WipePolicy::Discard,
    })
}

fn intent(uid: &str) -> Record {
    let entry = Intent { job: "prepare-1".into(), task: prepare(uid) };
    Record::intent("2026-01-01T00:00:00Z".parse().unwrap(), &entry)
}

#[test]
fn a_record_reads_as_written() {
    let text = serde_json::to_string(&intent("u")).unwrap();
    assert_eq!(
        text,
        r#"{"time":"2026-01-01T00:00:00Z","kind":"intent","job":"prepare-1","action":"Prepare","volumeUID":"u","text":"1Gi xfs"}"#
    );
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), intent("u"));
}

// invariant: 10
#[test]
fn a_wipe_names_device_and_pv_and_makes_no_file_ours() {
    let entry = Intent { job: "wipe-1".into(), task: wipe("local-pv-1", "p") };
    let record = Record::intent("2026-01-01T00:00:00Z".parse().unwrap(), &entry);
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(
        text,
        r#"{"time":"2026-01-01T00:00:00Z","kind":"intent","job":"wipe-1","action":"Wipe","device":"wwn:5","pv":{"name":"local-pv-1","uid":"p"},"policy":"Discard","text":"Discard of 4Ki"}"#
    );
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::open(&directory.path().join("ledger")).unwrap();
    ledger.append(&record).unwrap();
    assert!(
        !ledger.knows("") && !Ledger::open(&directory.path().join("ledger")).unwrap().knows("")
    );
}

// invariant: 10
#[test]
fn a_successful_wipe_is_known_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let mut ledger = Ledger::open(&path).unwrap();
    let outcome = |task: Task, result: OutcomeResult| {
        let entry = Outcome { job: "j".into(), task, result, text: String::new() };
        Record::outcome(Timestamp::UNIX_EPOCH, &entry)
    };
    ledger.append(&outcome(wipe("p", "done"), OutcomeResult::Succeeded)).unwrap();
    ledger.append(&outcome(wipe("p", "failed"), OutcomeResult::Failed)).unwrap();
    ledger.append(&outcome(prepare("other"), OutcomeResult::Succeeded)).unwrap();
    for ledger in [ledger, Ledger::open(&path).unwrap()] {
        let erased =
            |uid: &str| ledger.history().remembered("wwn:5", &DataOf::new(uid, None)).erased;
        assert_eq!(erased("done"), Some(WipePolicy::Discard));
        assert_eq!((erased("failed"), erased("other"), erased("")), (None, None, None));
    }
    // Another wipe for the same PersistentVolume began: what is on the device now is not what the last one left.
    let mut ledger = Ledger::open(&path).unwrap();
    let begun = Intent { job: "j".into(), task: wipe("p", "done") };
    ledger.append(&Record::intent(Timestamp::UNIX_EPOCH, &begun)).unwrap();
    assert_eq!(ledger.history().remembered("wwn:5", &DataOf::new("done", None)).erased, None);
    // A record of an earlier version does not say how thorough the wipe was.
    let old = serde_json::json!({"time": "1970-01-01T00:00:00Z", "kind": "outcome", "action": "Wipe", "device": "wwn:5", "pv": {"name": "p", "uid": "old"}, "result": "succeeded"});
    ledger.append(&serde_json::from_value(old).unwrap()).unwrap();
    assert_eq!(
        ledger.history().remembered("wwn:5", &DataOf::new("old", None)).erased,
        Some(WipePolicy::Quick)
    );
}

/// What an API that was restored from a backup does not know any more.
#[test]
fn the_last_claim_and_retained_data_are_recorded_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let mut ledger = Ledger::open(&path).unwrap();
    let claim = |owner: &str, round: i64| {
        let owner = ClaimOwner {
            kind: "LocalVolumeSet".into(),
            namespace: Some("s".into()),
            name: "fast".into(),
            uid: owner.into(),
        };
        Record::confirmed(
            Timestamp::UNIX_EPOCH,
            &DeviceClaim { identity: "wwn:5".into(), owner, round, ..DeviceClaim::default() },
        )
    };
    let kept = Record::retained(
        Timestamp::UNIX_EPOCH,
        &RetainedData {
            identity: "wwn:5".into(),
            pv_name: "p".into(),
            pv_uid: "u".into(),
            ..RetainedData::default()
        },
    );
    let all = vec![claim("a", 1), claim("a", 2), claim("b", 1), kept.clone()];
    assert_eq!(ledger.unrecorded(all.clone()), all);
    ledger.append_all(&all).unwrap();
    ledger.append_all(&[]).unwrap();
    assert_eq!(
        ledger.unrecorded(vec![claim("b", 1), kept, claim("a", 2)]),
        [claim("a", 2)],
        "the last one counts"
    );
    for ledger in [ledger, Ledger::open(&path).unwrap()] {
        assert_eq!(
            ledger.history().remembered("wwn:5", &DataOf::new("u", None)),
            Remembered { erased: None, retained: true, confirmed: Some(("b".into(), 1)) }
        );
        assert_eq!(
            ledger.history().remembered("wwn:6", &DataOf::new("v", None)),
            Remembered::default()
        );
    }
    let lines = fs::read_to_string(&path).unwrap();
    let line = r#"{"time":"1970-01-01T00:00:00Z","kind":"confirmed","device":"wwn:5","claim":{"ownerUID":"a","id":"a","round":1},"text":"LocalVolumeSet s/fast"}"#;
    assert_eq!((lines.lines().count(), lines.lines().nth(1)), (5, Some(line)));
}

/// A data directory that was emptied or replaced is not taken for the one that was there.
// invariant: 10
#[test]
fn a_ledger_keeps_its_id_and_another_has_another() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("ledger"), directory.path().join("other"));
    let id = Ledger::open(&path).unwrap().id().to_owned();
    assert_eq!(Ledger::open(&path).unwrap().id(), id);
    assert_ne!(Ledger::open(&other).unwrap().id(), id);
    fs::remove_file(&path).unwrap();
    assert_ne!(Ledger::open(&path).unwrap().id(), id);
    // One of an earlier version gets an ID, and keeps what it records.
    let mut old = serde_json::to_vec(&intent("a")).unwrap();
    old.push(b'\n');
    fs::write(&path, old).unwrap();
    let id = Ledger::open(&path).unwrap().id().to_owned();
    let again = Ledger::open(&path).unwrap();
    assert!(!id.is_empty() && again.id() == id && again.knows("a"));
}

// invariant: 1
#[test]
fn an_ineffective_discard_is_recorded_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let mut ledger = Ledger::open(&path).unwrap();
    let record = Record::discard_ineffective(Timestamp::UNIX_EPOCH, "wwn:5");
    assert_eq!(ledger.unrecorded(vec![record.clone()]), std::slice::from_ref(&record));
    ledger.append(&record).unwrap();
    for ledger in [ledger, Ledger::open(&path).unwrap()] {
        assert!(ledger.history().is_discard_ineffective("wwn:5"));
        assert!(!ledger.history().is_discard_ineffective("wwn:6"));
        assert_eq!(ledger.unrecorded(vec![record.clone()]), []);
    }
}

// invariant: 10
#[test]
fn a_line_torn_at_any_byte_loses_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let mut ledger = Ledger::open(&path).unwrap();
    ledger.append(&intent("first")).unwrap();
    let kept = fs::read(&path).unwrap();
    ledger.append(&intent("torn")).unwrap();
    let all = fs::read(&path).unwrap();
    for cut in kept.len()..all.len() {
        fs::write(&path, &all[..cut]).unwrap();
        let mut ledger = Ledger::open(&path).unwrap();
        assert!(ledger.knows("first") && !ledger.knows("torn"), "cut at {cut}");
        ledger.append(&intent("next")).unwrap();
        let again = Ledger::open(&path).unwrap();
        assert!(
            again.knows("first") && again.knows("next") && again.damaged().is_empty(),
            "cut at {cut}"
        );
    }
}

// invariant: 4, 10
#[test]
fn a_damaged_line_is_reported_and_the_others_count() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let mut bytes = serde_json::to_vec(&intent("a")).unwrap();
    bytes.extend_from_slice(b"\n{\"time\":\0\0\xff\n");
    bytes.extend(serde_json::to_vec(&intent("b")).unwrap());
    bytes.push(b'\n');
    fs::write(&path, bytes).unwrap();
    let ledger = Ledger::open(&path).unwrap();
    assert_eq!(ledger.damaged(), [2]);
    assert!(ledger.knows("a") && ledger.knows("b"));
}

// invariant: 1
#[test]
fn an_outcome_alone_does_not_make_a_file_ours() {
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::open(&directory.path().join("ledger")).unwrap();
    let entry = Outcome {
        job: "j".into(),
        task: prepare("u"),
        result: OutcomeResult::Failed,
        text: "refused".into(),
    };
    ledger.append(&Record::outcome(Timestamp::UNIX_EPOCH, &entry)).unwrap();
    assert!(!ledger.knows("u"));
}
