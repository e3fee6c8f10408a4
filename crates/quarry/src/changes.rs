//! What `--watch` follows: a whole list first, then every change. A lost connection is reported and opened again.

use crate::output;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use kube::{
    Api, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

pub struct Changes<
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
> {
    events: BoxStream<'static, Result<watcher::Event<K>, watcher::Error>>,
    /// The list arrives one by one, and is returned as a whole.
    listed: Vec<K>,
}

/// Objects that changed together.
pub struct Changed<K> {
    pub objects: Vec<K>,
    pub deleted: bool,
    /// All that exist: what is not among them is gone.
    pub is_list: bool,
}

impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static> Changes<K> {
    pub fn new(api: Api<K>) -> Self {
        Changes::configured(api, watcher::Config::default())
    }

    /// Only objects with these labels.
    pub fn labelled(api: Api<K>, selector: &str) -> Self {
        Changes::configured(api, watcher::Config::default().labels(selector))
    }

    fn configured(api: Api<K>, config: watcher::Config) -> Self {
        let events = watcher(api, config).default_backoff().boxed();
        Changes { events, listed: Vec::new() }
    }

    /// `None`: the watch has ended.
    pub async fn next(&mut self) -> Option<Changed<K>> {
        loop {
            let event = match self.events.try_next().await {
                Ok(event) => event?,
                Err(error) => {
                    output::note(&format!("lost the connection, retrying: {error}"));
                    continue;
                }
            };
            let is_list = matches!(event, watcher::Event::InitDone);
            let (objects, deleted) = match event {
                watcher::Event::Init => continue,
                watcher::Event::InitApply(object) => {
                    self.listed.push(object);
                    continue;
                }
                watcher::Event::InitDone => (std::mem::take(&mut self.listed), false),
                watcher::Event::Apply(object) => (vec![object], false),
                watcher::Event::Delete(object) => (vec![object], true),
            };
            return Some(Changed { objects, deleted, is_list });
        }
    }
}
