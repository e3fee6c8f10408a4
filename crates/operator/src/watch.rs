//! Keeps the caches current: one watch per kind, whose events also enqueue keys.

use crate::{
    Context,
    cache::Cached,
    trigger::{Enqueue, Watched},
};
use futures::{StreamExt, TryStreamExt};
use kube::{
    Resource,
    core::DeserializeGuard,
    runtime::{WatchStreamExt, watcher},
};
use std::{collections::HashSet, sync::Arc};
use tokio::sync::watch;

/// Runs for ever; `synced` turns true after the first whole list.
pub async fn follow<K: Cached>(
    watched: Arc<Watched<K>>,
    context: Context,
    enqueue: Enqueue,
    synced: watch::Sender<bool>,
) {
    let mut listed: HashSet<String> = HashSet::new();
    let mut config = watcher::Config::default().any_semantic();
    if let Some((label, value)) = K::SELECTOR {
        config = config.labels(&format!("{label}={value}"));
    }
    let api = K::api(context.client.clone(), &context.namespace);
    let mut events = watcher(api, config).default_backoff().boxed();
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), %error, "failed to watch, retrying");
                continue;
            }
        };
        match event {
            watcher::Event::Init => listed.clear(),
            // Ingested one by one: a list of everything beside the cache would be the largest thing in memory.
            watcher::Event::InitApply(object) => {
                if let Some(object) = readable(object) {
                    listed.insert(K::key(object.meta()));
                    ingest(&watched, &context, object, &enqueue);
                }
            }
            watcher::Event::InitDone => {
                forget_others(&watched, &context, &std::mem::take(&mut listed), &enqueue);
                synced.send_replace(true);
            }
            watcher::Event::Apply(object) => {
                if let Some(object) = readable(object) {
                    ingest(&watched, &context, object, &enqueue);
                }
            }
            watcher::Event::Delete(object) => {
                forget(&watched, &context, &K::key(object.meta()), &enqueue);
            }
        }
    }
}

/// An object that does not parse is reported and skipped: it must not stop the others.
fn readable<K: Cached>(object: DeserializeGuard<K>) -> Option<K> {
    match object.0 {
        Ok(mut object) => {
            object.trim();
            Some(object)
        }
        Err(invalid) => {
            let name = invalid.metadata.name.as_deref().unwrap_or_default();
            tracing::error!(
                kind = %K::kind(&()), name, error = %invalid,
                "skipped an object that cannot be read; correct or delete it"
            );
            None
        }
    }
}

pub fn ingest<K: Cached>(watched: &Watched<K>, context: &Context, object: K, enqueue: &Enqueue) {
    let object = Arc::new(object);
    let before = context.caches.store::<K>().put(Arc::clone(&object));
    // What changed between two lists counts as a change: an event may have been lost in between.
    watched.notify(before.as_deref(), Some(&object), &context.caches, enqueue);
}

/// A whole list: what is not in it is gone.
pub fn ingest_list<K: Cached>(
    watched: &Watched<K>,
    context: &Context,
    objects: Vec<DeserializeGuard<K>>,
    enqueue: &Enqueue,
) {
    let mut listed = HashSet::new();
    for object in objects.into_iter().filter_map(readable) {
        listed.insert(K::key(object.meta()));
        ingest(watched, context, object, enqueue);
    }
    forget_others(watched, context, &listed, enqueue);
}

/// The object of this key is gone.
pub fn forget<K: Cached>(watched: &Watched<K>, context: &Context, key: &str, enqueue: &Enqueue) {
    if let Some(gone) = context.caches.store::<K>().remove(key) {
        watched.notify(Some(&gone), None, &context.caches, enqueue);
    }
}

fn forget_others<K: Cached>(
    watched: &Watched<K>,
    context: &Context,
    listed: &HashSet<String>,
    enqueue: &Enqueue,
) {
    for key in context.caches.store::<K>().keys().iter().filter(|key| !listed.contains(*key)) {
        forget(watched, context, key, enqueue);
    }
}
