//! The PersistentVolume and the StorageClass of a device claim: their content, and which are ours.

use super::{ClaimContext, Demand, NodeWorld};
pub use crate::unmanaged_pv::HOSTNAME_LABEL;
use k8s_openapi::{
    api::{
        core::v1::{
            LocalVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
            PersistentVolume, PersistentVolumeSpec, VolumeNodeAffinity,
        },
        storage::v1::StorageClass,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use quarry_api::{
    Bytes, names,
    node_inventory::{ClaimOwner, DeviceClaim, LastPv},
    node_job::OwnerKind,
    volume::VolumeMode,
};
use std::collections::BTreeMap;

/// PersistentVolumes of such a class are not provisioned dynamically: Quarry creates them.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

fn annotation<'a>(pv: &'a PersistentVolume, key: &str) -> Option<&'a str> {
    pv.metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(key))
        .map(String::as_str)
}

/// Created by Quarry from a device claim. By the finalizer, which only Quarry sets: tools may prune annotations.
pub fn is_ours(pv: &PersistentVolume) -> bool {
    pv.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == names::PV_FINALIZER)
}

/// Created from this device claim: of this device, at this link, for this owner.
pub fn is_of(pv: &PersistentVolume, claim: &DeviceClaim) -> bool {
    let path =
        pv.spec.as_ref().and_then(|spec| spec.local.as_ref()).map(|local| local.path.as_str());
    is_ours(pv)
        && annotation(pv, names::IDENTITY_ANNOTATION)
            .is_none_or(|identity| identity == claim.identity)
        && path == Some(&claim.link)
}

/// The round in which it was created, from its annotation: informative, and compared when one is created.
pub fn round(pv: &PersistentVolume) -> Option<i64> {
    annotation(pv, names::ROUND_ANNOTATION).and_then(|text| text.parse().ok())
}

/// The device claim records its end, and no PVC was bound since. Annotations of the object do not count: others may
/// write them.
pub fn is_over(pv: &PersistentVolume, claim: &DeviceClaim) -> bool {
    let recorded = claim
        .last_pv
        .as_ref()
        .is_some_and(|last| last.resolved && pv.metadata.uid.as_ref() == Some(&last.uid));
    recorded && !is_new_use(pv, claim)
}

/// A PVC was bound to it that the device claim does not record: a PVC that names it (`volumeName`) is bound although it
/// is being deleted. Whatever was recorded before is not about the data of that PVC.
pub fn is_new_use(pv: &PersistentVolume, claim: &DeviceClaim) -> bool {
    let recorded = claim.last_pv.as_ref().is_some_and(|last| {
        pv.metadata.uid.as_ref() == Some(&last.uid) && last.pvc_uid.as_deref() == pvc_uid(pv)
    });
    was_bound(pv) && !recorded
}

/// The last PersistentVolume of this device claim, if it was bound and its end is not recorded.
pub fn used(claim: &DeviceClaim) -> Option<&LastPv> {
    claim.last_pv.as_ref().filter(|last| !last.resolved)
}

/// The UID of the PVC that is or was bound to it. `None`: it is only reserved, by name, or its claimRef was cleared.
pub fn pvc_uid(pv: &PersistentVolume) -> Option<&str> {
    pv.spec.as_ref()?.claim_ref.as_ref()?.uid.as_deref()
}

/// A PVC was bound to it. One that is only reserved, by name, was not used yet.
pub fn was_bound(pv: &PersistentVolume) -> bool {
    pvc_uid(pv).is_some()
}

/// Only the PVC that its claimRef names can be bound to it.
pub fn is_reserved(pv: &PersistentVolume) -> bool {
    pv.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some())
}

/// It was bound before, also if its claimRef was cleared: that is how an administrator frees a PersistentVolume.
pub fn was_used(pv: &PersistentVolume, claim: &DeviceClaim) -> bool {
    was_bound(pv) || used(claim).is_some_and(|last| pv.metadata.uid.as_ref() == Some(&last.uid))
}

/// Its data is wiped when its PVC is gone.
pub fn deletes(pv: &PersistentVolume) -> bool {
    pv.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref())
        == Some("Delete")
}

/// The owner of the device claim as labels, shortened safely.
fn owner_labels(owner: &ClaimOwner) -> BTreeMap<String, String> {
    let namespace = owner.namespace.clone().unwrap_or_default();
    let [kind, place, name] = names::PV_OWNER_LABELS;
    let mut labels: BTreeMap<String, String> =
        [(kind, owner.kind.clone()), (place, namespace.clone()), (name, owner.name.clone())]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), names::label_value(&value)))
            .collect();
    if owner.kind == OwnerKind::LocalVolume.as_str() {
        let [name, place] = names::LV_OWNER_LABELS;
        labels.insert(name.to_owned(), names::label_value(&owner.name));
        labels.insert(place.to_owned(), names::label_value(&namespace));
    }
    labels
}

