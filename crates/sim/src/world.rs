//! What the API holds, as an observer sees it who misses nothing: the truth that invariants are checked against.
//!
//! Also the past: every state of every object, so that a stale read has something to answer, and so that each
//! operator's watch can be as far behind as a fault wants it.

use crate::kind::Kind;
use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use quarry_apiserver::ApiService;
use serde_json::{Value, json};
use std::{collections::BTreeMap, convert::Infallible};
use tokio::time::Instant;
use tower::ServiceExt;

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    pub version: u64,
    pub seen: Instant,
    pub name: String,
    /// `None`: it was deleted.
    pub after: Option<Value>,
}

#[derive(Debug, Default)]
struct Followed {
    objects: BTreeMap<String, Value>,
    /// In the order of their versions.
    past: Vec<Change>,
}

#[derive(Debug, Default)]
pub struct World {
    kinds: BTreeMap<Kind, Followed>,
    /// No answer is older than this.
    floor: u64,
}

impl World {
    pub fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.kinds.get(&kind)?.objects.get(name)
    }

    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.kinds.get(&kind).into_iter().flat_map(|followed| followed.objects.values())
    }

    /// The first change of the kind after `version`.
    pub fn next_change(&self, kind: Kind, version: u64) -> Option<&Change> {
        let past = &self.kinds.get(&kind)?.past;
        past.get(past.partition_point(|change| change.version <= version))
    }

    /// The answer of a GET as it was before the last change; `None` when there was none.
    /// Inside: `None` means that it did not exist then.
    pub fn stale(&self, kind: Kind, name: &str) -> Option<Option<&Value>> {
        let past = &self.kinds.get(&kind)?.past;
        let mut states = past
            .iter()
            .rev()
            .filter(|change| change.name == name && change.version > self.floor)
            .map(|change| change.after.as_ref());
        states.next()?;
        let before = states.next();
        if self.floor > 0 { before } else { Some(before.unwrap_or(None)) }
    }

    /// What a list was made of before the last change of the kind.
    fn before_last(&self, kind: Kind) -> Option<&[Change]> {
        // These are listed by a label, which is not known here.
        if [Kind::Secret, Kind::OsdClaim, Kind::PrepareJob, Kind::Pod].contains(&kind)
            || [Kind::ConfigMap, Kind::Deployment].contains(&kind)
        {
            return None;
        }
        let (_, before) = self
            .kinds
            .get(&kind)?
            .past
            .split_last()
            .filter(|(last, _)| last.version > self.floor && self.floor == 0)?;
        Some(before)
    }

    /// Whether there is such an answer: asked for at every read, while hardly any of them gets it.
    pub fn has_stale(&self, kind: Kind, name: Option<&str>) -> bool {
        name.map_or_else(
            || self.before_last(kind).is_some(),
            |name| self.stale(kind, name).is_some(),
        )
    }

    /// The answer of a list as it was before the last change of the kind.
    pub fn stale_list(&self, kind: Kind) -> Option<Value> {
        let before = self.before_last(kind)?;
        let mut objects: BTreeMap<&str, &Value> = BTreeMap::new();
        for change in before {
            match &change.after {
                Some(after) => objects.insert(&change.name, after),
                None => objects.remove(change.name.as_str()),
            };
        }
        let version = before.last().map_or(1, |change| change.version);
        let items: Vec<&Value> = objects.into_values().collect();
        Some(
            json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string()}, "items": items}),
        )
    }

    /// The API was restored: it has forgotten what was before.
    pub fn forget_past(&mut self, version: u64) {
        self.floor = version;
    }

    pub fn take(&mut self, kind: Kind, event: &Value) {
        let object = &event["object"];
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let version = version_of(object);
        let after = match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => Some(object.clone()),
            Some("DELETED") => None,
            _ => return,
        };
        let followed = self.kinds.entry(kind).or_default();
        match &after {
            Some(object) => followed.objects.insert(name.clone(), object.clone()),
            None => followed.objects.remove(&name),
        };
        followed.past.push(Change { version, seen: Instant::now(), name, after });
    }
}

pub fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// The open watches that feed a `World`.
pub struct Observer {
    streams: Vec<(Kind, UnsyncBoxBody<Bytes, Infallible>, Vec<u8>)>,
}

impl Observer {
    /// Watches every kind from the beginning; the API must still be empty of them.
    pub async fn start(service: &ApiService, version: u64) -> Self {
        let mut streams = Vec::new();
        for &kind in Kind::ALL {
            let uri = format!(
                "{}?watch=1&resourceVersion={version}&timeoutSeconds=10000000",
                kind.path()
            );
            let mut request = Request::new(Full::<Bytes>::default());
            *request.uri_mut() = uri.parse().unwrap_or_default();
            let response = match service.clone().oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            streams.push((kind, response.into_body(), Vec::new()));
        }
        Observer { streams }
    }

    /// Takes in everything that happened since the last call. Never waits.
    pub fn observe(&mut self, world: &mut World) {
        for (kind, body, rest) in &mut self.streams {
            while let Some(Some(Ok(frame))) = body.frame().now_or_never() {
                if let Ok(data) = frame.into_data() {
                    rest.extend_from_slice(&data);
                }
            }
            let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            for line in rest[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                world.take(*kind, &serde_json::from_slice(line).unwrap_or_default());
            }
            rest.drain(..whole);
        }
    }
}
