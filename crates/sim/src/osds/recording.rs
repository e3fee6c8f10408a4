//! What a real Ceph has answered to a prepare run. Recorded by the cluster tier, and compared there in every run.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One request and its answer, without what differs between clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    pub request: String,
    /// What Ceph knew of the OSD.
    pub when: String,
    pub code: i32,
    pub stdout: Value,
    /// The last line.
    pub stderr: String,
}

pub const DUMP: &str = "osd dump";
pub const NEW: &str = "osd new";

pub const UNREGISTERED: &str = "not registered";
pub const REGISTERED: &str = "registered";
pub const OTHER_KEY: &str = "registered with another key";
pub const UP: &str = "up";
pub const UNREACHABLE: &str = "no monitor responds";

/// What every recording contains.
pub const ALL: [(&str, &str); 8] = [
    (DUMP, UNREGISTERED),
    (NEW, UNREGISTERED),
    (DUMP, REGISTERED),
    (NEW, REGISTERED),
    (NEW, OTHER_KEY),
    (DUMP, UP),
    (DUMP, UNREACHABLE),
    (NEW, UNREACHABLE),
];

/// Of the OSDs in a dump, and of the dump.
const OSD_FIELDS: [&str; 6] = ["up", "in", "up_from", "state", "weight", "primary_affinity"];

/// As it was seen, for the OSD with this UUID.
pub fn exchange(
    (request, when): (&str, &str),
    uuid: &str,
    code: i32,
    stdout: &[u8],
    stderr: &[u8],
) -> Exchange {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let out = text(stdout);
    let stdout = match (request, code) {
        (DUMP, 0) => dump(&serde_json::from_str(&out).unwrap_or_default(), uuid),
        // IDs differ; that it is one is all that is kept.
        (NEW, 0) => json!(if out.parse::<u32>().is_ok() { "0" } else { &out }),
        _ => json!(out),
    };
    let said = text(stderr);
    // kubectl adds a line of its own.
    let mut lines = said.lines().filter(|line| !line.starts_with("command terminated"));
    let last = lines.next_back().unwrap_or_default().replace(uuid, "UUID");
    Exchange { request: request.into(), when: when.into(), code, stdout, stderr: last }
}

fn dump(found: &Value, uuid: &str) -> Value {
    let all = found["osds"].as_array().into_iter().flatten();
    let osds: Vec<Value> = all
        .filter(|osd| osd["uuid"] == uuid)
        .map(|osd| {
            let mut kept = json!({"osd": 0, "uuid": "UUID"});
            for field in OSD_FIELDS {
                kept[field] = osd[field].clone();
            }
            kept["up_from"] = json!(u8::from(osd["up_from"].as_u64() > Some(0)));
            if let Some(state) = kept["state"].as_array_mut() {
                state.sort_by_key(Value::to_string);
            }
            kept
        })
        .collect();
    let known = found["fsid"].is_string() && found["epoch"].is_u64();
    json!({"fsid": known.then_some("FSID"), "epoch": 1, "osds": osds})
}

/// The recording.
pub fn recorded() -> Vec<Exchange> {
    serde_json::from_str(include_str!("recording.json")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_asked_was_recorded() {
        let found = recorded();
        let found: Vec<(&str, &str)> =
            found.iter().map(|one| (one.request.as_str(), one.when.as_str())).collect();
        assert_eq!(found, ALL);
    }
}
