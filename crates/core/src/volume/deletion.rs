//! The deletion criteria: whether CLI and console delete this Volume.
//!
//! The API accepts every delete, which then waits; this decides whether it would wait, and for what.

use super::{
    pv,
    usage::{PvUsage, pv_usage},
};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{Volume, volume::Phase};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletable {
    Yes,
    /// Why not, and what to do.
    No(String),
}

pub fn decide_deletable(volume: &Volume, pv: Option<&PersistentVolume>) -> Deletable {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if volume.metadata.deletion_timestamp.is_some() {
        return Deletable::No(format!("Volume {name} is being deleted already"));
    }
    match volume.phase() {
        None => Deletable::No(format!(
            "Volume {name} has no status yet; wait until the operator has processed it"
        )),
        Some(Phase::Pending) => {
            Deletable::No(format!("Volume {name} is Pending; wait until its preparation has ended"))
        }
        Some(Phase::Terminating) => {
            Deletable::No(format!("Volume {name} is being deleted already"))
        }
        Some(Phase::Available | Phase::Failed) => {
            let uid = volume.metadata.uid.as_deref().unwrap_or_default();
            match pv.filter(|pv| pv::is_owned_by(pv, uid)).map(pv_usage) {
                None | Some(PvUsage::Free) => Deletable::Yes,
                Some(PvUsage::InUse(why)) => {
                    Deletable::No(format!("{why}; delete that PVC first, and the pods that use it"))
                }
            }
        }
    }
}
