//! Content of a device: every format that Debian's tools can create, and unrecognized data.
//! Compared with `blkid -p`.

use super::devices::{
    Loop, MIB, assert_like_blkid, assert_like_lsblk, dir, file, fs_type, of, poke, scan, scanner,
};
use quarry_core::device::{Content, Found};
use quarry_node::inspect::Scan;
use quarry_tests::disk::run;
use std::{
    fs::{self, OpenOptions},
    io::{Seek, SeekFrom, Write},
    path::Path,
};

/// Arguments of cryptsetup before the device; cheap to compute.
pub const LUKS: &[&str] = &[
    "luksFormat",
    "-q",
    "--type",
    "luks2",
    "--pbkdf",
    "pbkdf2",
    "--pbkdf-force-iterations",
    "1000",
    "--key-file",
    "/proc/version",
];

/// Type in libblkid, size in MiB, the tool and its arguments; FILE is replaced by the file.
const FORMATS: &[(&str, u64, &[&str])] = &[
    ("ext2", 8, &["mkfs.ext2", "-q", "-L", "two", "FILE"]),
    ("ext3", 8, &["mkfs.ext3", "-q", "FILE"]),
    ("ext4", 8, &["mkfs.ext4", "-q", "-L", "a label", "FILE"]),
    ("jbd", 8, &["mke2fs", "-q", "-O", "journal_dev", "FILE"]),
    ("xfs", 320, &["mkfs.xfs", "-q", "-L", "xlabel", "FILE"]),
    ("btrfs", 128, &["mkfs.btrfs", "-q", "-L", "blabel", "FILE"]),
    ("f2fs", 64, &["mkfs.f2fs", "-q", "-l", "flabel", "FILE"]),
    ("nilfs2", 160, &["mkfs.nilfs2", "-q", "-L", "nlabel", "FILE"]),
    ("jfs", 32, &["mkfs.jfs", "-q", "-L", "jlabel", "FILE"]),
    ("reiserfs", 64, &["mkfs.reiserfs", "-q", "-ff", "-l", "rlabel", "FILE"]),
    ("ntfs", 16, &["mkfs.ntfs", "-q", "-F", "-Q", "-L", "ntlabel", "FILE"]),
    ("exfat", 16, &["mkfs.exfat", "-L", "exlabel", "FILE"]),
    ("vfat", 4, &["mkfs.vfat", "-F", "12", "-n", "TWELVE", "FILE"]),
    ("vfat", 32, &["mkfs.vfat", "-F", "16", "-n", "SIXTEEN", "FILE"]),
    ("vfat", 300, &["mkfs.vfat", "-F", "32", "-n", "THIRTYTWO", "FILE"]),
    ("udf", 16, &["mkudffs", "--media-type=hd", "--label=ulabel", "FILE"]),
    ("minix", 8, &["mkfs.minix", "FILE"]),
    ("swap", 8, &["mkswap", "-q", "-L", "slabel", "FILE"]),
    ("gfs2", 64, &["mkfs.gfs2", "-q", "-O", "-p", "lock_nolock", "FILE"]),
    ("ocfs2", 256, &["mkfs.ocfs2", "-q", "-F", "-x", "-M", "local", "-L", "olabel", "FILE"]),
    (
        "crypto_LUKS",
        32,
        &[
            "cryptsetup",
            "luksFormat",
            "-q",
            "--type",
            "luks1",
            "--pbkdf-force-iterations",
            "1000",
            "--key-file",
            "/proc/version",
            "FILE",
        ],
    ),
    (
        "crypto_LUKS",
        32,
        &[
            "cryptsetup",
            "luksFormat",
            "-q",
            "--type",
            "luks2",
            "--pbkdf",
            "pbkdf2",
            "--pbkdf-force-iterations",
            "1000",
            "--label",
            "lulabel",
            "--key-file",
            "/proc/version",
            "FILE",
        ],
    ),
];

