//! `quarry volumes`: the list, once or with every change. Rows are `quarry_view::volumes`.

use super::table::{self, Row};
use crate::{
    changes::{Changed, Changes},
    cli::{ConnectArgs, VolumesArgs},
    connect::Cluster,
    output::{self, Format},
};
use jiff::Timestamp;
use kube::Api;
use quarry_api::{Volume, volume::Phase};
use quarry_view::{
    Snapshot,
    volumes::{self, VolumeRow},
};
use serde_json::json;
use std::collections::HashMap;

pub async fn run(connect: &ConnectArgs, args: &VolumesArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    if args.watch {
        return watch(&cluster, args).await;
    }
    let node = args.node.as_deref();
    let wide = args.output == Format::Wide;
    let snapshot = read(&cluster, wide).await?;
    let listed: Vec<&Volume> =
        snapshot.volumes.values().map(AsRef::as_ref).filter(|one| is_on(one, node)).collect();
    match args.output {
        Format::Json => output::print(&output::json(&as_list(&listed))?),
        Format::Yaml => output::print(&output::yaml(&as_list(&listed))?),
        Format::Table | Format::Wide if listed.is_empty() => {
            let place = node.map_or_else(String::new, |node| format!(" on node {node}"));
            output::note(&format!("no volumes{place}"));
            output::hint("run `quarry volume create NAME --class CLASS --size 10Gi` to create one");
            Ok(())
        }
        Format::Table | Format::Wide => {
            let now = Timestamp::now();
            let rows = volumes::list(&snapshot, node);
            let rows: Vec<Row> = rows.iter().map(|row| table::row(row, wide, now)).collect();
            output::print(&table::render(&rows, wide, output::colors()))?;
            hint(&listed, wide);
            Ok(())
        }
    }
}

/// Every Volume; `pvs`: and every PersistentVolume.
async fn read(cluster: &Cluster, pvs: bool) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    snapshot.read_volumes(cluster).await?;
    if pvs && !snapshot.volumes.is_empty() {
        snapshot.read_pvs(cluster).await?;
    }
    Ok(snapshot)
}

/// Not by a field selector: the upstream definition has no selectable fields.
fn is_on(volume: &Volume, node: Option<&str>) -> bool {
    node.is_none_or(|node| volume.spec.node_name == node)
}

fn as_list(volumes: &[&Volume]) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "List", "items": volumes})
}

/// Only in a terminal: a pipe gets no hints.
fn hint(volumes: &[&Volume], wide: bool) {
    let stuck = volumes.iter().find(|volume| volume.phase() != Some(Phase::Available));
    if let Some(name) = stuck
        .and_then(|volume| volume.metadata.name.as_deref())
        .filter(|_| !wide && output::is_interactive())
    {
        output::hint(&format!("run `quarry explain volume/{name}` for why it is not Available"));
    }
}

async fn watch(cluster: &Cluster, args: &VolumesArgs) -> anyhow::Result<()> {
    // A plain request first: an unreachable cluster is an error at once, not an endless retry.
    read(cluster, false).await?;
    let api: Api<Volume> = Api::all(cluster.client.clone());
    let mut changes = Changes::new(api);
    let mut screen =
        Screen { wide: args.output == Format::Wide, widths: Vec::new(), printed: HashMap::new() };
    while let Some(Changed { objects: changed, deleted, .. }) = changes.next().await {
        let wanted: Vec<Volume> =
            changed.into_iter().filter(|volume| is_on(volume, args.node.as_deref())).collect();
        show(cluster, args.output, &mut screen, &wanted, deleted).await?;
    }
    Ok(())
}

async fn show(
    cluster: &Cluster,
    format: Format,
    screen: &mut Screen,
    volumes: &[Volume],
    deleted: bool,
) -> anyhow::Result<()> {
    match format {
        Format::Json => volumes.iter().try_for_each(|volume| {
            let event =
                json!({"type": if deleted { "DELETED" } else { "CHANGED" }, "object": volume});
            output::print(&crate::sanitize::json(&event.to_string()))
        }),
        Format::Yaml => output::print(&output::yaml_documents(volumes)?),
        Format::Table | Format::Wide => {
            let mut snapshot = Snapshot::default();
            if screen.wide && !volumes.is_empty() {
                snapshot.read_pvs(cluster).await?;
            }
            let now = Timestamp::now();
            let row = |volume: &Volume| {
                let pv = volume.metadata.name.as_ref().and_then(|name| snapshot.pvs.get(name));
                let row = VolumeRow::new(volume, pv.map(AsRef::as_ref));
                table::row(&if deleted { row.deleted() } else { row }, screen.wide, now)
            };
            let rows: Vec<Row> = volumes.iter().map(row).collect();
            output::print(&screen.lines(&rows))
        }
    }
}

/// Rows that arrive one by one, in columns that only widen. An unchanged row is not repeated.
struct Screen {
    wide: bool,
    widths: Vec<usize>,
    printed: HashMap<String, Vec<String>>,
}

impl Screen {
    fn lines(&mut self, rows: &[Row]) -> String {
        let headers: Vec<String> =
            table::headers(self.wide).into_iter().map(str::to_owned).collect();
        let mut lines: Vec<&[String]> = Vec::new();
        if self.widths.is_empty() && !rows.is_empty() {
            self.widths.resize(headers.len(), 0);
            // The longest status, so that the columns stay where they are.
            self.widths[table::STATUS] = quarry_api::volume::Phase::Terminating.as_str().len();
            lines.push(&headers);
        }
        for row in rows {
            // A changed age is no change.
            let visible: Vec<String> = row
                .cells
                .iter()
                .enumerate()
                .filter(|(column, _)| *column != table::AGE)
                .map(|(_, cell)| cell.clone())
                .collect();
            if self.printed.insert(row.cells[0].clone(), visible.clone()) != Some(visible) {
                lines.push(&row.cells);
            }
        }
        for (width, cell) in lines.iter().flat_map(|line| line.iter().enumerate()) {
            self.widths[width] = self.widths[width].max(cell.chars().count());
        }
        lines.into_iter().map(|line| pad(line, &self.widths) + "\n").collect()
    }
}

fn pad(cells: &[String], widths: &[usize]) -> String {
    cells
        .iter()
        .zip(widths)
        .map(|(cell, width)| format!("{cell:<width$}   "))
        .collect::<String>()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_view::Tone;

    fn row(name: &str, status: &str, age: &str) -> Row {
        Row {
            cells: [name, "n1", "fast", "1Gi", "Block", status, "-", age]
                .map(str::to_owned)
                .to_vec(),
            tone: Tone::Waiting,
        }
    }

    #[test]
    fn a_watch_prints_the_list_then_only_changes() {
        let mut screen = Screen { wide: false, widths: Vec::new(), printed: HashMap::new() };
        let mut text = screen.lines(&[row("a", "New", "1s"), row("longer", "Pending", "1s")]);
        text += &screen.lines(&[row("a", "New", "2s")]);
        text += &screen.lines(&[row("a", "Terminating", "3s")]);
        text += &screen.lines(&[row("longer", "Deleted", "4s")]);
        insta::assert_snapshot!(text);
    }
}
