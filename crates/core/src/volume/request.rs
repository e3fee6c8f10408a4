//! What a Volume requests, parsed once: `Request` is valid by construction.

use super::Observed;
use crate::mkfs_options;
use k8s_openapi::api::storage::v1::StorageClass;
use quarry_api::{
    node_job::{FilesystemParameters, FsType, Parameters, PartitionParameters},
    validate,
    volume::VolumeMode,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub parameters: Parameters,
    pub fs: Option<FsType>,
    pub mount_options: Vec<String>,
    pub node_uid: String,
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
    // A quantity holds at most 2^63-1, so the conversion cannot lose anything.
    let size = match sparse.size.bytes() {
        Ok(bytes) => i64::try_from(bytes.0).unwrap_or(i64::MAX),
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
    let parameters = match spec.mode {
        // A class that is used for Block only needs no fsType, unlike upstream.
        VolumeMode::Block => Parameters {
            size,
            filesystem: None,
            partition: Some(PartitionParameters {}),
            wipe: None,
        },
        VolumeMode::Filesystem => Parameters {
            size,
            filesystem: Some(parse_filesystem(class)?),
            partition: None,
            wipe: None,
        },
    };
    let node_uid = seen
        .node
        .as_ref()
        .and_then(|node| node.metadata.uid.clone())
        .ok_or_else(|| NoRequest::Waiting(format!("spec.nodeName: node {} does not exist; check the name, or wait until it has joined", spec.node_name)))?;
    if let Some(problem) = seen.agent.problem(&spec.node_name) {
        return Err(NoRequest::Waiting(problem));
    }
    Ok(Request {
        fs: parameters.filesystem.as_ref().map(|fs| fs.kind),
        parameters,
        mount_options: match spec.mode {
            VolumeMode::Filesystem => class.mount_options.clone().unwrap_or_default(),
            VolumeMode::Block => Vec::new(),
        },
        node_uid,
    })
}

fn parse_filesystem(class: &StorageClass) -> Result<FilesystemParameters, NoRequest> {
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
    let mkfs_options = mkfs_options::parse(kind, parameter("mkfsOptions")).map_err(invalid)?;
    Ok(FilesystemParameters { kind, mkfs_options })
}
