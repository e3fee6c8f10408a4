//! What the operator has seen: one store per kind, fed by watches (or, in the simulator, by hand).
//!
//! A cache may be stale; every write carries a resourceVersion and every name is deterministic, so a stale
//! read costs a conflict, never a wrong act. Next to read: `trigger.rs` (what a change enqueues).

use crate::node_index;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource, core::DeserializeGuard};
use quarry_api::{
    BareMetalHost, HardwareData, LocalVolume, LocalVolumeSet, NodeInventory, NodeJob, Volume, names,
};
use quarry_core::{
    packed::Packed,
    quarantine::{Identities, RemoteIdentity},
    source::Source,
    unmanaged_pv::{self, UnmanagedPvs},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    any::{Any, TypeId},
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

/// The objects of one kind, by key: the name, or namespace and name.
#[derive(Debug)]
pub struct Store<K> {
    objects: RwLock<BTreeMap<String, Packed<K>>>,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Store { objects: RwLock::default() }
    }
}

impl<K: Cached> Store<K> {
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.packed(key).map(|found| found.open())
    }

    /// As it is stored.
    pub fn packed(&self, key: &str) -> Option<Packed<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// As they are now, one after the other: all at once may be large.
    pub fn each(&self) -> impl Iterator<Item = Arc<K>> + use<K> {
        let now: Vec<Packed<K>> =
            self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        now.into_iter().map(|found| found.open())
    }

    /// The object that it replaces.
    pub fn put(&self, object: Arc<K>) -> Option<Arc<K>> {
        let key = K::key(object.meta());
        let object = if K::PACKED { Packed::json(&*object) } else { Packed::Whole(object) };
        let before =
            self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(key, object);
        before.map(|before| before.open())
    }

    pub fn remove(&self, key: &str) -> Option<Arc<K>> {
        let before = self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        before.map(|before| before.open())
    }

    pub fn keys(&self) -> Vec<String> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}

/// Everything that controllers read without asking the API server.
#[derive(Debug, Default)]
pub struct Caches {
    namespace: String,
    /// `Store<K>` by K.
    stores: RwLock<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    /// Which nodes show or claim which identity.
    identities: Mutex<Identities>,
    /// PersistentVolumes by place.
    unmanaged_pvs: Mutex<UnmanagedPvs>,
}

impl Caches {
    /// `namespace` is the operator's.
    pub fn new(namespace: &str) -> Self {
        Caches { namespace: namespace.to_owned(), ..Caches::default() }
    }

    pub fn store<K: Cached>(&self) -> Arc<Store<K>> {
        let known = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(&TypeId::of::<K>()).cloned();
        drop(known);
        let found = found.unwrap_or_else(|| {
            let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
            let entry = stores.entry(TypeId::of::<K>());
            entry.or_insert_with(|| Arc::new(Store::<K>::default())).clone()
        });
        found.downcast().expect("the store of a type is of that type")
    }

    pub fn get<K: Cached>(&self, key: &str) -> Option<Arc<K>> {
        self.store::<K>().get(key)
    }

    pub fn all<K: Cached>(&self) -> Vec<Arc<K>> {
        self.store::<K>().each().collect()
    }

    pub fn identities(&self) -> MutexGuard<'_, Identities> {
        self.identities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn unmanaged_pvs(&self) -> MutexGuard<'_, UnmanagedPvs> {
        self.unmanaged_pvs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Caches {
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.get(name)
    }
    fn nodes(&self) -> Vec<Arc<Node>> {
        self.all()
    }
    fn inventory(&self, node: &str) -> Option<Arc<NodeInventory>> {
        self.get(node)
    }
    fn inventories(&self) -> Vec<Arc<NodeInventory>> {
        self.all()
    }
    fn pv(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.get(name)
    }
    fn pvs_on(&self, node: &Node) -> Vec<Arc<PersistentVolume>> {
        let candidates: Vec<Arc<PersistentVolume>> = self
            .unmanaged_pvs()
            .candidates(node)
            .into_iter()
            .filter_map(|pv| self.pv(pv))
            .collect();
        candidates.into_iter().filter(|pv| unmanaged_pv::is_on(pv, node)).collect()
    }
    fn packed_pvs(&self, node: Option<&Node>, names: &[String]) -> Vec<Packed<PersistentVolume>> {
        let index = self.unmanaged_pvs();
        let near = node.map(|node| index.candidates(node)).unwrap_or_default();
        let others = names.iter().map(String::as_str).filter(|name| !near.contains(name));
        let store = self.store::<PersistentVolume>();
        near.iter().copied().chain(others).filter_map(|name| store.packed(name)).collect()
    }
    fn class(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.get(name)
    }
    fn job(&self, name: &str) -> Option<Arc<NodeJob>> {
        self.get(name)
    }
    fn agent_lease(&self, node: &str) -> Option<Arc<Lease>> {
        self.get(&names::agent_lease(node))
    }
    fn elsewhere(&self, node: &str) -> Vec<RemoteIdentity> {
        self.identities().elsewhere(node)
    }
    fn sets(&self) -> Vec<Arc<LocalVolumeSet>> {
        self.all()
    }
    fn local_volumes(&self) -> Vec<Arc<LocalVolume>> {
        self.all()
    }
    fn volumes(&self) -> Vec<Arc<Volume>> {
        self.all()
    }
    fn hosts(&self) -> Vec<Arc<BareMetalHost>> {
        self.all()
    }
    fn hardware_data(&self, namespace: &str, name: &str) -> Option<Arc<HardwareData>> {
        self.get(&format!("{namespace}/{name}"))
    }
}

/// A kind that the operator watches. Those of Quarry are in the directory of their controller, those of Kubernetes below.
pub trait Cached:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Stored as JSON: for kinds with many objects, each much larger than its content.
    const PACKED: bool = false;

    /// Only objects with this label are watched.
    const SELECTOR: Option<(&'static str, &'static str)> = None;

    /// The key in the store.
    fn key(metadata: &ObjectMeta) -> String {
        metadata.name.clone().unwrap_or_default()
    }

    /// What is watched: all of the kind, unless the kind says otherwise. `namespace` is the operator's.
    fn api(client: Client, _namespace: &str) -> Api<DeserializeGuard<Self>> {
        Api::all(client)
    }

    /// Drops what no decision reads: a Node's status is most of its size and changes every few seconds.
    fn trim(&mut self) {
        self.meta_mut().managed_fields = None;
    }

    /// Keeps the indexes current; the nodes that the change concerns through them, besides its own.
    fn reindex(_before: Option<&Self>, _after: Option<&Self>, _caches: &Caches) -> Vec<String> {
        Vec::new()
    }
}

/// The key of an object in a namespace.
pub fn namespaced_key(metadata: &ObjectMeta) -> String {
    format!(
        "{}/{}",
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default()
    )
}

impl Cached for StorageClass {}

impl Cached for PersistentVolume {
    /// One takes six kilobytes, with room for every volume type, and a large cluster has tens of thousands.
    const PACKED: bool = true;

    fn reindex(before: Option<&Self>, after: Option<&Self>, caches: &Caches) -> Vec<String> {
        node_index::follow_pv(before, after, caches)
    }
}

impl Cached for Node {
    fn trim(&mut self) {
        self.metadata.managed_fields = None;
        self.status = None;
    }
}

impl Cached for Lease {
    fn api(client: Client, namespace: &str) -> Api<DeserializeGuard<Self>> {
        Api::namespaced(client, namespace)
    }
}
