//! The init container of an OSD pod: fills the OSD's directory from the label, and lets BlueStore grow.
//!
//! A few lines of shell in the image of Ceph, with everything that differs between OSDs as an argument: no text is
//! put together, so nothing has to be quoted. It checks that the devices are those of this OSD before BlueStore
//! opens them, because a PVC may have been recreated over another disk.

use crate::Uuid;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activate<'a> {
    pub id: u32,
    pub uuid: &'a Uuid,
    pub fsid: &'a Uuid,
    /// An empty directory of the pod, mounted at the same path in the OSD's container.
    pub directory: &'a str,
    pub data: &'a str,
    /// `block.db`.
    pub metadata: Option<&'a str>,
    /// `block.wal`.
    pub wal: Option<&'a str>,
}

/// Arguments: directory, ID, UUID, fsid, data device, metadata device or empty, wal device or empty.
const SCRIPT: &str = r#"dir=$1 data=$5
rm -rf "$dir"/* && mkdir -p "$dir"
ceph-bluestore-tool prime-osd-dir --dev "$data" --path "$dir" --no-mon-config
[ "$(cat "$dir/whoami") $(cat "$dir/fsid") $(cat "$dir/ceph_fsid")" = "$2 $3 $4" ] || {
  echo "$data is osd.$(cat "$dir/whoami") $(cat "$dir/fsid"), not osd.$2 $3; run prepare again" >&2
  exit 3
}
ln -sfn "$data" "$dir/block"
[ -z "$6" ] || ln -sfn "$6" "$dir/block.db"
[ -z "$7" ] || ln -sfn "$7" "$dir/block.wal"
ceph-bluestore-tool bluefs-bdev-expand --path "$dir" --no-mon-config
"#;

/// The command of the init container.
pub fn activate(osd: &Activate<'_>) -> Vec<String> {
    let Activate { id, uuid, fsid, directory, data, metadata, wal } = osd;
    let id = id.to_string();
    let arguments = [
        "/bin/sh",
        "-ec",
        SCRIPT,
        "activate",
        directory,
        &id,
        uuid.as_str(),
        fsid.as_str(),
        data,
        metadata.unwrap_or_default(),
        wal.unwrap_or_default(),
    ];
    arguments.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_osds_is_an_argument() {
        let uuid = "1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10".parse().unwrap();
        let fsid = "b84b331e-f09c-4be5-ac02-c900d1967422".parse().unwrap();
        let argv = activate(&Activate {
            id: 3,
            uuid: &uuid,
            fsid: &fsid,
            directory: "/var/lib/ceph/osd/ceph-3",
            data: "/dev/rook/device0",
            metadata: None,
            wal: Some("/dev/rook/device2"),
        });
        assert_eq!(argv[..2], ["/bin/sh", "-ec"]);
        insta::assert_snapshot!(argv[3..].join("\n"), @r"
        activate
        /var/lib/ceph/osd/ceph-3
        3
        1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10
        b84b331e-f09c-4be5-ac02-c900d1967422
        /dev/rook/device0

        /dev/rook/device2
        ");
    }
}
