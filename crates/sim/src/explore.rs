//! A story once without faults, then once for every point and every fault that can strike there; and random runs.

use crate::{
    fault::Fault,
    run::{Ended, Failed, Mode, run},
    story::Story,
};
use std::{
    fmt,
    sync::{Mutex, atomic::{AtomicUsize, Ordering}},
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
        write!(f, "sim: story {}: {} fault points x kinds = {} runs, ", self.story, self.points, self.runs)?;
        match self.failures.len() {
            0 => f.write_str("all converged"),
            failed => write!(f, "{failed} FAILED"),
        }
    }
}

/// Which of the faults of a point are tried.
pub type Choice = fn(&Fault) -> bool;

pub fn every_point(story: &Story, choice: Choice) -> Summary {
    let calm = match run(story, &Mode::Ordered(Vec::new())) {
        Ok(calm) => calm,
        Err(failed) => return Summary { story: story.name, points: 0, runs: 1, failures: vec![explain(story, &[], &failed)] },
    };
    let faults: Vec<Fault> = calm.points.iter().flat_map(|point| point.faults()).filter(choice).collect();
    let failures = each(faults.len(), |index| {
        let fault = faults[index];
        check(story, &[fault], run(story, &Mode::Ordered(vec![fault])), &calm)
    });
    Summary { story: story.name, points: calm.points.len(), runs: faults.len() + 1, failures }
}

/// Random orders with random faults: seeds from `first` on.
pub fn random(story: &Story, first: u64, count: u64) -> Summary {
    let calm = match run(story, &Mode::Ordered(Vec::new())) {
        Ok(calm) => calm,
        Err(failed) => return Summary { story: story.name, points: 0, runs: 1, failures: vec![explain(story, &[], &failed)] },
    };
    let failures = each(usize::try_from(count).unwrap_or(usize::MAX), |index| {
        let seed = first + index as u64;
        // The first seeds only shuffle; the others also break things, more and more often.
        let at_most = u32::try_from(seed % 7).unwrap_or_default();
        let mode = Mode::Random { seed, one_in: 12 + usize::try_from(seed % 31).unwrap_or_default(), at_most };
        match run(story, &mode) {
            Ok(ended) if ended.end == calm.end => None,
            Ok(ended) => Some(format!("story {} seed {seed}: another end\n--- calm ---\n{}\n--- got ---\n{}", story.name, calm.end, ended.end)),
            Err(failed) => Some(format!("seed {seed}: {}", explain(story, &failed.struck, &failed))),
        }
    });
    Summary { story: story.name, points: calm.points.len(), runs: usize::try_from(count).unwrap_or(usize::MAX), failures }
}

fn check(story: &Story, faults: &[Fault], got: Result<Ended, Failed>, calm: &Ended) -> Option<String> {
    match got {
        Err(failed) => Some(explain(story, faults, &failed)),
        Ok(ended) if ended.struck.len() != faults.len() => Some(format!("story {}: {} did not strike: the run is not deterministic", story.name, list(faults))),
        Ok(ended) if ended.end != calm.end => Some(format!("story {} {}: another end\n--- calm ---\n{}\n--- got ---\n{}", story.name, list(faults), calm.end, ended.end)),
        Ok(_) => None,
    }
}

fn list(faults: &[Fault]) -> String {
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join(",")
}

/// With the end of the trace, and how to see it again.
fn explain(story: &Story, faults: &[Fault], failed: &Failed) -> String {
    let tail = failed.trace.len().saturating_sub(60);
    format!(
        "story {} {}: {}\n  replay: QUARRY_SIM_REPLAY='{} {}' cargo test -p quarry-sim --test replay -- --nocapture\n  ...\n  {}",
        story.name,
        list(faults),
        failed.why,
        story.name,
        list(faults),
        failed.trace[tail..].join("\n  ")
    )
}

/// Calls `job` for every index, on as many threads as there are processors; the answers in order.
fn each(count: usize, job: impl Fn(usize) -> Option<String> + Sync) -> Vec<String> {
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
