//! Faults: where they can strike, which kinds there are, and who decides that one strikes now.
//!
//! Every API call, watch event and disk operation is a point on a track and has a number there; the same run
//! without faults passes the same points. A fault is written `disk:12:after:crash`, so that a run can be replayed.

use crate::random::Random;
use std::{collections::BTreeMap, fmt, str::FromStr};

/// What is numbered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// API calls of an operator.
    Operator(u8),
    /// Watch events on their way to an operator.
    Watch(u8),
    /// Requests of an operator to Ironic.
    Ironic(u8),
    /// Events of jobs on their way to the agent.
    Jobs,
    /// The kernel's events on their way to the agent.
    Kernel,
    /// API calls of the agent.
    Agent,
    /// The agent's operations on the node.
    Disk,
    /// What prepare pods do, to devices and to Ceph.
    Prepare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultPoint {
    Before,
    /// Half done: only of disk operations that are not atomic.
    During,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// The process that made the call is gone, with all that it remembered.
    Crash,
    /// The node is gone with it, and comes back: loops and mounts vanish, and what was not synced.
    PowerCut,
    /// An answer that says it failed. After: it took effect all the same.
    Error,
    /// A disk operation that would succeed a moment later.
    Busy,
    /// 409: another writer was faster.
    Conflict,
    /// The answer that was right before the last change.
    Stale,
    /// The event never arrives; the watch breaks later and starts over with a list.
    Lost,
    /// The event, and all of its kind behind it, arrive much later.
    Late,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fault {
    pub track: Track,
    /// The first point is 1.
    pub at: u32,
    pub when: FaultPoint,
    pub what: FaultKind,
}

/// A point that a run passed, and what can go wrong there.
#[derive(Clone, Debug)]
pub struct Point {
    pub track: Track,
    pub at: u32,
    pub call: String,
    pub possible: Vec<(FaultPoint, FaultKind)>,
}

impl Point {
    pub fn faults(&self) -> impl Iterator<Item = Fault> + '_ {
        self.possible.iter().map(|&(when, what)| Fault {
            track: self.track,
            at: self.at,
            when,
            what,
        })
    }
}

/// Who decides.
#[derive(Clone, Debug)]
enum Chooser {
    /// These and no others.
    Assignment(Vec<Fault>),
    /// One in so many points, at most `left` times.
    Dice { random: Random, one_in: usize, left: u32 },
}

/// Numbers the points of a run and says which of them fail.
#[derive(Clone, Debug)]
pub struct Injector {
    counts: BTreeMap<Track, u32>,
    chooser: Chooser,
    /// Every point that was passed.
    pub points: Vec<Point>,
    /// Every fault that struck.
    pub struck: Vec<Fault>,
}

impl Injector {
    pub fn assignment(faults: Vec<Fault>) -> Self {
        Injector {
            counts: BTreeMap::new(),
            chooser: Chooser::Assignment(faults),
            points: Vec::new(),
            struck: Vec::new(),
        }
    }

    pub fn dice(seed: u64, one_in: usize, at_most: u32) -> Self {
        let chooser = Chooser::Dice { random: Random::new(seed), one_in, left: at_most };
        Injector { counts: BTreeMap::new(), chooser, points: Vec::new(), struck: Vec::new() }
    }

    /// The run is over: from here on nothing fails.
    pub fn calm(&mut self) {
        self.chooser = Chooser::Assignment(Vec::new());
    }

