//! One run of one story: set up, play until the script is through, wait until all is quiet, check that it stays quiet.
//!
//! Virtual time moves only when nothing is left to do. Next to read: `schedule.rs` (who may do what, and does it).

use crate::{
    admin_client::AdminClient,
    agent::Agent,
    clock::Clock,
    disk::Disk,
    fault::{Fault, Injector, Point},
    fault_proxy::Shared,
    invariant,
    kind::Kind,
    lock,
    operator::Operator,
    random::Random,
    report::report,
    reused_server,
    schedule::Action,
    story::{Story, VOLUME},
    versioned::Versioned,
    world::{Observer, World},
};
use quarry_apiserver::{Server, Snapshot};
use quarry_core::agent_schedule::RENEW_LEASE_EVERY;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

/// Which of the things that could happen next does.
#[derive(Clone, Debug)]
pub enum Mode {
    /// In a fixed order, with these faults.
    Ordered(Vec<Fault>),
    /// In any order that the seed gives, with up to `at_most` faults.
    Random { seed: u64, one_in: usize, at_most: u32 },
}

impl Mode {
    /// Who decides about faults, and about the order.
    pub(crate) fn parts(&self) -> (Injector, Option<Random>) {
        match self {
            Mode::Ordered(faults) => (Injector::assignment(faults.clone()), None),
            Mode::Random { seed, one_in, at_most } => {
                (Injector::dice(seed ^ 0x5eed, *one_in, *at_most), Some(Random::new(*seed)))
            }
        }
    }
}

/// A run that went well.
pub struct RunReport {
    /// API and node at the end, without what differs between equal runs.
    pub end: String,
    pub points: Vec<Point>,
    pub struck: Vec<Fault>,
    pub steps: usize,
    /// What happened, for people.
    pub trace: Vec<String>,
}

/// A run that did not.
pub struct Failed {
    pub why: String,
    pub struck: Vec<Fault>,
    pub trace: Vec<String>,
}

/// Once the script is through, time moves in large steps: renewals would be most of the work.
const RENEW_SELDOM: Duration = Duration::from_secs(15 * 60);
/// Long enough for jobs to be forgotten.
const TAIL: Duration = Duration::from_secs(12 * 60);
const REST: Duration = Duration::from_secs(60 * 60);
const GIVE_UP: Duration = Duration::from_secs(3 * 60 * 60);
const STEPS_AT_MOST: usize = 20_000;

/// A process, or when it starts again.
pub(crate) enum Slot<P> {
    Up(P),
    Down(Instant),
}

pub(crate) struct Sim {
    pub story: Story,
    pub shared: Arc<Shared>,
    pub server: Server,
    pub raw: AdminClient,
    pub observer: Observer,
    pub disk: Arc<Mutex<Versioned<Disk>>>,
    pub clock: Clock,
    pub operators: Vec<Slot<Operator>>,
    pub agent: Slot<Agent>,
    /// How many agents have been started.
    pub agents: u32,
    /// The next step of the script.
    pub at: usize,
    pub pod: bool,
    /// It is not started again.
    pub agent_stopped: bool,
    /// When people go on.
    pub paused_until: Option<Instant>,
    pub snapshot: Option<Snapshot>,
    /// The job after whose failure a retry was asked for.
    pub retried: Option<String>,
    pub retries: u32,
    pub renew_every: Duration,
    pub random: Option<Random>,
    pub volume_uid: String,
    /// Up to where the API has been observed.
    pub version: u64,
    /// The API's version and the disk's changes that were checked last.
    pub checked: Option<(u64, u64)>,
    /// How many points there were until the end.
    pub points: usize,
}

/// Plays the story. Every call is a new world with its own time.
pub fn run(story: &Story, mode: &Mode) -> Result<RunReport, Failed> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| Failed {
        why: format!("no runtime: {error}"),
        struck: Vec::new(),
        trace: Vec::new(),
    })?;
    // A task that polls often without ever waiting would find nothing new: the runtime wants to be fair.
    runtime.block_on(tokio::task::unconstrained(async {
        let mut sim = Sim::new(story.clone(), mode).await;
        let played = sim.play().await;
        if played.is_ok() {
            reused_server::give_back(&sim.server).await;
        }
        let mut injector = lock(&sim.shared.injector);
        let (mut points, struck) = (std::mem::take(&mut injector.points), injector.struck.clone());
        points.truncate(sim.points);
        let trace = std::mem::take(&mut *lock(&sim.shared.trace));
        match played {
            Ok((end, steps)) => Ok(RunReport { end, points, struck, steps, trace }),
            Err(why) => Err(Failed { why, struck, trace }),
        }
    }))
}

