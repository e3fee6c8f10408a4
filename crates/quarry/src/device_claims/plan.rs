//! `quarry plan`: which devices each node would give, and why not the others. Changes nothing.
//!
//! The answer is `quarry_core::claim::account`, by which the operator gives devices away. An object of a file stands in
//! for the live one of its name, or joins the others as the youngest.

use super::{
    describe,
    file::{self, Object},
    list::check_node,
    local,
    observe::{Account, Snapshot},
    table,
    view::{Node, Shown, Tone},
};
use crate::{
    cli::{ConnectArgs, Owner, PlanArgs, PlanFormat},
    connect::Cluster,
    devices, output, sanitize,
};
use anyhow::anyhow;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, ResourceExt};
use quarry_api::{LocalVolume, LocalVolumeSet, names, node_inventory::PathReport};
use quarry_core::device_claim::{Demand, demand::DeviceSelection, owner_text};
use std::path::Path;

pub async fn run(connect: &ConnectArgs, args: &PlanArgs) -> anyhow::Result<()> {
    let mut notes = Vec::new();
    let objects = match &args.file {
        Some(path) => {
            let name = if path == Path::new("-") {
                "standard input".to_owned()
            } else {
                path.display().to_string()
            };
            let contents = file::parse(&file::read_text(path)?, &name, &args.namespace).await?;
            notes
                .extend(contents.warnings.into_iter().map(|warning| format!("warning: {warning}")));
            contents.objects
        }
        None => Vec::new(),
    };
    let mut seen = if args.local || args.host_root.is_some() {
        let root = args.host_root.as_deref().unwrap_or(Path::new("/"));
        let (seen, problems) = local::snapshot(
            root,
            &args.namespace,
            &objects.iter().flat_map(paths).collect::<Vec<_>>(),
        )?;
        notes.extend(problems);
        notes.push("this machine stands for a node: nodeSelector and tolerations are not looked at, nor what a cluster has claimed here".to_owned());
        seen
    } else {
        Snapshot::read(&Cluster::connect(connect).await?, &args.namespace).await?
    };
    check_node(&seen, args.node.as_deref())?;
    let alone = args.local || args.host_root.is_some();
    let mut uids = Vec::new();
    for object in objects {
        uids.push(adopt(&mut seen, object, alone));
    }
    if let Some(target) = &args.target {
        uids.push(live(&seen, target)?);
    }
    expect_finalizers(&mut seen);
    resolve_paths(&mut seen);
    let demands: Vec<Demand> =
        seen.demands().into_iter().filter(|demand| uids.contains(&demand.owner.uid)).collect();
    let accounts = seen.accounts(demands);
    notes.iter().for_each(|note| output::note(note));
    match args.output {
        PlanFormat::Json => {
            let mut shown: Vec<Shown> = accounts.iter().map(Shown::new).collect();
            shown.iter_mut().for_each(|one| {
                one.nodes
                    .retain(|node| args.node.as_ref().is_none_or(|wanted| node.node == *wanted))
            });
            output::print(&output::json(&shown)?)
        }
        PlanFormat::Table => {
            let texts: Vec<String> = accounts
                .iter()
                .map(|account| {
                    render(&seen, account, args.node.as_deref(), output::colours(), output::width())
                })
                .collect();
            output::print(&texts.join("\n"))
        }
    }
}

fn paths(object: &Object) -> Vec<String> {
    match object {
        Object::Set(_) => Vec::new(),
        Object::Volume(volume) => volume
            .spec
            .storage_class_devices
            .iter()
            .flat_map(|entry| entry.device_paths.clone())
            .collect(),
    }
}

/// Puts an object of the file into the picture; its UID there.
fn adopt(seen: &mut Snapshot, object: Object, alone: bool) -> String {
    let now = seen.now;
    match object {
        Object::Set(mut set) => {
            if alone {
                (set.spec.node_selector, set.spec.tolerations) = (None, None);
            }
            replace(&mut seen.sets, *set, now)
        }
        Object::Volume(mut volume) => {
            if alone {
                (volume.spec.node_selector, volume.spec.tolerations) = (None, None);
            }
            replace(&mut seen.volumes, *volume, now)
        }
    }
}

/// Instead of the live one of its name, as old as that; else the youngest of all.
fn replace<K: Resource<DynamicType = ()>>(
    all: &mut Vec<K>,
    mut object: K,
    now: Timestamp,
) -> String {
    let same = |other: &K| {
        other.meta().name == object.meta().name && other.meta().namespace == object.meta().namespace
    };
    let live = all.iter().position(same);
    let assignment = object.meta();
    *object.meta_mut() = match live.map(|at| all.swap_remove(at)) {
        Some(live) => ObjectMeta {
            annotations: assignment.annotations.clone(),
            labels: assignment.labels.clone(),
            ..live.meta().clone()
        },
        None => ObjectMeta {
            uid: Some(format!("planned {} {}", K::kind(&()), object.name_any())),
            creation_timestamp: Some(Time(now)),
            ..assignment.clone()
        },
    };
    let uid = object.uid().unwrap_or_default();
    all.push(object);
    uid
}

