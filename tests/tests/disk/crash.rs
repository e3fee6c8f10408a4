//! SIGKILL at every failpoint of NodeOps, in a separate process; then a retry: the same result, and
//! nothing is left.

use super::kills::{disk_hand, finish, killed_at};
use quarry_failpoint::VARIABLE;
use quarry_node::failpoints::ALL;
use quarry_tests::disk::{Bed, Links, MIB, eventually, run};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::{fs::MetadataExt, process::ExitStatusExt},
    path::Path,
    process::{Command, Stdio},
};

/// State of a finished volume as seen from outside.
fn volume_state(bed: &Bed, uid: &str, link: &str) -> (usize, Vec<String>, u64, bool) {
    let target = fs::canonicalize(bed.at(link)).unwrap_or_default();
    let device = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let points_to_ours = bed.loops().first().is_some_and(|name| device.starts_with(name.as_str()));
    (
        bed.loops().len(),
        bed.files(),
        fs::metadata(bed.file(uid)).map_or(0, |meta| meta.len()),
        points_to_ours,
    )
}

/// One flow, killed at every failpoint on its way. Returns the failpoints it reached.
fn kill_at_every_failpoint(links: Links, format: &str) -> BTreeSet<&'static str> {
    let bed = Bed::new(links);
    let uid = quarry_tests::disk::new_uid();
    let size = (16 * MIB).to_string();
    let prepare = ["prepare", &uid, &size, format];
    let cleanup = ["cleanup", &uid];
    let link = if format == "partition" {
        format!("/dev/disk/by-partlabel/{uid}")
    } else {
        format!("/dev/disk/by-uuid/{uid}")
    };
    let done = (1, vec![uid.clone()], 16 * MIB, true);
    let mut met = BTreeSet::new();
    for point in ALL {
        if killed_at(&bed, &prepare, point) {
            met.insert(*point);
            finish(&bed, &prepare, point);
        }
        assert_eq!(volume_state(&bed, &uid, &link), done, "prepared, after a kill at {point}");
        if killed_at(&bed, &cleanup, point) {
            met.insert(*point);
            finish(&bed, &cleanup, point);
        }
        bed.assert_clean(&uid);
    }
    // A killed build leaves a draft; the next build is killed while it removes the draft, or during
    // its own build.
    for point in [
        "discard-draft.before",
        "discard-draft.after",
        "make-draft.created",
        "format-draft.written",
    ] {
        assert!(killed_at(&bed, &prepare, "make-draft.created"));
        assert!(killed_at(&bed, &prepare, point), "{point} is reached with a leftover draft");
        met.insert(point);
        finish(&bed, &prepare, point);
        assert_eq!(volume_state(&bed, &uid, &link), done, "prepared, after a kill at {point}");
        finish(&bed, &cleanup, point);
        bed.assert_clean(&uid);
    }
    // Cleanup of a build that never finished.
    assert!(killed_at(&bed, &prepare, "format-draft.written"));
    assert!(killed_at(&bed, &cleanup, "discard-draft.before"));
    finish(&bed, &cleanup, "discard-draft.before");
    bed.assert_clean(&uid);
    // Independent of what udev or other processes do with the device later: on a kernel without a
    // partition parser the partition stays.
    if format == "partition" {
        assert!(killed_at(&bed, &prepare, "attach.configured"));
        finish(&bed, &prepare, "attach.configured");
        for name in bed.loops() {
            let _ = Command::new("blockdev").args(["--rereadpt", &format!("/dev/{name}")]).output();
        }
        eventually("the partition exists", || volume_state(&bed, &uid, &link) == done);
        finish(&bed, &cleanup, "attach.configured");
        bed.assert_clean(&uid);
    }
    met
}

/// udev handles no event while this value lives, and all of them afterwards.
struct Paused;

impl Paused {
    fn new() -> Self {
        run("udevadm", &["control", "--stop-exec-queue"]);
        Paused
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let _ = Command::new("udevadm").args(["control", "--start-exec-queue"]).output();
    }
}

const TRIES: usize = 10;

