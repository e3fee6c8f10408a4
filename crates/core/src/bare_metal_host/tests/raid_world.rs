//! Whole lives of hosts with RAID, with faults, restarts and edits at any time, on the model of Ironic.

use super::{
    model::{Faults, World},
    *,
};
use crate::bare_metal_host::raid;
use proptest::prelude::*;

const HAND_MADE: &str = "made by hand";

/// What the spec may say. The first leaves what is there.
fn settings(choice: usize) -> Value {
    match choice {
        0 => Value::Null,
        1 => json!({"hardwareRAIDVolumes": [{"level": "1", "sizeGibibytes": 100}]}),
        2 => json!({"hardwareVolumes": [{"level": 1}]}),
        3 => json!({"hardwareRAIDVolumes": []}),
        4 => json!({"softwareRAIDVolumes": [{"level": "1", "sizeGibibytes": 10}, {"level": "0"}]}),
        5 => json!({"softwareRAIDVolumes": []}),
        6 => json!({"hardwareRAIDVolumes": [], "softwareRAIDVolumes": [{"level": "1"}]}),
        7 => json!({"softwareRAIDVolumes": [{"level": "0"}]}),
        _ => unreachable!("eight settings"),
    }
}

fn apply_settings(host: &mut BareMetalHost, choice: usize) {
    host.spec.raid = serde_json::from_value(settings(choice)).unwrap();
    host.metadata.generation = host.metadata.generation.map(|generation| generation + 1);
}

fn rest(world: &mut World) {
    let mut quiet = 0;
    for _ in 0..600 {
        let round = world.round();
        let active = round.steps > 0 || round.call.is_some() || round.wrote_status;
        quiet = if active { 0 } else { quiet + 1 };
        if world.host.is_none() || quiet == 8 {
            return;
        }
    }
    panic!("it never rests: {:?} {:#?}", &world.calls[world.calls.len() - 12..], world.host);
}

fn new_world(choice: usize) -> World {
    let mut host = host(json!({}));
    apply_settings(&mut host, choice);
    World::new(host, None)
}

fn state(world: &World) -> ProvisioningState {
    world.host.as_ref().map(BareMetalHost::state).unwrap_or_default()
}

fn error_of(world: &World) -> String {
    world.host.as_ref().unwrap().status.as_ref().unwrap().error_message.clone()
}

#[test]
fn raid_is_built_once_and_erased_once() {
    for (choice, hardware, software) in [(1, 1, 0), (2, 1, 0), (4, 0, 2), (6, 0, 1)] {
        let mut world = new_world(choice);
        rest(&mut world);
        assert_eq!(
            (state(&world), error_of(&world)),
            (ProvisioningState::Available, String::new())
        );
        let disks = &world.disks;
        assert_eq!(
            (disks.hardware.len(), disks.software.len(), disks.built),
            (hardware, software, 1)
        );
        let erased = world.disks.erased;
        // At rest nothing is repeated, and an inspection changes nothing.
        annotate(world.host.as_mut().unwrap(), names::INSPECT_ANNOTATION, "");
        rest(&mut world);
        assert_eq!((world.disks.built, world.disks.erased), (1, erased));
        mark_deleted(world.host.as_mut().unwrap());
        rest(&mut world);
        assert!(world.host.is_none() && world.node.is_none());
        assert_eq!((world.disks.hardware.len(), world.disks.software.len()), (0, 0));
    }
}

#[test]
fn picked_disks_are_recorded_before_they_are_used() {
    let mut world = new_world(2);
    rest(&mut world);
    let status = world.host.as_ref().unwrap().status.clone().unwrap();
    let recorded = status.provisioning.raid.unwrap();
    let volume = &recorded.hardware_raid_volumes.requested().unwrap()[0];
    assert_eq!((volume.controller.as_str(), volume.physical_disks.len()), ("c1", 2));
    assert!(world.disks.hardware[0].contains("d1"), "{:?}", world.disks);
    let node = world.node.as_ref().unwrap();
    assert_eq!(
        node.inspect_interface.as_deref(),
        Some("agent"),
        "the next inspection boots a ramdisk"
    );
    let verified = status.conditions.iter().find(|one| one.type_ == raid::CONDITION_VERIFIED);
    assert_eq!(verified.unwrap().status, "True");
}

