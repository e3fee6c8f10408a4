//! `quarry volume retry`: retries a failed volume.

use super::follow::{self, Goal};
use crate::{
    cli::{ConnectArgs, RetryArgs},
    connect::Cluster,
    output,
};
use anyhow::bail;
use jiff::Timestamp;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use quarry_api::{
    Volume, names,
    volume::{Condition, Phase},
};
use serde_json::json;

pub async fn run(connect: &ConnectArgs, args: &RetryArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let name = &args.name;
    let volume = super::get(&cluster, name).await?;
    if let Some(why) = refusal(&volume) {
        bail!("{why}");
    }
    // With the resourceVersion that was checked; each new value of the annotation is one retry.
    let patch = json!({"metadata": {
        "resourceVersion": volume.metadata.resource_version,
        "annotations": {names::RETRY_ANNOTATION: Timestamp::now().to_string()},
    }});
    let api: Api<Volume> = Api::all(cluster.client.clone());
    let retried = cluster
        .call(
            &format!("retrying volume {name}"),
            api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)),
        )
        .await?;
    if !args.wait.wait {
        return output::print(&format!(
            "volume {name} is retried (follow it with `quarry volumes --watch`)"
        ));
    }
    let done =
        follow::follow_change(&cluster, &retried, Goal::Available, args.wait.timeout).await?;
    output::print(&done)
}

fn refusal(volume: &Volume) -> Option<String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if volume.metadata.deletion_timestamp.is_some() {
        return Some(format!("volume {name} is being deleted: there is nothing to retry"));
    }
    match volume.phase() {
        Some(Phase::Failed) => None,
        Some(phase @ (Phase::Available | Phase::Pending | Phase::Terminating)) => {
            let why = volume
                .ready()
                .and_then(|Condition { message, .. }| message.as_deref())
                .map_or_else(String::new, |message| format!(" ({message})"));
            Some(format!(
                "volume {name} is {}, not Failed: there is nothing to retry{why}",
                phase.as_str()
            ))
        }
        None => Some(format!("volume {name} has no status yet; check that the operator runs")),
    }
}
