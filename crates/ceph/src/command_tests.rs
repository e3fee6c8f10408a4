//! The exact arguments of every command, and that no key is among them.

use super::*;

const KEY: &str = "AQAAAAAAAAAAABAAAAECAwQFBgcICQoLDA0ODw==";

fn session() -> Session {
    Session {
        conf: "/work/ceph.conf".into(),
        user: "client.bootstrap-osd".into(),
        keyring: "/keys/keyring".into(),
    }
}

fn uuid() -> Uuid {
    "1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10".parse().unwrap()
}

fn line(command: &Command) -> String {
    command.argv().join(" ")
}

fn osd_new(key: &Key) -> Command {
    session().osd_new(&uuid(), None, key, Some("ssd"))
}

#[test]
fn files_of_mkfs_name_the_osd() {
    let (uuid, key) = (uuid(), Key::parse(KEY).unwrap());
    let mkfs = Mkfs { conf: "c", id: 3, uuid: &uuid, directory: "d", monmap: "m", key: &key };
    let [kind, fsid] = mkfs.files();
    assert_eq!(kind, ("type", "bluestore\n".to_owned()));
    assert_eq!(fsid, ("fsid", format!("{uuid}\n")));
}

fn mkfs(key: &Key) -> Command {
    let uuid = uuid();
    let (conf, directory, monmap) = ("/work/ceph.conf", "/work/osd", "/work/monmap");
    Mkfs { conf, id: 3, uuid: &uuid, directory, monmap, key }.command()
}

#[test]
fn arguments_of_the_commands_to_the_monitors() {
    insta::assert_snapshot!(line(&session().status()), @"ceph --conf /work/ceph.conf --name client.bootstrap-osd --keyring /keys/keyring --connect-timeout 15 status --format json");
    insta::assert_snapshot!(line(&session().osd_dump()), @"ceph --conf /work/ceph.conf --name client.bootstrap-osd --keyring /keys/keyring --connect-timeout 15 osd dump --format json");
    insta::assert_snapshot!(line(&session().mon_getmap("/work/monmap")), @"ceph --conf /work/ceph.conf --name client.bootstrap-osd --keyring /keys/keyring --connect-timeout 15 mon getmap -o /work/monmap");
    let key = Key::parse(KEY).unwrap();
    insta::assert_snapshot!(line(&osd_new(&key)), @"ceph --conf /work/ceph.conf --name client.bootstrap-osd --keyring /keys/keyring --connect-timeout 15 osd new 1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10 -i -");
    insta::assert_snapshot!(line(&session().osd_new(&uuid(), Some(3), &key, None)), @"ceph --conf /work/ceph.conf --name client.bootstrap-osd --keyring /keys/keyring --connect-timeout 15 osd new 1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10 3 -i -");
}

#[test]
fn every_command_to_the_monitors_is_limited_in_time() {
    let (session, key) = (session(), Key::parse(KEY).unwrap());
    for command in [
        session.fsid(),
        session.status(),
        session.osd_dump(),
        session.osd_tree(),
        session.osd_metadata(),
        session.mon_getmap("m"),
        session.osd_new(&uuid(), None, &key, None),
    ] {
        assert!(line(&command).contains(" --connect-timeout 15 "), "{command:?}");
        assert!(command.env.iter().all(|(name, _)| !REMOVED_VARIABLES.contains(name)));
    }
}

#[test]
fn arguments_of_the_commands_on_devices() {
    insta::assert_snapshot!(line(&show_label("/dev/rook/device0")), @"ceph-bluestore-tool show-label --dev /dev/rook/device0");
    insta::assert_snapshot!(line(&mkfs(&Key::parse(KEY).unwrap())), @"ceph-osd --mkfs --foreground --conf /work/ceph.conf --id 3 --osd-uuid 1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10 --osd-data /work/osd --osd-objectstore bluestore --monmap /work/monmap --keyfile -");
    insta::assert_snapshot!(line(&prime_osd_dir("/dev/rook/device0", "/osd")), @"ceph-bluestore-tool prime-osd-dir --dev /dev/rook/device0 --path /osd --no-mon-config");
    insta::assert_snapshot!(line(&bluefs_bdev_expand("/osd")), @"ceph-bluestore-tool bluefs-bdev-expand --path /osd --no-mon-config");
}

#[test]
fn arguments_of_an_osd() {
    let (uuid, fsid) = (uuid(), "b84b331e-f09c-4be5-ac02-c900d1967422".parse().unwrap());
    let location = crush_location("default", "node-1.example", &[("zone", "a")]);
    let osd = RunOsd {
        conf: "/etc/ceph/ceph.conf",
        id: 3,
        uuid: &uuid,
        fsid: &fsid,
        directory: "/var/lib/ceph/osd/ceph-3",
        crush_location: &location,
        initial_weight: Some("0.5"),
        tuning: DeviceTuning::new(true, true),
    };
    insta::assert_snapshot!(osd.command().argv().join("\n"), @r"
        ceph-osd
        --foreground
        --conf
        /etc/ceph/ceph.conf
        --id
        3
        --fsid
        b84b331e-f09c-4be5-ac02-c900d1967422
        --osd-uuid
        1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10
        --osd-data
        /var/lib/ceph/osd/ceph-3
        --keyring
        /var/lib/ceph/osd/ceph-3/keyring
        --crush-location=root=default host=node-1-example zone=a
        --default-log-to-stderr=true
        --default-err-to-stderr=true
        --default-log-to-file=false
        --osd-crush-initial-weight=0.5
        --osd-recovery-sleep=0.1
        --osd-snap-trim-sleep=2
        --osd-delete-sleep=2
        ");
    assert_eq!(DeviceTuning::new(false, true).settings().len(), 13);
    assert_eq!(DeviceTuning::new(false, false).settings().len(), 0);
}

#[test]
fn keys_are_on_standard_input_and_never_in_debug() {
    let key = Key::parse(KEY).unwrap();
    for command in [osd_new(&key), mkfs(&key)] {
        assert!(command.stdin.as_ref().unwrap().reveal().contains(KEY));
        assert!(!format!("{command:?}").contains(KEY), "{command:?}");
        assert!(!line(&command).contains(KEY), "{command:?}");
    }
    let stdin = osd_new(&key).stdin.unwrap();
    assert_eq!(stdin.reveal(), format!(r#"{{"cephx_secret":"{KEY}","crush_device_class":"ssd"}}"#));
    assert_eq!(mkfs(&key).stdin.unwrap().reveal(), KEY);
}
