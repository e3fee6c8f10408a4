//! The driver over hands that only remember: the order of intent, steps and outcome, and what follows a failure.

use super::*;
use crate::hands::{Survey, SurveyRequest};
use quarry_api::quantity::Bytes;
use quarry_core::sparse::{File, Link, Loop, Observed, User};
use serde_json::json;
use std::sync::{Mutex, MutexGuard};

const UID: &str = "0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab";

#[derive(Default)]
struct World {
    seen: Observed,
    size: Bytes,
    diary: Vec<String>,
    /// Fail this step, that many times, in a way that may or may not pass.
    broken: Option<(&'static str, u32, bool)>,
}

#[derive(Default)]
struct Fake(Mutex<World>);

impl Fake {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

impl Hands for Fake {
    fn look(&self, _: &str) -> Result<Observed, HandsError> {
        Ok(self.world().seen.clone())
    }

    fn act(&self, _: &str, step: &Step) -> Result<(), HandsError> {
        let mut world = self.world();
        let name = words(step);
        if let Some((broken, left, retryable)) = &mut world.broken
            && *broken == name
            && *left > 0
        {
            *left -= 1;
            let retryable = *retryable;
            world.diary.push(format!("failed {name}"));
            return Err(HandsError::Other {
                attempt: format!("{name} failed"),
                retryable,
                source: None,
            });
        }
        world.diary.push(name.to_owned());
        let size = world.size;
        let seen = &mut world.seen;
        match step {
            Step::DiscardDraft => seen.draft = false,
            Step::MakeDraft { size } => {
                seen.draft = true;
                world.size = *size;
            }
            Step::FormatDraft(_) => {}
            Step::PublishDraft => {
                seen.draft = false;
                seen.file = Some(File { size, partitioned: false });
            }
            Step::Attach { .. } => {
                seen.loops = vec![Loop { name: "loop3".into(), partition: None, users: vec![] }]
            }
            Step::MakeLink { device } => seen.link = Link::To(device.clone()),
            Step::Detach { .. } => seen.loops.clear(),
            Step::RemoveLink => seen.link = Link::Absent,
            Step::RemoveFile => seen.file = None,
            Step::AddPartition { .. } | Step::AwaitLink { .. } | Step::AwaitNoLink => {
                panic!("not in these tests")
            }
        }
        Ok(())
    }

    fn record_intent(&self, _: &Intent) -> Result<(), HandsError> {
        let mut world = self.world();
        world.seen.in_ledger = true;
        world.diary.push("intent".into());
        Ok(())
    }

    fn record_outcome(&self, entry: &Outcome) -> Result<(), HandsError> {
        self.world().diary.push(format!("outcome {:?}", entry.result));
        Ok(())
    }

    fn known_volumes(&self) -> Result<Vec<String>, HandsError> {
        Ok(Vec::new())
    }

