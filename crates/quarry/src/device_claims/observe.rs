//! Everything that decides who gets which device, read live: the same picture that the operator decides on.

use crate::{connect::Cluster, devices};
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume},
    storage::v1::StorageClass,
};
use kube::{Api, Resource, ResourceExt, api::ListParams};
use quarry_api::{
    LocalVolume, LocalVolumeSet, NodeInventory, NodeJob, names, node_inventory::DeviceClaim,
};
use quarry_core::{
    device_claim::{
        Demand, Eligibility, NodeWorld, Row, Stage, account, claim_contexts, decide,
        demand::{NodeMatch, of_local_volume, of_set},
    },
    presence::{Presence, presence},
    quarantine::Identities,
    unmanaged_pv::is_on,
};
use serde::de::DeserializeOwned;
use std::{
    collections::{BTreeSet, HashMap},
    fmt::Debug,
    sync::Arc,
};

/// The cluster at one moment.
#[derive(Default)]
pub struct Snapshot {
    /// The operator's: sets elsewhere are not acted upon.
    pub namespace: String,
    pub nodes: Vec<Arc<Node>>,
    pub inventories: Vec<NodeInventory>,
    pub pvs: Vec<Arc<PersistentVolume>>,
    pub classes: Vec<Arc<StorageClass>>,
    pub jobs: Vec<Arc<NodeJob>>,
    pub sets: Vec<LocalVolumeSet>,
    pub volumes: Vec<LocalVolume>,
    /// `None` when they could not be read: agents are then taken to be there.
    pub leases: Option<HashMap<String, Lease>>,
    pub now: Timestamp,
}

/// One object, and every node's part in it.
pub struct Account {
    pub demand: Demand,
    pub parts: Vec<Part>,
}

pub struct Part {
    pub node: String,
    pub covers: NodeMatch,
    /// What keeps it from being true, or complete.
    pub problem: Option<String>,
    pub claims: Vec<Held>,
    /// Devices and paths that it does not have.
    pub rows: Vec<Row>,
}

/// A claim of the object, and where it stands.
pub struct Held {
    pub claim: DeviceClaim,
    pub stage: Stage,
    /// The kernel's name; `None` while the device is not there.
    pub device: Option<String>,
    /// The PersistentVolume, if there is one.
    pub pv: Option<String>,
    pub job: Option<Arc<NodeJob>>,
}

impl Snapshot {
    pub async fn read(cluster: &Cluster, namespace: &str) -> anyhow::Result<Self> {
        let (nodes, inventories, pvs, classes, jobs, sets, volumes) = tokio::try_join!(
            list::<Node>(cluster),
            list::<NodeInventory>(cluster),
            list::<PersistentVolume>(cluster),
            list::<StorageClass>(cluster),
            list::<NodeJob>(cluster),
            list::<LocalVolumeSet>(cluster),
            list::<LocalVolume>(cluster),
        )?;
        let leases = devices::read_leases(cluster, namespace).await;
        let (nodes, pvs) = (shared(nodes), shared(pvs));
        Ok(Snapshot {
            namespace: namespace.to_owned(),
            nodes,
            inventories,
            pvs,
            classes: shared(classes),
            jobs: shared(jobs),
            sets,
            volumes,
            leases,
            now: Timestamp::now(),
        })
    }

    /// Everybody who wants devices: those of the operator's namespace.
    pub fn demands(&self) -> Vec<Demand> {
        let here =
            |namespace: Option<String>| namespace.as_deref() == Some(self.namespace.as_str());
        let sets =
            self.sets.iter().filter(|set| here(set.namespace())).map(|set| self.want_of_set(set));
        sets.chain(
            self.volumes
                .iter()
                .filter(|volume| here(volume.namespace()))
                .map(|volume| self.want_of_volume(volume)),
        )
        .collect()
    }

    pub fn want_of_set(&self, set: &LocalVolumeSet) -> Demand {
        of_set(set).with_classes(|class| self.provisioner(class))
    }

    pub fn want_of_volume(&self, volume: &LocalVolume) -> Demand {
        of_local_volume(volume).with_classes(|class| self.provisioner(class))
    }

