//! Every story with a fault at every point: every API call, disk operation and event. The whole life of a Volume meets
//! every fault that is possible at a point; in the other stories the possible faults take turns, and by default only
//! every second point is struck. `FULL=1` tries every fault at every point.

use quarry_sim::{
    explore::{Choice, every_point},
    story::{find, stories},
};

fn every(name: &str, choice: Choice) {
    let Some(story) = find(name) else { panic!("there is no story {name:?}") };
    let choice = if std::env::var_os("FULL").is_some() { Choice::All } else { choice };
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
    ($($test:ident $name:literal $choice:expr;)*) => {
        $(#[test]
        fn $test() {
            every($name, $choice);
        })*

        #[test]
        fn every_story_is_tested() {
            let mut tested = vec![$($name),*];
            // It differs from `set` only in that its operator never sleeps.
            tested.push("set-awake");
            tested.sort_unstable();
            let mut all: Vec<&str> = stories().iter().map(|story| story.name).collect();
            all.sort_unstable();
            assert_eq!(tested, all);
        }
    };
}

const SAMPLED: Choice = Choice::InTurn { stride: 2 };

stories! {
    ext4 "ext4" Choice::All;
    xfs_without_udev "xfs-without-udev" SAMPLED;
    block_without_partition_parser "block-without-parser" SAMPLED;
    deleted_while_pending "deleted-while-pending" SAMPLED;
    deleted_while_running "deleted-while-running" SAMPLED;
    failed_then_retried "failed-then-retried" SAMPLED;
    restart_and_reboot "restart-and-reboot" SAMPLED;
    unmanaged_file "unmanaged-file" SAMPLED;
    disk_comes_and_goes "disk-comes-and-goes" SAMPLED;
    two_operators "two-operators" SAMPLED;
    set "set" SAMPLED;
    set_under_two_operators "set-two-operators" SAMPLED;
    set_overlaps_an_older_one "set-overlap" SAMPLED;
    set_with_hotplug "set-hotplug" SAMPLED;
    set_on_a_node_that_is_gone "set-node-gone" SAMPLED;
    set_restored_unused "set-restored-unused" SAMPLED;
    set_restored_during_a_wipe "set-restored-in-mid-wipe" SAMPLED;
    set_with_retained_data "set-retained" SAMPLED;
    set_deleted_while_in_use "set-deleted-in-use" SAMPLED;
    local_volume "local-volume" SAMPLED;
    set_bound_while_deleted "set-bound-while-deleted" SAMPLED;
    set_write_protected "set-write-protected" SAMPLED;
    set_shown_elsewhere "set-shown-elsewhere" SAMPLED;
    set_whose_wipe_fails "set-wipe-fails" SAMPLED;
    set_written_before_confirmed "set-written-before-confirmed" SAMPLED;
}
