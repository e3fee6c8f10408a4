//! What is not ours or in use is left alone, to the byte, and the reason is told.

use quarry_api::node_job::FsType;
use quarry_core::job::Format;
use quarry_node::{LinuxNode, VolumeOps};
use quarry_tests::disk::{
    Bed, Links, MIB, Mounted, cleanup_order, fail, filesystem, new_uid, prepare_order, run, snatch,
    succeed,
};
use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt, symlink},
    sync::Arc,
};

fn ext4() -> Format {
    filesystem(FsType::Ext4)
}

/// A volume that was prepared, and its device.
fn prepared(ops: &Arc<LinuxNode>, format: Format) -> (String, String) {
    let uid = new_uid();
    let result = succeed(ops, &prepare_order(&uid, 16 * MIB, format)).unwrap();
    (uid, result.device_name)
}

#[test]
fn a_file_that_the_ledger_does_not_know_is_left_alone() {
    let bed = Bed::new(Links::Own);
    let (ops, uid) = (bed.ops(), new_uid());
    for name in [uid.clone(), format!("{uid}.draft")] {
        fs::write(bed.file(&name), "somebody's").unwrap();
        for order in [prepare_order(&uid, 16 * MIB, ext4()), cleanup_order(&uid)] {
            let why = fail(&ops, &order);
            assert!(why.contains("not made by this agent"), "{why}");
        }
        assert_eq!(fs::read(bed.file(&name)).unwrap(), b"somebody's");
        fs::remove_file(bed.file(&name)).unwrap();
    }
    assert!(ops.known_volumes().unwrap().is_empty());
    assert_eq!(bed.loops(), Vec::<String>::new());
}

#[test]
fn a_link_or_folder_in_place_of_the_file_is_not_followed() {
    let bed = Bed::new(Links::Own);
    let (ops, uid) = (bed.ops(), new_uid());
    let victim = bed.data.join("victim");
    fs::write(&victim, "precious").unwrap();
    for name in [uid.clone(), format!("{uid}.draft")] {
        symlink(&victim, bed.file(&name)).unwrap();
        fail(&ops, &prepare_order(&uid, 16 * MIB, ext4()));
        fail(&ops, &cleanup_order(&uid));
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        fs::remove_file(bed.file(&name)).unwrap();
    }
}

#[test]
fn a_mounted_volume_is_not_taken_down() {
    for links in Links::BOTH {
        let bed = Bed::new(links);
        let ops = bed.ops();
        let (uid, device) = prepared(&ops, ext4());
        let at = bed.data.join("mnt with blank");
        let mount = Mounted::new(&[&format!("/dev/{device}")], &at);
        let why = fail(&ops, &cleanup_order(&uid));
        assert!(
            why.contains(&format!("{device} is mounted at")) && why.contains("mnt with blank"),
            "{why}"
        );
        assert_eq!(bed.loops(), [device]);
        assert_eq!(bed.files(), [uid.as_str()]);
        assert_eq!(bed.links(&uid).len(), 1);
        drop(mount);
        succeed(&ops, &cleanup_order(&uid));
        bed.assert_clean(&uid);
    }
}

/// Detached when dropped.
struct OnTop(String);

impl Drop for OnTop {
    fn drop(&mut self) {
        snatch(self.0.trim_start_matches("/dev/"));
    }
}

#[test]
fn a_volume_under_another_loop_is_not_taken_down_whatever_the_path_says() {
    let bed = Bed::new(Links::Udev);
    let ops = bed.ops();
    for format in [ext4(), Format::Partition] {
        let (uid, device) = prepared(&ops, format.clone());
        let published = if format == Format::Partition {
            format!("/dev/{device}p1")
        } else {
            format!("/dev/{device}")
        };
        // As kubelet does it for a Block volume: through a bind mount, so that no name betrays the device.
        let disguise = bed.data.join("disguise");
        fs::write(&disguise, "").unwrap();
        run("mount", &["--bind", &published, &disguise.to_string_lossy()]);
        let mount = Mounted(disguise.clone());
        let top =
            OnTop(run("losetup", &["-f", "--show", &disguise.to_string_lossy()]).trim().to_owned());
        drop(mount);
        let why = fail(&ops, &cleanup_order(&uid));
        assert!(why.contains(&format!("backing {}", top.0.trim_start_matches("/dev/"))), "{why}");
        assert_eq!(bed.files(), [uid.as_str()]);
        drop(top);
        succeed(&ops, &cleanup_order(&uid));
        bed.assert_clean(&uid);
    }
}

