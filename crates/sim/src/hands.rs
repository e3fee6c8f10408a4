//! The agent's hands on the simulated disk: every operation is numbered, may meet a fault, and is checked by a witness.
//!
//! A crash unwinds with a payload of its own, which the scheduler catches: everything the agent remembers is dropped.

use crate::{
    disk::{Disk, Record, Sabotage},
    door::{Gate, Shared},
    fault::{Track, What, When},
    invariant, lock,
};
use quarry_core::sparse::{Observed, Step};
use quarry_node::{Hands, HandsError, Intent, Outcome, Survey, SurveyRequest};
use std::sync::{Arc, Mutex};

/// The payload of a simulated crash.
pub struct Crash;

pub struct SimHands {
    pub disk: Arc<Mutex<Disk>>,
    pub gate: Arc<Gate>,
    pub shared: Arc<Shared>,
}

const READ: [(When, What); 4] = [(When::Before, What::Crash), (When::After, What::Crash), (When::Before, What::Error), (When::Before, What::Busy)];
const WRITE: [(When, What); 8] = [
    (When::Before, What::Crash),
    (When::After, What::Crash),
    (When::Before, What::PowerCut),
    (When::After, What::PowerCut),
    (When::Before, What::Error),
    (When::After, What::Error),
    (When::Before, What::Busy),
    (When::During, What::PowerCut),
];

impl SimHands {
    fn operate<T>(
        &self,
        label: &str,
        possible: &[(When, What)],
        half: impl FnOnce(&mut Disk, What),
        whole: impl FnOnce(&mut Disk) -> Result<T, HandsError>,
    ) -> Result<T, HandsError> {
        let fault = lock(&self.shared.injector).pass(Track::Disk, label, possible);
        self.shared.note(|| match fault {
            Some((when, what)) => format!("disk: {label}  <== {what:?} {when:?}"),
            None => format!("disk: {label}"),
        });
        match fault {
            Some((When::Before, What::Crash | What::PowerCut)) => self.die(fault),
            Some((When::Before, What::Error)) => return Err(failure(label, false)),
            Some((When::Before, What::Busy)) => return Err(failure(label, true)),
            Some((When::During, what)) => {
                half(&mut lock(&self.disk), what);
                self.die(fault);
            }
            _ => {}
        }
        let done = whole(&mut lock(&self.disk));
        if let Err(error) = &done {
            self.shared.note(|| format!("    {}", error.sentence()));
        }
        match fault {
            Some((When::After, What::Crash | What::PowerCut)) => self.die(fault),
            Some((When::After, _)) => Err(failure(label, false)),
            _ => done,
        }
    }

    fn die(&self, fault: Option<(When, What)>) -> ! {
        self.gate.crash(fault.map_or(What::Crash, |(_, what)| what));
        // Past the panic hook: this is no failure of the program.
        std::panic::resume_unwind(Box::new(Crash))
    }

    fn read<T>(&self, label: &str, whole: impl FnOnce(&Disk) -> T) -> Result<T, HandsError> {
        self.operate(label, &READ, |_, _| {}, |disk| Ok(whole(disk)))
    }

    fn append(&self, label: &str, record: Record) -> Result<(), HandsError> {
        // Cut short: the line is not whole, and dropped at the next start.
        self.operate(
            label,
            &WRITE,
            |_, _| {},
            |disk| {
                if record.outcome.is_some() || disk.sabotage != Some(Sabotage::ForgetIntents) {
                    disk.ledger.push(record);
                }
                Ok(())
            },
        )
    }
}

fn failure(label: &str, retryable: bool) -> HandsError {
    HandsError::Other { attempt: format!("simulated failure: {label}"), retryable, source: None }
}

impl Hands for SimHands {
    fn look(&self, uid: &str) -> Result<Observed, HandsError> {
        self.read("look", |disk| disk.look(uid))
    }

    fn glance(&self, uid: &str) -> Result<Observed, HandsError> {
        self.read("glance", |disk| disk.look(uid))
    }

    fn act(&self, uid: &str, step: &Step) -> Result<(), HandsError> {
        let mut possible = WRITE.to_vec();
        if lock(&self.disk).clone().act_half(uid, step, false) {
            possible.push((When::During, What::Crash));
        }
        if !lock(&self.disk).clone().act_half(uid, step, true) {
            possible.retain(|(when, _)| *when != When::During);
        }
        let label = format!("{step:?}");
        let half = |disk: &mut Disk, what: What| {
            disk.act_half(uid, step, what == What::PowerCut);
        };
        self.operate(&label, &possible, half, |disk| {
            let told = invariant::witness(uid, step, disk, &lock(&self.shared.world));
            lock(&self.shared.violations).extend(told);
            disk.act(uid, step)
        })
    }

    fn record_intent(&self, entry: &Intent) -> Result<(), HandsError> {
        self.append("intent", Record { uid: entry.volume_uid.clone(), action: entry.action, outcome: None })
    }

    fn record_outcome(&self, entry: &Outcome) -> Result<(), HandsError> {
        self.append("outcome", Record { uid: entry.volume_uid.clone(), action: entry.action, outcome: Some(entry.result) })
    }

    fn known_volumes(&self) -> Result<Vec<String>, HandsError> {
        self.read("known volumes", Disk::known_volumes)
    }

    fn survey(&self, _: &SurveyRequest) -> Result<Survey, HandsError> {
        self.read("survey", |disk| Survey {
            devices: disk.survey(),
            problems: Vec::new(),
            again_in: None,
            boot_id: Some(format!("boot-{}", disk.boots)),
            machine_id: Some("0123456789abcdef0123456789abcdef".to_owned()),
        })
    }
}
