//! One order carried out by a process of its own, for the tests that kill it; prints how it ended.
//!
//! `disk-hand ROOT DATA prepare UID SIZE ext4|xfs|partition`, `disk-hand ROOT DATA cleanup UID`,
//! `disk-hand ROOT DATA look CLAIM` (one look with this claim), `disk-hand ROOT DATA wipe CLAIM POLICY`.

use quarry_api::{
    node_inventory::{Claim, ClaimOwner},
    node_job::{FsType, WipePolicy},
};
use quarry_core::sparse::Format;
use quarry_node::{
    Host, RealHands,
    agent::{Ended, Order, Ran},
};
use quarry_tests::{
    claim::World,
    disk::{carry, cleanup_order, filesystem, prepare_order},
};
use std::{process::ExitCode, sync::Arc};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [root, data, rest @ ..] = arguments.as_slice() else { panic!("not an order: {arguments:?}") };
    let host = Host::open(root, data).expect("the data folder opens");
    let hands = Arc::new(RealHands::open(host, false).expect("the node's lock is free"));
    let failed = match rest {
        ["prepare", uid, size, format] => {
            let format = FsType::parse(format).map_or(Format::Partition, filesystem);
            volume(&hands, &prepare_order(uid, size.parse().expect("a size in bytes"), format))
        }
        ["cleanup", uid] => volume(&hands, &cleanup_order(uid)),
        ["look", claim] => in_a_world(&hands, claim, None),
        ["wipe", claim, policy] => in_a_world(&hands, claim, Some(WipePolicy::parse(policy).expect("a policy"))),
        other => panic!("not an order: {other:?}"),
    };
    match failed {
        None => ExitCode::SUCCESS,
        Some(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn volume(hands: &Arc<RealHands>, order: &Order) -> Option<String> {
    match carry(hands, order) {
        Ended::Succeeded(_) | Ended::Erased(_) => None,
        Ended::Failed(why) => Some(why),
    }
}

/// Its own API, in which everything is as the operator would have left it.
fn in_a_world(hands: &Arc<RealHands>, claim: &str, policy: Option<WipePolicy>) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let world = World::new().await;
        let claim: Claim = serde_json::from_str(claim).expect("a claim");
        let claim = Claim { owner: ClaimOwner { uid: world.set_uid.clone(), ..world.owner() }, ..claim };
        let Some(policy) = policy else {
            world.claim(&[claim]).await;
            let status = world.publish(hands).await;
            println!("{}", serde_json::to_string(&status.claims).expect("reports"));
            return None;
        };
        match world.wipe(hands, &claim, policy).await.0 {
            Ran::Succeeded(_) => None,
            Ran::Failed(why) => Some(why),
            Ran::Skipped | Ran::Gone => Some("not run".into()),
        }
    })
}
