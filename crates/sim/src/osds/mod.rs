//! OSDs in the simulator: the real CephCluster controller, the decisions of `quarry osd prepare`, a simulated Ceph and
//! devices, with a fault before or after any API call, watch event, act of a prepare run or request to Ceph.
//!
//! Owns the scheduler of such runs. Next to read: `story.rs` (what happens), `kube.rs` (the rest of a cluster),
//! `prepare.rs`, `ceph.rs` (which answers only what was recorded).

mod ceph;
mod kube;
pub mod machine;
mod prepare;
pub mod recording;
pub mod story;

use crate::{
    admin_client::AdminClient,
    clock::Clock,
    explore::{Choice, Summary},
    fault::Track,
    fault_proxy::{Gate, Shared},
    kind::Kind,
    lock,
    operator::{Operator, Parts},
    operators::{Doing, Operators, Process},
    random::Random,
    report::normal,
    reused_server,
    run::{Failed, Mode, RunReport},
    world::{Observer, World},
};
use http::Method;
use kube::{Act, Kube, carry_out};
use machine::Machine;
use quarry_api::names::ceph as names;
use quarry_apiserver::Server;
use quarry_operator::{Registry, group};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use story::{Step, Story, View};
use tokio::time::{Instant, sleep_until};

/// Longer than the longest time between two looks, and than a watch takes to notice that it lost an event.
const TAIL: Duration = Duration::from_secs(7 * 60);
const REST: Duration = Duration::from_secs(60 * 60);
const REST_AFTER_FAULTS: Duration = Duration::from_secs(10 * 60);
const GIVE_UP: Duration = Duration::from_secs(8 * 60 * 60);
const STEPS_AT_MOST: usize = 60_000;

enum Action {
    User,
    Operator(usize, Doing),
    Prepare(String),
    Kube(Act),
}

