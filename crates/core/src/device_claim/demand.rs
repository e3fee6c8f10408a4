//! Demands for devices: LocalVolumeSets and LocalVolumes, parsed once into one form.
//!
//! Total: invalid fields become problems, and such a demand takes no new devices. Its device claims stay: a mistake in a
//! spec must not cost a PersistentVolume.

use super::{filter::Filter, pv::NO_PROVISIONER};
use crate::agent_daemon_set::AgentRequester;
use crate::node_selector::{
    problems as selector_problems, selects, toleration_problems, untolerated,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeSelector, Toleration};
use kube::Resource;
use quarry_api::{
    LocalVolume, LocalVolumeSet, names,
    node_inventory::{ClaimOwner, Device, DeviceClaim},
    node_job::OwnerKind,
    validate::Problem,
    volume::VolumeMode,
};

#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    pub owner: ClaimOwner,
    pub created: Option<Timestamp>,
    /// It is being deleted: it takes no new devices and releases those it has.
    pub terminating: bool,
    /// `managementState` disables it.
    pub paused: bool,
    /// It has our finalizer: it cannot be removed while something of it is on a node.
    pub protected: bool,
    pub selector: Option<NodeSelector>,
    pub tolerations: Vec<Toleration>,
    /// The UIDs of PersistentVolumes whose retained data it adopts.
    pub adopts: Vec<String>,
    /// Its problems, each with field and remedy.
    pub problems: Vec<String>,
    pub selection: DeviceSelection,
}

#[derive(Clone, Debug, PartialEq)]
pub enum DeviceSelection {
    /// Devices that match a filter.
    Set(Box<SetSelection>),
    /// Devices at paths.
    Paths(Vec<PathSelection>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct SetSelection {
    pub filter: Filter,
    pub min: usize,
    pub max: Option<usize>,
    pub settings: PvSettings,
    /// Transports of devices that are not local and may be claimed nevertheless.
    pub not_local: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSelection {
    pub path: String,
    pub settings: PvSettings,
}

/// What a device is published as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvSettings {
    pub class: String,
    pub mode: VolumeMode,
    pub fs_type: Option<String>,
}

/// Whether a demand applies to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeMatch {
    Yes,
    NotSelected,
    /// This taint is not tolerated.
    KeptAway(String),
}

impl Demand {
    /// The older object wins, then by name.
    pub fn rank(&self) -> (Option<Timestamp>, Option<&str>, &str, &str) {
        (self.created, self.owner.namespace.as_deref(), &self.owner.name, &self.owner.uid)
    }

    /// Whether it takes new devices.
    pub fn takes_more(&self) -> bool {
        self.protected && !self.terminating && !self.paused && self.problems.is_empty()
    }

    pub fn match_node(&self, node: &Node) -> NodeMatch {
        if !selects(self.selector.as_ref(), node) {
            return NodeMatch::NotSelected;
        }
        match untolerated(node, &self.tolerations) {
            Some(taint) => NodeMatch::KeptAway(crate::node_selector::taint_text(taint)),
            None => NodeMatch::Yes,
        }
    }

    /// Whether it still demands a device that it has claimed. A device that does not match any more, or a node that is not
    /// selected any more, changes nothing: user data may be on it.
    pub fn still_demands(&self, claim: &DeviceClaim) -> bool {
        if self.terminating {
            return false;
        }
        // Removing a path from the list is deliberate; a disabled LocalVolume releases nothing.
        match &self.selection {
            DeviceSelection::Set(_) => true,
            DeviceSelection::Paths(_) => {
                self.paused
                    || !self.problems.is_empty()
                    || self
                        .settings(claim)
                        .is_some_and(|settings| settings.class == claim.storage_class_name)
            }
        }
    }

    /// Its current settings for the device of the device claim, if it names it.
    pub fn settings(&self, claim: &DeviceClaim) -> Option<&PvSettings> {
        match &self.selection {
            DeviceSelection::Set(set) => Some(&set.settings),
            DeviceSelection::Paths(asked) => asked
                .iter()
                .find(|ask| Some(&ask.path) == claim.path.as_ref())
                .map(|ask| &ask.settings),
        }
    }

    /// Nothing is claimed for a class of another provisioner. `provisioner` returns that of a class, if the class exists.
    pub fn with_classes(mut self, provisioner: impl Fn(&str) -> Option<String>) -> Self {
        let field = match &self.selection {
            DeviceSelection::Set(_) => "spec.storageClassName",
            DeviceSelection::Paths(_) => "spec.storageClassDevices.storageClassName",
        };
        let mut classes: Vec<&str> = self.classes().collect();
        classes.sort_unstable();
        classes.dedup();
        let taken = |class: &str| {
            let other = provisioner(class).filter(|other| other != NO_PROVISIONER)?;
            let wrong = format!("StorageClass {class} belongs to the provisioner {other}");
            Some(
                Problem {
                    field,
                    wrong,
                    allowed: "use another name: a StorageClass that does not exist is created"
                        .into(),
                }
                .to_string(),
            )
        };
        let taken: Vec<String> = classes.into_iter().filter_map(taken).collect();
        self.problems.extend(taken);
        self
    }