impl Sim {
    async fn new(story: Story, mode: &Mode) -> Self {
        let (server, clock) = reused_server::take().await;
        let raw = AdminClient::new(server.service());
        let (injector, random) = match mode {
            Mode::Ordered(faults) => (Injector::assignment(faults.clone()), None),
            Mode::Random { seed, one_in, at_most } => {
                (Injector::dice(seed ^ 0x5eed, *one_in, *at_most), Some(Random::new(*seed)))
            }
        };
        let shared = Arc::new(Shared {
            world: Mutex::new(World::default()),
            injector: Arc::new(Mutex::new(injector)),
            trace: Arc::default(),
            violations: Arc::default(),
        });
        let observer = Observer::start(&server.service(), server.version()).await;
        let now = Instant::now();
        Sim {
            disk: Arc::new(Mutex::new(Versioned::new(Disk {
                seeded_bug: story.seeded_bug,
                ..Disk::new(story.udev, story.parser)
            }))),
            operators: story.operators.iter().map(|_| Slot::Down(now)).collect(),
            agent: Slot::Down(now),
            agents: 0,
            at: 0,
            pod: false,
            agent_stopped: false,
            paused_until: None,
            snapshot: None,
            retried: None,
            retries: 0,
            renew_every: RENEW_LEASE_EVERY,
            volume_uid: String::new(),
            version: 0,
            checked: None,
            points: 0,
            story,
            shared,
            server,
            raw,
            observer,
            clock,
            random,
        }
    }

    /// To the end, then through the rest; the end and the number of steps.
    async fn play(&mut self) -> Result<(String, usize), String> {
        let give_up = Instant::now() + GIVE_UP;
        let mut steps = 0;
        self.until(&mut steps, give_up, |sim| sim.at == sim.story.steps.len()).await?;
        let struck = lock(&self.shared.injector).struck.len();
        if !self.story.awake {
            self.renew_every = RENEW_SELDOM;
            if let Slot::Up(agent) = &mut self.agent {
                agent.slow_down(RENEW_SELDOM);
            }
        }
        let quiet = Instant::now() + TAIL;
        self.until(&mut steps, give_up, move |_| Instant::now() >= quiet).await?;
        let struck_late = {
            let mut injector = lock(&self.shared.injector);
            injector.calm();
            // What is passed from here on is no point: nothing strikes there.
            self.points = injector.points.len();
            injector.struck.len() > struck
        };
        if struck_late {
            // Time to heal, before everything must be quiet.
            let quiet = Instant::now() + TAIL;
            self.until(&mut steps, quiet + TAIL, move |_| Instant::now() >= quiet).await?;
        }
        self.observe()?;
        let left = invariant::left_behind(&lock(&self.shared.world), &lock(&self.disk));
        if !left.is_empty() {
            return Err(left.join("; "));
        }
        let (end, writes) = (self.report(), self.writes());
        let over = Instant::now() + REST;
        self.until(&mut steps, over + TAIL, move |_| Instant::now() >= over).await?;
        if self.writes() != writes {
            return Err(format!("written at rest: {writes:?} became {:?}", self.writes()));
        }
        let rested = self.report();
        if rested != end {
            return Err(format!("changed at rest:\n{end}\n--- became ---\n{rested}"));
        }
        Ok((end, steps))
    }

    async fn until(
        &mut self,
        steps: &mut usize,
        give_up: Instant,
        done: impl Fn(&Sim) -> bool,
    ) -> Result<(), String> {
        loop {
            self.observe()?;
            self.follow_script();
            let enabled = self.enabled();
            // In the middle of something nothing is over.
            if done(self) && enabled.is_empty() {
                return Ok(());
            }
            *steps += 1;
            if *steps > STEPS_AT_MOST || Instant::now() >= give_up {
                return Err(format!(
                    "does not come to an end (step {steps}): waits for {:?}\n{}",
                    self.story.steps.get(self.at),
                    self.report()
                ));
            }
            match self.choose(enabled) {
                Some(action) => self.perform(action).await,
                None => self.pass_time().await,
            }
        }
    }

    fn choose(&mut self, mut enabled: Vec<Action>) -> Option<Action> {
        if enabled.is_empty() {
            return None;
        }
        let Some(random) = &mut self.random else { return Some(enabled.swap_remove(0)) };
        // Sometimes no process is fast enough.
        if random.one_in(40) {
            None
        } else {
            Some(enabled.swap_remove(random.below(enabled.len())))
        }
    }

    /// Takes in what happened, and checks it.
    fn observe(&mut self) -> Result<(), String> {
        let mut world = lock(&self.shared.world);
        if self.version != self.server.version() {
            self.version = self.server.version();
            self.observer.observe(&mut world);
        }
        if self.volume_uid.is_empty()
            && let Some(uid) = world
                .get(Kind::Volume, VOLUME)
                .and_then(|volume| volume["metadata"]["uid"].as_str())
        {
            self.volume_uid = uid.to_owned();
        }
        let mut wrong = std::mem::take(&mut *lock(&self.shared.violations));
        let disk = lock(&self.disk);
        let seen = Some((self.version, Versioned::changes(&disk)));
        // Half of all actions only read: what was right before them is right after them.
        if self.checked != seen {
            wrong.extend(invariant::check(&world, &disk));
            self.checked = seen;
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    fn report(&self) -> String {
        report(&lock(&self.shared.world), &lock(&self.disk), &self.volume_uid)
    }

    /// Accepted writes by kind, but for leases.
    fn writes(&self) -> BTreeMap<String, u64> {
        let mut counts = self.server.write_counts();
        counts.retain(|kind, _| kind != "coordination.k8s.io/leases");
        counts
    }
}