    fn survey(&self, _: &SurveyRequest) -> Result<Survey, HandsError> {
        Ok(Survey::default())
    }
}

fn job(action: &str, parameters: serde_json::Value) -> NodeJob {
    serde_json::from_value(json!({
        "apiVersion": "quarry.dev/v1alpha1", "kind": "NodeJob", "metadata": {"name": "j"},
        "spec": {
            "action": action, "nodeName": "n", "owner": {"kind": "Volume", "name": "v", "uid": UID},
            "device": {"sparseFile": {"volumeUID": UID}}, "precondition": {"nodeUID": "n", "specHash": "h"},
            "parameters": parameters, "attempt": 1,
        },
    }))
    .unwrap()
}

fn xfs() -> serde_json::Value {
    json!({"size": 1 << 30, "filesystem": {"type": "xfs"}})
}

async fn carry(hands: &Arc<Fake>, job: &NodeJob) -> Ended {
    carry_out(hands, &Workers::Inline, &Order::of(job).unwrap(), &Progress::default()).await
}

#[tokio::test(start_paused = true)]
async fn the_intent_comes_first_and_the_outcome_last() {
    let hands = Arc::new(Fake::default());
    let Ended::Succeeded(Some(result)) = carry(&hands, &job("Prepare", xfs())).await else {
        panic!()
    };
    assert_eq!((result.device_name.as_str(), result.capacity), ("loop3", 1 << 30));
    insta::assert_snapshot!(hands.world().diary.join("\n"), @"
    intent
    making the file
    making the file system
    finishing the file
    attaching the loop device
    making the persistent link
    outcome Succeeded
    ");
    hands.world().diary.clear();
    assert_eq!(carry(&hands, &job("Cleanup", json!(null))).await, Ended::Succeeded(None));
    insta::assert_snapshot!(hands.world().diary.join("\n"), @"
    intent
    detaching the loop device
    removing the persistent link
    removing the file
    outcome Succeeded
    ");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_leaves_no_intent_so_a_foreign_file_never_becomes_ours() {
    let hands = Arc::new(Fake::default());
    hands.world().seen.file = Some(File { size: Bytes(5), partitioned: false });
    for job in [job("Prepare", xfs()), job("Cleanup", json!(null))] {
        let Ended::Failed(why) = carry(&hands, &job).await else { panic!() };
        assert!(why.contains("not made by this agent"), "{why}");
    }
    assert_eq!(hands.world().diary, ["outcome Failed", "outcome Failed"]);
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_from_a_fresh_look() {
    let hands = Arc::new(Fake::default());
    hands.world().broken = Some(("attaching the loop device", 3, true));
    assert!(matches!(carry(&hands, &job("Prepare", xfs())).await, Ended::Succeeded(_)));
    let diary = hands.world().diary.clone();
    assert_eq!(diary.iter().filter(|line| *line == "failed attaching the loop device").count(), 3);
    assert_eq!(
        diary.iter().filter(|line| *line == "making the file").count(),
        1,
        "the finished file is not made again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_format_leaves_no_draft() {
    let hands = Arc::new(Fake::default());
    hands.world().broken = Some(("making the file system", 99, false));
    assert_eq!(
        carry(&hands, &job("Prepare", xfs())).await,
        Ended::Failed("making the file system failed".into())
    );
    let world = hands.world();
    assert!(!world.seen.draft && world.seen.file.is_none());
    assert_eq!(
        world.diary[1..],
        [
            "making the file",
            "failed making the file system",
            "removing an unfinished file",
            "outcome Failed"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_attach_keeps_the_finished_file() {
    let hands = Arc::new(Fake::default());
    hands.world().broken = Some(("attaching the loop device", 99, false));
    assert!(matches!(carry(&hands, &job("Prepare", xfs())).await, Ended::Failed(_)));
    assert!(hands.world().seen.file.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_device_in_use_is_told_and_nothing_is_done() {
    let hands = Arc::new(Fake::default());
    hands.world().seen = Observed {
        in_ledger: true,
        file: Some(File { size: Bytes(5), partitioned: false }),
        loops: vec![Loop {
            name: "loop3".into(),
            partition: None,
            users: vec![User::Mount("/mnt".into())],
        }],
        ..Observed::default()
    };
    let Ended::Failed(why) = carry(&hands, &job("Cleanup", json!(null))).await else { panic!() };
    assert!(why.contains("loop3 is mounted at /mnt"), "{why}");
    assert_eq!(hands.world().diary, ["outcome Failed"]);
}

#[test]
fn a_job_that_does_not_fit_is_refused_with_a_reason() {
    let mut other = job("Cleanup", json!(null));
    other.spec.owner.uid = "1b0f1f9e-3c1c-4a5e-8e0e-0123456789ab".into();
    assert!(Order::of(&other).unwrap_err().contains("not that of the volume"));
    let path = json!({"size": 1 << 30, "filesystem": {"type": "xfs", "mkfsOptions": ["-l", "logdev=/dev/sda"]}});
    assert!(Order::of(&job("Prepare", path)).unwrap_err().contains("not allowed"));
    assert!(Order::of(&job("Prepare", json!(null))).unwrap_err().contains("what to prepare"));
    assert!(Order::of(&job("Prepare", json!({"size": -1, "partition": {}}))).is_err());
}
