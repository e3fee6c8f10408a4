//! The cluster at one moment, as a client read it: a `Source` without caches.
//!
//! Owns: which objects each view needs, and reading them. What was not read is absent. Decides nothing: `NodeWorld` and
//! the Volume's `Observed` are built over it by `quarry_core`, as the operator does over its caches.

use crate::reader::{Reader, optional};
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use kube::{Api, Resource, ResourceExt, api::ListParams, core::NamespaceResourceScope};
use quarry_api::{
    BareMetalHost, HardwareData, LocalVolume, LocalVolumeSet, NodeInventory, NodeJob, Volume, names,
};
use quarry_core::{
    presence::{Presence, presence},
    quarantine::{Identities, RemoteIdentity},
    source::Source,
    unmanaged_pv::is_on,
    volume::observed::job_name,
};
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, OnceLock},
};

/// Objects of one kind by name.
pub type ByName<K> = BTreeMap<String, Arc<K>>;

#[derive(Default)]
pub struct Snapshot {
    namespace: String,
    pub nodes: ByName<Node>,
    inventories: ByName<NodeInventory>,
    pub pvs: ByName<PersistentVolume>,
    pub classes: ByName<StorageClass>,
    pub jobs: ByName<NodeJob>,
    pub volumes: ByName<Volume>,
    /// Of all namespaces, sorted by namespace and name.
    pub sets: Vec<Arc<LocalVolumeSet>>,
    /// Of all namespaces, sorted by namespace and name.
    pub local_volumes: Vec<Arc<LocalVolume>>,
    /// By namespace and name.
    pub hosts: BTreeMap<(String, String), Arc<BareMetalHost>>,
    /// By namespace and name.
    pub hardware_data: BTreeMap<(String, String), Arc<HardwareData>>,
    /// `None` when they could not be read: agents are then taken to be present.
    pub leases: Option<ByName<Lease>>,
    /// Derived from the inventories on first use.
    identities: OnceLock<Identities>,
}

impl Snapshot {
    /// Without any object; `namespace` is the operator's.
    pub fn new(namespace: &str) -> Self {
        Snapshot { namespace: namespace.to_owned(), ..Snapshot::default() }
    }

    /// Everything that decides who gets which device, but for Leases (`read_leases`).
    pub async fn list<R: Reader>(reader: &R, namespace: &str) -> Result<Self, R::Error> {
        let (nodes, inventories, pvs, classes, jobs, sets, local_volumes) = futures::try_join!(
            list::<Node, R>(reader),
            list::<NodeInventory, R>(reader),
            list::<PersistentVolume, R>(reader),
            list::<StorageClass, R>(reader),
            list::<NodeJob, R>(reader),
            list::<LocalVolumeSet, R>(reader),
            list::<LocalVolume, R>(reader),
        )?;
        Ok(Snapshot {
            namespace: namespace.to_owned(),
            nodes: by_name(nodes),
            inventories: by_name(inventories),
            pvs: by_name(pvs),
            classes: by_name(classes),
            jobs: by_name(jobs),
            sets: sets.into_iter().map(Arc::new).collect(),
            local_volumes: local_volumes.into_iter().map(Arc::new).collect(),
            ..Snapshot::default()
        })
    }

    /// What a Volume's `Observed` is built from: only the objects that the Volume names.
    pub async fn of_volume<R: Reader>(
        reader: &R,
        volume: &Volume,
        namespace: &str,
    ) -> Result<Self, R::Error> {
        let client = || reader.client();
        let (node, name) = (&volume.spec.node_name, volume.name_any());
        let job = job_name(volume).unwrap_or_default();
        let leases: Api<Lease> = Api::namespaced(client(), namespace);
        let lease = names::agent_lease(node);
        let (pv, class, node, lease, job, inventory) = futures::try_join!(
            reader.call("reading its PersistentVolume", named(Api::all(client()), &name)),
            reader.call(
                "reading its StorageClass",
                named(Api::all(client()), &volume.spec.storage_class_name)
            ),
            reader.call("reading its Node", named(Api::all(client()), node)),
            reader.call("reading the Lease of its node's agent", named(leases, &lease)),
            reader.call("reading its NodeJob", named(Api::all(client()), &job)),
            reader.call("reading the NodeInventory of its node", named(Api::all(client()), node)),
        )?;
        Ok(Snapshot {
            namespace: namespace.to_owned(),
            nodes: by_name(node),
            inventories: by_name(inventory),
            pvs: by_name(pv),
            classes: by_name(class),
            jobs: by_name(job),
            leases: Some(by_name(lease)),
            ..Snapshot::default()
        })
    }

