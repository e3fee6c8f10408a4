//! What a set or a LocalVolume asks for, in words.

use k8s_openapi::api::{core::v1::Toleration, storage::v1::StorageClass};
use quarry_api::{node_inventory::ClaimOwner, volume::VolumeMode};
use quarry_core::{
    device_claim::{
        Demand,
        demand::{DeviceSelection, PvSettings, SetSelection},
        filter::{DeviceType, Filter},
        pv::NO_PROVISIONER,
        wipe_policy,
    },
    node_selector::selector_text,
};

/// As a person types it: `set/fast`.
pub fn handle(owner: &ClaimOwner) -> String {
    let short = if owner.kind == quarry_api::node_job::OwnerKind::LocalVolumeSet.as_str() {
        "set"
    } else {
        "localvolume"
    };
    format!("{short}/{}", owner.name)
}

/// What it asks for, line by line: a word, and a sentence.
pub fn selection(demand: &Demand) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    match &demand.selection {
        DeviceSelection::Set(set) => {
            lines.push(("devices", described(&set.filter)));
            lines.extend(counted(set));
            lines.push(("becomes", settings(&set.settings)));
            if !set.not_local.is_empty() {
                lines.push((
                    "also",
                    format!(
                        "devices that are not local, of these kinds: {}",
                        set.not_local.join(", ")
                    ),
                ));
            }
        }
        DeviceSelection::Paths(asked) if asked.is_empty() => {
            lines.push(("devices", "none: spec.storageClassDevices names no path".to_owned()))
        }
        DeviceSelection::Paths(asked) => {
            lines.extend(asked.iter().map(|ask| {
                ("device", format!("{}, becomes {}", ask.path, settings(&ask.settings)))
            }))
        }
    }
    if !demand.adopts.is_empty() {
        lines.push((
            "adopts",
            format!(
                "the data that these PersistentVolumes left, by UID: {}",
                demand.adopts.join(", ")
            ),
        ));
    }
    lines.push(("nodes", demand.selector.as_ref().map_or_else(|| "all".to_owned(), selector_text)));
    if !demand.tolerations.is_empty() {
        lines.push((
            "tolerates",
            demand.tolerations.iter().map(tolerated).collect::<Vec<_>>().join(", "),
        ));
    }
    if demand.paused {
        lines.push(("state", "managementState keeps it from taking devices".to_owned()));
    }
    lines
}

fn tolerated(toleration: &Toleration) -> String {
    let key = toleration.key.as_deref().filter(|key| !key.is_empty()).unwrap_or("every taint");
    let value = toleration
        .value
        .as_deref()
        .filter(|value| !value.is_empty())
        .map_or_else(String::new, |value| format!("={value}"));
    let effect = toleration
        .effect
        .as_deref()
        .filter(|effect| !effect.is_empty())
        .map_or_else(String::new, |effect| format!(":{effect}"));
    format!("{key}{value}{effect}")
}

fn counted(set: &SetSelection) -> Option<(&'static str, String)> {
    let text = match (set.min, set.max) {
        (0, None) => return None,
        (0, Some(max)) => format!("at most {max}"),
        (min, None) => format!("at least {min}, or none"),
        (min, Some(max)) => format!("at least {min}, or none; at most {max}"),
    };
    Some(("each node", text))
}

fn settings(settings: &PvSettings) -> String {
    let form = match (settings.mode, &settings.fs_type) {
        (VolumeMode::Block, _) => "Block".to_owned(),
        (VolumeMode::Filesystem, Some(fs)) => format!("Filesystem ({fs})"),
        (VolumeMode::Filesystem, None) => "Filesystem".to_owned(),
    };
    format!("PersistentVolumes of class {}, {form}", settings.class)
}

/// The devices that a set describes.
pub fn described(filter: &Filter) -> String {
    if filter.types.is_empty() {
        return "none: deviceTypes is an empty list".to_owned();
    }
    let plural = |kind: &DeviceType| match kind {
        DeviceType::Disk => "disks",
        DeviceType::Part => "partitions",
        DeviceType::Loop => "loop devices",
        DeviceType::Mpath => "multipath maps",
        DeviceType::Lvm => "logical volumes",
    };
    let mut text = joined(&filter.types.iter().map(plural).collect::<Vec<_>>(), "and");
    match filter.rotational {
        Some(true) => text.push_str(" that rotate"),
        Some(false) => text.push_str(" that do not rotate"),
        None => {}
    }
    match (filter.min.0, filter.max) {
        (0, None) => text.push_str(", of any size"),
        (0, Some(max)) => text.push_str(&format!(", up to {max}")),
        (_, None) => text.push_str(&format!(", from {}", filter.min)),
        (_, Some(max)) => text.push_str(&format!(", from {} to {max}", filter.min)),
    }
    for (what, wanted) in [("model", &filter.models), ("vendor", &filter.vendors)] {
        if !wanted.is_empty() {
            let quoted: Vec<String> = wanted.iter().map(|one| format!("{one:?}")).collect();
            text.push_str(&format!(", whose {what} contains {}", joined(&quoted, "or")));
        }
    }
    if !filter.excluded.is_empty() {
        let patterns: Vec<&str> =
            filter.excluded.iter().map(quarry_core::device_claim::glob::Glob::as_str).collect();
        text.push_str(&format!("; none whose name fits {}", joined(&patterns, "or")));
    }
    text
}

