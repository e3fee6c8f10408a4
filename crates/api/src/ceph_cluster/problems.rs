//! What is wrong with the device sets of a CephCluster, all of it at once.
//!
//! The API server refuses most of it by schema and CEL (`rules.rs`); this runs again in the planner, because a cluster
//! may serve the upstream CRD, which has no rules.

use super::{
    CephClusterSpec, DeviceSet, RoleProblem, VolumeClaimTemplate, daemon,
    device_set::{config, device_path},
};
use crate::{
    names,
    quantity::Quantity,
    validate::{is_label_value, is_qualified_name},
};
use k8s_openapi::api::core::v1::ResourceRequirements;
use std::{collections::BTreeMap, fmt};

/// One problem of a device set. Nothing is created for a set that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetProblem {
    /// Position of the set in `device_sets()`.
    pub set: usize,
    /// The field, as a path from the object's root.
    pub field: String,
    /// What is wrong.
    pub wrong: String,
    /// What would be accepted.
    pub remedy: String,
}

impl fmt::Display for SetProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}; {}", self.field, self.wrong, self.remedy)
    }
}

/// Every problem of every set, in the order of the sets; empty means valid.
pub fn problems(spec: &CephClusterSpec) -> Vec<SetProblem> {
    let sets: Vec<(String, &DeviceSet)> = spec.storage.device_sets_with_paths().collect();
    let mut found = Vec::new();
    for (index, (path, set)) in sets.iter().enumerate() {
        let mut add = |field: String, wrong: String, remedy: &str| {
            found.push(SetProblem { set: index, field, wrong, remedy: remedy.to_owned() });
        };
        name_problem(path, set, &mut add);
        let mut others = sets.iter().enumerate();
        let twin = others.find(|(other, (_, one))| *other != index && one.name == set.name);
        if let Some((_, (other, _))) = twin.filter(|_| !set.name.is_empty()) {
            let wrong = format!("{:?} is also the name of {other}", set.name);
            add(format!("{path}.name"), wrong, "use a name of its own for each set");
        }
        set_problems(path, set, &mut add);
        for (key, resources) in cluster_resources(spec, set) {
            resource_problems(&format!("spec.resources.{key}"), resources, &mut add);
        }
    }
    found
}

/// All problems as one text, for the message of a condition. One that several sets have in common is given once.
pub fn message(problems: &[SetProblem]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in problems.iter().map(SetProblem::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join(". ")
}

/// The resources of the cluster that pods of this set get.
fn cluster_resources<'a>(
    spec: &'a CephClusterSpec,
    set: &DeviceSet,
) -> impl Iterator<Item = (String, &'a ResourceRequirements)> {
    let class = set.crush_device_class();
    let class = class.map(|(_, class)| format!("{}{class}", daemon::OSD_CLASS_PREFIX));
    let osd = match class.filter(|class| spec.resources.contains_key(class)) {
        Some(class) => Some(class),
        None if set.resources.is_none() => Some(daemon::OSD.to_owned()),
        None => None,
    };
    let keys = [osd, Some(daemon::PREPARE_OSD.to_owned())].into_iter().flatten();
    keys.filter_map(|key| spec.resources.get(&key).map(|resources| (key, resources)))
}

/// Path, what is wrong, remedy.
type Add<'a> = dyn FnMut(String, String, &str) + 'a;

fn name_problem(path: &str, set: &DeviceSet, add: &mut Add<'_>) {
    let remedy = "use at most 63 lower case letters, digits, '-' and '.'";
    let field = format!("{path}.name");
    match set.name.as_str() {
        "" => add(field, "is missing".into(), remedy),
        name if name.len() > 63 || !names::is_subdomain(name) => {
            add(field, format!("{name:?} is not a valid name"), remedy);
        }
        _ => {}
    }
}

