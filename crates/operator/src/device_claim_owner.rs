//! What the LocalVolumeSet and LocalVolume controllers share: both own device claims, which are planned per node by
//! `node_inventory/`, and report how these stand. Decided in `quarry_core::device_claim::owner`.

use crate::{
    Context,
    cache::{Cached, Caches},
    controller::{Controller, Failure, Group, Need, Next},
    events,
    node_inventory::{inventory_devices_differ, node_differs},
    registry::group,
    trigger::{Change, Triggers},
    writer::Written,
};
use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        coordination::v1::Lease,
        core::v1::{Node, ObjectReference, PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
};
use kube::{Api, Resource, ResourceExt, api::ListParams};
use quarry_api::{
    NodeInventory, NodeJob,
    crds::MANAGED_BY_LABEL,
    local_volume_discovery::OperatorCondition,
    names,
    node_inventory::{ClaimOwner, DeviceClaim},
    node_job::OwnerKind,
};
use quarry_core::{
    device_claim::{
        Demand, Stage,
        owner::{self, ClassUse, Observed, OwnerFields, Plan, Report, Step},
        owner_text, pv,
        status::NodeSummary,
        world::{demands, node_facts},
    },
    presence::is_renewal,
    source::Source,
    unmanaged_pv::places,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, marker::PhantomData, time::Duration};

/// A kind that owns device claims.
pub trait OwnsDeviceClaims: Cached + Resource<Scope = NamespaceResourceScope> {
    const KIND: OwnerKind;
    /// The name of its controller.
    const CONTROLLER: &'static str;
    const NEEDS: &'static [Need];
    type Spec: PartialEq + Clone;
    /// The kind that competes for the same devices.
    type Rival: OwnsDeviceClaims;

    fn spec(&self) -> &Self::Spec;
    fn demand(&self, source: &impl Source) -> Demand;
    fn conditions(&self) -> Vec<OperatorCondition>;
    /// As it is, for the difference; an empty object when there is none.
    fn old_status(&self) -> Value;
    /// What its status takes over.
    fn fields(&self) -> OwnerFields;
}

/// The controller of a kind that owns device claims.
pub struct OwnerController<K>(PhantomData<K>);

impl<K: OwnsDeviceClaims> Controller for OwnerController<K> {
    const NAME: &'static str = K::CONTROLLER;
    const GROUP: Group = group::DEVICE_CLAIMS;
    const NEEDS: &'static [Need] = K::NEEDS;
    /// A thousand disks are one status, not a thousand.
    const DEBOUNCE: Duration = Duration::from_millis(200);
    type Observed = (K, Observed);
    type Plan = Plan;
    type Violation = owner::Violation;

    fn triggers(triggers: &mut Triggers<'_>) {
        register::<K, K::Rival>(triggers);
    }

    async fn observe(context: &Context, key: &str) -> Result<Option<Self::Observed>, Failure> {
        observe(context, key).await
    }

    fn plan((_, observed): &Self::Observed, now: Timestamp) -> Plan {
        owner::plan(observed, now)
    }

    fn check((_, observed): &Self::Observed, plan: &Plan) -> Vec<owner::Violation> {
        owner::check(observed, plan)
    }

    async fn apply(
        context: &Context,
        (found, observed): &Self::Observed,
        plan: Plan,
    ) -> Result<Next, Failure> {
        apply(context, found, observed, plan).await
    }

    fn subject((found, _): &Self::Observed) -> Option<ObjectReference> {
        Some(found.object_ref(&()))
    }

    fn waiting_since(context: &Context, key: &str) -> Option<Timestamp> {
        context.caches.get::<K>(key)?.creation_timestamp().map(|time| time.0)
    }
}

/// Whether anything differs that decides who gets which device.
pub fn demand_differs<K: OwnsDeviceClaims>(change: &Change<'_, K>) -> bool {
    change.differs(|one| {
        let meta = one.meta();
        let deleting = meta.deletion_timestamp.is_some();
        (one.uid(), one.spec().clone(), deleting, meta.finalizers.clone(), meta.annotations.clone())
    })
}

