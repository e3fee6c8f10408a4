//! `quarry volume delete`: refuses what the deletion criteria forbid, with the reason. There is no --force.

use super::follow::{self, Goal};
use crate::{
    cli::{ConnectArgs, DeleteArgs},
    connect::Cluster,
    output,
};
use anyhow::bail;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};
use quarry_api::{Volume, volume::Phase};
use quarry_core::volume::deletion::{Deletable, decide_deletable};

pub async fn run(connect: &ConnectArgs, args: &DeleteArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let name = &args.name;
    let volume = super::get(&cluster, name).await?;
    let pvs: Api<PersistentVolume> = Api::all(cluster.client.clone());
    let pv = cluster.call("reading its PersistentVolume", super::optional(pvs.get(name))).await?;
    let terminating = volume.metadata.deletion_timestamp.is_some();
    match decide_deletable(&volume, pv.as_ref()) {
        // It is being deleted already: only wait.
        Deletable::No(_) if terminating && args.wait.wait => {}
        Deletable::No(why) => bail!("{}", refusal(&volume, &why)),
        Deletable::Yes => {
            // Exactly the object that was checked. A PVC that binds it meanwhile changes its PersistentVolume, which the
            // operator checks again before it touches anything.
            let exactly = Preconditions {
                uid: volume.metadata.uid.clone(),
                resource_version: volume.metadata.resource_version.clone(),
            };
            let api: Api<Volume> = Api::all(cluster.client.clone());
            let attempt = format!("deleting volume {name}");
            cluster
                .call(&attempt, api.delete(name, &DeleteParams::default().preconditions(exactly)))
                .await?;
        }
    }
    if !args.wait.wait {
        return output::print(&format!(
            "volume {name} is being deleted (follow it with `quarry volumes --watch`)"
        ));
    }
    let done = follow::follow(&cluster, &volume, Goal::Deleted, args.wait.timeout).await?;
    output::print(&done)
}

fn refusal(volume: &Volume, why: &str) -> String {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if volume.metadata.deletion_timestamp.is_some() {
        return format!("{why}; run `quarry explain volume/{name}` to see what it waits for");
    }
    match volume.phase() {
        // It may wait forever: for an absent agent, for a missing class.
        None | Some(Phase::Pending) => {
            format!(
                "not deleted: {why}; run `quarry explain volume/{name}` to see why, or `kubectl delete volume {name}` to delete it as soon as possible"
            )
        }
        Some(Phase::Available | Phase::Failed | Phase::Terminating) => {
            format!("not deleted: {why}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn volume(phase: &str) -> Volume {
        serde_json::from_value(json!({
            "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "metadata": {"name": "v", "uid": "u"},
            "spec": {"nodeName": "n", "storageClassName": "c", "sparseLoopDevice": {"size": "1Gi"}}, "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn deleting_a_bound_volume_is_refused_with_its_pvc() {
        let pv: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": "v", "ownerReferences": [{"apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "name": "v", "uid": "u", "controller": true}]},
            "spec": {"claimRef": {"namespace": "shop", "name": "db", "uid": "c"}}, "status": {"phase": "Bound"},
        }))
        .unwrap();
        let Deletable::No(why) = decide_deletable(&volume("Available"), Some(&pv)) else {
            panic!("a bound volume is not deletable")
        };
        assert_eq!(
            refusal(&volume("Available"), &why),
            "not deleted: PersistentVolume v is bound to PVC shop/db; delete that PVC first, and the pods that use it"
        );
    }

    #[test]
    fn deleting_a_pending_volume_is_refused() {
        let Deletable::No(why) = decide_deletable(&volume("Pending"), None) else {
            panic!("a pending volume is not deletable")
        };
        let message = refusal(&volume("Pending"), &why);
        assert!(
            message.contains("`quarry explain volume/v`")
                && message.contains("`kubectl delete volume v`"),
            "{message}"
        );
    }
}
