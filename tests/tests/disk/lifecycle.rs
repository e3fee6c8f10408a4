//! From nothing to a device with a link, and back to nothing.

use quarry_api::node_job::FsType;
use quarry_core::{job::Format, storage::sparse::Observed};
use quarry_node::VolumeOps;
use quarry_tests::disk::{
    Bed, Links, MIB, Mounted, cleanup_order, drop_partitions, filesystem, new_uid, prepare_order,
    run, snatch, succeed, volumes_of,
};
use std::{fs, os::unix::fs::MetadataExt, time::Instant};

fn blkid(path: &str, tag: &str) -> String {
    run("blkid", &["-p", "-o", "value", "-s", tag, path]).trim().to_owned()
}

#[test]
fn file_system_volume_is_prepared_and_removed() {
    for links in Links::BOTH {
        // Sizes that are not a multiple of any block or sector: the file still has the exact size.
        for (fs, size) in [(FsType::Ext4, 16 * MIB + 4321), (FsType::Xfs, 320 * MIB + 77)] {
            let bed = Bed::new(links);
            let (ops, uid) = (bed.ops(), new_uid());
            let result = succeed(&ops, &prepare_order(&uid, size, filesystem(fs))).unwrap();
            assert_eq!(result.path, format!("/dev/disk/by-uuid/{uid}"));
            assert_eq!(result.capacity, size as i64);
            assert_eq!(bed.loops(), [result.device_name.as_str()]);
            let meta = fs::metadata(bed.file(&uid)).unwrap();
            assert_eq!(meta.len(), size, "exact to the byte");
            assert!(meta.blocks() * 512 < size, "sparse");
            let link = bed.at(&result.path).to_string_lossy().into_owned();
            assert_eq!(blkid(&link, "UUID"), uid);
            assert_eq!(blkid(&link, "TYPE"), fs.as_str());

            let mount = Mounted::new(&[&link], &bed.data.join("mnt"));
            fs::write(mount.0.join("hello"), "world").unwrap();
            drop(mount);

            let devices = volumes_of(&ops);
            assert_eq!(devices.len(), 1);
            assert_eq!(
                (devices[0].volume_uid.as_deref(), devices[0].link.as_deref()),
                (Some(uid.as_str()), Some(result.path.as_str()))
            );
            assert_eq!(devices[0].name, result.device_name);
            assert!(
                devices[0].backing.as_ref().unwrap().path.ends_with(&format!("data/volumes/{uid}"))
            );

            succeed(&ops, &cleanup_order(&uid));
            bed.assert_clean(&uid);
            assert!(volumes_of(&ops).is_empty());
        }
    }
}

#[test]
fn block_volume_is_one_partition_for_every_tool() {
    for links in Links::BOTH {
        let bed = Bed::new(links);
        let (ops, uid) = (bed.ops(), new_uid());
        let size = 64 * MIB + 512 * 3;
        let result = succeed(&ops, &prepare_order(&uid, size, Format::Partition)).unwrap();
        assert_eq!(result.path, format!("/dev/disk/by-partlabel/{uid}"));
        let file = bed.file(&uid).to_string_lossy().into_owned();
        assert!(run("sgdisk", &["-v", &file]).contains("No problems found"));
        let gdisk_output = run("sgdisk", &["-i", "1", &file]).to_lowercase();
        assert!(gdisk_output.contains(&format!("partition unique guid: {uid}")), "{gdisk_output}");
        assert!(gdisk_output.contains(&format!("partition name: '{uid}'")), "{gdisk_output}");
        assert!(
            gdisk_output.contains("linux filesystem")
                && gdisk_output.contains("first sector: 2048"),
            "{gdisk_output}"
        );
        let link = bed.at(&result.path).to_string_lossy().into_owned();
        assert_eq!(blkid(&link, "PART_ENTRY_UUID"), uid);
        assert_eq!(blkid(&link, "PART_ENTRY_NAME"), uid);
        assert_eq!(run("blockdev", &["--getsize64", &link]).trim(), result.capacity.to_string());
        assert_eq!(result.capacity % 4096, 0);
        assert!((size as i64 - result.capacity) < 2 * MIB as i64);
        let partition = fs::canonicalize(&link).unwrap();
        assert!(partition.to_string_lossy().ends_with(&format!("{}p1", result.device_name)));

        succeed(&ops, &cleanup_order(&uid));
        bed.assert_clean(&uid);
        assert!(!partition.exists(), "the partition's device node is removed too");
    }
}

