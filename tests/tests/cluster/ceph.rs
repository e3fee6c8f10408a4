//! The real Ceph that the tests of OSDs use: the fixture works, and its objects are those of Rook.

use quarry_tests::{
    ceph::{BOOTSTRAP_USER, Ceph, NAMESPACE, disks::HandMade},
    lab::get,
};

#[test]
fn a_real_ceph_answers() {
    let ceph = Ceph::shared();
    let status = ceph.ceph(&["status"]);
    assert_eq!(status["fsid"], ceph.fsid.as_str(), "{status}");
    assert_eq!(status["quorum_names"], serde_json::json!(["a"]), "{status}");
    assert_eq!(status["osdmap"]["num_osds"], 0, "{status}");

    // The user for new OSDs is there from the start; Rook deletes it.
    let caps = ["auth", "get-or-create", BOOTSTRAP_USER, "mon", "allow profile bootstrap-osd"];
    let first = ceph.ceph(&caps);
    ceph.delete_bootstrap_user();
    let second = ceph.ceph(&caps);
    assert_ne!(first[0]["key"], second[0]["key"], "{first} {second}");
}

#[test]
fn another_cluster_has_its_own_fsid() {
    let ceph = Ceph::shared();
    let fsid = "11111111-2222-4333-8444-555555555555";
    ceph.join("other-ceph", fsid);
    let keys = |namespace: &str| {
        let secret = get(&["-n", namespace, "secret", "rook-ceph-mon"]).expect("it was applied");
        (secret["data"]["fsid"].clone(), secret["data"]["ceph-secret"].clone())
    };
    let (own, other) = (keys(NAMESPACE), keys("other-ceph"));
    assert_ne!(own.0, other.0);
    assert_eq!(own.1, other.1);
    quarry_tests::lab::kubectl(&["delete", "namespace", "other-ceph", "--wait=false"]);
    let made = HandMade::new("hand-made", 1, 300);
    assert_eq!(get(&["pv", "hand-made-0"]).unwrap()["spec"]["local"]["path"], made.disks[0].device);
}
