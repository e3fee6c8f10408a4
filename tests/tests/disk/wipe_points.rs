//! Another process at every failpoint of a wipe and of a confirmation: the first to get the device
//! keeps it; both never succeed.
//!
//! `disk-contender` stops itself at the failpoint (`NAME!stop`), the rival tries to use the device, and
//! the order continues. The tables list the owner of the device at each failpoint: a hold that
//! began too late, ended too early or had a gap fails here with the name of the failpoint.

use super::{
    contention::{Disk, Got, Process, Rival, Tool},
    devices::{MIB, file},
};
use quarry_api::{
    node_inventory::{ClaimContent, DeviceClaim},
    node_job::WipePolicy,
};
use quarry_failpoint::VARIABLE;
use quarry_node::{DeviceOps, ScanRequest, failpoints::ALL};
use quarry_tests::{
    device_claim::claim_of,
    disk::{Bed, Links, Mounted, eventually, run},
};
use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::PathBuf,
    process::Command,
};
use tempfile::TempDir;

const SIZE: u64 = 16 * MIB;
const PIECE: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Not held: a rival gets it, and the order is refused.
    Free,
    /// Held by the order: a rival is refused.
    Held,
    /// The order has finished: a rival gets the device and keeps what it creates.
    Released,
}

/// From the first API request to the last status update. Held from the exclusive open until the
/// device is verified as blank. Failpoints named `contender.` are in disk-contender, right before the agent's
/// job and before NodeOps opens the device.
const WIPE: [(Access, &[&str]); 3] = [
    (Access::Free, &["contender.job", "contender.hold", "wipe.seen", "status.running.before"]),
    (
        Access::Held,
        &[
            "wipe.opened",
            "wipe.held",
            "ledger.intent.before",
            "ledger.torn",
            "ledger.intent.after",
            "status.running.before:2",
            "status.running.after:2",
            FIRST_BYTE,
            "wipe.overwritten",
            "wipe.marked",
            "wipe.discarding",
            "wipe.zeroing",
            "wipe.erased",
            "wipe.synced",
            "wipe.proven",
        ],
    ),
    (
        Access::Released,
        &[
            "ledger.outcome.before",
            "ledger.torn:2",
            "ledger.outcome.after",
            "status.finished.before",
            "status.finished.after",
        ],
    ),
];
/// Nothing is written before this failpoint.
const FIRST_BYTE: &str = "wipe.before";

/// The device is read while it is held, and its link is created.
const CONFIRMATION: [(Access, &[&str]); 3] = [
    (Access::Free, &["contender.scan", "contender.confirm"]),
    (
        Access::Held,
        &[
            "confirm.held",
            "claim-link.before",
            "claim-link.made",
            "claim-link.after",
            "confirm.linked",
            "confirm.recorded",
        ],
    ),
    (Access::Released, &["inventory.before", "inventory.after"]),
];

/// After these the node is scanned once more, while the device is held.
const SCANS_AGAIN: [&str; 2] = ["wipe.opened", "confirm.held"];

fn points(table: [(Access, &'static [&'static str]); 3]) -> Vec<(&'static str, Access)> {
    table.iter().flat_map(|(access, points)| points.iter().map(|point| (*point, *access))).collect()
}

/// Asserts that the table has every failpoint of the agent with one of these prefixes, at any hit.
#[track_caller]
fn assert_complete(table: &[(&str, Access)], prefixes: &[&str]) {
    let named: BTreeSet<&str> = table
        .iter()
        .map(|(point, _)| point.split(':').next().unwrap())
        .filter(|name| !name.starts_with("contender."))
        .collect();
    let all: BTreeSet<&str> = ALL
        .iter()
        .copied()
        .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    assert_eq!(named, all);
}

/// The rivals that try at the failpoint with this number.
fn rivals(index: usize, (point, access): (&str, Access)) -> Vec<Rival> {
    use Rival::*;
    let mut all = vec![Opens, Mounts];
    match access {
        // The order retries for most of a second before it fails: use each tool at every other
        // failpoint.
        Access::Free => {
            let tools = [Tool::Ext4, Tool::Xfs];
            all.extend([Formats(tools[index % 2]), Formatted(tools[(index + 1) % 2])]);
        }
        Access::Held | Access::Released => all.extend([Formats(Tool::Ext4), Formats(Tool::Xfs)]),
    }
    // The kernel allows a loop device over a held device; only a scan finds it.
    if access == Access::Free || SCANS_AGAIN.contains(&point) {
        all.push(Loops);
    }
    all
}

struct Stage {
    /// A disk with a file system and user data, and a blank one.
    data: Vec<u8>,
    blank: Vec<u8>,
    claim: DeviceClaim,
    path: PathBuf,
    other: PathBuf,
    dir: TempDir,
    bed: Bed,
}

