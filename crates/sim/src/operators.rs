//! Operator processes of one run: which of them can go on, and with what; crashed ones are started again.
//!
//! Schedulers choose; this carries out. Next to read: `operator.rs`.

use crate::{
    clock::Clock,
    fault_proxy::Shared,
    kind::Kind,
    operator::Operator,
    process::{Turn, turn},
};
use quarry_operator::trigger::Key;
use std::time::Duration;
use tokio::time::Instant;

const PROCESS_START: Duration = Duration::from_secs(1);

pub enum Process {
    Up(Box<Operator>),
    Down(Instant),
    /// It is not started again.
    Stopped,
}

/// What an operator can do next.
pub enum Doing {
    Start,
    Call,
    List(Kind),
    Deliver(Kind),
    Reconcile(Key),
}

pub struct Operators(pub Vec<Process>);

impl Operators {
    pub fn running(&self) -> usize {
        self.0.iter().filter(|one| !matches!(one, Process::Stopped)).count()
    }

    pub fn enabled(&self, now: Instant) -> Vec<(usize, Doing)> {
        let mut all = Vec::new();
        for (id, process) in self.0.iter().enumerate() {
            match process {
                Process::Down(until) if *until <= now => all.push((id, Doing::Start)),
                Process::Down(_) | Process::Stopped => {}
                Process::Up(operator) if operator.gate.waiting() > 0 => all.push((id, Doing::Call)),
                Process::Up(operator) => {
                    let events = operator.deliverable(now).into_iter();
                    all.extend(events.map(|kind| (id, Doing::Deliver(kind))));
                    if operator.task.is_none() {
                        all.extend(operator.list_due(now).map(|kind| (id, Doing::List(kind))));
                        let keys = operator.due(now).into_iter();
                        all.extend(keys.map(|key| (id, Doing::Reconcile(key))));
                    }
                }
            }
        }
        all
    }

    pub fn started(&mut self, id: usize, operator: Operator) {
        self.0[id] = Process::Up(Box::new(operator));
    }

    /// Anything but `Start`, for which the scheduler makes the operator.
    pub async fn perform(&mut self, id: usize, doing: Doing, shared: &Shared, clock: Clock) {
        let Process::Up(operator) = &mut self.0[id] else { return };
        match doing {
            Doing::Start => return,
            Doing::Deliver(kind) => return operator.deliver(kind),
            Doing::Call => operator.gate.release(),
            Doing::List(kind) => operator.begin_list(kind),
            Doing::Reconcile(key) => {
                shared.note(|| format!("{} operator{id}: reconcile {key:?}", clock.now()));
                operator.begin_reconcile(key);
            }
        }
        let Some(mut task) = operator.task.take() else { return };
        let gate = operator.gate.clone();
        match turn(&mut task, &gate, || 0, None).await {
            Turn::Done(done) => operator.finish(done),
            Turn::Waits | Turn::Sleeps => operator.task = Some(task),
            Turn::Crashed(_) => {
                shared.note(|| format!("operator{id}: gone"));
                self.0[id] = Process::Down(Instant::now() + PROCESS_START);
            }
        }
    }

    /// The moments at which something is due without a change.
    pub fn next_due(&self) -> impl Iterator<Item = Instant> {
        self.0.iter().filter_map(|process| match process {
            Process::Down(until) => Some(*until),
            Process::Up(operator) => operator.next_due(),
            Process::Stopped => None,
        })
    }
}
