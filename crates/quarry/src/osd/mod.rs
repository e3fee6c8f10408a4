//! `quarry osd`: what runs in the pods of OSDs.
//!
//! Owns: running Ceph's commands and reading devices in an unprivileged pod. Decides nothing: commands, their
//! output and what may be done with a device are in `quarry-ceph`. No access to the Kubernetes API: the result is
//! the termination message. Next to read: `prepare.rs` (the steps), `devices.rs`, `tools.rs`.

mod devices;
mod install;
mod prepare;
mod tools;

use crate::{
    cli::{OsdCommand, PrepareArgs},
    sanitize,
};
use quarry_ceph::{PrepareResult, result::Reason};
use std::{fmt, process::ExitCode};
use tracing::warn;

/// Why a command ended without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: Reason,
    /// What happened, and the remedy.
    pub message: String,
}

impl Failure {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// `map_err(Failure::because(Reason::InvalidInput))`
    pub fn because<E: fmt::Display>(reason: Reason) -> impl FnOnce(E) -> Failure {
        move |error| Failure::new(reason, error.to_string())
    }
}

/// Needs no asynchronous runtime, and must stay on the main thread: programs die with the thread that started them.
pub fn run(command: &OsdCommand) -> ExitCode {
    match command {
        OsdCommand::Prepare(args) => run_prepare(args),
        OsdCommand::Install { directory } => match install::run(directory) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {}", sanitize::line(&format!("{error:#}")));
                ExitCode::FAILURE
            }
        },
    }
}

fn run_prepare(args: &PrepareArgs) -> ExitCode {
    let (result, code) = match prepare::run(args) {
        Ok(result) => (result, 0),
        Err(Failure { reason, message }) => {
            eprintln!("error: {}", sanitize::line(&message));
            (PrepareResult::failed(reason, message), reason.exit_code())
        }
    };
    let text = result.to_json();
    println!("{}", sanitize::json(&text));
    if let Err(error) = std::fs::write(&args.termination_message, &text) {
        let file = args.termination_message.display();
        // The log of the pod has it, and preparing again reports it once more.
        warn!(%file, %error, "failed to write the termination message");
    }
    quarry_failpoint::failpoint!("osd.reported");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use quarry_failpoint::names_in;

    /// The tests on a real Ceph kill a run at each of these.
    #[test]
    fn failpoints_are_those_that_are_documented() {
        let sources = [include_str!("prepare.rs"), include_str!("mod.rs")];
        let found: Vec<&str> = sources.iter().flat_map(|source| names_in(source)).collect();
        let documented = [
            "osd.judged",
            "osd.registered",
            "osd.connected",
            "osd.linked",
            "osd.mkfs-started",
            "osd.mkfs-ended",
            "osd.reported",
        ];
        assert_eq!(found, documented);
    }
}
