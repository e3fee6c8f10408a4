//! The agent's half: what is confirmed, what may be erased.

use super::*;
use crate::{
    device::{BackingFile, Content, ExclusiveOpen, Facts, Found, GroupedDevice, group},
    device_claim::confirm::{ClaimAction, Expected, decide_action, find, previous, verify},
};
use quarry_api::{
    NodeInventorySpec,
    node_inventory::{ClaimOwner, Evidence, Quarantine},
};

/// Checked by the agent as well: the device may have changed since the last scan.
// invariant: 1
#[test]
fn the_agent_confirms_only_a_fitting_file_system() {
    let confirmed = |mode: VolumeMode, fs_type: Option<&str>, found: Found| {
        let claim = DeviceClaim {
            identity: "wwn:5000c50000000001".into(),
            size: 20 << 30,
            volume_mode: mode,
            fs_type: fs_type.map(str::to_owned),
            content: ClaimContent::Any,
            round: 1,
            ..DeviceClaim::default()
        };
        let facts = Facts {
            name: "sda".into(),
            kind: "disk".into(),
            size: 20 << 30,
            evidence: vec![Evidence {
                source: "sysfs:wwid".into(),
                value: "naa.5000c50000000001".into(),
            }],
            content: Content::Found(found),
            ..Facts::default()
        };
        let spec = NodeInventorySpec::default();
        verify(&claim, Expected::of_claim(&claim), &group(&[facts], None, None, &[]), &spec)
    };
    let one = |name: &str| Found { fs_type: Some(name.into()), ..Found::default() };
    let files = VolumeMode::Filesystem;
    assert_eq!(confirmed(files, None, one("btrfs")), Ok(()));
    assert_eq!(confirmed(files, Some("xfs"), one("xfs")), Ok(()));
    assert_eq!(confirmed(VolumeMode::Block, None, one("LVM2_member")), Ok(()));
    for (fs_type, found) in
        [(None, "LVM2_member"), (None, "crypto_LUKS"), (None, "vfat"), (Some("xfs"), "ext4")]
    {
        let refused = confirmed(files, fs_type, one(found)).unwrap_err();
        assert!(refused.contains(&format!("sda contains {found}")), "{refused}");
        assert!(refused.contains("set volumeMode to Block"), "{refused}");
    }
    let both = Found { ambivalent: vec!["ext4".into(), "xfs".into()], ..Found::default() };
    assert!(confirmed(files, None, both).is_err());
}