    /// The inventories of these nodes, or of all when none is named; with the names that have none.
    pub async fn of_inventories<R: Reader>(
        reader: &R,
        nodes: &[String],
        namespace: &str,
    ) -> Result<(Self, Vec<String>), R::Error> {
        let api: Api<NodeInventory> = Api::all(reader.client());
        let mut missing = Vec::new();
        let mut found = Vec::new();
        if nodes.is_empty() {
            let attempt = "listing NodeInventories";
            found = reader.call(attempt, api.list(&ListParams::default())).await?.items;
        }
        for node in nodes {
            let attempt = format!("reading NodeInventory {node}");
            match reader.call(&attempt, optional(api.get(node))).await? {
                Some(inventory) => found.push(inventory),
                None => missing.push(node.clone()),
            }
        }
        let mut snapshot = Snapshot::new(namespace);
        snapshot.inventories = by_name(found);
        Ok((snapshot, missing))
    }

    /// The agents' Leases. A caller that may not read them still has the rest.
    pub async fn read_leases<R: Reader>(&mut self, reader: &R) -> Result<(), R::Error> {
        let api: Api<Lease> = Api::namespaced(reader.client(), &self.namespace);
        let attempt = format!("listing the Leases of the agents in namespace {}", self.namespace);
        let found = reader.call(&attempt, api.list(&ListParams::default())).await?;
        self.leases = Some(by_name(found.items));
        Ok(())
    }

    pub async fn read_volumes<R: Reader>(&mut self, reader: &R) -> Result<(), R::Error> {
        let api: Api<Volume> = Api::all(reader.client());
        let found = reader.call("listing volumes", api.list(&ListParams::default())).await?;
        self.volumes = by_name(found.items);
        Ok(())
    }

    pub async fn read_pvs<R: Reader>(&mut self, reader: &R) -> Result<(), R::Error> {
        let api: Api<PersistentVolume> = Api::all(reader.client());
        let attempt = "listing PersistentVolumes";
        self.pvs = by_name(reader.call(attempt, api.list(&ListParams::default())).await?.items);
        Ok(())
    }

    pub async fn read_pv<R: Reader>(&mut self, reader: &R, name: &str) -> Result<(), R::Error> {
        let api: Api<PersistentVolume> = Api::all(reader.client());
        let attempt = format!("reading PersistentVolume {name}");
        let found = reader.call(&attempt, optional(api.get(name))).await?;
        self.pvs.extend(found.map(|pv| (pv.name_any(), Arc::new(pv))));
        Ok(())
    }

    /// Hosts and HardwareData of all namespaces, or of one.
    pub async fn read_hosts<R: Reader>(
        &mut self,
        reader: &R,
        namespace: Option<&str>,
    ) -> Result<(), R::Error> {
        let (hosts, data) = futures::try_join!(
            list_in::<BareMetalHost, R>(reader, namespace),
            list_in::<HardwareData, R>(reader, namespace),
        )?;
        self.hosts = by_namespace(hosts);
        self.hardware_data = by_namespace(data);
        Ok(())
    }

    /// What hosts are joined with: Nodes and their inventories.
    pub async fn read_nodes<R: Reader>(&mut self, reader: &R) -> Result<(), R::Error> {
        let (nodes, inventories) =
            futures::try_join!(list::<Node, R>(reader), list::<NodeInventory, R>(reader))?;
        self.nodes = by_name(nodes);
        *self.inventories_mut() = by_name(inventories);
        Ok(())
    }

    pub fn add_host(&mut self, host: BareMetalHost) {
        self.hosts.insert(namespaced(&host), Arc::new(host));
    }

    pub fn add_hardware_data(&mut self, data: HardwareData) {
        self.hardware_data.insert(namespaced(&data), Arc::new(data));
    }

    pub fn add_inventory(&mut self, inventory: NodeInventory) {
        self.inventories_mut().insert(inventory.name_any(), Arc::new(inventory));
    }

    pub fn inventories_mut(&mut self) -> &mut ByName<NodeInventory> {
        self.identities.take();
        &mut self.inventories
    }

    /// Which nodes show or claim which identity.
    fn identities(&self) -> &Identities {
        self.identities.get_or_init(|| {
            let mut identities = Identities::default();
            for (name, inventory) in &self.inventories {
                let status = inventory.status.as_ref();
                let devices = status.map(|status| status.devices.as_slice()).unwrap_or_default();
                identities.follow(name, devices, Some(&inventory.spec));
            }
            identities
        })
    }
}

