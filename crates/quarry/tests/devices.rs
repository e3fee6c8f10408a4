//! `quarry devices` and `quarry explain` of a device, as a process: with and without root, on this machine and on
//! invalid host roots.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "starts the binary on directories of its own"
)]

use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    os::unix::{fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

const BINARY: &str = env!("CARGO_BIN_EXE_quarry");
const UNPRIVILEGED: u32 = 65534;
const LIMIT: Duration = Duration::from_secs(60);

/// A command without any configuration.
fn quarry(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("RUST_LOG");
    command.env("HOME", "/nonexistent").env("XDG_DATA_HOME", "/nonexistent");
    command
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Also where the tests run as root.
fn without_root(arguments: &[&str]) -> Command {
    let mut command = quarry(arguments);
    if is_root() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = quarry(arguments).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(1),
        "{arguments:?}: {}{}",
        stdout(&output),
        stderr(&output)
    );
    assert_eq!(stdout(&output), "");
    stderr(&output)
}

/// What the kernel lists: without idle loops and RAM disks.
fn kernel_devices() -> Vec<String> {
    let all = std::fs::read_dir("/sys/class/block")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    all.filter(|name| !name.starts_with("loop") && !name.starts_with("ram")).collect()
}

fn check_devices(json: &str) -> Vec<Value> {
    let Value::Array(devices) = serde_json::from_str(json).unwrap() else { panic!("{json}") };
    for name in kernel_devices() {
        let shown = name.replace('!', "/");
        let device = devices.iter().find(|device| device["name"] == shown.as_str());
        let size: i64 = std::fs::read_to_string(format!("/sys/class/block/{name}/size"))
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        // The path of a multipath map is not listed on its own.
        if let Some(device) = device {
            assert_eq!(device["size"], size * 512, "{device}");
        }
    }
    for device in &devices {
        for field in ["node", "name", "type", "size", "state", "number"] {
            assert!(!device[field].is_null(), "{field} of {device}");
        }
        let available = device["state"] == "Available";
        assert_eq!(available, device["reasons"].is_null(), "a verdict has reasons: {device}");
        assert!(device["settled"].is_null(), "one scan cannot show it: {device}");
    }
    devices
}

#[test]
fn this_machine_is_listed() {
    let output = quarry(&["devices", "--local", "-o", "json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let devices = check_devices(&stdout(&output));
    assert!(!devices.is_empty() || kernel_devices().is_empty());
    let yaml = quarry(&["devices", "--local", "-o", "yaml"]).output().unwrap();
    assert!(
        yaml.status.success() && (devices.is_empty() || stdout(&yaml).contains("state: ")),
        "{}",
        stdout(&yaml)
    );
}

// invariant: 4
#[test]
fn without_root_everything_but_the_content_is_shown() {
    let output = without_root(&["devices", "-o", "json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output)
            .starts_with("no cluster is configured: showing the devices of this machine"),
        "{}",
        stderr(&output)
    );
    let devices = check_devices(&stdout(&output));
    assert!(
        devices.iter().all(|device| device["state"] != "Available"),
        "contents were not read: {devices:?}"
    );
    let hidden = |device: &Value| {
        device["reasons"]
            .as_array()
            .is_some_and(|reasons| reasons.iter().any(|given| given["reason"] == "NotPermitted"))
    };
    let Some(first) = devices
        .iter()
        .find(|device| hidden(device) && device["size"] != 0 && device["type"] != "loop")
    else {
        return;
    };
    let table = without_root(&["devices", "--local", "--all"]).output().unwrap();
    assert!(stdout(&table).contains("needs root"), "{}", stdout(&table));
    assert!(
        stderr(&table).contains("devices could not be read; run `sudo quarry devices`"),
        "{}",
        stderr(&table)
    );
    let explained = without_root(&["explain", first["name"].as_str().unwrap()]).output().unwrap();
    let message = stdout(&explained);
    assert!(
        message
            .contains("- Signature             not checked: it may not be opened by this process"),
        "{message}"
    );
    assert!(message.contains("NotPermitted            run as root"), "{message}");
}

#[test]
fn an_invalid_host_root_is_an_error_with_a_remedy() {
    let message = refused(&["devices", "--host-root", "/nowhere"]);
    assert!(message.contains("host root /nowhere") && message.contains("usually /"), "{message}");
    let empty = tempfile::tempdir().unwrap();
    for command in [vec!["devices"], vec!["explain", "/dev/sda"]] {
        let message =
            refused(&[command, vec!["--host-root", empty.path().to_str().unwrap()]].concat());
        assert!(message.contains("/sys is mounted"), "{message}");
        assert!(message.lines().count() <= 2, "{message}");
    }
}

#[test]
fn a_path_to_something_else_is_an_error() {
    assert_eq!(
        refused(&["explain", "/dev/null"]),
        "error: /dev/null is a character device, not a block device\nhint: run `quarry devices --local` to list the devices of this machine\n"
    );
    assert!(refused(&["explain", "/etc"]).contains("/etc is a directory, not a block device"));
    let message = refused(&["explain", "/dev/sdnope"]);
    assert!(
        message.starts_with("error: this machine has no device /dev/sdnope\nhint: use one of: ")
            || message.contains("has no devices"),
        "{message}"
    );
    let message = refused(&["explain", "nope"]);
    assert!(message.contains("for a volume write volume/nope"), "{message}");
}

/// A machine with one disk whose strings contain escape sequences, as files.
fn hostile_machine(root: &Path) {
    let device = root.join("sys/devices/pci0/host0/block/sdz");
    let write = |path: PathBuf, bytes: &[u8]| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    write(device.join("uevent"), b"MAJOR=8\nMINOR=400\nDEVNAME=sdz\nDEVTYPE=disk\nDISKSEQ=7\n");
    write(device.join("dev"), b"8:400\n");
    write(device.join("size"), b"20480\n");
    write(device.join("ro"), b"1\n");
    write(device.join("device/model"), b"\x1b[2J\x1b]0;owned\x07\xff evil\n");
    write(device.join("device/vendor"), "b\u{202e}c".as_bytes());
    write(device.join("device/wwid"), b"naa.5000c500a1b2c3d4\n");
    write(device.join("device/serial"), &[b'A'; 4000]);
    std::fs::create_dir_all(root.join("sys/class/block")).unwrap();
    symlink("../../devices/pci0/host0/block/sdz", root.join("sys/class/block/sdz")).unwrap();
    write(root.join("proc/1/mountinfo"), b"30 1 8:400 / /mnt/\\033[8m rw - ext4 /dev/sdz rw\n");
}

#[test]
fn escape_sequences_of_a_disk_are_printed_escaped() {
    let root = tempfile::tempdir().unwrap();
    hostile_machine(root.path());
    let path = root.path().to_str().unwrap();
    for arguments in [
        &["devices", "--host-root", path][..],
        &["devices", "--host-root", path, "-o", "wide"],
        &["devices", "--host-root", path, "-o", "json"],
        &["devices", "--host-root", path, "-o", "yaml"],
        &["explain", "/dev/sdz", "--host-root", path],
        &["explain", "wwn:5000c500a1b2c3d4", "--host-root", path],
    ] {
        let output = quarry(arguments).output().unwrap();
        let message = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {message}");
        assert!(
            !message.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{fffd}']),
            "{arguments:?}: {message:?}"
        );
        assert!(message.contains("sdz") && message.contains("owned"), "{arguments:?}: {message}");
    }
    let explained = stdout(&quarry(&["explain", "sdz", "--host-root", path]).output().unwrap());
    for line in [
        "  ✗ Mounted               is mounted: /mnt/\\u{1b}[8m",
        "  ✗ ReadOnly              is read-only",
        "  ✗ Unreadable            cannot be read: there is no node /dev/sdz",
    ] {
        assert!(explained.contains(line), "{line}: {explained}");
    }
    assert!(
        explained.contains("  ✓ sysfs:wwid            naa.5000c500a1b2c3d4 (this is its identity)"),
        "{explained}"
    );
}

#[test]
fn an_unreachable_cluster_fails_only_if_it_was_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config");
    let text = "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], \
                contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}";
    std::fs::write(&file, text).unwrap();
    let output = quarry(&["devices", "-o", "json"]).env("KUBECONFIG", &file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    check_devices(&stdout(&output));
    let note = stderr(&output);
    assert!(
        note.contains("cannot reach http://127.0.0.1:1")
            && note.contains("showing the devices of this machine"),
        "{note}"
    );
    let named = quarry(&["devices", "n1"]).env("KUBECONFIG", &file).output().unwrap();
    assert!(
        named.status.code() == Some(1) && stderr(&named).contains("cannot reach"),
        "{}",
        stderr(&named)
    );
    assert!(refused(&["devices", "--kubeconfig", file.to_str().unwrap()]).contains("cannot reach"));
    // Without root: a standalone Quarry of this machine must not be found.
    let output = without_root(&["explain", "n1/sda"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("no cluster is configured"), "{}", stderr(&output));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = quarry(&["devices", "--local", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_watch_ends_when_its_pipe_is_closed() {
    let mut child = Running(
        quarry(&["devices", "--local", "--watch"])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap(),
    );
    let mut first = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let deadline = Instant::now() + LIMIT;
    while child.0.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it runs without a reader");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

struct Running(Child);

impl Running {
    fn end(&mut self, signal: rustix::process::Signal) -> Option<i32> {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.0.try_wait().unwrap() {
                Some(status) => return status.code(),
                None if Instant::now() > deadline => panic!("it did not end"),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_watch_prints_the_list_and_stops_on_a_signal() {
    let mut child = Running(
        quarry(&["devices", "--local", "--watch"])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap(),
    );
    let mut first = String::new();
    BufReader::new(child.0.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("TIME       NAME"), "{first}");
    assert_eq!(child.end(rustix::process::Signal::INT), Some(0));
}

#[test]
fn the_nodes_of_a_cluster_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = [
        "up",
        "--data-dir",
        dir.path().to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--node-name",
        "box",
    ];
    let mut up = Running(
        quarry(&arguments).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap(),
    );
    let mut lines = BufReader::new(up.0.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
    assert!(
        lines.any(|line| line.contains("is ready")) && lines.any(|line| line.ends_with(" devices")),
        "it prints the command for the list"
    );
    let ask = |arguments: &[&str]| {
        quarry(arguments).env("KUBECONFIG", dir.path().join("kubeconfig")).output().unwrap()
    };
    let missing = ask(&["devices", "bax"]);
    assert!(
        missing.status.code() == Some(1)
            && stderr(&missing).contains("node bax has no NodeInventory\nhint: check the name"),
        "{}",
        stderr(&missing)
    );
    if is_root() && !kernel_devices().is_empty() {
        let deadline = Instant::now() + LIMIT;
        let devices = loop {
            let output = ask(&["devices", "box", "-o", "json"]);
            let devices: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
            if !devices.is_empty() {
                break devices;
            }
            assert!(Instant::now() < deadline, "{}", stderr(&output));
            std::thread::sleep(Duration::from_millis(50));
        };
        let name = devices[0]["name"].as_str().unwrap();
        assert_eq!(devices[0]["node"], "box");
        assert!(stdout(&ask(&["devices", "--all"])).starts_with("NODE  NAME"));
        let explained = ask(&["explain", &format!("box/{name}")]);
        assert!(
            stdout(&explained).starts_with(&format!("device {name} on node box: ")),
            "{}{}",
            stdout(&explained),
            stderr(&explained)
        );
        assert!(
            stdout(&explained).contains("Verdict: ") && stdout(&explained).contains("Events:"),
            "{}",
            stdout(&explained)
        );
        let unknown = ask(&["explain", "box/sdnope"]);
        assert!(
            stderr(&unknown)
                .starts_with("error: node box has no device sdnope\nhint: use one of: "),
            "{}",
            stderr(&unknown)
        );
    } else if !is_root() {
        let output = ask(&["devices"]);
        assert!(
            stderr(&output).contains("no devices of node box: no agent has been seen on node box"),
            "{}",
            stderr(&output)
        );
    }
    assert_eq!(up.end(rustix::process::Signal::INT), Some(0));
}
