//! A story once without faults, then once for every point and every fault that can strike there; and random runs.

use crate::{
    fault::{Fault, FaultKind, FaultPoint, Point},
    run::{Failed, Mode, RunReport, run},
    story::Story,
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// What became of a story at every point.
pub struct Summary {
    pub story: &'static str,
    pub points: usize,
    pub runs: usize,
    pub failures: Vec<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sim: story {}: {} fault points x kinds = {} runs, ",
            self.story, self.points, self.runs
        )?;
        match self.failures.len() {
            0 => f.write_str("all converged"),
            failed => write!(f, "{failed} FAILED"),
        }
    }
}

/// Which of the faults of a point are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    All,
    /// One fault per point, at every `stride`-th point.
    InTurn {
        stride: usize,
    },
}

impl Choice {
    pub(crate) fn faults(self, points: &[Point]) -> Vec<Fault> {
        match self {
            Choice::All => points.iter().flat_map(Point::faults).collect(),
            Choice::InTurn { stride } => in_turn(points).into_iter().step_by(stride).collect(),
        }
    }
}

/// Points at which the same can go wrong take turns: so every kind of fault strikes calls of every sort, and about as often.
fn in_turn(points: &[Point]) -> Vec<Fault> {
    let mut turns: BTreeMap<&[(FaultPoint, FaultKind)], usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for point in points.iter().filter(|point| !point.possible.is_empty()) {
        let turn = turns.entry(&point.possible).or_default();
        faults.extend(point.faults().nth(*turn % point.possible.len()));
        *turn += 1;
    }
    faults
}

pub fn every_point(story: &Story, choice: Choice) -> Summary {
    explore(story, |points| choice.faults(points))
}

/// The faults that `wanted` picks by the call they strike.
pub fn some_points(story: &Story, wanted: impl Fn(&Point, &Fault) -> bool) -> Summary {
    explore(story, |points| {
        points
            .iter()
            .flat_map(|point| {
                point.faults().filter(|fault| wanted(point, fault)).collect::<Vec<_>>()
            })
            .collect()
    })
}

fn explore(story: &Story, pick: impl Fn(&[Point]) -> Vec<Fault>) -> Summary {
    let calm = match run(story, &Mode::Ordered(Vec::new())) {
        Ok(calm) => calm,
        Err(failed) => {
            return Summary {
                story: story.name,
                points: 0,
                runs: 1,
                failures: vec![explain(story, "", &failed.why)],
            };
        }
    };
    let faults = pick(&calm.points);
    let failures = each(faults.len(), |index| {
        let fault = faults[index];
        check(story, fault, run(story, &Mode::Ordered(vec![fault])), &calm)
    });
    Summary { story: story.name, points: calm.points.len(), runs: faults.len() + 1, failures }
}

/// Random orders with random faults: seeds from `first` on.
pub fn random(story: &Story, first: u64, count: u64) -> Summary {
    let calm = match run(story, &Mode::Ordered(Vec::new())) {
        Ok(calm) => calm,
        Err(failed) => {
            return Summary {
                story: story.name,
                points: 0,
                runs: 1,
                failures: vec![explain(story, "", &failed.why)],
            };
        }
    };
    let failures = each(usize::try_from(count).unwrap_or(usize::MAX), |index| {
        let seed = first + index as u64;
        match run(story, &random_mode(seed)) {
            Ok(ended) if ended.end == calm.end => None,
            Ok(ended) => Some(explain(story, &format!("seed={seed}"), &another_end(&calm, &ended))),
            Err(failed) => Some(explain(
                story,
                &format!("seed={seed}"),
                &format!("{} (faults: {})", failed.why, list(&failed.struck)),
            )),
        }
    });
    Summary {
        story: story.name,
        points: calm.points.len(),
        runs: usize::try_from(count).unwrap_or(usize::MAX),
        failures,
    }
}

/// The schedule and the faults of a seed: some seeds only shuffle, the others also break things, up to six times.
pub fn random_mode(seed: u64) -> Mode {
    Mode::Random {
        seed,
        one_in: 12 + usize::try_from(seed % 31).unwrap_or_default(),
        at_most: u32::try_from(seed % 7).unwrap_or_default(),
    }
}