/// The failpoints around waiting for udev are reached reliably only when udev is slow.
fn kill_while_waiting_for_udev() -> BTreeSet<&'static str> {
    let bed = Bed::new(Links::Udev);
    let uid = quarry_tests::disk::new_uid();
    let size = (16 * MIB).to_string();
    let prepare = ["prepare", &uid, &size, "ext4"];
    let cleanup = ["cleanup", &uid];
    let killed_when = |arguments: &[&str], point: &str, reached: &dyn Fn() -> bool| {
        // There is a delay between the change and the check for the link: on a busy machine udev
        // may sometimes be faster.
        for _ in 0..TRIES {
            let paused = Paused::new();
            let mut agent = disk_hand(&bed, arguments).env(VARIABLE, point).spawn().unwrap();
            eventually("the process waits for udev", || {
                reached() || agent.try_wait().unwrap().is_some()
            });
            drop(paused);
            let killed = agent.wait().unwrap().signal() == Some(9);
            finish(&bed, arguments, point);
            if killed {
                return;
            }
            let undo: &[&str] = if arguments[0] == "prepare" { &cleanup } else { &prepare };
            finish(&bed, undo, point);
        }
        panic!("{point} is not reached in {TRIES} attempts");
    };
    for (before, after) in
        [("await-link.before", "await-no-link.before"), ("await-link.after", "await-no-link.after")]
    {
        killed_when(&prepare, before, &|| !bed.loops().is_empty());
        assert_eq!(bed.links(&uid), [format!("/dev/disk/by-uuid/{uid}")]);
        killed_when(&cleanup, after, &|| bed.loops().is_empty());
        bed.assert_clean(&uid);
    }
    BTreeSet::from([
        "await-link.before",
        "await-link.after",
        "await-no-link.before",
        "await-no-link.after",
    ])
}

// invariant: 10
#[test]
fn node_ops_survive_a_kill_at_every_failpoint() {
    let mut met = BTreeSet::new();
    for links in Links::BOTH {
        for format in ["ext4", "partition"] {
            met.extend(kill_at_every_failpoint(links, format));
        }
    }
    met.extend(kill_while_waiting_for_udev());
    // Failpoints around API writes belong to tests with an API, those of claimed devices to
    // `wipe.rs`.
    let others = ["status.", "inventory.", "claim-", "confirm.", "wipe."];
    let of_the_hands: BTreeSet<&str> = ALL
        .iter()
        .copied()
        .filter(|name| !others.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    let missed: Vec<_> = of_the_hands.difference(&met).collect();
    assert!(missed.is_empty(), "never reached: {missed:?}");
    println!("figure: NodeOps killed at {} failpoints in 4 flows", met.len());
}

// invariant: 1
#[test]
fn mkfs_dies_with_the_agent_and_the_volume_is_rebuilt() {
    let bed = Bed::new(Links::Own);
    let uid = quarry_tests::disk::new_uid();
    let size = (64u64 << 30).to_string();
    let prepare = ["prepare", &uid, &size, "xfs"];
    let draft = bed.file(&format!("{uid}.draft"));
    let mut agent = disk_hand(&bed, &prepare).stderr(Stdio::null()).spawn().unwrap();
    // Blocks in the draft: mkfs is writing, or has just written.
    eventually("mkfs has begun", || {
        fs::metadata(&draft).is_ok_and(|meta| meta.blocks() > 0) || bed.file(&uid).exists()
    });
    agent.kill().unwrap();
    agent.wait().unwrap();
    let tool = format!("uuid={uid}");
    eventually("mkfs has exited", || !running(&tool));
    finish(&bed, &prepare, "a kill during mkfs");
    assert_eq!(bed.files(), [uid.as_str()]);
    finish(&bed, &["cleanup", &uid], "a kill during mkfs");
    bed.assert_clean(&uid);
}

/// Whether a running process has this argument.
fn running(argument: &str) -> bool {
    let processes = fs::read_dir(Path::new("/proc")).unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .into_iter()
        .any(|line| line.split(|byte| *byte == 0).any(|part| part == argument.as_bytes()))
}
