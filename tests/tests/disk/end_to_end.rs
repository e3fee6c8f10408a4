//! The story on real parts: operator and agent as processes, killed at every failpoint, started again.
//!
//! The API lives in this process; operator and agent are the real binary against it, over TLS, on real loop
//! devices. Whatever dies is started again without the failpoint; the end state is the same, nothing is left.

use quarry_tests::process::{Parts, Victim};
use std::collections::BTreeMap;

/// How often an operator passes one of its points in a story: each time is a different place in the plan.
const OPERATOR_HITS: u64 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_failpoint_the_story_ends_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = Parts::start(folder.path()).await;
    // Those of claimed devices are for `wipe.rs`.
    let claimed = |name: &&&str| {
        ["claim-", "confirm.", "wipe."].iter().any(|prefix| name.starts_with(prefix))
    };
    let agent = quarry_node::failpoints::ALL
        .iter()
        .filter(|name| !claimed(name))
        .map(|name| (Victim::Agent, (*name).to_owned()));
    let operator = quarry_operator::writer::FAILPOINTS.iter().flat_map(|name| {
        (1..=OPERATOR_HITS).map(move |hit| (Victim::Operator, format!("{name}:{hit}")))
    });
    let mut deaths: BTreeMap<String, usize> = BTreeMap::new();
    let mut runs = 0;
    for (victim, point) in agent.chain(operator) {
        let name = point.split(':').next().unwrap_or_default().to_owned();
        let died = deaths.entry(name).or_default();
        for mode in ["Filesystem", "Block"] {
            parts.restart(victim, Some(&point)).await;
            let killed = parts.story(&format!("run-{runs}"), mode).await;
            *died += usize::from(killed);
            runs += 1;
        }
    }
    parts.stop().await;
    let reached = deaths.values().filter(|count| **count > 0).count();
    let total: usize = deaths.values().sum();
    println!(
        "figure: crash story on real parts: {runs} runs, {total} deaths at {reached} of {} failpoints, every run ended the same",
        deaths.len()
    );
    // With a udev daemon the agent makes no link of its own, and a fast one leaves it none to wait for; a draft is
    // discarded only after a crash in mid-build: `crash.rs` kills at those with the hands alone.
    let elsewhere = [
        "make-link",
        "remove-link",
        "discard-draft",
        "await-link",
        "await-no-link",
        "add-partition",
    ];
    let missed: Vec<&String> = deaths
        .iter()
        .filter(|(name, count)| {
            **count == 0 && !elsewhere.iter().any(|known| name.starts_with(known))
        })
        .map(|(name, _)| name)
        .collect();
    assert!(
        missed.is_empty(),
        "no process died at {missed:?}: a failpoint that nothing reaches proves nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_agent_is_told_with_since_when_and_the_volume_goes_on_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = Parts::start(folder.path()).await;
    // Once around, so that the agent has been seen.
    parts.story("before", "Filesystem").await;
    parts.stop_agent().await;
    let says = |volume: Option<&quarry_api::Volume>| {
        let message = volume
            .and_then(|volume| volume.ready())
            .and_then(|ready| ready.message.clone())
            .unwrap_or_default();
        message.contains("the agent on node story-node has been absent since 20")
    };
    parts.create("waiting", "Filesystem").await;
    parts.wait("waiting", "says that the agent is absent", says).await;
    // Nothing has begun on the node: it can go at once, without an agent.
    parts.delete("waiting").await;
    parts.wait("waiting", "is gone", |volume| volume.is_none()).await;
    parts.create("patient", "Block").await;
    parts.wait("patient", "says that the agent is absent", says).await;
    parts.restart(Victim::Agent, None).await;
    parts
        .wait("patient", "is Available", |volume| {
            volume
                .is_some_and(|volume| volume.phase() == Some(quarry_api::volume::Phase::Available))
        })
        .await;
    parts.delete("patient").await;
    parts.wait("patient", "is gone", |volume| volume.is_none()).await;
    parts.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_was_detached_behind_our_back_is_told_and_comes_back_with_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = Parts::start(folder.path()).await;
    let uid = parts.create("robbed", "Filesystem").await.metadata.uid.unwrap();
    let available = |volume: Option<&quarry_api::Volume>| {
        volume.is_some_and(|volume| volume.phase() == Some(quarry_api::volume::Phase::Available))
    };
    parts.wait("robbed", "is Available", available).await;
    // A whole second later: the API's times have no finer grain.
    parts
        .wait("robbed", "has been Available for a second", |volume| {
            let since = volume
                .and_then(|volume| volume.ready())
                .and_then(|ready| ready.last_transition_time.as_ref())
                .map(|time| time.0);
            since.is_some_and(|since| {
                jiff::Timestamp::now().duration_since(since).as_millis() > 1100
            })
        })
        .await;
    parts.snatch_loop(&uid);
    parts
        .wait("robbed", "says that its device is missing", |volume| {
            let status = volume.and_then(|volume| volume.status.clone()).unwrap_or_default();
            status.device_name.is_none()
                && status.conditions[0].message.as_deref().is_some_and(|message| {
                    message.contains("the loop device of this Volume is missing")
                })
        })
        .await;
    parts.restart(Victim::Agent, None).await;
    parts.wait("robbed", "is Available again", available).await;
    parts.delete("robbed").await;
    parts.wait("robbed", "is gone", |volume| volume.is_none()).await;
    parts.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_operator_leads_gives_the_lease_back_and_ends_when_it_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = Parts::start(folder.path()).await;
    parts.stop_operator();
    let mut first = parts.spawn_operator("first");
    parts.leader("the first leads", |holder| holder == Some("first")).await;
    let mut second = parts.spawn_operator("second");
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&first),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert!(first.wait().unwrap().success(), "a stop on request is not a failure");
    parts
        .leader("the lease was given back and the second leads", |holder| holder == Some("second"))
        .await;
    parts.steal_lease().await;
    assert!(
        !second.wait().unwrap().success(),
        "an operator that lost its lease ends, and says so by its code"
    );
    parts.stop().await;
}
