//! What becomes of a node and of its machine, each in its time.

use super::{
    SimIronic,
    changes::apply,
    filled,
    machine::{CREATE, DELETE, DEPLOY, ERASE},
    recording,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub(super) enum Change {
    Node(Value),
    /// A step on the machine.
    Machine(&'static str),
}

/// A manual cleaning that was requested.
#[derive(Clone, Debug)]
pub struct Cleaning {
    pub node: String,
    pub system: String,
    pub steps: Vec<String>,
}

impl SimIronic {
    pub(super) fn change(&mut self, at: usize, step: &Value, due: Timestamp) {
        let mut step = filled(step, due);
        let system = Self::system_of(&self.nodes[at].body);
        let node = &mut self.nodes[at];
        if step["provision_updated_at"].is_string() {
            // No two states begin at the same time.
            let last = node.body["provision_updated_at"].as_str();
            let last = last.and_then(|text| text.parse::<Timestamp>().ok());
            let later = last.map_or(due, |last| due.max(last + SignedDuration::from_millis(1)));
            step["provision_updated_at"] = json!(later.to_string());
        }
        let volumes = match step["raid_config"]["logical_disks"].as_str() {
            Some("{target}") => Some(node.body["target_raid_config"]["logical_disks"].clone()),
            Some("{volumes}") => {
                self.machines.get(&system).map(|machine| json!(machine.disks.volumes))
            }
            _ => None,
        };
        if let Some(volumes) = volumes {
            step["raid_config"]["logical_disks"] = volumes;
        }
        if let Some(error) =
            step["last_error"].as_str().filter(|_| step["last_error"] != node.body["last_error"])
        {
            node.history.push(error.to_owned());
        }
        apply(&mut node.body, &step);
        self.give_up_later(at, due);
    }

    pub(super) fn work(&mut self, at: usize, step: &str) {
        let body = self.nodes[at].body.clone();
        if let Err(wrong) = self.machine(&Self::system_of(&body)).disks.step(step, &body) {
            self.unknown.push(wrong);
        }
    }

    /// What the machine does meanwhile: the last step before the node shows what became of it, the others a moment
    /// earlier, so that an end in between leaves them done.
    pub(super) fn schedule_work(&mut self, at: usize, sent: &Value) {
        let system = Self::system_of(&self.nodes[at].body);
        let fails = self.machine(&system).fails;
        let steps = recording::clean_steps(sent);
        if !steps.is_empty() {
            let node = self.nodes[at].body["name"].as_str().unwrap_or_default().to_owned();
            self.cleanings.push(Cleaning { node, system, steps: steps.clone() });
        }
        let pending = &mut self.nodes[at].pending;
        let state = |change: &Change| match change {
            Change::Node(step) => step["provision_state"].as_str().map(str::to_owned),
            Change::Machine(_) => None,
        };
        let Some(end) = pending.back().and_then(|(_, change)| state(change)) else { return };
        let work: Vec<&'static str> = match (sent["target"].as_str(), end.as_str()) {
            (Some("clean"), "manageable" | "clean failed") => {
                let known = [DELETE, ERASE, CREATE];
                let named = |step: &String| known.into_iter().find(|known| known == step);
                steps.iter().filter_map(named).take_while(|step| Some(*step) != fails).collect()
            }
            (Some("provide" | "deleted"), "available") => vec![ERASE],
            (Some("active"), "active") => vec![DEPLOY],
            _ => return,
        };
        let ended = pending.iter().rposition(|(_, change)| state(change).as_ref() != Some(&end));
        let ended = ended.map_or(0, |position| position + 1);
        let shown = pending.iter().position(|(_, change)| match change {
            Change::Node(step) => step["raid_config"]["logical_disks"].is_string(),
            Change::Machine(_) => false,
        });
        let last = shown.map_or(ended, |shown| shown.min(ended));
        let Some((step, others)) = work.split_last() else { return };
        let due = pending[last].0;
        pending.insert(last, (due, Change::Machine(step)));
        let before = last.saturating_sub(1);
        let due = pending[before].0;
        for step in others.iter().rev() {
            pending.insert(before, (due, Change::Machine(step)));
        }
    }
}