#[test]
fn the_agent_exposes_no_remnant_and_no_unrecognized_data() {
    let evidence =
        vec![Evidence { source: "sysfs:wwid".into(), value: "naa.5000c50000000001".into() }];
    let facts = |content| Facts {
        name: "sda".into(),
        kind: "disk".into(),
        size: 20 << 30,
        evidence: evidence.clone(),
        content,
        ..Facts::default()
    };
    let claim = |mode: VolumeMode, content: ClaimContent, round: i64| DeviceClaim {
        identity: "wwn:5000c50000000001".into(),
        size: 20 << 30,
        volume_mode: mode,
        content,
        round,
        last_pv: (round > 1).then(LastPv::default),
        ..DeviceClaim::default()
    };
    let entry = WipeRemnant {
        identity: "wwn:5000c50000000001".into(),
        pv_name: "p".into(),
        pv_uid: "u".into(),
        ..WipeRemnant::default()
    };
    let asked = |claim: &DeviceClaim, expected: Expected, content, wipe_remnants: bool| {
        let spec = NodeInventorySpec {
            wipe_remnants: wipe_remnants.then(|| entry.clone()).into_iter().collect(),
            ..NodeInventorySpec::default()
        };
        verify(claim, expected, &group(&[facts(content)], None, None, &[]), &spec)
    };
    for (mode, content) in [
        (VolumeMode::Block, ClaimContent::Blank),
        (VolumeMode::Block, ClaimContent::Any),
        (VolumeMode::Filesystem, ClaimContent::Blank),
    ] {
        let (first, second) = (claim(mode, content, 1), claim(mode, content, 2));
        let refused = mode == VolumeMode::Block;
        assert_eq!(
            asked(&first, Expected::of_claim(&first), Content::Blank, true).is_err(),
            refused,
            "{mode:?} {content:?}"
        );
        assert_eq!(
            asked(&second, Expected::of_claim(&second), Content::Blank, true),
            Ok(()),
            "the class's own way of wiping"
        );
        assert_eq!(
            asked(&first, Expected::Erasable, Content::Blank, true),
            Ok(()),
            "what is erased is no longer there"
        );
    }
    // A signature that says nothing about itself is still one.
    let nameless = || Content::Found(crate::device::Found::default());
    let blank = claim(VolumeMode::Filesystem, ClaimContent::Blank, 1);
    assert!(asked(&blank, Expected::Blank, nameless(), false).is_err());
    assert_eq!(asked(&blank, Expected::Erasable, nameless(), false), Ok(()));
    // Other devices' claims say nothing about this one.
    let others = NodeInventorySpec {
        device_claims: vec![
            blank.clone(),
            DeviceClaim { identity: "wwn:9".into(), ..blank.clone() },
        ],
        ..NodeInventorySpec::default()
    };
    assert_eq!(
        verify(&blank, Expected::Blank, &group(&[facts(Content::Blank)], None, None, &[]), &others),
        Ok(())
    );
    // Retained data is only for the first round of a path that has adopted it; a wipe ends it.
    let spec = NodeInventorySpec {
        retained_data: vec![RetainedData {
            identity: entry.identity.clone(),
            pv_name: entry.pv_name.clone(),
            pv_uid: entry.pv_uid.clone(),
            ..RetainedData::default()
        }],
        ..NodeInventorySpec::default()
    };
    let kept = |content: ClaimContent, round: i64, expected: Expected| {
        verify(
            &claim(VolumeMode::Filesystem, content, round),
            expected,
            &group(&[facts(Content::Blank)], None, None, &[]),
            &spec,
        )
        .is_ok()
    };
    assert_eq!(
        [
            kept(ClaimContent::Any, 1, Expected::Named),
            kept(ClaimContent::Any, 2, Expected::Named),
            kept(ClaimContent::Any, 2, Expected::Any)
        ],
        [true, false, false]
    );
    assert_eq!(
        [
            kept(ClaimContent::Blank, 1, Expected::Blank),
            kept(ClaimContent::Blank, 1, Expected::Erasable),
            kept(ClaimContent::Blank, 2, Expected::Erasable)
        ],
        [false, true, true]
    );
    let (block, files) = (
        claim(VolumeMode::Block, ClaimContent::Any, 1),
        claim(VolumeMode::Filesystem, ClaimContent::Any, 1),
    );
    assert_eq!(
        (Expected::of_claim(&block), Expected::of_claim(&files)),
        (Expected::Any, Expected::Named)
    );
    assert_eq!(asked(&block, Expected::Any, Content::UnknownData, false), Ok(()));
    let table = || Content::Found(Found { table: Some("gpt".into()), ..Found::default() });
    assert!(asked(&block, Expected::Any, table(), false).is_err());
    assert_eq!(asked(&block, Expected::Erasable, table(), false), Ok(()));
    assert!(
        asked(&files, Expected::Named, Content::UnknownData, false).is_err(),
        "kubelet would format it"
    );
    let found = || {
        Content::Found(crate::device::Found { fs_type: Some("ext4".into()), ..Default::default() })
    };
    assert_eq!(
        (
            asked(&block, Expected::Any, found(), false),
            asked(&files, Expected::Named, found(), false)
        ),
        (Ok(()), Ok(()))
    );
}

const IDENTITY: &str = "wwn:5000c50000000001";

fn facts(name: &str, wwn: &str) -> Facts {
    Facts {
        name: name.into(),
        kind: "disk".into(),
        size: 4096,
        evidence: vec![Evidence { source: "sysfs:wwid".into(), value: format!("naa.{wwn}") }],
        exclusive_open: ExclusiveOpen::Exclusively,
        content: Content::Blank,
        ..Facts::default()
    }
}

