//! `quarry sets`: who has which devices of which node, and why not more.

use super::{
    describe::handle,
    observe::Snapshot,
    table::{self, Wide},
    view::{Shown, Tone},
};
use crate::{
    cli::{ConnectArgs, SetsArgs},
    connect::Cluster,
    output::{self, Format},
};
use anyhow::bail;
use quarry_api::local_volume_discovery::OperatorCondition;
use quarry_core::device_claim::{
    Demand,
    demand::{of_local_volume, of_set},
    owner_text,
};

pub async fn run(connect: &ConnectArgs, args: &SetsArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let seen = Snapshot::read(&cluster, &args.namespace).await?;
    check_node(&seen, args.node.as_deref())?;
    for demand in outside(&seen) {
        output::note(&format!(
            "{} is not acted upon: create it in namespace {} instead, where the operator runs (-n names another one)",
            owner_text(&demand.owner),
            seen.namespace
        ));
    }
    let mut shown: Vec<Shown> = seen.accounts(seen.demands()).iter().map(Shown::new).collect();
    if let Some(node) = &args.node {
        shown.iter_mut().for_each(|one| one.nodes.retain(|part| part.node == *node));
        shown.retain(|one| one.concerned().next().is_some());
    }
    match args.output {
        Format::Json => output::print(&output::json(&shown)?),
        Format::Yaml => output::print(&output::yaml(&shown)?),
        Format::Table | Format::Wide if shown.is_empty() => {
            let place = args
                .node
                .as_deref()
                .map_or_else(String::new, |node| format!(" that concerns node {node}"));
            output::note(&format!(
                "no LocalVolumeSet and no LocalVolume in namespace {}{place}; `quarry plan -f set.yaml` shows what one would get",
                seen.namespace
            ));
            Ok(())
        }
        Format::Table | Format::Wide => {
            output::print(&render(
                &seen,
                &shown,
                args.output == Format::Wide,
                output::colours(),
                output::width(),
            ))?;
            hint(&seen, &shown);
            Ok(())
        }
    }
}

/// A node that nobody knows is a typing mistake, not an empty answer.
pub fn check_node(seen: &Snapshot, node: Option<&str>) -> anyhow::Result<()> {
    let Some(node) = node else { return Ok(()) };
    let has_inventory =
        seen.inventories.iter().any(|inventory| inventory.metadata.name.as_deref() == Some(node));
    if seen.node(node).is_none() && !has_inventory {
        let mut names: Vec<&str> =
            seen.nodes.iter().filter_map(|node| node.metadata.name.as_deref()).take(8).collect();
        names.sort_unstable();
        bail!(
            "there is no node {node}; there are: {}",
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        );
    }
    Ok(())
}

fn outside(seen: &Snapshot) -> Vec<Demand> {
    let all = seen.sets.iter().map(of_set).chain(seen.volumes.iter().map(of_local_volume));
    all.filter(|demand| demand.owner.namespace.as_deref() != Some(seen.namespace.as_str()))
        .collect()
}

fn conditions<'a>(
    seen: &'a Snapshot,
    shown: &Shown,
) -> (&'a [OperatorCondition], Option<&'a jiff::Timestamp>) {
    let named = |meta: &kube::core::ObjectMeta| {
        meta.name.as_deref() == Some(shown.name.as_str()) && meta.namespace == shown.namespace
    };
    let set = seen.sets.iter().find(|set| shown.kind == "LocalVolumeSet" && named(&set.metadata));
    let volume =
        seen.volumes.iter().find(|volume| shown.kind == "LocalVolume" && named(&volume.metadata));
    let (status, meta) = match (set, volume) {
        (Some(set), _) => {
            (set.status.as_ref().map(|status| status.conditions.as_slice()), &set.metadata)
        }
        (None, Some(volume)) => {
            (volume.status.as_ref().map(|status| status.conditions.as_slice()), &volume.metadata)
        }
        (None, None) => return (&[], None),
    };
    (status.unwrap_or_default(), meta.creation_timestamp.as_ref().map(|time| &time.0))
}

fn render(
    seen: &Snapshot,
    shown: &[Shown],
    wide: bool,
    colours: bool,
    width: Option<usize>,
) -> String {
    let lines = shown.iter().flat_map(|one| {
        let handle = handle_of(one);
        let more = wide.then(|| {
            let (conditions, created) = conditions(seen, one);
            // No operator has looked at it yet.
            let status = conditions
                .iter()
                .find(|condition| condition.kind == "Available")
                .and_then(|condition| condition.reason.clone())
                .unwrap_or_else(|| "New".to_owned());
            Wide { status, age: output::age(created, seen.now) }
        });
        table::set_lines(one, &handle, more.as_ref())
    });
    let lines: Vec<table::Line> = lines.collect();
    let headers: &[&str] = if wide { &table::SETS_WIDE } else { &table::SETS };
    table::render(headers, &lines, headers.len() - 1, colours, if wide { None } else { width })
}

fn handle_of(shown: &Shown) -> String {
    let owner = quarry_api::node_inventory::ClaimOwner {
        kind: shown.kind.clone(),
        name: shown.name.clone(),
        ..Default::default()
    };
    handle(&owner)
}

/// People who look at a table are told where the reasons are; a pipe is not.
fn hint(seen: &Snapshot, shown: &[Shown]) {
    let stuck = shown.iter().find(|one| {
        !one.problems.is_empty()
            || one.nodes.iter().any(|node| {
                node.waiting > 0 || node.devices.iter().any(|device| device.tone == Tone::Bad)
            })
            || one.concerned().next().is_none()
    });
    if let Some(one) = stuck.filter(|_| output::is_interactive()) {
        let place = if seen.namespace == quarry_api::names::DEFAULT_NAMESPACE {
            String::new()
        } else {
            format!(" -n {}", seen.namespace)
        };
        output::note(&format!(
            "\nevery device, and what to do: quarry explain {}{place}",
            handle_of(one)
        ));
    }
}
