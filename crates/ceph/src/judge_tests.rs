//! Tables of what may be on the devices, and what follows from it.

use super::*;
use crate::Key;
use proptest::prelude::*;

const OURS: &str = "1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10";
const OTHER: &str = "2e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10";
const FSID: &str = "b84b331e-f09c-4be5-ac02-c900d1967422";
const OTHER_FSID: &str = "c84b331e-f09c-4be5-ac02-c900d1967422";

fn target() -> Target {
    Target { osd: OURS.parse().unwrap(), fsid: FSID.parse().unwrap() }
}

fn device(role: Role, content: Content) -> Device {
    let number = match role {
        Role::Data => 0,
        Role::Metadata => 1,
        Role::Wal => 2,
    };
    Device {
        role,
        path: format!("/dev/rook/device{number}"),
        size: 1 << 30,
        access: Access::Free,
        content,
    }
}

fn label(role: Role, uuid: &str) -> Label {
    Label {
        osd_uuid: uuid.parse().unwrap(),
        size: 1 << 30,
        description: role.description().to_owned(),
        ceph_fsid: None,
        whoami: None,
        osd_key: None,
        ready: false,
    }
}

fn ready(uuid: &str, fsid: &str) -> Label {
    Label {
        ceph_fsid: Some(fsid.parse().unwrap()),
        whoami: Some(7),
        osd_key: Some(Key::parse("AQAAAAAAAAAAABAAAAECAwQFBgcICQoLDA0ODw==").unwrap()),
        ready: true,
        ..label(Role::Data, uuid)
    }
}

fn data(content: Content) -> Device {
    device(Role::Data, content)
}

fn db(content: Content) -> Device {
    device(Role::Metadata, content)
}

