//! Ironic, as all hosts of one operator ask it: answers are shared for as long as each host allows.
//!
//! A cache, and nothing but: a restart asks again. What a call has changed is asked again before the next decision.

use super::rival::LastAnswer;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use quarry_api::{BareMetalHost, HardwareData};
use quarry_core::bare_metal_host::{
    HostSettings, IronicNode, TakenAddress, is_busy, max_age, missing_addresses, node_name, reads,
};
use quarry_ironic::{
    Call, Client, Error, Meaning, Node, Performed, ProvisionState, ProvisionTarget, Reloading,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What the hosts group needs besides the API.
#[derive(Clone)]
pub struct HostOptions {
    pub ironic: Arc<Ironic>,
    pub settings: HostSettings,
    pub rival: Arc<LastAnswer>,
}

impl HostOptions {
    pub fn new(ironic: Ironic, settings: HostSettings) -> Self {
        HostOptions { ironic: Arc::new(ironic), settings, rival: Arc::default() }
    }
}

#[expect(clippy::large_enum_variant, reason = "there is one for each operator")]
enum Source {
    /// Credentials and certificates are read again when their files change.
    Reloading(Reloading),
    Fixed(Client),
}

pub struct Ironic {
    source: Source,
    known: Mutex<Known>,
    /// One list at a time: the others wait for its answer.
    listing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    nodes: HashMap<String, Answer>,
    /// UUIDs by name.
    names: HashMap<String, String>,
    listed: Option<Timestamp>,
    /// Hosts that were polled, by key.
    polled: HashMap<String, Timestamp>,
}

struct Answer {
    node: Node,
    /// `None`: a call has changed it since.
    read: Option<Timestamp>,
}

/// Polled within this time: Ironic works on it.
const RECENT: SignedDuration = SignedDuration::from_secs(5);
/// So many nodes are polled one by one; more by lists.
const ONE_BY_ONE: usize = 4;
/// How old an answer may be that says that Ironic is not done, whatever the host allows.
const CHANGING: SignedDuration = SignedDuration::from_secs(1);

impl Ironic {
    pub fn reloading(settings: quarry_ironic::Settings) -> Self {
        Ironic::new(Source::Reloading(Reloading::new(settings)))
    }

    pub fn fixed(client: Client) -> Self {
        Ironic::new(Source::Fixed(client))
    }

    fn new(source: Source) -> Self {
        Ironic { source, known: Mutex::default(), listing: tokio::sync::Mutex::default() }
    }

    fn client(&self) -> Result<Client, Error> {
        match &self.source {
            Source::Fixed(client) => Ok(client.clone()),
            Source::Reloading(reloading) => reloading.client().map_err(|error| Error {
                attempt: "read the settings of Ironic".to_owned(),
                meaning: Meaning::Unauthorized,
                message: error.to_string(),
            }),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host is gone.
    pub fn forget(&self, key: &str) {
        self.known().polled.remove(key);
    }

    /// What Ironic says about the host, not older than the host allows.
    pub async fn view(
        &self,
        host: &BareMetalHost,
        data: Option<&HardwareData>,
        now: Timestamp,
    ) -> Result<IronicNode, Error> {
        let (node, read) = self.node(host, max_age(host), now).await?;
        let client = self.client()?;
        let reads = reads(host, node.as_ref());
        let (mut ports, mut taken, mut inventory, mut history) = (None, Vec::new(), None, None);
        if let Some(node) = &node {
            if reads.ports {
                let found = client.ports_of(&node.uuid).await?;
                let missing = missing_addresses(host, data, &found);
                taken = self.taken(&client, &node.uuid, missing).await?;
                ports = Some(found);
            }
            if reads.inventory {
                inventory = client.inventory(&node.uuid).await?;
            }
            if reads.history {
                history = Some(client.history(&node.uuid).await?);
            }
        }
        let uuid = node.as_ref().map(|node| node.uuid.clone());
        let busy = self
            .known()
            .nodes
            .values()
            .filter(|answer| is_busy(&answer.node) && Some(&answer.node.uuid) != uuid.as_ref())
            .count();
        let age = now.duration_since(read);
        Ok(IronicNode { node, ports, taken, inventory, history, busy, age })
    }

    /// Which of these addresses other nodes have, up to the first that is free: it is the next to be created.
    async fn taken(
        &self,
        client: &Client,
        own: &str,
        missing: Vec<String>,
    ) -> Result<Vec<TakenAddress>, Error> {
        let mut taken = Vec::new();
        for address in missing {
            let Some(port) = client.port_by_mac(&address).await? else { break };
            let node = port.node_uuid.unwrap_or_default();
            // Created since: what was read is out of date, which the next call will find.
            if node == own {
                break;
            }
            let known = self.known().nodes.get(&node).map(|answer| answer.node.name.clone());
            let name = match known {
                Some(name) => name,
                None => client.node(&node).await?.and_then(|node| node.name),
            };
            taken.push(TakenAddress { address, node, name });
        }
        Ok(taken)
    }

    /// The node, and when it was read.
    async fn node(
        &self,
        host: &BareMetalHost,
        age: SignedDuration,
        now: Timestamp,
    ) -> Result<(Option<Node>, Timestamp), Error> {
        if let Some(found) = self.remembered(host, age, now) {
            return Ok(found);
        }
        let resting = age > RECENT;
        let polled = {
            let mut known = self.known();
            if !resting {
                known.polled.insert(key(host), now);
            }
            known.polled.retain(|_, at| now.duration_since(*at) < RECENT);
            known.polled.len()
        };
        if resting || polled > ONE_BY_ONE {
            let _one = self.listing.lock().await;
            if self.remembered(host, age, now).is_none() {
                self.list(now).await?;
            }
            if let Some(found) = self.remembered(host, age, now) {
                return Ok(found);
            }
            if self.known().listed == Some(now) {
                return Ok((None, now));
            }
        }
        self.read_one(host, now).await
    }

    /// Enough for this host.
    fn remembered(
        &self,
        host: &BareMetalHost,
        age: SignedDuration,
        now: Timestamp,
    ) -> Option<(Option<Node>, Timestamp)> {
        let known = self.known();
        let id = recorded_id(host);
        let by_name = known.names.get(&node_name(host));
        let answer = known.nodes.get(id).or_else(|| known.nodes.get(by_name?))?;
        let age = if is_changing(&answer.node) { age.min(CHANGING) } else { age };
        let read = answer.read.filter(|read| now.duration_since(*read) <= age)?;
        Some((Some(answer.node.clone()), read))
    }

    async fn list(&self, now: Timestamp) -> Result<(), Error> {
        let nodes = self.client()?.nodes().await?;
        let mut known = self.known();
        known.names.clear();
        known.nodes.clear();
        known.listed = Some(now);
        nodes.into_iter().for_each(|node| known.learn(node, now));
        Ok(())
    }

    async fn read_one(
        &self,
        host: &BareMetalHost,
        now: Timestamp,
    ) -> Result<(Option<Node>, Timestamp), Error> {
        let client = self.client()?;
        let id = recorded_id(host);
        let by_id = if id.is_empty() { None } else { client.node(id).await? };
        let found = match by_id {
            Some(node) => Some(node),
            // Under another ID: recreated by hand, or the answer to its creation was lost.
            None => client.node(&node_name(host)).await?,
        };
        let mut known = self.known();
        known.nodes.remove(id);
        if let Some(node) = &found {
            known.learn(node.clone(), now);
        }
        Ok((found, now))
    }

    /// One change. The node is read again before the next decision. At most `limit` nodes are worked on at a time.
    pub async fn perform(
        &self,
        call: &Call,
        limit: usize,
        now: Timestamp,
    ) -> Result<Performed, Error> {
        self.reserve(call, limit)?;
        quarry_failpoint::failpoint!("operator.ironic.before");
        let result = match self.client() {
            Ok(client) => client.perform(call).await,
            Err(error) => Err(error),
        };
        quarry_failpoint::failpoint!("operator.ironic.after");
        let mut known = self.known();
        if let Some(answer) = call_id(call).and_then(|id| known.nodes.get_mut(id)) {
            answer.read = None;
        }
        if let (Ok(Performed::Node(node)), Call::CreateNode(_)) = (&result, call) {
            known.learn((**node).clone(), now);
        }
        result
    }

    /// Counts the node as busy before the request is sent: other hosts decide at the same time, from the same answers.
    fn reserve(&self, call: &Call, limit: usize) -> Result<(), Error> {
        let Call::SetProvisionState { id, target } = call else { return Ok(()) };
        let Some(state) = busy_state(target) else { return Ok(()) };
        let mut known = self.known();
        let others = known.nodes.values().filter(|answer| answer.node.uuid != *id);
        let busy = others.filter(|answer| is_busy(&answer.node)).count();
        if busy >= limit {
            return Err(Error {
                attempt: call.to_string(),
                meaning: Meaning::Locked,
                message: format!(
                    "{busy} other hosts are worked on, and --max-busy-hosts is {limit}"
                ),
            });
        }
        if let Some(answer) = known.nodes.get_mut(id) {
            answer.node.provision_state = state;
        }
        Ok(())
    }

    /// What is known of the host's node is too old to act on.
    pub fn expire(&self, host: &BareMetalHost) {
        let mut known = self.known();
        let by_name = known.names.get(&node_name(host)).cloned();
        for id in by_name.iter().map(String::as_str).chain([recorded_id(host)]) {
            if let Some(answer) = known.nodes.get_mut(id) {
                answer.read = None;
            }
        }
    }
}

impl Known {
    fn learn(&mut self, node: Node, now: Timestamp) {
        if let Some(name) = &node.name {
            self.names.insert(name.clone(), node.uuid.clone());
        }
        self.nodes.insert(node.uuid.clone(), Answer { node, read: Some(now) });
    }
}

/// The state in which Ironic works on a node after this request. `None`: it is done at once.
fn busy_state(target: &ProvisionTarget) -> Option<ProvisionState> {
    match target {
        ProvisionTarget::Inspect => Some(ProvisionState::Inspecting),
        ProvisionTarget::Clean { .. } | ProvisionTarget::Provide => Some(ProvisionState::Cleaning),
        ProvisionTarget::Active { .. } => Some(ProvisionState::Deploying),
        ProvisionTarget::Deleted => Some(ProvisionState::Deleting),
        ProvisionTarget::Manage | ProvisionTarget::Abort | ProvisionTarget::Adopt => None,
    }
}

/// Ironic works on the node, and the next answer differs.
fn is_changing(node: &Node) -> bool {
    node.power_state.is_none()
        || is_busy(node)
        || node.target_power_state.is_some()
        || node.target_provision_state.is_some()
        || node.reservation.is_some()
}

fn key(host: &BareMetalHost) -> String {
    format!("{}/{}", host.namespace().unwrap_or_default(), host.name_any())
}

fn recorded_id(host: &BareMetalHost) -> &str {
    host.status.as_ref().map(|status| status.provisioning.id.as_str()).unwrap_or_default()
}

/// The node that a call changes. A new port changes nothing that a node shows.
fn call_id(call: &Call) -> Option<&str> {
    match call {
        Call::CreateNode(_) | Call::CreatePort(_) | Call::DeletePort { .. } => None,
        Call::DeleteNode { id }
        | Call::PatchNode { id, .. }
        | Call::SetProvisionState { id, .. }
        | Call::SetPower { id, .. }
        | Call::SetRaid { id, .. }
        | Call::SetMaintenance { id, .. }
        | Call::ClearMaintenance { id } => Some(id),
    }
}
