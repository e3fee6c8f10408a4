//! Small worlds, explored whole: every interleaving of operators with stale caches, crashes between any two writes, an
//! agent, users and hotplug, up to a stated bound. The invariants are checked in every state.
//!
//! `explored/model.rs` is the world, `explored/moves.rs` what can happen in it. Which moves a world allows bounds it; the
//! number of states and of moves is printed.

#![allow(clippy::unwrap_used, reason = "a model that cannot go on fails its test")]

#[path = "explored/model.rs"]
mod model;
#[path = "explored/moves.rs"]
mod moves;

use model::{Mistake, Model};
use moves::{Allowed, Move, moves, take};
use std::{
    collections::{HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// Two hashes of 64 bits: a collision would hide a state, and must be unlikely even for a hundred million of them.
fn key(model: &Model) -> (u64, u64) {
    let text = model.canonical();
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        text.hash(&mut hasher);
        hasher.finish()
    };
    (hash(1), hash(2))
}

struct Path {
    last: Move,
    before: Option<Arc<Path>>,
}

fn describe(path: Option<&Arc<Path>>) -> String {
    let mut steps = Vec::new();
    let mut at = path;
    while let Some(step) = at {
        steps.push(format!("{:?}", step.last));
        at = step.before.as_ref();
    }
    steps.reverse();
    steps.join("\n  ")
}

/// Breadth first, so that the first violation found is a shortest one.
fn explore(name: &str, start: Model, allowed: &Allowed, depth: usize) -> usize {
    let mut seen: HashSet<(u64, u64)> = [key(&start)].into();
    let mut queue: VecDeque<(Model, usize, Option<Arc<Path>>)> = [(start, 0, None)].into();
    let (mut taken, mut deepest, mut cut) = (0_usize, 0, 0_usize);
    while let Some((model, at, path)) = queue.pop_front() {
        deepest = deepest.max(at);
        if at == depth {
            cut += 1;
            continue;
        }
        for one in moves(&model, allowed) {
            let Some(next) = take(&model, &one) else { continue };
            taken += 1;
            let path = Some(Arc::new(Path { last: one, before: path.clone() }));
            let wrong = next.violations();
            assert!(wrong.is_empty(), "{name}: {wrong:?}\nafter\n  {}", describe(path.as_ref()));
            if seen.insert(key(&next)) {
                queue.push_back((next, at + 1, path));
            }
        }
    }
    println!(
        "sim: claims explored, {name}: {} states, {taken} moves, depth {deepest} of {depth}, {cut} at the bound",
        seen.len()
    );
    seen.len()
}

/// How deep `QUARRY_EXPLORE_DEPTH` moves the bound, for a long run by hand.
fn bound(usual: usize) -> usize {
    std::env::var("QUARRY_EXPLORE_DEPTH").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

// invariant: 3
#[test]
fn two_sets_and_two_operators_never_give_a_disk_away_twice() {
    let allowed = Allowed {
        operators: 2,
        sets: vec!["old", "young"],
        deletions: 1,
        crashes: true,
        ..Allowed::default()
    };
    assert!(explore("two sets, two operators", Model::new(), &allowed, bound(11)) > 1000);
}

#[test]
fn a_volume_in_use_is_never_wiped_and_old_data_never_published() {
    let allowed = Allowed {
        operators: 1,
        sets: vec!["old"],
        uses: 1,
        deletions: 1,
        reserve: true,
        crashes: true,
        ..Allowed::default()
    };
    let start = Model::new().published("old").hiding();
    assert!(explore("use, release, wipe, delete", start, &allowed, bound(24)) > 1000);
}

// invariant: 5
#[test]
fn a_pv_bound_while_it_is_deleted_is_wiped_or_retained() {
    let allowed = Allowed {
        operators: 2,
        uses: 2,
        deletions: 1,
        reserve: true,
        by_name: true,
        ..Allowed::default()
    };
    for (name, start) in [("Delete", Model::new()), ("Retain", Model::new().retaining())] {
        let start = start.published("old").hiding();
        assert!(explore(&format!("bound by name, {name}"), start, &allowed, bound(13)) > 1000);
    }
}

#[test]
fn a_second_operator_with_an_old_cache_wipes_nothing_in_use() {
    let allowed = Allowed { operators: 2, uses: 2, crashes: false, ..Allowed::default() };
    let start = Model::new().published("old");
    assert!(explore("release and wipe, two operators", start, &allowed, bound(18)) > 1000);
}

#[test]
fn a_disk_swapped_under_its_name_is_another_disk() {
    let allowed = Allowed {
        operators: 1,
        sets: vec!["old"],
        uses: 1,
        plugs: 3,
        other_data: true,
        crashes: true,
        ..Allowed::default()
    };
    assert!(explore("hotplug and swap", Model::new(), &allowed, bound(14)) > 1000);
}

// invariant: 3
#[test]
fn a_path_and_a_set_that_mean_the_same_disk() {
    let allowed = Allowed {
        operators: 2,
        sets: vec!["young"],
        local_volume: true,
        other_data: true,
        unmanaged_pv: true,
        deletions: 1,
        ..Allowed::default()
    };
    assert!(
        explore(
            "a LocalVolume, a set, an unmanaged PersistentVolume",
            Model::new(),
            &allowed,
            bound(8)
        ) > 1000
    );
}

// invariant: 3
#[test]
fn a_missing_disk_is_released_and_returns_without_loss() {
    let allowed = Allowed { operators: 2, uses: 1, plugs: 2, deletions: 1, ..Allowed::default() };
    let start = Model::new().published("old");
    assert!(explore("pulled, given up, back, two operators", start, &allowed, bound(9)) > 1000);
}

// invariant: 3
#[test]
fn a_disk_of_a_volume_has_no_other_owner() {
    let allowed = Allowed {
        operators: 2,
        sets: vec!["old"],
        local_volume: true,
        volume: true,
        deletions: 1,
        crashes: true,
        ..Allowed::default()
    };
    assert!(
        explore("a Volume, a set, a LocalVolume, two operators", Model::new(), &allowed, bound(9))
            > 1000
    );
}

// invariant: 1
#[test]
fn retained_data_is_never_wiped_or_published() {
    let allowed =
        Allowed { operators: 2, uses: 2, deletions: 2, crashes: true, ..Allowed::default() };
    let start = Model::new().retaining().published("old").hiding();
    assert!(explore("Retain, deleted by hand", start, &allowed, bound(11)) > 1000);
}

// invariant: 1
#[test]
fn a_pv_removed_by_force_leaves_retained_data() {
    let allowed = Allowed {
        operators: 1,
        sets: vec!["old", "young"],
        uses: 2,
        deletions: 1,
        tears: 2,
        crashes: true,
        ..Allowed::default()
    };
    let start = Model::new().published("old").hiding();
    assert!(explore("removed by force, two sets", start, &allowed, bound(12)) > 1000);
}

/// The checks themselves are tested: each deliberate mistake is found.
#[test]
fn every_mistake_is_found() {
    for mistake in [Mistake::AgentIsBlind, Mistake::NoVersions] {
        let allowed = Allowed {
            operators: 2,
            sets: vec!["old", "young"],
            uses: 1,
            other_data: true,
            deletions: 1,
            ..Allowed::default()
        };
        let start = Model { mistake: Some(mistake), ..Model::new() };
        let found = std::panic::catch_unwind(|| explore("with a mistake", start, &allowed, 10));
        assert!(found.is_err(), "{mistake:?} was not found");
    }
    let allowed = Allowed { operators: 1, uses: 1, deletions: 1, ..Allowed::default() };
    let start = Model {
        mistake: Some(Mistake::NothingIsKept),
        ..Model::new().retaining().published("old").hiding()
    };
    assert!(std::panic::catch_unwind(|| explore("with a mistake", start, &allowed, 14)).is_err());
}
