//! A JSON patch from one list of devices to the next: a disk that appears on a node with a thousand must not send a
//! thousand rows.

use super::inventory::natural;
use quarry_api::{NodeInventoryStatus, node_inventory::Device};
use serde_json::{Map, Value, json};
use std::cmp::Ordering;

/// The change of the status as a JSON patch, valid for exactly this version; `None`: send the whole status.
pub fn json_patch(
    resource_version: &str,
    old: &NodeInventoryStatus,
    new: &NodeInventoryStatus,
) -> Option<Value> {
    let devices = edits(&old.devices, &new.devices);
    // Without devices the field itself is absent.
    if old.devices.is_empty() || new.devices.is_empty() || devices.len() > new.devices.len() / 2 {
        return None;
    }
    // Tested before it is replaced: the API server refuses the patch if another client was faster.
    let mut operations = vec![
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version}),
    ];
    let (before, after) = (head(old), head(new));
    for (key, value) in &after {
        if before.get(key) != Some(value) {
            operations.push(json!({"op": if before.contains_key(key) { "replace" } else { "add" }, "path": format!("/status/{key}"), "value": value}));
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        operations.push(json!({"op": "remove", "path": format!("/status/{key}")}));
    }
    operations.extend(devices.iter().map(|edit| match edit {
        Edit::Remove(at) => json!({"op": "remove", "path": format!("/status/devices/{at}")}),
        Edit::Replace(at, device) => {
            json!({"op": "replace", "path": format!("/status/devices/{at}"), "value": device})
        }
        Edit::Add(at, device) => {
            json!({"op": "add", "path": format!("/status/devices/{at}"), "value": device})
        }
    }));
    Some(Value::Array(operations))
}

/// Everything but the devices.
fn head(status: &NodeInventoryStatus) -> Map<String, Value> {
    let NodeInventoryStatus {
        node_uid,
        machine_id,
        ledger_id,
        boot_id,
        restored_boot_id,
        agent_version,
        summary,
        devices: _,
        device_claims,
        paths,
        problems,
        last_change,
    } = status;
    let head = NodeInventoryStatus {
        node_uid: node_uid.clone(),
        machine_id: machine_id.clone(),
        ledger_id: ledger_id.clone(),
        boot_id: boot_id.clone(),
        restored_boot_id: restored_boot_id.clone(),
        agent_version: agent_version.clone(),
        summary: summary.clone(),
        devices: Vec::new(),
        device_claims: device_claims.clone(),
        paths: paths.clone(),
        problems: problems.clone(),
        last_change: last_change.clone(),
    };
    match serde_json::to_value(head) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit<'a> {
    Remove(usize),
    Replace(usize, &'a Device),
    Add(usize, &'a Device),
}

/// In the order in which they are applied. Both lists are in the order of names; others give more steps, not wrong ones.
fn edits<'a>(old: &[Device], new: &'a [Device]) -> Vec<Edit<'a>> {
    let (mut before, mut after) = (old.iter().peekable(), new.iter().peekable());
    let mut edits = Vec::new();
    let mut at = 0;
    loop {
        let order = match (before.peek(), after.peek()) {
            (None, None) => return edits,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) if old.name == new.name => Ordering::Equal,
            (Some(old), Some(new)) => {
                natural(&old.name).cmp(&natural(&new.name)).then(Ordering::Less)
            }
        };
        match order {
            Ordering::Less => {
                before.next();
                edits.push(Edit::Remove(at));
                continue;
            }
            Ordering::Greater => edits.extend(after.next().map(|device| Edit::Add(at, device))),
            Ordering::Equal => {
                let (old, new) = (before.next(), after.next());
                edits.extend(new.filter(|new| old != Some(*new)).map(|new| Edit::Replace(at, new)));
            }
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn devices(names: &[(u8, i64)]) -> Vec<Device> {
        names
            .iter()
            .map(|(name, size)| Device {
                name: format!("sd{name}"),
                size: *size,
                ..Device::default()
            })
            .collect()
    }

    #[test]
    fn a_new_disk_among_many_is_a_few_operations() {
        let many: Vec<(u8, i64)> = (0..200).map(|name| (name, 1)).collect();
        let old = NodeInventoryStatus {
            devices: devices(&many[..199]),
            problems: vec!["p".into()],
            ..NodeInventoryStatus::default()
        };
        let mut new =
            NodeInventoryStatus { devices: devices(&many), ..NodeInventoryStatus::default() };
        new.devices[7].size = 2;
        let operations = json_patch("5", &old, &new).unwrap();
        let findings: Vec<String> = operations
            .as_array()
            .unwrap()
            .iter()
            .map(|one| format!("{} {}", one["op"], one["path"]))
            .collect();
        assert_eq!(
            findings,
            [
                r#""replace" "/metadata/resourceVersion""#,
                r#""remove" "/status/problems""#,
                r#""replace" "/status/devices/7""#,
                r#""add" "/status/devices/199""#
            ]
        );
        assert_eq!(
            json_patch("5", &NodeInventoryStatus::default(), &new),
            None,
            "all of it is new"
        );
    }

    proptest! {
        #[test]
        fn the_edits_lead_from_one_list_to_the_other(old in proptest::collection::vec((0u8..12, 0i64..3), 0..12), new in proptest::collection::vec((0u8..12, 0i64..3), 0..12)) {
            let (old, new) = (devices(&old), devices(&new));
            let mut list = old.clone();
            for edit in edits(&old, &new) {
                match edit {
                    Edit::Remove(at) => drop(list.remove(at)),
                    Edit::Replace(at, device) => list[at] = device.clone(),
                    Edit::Add(at, device) => list.insert(at, device.clone()),
                }
            }
            prop_assert_eq!(list, new);
        }
    }
}
