//! Owns watching: where a watch starts, and which events follow for its selectors. The server calls
//! `events` whenever a newer version is durable; nothing polls.

use super::read::{check_fields, matches, too_large};
use super::{Engine, ListOptions, Request, Stored};
use crate::status::ApiError;
use serde_json::json;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEventKind {
    Added,
    Modified,
    Deleted,
}

#[derive(Clone, Debug)]
pub struct WatchEvent {
    pub kind: WatchEventKind,
    pub object: Arc<Stored>,
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// Existing objects come first, as ADDED.
    Now,
    /// Changes after this version.
    After(u64),
}

/// A running watch: its filter and the last version it sent.
#[derive(Clone, Debug)]
pub struct Watching {
    request: Request,
    options: ListOptions,
    pub cursor: u64,
}

impl Engine {
    /// The first events of a watch, and its state.
    pub fn watch(
        &self,
        request: Request,
        options: ListOptions,
        from: WatchFrom,
    ) -> Result<(Vec<WatchEvent>, Watching), ApiError> {
        check_fields(self.resource(&request), &options.fields)?;
        let newest = self.store.version();
        let (events, cursor) = match from {
            WatchFrom::Now => {
                if options.at_least > newest {
                    return Err(too_large(options.at_least, newest));
                }
                let list = self.select(&request, &options)?;
                let added = |object| WatchEvent { kind: WatchEventKind::Added, object };
                (list.items.into_iter().map(added).collect(), newest)
            }
            WatchFrom::After(version) if version > newest => {
                return Err(too_large(version, newest));
            }
            WatchFrom::After(version) => (Vec::new(), version),
        };
        Ok((events, Watching { request, options, cursor }))
    }

    /// Events up to a durable version; advances the cursor to it.
    pub fn events(&self, watching: &mut Watching, upto: u64) -> Result<Vec<WatchEvent>, ApiError> {
        if watching.cursor < self.store.compacted() {
            let message = format!(
                "too old resource version: {} ({})",
                watching.cursor,
                self.store.compacted()
            );
            return Err(ApiError::expired(message));
        }
        let resource = self.resource(&watching.request);
        let prefix = match watching.request.namespace.as_str() {
            "" => String::new(),
            namespace => format!("{namespace}/"),
        };
        let wanted = |stored: &Option<Arc<Stored>>| {
            stored
                .as_ref()
                .is_some_and(|stored| matches(resource, &watching.options, &stored.value))
        };
        let mut events = Vec::new();
        for entry in self.store.log_between(watching.cursor, upto) {
            if entry.bucket != resource.bucket || !entry.key.starts_with(&prefix) {
                continue;
            }
            let (before, after) = (wanted(&entry.before), wanted(&entry.after));
            let event = match (before, after) {
                (false, true) => {
                    WatchEvent { kind: WatchEventKind::Added, object: entry.shown.clone() }
                }
                (true, true) => {
                    WatchEvent { kind: WatchEventKind::Modified, object: entry.shown.clone() }
                }
                // It no longer matches: the watcher gets DELETED with the last matching state,
                // under the version of this change.
                (true, false) => {
                    WatchEvent { kind: WatchEventKind::Deleted, object: leaving(entry) }
                }
                (false, false) => continue,
            };
            events.push(event);
        }
        watching.cursor = watching.cursor.max(upto);
        Ok(events)
    }
}

fn leaving(entry: &super::store::Entry) -> Arc<Stored> {
    match (&entry.after, &entry.before) {
        (Some(_), Some(before)) => {
            let mut value = before.value.clone();
            value["metadata"]["resourceVersion"] = json!(entry.version.to_string());
            Stored::new(value)
        }
        _ => entry.shown.clone(),
    }
}
