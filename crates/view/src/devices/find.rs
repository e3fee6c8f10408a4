//! Finding one device by any of its names.

use super::DeviceView;

#[derive(Debug, PartialEq, Eq)]
pub enum NotFound {
    /// The most similar names.
    Near(Vec<String>),
    /// All of these match.
    Several(Vec<String>),
}

/// As many as are read at a glance.
const NEAR: usize = 6;

/// By kernel name, mapped name, path below /dev, device ID or identity. A path of a multipath map finds the map.
pub fn find<'a>(devices: &'a [DeviceView], wanted: &str) -> Result<&'a DeviceView, NotFound> {
    let below_dev = wanted.strip_prefix("/dev/").or_else(|| wanted.strip_prefix("dev/"));
    let name = below_dev.unwrap_or(wanted);
    let exact = |view: &&DeviceView| {
        view.device.name == name || view.device.paths.iter().any(|path| path == name)
    };
    let named = |view: &&DeviceView| {
        let device = &view.device;
        let mapped = device.mapped_name.as_deref();
        mapped.is_some_and(|mapped| mapped == name || name.strip_prefix("mapper/") == Some(mapped))
            || device.identity.as_deref() == Some(wanted)
            || device
                .device_id
                .as_deref()
                .and_then(|path| path.strip_prefix("/dev/"))
                .is_some_and(|path| path == name || last(path) == name)
            || device.link.as_deref().and_then(|path| path.strip_prefix("/dev/")) == Some(name)
            || view.local.as_ref().is_some_and(|local| {
                local
                    .by_id
                    .iter()
                    .any(|link| link == name || name.strip_prefix("disk/by-id/") == Some(link))
            })
    };
    // A kernel name is unique; everything else may match several devices.
    if let Some(found) = devices.iter().find(exact) {
        return Ok(found);
    }
    let found: Vec<&DeviceView> = devices.iter().filter(named).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(NotFound::Near(near(devices, last(name)))),
        several => {
            Err(NotFound::Several(several.iter().map(|view| view.device.name.clone()).collect()))
        }
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn near(devices: &[DeviceView], wanted: &str) -> Vec<String> {
    let mut names: Vec<(usize, String)> = devices
        .iter()
        .map(|view| (distance(&view.device.name, wanted), view.device.name.clone()))
        .collect();
    names.sort();
    names.into_iter().take(NEAR).map(|(_, name)| name).collect()
}

/// How many characters to change, add or remove.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let cost = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

impl NotFound {
    /// As an error: `place` is `node n1` or `this machine`.
    pub fn message(&self, place: &str, wanted: &str) -> String {
        match self {
            NotFound::Near(names) if names.is_empty() => format!("{place} has no devices"),
            NotFound::Near(names) => {
                format!("{place} has no device {wanted}; use one of: {}", names.join(", "))
            }
            NotFound::Several(names) => format!(
                "{wanted} matches more than one device of {place}; use one of: {}",
                names.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::samples::{device, machine};
    use serde_json::json;

    #[test]
    fn a_device_is_found_by_each_of_its_names() {
        let devices = machine();
        for (wanted, name) in [
            ("sdb", "sdb"),
            ("/dev/sdb", "sdb"),
            ("dev/sdb", "sdb"),
            ("vg-root", "dm-0"),
            ("/dev/mapper/vg-root", "dm-0"),
            ("wwn:5000c500a1b2c3d4", "sdb"),
            ("/dev/disk/by-id/wwn-0x5000c500a1b2c3d4", "sdb"),
            ("wwn-0x5000c500a1b2c3d4", "sdb"),
        ] {
            assert_eq!(
                find(&devices, wanted).map(|view| view.device.name.as_str()),
                Ok(name),
                "{wanted}"
            );
        }
    }

    #[test]
    fn an_unknown_name_lists_similar_names() {
        let Err(missing) = find(&machine(), "/dev/sdb1") else { panic!() };
        let message = missing.message("node n1", "/dev/sdb1");
        assert!(
            message.starts_with("node n1 has no device /dev/sdb1; use one of: sda1, sdb, "),
            "{message}"
        );
        let twins = ["sda", "sdb"].map(|name| device(json!({"name": name, "identity": "wwn:1"})));
        let Err(several) = find(&twins, "wwn:1") else { panic!() };
        assert_eq!(
            several.message("n1", "wwn:1"),
            "wwn:1 matches more than one device of n1; use one of: sda, sdb"
        );
    }

    #[test]
    fn distance_is_counted_in_characters() {
        assert_eq!(
            [
                distance("sda", "sda"),
                distance("sda", "sdb"),
                distance("sda", "sda1"),
                distance("", "x"),
                distance("loop1", "sda")
            ],
            [0, 1, 1, 1, 5]
        );
    }
}
