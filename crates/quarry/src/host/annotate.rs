//! `quarry host inspect|reboot|detach|attach`: refuses what the state does not permit, else writes one annotation.

use super::{StoredHost, annotate, get, namespace, read_rival, warn_of_rival};
use crate::{
    cli::{ConnectArgs, DeleteAction, DetachArgs, HostNameArgs, RebootArgs},
    connect::Cluster,
    output,
};
use anyhow::bail;
use kube::ResourceExt;
use quarry_api::{bare_metal_host::DetachedArguments, names};
use quarry_core::bare_metal_host::annotations;
use quarry_view::hosts::actions::{Action, refusal};
use serde_json::{Map, Value, json};

pub async fn inspect(connect: &ConnectArgs, args: &HostNameArgs) -> anyhow::Result<()> {
    let (cluster, host) = checked(connect, args, Action::Inspect).await?;
    write(&cluster, &host, names::INSPECT_ANNOTATION, json!("")).await?;
    done(&cluster, &host, "requested an inspection of", ", which reboots it").await
}

pub async fn reboot(connect: &ConnectArgs, args: &RebootArgs) -> anyhow::Result<()> {
    let (cluster, host) =
        checked(connect, &args.host, Action::Reboot { force: args.force }).await?;
    let mut value = Map::new();
    if args.hard {
        value.insert("mode".to_owned(), json!("hard"));
    }
    if args.force {
        value.insert("force".to_owned(), json!(true));
    }
    write(&cluster, &host, names::REBOOT_ANNOTATION, text(value)).await?;
    done(&cluster, &host, "requested a reboot of", "").await
}

pub async fn detach(connect: &ConnectArgs, args: &DetachArgs) -> anyhow::Result<()> {
    let (cluster, host) =
        checked(connect, &args.host, Action::Detach { force: args.force }).await?;
    let mut value = Map::new();
    // Always written: without it, a deletion does not wait, as upstream.
    let action = match args.delete_action {
        DeleteAction::Delay => "delay",
        DeleteAction::Delete => "delete",
    };
    value.insert("deleteAction".to_owned(), json!(action));
    if args.force {
        value.insert("force".to_owned(), json!(true));
    }
    let wanted = DetachedArguments::parse(&Value::Object(value.clone()).to_string())?;
    let name = host.object.name_any();
    if annotations::detached(&host.host).ok().flatten() == Some(wanted) {
        return output::print(&format!(
            "host {name} is to be detached already, with these options"
        ));
    }
    write(&cluster, &host, names::DETACHED_ANNOTATION, text(value)).await?;
    done(&cluster, &host, "requested to detach", "; its machine stays as it is").await
}

pub async fn attach(connect: &ConnectArgs, args: &HostNameArgs) -> anyhow::Result<()> {
    let (cluster, host) = checked(connect, args, Action::Attach).await?;
    write(&cluster, &host, names::DETACHED_ANNOTATION, Value::Null).await?;
    done(&cluster, &host, "requested to attach", "").await
}

async fn checked(
    connect: &ConnectArgs,
    args: &HostNameArgs,
    action: Action,
) -> anyhow::Result<(Cluster, StoredHost)> {
    let cluster = Cluster::connect(connect).await?;
    let host = get(&cluster, namespace(&cluster, args.namespace.as_deref()), &args.name).await?;
    if let Some(why) = refusal(&host.host, action) {
        bail!("{why}");
    }
    Ok((cluster, host))
}

/// An annotation that says the same already is left: the operator may be about to act on it.
async fn write(
    cluster: &Cluster,
    host: &StoredHost,
    name: &str,
    value: Value,
) -> anyhow::Result<()> {
    if host.annotation(name) == value.as_str() {
        return Ok(());
    }
    annotate(cluster, host, json!({name: value})).await.map(|_| ())
}

/// Empty without options, as other clients write it.
fn text(value: Map<String, Value>) -> Value {
    if value.is_empty() { json!("") } else { json!(Value::Object(value).to_string()) }
}

/// What was requested: the operator acts on it.
async fn done(
    cluster: &Cluster,
    host: &StoredHost,
    request: &str,
    effect: &str,
) -> anyhow::Result<()> {
    let name = host.object.name_any();
    let place = host.object.namespace().unwrap_or_default();
    output::print(&format!(
        "{request} host {name}{effect} (follow it with `quarry hosts -n {place} --watch`)"
    ))?;
    warn_of_rival(read_rival(cluster).await.as_ref());
    Ok(())
}