/// Enqueues what both kinds wait for. `K` is the controller's own kind, `Other` competes for the same devices.
pub fn register<K: OwnsDeviceClaims, Other: OwnsDeviceClaims>(triggers: &mut Triggers<'_>) {
    triggers
        .on::<K>(|change, caches, enqueue| {
            enqueue(K::key(change.object().meta()));
            if demand_differs(change) {
                enqueue_all::<K>(caches, enqueue);
            }
        })
        .on::<Other>(|change, caches, enqueue| {
            if demand_differs(change) {
                enqueue_all::<K>(caches, enqueue);
            }
        })
        .on::<PersistentVolume>(|change, caches, enqueue| {
            let found = change.object();
            if !pv::is_ours(found) {
                return;
            }
            // That it was bound or released counts, too.
            let nodes = places(found);
            for node in nodes.iter().flat_map(|place| crate::node_index::nodes_at(caches, place)) {
                let inventory = caches.get::<NodeInventory>(&node);
                let claims = claims(inventory.as_deref()).iter();
                claims
                    .filter(|claim| pv::is_of(found, claim))
                    .filter_map(|claim| key_of::<K>(&claim.owner))
                    .for_each(&mut *enqueue);
            }
        })
        .on::<StorageClass>(|change, caches, enqueue| {
            if provisioner_differs(change) {
                enqueue_all::<K>(caches, enqueue);
            }
        })
        .on::<Node>(|change, caches, enqueue| {
            if node_differs(change) {
                enqueue_all::<K>(caches, enqueue);
            }
        })
        .on::<NodeJob>(|change, _, enqueue| {
            let owner = &change.object().spec.owner;
            if owner.kind == K::KIND {
                let namespace = owner.namespace.as_deref().unwrap_or_default();
                enqueue(format!("{namespace}/{}", owner.name));
            }
        })
        .on::<Lease>(|change, caches, enqueue| {
            if !is_renewal(change.before, change.after) {
                enqueue_all::<K>(caches, enqueue);
            }
        })
        .on::<NodeInventory>(|change, caches, enqueue| {
            let paths = |inventory: &NodeInventory| {
                inventory.status.as_ref().map(|status| status.paths.clone()).unwrap_or_default()
            };
            let reports = |inventory: &NodeInventory| {
                let reports = inventory.status.as_ref().map(|status| status.device_claims.clone());
                (inventory.spec.device_claims.clone(), reports.unwrap_or_default())
            };
            if inventory_devices_differ(change)
                || change.before.map(paths).unwrap_or_default()
                    != change.after.map(paths).unwrap_or_default()
            {
                enqueue_all::<K>(caches, enqueue);
            } else if change.before.map(reports).unwrap_or_default()
                != change.after.map(reports).unwrap_or_default()
            {
                let both = claims(change.before).iter().chain(claims(change.after));
                both.filter_map(|claim| key_of::<K>(&claim.owner)).for_each(&mut *enqueue);
            }
        });
}

/// A class of another provisioner came or went: an owner that names it takes nothing until it is gone.
pub fn provisioner_differs(change: &Change<'_, StorageClass>) -> bool {
    let other = |class: &StorageClass| {
        Some(class.provisioner.clone()).filter(|other| other != pv::NO_PROVISIONER)
    };
    change.before.and_then(other) != change.after.and_then(other)
}

fn claims(inventory: Option<&NodeInventory>) -> &[DeviceClaim] {
    inventory.map(|inventory| inventory.spec.device_claims.as_slice()).unwrap_or_default()
}

fn enqueue_all<K: OwnsDeviceClaims>(caches: &Caches, enqueue: &mut dyn FnMut(String)) {
    caches.store::<K>().keys().into_iter().for_each(enqueue);
}

/// The key of the owner, if it is of this kind.
fn key_of<K: OwnsDeviceClaims>(owner: &ClaimOwner) -> Option<String> {
    let namespace = owner.namespace.as_deref().unwrap_or_default();
    (owner.kind == K::KIND.as_str()).then(|| format!("{namespace}/{}", owner.name))
}

fn metrics_subject<K: OwnsDeviceClaims>(key: &str) -> String {
    format!("{}/{key}", K::KIND.as_str())
}

/// The owner, every node, and who uses its StorageClasses.
pub async fn observe<K: OwnsDeviceClaims>(
    context: &Context,
    key: &str,
) -> Result<Option<(K, Observed)>, Failure> {
    let (caches, now) = (context.caches.as_ref(), context.now());
    let Some(found) = caches.get::<K>(key) else {
        context.metrics.set_stages(&metrics_subject::<K>(key), std::iter::empty());
        return Ok(None);
    };
    let demand = found.demand(caches);
    let nodes: Vec<_> = caches
        .store::<NodeInventory>()
        .each()
        .map(|inventory| node_facts(caches, inventory, now))
        .collect();
    // Nothing else depends on them: who uses a class is asked of the API, once nothing can be created for it any more.
    let claimed = nodes.iter().any(|facts| {
        claims(Some(&facts.inventory)).iter().any(|claim| claim.owner.uid == demand.owner.uid)
    });
    let deleted = found.meta().deletion_timestamp.is_some();
    let held = found.finalizers().iter().any(|one| one == names::OWNER_FINALIZER);
    let classes = if deleted && held && !claimed {
        observe_classes(context, &demand).await?
    } else {
        Vec::new()
    };
    let observed = Observed {
        demand,
        namespace: context.namespace.clone(),
        conditions: found.conditions(),
        generation: found.meta().generation,
        fields: found.fields(),
        finalizers: found.finalizers().to_vec(),
        resource_version: found.resource_version().unwrap_or_default(),
        demands: demands(caches),
        nodes,
        classes,
    };
    Ok(Some(((*found).clone(), observed)))
}

