//! Rules of `spec.raid` that an API server evaluates, in both spellings.
//!
//! Owns: CEL over one volume, one list, and the spec. They are added to the schema of the spec only: a status is
//! accepted as it is, also one that upstream wrote. The same rules for objects that were written past admission:
//! `quarry_core::bare_metal_host::raid_rules`, compared with these by a property test.
//!
//! A list may be null, and CEL has no type for that: rules of a list and its items are not evaluated on null, and those
//! of the spec ask `optional.ofNonZeroValue(list).hasValue()`, which is false of null (and of `[]` only in some
//! implementations).

use kube::core::Rule;
use schemars::Schema;
use serde_json::{Value, json};

/// Bounds for the estimated cost of rules; upstream has none, and no machine reaches them.
const MAX_HARDWARE_VOLUMES: usize = 64;
const MAX_HINTS: usize = 256;
const MAX_DEVICE_NAME: usize = 1024;

const HARDWARE: [&str; 2] = ["hardwareRAIDVolumes", "hardwareVolumes"];
const SOFTWARE: [&str; 2] = ["softwareRAIDVolumes", "softwareVolumes"];

/// Device names as upstream accepts them, but never empty.
const DEVICE_NAME: &str = "self.deviceName.matches('^/dev/(disk/by-path/)?[^/]+$')";

fn rule(rule: impl Into<String>, message: &str) -> Rule {
    Rule::new(rule).message(message)
}

/// Whether `level` is this one, as text or as an integer. Not by `string(level)`: its length has no bound, so that its
/// estimated cost is over the limit.
fn is_level(place: &str, level: &str) -> String {
    match level.parse::<i64>() {
        Ok(number) => format!("({place}.level == '{level}' || {place}.level == {number})"),
        Err(_) => format!("{place}.level == '{level}'"),
    }
}

/// Of a hint: `spec.rootDeviceHints` and each disk of software RAID.
pub(super) fn device_name() -> Rule {
    rule(
        format!("!has(self.deviceName) || self.deviceName == '' || {DEVICE_NAME}"),
        "deviceName must be a path directly below /dev or /dev/disk/by-path; use such a path, as /dev/disk/by-path/pci-0000:01:00.0-scsi-0:2:0:0, or another hint",
    )
}

fn hardware_volume() -> Vec<Rule> {
    let listed = "(has(self.physicalDisks) && self.physicalDisks.size() > 0)";
    let count = "(has(self.numberOfPhysicalDisks) ? self.numberOfPhysicalDisks : (has(self.physicalDisks) ? self.physicalDisks.size() : 0))";
    let disks = |level: &str, accepted: &str, message: &str| {
        let accepted = accepted.replace("count", count);
        let other = format!("!({})", is_level("self", level));
        rule(format!("{other} || {count} == 0 || {accepted}"), message)
    };
    vec![
        rule(
            format!("!{listed} || (has(self.controller) && self.controller != '')"),
            "physicalDisks is given without controller; set controller to the one of these disks, or remove physicalDisks",
        ),
        rule(
            format!(
                "!{listed} || !has(self.numberOfPhysicalDisks) || self.numberOfPhysicalDisks == self.physicalDisks.size()"
            ),
            "numberOfPhysicalDisks is not the number of physicalDisks; remove numberOfPhysicalDisks, or list as many disks",
        ),
        rule(
            format!("!{}", is_level("self", "2")),
            "level 2 is built by no driver; use 0, 1, 5, 6, 1+0, 5+0 or 6+0",
        ),
        disks(
            "1",
            "count == 2",
            "level 1 needs exactly 2 physical disks; change numberOfPhysicalDisks or physicalDisks, or use level 1+0",
        ),
        disks(
            "5",
            "count >= 3",
            "level 5 needs at least 3 physical disks; change numberOfPhysicalDisks or physicalDisks, or use another level",
        ),
        disks(
            "6",
            "count >= 4",
            "level 6 needs at least 4 physical disks; change numberOfPhysicalDisks or physicalDisks, or use another level",
        ),
        disks(
            "1+0",
            "(count >= 4 && count % 2 == 0)",
            "level 1+0 needs an even number of physical disks, at least 4; change numberOfPhysicalDisks or physicalDisks, or use another level",
        ),
        disks(
            "5+0",
            "(count >= 6 && count % 2 == 0)",
            "level 5+0 needs an even number of physical disks, at least 6; change numberOfPhysicalDisks or physicalDisks, or use another level",
        ),
        disks(
            "6+0",
            "(count >= 8 && count % 2 == 0)",
            "level 6+0 needs an even number of physical disks, at least 8; change numberOfPhysicalDisks or physicalDisks, or use another level",
        ),
    ]
}

