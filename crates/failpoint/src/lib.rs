//! Named places where a test can kill the process, as a power failure would, or stop it, so that
//! other processes run in between.
//!
//! `failpoint!("ledger.intent.before")` does nothing unless this is a debug build and the process
//! was started with `QUARRY_FAILPOINT=ledger.intent.before` (or `NAME:3`: at the third hit). Then
//! the process sends SIGKILL to itself: no unwinding, no destructor, no flush. Returning an error
//! instead would prove nothing. With `NAME!stop` or `NAME:3!stop` it sends SIGSTOP instead and
//! continues after SIGCONT.

/// Environment variable with the failpoint to trigger.
pub const VARIABLE: &str = "QUARRY_FAILPOINT";

/// Kills or stops the process here if this failpoint is enabled.
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        $crate::hit($name)
    };
}

/// Called by `failpoint!`.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn hit(_name: &'static str) {}

/// Called by `failpoint!`.
#[cfg(debug_assertions)]
pub fn hit(name: &'static str) {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    };
    static TRIGGER: OnceLock<Option<Trigger>> = OnceLock::new();
    static HITS: AtomicU64 = AtomicU64::new(0);
    let Some(trigger) = TRIGGER.get_or_init(|| Trigger::parse(&std::env::var(VARIABLE).ok()?))
    else {
        return;
    };
    if trigger.name == name && HITS.fetch_add(1, Ordering::SeqCst) + 1 == trigger.hit {
        match trigger.action {
            Action::Kill => kill(),
            Action::Stop => stop(),
        }
    }
}

#[cfg(debug_assertions)]
fn kill() {
    // A signal to the own process is delivered before the call returns; if sending fails, the abort
    // still ends the process.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort();
}

#[cfg(debug_assertions)]
fn stop() {
    // Sent to the ID of this thread, not of the process. The signal still stops the whole process,
    // but the kernel delivers it to the named thread, when that thread returns from the call. Sent
    // to the process ID, the main thread gets it, and this thread keeps running until the main
    // thread wakes up: past this failpoint, and possibly past the next.
    let _ = rustix::process::kill_process(rustix::thread::gettid(), rustix::process::Signal::STOP);
}

#[cfg(debug_assertions)]
#[derive(Debug, PartialEq, Eq)]
struct Trigger {
    name: String,
    hit: u64,
    action: Action,
}

#[cfg(debug_assertions)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Kill,
    Stop,
}

#[cfg(debug_assertions)]
impl Trigger {
    /// `NAME`, `NAME:HIT`, `NAME!stop`, `NAME:HIT!stop`.
    fn parse(text: &str) -> Option<Self> {
        let (point, action) = match text.split_once('!') {
            Some((point, "stop")) => (point, Action::Stop),
            Some(_) => return None,
            None => (text, Action::Kill),
        };
        let (name, hit) = match point.rsplit_once(':') {
            Some((name, hit)) => (name, hit.parse().ok()?),
            None => (point, 1),
        };
        (!name.is_empty() && hit > 0).then(|| Trigger { name: name.to_owned(), hit, action })
    }
}

/// Names of the failpoints in a source text, in order, to compare a crate's list with its code.
pub fn names_in(source: &str) -> Vec<&str> {
    let opening = concat!("failpoint", "!(\"");
    source
        .split(opening)
        .skip(1)
        .filter_map(|rest| rest.split_once('"').map(|(name, _)| name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_selects_the_hit_and_the_action() {
        let trigger = |hit, action| Some(Trigger { name: "a.b".into(), hit, action });
        for (text, expected) in [
            ("a.b", trigger(1, Action::Kill)),
            ("a.b:3", trigger(3, Action::Kill)),
            ("a.b!stop", trigger(1, Action::Stop)),
            ("a.b:3!stop", trigger(3, Action::Stop)),
        ] {
            assert_eq!(Trigger::parse(text), expected, "{text}");
        }
        for text in
            ["", "a.b:x", "a.b:0", ":3", "!stop", "a.b!", "a.b!kill", "a.b!stop:3", "a.b!stop!stop"]
        {
            assert_eq!(Trigger::parse(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_found_in_source() {
        let source = concat!("x(); failpoint", "!(\"a\"); y(); failpoint", "!(\"b.c\");");
        assert_eq!(names_in(source), ["a", "b.c"]);
    }
}
