//! Whatever gets lost or killed: a PVC is prepared as one OSD only, by one cluster, and everything runs in the end.

use super::{World, failed, set};
use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The operator plans, and is killed after so many steps.
    Apply(usize),
    /// The same for a second, younger cluster in the namespace.
    ApplyOther,
    Prepare(usize),
    Fail(usize),
    /// The pods of a Job are gone, and with them its result.
    LosePods(usize),
    /// As by its time to live.
    LoseJob(usize),
    LoseResult(usize),
    LoseDeployment(usize),
    Start,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..6usize).prop_map(Event::Apply),
        1 => Just(Event::ApplyOther),
        3 => (0..4usize).prop_map(Event::Prepare),
        1 => (0..4usize).prop_map(Event::Fail),
        1 => (0..4usize).prop_map(Event::LosePods),
        1 => (0..4usize).prop_map(Event::LoseJob),
        1 => (0..4usize).prop_map(Event::LoseResult),
        1 => (0..4usize).prop_map(Event::LoseDeployment),
        1 => Just(Event::Start),
    ]
}

fn happen(world: &mut World, event: Event) {
    let jobs = world.seen.jobs.len();
    let is_open = |world: &World, at: usize| at < jobs && world.seen.jobs[at].status.is_none();
    match event {
        Event::Apply(first) => world.apply(first),
        Event::ApplyOther => {
            let mut other = world.seen.cluster.clone();
            std::mem::swap(&mut other, &mut world.seen.cluster);
            world.seen.cluster.metadata.name = Some("c2".into());
            world.seen.cluster.metadata.uid = Some("other".into());
            world.seen.others = vec![Arc::new(other.clone())];
            assert_eq!(world.plan().steps, [], "a second cluster does nothing");
            world.seen.cluster = other;
            world.seen.others.clear();
        }
        Event::Prepare(at) if is_open(world, at) => world.prepare(at),
        Event::Fail(at) if is_open(world, at) => {
            world.end_pod(at, &failed("MonitorsUnreachable"));
        }
        Event::LosePods(at) if at < jobs => {
            let uid = world.seen.jobs[at].uid().unwrap();
            let pods = &mut world.seen.pods;
            pods.retain(|pod| !pod.owner_references().iter().any(|owner| owner.uid == uid));
        }
        Event::LoseJob(at) if at < jobs && world.seen.jobs[at].status.is_some() => {
            let uid = world.seen.jobs[at].uid().unwrap();
            world.delete_job(&uid);
        }
        Event::LoseResult(at) if at < world.seen.results.len() => {
            world.seen.results.remove(at);
        }
        Event::LoseDeployment(at) if at < world.seen.deployments.len() => {
            world.seen.deployments.remove(at);
        }
        Event::Start => world.start(),
        _ => {}
    }
}

/// No PVC has two users that are not of one OSD, and no ID two Deployments.
fn consistent(world: &World) {
    let mut users: BTreeMap<String, String> = BTreeMap::new();
    for deployment in &world.seen.deployments {
        let claim = deployment.labels()["ceph.rook.io/pvc"].clone();
        let before = users.insert(claim, deployment.name_any());
        assert_eq!(before, None, "two OSDs on a PVC");
    }
    let claims: Vec<String> = world.seen.jobs.iter().flat_map(super::claims_of).collect();
    let mut unique = claims.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), claims.len(), "two Jobs on a PVC");
    assert!(world.registered.len() <= world.seen.claims.len());
}

// invariant: 3, 5
proptest! {
    #[test]
    fn a_device_becomes_one_osd_whatever_happens(
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut world = World::new(json!([set("a", 2), set("b", 1)]));
        for event in events {
            happen(&mut world, event);
            consistent(&world);
        }
        world.settle();
        consistent(&world);
        prop_assert_eq!(world.message(), "OSDs: 3 Running");
        prop_assert_eq!(world.registered.len(), 3, "an ID was used and given up");
        prop_assert_eq!(world.plan().steps, vec![]);
    }
}
