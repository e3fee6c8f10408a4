//! Every story with a fault at every point, which is every API call, disk operation and event: the whole life of a volume
//! with every fault that can strike there, the others with one of them in turn. QUARRY_SIM_FULL=1 tries all of them
//! everywhere.

use quarry_sim::{
    explore::{Choice, every_point},
    story::find,
};

fn every(name: &str, choice: Choice) {
    let Some(story) = find(name) else { panic!("there is no story {name:?}") };
    let choice = if std::env::var_os("QUARRY_SIM_FULL").is_some() { Choice::All } else { choice };
    let begun = std::time::Instant::now();
    let summary = every_point(&story, choice);
    println!("{summary} ({:.1} s)", begun.elapsed().as_secs_f32());
    for failure in &summary.failures {
        println!("  {}", failure.lines().next().unwrap_or_default());
    }
    assert!(summary.failures.is_empty(), "{}", summary.failures[0]);
}

#[test]
fn the_whole_life_of_a_volume_survives_every_fault() {
    every("ext4", Choice::All);
}

#[test]
fn without_a_udev_daemon() {
    every("xfs-without-udev", Choice::InTurn);
}

#[test]
fn a_block_volume_on_a_kernel_without_partition_parser() {
    every("block-without-parser", Choice::InTurn);
}

#[test]
fn deleted_before_its_preparation_began() {
    every("deleted-while-pending", Choice::InTurn);
}

#[test]
fn deleted_while_its_preparation_ran() {
    every("deleted-while-running", Choice::InTurn);
}

#[test]
fn a_preparation_that_failed_is_tried_again_when_asked() {
    every("failed-then-retried", Choice::InTurn);
}

#[test]
fn restart_of_the_agent_and_of_the_node() {
    every("restart-and-reboot", Choice::InTurn);
}

#[test]
fn a_foreign_file_is_left_alone() {
    every("foreign-file", Choice::InTurn);
}

#[test]
fn a_disk_appears_changes_and_vanishes() {
    every("disk-comes-and-goes", Choice::InTurn);
}

#[test]
fn two_operators_at_once() {
    every("two-operators", Choice::InTurn);
}

#[test]
fn the_disks_of_a_set_are_used_wiped_and_given_back() {
    every("set", Choice::InTurn);
}

#[test]
fn the_disks_of_a_set_under_two_operators() {
    every("set-two-operators", Choice::InTurn);
}

#[test]
fn the_oldest_has_the_disk_and_then_the_next() {
    every("set-overlap", Choice::InTurn);
}

#[test]
fn a_claimed_disk_is_pulled_and_comes_back() {
    every("set-hotplug", Choice::InTurn);
}

#[test]
fn a_node_with_claims_goes_and_comes_back() {
    every("set-node-gone", Choice::InTurn);
}

#[test]
fn an_api_that_forgot_who_used_a_disk() {
    every("set-restored-unused", Choice::InTurn);
}

#[test]
fn an_api_that_asks_again_for_a_wipe_of_long_ago() {
    every("set-restored-in-mid-wipe", Choice::InTurn);
}

#[test]
fn what_is_retained_is_kept_until_somebody_decides() {
    every("set-retained", Choice::InTurn);
}

#[test]
fn a_set_that_is_deleted_waits_for_what_is_bound_or_kept() {
    every("set-deleted-in-use", Choice::InTurn);
}

#[test]
fn a_local_volume_by_its_paths() {
    every("local-volume", Choice::InTurn);
}

#[test]
fn a_wipe_that_fails_is_tried_again() {
    every("set-wipe-fails", Choice::InTurn);
}

#[test]
fn data_that_is_faster_than_the_agent_is_left_alone() {
    every("set-written-before-confirmed", Choice::InTurn);
}
