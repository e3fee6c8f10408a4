//! The CephCluster controller: OSDs of device sets, from PVCs to running daemons. Decided in `quarry_core::device_set`.
//!
//! What an OSD depends on is listed live, by label and in the namespace of the cluster: Jobs, Pods, Deployments and
//! ConfigMaps of a whole Kubernetes cluster are not worth a cache for this, and absence in a list that was just read is
//! absence. While something moves it is read every two seconds, at rest every minute.

mod apply;
mod observe;

use crate::{
    Context,
    cache::{Cached, namespaced_key},
    controller::{Controller, Failure, Group, Need, Next},
    registry::group,
    trigger::Triggers,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, ObjectReference},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use quarry_api::CephCluster;
use quarry_core::device_set::{self, Observed, Plan, Violation};

impl Cached for CephCluster {
    fn key(metadata: &ObjectMeta) -> String {
        namespaced_key(metadata)
    }
}

pub struct CephClusterController;

impl Controller for CephClusterController {
    const NAME: &'static str = "cephcluster";
    const GROUP: Group = group::DEVICE_SETS;
    const NEEDS: &'static [Need] = &[Need {
        crd: "cephclusters.ceph.rook.io",
        fields: &["spec.storage", "status.conditions"],
    }];
    type Observed = Observed;
    type Plan = Plan;
    type Violation = Violation;

    fn triggers(triggers: &mut Triggers<'_>) {
        triggers.read::<Node>().on::<CephCluster>(|change, _, enqueue| {
            // Its own report is no news.
            let wanted = |one: &CephCluster| {
                (
                    one.metadata.generation,
                    one.metadata.deletion_timestamp.clone(),
                    one.metadata.annotations.clone(),
                )
            };
            if change.differs(wanted) {
                enqueue(CephCluster::key(&change.object().metadata));
            }
        });
    }

    async fn observe(context: &Context, key: &str) -> Result<Option<Observed>, Failure> {
        observe::observe(context, key).await
    }

    fn plan(observed: &Observed, now: Timestamp) -> Plan {
        device_set::plan(observed, now)
    }

    fn check(observed: &Observed, plan: &Plan) -> Vec<Violation> {
        device_set::check(observed, plan)
    }

    async fn apply(context: &Context, observed: &Observed, plan: Plan) -> Result<Next, Failure> {
        apply::apply(context, observed, plan).await
    }

    fn subject(observed: &Observed) -> Option<ObjectReference> {
        Some(observed.cluster.object_ref(&()))
    }
}