fn claim() -> DeviceClaim {
    DeviceClaim {
        identity: IDENTITY.into(),
        size: 4096,
        round: 1,
        owner: ClaimOwner { uid: "u".into(), ..ClaimOwner::default() },
        ..DeviceClaim::default()
    }
}

fn spec() -> NodeInventorySpec {
    NodeInventorySpec { device_claims: vec![claim()], ..NodeInventorySpec::default() }
}

fn known(seen: &[Facts]) -> Vec<GroupedDevice> {
    group(seen, None, None, &[])
}

const ALL: [Expected; 4] = [Expected::Blank, Expected::Any, Expected::Erasable, Expected::Erased];

/// For which of the four the device would do.
fn good_for(change: impl Fn(&mut Facts)) -> Vec<Expected> {
    let mut disk = facts("sda", "5000c50000000001");
    change(&mut disk);
    ALL.into_iter()
        .filter(|expected| {
            verify(&claim(), *expected, &known(std::slice::from_ref(&disk)), &spec()).is_ok()
        })
        .collect()
}

#[test]
fn only_an_unused_device_as_claimed_is_confirmed() {
    let found = |fs: Option<&str>, table: Option<&str>| {
        Content::Found(Found {
            fs_type: fs.map(str::to_owned),
            table: table.map(str::to_owned),
            ..Found::default()
        })
    };
    assert_eq!(good_for(|_| {}), ALL);
    assert_eq!(
        good_for(|disk| disk.not_local = Some("iscsi".into())),
        ALL,
        "decided when it was claimed"
    );
    assert_eq!(
        good_for(|disk| disk.content = found(Some("ext4"), None)),
        [Expected::Any, Expected::Erasable]
    );
    assert_eq!(
        good_for(|disk| disk.content = found(None, Some("gpt"))),
        [Expected::Erasable],
        "its partitions are devices of their own"
    );
    // Something was found, whatever it is: that is not blank.
    assert_eq!(
        good_for(|disk| disk.content = found(None, None)),
        [Expected::Any, Expected::Erasable]
    );
    assert_eq!(
        good_for(|disk| disk.content = Content::UnknownData),
        [Expected::Any, Expected::Erasable]
    );
    assert_eq!(
        good_for(|disk| disk.removable = true),
        [Expected::Any, Expected::Erasable, Expected::Erased]
    );
    assert_eq!(good_for(|disk| disk.partitions = vec!["sda1".into()]), [Expected::Erasable]);
    let nobody: [fn(&mut Facts); 14] = [
        |disk| disk.mounts = vec!["/mnt".into()],
        |disk| disk.swap = true,
        |disk| disk.holders = vec!["dm-0".into()],
        |disk| disk.loops_on_top = vec!["loop1".into()],
        |disk| disk.backs = vec!["pv".into()],
        |disk| disk.volume_uid = Some("v".into()),
        |disk| disk.read_only = true,
        |disk| disk.observed_only = true,
        |disk| disk.state = Some("suspended".into()),
        |disk| disk.size = 8192,
        |disk| disk.content = Content::Unread,
        |disk| disk.content = Content::TimedOut,
        |disk| disk.content = Content::Unreadable("EIO".into()),
        |disk| disk.evidence[0].value = "naa.5000c50000000002".into(),
    ];
    for (number, change) in nobody.into_iter().enumerate() {
        assert_eq!(good_for(change), [], "{number}");
    }
}

