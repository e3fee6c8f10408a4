//! Hosts in the simulator: the real host controller, one or two clusters, and a simulated Ironic, with a fault before or
//! after any API call, request to Ironic or watch event.
//!
//! Owns the scheduler of such runs. Has neither agents nor disks. Next to read: `story.rs` (what happens),
//! `invariant.rs` (what may never be seen), `explore.rs` (every point), `../ironic/mod.rs`.

pub mod explore;
mod invariant;
pub mod many;
mod moving;
mod raid_story;
pub mod story;

use crate::{
    admin_client::AdminClient,
    clock::Clock,
    fault::Track,
    fault_proxy::{Gate, Shared},
    ironic::{SimIronic, proxy::IronicProxy},
    kind::Kind,
    lock,
    operator::{Operator, Parts},
    operators::{Doing, Operators, Process},
    random::Random,
    reused_server,
    run::{Failed, Mode, RunReport},
    world::{Observer, World},
};
use http::Method;
use quarry_apiserver::Server;
use quarry_core::bare_metal_host::HostSettings;
use quarry_ironic::Client;
use quarry_operator::{
    Registry,
    bare_metal_host::{HostOptions, Ironic},
    group,
};
use serde_json::Value;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use story::{RIGHT, Step, Story, View};
use tokio::time::{Instant, sleep_until};

/// Longer than the longest backoff of one failure, and than a watch takes to notice that it lost an event.
const TAIL: Duration = Duration::from_secs(5 * 60);
/// With faults the same is seen in less time.
const REST: Duration = Duration::from_secs(60 * 60);
const REST_AFTER_FAULTS: Duration = Duration::from_secs(10 * 60);
const GIVE_UP: Duration = Duration::from_secs(6 * 60 * 60);
const STEPS_AT_MOST: usize = 40_000;

/// One API server and what is known of it.
struct Cluster {
    server: Server,
    raw: AdminClient,
    observer: Observer,
    shared: Arc<Shared>,
    version: u64,
}

enum Action {
    User,
    Operator(usize, Doing),
}

struct HostSim {
    story: Story,
    clusters: Vec<Cluster>,
    ironic: Arc<Mutex<SimIronic>>,
    operators: Operators,
    clock: Clock,
    random: Option<Random>,
    at: usize,
    paused_until: Option<Instant>,
    watch: invariant::Watch,
    checked: Option<Vec<u64>>,
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
        let mut sim = HostSim::new(story.clone(), mode).await;
        let played = sim.play().await;
        if played.is_ok() {
            for (number, cluster) in sim.clusters.iter().enumerate() {
                reused_server::give_back_another(number, &cluster.server).await;
            }
        }
        let shared = &sim.clusters[0].shared;
        let mut injector = lock(&shared.injector);
        let (mut points, struck) = (std::mem::take(&mut injector.points), injector.struck.clone());
        points.truncate(sim.points);
        let trace = std::mem::take(&mut *lock(&shared.trace));
        match played {
            Ok((end, steps)) => Ok(RunReport { end, points, struck, steps, trace }),
            Err(why) => Err(Failed { why, struck, trace }),
        }
    }))
}

