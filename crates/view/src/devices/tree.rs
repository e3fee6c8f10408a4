//! The order of the list: each device below its parent, as in lsblk.

use super::DeviceView;
use quarry_core::device::{Reason, inventory::natural};
use std::collections::{BTreeMap, BTreeSet};

/// Every device once, with the branches in front of its name. A device on several others (a RAID) is below the first.
pub fn ordered(devices: &[DeviceView]) -> Vec<(String, &DeviceView)> {
    let mut sorted: Vec<&DeviceView> = devices.iter().collect();
    sorted.sort_by_cached_key(|view| (view.node.clone(), natural(&view.device.name)));
    let known: BTreeSet<(&str, &str)> =
        sorted.iter().map(|view| (view.node.as_str(), view.device.name.as_str())).collect();
    let mut below: BTreeMap<(&str, &str), Vec<&DeviceView>> = BTreeMap::new();
    let mut has_place: BTreeSet<(&str, &str)> = BTreeSet::new();
    for view in &sorted {
        let node = view.node.as_str();
        if let Some(parent) =
            view.device.parent.as_deref().filter(|parent| known.contains(&(node, parent)))
        {
            has_place.insert((node, &view.device.name));
            below.entry((node, parent)).or_default().push(view);
        }
    }
    for under in &sorted {
        for holder in under.details(Reason::HasHolders) {
            let found =
                sorted.iter().find(|view| view.node == under.node && view.device.name == holder);
            if let Some(over) = found
                .filter(|over| has_place.insert((over.node.as_str(), over.device.name.as_str())))
            {
                below.entry((&under.node, &under.device.name)).or_default().push(over);
            }
        }
    }
    let mut walk = Walk { below, seen: BTreeSet::new(), list: Vec::with_capacity(sorted.len()) };
    for view in sorted
        .iter()
        .filter(|view| !has_place.contains(&(view.node.as_str(), view.device.name.as_str())))
    {
        walk.add(view, "", "");
    }
    // Devices that name each other as parents have no root: they are listed all the same.
    for view in &sorted {
        walk.add(view, "", "");
    }
    walk.list
}

struct Walk<'a> {
    below: BTreeMap<(&'a str, &'a str), Vec<&'a DeviceView>>,
    seen: BTreeSet<(&'a str, &'a str)>,
    list: Vec<(String, &'a DeviceView)>,
}

impl<'a> Walk<'a> {
    /// `branch` is in front of this device, `trunk` in front of its children.
    fn add(&mut self, view: &'a DeviceView, branch: &str, trunk: &str) {
        let key = (view.node.as_str(), view.device.name.as_str());
        if !self.seen.insert(key) {
            return;
        }
        self.list.push((branch.to_owned(), view));
        let children = self.below.get(&key).cloned().unwrap_or_default();
        for (at, child) in children.iter().enumerate() {
            let (fork, on) =
                if at + 1 == children.len() { ("└─", "  ") } else { ("├─", "│ ") };
            self.add(child, &format!("{trunk}{fork}"), &format!("{trunk}{on}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::samples::device;
    use serde_json::json;

    fn names(devices: &[DeviceView]) -> Vec<String> {
        ordered(devices)
            .into_iter()
            .map(|(branch, view)| format!("{branch}{}", view.device.name))
            .collect()
    }

    #[test]
    fn partitions_and_holders_are_below_their_devices() {
        let held = |name: &str, by: &str| {
            device(
                json!({"name": name, "parent": "sda", "type": "part", "reasons": [{"reason": "HasHolders", "detail": by}]}),
            )
        };
        let list = [
            device(json!({"name": "sdb"})),
            held("sda10", "dm-0"),
            held("sda2", "md127"),
            device(json!({"name": "sda1", "parent": "sda"})),
            device(json!({"name": "dm-0"})),
            device(json!({"name": "md127"})),
            device(json!({"name": "sda"})),
            device(json!({"name": "sdc1", "parent": "sdc"})),
        ];
        assert_eq!(
            names(&list),
            ["sda", "├─sda1", "├─sda2", "│ └─md127", "└─sda10", "  └─dm-0", "sdb", "sdc1"]
        );
    }

    #[test]
    fn a_cycle_of_parents_omits_no_device() {
        let on = |name: &str, parent: &str| device(json!({"name": name, "parent": parent}));
        assert_eq!(names(&[on("a", "b"), on("b", "a"), on("c", "c")]).len(), 3);
    }
}