#[test]
fn invalid_settings_clean_nothing() {
    let mut world = new_world(7);
    rest(&mut world);
    assert_eq!(state(&world), ProvisioningState::Preparing);
    assert!(error_of(&world).contains("softwareRAIDVolumes[0]"), "{}", error_of(&world));
    assert!(!world.calls.iter().any(|call| call.contains("clean") || call.contains("RAID")));
    // Power goes on.
    world.host.as_mut().unwrap().spec.online = false;
    rest(&mut world);
    assert_eq!(world.node.as_ref().unwrap().power_state, Some(quarry_ironic::PowerState::Off));
    apply_settings(world.host.as_mut().unwrap(), 1);
    rest(&mut world);
    assert_eq!((state(&world), world.disks.built), (ProvisioningState::Available, 1));
}

#[test]
fn a_host_without_settings_keeps_its_raid() {
    let mut world = new_world(0);
    world.disks.hardware = vec![HAND_MADE.to_owned()];
    rest(&mut world);
    mark_deleted(world.host.as_mut().unwrap());
    rest(&mut world);
    assert!(world.host.is_none());
    assert_eq!(
        (world.disks.hardware.as_slice(), world.disks.erased),
        (&[HAND_MADE.to_owned()][..], 0)
    );
}

fn provision(world: &mut World) {
    let host = world.host.as_mut().unwrap();
    host.spec.image = Some(image());
    rest(world);
}

#[test]
fn deprovisioning_erases_whatever_made_the_volumes() {
    let mut world = new_world(0);
    world.disks.hardware = vec![HAND_MADE.to_owned()];
    rest(&mut world);
    provision(&mut world);
    assert_eq!(state(&world), ProvisioningState::Provisioned);
    assert_eq!(world.disks.image.as_deref(), Some("http://files/image.qcow2"));
    assert_eq!(world.disks.erased, 0, "provisioning erases no RAID");
    world.host.as_mut().unwrap().spec.image = None;
    rest(&mut world);
    assert_eq!((state(&world), &world.disks.image), (ProvisioningState::Available, &None));
    assert!(world.disks.hardware.is_empty());
    let again = world.disks.erased;
    provision(&mut world);
    world.disks.hardware = vec![HAND_MADE.to_owned()];
    world.host.as_mut().unwrap().spec.image = None;
    rest(&mut world);
    assert!(world.disks.hardware.is_empty() && world.disks.erased > again, "each time");
}

#[test]
fn retained_volumes_stay_and_are_not_built_again() {
    let mut world = new_world(1);
    rest(&mut world);
    annotate(world.host.as_mut().unwrap(), names::RETAIN_RAID_ANNOTATION, "");
    let before = world.disks.clone();
    provision(&mut world);
    world.host.as_mut().unwrap().spec.image = None;
    rest(&mut world);
    assert_eq!((state(&world), &world.disks), (ProvisioningState::Available, &before));
}

#[test]
fn a_change_while_provisioned_waits_and_is_shown() {
    let mut world = new_world(1);
    rest(&mut world);
    provision(&mut world);
    apply_settings(world.host.as_mut().unwrap(), 4);
    rest(&mut world);
    let status = world.host.as_ref().unwrap().status.clone().unwrap();
    let current = status.conditions.iter().find(|one| one.type_ == raid::CONDITION_CURRENT);
    assert_eq!(current.unwrap().reason, "ChangedWhileProvisioned");
    assert_eq!((world.disks.hardware.len(), world.disks.built), (1, 1));
    world.host.as_mut().unwrap().spec.image = None;
    rest(&mut world);
    assert_eq!((world.disks.hardware.len(), world.disks.software.len()), (0, 2));
}