#[test]
fn a_partition_in_use_blocks_the_wipe_of_its_disk() {
    let disk = Facts { partitions: vec!["sda1".into()], ..facts("sda", "5000c50000000001") };
    let part = Facts {
        name: "sda1".into(),
        kind: "part".into(),
        parent: Some("sda".into()),
        evidence: vec![],
        ..facts("sda1", "5000c50000000001")
    };
    let with = |change: fn(&mut Facts)| {
        let mut part = part.clone();
        change(&mut part);
        verify(&claim(), Expected::Erasable, &known(&[disk.clone(), part]), &spec())
    };
    assert_eq!(with(|_| {}), Ok(()));
    let used: [fn(&mut Facts); 6] = [
        |part| part.mounts = vec!["/data".into()],
        |part| part.swap = true,
        |part| part.holders = vec!["md0".into()],
        |part| part.loops_on_top = vec!["loop2".into()],
        |part| part.backs = vec!["pv".into()],
        |part| part.volume_uid = Some("v".into()),
    ];
    for change in used {
        assert!(with(change).unwrap_err().contains("sda1, a partition of sda"));
    }
}

/// Of a device that looks blank and is on record as used: for which of the four it would do.
#[test]
fn retained_data_is_for_a_wipe_or_a_later_path() {
    let devices = known(&[facts("sda", "5000c50000000001")]);
    let good_for = |identity: &str, round: i64| {
        let last_pv = (round > 1).then(LastPv::default);
        let claim = DeviceClaim { round, last_pv, ..claim() };
        let kept = vec![RetainedData {
            identity: identity.into(),
            pv_name: "local-pv-1".into(),
            pv_uid: "a".into(),
            ..RetainedData::default()
        }];
        let spec = NodeInventorySpec {
            device_claims: vec![claim.clone()],
            retained_data: kept,
            ..NodeInventorySpec::default()
        };
        ALL.into_iter()
            .filter(|expected| verify(&claim, *expected, &devices, &spec).is_ok())
            .collect::<Vec<_>>()
    };
    assert_eq!((good_for("wwn:9", 1), good_for("wwn:9", 2)), (ALL.to_vec(), ALL.to_vec()));
    assert_eq!(good_for(IDENTITY, 1), [Expected::Any, Expected::Erasable, Expected::Erased]);
    assert_eq!(good_for(IDENTITY, 2), [Expected::Erasable, Expected::Erased]);
}

#[test]
fn cluster_knowledge_counts_for_confirmation() {
    let devices = known(&[facts("sda", "5000c50000000001")]);
    let check = |spec: &NodeInventorySpec| verify(&claim(), Expected::Blank, &devices, spec);
    assert_eq!(check(&spec()), Ok(()));
    let rival = DeviceClaim {
        owner: ClaimOwner {
            kind: "LocalVolumeSet".into(),
            name: "late".into(),
            uid: "x".into(),
            ..ClaimOwner::default()
        },
        ..claim()
    };
    assert!(
        check(&NodeInventorySpec { device_claims: vec![claim(), rival], ..spec() })
            .unwrap_err()
            .contains("is also claimed by LocalVolumeSet late")
    );
    let held = Quarantine {
        identity: IDENTITY.into(),
        reason: "IdentityChanged".into(),
        detail: "it was x".into(),
    };
    assert!(
        check(&NodeInventorySpec { quarantine: vec![held], ..spec() })
            .unwrap_err()
            .contains("is quarantined: IdentityChanged it was x")
    );
    let other = Quarantine {
        identity: "wwn:9".into(),
        reason: "IdentityChanged".into(),
        detail: String::new(),
    };
    assert_eq!(check(&NodeInventorySpec { quarantine: vec![other], ..spec() }), Ok(()));
    assert_eq!(check(&NodeInventorySpec { unmanaged_pvs_omitted: Some(0), ..spec() }), Ok(()));
    assert!(check(&NodeInventorySpec { unmanaged_pvs_omitted: Some(1), ..spec() }).is_err());
}

