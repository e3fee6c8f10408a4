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
use quarry_api::{LocalVolume, LocalVolumeDiscovery, LocalVolumeDiscoveryResult, LocalVolumeSet, NodeInventory, NodeJob, Volume};
use quarry_core::{foreign_pv::ForeignPvs, quarantine::Identities};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

/// The objects of one kind, by key: the name, unless the kind says otherwise.
#[derive(Debug)]
pub struct Kind<K> {
    objects: RwLock<BTreeMap<String, Arc<K>>>,
}

impl<K> Default for Kind<K> {
    fn default() -> Self {
        Kind { objects: RwLock::default() }
    }
}

impl<K: Cached> Kind<K> {
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub fn all(&self) -> Vec<Arc<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The object that it replaces.
    pub fn put(&self, object: K) -> Option<Arc<K>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(K::key(object.meta()), Arc::new(object))
    }

    pub fn remove(&self, key: &str) -> Option<Arc<K>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    /// The whole truth after a list: what is not in it is gone. Returns what went.
    pub fn replace(&self, objects: Vec<K>) -> Vec<Arc<K>> {
        let fresh: BTreeMap<String, Arc<K>> = objects.into_iter().map(|object| (K::key(object.meta()), Arc::new(object))).collect();
        let mut held = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let gone = held.iter().filter(|(name, _)| !fresh.contains_key(*name)).map(|(_, object)| object.clone()).collect();
        *held = fresh;
        gone
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
    foreign_pvs: Mutex<ForeignPvs>,
}

impl Caches {
    pub fn identities(&self) -> MutexGuard<'_, Identities> {
        self.identities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn foreign_pvs(&self) -> MutexGuard<'_, ForeignPvs> {
        self.foreign_pvs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A kind that the operator watches: where its cache is, and what of it need not be kept.
pub trait Cached: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static {
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
cached!(Volume => volumes, PersistentVolume => pvs, StorageClass => classes, NodeJob => jobs, NodeInventory => inventories, Lease => leases, LocalVolumeDiscoveryResult => results);

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
