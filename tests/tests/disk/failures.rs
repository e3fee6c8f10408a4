//! Failures on a node: full disks, lost devices, two agents, a removed file.

use quarry_api::node_job::FsType;
use quarry_core::job::Format;
use quarry_node::{
    Agent, AgentOptions, LinuxNode, VolumeOps,
    agent::{Restored, Workers},
};
use quarry_tests::disk::{
    Bed, Links, MIB, cleanup_order, fail, filesystem, new_uid, prepare_order, run, snatch, succeed,
    volumes_of,
};
use std::{fs, io::Write, sync::Arc};

fn restore(ops: &Arc<LinuxNode>) -> Restored {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // No API listens there, and none is needed: restoring devices makes no request.
        let client =
            kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap()))
                .unwrap();
        let agent =
            Agent::new(client, ops.clone(), Workers::pool(4).unwrap(), AgentOptions::new("n"));
        agent.restore().await.unwrap()
    })
}

// invariant: 9
#[test]
fn disk_full_during_format_is_reported_and_cleaned_up() {
    let bed = Bed::on(Links::Own, "3m");
    let (ops, uid) = (bed.ops(), new_uid());
    for (fs, size) in [(FsType::Xfs, 400 * MIB), (FsType::Ext4, 200 << 30)] {
        let why = fail(&ops, &prepare_order(&uid, size, filesystem(fs)));
        assert!(why.contains("is full, ") && why.contains(" would be free"), "{why}");
        bed.assert_clean(&uid);
    }
    // The same disk, still usable for what fits.
    succeed(&ops, &prepare_order(&uid, 4 * MIB, Format::Partition));
    succeed(&ops, &cleanup_order(&uid));
    bed.assert_clean(&uid);
}

// invariant: 10
#[test]
fn volume_on_a_full_disk_can_be_removed() {
    let bed = Bed::on(Links::Own, "3m");
    let (ops, uid) = (bed.ops(), new_uid());
    succeed(&ops, &prepare_order(&uid, 16 * MIB, Format::Partition));
    let mut filler = fs::File::create(bed.data.join("filler")).unwrap();
    while filler.write_all(&[7; 4096]).is_ok() {}
    succeed(&ops, &cleanup_order(&uid));
    assert_eq!(bed.loops(), Vec::<String>::new());
    let text = fs::read_to_string(bed.data.join("ledger")).unwrap();
    assert_eq!(text.matches("\"Cleanup\"").count(), 2, "intent and outcome were recorded: {text}");
}

#[test]
fn agent_start_restores_devices_despite_one_bad_volume() {
    for links in Links::BOTH {
        let bed = Bed::new(links);
        let ops = bed.ops();
        let (fs_uid, block_uid, bad_uid) = (new_uid(), new_uid(), new_uid());
        let fs_volume =
            succeed(&ops, &prepare_order(&fs_uid, 16 * MIB, filesystem(FsType::Ext4))).unwrap();
        let block_volume =
            succeed(&ops, &prepare_order(&block_uid, 16 * MIB, Format::Partition)).unwrap();
        let bad_volume =
            succeed(&ops, &prepare_order(&bad_uid, 16 * MIB, filesystem(FsType::Ext4))).unwrap();
        assert_eq!(
            restore(&ops).changed,
            Vec::<String>::new(),
            "everything is in place: nothing to do"
        );

        // As after a reboot.
        for volume in [&fs_volume, &block_volume, &bad_volume] {
            snatch(&volume.device_name);
        }
        // And one of them was replaced by something that is not a regular file.
        fs::remove_file(bed.file(&bad_uid)).unwrap();
        fs::create_dir(bed.file(&bad_uid)).unwrap();
        drop(ops);

        let ops = bed.ops();
        let restored = restore(&ops);
        let mut expected = vec![fs_uid.clone(), block_uid.clone()];
        expected.sort();
        assert_eq!(restored.changed, expected);
        assert_eq!(restored.failed.len(), 1);
        assert!(restored.failed[0].1.contains("not a plain file"), "{restored:?}");
        fs::remove_dir(bed.file(&bad_uid)).unwrap();
        let devices = volumes_of(&ops);
        let mut linked: Vec<&str> =
            devices.iter().filter_map(|device| device.link.as_deref()).collect();
        linked.sort();
        let mut wanted = [fs_volume.path.as_str(), block_volume.path.as_str()];
        wanted.sort();
        assert_eq!(linked, wanted);
        for uid in [&fs_uid, &block_uid, &bad_uid] {
            succeed(&ops, &cleanup_order(uid));
        }
        bed.assert_clean(&fs_uid);
        bed.assert_clean(&block_uid);
    }
}

#[test]
fn removed_backing_file_leaves_nothing_behind() {
    for format in [filesystem(FsType::Ext4), Format::Partition] {
        let bed = Bed::new(Links::Own);
        let (ops, uid) = (bed.ops(), new_uid());
        succeed(&ops, &prepare_order(&uid, 16 * MIB, format));
        fs::remove_file(bed.file(&uid)).unwrap();
        assert_eq!(
            ops.observe(&uid.as_str().into()).unwrap().loops.len(),
            1,
            "the loop is still known to be ours"
        );
        succeed(&ops, &cleanup_order(&uid));
        assert_eq!(bed.loops(), Vec::<String>::new());
    }
}

// invariant: 10
#[test]
fn second_agent_is_refused_with_the_pid_of_the_first() {
    let bed = Bed::new(Links::Own);
    let first = bed.ops();
    let error = LinuxNode::open(bed.host(), false).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("another agent runs on this node")
            && error.contains(&std::process::id().to_string()),
        "{error}"
    );
    drop(first);
    LinuxNode::open(bed.host(), false).map(drop).unwrap();
}

#[test]
fn read_only_flag_of_a_loop_number_is_cleared() {
    let bed = Bed::new(Links::Own);
    let (ops, uid) = (bed.ops(), new_uid());
    let result = succeed(&ops, &prepare_order(&uid, 16 * MIB, filesystem(FsType::Ext4))).unwrap();
    let device = format!("/dev/{}", result.device_name);
    run("blockdev", &["--setro", &device]);
    snatch(&result.device_name);
    let again = succeed(&ops, &prepare_order(&uid, 16 * MIB, filesystem(FsType::Ext4))).unwrap();
    assert_eq!(run("blockdev", &["--getro", &format!("/dev/{}", again.device_name)]).trim(), "0");
    run("blockdev", &["--setrw", &device]);
    succeed(&ops, &cleanup_order(&uid));
    bed.assert_clean(&uid);
}