/// Whole GiB from 10 GiB on, whole MiB from 10 MiB on, as upstream.
pub fn rounded(size: i64) -> Bytes {
    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;
    let size = u64::try_from(size).unwrap_or_default();
    Bytes(match size {
        _ if size >= 10 * GIB => size / GIB * GIB,
        _ if size >= 10 * MIB => size / MIB * MIB,
        _ => size,
    })
}

/// `None` if the node has no hostname label, which the node affinity needs.
pub fn build(
    world: &NodeWorld,
    ctx: &ClaimContext<'_>,
    class: Option<&StorageClass>,
) -> Option<PersistentVolume> {
    let (claim, node) = (ctx.claim, world.node.as_ref()?);
    let host = node.metadata.labels.as_ref().and_then(|labels| labels.get(HOSTNAME_LABEL))?.clone();
    let mut labels = owner_labels(&claim.owner);
    labels.insert(HOSTNAME_LABEL.to_owned(), host.clone());
    labels.insert(quarry_api::crds::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned());
    let device = ctx.device?;
    let mut annotations: BTreeMap<String, String> = [
        (names::PROVISIONED_BY_ANNOTATION, format!("local-volume-provisioner-{}", world.name)),
        (names::LSO_DEVICE_NAME_ANNOTATION, device.name.clone()),
        (names::IDENTITY_ANNOTATION, claim.identity.clone()),
        (names::ROUND_ANNOTATION, claim.round.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    if let Some(id) = device.device_id.as_deref().and_then(|id| id.rsplit('/').next()) {
        annotations.insert(names::LSO_DEVICE_ID_ANNOTATION.to_owned(), id.to_owned());
    }
    let policy =
        class.and_then(|class| class.reclaim_policy.clone()).unwrap_or_else(|| "Delete".to_owned());
    let options = class
        .and_then(|class| class.mount_options.clone())
        .filter(|options| !options.is_empty() && claim.volume_mode == VolumeMode::Filesystem);
    let affinity = NodeSelectorTerm {
        match_expressions: Some(vec![NodeSelectorRequirement {
            key: HOSTNAME_LABEL.to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![host]),
        }]),
        ..NodeSelectorTerm::default()
    };
    Some(PersistentVolume {
        metadata: ObjectMeta {
            name: Some(names::local_pv(&world.name, &claim.identity)),
            labels: Some(labels),
            annotations: Some(annotations),
            finalizers: Some(vec![names::PV_FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            capacity: Some(
                [(
                    "storage".to_owned(),
                    Quantity(quarry_api::Quantity::from(rounded(claim.size)).0),
                )]
                .into(),
            ),
            local: Some(LocalVolumeSource {
                path: claim.link.clone(),
                fs_type: claim.fs_type.clone(),
            }),
            mount_options: options,
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector { node_selector_terms: vec![affinity] }),
            }),
            persistent_volume_reclaim_policy: Some(policy),
            storage_class_name: Some(claim.storage_class_name.clone()),
            volume_mode: Some(claim.volume_mode.as_str().to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    })
}

/// As upstream. Created only if there is none: the settings of an administrator are never changed.
pub fn build_class(claim: &DeviceClaim) -> StorageClass {
    let [name, namespace, kind] = names::CLASS_OWNER_LABELS;
    let owner = &claim.owner;
    let labels = [
        (name, owner.name.clone()),
        (namespace, owner.namespace.clone().unwrap_or_default()),
        (kind, owner.kind.clone()),
        (quarry_api::crds::MANAGED_BY_LABEL, names::MANAGED_BY.to_owned()),
    ];
    StorageClass {
        metadata: ObjectMeta {
            name: Some(claim.storage_class_name.clone()),
            labels: Some(
                labels
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), names::label_value(&value)))
                    .collect(),
            ),
            ..ObjectMeta::default()
        },
        provisioner: NO_PROVISIONER.to_owned(),
        reclaim_policy: Some("Delete".to_owned()),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        ..StorageClass::default()
    }
}

/// Created by Quarry, for this owner or for another one with the same class: it is deleted with the last of them, if it
/// is unused.
pub fn is_class_of(class: &StorageClass, demand: &Demand) -> bool {
    let [name, namespace, kind] = names::CLASS_OWNER_LABELS;
    let label = |key: &str| {
        class.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str)
    };
    let owner = &demand.owner;
    let made_for_it = label(name) == Some(&names::label_value(&owner.name))
        && label(namespace)
            == Some(&names::label_value(owner.namespace.as_deref().unwrap_or_default()))
        && label(kind) == Some(&owner.kind);
    let names_it = demand.classes().any(|named| class.metadata.name.as_deref() == Some(named));
    label(quarry_api::crds::MANAGED_BY_LABEL) == Some(names::MANAGED_BY)
        && (made_for_it || names_it)
}