fn live(seen: &Snapshot, target: &Owner) -> anyhow::Result<String> {
    let here = |meta: &ObjectMeta| {
        meta.name.as_deref() == Some(target.name())
            && meta.namespace.as_deref() == Some(seen.namespace.as_str())
    };
    let found = match target {
        Owner::Set(_) => {
            seen.sets.iter().find(|set| here(&set.metadata)).and_then(ResourceExt::uid)
        }
        Owner::LocalVolume(_) => {
            seen.volumes.iter().find(|volume| here(&volume.metadata)).and_then(ResourceExt::uid)
        }
    };
    found.ok_or_else(|| missing(seen, target))
}

/// The object that was asked for is not there; those that are.
pub fn missing(seen: &Snapshot, target: &Owner) -> anyhow::Error {
    let names = |names: Vec<String>| {
        if names.is_empty() {
            "there is none".to_owned()
        } else {
            format!("there are: {}", names.join(", "))
        }
    };
    let here = |namespace: Option<String>| namespace.as_deref() == Some(seen.namespace.as_str());
    let (kind, there) = match target {
        Owner::Set(_) => (
            "LocalVolumeSet",
            names(
                seen.sets
                    .iter()
                    .filter(|set| here(set.namespace()))
                    .map(ResourceExt::name_any)
                    .collect(),
            ),
        ),
        Owner::LocalVolume(_) => (
            "LocalVolume",
            names(
                seen.volumes
                    .iter()
                    .filter(|volume| here(volume.namespace()))
                    .map(ResourceExt::name_any)
                    .collect(),
            ),
        ),
    };
    anyhow!(
        "namespace {} has no {kind} {}; {there} (-n names another namespace)",
        seen.namespace,
        target.name()
    )
}

/// The operator gives everybody its finalizer before they take anything: a plan is about what comes after.
fn expect_finalizers(seen: &mut Snapshot) {
    let metas = seen
        .sets
        .iter_mut()
        .map(LocalVolumeSet::meta_mut)
        .chain(seen.volumes.iter_mut().map(LocalVolume::meta_mut));
    for meta in metas.filter(|meta| meta.deletion_timestamp.is_none()) {
        let finalizers = meta.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|one| one == names::OWNER_FINALIZER) {
            finalizers.push(names::OWNER_FINALIZER.to_owned());
        }
    }
}

/// Paths that no agent was asked about yet, as far as the inventory knows their names.
fn resolve_paths(seen: &mut Snapshot) {
    let asked: Vec<String> = seen
        .demands()
        .iter()
        .flat_map(|demand| match &demand.selection {
            DeviceSelection::Set(_) => Vec::new(),
            DeviceSelection::Paths(asked) => asked.iter().map(|ask| ask.path.clone()).collect(),
        })
        .collect();
    for inventory in &mut seen.inventories {
        let all = devices::of_inventory(inventory);
        let Some(status) = &mut inventory.status else { continue };
        for path in &asked {
            if status.paths.iter().any(|report| report.path == *path) {
                continue;
            }
            if let Ok(found) = devices::find::find(&all, path) {
                status.paths.push(PathReport {
                    path: path.clone(),
                    device: Some(found.device.name.clone()),
                    problem: None,
                });
            }
        }
    }
}

fn render(
    seen: &Snapshot,
    account: &Account,
    node: Option<&str>,
    colours: bool,
    width: Option<usize>,
) -> String {
    let demand = &account.demand;
    let shown = Shown::new(account);
    let mut text = sanitize::line(&owner_text(&demand.owner)).into_owned() + "\n";
    let mut say = |line: &str| {
        text.push_str(line.trim_end());
        text.push('\n');
    };
    for (word, sentence) in describe::selection(demand) {
        say(&format!("  {word:<9} {}", sanitize::line(&sentence)));
    }
    for problem in &demand.problems {
        say(&sanitize::line(&format!("  problem   {problem}: it takes nothing")));
    }
    if demand.terminating {
        say("  it is being deleted: it takes nothing new");
    }
    let nodes: Vec<&Node> = match node {
        Some(node) => shown.nodes.iter().filter(|one| one.node == node).collect(),
        None => shown.concerned().collect(),
    };
    say("");
    let lines = table::plan_lines(&nodes);
    if !lines.is_empty() {
        say(&table::render(&table::PLAN, &lines, table::RESULT, colours, width));
    }
    say(&total(&nodes));
    let others = shown.nodes.len() - nodes.len();
    if node.is_none() && others > 0 {
        say(&format!("not selected: {others} more of {} nodes", shown.nodes.len()));
    }
    for (class, mode) in describe::classes(demand) {
        say(&sanitize::line(&describe::class_sentence(
            class,
            mode,
            seen.class(class).map(AsRef::as_ref),
        )));
    }
    text
}

fn total(nodes: &[&Node]) -> String {
    let all = || nodes.iter().flat_map(|node| &node.devices);
    let has = all().filter(|device| device.link.is_some()).count();
    let gets = all().filter(|device| device.link.is_none() && device.tone == Tone::Good).count();
    let waiting =
        all().filter(|device| device.link.is_none() && device.tone == Tone::Waiting).count();
    let later =
        if waiting > 0 { format!(", perhaps {waiting} more in a moment") } else { String::new() };
    let kept = if has > 0 { format!(", has {has} already") } else { String::new() };
    format!("gets {gets}{kept}{later}; not used: {}", all().count() - has - gets - waiting)
}
