//! The end of a run in a form that can be compared: without UIDs, versions, times and kernel names.

use crate::{disk::Disk, kind::Kind, story::VOLUME, world::World};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Fields that differ between equal runs; times are taken out by their looks.
const FLEETING: [&str; 12] = [
    "uid",
    "nodeUID",
    "pvUID",
    "bootID",
    "restoredBootID",
    "diskseq",
    "lastChange",
    "resourceVersion",
    "generation",
    "managedFields",
    "runs",
    "quarry.dev/retry",
];

/// API and node, one line a thing. Leases are left out: they say who runs, which is what faults change.
pub fn report(world: &World, disk: &Disk, volume_uid: &str) -> String {
    let mut lines = Vec::new();
    for &kind in Kind::ALL.iter().filter(|kind| **kind != Kind::Lease) {
        for object in world.all(kind) {
            lines.push(format!("{kind:?} {}", normal(object)));
        }
    }
    for (uid, file) in &disk.files {
        lines.push(format!(
            "file {uid} {} partitioned={} data={:?}",
            file.size, file.partitioned, file.data
        ));
    }
    lines.extend(disk.drafts.keys().map(|uid| format!("draft {uid}")));
    lines.extend(
        disk.loops
            .values()
            .map(|device| format!("loop over {} partition={}", device.over, device.partition)),
    );
    lines.extend(disk.links.iter().map(|(link, device)| format!("link {link} -> {device}")));
    lines.extend(disk.mounts.keys().map(|device| format!("mount of {device}")));
    let mut disks: Vec<String> = disk
        .every_disk()
        .map(|found| format!("disk {} {:?} {:?}", found.wwn, found.signature, found.data))
        .collect();
    disks.sort();
    lines.extend(disks);
    lines.extend(disk.claim_links.iter().map(|(link, target)| format!("link {link} -> {target}")));
    let text = lines.join("\n");
    let text = if volume_uid.is_empty() {
        text
    } else {
        text.replace(volume_uid, &format!("<uid of {VOLUME}>"))
    };
    without_numbers(&text)
}

pub(crate) fn normal(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept: Map<String, Value> = map
                .iter()
                .filter(|(key, _)| !FLEETING.contains(&key.as_str()))
                .map(|(key, value)| (key.clone(), normal(value)))
                .collect();
            let empty = kept.is_empty() && !map.is_empty();
            if empty { Value::Null } else { Value::Object(without_nulls(kept)) }
        }
        Value::Array(items) => json!(items.iter().map(normal).collect::<Vec<_>>()),
        Value::String(text) if text.parse::<Timestamp>().is_ok() => json!("<time>"),
        Value::String(text) if text.contains(", UID ") => json!(text.split(", UID ").next()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn without_nulls(map: Map<String, Value>) -> Map<String, Value> {
    map.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

/// `loop7p1` → `loop*p1`: numbers change with every attach.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("loop") {
        let (before, after) = rest.split_at(at + 4);
        out.push_str(before);
        let number = after.bytes().take_while(u8::is_ascii_digit).count();
        if number > 0 {
            out.push('*');
        }
        rest = &after[number..];
    }
    out.push_str(rest);
    out
}