fn check(
    story: &Story,
    fault: Fault,
    got: Result<RunReport, Failed>,
    calm: &RunReport,
) -> Option<String> {
    let wrong = match got {
        Err(failed) => failed.why,
        Ok(ended) if ended.struck.len() != 1 => {
            "it did not strike: the run is not deterministic".to_owned()
        }
        Ok(ended) if ended.end != calm.end => another_end(calm, &ended),
        Ok(_) => return None,
    };
    Some(explain(story, &fault.to_string(), &wrong))
}

fn another_end(calm: &RunReport, got: &RunReport) -> String {
    format!("another end\n--- without faults ---\n{}\n--- now ---\n{}", calm.end, got.end)
}

fn list(faults: &[Fault]) -> String {
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join(",")
}

/// What went wrong, and how to see it again.
fn explain(story: &Story, how: &str, wrong: &str) -> String {
    format!(
        "{} {how}: {wrong}\n  replay: QUARRY_SIM_REPLAY='{} {how}' cargo test -p quarry-sim --test replay -- --nocapture",
        story.name, story.name
    )
}

/// Calls `job` for every index, on as many threads as there are processors; the answers in order.
pub(crate) fn each(count: usize, job: impl Fn(usize) -> Option<String> + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, String)>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    if let Some(failure) = job(index) {
                        crate::lock(&found).push((index, failure));
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.sort();
    found.into_iter().map(|(_, failure)| failure).collect()
}

/// Once without faults, then once for every point and fault that is chosen; `test` is where a run is replayed.
pub fn every_point_of(
    story: &'static str,
    test: &str,
    choice: Choice,
    play: impl Fn(&Mode) -> Result<RunReport, Failed> + Sync,
) -> Summary {
    let summary = |points, runs, failures| Summary { story, points, runs, failures };
    let calm = match play(&Mode::Ordered(Vec::new())) {
        Ok(calm) => calm,
        Err(failed) => return summary(0, 1, vec![replayed(story, test, "", &failed.why)]),
    };
    let faults = choice.faults(&calm.points);
    let failures = each(faults.len(), |index| {
        let fault = faults[index];
        let wrong = wrong(play(&Mode::Ordered(vec![fault])), &calm, 1)?;
        Some(replayed(story, test, &fault.to_string(), &wrong))
    });
    summary(calm.points.len(), faults.len() + 1, failures)
}

/// Random orders with random faults: seeds from `first` on.
pub fn random_of(
    story: &'static str,
    test: &str,
    first: u64,
    count: u64,
    play: impl Fn(&Mode) -> Result<RunReport, Failed> + Sync,
) -> Summary {
    let summary = |points, runs, failures| Summary { story, points, runs, failures };
    let calm = match play(&Mode::Ordered(Vec::new())) {
        Ok(calm) => calm,
        Err(failed) => return summary(0, 1, vec![replayed(story, test, "", &failed.why)]),
    };
    let runs = usize::try_from(count).unwrap_or(usize::MAX);
    let failures = each(runs, |index| {
        let seed = first + index as u64;
        let wrong = wrong(play(&random_mode(seed)), &calm, 0)?;
        Some(replayed(story, test, &format!("seed={seed}"), &wrong))
    });
    summary(calm.points.len(), runs, failures)
}

fn wrong(got: Result<RunReport, Failed>, calm: &RunReport, strikes: usize) -> Option<String> {
    match got {
        Err(failed) => Some(failed.why),
        Ok(ended) if ended.struck.len() < strikes => {
            Some("it did not strike: the run is not deterministic".to_owned())
        }
        Ok(ended) if ended.end != calm.end => Some(format!(
            "another end\n--- without faults ---\n{}\n--- now ---\n{}",
            calm.end, ended.end
        )),
        Ok(_) => None,
    }
}

fn replayed(story: &str, test: &str, how: &str, wrong: &str) -> String {
    format!(
        "{story} {how}: {wrong}\n  replay: QUARRY_SIM_REPLAY='{story} {how}' cargo test -p quarry-sim --test {test} replay -- --nocapture"
    )
}
