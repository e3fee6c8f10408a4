//! Objects by what they are found by: a cluster of thousands of OSDs is planned in milliseconds.

use super::{Observed, claims::place, osd::Nodes, pods};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, Node, NodeSelector, PersistentVolume, PersistentVolumeClaim, Pod},
};
use kube::ResourceExt;
use quarry_api::names::ceph;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

const HOSTNAME: &str = "kubernetes.io/hostname";

pub struct Index<'a> {
    pub observed: &'a Observed,
    /// By set.
    placed: HashMap<&'a str, Vec<(u32, &'a PersistentVolumeClaim)>>,
    jobs: Labelled<'a, Job>,
    deployments: Labelled<'a, Deployment>,
    deployment_names: HashMap<&'a str, &'a Deployment>,
    /// How many there are of each set.
    deployment_counts: BTreeMap<&'a str, usize>,
    results: HashMap<&'a str, &'a ConfigMap>,
    /// Set and index of results.
    recorded: Labelled<'a, ConfigMap>,
    /// By the UID of their Job.
    pods: HashMap<&'a str, Vec<&'a Pod>>,
    volumes: HashMap<&'a str, &'a PersistentVolume>,
    /// By the label that local volumes name them with.
    hostnames: HashMap<&'a str, Vec<&'a Arc<Node>>>,
}

/// By data PVC, and by set and index: the second finds what a PVC that is gone has left.
struct Labelled<'a, K> {
    by_claim: HashMap<&'a str, &'a K>,
    by_index: HashMap<&'a str, BTreeMap<u32, &'a K>>,
}

impl<'a, K: ResourceExt> Labelled<'a, K> {
    fn new(all: impl Iterator<Item = &'a K>) -> Self {
        let mut made = Labelled { by_claim: HashMap::new(), by_index: HashMap::new() };
        for one in all {
            let labels = one.labels();
            if let Some(claim) = labels.get(ceph::PVC_LABEL) {
                made.by_claim.entry(claim.as_str()).or_insert(one);
            }
            let set = labels.get(ceph::DEVICE_SET_LABEL);
            let index = labels.get(ceph::SET_INDEX_LABEL).and_then(|text| text.parse().ok());
            if let (Some(set), Some(index)) = (set, index) {
                let of_set: &mut BTreeMap<u32, &K> = made.by_index.entry(set.as_str()).or_default();
                of_set.entry(index).or_insert(one);
            }
        }
        made
    }

    fn get(&self, claim: &str, set: &str, index: u32) -> Option<&'a K> {
        let by_index = || self.by_index.get(set)?.get(&index).copied();
        self.by_claim.get(claim).copied().filter(|_| !claim.is_empty()).or_else(by_index)
    }

    fn indices(&self, set: &str) -> impl Iterator<Item = u32> {
        self.by_index.get(set).into_iter().flat_map(|all| all.keys().copied())
    }
}

fn by_name<'a, K: ResourceExt>(all: impl IntoIterator<Item = &'a K>) -> HashMap<&'a str, &'a K> {
    let named = all.into_iter().filter_map(|one| Some((one.meta().name.as_deref()?, one)));
    named.collect()
}

/// The hostnames that a selector with one term allows. `None`: it chooses by something else.
fn named(required: &NodeSelector) -> Option<BTreeSet<&str>> {
    let [term] = required.node_selector_terms.as_slice() else { return None };
    let mut all = term.match_expressions.as_ref()?.iter();
    let one = all.find(|one| one.key == HOSTNAME && one.operator == "In")?;
    Some(one.values.as_ref()?.iter().map(String::as_str).collect())
}

