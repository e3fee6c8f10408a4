//! Gathers what a decision about the OSDs of one cluster needs. Decides nothing.

use crate::{Context, controller::Failure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret},
    storage::v1::StorageClass,
};
use kube::{Api, Resource, ResourceExt, api::ListParams};
use quarry_api::{CephCluster, names::ceph};
use quarry_core::device_set::{Access, Observed, Settings, pods::config_name};
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeMap, HashSet},
    fmt::Debug,
};

/// The Secret of a user that may only register OSDs, if an administrator made one.
const BOOTSTRAP_SECRET: &str = "quarry-ceph-bootstrap-osd";

pub async fn observe(context: &Context, key: &str) -> Result<Option<Observed>, Failure> {
    let Some(cluster) = context.caches.get::<CephCluster>(key) else {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        context.metrics.set_osds(namespace, name, &BTreeMap::new());
        return Ok(None);
    };
    let Some(daemon_set) = &context.agent_daemon_set else { return Ok(None) };
    let cluster = (*cluster).clone();
    let others = context.caches.all::<CephCluster>().into_iter().filter(|other| {
        other.namespace() == cluster.namespace() && other.name_any() != cluster.name_any()
    });
    let others = others.collect();
    let settings = Settings {
        image: daemon_set.image.clone(),
        image_pull_policy: daemon_set.image_pull_policy.clone(),
    };
    let namespace = cluster.namespace().unwrap_or_default();
    let lists = Lists { context, namespace: &namespace };
    let claims: Vec<PersistentVolumeClaim> = lists.labelled(ceph::DEVICE_SET_PVC_ID_LABEL).await?;
    let app = |name: &str| format!("{}={name}", ceph::APP_LABEL);
    let both = format!("{} in ({},{})", ceph::APP_LABEL, ceph::OSD_APP, ceph::PREPARE_APP);
    let (status_key, status) = ceph::STATUS_LABEL;
    let name = config_name(&cluster);
    let observed = Observed {
        others,
        rook: rook(context).await?,
        access: access(&lists).await?,
        volumes: volumes(context, &claims).await?,
        claims,
        jobs: lists.labelled::<Job>(&app(ceph::PREPARE_APP)).await?,
        pods: lists.labelled::<Pod>(&both).await?,
        results: lists.labelled::<ConfigMap>(&format!("{status_key}={status}")).await?,
        config: lists.get::<ConfigMap>(&name).await?,
        deployments: lists.labelled::<Deployment>(&app(ceph::OSD_APP)).await?,
        classes: all::<StorageClass>(context).await?,
        nodes: context.caches.all(),
        settings,
        cluster,
    };
    Ok(Some(observed))
}

struct Lists<'a> {
    context: &'a Context,
    namespace: &'a str,
}

impl Lists<'_> {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.context.client.clone(), self.namespace)
    }

    async fn labelled<K>(&self, selector: &str) -> Result<Vec<K>, Failure>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let found = self.api::<K>().list(&ListParams::default().labels(selector)).await;
        let what = format!("listing {}s with {selector} in {}", K::kind(&()), self.namespace);
        found.map(|list| list.items).map_err(|error| Failure::api(what, error))
    }

    async fn get<K>(&self, name: &str) -> Result<Option<K>, Failure>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let found = self.api::<K>().get_opt(name).await;
        let what = format!("reading {} {}/{name}", K::kind(&()), self.namespace);
        found.map_err(|error| Failure::api(what, error))
    }
}

async fn all<K>(context: &Context) -> Result<Vec<K>, Failure>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let found = Api::<K>::all(context.client.clone()).list(&ListParams::default()).await;
    found
        .map(|list| list.items)
        .map_err(|error| Failure::api(format!("listing {}s", K::kind(&())), error))
}

/// Read one by one: a cluster has thousands of volumes, and these claims name theirs.
async fn volumes(
    context: &Context,
    claims: &[PersistentVolumeClaim],
) -> Result<Vec<PersistentVolume>, Failure> {
    let names: HashSet<&str> = claims
        .iter()
        .filter_map(|claim| claim.spec.as_ref()?.volume_name.as_deref())
        .filter(|name| !name.is_empty())
        .collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let found = all::<PersistentVolume>(context).await?;
    Ok(found.into_iter().filter(|one| names.contains(&one.name_any().as_str())).collect())
}

/// Upstream's operator, if one of its pods is ready in any namespace.
async fn rook(context: &Context) -> Result<Option<String>, Failure> {
    let selector = format!("{}={}", ceph::APP_LABEL, ceph::OPERATOR_APP);
    let found = Api::<Deployment>::all(context.client.clone());
    let found = found.list(&ListParams::default().labels(&selector)).await;
    let found = found.map_err(|error| Failure::api("listing upstream's operators", error))?;
    let is_ready = |one: &&Deployment| {
        one.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default() > 0
    };
    let ready = found.items.iter().find(is_ready);
    Ok(ready.map(|one| format!("{}/{}", one.namespace().unwrap_or_default(), one.name_any())))
}

/// From the objects that upstream keeps. `Err` inside: what is missing.
async fn access(lists: &Lists<'_>) -> Result<Result<Access, String>, Failure> {
    let namespace = lists.namespace;
    let mon = lists.get::<Secret>(ceph::MON_SECRET).await?;
    let config = lists.get::<Secret>(ceph::CONFIG_SECRET).await?;
    let bootstrap = lists.get::<Secret>(BOOTSTRAP_SECRET).await?;
    let admin = lists.get::<Secret>(ceph::ADMIN_KEYRING_SECRET).await?;
    let text = |secret: &Option<Secret>, name: &str, key: &str| {
        let Some(secret) = secret else {
            return Err(format!(
                "Secret {namespace}/{name} does not exist; it is made with the monitors of the cluster"
            ));
        };
        let found = secret.data.as_ref().and_then(|data| data.get(key));
        let found = found.and_then(|value| String::from_utf8(value.0.clone()).ok());
        found.filter(|text| !text.trim().is_empty()).ok_or_else(|| {
            format!("Secret {namespace}/{name} has no key {key}; it is written with the monitors of the cluster")
        })
    };
    let fsid = text(&mon, ceph::MON_SECRET, "fsid");
    let mon_host = text(&config, ceph::CONFIG_SECRET, "mon_host");
    let keyring = match &bootstrap {
        Some(_) => text(&bootstrap, BOOTSTRAP_SECRET, "keyring").map(|_| BOOTSTRAP_SECRET),
        None => {
            text(&admin, ceph::ADMIN_KEYRING_SECRET, "keyring").map(|_| ceph::ADMIN_KEYRING_SECRET)
        }
    };
    let overrides = lists.get::<ConfigMap>(ceph::CONFIG_OVERRIDE_CONFIG_MAP).await?;
    let overrides = overrides.and_then(|map| map.data?.remove("config")).unwrap_or_default();
    let joined = || {
        let fsid = fsid?;
        let parsed = fsid.trim().parse().map_err(|error| {
            format!("key fsid of Secret {namespace}/{} is not a UUID: {error}", ceph::MON_SECRET)
        })?;
        Ok(Access {
            fsid: parsed,
            mon_host: mon_host?,
            keyring_secret: keyring?.to_owned(),
            config_override: overrides,
        })
    };
    Ok(joined())
}
