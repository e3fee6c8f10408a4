//! Who may act next, and the act itself: one API call, one disk operation, one event, one step of the script.

use crate::{
    agent::Agent,
    cluster,
    disk::{Disk, File},
    fault::FaultKind,
    kind::Kind,
    lock,
    node_ops::Crash,
    operator::Operator,
    process::{Turn, turn},
    raw_disks::Keeper,
    run::{Sim, Slot},
    story::{Step, VOLUME},
};
use quarry_api::{Bytes, names};
use quarry_operator::trigger::Key;
use serde_json::json;
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

const PROCESS_START: Duration = Duration::from_secs(1);
const LATE_AT_MOST: Duration = Duration::from_secs(30);
const NODE_START: Duration = Duration::from_secs(5);

pub(crate) enum Action {
    User,
    Retry,
    Cluster(cluster::Act),
    AgentStart,
    AgentWork,
    AgentCall,
    AgentBegin,
    OperatorStart(usize),
    OperatorCall(usize),
    OperatorList(usize, Kind),
    Deliver(usize, Kind),
    Reconcile(usize, Key),
}

impl Sim {
    /// Passes by the conditions that are fulfilled.
    pub fn follow_script(&mut self) {
        let (world, disk) = (lock(&self.shared.world), lock(&self.disk));
        while let Some(Step::Await(name, condition)) = self.story.steps.get(self.at) {
            if !condition(&world, &disk) {
                return;
            }
            self.shared.note(|| format!("user: sees {name}"));
            self.at += 1;
        }
    }

    /// Everything that could happen now; in the fixed order the first of them does.
    pub fn enabled(&mut self) -> Vec<Action> {
        let now = Instant::now();
        let mut actions = Vec::new();
        let waits = self.paused_until.is_some_and(|until| until > now);
        if !waits
            && matches!(self.story.steps.get(self.at), Some(step) if !matches!(step, Step::Await(..)))
        {
            actions.push(Action::User);
        } else if self.failed_job().is_some() {
            actions.push(Action::Retry);
        }
        let act = cluster::next(&lock(&self.shared.world), &lock(&self.disk), self.pod);
        actions.extend(act.map(Action::Cluster));
        match &mut self.agent {
            Slot::Down(until) if *until <= now && !self.agent_stopped => {
                actions.push(Action::AgentStart)
            }
            Slot::Down(_) => {}
            Slot::Up(agent) => {
                agent.gather();
                agent.watch();
                if agent.work_due().is_some_and(|due| due <= now) {
                    actions.push(Action::AgentWork);
                }
                if agent.gate.waiting() > 0 {
                    actions.push(Action::AgentCall);
                }
                if agent.task.is_none() && agent.due(now) {
                    actions.push(Action::AgentBegin);
                }
            }
        }
        for (id, slot) in self.operators.iter().enumerate() {
            match slot {
                Slot::Down(until) if *until <= now => actions.push(Action::OperatorStart(id)),
                Slot::Down(_) => {}
                Slot::Up(operator) if operator.gate.waiting() > 0 => {
                    actions.push(Action::OperatorCall(id))
                }
                Slot::Up(operator) => {
                    actions.extend(
                        operator.deliverable(now).into_iter().map(|kind| Action::Deliver(id, kind)),
                    );
                    if operator.task.is_none() {
                        actions.extend(
                            operator.list_due(now).map(|kind| Action::OperatorList(id, kind)),
                        );
                        actions.extend(
                            operator.due(now).into_iter().map(|key| Action::Reconcile(id, key)),
                        );
                    }
                }
            }
        }
        actions
    }

    pub async fn perform(&mut self, action: Action) {
        match action {
            Action::User => self.user_step().await,
            Action::Retry => self.ask_for_retry().await,
            Action::Cluster(act) => {
                self.shared.note(|| format!("cluster: {act}"));
                let mut disk = lock(&self.disk).clone();
                let wrong = cluster::carry_out(&act, &self.raw, &mut disk).await;
                **lock(&self.disk) = disk;
                lock(&self.shared.violations).extend(wrong);
            }
            Action::AgentStart => {
                self.agents += 1;
                let agent = Agent::start(
                    self.server.service(),
                    self.shared.clone(),
                    self.clock,
                    self.disk.clone(),
                    self.agents,
                    self.story.pace,
                    self.renew_every,
                );
                self.agent = Slot::Up(agent);
            }
            Action::AgentWork => self.agent_work().await,
            Action::AgentCall => {
                if let Slot::Up(agent) = &self.agent {
                    agent.gate.release();
                }
                self.turn_agent(None).await;
            }
            Action::AgentBegin => {
                if let Slot::Up(agent) = &mut self.agent {
                    agent.begin_due(Instant::now());
                }
                self.turn_agent(None).await;
            }
            Action::OperatorStart(id) => {
                let lag = self.story.operators[id];
                let operator = Operator::start(
                    u8::try_from(id).unwrap_or_default(),
                    self.server.service(),
                    self.shared.clone(),
                    self.clock,
                    lag,
                );
                self.operators[id] = Slot::Up(operator);
            }
            Action::OperatorCall(id) => {
                if let Slot::Up(operator) = &self.operators[id] {
                    operator.gate.release();
                }
                self.turn_operator(id).await;
            }
            Action::OperatorList(id, kind) => {
                if let Slot::Up(operator) = &mut self.operators[id] {
                    operator.begin_list(kind);
                }
                self.turn_operator(id).await;
            }
            Action::Deliver(id, kind) => {
                if let Slot::Up(operator) = &mut self.operators[id] {
                    operator.deliver(kind);
                }
            }
            Action::Reconcile(id, key) => {
                self.shared.note(|| format!("operator{id}: reconcile {key:?}"));
                if let Slot::Up(operator) = &mut self.operators[id] {
                    operator.begin_reconcile(key);
                }
                self.turn_operator(id).await;
            }
        }
    }