/// The StorageClasses that were created for it, and who uses each.
async fn observe_classes(context: &Context, demand: &Demand) -> Result<Vec<ClassUse>, Failure> {
    let caches = context.caches.as_ref();
    let failed = |error| Failure::api("reading the StorageClasses that Quarry created", error);
    let api: Api<StorageClass> = Api::all(context.client.clone());
    // Listed as well: a class that the cache has not seen yet would stay for ever.
    let created =
        ListParams::default().labels(&format!("{MANAGED_BY_LABEL}={}", names::MANAGED_BY));
    let created = api.list(&created).await.map_err(failed)?;
    let known = caches.all::<StorageClass>().into_iter().map(|class| (*class).clone());
    let all: BTreeMap<String, StorageClass> =
        known.chain(created.items).map(|class| (class.name_any(), class)).collect();
    let own: Vec<StorageClass> =
        all.into_values().filter(|class| pv::is_class_of(class, demand)).collect();
    if own.is_empty() {
        return Ok(Vec::new());
    }
    let pvcs: Api<PersistentVolumeClaim> = Api::all(context.client.clone());
    let pvcs = pvcs.list(&ListParams::default()).await.map_err(failed)?.items;
    let others: Vec<Demand> =
        demands(caches).into_iter().filter(|one| one.owner.uid != demand.owner.uid).collect();
    let mut found = Vec::new();
    for class in own {
        let name = class.name_any();
        let names_it = |pvc: &PersistentVolumeClaim| {
            pvc.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref()) == Some(&name)
        };
        let claimed = caches.all::<NodeInventory>().iter().any(|inventory| {
            claims(Some(inventory)).iter().any(|claim| claim.storage_class_name == name)
        });
        found.push(ClassUse {
            uid: class.uid().unwrap_or_default(),
            resource_version: class.resource_version(),
            claimed,
            demanded: others.iter().any(|one| one.classes().any(|class| class == name)),
            published: is_published(context, &name).await.map_err(failed)?,
            requested: pvcs.iter().any(names_it),
            name,
        });
    }
    Ok(found)
}

/// A PersistentVolume of this class exists. The cache may show one that is gone by now.
async fn is_published(context: &Context, class: &str) -> kube::Result<bool> {
    let api: Api<PersistentVolume> = Api::all(context.client.clone());
    let of_class = |pv: &PersistentVolume| {
        pv.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()) == Some(class)
    };
    for pv in context.caches.store::<PersistentVolume>().each().filter(|pv| of_class(pv)) {
        if api.get_metadata_opt(&pv.name_any()).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

pub async fn apply<K: OwnsDeviceClaims>(
    context: &Context,
    found: &K,
    observed: &Observed,
    plan: Plan,
) -> Result<Next, Failure> {
    let (name, namespace) = (found.name_any(), found.namespace().unwrap_or_default());
    let api: Api<K> = Api::namespaced(context.client.clone(), &namespace);
    let failed = |error| Failure::api(format!("{} {namespace}/{name}", K::kind(&())), error);
    let version = &observed.resource_version;
    let owner = owner_text(&observed.demand.owner);
    let subject = metrics_subject::<K>(&format!("{namespace}/{name}"));
    context.metrics.set_stages(&subject, plan.stages.iter().map(Stage::as_str));
    match plan.step {
        Step::SetFinalizers(finalizers) => {
            let changes = json!({"metadata": {"finalizers": finalizers}});
            context.writer.patch(&api, &name, version, changes).await.map_err(failed)?;
            Ok(Next::AwaitChange)
        }
        Step::Release { delete_classes, finalizers } => {
            for class in &delete_classes {
                delete_class(context, class).await?;
            }
            let changes = json!({"metadata": {"finalizers": finalizers}});
            context.writer.patch(&api, &name, version, changes).await.map_err(failed)?;
            context.forget_published(&observed.demand.owner.uid);
            tracing::info!(owner, "deleted: nothing is left of it on any node");
            Ok(Next::AwaitChange)
        }
        Step::Report(report) => {
            let Report { status, notes, summaries, requeue } = *report;
            let (old, new) = (found.old_status(), json!(status));
            let written = context.writer.patch_status(&api, &name, version, &old, &new).await;
            match written.map_err(failed)? {
                Written::Changed(_) => {
                    tracing::info!(owner, provisioned = status.provisioned(), "updated status");
                }
                Written::Unchanged => {}
            }
            events::publish(context, found, &notes).await;
            for NodeSummary { node, event, news } in summaries {
                if context.is_unpublished(&observed.demand.owner.uid, &node, &news) {
                    events::publish(context, found, &[event]).await;
                }
            }
            Ok(requeue.into())
        }
    }
}

async fn delete_class(context: &Context, class: &ClassUse) -> Result<(), Failure> {
    let api: Api<StorageClass> = Api::all(context.client.clone());
    let version = class.resource_version.as_deref();
    let deleted = context.writer.delete(&api, &class.name, &class.uid, version).await;
    deleted.map_err(|error| Failure::api(format!("StorageClass {}", class.name), error))?;
    tracing::info!(class = class.name, "deleted StorageClass");
    Ok(())
}