impl Stage {
    fn new() -> Self {
        let bed = Bed::new(Links::Own);
        let dir = tempfile::tempdir_in(&bed.root).unwrap();
        let (path, other) = (file(dir.path(), "d", SIZE), file(dir.path(), "other", SIZE));
        super::wipe::fill(&other);
        let disk = Disk::new(dir.path(), &path, &other);
        let scan = bed.ops().scan_node(&ScanRequest::default()).unwrap();
        let facts =
            scan.devices.iter().find(|facts| format!("/dev/{}", facts.name) == disk.dev()).unwrap();
        let claim = claim_of(facts, Default::default());
        assert!(Tool::Ext4.command().arg(disk.dev()).status().unwrap().success());
        let mounted = Mounted::new(&["-t", "ext4", &disk.dev()], &dir.path().join("mnt"));
        fs::write(mounted.0.join("data"), "secret user data ".repeat(40_000)).unwrap();
        drop(mounted);
        drop(disk);
        let data = fs::read(&path).unwrap();
        Stage { blank: vec![0; data.len()], data, claim, path, other, dir, bed }
    }

    /// A disk with these bytes, on a new loop device.
    fn disk(&self, bytes: &[u8]) -> Disk {
        // udev may have had it open when it was detached. Two devices over one file are refused.
        eventually("the last device is detached", || {
            run("losetup", &["-j", &self.path.to_string_lossy()]).is_empty()
        });
        let image = OpenOptions::new().write(true).open(&self.path).unwrap();
        image.set_len(0).unwrap();
        image.set_len(SIZE).unwrap();
        // Blank parts stay sparse.
        for (at, piece) in (0..)
            .step_by(PIECE)
            .zip(bytes.chunks(PIECE))
            .filter(|(_, piece)| *piece != &self.blank[..PIECE])
        {
            image.write_all_at(piece, at).unwrap();
        }
        Disk::new(self.dir.path(), &self.path, &self.other)
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }

    fn ledger(&self) -> Vec<String> {
        fs::read_to_string(self.bed.data.join("ledger"))
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// A process that has stopped at this failpoint of the order.
    #[track_caller]
    fn stopped(&self, order: &[&str], point: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_disk-contender"));
        command
            .arg(&self.bed.root)
            .arg(&self.bed.data_on_node)
            .args(order)
            .env(VARIABLE, format!("{point}!stop"));
        Process::start(&mut command)
            .stopped()
            .unwrap_or_else(|output| panic!("{order:?} never reaches {point}: {output:?}"))
    }

    /// The rival is refused if and only if the device is held.
    #[track_caller]
    fn admit_rival(&self, rival: Rival, disk: &Disk, access: Access, at: &str) -> Option<Got> {
        let is_busy =
            |message: &str| message.contains("busy") || message.contains("in use by the system");
        if access == Access::Held && rival != Rival::Loops {
            let before = self.bytes();
            match rival.try_it(disk) {
                Ok(_) => panic!("{at}: the device is held, but {rival:?} got it"),
                Err(message) => assert!(
                    is_busy(&message),
                    "{at}: {rival:?} is refused for another reason than the hold: {message}"
                ),
            }
            assert!(before == self.bytes(), "{at}: {rival:?} was refused and wrote");
            return None;
        }
        let mut got = None;
        // Another agent on this machine may have it open for a moment.
        eventually(&format!("{at}: {rival:?} gets the free device"), || match rival.try_it(disk) {
            Ok(what) => got.replace(what).is_none(),
            Err(message) if is_busy(&message) => false,
            Err(message) => panic!("{at}: {rival:?}: {message}"),
        });
        got
    }

    /// One wipe, one rival.
    fn wipe(&self, point: &str, access: Access, rival: Rival, policy: WipePolicy, started: bool) {
        let at = format!("wipe, {point}, {rival:?}");
        let disk = self.disk(&self.data);
        let recorded = self.ledger().len();
        let claim = serde_json::to_string(&self.claim).unwrap();
        let order = if point.starts_with("status.running") { "wipe-announced" } else { "wipe" };
        let contender = self.stopped(&[order, &claim, policy.as_str()], point);
        assert!(
            started || self.data == self.bytes(),
            "{at}: the device has been written to already"
        );
        if access == Access::Released {
            self.assert_erased(policy, &at);
            if rival == Rival::Mounts {
                self.admit_rival(Rival::Formatted(Tool::Ext4), &disk, access, &at);
            }
        }
        let got = self.admit_rival(rival, &disk, access, &at);
        let seen = self.bytes();
        contender.go_on();
        let output = contender.end();
        let message = String::from_utf8_lossy(&output.stderr);
        let ledger = self.ledger().split_off(recorded);
        let count = |words: &str| ledger.iter().filter(|line| line.contains(words)).count();
        // A rival that formatted the device and exited no longer uses it: the wipe erases the
        // format too.
        let refused = match rival {
            Rival::Loops => true,
            Rival::Formatted(_) => false,
            Rival::Opens | Rival::Mounts | Rival::Formats(_) | Rival::Swaps => {
                access == Access::Free
            }
        };
        assert_eq!(output.status.success(), !refused, "{at}: {message}");
        if refused {
            assert!(rival.is_named_in(&message, got.as_ref().unwrap()), "{at}: {message}");
            assert_eq!(
                (count("\"kind\":\"intent\""), count("\"result\":\"succeeded\"")),
                (0, 0),
                "{at}: {ledger:?}"
            );
            assert!(seen == self.bytes(), "{at}: both have written");
        } else {
            assert_eq!(
                (count("\"kind\":\"intent\""), count("\"result\":\"succeeded\""), ledger.len()),
                (1, 1, 2),
                "{at}: {ledger:?}"
            );
            match access {
                Access::Released => {
                    assert!(seen == self.bytes(), "{at}: written after it was released")
                }
                Access::Free | Access::Held => self.assert_erased(policy, &at),
            }
        }
        if let Some(got) = got {
            got.end(&disk);
        }
    }

    #[track_caller]
    fn assert_erased(&self, policy: WipePolicy, at: &str) {
        let (bytes, end) = (self.bytes(), MIB as usize);
        let erased = match policy {
            WipePolicy::Quick => {
                bytes[..end] == self.blank[..end] && bytes[bytes.len() - end..] == self.blank[..end]
            }
            WipePolicy::Discard | WipePolicy::Zero => bytes == self.blank,
        };
        assert!(erased, "{at}: the device is not erased");
    }

    /// One scan that is to confirm a device claim, one rival.
    fn confirm(&self, point: &str, access: Access, rival: Rival) {
        let at = format!("confirmation, {point}, {rival:?}");
        // A device to be mounted has a file system, and a device claim that allows it.
        let (content, bytes) = if rival == Rival::Mounts {
            (ClaimContent::Any, &self.data)
        } else {
            (ClaimContent::Blank, &self.blank)
        };
        let disk = self.disk(bytes);
        let claim = serde_json::to_string(&DeviceClaim { content, ..self.claim.clone() }).unwrap();
        let lines = self.ledger().len();
        let contender = self.stopped(&["scan", &claim], point);
        let got = self.admit_rival(rival, &disk, access, &at);
        let seen = self.bytes();
        contender.go_on();
        let output = contender.end();
        let message = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{at}: {output:?}");
        let refused = access == Access::Free || rival == Rival::Loops;
        assert!(
            message.contains(if refused {
                "\"state\":\"Refused\""
            } else {
                "\"state\":\"Confirmed\""
            }),
            "{at}: {message}"
        );
        assert!(!refused || rival.is_named_in(&message, got.as_ref().unwrap()), "{at}: {message}");
        let link_target = self.bed.link_target(&self.claim.link);
        assert_eq!(link_target, (!refused).then(|| disk.dev().into()), "{at}: {message}");
        assert!(seen == self.bytes(), "{at}: a confirmation writes nothing");
        let records: Vec<String> = self.ledger().split_off(lines);
        assert_eq!(records.len(), usize::from(!refused), "{at}: {records:?}");
        assert!(
            records.iter().all(|line| line.contains("\"kind\":\"confirmed\"")),
            "{at}: {records:?}"
        );
        let _ = fs::remove_dir_all(self.bed.at("/mnt"));
        if let Some(got) = got {
            got.end(&disk);
        }
    }
}

// invariant: 2
#[test]
fn rival_and_wipe_never_both_succeed_at_any_failpoint() {
    let table = points(WIPE);
    assert_complete(&table, &["wipe.", "ledger.", "status."]);
    let stage = Stage::new();
    let others = fs::read(&stage.other).unwrap();
    let first_byte = table.iter().position(|(point, _)| *point == FIRST_BYTE).unwrap();
    let mut runs = 0;
    for (index, (point, access)) in table.iter().copied().enumerate() {
        let policy = match point {
            "wipe.overwritten" => WipePolicy::Quick,
            "wipe.marked" | "wipe.discarding" => WipePolicy::Discard,
            "wipe.zeroing" => WipePolicy::Zero,
            _ => WipePolicy::ALL[index % WipePolicy::ALL.len()],
        };
        for rival in rivals(index, (point, access)).into_iter().chain([Rival::Swaps]) {
            stage.wipe(point, access, rival, policy, index > first_byte);
            runs += 1;
        }
    }
    assert!(others == fs::read(&stage.other).unwrap(), "the disk that was swapped in has changed");
    println!("figure: rivals at {} failpoints of a wipe: {runs} runs, never both", table.len());
}

// invariant: 2
#[test]
fn rival_and_confirmation_never_both_succeed() {
    let table = points(CONFIRMATION);
    assert_complete(&table, &["confirm.", "claim-link.", "inventory."]);
    let stage = Stage::new();
    let mut runs = 0;
    for (index, (point, access)) in table.iter().copied().enumerate() {
        for rival in rivals(index, (point, access)) {
            stage.confirm(point, access, rival);
            runs += 1;
        }
    }
    println!(
        "figure: rivals at {} failpoints of a confirmation: {runs} runs, never both",
        table.len()
    );
}
