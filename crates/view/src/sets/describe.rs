//! The selection of a set or a LocalVolume, and what its StorageClasses mean, as text.

use crate::text::{Field, join, size};
use k8s_openapi::api::{core::v1::Toleration, storage::v1::StorageClass};
use quarry_api::{node_job::OwnerKind, quantity::Bytes, volume::VolumeMode};
use quarry_core::{
    device_claim::{
        Demand,
        demand::{DeviceSelection, PvSettings, SetSelection},
        filter::{DeviceType, Filter},
        glob::Glob,
        pv::NO_PROVISIONER,
        wipe_policy,
    },
    node_selector::selector_text,
    source::Source,
};
use serde::Serialize;

/// As a user types it: `set/fast`.
pub fn handle(kind: &str, name: &str) -> String {
    let short = if kind == OwnerKind::LocalVolumeSet.as_str() { "set" } else { "localvolume" };
    format!("{short}/{name}")
}

/// What it requests, field by field.
pub fn selection(demand: &Demand) -> Vec<Field> {
    let mut fields = Vec::new();
    match &demand.selection {
        DeviceSelection::Set(set) => {
            fields.push(Field::new("devices", filter_text(&set.filter)));
            fields.extend(count_text(set).map(|text| Field::new("each node", text)));
            fields.push(Field::new("becomes", settings_text(&set.settings)));
            if !set.not_local.is_empty() {
                let kinds = set.not_local.join(", ");
                fields.push(Field::new("also", format!("devices that are not local: {kinds}")));
            }
        }
        DeviceSelection::Paths(paths) if paths.is_empty() => {
            fields.push(Field::new("devices", "none: spec.storageClassDevices names no path"));
        }
        DeviceSelection::Paths(paths) => fields.extend(paths.iter().map(|one| {
            let settings = settings_text(&one.settings);
            Field::new("device", format!("{}, becomes {settings}", one.path))
        })),
    }
    if !demand.adopts.is_empty() {
        let uids = demand.adopts.join(", ");
        let text = format!("the retained data of PersistentVolumes with these UIDs: {uids}");
        fields.push(Field::new("adopts", text));
    }
    let nodes = demand.selector.as_ref().map_or_else(|| "all".to_owned(), selector_text);
    fields.push(Field::new("nodes", nodes));
    if !demand.tolerations.is_empty() {
        let tolerations: Vec<String> = demand.tolerations.iter().map(toleration_text).collect();
        fields.push(Field::new("tolerates", tolerations.join(", ")));
    }
    if demand.paused {
        fields.push(Field::new("state", "takes no devices because of spec.managementState"));
    }
    fields
}

fn toleration_text(toleration: &Toleration) -> String {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let key = given(&toleration.key).unwrap_or_else(|| "every taint".to_owned());
    let value = given(&toleration.value).map_or_else(String::new, |value| format!("={value}"));
    let effect = given(&toleration.effect).map_or_else(String::new, |effect| format!(":{effect}"));
    format!("{key}{value}{effect}")
}

fn count_text(set: &SetSelection) -> Option<String> {
    match (set.min, set.max) {
        (0, None) => None,
        (0, Some(max)) => Some(format!("at most {max}")),
        (min, None) => Some(format!("at least {min}, or none")),
        (min, Some(max)) => Some(format!("at least {min}, or none; at most {max}")),
    }
}

fn settings_text(settings: &PvSettings) -> String {
    let form = match (settings.mode, &settings.fs_type) {
        (VolumeMode::Block, _) => "Block".to_owned(),
        (VolumeMode::Filesystem, Some(fs)) => format!("Filesystem ({fs})"),
        (VolumeMode::Filesystem, None) => "Filesystem".to_owned(),
    };
    format!("PersistentVolumes of class {}, {form}", settings.class)
}

/// The devices that a set selects.
fn filter_text(filter: &Filter) -> String {
    if filter.types.is_empty() {
        return "none: deviceTypes is an empty list".to_owned();
    }
    let plural = |kind: &DeviceType| match kind {
        DeviceType::Disk => "disks",
        DeviceType::Part => "partitions",
        DeviceType::Loop => "loop devices",
        DeviceType::Mpath => "multipath maps",
        DeviceType::Lvm => "logical volumes",
        DeviceType::Raid => "RAID arrays",
    };
    let bytes = |Bytes(bytes): Bytes| size(i64::try_from(bytes).unwrap_or(i64::MAX));
    let mut text = join(&filter.types.iter().map(plural).collect::<Vec<_>>(), "and");
    match filter.rotational {
        Some(true) => text.push_str(" that rotate"),
        Some(false) => text.push_str(" that do not rotate"),
        None => {}
    }
    match (filter.min.0, filter.max) {
        (0, None) => text.push_str(", of any size"),
        (0, Some(max)) => text.push_str(&format!(", up to {}", bytes(max))),
        (_, None) => text.push_str(&format!(", from {}", bytes(filter.min))),
        (_, Some(max)) => {
            text.push_str(&format!(", from {} to {}", bytes(filter.min), bytes(max)));
        }
    }
    for (what, parts) in [("model", &filter.models), ("vendor", &filter.vendors)] {
        if !parts.is_empty() {
            let quoted: Vec<String> = parts.iter().map(|one| format!("{one:?}")).collect();
            text.push_str(&format!(", whose {what} contains {}", join(&quoted, "or")));
        }
    }
    if !filter.excluded.is_empty() {
        let patterns: Vec<&str> = filter.excluded.iter().map(Glob::as_str).collect();
        text.push_str(&format!("; except names that match {}", join(&patterns, "or")));
    }
    text
}

