//! The world: the API's objects, what each operator has seen of them, the agent, one slot for a disk.
//!
//! Versions are hashes of content: equal content is the same version, so a stale write succeeds more often than in
//! reality, never less. What the disk holds is known here as it is nowhere else.

use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use quarry_api::{
    LocalVolume, LocalVolumeSet, NodeInventory, NodeInventorySpec, NodeInventoryStatus, NodeJob,
    names,
    node_inventory::{
        ClaimContent, ClaimReport, ClaimState, Device, DeviceReason, DeviceState, PathReport,
    },
    node_job::hex_digest,
};
use quarry_core::device_claim::{
    Demand, NodeWorld,
    demand::{of_local_volume, of_set},
};
use serde::Serialize;
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

pub const NODE: &str = "n1";
pub const PATH: &str = "/dev/sda";

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The agent sees no data on any disk.
    AgentIsBlind,
    /// What was used and not erased is forgotten at once.
    NothingIsKept,
    /// Two operators write the inventory without asking for the version that they read.
    NoVersions,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Content {
    Blank,
    Other,
    /// A Volume has it: it looks blank, and is not.
    Volume,
    /// What the pod of this claim wrote.
    Data(u32),
}

/// What the API holds; also what an operator's cache holds of it.
#[derive(Clone, Debug, Serialize)]
pub struct Objects {
    pub inventory: NodeInventory,
    pub sets: BTreeMap<String, LocalVolumeSet>,
    pub local_volume: Option<LocalVolume>,
    pub pvs: BTreeMap<String, PersistentVolume>,
    pub jobs: BTreeMap<String, NodeJob>,
    /// Volumes keep their data when they are released.
    pub retain: bool,
}

/// What the agent has found out and not written yet.
#[derive(Clone, Debug, Serialize)]
pub struct Pending {
    pub read: String,
    pub status: NodeInventoryStatus,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub api: Arc<Objects>,
    pub caches: [Arc<Objects>; 2],
    pub pending: Option<Arc<Pending>>,
    /// The claims (PersistentVolumeClaims) that exist, by number.
    pub users: Vec<u32>,
    /// Which of the disks is in the slot `sda`.
    pub slot: Option<usize>,
    pub disks: [Content; 2],
    /// A wipe that was done and not reported: the job's name.
    pub wiped: Option<String>,
    pub made: u32,
    pub used: u32,
    pub plugged: u32,
    pub deleted: u32,
    pub torn: u32,
    pub mistake: Option<Mistake>,
    /// What pods write is in the middle of the disk: it looks blank.
    pub hidden: bool,
    pub wrong: Vec<String>,
}

pub fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

pub fn version<T: Serialize>(object: &T) -> String {
    let mut value = serde_json::to_value(object).unwrap();
    value["metadata"]["resourceVersion"] = Value::Null;
    hex_digest(&[&value.to_string()])[..16].to_owned()
}

pub fn identity(disk: usize) -> String {
    format!("wwn:5000c5000000000{disk}")
}

pub fn new_set(name: &str) -> LocalVolumeSet {
    // "old" is older than "young".
    serde_json::from_value(json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet",
        "metadata": {"name": name, "namespace": "q", "uid": format!("uid-{name}"), "finalizers": [names::OWNER_FINALIZER],
            "creationTimestamp": if name == "old" { "2026-01-01T00:00:00Z" } else { "2026-01-01T00:00:09Z" }},
        "spec": {"storageClassName": name},
    }))
    .unwrap()
}

pub fn new_local_volume() -> LocalVolume {
    serde_json::from_value(json!({
        "apiVersion": "local.storage.openshift.io/v1", "kind": "LocalVolume",
        "metadata": {"name": "lv", "namespace": "q", "uid": "uid-lv", "finalizers": [names::OWNER_FINALIZER], "creationTimestamp": "2026-01-01T00:00:05Z"},
        "spec": {"storageClassDevices": [{"storageClassName": "lv", "devicePaths": [PATH]}]},
    }))
    .unwrap()
}

impl Objects {
    fn classes(&self) -> BTreeMap<String, Arc<StorageClass>> {
        let class = |name: &str| {
            serde_json::from_value(json!({"metadata": {"name": name}, "provisioner": "kubernetes.io/no-provisioner", "reclaimPolicy": "Retain"})).unwrap()
        };
        ["old", "young", "lv"]
            .into_iter()
            .filter(|_| self.retain)
            .map(|name| (name.to_owned(), Arc::new(class(name))))
            .collect()
    }

