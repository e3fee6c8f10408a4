//! Whether the reason for a job is still true, right before it is run.
//!
//! Everything here was read live, not from a cache. Invariant 2 (checked while held) and invariant 5 (a
//! bound PersistentVolume's storage is never touched) end here, on the node, whatever an operator planned.

use crate::{
    device_claim::{claim_hash, pv},
    job::{VolumeTask, WipeDevice},
    volume::{
        spec_hash,
        usage::{PvUsage, pv_usage},
    },
};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{
    NodeInventory, Volume, names, node_inventory::DeviceClaim, node_job::NodeJobSpec,
};

/// What the API says now.
#[derive(Clone, Debug, Default)]
pub struct VolumePrecondition {
    pub node_uid: Option<String>,
    /// The Volume of the owner's name.
    pub owner: Option<Volume>,
    /// The PersistentVolume of the owner's name.
    pub pv: Option<PersistentVolume>,
    /// UID of the PVC that the PersistentVolume's claimRef names, if that PVC exists.
    pub pvc_uid: Option<String>,
    /// The ledger of this node is not the one that its NodeInventory records.
    pub other_ledger: bool,
    /// The NodeInventory is missing, or records no ledger.
    pub ledger_unrecorded: bool,
}

/// Why a job may not be run. Final for this job: the operator creates another if it is still wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PreconditionError {
    #[error("the Node was recreated after the job was planned")]
    OtherNode,
    #[error(
        "the ledger in the agent's data directory is not the one that the NodeInventory records; restore the data directory, or accept the new ledger with annotation quarry.dev/accept-ledger of the NodeInventory"
    )]
    OtherLedger,
    #[error(
        "the NodeInventory of this node does not record its ledger yet, so it is not certain that the data directory is the one in which the volumes are prepared; check that the operator runs"
    )]
    LedgerUnrecorded,
    #[error("the owner of the job no longer exists")]
    OwnerGone,
    #[error("the owner of the job was replaced by another of the same name")]
    OtherOwner,
    #[error("the Volume was changed after the job was planned")]
    SpecChanged,
    #[error("the volume is being deleted")]
    OwnerTerminating,
    #[error("the volume is not being deleted: its storage is not touched")]
    OwnerNotTerminating,
    #[error("{0}: its storage is not touched")]
    PvInUse(String),
    #[error("the device is not claimed any more")]
    ClaimGone,
    #[error("the device claim was changed after the job was planned")]
    ClaimChanged,
    #[error("PersistentVolume {0} is gone, or is another one")]
    PvGone(String),
}

impl PreconditionError {
    /// The job waits, and the API is asked again. All others end the job.
    pub fn is_transient(&self) -> bool {
        *self == PreconditionError::LedgerUnrecorded
    }
}

/// Whether the task of this job may be run, given what the API says now.
pub fn check(
    job: &NodeJobSpec,
    task: &VolumeTask,
    live: &VolumePrecondition,
) -> Result<(), PreconditionError> {
    if live.node_uid.as_deref() != Some(job.precondition.node_uid.as_str()) {
        return Err(PreconditionError::OtherNode);
    }
    if live.other_ledger {
        return Err(PreconditionError::OtherLedger);
    }
    let owner = live.owner.as_ref().ok_or(PreconditionError::OwnerGone)?;
    if owner.metadata.uid.as_deref() != Some(job.owner.uid.as_str()) {
        return Err(PreconditionError::OtherOwner);
    }
    if spec_hash(&owner.spec) != job.precondition.spec_hash {
        return Err(PreconditionError::SpecChanged);
    }
    let terminating = owner.metadata.deletion_timestamp.is_some();
    match (task, terminating) {
        (VolumeTask::Prepare(_), true) => Err(PreconditionError::OwnerTerminating),
        (VolumeTask::Cleanup(_), false) => Err(PreconditionError::OwnerNotTerminating),
        // Prepared under a ledger that is not recorded, a volume could not be distinguished from one of another data directory; and
        // an empty ledger knows of nothing to remove: the file and the loop would stay.
        _ if live.ledger_unrecorded => Err(PreconditionError::LedgerUnrecorded),
        (VolumeTask::Prepare(_), false) => Ok(()),
        (VolumeTask::Cleanup(_), true) => check_unused(job, live),
    }
}

/// What the API says now about the reason of a wipe.
#[derive(Clone, Debug, Default)]
pub struct WipePrecondition {
    pub node_uid: Option<String>,
    /// The UID of the set or LocalVolume of the owner's name.
    pub owner_uid: Option<String>,
    pub inventory: Option<NodeInventory>,
    /// The PersistentVolume of the job's name.
    pub pv: Option<PersistentVolume>,
    /// UID of the PVC that the PersistentVolume's claimRef names, if that PVC exists.
    pub pvc_uid: Option<String>,
}

