//! One disk on several nodes: moved, shared, pulled. Its identity is its world-wide name, so all
//! nodes know that it is the same one.

use quarry_tests::{
    lab::{get, until},
    nodes::{Disk, LIMIT, Set, installed, is_available, node_of},
};
use serde_json::Value;

/// The PersistentVolumes on a device, by the annotation that names its identity.
fn on_device<'a>(pvs: &'a [Value], identity: &Value) -> Vec<&'a Value> {
    let annotation =
        |pv: &&Value| pv["metadata"]["annotations"]["quarry.dev/device-identity"] == *identity;
    pvs.iter().filter(annotation).collect()
}

/// The identities that a node has device claims on.
fn claimed(node: &str) -> Vec<Value> {
    let inventory = get(&["nodeinventory", node]).unwrap_or_default();
    let claims = inventory["spec"]["deviceClaims"].as_array().cloned().unwrap_or_default();
    claims.into_iter().map(|claim| claim["identity"].clone()).collect()
}

fn wait_not_listed(disk: &Disk, node: &str) {
    until(&format!("{node} does not list {}", disk.name), LIMIT, || match disk.on(node) {
        None => Ok(()),
        Some(device) => Err(device.to_string()),
    });
}

// invariant: 3
#[test]
fn a_disk_shown_by_two_nodes_is_not_claimed() {
    installed();
    let disk = Disk::new("lun", 80, &["n1", "n2"]);
    let alone = Disk::new("alone", 80, &["n3"]);
    let set = Set::new("lun", 80);
    for node in ["n1", "n2"] {
        disk.wait_listed(node, &["IdentityElsewhere"]);
    }
    let pvs = set.wait_available(1);
    assert_eq!(node_of(&pvs[0]), "n3", "{pvs:?}");
    assert!(claimed("n1").is_empty() && claimed("n2").is_empty(), "quarantined on both");
    // Left to one node, it is not uncertain any more.
    disk.plug(&["n2"]);
    let pvs = set.wait_available(2);
    let mut nodes: Vec<&str> = pvs.iter().map(node_of).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["n2", "n3"]);
    drop((set, alone));
}

// invariant: 3
#[test]
fn a_later_rival_withdraws_no_published_volume() {
    installed();
    let disk = Disk::new("rival", 88, &["n1"]);
    let barrier = Disk::new("barrier", 88, &[]);
    let set = Set::new("rival", 88);
    let before = set.wait_available(1);
    let identity = disk.wait_listed("n1", &[])["identity"].clone();
    disk.plug(&["n1", "n2"]);
    disk.wait_listed("n2", &["IdentityElsewhere"]);
    // Device claims are planned for all devices of a node at once: when the next disk of n1 is
    // published, its plan has seen the rival.
    barrier.plug(&["n1"]);
    let pvs = set.wait_pvs("the PersistentVolume of the next disk", |pvs| {
        pvs.iter().any(|pv| {
            is_available(pv)
                && pv["metadata"]["annotations"]["quarry.dev/device-identity"] != identity
        })
    });
    let [kept] = on_device(&pvs, &identity)[..] else { panic!("{pvs:?}") };
    assert_eq!(kept["metadata"]["uid"], before[0]["metadata"]["uid"], "never recreated");
    assert!(is_available(kept), "not withdrawn: {kept}");
    assert!(claimed("n2").is_empty(), "the rival gets no device claim");
    disk.plug(&["n1"]);
    wait_not_listed(&disk, "n2");
    let pvs = set.wait_available(2);
    let [kept] = on_device(&pvs, &identity)[..] else { panic!("{pvs:?}") };
    assert_eq!(kept["metadata"]["uid"], before[0]["metadata"]["uid"]);
    drop((set, barrier));
}

// invariant: 3
#[test]
fn a_claimed_disk_that_moves_or_is_pulled_stays_claimed() {
    installed();
    let disk = Disk::new("roaming", 104, &["n1"]);
    let set = Set::new("roaming", 104);
    set.wait_available(1);
    let identity = disk.wait_listed("n1", &[])["identity"].clone();
    disk.plug(&["n2"]);
    disk.wait_listed("n2", &["IdentityElsewhere"]);
    set.wait_stage("n1", "Missing");
    assert!(claimed("n2").is_empty(), "n1 has its device claim still");
    assert_eq!(claimed("n1"), std::slice::from_ref(&identity));
    disk.plug(&["n1"]);
    wait_not_listed(&disk, "n2");
    let pvs = set.wait_available(1);
    assert_eq!(node_of(&pvs[0]), "n1");
    disk.plug(&[]);
    wait_not_listed(&disk, "n1");
    set.wait_stage("n1", "Missing");
    assert_eq!(claimed("n1"), std::slice::from_ref(&identity), "a pulled disk is still claimed");
    disk.plug(&["n1"]);
    set.wait_stage("n1", "Available");
    let pvs = set.wait_available(1);
    assert_eq!(on_device(&pvs, &identity).len(), 1, "one PersistentVolume per device: {pvs:?}");
}