struct OsdSim {
    story: Story,
    server: Server,
    raw: AdminClient,
    observer: Observer,
    shared: Arc<Shared>,
    version: u64,
    machine: Machine,
    operators: Operators,
    clock: Clock,
    random: Option<Random>,
    at: usize,
    paused_until: Option<Instant>,
    points: usize,
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
    runtime.block_on(tokio::task::unconstrained(async {
        let mut sim = OsdSim::new(story.clone(), mode).await;
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

pub fn every_point(story: &Story, choice: Choice) -> Summary {
    crate::explore::every_point_of(story.name, "osds", choice, |mode| run(story, mode))
}

pub fn random(story: &Story, first: u64, count: u64) -> Summary {
    crate::explore::random_of(story.name, "osds", first, count, |mode| run(story, mode))
}

impl OsdSim {
    async fn new(story: Story, mode: &Mode) -> Self {
        let (injector, random) = mode.parts();
        let (server, clock) = reused_server::take().await;
        let now = Instant::now();
        OsdSim {
            raw: AdminClient::new(server.service()),
            observer: Observer::start(&server.service(), server.version()).await,
            shared: Arc::new(Shared {
                world: Mutex::new(World::default()),
                injector: Arc::new(Mutex::new(injector)),
                trace: Arc::default(),
                violations: Arc::default(),
            }),
            operators: Operators(story.operators.iter().map(|_| Process::Down(now)).collect()),
            machine: Machine::default(),
            version: 0,
            server,
            story,
            clock,
            random,
            at: 0,
            paused_until: None,
            points: 0,
        }
    }

    /// To the end, then through the rest; the end and the number of steps.
    async fn play(&mut self) -> Result<(String, usize), String> {
        let give_up = Instant::now() + GIVE_UP;
        let mut steps = 0;
        self.until(&mut steps, give_up, |sim| sim.at == sim.story.steps.len()).await?;
        let struck = self.struck();
        let quiet = Instant::now() + TAIL;
        self.until(&mut steps, give_up, move |_| Instant::now() >= quiet).await?;
        {
            let mut injector = lock(&self.shared.injector);
            injector.calm();
            self.points = injector.points.len();
        }
        if self.struck() > struck {
            // Time to heal, before everything must be quiet.
            let quiet = Instant::now() + TAIL;
            self.until(&mut steps, give_up + TAIL, move |_| Instant::now() >= quiet).await?;
        }
        self.check_events().await?;
        let end = self.report();
        if !self.story.rests {
            return Ok((end, steps));
        }
        let writes = self.writes();
        let rest = if self.struck() == 0 { REST } else { REST_AFTER_FAULTS };
        let over = Instant::now() + rest;
        self.until(&mut steps, over + TAIL, move |_| Instant::now() >= over).await?;
        if self.writes() != writes {
            return Err(format!("written at rest: {writes} became {}", self.writes()));
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
        done: impl Fn(&OsdSim) -> bool,
    ) -> Result<(), String> {
        loop {
            self.observe()?;
            self.follow_script();
            let enabled = self.enabled();
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
        if random.one_in(40) {
            None
        } else {
            Some(enabled.swap_remove(random.below(enabled.len())))
        }
    }

    /// Takes in what happened, and checks it.
    fn observe(&mut self) -> Result<(), String> {
        let mut wrong = std::mem::take(&mut *lock(&self.shared.violations));
        wrong.append(&mut self.machine.wrong);
        if self.version != self.server.version() {
            self.version = self.server.version();
            let mut world = lock(&self.shared.world);
            self.observer.observe(&mut world);
            wrong.extend(invariants(&world, &self.story));
            for pv in world.all(Kind::Pv) {
                self.machine.add_device(pv["metadata"]["name"].as_str().unwrap_or_default());
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    /// Passes by the conditions that are fulfilled.
    fn follow_script(&mut self) {
        while let Some(Step::Await(name, condition)) = self.story.steps.get(self.at) {
            let waits = self.paused_until.is_some_and(|until| until > Instant::now());
            let world = lock(&self.shared.world);
            if waits || !condition(&View { world: &world, machine: &self.machine }) {
                return;
            }
            drop(world);
            self.shared.note(|| format!("user: sees {name}"));
            self.at += 1;
        }
    }

    fn enabled(&self) -> Vec<Action> {
        let now = Instant::now();
        let mut actions = Vec::new();
        let waits = self.paused_until.is_some_and(|until| until > now);
        let next = self.story.steps.get(self.at);
        if !waits && next.is_some_and(|step| !matches!(step, Step::Await(..))) {
            actions.push(Action::User);
        }
        let operators = self.operators.enabled(now).into_iter();
        actions.extend(operators.map(|(id, doing)| Action::Operator(id, doing)));
        let hangs = |volume: &String| self.machine.hang.contains(volume);
        let prepares = self.machine.prepares.iter();
        let moving = prepares.filter(|(_, run)| !run.devices.iter().any(|(_, _, pv)| hangs(pv)));
        actions.extend(moving.map(|(pod, _)| Action::Prepare(pod.clone())));
        let world = lock(&self.shared.world);
        actions.extend(self.kube(&world).next().map(Action::Kube));
        actions
    }

    fn kube<'a>(&'a self, world: &'a World) -> Kube<'a> {
        Kube { world, machine: &self.machine, time: self.clock.now().to_string() }
    }

    async fn perform(&mut self, action: Action) {
        match action {
            Action::User => self.user_step().await,
            Action::Operator(id, Doing::Start) => {
                let operator = self.start(id);
                self.operators.started(id, operator);
            }
            Action::Operator(id, doing) => {
                self.operators.perform(id, doing, &self.shared, self.clock).await;
            }
            Action::Prepare(pod) => self.prepare(&pod),
            Action::Kube(act) => {
                self.shared.note(|| format!("cluster: {act}"));
                let wrong = carry_out(act, &self.raw, &mut self.machine).await;
                lock(&self.shared.violations).extend(wrong);
            }
        }
    }

    fn prepare(&mut self, pod: &str) {
        let Some(mut run) = self.machine.prepares.remove(pod) else { return };
        let label = run.label();
        let fault = lock(&self.shared.injector).pass(Track::Prepare, &label, run.possible());
        self.shared.note(|| match fault {
            Some((when, what)) => format!("prepare: {label}  <== {what:?} {when:?}"),
            None => format!("prepare: {label}"),
        });
        match run.step(&mut self.machine, fault) {
            None => {
                self.machine.prepares.insert(pod.to_owned(), run);
            }
            Some(ended) => {
                self.shared.note(|| format!("    ended with {}", ended.code));
                self.machine.ended.insert(pod.to_owned(), ended);
            }
        }
    }

    fn start(&self, id: usize) -> Operator {
        Operator::with(
            u8::try_from(id).unwrap_or_default(),
            self.server.service(),
            self.shared.clone(),
            self.clock,
            self.story.operators[id],
            Arc::new(Gate::default()),
            Registry::standard().select(&[group::DEVICE_SETS]),
            Parts { hosts: None, image: Some("quarry.dev/quarry:sim") },
        )
    }

    async fn pass_time(&mut self) {
        let now = Instant::now();
        let mut next: Vec<Instant> = self.paused_until.into_iter().collect();
        next.extend(self.operators.next_due());
        next.extend(self.kube(&lock(&self.shared.world)).deadlines());
        let limit = next.into_iter().filter(|due| *due > now).min();
        sleep_until(limit.unwrap_or(now + Duration::from_secs(5))).await;
    }

    async fn user_step(&mut self) {
        let Some(step) = self.story.steps.get(self.at).cloned() else { return };
        self.at += 1;
        let refused = match &step {
            Step::Create(kind, object) => {
                self.shared
                    .note(|| format!("user: creates {kind:?} {}", object["metadata"]["name"]));
                self.raw.create(kind.path(), object).await.err()
            }
            Step::Delete(kind, of) => {
                let name = of(&View { world: &lock(&self.shared.world), machine: &self.machine });
                self.shared.note(|| format!("user: deletes {kind:?} {name}"));
                self.raw.delete(&kind.object_path(&name)).await.err()
            }
            Step::Patch(kind, name, changes) => {
                self.shared.note(|| format!("user: changes {kind:?} {name}"));
                self.raw.patch(&kind.object_path(name), changes).await.err()
            }
            Step::Status(kind, name, changes) => {
                let path = format!("{}/status", kind.object_path(name));
                self.raw.patch(&path, changes).await.err()
            }
            Step::Machine(name, change) => {
                self.shared.note(|| format!("user: {name}"));
                change(&mut self.machine);
                None
            }
            Step::Pause(time) => {
                self.paused_until = Some(Instant::now() + *time);
                None
            }
            Step::Await(..) => None,
        };
        if let Some(refused) = refused {
            lock(&self.shared.violations).push(format!("the user was refused: {refused}"));
        }
    }

    async fn check_events(&self) -> Result<(), String> {
        let path = "/api/v1/namespaces/quarry-system/events";
        let list = self.raw.call(Method::GET, path, None).await;
        let list = list.map_err(|refused| format!("reading Events: {refused}"))?;
        let events = list["items"].as_array();
        match events.into_iter().flatten().find(|event| event["reason"] == "PlanRefused") {
            Some(event) => Err(format!("a plan was refused: {}", event["message"])),
            None => Ok(()),
        }
    }

    /// What there is of each OSD. Which of two equal devices it got, and so its ID, is chance.
    fn report(&self) -> String {
        let world = lock(&self.shared.world);
        let mut lines = Vec::new();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for claim in world.all(Kind::OsdClaim) {
            let name = text(&claim["metadata"]["name"]);
            let of_claim = |kind: Kind| {
                let same = |one: &&Value| one["metadata"]["labels"][names::PVC_LABEL] == name;
                world.all(kind).filter(same).count()
            };
            let uid = text(&claim["metadata"]["uid"]);
            let id = self.machine.ceph.id_of(&uid);
            let device = self.machine.devices.get(&text(&claim["spec"]["volumeName"]));
            let is_formatted = device.is_some_and(|device| {
                device.formatted.iter().all(|by| by.as_str() == uid) && !device.formatted.is_empty()
            });
            lines.push(format!(
                "claim {name}: {}, formatted {is_formatted}, registered {}, results {}, deployments {}",
                claim["status"]["phase"],
                id.is_some(),
                of_claim(Kind::ConfigMap),
                of_claim(Kind::Deployment),
            ));
        }
        for cluster in world.all(Kind::CephCluster) {
            let shown = normal(&json!({
                "name": cluster["metadata"]["name"], "spec": cluster["spec"],
                "conditions": cluster["status"]["conditions"],
            }));
            lines.push(without_ids(&shown.to_string()));
        }
        let ceph = &self.machine.ceph.osds;
        let ran = ceph.values().filter(|known| known.has_run).count();
        lines.push(format!("ceph: {} OSDs, {ran} have run", ceph.len()));
        lines.push(format!("running: {}", self.machine.running.len()));
        lines.join("\n")
    }

    fn struck(&self) -> usize {
        lock(&self.shared.injector).struck.len()
    }

    fn writes(&self) -> u64 {
        self.server.write_counts().into_values().sum()
    }
}

/// `osd.3` → `osd.*`.
fn without_ids(text: &str) -> String {
    let mut parts = text.split("osd.");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("osd.*");
        out.push_str(part.trim_start_matches(|found: char| found.is_ascii_digit()));
    }
    out
}

/// What may never be seen in the API, in whatever order things happen and fail.
fn invariants(world: &World, story: &Story) -> Vec<String> {
    let mut wrong = Vec::new();
    let claims = world.all(Kind::OsdClaim).count();
    if claims > story.claims {
        wrong.push(format!("{claims} PVCs, where {} were wanted", story.claims));
    }
    for kind in [Kind::Deployment, Kind::PrepareJob] {
        let mut seen = BTreeSet::new();
        for object in world.all(kind) {
            let claim = object["metadata"]["labels"][names::PVC_LABEL].as_str();
            if claim.is_some_and(|claim| !seen.insert(claim)) {
                wrong.push(format!("two of {kind:?} for PVC {claim:?}"));
            }
        }
    }
    wrong
}
