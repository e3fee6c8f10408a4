//! A foreign process at every point of a wipe and of a confirmation: whoever has the device first keeps it, never both.
//!
//! `disk-hand` stops itself at the point (`NAME!stop`), the rival tries, and the order goes on. The tables say whose
//! the device is at which point: a hold that began later, ended earlier or had a gap fails here by the point's name.

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
enum Whose {
    /// Nobody's: a rival gets it, and the order is refused.
    Free,
    /// Ours: a rival is refused.
    Held,
    /// The order has ended its work: a rival gets it, and keeps what it makes.
    LetGo,
}

/// From the first question to the last word. Held from the exclusive open until it is proven that the device is blank.
/// Points named `hand.` are of disk-hand itself, right before the agent's job and before its hands reach for the device.
const WIPE: [(Whose, &[&str]); 3] = [
    (Whose::Free, &["hand.job", "hand.hold", "wipe.seen", "status.running.before"]),
    (
        Whose::Held,
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
            "wipe.discarding",
            "wipe.zeroing",
            "wipe.erased",
            "wipe.synced",
            "wipe.proven",
        ],
    ),
    (
        Whose::LetGo,
        &[
            "ledger.outcome.before",
            "ledger.torn:2",
            "ledger.outcome.after",
            "status.finished.before",
            "status.finished.after",
        ],
    ),
];
/// Nothing is written up to here.
const FIRST_BYTE: &str = "wipe.before";

/// The device is read while it is held, and its link is made.
const CONFIRMATION: [(Whose, &[&str]); 3] = [
    (Whose::Free, &["hand.look", "hand.confirm"]),
    (
        Whose::Held,
        &[
            "confirm.held",
            "claim-link.before",
            "claim-link.made",
            "claim-link.after",
            "confirm.linked",
            "confirm.recorded",
        ],
    ),
    (Whose::LetGo, &["inventory.before", "inventory.after"]),
];

/// After these the node is looked at once more, while the device is held.
const LOOKS_AGAIN: [&str; 2] = ["wipe.opened", "confirm.held"];

fn points(table: [(Whose, &'static [&'static str]); 3]) -> Vec<(&'static str, Whose)> {
    table.iter().flat_map(|(whose, points)| points.iter().map(|point| (*point, *whose))).collect()
}

/// Every failpoint of the agent with one of these beginnings is in the table, whichever of its hits.
#[track_caller]
fn assert_complete(table: &[(&str, Whose)], prefixes: &[&str]) {
    let named: BTreeSet<&str> = table
        .iter()
        .map(|(point, _)| point.split(':').next().unwrap())
        .filter(|name| !name.starts_with("hand."))
        .collect();
    let all: BTreeSet<&str> = ALL
        .iter()
        .copied()
        .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    assert_eq!(named, all);
}

/// Who comes by at the point of this number.
fn foreigners(index: usize, (point, whose): (&str, Whose)) -> Vec<Rival> {
    use Rival::*;
    let mut all = vec![Opens, Mounts];
    match whose {
        // The order tries again for most of a second before it gives up: each tool at every other point.
        Whose::Free => {
            let tools = [Tool::Ext4, Tool::Xfs];
            all.extend([Formats(tools[index % 2]), Formatted(tools[(index + 1) % 2])]);
        }
        Whose::Held | Whose::LetGo => all.extend([Formats(Tool::Ext4), Formats(Tool::Xfs)]),
    }
    // The kernel lets anybody make a loop over a device that is held; whoever looks sees it.
    if whose == Whose::Free || LOOKS_AGAIN.contains(&point) {
        all.push(Loops);
    }
    all
}

struct Stage {
    /// A disk with a file system and somebody's data, and a blank one.
    data: Vec<u8>,
    blank: Vec<u8>,
    claim: DeviceClaim,
    path: PathBuf,
    other: PathBuf,
    folder: TempDir,
    bed: Bed,
}

