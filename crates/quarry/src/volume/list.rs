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
            let place = args.node.as_deref().map_or_else(String::new, |node| format!(" on node {node}"));
            output::note(&format!("no volumes{place}; create one with: quarry volume create NAME --node NODE --class CLASS --size 10Gi"));
            Ok(())
        }
        Format::Table | Format::Wide => {
            let wide = args.output == Format::Wide;
            let pvs = if wide { claims(&cluster).await? } else { HashMap::new() };
            let now = Timestamp::now();
            let rows: Vec<Row> = volumes.iter().map(|volume| table::row(volume, pvs.get(volume.metadata.name.as_deref().unwrap_or_default()), wide, now)).collect();
            output::print(&table::render(&rows, wide, output::colours()))?;
            hint(&volumes, wide);
            Ok(())
        }
    }
}

async fn list(cluster: &Cluster, node: Option<&str>) -> anyhow::Result<Vec<Volume>> {
    let api: Api<Volume> = Api::all(cluster.client.clone());
    let mut volumes = cluster.call("listing volumes", api.list(&ListParams::default())).await?.items;
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
    if let Some(name) = stuck.and_then(|volume| volume.metadata.name.as_deref()).filter(|_| !wide && output::is_interactive()) {
        output::note(&format!("\nwhy a volume is not Available: quarry explain volume/{name}"));
    }
}

async fn watch(cluster: &Cluster, args: &VolumesArgs) -> anyhow::Result<()> {
    // A first plain request: a cluster out of reach is an error at once, not an endless retry.
    list(cluster, args.node.as_deref()).await?;
    let api: Api<Volume> = Api::all(cluster.client.clone());
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let mut screen = Screen { wide: args.output == Format::Wide, widths: Vec::new() };
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(()),
            Err(error) => {
                output::note(&format!("the connection was lost, trying again: {error}"));
                continue;
            }
        };
        let (volume, gone) = match event {
            watcher::Event::Apply(volume) | watcher::Event::InitApply(volume) => (volume, false),
            watcher::Event::Delete(volume) => (volume, true),
            watcher::Event::Init | watcher::Event::InitDone => continue,
        };
        if args.node.as_deref().is_some_and(|node| volume.spec.node_name != node) {
            continue;
        }
        match args.output {
            Format::Json => output::print(&crate::safe::json(&serde_json::to_string(&json!({"type": if gone { "DELETED" } else { "CHANGED" }, "object": volume}))?))?,
            Format::Yaml => output::print(&output::yaml_documents(&[volume])?)?,
            Format::Table | Format::Wide => {
                let pvs = if screen.wide { claims(cluster).await? } else { HashMap::new() };
                let pv = pvs.get(volume.metadata.name.as_deref().unwrap_or_default());
                let mut row = table::row(&volume, pv, screen.wide, Timestamp::now());
                if gone {
                    row.cells[table::STATUS] = "Deleted".into();
                }
                output::print(&screen.line(&row))?;
            }
        }
    }
}

/// Rows that arrive one by one, under columns that only ever widen.
struct Screen {
    wide: bool,
    widths: Vec<usize>,
}

impl Screen {
    fn line(&mut self, row: &Row) -> String {
        let headers: Vec<String> = table::headers(self.wide).into_iter().map(str::to_owned).collect();
        let first = self.widths.is_empty();
        self.widths.resize(headers.len(), 0);
        for line in [&headers, &row.cells] {
            for (width, cell) in self.widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if first { format!("{}\n{}", pad(&headers, &self.widths), pad(&row.cells, &self.widths)) } else { pad(&row.cells, &self.widths) }
    }
}

fn pad(cells: &[String], widths: &[usize]) -> String {
    cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}   ")).collect::<String>().trim_end().to_owned()
}