#[test]
fn a_failed_build_is_reported_and_begins_with_erasing() {
    let mut world = new_world(4);
    world.faults.build_fails = true;
    let failed_twice = |world: &World| {
        let status = world.host.as_ref().unwrap().status.clone().unwrap_or_default();
        status.error_count == 2 && status.error_type.is_some()
    };
    for _ in 0..200 {
        if failed_twice(&world) {
            break;
        }
        world.round();
    }
    let status = world.host.as_ref().unwrap().status.clone().unwrap();
    assert_eq!(status.error_type, Some("preparation error".into()));
    let message = &status.error_message;
    assert!(message.starts_with("no space (in step create_configuration); correct"), "{message}");
    assert_eq!((status.error_count, world.disks.erased), (2, 2));
    world.heal();
    rest(&mut world);
    assert_eq!((state(&world), world.disks.built), (ProvisioningState::Available, 1));
}

#[test]
fn a_lost_database_neither_skips_nor_repeats_raid() {
    for rounds in 0..40 {
        let mut world = new_world(1);
        for _ in 0..rounds {
            world.round();
        }
        let done = state(&world) == ProvisioningState::Available;
        (world.node, world.inventory) = (None, None);
        world.ports.clear();
        rest(&mut world);
        assert_eq!((state(&world), world.disks.hardware.len()), (ProvisioningState::Available, 1));
        let most = if done { 1 } else { 2 };
        assert!((1..=most).contains(&world.disks.built), "lost after {rounds}: {:?}", world.disks);
    }
}

#[test]
fn a_kill_at_any_step_builds_and_erases_once() {
    for (choice, most) in [(1, 40), (2, 48), (4, 40), (6, 48)] {
        let expected = {
            let mut world = new_world(choice);
            rest(&mut world);
            world.disks.erased
        };
        for kill in 0..most * 3 {
            let mut world = new_world(choice);
            for round in 0..200 {
                world.killed_after = (round == kill / 3).then_some(kill % 3);
                world.round();
                if state(&world) == ProvisioningState::Available {
                    break;
                }
            }
            rest(&mut world);
            assert_eq!((world.disks.built, world.disks.erased), (1, expected), "killed at {kill}");
            mark_deleted(world.host.as_mut().unwrap());
            world.killed_after = Some(kill % 5);
            rest(&mut world);
            assert!(world.host.is_none() && world.disks.software.is_empty());
            assert!(world.disks.hardware.is_empty(), "killed at {kill}");
        }
    }
}

#[test]
fn a_deletion_that_cannot_erase_ends_and_says_so() {
    let mut world = new_world(1);
    rest(&mut world);
    mark_deleted(world.host.as_mut().unwrap());
    world.faults.erase_fails = true;
    for _ in 0..200 {
        world.round();
    }
    assert!(world.host.is_none(), "{:#?}", world.host);
    assert_eq!(world.disks.hardware.len(), 1, "it stays");
    assert!(world.events.iter().any(|event| event == "NotErased"), "{:?}", world.events);

    let mut world = new_world(1);
    rest(&mut world);
    mark_deleted(world.host.as_mut().unwrap());
    world.faults.ironic_down = true;
    for _ in 0..20 {
        world.round();
    }
    assert!(world.host.is_some(), "an outage of minutes is waited for");
    for _ in 0..200 {
        world.round();
    }
    assert!(world.host.is_none() && world.events.iter().any(|event| event == "NodeLeft"));
}

#[test]
fn removed_settings_stop_what_was_begun() {
    for choice in [1, 4] {
        let mut world = new_world(choice);
        world.faults.build_fails = true;
        while error_of_any(&world).is_empty() {
            world.round();
        }
        let erased = world.disks.erased;
        apply_settings(world.host.as_mut().unwrap(), 0);
        world.heal();
        rest(&mut world);
        assert_eq!((state(&world), world.disks.built), (ProvisioningState::Available, 0));
        assert_eq!(world.disks.erased, erased, "nothing more is erased");
        // The same settings again are built.
        apply_settings(world.host.as_mut().unwrap(), choice);
        rest(&mut world);
        assert_eq!((state(&world), world.disks.built), (ProvisioningState::Available, 1));
    }
}

fn error_of_any(world: &World) -> String {
    let status = world.host.as_ref().and_then(|host| host.status.as_ref());
    status.map(|status| status.error_message.clone()).unwrap_or_default()
}