// invariant: 1
#[test]
fn every_format_agrees_with_blkid() {
    let dir = dir();
    for (index, (fs, mib, command)) in FORMATS.iter().enumerate() {
        let path = file(dir.path(), &format!("{index}-{fs}"), mib * MIB);
        let name = path.to_string_lossy();
        let arguments: Vec<&str> = command[1..]
            .iter()
            .map(|argument| if *argument == "FILE" { &name } else { *argument })
            .collect();
        run(command[0], &arguments);
        check(&path, fs);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn images_built_from_directories_agree_with_blkid() {
    let dir = dir();
    let content = dir.path().join("content");
    fs::create_dir(&content).unwrap();
    fs::write(content.join("hello"), "hello").unwrap();
    let content = content.to_string_lossy().into_owned();
    let build = |name: &str, tool: &str, before: &[&str], after: &[&str]| {
        let path = dir.path().join(name);
        let target = path.to_string_lossy().into_owned();
        let arguments: Vec<String> = before
            .iter()
            .chain(after)
            .map(|argument| argument.replace("FILE", &target).replace("CONTENT", &content))
            .collect();
        run(tool, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let length = fs::metadata(&path).unwrap().len();
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(length.next_multiple_of(MIB) + MIB)
            .unwrap();
        path
    };
    check(
        &build("squashfs", "mksquashfs", &["CONTENT", "FILE"], &["-quiet", "-no-progress"]),
        "squashfs",
    );
    check(&build("erofs", "mkfs.erofs", &["--quiet"], &["FILE", "CONTENT"]), "erofs");
    check(
        &build(
            "iso",
            "genisoimage",
            &["-quiet", "-V", "ISOLABEL", "-J", "-o"],
            &["FILE", "CONTENT"],
        ),
        "iso9660",
    );
    check(&build("cramfs", "mkfs.cramfs", &[], &["CONTENT", "FILE"]), "cramfs");
}

/// Signatures of formats that this kernel cannot create; the same bytes as the tools write.
// invariant: 1
#[test]
fn raid_members_and_stores_have_known_signatures() {
    let dir = dir();
    let size = 64 * MIB;

    let lvm = file(dir.path(), "lvm", size);
    let device = Loop::new(&lvm);
    let only = format!(
        "devices {{ use_devicesfile=0 scan_lvs=0 filter=[ \"a|^{}$|\", \"r|.*|\" ] }}",
        device.dev()
    );
    run("pvcreate", &["-q", "-y", "--config", &only, &device.dev()]);
    drop(device);
    check(&lvm, "LVM2_member");

    // linux/raid/md_p.h: version 1.x has its superblock at the end, at the start, or 4 KiB after
    // the start.
    for (minor, sector) in [(0, (size / 512 - 16) & !7), (1, 0), (2, 8)] {
        let path = file(dir.path(), &format!("md1.{minor}"), size);
        poke(&path, sector * 512, &md_superblock(sector));
        check(&path, "linux_raid_member");
    }
    let zero = file(dir.path(), "md0.90", size);
    let mut superblock = vec![0; 4096];
    superblock[..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 0, 0, 0, 0]);
    superblock[8..12].copy_from_slice(&90u32.to_le_bytes());
    superblock[20..24].copy_from_slice(&0x1234_5678u32.to_le_bytes());
    poke(&zero, (size & !0xffff) - 0x10000, &superblock);
    check(&zero, "linux_raid_member");

    let zfs = file(dir.path(), "zfs", size);
    for label in [0, 256 << 10, size - (512 << 10), size - (256 << 10)] {
        for uberblock in 0..8 {
            poke(&zfs, label + (128 << 10) + uberblock * 1024, &0x00ba_b10cu64.to_le_bytes());
        }
    }
    check(&zfs, "zfs_member");

    let bcache = file(dir.path(), "bcache", size);
    let superblock = concat!(
        "bdbefe3095e4e18608000000000000000100000000000000c68573f64e1a45ca8265f57f48ba6d81b9b0be63404e45db82c54fafde7f0784",
        "198228a0fdb44531ae64a9c524c17a11"
    );
    let bytes: Vec<u8> = (0..superblock.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&superblock[at..at + 2], 16).unwrap())
        .collect();
    poke(&bcache, 4096, &bytes);
    poke(&bcache, 4096 + 192, &[8, 0, 0, 4]);
    check(&bcache, "bcache");

    let bluestore = file(dir.path(), "bluestore", size);
    poke(&bluestore, 0, b"bluestore block device\n0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab\n");
    check(&bluestore, "ceph_bluestore");

    // Only the backup header of LUKS2 is left, at each of its possible offsets.
    let luks = file(dir.path(), "luks", size);
    run("cryptsetup", &[LUKS, &[&luks.to_string_lossy()]].concat());
    poke(&luks, 0, &[0; 4096]);
    check(&luks, "crypto_LUKS");
}

fn md_superblock(sector: u64) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    bytes[0..4].copy_from_slice(&0xa92b_4efcu32.to_le_bytes());
    bytes[4..8].copy_from_slice(&1u32.to_le_bytes());
    bytes[16..32].copy_from_slice(&[7; 16]);
    bytes[32..39].copy_from_slice(b"host:md");
    bytes[144..152].copy_from_slice(&sector.to_le_bytes());
    let sum: u64 = bytes
        .chunks_exact(4)
        .map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap())))
        .sum();
    let folded = (sum & 0xffff_ffff) + (sum >> 32);
    bytes[216..220].copy_from_slice(&(folded as u32).to_le_bytes());
    bytes
}

#[track_caller]
fn check(path: &Path, fs: &str) {
    let device = Loop::new(path);
    device.settle();
    let scanned = scan();
    let facts = of(&scanned, &device.name);
    assert_eq!(fs_type(facts), Some(fs), "{}: {:?}", path.display(), facts.content);
    assert_like_blkid(facts);
    assert_like_lsblk(&scanned, &[&device.name]);
}