// invariant: 10
#[test]
fn every_partial_state_leads_to_the_same_result() {
    for links in Links::BOTH {
        for format in [filesystem(FsType::Ext4), Format::Partition] {
            let bed = Bed::new(links);
            let (ops, uid) = (bed.ops(), new_uid());
            let prepare = prepare_order(&uid, 16 * MIB, format.clone());
            let first = succeed(&ops, &prepare).unwrap();
            let inode = fs::metadata(bed.file(&uid)).unwrap().ino();

            // Done already: nothing changes.
            assert_eq!(succeed(&ops, &prepare), Some(first.clone()));
            // Detached by another process.
            if format == Format::Partition {
                drop_partitions(&first.device_name);
                assert_eq!(
                    succeed(&ops, &prepare).map(|r| r.capacity),
                    Some(first.capacity),
                    "the partition is added again"
                );
            }
            snatch(&first.device_name);
            let again = succeed(&ops, &prepare).unwrap();
            assert_eq!((again.path, again.capacity), (first.path, first.capacity));
            assert_eq!(
                fs::metadata(bed.file(&uid)).unwrap().ino(),
                inode,
                "a finished file is never recreated"
            );

            succeed(&ops, &cleanup_order(&uid));
            bed.assert_clean(&uid);
            // Nothing exists: nothing to do.
            succeed(&ops, &cleanup_order(&uid));
            let seen = ops.observe(&uid.as_str().into()).unwrap();
            assert_eq!(
                seen,
                Observed { in_ledger: true, udev: links == Links::Udev, ..Observed::default() }
            );
        }
    }
}

// invariant: 3
#[test]
fn concurrent_volumes_use_separate_loop_devices() {
    let bed = Bed::new(Links::Udev);
    let ops = bed.ops();
    let uids: Vec<String> = (0..24).map(|_| new_uid()).collect();
    std::thread::scope(|scope| {
        for part in uids.chunks(6) {
            let ops = &ops;
            scope.spawn(move || {
                part.iter().for_each(|uid| {
                    drop(succeed(ops, &prepare_order(uid, 8 * MIB, filesystem(FsType::Ext4))))
                })
            });
        }
    });
    let devices = volumes_of(&ops);
    assert_eq!(devices.len(), 24);
    assert!(devices.iter().all(|device| device.link.is_some()));
    std::thread::scope(|scope| {
        for part in uids.chunks(6) {
            let ops = &ops;
            scope
                .spawn(move || part.iter().for_each(|uid| drop(succeed(ops, &cleanup_order(uid)))));
        }
    });
    uids.iter().for_each(|uid| bed.assert_clean(uid));
}

/// Prints figures without assertions: timing does not depend on the code alone.
#[test]
fn volume_durations_are_measured() {
    let bed = Bed::new(Links::Udev);
    let ops = bed.ops();
    let mut prepares = Vec::new();
    let mut cleanups = Vec::new();
    for _ in 0..10 {
        let uid = new_uid();
        let started = Instant::now();
        succeed(&ops, &prepare_order(&uid, 1 << 30, filesystem(FsType::Xfs)));
        prepares.push(started.elapsed());
        let started = Instant::now();
        succeed(&ops, &cleanup_order(&uid));
        cleanups.push(started.elapsed());
    }
    prepares.sort();
    cleanups.sort();
    println!(
        "figure: NodeOps, 1 GiB xfs with udev: prepare {:.0?} median, {:.0?} worst; cleanup {:.0?} median, {:.0?} worst of 10",
        prepares[5], prepares[9], cleanups[5], cleanups[9]
    );
}