#[test]
fn an_annotation_that_comes_too_late_keeps_no_record() {
    let mut world = new_world(4);
    rest(&mut world);
    provision(&mut world);
    world.faults.erase_fails = true;
    world.host.as_mut().unwrap().spec.image = None;
    while error_of_any(&world).is_empty() {
        world.round();
    }
    annotate(world.host.as_mut().unwrap(), names::RETAIN_RAID_ANNOTATION, "");
    world.heal();
    rest(&mut world);
    assert_eq!((state(&world), error_of(&world)), (ProvisioningState::Available, String::new()));
    assert_eq!(world.disks.software.len(), 2, "built again after they were erased");
    assert_eq!(world.disks.built, 2);
}

#[test]
fn an_unfinished_removal_is_finished_by_a_deletion() {
    let mut world = new_world(1);
    rest(&mut world);
    world.faults.erase_fails = true;
    apply_settings(world.host.as_mut().unwrap(), 3);
    while error_of_any(&world).is_empty() {
        world.round();
    }
    world.heal();
    mark_deleted(world.host.as_mut().unwrap());
    rest(&mut world);
    assert!(world.host.is_none() && world.disks.hardware.is_empty());
}

/// Other operators have no condition about it.
#[test]
fn an_inspection_rebuilds_nothing_that_others_built() {
    let mut world = new_world(1);
    rest(&mut world);
    let status = world.host.as_mut().unwrap().status.as_mut().unwrap();
    status.conditions.clear();
    rest(&mut world);
    annotate(world.host.as_mut().unwrap(), names::INSPECT_ANNOTATION, "");
    rest(&mut world);
    assert_eq!((state(&world), world.disks.built), (ProvisioningState::Available, 1));
}

#[test]
fn a_bmc_that_cannot_list_its_drives_is_asked_three_times() {
    let mut world = new_world(2);
    world.faults.drives_not_listed = true;
    rest(&mut world);
    let status = world.host.as_ref().unwrap().status.clone().unwrap();
    assert_eq!((state(&world), status.error_count), (ProvisioningState::Preparing, 3));
    let message = &status.error_message;
    assert!(
        message.contains("does not list its drives: The attribute Drives is missing"),
        "{message}"
    );
    assert!(message.ends_with("it is not asked again until spec.raid changes"), "{message}");
    assert_eq!((world.disks.built, world.disks.erased), (0, 0));
    let asked =
        |world: &World| world.calls.iter().filter(|call| call.contains("inspect of")).count();
    assert_eq!(asked(&world), 4, "one inspection, and three attempts: {:?}", world.calls);
    // Settings that leave nothing open need no list.
    apply_settings(world.host.as_mut().unwrap(), 1);
    rest(&mut world);
    assert_eq!((state(&world), world.disks.built), (ProvisioningState::Available, 1));
}

/// Announced and never requested: the end of the inspection is not that of the cleaning.
#[test]
fn an_inspection_is_not_taken_for_an_erase_that_was_announced() {
    for rounds in 1..8 {
        let mut world = new_world(6);
        rest(&mut world);
        apply_settings(world.host.as_mut().unwrap(), 1);
        (0..rounds).for_each(|_| drop(world.round()));
        apply_settings(world.host.as_mut().unwrap(), 0);
        annotate(world.host.as_mut().unwrap(), names::INSPECT_ANNOTATION, "");
        rest(&mut world);
        let hardware = world.disks.hardware.clone();
        apply_settings(world.host.as_mut().unwrap(), 5);
        rest(&mut world);
        assert_eq!(state(&world), ProvisioningState::Available);
        assert!(world.disks.software.is_empty(), "after {rounds} rounds: {:?}", world.disks);
        assert_eq!(world.disks.hardware, hardware, "only what is requested is built");
    }
}

#[derive(Clone, Debug)]
enum Event {
    Settings(usize),
    Image(bool),
    Retain(bool),
    Kill(usize),
    Fault(usize),
    Inspect,
    LoseDatabase,
    Rounds(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..8_usize).prop_map(Event::Settings),
        any::<bool>().prop_map(Event::Image),
        any::<bool>().prop_map(Event::Retain),
        (0..5_usize).prop_map(Event::Kill),
        (0..8_usize).prop_map(Event::Fault),
        Just(Event::Inspect),
        Just(Event::LoseDatabase),
        (1..25_usize).prop_map(Event::Rounds),
    ]
}

