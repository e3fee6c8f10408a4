//! What the operator has seen: one map for each kind, fed by watches (or, in the simulator, by hand).
//!
//! A cache may be stale; every write carries a resourceVersion and every name is deterministic, so a stale
//! read costs a conflict, never a wrong act.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use quarry_api::{
    LocalVolume, LocalVolumeDiscovery, LocalVolumeDiscoveryResult, LocalVolumeSet, NodeInventory,
    NodeJob, Volume,
};
use quarry_core::{quarantine::Identities, unmanaged_pv::UnmanagedPvs};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

/// The objects of one kind, by key: the name, unless the kind says otherwise.
#[derive(Debug)]
pub struct Kind<K> {
    objects: RwLock<BTreeMap<String, Entry<K>>>,
}

impl<K> Default for Kind<K> {
    fn default() -> Self {
        Kind { objects: RwLock::default() }
    }
}

#[derive(Debug)]
enum Entry<K> {
    Whole(Arc<K>),
    /// As JSON, and read anew each time.
    Packed(Arc<[u8]>),
}

impl<K> Clone for Entry<K> {
    fn clone(&self) -> Self {
        match self {
            Entry::Whole(object) => Entry::Whole(Arc::clone(object)),
            Entry::Packed(bytes) => Entry::Packed(Arc::clone(bytes)),
        }
    }
}

impl<K: Cached> Entry<K> {
    fn new(object: Arc<K>) -> Self {
        match K::PACKED {
            true => Entry::Packed(
                serde_json::to_vec(&*object)
                    .expect("an object that was read can be written")
                    .into(),
            ),
            false => Entry::Whole(object),
        }
    }

    fn open(self) -> Arc<K> {
        match self {
            Entry::Whole(object) => object,
            Entry::Packed(bytes) => {
                Arc::new(serde_json::from_slice(&bytes).expect("what was packed here can be read"))
            }
        }
    }
}

impl<K: Cached> Kind<K> {
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        let found = self.objects.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        found.map(Entry::open)
    }

    pub fn all(&self) -> Vec<Arc<K>> {
        self.each().collect()
    }

    /// As they are now, one after the other: all at once may be large.
    pub fn each(&self) -> impl Iterator<Item = Arc<K>> + use<K> {
        let now: Vec<Entry<K>> =
            self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        now.into_iter().map(Entry::open)
    }

    /// The object that it replaces.
    pub fn put(&self, object: Arc<K>) -> Option<Arc<K>> {
        let key = K::key(object.meta());
        let before = self
            .objects
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, Entry::new(object));
        before.map(Entry::open)
    }

    pub fn remove(&self, key: &str) -> Option<Arc<K>> {
        let before = self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        before.map(Entry::open)
    }

    pub fn keys(&self) -> Vec<String> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}

/// Everything that controllers read without asking the API server.
#[derive(Debug, Default)]
pub struct Caches {
    pub volumes: Kind<Volume>,
    pub pvs: Kind<PersistentVolume>,
    pub classes: Kind<StorageClass>,
    pub nodes: Kind<Node>,
    pub jobs: Kind<NodeJob>,
    pub inventories: Kind<NodeInventory>,
    /// Of the operator's namespace.
    pub leases: Kind<Lease>,
    /// Of all namespaces: one elsewhere is told that it does nothing.
    pub discoveries: Kind<LocalVolumeDiscovery>,
    /// Of the operator's namespace.
    pub results: Kind<LocalVolumeDiscoveryResult>,
    /// Of all namespaces, both.
    pub sets: Kind<LocalVolumeSet>,
    pub local_volumes: Kind<LocalVolume>,
    /// Which nodes show or claim which identity; kept in step by the route of NodeInventory.
    identities: Mutex<Identities>,
    /// PersistentVolumes of others by place; kept in step by the route of PersistentVolume.
    unmanaged_pvs: Mutex<UnmanagedPvs>,
}

impl Caches {
    pub fn identities(&self) -> MutexGuard<'_, Identities> {
        self.identities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn unmanaged_pvs(&self) -> MutexGuard<'_, UnmanagedPvs> {
        self.unmanaged_pvs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A kind that the operator watches: where its cache is, and what of it need not be kept.
pub trait Cached:
    Resource<DynamicType = ()>
    + Clone
    + std::fmt::Debug
    + serde::Serialize
    + serde::de::DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Kept as JSON: for kinds of which there are many, each much larger than what it says.
    const PACKED: bool = false;
    fn cache(caches: &Caches) -> &Kind<Self>;
    /// The key in the cache. Every kind is cluster-scoped or watched in one namespace, unless it says otherwise here.
    fn key(metadata: &ObjectMeta) -> String {
        metadata.name.clone().unwrap_or_default()
    }
    /// Drops what no decision reads: a Node's status is most of its size and changes every few seconds.
    fn trim(&mut self) {
        self.meta_mut().managed_fields = None;
    }
}

macro_rules! cached {
    ($($kind:ty => $field:ident),* $(,)?) => {$(
        impl Cached for $kind {
            fn cache(caches: &Caches) -> &Kind<Self> {
                &caches.$field
            }
        }
    )*};
}
cached!(Volume => volumes, StorageClass => classes, NodeJob => jobs, NodeInventory => inventories, Lease => leases, LocalVolumeDiscoveryResult => results);

impl Cached for PersistentVolume {
    /// One is six kilobytes, with room for every kind of volume there is, and a large cluster has tens of thousands.
    const PACKED: bool = true;
    fn cache(caches: &Caches) -> &Kind<Self> {
        &caches.pvs
    }
}

impl Cached for Node {
    fn cache(caches: &Caches) -> &Kind<Self> {
        &caches.nodes
    }
    fn trim(&mut self) {
        self.metadata.managed_fields = None;
        self.status = None;
    }
}

/// Kinds that are watched in all namespaces.
macro_rules! cached_by_namespace {
    ($($kind:ty => $field:ident),* $(,)?) => {$(
        impl Cached for $kind {
            fn cache(caches: &Caches) -> &Kind<Self> {
                &caches.$field
            }
            fn key(metadata: &ObjectMeta) -> String {
                format!("{}/{}", metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
            }
        }
    )*};
}
cached_by_namespace!(LocalVolumeDiscovery => discoveries, LocalVolumeSet => sets, LocalVolume => local_volumes);
