//! What a wipe may find on the device.

use super::*;
use crate::{
    claim::confirm::{Expected, verify},
    device::{Content, Facts, Found, group},
};
use quarry_api::node_inventory::Evidence;

fn facts(content: Content) -> Facts {
    let evidence = vec![Evidence { source: "sysfs:wwid".into(), value: "naa.5000c50000000001".into() }];
    Facts { name: "sda".into(), kind: "disk".into(), size: 20 << 30, removable: true, evidence, content, ..Facts::default() }
}

#[test]
fn what_was_erased_for_a_volume_is_not_erased_for_it_again() {
    let claim = Claim { identity: "wwn:5000c50000000001".into(), size: 20 << 30, ..Claim::default() };
    let asked = |expected: Expected, content: Content| verify(&claim, expected, &group(&[facts(content)], None, None, &[]), &Default::default());
    let data = || Content::Found(Found { fs_type: Some("ext4".into()), ..Found::default() });
    let (first, again) = (Expected::of_wipe(false), Expected::of_wipe(true));
    for content in [Content::Blank, Content::UnknownData, data()] {
        assert_eq!(asked(first, content), Ok(()));
    }
    assert_eq!(asked(again, Content::Blank), Ok(()), "killed before it could say so: nothing is left to do");
    for content in [Content::UnknownData, data()] {
        let why = asked(again, content).unwrap_err();
        assert!(again.explain(why).contains("set its persistentVolumeReclaimPolicy to Retain"));
    }
}