// invariant: 3
#[test]
fn what_is_built_on_a_claimed_disk_has_its_owner() {
    let top = Facts {
        name: "dm-1".into(),
        kind: "lvm".into(),
        slaves: vec!["sda".into()],
        ..facts("dm-1", "5000c50000000009")
    };
    let devices = known(&[facts("sda", "5000c50000000001"), top]);
    let on_top = DeviceClaim { identity: "wwn:5000c50000000009".into(), ..claim() };
    let spec = |claims: Vec<DeviceClaim>| NodeInventorySpec {
        device_claims: claims,
        ..NodeInventorySpec::default()
    };
    assert_eq!(verify(&on_top, Expected::Blank, &devices, &spec(vec![on_top.clone()])), Ok(()));
    let refused = verify(&on_top, Expected::Blank, &devices, &spec(vec![claim(), on_top.clone()]))
        .unwrap_err();
    assert!(refused.contains("dm-1 is on a device that is claimed by"), "{refused}");
}

#[test]
fn exactly_one_device_has_the_identity() {
    let one = facts("sda", "5000c50000000001");
    assert_eq!(
        find(&claim(), &known(std::slice::from_ref(&one))).map(|known| known.facts.name.clone()),
        Ok("sda".into())
    );
    assert!(find(&claim(), &known(&[])).unwrap_err().contains("is missing"));
    let twice = known(&[one.clone(), Facts { name: "sdb".into(), ..one.clone() }]);
    assert!(find(&claim(), &twice).unwrap_err().contains("sda and sdb both have the identity"));
    assert!(verify(&claim(), Expected::Erasable, &twice, &spec()).is_err());
    // A loop under two names, by its file.
    let file = |name: &str| Facts {
        backing: Some(BackingFile {
            path: "/f".into(),
            deleted: false,
            file: Some("8:1/7".into()),
        }),
        name: name.into(),
        ..one.clone()
    };
    assert!(
        verify(
            &claim(),
            Expected::Blank,
            &known(&[file("loop1"), Facts { evidence: vec![], ..file("loop2") }]),
            &spec()
        )
        .is_err()
    );
}

#[test]
fn the_agents_action_for_a_device_claim() {
    let report = |state: ClaimState, round: i64| ClaimReport {
        identity: IDENTITY.into(),
        owner_uid: "u".into(),
        round,
        state,
        ..ClaimReport::default()
    };
    let confirmed = report(ClaimState::Confirmed, 1);
    let ending = DeviceClaim { terminating: true, ..claim() };
    let working = DeviceClaim { job: Some(ClaimJob::default()), ..claim() };
    let (none, frozen, outdated) = ((false, false), (true, false), (false, true));
    for (claim, last, (is_frozen, is_outdated), expected) in [
        (claim(), None, none, ClaimAction::Confirm),
        (claim(), Some(report(ClaimState::Refused, 1)), none, ClaimAction::Confirm),
        (claim(), Some(confirmed.clone()), none, ClaimAction::Keep),
        (claim(), Some(confirmed.clone()), frozen, ClaimAction::Frozen),
        (claim(), Some(confirmed.clone()), (true, true), ClaimAction::Frozen),
        (claim(), Some(confirmed.clone()), outdated, ClaimAction::Outdated),
        (claim(), None, outdated, ClaimAction::Outdated),
        (ending.clone(), Some(confirmed.clone()), none, ClaimAction::End),
        (ending.clone(), Some(confirmed.clone()), outdated, ClaimAction::End),
        (ending, None, frozen, ClaimAction::Frozen),
        (working.clone(), None, none, ClaimAction::Wait),
        (working, Some(confirmed.clone()), none, ClaimAction::Keep),
    ] {
        assert_eq!(
            decide_action(&claim, last.as_ref(), is_frozen, is_outdated),
            expected,
            "{claim:?} {last:?}"
        );
    }
    let recorded = NodeInventorySpec {
        machine_id: Some("m1".into()),
        ledger_id: Some("l1".into()),
        ..NodeInventorySpec::default()
    };
    let other = |spec: &NodeInventorySpec, machine: &str, ledger: Option<&str>| {
        (is_other_machine(spec, Some(Some(machine))), is_other_ledger(spec, ledger))
    };
    assert_eq!(other(&recorded, "m1", Some("l1")), (false, false));
    assert_eq!(other(&recorded, "m2", Some("l2")), (true, true));
    assert_eq!(other(&recorded, "m1", None), (false, false), "not reported yet");
    assert_eq!(other(&NodeInventorySpec::default(), "m2", Some("l2")), (false, false));
    let status = NodeInventoryStatus {
        device_claims: vec![report(ClaimState::Confirmed, 2), confirmed.clone()],
        ..NodeInventoryStatus::default()
    };
    assert_eq!(previous(&claim(), Some(&status)), Some(&confirmed), "of this round");
    assert_eq!(previous(&DeviceClaim { round: 3, ..claim() }, Some(&status)), None);
    assert_eq!(previous(&claim(), None), None);
}

