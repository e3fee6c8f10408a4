//! The Volume lifecycle with real processes: operator and agent are killed at every failpoint and
//! restarted.
//!
//! The API runs in this process; operator and agent are the real binary, connected over TLS, on
//! real loop devices. A process that dies is restarted without the failpoint; the end state is the
//! same, and nothing is left.

use super::kills::Tally;
use quarry_tests::process::{Processes, Role};

/// How often an operator passes one of its failpoints in one lifecycle: each hit is a different
/// place in the plan.
const OPERATOR_HITS: u64 = 5;

// invariant: 10
#[tokio::test(flavor = "multi_thread")]
async fn volume_lifecycle_survives_a_kill_at_every_failpoint() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = Processes::start(dir.path()).await;
    // Failpoints of claimed devices are tested in `wipe.rs`.
    let claimed = |name: &&&str| {
        ["claim-", "confirm.", "wipe."].iter().any(|prefix| name.starts_with(prefix))
    };
    let agent = quarry_node::failpoints::ALL
        .iter()
        .filter(|name| !claimed(name))
        .map(|name| (Role::Agent, (*name).to_owned()));
    let operator = quarry_operator::writer::FAILPOINTS.iter().flat_map(|name| {
        (1..=OPERATOR_HITS).map(move |hit| (Role::Operator, format!("{name}:{hit}")))
    });
    let mut tally = Tally::default();
    for (role, point) in agent.chain(operator) {
        for mode in ["Filesystem", "Block"] {
            processes.restart(role, Some(&point)).await;
            let died = processes.story(&format!("run-{}", tally.runs), mode).await;
            tally.add(&point, died);
        }
    }
    processes.stop().await;
    // With a udev daemon the agent creates no link, and a fast daemon leaves nothing to wait for; a
    // draft is discarded only after a crash during a build: `crash.rs` kills there, with NodeOps
    // only.
    let elsewhere = [
        "make-link",
        "remove-link",
        "discard-draft",
        "await-link",
        "await-no-link",
        "add-partition",
    ];
    tally.assert_all_reached("volume lifecycle with real processes", &elsewhere);
}

// invariant: 9
#[tokio::test(flavor = "multi_thread")]
async fn absent_agent_is_reported_and_work_continues_on_return() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = Processes::start(dir.path()).await;
    // One lifecycle first, so that the agent has been seen.
    processes.story("before", "Filesystem").await;
    processes.stop_agent().await;
    let agent_absent = |volume: Option<&quarry_api::Volume>| {
        let message = volume
            .and_then(|volume| volume.ready())
            .and_then(|ready| ready.message.clone())
            .unwrap_or_default();
        message.contains("the agent on node story-node has been absent since 20")
    };
    processes.create("waiting", "Filesystem").await;
    processes.wait("waiting", "reports that the agent is absent", agent_absent).await;
    // Nothing has started on the node: the Volume can be deleted immediately, without an agent.
    processes.delete("waiting").await;
    processes.wait("waiting", "is deleted", |volume| volume.is_none()).await;
    processes.create("patient", "Block").await;
    processes.wait("patient", "reports that the agent is absent", agent_absent).await;
    processes.restart(Role::Agent, None).await;
    processes
        .wait("patient", "is Available", |volume| {
            volume
                .is_some_and(|volume| volume.phase() == Some(quarry_api::volume::Phase::Available))
        })
        .await;
    processes.delete("patient").await;
    processes.wait("patient", "is deleted", |volume| volume.is_none()).await;
    processes.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_loop_is_reported_and_restored_by_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = Processes::start(dir.path()).await;
    let uid = processes.create("robbed", "Filesystem").await.metadata.uid.unwrap();
    let available = |volume: Option<&quarry_api::Volume>| {
        volume.is_some_and(|volume| volume.phase() == Some(quarry_api::volume::Phase::Available))
    };
    processes.wait("robbed", "is Available", available).await;
    processes.wait_a_second_after_change("robbed").await;
    processes.detach_loop(&uid);
    processes
        .wait("robbed", "reports that its device is missing", |volume| {
            let status = volume.and_then(|volume| volume.status.clone()).unwrap_or_default();
            status.device_name.is_none()
                && status.conditions[0].message.as_deref().is_some_and(|message| {
                    message.contains("the loop device of this Volume is missing")
                })
        })
        .await;
    processes.restart(Role::Agent, None).await;
    processes.wait("robbed", "is Available again", available).await;
    processes.delete("robbed").await;
    processes.wait("robbed", "is deleted", |volume| volume.is_none()).await;
    processes.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_operator_leads_and_exits_when_it_loses_its_lease() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = Processes::start(dir.path()).await;
    processes.stop_operator();
    let mut first = processes.spawn_operator("first");
    processes.leader("the first leads", |holder| holder == Some("first")).await;
    let mut second = processes.spawn_operator("second");
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&first),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert!(first.wait().unwrap().success(), "a stop on request is not a failure");
    processes
        .leader("the Lease was released and the second operator leads", |holder| {
            holder == Some("second")
        })
        .await;
    processes.steal_lease().await;
    assert!(
        !second.wait().unwrap().success(),
        "an operator that lost its Lease exits with a failure code"
    );
    processes.stop().await;
}

/// An agent whose data directory is empty knows nothing of the Volume: that it finds nothing to remove proves nothing.
// invariant: 10
#[tokio::test(flavor = "multi_thread")]
async fn volume_is_not_deleted_by_an_agent_without_its_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = Processes::start(dir.path()).await;
    let uid = processes.create("kept", "Filesystem").await.metadata.uid.unwrap();
    let available = |volume: Option<&quarry_api::Volume>| {
        volume.is_some_and(|volume| volume.phase() == Some(quarry_api::volume::Phase::Available))
    };
    processes.wait("kept", "is Available", available).await;
    processes.stop_agent().await;
    let (data, aside) = (dir.path().join("data"), dir.path().join("aside"));
    std::fs::rename(&data, &aside).unwrap();
    processes.restart(Role::Agent, None).await;
    processes
        .wait_inventory("reports the new ledger", |status| {
            let ledger = std::fs::read_to_string(data.join("ledger")).unwrap_or_default();
            status.ledger_id.as_ref().is_some_and(|id| ledger.contains(id.as_str()))
        })
        .await;
    processes.delete("kept").await;
    processes
        .wait("kept", "reports that the ledger is another one", |volume| {
            let volume = volume.expect("it is not deleted");
            let ready = volume.ready().and_then(|ready| ready.message.clone());
            ready.is_some_and(|message| message.contains("quarry.dev/accept-ledger="))
        })
        .await;
    assert!(aside.join("volumes").join(&uid).exists(), "its file is where it was");
    // The data directory is back: now everything of it is removed.
    processes.stop_agent().await;
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&aside, &data).unwrap();
    processes.restart(Role::Agent, None).await;
    processes.wait("kept", "is deleted", |volume| volume.is_none()).await;
    assert!(!data.join("volumes").join(&uid).exists());
    processes.stop().await;
}
