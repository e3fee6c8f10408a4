//! One order carried out by a process of its own, for the tests that kill it.
//!
//! `disk-hand ROOT DATA prepare UID SIZE ext4|xfs|partition` or `disk-hand ROOT DATA cleanup UID`; prints how it ended.

use quarry_api::node_job::FsType;
use quarry_core::sparse::Format;
use quarry_node::{Host, RealHands, agent::Ended};
use quarry_tests::disk::{carry, cleanup_order, filesystem, prepare_order};
use std::{process::ExitCode, sync::Arc};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (root, data, order) = match arguments.as_slice() {
        [root, data, "prepare", uid, size, format] => {
            let format = FsType::parse(format).map_or(Format::Partition, filesystem);
            (root, data, prepare_order(uid, size.parse().expect("a size in bytes"), format))
        }
        [root, data, "cleanup", uid] => (root, data, cleanup_order(uid)),
        other => panic!("not an order: {other:?}"),
    };
    let host = Host::open(root, data).expect("the data folder opens");
    let hands = Arc::new(RealHands::open(host, false).expect("the node's lock is free"));
    match carry(&hands, &order) {
        Ended::Succeeded(_) => ExitCode::SUCCESS,
        Ended::Failed(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
