//! OSDs of device sets against a simulated Ceph: every story without faults, and with a fault at every API call, event
//! and act of a prepare run. By default the possible faults take turns and every seventh point is struck, fewer of two
//! long stories; `FULL=1` tries all of them.

use quarry_ceph::Content;
use quarry_sim::{
    explore::{Choice, random_mode},
    osds::{
        every_point,
        machine::Machine,
        random, run,
        story::{Step, find, stories},
    },
    run::Mode,
};

#[test]
fn every_story_ends_without_faults() {
    let mut failures = Vec::new();
    for story in stories() {
        match run(&story, &Mode::Ordered(Vec::new())) {
            Ok(ended) => println!(
                "sim: story {}: {} points, {} steps",
                story.name,
                ended.points.len(),
                ended.steps
            ),
            Err(failed) => {
                let from = failed.trace.len().saturating_sub(60);
                let last = failed.trace[from..].join("\n");
                failures.push(format!("story {}: {}\n{last}", story.name, failed.why));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

fn every(name: &str) {
    let Some(story) = find(name) else { panic!("there is no story {name:?}") };
    let full = std::env::var_os("FULL").is_some();
    // Long ones, in which the same calls are made again and again while something is waited for.
    let stride = match name {
        "hangs" => 307,
        "another-cluster" => 29,
        _ => 7,
    };
    let choice = if full { Choice::All } else { Choice::InTurn { stride } };
    let begun = std::time::Instant::now();
    let summary = every_point(&story, choice);
    println!("{summary} ({:.1} s)", begun.elapsed().as_secs_f32());
    for failure in &summary.failures {
        println!("  {}", failure.lines().next().unwrap_or_default());
    }
    assert!(summary.failures.is_empty(), "{}", summary.failures[0]);
}

/// One test per story, and a test that no story lacks one.
macro_rules! stories {
    ($($test:ident $name:literal;)*) => {
        $(#[test]
        fn $test() {
            every($name);
        })*

        #[test]
        fn every_story_is_tested() {
            let tested = [$($name),*];
            let all: Vec<&str> = stories().iter().map(|story| story.name).collect();
            assert_eq!(tested.as_slice(), all);
        }
    };
}

stories! {
    life "life";
    metadata "metadata";
    scaled "scaled";
    refused "refused";
    another_cluster "another-cluster";
    monitors_down "monitors-down";
    hangs "hangs";
    forgotten "forgotten";
    claim_lost "claim-lost";
    no_device "no-device";
    rook "rook";
    second_cluster "second-cluster";
    two_leaders "two-leaders";
}

#[test]
fn any_order_and_several_faults_end_alike() {
    let number = |variable: &str, default: u64| {
        std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (first, count) = (number("QUARRY_SIM_FIRST", 1), number("QUARRY_SIM_SEEDS", 4));
    let mut failures = Vec::new();
    for story in stories() {
        failures.extend(random(&story, first, count).failures);
    }
    for failure in &failures {
        println!("  {}", failure.lines().next().unwrap_or_default());
    }
    assert!(failures.is_empty(), "{}", failures[0]);
}

/// A check that finds nothing proves nothing.
#[test]
fn every_mistake_is_found() {
    type Mistake = fn(&mut Machine);
    let exchanged: Mistake = |machine| {
        let (a, b) =
            (machine.devices["pv-a"].content.clone(), machine.devices["pv-b"].content.clone());
        machine.devices.get_mut("pv-a").unwrap().content = b;
        machine.devices.get_mut("pv-b").unwrap().content = a;
    };
    let forgotten: Mistake = |machine| machine.ceph.osds.clear();
    for (mistake, said) in [(exchanged, "was started on"), (forgotten, "Ceph does not know")] {
        let mut story = find("life").unwrap();
        story.steps.push(Step::Machine("a mistake", mistake));
        story
            .steps
            .push(Step::Machine("the OSDs are restarted", |machine| machine.running.clear()));
        match run(&story, &Mode::Ordered(Vec::new())) {
            Ok(_) => panic!("it was not found: {said}"),
            Err(failed) => assert!(failed.why.contains(said), "{}", failed.why),
        }
    }
    // A device with data that a prepare run would format.
    let mut machine = Machine::default();
    machine.add_device("pv");
    machine.devices.get_mut("pv").unwrap().content = Content::Other("ext4".to_owned());
    let label = quarry_ceph::Label {
        osd_uuid: "1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10".parse().unwrap(),
        size: 1,
        description: "main".to_owned(),
        ceph_fsid: None,
        whoami: None,
        osd_key: None,
        ready: false,
    };
    machine.format("pv", label);
    assert_eq!(machine.wrong, ["pv was formatted over Other(\"ext4\")"]);
}

/// `QUARRY_SIM_REPLAY='life operator0:3:after:error'` or `'life seed=7'` plays one run again and prints all of it.
#[test]
fn replay() {
    let Ok(asked) = std::env::var("QUARRY_SIM_REPLAY") else { return };
    let (name, how) = asked.split_once(' ').unwrap_or((&asked, ""));
    let Some(story) = find(name) else { return };
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
        Ok(ended) => println!("{}\n\n{}", ended.trace.join("\n"), ended.end),
        Err(failed) => panic!("{}\n\n{}", failed.trace.join("\n"), failed.why),
    }
}