fn hardware_list() -> Vec<Rule> {
    vec![rule(
        "self.all(one, !has(one.name) || one.name == '' || self.exists_one(other, has(other.name) && other.name == one.name))",
        "name is that of another volume; use a name of its own for each volume, or remove it",
    )]
}

fn software_volume() -> Vec<Rule> {
    vec![rule(
        format!("!has(self.rootVolume) || !self.rootVolume || {}", is_level("self", "1")),
        "rootVolume is set, and a host boots only from level 1; use level 1, or set rootVolume on another volume",
    )]
}

fn software_list() -> Vec<Rule> {
    vec![
        rule(
            format!("self.size() == 0 || {}", is_level("self[0]", "1")),
            "level of the first volume must be 1, because a host boots only from level 1; use level 1 for the first volume",
        ),
        rule(
            "self.filter(one, !has(one.sizeGibibytes) || one.sizeGibibytes == 0).size() < 2",
            "several volumes have no sizeGibibytes, and only one can have the rest of the disks; give the others a size",
        ),
        rule(
            "self.filter(one, has(one.rootVolume) && one.rootVolume).size() < 2",
            "rootVolume is set on several volumes, and a host has one; set it on one of them",
        ),
    ]
}

fn extend(schema: &mut Value, rules: Vec<Rule>) {
    schema["x-kubernetes-validations"] = json!(rules);
}

/// Adds rules and bounds to the lists of `spec.raid`.
pub(super) fn lists(schema: &mut Schema) {
    let Some(properties) = schema.get_mut("properties") else { return };
    for name in HARDWARE {
        let list = &mut properties[name];
        list["maxItems"] = json!(MAX_HARDWARE_VOLUMES);
        extend(list, hardware_list());
        extend(&mut list["items"], hardware_volume());
    }
    for name in SOFTWARE {
        let list = &mut properties[name];
        extend(list, software_list());
        extend(&mut list["items"], software_volume());
        let disks = &mut list["items"]["properties"]["physicalDisks"];
        disks["maxItems"] = json!(MAX_HINTS);
        disks["items"]["properties"]["deviceName"]["maxLength"] = json!(MAX_DEVICE_NAME);
        extend(&mut disks["items"], vec![device_name()]);
    }
}

/// True if any hint is given: an empty object selects nothing.
fn has_hints() -> String {
    let text = [
        "deviceName",
        "hctl",
        "model",
        "vendor",
        "serialNumber",
        "wwn",
        "wwnWithExtension",
        "wwnVendorExtension",
    ];
    let hints = text.map(|name| {
        format!("(has(self.rootDeviceHints.{name}) && self.rootDeviceHints.{name} != '')")
    });
    format!(
        "(has(self.rootDeviceHints) && ({} || (has(self.rootDeviceHints.minSizeGigabytes) && self.rootDeviceHints.minSizeGigabytes != 0) || has(self.rootDeviceHints.rotational)))",
        hints.join(" || ")
    )
}

fn empty(list: &str) -> String {
    format!(
        "!has(self.raid) || !has(self.raid.{list}) || !optional.ofNonZeroValue(self.raid.{list}).hasValue() || self.raid.{list}.size() == 0"
    )
}

/// Of the spec: hardware RAID in this list, and the BMC.
pub(super) fn driver_has_raid(list: &str) -> Rule {
    rule(
        format!(
            "{} || !has(self.bmc) || self.bmc.address == '' || (self.bmc.address.contains('://') && !self.bmc.address.matches('^(ipmi|libvirt)[+:]'))",
            empty(list)
        ),
        &format!(
            "raid.{list} needs a BMC that configures RAID, and the scheme of bmc.address has no RAID; use softwareRAIDVolumes, or an address with a redfish or idrac scheme"
        ),
    )
}

/// Of the spec: root volumes in this list, and hints.
pub(super) fn one_root(list: &str) -> Rule {
    rule(
        format!(
            "{} || !{} || !self.raid.{list}.exists(one, has(one.rootVolume) && one.rootVolume)",
            empty(list),
            has_hints()
        ),
        &format!(
            "raid.{list}[].rootVolume and rootDeviceHints both select the root disk; remove one of them"
        ),
    )
}

/// Of the spec: sizes in this list, and hints.
pub(super) fn root_is_distinct(list: &str) -> Rule {
    rule(
        format!(
            "{} || {} || self.raid.{list}.all(one, !has(one.sizeGibibytes) || one.sizeGibibytes == 0 || self.raid.{list}.exists_one(other, has(other.sizeGibibytes) && other.sizeGibibytes == one.sizeGibibytes))",
            empty(list),
            has_hints()
        ),
        &format!(
            "raid.{list} has volumes of equal sizeGibibytes, and which of them is the root volume cannot be distinguished after a reboot; use different sizes, or set rootDeviceHints"
        ),
    )
}
