//! Hosts against the simulated Ironic: every story without faults, and with a fault at every API call, request to Ironic
//! and event. By default the possible faults take turns and every seventh point is struck, of stories with RAID every
//! 19th; `FULL=1` tries all of them.

use quarry_ironic::{Method, Request};
use quarry_sim::{
    explore::Choice,
    hosts::{
        explore::{every_point, random},
        run,
        story::{Step, find, stories},
    },
    ironic::SimIronic,
    run::Mode,
};

#[test]
fn every_story_ends_without_faults() {
    let mut failures = Vec::new();
    for story in stories() {
        let begun = std::time::Instant::now();
        match run(&story, &Mode::Ordered(Vec::new())) {
            Ok(ended) => println!(
                "sim: story {}: {} points, {} steps, {:?}",
                story.name,
                ended.points.len(),
                ended.steps,
                begun.elapsed()
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
    // Long ones, and many: each point of the others is struck more often.
    let long = name.starts_with("raid") || name.starts_with("provision");
    let stride = if long { 19 } else { 7 };
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
    power "power";
    inspect_again "inspect-again";
    wrong_password "wrong-password";
    silent_ramdisk "silent-ramdisk";
    database_lost "database-lost";
    node_deleted "node-deleted";
    two_leaders "two-leaders";
    pivot "pivot";
    raid_hardware "raid-hardware";
    raid_picked "raid-picked";
    raid_software "raid-software";
    raid_fails "raid-fails";
    raid_software_fails "raid-software-fails";
    provisioned "provisioned";
    provisioning_deleted "provisioning-deleted";
    raid_deleted "raid-deleted";
    raid_lost "raid-lost";
    provisioned_lost "provisioned-lost";
}

#[test]
fn any_order_and_several_faults_end_alike() {
    let number = |variable: &str, default: u64| {
        std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (first, count) = (number("QUARRY_SIM_FIRST", 1), number("QUARRY_SIM_SEEDS", 2));
    let mut failures = Vec::new();
    for story in stories() {
        let summary = random(&story, first, count);
        println!(
            "sim: story {}: {} random runs, {} failed",
            story.name,
            summary.runs,
            summary.failures.len()
        );
        failures.extend(summary.failures);
    }
    for failure in &failures {
        println!("  {}", failure.lines().next().unwrap_or_default());
    }
    assert!(failures.is_empty(), "{}", failures[0]);
}

const MACHINE: &str = "https://bmc-1/redfish/v1/Systems/1";

/// A check that finds nothing proves nothing.
#[test]
fn every_mistake_is_found() {
    type Mistake = fn(&mut SimIronic);
    let stuck: Mistake = |ironic| ironic.machine(MACHINE).disks.stuck = true;
    let full: Mistake = |ironic| {
        let disks = &mut ironic.machine(MACHINE).disks;
        (disks.stuck, disks.volumes) = (true, vec![serde_json::json!("made by hand")]);
    };
    let cleaned: Mistake = |ironic| {
        let step = serde_json::json!({"interface": "raid", "step": "delete_configuration"});
        let body = serde_json::json!({"target": "clean", "clean_steps": [step]});
        let node = ironic.node("quarry-system~h1").unwrap();
        let path = format!("/v1/nodes/{}/states/provision", node["uuid"].as_str().unwrap());
        ironic.answer(&Request::new(Method::Put, path, Some(body)));
    };
    for (name, mistake, said) in [
        ("raid-hardware", stuck, "and left Disks"),
        ("provisioned", stuck, "and left Disks"),
        ("raid-fails", full, "RAID is built over"),
        ("raid-hardware", cleaned, "was cleaned with raid.delete_configuration in the state"),
    ] {
        let mut story = find(name).unwrap();
        let built = |step: &Step| matches!(step, Step::Await("built", _));
        let position = story.steps.iter().position(built).filter(|_| name != "raid-fails");
        let at = position.map_or(0, |position| position + 1);
        story.steps.insert(at, Step::Ironic("a mistake", mistake));
        match run(&story, &Mode::Ordered(Vec::new())) {
            Ok(_) => panic!("it was not found: {said}"),
            Err(failed) => assert!(failed.why.contains(said), "{}", failed.why),
        }
    }
}

/// `QUARRY_SIM_REPLAY='life ironic0:3:after:error'` or `'life seed=7'` plays one run again and prints all of it.
#[test]
fn replay() {
    let Ok(asked) = std::env::var("QUARRY_SIM_REPLAY") else { return };
    let (name, how) = asked.split_once(' ').unwrap_or((&asked, ""));
    let Some(story) = find(name) else { return };
    let mode = match how.trim().strip_prefix("seed=") {
        Some(seed) => quarry_sim::explore::random_mode(seed.parse().unwrap()),
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
