//! Processes killed at failpoints: `disk-contender` for single tasks, and a tally for tests that kill
//! operator and agent.

use quarry_failpoint::VARIABLE;
use quarry_tests::disk::Bed;
use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt,
    process::{Command, Output},
};

/// The command that executes one order in a separate process.
pub fn disk_hand(bed: &Bed, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_disk-contender"));
    command.arg(&bed.root).arg(&bed.data_on_node).args(arguments).env_remove(VARIABLE);
    command
}

/// `true` when the process reached the failpoint and died there.
#[track_caller]
pub fn killed_at(bed: &Bed, arguments: &[&str], point: &str) -> bool {
    let output = disk_hand(bed, arguments).env(VARIABLE, point).output().unwrap();
    match (output.status.signal(), output.status.success()) {
        (Some(9), _) => true,
        (None, true) => false,
        _ => panic!("{arguments:?} at {point}: {}", describe(&output)),
    }
}

/// Executes the order after a kill; it must succeed. Returns its output.
#[track_caller]
pub fn finish(bed: &Bed, arguments: &[&str], after: &str) -> String {
    let output = disk_hand(bed, arguments).output().unwrap();
    let success = output.status.success();
    assert!(success, "{arguments:?} after a kill at {after}: {}", describe(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn describe(output: &Output) -> String {
    format!("{} {}", output.status, String::from_utf8_lossy(&output.stderr))
}

/// How often a process died at each failpoint.
#[derive(Default)]
pub struct Tally {
    deaths: BTreeMap<String, usize>,
    pub runs: usize,
}

impl Tally {
    /// Adds a run with the failpoint `NAME` or `NAME:HIT`.
    pub fn add(&mut self, point: &str, died: bool) {
        let name = point.split(':').next().unwrap_or_default().to_owned();
        *self.deaths.entry(name).or_default() += usize::from(died);
        self.runs += 1;
    }

    /// Prints the figures. Every failpoint must have been reached, except those with a prefix in
    /// `elsewhere`, which other tests reach.
    #[track_caller]
    pub fn assert_all_reached(&self, what: &str, elsewhere: &[&str]) {
        let (runs, total) = (self.runs, self.deaths.values().sum::<usize>());
        let reached = self.deaths.values().filter(|count| **count > 0).count();
        println!(
            "figure: {what}: {runs} runs, {total} deaths at {reached} of {} failpoints, every run had the same result",
            self.deaths.len()
        );
        let missed: Vec<&String> = self
            .deaths
            .iter()
            .filter(|(name, count)| {
                **count == 0 && !elsewhere.iter().any(|prefix| name.starts_with(prefix))
            })
            .map(|(name, _)| name)
            .collect();
        assert!(
            missed.is_empty(),
            "no process died at {missed:?}: a failpoint that is not reached proves nothing"
        );
    }
}
