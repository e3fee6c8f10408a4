//! Everything about one device: of this machine, or of a node of the cluster.

use super::{owner, text};
use crate::{
    cli::{ConnectArgs, ExplainArgs},
    connect::{Cluster, NoCluster},
    data_dir,
    device_claims::{self, observe::Snapshot},
    devices::{
        self,
        find::find,
        local::{Look, Machine},
        view::Shown,
    },
    output,
    volume::observe,
};
use anyhow::{anyhow, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use quarry_api::NodeInventory;
use quarry_core::{
    device::Reason,
    device_claim::{is_device, wipe_remnant_text},
};
use quarry_node::inspect::Scan;
use std::path::Path;

/// What is told about a device.
pub struct Seen {
    pub shown: Shown,
    /// `this machine` or `node n1`.
    pub place: String,
    pub owners: Vec<String>,
    /// Its claim and how far that is, in words.
    pub claims: Vec<String>,
    /// `None` where there is nobody to ask.
    pub events: Option<Vec<Event>>,
    /// What to know about this answer as a whole.
    pub notes: Vec<String>,
}

pub async fn here(connect: &ConnectArgs, args: &ExplainArgs, wanted: &str) -> anyhow::Result<()> {
    let mut machine = Machine::open(args.host_root.as_deref().unwrap_or(Path::new("/")))?;
    // Before the long look: what is no device at all is said at once.
    let number = if wanted.starts_with('/') { machine.number_at(Path::new(wanted))? } else { None };
    let Look { devices, problems } =
        tokio::task::block_in_place(|| machine.look(Scan::Everything))?;
    let by_number = number.as_ref().and_then(|number| {
        devices
            .iter()
            .find(|shown| shown.local.as_ref().is_some_and(|local| local.number == *number))
    });
    let shown = match (by_number, &number) {
        (Some(shown), _) => shown.clone(),
        // An idle loop device, a RAM disk.
        (None, Some(number)) if find(&devices, wanted).is_err() => {
            bail!(
                "{wanted} ({number}) is a block device without anything behind it (an idle loop device, a RAM disk): there is nothing to explain"
            )
        }
        (None, _) => find(&devices, wanted)
            .map_err(|missing| {
                anyhow!("{}{}", missing.message("this machine", wanted), other_meaning(wanted))
            })?
            .clone(),
    };
    let owners = match owner::unasked(&shown) {
        nobody if nobody.is_empty() => nobody,
        unnamed => match ask(connect, &shown).await {
            Ok(owners) => owners,
            Err(error) => {
                if error.downcast_ref::<NoCluster>().is_none() {
                    output::note(&format!(
                        "its owner's name is not known: {}",
                        output::error_text(&error)
                    ));
                }
                unnamed
            }
        },
    };
    let mut notes = problems;
    if shown.has(Reason::NotPermitted) && data_dir::is_root() {
        notes.push("root may not open it here: a container's device rules, perhaps; try on the machine itself".to_owned());
    }
    let seen = Seen {
        shown,
        place: "this machine".to_owned(),
        owners,
        claims: Vec::new(),
        events: None,
        notes,
    };
    output::print(&text::render(&seen, Timestamp::now(), output::colours()))
}

/// A word without a slash may be meant for something else.
fn other_meaning(wanted: &str) -> String {
    if wanted.contains('/') {
        String::new()
    } else {
        format!(" (a volume is written volume/{wanted}, a device of a node NODE/{wanted})")
    }
}

async fn ask(connect: &ConnectArgs, shown: &Shown) -> anyhow::Result<Vec<String>> {
    owner::owners(&Cluster::connect(connect).await?, shown).await
}

pub async fn on_node(
    connect: &ConnectArgs,
    args: &ExplainArgs,
    node: &str,
    wanted: &str,
) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let claim_contexts = devices::read(&cluster, &[node.to_owned()], &args.namespace).await?;
    let Some(view) = claim_contexts.found.first() else {
        let error =
            claim_contexts.complain().err().map(|error| error.to_string()).unwrap_or_default();
        bail!(
            "{error}. What can be explained: volume/NAME, NODE/DEVICE, and /dev/NAME of this machine"
        );
    };
    let all = devices::of_inventory(&view.inventory);
    let notes = claim_contexts.notes();
    let shown = match find(&all, wanted) {
        Ok(shown) => shown.clone(),
        Err(_) if all.is_empty() && !notes.is_empty() => bail!("{}", notes.join("; ")),
        Err(missing) => bail!("{}", missing.message(&format!("node {node}"), wanted)),
    };
    let (owners, events) = tokio::try_join!(
        owner::owners(&cluster, &shown),
        observe::observe_events(&cluster, &view.inventory)
    )?;
    let events = events.into_iter().filter(|event| is_about(event, &shown)).collect();
    let claims = claims_of(&cluster, args, &view.inventory, &shown).await?;
    let seen = Seen {
        shown,
        place: format!("node {}", view.inventory.name_any()),
        owners,
        claims,
        events: Some(events),
        notes,
    };
    output::print(&text::render(&seen, Timestamp::now(), output::colours()))
}

/// How far the claims of a device are, by the operator's own function, and what is left of its last volume. Nobody is
/// asked where there is no claim.
async fn claims_of(
    cluster: &Cluster,
    args: &ExplainArgs,
    inventory: &NodeInventory,
    shown: &Shown,
) -> anyhow::Result<Vec<String>> {
    let left =
        inventory.spec.wipe_remnants.iter().filter(|left| is_device(&shown.device, &left.identity));
    let left: Vec<String> =
        left.map(|left| format!("{} {}", shown.device.name, wipe_remnant_text(left))).collect();
    if !inventory.spec.device_claims.iter().any(|claim| is_device(&shown.device, &claim.identity)) {
        return Ok(left);
    }
    let snapshot = Snapshot::read(cluster, &args.namespace).await?;
    let world = snapshot.worlds().into_iter().find(|world| world.name == inventory.name_any());
    let held = world.map(|world| {
        device_claims::observe::held(
            &world,
            |claim| is_device(&shown.device, &claim.identity),
            snapshot.now,
        )
    });
    Ok(super::device_claims::sentences(&held.unwrap_or_default()).into_iter().chain(left).collect())
}

/// Events name the device first (`quarry_core::device::news`), or its identity.
fn is_about(event: &Event, shown: &Shown) -> bool {
    let message = event.message.as_deref().unwrap_or_default();
    let named =
        message.strip_prefix(shown.device.name.as_str()).is_some_and(|rest| rest.starts_with(" ("));
    named
        || shown
            .device
            .identity
            .as_ref()
            .is_some_and(|identity| message.contains(identity.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::samples::machine;
    use serde_json::json;

    #[test]
    fn only_events_about_this_device_are_shown() {
        let sdb = &machine()[4];
        let event = |message: &str| {
            serde_json::from_value::<Event>(
                json!({"metadata": {}, "involvedObject": {}, "message": message}),
            )
            .unwrap()
        };
        assert!(is_about(&event("sdb (disk, 3.6 TiB) appeared: Available"), sdb));
        assert!(is_about(&event("quarantined wwn:5000c500a1b2c3d4"), sdb));
        for other in ["sdb1 (part, 1 GiB) appeared", "sda (disk) like sdb", ""] {
            assert!(!is_about(&event(other), sdb), "{other}");
        }
    }
}