/// Each class that it names once, with the mode of its volumes.
pub fn classes(demand: &Demand) -> Vec<(&str, VolumeMode)> {
    let settings: Vec<&PvSettings> = match &demand.selection {
        DeviceSelection::Set(set) => vec![&set.settings],
        DeviceSelection::Paths(paths) => paths.iter().map(|one| &one.settings).collect(),
    };
    let mut classes = Vec::new();
    for one in settings {
        let class = (one.class.as_str(), one.mode);
        if !classes.contains(&class) {
            classes.push(class);
        }
    }
    classes
}

/// What happens to released volumes of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassView {
    pub name: String,
    /// Nothing is published in it, or released volumes cannot be wiped.
    pub problem: bool,
    pub text: String,
}

pub fn class_views(source: &impl Source, demand: &Demand) -> Vec<ClassView> {
    let view = |(name, mode)| ClassView::new(name, mode, source.class(name).as_deref());
    classes(demand).into_iter().map(view).collect()
}

impl ClassView {
    fn new(name: &str, mode: VolumeMode, class: Option<&StorageClass>) -> Self {
        let missing = if class.is_none() {
            " does not exist and is created with the first volume"
        } else {
            ""
        };
        let (problem, text) = match class {
            Some(class) if class.provisioner != NO_PROVISIONER => (
                true,
                format!(
                    "StorageClass {name} belongs to the provisioner {}, so nothing is published in it; use another name, or delete that class",
                    class.provisioner
                ),
            ),
            Some(class) if class.reclaim_policy.as_deref() == Some("Retain") => {
                (false, format!("StorageClass {name}: released volumes retain their data (Retain)"))
            }
            _ => match wipe_policy(class, mode) {
                Ok(policy) => (
                    false,
                    format!(
                        "StorageClass {name}{missing}: released volumes are wiped ({}) and published again",
                        policy.as_str()
                    ),
                ),
                Err(why) => {
                    (true, format!("StorageClass {name}: released volumes cannot be wiped: {why}"))
                }
            },
        };
        ClassView { name: name.to_owned(), problem, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_core::device_claim::demand::{of_local_volume, of_set};
    use serde_json::{Value, json};

    fn lines(demand: &Demand) -> String {
        selection(demand).iter().map(|field| format!("{}: {}\n", field.name, field.text)).collect()
    }

    fn set(spec: Value) -> Demand {
        let object = json!({"metadata": {"name": "s", "namespace": "n"}, "spec": spec});
        of_set(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn every_field_of_a_selection_is_described() {
        let full = set(json!({
            "storageClassName": "fast", "fsType": "xfs", "minDeviceCount": 2, "maxDeviceCount": 4,
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]}]},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}, {"operator": "Exists", "effect": "NoSchedule"}],
            "deviceInclusionSpec": {"deviceTypes": ["disk", "part"], "deviceMechanicalProperties": ["NonRotational"], "minSize": "10Gi", "maxSize": "1Ti",
                "models": ["SAMSUNG", "Crucial"], "vendors": ["ATA"]},
            "deviceExclusionSpec": {"deviceNameFilter": ["sd[a-c]", "rbd*"]},
        }));
        insta::assert_snapshot!(lines(&full));
        insta::assert_snapshot!(lines(&set(json!({"storageClassName": "c"}))), @r"
        devices: disks, of any size
        becomes: PersistentVolumes of class c, Block
        nodes: all
        ");
        let none = json!({"storageClassName": "c", "deviceInclusionSpec": {"deviceTypes": []}});
        assert!(lines(&set(none)).contains("none: deviceTypes is an empty list"));
        let volume = json!({"metadata": {"name": "v"}, "spec": {"managementState": "Unmanaged", "storageClassDevices": [
            {"storageClassName": "c", "devicePaths": ["/dev/sdb"]}, {"storageClassName": "d", "volumeMode": "Block", "devicePaths": ["/dev/sdc"]}]}});
        let volume = of_local_volume(&serde_json::from_value(volume).unwrap());
        insta::assert_snapshot!(lines(&volume), @r"
        device: /dev/sdb, becomes PersistentVolumes of class c, Filesystem
        device: /dev/sdc, becomes PersistentVolumes of class d, Block
        nodes: all
        state: takes no devices because of spec.managementState
        ");
    }

    #[test]
    fn a_class_says_what_happens_to_released_volumes() {
        let view = |fields: Option<Value>| {
            let class =
                fields.map(|fields| serde_json::from_value::<StorageClass>(fields).unwrap());
            ClassView::new("c", VolumeMode::Block, class.as_ref())
        };
        let wiped_by = |policy: &str| {
            view(Some(
                json!({"metadata": {"annotations": {"quarry.dev/wipe": policy}}, "provisioner": NO_PROVISIONER}),
            ))
        };
        assert_eq!(
            view(None).text,
            "StorageClass c does not exist and is created with the first volume: released volumes are wiped (Discard) and published again"
        );
        assert!(wiped_by("Zero").text.contains("(Zero)") && !wiped_by("Zero").problem);
        let bad = wiped_by("Burn");
        assert!(bad.text.contains("use Quick, Discard or Zero") && bad.problem, "{bad:?}");
        let retained = view(Some(
            json!({"metadata": {}, "provisioner": NO_PROVISIONER, "reclaimPolicy": "Retain"}),
        ));
        assert!(retained.text.contains("retain their data") && !retained.problem, "{retained:?}");
        let other = view(Some(json!({"metadata": {}, "provisioner": "ebs"})));
        assert!(other.text.contains("nothing is published in it") && other.problem, "{other:?}");
    }
}
