//! Files and devices that are in use or not ours are left unchanged, to the byte, and the reason is
//! reported.

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

/// A prepared volume: its UID and device.
fn prepared(ops: &Arc<LinuxNode>, format: Format) -> (String, String) {
    let uid = new_uid();
    let result = succeed(ops, &prepare_order(&uid, 16 * MIB, format)).unwrap();
    (uid, result.device_name)
}

#[test]
fn file_missing_in_the_ledger_is_left_unchanged() {
    let bed = Bed::new(Links::Own);
    let (ops, uid) = (bed.ops(), new_uid());
    for name in [uid.clone(), format!("{uid}.draft")] {
        fs::write(bed.file(&name), "user data").unwrap();
        for order in [prepare_order(&uid, 16 * MIB, ext4()), cleanup_order(&uid)] {
            let why = fail(&ops, &order);
            assert!(why.contains("not made by this agent"), "{why}");
        }
        assert_eq!(fs::read(bed.file(&name)).unwrap(), b"user data");
        fs::remove_file(bed.file(&name)).unwrap();
    }
    assert!(ops.known_volumes().unwrap().is_empty());
    assert_eq!(bed.loops(), Vec::<String>::new());
}

// invariant: 1
#[test]
fn link_or_directory_in_place_of_the_file_is_refused() {
    let bed = Bed::new(Links::Own);
    let (ops, uid) = (bed.ops(), new_uid());
    let role = bed.data.join("role");
    fs::write(&role, "precious").unwrap();
    for name in [uid.clone(), format!("{uid}.draft")] {
        symlink(&role, bed.file(&name)).unwrap();
        fail(&ops, &prepare_order(&uid, 16 * MIB, ext4()));
        fail(&ops, &cleanup_order(&uid));
        assert_eq!(fs::read(&role).unwrap(), b"precious");
        fs::remove_file(bed.file(&name)).unwrap();
    }
}

// invariant: 2, 5
#[test]
fn mounted_volume_is_not_removed() {
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

/// A loop device; detached on drop.
struct OnTop(String);

impl Drop for OnTop {
    fn drop(&mut self) {
        snatch(self.0.trim_start_matches("/dev/"));
    }
}

// invariant: 2
#[test]
fn volume_under_another_loop_is_not_removed() {
    let bed = Bed::new(Links::Udev);
    let ops = bed.ops();
    for format in [ext4(), Format::Partition] {
        let (uid, device) = prepared(&ops, format.clone());
        let published = if format == Format::Partition {
            format!("/dev/{device}p1")
        } else {
            format!("/dev/{device}")
        };
        // As the kubelet does for a Block volume: through a bind mount, so that no path shows the
        // device.
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

// invariant: 2
#[test]
fn exclusively_opened_device_is_not_removed() {
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

// invariant: 2
#[test]
fn volume_used_as_swap_is_not_removed() {
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

// invariant: 3
#[test]
fn existing_loop_is_used_and_a_second_one_refused() {
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

// invariant: 1
#[test]
fn file_of_another_size_or_content_is_refused_and_kept() {
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

// invariant: 3
#[test]
fn without_udev_a_link_of_another_owner_stays() {
    let bed = Bed::new(Links::Own);
    let (ops, uid) = (bed.ops(), new_uid());
    let dir = bed.at("/dev/disk/by-uuid");
    fs::create_dir_all(&dir).unwrap();
    // Any block device that is not a loop device; only its name is used, it is never opened.
    let other_device = fs::read_dir("/sys/block")
        .unwrap()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .find(|name| !name.starts_with("loop"));
    let Some(other_device) =
        other_device.filter(|name| std::path::Path::new("/dev").join(name).exists())
    else {
        return;
    };
    symlink(format!("../../{other_device}"), dir.join(&uid)).unwrap();
    let why = fail(&ops, &prepare_order(&uid, 16 * MIB, ext4()));
    assert!(why.contains(&format!("leads to {other_device}")), "{why}");
    succeed(&ops, &cleanup_order(&uid));
    assert_eq!(bed.files(), Vec::<String>::new());
    assert_eq!(bed.links(&uid).len(), 1, "the link is not ours to remove");
}

// invariant: 9
#[test]
fn impossible_sizes_are_refused_with_the_limit() {
    let bed = Bed::new(Links::Own);
    let (ops, uid) = (bed.ops(), new_uid());
    let why = fail(&ops, &prepare_order(&uid, MIB, Format::Partition));
    assert!(why.contains("too small") && why.contains("at least 2Mi"), "{why}");
    let why = fail(&ops, &prepare_order(&uid, 100 * MIB, filesystem(FsType::Xfs)));
    assert!(why.contains("mkfs.xfs failed") && why.contains("300MB"), "{why}");
    let why = fail(&ops, &prepare_order(&uid, 1 << 60, ext4()));
    assert!(why.contains("larger than the file system of"), "{why}");
    let bad = Format::Filesystem { fs: FsType::Ext4, options: vec!["-b".into(), "banana".into()] };
    let why = fail(&ops, &prepare_order(&uid, 16 * MIB, bad));
    assert!(why.contains("mkfs.ext4 failed") && why.contains("banana"), "{why}");
    bed.assert_clean(&uid);
}
