//! The objects that OSDs are computed from, as a client read them.
//!
//! Owns: which objects are listed, and by which labels. Only objects of namespaces that have CephClusters are read, and
//! neither Nodes nor PersistentVolumes, for which a user of one namespace has no rights. Never reads a Secret.

use crate::reader::Reader;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod},
};
use kube::{Api, Resource, ResourceExt, api::ListParams, core::NamespaceResourceScope};
use quarry_api::{CephCluster, names::ceph};
use quarry_core::device_set::{Observed, Settings};
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
};

/// By namespace and name.
pub type ByKey<K> = BTreeMap<(String, String), K>;

#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub clusters: ByKey<CephCluster>,
    pub claims: ByKey<PersistentVolumeClaim>,
    pub jobs: ByKey<Job>,
    /// Of prepare Jobs and OSDs.
    pub pods: ByKey<Pod>,
    /// Results of prepare Jobs.
    pub results: ByKey<ConfigMap>,
    pub deployments: ByKey<Deployment>,
    /// By name; only for explanations.
    pub volumes: BTreeMap<String, PersistentVolume>,
}

/// By which labels the objects of OSDs are found.
pub struct Selectors {
    pub claims: String,
    pub jobs: String,
    pub pods: String,
    pub results: String,
    pub deployments: String,
}

impl Default for Selectors {
    fn default() -> Self {
        let (app, osd, prepare) = (ceph::APP_LABEL, ceph::OSD_APP, ceph::PREPARE_APP);
        let (status_key, status) = ceph::STATUS_LABEL;
        Selectors {
            claims: ceph::DEVICE_SET_PVC_ID_LABEL.to_owned(),
            jobs: format!("{app}={prepare}"),
            pods: format!("{app} in ({osd},{prepare})"),
            results: format!("{app}={osd},{status_key}={status}"),
            deployments: format!("{app}={osd}"),
        }
    }
}

impl Objects {
    /// CephClusters of one namespace, or of all. The error of the API is the caller's: what it means depends on whether
    /// a namespace was named.
    pub async fn read_clusters<R: Reader>(
        &mut self,
        reader: &R,
        namespace: Option<&str>,
    ) -> Result<kube::Result<()>, R::Error> {
        let api = api::<CephCluster>(reader, namespace);
        let params = ListParams::default();
        // A refusal is an answer: only the time limit is an error here.
        let request = async { Ok(api.list(&params).await) };
        let found = reader.call("listing CephClusters", request).await?;
        Ok(found.map(|list| self.clusters = by_key(list.items)))
    }

    /// What exists of the OSDs in the namespaces of the clusters.
    pub async fn read_osds<R: Reader>(&mut self, reader: &R) -> Result<(), R::Error> {
        for namespace in self.namespaces() {
            self.read_namespace(reader, &namespace).await?;
        }
        Ok(())
    }

    async fn read_namespace<R: Reader>(
        &mut self,
        reader: &R,
        namespace: &str,
    ) -> Result<(), R::Error> {
        let by = Selectors::default();
        let (claims, jobs, pods, results, deployments) = futures::try_join!(
            list::<PersistentVolumeClaim, R>(reader, namespace, &by.claims),
            list::<Job, R>(reader, namespace, &by.jobs),
            list::<Pod, R>(reader, namespace, &by.pods),
            list::<ConfigMap, R>(reader, namespace, &by.results),
            list::<Deployment, R>(reader, namespace, &by.deployments),
        )?;
        self.claims.extend(by_key(claims));
        self.jobs.extend(by_key(jobs));
        self.pods.extend(by_key(pods));
        self.results.extend(by_key(results));
        self.deployments.extend(by_key(deployments));
        Ok(())
    }

    /// PersistentVolumes by name; those that do not exist are left out.
    pub async fn read_volumes<R: Reader>(
        &mut self,
        reader: &R,
        names: &[String],
    ) -> Result<(), R::Error> {
        let api: Api<PersistentVolume> = Api::all(reader.client());
        for name in names {
            let attempt = format!("reading PersistentVolume {name}");
            let found = reader.call(&attempt, crate::optional(api.get(name))).await?;
            self.volumes.extend(found.map(|one| (name.clone(), one)));
        }
        Ok(())
    }

    /// Of clusters that have device sets, or have had some.
    pub fn namespaces(&self) -> BTreeSet<String> {
        self.clusters.keys().map(|(namespace, _)| namespace.clone()).collect()
    }

    fn others(&self, cluster: &CephCluster) -> Vec<Arc<CephCluster>> {
        let own = key(cluster);
        let same = self.clusters.iter().filter(|(place, _)| place.0 == own.0 && **place != own);
        same.map(|(_, other)| Arc::new(other.clone())).collect()
    }

    /// As the planner sees them, without what only it needs: access to Ceph, classes and nodes.
    pub(super) fn observed(&self, cluster: &CephCluster) -> Observed {
        let namespace = cluster.namespace().unwrap_or_default();
        Observed {
            cluster: cluster.clone(),
            others: self.others(cluster),
            rook: None,
            access: Err("it was not read".to_owned()),
            claims: within(&self.claims, &namespace),
            volumes: self.volumes.values().cloned().collect(),
            jobs: within(&self.jobs, &namespace),
            pods: within(&self.pods, &namespace),
            results: within(&self.results, &namespace),
            config: None,
            deployments: within(&self.deployments, &namespace),
            classes: Vec::new(),
            nodes: Vec::new(),
            settings: Settings { image: String::new(), image_pull_policy: String::new() },
        }
    }
}

/// `None`: of all namespaces.
fn api<K>(reader: &impl Reader, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(reader.client(), namespace),
        None => Api::all(reader.client()),
    }
}

async fn list<K, R: Reader>(reader: &R, namespace: &str, selector: &str) -> Result<Vec<K>, R::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + DeserializeOwned + Debug + Send,
{
    let api = api::<K>(reader, Some(namespace));
    let attempt = format!("listing {} of OSDs in namespace {namespace}", K::plural(&()));
    let params = ListParams::default().labels(selector);
    Ok(reader.call(&attempt, api.list(&params)).await?.items)
}

pub fn key<K: Resource>(object: &K) -> (String, String) {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

pub fn by_key<K: Resource>(objects: Vec<K>) -> ByKey<K> {
    objects.into_iter().map(|object| (key(&object), object)).collect()
}

fn within<K: Clone>(objects: &ByKey<K>, namespace: &str) -> Vec<K> {
    let found = objects.iter().filter(|((place, _), _)| place == namespace);
    found.map(|(_, object)| object.clone()).collect()
}