impl HostSim {
    async fn new(story: Story, mode: &Mode) -> Self {
        let (injector, random) = mode.parts();
        let injector = Arc::new(Mutex::new(injector));
        let (trace, violations) = (Arc::default(), Arc::default());
        let mut clusters = Vec::new();
        let mut clock = None;
        for number in 0..story.clusters {
            let (server, now) = match number {
                0 => reused_server::take().await,
                other => reused_server::take_another(other).await,
            };
            clock.get_or_insert(now);
            let shared = Arc::new(Shared {
                world: Mutex::new(World::default()),
                injector: injector.clone(),
                trace: Arc::clone(&trace),
                violations: Arc::clone(&violations),
            });
            clusters.push(Cluster {
                raw: AdminClient::new(server.service()),
                observer: Observer::start(&server.service(), server.version()).await,
                server,
                shared,
                version: 0,
            });
        }
        let clock = clock.unwrap_or_else(Clock::start);
        let mut ironic = SimIronic::new(clock.as_function(), RIGHT);
        story::add_bystander(&mut ironic);
        let now = Instant::now();
        let operators = story.operators.iter().map(|one| match one.waits {
            true => Process::Stopped,
            false => Process::Down(now),
        });
        HostSim {
            operators: Operators(operators.collect()),
            watch: invariant::Watch::new(&mut ironic),
            ironic: Arc::new(Mutex::new(ironic)),
            story,
            clusters,
            clock,
            random,
            at: 0,
            paused_until: None,
            checked: None,
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
            let mut injector = lock(&self.clusters[0].shared.injector);
            injector.calm();
            self.points = injector.points.len();
        }
        if self.struck() > struck {
            // Time to heal, before everything must be quiet.
            let quiet = Instant::now() + TAIL;
            self.until(&mut steps, give_up + TAIL, move |_| Instant::now() >= quiet).await?;
        }
        self.check_events().await?;
        let disks = lock(&self.ironic).machine(story::MACHINE).disks.clone();
        let raid = (disks.built, disks.erased);
        if raid != self.story.raid && self.struck() == 0 && self.random.is_none() {
            return Err(format!(
                "RAID was built and deleted {raid:?} times, not {:?}",
                self.story.raid
            ));
        }
        let (end, writes, asked) = (self.report(), self.writes(), self.asked());
        let rest = if self.struck() == 0 { REST } else { REST_AFTER_FAULTS };
        let over = Instant::now() + rest;
        self.until(&mut steps, over + TAIL, move |_| Instant::now() >= over).await?;
        if self.writes() != writes {
            return Err(format!("written at rest: {writes} became {}", self.writes()));
        }
        // One list a minute for each operator that runs.
        let running = self.operators.running();
        let (lists, all) = (self.asked().0 - asked.0, self.asked().1 - asked.1);
        let allowed = (rest.as_secs() / 60 + 1) * running as u64;
        if lists > allowed || all > allowed {
            return Err(format!("{lists} lists and {all} requests to Ironic in {rest:?} at rest"));
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
        done: impl Fn(&HostSim) -> bool,
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
        for cluster in &mut self.clusters {
            if cluster.version != cluster.server.version() {
                cluster.version = cluster.server.version();
                cluster.observer.observe(&mut lock(&cluster.shared.world));
            }
        }
        let mut wrong = std::mem::take(&mut *lock(&self.clusters[0].shared.violations));
        let mut ironic = lock(&self.ironic);
        wrong.append(&mut ironic.unknown);
        let mut seen: Vec<u64> = self.clusters.iter().map(|cluster| cluster.version).collect();
        seen.extend(ironic.counts.values());
        if self.checked.as_ref() != Some(&seen) {
            let worlds: Vec<_> =
                self.clusters.iter().map(|cluster| lock(&cluster.shared.world)).collect();
            let worlds: Vec<&World> = worlds.iter().map(|world| &**world).collect();
            wrong.extend(self.watch.check(&self.story, &worlds, &mut ironic));
            self.checked = Some(seen);
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    /// Passes by the conditions that are fulfilled.
    fn follow_script(&mut self) {
        while let Some(Step::Await(name, condition)) = self.story.steps.get(self.at) {
            let (nodes, disks) = {
                let mut ironic = lock(&self.ironic);
                (ironic.nodes(), ironic.machine(story::MACHINE).disks.clone())
            };
            let worlds: Vec<_> =
                self.clusters.iter().map(|cluster| lock(&cluster.shared.world)).collect();
            let worlds = worlds.iter().map(|world| &**world).collect();
            let view = View { worlds, nodes, disks };
            if !condition(&view) {
                return;
            }
            self.clusters[0].shared.note(|| format!("user: sees {name}"));
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
        actions
    }

    async fn perform(&mut self, action: Action) {
        match action {
            Action::User => self.user_step().await,
            Action::Operator(id, Doing::Start) => {
                let operator = self.start(id);
                self.operators.started(id, operator);
            }
            Action::Operator(id, doing) => {
                let shared = &self.clusters[0].shared;
                self.operators.perform(id, doing, shared, self.clock).await;
            }
        }
    }

    fn start(&self, id: usize) -> Operator {
        let about = &self.story.operators[id];
        let cluster = &self.clusters[about.cluster];
        let number = u8::try_from(id).unwrap_or_default();
        let gate = Arc::new(Gate::default());
        let transport = IronicProxy {
            ironic: self.ironic.clone(),
            track: Track::Ironic(number),
            gate: gate.clone(),
            shared: cluster.shared.clone(),
        };
        let client = Client::with_transport(Arc::new(transport));
        let hosts = HostOptions::new(Ironic::fixed(client), settings());
        Operator::with(
            number,
            cluster.server.service(),
            cluster.shared.clone(),
            self.clock,
            about.lag,
            gate,
            Registry::standard().select(&[group::HOSTS]),
            Parts { hosts: Some(hosts), image: None },
        )
    }

    async fn pass_time(&mut self) {
        let now = Instant::now();
        let mut next: Vec<Instant> = self.paused_until.into_iter().collect();
        next.extend(self.operators.next_due());
        let limit = next.into_iter().filter(|due| *due > now).min();
        // Ironic goes on meanwhile.
        sleep_until(limit.unwrap_or(now + Duration::from_secs(5))).await;
    }

    async fn user_step(&mut self) {
        let Some(step) = self.story.steps.get(self.at).cloned() else { return };
        self.clusters[0].shared.note(|| format!("user: {step:?}"));
        self.at += 1;
        let refused = match step {
            Step::Create(cluster, kind, object) => {
                self.clusters[cluster].raw.create(kind.path(), &object).await.err()
            }
            Step::Delete(cluster, kind, name) => {
                self.clusters[cluster].raw.delete(&kind.object_path(&name)).await.err()
            }
            Step::Patch(cluster, kind, name, changes) => {
                let path = kind.object_path(&name);
                self.clusters[cluster].raw.patch(&path, &changes).await.err()
            }
            Step::Ironic(_, change) => {
                change(&mut lock(&self.ironic));
                None
            }
            Step::Operator(id, runs) => {
                self.operators.0[id] =
                    if runs { Process::Down(Instant::now()) } else { Process::Stopped };
                None
            }
            Step::MoveOut => moving::move_out(&self.clusters[0].raw).await.err(),
            Step::Move => moving::copy(&self.clusters[0].raw, &self.clusters[1].raw).await.err(),
            Step::Pause(time) => {
                self.paused_until = Some(Instant::now() + time);
                None
            }
            Step::Await(..) => None,
        };
        if let Some(refused) = refused {
            lock(&self.clusters[0].shared.violations)
                .push(format!("the user was refused: {refused}"));
        }
    }

    /// Events are not followed: all of them are read once, at the end.
    async fn check_events(&self) -> Result<(), String> {
        for cluster in &self.clusters {
            let path = "/api/v1/namespaces/quarry-system/events";
            let list = cluster.raw.call(Method::GET, path, None).await;
            let list = list.map_err(|refused| format!("reading Events: {refused}"))?;
            let refused = |event: &&Value| event["reason"] == "PlanRefused";
            let events = list["items"].as_array();
            if let Some(event) = events.into_iter().flatten().find(refused) {
                return Err(format!("a plan was refused: {}", event["message"]));
            }
            let shown = invariant::shows_credential(&list);
            if let Some(shown) = shown {
                return Err(format!("an Event shows {shown}"));
            }
        }
        Ok(())
    }

    fn report(&self) -> String {
        let mut lines = Vec::new();
        for (number, cluster) in self.clusters.iter().enumerate() {
            let world = lock(&cluster.shared.world);
            for kind in [Kind::Host, Kind::HardwareData, Kind::Secret] {
                let all = world.all(kind).map(invariant::comparable);
                lines.extend(all.map(|object| format!("cluster {number}: {kind:?} {object}")));
            }
        }
        let nodes = lock(&self.ironic).nodes();
        lines.extend(nodes.iter().map(|node| format!("node {}", invariant::comparable(node))));
        let mut disks = lock(&self.ironic).machine(story::MACHINE).disks.clone();
        // An outage of Ironic while a host is deleted lets it delete its volumes again.
        disks.erased = 0;
        if self.story.loses_nodes {
            // What was done before it is repeated, or not: Ironic cannot say.
            disks.built = 0;
        }
        lines.push(format!("machine {disks:?}"));
        lines.join("\n")
    }

    fn struck(&self) -> usize {
        lock(&self.clusters[0].shared.injector).struck.len()
    }

    fn writes(&self) -> u64 {
        let counts = self.clusters.iter().flat_map(|cluster| cluster.server.write_counts());
        counts.map(|(_, count)| count).sum()
    }

    /// Lists of Ironic's nodes, and all requests.
    fn asked(&self) -> (u64, u64) {
        let ironic = lock(&self.ironic);
        let lists = ironic.counts.get("list").copied().unwrap_or_default();
        (lists, ironic.counts.values().sum::<u64>() - lists)
    }
}

pub(crate) fn settings() -> HostSettings {
    HostSettings {
        deploy_iso: Some("https://images.example/ramdisk.iso".to_owned()),
        ..HostSettings::default()
    }
}
