//! Which keys a change of an object enqueues. Pure, so that the simulator enqueues the same keys.
//!
//! A controller registers one function per kind beside its other code (`<controller>/triggers.rs`). The kinds that
//! any enabled controller registered are the kinds that are watched and cached.

use crate::{
    Context,
    cache::{Cached, Caches},
    watch,
};
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use serde_json::Value;
use std::{any::Any, collections::BTreeMap, sync::Arc};

/// A unit of work: one object of one controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub controller: &'static str,
    pub name: String,
}

pub type Enqueue = Arc<dyn Fn(Key) + Send + Sync>;

/// An object before and after.
pub struct Change<'a, K> {
    pub before: Option<&'a K>,
    pub after: Option<&'a K>,
    /// Nodes that the change concerns through an index, besides its own (`Cached::reindex`).
    pub concerned_nodes: &'a [String],
}

impl<'a, K> Change<'a, K> {
    /// The newest state that is known.
    pub fn object(&self) -> &'a K {
        self.after.or(self.before).expect("a change has an object before or after it")
    }

    /// Whether `part` of the object differs; coming and going counts.
    pub fn differs<T: PartialEq>(&self, part: impl Fn(&K) -> T) -> bool {
        self.before.map(&part) != self.after.map(&part)
    }
}

/// Enqueues the keys of one controller that this change concerns.
pub type Trigger<K> = fn(&Change<'_, K>, &Caches, &mut dyn FnMut(String));

/// Collects the triggers of one controller.
pub struct Triggers<'a> {
    controller: &'static str,
    kinds: &'a mut BTreeMap<&'static str, Box<dyn Collected>>,
}

impl Triggers<'_> {
    /// Watches the kind.
    pub fn on<K: Cached>(&mut self, trigger: Trigger<K>) -> &mut Self {
        self.watched::<K>().required = true;
        self.also_on(trigger)
    }

    /// Only where another controller watches the kind: its CRD may be absent otherwise.
    pub fn also_on<K: Cached>(&mut self, trigger: Trigger<K>) -> &mut Self {
        let controller = self.controller;
        self.watched::<K>().triggers.push((controller, trigger));
        self
    }

    /// Watches the kind to read it from the cache; its changes enqueue nothing.
    pub fn read<K: Cached>(&mut self) -> &mut Self {
        self.watched::<K>().required = true;
        self
    }

    fn watched<K: Cached>(&mut self) -> &mut Watched<K> {
        let kind = std::any::type_name::<K>();
        let entry = self.kinds.entry(kind).or_insert_with(|| Box::new(Watched::<K>::default()));
        entry.as_any().downcast_mut().expect("the entry of a type's name is of that type")
    }
}

/// All watched kinds of these controllers, each with every trigger on it.
pub(crate) fn collect(
    controllers: impl IntoIterator<Item = (&'static str, fn(&mut Triggers<'_>))>,
) -> Vec<Arc<dyn WatchedKind>> {
    let mut kinds = BTreeMap::new();
    for (controller, register) in controllers {
        register(&mut Triggers { controller, kinds: &mut kinds });
    }
    kinds.into_values().filter_map(|kind: Box<dyn Collected>| kind.finish()).collect()
}

trait Collected {
    fn as_any(&mut self) -> &mut dyn Any;
    /// `None`: no controller needs it to be watched.
    fn finish(self: Box<Self>) -> Option<Arc<dyn WatchedKind>>;
}

impl<K: Cached> Collected for Watched<K> {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn finish(self: Box<Self>) -> Option<Arc<dyn WatchedKind>> {
        self.required.then(|| Arc::new(*self) as Arc<dyn WatchedKind>)
    }
}

/// A kind with its triggers, whatever its type.
pub trait WatchedKind: Send + Sync {
    /// The Kubernetes kind: `Volume`.
    fn kind(&self) -> String;
    /// API group and plural, as RBAC names them.
    fn resource(&self) -> (String, String);
    /// Keeps the cache current, for ever; `synced` turns true after the first list.
    fn watch(
        self: Arc<Self>,
        context: Context,
        enqueue: Enqueue,
        synced: tokio::sync::watch::Sender<bool>,
    ) -> BoxFuture<'static, ()>;
    /// One list, as the watch makes it; its resourceVersion.
    fn list(
        self: Arc<Self>,
        context: Context,
        enqueue: Enqueue,
    ) -> BoxFuture<'static, Result<u64, String>>;
    /// One event, as the watch makes it; `None`: the object of that name is gone.
    fn deliver(
        &self,
        context: &Context,
        metadata: &ObjectMeta,
        object: Option<&Value>,
        enqueue: &Enqueue,
    ) -> Result<(), String>;
}

pub struct Watched<K: Cached> {
    required: bool,
    triggers: Vec<(&'static str, Trigger<K>)>,
}

impl<K: Cached> Default for Watched<K> {
    fn default() -> Self {
        Watched { required: false, triggers: Vec::new() }
    }
}

impl<K: Cached> Watched<K> {
    /// Updates the indexes, then enqueues: a reconcile that starts at once must see what has changed.
    pub fn notify(
        &self,
        before: Option<&K>,
        after: Option<&K>,
        caches: &Caches,
        enqueue: &Enqueue,
    ) {
        let concerned = K::reindex(before, after, caches);
        let change = Change { before, after, concerned_nodes: &concerned };
        for (controller, trigger) in &self.triggers {
            trigger(&change, caches, &mut |name| enqueue(Key { controller, name }));
        }
    }
}

impl<K: Cached> WatchedKind for Watched<K> {
    fn kind(&self) -> String {
        K::kind(&()).into_owned()
    }

    fn resource(&self) -> (String, String) {
        (K::group(&()).into_owned(), K::plural(&()).into_owned())
    }

    fn watch(
        self: Arc<Self>,
        context: Context,
        enqueue: Enqueue,
        synced: tokio::sync::watch::Sender<bool>,
    ) -> BoxFuture<'static, ()> {
        Box::pin(watch::follow(self, context, enqueue, synced))
    }

    fn list(
        self: Arc<Self>,
        context: Context,
        enqueue: Enqueue,
    ) -> BoxFuture<'static, Result<u64, String>> {
        Box::pin(async move {
            let api = K::api(context.client.clone(), &context.namespace);
            let mut all = ListParams::default();
            if let Some((label, value)) = K::SELECTOR {
                all = all.labels(&format!("{label}={value}"));
            }
            let list = api.list(&all).await.map_err(|error| error.to_string())?;
            let version = list.metadata.resource_version.as_deref();
            let version = version.and_then(|text| text.parse().ok()).unwrap_or_default();
            watch::ingest_list(&self, &context, list.items, &enqueue);
            Ok(version)
        })
    }

    fn deliver(
        &self,
        context: &Context,
        metadata: &ObjectMeta,
        object: Option<&Value>,
        enqueue: &Enqueue,
    ) -> Result<(), String> {
        match object {
            Some(object) => {
                let mut object = K::deserialize(object).map_err(|error| error.to_string())?;
                object.trim();
                watch::ingest(self, context, object, enqueue);
            }
            None => watch::forget(self, context, &K::key(metadata), enqueue),
        }
        Ok(())
    }
}
