//! What a Volume requests, parsed once: `Request` is valid by construction.

use super::Observed;
use crate::{job::Format, mkfs_options};
use k8s_openapi::api::storage::v1::StorageClass;
use quarry_api::{node_job::FsType, quantity::Bytes, validate, volume::VolumeMode};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub size: Bytes,
    pub format: Format,
    pub mount_options: Vec<String>,
    pub node_uid: String,
}

impl Request {
    /// `None`: the volume has no file system.
    pub fn fs(&self) -> Option<FsType> {
        match &self.format {
            Format::Filesystem { fs, .. } => Some(*fs),
            Format::Partition => None,
        }
    }
}

/// Why there is no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRequest {
    /// Something is missing that may still be created: the Volume stays Pending.
    Waiting(String),
    /// The input is invalid: Failed until it changes.
    Invalid { internal: bool, message: String },
}

/// Why this type of Volume is not prepared.
const ONLY_SPARSE: &str = "this version prepares only sparseLoopDevice, and nothing was done on the node; use sparseLoopDevice";

pub fn parse_request(seen: &Observed) -> Result<Request, NoRequest> {
    let spec = &seen.volume.spec;
    let problems = validate::validate_volume(&seen.volume);
    if !problems.is_empty() {
        return Err(NoRequest::Invalid { internal: true, message: validate::message(&problems) });
    }
    let Some(sparse) = &spec.sparse_loop_device else {
        let field = if spec.raw_block_device.is_some() {
            "spec.rawBlockDevice"
        } else {
            "spec.lvmLogicalVolume"
        };
        return Err(NoRequest::Invalid {
            internal: true,
            message: format!("{field}: {ONLY_SPARSE}"),
        });
    };
    let size = match sparse.size.bytes() {
        Ok(bytes) => bytes,
        Err(error) => {
            return Err(NoRequest::Invalid {
                internal: true,
                message: format!("spec.sparseLoopDevice.size: {error}"),
            });
        }
    };
    let class = seen.class.as_ref().ok_or_else(|| {
        NoRequest::Waiting(format!(
            "spec.storageClassName: StorageClass {} does not exist; create it",
            spec.storage_class_name
        ))
    })?;
    let format = match spec.mode {
        // fsType is not asked of a class that is used for Block only, unlike the upstream operator.
        VolumeMode::Block => Format::Partition,
        VolumeMode::Filesystem => parse_filesystem(class)?,
    };
    let node_uid = seen
        .node
        .as_ref()
        .and_then(|node| node.metadata.uid.clone())
        .ok_or_else(|| NoRequest::Waiting(format!("spec.nodeName: node {} does not exist; check the name, or wait until it has joined", spec.node_name)))?;
    if let Some(problem) = seen.agent.problem(&spec.node_name) {
        return Err(NoRequest::Waiting(problem));
    }
    if let Some(problem) = &seen.other_ledger {
        return Err(NoRequest::Waiting(problem.clone()));
    }
    Ok(Request {
        size,
        format,
        mount_options: match spec.mode {
            VolumeMode::Filesystem => class.mount_options.clone().unwrap_or_default(),
            VolumeMode::Block => Vec::new(),
        },
        node_uid,
    })
}

fn parse_filesystem(class: &StorageClass) -> Result<Format, NoRequest> {
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let parameter = |key: &str| {
        class
            .parameters
            .iter()
            .flatten()
            .find(|(found, _)| *found == key)
            .map(|(_, value)| value.as_str())
    };
    let invalid = |message: String| NoRequest::Invalid {
        internal: false,
        message: format!("StorageClass {name}: {message}"),
    };
    let known = FsType::ALL.map(FsType::as_str).join(" or ");
    let text = parameter("fsType")
        .ok_or_else(|| invalid(format!("has no parameter fsType; delete the StorageClass and recreate it with fsType {known}: parameters are immutable")))?;
    let kind = FsType::parse(text).ok_or_else(|| {
        invalid(format!("parameter fsType is {text:?}, which is not supported; set it to {known}"))
    })?;
    let options = mkfs_options::parse(kind, parameter("mkfsOptions")).map_err(invalid)?;
    Ok(Format::Filesystem { fs: kind, options })
}
