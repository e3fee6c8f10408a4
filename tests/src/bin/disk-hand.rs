//! One order carried out by a process of its own, for the tests that kill or stop it; prints how it ended.
//!
//! `disk-hand ROOT DATA prepare UID SIZE ext4|xfs|partition`, `disk-hand ROOT DATA cleanup UID`,
//! `disk-hand ROOT DATA look CLAIM` (one look with this claim), `disk-hand ROOT DATA wipe CLAIM POLICY`,
//! `disk-hand ROOT DATA wipe-told CLAIM POLICY` (the job is announced before the device is held, and again while it is).

use kube::{Api, Client, api::ListParams};
use quarry_api::{
    NodeJob,
    node_inventory::{Claim, ClaimOwner, KeptData, PathReport},
    node_job::{FsType, WipePolicy},
};
use quarry_core::sparse::{Format, Observed, Step};
use quarry_failpoint::failpoint;
use quarry_node::{
    Agent, AgentOptions, ConfirmRequest, Confirmation, Hands, HandsError, HeldDevice, HoldRequest,
    Host, Intent, LinkOrder, LinkState, Outcome, Progress, RealHands, Survey, SurveyRequest,
    agent::{Ended, Order, Ran, Workers},
};
use quarry_tests::{
    claim::{NODE, World},
    disk::{carry, cleanup_order, filesystem, prepare_order},
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
    let [root, data, rest @ ..] = arguments.as_slice() else {
        panic!("not an order: {arguments:?}")
    };
    let host = Host::open(root, data).expect("the data folder opens");
    let hands = Arc::new(RealHands::open(host, false).expect("the node's lock is free"));
    let failed = match rest {
        ["prepare", uid, size, format] => {
            let format = FsType::parse(format).map_or(Format::Partition, filesystem);
            volume(&hands, &prepare_order(uid, size.parse().expect("a size in bytes"), format))
        }
        ["cleanup", uid] => volume(&hands, &cleanup_order(uid)),
        ["look", claim] => in_a_world(async |world| look(&world, hands, claim).await),
        ["wipe", claim, policy] => {
            in_a_world(async |world| wipe(&world, hands, claim, policy, false).await)
        }
        ["wipe-told", claim, policy] => {
            in_a_world(async |world| wipe(&world, hands, claim, policy, true).await)
        }
        other => panic!("not an order: {other:?}"),
    };
    match failed {
        None => ExitCode::SUCCESS,
        Some(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn volume(hands: &Arc<RealHands>, order: &Order) -> Option<String> {
    match carry(hands, order) {
        Ended::Succeeded(_) | Ended::Erased(_) => None,
        Ended::Failed(why) => Some(why),
    }
}

/// Its own API, in which everything is as the operator would have left it.
fn in_a_world(order: impl AsyncFnOnce(World) -> Option<String>) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async { order(World::new().await).await })
}

fn claim_in(world: &World, text: &str) -> Claim {
    let claim: Claim = serde_json::from_str(text).expect("a claim");
    Claim { owner: ClaimOwner { uid: world.set_uid.clone(), ..world.owner() }, ..claim }
}

async fn look(world: &World, hands: Arc<RealHands>, claim: &str) -> Option<String> {
    world.claim(&[claim_in(world, claim)]).await;
    let hands = Arc::new(Points { hands, told: None });
    failpoint!("hand.look");
    let status = world.publish(&hands).await;
    println!("{}", serde_json::to_string(&status.claims).expect("reports"));
    None
}

async fn wipe(
    world: &World,
    hands: Arc<RealHands>,
    claim: &str,
    policy: &str,
    told: bool,
) -> Option<String> {
    let policy = WipePolicy::parse(policy).expect("a policy");
    let job = world.wipe_wanted(&claim_in(world, claim), policy).await;
    let told = told.then(|| Told { client: world.client.clone(), runtime: Handle::current() });
    let mut options = AgentOptions { settling_time: Duration::ZERO, ..AgentOptions::new(NODE) };
    if told.is_some() {
        options = AgentOptions {
            progress_after: Duration::ZERO,
            progress_every: Duration::from_millis(1),
            ..options
        };
    }
    let hands = Arc::new(Points { hands, told });
    let agent =
        Agent::new(world.client.clone(), hands, Workers::pool(2).expect("threads"), options);
    failpoint!("hand.job");
    match agent.run_job(&job).await.expect("an API that answers") {
        Ran::Succeeded(_) => None,
        Ran::Failed(why) => Some(why),
        Ran::Skipped | Ran::Gone => Some("not run".into()),
    }
}

/// The node's own hands, and points of this process right before they reach for a device.
struct Points {
    hands: Arc<RealHands>,
    told: Option<Told>,
}

/// What the agent has announced, by its API.
#[derive(Clone)]
struct Told {
    client: Client,
    runtime: Handle,
}

impl Told {
    /// Called on a worker's thread, beside which the agent goes on announcing.
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

impl Hands for Points {
    fn look(&self, uid: &str) -> Result<Observed, HandsError> {
        self.hands.look(uid)
    }
    fn glance(&self, uid: &str) -> Result<Observed, HandsError> {
        self.hands.glance(uid)
    }
    fn act(&self, uid: &str, step: &Step) -> Result<(), HandsError> {
        self.hands.act(uid, step)
    }
    fn record_intent(&self, entry: &Intent) -> Result<(), HandsError> {
        self.hands.record_intent(entry)
    }
    fn record_outcome(&self, entry: &Outcome) -> Result<(), HandsError> {
        self.hands.record_outcome(entry)
    }
    fn known_volumes(&self) -> Result<Vec<String>, HandsError> {
        self.hands.known_volumes()
    }
    fn survey(&self, request: &SurveyRequest) -> Result<Survey, HandsError> {
        self.hands.survey(request)
    }
    fn confirm(&self, request: &ConfirmRequest) -> Result<Confirmation, HandsError> {
        failpoint!("hand.confirm");
        self.hands.confirm(request)
    }
    fn follow_links(&self, orders: &[LinkOrder]) -> Result<Vec<LinkState>, HandsError> {
        self.hands.follow_links(orders)
    }
    fn remember_kept(&self, kept: &[KeptData]) -> Result<(), HandsError> {
        self.hands.remember_kept(kept)
    }
    fn resolve(&self, paths: &[String]) -> Result<Vec<PathReport>, HandsError> {
        self.hands.resolve(paths)
    }
    fn hold(&self, request: &HoldRequest) -> Result<Box<dyn HeldDevice>, HandsError> {
        failpoint!("hand.hold");
        let Some(told) = &self.told else { return self.hands.hold(request) };
        told.wait_for(None);
        Ok(Box::new(Announced { held: self.hands.hold(request)?, told: told.clone() }))
    }
}

/// A held device that is not erased before the agent has said so.
struct Announced {
    held: Box<dyn HeldDevice>,
    told: Told,
}

impl HeldDevice for Announced {
    fn name(&self) -> &str {
        self.held.name()
    }

    fn wipe(
        self: Box<Self>,
        policy: WipePolicy,
        progress: &Progress,
    ) -> Result<String, HandsError> {
        // The second of them is told when the agent is done with the first, its points included.
        for percent in [1, 2] {
            progress.advance(percent, 100);
            self.told.wait_for(i32::try_from(percent).ok());
        }
        self.held.wipe(policy, progress)
    }
}
