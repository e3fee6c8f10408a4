//! Executes one order in a separate process, for tests that kill or stop it; prints the outcome.
//!
//! `disk-contender ROOT DATA prepare UID SIZE ext4|xfs|partition`, `disk-contender ROOT DATA cleanup UID`,
//! `disk-contender ROOT DATA scan CLAIM` (one scan with this device claim), `disk-contender ROOT DATA wipe
//! CLAIM POLICY`, `disk-contender ROOT DATA wipe-announced CLAIM POLICY` (the job is announced before the
//! device is held, and again while it is).

use kube::{Api, Client, api::ListParams};
use quarry_api::{
    NodeJob,
    node_inventory::{ClaimOwner, DeviceClaim},
    node_job::{FsType, WipePolicy},
};
use quarry_core::job::{Format, JobOutcome, JobRun};
use quarry_failpoint::failpoint;
use quarry_node::{
    Agent, AgentOptions, HeldDevice, HostRoot, LinuxNode, NodeError, Progress,
    agent::{RunResult, Workers},
};
use quarry_tests::{
    device_claim::{NODE, World},
    disk::{cleanup_order, execute, filesystem, prepare_order},
    hooked_node::{HookedNode, Hooks},
};
use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::runtime::Handle;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [root, data, rest @ ..] = arguments.as_slice() else { panic!("not a task: {arguments:?}") };
    let host = HostRoot::open(root, data).expect("the data directory opens");
    let ops = Arc::new(LinuxNode::open(host, false).expect("the node's lock is free"));
    let failed = match rest {
        ["prepare", uid, size, format] => {
            let format = FsType::parse(format).map_or(Format::Partition, filesystem);
            volume(&ops, &prepare_order(uid, size.parse().expect("a size in bytes"), format))
        }
        ["cleanup", uid] => volume(&ops, &cleanup_order(uid)),
        ["scan", claim] => in_a_world(async |world| scan(&world, ops, claim).await),
        ["wipe", claim, policy] => {
            in_a_world(async |world| wipe(&world, ops, claim, policy, false).await)
        }
        ["wipe-announced", claim, policy] => {
            in_a_world(async |world| wipe(&world, ops, claim, policy, true).await)
        }
        other => panic!("not a task: {other:?}"),
    };
    match failed {
        None => ExitCode::SUCCESS,
        Some(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn volume(ops: &Arc<LinuxNode>, order: &JobRun) -> Option<String> {
    match execute(ops, order) {
        JobOutcome::Prepared(_) | JobOutcome::Removed | JobOutcome::Erased(_) => None,
        JobOutcome::Failed(why) => Some(why),
    }
}

/// A separate API, with the objects the operator would have written.
fn in_a_world(order: impl AsyncFnOnce(World) -> Option<String>) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async { order(World::new().await).await })
}

fn claim_in(world: &World, text: &str) -> DeviceClaim {
    let claim: DeviceClaim = serde_json::from_str(text).expect("a claim");
    DeviceClaim { owner: ClaimOwner { uid: world.set_uid.clone(), ..world.owner() }, ..claim }
}

async fn scan(world: &World, ops: Arc<LinuxNode>, claim: &str) -> Option<String> {
    world.claim(&[claim_in(world, claim)]).await;
    let ops = Arc::new(HookedNode { ops, hooks: Points { announcements: None } });
    failpoint!("contender.scan");
    let status = world.publish(&ops).await;
    println!("{}", serde_json::to_string(&status.device_claims).expect("reports"));
    None
}

async fn wipe(
    world: &World,
    ops: Arc<LinuxNode>,
    claim: &str,
    policy: &str,
    announced: bool,
) -> Option<String> {
    let policy = WipePolicy::parse(policy).expect("a policy");
    let job = world.wipe_wanted(&claim_in(world, claim), policy).await;
    let announcements = announced
        .then(|| Announcements { client: world.client.clone(), runtime: Handle::current() });
    let mut options = AgentOptions { settling_time: Duration::ZERO, ..AgentOptions::new(NODE) };
    if announcements.is_some() {
        options = AgentOptions {
            progress_after: Duration::ZERO,
            progress_every: Duration::from_millis(1),
            ..options
        };
    }
    let ops = Arc::new(HookedNode { ops, hooks: Points { announcements } });
    let agent = Agent::new(world.client.clone(), ops, Workers::pool(2).expect("threads"), options);
    failpoint!("contender.job");
    match agent.run_job(&job).await.expect("an API that answers") {
        RunResult::Finished(JobOutcome::Failed(why)) => Some(why),
        RunResult::Finished(_) => None,
        RunResult::Skipped | RunResult::Gone => Some("not run".into()),
    }
}

/// Failpoints right before a device is opened.
struct Points {
    announcements: Option<Announcements>,
}

impl Hooks for Points {
    fn before_confirm(&self) {
        failpoint!("contender.confirm");
    }

    fn before_hold(&self) {
        failpoint!("contender.hold");
        if let Some(announcements) = &self.announcements {
            announcements.wait_for(None);
        }
    }

    fn after_hold(&self, held: Box<dyn HeldDevice>) -> Box<dyn HeldDevice> {
        match &self.announcements {
            Some(announcements) => {
                Box::new(Announced { held, announcements: announcements.clone() })
            }
            None => held,
        }
    }
}

/// What the agent has announced through its API.
#[derive(Clone)]
struct Announcements {
    client: Client,
    runtime: Handle,
}

impl Announcements {
    /// Called on a worker thread while the agent keeps announcing.
    fn wait_for(&self, percent: Option<i32>) {
        let jobs: Api<NodeJob> = Api::all(self.client.clone());
        let end = Instant::now() + Duration::from_secs(30);
        let is_told = |job: &NodeJob| {
            job.status
                .as_ref()
                .is_some_and(|status| status.phase.is_some() && status.progress == percent)
        };
        while !self
            .runtime
            .block_on(jobs.list(&ListParams::default()))
            .expect("jobs")
            .items
            .iter()
            .any(is_told)
        {
            assert!(Instant::now() < end, "nothing was announced");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A held device that is erased only after the agent has announced it.
struct Announced {
    held: Box<dyn HeldDevice>,
    announcements: Announcements,
}

impl HeldDevice for Announced {
    fn name(&self) -> &str {
        self.held.name()
    }

    fn is_wiped(&self) -> bool {
        self.held.is_wiped()
    }

    fn wipe(self: Box<Self>, policy: WipePolicy, progress: &Progress) -> Result<String, NodeError> {
        // The second percentage is announced after the agent has finished with the first, including
        // its failpoints.
        for percent in [1, 2] {
            progress.advance(percent, 100);
            self.announcements.wait_for(i32::try_from(percent).ok());
        }
        self.held.wipe(policy, progress)
    }
}
