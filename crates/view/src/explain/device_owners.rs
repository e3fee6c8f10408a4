//! Who owns a device, by name.

use crate::devices::DeviceView;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use quarry_core::{
    device::Reason,
    source::Source,
    volume::usage::{PvUsage, pv_usage},
};

/// One text per owner; empty when the device has none. Reads Volumes and the PersistentVolumes that they and the
/// device name.
pub fn device_owners(source: &impl Source, view: &DeviceView) -> Vec<String> {
    let volumes = if view.has(Reason::BacksVolume) { source.volumes() } else { Vec::new() };
    let volume = |uid: &str| {
        let found = volumes.iter().find(|volume| volume.metadata.uid.as_deref() == Some(uid));
        match found.map(|volume| volume.name_any()) {
            Some(name) => match source.pv(&name) {
                Some(pv) => format!(
                    "Volume {name}, published as PersistentVolume {name}{}",
                    usage_text(Some(&pv))
                ),
                None => format!("Volume {name}, not published"),
            },
            None => format!("a Volume with UID {uid}, which this cluster does not have"),
        }
    };
    let pv =
        |name: &str| format!("PersistentVolume {name}{}", usage_text(source.pv(name).as_deref()));
    let claims = view.details(Reason::Claimed).map(str::to_owned);
    claims
        .chain(view.details(Reason::BacksVolume).map(volume))
        .chain(view.details(Reason::BacksPersistentVolume).map(pv))
        .collect()
}

/// The same without a cluster.
pub fn device_owners_offline(view: &DeviceView) -> Vec<String> {
    let uids = view.details(Reason::BacksVolume);
    uids.map(|uid| format!("a Volume with UID {uid}; its cluster knows its name")).collect()
}

fn usage_text(pv: Option<&PersistentVolume>) -> String {
    let Some(pv) = pv else { return " (which no longer exists)".to_owned() };
    match pv.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) {
        Some(pvc) => format!(
            ", used by PVC {}/{}",
            pvc.namespace.as_deref().unwrap_or_default(),
            pvc.name.as_deref().unwrap_or_default()
        ),
        None => match pv_usage(pv) {
            PvUsage::Free => ", used by no PVC".to_owned(),
            PvUsage::InUse(why) => format!(" ({why})"),
        },
    }
}
