//! Keeps the caches true: one watch for each kind, whose events also wake the controllers.

use crate::{
    Context,
    cache::Cached,
    route::{Change, Route},
};
use futures::{StreamExt, TryStreamExt};
use kube::{
    Api, Resource,
    core::DeserializeGuard,
    runtime::{WatchStreamExt, watcher},
};
use std::{collections::HashSet, sync::Arc};
use tokio::sync::watch;

/// Runs for ever; `synced` turns true after the first whole list.
pub async fn follow<K: Cached + Routed>(
    context: Context,
    api: Api<DeserializeGuard<K>>,
    enqueue: impl Fn(Route) + Send + Sync,
    synced: watch::Sender<bool>,
) {
    let mut listed: HashSet<String> = HashSet::new();
    let config = watcher::Config::default().any_semantic();
    let mut events = watcher(api, config).default_backoff().boxed();
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), %error, "watching failed, trying again");
                continue;
            }
        };
        match event {
            watcher::Event::Init => listed.clear(),
            // Taken one by one: a list of everything beside the cache would be the largest thing in memory.
            watcher::Event::InitApply(object) => {
                if let Some(object) = readable(object) {
                    listed.insert(K::key(object.meta()));
                    ingest(&context, object, &enqueue);
                }
            }
            watcher::Event::InitDone => {
                forget_others::<K>(&context, &std::mem::take(&mut listed), &enqueue);
                synced.send_replace(true);
            }
            watcher::Event::Apply(object) => {
                if let Some(object) = readable(object) {
                    ingest(&context, object, &enqueue);
                }
            }
            watcher::Event::Delete(object) => {
                if let Some(gone) = K::cache(&context.caches).remove(&K::key(object.meta())) {
                    K::route(
                        &Change { before: Some(gone.as_ref()), after: None },
                        &context.caches,
                        &enqueue,
                    );
                }
            }
        }
    }
}

/// An object that does not parse is reported and passed over: it must not stop the others.
fn readable<K: Cached>(object: DeserializeGuard<K>) -> Option<K> {
    match object.0 {
        Ok(mut object) => {
            object.trim();
            Some(object)
        }
        Err(invalid) => {
            tracing::error!(kind = %K::kind(&()), name = invalid.metadata.name.as_deref().unwrap_or_default(), error = %invalid, "an object cannot be read and is passed over: correct or delete it");
            None
        }
    }
}

pub fn ingest<K: Cached + Routed>(context: &Context, object: K, enqueue: &impl Fn(Route)) {
    let object = Arc::new(object);
    let before = K::cache(&context.caches).put(Arc::clone(&object));
    // What changed between two lists counts as a change: an event may have been lost in between.
    K::route(&Change { before: before.as_deref(), after: Some(&object) }, &context.caches, enqueue);
}

/// A whole list: what is not in it is gone, and everybody concerned is woken.
pub fn ingest_list<K: Cached + Routed>(
    context: &Context,
    objects: Vec<K>,
    enqueue: &impl Fn(Route),
) {
    let listed = objects.iter().map(|object| K::key(object.meta())).collect();
    for object in objects {
        ingest(context, object, enqueue);
    }
    forget_others::<K>(context, &listed, enqueue);
}

fn forget_others<K: Cached + Routed>(
    context: &Context,
    listed: &HashSet<String>,
    enqueue: &impl Fn(Route),
) {
    let cache = K::cache(&context.caches);
    for gone in
        cache.keys().iter().filter(|key| !listed.contains(*key)).filter_map(|key| cache.remove(key))
    {
        K::route(&Change { before: Some(gone.as_ref()), after: None }, &context.caches, enqueue);
    }
}

pub use crate::route::Routed;
