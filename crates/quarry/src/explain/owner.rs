//! Who owns a device, by name, where the cluster can be asked.

use crate::{connect::Cluster, devices::view::Shown, volume::optional};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt, api::ListParams};
use quarry_api::Volume;
use quarry_core::{device::Reason, volume::usage::pv_usage};

/// One sentence an owner; empty when nobody owns it.
pub async fn owners(cluster: &Cluster, shown: &Shown) -> anyhow::Result<Vec<String>> {
    let mut owners = Vec::new();
    for owner in shown.details(Reason::Claimed) {
        owners.push(owner.to_owned());
    }
    let mut volumes = Vec::new();
    if shown.has(Reason::BacksVolume) {
        let api: Api<Volume> = Api::all(cluster.client.clone());
        volumes = cluster.call("listing volumes", api.list(&ListParams::default())).await?.items;
    }
    for uid in shown.details(Reason::BacksVolume) {
        owners.push(
            match volumes.iter().find(|volume| volume.metadata.uid.as_deref() == Some(uid)) {
                Some(volume) => format!(
                    "Volume {}{}",
                    volume.name_any(),
                    published(cluster, &volume.name_any()).await?
                ),
                None => format!("a Volume with UID {uid}, which this cluster does not have"),
            },
        );
    }
    for pv in shown.details(Reason::BacksPersistentVolume) {
        owners.push(format!("PersistentVolume {pv}{}", used(find(cluster, pv).await?.as_ref())));
    }
    Ok(owners)
}

/// What can be said without a cluster.
pub fn unasked(shown: &Shown) -> Vec<String> {
    shown
        .details(Reason::BacksVolume)
        .map(|uid| format!("a Volume with UID {uid}; its cluster knows its name"))
        .collect()
}

async fn published(cluster: &Cluster, name: &str) -> anyhow::Result<String> {
    let pv = find(cluster, name).await?;
    Ok(match &pv {
        Some(found) => {
            format!(", published as PersistentVolume {}{}", found.name_any(), used(pv.as_ref()))
        }
        None => ", not published".to_owned(),
    })
}

async fn find(cluster: &Cluster, name: &str) -> anyhow::Result<Option<PersistentVolume>> {
    let api: Api<PersistentVolume> = Api::all(cluster.client.clone());
    cluster.call(&format!("reading PersistentVolume {name}"), optional(api.get(name))).await
}

fn used(pv: Option<&PersistentVolume>) -> String {
    let Some(pv) = pv else { return " (which does not exist any more)".to_owned() };
    let claim = pv.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    match claim {
        Some(claim) => format!(
            ", used by claim {}/{}",
            claim.namespace.as_deref().unwrap_or_default(),
            claim.name.as_deref().unwrap_or_default()
        ),
        None => match pv_usage(pv) {
            quarry_core::volume::usage::PvUsage::Free => ", used by no claim".to_owned(),
            quarry_core::volume::usage::PvUsage::InUse(why) => format!(" ({why})"),
        },
    }
}
