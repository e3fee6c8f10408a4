//! What a wipe may find on the device.

use super::*;
use crate::{
    device::{Content, Facts, Found, group},
    device_claim::confirm::{Expected, Remembered, verify},
};
use quarry_api::node_inventory::Evidence;

fn facts(content: Content) -> Facts {
    let evidence =
        vec![Evidence { source: "sysfs:wwid".into(), value: "naa.5000c50000000001".into() }];
    Facts {
        name: "sda".into(),
        kind: "disk".into(),
        size: 20 << 30,
        removable: true,
        evidence,
        content,
        ..Facts::default()
    }
}

#[test]
fn what_was_erased_for_a_volume_is_not_erased_for_it_again() {
    let claim = DeviceClaim {
        identity: "wwn:5000c50000000001".into(),
        size: 20 << 30,
        ..DeviceClaim::default()
    };
    let asked = |expected: Expected, content: Content| {
        verify(&claim, expected, &group(&[facts(content)], None, None, &[]), &Default::default())
    };
    let data = || Content::Found(Found { fs_type: Some("ext4".into()), ..Found::default() });
    let expected = |erased: bool| {
        Expected::of_wipe(&claim, &Remembered { erased, ..Remembered::default() }).unwrap()
    };
    let (first, again) = (expected(false), expected(true));
    for content in [Content::Blank, Content::UnknownData, data()] {
        assert_eq!(asked(first, content), Ok(()));
    }
    assert_eq!(
        asked(again, Content::Blank),
        Ok(()),
        "killed before it could say so: nothing is left to do"
    );
    for content in [Content::UnknownData, data()] {
        let why = asked(again, content).unwrap_err();
        assert!(again.explain(why).contains("set its persistentVolumeReclaimPolicy to Retain"));
    }
    assert_eq!(first.explain("busy".into()), "busy");
}

/// An API that was restored from a backup asks for what has been decided otherwise since.
#[test]
fn a_wipe_of_an_older_time_is_refused_by_the_node_itself() {
    let owner = |uid: &str| quarry_api::node_inventory::ClaimOwner {
        uid: uid.into(),
        ..Default::default()
    };
    let claim = DeviceClaim {
        identity: "wwn:1".into(),
        owner: owner("a"),
        round: 3,
        ..DeviceClaim::default()
    };
    let asked = |confirmed: Option<(&str, i64)>, kept: bool| {
        let confirmed = confirmed.map(|(owner, round)| (owner.to_owned(), round));
        Expected::of_wipe(&claim, &Remembered { confirmed, retained: kept, erased: false })
    };
    for confirmed in [None, Some(("a", 3)), Some(("a", 2))] {
        assert_eq!(asked(confirmed, false), Ok(Expected::Erasable), "{confirmed:?}");
        assert!(
            asked(confirmed, true)
                .unwrap_err()
                .contains("its data is kept: was the API restored from a backup?")
        );
    }
    for confirmed in [("a", 4), ("b", 1), ("b", 3)] {
        assert!(
            asked(Some(confirmed), false).unwrap_err().contains("given to another volume since"),
            "{confirmed:?}"
        );
    }
}