    /// Nothing is left to do now: on to the next moment at which something is.
    pub async fn pass_time(&mut self) {
        let now = Instant::now();
        let mut next: Vec<Instant> = self.paused_until.into_iter().collect();
        let mut sleeps = false;
        match &self.agent {
            Slot::Down(until) => next.push(*until),
            Slot::Up(agent) => {
                next.extend(agent.work_due());
                if agent.task.is_none() {
                    next.extend(agent.next_due());
                }
                sleeps = agent.task.is_some();
            }
        }
        for slot in &self.operators {
            match slot {
                Slot::Down(until) => next.push(*until),
                Slot::Up(operator) => next.extend(operator.next_due()),
            }
        }
        // What is due already waits for something else to finish first.
        let limit = next
            .into_iter()
            .filter(|due| *due > now)
            .min()
            .unwrap_or(now + Duration::from_millis(50));
        // A process that was merely not fast enough is not late by more than this.
        let limit = if self.random.is_some() && self.at < self.story.steps.len() {
            limit.min(now + LATE_AT_MOST)
        } else {
            limit
        };
        if sleeps {
            self.turn_agent(Some(limit)).await;
        } else {
            sleep_until(limit).await;
        }
    }

    async fn agent_work(&mut self) {
        let Slot::Up(agent) = &mut self.agent else { return };
        let Some(work) = agent.take_work(Instant::now()) else { return };
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(()) => self.turn_agent(None).await,
            Err(payload) if payload.is::<Crash>() => {
                let how = agent.gate.crashed().unwrap_or(FaultKind::Crash);
                self.agent_crashed(how);
            }
            Err(payload) => resume_unwind(payload),
        }
    }

    async fn turn_agent(&mut self, limit: Option<Instant>) {
        let Slot::Up(agent) = &mut self.agent else { return };
        let Some(mut task) = agent.task.take() else { return };
        let gate = agent.gate.clone();
        match turn(&mut task, &gate, || agent.gather(), limit).await {
            Turn::Done(done) => agent.finish(done),
            Turn::Waits | Turn::Sleeps => agent.task = Some(task),
            Turn::Crashed(how) => {
                drop(task);
                self.agent_crashed(how);
            }
        }
    }

    fn agent_crashed(&mut self, how: FaultKind) {
        let after = if how == FaultKind::PowerCut {
            lock(&self.disk).power_cut();
            NODE_START
        } else {
            PROCESS_START
        };
        self.shared.note(|| format!("agent: gone ({how:?})"));
        self.agent = Slot::Down(Instant::now() + after);
    }

    async fn turn_operator(&mut self, id: usize) {
        let Slot::Up(operator) = &mut self.operators[id] else { return };
        let Some(mut task) = operator.task.take() else { return };
        let gate = operator.gate.clone();
        match turn(&mut task, &gate, || 0, None).await {
            Turn::Done(done) => operator.finish(done),
            Turn::Waits | Turn::Sleeps => operator.task = Some(task),
            Turn::Crashed(_) => {
                self.shared.note(|| format!("operator{id}: gone"));
                self.operators[id] = Slot::Down(Instant::now() + PROCESS_START);
            }
        }
    }

    async fn user_step(&mut self) {
        let Some(step) = self.story.steps.get(self.at).cloned() else { return };
        self.shared.note(|| format!("user: {step:?}"));
        self.at += 1;
        let refused = match step {
            Step::Create(kind, object) => self.raw.create(kind.path(), &object).await.err(),
            Step::Delete(kind, name) => self.raw.delete(&kind.object_path(&name)).await.err(),
            Step::Patch(kind, name, changes) => {
                self.raw.patch(&kind.object_path(&name), &changes).await.err()
            }
            Step::Await(..) => None,
            Step::StartPod => {
                self.pod = true;
                None
            }
            Step::EndPod => {
                self.pod = false;
                None
            }
            Step::RestartAgent => {
                self.agent_crashed(FaultKind::Crash);
                None
            }
            Step::Reboot => {
                self.agent_crashed(FaultKind::PowerCut);
                None
            }
            Step::BreakTool | Step::MendTool => {
                lock(&self.disk).broken_tool = matches!(step, Step::BreakTool);
                None
            }
            Step::Plug(..)
            | Step::Format(..)
            | Step::Unplug(_)
            | Step::PlugAgain(..)
            | Step::Break(..)
            | Step::WriteProtect(..)
            | Step::Take(..)
            | Step::GiveUpData(_)
            | Step::KeepData(_)
            | Step::HideData(_) => {
                handle_disk(&mut lock(&self.disk), step);
                None
            }
            Step::StopAgent | Step::StartAgent => {
                self.agent_stopped = matches!(step, Step::StopAgent);
                if self.agent_stopped {
                    self.agent_crashed(FaultKind::Crash);
                }
                None
            }
            Step::ReplaceMachine => {
                lock(&self.disk).other_machine();
                None
            }
            Step::Snapshot => {
                self.snapshot = Some(self.server.snapshot());
                None
            }
            Step::Restore => {
                if let Some(snapshot) = &self.snapshot {
                    self.server.restore(snapshot);
                }
                // As it is done: every process that has seen the future is restarted, and its memory is gone.
                lock(&self.shared.world).forget_past(self.server.version());
                self.agent_crashed(FaultKind::Crash);
                let now = Instant::now();
                self.operators
                    .iter_mut()
                    .for_each(|operator| *operator = Slot::Down(now + PROCESS_START));
                let mut disk = lock(&self.disk);
                disk.outdated = true;
                disk.keep_everything();
                None
            }
            Step::Learned => {
                lock(&self.disk).outdated = false;
                None
            }
            Step::Pause(debounce) => {
                self.paused_until = Some(Instant::now() + debounce);
                None
            }
            Step::PutUnmanagedFile => {
                let file = File {
                    size: Bytes(1 << 30),
                    partitioned: false,
                    made: 0,
                    unmanaged: true,
                    data: Some("not ours".into()),
                };
                lock(&self.disk).files.insert(self.volume_uid.clone(), file);
                None
            }
            Step::RemoveUnmanagedFile => {
                lock(&self.disk).files.remove(&self.volume_uid);
                None
            }
        };
        if let Some(refused) = refused {
            lock(&self.shared.violations).push(format!("the user was refused: {refused}"));
        }
    }

    /// The job whose failure made the Volume Failed, if no other try was asked for yet.
    fn failed_job(&self) -> Option<String> {
        let world = lock(&self.shared.world);
        let volume = world.get(Kind::Volume, VOLUME)?;
        let status = &volume["status"];
        let failed = status["phase"] == "Failed"
            && status["conditions"][0]["reason"] == "CreationError"
            && !volume["metadata"]["deletionTimestamp"].is_string();
        let job = status["job"].as_str().filter(|_| failed)?;
        (self.retried.as_deref() != Some(job)).then(|| job.to_owned())
    }

    async fn ask_for_retry(&mut self) {
        self.retried = self.failed_job();
        self.retries += 1;
        let value = self.retries.to_string();
        self.shared.note(|| format!("user: requests a retry ({value})"));
        let changes = json!({"metadata": {"annotations": {names::RETRY_ANNOTATION: value}}});
        // Gone meanwhile: nothing to try again.
        let _ = self.raw.patch(&Kind::Volume.object_path(VOLUME), &changes).await;
    }
}

/// What people do to a disk by hand.
fn handle_disk(node: &mut Disk, step: Step) {
    match step {
        Step::Plug(name, disk) => node.plug(name, disk),
        Step::Format(name, signature) => node.format_disk(name, signature),
        Step::Unplug(name) => node.unplug(name),
        Step::PlugAgain(name, number, by_id) => node.plug_again(name, number, by_id),
        Step::Break(name, broken) => {
            if let Some(disk) = node.disks.get_mut(name) {
                disk.broken = broken;
            }
        }
        Step::WriteProtect(name, read_only) => {
            node.uevents += 1;
            if let Some(disk) = node.disks.get_mut(name) {
                disk.read_only = read_only;
            }
        }
        Step::Take(name, taken) => {
            node.uevents += 1;
            if let Some(disk) = node.disks.get_mut(name) {
                disk.taken = taken;
            }
        }
        Step::KeepData(name) => node.keep(name, Keeper::Other),
        Step::HideData(name) => node.hide(name),
        Step::GiveUpData(name) => {
            if let Some(disk) = node.disks.get(name) {
                node.expected.remove(&disk.wwn);
            }
        }
        _ => {}
    }
}
