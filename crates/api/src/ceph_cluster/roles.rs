//! Which device of an OSD each template of a set is.
//!
//! Owns: the names of upstream (`data`, `metadata`, `wal`), the same with the prefix `osd-`, and `config.metadataDevice`.
//! The device of template i is at `/dev/rook/device<i>` in every pod of the OSD.

use super::device_set::{DeviceSet, config, device_path};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a device of an OSD is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TemplateRole {
    /// The objects, and whatever has no device of its own.
    Data,
    /// The database of BlueStore (block.db).
    Metadata,
    /// The write-ahead log of BlueStore (block.wal).
    Wal,
}

impl TemplateRole {
    pub const ALL: [TemplateRole; 3] = [Self::Data, Self::Metadata, Self::Wal];

    pub fn as_str(self) -> &'static str {
        match self {
            TemplateRole::Data => "data",
            TemplateRole::Metadata => "metadata",
            TemplateRole::Wal => "wal",
        }
    }

    /// The role that a template's name states. `None`: the name states none.
    pub fn of_name(name: &str) -> Option<TemplateRole> {
        match name.strip_prefix("osd-").unwrap_or(name) {
            "" if name.is_empty() => Some(TemplateRole::Data),
            plain => Self::ALL.into_iter().find(|role| role.as_str() == plain),
        }
    }
}

impl fmt::Display for TemplateRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why the templates of a set have no roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleProblem {
    /// The set has no templates.
    NoTemplates,
    /// No template is for data.
    NoData,
    /// The name of the template states no role.
    Unknown { template: usize },
    /// An earlier template has the role already.
    Duplicate { template: usize, earlier: usize, role: TemplateRole },
    /// `config.metadataDevice` is not the path of a template's device.
    MetadataDeviceNotFound,
    /// `config.metadataDevice` is the device of the first template, which is always for data.
    MetadataDeviceIsFirst,
    /// `config.metadataDevice` is the device of a template whose name states another role.
    MetadataDeviceNamed { template: usize, role: TemplateRole },
}

impl DeviceSet {
    /// The template that `config.metadataDevice` names. `None`: the key is absent or empty.
    fn metadata_template(&self) -> Option<Result<usize, RoleProblem>> {
        let path = self.config.get(config::METADATA_DEVICE).filter(|path| !path.is_empty())?;
        let count = self.volume_claim_templates.len();
        let Some(index) = (0..count).find(|index| device_path(*index) == *path) else {
            return Some(Err(RoleProblem::MetadataDeviceNotFound));
        };
        if index == 0 {
            return Some(Err(RoleProblem::MetadataDeviceIsFirst));
        }
        let stated = TemplateRole::of_name(&self.volume_claim_templates[index].metadata.name);
        // A blank name states a role only where nothing else does.
        let blank = self.volume_claim_templates[index].metadata.name.is_empty();
        match stated {
            Some(role) if role != TemplateRole::Metadata && !blank => {
                Some(Err(RoleProblem::MetadataDeviceNamed { template: index, role }))
            }
            _ => Some(Ok(index)),
        }
    }

    /// The role of each template, in the order of the templates.
    pub fn roles(&self) -> Result<Vec<TemplateRole>, Vec<RoleProblem>> {
        let templates = &self.volume_claim_templates;
        let metadata = self.metadata_template();
        let mut problems: Vec<RoleProblem> =
            metadata.iter().filter_map(|one| one.clone().err()).collect();
        // One template is data whatever its name is, as upstream.
        if templates.len() == 1 {
            return if problems.is_empty() { Ok(vec![TemplateRole::Data]) } else { Err(problems) };
        }
        if templates.is_empty() {
            problems.push(RoleProblem::NoTemplates);
            return Err(problems);
        }
        let metadata = metadata.and_then(Result::ok);
        let mut roles: Vec<Option<TemplateRole>> = templates
            .iter()
            .enumerate()
            .map(|(index, template)| match metadata {
                Some(named) if named == index => Some(TemplateRole::Metadata),
                _ => TemplateRole::of_name(&template.metadata.name),
            })
            .collect();
        // With metadataDevice, a first template of any name can only be for data.
        if metadata.is_some() && roles[0].is_none() && !roles.contains(&Some(TemplateRole::Data)) {
            roles[0] = Some(TemplateRole::Data);
        }
        for (template, role) in roles.iter().enumerate() {
            match role {
                None => problems.push(RoleProblem::Unknown { template }),
                Some(role) => {
                    let earlier = roles[..template].iter().position(|one| one == &Some(*role));
                    problems.extend(earlier.map(|earlier| RoleProblem::Duplicate {
                        template,
                        earlier,
                        role: *role,
                    }));
                }
            }
        }
        if !roles.contains(&Some(TemplateRole::Data)) {
            problems.push(RoleProblem::NoData);
        }
        match problems.is_empty() {
            true => Ok(roles.into_iter().flatten().collect()),
            false => Err(problems),
        }
    }
}