#[test]
fn a_device_that_is_held_exclusively_is_not_taken_down() {
    let bed = Bed::new(Links::Udev);
    let ops = bed.ops();
    for format in [ext4(), Format::Partition] {
        let (uid, device) = prepared(&ops, format.clone());
        let path = if format == Format::Partition {
            format!("/dev/{device}p1")
        } else {
            format!("/dev/{device}")
        };
        let excl = rustix::fs::OFlags::EXCL.bits() as i32;
        let held = OpenOptions::new().read(true).custom_flags(excl).open(path).unwrap();
        let why = fail(&ops, &cleanup_order(&uid));
        assert!(why.contains("opened exclusively by another process"), "{why}");
        assert_eq!(bed.loops(), [device]);
        drop(held);
        succeed(&ops, &cleanup_order(&uid));
        bed.assert_clean(&uid);
    }
}

#[test]
fn swap_is_not_taken_down() {
    let bed = Bed::new(Links::Udev);
    let ops = bed.ops();
    let (uid, device) = prepared(&ops, Format::Partition);
    let partition = format!("/dev/{device}p1");
    run("mkswap", &[&partition]);
    run("swapon", &[&partition]);
    let why = fail(&ops, &cleanup_order(&uid));
    run("swapoff", &[&partition]);
    assert!(why.contains("used as swap"), "{why}");
    succeed(&ops, &cleanup_order(&uid));
    bed.assert_clean(&uid);
}

#[test]
fn a_loop_that_somebody_else_put_over_our_file_is_used_and_a_second_one_refused() {
    let bed = Bed::new(Links::Udev);
    let ops = bed.ops();
    let (uid, device) = prepared(&ops, ext4());
    let file = bed.file(&uid).to_string_lossy().into_owned();
    let second = OnTop(run("losetup", &["-f", "--show", &file]).trim().to_owned());
    let why = fail(&ops, &prepare_order(&uid, 16 * MIB, ext4()));
    assert!(why.contains("detach all but one") && why.contains(&device), "{why}");
    drop(second);
    assert_eq!(succeed(&ops, &prepare_order(&uid, 16 * MIB, ext4())).unwrap().device_name, device);
    succeed(&ops, &cleanup_order(&uid));
    bed.assert_clean(&uid);
}

#[test]
fn another_size_or_content_is_refused_and_the_file_kept() {
    let bed = Bed::new(Links::Own);
    let ops = bed.ops();
    let (uid, _) = prepared(&ops, ext4());
    let inode = fs::metadata(bed.file(&uid)).unwrap().ino();
    assert!(fail(&ops, &prepare_order(&uid, 17 * MIB, ext4())).contains("instead of"));
    assert!(
        fail(&ops, &prepare_order(&uid, 16 * MIB, Format::Partition))
            .contains("a file system instead of a partition table")
    );
    assert_eq!(fs::metadata(bed.file(&uid)).unwrap().ino(), inode);
    succeed(&ops, &cleanup_order(&uid));
}

#[test]
fn without_udev_somebody_elses_link_stays() {
    let bed = Bed::new(Links::Own);
    let (ops, uid) = (bed.ops(), new_uid());
    let folder = bed.at("/dev/disk/by-uuid");
    fs::create_dir_all(&folder).unwrap();
    // Any block device that is not a loop; it is only named, never opened.
    let foreign = fs::read_dir("/sys/block")
        .unwrap()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .find(|name| !name.starts_with("loop"));
    let Some(foreign) = foreign.filter(|name| std::path::Path::new("/dev").join(name).exists())
    else {
        return;
    };
    symlink(format!("../../{foreign}"), folder.join(&uid)).unwrap();
    let why = fail(&ops, &prepare_order(&uid, 16 * MIB, ext4()));
    assert!(why.contains(&format!("leads to {foreign}")), "{why}");
    succeed(&ops, &cleanup_order(&uid));
    assert_eq!(bed.files(), Vec::<String>::new());
    assert_eq!(bed.links(&uid).len(), 1, "the link is not ours to remove");
}

#[test]
fn sizes_that_cannot_be_are_told_with_the_limit_and_leave_nothing() {
    let bed = Bed::new(Links::Own);
    let (ops, uid) = (bed.ops(), new_uid());
    let why = fail(&ops, &prepare_order(&uid, MIB, Format::Partition));
    assert!(why.contains("too small") && why.contains("at least 2 MiB"), "{why}");
    let why = fail(&ops, &prepare_order(&uid, 100 * MIB, filesystem(FsType::Xfs)));
    assert!(why.contains("mkfs.xfs failed") && why.contains("300MB"), "{why}");
    let why = fail(&ops, &prepare_order(&uid, 1 << 60, ext4()));
    assert!(why.contains("larger than the file system below"), "{why}");
    let bad = Format::Filesystem { fs: FsType::Ext4, options: vec!["-b".into(), "banana".into()] };
    let why = fail(&ops, &prepare_order(&uid, 16 * MIB, bad));
    assert!(why.contains("mkfs.ext4 failed") && why.contains("banana"), "{why}");
    bed.assert_clean(&uid);
}