    fn provisioner(&self, class: &str) -> Option<String> {
        self.class(class).map(|class| class.provisioner.clone())
    }

    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name))
    }

    pub fn class(&self, name: &str) -> Option<&Arc<StorageClass>> {
        self.classes.iter().find(|class| class.metadata.name.as_deref() == Some(name))
    }

    fn problem(&self, node: &str) -> Option<String> {
        presence(self.leases.as_ref()?.get(&names::agent_lease(node)), self.now).problem(node)
    }

    /// The world of one node, as the operator sees it.
    pub fn world(
        &self,
        inventory: &NodeInventory,
        demands: &[Demand],
        identities: &Identities,
    ) -> NodeWorld {
        let name = inventory.name_any();
        let node = self.node(&name);
        let claims = &inventory.spec.device_claims;
        let claimed: BTreeSet<String> =
            claims.iter().map(|claim| names::local_pv(&name, &claim.identity)).collect();
        let concerns = |pv: &PersistentVolume| {
            node.is_some_and(|node| is_on(pv, node))
                || pv.metadata.name.as_ref().is_some_and(|name| claimed.contains(name))
        };
        let agent = self
            .leases
            .as_ref()
            .map(|leases| presence(leases.get(&names::agent_lease(&name)), self.now));
        NodeWorld {
            node: node.cloned(),
            inventory: inventory.clone(),
            demands: demands.to_vec(),
            pvs: self.pvs.iter().filter(|pv| concerns(pv)).cloned().collect(),
            classes: self.classes.iter().map(|class| (class.name_any(), class.clone())).collect(),
            jobs: self.jobs.iter().map(|job| (job.name_any(), job.clone())).collect(),
            elsewhere: identities.elsewhere(&name),
            agent_present: agent.is_none_or(|agent| matches!(agent, Presence::Present { .. })),
            name,
        }
    }

    pub fn worlds(&self) -> Vec<NodeWorld> {
        let (demands, identities) = (self.demands(), self.identities());
        self.inventories
            .iter()
            .map(|inventory| self.world(inventory, &demands, &identities))
            .collect()
    }

    /// Which nodes show or claim which identity.
    pub fn identities(&self) -> Identities {
        let mut identities = Identities::default();
        for inventory in &self.inventories {
            let devices = inventory
                .status
                .as_ref()
                .map(|status| status.devices.as_slice())
                .unwrap_or_default();
            identities.follow(&inventory.name_any(), devices, Some(&inventory.spec));
        }
        identities
    }

    /// What each of these has of each node, would get, and why not the rest.
    pub fn accounts(&self, demands: Vec<Demand>) -> Vec<Account> {
        let worlds = self.worlds();
        demands
            .into_iter()
            .map(|demand| Account { parts: self.parts(&worlds, &demand), demand })
            .collect()
    }

    fn parts(&self, worlds: &[NodeWorld], demand: &Demand) -> Vec<Part> {
        let blind = self.nodes.iter().filter(|node| {
            !worlds.iter().any(|world| Some(&world.name) == node.metadata.name.as_ref())
        });
        let blind = blind.map(|node| {
            let name = node.name_any();
            let problem =
                Some(format!("node {name} has no inventory yet: check that the operator runs"));
            Part {
                covers: demand.match_node(node),
                node: name,
                problem,
                claims: Vec::new(),
                rows: Vec::new(),
            }
        });
        let mut parts: Vec<Part> =
            worlds.iter().map(|world| self.part(world, demand)).chain(blind).collect();
        parts.sort_by(|a, b| a.node.cmp(&b.node));
        parts
    }

    fn part(&self, world: &NodeWorld, demand: &Demand) -> Part {
        let mut rows = account(world, &demand.owner.uid);
        // What it has is told with its claim.
        rows.retain(|row| row.eligibility != Eligibility::Claimed);
        let problem = match &world.inventory.status {
            Some(_) => self.problem(&world.name),
            None => Some(self.problem(&world.name).unwrap_or_else(|| {
                format!("the agent on node {} has not published its devices yet", world.name)
            })),
        };
        let covers =
            world.node.as_deref().map_or(NodeMatch::NotSelected, |node| demand.match_node(node));
        Part {
            node: world.name.clone(),
            covers,
            problem,
            claims: held(world, |claim| claim.owner.uid == demand.owner.uid, self.now),
            rows,
        }
    }
}

/// The claims of a node that are asked for, and where each stands.
pub fn held(world: &NodeWorld, which: impl Fn(&DeviceClaim) -> bool, now: Timestamp) -> Vec<Held> {
    let found = claim_contexts(world).into_iter().filter(|view| which(view.claim));
    found
        .map(|view| Held {
            claim: view.claim.clone(),
            stage: decide(world, &view, now).stage,
            device: view.device.map(|device| device.name.clone()),
            pv: view.pv.and_then(|pv| pv.metadata.name.clone()),
            job: view.claim.job.as_ref().and_then(|job| world.jobs.get(&job.name).cloned()),
        })
        .collect()
}

async fn list<K>(cluster: &Cluster) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::all(cluster.client.clone());
    let mut found = cluster
        .call(&format!("listing {}", K::plural(&())), api.list(&ListParams::default()))
        .await?
        .items;
    found.sort_by_key(|object| (object.meta().namespace.clone(), object.meta().name.clone()));
    Ok(found)
}

fn shared<K>(objects: Vec<K>) -> Vec<Arc<K>> {
    objects.into_iter().map(Arc::new).collect()
}
