//! `quarry devices`: every block device of this machine or of a cluster's nodes, with its verdict and reasons.
//!
//! What is shown is computed by `quarry_view::devices`. This machine is scanned now, by the agent's own inspector; nodes
//! of a cluster show what their agents published. Next to read: `local.rs`, `cluster.rs`, then `table.rs`, `watch.rs`.

mod cluster;
pub mod local;
pub mod table;
mod watch;

use crate::{
    cli::{ConnectArgs, DevicesArgs},
    connect::{Cluster, NoCluster},
    data_dir,
    output::{self, Format},
};
use anyhow::anyhow;
pub use cluster::{NodeDevices, read};
use jiff::Timestamp;
use local::Machine;
use quarry_api::node_inventory::DeviceState;
use quarry_core::{device::Reason, source::Source};
use quarry_node::inspect::Scan;
use quarry_view::devices::{self, DeviceView};
use std::path::Path;
use table::Style;

pub async fn run(connect: &ConnectArgs, args: &DevicesArgs) -> anyhow::Result<()> {
    if args.local || args.host_root.is_some() {
        return here(args).await;
    }
    match ask(connect, args).await {
        Ok((cluster, found)) => nodes(&cluster, &found, args).await,
        // No cluster was named: this machine is always there.
        Err(error)
            if args.nodes.is_empty()
                && !connect.is_chosen()
                && error.downcast_ref::<NoCluster>().is_some() =>
        {
            let error = output::error_text(&error);
            let (problem, _) = output::split_remedy(&error);
            output::note(&format!("{problem}: showing the devices of this machine (--local)"));
            here(args).await
        }
        Err(error) if args.nodes.is_empty() => {
            let error = output::error_text(&error);
            let joint = if output::split_remedy(&error).1.is_some() { ", or" } else { ";" };
            Err(anyhow!("{error}{joint} use --local for the devices of this machine"))
        }
        Err(error) => Err(error),
    }
}

async fn ask(connect: &ConnectArgs, args: &DevicesArgs) -> anyhow::Result<(Cluster, NodeDevices)> {
    let cluster = Cluster::connect(connect).await?;
    let found = read(&cluster, &args.nodes, &args.namespace).await?;
    Ok((cluster, found))
}

async fn here(args: &DevicesArgs) -> anyhow::Result<()> {
    let mut machine = Machine::open(args.host_root.as_deref().unwrap_or(Path::new("/")))?;
    let style = style(args.output, false);
    if args.watch {
        return watch::local(&mut machine, watch::Screen::new(args.output, style, args.all)).await;
    }
    let scanned = tokio::task::block_in_place(|| machine.scan(Scan::Everything))?;
    print(&scanned.devices, args, style)?;
    scanned.problems.iter().for_each(|problem| output::note(problem));
    if scanned.devices.is_empty() {
        output::note(
            "no block devices found; check that /sys of a machine with disks is mounted below the host root",
        );
    }
    if is_for_people(args.output) {
        footnotes(&scanned.devices).iter().for_each(|note| output::note(note));
        hint(&scanned.devices, args.output, |view| format!("/dev/{}", view.device.name));
    }
    Ok(())
}

async fn nodes(cluster: &Cluster, found: &NodeDevices, args: &DevicesArgs) -> anyhow::Result<()> {
    let style = style(args.output, true);
    devices::notes(&found.snapshot, Timestamp::now()).iter().for_each(|note| output::note(note));
    if args.watch {
        found.check_missing()?;
        return watch::cluster(
            cluster,
            &args.nodes,
            watch::Screen::new(args.output, style, args.all),
        )
        .await;
    }
    let no_inventory = found.snapshot.inventories().is_empty();
    if no_inventory && found.missing.is_empty() {
        output::note(
            "no node has a NodeInventory yet; check that the operator runs, or use --local for the devices of this machine",
        );
    }
    let devices = devices::list(&found.snapshot);
    print(&devices, args, style)?;
    if devices.is_empty() && !no_inventory && args.nodes.is_empty() {
        output::hint("use --local for the devices of this machine");
    }
    if is_for_people(args.output) {
        hint(&devices, args.output, |view| format!("{}/{}", view.node, view.device.name));
    }
    found.check_missing()
}

fn is_for_people(format: Format) -> bool {
    matches!(format, Format::Table | Format::Wide)
}

fn style(format: Format, nodes: bool) -> Style {
    Style {
        wide: format == Format::Wide,
        nodes,
        colors: output::colors(),
        width: output::width(),
        root: data_dir::is_root(),
    }
}

fn print(devices: &[DeviceView], args: &DevicesArgs, style: Style) -> anyhow::Result<()> {
    match args.output {
        // Programs get everything.
        Format::Json => output::print(&output::json(&devices)?),
        Format::Yaml => output::print(&output::yaml(&devices)?),
        Format::Table | Format::Wide => {
            let listed = devices.iter().filter(|view| args.all || !view.is_minor());
            let listed: Vec<DeviceView> = listed.cloned().collect();
            let omitted = devices.len() - listed.len();
            if !listed.is_empty() {
                output::print(&table::render(&listed, style))?;
            }
            if omitted > 0 {
                output::note(&format!(
                    "omitted: {omitted} without size, or mounted read-only images (list them with --all)"
                ));
            }
            Ok(())
        }
    }
}

/// What the list of this machine cannot show.
fn footnotes(devices: &[DeviceView]) -> Vec<String> {
    let mut notes = Vec::new();
    let hidden = devices.iter().filter(|view| view.has(Reason::NotPermitted)).count();
    if hidden > 0 {
        let why = if data_dir::is_root() {
            ": the kernel denies access to this process"
        } else {
            "; run `sudo quarry devices`"
        };
        notes.push(format!("? content and use of {hidden} devices could not be read{why}"));
    }
    if devices.iter().any(|view| view.device.state == DeviceState::Available) {
        notes.push("one scan cannot show how long a disk has been unchanged: an agent waits for the settling time before a new disk is Available".to_owned());
    }
    notes
}

/// Only in a terminal: a pipe gets no hints.
fn hint(devices: &[DeviceView], format: Format, name: impl Fn(&DeviceView) -> String) {
    let first =
        devices.iter().find(|view| view.device.state != DeviceState::Available && !view.is_minor());
    if let Some(first) = first.filter(|_| format == Format::Table && output::is_interactive()) {
        let name = name(first);
        output::hint(&format!("run `quarry explain {name}` for every check and what to do"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_view::devices::{LocalFacts, samples};
    use serde_json::json;

    #[test]
    fn what_one_scan_cannot_show_is_noted_once() {
        let notes = footnotes(&samples::machine());
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("? content and use of 1 devices"), "{notes:?}");
        assert!(footnotes(&[samples::device(json!({"reasons": [{"reason": "Swap"}]}))]).is_empty());
    }

    #[test]
    fn json_has_all_inventory_fields_and_those_of_lsblk() {
        let mut view = samples::machine().remove(1);
        view.local = Some(LocalFacts {
            number: "8:1".into(),
            mount_points: vec!["/boot/efi".into()],
            part_type: Some("c12a7328-f81f-11d2-ba4b-00a0c93ec93b".into()),
            ..Default::default()
        });
        insta::assert_snapshot!(output::yaml(&[view, samples::hostile()]).unwrap());
    }
}
