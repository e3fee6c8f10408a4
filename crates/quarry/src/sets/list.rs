//! `quarry sets`: which devices of each node every set and LocalVolume has, waits for, and is refused.

use super::table;
use crate::{
    cli::{ConnectArgs, SetsArgs},
    connect::Cluster,
    output::{self, Format},
    snapshot,
};
use anyhow::bail;
use jiff::Timestamp;
use quarry_api::names;
use quarry_core::{device_claim::owner_text, source::Source};
use quarry_view::{
    Snapshot,
    sets::{self, OwnerView, outside_namespace, rows::rows},
};

pub async fn run(connect: &ConnectArgs, args: &SetsArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let snapshot = snapshot::read(&cluster, &args.namespace).await?;
    let now = Timestamp::now();
    check_node(&snapshot, args.node.as_deref())?;
    let namespace = snapshot.namespace();
    for demand in outside_namespace(&snapshot) {
        output::note(&format!(
            "{} has no effect: the operator acts on namespace {namespace} only; create it there (-n selects another operator)",
            owner_text(&demand.owner),
        ));
    }
    let owners = sets::list(&snapshot, args.node.as_deref(), now);
    match args.output {
        Format::Json => output::print(&output::json(&owners)?),
        Format::Yaml => output::print(&output::yaml(&owners)?),
        Format::Table | Format::Wide if owners.is_empty() => {
            let node = args.node.as_deref();
            let place = node.map_or_else(String::new, |node| format!(" that concerns node {node}"));
            output::note(&format!(
                "no LocalVolumeSet and no LocalVolume in namespace {namespace}{place}"
            ));
            output::hint("run `quarry plan -f set.yaml` to see what one would get");
            Ok(())
        }
        Format::Table | Format::Wide => {
            let wide = args.output == Format::Wide;
            let rows = rows(&snapshot, &owners);
            let (colors, width) = (output::colors(), output::width());
            output::print(&table::render_sets(&rows, wide, now, colors, width))?;
            hint(namespace, &owners);
            Ok(())
        }
    }
}

/// An unknown node is a typing error, not an empty list.
pub fn check_node(snapshot: &Snapshot, node: Option<&str>) -> anyhow::Result<()> {
    let Some(node) = node else { return Ok(()) };
    if snapshot.node(node).is_some() || snapshot.inventory(node).is_some() {
        return Ok(());
    }
    let names: Vec<&str> = snapshot.nodes.keys().map(String::as_str).take(8).collect();
    if names.is_empty() {
        bail!("node {node} does not exist; the cluster has no nodes");
    }
    bail!("node {node} does not exist; use one of: {}", names.join(", "));
}

/// Only in a terminal: a pipe gets no hints.
fn hint(namespace: &str, owners: &[OwnerView]) {
    let stuck = owners.iter().find(|owner| owner.needs_attention());
    if let Some(owner) = stuck.filter(|_| output::is_interactive()) {
        let place = if namespace == names::DEFAULT_NAMESPACE {
            String::new()
        } else {
            format!(" -n {namespace}")
        };
        let command = format!("quarry explain {}{place}", owner.handle());
        output::hint(&format!("run `{command}` for every device and what to do"));
    }
}
