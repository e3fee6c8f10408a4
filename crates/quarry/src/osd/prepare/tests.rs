//! What is refused before a device or a monitor is touched, and what is reported. The steps on a real Ceph: tests/.

use super::*;
use crate::cli::{Cli, Command, OsdCommand};
use clap::Parser;

const UUID: &str = "1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10";
const FSID: &str = "b84b331e-f09c-4be5-ac02-c900d1967422";
const KEYRING: &str = "[client.bootstrap-osd]\n\tkey = AQAAAAAAAAAAABAAAAECAwQFBgcICQoLDA0ODw==\n";

fn parse(directory: &Path, more: &[&str]) -> PrepareArgs {
    let keyring = directory.join("keyring");
    if !keyring.exists() {
        fs::write(&keyring, KEYRING).unwrap();
    }
    let (keyring, work) = (keyring.display().to_string(), directory.join("work"));
    let work = work.display().to_string();
    let fixed = ["quarry", "osd", "prepare", "--mon-host", "10.0.0.1"];
    let files = ["--keyring", &keyring, "--work-dir", &work];
    let cli = Cli::parse_from(fixed.iter().chain(&files).chain(more));
    match cli.command {
        Command::Osd { command: OsdCommand::Prepare(args) } => *args,
        other => panic!("{other:?}"),
    }
}

fn failure(directory: &Path, more: &[&str]) -> Failure {
    run(&parse(directory, more)).unwrap_err()
}

#[test]
fn invalid_input_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let found = failure(directory.path(), &["--uuid", "x", "--fsid", FSID]);
    assert_eq!(found.reason, Reason::InvalidInput);
    assert!(found.message.starts_with("--uuid: \"x\" is not a UUID"), "{found:?}");
    let found = failure(directory.path(), &["--uuid", UUID, "--fsid", ""]);
    assert!(found.message.starts_with("--fsid: "), "{found:?}");
    let missing = ["--uuid", UUID, "--fsid", FSID, "--config-override", "/nonexistent/config"];
    let found = failure(directory.path(), &missing);
    assert_eq!(found.reason, Reason::MountUnusable);
    assert!(found.message.starts_with("--config-override /nonexistent/config: "), "{found:?}");
}

#[test]
fn override_of_another_cluster_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    fs::write(&file, "[global]\nfsid = c84b331e-f09c-4be5-ac02-c900d1967422\n").unwrap();
    let file = file.display().to_string();
    let args = ["--uuid", UUID, "--fsid", FSID, "--config-override", &file];
    assert_eq!(failure(directory.path(), &args).reason, Reason::InvalidInput);
}

#[test]
fn unusable_keyring_is_not_quoted() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("keyring"), "[client.x]\nkey = AQprivate\n").unwrap();
    let found = failure(directory.path(), &["--uuid", UUID, "--fsid", FSID]);
    assert_eq!(found.reason, Reason::InvalidInput);
    assert!(found.message.contains("client.x") && !found.message.contains("private"), "{found:?}");
}

#[test]
fn device_that_is_no_block_device_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let keyring = directory.path().join("keyring").display().to_string();
    let found = failure(directory.path(), &["--uuid", UUID, "--fsid", FSID, "--data", &keyring]);
    assert_eq!(found.reason, Reason::DeviceUnreadable);
    assert!(
        found.message.starts_with("data device ") && found.message.contains("not a block device")
    );
}

#[test]
fn result_names_devices_and_location() {
    let directory = tempfile::tempdir().unwrap();
    let args = parse(
        directory.path(),
        &[
            "--uuid",
            UUID,
            "--fsid",
            FSID,
            "--metadata",
            "/dev/rook/device1",
            "--device-class",
            "",
            "--node-name",
            "node-1.example",
            "--pvc-name",
            "set1-data-0",
        ],
    );
    let result = Run::new(&args).unwrap().completed(3, "prepared osd.3".into());
    insta::assert_snapshot!(result.to_json(), @r#"{"osds":[{"id":3,"cluster":"ceph","uuid":"1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10","device-class":"","lv-path":"/dev/rook/device0","metadata-path":"/dev/rook/device1","wal-path":"","location":"root=default host=node-1-example","lv-mode":"raw","store":"bluestore","encrypted":false,"nodeName":"node-1.example","pvcName":"set1-data-0"}],"status":"completed","pvc-backed-osd":true,"message":"prepared osd.3"}"#);
    let conf = fs::read_to_string(directory.path().join("work/ceph.conf")).unwrap();
    assert!(conf.starts_with(&format!("[global]\nfsid = {FSID}\nmon_host = 10.0.0.1\n")), "{conf}");
}
