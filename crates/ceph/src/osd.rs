//! OSDs as the cluster knows them: `osd new`, `osd dump`, `osd tree`, `osd metadata`.

use crate::{ParseError, Uuid, parse::parse_json};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// `osd new` prints the ID alone.
pub fn parse_new_id(output: &[u8]) -> Result<u32, ParseError> {
    let text = String::from_utf8_lossy(output);
    text.trim().parse().map_err(|_| {
        let found: String = text.trim().chars().take(80).collect();
        ParseError::new("ceph osd new", format!("{found:?} is not the ID of an OSD"))
    })
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct OsdDump {
    pub fsid: Uuid,
    pub epoch: u64,
    pub osds: Vec<OsdEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct OsdEntry {
    #[serde(rename = "osd")]
    pub id: u32,
    /// `None` after `osd destroy`: the ID is free for another device.
    #[serde(deserialize_with = "uuid_or_nil")]
    pub uuid: Option<Uuid>,
    #[serde(deserialize_with = "flag")]
    pub up: bool,
    #[serde(rename = "in", deserialize_with = "flag")]
    pub is_in: bool,
    /// The epoch in which it last came up; 0: never.
    #[serde(default)]
    pub up_from: u64,
    /// `exists`, `new`, `up`, `destroyed`, ….
    #[serde(default)]
    pub state: Vec<String>,
}

impl OsdEntry {
    /// Whether it was ever up, so that data may be on it.
    pub fn has_run(&self) -> bool {
        self.up || self.up_from > 0
    }
}

impl OsdDump {
    pub fn by_uuid(&self, uuid: &Uuid) -> Option<&OsdEntry> {
        self.osds.iter().find(|osd| osd.uuid.as_ref() == Some(uuid))
    }
}

pub fn parse_osd_dump(output: &[u8]) -> Result<OsdDump, ParseError> {
    parse_json("ceph osd dump", output)
}

/// The CRUSH tree.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct OsdTree {
    pub nodes: Vec<TreeNode>,
    /// OSDs that no bucket contains.
    #[serde(default)]
    pub stray: Vec<TreeNode>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TreeNode {
    /// Not negative for OSDs.
    pub id: i64,
    pub name: String,
    /// `root`, `host`, `osd`, ….
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub children: Vec<i64>,
    pub device_class: Option<String>,
    pub crush_weight: Option<f64>,
    /// `up`, `down` or `destroyed`; `None` for buckets.
    pub status: Option<String>,
    pub reweight: Option<f64>,
}

impl OsdTree {
    pub fn osd(&self, id: u32) -> Option<&TreeNode> {
        let mut all = self.nodes.iter().chain(&self.stray);
        all.find(|node| node.kind == "osd" && node.id == i64::from(id))
    }

    /// The CRUSH host of an OSD.
    pub fn host_of(&self, id: u32) -> Option<&str> {
        let mut hosts = self.nodes.iter().filter(|node| node.kind == "host");
        hosts.find(|host| host.children.contains(&i64::from(id))).map(|host| host.name.as_str())
    }
}

pub fn parse_osd_tree(output: &[u8]) -> Result<OsdTree, ParseError> {
    parse_json("ceph osd tree", output)
}

/// What a running OSD reported of itself; everything but the ID is text.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct OsdMetadata {
    pub id: u32,
    /// `None` for an OSD that was never up.
    pub hostname: Option<String>,
    pub ceph_version_short: Option<String>,
    pub osd_objectstore: Option<String>,
    pub default_device_class: Option<String>,
    pub bluestore_bdev_size: Option<String>,
    /// `1`: metadata has a device of its own.
    pub bluefs_dedicated_db: Option<String>,
    /// `1`: the write-ahead log has a device of its own.
    pub bluefs_dedicated_wal: Option<String>,
}

/// By ID.
pub fn parse_osd_metadata(output: &[u8]) -> Result<BTreeMap<u32, OsdMetadata>, ParseError> {
    let all: Vec<OsdMetadata> = parse_json("ceph osd metadata", output)?;
    Ok(all.into_iter().map(|osd| (osd.id, osd)).collect())
}

/// Ceph writes 0 and 1.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    u8::deserialize(deserializer).map(|number| number != 0)
}

fn uuid_or_nil<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Uuid>, D::Error> {
    String::deserialize(deserializer).map(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn osds_of_a_real_cluster_are_read() {
        let dump = parse_osd_dump(include_bytes!("../tests/fixtures/osd-dump.json")).unwrap();
        let uuid: Uuid = "1e0bd6a2-5d5c-4c0a-9a52-1f8c3a2b4d10".parse().unwrap();
        let osd = dump.by_uuid(&uuid).unwrap();
        assert_eq!((osd.id, osd.up, osd.is_in), (0, true, true));
        assert_eq!(osd.state, ["exists", "up"]);
        assert!(osd.has_run());

        let tree = parse_osd_tree(include_bytes!("../tests/fixtures/osd-tree.json")).unwrap();
        assert_eq!(tree.host_of(0), Some("pvc-a"));
        let osd = tree.osd(0).unwrap();
        assert_eq!(osd.device_class.as_deref(), Some("ssd"));
        assert_eq!(osd.status.as_deref(), Some("up"));
        assert_eq!((tree.host_of(1), tree.osd(1)), (None, None));

        let metadata =
            parse_osd_metadata(include_bytes!("../tests/fixtures/osd-metadata.json")).unwrap();
        assert_eq!(metadata[&0].ceph_version_short.as_deref(), Some("16.2.15"));
        assert_eq!(metadata[&0].bluefs_dedicated_db.as_deref(), Some("1"));
    }

    #[test]
    fn destroyed_osd_has_no_uuid() {
        let dump = parse_osd_dump(
            br#"{"fsid":"b84b331e-f09c-4be5-ac02-c900d1967422","epoch":9,"osds":[
            {"osd":4,"uuid":"00000000-0000-0000-0000-000000000000","up":0,"in":0,"state":["destroyed","exists"]}]}"#,
        )
        .unwrap();
        assert_eq!((dump.osds[0].uuid.as_ref(), dump.osds[0].up), (None, false));
        assert!(!dump.osds[0].has_run());
    }

    #[test]
    fn id_of_a_new_osd_is_read() {
        assert_eq!(parse_new_id(b"12\n"), Ok(12));
        let error = parse_new_id(b"").unwrap_err().to_string();
        assert_eq!(error, "reading the output of `ceph osd new`: \"\" is not the ID of an OSD");
    }
}
