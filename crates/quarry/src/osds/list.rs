//! `quarry osds`: the list, once or with every change. Rows are `quarry_view::osds`.

use super::{
    read,
    table::{self, Style},
    watch,
};
use crate::{
    cli::{ConnectArgs, OsdsArgs},
    connect::Cluster,
    output::{self, Format},
};
use jiff::Timestamp;
use quarry_view::{
    Tone,
    osds::{self, Objects, OsdRow},
};

pub async fn run(connect: &ConnectArgs, args: &OsdsArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    let place = args.namespace.as_deref();
    let style = Style {
        wide: args.output == Format::Wide,
        colors: output::colors(),
        width: output::width(),
    };
    let objects = read(&cluster, place).await?;
    if args.watch {
        return watch::run(&cluster, args.output, style, place, objects).await;
    }
    let found = osds::list(&objects);
    match args.output {
        Format::Json => return output::print(&output::json(&found.rows)?),
        Format::Yaml => return output::print(&output::yaml(&found.rows)?),
        Format::Table | Format::Wide if found.rows.is_empty() => none(&objects, place),
        Format::Table | Format::Wide => {
            output::print(&table::render(&found.rows, style, Timestamp::now()))?;
        }
    }
    found.notes.iter().for_each(|note| print_note(note));
    hint(&found.rows);
    Ok(())
}

/// The remedy of a note is a hint of its own.
pub fn print_note(note: &str) {
    let (problem, remedy) = output::split_remedy(note);
    output::note(problem);
    remedy.into_iter().for_each(output::hint);
}

fn none(objects: &Objects, place: Option<&str>) {
    let place = place.map_or_else(String::new, |place| format!(" in namespace {place}"));
    if objects.clusters.is_empty() {
        output::note(&format!("no CephClusters{place}"));
        output::hint("create a CephCluster with spec.storage.storageClassDeviceSets");
    } else if objects.clusters.values().all(|one| one.spec.device_sets().next().is_none()) {
        output::note(&format!("no device sets in the CephClusters{place}"));
        output::hint("add one to spec.storage.storageClassDeviceSets of a CephCluster");
    } else {
        output::note(&format!("no OSDs{place}"));
    }
}

/// Only in a terminal: a pipe gets no hints.
fn hint(rows: &[OsdRow]) {
    let stuck =
        rows.iter().find(|row| row.tone == Tone::Bad && (row.id.is_some() || row.pvc.is_some()));
    if let Some(row) = stuck.filter(|_| output::is_interactive()) {
        let name = match (&row.pvc, row.id) {
            (Some(pvc), _) => pvc.clone(),
            (None, id) => id.unwrap_or_default().to_string(),
        };
        output::hint(&format!(
            "run `quarry explain osd/{name} -n {}` for its objects and what to do",
            row.namespace
        ));
    }
}