    /// Whether the device still matches; one that it names by a path always does.
    pub fn describes(&self, device: &Device) -> bool {
        match &self.selection {
            DeviceSelection::Set(set) => {
                !self.problems.is_empty() || set.filter.mismatches(device).is_empty()
            }
            DeviceSelection::Paths(_) => true,
        }
    }

    /// The StorageClasses that it names.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        let (set, paths) = match &self.selection {
            DeviceSelection::Set(set) => (Some(set.settings.class.as_str()), &[][..]),
            DeviceSelection::Paths(asked) => (None, asked.as_slice()),
        };
        set.into_iter().chain(paths.iter().map(|ask| ask.settings.class.as_str()))
    }

    /// Its request for agents; `None` if it is invalid or needs none.
    pub fn agent_requester(&self) -> Option<AgentRequester> {
        let api_version = match OwnerKind::parse(&self.owner.kind)? {
            OwnerKind::LocalVolumeSet => LocalVolumeSet::api_version(&()),
            OwnerKind::LocalVolume => LocalVolume::api_version(&()),
            OwnerKind::Volume => return None,
        };
        self.problems.is_empty().then(|| AgentRequester {
            api_version: api_version.into_owned(),
            kind: self.owner.kind.clone(),
            name: self.owner.name.clone(),
            uid: self.owner.uid.clone(),
            selector: self.selector.clone(),
            tolerations: self.tolerations.clone(),
        })
    }

    /// Whether the device claim has its current settings.
    pub fn makes(&self, claim: &DeviceClaim) -> bool {
        let same = |PvSettings { class, mode, fs_type }: &PvSettings| {
            (class, *mode, fs_type)
                == (&claim.storage_class_name, claim.volume_mode, &claim.fs_type)
        };
        self.paused || !self.problems.is_empty() || self.settings(claim).is_none_or(same)
    }

    pub fn max(&self) -> Option<usize> {
        match &self.selection {
            DeviceSelection::Set(set) => set.max,
            DeviceSelection::Paths(_) => None,
        }
    }

    pub fn min(&self) -> usize {
        match &self.selection {
            DeviceSelection::Set(set) => set.min,
            DeviceSelection::Paths(_) => 0,
        }
    }
}

pub fn of_set(set: &LocalVolumeSet) -> Demand {
    let spec = &set.spec;
    let mut problems: Vec<Problem> = Vec::new();
    problems.extend(class_problem("spec.storageClassName", &spec.storage_class_name));
    let fs_type = spec
        .fs_type
        .as_deref()
        .filter(|text| !text.is_empty())
        .or(spec.fstype.as_deref())
        .filter(|text| !text.is_empty());
    let default = if fs_type.is_some() { VolumeMode::Filesystem } else { VolumeMode::Block };
    let mode = read_mode("spec.volumeMode", spec.volume_mode.as_deref(), default, &mut problems);
    let count = |field: &'static str, assignment: Option<i32>, problems: &mut Vec<Problem>| {
        match assignment.map(usize::try_from) {
            None => None,
            Some(Ok(count)) => Some(count),
            Some(Err(_)) => {
                problems.push(Problem {
                    field,
                    wrong: "is negative".into(),
                    allowed: "use 0 or a greater number".into(),
                });
                None
            }
        }
    };
    let min = count("spec.minDeviceCount", spec.min_device_count, &mut problems).unwrap_or(0);
    let max = count("spec.maxDeviceCount", spec.max_device_count, &mut problems);
    if let Some(max) = max.filter(|max| *max < min) {
        problems.push(Problem {
            field: "spec.minDeviceCount",
            wrong: format!("{min} is greater than maxDeviceCount {max}"),
            allowed: "lower minDeviceCount or raise maxDeviceCount".into(),
        });
    }
    let filter = Filter::read(spec).unwrap_or_else(|wrong| {
        problems.extend(wrong);
        Filter {
            types: Vec::new(),
            rotational: None,
            min: quarry_api::Bytes(0),
            max: None,
            models: Vec::new(),
            vendors: Vec::new(),
            excluded: Vec::new(),
        }
    });
    let not_local = set
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(names::INCLUDE_NOT_LOCAL_ANNOTATION));
    let not_local = listed(not_local).into_iter().map(|kind| kind.to_lowercase()).collect();
    let settings = PvSettings {
        class: spec.storage_class_name.clone(),
        mode,
        fs_type: fs_type.filter(|_| mode == VolumeMode::Filesystem).map(str::to_owned),
    };
    let selection =
        DeviceSelection::Set(Box::new(SetSelection { filter, min, max, settings, not_local }));
    build(
        OwnerKind::LocalVolumeSet,
        set,
        spec.node_selector.as_ref(),
        spec.tolerations.as_deref(),
        problems,
        false,
        selection,
    )
}