fn joined<T: AsRef<str>>(words: &[T], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.as_ref().to_owned(),
        [first @ .., end] => format!(
            "{} {last} {}",
            first.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", "),
            end.as_ref()
        ),
    }
}

/// Each class that it names once, with the mode of its volumes.
pub fn classes(demand: &Demand) -> Vec<(&str, VolumeMode)> {
    let mut classes: Vec<(&str, VolumeMode)> = match &demand.selection {
        DeviceSelection::Set(set) => vec![(set.settings.class.as_str(), set.settings.mode)],
        DeviceSelection::Paths(asked) => {
            asked.iter().map(|ask| (ask.settings.class.as_str(), ask.settings.mode)).collect()
        }
    };
    let mut seen = Vec::new();
    classes.retain(|one| {
        let new = !seen.contains(one);
        seen.push(*one);
        new
    });
    classes
}

/// What becomes of a volume of this class when its claim is gone, or why there will be none.
pub fn class_sentence(name: &str, mode: VolumeMode, class: Option<&StorageClass>) -> String {
    let missing =
        if class.is_none() { " does not exist and is made with the first volume" } else { "" };
    match class {
        Some(class) if class.provisioner != NO_PROVISIONER => {
            format!(
                "StorageClass {name} belongs to the provisioner {}: nothing is published in it; use another name, or delete that class",
                class.provisioner
            )
        }
        Some(class) if class.reclaim_policy.as_deref() == Some("Retain") => {
            format!("StorageClass {name}: released volumes keep their data (Retain)")
        }
        _ => match wipe_policy(class, mode) {
            Ok(policy) => format!(
                "StorageClass {name}{missing}: released volumes are wiped ({}) and published again",
                policy.as_str()
            ),
            Err(why) => format!("StorageClass {name}: released volumes cannot be wiped: {why}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_core::device_claim::demand::{of_local_volume, of_set};
    use serde_json::{Value, json};

    fn lines(demand: &Demand) -> String {
        selection(demand).into_iter().map(|(word, text)| format!("{word}: {text}\n")).collect()
    }

    fn set(spec: Value) -> Demand {
        of_set(
            &serde_json::from_value(
                json!({"metadata": {"name": "s", "namespace": "n"}, "spec": spec}),
            )
            .unwrap(),
        )
    }

    #[test]
    fn what_is_asked_for_is_told_in_words() {
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
        assert!(
            lines(&set(
                json!({"storageClassName": "c", "deviceInclusionSpec": {"deviceTypes": []}})
            ))
            .contains("none: deviceTypes is an empty list")
        );
        let volume = of_local_volume(
            &serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": {"managementState": "Unmanaged", "storageClassDevices": [
                {"storageClassName": "c", "devicePaths": ["/dev/sdb"]}, {"storageClassName": "d", "volumeMode": "Block", "devicePaths": ["/dev/sdc"]}]}}))
            .unwrap(),
        );
        insta::assert_snapshot!(lines(&volume), @r"
        device: /dev/sdb, becomes PersistentVolumes of class c, Filesystem
        device: /dev/sdc, becomes PersistentVolumes of class d, Block
        nodes: all
        state: managementState keeps it from taking devices
        ");
    }

    #[test]
    fn what_a_class_means_is_told() {
        let class = |fields: Value| serde_json::from_value::<StorageClass>(fields).unwrap();
        let said = |class: Option<&StorageClass>| class_sentence("c", VolumeMode::Block, class);
        assert_eq!(
            said(None),
            "StorageClass c does not exist and is made with the first volume: released volumes are wiped (Discard) and published again"
        );
        let ours = json!({"metadata": {"annotations": {"quarry.dev/wipe": "Zero"}}, "provisioner": NO_PROVISIONER});
        assert!(said(Some(&class(ours))).contains("(Zero)"));
        let bad = json!({"metadata": {"annotations": {"quarry.dev/wipe": "Burn"}}, "provisioner": NO_PROVISIONER});
        assert!(said(Some(&class(bad))).contains("use Quick, Discard or Zero"));
        assert!(
            said(Some(&class(
                json!({"metadata": {}, "provisioner": NO_PROVISIONER, "reclaimPolicy": "Retain"})
            )))
            .contains("keep their data")
        );
        assert!(
            said(Some(&class(json!({"metadata": {}, "provisioner": "ebs"}))))
                .contains("nothing is published in it")
        );
    }
}
