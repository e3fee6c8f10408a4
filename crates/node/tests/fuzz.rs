//! Every parser of bytes or text from a device, sysfs or /proc, fed with damaged input. On stable Rust, without tools.
//!
//! Starts from `tests/corpus/PARSER/*` and mutates by a seeded generator, so that a run can be repeated. Short by
//! default; `QUARRY_FUZZ_SECONDS=600 cargo test -p quarry-node --test fuzz` goes on with new seeds. What breaks a
//! parser is shown in hex: put it into the corpus, where it is tried first.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "reads its corpus; a test fails by panicking"
)]

use quarry_core::device::{
    Content, Found,
    sanitize::{LONGEST, is_hostile, printable},
};
use quarry_node::{
    inspect::{
        details::parse_scsi_address, gpt, loops, mounts, probe::parse_content, sysfs, udev, vpd,
    },
    uevent,
};
use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::{Duration, Instant},
};

/// How often each file of the corpus is mutated by default.
const ROUNDS: u64 = 1000;

fn show(text: Option<&String>) {
    if let Some(text) = text {
        assert!(!text.contains(is_hostile), "{text:?} cannot be shown safely");
        assert!(!text.is_empty() && text.chars().count() <= 10 * (LONGEST + 2), "{text:?}");
    }
}

fn uevent_file(bytes: &[u8]) {
    let found = sysfs::parse_uevent(bytes);
    show(found.partition_name.as_ref());
    show(found.partition_uuid.as_ref());
}

fn properties(bytes: &[u8]) {
    let found = udev::parse_udev(bytes);
    let udev::Properties {
        model,
        serial,
        serial_short,
        serial_full,
        wwn,
        wwn_extended,
        md_uuid,
        ..
    } = &found;
    for text in [model, serial, serial_short, serial_full, wwn, wwn_extended, md_uuid] {
        show(text.as_ref());
    }
    for text in [&found.partition_uuid, &found.partition_type, &found.partition_label] {
        show(text.as_ref());
    }
}

fn mountinfo(bytes: &[u8]) {
    let owned = mounts::parse_mountinfo(bytes);
    assert_eq!(owned.len(), mounts::parse_mount_lines(bytes).count());
}

fn address(bytes: &[u8]) {
    parse_scsi_address(&String::from_utf8_lossy(bytes));
}

/// The bytes as a device of 256 KiB: through libblkid, which must neither crash nor give what cannot be shown.
fn content(offset: usize, bytes: &[u8]) {
    let mut device = vec![0; 256 << 10];
    let end = (offset + bytes.len()).min(device.len());
    device[offset..end].copy_from_slice(&bytes[..end - offset]);
    if let Ok(Content::Found(Found { fs_type, uuid, label, table, ambivalent })) =
        parse_content(&device)
    {
        assert!(fs_type.is_some() || table.is_some());
        for text in [&fs_type, &uuid, &label, &table].into_iter().flatten().chain(&ambivalent) {
            show(Some(text));
        }
    }
    gpt::find(&mut std::io::Cursor::new(device), uuid::Uuid::from_u128(1));
}

type Target = (&'static str, fn(usize, &[u8]));

const TARGETS: &[Target] = &[
    ("uevent", |_, bytes| uevent_file(bytes)),
    ("netlink", |_, bytes| {
        assert!(
            uevent::parse_uevent(bytes).is_none_or(|name| !name.is_empty() && !name.contains('/'))
        )
    }),
    ("udev", |_, bytes| properties(bytes)),
    ("diskstats", |_, bytes| assert!(sysfs::parse_diskstats(bytes).count() <= bytes.len())),
    ("partitions", |_, bytes| assert!(sysfs::parse_partitions(bytes).count() <= bytes.len())),
    ("stat", |_, bytes| assert!(sysfs::parse_stat(bytes).is_none() || !bytes.is_empty())),
    ("mountinfo", |_, bytes| mountinfo(bytes)),
    ("swaps", |_, bytes| assert!(mounts::parse_swaps(bytes).len() <= bytes.len())),
    ("backing", |_, bytes| {
        assert!(loops::parse_backing_file(bytes).0.as_os_str().len() <= bytes.len())
    }),
    ("vpd80", |_, bytes| show(vpd::parse_vpd80(bytes).as_ref())),
    ("vpd83", |_, bytes| vpd::parse_vpd83(bytes).iter().for_each(|name| show(Some(name)))),
    ("scsi_address", |_, bytes| address(bytes)),
    ("printable", |_, bytes| show(printable(bytes).as_ref())),
    ("content", content),
];

/// xorshift64*: small, fast, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    const TELLING: &[u8] =
        &[0, 1, 0x1b, b'\n', b' ', b'=', b':', b'\\', b'-', 0x7f, 0x80, 0xe2, 0xff];
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len());
        match random.below(8) {
            0 | 1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            3 if !bytes.is_empty() => bytes[at] = TELLING[random.below(TELLING.len())],
            4 => bytes.insert(at, TELLING[random.below(TELLING.len())]),
            5 if !bytes.is_empty() => {
                drop(bytes.drain(at..(at + random.below(16)).min(bytes.len())))
            }
            6 if bytes.len() < 16384 => {
                let part = bytes[at..(at + random.below(64)).min(bytes.len())].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, part);
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
}

/// Files of a corpus in a fixed order; `name@offset` says where on the device the bytes are.
fn corpus(target: &str) -> Vec<(usize, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(target);
    let mut paths: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} has no corpus", directory.display());
    let offset = |path: &Path| {
        path.to_string_lossy()
            .rsplit_once('@')
            .and_then(|(_, offset)| offset.parse().ok())
            .unwrap_or(0)
    };
    paths.iter().map(|path| (offset(path), fs::read(path).unwrap())).collect()
}

#[track_caller]
fn try_one(target: &Target, seed: u64, offset: usize, bytes: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| (target.1)(offset, bytes))).is_err() {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{} fails on (seed {seed}, at {offset}): {hex}", target.0);
    }
}

#[test]
fn no_parser_is_harmed_by_damaged_input() {
    let seconds: u64 =
        std::env::var("QUARRY_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seed: u64 = 1;
    let mut tried = 0u64;
    while seed == 1 || Instant::now() < end {
        for target in TARGETS {
            for (offset, original) in corpus(target.0) {
                try_one(target, 0, offset, &original);
                let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
                let mut bytes = original.clone();
                let rounds = if target.0 == "content" { ROUNDS / 10 } else { ROUNDS };
                for round in 0..rounds {
                    // Damage piles up for a while, then it starts over.
                    if round % 8 == 0 {
                        bytes.clone_from(&original);
                    }
                    mutate(&mut random, &mut bytes);
                    try_one(target, seed, offset, &bytes);
                    tried += 1;
                }
            }
        }
        seed += 1;
    }
    println!("figure: fuzz: {tried} inputs, {} seeds, none harmful", seed - 1);
}
