//! What the operator has seen: one map for each kind, fed by watches (or, in the simulator, by hand).
//!
//! A cache may be stale; every write carries a resourceVersion and every name is deterministic, so a stale
//! read costs a conflict, never a wrong act.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use kube::{Resource, ResourceExt};
use quarry_api::{NodeInventory, NodeJob, Volume};
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

/// The objects of one kind, by name. Every kind here is cluster-scoped or watched in one namespace.
#[derive(Debug)]
pub struct Kind<K> {
    objects: RwLock<BTreeMap<String, Arc<K>>>,
}

impl<K> Default for Kind<K> {
    fn default() -> Self {
        Kind { objects: RwLock::default() }
    }
}

impl<K: Resource<DynamicType = ()>> Kind<K> {
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub fn all(&self) -> Vec<Arc<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The object that it replaces.
    pub fn put(&self, object: K) -> Option<Arc<K>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(object.name_any(), Arc::new(object))
    }

    pub fn remove(&self, name: &str) -> Option<Arc<K>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    /// The whole truth after a list: what is not in it is gone. Returns what went.
    pub fn replace(&self, objects: Vec<K>) -> Vec<Arc<K>> {
        let fresh: BTreeMap<String, Arc<K>> = objects.into_iter().map(|object| (object.name_any(), Arc::new(object))).collect();
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
}

/// A kind that the operator watches: where its cache is, and what of it need not be kept.
pub trait Cached: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static {
    fn cache(caches: &Caches) -> &Kind<Self>;
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
cached!(Volume => volumes, PersistentVolume => pvs, StorageClass => classes, NodeJob => jobs, NodeInventory => inventories, Lease => leases);

impl Cached for Node {
    fn cache(caches: &Caches) -> &Kind<Self> {
        &caches.nodes
    }
    fn trim(&mut self) {
        self.metadata.managed_fields = None;
        self.status = None;
    }
}
