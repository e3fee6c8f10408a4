//! The BlueStore label: what stands at the beginning of every device of an OSD.
//!
//! `ceph-osd --mkfs` writes it first, with the OSD's UUID alone; what the OSD is, its key, and last of all `ready`
//! follow when everything else has been written. Devices for metadata and the write-ahead log keep the short form.

use crate::{Key, ParseError, Uuid, parse::parse_json};
use serde::Deserialize;
use std::collections::BTreeMap;

const COMMAND: &str = "ceph-bluestore-tool show-label";

/// The label of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub osd_uuid: Uuid,
    /// In bytes, when the label was written or last expanded.
    pub size: u64,
    /// `main`, `bluefs db` or `bluefs wal`.
    pub description: String,
    /// `None` on devices for metadata and the write-ahead log, and until mkfs has ended.
    pub ceph_fsid: Option<Uuid>,
    /// The OSD's ID; `None` as above.
    pub whoami: Option<u32>,
    /// `None` also if mkfs had its key from a file: the OSD could not be activated from the device alone.
    pub osd_key: Option<Key>,
    /// mkfs has ended.
    pub ready: bool,
}

#[derive(Deserialize)]
struct Raw {
    osd_uuid: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    description: String,
    ceph_fsid: Option<String>,
    whoami: Option<String>,
    osd_key: Option<String>,
    ready: Option<String>,
}

/// The label of `device` from the output of `show-label`.
pub fn parse_label(device: &str, output: &[u8]) -> Result<Label, ParseError> {
    let labels: BTreeMap<String, Raw> = parse_json(COMMAND, output)?;
    let problem = |text: String| ParseError::new(COMMAND, text);
    let Some(raw) = labels.into_iter().find(|(path, _)| path == device).map(|(_, raw)| raw) else {
        return Err(problem(format!("it has no entry for {device}")));
    };
    let uuid = |field: &str, text: &str| {
        text.trim().parse::<Uuid>().map_err(|error| problem(format!("{field}: {error}")))
    };
    let whoami = match &raw.whoami {
        None => None,
        Some(text) => Some(text.trim().parse().map_err(|_| {
            problem(format!("whoami: {:?} is not the ID of an OSD", clipped(text)))
        })?),
    };
    let osd_key = raw.osd_key.as_deref().map(Key::parse).transpose();
    Ok(Label {
        osd_uuid: uuid("osd_uuid", &raw.osd_uuid)?,
        size: raw.size,
        description: raw.description,
        ceph_fsid: raw.ceph_fsid.as_deref().map(|text| uuid("ceph_fsid", text)).transpose()?,
        whoami,
        osd_key: osd_key.map_err(|error| problem(format!("osd_key: {error}")))?,
        ready: raw.ready.is_some_and(|text| text.trim() == "ready"),
    })
}

fn clipped(text: &str) -> String {
    text.chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: &[u8] = include_bytes!("../tests/fixtures/label-main.json");
    const DB: &[u8] = include_bytes!("../tests/fixtures/label-db.json");
    const WAL: &[u8] = include_bytes!("../tests/fixtures/label-wal.json");

    #[test]
    fn labels_of_a_real_osd_are_read() {
        let main = parse_label("/dev/rook/device0", MAIN).unwrap();
        assert_eq!(main.osd_uuid.as_str(), "1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10");
        assert_eq!(
            main.ceph_fsid.as_ref().map(Uuid::as_str),
            Some("b84b331e-f09c-4be5-ac02-c900d1967422")
        );
        assert_eq!((main.whoami, main.ready, main.size), (Some(0), true, 1 << 30));
        assert!(main.osd_key.is_some());
        assert!(!format!("{main:?}").contains("AQAA"), "{main:?}");
        for (device, output, description) in
            [("/dev/rook/device1", DB, "bluefs db"), ("/dev/rook/device2", WAL, "bluefs wal")]
        {
            let label = parse_label(device, output).unwrap();
            assert_eq!(label.description, description);
            assert_eq!(label.osd_uuid, main.osd_uuid);
            assert_eq!((label.whoami, label.ready, label.ceph_fsid), (None, false, None));
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = |text: &str| parse_label("/dev/x", text.as_bytes()).unwrap_err().to_string();
        assert!(error("{}").ends_with("it has no entry for /dev/x"), "{}", error("{}"));
        assert!(error(r#"{"/dev/x": {}}"#).contains("osd_uuid"));
        let uuid = "1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10";
        let with = |field: &str, value: &str| {
            error(&format!(r#"{{"/dev/x": {{"osd_uuid": "{uuid}", "{field}": "{value}"}}}}"#))
        };
        assert!(with("whoami", "x").contains("whoami: \"x\""));
        assert!(with("ceph_fsid", "x").contains("ceph_fsid: "));
        let key = with("osd_key", "AQ-private");
        assert!(key.contains("osd_key: ") && !key.contains("private"), "{key}");
    }
}
