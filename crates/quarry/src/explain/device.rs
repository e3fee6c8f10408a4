//! `quarry explain /dev/NAME` and `NODE/DEVICE`: reads what concerns the device, and writes its explanation as text.

use super::{NAME, add_events, add_remedies, mark};
use crate::{
    cli::{ConnectArgs, ExplainArgs},
    connect::{Cluster, NoCluster},
    data_dir,
    devices::{
        self,
        local::{LocalScan, Machine},
    },
    output, sanitize, snapshot,
};
use anyhow::{anyhow, bail};
use jiff::Timestamp;
use kube::ResourceExt;
use quarry_api::NodeInventory;
use quarry_core::{device::Reason, source::Source};
use quarry_node::inspect::Scan;
use quarry_view::{
    Snapshot,
    devices::{DeviceView, find::find, notes, of_inventory},
    events,
    explain::{
        DeviceExplanation,
        device::{DeviceContext, claim_texts, explain, is_claimed, wipe_remnant_texts},
        device_owners, device_owners_offline,
    },
    hosts::{self, DeviceRaid},
};
use std::path::Path;

pub async fn here(connect: &ConnectArgs, args: &ExplainArgs, wanted: &str) -> anyhow::Result<()> {
    let mut machine = Machine::open(args.host_root.as_deref().unwrap_or(Path::new("/")))?;
    // Before the long scan: a path to something else fails at once.
    let number = if wanted.starts_with('/') { machine.number_at(Path::new(wanted))? } else { None };
    let LocalScan { devices, problems } =
        tokio::task::block_in_place(|| machine.scan(Scan::Everything))?;
    let view = find_here(&devices, number.as_deref(), wanted)?.clone();
    let owners = match device_owners_offline(&view) {
        none if none.is_empty() => none,
        unnamed => match named_owners(connect, args, &view).await {
            Ok(owners) => owners,
            Err(error) => {
                if error.downcast_ref::<NoCluster>().is_none() {
                    let error = output::error_text(&error);
                    output::note(&format!("the name of its owner is unknown: {error}"));
                }
                unnamed
            }
        },
    };
    let mut notes = problems;
    if view.has(Reason::NotPermitted) && data_dir::is_root() {
        notes.push("root may not open it here, perhaps because of a container's device rules; run the command on the machine itself".to_owned());
    }
    let place = "this machine".to_owned();
    print(&explain(&view, DeviceContext { place, owners, notes, ..DeviceContext::default() }))
}

fn find_here<'a>(
    devices: &'a [DeviceView],
    number: Option<&str>,
    wanted: &str,
) -> anyhow::Result<&'a DeviceView> {
    let has_number = |view: &&DeviceView| {
        view.local.as_ref().is_some_and(|local| Some(local.number.as_str()) == number)
    };
    match (devices.iter().find(has_number), number, find(devices, wanted)) {
        (Some(view), _, _) | (None, _, Ok(view)) => Ok(view),
        (None, Some(number), Err(_)) => Err(anyhow!(
            "{wanted} ({number}) is a block device without storage: an idle loop device or a RAM disk"
        )),
        (None, None, Err(missing)) => {
            Err(anyhow!("{}{}", missing.message("this machine", wanted), other_meaning(wanted)))
        }
    }
}

/// A word without a slash may be meant for something else.
fn other_meaning(wanted: &str) -> String {
    if wanted.contains('/') {
        String::new()
    } else {
        format!(" (for a volume write volume/{wanted}, for a device of a node NODE/{wanted})")
    }
}

async fn named_owners(
    connect: &ConnectArgs,
    args: &ExplainArgs,
    view: &DeviceView,
) -> anyhow::Result<Vec<String>> {
    owners(&Cluster::connect(connect).await?, args, view).await
}