fn refusal(data: &Device, others: &[Device]) -> Refusal {
    match judge(&target(), data, others) {
        Verdict::Refuse(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn blank_devices_are_prepared() {
    assert_eq!(judge(&target(), &data(Content::Blank), &[]), Verdict::Prepare);
    let others = [db(Content::Blank), device(Role::Wal, Content::Blank)];
    assert_eq!(judge(&target(), &data(Content::Blank), &others), Verdict::Prepare);
}

#[test]
fn own_osd_is_adopted_even_while_it_runs() {
    let running = Device { access: Access::Busy, ..data(Content::Label(ready(OURS, FSID))) };
    assert_eq!(judge(&target(), &running, &[]), Verdict::Adopt { id: 7 });
    let others =
        [Device { access: Access::Busy, ..db(Content::Label(label(Role::Metadata, OURS))) }];
    assert_eq!(judge(&target(), &running, &others), Verdict::Adopt { id: 7 });
}

#[test]
fn interrupted_mkfs_is_finished() {
    let begun = data(Content::Label(label(Role::Data, OURS)));
    assert_eq!(judge(&target(), &begun, &[]), Verdict::FinishHalfDone);
    assert_eq!(judge(&target(), &begun, &[db(Content::Blank)]), Verdict::FinishHalfDone);
    let others = [db(Content::Label(label(Role::Metadata, OURS)))];
    assert_eq!(judge(&target(), &begun, &others), Verdict::FinishHalfDone);
    let almost = Label { ready: false, ..ready(OURS, FSID) };
    assert_eq!(judge(&target(), &data(Content::Label(almost)), &[]), Verdict::FinishHalfDone);
}

// invariant: 1
#[test]
fn every_other_content_is_refused_with_a_remedy() {
    let ext4 = data(Content::Other("ext4 file system \"home\"".into()));
    insta::assert_snapshot!(refusal(&ext4, &[]).message, @r#"data device /dev/rook/device0 contains ext4 file system "home"; wipe the device if its data is not needed, or give the PVC another PersistentVolume"#);
    let cluster = data(Content::Label(ready(OTHER, OTHER_FSID)));
    insta::assert_snapshot!(refusal(&cluster, &[]).message, @"data device /dev/rook/device0 contains osd.7 (2e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10) of another cluster, fsid c84b331e-f09c-4be5-ac02-c900d1967422; wipe the device if its data is not needed, or give the PVC another PersistentVolume");
    let osd = data(Content::Label(ready(OTHER, FSID)));
    insta::assert_snapshot!(refusal(&osd, &[]).message, @"data device /dev/rook/device0 contains osd.7 with UUID 2e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10, not the OSD of this PVC (1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10); wipe the device if its data is not needed, or give the PVC another PersistentVolume");
    let unreadable = data(Content::Unreadable("Input/output error".into()));
    insta::assert_snapshot!(refusal(&unreadable, &[]).message, @"data device /dev/rook/device0 cannot be read: Input/output error; check the device and its PersistentVolume");
    let small = Device { size: 256 << 20, ..data(Content::Blank) };
    insta::assert_snapshot!(refusal(&small, &[]).message, @"data device /dev/rook/device0 has 256 MiB; use one of at least 512 MiB");
    let busy = Device { access: Access::Busy, ..data(Content::Blank) };
    insta::assert_snapshot!(refusal(&busy, &[]).message, @"data device /dev/rook/device0 is mounted or opened exclusively by another process; stop that process");
}

// invariant: 1
#[test]
fn reasons_say_whether_a_retry_helps() {
    for (content, reason) in [
        (Content::Other("x".into()), Reason::NotBlank),
        (Content::Label(ready(OTHER, FSID)), Reason::OtherOsd),
        (Content::Label(ready(OTHER, OTHER_FSID)), Reason::OtherCluster),
        (Content::Label(ready(OURS, OTHER_FSID)), Reason::OtherCluster),
        (Content::Label(label(Role::Data, OTHER)), Reason::OtherOsd),
        (Content::Label(label(Role::Metadata, OURS)), Reason::DeviceMismatch),
        (Content::Unreadable("x".into()), Reason::DeviceUnreadable),
    ] {
        let refusal = refusal(&data(content), &[]);
        assert_eq!(refusal.reason, reason);
        assert_eq!(reason.is_refusal(), reason != Reason::DeviceUnreadable);
    }
}

// invariant: 1
#[test]
fn devices_that_do_not_belong_together_are_refused() {
    let own = || data(Content::Label(ready(OURS, FSID)));
    let blank = || data(Content::Blank);
    let own_db = || db(Content::Label(label(Role::Metadata, OURS)));
    insta::assert_snapshot!(refusal(&own(), &[db(Content::Blank)]).message, @"metadata device /dev/rook/device1 is blank, but the OSD on /dev/rook/device0 is ready: it was prepared without this device or with another one; attach the device that it was prepared with");
    insta::assert_snapshot!(refusal(&blank(), &[own_db()]).message, @"metadata device /dev/rook/device1 belongs to OSD 1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10, but data device /dev/rook/device0 is blank: its data is lost or on another device; attach the old data device, or delete the PVCs of this OSD");
    let swapped = [db(Content::Label(ready(OURS, FSID)))];
    insta::assert_snapshot!(refusal(&own(), &swapped).message, @r#"metadata device /dev/rook/device1 is the "main" device of this OSD; attach it in that place"#);
    for content in [
        Content::Label(label(Role::Metadata, OTHER)),
        Content::Other("xfs".into()),
        Content::Unreadable("x".into()),
    ] {
        for data in [own(), blank(), data(Content::Label(label(Role::Data, OURS)))] {
            let refusal = refusal(&data, &[db(content.clone())]);
            assert!(refusal.message.contains("metadata device /dev/rook/device1"), "{refusal:?}");
        }
    }
}

#[test]
fn ready_label_that_lacks_a_field_is_refused() {
    let whole = ready(OURS, FSID);
    for label in [
        Label { whoami: None, ..whole.clone() },
        Label { osd_key: None, ..whole.clone() },
        Label { ceph_fsid: None, ..whole },
    ] {
        let refusal = refusal(&data(Content::Label(label)), &[]);
        assert_eq!(refusal.reason, Reason::DeviceMismatch, "{refusal:?}");
    }
}

fn any_content(role: Role) -> impl Strategy<Value = Content> {
    let uuid = prop_oneof![Just(OURS), Just(OTHER)];
    let fsid = prop_oneof![Just(None), Just(Some(FSID)), Just(Some(OTHER_FSID))];
    let label = (uuid, fsid, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        move |(uuid, fsid, known, ready_mark, swapped)| {
            let role = if swapped { Role::Wal } else { role };
            let key = ready(OURS, FSID).osd_key.filter(|_| known);
            Content::Label(Label {
                ceph_fsid: fsid.map(|fsid| fsid.parse().unwrap()),
                whoami: known.then_some(7),
                osd_key: key,
                ready: ready_mark,
                ..label(role, uuid)
            })
        },
    );
    prop_oneof![
        2 => Just(Content::Blank),
        3 => label,
        1 => Just(Content::Other("x".into())),
        1 => Just(Content::Unreadable("x".into())),
    ]
}

proptest! {
    // invariant: 1
    #[test]
    fn only_blank_or_begun_devices_are_ever_written(
        main in any_content(Role::Data),
        metadata in proptest::option::of(any_content(Role::Metadata)),
        busy in any::<bool>(),
    ) {
        let main = Device { access: if busy { Access::Busy } else { Access::Free }, ..data(main) };
        let others: Vec<Device> = metadata.into_iter().map(db).collect();
        let begun = |device: &Device| match &device.content {
            Content::Blank => true,
            Content::Label(label) => {
                label.osd_uuid.as_str() == OURS
                    && label.ceph_fsid.as_ref().is_none_or(|fsid| fsid.as_str() == FSID)
            }
            Content::Other(_) | Content::Unreadable(_) => false,
        };
        let is_ready = matches!(&main.content, Content::Label(label) if label.ready);
        match judge(&target(), &main, &others) {
            Verdict::Prepare | Verdict::FinishHalfDone => {
                prop_assert!(!busy && !is_ready);
                prop_assert!(begun(&main) && others.iter().all(begun));
            }
            Verdict::Adopt { id } => {
                prop_assert!(is_ready && begun(&main) && others.iter().all(begun));
                prop_assert_eq!(id, 7);
            }
            Verdict::Refuse(refusal) => prop_assert!(refusal.message.contains("/dev/rook/device")),
        }
    }
}