impl Stage {
    fn new() -> Self {
        let bed = Bed::new(Links::Own);
        let folder = tempfile::tempdir_in(&bed.root).unwrap();
        let (path, other) = (file(folder.path(), "d", SIZE), file(folder.path(), "other", SIZE));
        super::wipe::fill(&other);
        let disk = Disk::new(folder.path(), &path, &other);
        let scan = bed.ops().scan_node(&ScanRequest::default()).unwrap();
        let facts =
            scan.devices.iter().find(|facts| format!("/dev/{}", facts.name) == disk.dev()).unwrap();
        let claim = claim_of(facts, Default::default());
        assert!(Tool::Ext4.command().arg(disk.dev()).status().unwrap().success());
        let mounted = Mounted::new(&["-t", "ext4", &disk.dev()], &folder.path().join("mnt"));
        fs::write(mounted.0.join("data"), "somebody's secret ".repeat(40_000)).unwrap();
        drop(mounted);
        drop(disk);
        let data = fs::read(&path).unwrap();
        Stage { blank: vec![0; data.len()], data, claim, path, other, folder, bed }
    }

    /// With these bytes, and a loop device of its own.
    fn disk(&self, bytes: &[u8]) -> Disk {
        // udev may have had it open when it was detached. Two devices over one file are refused.
        eventually("the last device is gone", || {
            run("losetup", &["-j", &self.path.to_string_lossy()]).is_empty()
        });
        let image = OpenOptions::new().write(true).open(&self.path).unwrap();
        image.set_len(0).unwrap();
        image.set_len(SIZE).unwrap();
        // Where it is blank it stays sparse.
        for (at, piece) in (0..)
            .step_by(PIECE)
            .zip(bytes.chunks(PIECE))
            .filter(|(_, piece)| *piece != &self.blank[..PIECE])
        {
            image.write_all_at(piece, at).unwrap();
        }
        Disk::new(self.folder.path(), &self.path, &self.other)
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

    /// A process that has stopped at this point of the order.
    #[track_caller]
    fn stopped(&self, order: &[&str], point: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_disk-hand"));
        command
            .arg(&self.bed.root)
            .arg(&self.bed.data_on_node)
            .args(order)
            .env(VARIABLE, format!("{point}!stop"));
        Process::start(&mut command)
            .stopped()
            .unwrap_or_else(|output| panic!("{order:?} never comes to {point}: {output:?}"))
    }

    /// Refused if the device is held, and only then.
    #[track_caller]
    fn come(&self, rival: Rival, disk: &Disk, whose: Whose, at: &str) -> Option<Got> {
        let is_busy = |said: &str| said.contains("busy") || said.contains("in use by the system");
        if whose == Whose::Held && rival != Rival::Loops {
            let before = self.bytes();
            match rival.try_it(disk) {
                Ok(_) => panic!("{at}: it is held, and {rival:?} has got it"),
                Err(said) => assert!(
                    is_busy(&said),
                    "{at}: {rival:?} is refused, but not for who holds it: {said}"
                ),
            }
            assert!(before == self.bytes(), "{at}: {rival:?} was refused and wrote");
            return None;
        }
        let mut got = None;
        // Somebody else's agent may look at it for a moment.
        eventually(&format!("{at}: {rival:?} gets what nobody holds"), || {
            match rival.try_it(disk) {
                Ok(what) => got.replace(what).is_none(),
                Err(said) if is_busy(&said) => false,
                Err(said) => panic!("{at}: {rival:?}: {said}"),
            }
        });
        got
    }

    /// One wipe, one rival.
    fn wipe(&self, point: &str, whose: Whose, rival: Rival, policy: WipePolicy, begun: bool) {
        let at = format!("wipe, {point}, {rival:?}");
        let disk = self.disk(&self.data);
        let recorded = self.ledger().len();
        let claim = serde_json::to_string(&self.claim).unwrap();
        let order = if point.starts_with("status.running") { "wipe-told" } else { "wipe" };
        let hand = self.stopped(&[order, &claim, policy.as_str()], point);
        assert!(begun || self.data == self.bytes(), "{at}: something is written already");
        if whose == Whose::LetGo {
            self.assert_erased(policy, &at);
            if rival == Rival::Mounts {
                self.come(Rival::Formatted(Tool::Ext4), &disk, whose, &at);
            }
        }
        let got = self.come(rival, &disk, whose, &at);
        let seen = self.bytes();
        hand.go_on();
        let output = hand.end();
        let said = String::from_utf8_lossy(&output.stderr);
        let ledger = self.ledger().split_off(recorded);
        let count = |words: &str| ledger.iter().filter(|line| line.contains(words)).count();
        // Whoever has formatted the device and left has it no longer: that goes with the rest of what is on it.
        let refused = match rival {
            Rival::Loops => true,
            Rival::Formatted(_) => false,
            Rival::Opens | Rival::Mounts | Rival::Formats(_) | Rival::Swaps => whose == Whose::Free,
        };
        assert_eq!(output.status.success(), !refused, "{at}: {said}");
        if refused {
            assert!(rival.is_told_by(&said, got.as_ref().unwrap()), "{at}: {said}");
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
            match whose {
                Whose::LetGo => assert!(seen == self.bytes(), "{at}: written after it was let go"),
                Whose::Free | Whose::Held => self.assert_erased(policy, &at),
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
        assert!(erased, "{at}: it is not erased");
    }

    /// One look that is to confirm a claim, one rival.
    fn confirm(&self, point: &str, whose: Whose, rival: Rival) {
        let at = format!("confirmation, {point}, {rival:?}");
        // A device that is to be mounted has a file system, and a claim that says so.
        let (content, bytes) = if rival == Rival::Mounts {
            (ClaimContent::Any, &self.data)
        } else {
            (ClaimContent::Blank, &self.blank)
        };
        let disk = self.disk(bytes);
        let claim = serde_json::to_string(&DeviceClaim { content, ..self.claim.clone() }).unwrap();
        let lines = self.ledger().len();
        let hand = self.stopped(&["look", &claim], point);
        let got = self.come(rival, &disk, whose, &at);
        let seen = self.bytes();
        hand.go_on();
        let output = hand.end();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{at}: {output:?}");
        let refused = whose == Whose::Free || rival == Rival::Loops;
        assert!(
            said.contains(if refused {
                "\"state\":\"Refused\""
            } else {
                "\"state\":\"Confirmed\""
            }),
            "{at}: {said}"
        );
        assert!(!refused || rival.is_told_by(&said, got.as_ref().unwrap()), "{at}: {said}");
        let leads_to = fs::read_link(self.bed.at(&self.claim.link)).ok();
        assert_eq!(leads_to, (!refused).then(|| disk.dev().into()), "{at}: {said}");
        assert!(seen == self.bytes(), "{at}: a confirmation writes nothing");
        let told: Vec<String> = self.ledger().split_off(lines);
        assert_eq!(told.len(), usize::from(!refused), "{at}: {told:?}");
        assert!(told.iter().all(|line| line.contains("\"kind\":\"confirmed\"")), "{at}: {told:?}");
        let _ = fs::remove_dir_all(self.bed.at("/mnt"));
        if let Some(got) = got {
            got.end(&disk);
        }
    }
}

#[test]
fn at_every_point_of_a_wipe_a_rival_and_the_job_never_both_succeed() {
    let table = points(WIPE);
    assert_complete(&table, &["wipe.", "ledger.", "status."]);
    let stage = Stage::new();
    let others = fs::read(&stage.other).unwrap();
    let first_byte = table.iter().position(|(point, _)| *point == FIRST_BYTE).unwrap();
    let mut runs = 0;
    for (index, (point, whose)) in table.iter().copied().enumerate() {
        let policy = match point {
            "wipe.overwritten" => WipePolicy::Quick,
            "wipe.discarding" => WipePolicy::Discard,
            "wipe.zeroing" => WipePolicy::Zero,
            _ => WipePolicy::ALL[index % WipePolicy::ALL.len()],
        };
        for rival in foreigners(index, (point, whose)).into_iter().chain([Rival::Swaps]) {
            stage.wipe(point, whose, rival, policy, index > first_byte);
            runs += 1;
        }
    }
    assert!(others == fs::read(&stage.other).unwrap(), "the disk that was swapped in has changed");
    println!("figure: foreigners at {} points of a wipe: {runs} runs, never both", table.len());
}

#[test]
fn at_every_point_of_a_confirmation_a_rival_and_the_claim_never_both_succeed() {
    let table = points(CONFIRMATION);
    assert_complete(&table, &["confirm.", "claim-link.", "inventory."]);
    let stage = Stage::new();
    let mut runs = 0;
    for (index, (point, whose)) in table.iter().copied().enumerate() {
        for rival in foreigners(index, (point, whose)) {
            stage.confirm(point, whose, rival);
            runs += 1;
        }
    }
    println!(
        "figure: foreigners at {} points of a confirmation: {runs} runs, never both",
        table.len()
    );
}