    pub fn world(&self) -> NodeWorld {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE, "uid": "node", "labels": {"kubernetes.io/hostname": NODE}}})).unwrap();
        let demands: Vec<Demand> = self
            .sets
            .values()
            .map(of_set)
            .chain(self.local_volume.iter().map(of_local_volume))
            .collect();
        NodeWorld {
            name: NODE.into(),
            node: Some(Arc::new(node)),
            inventory: self.inventory.clone(),
            demands,
            pvs: self.pvs.values().cloned().map(Arc::new).collect(),
            jobs: self
                .jobs
                .iter()
                .map(|(name, job)| (name.clone(), Arc::new(job.clone())))
                .collect(),
            classes: self.classes(),
            agent_present: true,
            ..NodeWorld::default()
        }
    }
}

impl Model {
    pub fn new() -> Self {
        let mut inventory = NodeInventory::new(NODE, NodeInventorySpec::default());
        inventory.metadata.uid = Some("inv".into());
        let api = Objects {
            inventory,
            sets: BTreeMap::new(),
            local_volume: None,
            pvs: BTreeMap::new(),
            jobs: BTreeMap::new(),
            retain: false,
        };
        let mut model = Model {
            caches: [Arc::new(api.clone()), Arc::new(api.clone())],
            api: Arc::new(api),
            pending: None,
            users: Vec::new(),
            slot: Some(0),
            disks: [Content::Blank, Content::Blank],
            wiped: None,
            made: 0,
            used: 0,
            plugged: 0,
            deleted: 0,
            torn: 0,
            hidden: false,
            mistake: None,
            wrong: Vec::new(),
        };
        model.observe();
        model.write();
        model.refresh(0);
        model.refresh(1);
        model
    }

    pub fn retaining(mut self) -> Self {
        self.change(|api| api.retain = true);
        self
    }

    /// A set whose disk is published, and every component knows it.
    pub fn published(mut self, set: &str) -> Self {
        self.change(|api| drop(api.sets.insert(set.into(), new_set(set))));
        for _ in 0..6 {
            self.refresh(0);
            if let Some(next) =
                super::moves::take(&self, &super::moves::Move::Plan { operator: 0, writes: 9 })
            {
                self = next;
            }
            self.observe();
            self.write();
        }
        assert_eq!(self.api.pvs.len(), 1, "the world begins with a published disk");
        self.refresh(0);
        self.refresh(1);
        self
    }

    pub fn canonical(&self) -> String {
        let Model {
            api,
            caches,
            pending,
            users,
            slot,
            disks,
            wiped,
            made,
            used,
            plugged,
            deleted,
            torn,
            hidden: _,
            mistake: _,
            wrong: _,
        } = self;
        serde_json::to_string(&(
            api.as_ref(),
            caches.each_ref().map(AsRef::as_ref),
            pending.as_deref(),
            users,
            slot,
            disks,
            wiped,
            (made, used, plugged, deleted, torn),
        ))
        .unwrap()
    }

    pub fn hiding(self) -> Self {
        Model { hidden: true, ..self }
    }

    pub fn change(&mut self, change: impl FnOnce(&mut Objects)) {
        let mut api = (*self.api).clone();
        change(&mut api);
        self.api = Arc::new(api);
    }

    pub fn refresh(&mut self, operator: usize) {
        self.caches[operator] = self.api.clone();
    }

    fn device(&self) -> Option<Device> {
        let disk = self.slot?;
        let claimed = self
            .api
            .inventory
            .spec
            .device_claims
            .iter()
            .any(|claim| claim.identity == identity(disk));
        let mut reasons = Vec::new();
        if claimed {
            reasons.push(DeviceReason { reason: "Claimed".into(), detail: String::new() });
        }
        if self.api.inventory.spec.retained_data.iter().any(|kept| kept.identity == identity(disk))
        {
            reasons.push(DeviceReason { reason: "RetainedData".into(), detail: String::new() });
        }
        let found = match self.disks[disk] {
            _ if self.mistake == Some(Mistake::AgentIsBlind) => None,
            Content::Blank => None,
            Content::Data(_) if self.hidden => None,
            Content::Other | Content::Data(_) => Some("Signature"),
            Content::Volume => Some("BacksVolume"),
        };
        reasons.extend(
            found.map(|reason| DeviceReason { reason: reason.into(), detail: "ext4".into() }),
        );
        Some(Device {
            name: "sda".into(),
            kind: "disk".into(),
            size: 20 << 30,
            identity: Some(identity(disk)),
            device_id: Some(format!("/dev/disk/by-id/wwn-{disk}")),
            settled: true,
            state: if reasons.is_empty() {
                DeviceState::Available
            } else {
                DeviceState::NotAvailable
            },
            reasons,
            ..Device::default()
        })
    }

