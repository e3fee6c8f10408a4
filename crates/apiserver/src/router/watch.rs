//! Owns watch streams: one line of JSON per event, sent as soon as it is durable. A stream waits
//! for the committer's progress; it never polls. Its timers are tokio's, so that a simulation
//! controls them.

use super::accept::Form;
use super::query::WatchOptions;
use super::render::whole;
use super::{ApiBody, respond};
use crate::commit::Progress;
use crate::engine::{ListOptions, Request as Call, Stored, WatchEvent, WatchEventKind, Watching};
use crate::present::{Include, partial, table};
use crate::server::Inner;
use crate::status::ApiError;
use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

/// Duration of a watch when the client sets no timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);
/// How often an idle watch gets a bookmark.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

struct Stream {
    inner: Arc<Inner>,
    watching: Watching,
    resource: usize,
    form: Form,
    include: Include,
    bookmarks: bool,
    progress: Receiver<Progress>,
    ends: Instant,
    next_bookmark: Instant,
    /// Only the first event has the table header.
    header_sent: bool,
    ended: bool,
    first: Option<Vec<u8>>,
}

pub async fn start(
    inner: Arc<Inner>,
    call: Call,
    list: ListOptions,
    options: WatchOptions,
    form: Form,
    include: Include,
) -> Result<Response<ApiBody>, ApiError> {
    let resource = call.resource;
    let progress = inner.committer.progress();
    let (initial, watching, pending) = {
        let mut engine = inner.committer.engine();
        let (initial, watching) =
            engine.watch(call, ListOptions { limit: 0, ..list }, options.from)?;
        // The start of the watch, including a bookmark's version, must be durable.
        let pending = inner.committer.enqueue(&mut engine);
        (initial, watching, pending)
    };
    inner.committer.wait(pending).await?;
    let now = Instant::now();
    let timeout = options.timeout_seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let mut stream = Stream {
        inner,
        watching,
        resource,
        form,
        include,
        bookmarks: options.bookmarks,
        progress,
        ends: now + timeout,
        next_bookmark: now + BOOKMARK_INTERVAL,
        header_sent: false,
        ended: false,
        first: None,
    };
    let mut first = stream.render(&initial);
    if options.initial_events && options.bookmarks {
        stream.bookmark(&mut first, true);
    }
    stream.first = Some(first);
    let frames = futures::stream::unfold(stream, |mut stream| async move {
        let chunk = stream.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(chunk))), stream))
    });
    Ok(respond(200, "application/json", StreamBody::new(frames).boxed_unsync()))
}

impl Stream {
    /// The next lines; `None` at the end.
    async fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            return Some(first);
        }
        loop {
            if self.ended {
                return None;
            }
            let durable = self.progress.borrow_and_update().version;
            let upto = durable.max(self.watching.cursor);
            let events = self.inner.committer.engine().events(&mut self.watching, upto);
            match events {
                Err(expired) => {
                    self.ended = true;
                    return Some(line("ERROR", &expired.to_value().to_string().into()));
                }
                Ok(events) if !events.is_empty() => return Some(self.render(&events)),
                Ok(_) => {}
            }
            tokio::select! {
                biased;
                changed = self.progress.changed() => {
                    if changed.is_err() {
                        return None;
                    }
                }
                () = sleep_until(self.ends) => {
                    self.ended = true;
                    let mut last = Vec::new();
                    if self.bookmarks {
                        self.bookmark(&mut last, false);
                        return Some(last);
                    }
                    return None;
                }
                () = sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
                    let mut lines = Vec::new();
                    self.bookmark(&mut lines, false);
                    return Some(lines);
                }
            }
        }
    }

    fn render(&mut self, events: &[WatchEvent]) -> Vec<u8> {
        let mut lines = Vec::new();
        for event in events {
            let kind = match event.kind {
                WatchEventKind::Added => "ADDED",
                WatchEventKind::Modified => "MODIFIED",
                WatchEventKind::Deleted => "DELETED",
            };
            let object = self.shape(&event.object);
            lines.extend(line(kind, &object));
        }
        lines
    }

    fn shape(&mut self, stored: &Stored) -> Bytes {
        let registry = self.inner.registry.clone();
        let resource = registry.get(self.resource);
        match self.form {
            Form::Whole | Form::Discovery(_) => whole(resource, stored),
            Form::Partial => partial(&stored.value).to_string().into(),
            Form::Table => {
                let header = !std::mem::replace(&mut self.header_sent, true);
                let metadata = json!({"resourceVersion": stored.metadata()["resourceVersion"]});
                let now = (self.inner.clock)();
                let rows = [&stored.value].into_iter();
                table(resource, rows, metadata, self.include, header, now).to_string().into()
            }
        }
    }

    fn bookmark(&mut self, lines: &mut Vec<u8>, initial_end: bool) {
        let registry = self.inner.registry.clone();
        let resource = registry.get(self.resource);
        let mut metadata = json!({"resourceVersion": self.watching.cursor.to_string(), "creationTimestamp": Value::Null});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.form {
            Form::Table => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": metadata["resourceVersion"]},
                "columnDefinitions": Value::Null,
                "rows": [{"cells": [], "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                }}],
            }),
            Form::Partial => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Form::Whole | Form::Discovery(_) => {
                json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata})
            }
        };
        lines.extend(line("BOOKMARK", &object.to_string().into()));
    }
}

fn line(kind: &str, object: &Bytes) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + 40);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out
}
