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
    ] {
        let Some(story) = find(name) else { panic!("there is no story {name:?}") };
        match run(&Story { sabotage: Some(sabotage), ..story }, &Mode::Ordered(Vec::new())) {
            Ok(_) => panic!("{sabotage:?} was not found"),
            Err(failed) => assert!(failed.why.contains(said), "{sabotage:?}: {}", failed.why),
        }
    }
}
