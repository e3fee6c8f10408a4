//! A run with a deliberate mistake must be found out: a check that finds nothing proves nothing.

use quarry_sim::{
    SeededBug,
    run::{Mode, run},
    story::{Story, find},
};

#[test]
fn every_mistake_is_found() {
    for (name, seeded_bug, said) in [
        ("ext4", SeededBug::Blind, "and left behind: file"),
        ("ext4", SeededBug::ForgetIntents, "without an intent in the ledger"),
        ("ext4", SeededBug::AttachTwice, "several loops over the file"),
        ("restart-and-reboot", SeededBug::LoseData, "the pod's data is gone"),
        ("set", SeededBug::ForgetIntents, "is erased without an intent in the ledger"),
        ("set", SeededBug::WipeHalf, "is offered although it holds"),
        ("set", SeededBug::MislinkAnything, "leads to sda, which is"),
        ("set", SeededBug::KeepLinks, "is left behind: no device claim names it"),
        (
            "set-written-before-confirmed",
            SeededBug::ConfirmAnything,
            "is offered although it holds",
        ),
        ("set-written-before-confirmed", SeededBug::EraseNeighbours, "what Other has on disk"),
        ("set-wipe-fails", SeededBug::HoldAnything, "is erased while another process holds it"),
        (
            "set-restored-in-mid-wipe",
            SeededBug::ForgetOutcomes,
            "what Other has on disk 5000c50000000001 is erased",
        ),
    ] {
        let Some(story) = find(name) else { panic!("there is no story {name:?}") };
        match run(&Story { seeded_bug: Some(seeded_bug), ..story }, &Mode::Ordered(Vec::new())) {
            Ok(_) => panic!("{seeded_bug:?} was not found"),
            Err(failed) => assert!(failed.why.contains(said), "{seeded_bug:?}: {}", failed.why),
        }
    }
}