/// Reads only what the owners of this device need.
async fn owners(
    cluster: &Cluster,
    args: &ExplainArgs,
    view: &DeviceView,
) -> anyhow::Result<Vec<String>> {
    let mut snapshot = Snapshot::new(args.operator_namespace());
    let mut pvs: Vec<String> =
        view.details(Reason::BacksPersistentVolume).map(str::to_owned).collect();
    if view.has(Reason::BacksVolume) {
        snapshot.read_volumes(cluster).await?;
        let uids: Vec<&str> = view.details(Reason::BacksVolume).collect();
        let volumes = snapshot.volumes.iter();
        let mine = volumes.filter(|(_, volume)| {
            volume.metadata.uid.as_deref().is_some_and(|uid| uids.contains(&uid))
        });
        pvs.extend(mine.map(|(name, _)| name.clone()));
    }
    for pv in pvs {
        snapshot.read_pv(cluster, &pv).await?;
    }
    Ok(device_owners(&snapshot, view))
}

pub async fn on_node(
    connect: &ConnectArgs,
    args: &ExplainArgs,
    node: &str,
    wanted: &str,
) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let found = devices::read(&cluster, &[node.to_owned()], args.operator_namespace()).await?;
    let Some(inventory) = found.snapshot.inventory(node) else {
        let missing = found.check_missing().err().map(|error| error.to_string());
        bail!(
            "{} (what can be explained: volume/NAME, set/NAME, localvolume/NAME, host/NAME, NODE/DEVICE, /dev/NAME)",
            missing.unwrap_or_default()
        );
    };
    let all = of_inventory(&inventory);
    let now = Timestamp::now();
    let notes = notes(&found.snapshot, now);
    let view = match find(&all, wanted) {
        Ok(view) => view.clone(),
        Err(_) if all.is_empty() && !notes.is_empty() => bail!("{}", notes.join(", ")),
        Err(missing) => bail!("{}", missing.message(&format!("node {node}"), wanted)),
    };
    let (owners, events) = tokio::try_join!(
        owners(&cluster, args, &view),
        events::read(&cluster, inventory.as_ref())
    )?;
    let claims = claims(&cluster, args, &inventory, &view).await?;
    let (host, raid) = host_view(&cluster, &inventory, &view).await;
    let place = format!("node {node}");
    let context = DeviceContext { place, owners, claims, host, raid, events: Some(events), notes };
    print(&explain(&view, context))
}

/// How the BareMetalHost of the node sees the device. A cluster without hosts, or a user who may not read them, is
/// no error: the rest of the explanation does not depend on it.
async fn host_view(
    cluster: &Cluster,
    inventory: &NodeInventory,
    view: &DeviceView,
) -> (Option<String>, Option<DeviceRaid>) {
    let mut snapshot = Snapshot::default();
    let read = async {
        snapshot.read_hosts(cluster, None).await?;
        if !snapshot.hosts.is_empty() {
            snapshot.read_nodes(cluster).await?;
        }
        anyhow::Ok(())
    };
    if let Err(error) = read.await {
        let error = output::error_text(&error);
        output::note(&format!("whether the node has a BareMetalHost is unknown: {error}"));
        return (None, None);
    }
    let node = inventory.name_any();
    let Some(join) = hosts::host_of_node(&snapshot, &node) else { return (None, None) };
    let whole = matches!(view.device.kind.as_str(), "disk" | "mpath");
    let device = &view.device.name;
    let host = snapshot.hosts().into_iter().find(|host| {
        host.name_any() == join.name && host.namespace().as_deref() == Some(&join.namespace)
    });
    let devices = inventory.status.as_ref().map(|status| status.devices.as_slice());
    let raid =
        host.and_then(|host| hosts::device_raid(&host, &join, devices.unwrap_or_default(), device));
    (hosts::device_view(&join, device, whole), raid)
}

/// The device claims of a device, and its wipe remnants. Without one the cluster is not read.
async fn claims(
    cluster: &Cluster,
    args: &ExplainArgs,
    inventory: &NodeInventory,
    view: &DeviceView,
) -> anyhow::Result<Vec<String>> {
    let mut claims = Vec::new();
    if is_claimed(inventory, view) {
        let snapshot = snapshot::read(cluster, args.operator_namespace()).await?;
        claims = claim_texts(&snapshot, inventory, view, Timestamp::now());
    }
    claims.extend(wipe_remnant_texts(inventory, view));
    Ok(claims)
}

fn print(explanation: &DeviceExplanation) -> anyhow::Result<()> {
    output::print(&render(explanation, Timestamp::now(), output::colors()))
}