/// Everything that identified the disk when it was claimed is asked for again.
// invariant: 3
#[test]
fn a_wipe_needs_a_world_wide_name_or_the_same_evidence() {
    let disk = |wwn: Option<&str>, serial: Option<&str>| {
        let of =
            |source: &str, value: &str| Evidence { source: source.into(), value: value.into() };
        let mut disk = facts("sda", "0");
        disk.evidence = wwn.map(|wwn| of("sysfs:wwid", wwn)).into_iter().collect();
        disk.evidence.extend(serial.map(|serial| of("sysfs:serial", serial)));
        disk
    };
    let judge = |identity: &str, identifiers: &[&str], disk: Facts| {
        let claim = DeviceClaim {
            identity: identity.into(),
            identifiers: identifiers.iter().map(|one| (*one).to_owned()).collect(),
            ..claim()
        };
        let spec = NodeInventorySpec {
            device_claims: vec![claim.clone()],
            ..NodeInventorySpec::default()
        };
        let of = |expected| verify(&claim, expected, &known(std::slice::from_ref(&disk)), &spec);
        (of(Expected::Blank).err(), of(Expected::Erasable).err())
    };
    let (wwn, same, other) = (IDENTITY, Some("naa.5000c50000000001"), Some("naa.5000c50000000002"));
    let both = [wwn, "serial::S1"];
    assert_eq!(judge(wwn, &both, disk(same, Some("S1"))), (None, None));
    let (confirm, wipe) = judge(wwn, &both, disk(same, None));
    assert!(confirm.unwrap().contains("does not show serial::S1 any more"));
    assert_eq!(wipe, None, "a world-wide name is enough");
    let (confirm, wipe) = judge(wwn, &both, disk(None, Some("S1")));
    assert!(confirm.is_some() && wipe.unwrap().contains("does not show wwn:"));
    let (confirm, wipe) = judge("serial::S1", &both, disk(other, Some("S1")));
    assert!(confirm.is_some(), "{confirm:?}");
    assert!(wipe.is_some(), "another disk with the same serial: {wipe:?}");
    let (confirm, wipe) = judge(wwn, &both, disk(same, Some("S2")));
    assert!(confirm.is_some() && wipe.unwrap().contains("different identity than before"));
    // Claimed by its serial alone, and that is all it shows.
    assert_eq!(judge("serial::S1", &["serial::S1"], disk(None, Some("S1"))), (None, None));
    assert_eq!(judge("serial::S1", &["serial::S1"], disk(other, Some("S1"))), (None, None));
}

// invariant: 2
#[test]
fn two_device_claims_never_share_a_link() {
    let mut disk = facts("sda", "5000c50000000001");
    disk.content = Content::Blank;
    let link = "/mnt/local-storage/fast/wwn-1".to_owned();
    let claim = DeviceClaim { link: link.clone(), ..claim() };
    let other = DeviceClaim { identity: "wwn:9".into(), link, ..claim.clone() };
    let spec = |claims: &[&DeviceClaim]| NodeInventorySpec {
        device_claims: claims.iter().map(|one| (*one).clone()).collect(),
        ..NodeInventorySpec::default()
    };
    let known = known(&[disk]);
    let ask = |spec: &NodeInventorySpec| verify(&claim, Expected::Blank, &known, spec);
    assert_eq!(ask(&spec(&[&claim])), Ok(()));
    assert!(ask(&spec(&[&claim, &other])).unwrap_err().contains("is also that of device wwn:9"));
}
