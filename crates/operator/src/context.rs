//! What every controller is given: client, caches, clock, metrics, settings.

use crate::{
    cache::Caches, controller::Group, metrics::Metrics, registry::Registry, writer::Writer,
};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub caches: Arc<Caches>,
    pub writer: Writer,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    /// The operator's own namespace: Leases and the agents' DaemonSet are in it.
    pub namespace: String,
    /// How long a finished NodeJob is kept.
    pub job_retention: SignedDuration,
    /// The agents' DaemonSet to create; `None` where agents are started by other means.
    pub agent_daemon_set: Option<quarry_core::agent_daemon_set::DaemonSetSettings>,
    /// Where hosts are driven; `None`: no Ironic is configured.
    pub hosts: Option<crate::bare_metal_host::HostOptions>,
    /// A hash of the last message that was published, by subject and node.
    published: Arc<Mutex<HashMap<(String, String), u64>>>,
    /// The controllers that are on.
    pub registry: Arc<Registry>,
}

impl Context {
    /// With empty caches.
    pub fn new(client: Client, options: &crate::OperatorOptions, clock: Clock) -> Self {
        let metrics = Arc::new(Metrics::default());
        metrics.register(options.registry.controllers().iter().map(|controller| controller.name));
        Context {
            client,
            caches: Arc::new(Caches::new(&options.namespace)),
            writer: Writer::new(metrics.clone()),
            metrics,
            clock,
            namespace: options.namespace.clone(),
            job_retention: options.job_retention,
            hosts: options.hosts.clone(),
            published: Arc::default(),
            agent_daemon_set: options.agent_daemon_set.clone(),
            registry: Arc::new(options.registry.clone()),
        }
    }

    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Whether the last message about this subject and node was another one. Remembered in this process only: the next
    /// leader publishes it once more. An empty message is no news.
    pub fn is_unpublished(&self, subject: &str, node: &str, message: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        if message.is_empty() {
            published.remove(&(subject.to_owned(), node.to_owned()));
            return false;
        }
        let key = (subject.to_owned(), node.to_owned());
        published.insert(key, hasher.finish()) != Some(hasher.finish())
    }

    /// The subject is gone.
    pub fn forget_published(&self, subject: &str) {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.retain(|(of, _), _| of != subject);
    }

    pub fn is_on(&self, group: Group) -> bool {
        self.registry.has(group)
    }
}
