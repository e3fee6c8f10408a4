//! `quarry volumes`: the list, once or with every change.

use super::table::{self, Row};
use crate::{
    cli::{ConnectArgs, VolumesArgs},
    connect::Cluster,
    output::{self, Format},
};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    Api,
    api::ListParams,
    runtime::{WatchStreamExt, watcher},
};
use quarry_api::{Volume, volume::Phase};
use serde_json::json;
use std::collections::HashMap;

pub async fn run(connect: &ConnectArgs, args: &VolumesArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(connect).await?;
    if args.watch {
        return watch(&cluster, args).await;
    }
    let mut volumes = list(&cluster, args.node.as_deref()).await?;
    volumes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    match args.output {
        Format::Json => output::print(&output::json(&as_list(&volumes))?),
        Format::Yaml => output::print(&output::yaml(&as_list(&volumes))?),
        Format::Table | Format::Wide if volumes.is_empty() => {
            let place =
                args.node.as_deref().map_or_else(String::new, |node| format!(" on node {node}"));
            output::note(&format!(
                "no volumes{place}; create one with: quarry volume create NAME --class CLASS --size 10Gi"
            ));
            Ok(())
        }
        Format::Table | Format::Wide => {
            let wide = args.output == Format::Wide;
            let pvs = if wide { claims(&cluster).await? } else { HashMap::new() };
            let now = Timestamp::now();
            let rows: Vec<Row> = volumes
                .iter()
                .map(|volume| {
                    table::row(
                        volume,
                        pvs.get(volume.metadata.name.as_deref().unwrap_or_default()),
                        wide,
                        now,
                    )
                })
                .collect();
            output::print(&table::render(&rows, wide, output::colours()))?;
            hint(&volumes, wide);
            Ok(())
        }
    }
}

async fn list(cluster: &Cluster, node: Option<&str>) -> anyhow::Result<Vec<Volume>> {
    let api: Api<Volume> = Api::all(cluster.client.clone());
    let mut volumes =
        cluster.call("listing volumes", api.list(&ListParams::default())).await?.items;
    // Not by a field selector: a cluster that serves the shipped definition has no selectable fields.
    volumes.retain(|volume| node.is_none_or(|node| volume.spec.node_name == node));
    Ok(volumes)
}

async fn claims(cluster: &Cluster) -> anyhow::Result<HashMap<String, PersistentVolume>> {
    let api: Api<PersistentVolume> = Api::all(cluster.client.clone());
    let found = cluster.call("listing PersistentVolumes", api.list(&ListParams::default())).await?;
    Ok(found.items.into_iter().filter_map(|pv| Some((pv.metadata.name.clone()?, pv))).collect())
}

fn as_list(volumes: &[Volume]) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "List", "items": volumes})
}

/// People who look at a table are told where the reasons are; a pipe is not.
fn hint(volumes: &[Volume], wide: bool) {
    let stuck = volumes.iter().find(|volume| volume.phase() != Some(Phase::Available));
    if let Some(name) = stuck
        .and_then(|volume| volume.metadata.name.as_deref())
        .filter(|_| !wide && output::is_interactive())
    {
        output::note(&format!("\nwhy a volume is not Available: quarry explain volume/{name}"));
    }
}

async fn watch(cluster: &Cluster, args: &VolumesArgs) -> anyhow::Result<()> {
    // A first plain request: a cluster out of reach is an error at once, not an endless retry.
    list(cluster, args.node.as_deref()).await?;
    let api: Api<Volume> = Api::all(cluster.client.clone());
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let mut screen =
        Screen { wide: args.output == Format::Wide, widths: Vec::new(), shown: HashMap::new() };
    // The first list is shown as one table; it arrives one by one.
    let mut first = Vec::new();
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(()),
            Err(error) => {
                output::note(&format!("the connection was lost, trying again: {error}"));
                continue;
            }
        };
        let (changed, gone) = match event {
            watcher::Event::Init => continue,
            watcher::Event::InitApply(volume) => {
                first.push(volume);
                continue;
            }
            watcher::Event::InitDone => (std::mem::take(&mut first), false),
            watcher::Event::Apply(volume) => (vec![volume], false),
            watcher::Event::Delete(volume) => (vec![volume], true),
        };
        let wanted: Vec<Volume> = changed
            .into_iter()
            .filter(|volume| args.node.as_deref().is_none_or(|node| volume.spec.node_name == node))
            .collect();
        show(cluster, args.output, &mut screen, &wanted, gone).await?;
    }
}

async fn show(
    cluster: &Cluster,
    format: Format,
    screen: &mut Screen,
    volumes: &[Volume],
    gone: bool,
) -> anyhow::Result<()> {
    match format {
        Format::Json => volumes.iter().try_for_each(|volume| {
            let event = json!({"type": if gone { "DELETED" } else { "CHANGED" }, "object": volume});
            output::print(&crate::sanitize::json(&event.to_string()))
        }),
        Format::Yaml => output::print(&output::yaml_documents(volumes)?),
        Format::Table | Format::Wide => {
            let pvs = if screen.wide && !volumes.is_empty() {
                claims(cluster).await?
            } else {
                HashMap::new()
            };
            let now = Timestamp::now();
            let rows = volumes.iter().map(|volume| {
                let mut row = table::row(
                    volume,
                    pvs.get(volume.metadata.name.as_deref().unwrap_or_default()),
                    screen.wide,
                    now,
                );
                if gone {
                    row.cells[table::STATUS] = "Deleted".into();
                }
                row
            });
            let rows: Vec<Row> = rows.collect();
            output::print(&screen.lines(&rows))
        }
    }
}

/// Rows that arrive one by one, under columns that only ever widen. A row that looks the same is not repeated.
struct Screen {
    wide: bool,
    widths: Vec<usize>,
    shown: HashMap<String, Vec<String>>,
}

impl Screen {
    fn lines(&mut self, rows: &[Row]) -> String {
        let headers: Vec<String> =
            table::headers(self.wide).into_iter().map(str::to_owned).collect();
        let mut lines: Vec<&[String]> = Vec::new();
        if self.widths.is_empty() && !rows.is_empty() {
            self.widths.resize(headers.len(), 0);
            // Every volume may come to this: the table does not jump then.
            self.widths[table::STATUS] = quarry_api::volume::Phase::Terminating.as_str().len();
            lines.push(&headers);
        }
        for row in rows {
            // The age alone is no change.
            let look: Vec<String> = row
                .cells
                .iter()
                .enumerate()
                .filter(|(column, _)| *column != table::AGE)
                .map(|(_, cell)| cell.clone())
                .collect();
            if self.shown.insert(row.cells[0].clone(), look.clone()) != Some(look) {
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
    use table::Tone;

    fn row(name: &str, status: &str, age: &str) -> Row {
        Row {
            cells: [name, "n1", "fast", "1Gi", "Block", status, "-", age]
                .map(str::to_owned)
                .to_vec(),
            tone: Tone::Waiting,
        }
    }

    #[test]
    fn a_watch_shows_the_list_then_changes_only() {
        let mut screen = Screen { wide: false, widths: Vec::new(), shown: HashMap::new() };
        let mut text = screen.lines(&[row("a", "New", "1s"), row("longer", "Pending", "1s")]);
        text += &screen.lines(&[row("a", "New", "2s")]);
        text += &screen.lines(&[row("a", "Terminating", "3s")]);
        text += &screen.lines(&[row("longer", "Deleted", "4s")]);
        insta::assert_snapshot!(text);
    }
}
