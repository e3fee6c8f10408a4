//! `quarry hosts --watch`: the list, then every host that changes.

use super::{
    read_nodes,
    table::{Columns, Style},
};
use crate::{
    changes::{Changed, Changes},
    connect::Cluster,
    output::{self, Format},
    sanitize,
};
use jiff::{SignedDuration, Timestamp};
use kube::{Api, ResourceExt};
use quarry_api::BareMetalHost;
use quarry_core::host_rival::Rival;
use quarry_view::{
    Snapshot,
    hosts::{self, HostRow},
};
use serde_json::json;
use std::collections::HashMap;

/// Nodes and their devices change seldom, and are read again only after this time.
const REREAD: SignedDuration = SignedDuration::from_secs(15);

pub async fn run(
    cluster: &Cluster,
    format: Format,
    style: Style,
    place: Option<&str>,
    (mut snapshot, rival): (Snapshot, Option<Rival>),
) -> anyhow::Result<()> {
    let api: Api<BareMetalHost> = match place {
        Some(place) => Api::namespaced(cluster.client.clone(), place),
        None => Api::all(cluster.client.clone()),
    };
    let mut changes = Changes::new(api);
    let mut screen = Screen::new(format, style);
    let mut read_at = Timestamp::now();
    while let Some(Changed { objects: changed, deleted, .. }) = changes.next().await {
        let now = Timestamp::now();
        let keys: Vec<(String, String)> = changed.iter().map(key).collect();
        changed.into_iter().for_each(|host| snapshot.add_host(host));
        if now.duration_since(read_at) > REREAD {
            reread(cluster, &mut snapshot).await;
            read_at = now;
        }
        let rows = hosts::list(&snapshot, place, rival.as_ref()).into_iter();
        let rows = rows.filter(|row| keys.contains(&(row.namespace.clone(), row.name.clone())));
        let rows: Vec<HostRow> =
            rows.map(|row| if deleted { row.deleted() } else { row }).collect();
        output::print(&screen.lines(&rows, deleted, now)?)?;
        if deleted {
            keys.iter().for_each(|key| drop(snapshot.hosts.remove(key)));
        }
    }
    Ok(())
}

/// What hosts are joined with. The hosts themselves come from the watch.
async fn reread(cluster: &Cluster, snapshot: &mut Snapshot) {
    let hosts = std::mem::take(&mut snapshot.hosts);
    let mut fresh = Snapshot::default();
    if let Err(error) = fresh.read_hosts(cluster, None).await {
        // Refused for all namespaces: what was read at the start stays.
        tracing::debug!(error = output::error_text(&error), "skipped HardwareData");
    } else {
        snapshot.hardware_data = fresh.hardware_data;
    }
    snapshot.hosts = hosts;
    read_nodes(cluster, snapshot).await;
}

fn key(host: &BareMetalHost) -> (String, String) {
    (host.namespace().unwrap_or_default(), host.name_any())
}

/// Rows that arrive one by one. An unchanged row is not repeated.
struct Screen {
    format: Format,
    columns: Columns,
    started: bool,
    printed: HashMap<(String, String), Vec<String>>,
}

impl Screen {
    fn new(format: Format, style: Style) -> Self {
        let columns = Columns::new(style).with_room();
        Screen { format, columns, started: false, printed: HashMap::new() }
    }

    fn lines(&mut self, rows: &[HostRow], deleted: bool, now: Timestamp) -> anyhow::Result<String> {
        match self.format {
            Format::Json => {
                let kind = if deleted { "DELETED" } else { "CHANGED" };
                let line = |row: &HostRow| {
                    sanitize::json(&json!({"type": kind, "object": row}).to_string()) + "\n"
                };
                Ok(rows.iter().map(line).collect())
            }
            Format::Yaml => output::yaml_documents(rows),
            Format::Table | Format::Wide => Ok(self.table(rows, now)),
        }
    }

    fn table(&mut self, rows: &[HostRow], now: Timestamp) -> String {
        let mut changed = Vec::new();
        for row in rows {
            let cells = self.columns.cells(row, now);
            let visible = self.columns.without_age(&cells);
            let key = (row.namespace.clone(), row.name.clone());
            if self.printed.insert(key, visible.clone()) != Some(visible) {
                changed.push((cells, row.tone));
            }
        }
        let lines = self.columns.lines(&changed);
        let is_first = !self.started && !changed.is_empty();
        self.started |= is_first;
        if is_first { self.columns.header() + &lines } else { lines }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_view::hosts::{list, samples::snapshot};

    #[test]
    fn a_watch_prints_the_list_then_only_changes() {
        let mut rows = list(&snapshot(), None, None);
        rows.truncate(3);
        let mut screen = Screen::new(Format::Table, Style::default());
        let at = |second: u8| format!("2026-01-01T00:10:0{second}Z").parse::<Timestamp>().unwrap();
        let mut text = screen.lines(&rows, false, at(0)).unwrap();
        text += &screen.lines(&rows[..1], false, at(1)).unwrap();
        rows[2].state = "preparing".to_owned();
        text += &screen.lines(&rows[2..], false, at(2)).unwrap();
        let gone = rows[1].clone().deleted();
        text += &screen.lines(&[gone], true, at(3)).unwrap();
        insta::assert_snapshot!(text);
    }
}