    /// Another point is passed. `possible` must not be empty for a fault to strike.
    pub fn pass(
        &mut self,
        track: Track,
        call: &str,
        possible: &[(FaultPoint, FaultKind)],
    ) -> Option<(FaultPoint, FaultKind)> {
        let count = self.counts.entry(track).or_default();
        *count += 1;
        let at = *count;
        self.points.push(Point { track, at, call: call.to_owned(), possible: possible.to_vec() });
        let struck = match &mut self.chooser {
            Chooser::Assignment(faults) => {
                let found = faults.iter().find(|fault| fault.track == track && fault.at == at)?;
                possible
                    .iter()
                    .copied()
                    .find(|&(when, what)| (when, what) == (found.when, found.what))?
            }
            Chooser::Dice { random, one_in, left } => {
                if *left == 0 || possible.is_empty() || !random.one_in(*one_in) {
                    return None;
                }
                *left -= 1;
                possible[random.below(possible.len())]
            }
        };
        self.struck.push(Fault { track, at, when: struck.0, what: struck.1 });
        Some(struck)
    }
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Track::Operator(id) => write!(f, "operator{id}"),
            Track::Watch(id) => write!(f, "watch{id}"),
            Track::Ironic(id) => write!(f, "ironic{id}"),
            Track::Jobs => f.write_str("jobs"),
            Track::Kernel => f.write_str("kernel"),
            Track::Agent => f.write_str("agent"),
            Track::Disk => f.write_str("disk"),
            Track::Prepare => f.write_str("prepare"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}:{}",
            self.track,
            self.at,
            format!("{:?}", self.when).to_lowercase(),
            format!("{:?}", self.what).to_lowercase()
        )
    }
}

/// A fault that is not written as `disk:12:after:crash`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a fault: write track:number:when:what, such as disk:12:after:crash")]
pub struct NotAFault(String);

impl FromStr for Fault {
    type Err = NotAFault;

    fn from_str(text: &str) -> Result<Self, NotAFault> {
        let wrong = || NotAFault(text.to_owned());
        let parts: Vec<&str> = text.split(':').collect();
        let [track, at, when, what] = parts.as_slice() else { return Err(wrong()) };
        let id = |prefix: &str| track.strip_prefix(prefix).and_then(|id| id.parse().ok());
        let track = match *track {
            "jobs" => Track::Jobs,
            "kernel" => Track::Kernel,
            "agent" => Track::Agent,
            "disk" => Track::Disk,
            "prepare" => Track::Prepare,
            _ => id("operator")
                .map(Track::Operator)
                .or(id("watch").map(Track::Watch))
                .or(id("ironic").map(Track::Ironic))
                .ok_or_else(wrong)?,
        };
        let when = match *when {
            "before" => FaultPoint::Before,
            "during" => FaultPoint::During,
            "after" => FaultPoint::After,
            _ => return Err(wrong()),
        };
        let what = match *what {
            "crash" => FaultKind::Crash,
            "powercut" => FaultKind::PowerCut,
            "error" => FaultKind::Error,
            "busy" => FaultKind::Busy,
            "conflict" => FaultKind::Conflict,
            "stale" => FaultKind::Stale,
            "lost" => FaultKind::Lost,
            "late" => FaultKind::Late,
            _ => return Err(wrong()),
        };
        Ok(Fault { track, at: at.parse().map_err(|_| wrong())?, when, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_written_and_read_back() {
        for text in [
            "disk:12:after:crash",
            "operator1:3:before:conflict",
            "watch0:7:before:lost",
            "ironic0:2:before:busy",
            "agent:1:during:powercut",
        ] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        assert!("disk:12:after".parse::<Fault>().is_err());
        assert!("disk:x:after:crash".parse::<Fault>().is_err());
    }

    #[test]
    fn a_fault_strikes_once_at_its_point() {
        let mut injector = Injector::assignment(vec!["disk:2:before:crash".parse().unwrap()]);
        let possible = [(FaultPoint::Before, FaultKind::Crash)];
        assert_eq!(injector.pass(Track::Disk, "a", &possible), None);
        assert_eq!(injector.pass(Track::Agent, "b", &possible), None);
        assert_eq!(
            injector.pass(Track::Disk, "c", &possible),
            Some((FaultPoint::Before, FaultKind::Crash))
        );
        assert_eq!(injector.pass(Track::Disk, "d", &possible), None);
        assert_eq!(injector.points.len(), 4);
    }
}