fn set_problems(path: &str, set: &DeviceSet, add: &mut Add<'_>) {
    match set.count {
        None => add(
            format!("{path}.count"),
            "is missing".into(),
            "set the number of OSDs; 0 requests none",
        ),
        Some(count) if count < 0 => add(
            format!("{path}.count"),
            format!("is {count}"),
            "set the number of OSDs; 0 requests none",
        ),
        Some(_) => {}
    }
    if set.encrypted == Some(true) {
        add(
            format!("{path}.encrypted"),
            "is true, and OSDs are not encrypted by this version".into(),
            "remove it, or use devices that encrypt",
        );
    }
    if set.config.get(config::ENCRYPTED_DEVICE).is_some_and(|text| text.trim() == "true") {
        add(
            format!("{path}.config.{}", config::ENCRYPTED_DEVICE),
            "is true, and OSDs are not encrypted by this version".into(),
            "remove it, or use devices that encrypt",
        );
    }
    if set.osds_per_device() != Some(1) {
        let value = set.config.get(config::OSDS_PER_DEVICE).cloned().unwrap_or_default();
        add(
            format!("{path}.config.{}", config::OSDS_PER_DEVICE),
            format!("is {value:?}, and this version runs one OSD per device"),
            "set it to \"1\" or remove it",
        );
    }
    if let Some(resources) = &set.resources {
        resource_problems(&format!("{path}.resources"), resources, add);
    }
    setting_problems(path, set, add);
    for (index, template) in set.volume_claim_templates.iter().enumerate() {
        template_problems(&format!("{path}.volumeClaimTemplates[{index}]"), template, add);
    }
    for problem in set.roles().err().into_iter().flatten() {
        role_problem(path, set, &problem, add);
    }
}

/// Values that become arguments of Ceph's commands.
fn setting_problems(path: &str, set: &DeviceSet, add: &mut Add<'_>) {
    let in_class = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if let Some((at, class)) = set.crush_device_class()
        && (!class.chars().all(in_class) || class.starts_with('-'))
    {
        add(
            format!("{path}.{at}"),
            format!("{class:?} is not a device class"),
            "use letters, digits, '-', '_' and '.', as in ssd",
        );
    }
    let number = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite());
    if let Some((at, weight)) = set.crush_initial_weight()
        && number(weight).is_none_or(|value| value < 0.0)
    {
        let remedy = "give a number that is not negative, in units of 1 TiB, as in 1.5";
        add(format!("{path}.{at}"), format!("{weight:?} is not a weight"), remedy);
    }
    if let Some((at, affinity)) = set.primary_affinity()
        && number(affinity).is_none_or(|value| !(0.0..=1.0).contains(&value))
    {
        let remedy = "give a number from 0 to 1";
        add(format!("{path}.{at}"), format!("{affinity:?} is not a primary affinity"), remedy);
    }
}

fn template_problems(path: &str, template: &VolumeClaimTemplate, add: &mut Add<'_>) {
    if template.spec.volume_mode.as_deref().is_some_and(|mode| !mode.is_empty() && mode != "Block")
    {
        let mode = template.spec.volume_mode.as_deref().unwrap_or_default();
        add(
            format!("{path}.spec.volumeMode"),
            format!("is {mode}, and an OSD needs a block device"),
            "set it to Block or remove it",
        );
    }
    let requests = template.spec.resources.as_ref().and_then(|all| all.requests.as_ref());
    let field = format!("{path}.spec.resources.requests.storage");
    let remedy = "give the size of the device, such as 10Gi; 1 accepts a device of any size";
    match requests.and_then(|all| all.get("storage")) {
        None => add(field, "is missing".into(), remedy),
        Some(size) => match Quantity(size.0.clone()).bytes() {
            Ok(bytes) if bytes.0 == 0 => add(field, "is 0".into(), remedy),
            Ok(_) => {}
            Err(error) => add(field, format!("{error}"), remedy),
        },
    }
    let name = template.metadata.name.as_str();
    if !name.is_empty() && (name.len() > 63 || !names::is_subdomain(name)) {
        add(
            format!("{path}.metadata.name"),
            format!("{name:?} is not a valid name"),
            "use data, metadata or wal",
        );
    }
    for (key, value) in &template.metadata.labels {
        if !is_qualified_name(key) || !is_label_value(value) {
            add(
                format!("{path}.metadata.labels"),
                format!("has {key:?}: {value:?}, which is not a label"),
                "use letters, digits, '-', '_' and '.', at most 63 of them (a key may have a DNS prefix and '/')",
            );
        }
    }
    for key in template.metadata.annotations.keys() {
        if !is_qualified_name(&key.to_lowercase()) {
            add(
                format!("{path}.metadata.annotations"),
                format!("has {key:?}, which is not a key"),
                "use letters, digits, '-', '_' and '.', at most 63 of them, after an optional DNS prefix and '/'",
            );
        }
    }
}

