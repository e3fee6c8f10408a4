//! Named places where a test may kill the process, as a power cut would.
//!
//! `failpoint!("ledger.intent.before")` does nothing, unless this is a debug build and the process was
//! started with `QUARRY_FAILPOINT=ledger.intent.before` (or `NAME:3`: at the third hit): then it sends SIGKILL to
//! itself there. No unwinding, no destructor, no flush: returning an error instead would prove nothing.

/// The variable that names the point.
pub const VARIABLE: &str = "QUARRY_FAILPOINT";

/// Dies here if this point was asked for.
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
    let Some(asked) = ASKED.get_or_init(|| Asked::parse(&std::env::var(VARIABLE).ok()?)) else { return };
    if asked.name == name && HITS.fetch_add(1, Ordering::SeqCst) + 1 == asked.hit {
        die();
    }
}

#[cfg(debug_assertions)]
fn die() {
    // A signal to oneself is delivered before the call returns; should it fail, an abort still ends the process.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort();
}

#[cfg(debug_assertions)]
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    name: String,
    hit: u64,
}

#[cfg(debug_assertions)]
impl Asked {
    fn parse(text: &str) -> Option<Self> {
        let (name, hit) = match text.rsplit_once(':') {
            Some((name, hit)) => (name, hit.parse().ok()?),
            None => (text, 1),
        };
        (!name.is_empty() && hit > 0).then(|| Asked { name: name.to_owned(), hit })
    }
}

/// The names of the failpoints in a piece of source, in order: so that a crate's list is checked against its code.
pub fn names_in(source: &str) -> Vec<&str> {
    let opening = concat!("failpoint", "!(\"");
    source.split(opening).skip(1).filter_map(|rest| rest.split_once('"').map(|(name, _)| name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_may_name_which_hit_is_meant() {
        assert_eq!(Asked::parse("a.b"), Some(Asked { name: "a.b".into(), hit: 1 }));
        assert_eq!(Asked::parse("a.b:3"), Some(Asked { name: "a.b".into(), hit: 3 }));
        assert_eq!(Asked::parse("a.b:x"), None);
        assert_eq!(Asked::parse(""), None);
    }

    #[test]
    fn names_are_found_in_source() {
        let source = concat!("x(); failpoint", "!(\"a\"); y(); failpoint", "!(\"b.c\");");
        assert_eq!(names_in(source), ["a", "b.c"]);
    }
}
