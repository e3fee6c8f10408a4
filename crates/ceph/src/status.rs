//! `ceph status` and `ceph fsid`: health of a cluster in the few figures that are shown.

use crate::{ParseError, Uuid, parse::parse_json};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Status {
    pub fsid: Uuid,
    pub health: Health,
    #[serde(default)]
    pub quorum_names: Vec<String>,
    pub osdmap: OsdCounts,
    #[serde(default)]
    pub pgmap: PgMap,
    #[serde(default)]
    pub mgrmap: MgrMap,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Health {
    /// `HEALTH_OK`, `HEALTH_WARN` or `HEALTH_ERR`.
    pub status: String,
    /// By name, such as `OSD_DOWN`.
    #[serde(default)]
    pub checks: BTreeMap<String, HealthCheck>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HealthCheck {
    #[serde(default)]
    pub severity: String,
    #[serde(default)]
    pub summary: HealthSummary,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct HealthSummary {
    #[serde(default)]
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct OsdCounts {
    pub num_osds: u32,
    pub num_up_osds: u32,
    pub num_in_osds: u32,
}

/// All zero while no manager runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PgMap {
    pub num_pgs: u64,
    pub num_pools: u64,
    pub bytes_used: u64,
    pub bytes_avail: u64,
    pub bytes_total: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MgrMap {
    pub available: bool,
}

pub fn parse_status(output: &[u8]) -> Result<Status, ParseError> {
    parse_json("ceph status", output)
}

/// Which cluster the monitors serve.
pub fn parse_fsid(output: &[u8]) -> Result<Uuid, ParseError> {
    #[derive(Deserialize)]
    struct Fsid {
        fsid: Uuid,
    }
    parse_json::<Fsid>("ceph fsid", output).map(|answer| answer.fsid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_a_real_cluster_is_read() {
        let status = parse_status(include_bytes!("../tests/fixtures/status.json")).unwrap();
        assert_eq!(status.fsid.as_str(), "b84b331e-f09c-4be5-ac02-c900d1967422");
        assert_eq!(status.health.status, "HEALTH_OK");
        assert_eq!(status.osdmap, OsdCounts { num_osds: 1, num_up_osds: 1, num_in_osds: 1 });
        assert_eq!(status.quorum_names, ["a"]);
        assert!(status.mgrmap.available);
        assert_eq!(status.pgmap.num_pools, 1);
    }

    #[test]
    fn fsid_of_a_real_cluster_is_read() {
        let fsid = parse_fsid(include_bytes!("../tests/fixtures/fsid.json")).unwrap();
        assert_eq!(fsid.as_str(), "b84b331e-f09c-4be5-ac02-c900d1967422");
        assert!(parse_fsid(b"{\"fsid\":\"x\"}").is_err());
    }

    #[test]
    fn health_checks_are_read_by_name() {
        let status = parse_status(
            br#"{"fsid":"b84b331e-f09c-4be5-ac02-c900d1967422","osdmap":{"num_osds":3,"num_up_osds":2,"num_in_osds":3},
            "health":{"status":"HEALTH_WARN","checks":{"OSD_DOWN":{"severity":"HEALTH_WARN","summary":{"message":"1 osds down","count":1},"muted":false}}}}"#,
        )
        .unwrap();
        assert_eq!(status.health.checks["OSD_DOWN"].summary.message, "1 osds down");
        assert!(!status.mgrmap.available);
    }
}
