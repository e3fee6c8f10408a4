//! A story of hosts once without faults, then once for every point and fault that is chosen.

use super::{run, story::Story};
use crate::{
    explore::{Choice, Summary, each},
    run::{Failed, Mode, RunReport},
};

pub fn every_point(story: &Story, choice: Choice) -> Summary {
    let summary = |points, runs, failures| Summary { story: story.name, points, runs, failures };
    let calm = match run(story, &Mode::Ordered(Vec::new())) {
        Ok(calm) => calm,
        Err(failed) => return summary(0, 1, vec![explain(story, "", &failed.why)]),
    };
    let faults = choice.faults(&calm.points);
    let failures = each(faults.len(), |index| {
        let fault = faults[index];
        let wrong = wrong(run(story, &Mode::Ordered(vec![fault])), &calm, 1)?;
        Some(explain(story, &fault.to_string(), &wrong))
    });
    summary(calm.points.len(), faults.len() + 1, failures)
}

/// Random orders with random faults: seeds from `first` on.
pub fn random(story: &Story, first: u64, count: u64) -> Summary {
    let summary = |points, runs, failures| Summary { story: story.name, points, runs, failures };
    let calm = match run(story, &Mode::Ordered(Vec::new())) {
        Ok(calm) => calm,
        Err(failed) => return summary(0, 1, vec![explain(story, "", &failed.why)]),
    };
    let runs = usize::try_from(count).unwrap_or(usize::MAX);
    let failures = each(runs, |index| {
        let seed = first + index as u64;
        let wrong = wrong(run(story, &crate::explore::random_mode(seed)), &calm, 0)?;
        Some(explain(story, &format!("seed={seed}"), &wrong))
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

fn explain(story: &Story, how: &str, wrong: &str) -> String {
    format!(
        "{} {how}: {wrong}\n  replay: QUARRY_SIM_REPLAY='{} {how}' cargo test -p quarry-sim --test hosts replay -- --nocapture",
        story.name, story.name
    )
}