// invariant: 1
#[test]
fn only_zeros_count_as_blank() {
    let dir = dir();
    let size = 16 * MIB + 512;
    let content = |offset: Option<u64>| {
        let path = file(dir.path(), "raw", size);
        if let Some(offset) = offset {
            poke(&path, offset, b"x");
        }
        let device = Loop::new(&path);
        let scanned = scan();
        assert_like_blkid(of(&scanned, &device.name));
        of(&scanned, &device.name).content.clone()
    };
    assert_eq!(content(None), Content::Blank);
    for offset in [0, 511, 12345, MIB - 1, size - MIB, size - 600, size - 1] {
        assert_eq!(content(Some(offset)), Content::UnknownData, "a byte at {offset}");
    }
    // Bytes outside the first and last MiB are not read, as in libblkid.
    assert_eq!(content(Some(8 * MIB)), Content::Blank);
}

/// Holes in the file behind a loop device are not read: this must not miss anything on the device.
// invariant: 1
#[test]
fn unsynced_and_offset_data_is_found() {
    let dir = dir();
    let device = Loop::new(&file(dir.path(), "cached", 16 * MIB));
    device.settle();
    let mut known = scanner();
    assert_eq!(of(&known.scan(Scan::Everything).unwrap(), &device.name).content, Content::Blank);
    // Written, not synced, and still open: it is only in the device's cache.
    let mut open = OpenOptions::new().write(true).open(device.dev()).unwrap();
    open.seek(SeekFrom::Start(16 * MIB - 10)).unwrap();
    open.write_all(b"x").unwrap();
    assert_eq!(
        of(&known.scan(Scan::Everything).unwrap(), &device.name).content,
        Content::UnknownData
    );
    drop(open);
    // A loop device that starts in the middle of its file.
    let path = file(dir.path(), "offset", 32 * MIB);
    poke(&path, 8 * MIB, b"x");
    let (shifted, before) =
        (Loop::with(&["--offset=8M"], &path), Loop::with(&["--offset=12M"], &path));
    let scanned = scan();
    assert_eq!(of(&scanned, &shifted.name).content, Content::UnknownData);
    assert_eq!(of(&scanned, &before.name).content, Content::Blank);
    // Space that was allocated and never written, and zeros that were written.
    let path = file(dir.path(), "allocated", 16 * MIB);
    run("fallocate", &["--length", "16M", &path.to_string_lossy()]);
    let (allocated, zeros) = (Loop::new(&path), file(dir.path(), "zeros", 0));
    fs::write(&zeros, vec![0; 16 * MIB as usize]).unwrap();
    let zeros = Loop::new(&zeros);
    let scanned = scan();
    assert_eq!(
        (&of(&scanned, &allocated.name).content, &of(&scanned, &zeros.name).content),
        (&Content::Blank, &Content::Blank)
    );
    for device in [&shifted, &before, &allocated, &zeros] {
        assert_like_blkid(of(&scanned, &device.name));
    }
}

/// Each of libblkid's signatures is found when everything else on the device is zero.
// invariant: 1
#[test]
fn all_offsets_of_libblkid_signatures_are_read() {
    let dir = dir();
    let size = 40 * MIB;
    // Promise FastTrak: the offset farthest from both ends.
    let path = file(dir.path(), "promise", size);
    poke(&path, size - 3087 * 512, b"Promise Technology, Inc.");
    check(&path, "promise_fasttrack_raid_member");
    let path = file(dir.path(), "vmfs", size);
    poke(&path, MIB, &[0x0d, 0xd0, 0x01, 0xc0]);
    check(&path, "VMFS_volume_member");
    let path = file(dir.path(), "vmfs2", size);
    poke(&path, 2 * MIB, &[0x5e, 0xf1, 0xab, 0x2f]);
    check(&path, "VMFS");
}

// invariant: 1
#[test]
fn contradicting_signatures_are_all_reported() {
    let dir = dir();
    let path = file(dir.path(), "both", 64 * MIB);
    run("mkfs.ext4", &["-q", &path.to_string_lossy()]);
    let other = file(dir.path(), "other", 64 * MIB);
    run("mkfs.reiserfs", &["-q", "-ff", &other.to_string_lossy()]);
    let superblock = &fs::read(&other).unwrap()[65536..65536 + 4096];
    poke(&path, 65536, superblock);
    let device = Loop::new(&path);
    let scanned = scan();
    let facts = of(&scanned, &device.name);
    assert_like_blkid(facts);
    let Content::Found(Found { ambivalent, .. }) = &facts.content else {
        panic!("{:?}", facts.content)
    };
    assert!(
        ambivalent.iter().any(|found| found == "ext4")
            && ambivalent.iter().any(|found| found == "reiserfs"),
        "{ambivalent:?}"
    );
}
