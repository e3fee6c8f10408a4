//! LocalVolumeSets and their PersistentVolumes, as users, the binder and a node's kubelet use them.

use crate::cluster::{Cluster, tail};
use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::StorageClass};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use quarry_api::{
    LocalVolumeSet, NodeInventory, NodeInventorySpec, NodeJob, names,
    node_inventory::{ClaimState, NodeInventoryStatus},
};
use quarry_tests::guest::{Guest, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// PersistentVolumes by their class.
pub type Volumes = BTreeMap<String, Vec<PersistentVolume>>;

impl Cluster {
    /// A LocalVolumeSet with a StorageClass of the same name, for all nodes or for one.
    pub fn make_set(&self, name: &str, node: Option<&str>, mut inclusion: Value) {
        // Disks here are smaller than the upstream minimum.
        if inclusion["minSize"].is_null() {
            inclusion["minSize"] = json!("1Mi");
        }
        let mut set = json!({
            "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": name},
            "spec": {"storageClassName": name, "volumeMode": "Block", "deviceInclusionSpec": inclusion},
        });
        if let Some(node) = node {
            let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
            set["spec"]["nodeSelector"] =
                json!({"nodeSelectorTerms": [{"matchExpressions": [here]}]});
        }
        self.block_on(
            self.sets().create(&PostParams::default(), &serde_json::from_value(set).unwrap()),
        )
        .unwrap();
    }

    pub fn delete_set(&self, name: &str) {
        self.block_on(self.sets().delete(name, &DeleteParams::default())).unwrap();
    }

    fn sets(&self) -> Api<LocalVolumeSet> {
        Api::namespaced(self.client(), names::DEFAULT_NAMESPACE)
    }

    /// A StorageClass whose devices are wiped with this policy.
    pub fn make_class(&self, name: &str, wipe: &str) {
        let class = json!({
            "metadata": {"name": name, "annotations": {names::WIPE_ANNOTATION: wipe}},
            "provisioner": "kubernetes.io/no-provisioner", "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
        });
        let classes: Api<StorageClass> = Api::all(self.client());
        self.block_on(
            classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()),
        )
        .unwrap();
    }

    pub fn volumes(&self) -> Volumes {
        let pvs: Api<PersistentVolume> = Api::all(self.client());
        let mut found = Volumes::new();
        for pv in self.block_on(pvs.list(&ListParams::default())).unwrap().items {
            found
                .entry(
                    pv.spec
                        .as_ref()
                        .and_then(|spec| spec.storage_class_name.clone())
                        .unwrap_or_default(),
                )
                .or_default()
                .push(pv);
        }
        found
    }

    pub fn jobs(&self) -> Vec<NodeJob> {
        let jobs: Api<NodeJob> = Api::all(self.client());
        self.block_on(jobs.list(&ListParams::default())).unwrap().items
    }

    pub fn spec(&self, node: &str) -> NodeInventorySpec {
        let inventories: Api<NodeInventory> = Api::all(self.client());
        self.block_on(inventories.get(node)).unwrap().spec
    }

    /// Waits until the PersistentVolumes match. On failure, prints LocalVolumeSets, jobs and logs.
    #[track_caller]
    pub fn volumes_are<T>(
        &self,
        guests: &[&Guest],
        what: &str,
        wanted: impl Fn(&Volumes) -> Option<T>,
    ) -> T {
        until(&format!("PersistentVolumes: {what}"), || {
            let found = self.volumes();
            wanted(&found).ok_or_else(|| {
                let sets = self.block_on(self.sets().list(&ListParams::default())).unwrap().items;
                let sets: Vec<String> = sets
                    .iter()
                    .map(|set| format!("{}: {}", set.name_any(), json!(set.status)))
                    .collect();
                let pvs: Vec<String> = found.values().flatten().map(line).collect();
                let agents: Vec<String> = guests
                    .iter()
                    .map(|guest| {
                        format!(
                            "{}: {}\n{}",
                            guest.name(),
                            json!(self.spec(guest.name())),
                            tail(&guest.log_of("agent"))
                        )
                    })
                    .collect();
                format!(
                    "{}\n{}\n{}\n{}\n{}",
                    pvs.join("\n"),
                    sets.join("\n"),
                    json!(self.jobs()),
                    self.log(),
                    agents.join("\n")
                )
            })
        })
    }

    /// Waits until exactly these classes have one available PersistentVolume each.
    #[track_caller]
    pub fn offered(
        &self,
        guests: &[&Guest],
        classes: &[&str],
    ) -> BTreeMap<String, PersistentVolume> {
        self.volumes_are(guests, &format!("{classes:?} have one each, available"), |found| {
            let single = |(class, pvs): (&String, &Vec<PersistentVolume>)| match pvs.as_slice() {
                [pv] if is_offered(pv) => Some((class.clone(), pv.clone())),
                _ => None,
            };
            let offered: Option<BTreeMap<_, _>> = found.iter().map(single).collect();
            offered.filter(|offered| {
                offered.len() == classes.len()
                    && classes.iter().all(|class| offered.contains_key(*class))
            })
        })
    }

    /// Binds the PersistentVolume, as the binder would.
    pub fn bind(&self, pv: &PersistentVolume) {
        let claim = json!({"spec": {"claimRef": {"namespace": "default", "name": "data", "uid": "11111111-2222-3333-4444-555555555555"}}});
        let pvs: Api<PersistentVolume> = Api::all(self.client());
        self.block_on(pvs.patch(&pv.name_any(), &PatchParams::default(), &Patch::Merge(claim)))
            .unwrap();
        self.set_phase(pv, "Bound");
    }

    /// Releases it, as the volume controller does after its PVC is deleted.
    pub fn release(&self, pv: &PersistentVolume) {
        self.set_phase(pv, "Released");
    }

    fn set_phase(&self, pv: &PersistentVolume, phase: &str) {
        let pvs: Api<PersistentVolume> = Api::all(self.client());
        let phase = Patch::Merge(json!({"status": {"phase": phase}}));
        self.block_on(pvs.patch_status(&pv.name_any(), &PatchParams::default(), &phase)).unwrap();
    }
}

pub fn is_offered(pv: &PersistentVolume) -> bool {
    pv.metadata.deletion_timestamp.is_none() && phase(pv) == "Available"
}

fn phase(pv: &PersistentVolume) -> &str {
    pv.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn line(pv: &PersistentVolume) -> String {
    format!(
        "{} {} {} deleted: {:?}",
        pv.name_any(),
        path(pv),
        phase(pv),
        pv.metadata.deletion_timestamp
    )
}

pub fn path(pv: &PersistentVolume) -> &str {
    pv.spec
        .as_ref()
        .and_then(|spec| spec.local.as_ref())
        .map(|local| local.path.as_str())
        .unwrap_or_default()
}

/// The serial of the disk that the PersistentVolume's path points to, from the guest's tools.
#[track_caller]
pub fn serial_behind(guest: &mut Guest, pv: &PersistentVolume) -> String {
    guest.run(&format!("lsblk -dnro SERIAL \"$(readlink -f {})\"", path(pv))).trim().to_owned()
}

/// Whether all device claims of the node are confirmed and linked to their devices.
pub fn all_confirmed(status: &NodeInventoryStatus, count: usize) -> bool {
    let sure = status.device_claims.iter().filter(|report| {
        report.state == ClaimState::Confirmed && report.linked && report.device.is_some()
    });
    status.device_claims.len() == count && sure.count() == count
}
