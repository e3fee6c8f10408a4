//! A Node object is deleted and the node registers again, with another UID: its device claims wait
//! frozen, then continue with their data. The machine is the same one.

use quarry_tests::{
    lab::{create_pvc, get, kubectl, pod, pod_output},
    nodes::{Disk, Set, agents_ready, installed, node_of, other_nodes, power_off, power_on},
};

// invariant: 5
#[test]
fn node_deleted_and_registered_again_keeps_its_volumes() {
    installed();
    let node = other_nodes()[0];
    let disk = Disk::new("registered", 120, &[node]);
    let set = Set::new("registered", 120);
    set.wait_available(1);
    create_pvc("registered", "registered", "Block", "100Mi");
    let write = "printf survives | dd of=/dev/data bs=1M seek=50 2>/dev/null && sync && echo done";
    pod("writer", "registered", true, write);
    assert_eq!(pod_output("writer"), "done");
    kubectl(&["delete", "pod", "writer"]);
    let before = set.pvs().remove(0);
    let uid = get(&["node", node]).unwrap_or_default()["metadata"]["uid"].clone();

    kubectl(&["delete", "node", node]);
    set.wait_stage(node, "Frozen");
    let frozen = set.pvs().remove(0);
    assert_eq!(frozen["metadata"]["uid"], before["metadata"]["uid"]);
    assert!(frozen["metadata"]["deletionTimestamp"].is_null(), "{frozen}");

    power_off(node);
    power_on(node);
    agents_ready();
    let registered = get(&["node", node]).unwrap_or_default()["metadata"]["uid"].clone();
    assert_ne!(registered, uid, "another Node object");
    set.wait_stage(node, "Bound");
    let after = set.pvs().remove(0);
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(node_of(&after), node);
    let read = "dd if=/dev/data bs=1M skip=50 count=1 2>/dev/null | head -c 8";
    pod("reader", "registered", true, read);
    assert_eq!(pod_output("reader"), "survives");
    assert!(disk.contains("survives"));
}
