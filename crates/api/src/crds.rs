//! The CustomResourceDefinitions, in the order in which they are installed.

use crate::{NodeInventory, NodeJob, Volume};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// Marks a CRD as ours: `quarry crds apply` overwrites only those that carry it.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

pub fn crds() -> Vec<CustomResourceDefinition> {
    [NodeInventory::crd(), NodeJob::crd(), Volume::crd()]
        .into_iter()
        .map(|mut crd| {
            let labels = crd.metadata.labels.get_or_insert_default();
            labels.insert(MANAGED_BY_LABEL.into(), crate::names::MANAGED_BY.into());
            crd
        })
        .collect()
}