pub fn of_local_volume(volume: &LocalVolume) -> Demand {
    let spec = &volume.spec;
    let mut problems: Vec<Problem> = Vec::new();
    let mut asked: Vec<PathSelection> = Vec::new();
    for entry in &spec.storage_class_devices {
        problems.extend(class_problem(
            "spec.storageClassDevices.storageClassName",
            &entry.storage_class_name,
        ));
        let fs_type = entry.fs_type.as_deref().filter(|text| !text.is_empty());
        let mode = read_mode(
            "spec.storageClassDevices.volumeMode",
            entry.volume_mode.as_deref(),
            VolumeMode::Filesystem,
            &mut problems,
        );
        // A Block device has none: admission warns about it.
        let fs_type = fs_type.filter(|_| mode == VolumeMode::Filesystem);
        if entry.force_wipe_devices_and_destroy_all_data == Some(true) {
            problems.push(Problem {
                field: "spec.storageClassDevices.forceWipeDevicesAndDestroyAllData",
                wrong: "erasing a device that contains data needs a consent that names it, which does not exist yet".into(),
                allowed: "erase the device by hand, then remove this field".into(),
            });
        }
        for path in &entry.device_paths {
            if !path.starts_with("/dev/") || path.split('/').any(|part| part == "..") {
                let allowed =
                    "use an absolute path below /dev, preferably below /dev/disk/by-id".to_owned();
                problems.push(Problem {
                    field: "spec.storageClassDevices.devicePaths",
                    wrong: format!("{path:?} is not the path of a device"),
                    allowed,
                });
            }
            if asked.iter().any(|other| other.path == *path) {
                problems.push(Problem {
                    field: "spec.storageClassDevices.devicePaths",
                    wrong: format!("{path:?} is named twice"),
                    allowed: "name each path once".into(),
                });
            }
            let settings = PvSettings {
                class: entry.storage_class_name.clone(),
                mode,
                fs_type: fs_type.map(str::to_owned),
            };
            asked.push(PathSelection { path: path.clone(), settings });
        }
    }
    let paused = matches!(spec.management_state.as_deref(), Some("Unmanaged" | "Removed"));
    build(
        OwnerKind::LocalVolume,
        volume,
        spec.node_selector.as_ref(),
        spec.tolerations.as_deref(),
        problems,
        paused,
        DeviceSelection::Paths(asked),
    )
}

fn build<K: Resource>(
    kind: OwnerKind,
    object: &K,
    selector: Option<&NodeSelector>,
    tolerations: Option<&[Toleration]>,
    problems: Vec<Problem>,
    paused: bool,
    selection: DeviceSelection,
) -> Demand {
    let meta = object.meta();
    let tolerations = tolerations.unwrap_or_default().to_vec();
    let texts = problems.iter().map(Problem::to_string);
    let selecting = selector
        .map(|selector| selector_problems(selector, "spec.nodeSelector"))
        .unwrap_or_default();
    let problems = texts
        .chain(selecting)
        .chain(toleration_problems(&tolerations, "spec.tolerations"))
        .collect();
    Demand {
        owner: ClaimOwner {
            kind: kind.as_str().to_owned(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        },
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
        terminating: meta.deletion_timestamp.is_some(),
        paused,
        protected: meta
            .finalizers
            .iter()
            .flatten()
            .any(|finalizer| finalizer == names::OWNER_FINALIZER),
        selector: selector.cloned(),
        tolerations,
        adopts: match selection {
            DeviceSelection::Set(_) => Vec::new(),
            DeviceSelection::Paths(_) => listed(
                meta.annotations
                    .as_ref()
                    .and_then(|annotations| annotations.get(names::ADOPT_RETAINED_DATA_ANNOTATION)),
            ),
        },
        problems,
        selection,
    }
}

/// The comma-separated values of an annotation.
fn listed(text: Option<&String>) -> Vec<String> {
    text.into_iter()
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|one| !one.is_empty())
        .map(str::to_owned)
        .collect()
}

fn class_problem(field: &'static str, class: &str) -> Option<Problem> {
    let wrong = match class {
        "" => "is empty".to_owned(),
        _ if !names::is_subdomain(class) => {
            format!("{class:?} is not a valid name of a StorageClass")
        }
        _ => return None,
    };
    let allowed = "use lower case letters, digits, '-' and '.'; a StorageClass that does not exist is created".into();
    Some(Problem { field, wrong, allowed })
}

fn read_mode(
    field: &'static str,
    assignment: Option<&str>,
    default: VolumeMode,
    problems: &mut Vec<Problem>,
) -> VolumeMode {
    match assignment.unwrap_or_default().to_ascii_lowercase().as_str() {
        "" => default,
        "block" => VolumeMode::Block,
        "filesystem" => VolumeMode::Filesystem,
        other => {
            problems.push(Problem {
                field,
                wrong: format!("{other:?} is not a volume mode"),
                allowed: "use Block or Filesystem".into(),
            });
            default
        }
    }
}

/// `LocalVolumeSet ns/name`
pub fn owner_text(owner: &ClaimOwner) -> String {
    let place =
        owner.namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
    format!("{} {place}{}", owner.kind, owner.name)
}
