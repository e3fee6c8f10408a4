//! Which device a person means.

use super::view::Shown;

#[derive(Debug, PartialEq, Eq)]
pub enum NotFound {
    /// Names that look alike, or the first ones.
    Near(Vec<String>),
    /// All of these fit.
    Several(Vec<String>),
}

/// As many as a person reads.
const NEAR: usize = 6;

/// By kernel name, name of a mapping, path below /dev, device ID, or identity. A path of a multipath map is the map.
pub fn find<'a>(devices: &'a [Shown], wanted: &str) -> Result<&'a Shown, NotFound> {
    let below_dev = wanted.strip_prefix("/dev/").or_else(|| wanted.strip_prefix("dev/"));
    let name = below_dev.unwrap_or(wanted);
    let exact = |shown: &&Shown| {
        shown.device.name == name || shown.device.paths.iter().any(|path| path == name)
    };
    let named = |shown: &&Shown| {
        let device = &shown.device;
        let mapped = device.mapped_name.as_deref();
        mapped.is_some_and(|mapped| mapped == name || name.strip_prefix("mapper/") == Some(mapped))
            || device.identity.as_deref() == Some(wanted)
            || device
                .device_id
                .as_deref()
                .and_then(|path| path.strip_prefix("/dev/"))
                .is_some_and(|path| path == name || last(path) == name)
            || device.link.as_deref().and_then(|path| path.strip_prefix("/dev/")) == Some(name)
            || shown.local.as_ref().is_some_and(|local| {
                local
                    .by_id
                    .iter()
                    .any(|link| link == name || name.strip_prefix("disk/by-id/") == Some(link))
            })
    };
    // A kernel name is one device's; everything else may be several devices'.
    if let Some(found) = devices.iter().find(exact) {
        return Ok(found);
    }
    let found: Vec<&Shown> = devices.iter().filter(named).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(NotFound::Near(near(devices, last(name)))),
        several => {
            Err(NotFound::Several(several.iter().map(|shown| shown.device.name.clone()).collect()))
        }
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn near(devices: &[Shown], wanted: &str) -> Vec<String> {
    let mut names: Vec<(usize, String)> = devices
        .iter()
        .map(|shown| (distance(&shown.device.name, wanted), shown.device.name.clone()))
        .collect();
    names.sort();
    names.into_iter().take(NEAR).map(|(_, name)| name).collect()
}

/// How many letters are to be changed, added or taken away.
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
    /// The rest of "… has no device sdx".
    pub fn message(&self, place: &str, wanted: &str) -> String {
        match self {
            NotFound::Near(names) if names.is_empty() => format!("{place} shows no device at all"),
            NotFound::Near(names) => {
                format!("{place} has no device {wanted}; there are: {}", names.join(", "))
            }
            NotFound::Several(names) => format!(
                "{wanted} is more than one device of {place}: {}; take one of these names",
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
    fn a_device_is_found_by_whatever_names_it() {
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
                find(&devices, wanted).map(|shown| shown.device.name.as_str()),
                Ok(name),
                "{wanted}"
            );
        }
    }

    #[test]
    fn an_unknown_one_is_answered_with_its_neighbours() {
        let Err(missing) = find(&machine(), "/dev/sdb1") else { panic!() };
        let said = missing.message("node n1", "/dev/sdb1");
        assert!(
            said.starts_with("node n1 has no device /dev/sdb1; there are: sda1, sdb, "),
            "{said}"
        );
        let twins = ["sda", "sdb"].map(|name| device(json!({"name": name, "identity": "wwn:1"})));
        let Err(several) = find(&twins, "wwn:1") else { panic!() };
        assert_eq!(
            several.message("n1", "wwn:1"),
            "wwn:1 is more than one device of n1: sda, sdb; take one of these names"
        );
    }

    #[test]
    fn distances_are_counted_in_letters() {
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