/// Whether a wipe may be run, given what the API says now; the device claim that it is for.
pub fn check_wipe<'a>(
    name: &str,
    job: &NodeJobSpec,
    device: &WipeDevice,
    live: &'a WipePrecondition,
) -> Result<&'a DeviceClaim, PreconditionError> {
    if live.node_uid.as_deref() != Some(job.precondition.node_uid.as_str()) {
        return Err(PreconditionError::OtherNode);
    }
    match live.owner_uid.as_deref() {
        None => return Err(PreconditionError::OwnerGone),
        Some(uid) if uid != job.owner.uid => return Err(PreconditionError::OtherOwner),
        Some(_) => {}
    }
    let claims = live.inventory.iter().flat_map(|inventory| &inventory.spec.device_claims);
    let claim = claims
        .into_iter()
        .find(|claim| device.identity == claim.identity && claim.owner.uid == job.owner.uid)
        .ok_or(PreconditionError::ClaimGone)?;
    if claim.job.as_ref().is_none_or(|recorded| recorded.name != name)
        || claim_hash(claim) != job.precondition.spec_hash
        || !device.has_size(claim.size)
    {
        return Err(PreconditionError::ClaimChanged);
    }
    let pv = live
        .pv
        .as_ref()
        .filter(|pv| pv.metadata.uid.as_deref() == Some(device.pv_uid.as_str()))
        .ok_or_else(|| PreconditionError::PvGone(device.pv.to_string()))?;
    let in_use = |why: String| Err(PreconditionError::PvInUse(why));
    // Its name is a hash of node and device: as good as the annotation, which may have been lost.
    let named = pv
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(names::IDENTITY_ANNOTATION))
        || device.pv == names::local_pv(&job.node_name, device.identity.as_str());
    if !named || !pv::is_of(pv, claim) || !pv::deletes(pv) {
        return in_use(format!("PersistentVolume {} keeps its data", device.pv));
    }
    if pv.metadata.deletion_timestamp.is_none() {
        return in_use(format!("PersistentVolume {} is not being deleted", device.pv));
    }
    if let PvUsage::InUse(why) = pv_usage(pv) {
        return in_use(why);
    }
    check_pvc_gone(pv, live.pvc_uid.as_deref(), device.pv.as_str())?;
    Ok(claim)
}

/// The PersistentVolumeClaim of claimRef's name *and* UID must be gone. Without a UID it was never used.
fn check_pvc_gone(
    pv: &PersistentVolume,
    found: Option<&str>,
    name: &str,
) -> Result<(), PreconditionError> {
    let bound = pv
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref())
        .and_then(|reference| reference.uid.as_deref());
    match (bound, found) {
        (Some(wanted), Some(found)) if wanted == found => Err(PreconditionError::PvInUse(format!(
            "the PVC of PersistentVolume {name} still exists"
        ))),
        (Some(_), _) => Ok(()),
        (None, _) => Err(PreconditionError::PvInUse(format!(
            "PersistentVolume {name} was never bound, so there is nothing to erase"
        ))),
    }
}

fn check_unused(job: &NodeJobSpec, live: &VolumePrecondition) -> Result<(), PreconditionError> {
    let Some(pv) = &live.pv else { return Ok(()) };
    let ours = crate::volume::pv::is_owned_by(pv, &job.owner.uid);
    if !ours {
        // An unmanaged PV of the same name does not matter, unless it publishes our storage.
        let path =
            pv.spec.as_ref().and_then(|spec| spec.local.as_ref()).map(|local| local.path.as_str());
        return match path {
            Some(path) if path.ends_with(&format!("/{}", job.owner.uid)) => {
                Err(PreconditionError::PvInUse(format!(
                    "PersistentVolume {} of another owner publishes {path}",
                    job.owner.name
                )))
            }
            _ => Ok(()),
        };
    }
    if pv.metadata.deletion_timestamp.is_none() {
        return Err(PreconditionError::PvInUse(format!(
            "PersistentVolume {} is not being deleted",
            job.owner.name
        )));
    }
    match pv_usage(pv) {
        PvUsage::Free => {}
        PvUsage::InUse(why) => return Err(PreconditionError::PvInUse(why)),
    }
    let bound = pv
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref())
        .and_then(|reference| reference.uid.as_deref());
    match (bound, live.pvc_uid.as_deref()) {
        (Some(wanted), Some(found)) if wanted == found => Err(PreconditionError::PvInUse(format!(
            "the PVC of PersistentVolume {} still exists",
            job.owner.name
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
