//! Whether a PersistentVolume is in use: one function for planner, agent, CLI and console.

use k8s_openapi::api::core::v1::PersistentVolume;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PvUsage {
    Free,
    /// Why it counts as used.
    InUse(String),
}

/// Unknown is no: an unknown phase counts as used.
pub fn pv_usage(pv: &PersistentVolume) -> PvUsage {
    let name = pv.metadata.name.as_deref().unwrap_or_default();
    let phase = pv.status.as_ref().and_then(|status| status.phase.as_deref());
    let reference = pv.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let to_pvc = || {
        reference.map_or_else(String::new, |pvc| {
            format!(
                " to PVC {}/{}",
                pvc.namespace.as_deref().unwrap_or_default(),
                pvc.name.as_deref().unwrap_or_default()
            )
        })
    };
    match phase {
        Some("Released" | "Failed") => PvUsage::Free,
        // The binder writes claimRef (with the UID of the PVC) first and the phase afterwards.
        Some("Available") if reference.is_some_and(|pvc| pvc.uid.is_some()) => {
            PvUsage::InUse(format!("PersistentVolume {name} is being bound{}", to_pvc()))
        }
        Some("Available") => PvUsage::Free,
        Some("Bound") => PvUsage::InUse(format!("PersistentVolume {name} is bound{}", to_pvc())),
        Some("Pending") | None => {
            PvUsage::InUse(format!("PersistentVolume {name} has no phase yet"))
        }
        Some(other) => {
            PvUsage::InUse(format!("PersistentVolume {name} is in the unknown phase {other}"))
        }
    }
}