impl Source for Snapshot {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(name).cloned()
    }

    fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.values().cloned().collect()
    }

    fn inventory(&self, node: &str) -> Option<Arc<NodeInventory>> {
        self.inventories.get(node).cloned()
    }

    fn inventories(&self) -> Vec<Arc<NodeInventory>> {
        self.inventories.values().cloned().collect()
    }

    fn pv(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.pvs.get(name).cloned()
    }

    fn pvs_on(&self, node: &Node) -> Vec<Arc<PersistentVolume>> {
        self.pvs.values().filter(|pv| is_on(pv, node)).cloned().collect()
    }

    fn class(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.classes.get(name).cloned()
    }

    fn job(&self, name: &str) -> Option<Arc<NodeJob>> {
        self.jobs.get(name).cloned()
    }

    fn agent_lease(&self, node: &str) -> Option<Arc<Lease>> {
        self.leases.as_ref()?.get(&names::agent_lease(node)).cloned()
    }

    fn agent_presence(&self, node: &str, now: Timestamp) -> Presence {
        match &self.leases {
            Some(_) => presence(self.agent_lease(node).as_deref(), now),
            None => Presence::Present { until: Timestamp::MAX },
        }
    }

    fn elsewhere(&self, node: &str) -> Vec<RemoteIdentity> {
        self.identities().elsewhere(node)
    }

    fn sets(&self) -> Vec<Arc<LocalVolumeSet>> {
        self.sets.clone()
    }

    fn local_volumes(&self) -> Vec<Arc<LocalVolume>> {
        self.local_volumes.clone()
    }

    fn volumes(&self) -> Vec<Arc<Volume>> {
        self.volumes.values().cloned().collect()
    }

    fn hosts(&self) -> Vec<Arc<BareMetalHost>> {
        self.hosts.values().cloned().collect()
    }

    fn hardware_data(&self, namespace: &str, name: &str) -> Option<Arc<HardwareData>> {
        self.hardware_data.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }
}

async fn list<K, R: Reader>(reader: &R) -> Result<Vec<K>, R::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send,
{
    list_of(reader, Api::all(reader.client()), "").await
}

/// `None`: of all namespaces.
async fn list_in<K, R: Reader>(reader: &R, namespace: Option<&str>) -> Result<Vec<K>, R::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + DeserializeOwned + Debug + Send,
{
    match namespace {
        None => list_of(reader, Api::all(reader.client()), "").await,
        Some(namespace) => {
            let api = Api::namespaced(reader.client(), namespace);
            list_of(reader, api, &format!(" in namespace {namespace}")).await
        }
    }
}

async fn list_of<K, R: Reader>(reader: &R, api: Api<K>, place: &str) -> Result<Vec<K>, R::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send,
{
    let attempt = format!("listing {}{place}", K::plural(&()));
    let mut found = reader.call(&attempt, api.list(&ListParams::default())).await?.items;
    found.sort_by_key(|object| (object.meta().namespace.clone(), object.meta().name.clone()));
    Ok(found)
}

/// An empty name is not requested: it would list the kind instead.
async fn named<K>(api: Api<K>, name: &str) -> kube::Result<Option<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    if name.is_empty() { Ok(None) } else { optional(api.get(name)).await }
}

fn by_name<K: Resource>(objects: impl IntoIterator<Item = K>) -> ByName<K> {
    let named = |object: K| (object.meta().name.clone().unwrap_or_default(), Arc::new(object));
    objects.into_iter().map(named).collect()
}

fn by_namespace<K: Resource>(
    objects: impl IntoIterator<Item = K>,
) -> BTreeMap<(String, String), Arc<K>> {
    objects.into_iter().map(|object| (namespaced(&object), Arc::new(object))).collect()
}

fn namespaced<K: Resource>(object: &K) -> (String, String) {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_present_when_leases_could_not_be_read() {
        let mut snapshot = Snapshot::new("quarry-system");
        let now = Timestamp::UNIX_EPOCH;
        assert!(matches!(snapshot.agent_presence("n1", now), Presence::Present { .. }));
        snapshot.leases = Some(ByName::new());
        assert_eq!(snapshot.agent_presence("n1", now), Presence::Never);
    }

    #[test]
    fn a_changed_inventory_changes_what_is_elsewhere() {
        let inventory = |name: &str| {
            serde_json::from_value::<NodeInventory>(serde_json::json!({
                "metadata": {"name": name}, "spec": {},
                "status": {"devices": [{"name": "sda", "type": "disk", "size": 1,
                    "identity": "wwn:1", "state": "Available"}]},
            }))
        };
        let mut snapshot = Snapshot::new("quarry-system");
        snapshot.add_inventory(inventory("a").unwrap());
        assert!(snapshot.elsewhere("a").is_empty());
        snapshot.add_inventory(inventory("b").unwrap());
        assert_eq!(snapshot.elsewhere("a").len(), 1);
    }
}