fn disturb(world: &mut World, event: &Event) {
    let Some(host) = &mut world.host else { return };
    match event {
        Event::Settings(choice) => apply_settings(host, *choice),
        Event::Image(wanted) => host.spec.image = wanted.then(image),
        Event::Retain(true) => annotate(host, names::RETAIN_RAID_ANNOTATION, ""),
        Event::Retain(false) => {
            let all = host.metadata.annotations.get_or_insert_default();
            all.remove(names::RETAIN_RAID_ANNOTATION);
        }
        Event::Kill(after) => world.killed_after = Some(*after),
        Event::Fault(number) => {
            world.faults = Faults {
                ironic_down: *number == 0,
                bmc_down: *number == 1,
                silent: *number == 2,
                locked: *number == 3,
                refused: *number == 4,
                build_fails: *number == 5,
                erase_fails: *number == 6,
                deploy_fails: *number == 7,
                ..Faults::default()
            }
        }
        Event::Inspect => annotate(host, names::INSPECT_ANNOTATION, ""),
        Event::LoseDatabase => {
            (world.node, world.inventory) = (None, None);
            world.ports.clear();
        }
        Event::Rounds(_) => {}
    }
    let rounds = if let Event::Rounds(rounds) = event { *rounds } else { 1 };
    let mut state_before = state(world);
    for _ in 0..rounds {
        let (erased, retained) =
            (world.disks.erased, world.host.as_ref().is_some_and(raid::is_retained));
        world.round();
        let now = state(world);
        // Erased only for explicit settings that were recorded, or at the end of use.
        if world.disks.erased > erased {
            let ends = state_before == ProvisioningState::Deprovisioning;
            let recorded = world
                .host
                .as_ref()
                .and_then(|host| host.status.as_ref())
                .is_some_and(|status| status.provisioning.raid.is_some());
            assert!(
                ends || recorded && state_before == ProvisioningState::Preparing,
                "{state_before}"
            );
        }
        if state_before == ProvisioningState::Deprovisioning
            && now == ProvisioningState::Available
            && !retained
        {
            assert!(
                world.disks.hardware.is_empty() && world.disks.software.is_empty(),
                "{:?}",
                world.disks
            );
        }
        state_before = now;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 3000, ..ProptestConfig::default() })]

    /// No sequence of edits, faults and restarts erases RAID without explicit settings or deprovisioning, and none leaves
    /// it after a finished deprovisioning. Once the faults end, the host is what the spec asks for.
    // invariant: 1
    #[test]
    fn raid_follows_the_spec_whatever_happens(
        first in 0..7_usize, events in proptest::collection::vec(event(), 0..14), last in 0..7_usize,
    ) {
        let mut world = new_world(first);
        if first == 0 {
            world.disks.hardware = vec![HAND_MADE.to_owned()];
        }
        let only_left_alone = |event: &Event| !matches!(event, Event::Settings(_) | Event::Image(true));
        for event in &events {
            disturb(&mut world, event);
        }
        if first == 0 && events.iter().all(only_left_alone) {
            prop_assert_eq!(&world.disks.hardware, &[HAND_MADE.to_owned()]);
        }
        world.heal();
        let host = world.host.as_mut().unwrap();
        host.spec.image = None;
        apply_settings(host, last);
        rest(&mut world);
        let host = world.host.as_ref().unwrap();
        prop_assert_eq!(host.state(), ProvisioningState::Available, "{:#?}", host.status);
        prop_assert_eq!(error_of(&world), "");
        let wanted = raid::desired(host);
        if let Some(wanted) = wanted {
            let (hardware, software) = (wanted.hardware_raid_volumes.requested(), wanted.software_raid_volumes.requested());
            if let Some(volumes) = hardware {
                prop_assert_eq!(world.disks.hardware.len(), volumes.len(), "{:?}", world.disks);
            }
            if let Some(arrays) = software {
                prop_assert_eq!(world.disks.software.len(), arrays.len(), "{:?}", world.disks);
            }
        }
    }
}
