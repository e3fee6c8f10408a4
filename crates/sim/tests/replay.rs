//! Plays one run again and prints all of it: QUARRY_SIM_REPLAY='ext4 disk:12:after:crash' or 'ext4 seed=7'.

use quarry_sim::{
    explore::random_mode,
    run::{Mode, run},
    story::find,
};

#[test]
fn replay() {
    let Ok(asked) = std::env::var("QUARRY_SIM_REPLAY") else { return };
    let (name, how) = asked.split_once(' ').unwrap_or((&asked, ""));
    let Some(story) = find(name) else { panic!("there is no story {name:?}") };
    let mode = match how.trim().strip_prefix("seed=") {
        Some(seed) => random_mode(seed.parse().unwrap()),
        None => Mode::Ordered(
            how.split(',')
                .map(str::trim)
                .filter(|text| !text.is_empty())
                .map(|text| text.parse().unwrap())
                .collect(),
        ),
    };
    match run(&story, &mode) {
        Ok(ended) => println!(
            "{}\n\n{}\n\nsim: {asked}: converged after {} steps",
            ended.trace.join("\n"),
            ended.end,
            ended.steps
        ),
        Err(failed) => panic!("{}\n\n{}", failed.trace.join("\n"), failed.why),
    }
}
