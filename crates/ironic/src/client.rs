//! The client: which questions can be put to Ironic, and how a [`Call`] is made.
//!
//! Negotiates the API version once, adds it to every request, and gives every failure its meaning.
//! Never retries (one exception: a version that is no longer accepted) and remembers nothing but the
//! version: what to do after a failure is the planner's decision.
//! Next to read: `error.rs`, `http.rs`, `reload.rs`.

use crate::call::Call;
use crate::config::{Config, ConfigError};
use crate::error::{Error, Meaning};
use crate::http::HttpTransport;
use crate::inventory::{Inventory, InventoryResponse};
use crate::node::{HistoryEntry, Node, Port, Validation};
use crate::transport::{Microversion, Request, Response, Transport, encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// The oldest API version with everything that is used: inventories, firmware interfaces, and
/// attaching of virtual media.
pub const MIN_VERSION: Microversion = Microversion::new(1, 89);
/// The newest API version that the client was written for; a newer Ironic offers it too.
pub const MAX_VERSION: Microversion = Microversion::new(1, 109);

/// A client for one Ironic. Clones share the connections and the negotiated version.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    version: Arc<Mutex<Option<Microversion>>>,
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum Performed {
    /// The node was created or updated. It may show the lock (`reservation`) of this very request.
    Node(Box<Node>),
    /// The port was created.
    Port(Port),
    /// Accepted; the node shows the progress.
    Accepted,
}

impl Client {
    /// Connects on the first request.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        Ok(Self::with_transport(Arc::new(HttpTransport::new(config)?)))
    }

    pub fn with_transport(transport: Arc<dyn Transport>) -> Self {
        Self { transport, version: Arc::default() }
    }

    #[cfg(test)]
    pub(crate) fn transport(&self) -> &Arc<dyn Transport> {
        &self.transport
    }

    /// The API version that is used, negotiated at the first call.
    pub async fn version(&self) -> Result<Microversion, Error> {
        if let Some(version) = *self.version.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(version);
        }
        self.negotiate().await
    }

    async fn negotiate(&self) -> Result<Microversion, Error> {
        const ATTEMPT: &str = "read the API versions of Ironic";
        let response = self.exchange(ATTEMPT, Request::get("/v1")).await?;
        let version = choose_version(ATTEMPT, &parse(ATTEMPT, &response)?)?;
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(version);
        Ok(version)
    }

    /// One request, one response with a status of success.
    async fn exchange(&self, attempt: &str, request: Request) -> Result<Response, Error> {
        let secrets = request.secrets();
        let (method, path) = (request.method.as_str(), request.path.clone());
        let result = self.transport.send(request).await;
        let result = result.map_err(|error| Error::from_transport(attempt, &error, &secrets));
        let result = result.and_then(|response| match response.status {
            200..=299 => Ok(response),
            _ => Err(Error::from_response(attempt, &response, &secrets)),
        });
        match &result {
            Ok(response) => tracing::debug!(method, path, status = response.status, "sent"),
            Err(error) => {
                let meaning = error.meaning.as_str();
                tracing::debug!(method, path, meaning, message = error.message, "failed to send");
            }
        }
        result
    }

    async fn send(&self, attempt: &str, mut request: Request) -> Result<Response, Error> {
        let version = self.version().await?;
        request.version = Some(version);
        match self.exchange(attempt, request.clone()).await {
            // Ironic was replaced by another version since. It refuses before it does anything.
            Err(error) if error.meaning == Meaning::Unsupported => {
                let newer = self.negotiate().await?;
                if newer == version {
                    return Err(error);
                }
                request.version = Some(newer);
                self.exchange(attempt, request).await
            }
            result => result,
        }
    }

    async fn get<T: DeserializeOwned>(&self, attempt: &str, path: String) -> Result<T, Error> {
        parse(attempt, &self.send(attempt, Request::get(path)).await?)
    }

    /// Every item of a collection. Ironic ends a page with a link to the next one, which is not
    /// followed: its host may not be the one that we reach Ironic by, and it loses filters (after
    /// the ports of one node it continues with those of all). Only the position is used.
    async fn list<T: DeserializeOwned>(
        &self,
        attempt: &str,
        path: &str,
        key: &str,
    ) -> Result<Vec<T>, Error> {
        let malformed = |cause: &str| Error::malformed(attempt, cause);
        let mut items = Vec::new();
        let mut marker: Option<String> = None;
        loop {
            let join = if path.contains('?') { '&' } else { '?' };
            let from = marker.as_deref().map(|uuid| format!("{join}marker={}", encode(uuid)));
            let mut page: Value =
                self.get(attempt, format!("{path}{}", from.unwrap_or_default())).await?;
            let Value::Array(values) = page[key].take() else {
                return Err(malformed(&format!("no list {key:?}")));
            };
            let last = values.last().and_then(|item| item["uuid"].as_str()).map(str::to_owned);
            for value in values {
                let uuid = value["uuid"].as_str().unwrap_or("without a UUID").to_owned();
                let item = serde_json::from_value(value);
                items.push(item.map_err(|error| malformed(&format!("{key}, {uuid}: {error}")))?);
            }
            if page["next"].is_null() {
                return Ok(items);
            }
            if last.is_none() || last == marker {
                return Err(malformed("a page with a next page ends without a new item"));
            }
            marker = last;
        }
    }

    /// Names of the drivers that a running conductor offers. Empty: Ironic is not ready.
    pub async fn drivers(&self) -> Result<Vec<String>, Error> {
        let attempt = "list the drivers of Ironic";
        let found: Value = self.get(attempt, "/v1/drivers".to_owned()).await?;
        let drivers = found["drivers"].as_array();
        let drivers = drivers.ok_or_else(|| Error::malformed(attempt, "no list \"drivers\""))?;
        Ok(drivers.iter().filter_map(|one| one["name"].as_str()).map(str::to_owned).collect())
    }

    /// All nodes, in one request per page (1,000 by Ironic's default).
    pub async fn nodes(&self) -> Result<Vec<Node>, Error> {
        let attempt = "list the nodes of Ironic";
        let fields = Node::fields(self.version().await?);
        self.list(attempt, &format!("/v1/nodes?fields={fields}"), "nodes").await
    }

    /// One node by UUID or name. None: Ironic says that it does not exist.
    pub async fn node(&self, id: &str) -> Result<Option<Node>, Error> {
        let attempt = format!("read node {id}");
        let fields = Node::fields(self.version().await?);
        found(self.get(&attempt, format!("/v1/nodes/{}?fields={fields}", encode(id))).await)
    }

    /// The ports of a node. By UUID only: Ironic does not find them by the node's name.
    pub async fn ports_of(&self, uuid: &str) -> Result<Vec<Port>, Error> {
        let attempt = format!("list the ports of node {uuid}");
        let path = format!("/v1/nodes/{}/ports?fields={}", encode(uuid), Port::FIELDS);
        self.list(&attempt, &path, "ports").await
    }

    /// The port with a MAC address, whichever node has it.
    pub async fn port_by_mac(&self, mac: &str) -> Result<Option<Port>, Error> {
        let attempt = format!("look up the port {mac}");
        let mac = encode(&mac.to_ascii_lowercase());
        let path = format!("/v1/ports?address={mac}&fields={}", Port::FIELDS);
        // One page: an address has at most one port, and Ironic ignores the position together with
        // an address, so that pages of one item would never end.
        #[derive(serde::Deserialize)]
        struct Page {
            ports: Vec<Port>,
        }
        let page: Page = self.get(&attempt, path).await?;
        Ok(page.ports.into_iter().next())
    }

    /// What inspection found. None: the node exists and was never inspected.
    pub async fn inventory(&self, id: &str) -> Result<Option<Inventory>, Error> {
        let attempt = format!("read the inventory of node {id}");
        let path = format!("/v1/nodes/{}/inventory", encode(id));
        match self.get::<InventoryResponse>(&attempt, path).await {
            Ok(response) => Ok(Some(response.into())),
            Err(error) if error.is_missing_inventory() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What happened to a node, oldest first, in full; not only errors.
    pub async fn history(&self, id: &str) -> Result<Vec<HistoryEntry>, Error> {
        let attempt = format!("read the history of node {id}");
        let path = format!("/v1/nodes/{}/history?detail=True", encode(id));
        let mut entries: Vec<HistoryEntry> = self.list(&attempt, &path, "history").await?;
        entries.sort_by_key(|entry| entry.created_at);
        Ok(entries)
    }

    /// Whether the interfaces of a node are usable as configured.
    pub async fn validate(&self, id: &str) -> Result<Validation, Error> {
        let attempt = format!("validate node {id}");
        self.get(&attempt, format!("/v1/nodes/{}/validate", encode(id))).await
    }

    /// Makes one change. After [`Meaning::Unreachable`] it may have been made or not: observe.
    pub async fn perform(&self, call: &Call) -> Result<Performed, Error> {
        let attempt = call.to_string();
        let unwritable = |error: serde_json::Error| Error {
            attempt: attempt.clone(),
            meaning: Meaning::Refused,
            message: format!("the request cannot be written as JSON: {error}"),
        };
        let request = call.request().map_err(unwritable)?;
        let response = self.send(&attempt, request).await?;
        match call {
            Call::CreateNode(_) | Call::PatchNode { .. } => {
                Ok(Performed::Node(Box::new(parse(&attempt, &response)?)))
            }
            Call::CreatePort(_) => Ok(Performed::Port(parse(&attempt, &response)?)),
            Call::DeleteNode { .. }
            | Call::DeletePort { .. }
            | Call::SetProvisionState { .. }
            | Call::SetPower { .. }
            | Call::SetRaid { .. }
            | Call::SetMaintenance { .. }
            | Call::ClearMaintenance { .. } => Ok(Performed::Accepted),
        }
    }
}

fn parse<T: DeserializeOwned>(attempt: &str, response: &Response) -> Result<T, Error> {
    serde_json::from_slice(&response.body).map_err(|error| Error::malformed(attempt, error))
}

fn found<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The newest version that both sides know.
fn choose_version(attempt: &str, root: &Value) -> Result<Microversion, Error> {
    let offered = |field: &'static str| {
        root["version"][field].as_str().and_then(Microversion::parse).ok_or(field)
    };
    let (min, max) = match (offered("min_version"), offered("version")) {
        (Ok(min), Ok(max)) => (min, max),
        (Err(field), _) | (_, Err(field)) => {
            let cause =
                format!("no API version in {field}; check that --ironic-url leads to Ironic");
            return Err(Error::malformed(attempt, cause));
        }
    };
    if max < MIN_VERSION || min > MAX_VERSION {
        let remedy = if max < MIN_VERSION { "upgrade Ironic" } else { "upgrade Quarry" };
        let message = format!(
            "Ironic offers API versions {min} to {max}, and one of {MIN_VERSION} to \
             {MAX_VERSION} is required; {remedy}"
        );
        let meaning = Meaning::Unsupported;
        return Err(Error { attempt: attempt.to_owned(), meaning, message });
    }
    Ok(max.min(MAX_VERSION))
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
