//! The order of the list: each device below the one that it is on, as in lsblk.

use super::view::Shown;
use quarry_core::device::{Reason, inventory::natural};
use std::collections::{BTreeMap, BTreeSet};

/// Every device once, each with the branches in front of its name. One on several others (a RAID) is below the first.
pub fn ordered(devices: &[Shown]) -> Vec<(String, &Shown)> {
    let mut sorted: Vec<&Shown> = devices.iter().collect();
    sorted.sort_by_cached_key(|shown| (shown.node.clone(), natural(&shown.device.name)));
    let known: BTreeSet<(&str, &str)> =
        sorted.iter().map(|shown| (shown.node.as_str(), shown.device.name.as_str())).collect();
    let mut below: BTreeMap<(&str, &str), Vec<&Shown>> = BTreeMap::new();
    let mut has_place: BTreeSet<(&str, &str)> = BTreeSet::new();
    for shown in &sorted {
        let node = shown.node.as_str();
        if let Some(parent) =
            shown.device.parent.as_deref().filter(|parent| known.contains(&(node, parent)))
        {
            has_place.insert((node, &shown.device.name));
            below.entry((node, parent)).or_default().push(shown);
        }
    }
    for under in &sorted {
        for holder in under.details(Reason::HasHolders) {
            let found =
                sorted.iter().find(|shown| shown.node == under.node && shown.device.name == holder);
            if let Some(over) = found
                .filter(|over| has_place.insert((over.node.as_str(), over.device.name.as_str())))
            {
                below.entry((&under.node, &under.device.name)).or_default().push(over);
            }
        }
    }
    let mut walk = Walk { below, seen: BTreeSet::new(), list: Vec::with_capacity(sorted.len()) };
    for shown in sorted
        .iter()
        .filter(|shown| !has_place.contains(&(shown.node.as_str(), shown.device.name.as_str())))
    {
        walk.add(shown, "", "");
    }
    // Devices that claim to be on each other in a circle have no root: they are shown all the same.
    for shown in &sorted {
        walk.add(shown, "", "");
    }
    walk.list
}

struct Walk<'a> {
    below: BTreeMap<(&'a str, &'a str), Vec<&'a Shown>>,
    seen: BTreeSet<(&'a str, &'a str)>,
    list: Vec<(String, &'a Shown)>,
}

impl<'a> Walk<'a> {
    /// `branch` is in front of this one, `trunk` in front of what is below it.
    fn add(&mut self, shown: &'a Shown, branch: &str, trunk: &str) {
        let key = (shown.node.as_str(), shown.device.name.as_str());
        if !self.seen.insert(key) {
            return;
        }
        self.list.push((branch.to_owned(), shown));
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

    fn names(devices: &[Shown]) -> Vec<String> {
        ordered(devices)
            .into_iter()
            .map(|(branch, shown)| format!("{branch}{}", shown.device.name))
            .collect()
    }

    #[test]
    fn partitions_and_holders_are_below_what_they_are_on() {
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
    fn a_circle_loses_nothing() {
        let on = |name: &str, parent: &str| device(json!({"name": name, "parent": parent}));
        assert_eq!(names(&[on("a", "b"), on("b", "a"), on("c", "c")]).len(), 3);
    }
}
