//! The commands about BareMetalHosts. Each writes annotations that the operator acts on; none talks to Ironic or a BMC.
//!
//! What is shown and what is refused is computed by `quarry_view::hosts`. Next to read: `list.rs`, `annotate.rs`,
//! `move_out.rs`.

pub mod annotate;
pub mod list;
pub mod move_in;
pub mod move_out;
pub mod table;
mod watch;

use crate::{cli::Which, connect::Cluster, output};
use anyhow::{anyhow, bail};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use quarry_api::BareMetalHost;
use quarry_core::host_rival::Rival;
use quarry_view::{Snapshot, hosts, optional};
use serde_json::{Value, json};

/// The namespace that the user named, else that of the kubeconfig's context.
pub fn namespace<'a>(cluster: &'a Cluster, given: Option<&'a str>) -> &'a str {
    given.unwrap_or_else(|| cluster.client.default_namespace())
}

/// A host as the API stores it: with fields that this version does not know.
pub struct StoredHost {
    pub object: DynamicObject,
    pub host: BareMetalHost,
}

impl StoredHost {
    fn new(object: DynamicObject) -> anyhow::Result<Self> {
        let host = serde_json::from_value(serde_json::to_value(&object)?)
            .map_err(|error| anyhow!("host {} cannot be read: {error}", object.name_any()))?;
        Ok(StoredHost { object, host })
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.object.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }
}

pub fn stored(cluster: &Cluster, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<BareMetalHost>(&());
    Api::namespaced_with(cluster.client.clone(), namespace, &resource)
}

/// The host, or an error that names the namespaces where there is one of this name.
pub async fn get(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<StoredHost> {
    let api = stored(cluster, namespace);
    match cluster.call(&format!("reading host {name}"), optional(api.get(name))).await? {
        Some(object) => StoredHost::new(object),
        None => Err(missing(cluster, namespace, name).await),
    }
}

async fn missing(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Error {
    let api: Api<BareMetalHost> = Api::all(cluster.client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    // Only for the hint: a user may be allowed to read this namespace alone.
    let elsewhere = cluster.call("listing hosts", api.list_metadata(&params)).await;
    let places: Vec<String> =
        elsewhere.iter().flatten().filter_map(ResourceExt::namespace).collect();
    let hint = match places.as_slice() {
        [] => format!("run `quarry hosts -n {namespace}` to list them, or `quarry hosts -A`"),
        places => format!("there is one in namespace {}: add -n {}", places.join(", "), places[0]),
    };
    anyhow!("host {name} does not exist in namespace {namespace}; {hint}")
}

/// The named hosts, or all of the namespace, sorted by name.
pub async fn select(
    cluster: &Cluster,
    namespace: &str,
    which: &Which,
) -> anyhow::Result<Vec<StoredHost>> {
    let mut found = Vec::new();
    if which.all {
        let api = stored(cluster, namespace);
        let attempt = format!("listing hosts in namespace {namespace}");
        for object in cluster.call(&attempt, api.list(&ListParams::default())).await? {
            found.push(StoredHost::new(object)?);
        }
        if found.is_empty() {
            bail!("namespace {namespace} has no hosts; run `quarry hosts -A` to list all");
        }
    }
    let mut names = which.names.clone();
    names.sort();
    names.dedup();
    for name in names {
        found.push(get(cluster, namespace, &name).await?);
    }
    found.sort_by_key(|one| one.object.name_any());
    Ok(found)
}

/// Changes annotations of the host that was read: a change by others meanwhile is an error, not overwritten. `null`
/// removes one.
pub async fn annotate(
    cluster: &Cluster,
    stored_host: &StoredHost,
    annotations: Value,
) -> anyhow::Result<StoredHost> {
    let object = &stored_host.object;
    let name = object.name_any();
    let patch = json!({"metadata": {
        "resourceVersion": object.metadata.resource_version,
        "annotations": annotations,
    }});
    let api = stored(cluster, object.metadata.namespace.as_deref().unwrap_or_default());
    let attempt = format!("changing annotations of host {name}");
    let params = PatchParams::default();
    let request = async { Ok(api.patch(&name, &params, &Patch::Merge(&patch)).await) };
    match cluster.call(&attempt, request).await? {
        Ok(object) => StoredHost::new(object),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            Err(anyhow::Error::new(Changed(name)))
        }
        Err(error) => Err(cluster.error(&attempt, error)),
    }
}

/// The host was changed between reading and writing.
#[derive(Debug)]
pub struct Changed(String);

impl std::fmt::Display for Changed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "host {} was changed meanwhile; run the command again", self.0)
    }
}

impl std::error::Error for Changed {}

/// Hosts of all namespaces with what they are joined with. A user who may read one namespace only gets that.
pub async fn read(cluster: &Cluster, namespace: Option<&str>) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    if let Err(error) = snapshot.read_hosts(cluster, None).await {
        let Some(namespace) = namespace else { return Err(error) };
        snapshot.read_hosts(cluster, Some(namespace)).await?;
        let error = output::error_text(&error);
        let (problem, _) = output::split_remedy(&error);
        output::note(&format!("whether hosts elsewhere have the same disks is unknown: {problem}"));
    }
    read_nodes(cluster, &mut snapshot).await;
    Ok(snapshot)
}

/// A user who may not read Nodes still sees the hosts.
pub async fn read_nodes(cluster: &Cluster, snapshot: &mut Snapshot) {
    if snapshot.hosts.is_empty() {
        return;
    }
    if let Err(error) = snapshot.read_nodes(cluster).await {
        let error = output::error_text(&error);
        output::note(&format!("which nodes run on the hosts is unknown: {error}"));
    }
}

/// Another operator that drives hosts; unknown where Leases cannot be read.
pub async fn read_rival(cluster: &Cluster) -> Option<Rival> {
    match hosts::read_rival(cluster, Timestamp::now()).await {
        Ok(rival) => rival,
        Err(error) => {
            let error = output::error_text(&error);
            output::note(&format!("whether another operator drives the hosts is unknown: {error}"));
            None
        }
    }
}

pub fn warn_of_rival(rival: Option<&Rival>) {
    if let Some(rival) = rival {
        output::note(&format!(
            "warning: {}: it drives the hosts, and Quarry does not",
            rival.message()
        ));
    }
}