fn render(explanation: &DeviceExplanation, now: Timestamp, colors: bool) -> String {
    let mut text = output::Lines::default();
    text.add(&sanitize::line(&explanation.title));
    for field in &explanation.names {
        text.add(&format!("  {:<9} {}", field.name, sanitize::line(&field.text)));
    }
    text.add("");
    let identity = &explanation.identity;
    text.add(&sanitize::line(&format!("Identity: {}", identity.text)));
    for one in &identity.evidence {
        let line = format!("{:<NAME$} {} ({})", one.source, one.value, one.meaning);
        text.add(&format!("  {} {}", mark(one.verdict, colors), sanitize::line(&line)));
    }
    if let Some(note) = identity.note {
        text.add(&format!("  {note}"));
    }
    for group in &explanation.groups {
        text.add("");
        text.add(group.title);
        for check in &group.checks {
            let (mark, name) = (mark(check.verdict, colors), sanitize::line(&check.name));
            text.add(&format!("  {mark} {name:<NAME$} {}", sanitize::line(&check.text)));
        }
    }
    text.add("");
    for owner in &explanation.owners {
        text.add(&format!("Owner: {}", sanitize::line(owner)));
    }
    for claim in &explanation.claims {
        text.add(&format!("Device claim: {}", sanitize::line(claim)));
    }
    if let Some(host) = &explanation.host {
        text.add(&format!("Host: {}", sanitize::line(host)));
    }
    if let Some(raid) = &explanation.raid {
        text.add(&format!("RAID: {}", sanitize::line(raid)));
    }
    text.add(&format!("Verdict: {}", explanation.verdict));
    if !explanation.remedies.is_empty() {
        text.add("What to do:");
    }
    add_remedies(&mut text, &explanation.remedies, NAME + 2);
    for note in &explanation.notes {
        text.add(&format!("Note: {}", sanitize::line(note)));
    }
    if let Some(events) = &explanation.events {
        text.add("");
        add_events(&mut text, events, now);
    }
    text.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Event;
    use quarry_view::devices::{
        LocalFacts,
        samples::{hostile, machine},
    };
    use serde_json::json;

    fn context() -> DeviceContext {
        DeviceContext {
            place: "node n1".into(),
            events: Some(Vec::new()),
            ..DeviceContext::default()
        }
    }

    fn text(view: &DeviceView, context: DeviceContext) -> String {
        render(&explain(view, context), "2026-01-01T00:10:00Z".parse().unwrap(), false)
    }

    fn event(reason: &str, message: &str) -> Event {
        serde_json::from_value(
            json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:01Z"}, "involvedObject": {}, "type": "Normal", "reason": reason, "message": message}),
        )
        .unwrap()
    }

    #[test]
    fn the_device_of_a_volume_has_its_owner() {
        let mut context = context();
        context.owners =
            vec!["Volume first, published as PersistentVolume first, used by PVC shop/db".into()];
        context.events = Some(vec![event(
            "DeviceAppeared",
            "loop0 (loop, 1Gi) appeared: NotAvailable, because it is the storage of a Volume",
        )]);
        insta::assert_snapshot!(text(&machine()[6], context));
    }

    #[test]
    fn without_root_unreadable_checks_are_skipped() {
        let mut view = machine().remove(5);
        view.local = Some(LocalFacts::default());
        let context = DeviceContext { place: "this machine".into(), ..DeviceContext::default() };
        insta::assert_snapshot!(text(&view, context));
    }

    #[test]
    fn the_evidence_of_a_disk_is_weighed() {
        let mut context = context();
        context.notes = vec!["the agent on node n1 is absent".into()];
        insta::assert_snapshot!(text(&machine()[0], context));
    }

    #[test]
    fn escape_sequences_of_a_disk_are_printed_escaped() {
        let mut context = context();
        context.owners = vec!["Volume \u{1b}[2J".into()];
        context.notes = vec!["\u{1b}c\nx".into()];
        context.events = Some(vec![event("X\u{1b}[2J", "sdx (a)\nb")]);
        let text = text(&hostile(), context);
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}', '\t', '\r']), "{text:?}");
        insta::assert_snapshot!(text);
    }
}
