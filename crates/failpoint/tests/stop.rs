//! A process that stops itself at a failpoint: this test binary is started a second time, as that
//! process.

#![cfg(debug_assertions)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test starts a process and reads what it wrote"
)]
#![allow(clippy::unwrap_used, reason = "a helper that fails also fails its test")]

use quarry_failpoint::{VARIABLE, failpoint};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

const FILE: &str = "QUARRY_FAILPOINT_TEST_FILE";

/// On a second thread, while the main thread sleeps: an agent's jobs do not run on the main thread
/// either.
fn pass_failpoint_twice(file: &str) {
    for word in ["once", "twice"] {
        failpoint!("here");
        fs::write(file, word).unwrap();
    }
}

#[test]
fn process_stops_at_the_failpoint_and_continues_on_sigcont() {
    if let Ok(file) = env::var(FILE) {
        return pass_failpoint_twice(&file);
    }
    // Repeated, because a thread that runs on for a moment does not always get far.
    for round in 0..20 {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("stop-{}-{round}", std::process::id()));
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "process_stops_at_the_failpoint_and_continues_on_sigcont"]);
        let mut child = command
            .env(FILE, &file)
            .env(VARIABLE, "here:2!stop")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let changed = waitid(
            WaitId::Pid(pid),
            WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        )
        .unwrap()
        .unwrap();
        let before = fs::read_to_string(&file).unwrap_or_default();
        kill_process(pid, Signal::CONT).unwrap();
        let ended = child.wait().unwrap();
        let after = fs::read_to_string(&file).unwrap_or_default();
        let _ = fs::remove_file(&file);
        assert!(changed.stopped() && ended.success(), "round {round}: {changed:?}, {ended}");
        assert_eq!((before.as_str(), after.as_str()), ("once", "twice"), "round {round}");
    }
}
