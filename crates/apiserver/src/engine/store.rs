//! Owns the objects in memory, the version counter, the bounded log of changes and the indexes by
//! uid and owner. Every change goes through `put` or `remove`. Never validates, never does I/O.

use bytes::Bytes;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Maximum number of changes in the log, for watches that resume.
const LOG_MAX_ENTRIES: usize = 8192;
/// Maximum size of the log in bytes of JSON: one NodeInventory may have half a megabyte.
const LOG_MAX_BYTES: usize = 64 << 20;

/// A stored object: parsed, and as the JSON that is written to disk and sent to clients.
#[derive(Debug)]
pub struct Stored {
    pub value: Value,
    pub json: Bytes,
}

impl Stored {
    pub fn new(value: Value) -> Arc<Self> {
        let json = Bytes::from(value.to_string());
        Arc::new(Self { value, json })
    }

    pub fn metadata(&self) -> &Value {
        &self.value["metadata"]
    }
}

/// `namespace/name`, or `name` for cluster-scoped objects; lists use this order.
pub type Key = String;

pub fn key(namespace: &str, name: &str) -> Key {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// One change in the log.
#[derive(Clone, Debug)]
pub struct Entry {
    pub version: u64,
    pub bucket: usize,
    pub key: Key,
    pub before: Option<Arc<Stored>>,
    /// `None`: the object was removed; `shown` has its last state.
    pub after: Option<Arc<Stored>>,
    /// The object as watchers receive it.
    pub shown: Arc<Stored>,
}

/// One change as a backend writes it.
#[derive(Clone, Debug)]
pub struct Change {
    pub bucket: String,
    pub key: Key,
    pub value: Option<Bytes>,
}

#[derive(Debug)]
pub struct Store {
    names: Vec<String>,
    buckets: Vec<BTreeMap<Key, Arc<Stored>>>,
    /// The last version assigned, including versions of changes that were rolled back.
    last_version: u64,
    log: VecDeque<Entry>,
    log_bytes: usize,
    /// The log holds every change after this version.
    compacted: u64,
    by_uid: HashMap<String, (usize, Key)>,
    by_owner: HashMap<String, BTreeSet<(usize, Key)>>,
    pending: Vec<Change>,
}

impl Store {
    pub fn new(names: &[String], version: u64) -> Self {
        Self {
            names: names.to_vec(),
            buckets: names.iter().map(|_| BTreeMap::new()).collect(),
            last_version: version,
            log: VecDeque::new(),
            log_bytes: 0,
            compacted: version,
            by_uid: HashMap::new(),
            by_owner: HashMap::new(),
            pending: Vec::new(),
        }
    }

    /// Adds an object from disk; `false` when its bucket is not served.
    pub fn load(&mut self, bucket: &str, key: &str, value: Value) -> bool {
        let Some(bucket) = self.names.iter().position(|name| name == bucket) else { return false };
        let stored = Stored::new(value);
        self.index(bucket, key, None, Some(&stored));
        self.buckets[bucket].insert(key.to_owned(), stored);
        true
    }

    /// The version of the newest change that was not rolled back.
    pub fn version(&self) -> u64 {
        self.log.back().map_or(self.compacted, |entry| entry.version)
    }

    pub fn compacted(&self) -> u64 {
        self.compacted
    }

    pub fn get(&self, bucket: usize, key: &str) -> Option<&Arc<Stored>> {
        self.buckets[bucket].get(key)
    }

    pub fn bucket(&self, bucket: usize) -> &BTreeMap<Key, Arc<Stored>> {
        &self.buckets[bucket]
    }

    pub fn find_uid(&self, uid: &str) -> Option<&(usize, Key)> {
        self.by_uid.get(uid)
    }

    pub fn dependents(&self, uid: &str) -> Vec<(usize, Key)> {
        self.by_owner.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Stores an object under the next version and returns it as stored.
    pub fn put(&mut self, bucket: usize, key: &str, mut value: Value) -> Arc<Stored> {
        self.last_version += 1;
        value["metadata"]["resourceVersion"] = self.last_version.to_string().into();
        let stored = Stored::new(value);
        let before = self.buckets[bucket].insert(key.to_owned(), stored.clone());
        self.index(bucket, key, before.as_ref(), Some(&stored));
        self.record(bucket, key, before, Some(stored.clone()), stored.clone());
        stored
    }

    /// Removes an object; watchers receive `last` under the next version.
    pub fn remove(&mut self, bucket: usize, key: &str, last: &Value) {
        let Some(before) = self.buckets[bucket].remove(key) else { return };
        self.last_version += 1;
        let mut last = last.clone();
        last["metadata"]["resourceVersion"] = self.last_version.to_string().into();
        self.index(bucket, key, Some(&before), None);
        self.record(bucket, key, Some(before), None, Stored::new(last));
    }

    fn record(
        &mut self,
        bucket: usize,
        key: &str,
        before: Option<Arc<Stored>>,
        after: Option<Arc<Stored>>,
        shown: Arc<Stored>,
    ) {
        let value = after.as_ref().map(|after| after.json.clone());
        self.pending.push(Change {
            bucket: self.names[bucket].clone(),
            key: key.to_owned(),
            value,
        });
        self.log_bytes += shown.json.len();
        self.log.push_back(Entry {
            version: self.last_version,
            bucket,
            key: key.to_owned(),
            before,
            after,
            shown,
        });
        // The newest change always stays: a watcher that is up to date must never get "too old
        // resource version".
        while self.log.len() > 1
            && (self.log.len() > LOG_MAX_ENTRIES || self.log_bytes > LOG_MAX_BYTES)
        {
            if let Some(dropped) = self.log.pop_front() {
                self.log_bytes -= dropped.shown.json.len();
                self.compacted = dropped.version;
            }
        }
    }

    fn index(
        &mut self,
        bucket: usize,
        key: &str,
        before: Option<&Arc<Stored>>,
        after: Option<&Arc<Stored>>,
    ) {
        let at = (bucket, key.to_owned());
        if let Some(before) = before {
            if let Some(uid) = before.metadata()["uid"].as_str() {
                self.by_uid.remove(uid);
            }
            for owner in owner_uids(&before.value) {
                if let Some(set) = self.by_owner.get_mut(owner) {
                    set.remove(&at);
                    if set.is_empty() {
                        self.by_owner.remove(owner);
                    }
                }
            }
        }
        if let Some(after) = after {
            if let Some(uid) = after.metadata()["uid"].as_str() {
                self.by_uid.insert(uid.to_owned(), at.clone());
            }
            for owner in owner_uids(&after.value) {
                self.by_owner.entry(owner.to_owned()).or_default().insert(at.clone());
            }
        }
    }

    /// The changes since the last call, for the backend.
    pub fn take_pending(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.pending)
    }

    /// The log after a version, up to another. The caller has checked that the range is not
    /// compacted.
    pub fn log_between(&self, after: u64, upto: u64) -> impl Iterator<Item = &Entry> {
        let start = self.log.partition_point(|entry| entry.version <= after);
        self.log.range(start..).take_while(move |entry| entry.version <= upto)
    }

    /// A bucket at an earlier version.
    pub fn bucket_at(&self, bucket: usize, version: u64) -> BTreeMap<Key, Arc<Stored>> {
        let mut objects = self.buckets[bucket].clone();
        let later = self.log.partition_point(|entry| entry.version <= version);
        for entry in self.log.range(later..).rev().filter(|entry| entry.bucket == bucket) {
            match &entry.before {
                Some(before) => objects.insert(entry.key.clone(), before.clone()),
                None => objects.remove(&entry.key),
            };
        }
        objects
    }

    /// Rolls back every change after a version, because the disk refused it. Versions are not
    /// reused.
    pub fn roll_back(&mut self, version: u64) {
        while self.log.back().is_some_and(|entry| entry.version > version) {
            let Some(entry) = self.log.pop_back() else { break };
            self.log_bytes -= entry.shown.json.len();
            self.index(entry.bucket, &entry.key, entry.after.as_ref(), entry.before.as_ref());
            match entry.before {
                Some(before) => self.buckets[entry.bucket].insert(entry.key, before),
                None => self.buckets[entry.bucket].remove(&entry.key),
            };
        }
        self.pending.clear();
    }
}

pub fn owner_uids(value: &Value) -> impl Iterator<Item = &str> {
    let owners =
        value["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    owners.iter().filter_map(|owner| owner["uid"].as_str())
}