/// Limits below requests, and values that are no quantities.
fn resource_problems(path: &str, resources: &ResourceRequirements, add: &mut Add<'_>) {
    let empty = BTreeMap::new();
    let requests = resources.requests.as_ref().unwrap_or(&empty);
    let limits = resources.limits.as_ref().unwrap_or(&empty);
    let remedy = "give a number with an optional suffix, such as 500m or 4Gi";
    let mut read = |list: &str, name: &str, text: &str| {
        Quantity(text.to_owned())
            .nanos()
            .map_err(|error| add(format!("{path}.{list}.{name}"), error.to_string(), remedy))
            .ok()
    };
    let mut below = Vec::new();
    for (name, request) in requests {
        let request_value = read("requests", name, &request.0);
        let Some(limit) = limits.get(name) else { continue };
        if let (Some(request_value), Some(limit_value)) =
            (request_value, read("limits", name, &limit.0))
            && limit_value < request_value
        {
            below.push((name, &limit.0, &request.0));
        }
    }
    for (name, limit) in limits.iter().filter(|(name, _)| !requests.contains_key(*name)) {
        read("limits", name, &limit.0);
    }
    for (name, limit, request) in below {
        add(
            format!("{path}.limits.{name}"),
            format!("is {limit}, below the request of {request}"),
            "raise the limit or lower the request",
        );
    }
}

fn role_problem(path: &str, set: &DeviceSet, problem: &RoleProblem, add: &mut Add<'_>) {
    let templates = format!("{path}.volumeClaimTemplates");
    let name = |template: usize| format!("{templates}[{template}].metadata.name");
    let metadata_device = format!("{path}.config.{}", config::METADATA_DEVICE);
    let given = set.config.get(config::METADATA_DEVICE).cloned().unwrap_or_default();
    let last = set.volume_claim_templates.len().saturating_sub(1);
    let choose = match last {
        0 => "remove it, or add a template for metadata".to_owned(),
        1 => format!("use {}", device_path(1)),
        _ => format!("use {} to {}", device_path(1), device_path(last)),
    };
    match problem {
        RoleProblem::NoTemplates => {
            add(templates, "is empty".into(), "add a template for the data device of each OSD")
        }
        RoleProblem::NoData => {
            add(templates, "has no template for data".into(), "name one of the templates data")
        }
        RoleProblem::Unknown { template } => add(
            name(*template),
            format!("{:?} states no role", set.volume_claim_templates[*template].metadata.name),
            "use data, metadata or wal",
        ),
        RoleProblem::Duplicate { template, earlier, role } => add(
            name(*template),
            format!("has the role {role}, as {templates}[{earlier}]"),
            "use each of data, metadata and wal once",
        ),
        RoleProblem::MetadataDeviceNotFound => {
            add(metadata_device, format!("{given:?} is the device of no template"), &choose);
        }
        RoleProblem::MetadataDeviceIsFirst => add(
            metadata_device,
            format!("{given:?} is the device of the first template, which is for data"),
            &choose,
        ),
        RoleProblem::MetadataDeviceNamed { template, role } => add(
            metadata_device,
            format!("{given:?} is the device of {templates}[{template}], which is named {role}"),
            "name the template metadata, or remove metadataDevice",
        ),
    }
}