    /// The agent looks: at the inventory as it is now, and at the disk. It writes later, or never.
    pub fn observe(&mut self) {
        let inventory = &self.api.inventory;
        let earlier = inventory
            .status
            .as_ref()
            .map(|status| status.device_claims.clone())
            .unwrap_or_default();
        let reports = inventory.spec.device_claims.iter().map(|claim| {
            let kept = earlier.iter().find(|report| {
                report.identity == claim.identity
                    && report.owner_uid == claim.owner.uid
                    && report.round == claim.round
            });
            let there = self.slot.filter(|disk| identity(*disk) == claim.identity);
            let looks_blank = |disk: usize| {
                self.disks[disk] == Content::Blank
                    || (self.hidden && matches!(self.disks[disk], Content::Data(_)))
            };
            let withheld =
                inventory.spec.retained_data.iter().any(|kept| kept.identity == claim.identity);
            let blank = there.is_some_and(looks_blank) && !withheld;
            let kept_as_it_is = claim.content == ClaimContent::Any
                && there.is_some_and(|disk| self.disks[disk] != Content::Volume);
            let may = there.is_some()
                && (blank || kept_as_it_is || self.mistake == Some(Mistake::AgentIsBlind));
            let state = match kept.map(|report| report.state) {
                _ if claim.terminating => ClaimState::Removed,
                Some(ClaimState::Confirmed) => ClaimState::Confirmed,
                _ if may && claim.job.is_none() => ClaimState::Confirmed,
                _ => ClaimState::Refused,
            };
            ClaimReport {
                identity: claim.identity.clone(),
                owner_uid: claim.owner.uid.clone(),
                round: claim.round,
                state,
                linked: state == ClaimState::Confirmed && there.is_some(),
                ..ClaimReport::default()
            }
        });
        let paths = inventory.spec.paths.iter().map(|path| PathReport {
            path: path.clone(),
            device: self.slot.map(|_| "sda".to_owned()),
            problem: None,
        });
        let status = NodeInventoryStatus {
            machine_id: Some("m".into()),
            device_claims: reports.collect(),
            paths: paths.collect(),
            devices: self.device().into_iter().collect(),
            ..NodeInventoryStatus::default()
        };
        self.pending = Some(Arc::new(Pending { read: version(inventory), status }));
    }

    /// `false` if another writer was faster: the agent reads again.
    pub fn write(&mut self) -> bool {
        let Some(pending) = self.pending.take() else { return false };
        let fits = version(&self.api.inventory) == pending.read;
        if fits {
            self.change(|api| {
                api.inventory.status = Some(pending.status.clone());
            });
        }
        fits
    }

    /// What must not be seen.
    pub fn violations(&self) -> Vec<String> {
        let mut wrong = self.wrong.clone();
        let claims = &self.api.inventory.spec.device_claims;
        for (index, claim) in claims.iter().enumerate() {
            if claims[..index].iter().any(|other| other.identity == claim.identity) {
                wrong.push(format!("two claims on {}", claim.identity));
            }
        }
        let mut on: Vec<&str> = Vec::new();
        for pv in self.api.pvs.values() {
            let Some(of) = pv
                .metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(names::IDENTITY_ANNOTATION))
            else {
                continue;
            };
            let going = pv.metadata.deletion_timestamp.is_some();
            let free = pv.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none());
            let by_path = claims.iter().any(|claim| claim.identity == *of && claim.path.is_some());
            let disk = (0..2).find(|disk| identity(*disk) == *of).unwrap();
            if self.disks[disk] == Content::Volume {
                wrong.push(format!("a PersistentVolume on {of}, which is a Volume's"));
            }
            if !going && free && !by_path && self.disks[disk] != Content::Blank {
                wrong.push(format!(
                    "PersistentVolume {} offers a disk with {:?}",
                    pv.metadata.name.as_deref().unwrap_or_default(),
                    self.disks[disk]
                ));
            }
            if !going && !claims.iter().any(|claim| quarry_core::device_claim::pv::is_of(pv, claim))
            {
                wrong.push(format!("a PersistentVolume on {of} without a device claim"));
            }
            if on.contains(&of.as_str()) {
                wrong.push(format!("two PersistentVolumes on {of}"));
            }
            on.push(of);
        }
        wrong
    }
}
