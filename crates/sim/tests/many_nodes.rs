//! Many nodes with 24 disks each, in virtual time: the real controllers on the embedded API, agents that only answer.
//! QUARRY_SIM_NODES=60 for fewer.

use quarry_sim::many_nodes::{Claimed, claim_everything};

const DEVICES: usize = 24;

// invariant: 8
#[test]
fn all_devices_become_pvs_and_then_nothing_is_written() {
    let nodes =
        std::env::var("QUARRY_SIM_NODES").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let begun = std::time::Instant::now();
    let Claimed { volumes, said, writes, at_rest } = claim_everything(nodes, DEVICES).unwrap();
    println!(
        "sim: {nodes} nodes x {DEVICES} devices: {volumes} PersistentVolumes, {:.2} writes a PersistentVolume, {at_rest} at rest ({:.1} s)",
        writes as f64 / volumes as f64,
        begun.elapsed().as_secs_f32()
    );
    assert_eq!((volumes, said, at_rest), (nodes * DEVICES, nodes * DEVICES, 0));
    assert!(writes <= 4 * volumes as u64, "{writes} writes");
}
