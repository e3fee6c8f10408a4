//! Runs one command of `quarry_ceph`, and says what its failure means.

use super::Failure;
use quarry_ceph::{Command, command::REMOVED_VARIABLES, result::Reason};
use quarry_node::program::{Output, Program, Running};
use std::time::Duration;
use tracing::debug;

/// A healthy mkfs takes seconds; on a large disk that discards first it takes minutes.
const LIMIT: Duration = Duration::from_secs(600);

/// EACCES, as the exit code of `ceph`.
const ACCESS_DENIED: i32 = 13;
/// ETIMEDOUT, EHOSTUNREACH, ECONNREFUSED.
const UNREACHABLE: [i32; 3] = [110, 113, 111];

pub fn start(command: &Command) -> Result<Running, Failure> {
    debug!(program = command.program, args = command.args.join(" "), "started");
    let program = Program {
        name: command.program,
        args: &command.args,
        env: &command.env,
        removed_env: &REMOVED_VARIABLES,
        stdin: command.stdin.as_ref().map(|text| text.reveal().as_bytes()),
        limit: LIMIT,
    };
    program.start().map_err(|error| {
        let problem = format!("{}; use an image that contains Ceph", error.message());
        Failure::new(Reason::CommandFailed, problem)
    })
}

pub fn wait(running: Running) -> Result<Output, Failure> {
    running.wait().map_err(|error| Failure::new(Reason::CommandFailed, error.message()))
}

/// To its end, whatever its exit code is.
pub fn run(command: &Command) -> Result<Output, Failure> {
    wait(start(command)?)
}

/// A command to the monitors; its output.
pub fn ask_monitors(command: &Command, attempt: &str, mon_host: &str) -> Result<Vec<u8>, Failure> {
    let output = run(command)?;
    if output.code == Some(0) {
        Ok(output.stdout)
    } else {
        Err(refused(&output, attempt, mon_host))
    }
}

pub fn refused(output: &Output, attempt: &str, mon_host: &str) -> Failure {
    let Output { code, said, how, .. } = output;
    if *code == Some(ACCESS_DENIED) {
        return Failure::new(
            Reason::AccessDenied,
            format!(
                "{attempt}: the monitors refuse the user of the keyring ({said}); check that this user exists with this key and the capability `mon 'allow profile bootstrap-osd'`"
            ),
        );
    }
    if code.is_some_and(|code| UNREACHABLE.contains(&code)) || said.contains("timed out") {
        return Failure::new(
            Reason::MonitorsUnreachable,
            format!(
                "{attempt}: no monitor at {mon_host} responded; check that the monitors run and are reachable from this pod"
            ),
        );
    }
    Failure::new(
        Reason::CommandFailed,
        format!("{attempt}: {how}: {said}; check the log of the monitors"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_monitors_have_a_reason() {
        let reason = |code: Option<i32>, said: &str| {
            let output = Output { code, stdout: Vec::new(), said: said.into(), how: "x".into() };
            refused(&output, "reading the OSDs", "10.0.0.1").reason
        };
        let denied = "[errno 13] RADOS permission denied (error connecting to the cluster)";
        assert_eq!(reason(Some(13), denied), Reason::AccessDenied);
        assert_eq!(reason(Some(1), "timed out"), Reason::MonitorsUnreachable);
        assert_eq!(reason(Some(110), "RADOS error"), Reason::MonitorsUnreachable);
        assert_eq!(reason(Some(22), "invalid command"), Reason::CommandFailed);
        assert_eq!(reason(None, ""), Reason::CommandFailed);
    }
}