impl<'a> Index<'a> {
    pub fn new(observed: &'a Observed) -> Self {
        let mut placed: HashMap<&str, Vec<(u32, &PersistentVolumeClaim)>> = HashMap::new();
        for claim in &observed.claims {
            if let Some((set, index)) = place(claim) {
                placed.entry(set).or_default().push((index, claim));
            }
        }
        let mut pods: HashMap<&str, Vec<&Pod>> = HashMap::new();
        for pod in &observed.pods {
            for owner in pod.owner_references() {
                pods.entry(owner.uid.as_str()).or_default().push(pod);
            }
        }
        let mut deployment_counts: BTreeMap<&str, usize> = BTreeMap::new();
        for deployment in &observed.deployments {
            if let Some(set) = deployment.labels().get(ceph::DEVICE_SET_LABEL) {
                *deployment_counts.entry(set.as_str()).or_default() += 1;
            }
        }
        let mut hostnames: HashMap<&str, Vec<&Arc<Node>>> = HashMap::new();
        for node in &observed.nodes {
            if let Some(name) = node.labels().get(HOSTNAME) {
                hostnames.entry(name.as_str()).or_default().push(node);
            }
        }
        Index {
            observed,
            placed,
            jobs: Labelled::new(observed.jobs.iter()),
            deployments: Labelled::new(observed.deployments.iter()),
            deployment_names: by_name(&observed.deployments),
            deployment_counts,
            results: by_name(&observed.results),
            recorded: Labelled::new(observed.results.iter()),
            pods,
            volumes: by_name(&observed.volumes),
            hostnames,
        }
    }

    /// Every set that has PVCs or Deployments.
    pub fn sets(&self) -> BTreeSet<&'a str> {
        self.placed.keys().chain(self.deployment_counts.keys()).copied().collect()
    }

    pub fn deployments_of(&self, set: &str) -> usize {
        self.deployment_counts.get(set).copied().unwrap_or_default()
    }

    /// PVCs of a set, each with the index of its OSD.
    pub fn claims_of(&self, set: &str) -> &[(u32, &'a PersistentVolumeClaim)] {
        self.placed.get(set).map(Vec::as_slice).unwrap_or_default()
    }

    /// Indices of which something was made, whether or not their PVCs exist. Deployments of upstream do not say theirs.
    pub fn begun_indices(&self, set: &str) -> impl Iterator<Item = u32> {
        let deployed = self.deployments.indices(set);
        deployed.chain(self.jobs.indices(set)).chain(self.recorded.indices(set))
    }

    pub fn job(&self, claim: &str, set: &str, index: u32) -> Option<&'a Job> {
        self.jobs.get(claim, set, index)
    }

    pub fn deployment(&self, claim: &str, set: &str, index: u32) -> Option<&'a Deployment> {
        self.deployments.get(claim, set, index)
    }

    pub fn deployment_named(&self, name: &str) -> Option<&'a Deployment> {
        self.deployment_names.get(name).copied()
    }

    /// The ConfigMap with the result of a data PVC, or of one that is gone.
    pub fn result(&self, claim: &str, set: &str, index: u32) -> Option<&'a ConfigMap> {
        let named = self.results.get(pods::result_name(claim).as_str()).copied();
        named.or_else(|| self.recorded.get(claim, set, index))
    }

    pub fn pods_of(&self, job: &Job) -> &[&'a Pod] {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        self.pods.get(uid).map(Vec::as_slice).unwrap_or_default()
    }

    /// The nodes that this selects: `One`, or whether there are several or none.
    pub fn nodes_of(&self, required: &NodeSelector) -> Nodes<'a> {
        let fits = |node: &&'a Arc<Node>| crate::node_selector::selects(Some(required), node);
        let mut found: Vec<&'a Arc<Node>> = match named(required) {
            Some(names) => {
                let all = names.into_iter().filter_map(|name| self.hostnames.get(name));
                all.flatten().copied().filter(fits).take(2).collect()
            }
            None => self.observed.nodes.iter().filter(fits).take(2).collect(),
        };
        match (found.pop(), found.is_empty()) {
            (Some(node), true) => Nodes::One(node),
            (Some(_), false) => Nodes::Several,
            (None, _) => Nodes::Unseen,
        }
    }

    pub fn volume(&self, name: &str) -> Option<&'a PersistentVolume> {
        self.volumes.get(name).copied()
    }
}
