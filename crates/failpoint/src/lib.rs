//! Named places where a test may kill the process, as a power cut would, or stop it, so that others come in between.
//!
//! `failpoint!("ledger.intent.before")` does nothing, unless this is a debug build and the process was
//! started with `QUARRY_FAILPOINT=ledger.intent.before` (or `NAME:3`: at the third hit): then it sends SIGKILL to
//! itself there. No unwinding, no destructor, no flush: returning an error instead would prove nothing.
//! With `NAME!stop` or `NAME:3!stop` it sends SIGSTOP instead, and goes on from there when it gets SIGCONT.

/// The variable that names the point.
pub const VARIABLE: &str = "QUARRY_FAILPOINT";

/// Dies or stops here if this point was asked for.
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
    static ASKED: OnceLock<Option<Asked>> = OnceLock::new();
    static HITS: AtomicU64 = AtomicU64::new(0);
    let Some(asked) = ASKED.get_or_init(|| Asked::parse(&std::env::var(VARIABLE).ok()?)) else {
        return;
    };
    if asked.name == name && HITS.fetch_add(1, Ordering::SeqCst) + 1 == asked.hit {
        match asked.deed {
            Deed::Kill => die(),
            Deed::Stop => stop(),
        }
    }
}

#[cfg(debug_assertions)]
fn die() {
    // A signal to oneself is delivered before the call returns; should it fail, an abort still ends the process.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort();
}

#[cfg(debug_assertions)]
fn stop() {
    // By this thread's ID, not the process's. The signal is the whole process's all the same, but the kernel lets the named
    // thread take it, on its way out of the call. By the process's ID the main thread takes it, and this one runs on
    // until that one has woken up: past the point, and maybe past the next.
    let _ = rustix::process::kill_process(rustix::thread::gettid(), rustix::process::Signal::STOP);
}

#[cfg(debug_assertions)]
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    name: String,
    hit: u64,
    deed: Deed,
}

#[cfg(debug_assertions)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Kill,
    Stop,
}

#[cfg(debug_assertions)]
impl Asked {
    /// `NAME`, `NAME:HIT`, `NAME!stop`, `NAME:HIT!stop`.
    fn parse(text: &str) -> Option<Self> {
        let (point, deed) = match text.split_once('!') {
            Some((point, "stop")) => (point, Deed::Stop),
            Some(_) => return None,
            None => (text, Deed::Kill),
        };
        let (name, hit) = match point.rsplit_once(':') {
            Some((name, hit)) => (name, hit.parse().ok()?),
            None => (point, 1),
        };
        (!name.is_empty() && hit > 0).then(|| Asked { name: name.to_owned(), hit, deed })
    }
}

/// The names of the failpoints in a piece of source, in order: so that a crate's list is checked against its code.
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
    fn a_point_may_name_which_hit_is_meant_and_that_it_stops() {
        let asked = |hit, deed| Some(Asked { name: "a.b".into(), hit, deed });
        for (text, wanted) in [
            ("a.b", asked(1, Deed::Kill)),
            ("a.b:3", asked(3, Deed::Kill)),
            ("a.b!stop", asked(1, Deed::Stop)),
            ("a.b:3!stop", asked(3, Deed::Stop)),
        ] {
            assert_eq!(Asked::parse(text), wanted, "{text}");
        }
        for text in
            ["", "a.b:x", "a.b:0", ":3", "!stop", "a.b!", "a.b!kill", "a.b!stop:3", "a.b!stop!stop"]
        {
            assert_eq!(Asked::parse(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_found_in_source() {
        let source = concat!("x(); failpoint", "!(\"a\"); y(); failpoint", "!(\"b.c\");");
        assert_eq!(names_in(source), ["a", "b.c"]);
    }
}
