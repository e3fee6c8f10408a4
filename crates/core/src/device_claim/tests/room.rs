//! Nodes with more device claims or paths than a NodeInventory can hold.

use super::{
    status::{condition, observed},
    *,
};
use crate::{
    device_claim::status::decide as say,
    inventory_room::{OBJECT, PATHS, bytes},
};
use quarry_api::node_inventory::Evidence;

/// Of a multipath disk with four paths, as on the largest nodes.
fn multipath(number: usize) -> Device {
    let wwn = format!("600a098038303742695d4933{number:08x}");
    let evidence = [
        ("sysfs:wwid", format!("naa.{wwn}")),
        ("udev:ID_WWN_WITH_EXTENSION", format!("0x{wwn}")),
        ("udev:ID_SERIAL", format!("3{wwn}")),
    ];
    let evidence = evidence.map(|(source, value)| Evidence { source: source.into(), value });
    Device {
        name: format!("dm-{number}"),
        kind: "mpath".into(),
        identity: Some(format!("wwn:{wwn}")),
        device_id: Some(format!("/dev/disk/by-id/dm-uuid-mpath-3{wwn}")),
        mapped_name: Some(format!("mpath{number}")),
        paths: (0..4).map(|path| format!("sd{}", 4 * number + path)).collect(),
        evidence: evidence.into(),
        model: Some("LUN C-Mode".into()),
        vendor: Some("NETAPP".into()),
        ..disk("dm", 1)
    }
}

fn object_size(world: &NodeWorld) -> usize {
    bytes(&world.inventory.spec) + bytes(&world.inventory.status)
}

// invariant: 9
#[test]
fn a_node_takes_no_more_device_claims_than_fit() {
    let any = json!({"deviceInclusionSpec": {"deviceTypes": ["mpath"]}});
    let of = |count: usize| {
        let devices = (0..count).map(multipath).collect();
        let mut world = world(vec![set("fast", 1, any.clone())], devices);
        for _ in 0..3 {
            step(&mut world);
            confirm(&mut world);
            assert!(object_size(&world) < 3 << 19, "{count}: {}", object_size(&world));
        }
        world
    };
    let thousand = of(1000);
    assert_eq!(thousand.inventory.spec.device_claims.len(), 1000);
    assert!(object_size(&thousand) <= OBJECT, "{}", object_size(&thousand));
    let update = say(&observed(&thousand, "uid-fast", vec![]), now());
    assert_eq!(condition(&update, "Degraded").0, "False");

    let many = of(1600);
    let claims = many.inventory.spec.device_claims.len();
    assert!((900..1600).contains(&claims), "{claims}");
    let count = |word: &str| {
        eligibilities(&many, "uid-fast").iter().filter(|(_, found)| *found == word).count()
    };
    assert_eq!((count("Claimed"), count("NoRoom")), (claims, 1600 - claims));
    let update = say(&observed(&many, "uid-fast", vec![]), now());
    let (status, _, text) = condition(&update, "Degraded");
    assert_eq!(status, "True");
    assert!(text.contains("has no room for another device claim"), "{text}");
    assert!(text.contains("exclude devices that are not needed"), "{text}");
    // What the planner leaves out, `check` refuses.
    let fresh = world(vec![set("fast", 1, any)], (0..6000).map(multipath).collect());
    let more: Vec<DeviceClaim> = (0..6000)
        .map(|number| DeviceClaim {
            identity: multipath(number).identity.unwrap(),
            ..many.inventory.spec.device_claims[0].clone()
        })
        .collect();
    let plan = Plan { claims: more, ..Plan::default() };
    assert!(check(&fresh, &plan).contains(&Violation::TooLarge));
}

// invariant: 9
#[test]
fn a_node_is_asked_about_no_more_paths_than_fit() {
    let paths: Vec<String> = (0..6400).map(|n| format!("/dev/disk/by-id/wwn-{n:040}")).collect();
    let volumes = paths.chunks(1000).enumerate().map(|(number, paths)| {
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        local_volume(&format!("lv{number}"), &paths)
    });
    let mut world = world(volumes.collect(), vec![disk("sda", 1)]);
    let asked = step(&mut world).paths;
    let size: usize = asked.iter().map(String::len).sum();
    assert!((900..6400).contains(&asked.len()) && 2 * size <= PATHS, "{}", asked.len());
    assert_eq!(asked, paths[..asked.len()], "the same ones every time");
    let result = |world: &NodeWorld, path: usize| {
        let rows = eligibilities(world, &format!("uid-lv{}", path / 1000));
        rows.into_iter().find(|(device, _)| *device == paths[path]).unwrap().1
    };
    assert_eq!((result(&world, 0), result(&world, 6399)), ("Waiting", "NoRoom"));
    let update = say(&observed(&world, "uid-lv6", vec![]), now());
    let (status, _, text) = condition(&update, "Degraded");
    assert_eq!(status, "True");
    assert!(text.contains("LocalVolumes name more paths than"), "{text}");
    assert!(text.contains("remove paths that do not exist on the node"), "{text}");
    // Once the first are claimed or removed, the next ones are resolved.
    world.demands.remove(0);
    assert_eq!(step(&mut world).paths, paths[1000..1000 + asked.len()]);
}
