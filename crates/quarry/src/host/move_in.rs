//! `quarry host move-in`: ends the pause of hosts, in the cluster that they were moved to, or where they stay after all.

use super::{StoredHost, annotate, namespace, select};
use crate::{
    cli::{ConnectArgs, MoveInArgs},
    connect::Cluster,
    output,
};
use anyhow::bail;
use kube::{Api, ResourceExt};
use quarry_api::{HardwareData, bare_metal_host::ProvisioningState as State, names};
use quarry_core::bare_metal_host::annotations;
use quarry_view::{
    hosts::actions::{Action, refusal},
    optional,
};
use serde_json::{Value, json};

pub async fn run(connect: &ConnectArgs, args: &MoveInArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let place = namespace(&cluster, args.which.namespace.as_deref()).to_owned();
    let chosen = select(&cluster, &place, &args.which).await?;
    let mut problems = Vec::new();
    for host in &chosen {
        problems.extend(refusal(&host.host, Action::MoveIn { force: args.force }));
        if !args.force {
            problems.extend(missing_hardware(&cluster, host).await?);
        }
    }
    check(problems)?;
    for host in &chosen {
        let name = host.object.name_any();
        if host.annotation(names::PAUSED_ANNOTATION).is_none() {
            output::print(&format!("host {name} is not paused"))?;
            continue;
        }
        annotate(&cluster, host, json!({names::PAUSED_ANNOTATION: Value::Null})).await?;
        output::print(&format!("host {name}: the operator takes it up"))?;
    }
    output::hint(&format!("run `quarry hosts -n {place} --watch` to follow them"));
    Ok(())
}

/// Nothing is changed unless all hosts can be: all problems at once.
pub fn check(problems: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
    let problems: Vec<String> = problems.into_iter().collect();
    match problems.as_slice() {
        [] => Ok(()),
        [one] => bail!("{one}"),
        several => {
            bail!("nothing was changed: {} problems:\n  {}", several.len(), several.join("\n  "))
        }
    }
}

/// An available host that was moved without its HardwareData would be inspected again, which reboots it.
async fn missing_hardware(cluster: &Cluster, host: &StoredHost) -> anyhow::Result<Option<String>> {
    let has_status = host.host.status.as_ref().is_some_and(|status| status.last_updated.is_some());
    let Ok(Some(saved)) = annotations::saved_status(&host.host) else { return Ok(None) };
    let available = matches!(saved.provisioning.state, State::Available | State::Ready);
    let inspected = saved.operation_history.inspect.end.is_some() && saved.hardware.is_none();
    let off = annotations::is_inspection_disabled(&host.host);
    if has_status || !available || !inspected || off {
        return Ok(None);
    }
    let name = host.object.name_any();
    let place = host.object.namespace().unwrap_or_default();
    let api: Api<HardwareData> = Api::namespaced(cluster.client.clone(), &place);
    let attempt = format!("reading HardwareData {name}");
    let found = cluster.call(&attempt, optional(api.get_metadata(&name))).await?;
    Ok(found.is_none().then(|| {
        format!(
            "HardwareData {name} was not moved along, so that the host would be inspected again, which reboots it; copy it from the other cluster or a backup, or add --force"
        )
    }))
}
