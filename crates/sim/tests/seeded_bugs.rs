//! A run with a deliberate mistake must be found out: a check that finds nothing proves nothing.

use quarry_sim::{
    Sabotage,
    run::{Mode, run},
    story::{Story, find},
};

#[test]
fn every_mistake_is_found() {
    for (name, sabotage, said) in [
        ("ext4", Sabotage::Blind, "and left behind: file"),
        ("ext4", Sabotage::ForgetIntents, "without an intent in the ledger"),
        ("ext4", Sabotage::AttachTwice, "several loops over the file"),
        ("restart-and-reboot", Sabotage::LoseData, "the pod's data is gone"),
        ("set", Sabotage::ForgetIntents, "is erased without an intent in the ledger"),
        ("set", Sabotage::WipeHalf, "is offered although it holds"),
        ("set", Sabotage::MislinkAnything, "leads to sda, which is"),
        ("set", Sabotage::KeepLinks, "is left behind: no claim knows it"),
        ("set-written-before-confirmed", Sabotage::ConfirmAnything, "is offered although it holds"),
        ("set-written-before-confirmed", Sabotage::EraseNeighbours, "what Other has on disk"),
        ("set-wipe-fails", Sabotage::HoldAnything, "is erased while another process holds it"),
        (
            "set-restored-in-mid-wipe",
            Sabotage::ForgetOutcomes,
            "what Other has on disk 5000c50000000001 is erased",
        ),
    ] {
        let Some(story) = find(name) else { panic!("there is no story {name:?}") };
        match run(&Story { sabotage: Some(sabotage), ..story }, &Mode::Ordered(Vec::new())) {
            Ok(_) => panic!("{sabotage:?} was not found"),
            Err(failed) => assert!(failed.why.contains(said), "{sabotage:?}: {}", failed.why),
        }
    }
}
