//! `quarry devices`: every block device, of this machine or of a cluster's nodes, with the verdict on it and why.
//!
//! This machine is read here and now, by the agent's own inspector; nodes of a cluster are what their agents
//! published. Both are judged by `quarry_core::device` and shown by the same table.
//! Next to read: `local.rs`, `cluster.rs`, then `table.rs`.

mod cluster;
pub mod find;
pub mod local;
#[cfg(test)]
pub mod samples;
pub mod table;
mod tree;
pub mod view;
mod watch;

use crate::{
    cli::{ConnectArgs, DevicesArgs},
    connect::{Cluster, NoCluster},
    data_dir,
    output::{self, Format},
};
use anyhow::anyhow;
use cluster::Views;
pub use cluster::{devices as of_inventory, read, read_leases};
use local::Machine;
use quarry_api::node_inventory::DeviceState;
use quarry_core::device::Reason;
use quarry_node::inspect::Scan;
use std::path::Path;
use table::Style;
use view::Shown;

pub async fn run(connect: &ConnectArgs, args: &DevicesArgs) -> anyhow::Result<()> {
    if args.local || args.host_root.is_some() {
        return here(args).await;
    }
    match ask(connect, args).await {
        Ok((cluster, views)) => nodes(&cluster, &views, args).await,
        // Asked for nothing in particular: this machine is always there.
        Err(error)
            if args.nodes.is_empty()
                && !connect.is_chosen()
                && error.downcast_ref::<NoCluster>().is_some() =>
        {
            output::note(&format!(
                "{}: these are the devices of this machine (as with --local)",
                because(&error)
            ));
            here(args).await
        }
        Err(error) if args.nodes.is_empty() => Err(anyhow!(
            "{} (--local shows the devices of this machine)",
            output::error_text(&error)
        )),
        Err(error) => Err(error),
    }
}

fn because(error: &anyhow::Error) -> String {
    let text = output::error_text(error);
    // Its remedies are for those who wanted the cluster.
    text.split_once("; start")
        .or_else(|| text.split_once(": run"))
        .map_or(text.as_str(), |(why, _)| why)
        .to_owned()
}

async fn ask(connect: &ConnectArgs, args: &DevicesArgs) -> anyhow::Result<(Cluster, Views)> {
    let cluster = Cluster::connect(connect).await?;
    let views = read(&cluster, &args.nodes, &args.namespace).await?;
    Ok((cluster, views))
}

async fn here(args: &DevicesArgs) -> anyhow::Result<()> {
    let mut machine = Machine::open(args.host_root.as_deref().unwrap_or(Path::new("/")))?;
    let style = style(args.output, false);
    if args.watch {
        return watch::local(&mut machine, watch::Screen::new(args.output, style, args.all)).await;
    }
    let look = tokio::task::block_in_place(|| machine.look(Scan::Everything))?;
    show(&look.devices, args, style)?;
    look.problems.iter().for_each(|problem| output::note(problem));
    if look.devices.is_empty() {
        output::note(
            "no block device is seen here: is /sys mounted below the host root, and is it that of a machine with disks?",
        );
    }
    if is_for_people(args.output) {
        footnotes(&look.devices).iter().for_each(|note| output::note(note));
        hint(&look.devices, args.output, |shown| format!("/dev/{}", shown.device.name));
    }
    Ok(())
}

async fn nodes(cluster: &Cluster, views: &Views, args: &DevicesArgs) -> anyhow::Result<()> {
    let style = style(args.output, true);
    views.notes().iter().for_each(|note| output::note(note));
    if args.watch {
        views.complain()?;
        return watch::cluster(
            cluster,
            &args.nodes,
            watch::Screen::new(args.output, style, args.all),
        )
        .await;
    }
    if views.found.is_empty() && views.missing.is_empty() {
        output::note(
            "no node has an inventory yet: check that the operator runs (--local shows the devices of this machine)",
        );
    }
    let devices = views.devices();
    show(&devices, args, style)?;
    if devices.is_empty() && !views.found.is_empty() && args.nodes.is_empty() {
        output::note("quarry devices --local shows the devices of this machine");
    }
    if is_for_people(args.output) {
        hint(&devices, args.output, |shown| format!("{}/{}", shown.node, shown.device.name));
    }
    views.complain()
}

fn is_for_people(format: Format) -> bool {
    matches!(format, Format::Table | Format::Wide)
}

fn style(format: Format, nodes: bool) -> Style {
    Style {
        wide: format == Format::Wide,
        nodes,
        colours: output::colours(),
        width: output::width(),
        root: data_dir::is_root(),
    }
}

fn show(devices: &[Shown], args: &DevicesArgs, style: Style) -> anyhow::Result<()> {
    match args.output {
        // Programs get everything.
        Format::Json => output::print(&output::json(&devices)?),
        Format::Yaml => output::print(&output::yaml(&devices)?),
        Format::Table | Format::Wide => {
            let kept: Vec<Shown> =
                devices.iter().filter(|shown| args.all || !shown.is_minor()).cloned().collect();
            let left_out = devices.len() - kept.len();
            if !kept.is_empty() {
                output::print(&table::render(&kept, style))?;
            }
            if left_out > 0 {
                output::note(&format!(
                    "not shown: {left_out} without size, or mounted read-only images; --all shows them"
                ));
            }
            Ok(())
        }
    }
}

/// What the person must know to read the list of this machine.
fn footnotes(devices: &[Shown]) -> Vec<String> {
    let mut notes = Vec::new();
    let hidden = devices.iter().filter(|shown| shown.has(Reason::NotPermitted)).count();
    if hidden > 0 {
        let whose = if data_dir::is_root() {
            "the kernel refuses it to this process"
        } else {
            "only root can see it: sudo quarry devices"
        };
        notes.push(format!(
            "? what is on {hidden} of them, and whether somebody holds them, is not known: {whose}"
        ));
    }
    if devices.iter().any(|shown| shown.device.state == DeviceState::Available) {
        notes.push("one look cannot tell how long a disk has been there: an agent waits a minute before it calls a new one Available".to_owned());
    }
    notes
}

/// People who look at a table are told where the rest is; a pipe is not.
fn hint(devices: &[Shown], format: Format, name: impl Fn(&Shown) -> String) {
    let first = devices
        .iter()
        .find(|shown| shown.device.state != DeviceState::Available && !shown.is_minor());
    if let Some(first) = first.filter(|_| format == Format::Table && output::is_interactive()) {
        output::note(&format!(
            "\nevery check of a device, and what to do: quarry explain {}",
            name(first)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_one_look_cannot_tell_is_said_once() {
        let notes = footnotes(&samples::machine());
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("? what is on 1 of them"), "{notes:?}");
        assert!(footnotes(&[samples::device(json!({"reasons": [{"reason": "Swap"}]}))]).is_empty());
    }

    #[test]
    fn programs_get_the_inventorys_fields_with_the_node_and_what_lsblk_has_besides() {
        let mut shown = samples::machine().remove(1);
        shown.local = Some(view::Local {
            number: "8:1".into(),
            mount_points: vec!["/boot/efi".into()],
            part_type: Some("c12a7328-f81f-11d2-ba4b-00a0c93ec93b".into()),
            ..Default::default()
        });
        insta::assert_snapshot!(output::yaml(&[shown, samples::hostile()]).unwrap());
    }
}
