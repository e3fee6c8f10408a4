//! The rows of `quarry volumes`: columns as in kubectl.

use crate::Tone;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{Volume, volume::Phase};
use quarry_core::{source::Source, volume::pv::is_owned_by};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRow {
    pub name: String,
    pub node: String,
    pub class: String,
    /// `None` for a raw device, whose size is not in the spec.
    pub size: Option<String>,
    pub mode: String,
    /// The phase; `New` before the operator has seen it.
    pub status: String,
    pub device: Option<String>,
    pub created: Option<Timestamp>,
    /// The PVC that its PersistentVolume is bound to, as `namespace/name`.
    pub pvc: Option<String>,
    /// The message of its condition Ready.
    pub message: Option<String>,
    pub tone: Tone,
}

/// Every Volume. `node`: only those of that node.
pub fn list(source: &impl Source, node: Option<&str>) -> Vec<VolumeRow> {
    let volumes = source.volumes();
    let wanted =
        |volume: &&std::sync::Arc<Volume>| node.is_none_or(|node| volume.spec.node_name == node);
    let pv = |volume: &Volume| volume.metadata.name.as_deref().and_then(|name| source.pv(name));
    volumes
        .iter()
        .filter(wanted)
        .map(|volume| VolumeRow::new(volume, pv(volume).as_deref()))
        .collect()
}

impl VolumeRow {
    pub fn new(volume: &Volume, pv: Option<&PersistentVolume>) -> Self {
        let (status, tone) = status(volume);
        let spec = &volume.spec;
        let sparse = spec.sparse_loop_device.as_ref().map(|sparse| &sparse.size);
        let size = sparse.or(spec.lvm_logical_volume.as_ref().map(|lvm| &lvm.size));
        VolumeRow {
            name: volume.metadata.name.clone().unwrap_or_default(),
            node: spec.node_name.clone(),
            class: spec.storage_class_name.clone(),
            size: size.map(|size| size.0.clone()),
            mode: spec.mode.as_str().to_owned(),
            status: status.to_owned(),
            device: volume.status.as_ref().and_then(|status| status.device_name.clone()),
            created: volume.metadata.creation_timestamp.as_ref().map(|time| time.0),
            pvc: pvc(volume, pv),
            message: volume.ready().and_then(|ready| ready.message.clone()),
            tone,
        }
    }

    /// The row of a Volume that was deleted while it was watched.
    pub fn deleted(self) -> Self {
        VolumeRow { status: "Deleted".to_owned(), ..self }
    }
}

fn status(volume: &Volume) -> (&'static str, Tone) {
    match volume.phase() {
        Some(Phase::Available) if volume.metadata.deletion_timestamp.is_some() => {
            (Phase::Terminating.as_str(), Tone::Waiting)
        }
        Some(phase @ Phase::Available) => (phase.as_str(), Tone::Good),
        Some(phase @ (Phase::Pending | Phase::Terminating)) => (phase.as_str(), Tone::Waiting),
        Some(phase @ Phase::Failed) => (phase.as_str(), Tone::Bad),
        None => ("New", Tone::Waiting),
    }
}

fn pvc(volume: &Volume, pv: Option<&PersistentVolume>) -> Option<String> {
    let uid = volume.metadata.uid.as_deref().unwrap_or_default();
    let pvc = pv.filter(|pv| is_owned_by(pv, uid))?.spec.as_ref()?.claim_ref.as_ref()?;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(format!("{}/{}", part(&pvc.namespace), part(&pvc.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_available_volume_that_is_being_deleted_is_terminating() {
        let volume: Volume = serde_json::from_value(json!({
            "metadata": {"name": "v", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "n", "storageClassName": "c", "sparseLoopDevice": {"size": "1Gi"}},
            "status": {"phase": "Available"},
        }))
        .unwrap();
        let row = VolumeRow::new(&volume, None);
        assert_eq!((row.status.as_str(), row.tone), ("Terminating", Tone::Waiting));
    }
}
