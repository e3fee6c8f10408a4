//! `quarry osds --watch`: the list, then every OSD that changes. An OSD is made of objects of several kinds, and each
//! kind is watched.

use super::{
    list::print_note,
    table::{Columns, Style},
};
use crate::{
    changes::{Changed, Changes},
    connect::Cluster,
    output::{self, Format},
    sanitize,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod},
};
use kube::{Api, Resource, core::NamespaceResourceScope};
use quarry_api::CephCluster;
use quarry_view::osds::{
    self, Objects, OsdRow,
    objects::{ByKey, Selectors, by_key, key},
};
use serde_json::json;
use std::{collections::BTreeMap, time::Duration};

/// Objects that change together are shown together.
const DEBOUNCE: Duration = Duration::from_millis(300);

pub async fn run(
    cluster: &Cluster,
    format: Format,
    style: Style,
    place: Option<&str>,
    mut objects: Objects,
) -> anyhow::Result<()> {
    let by = Selectors::default();
    let mut clusters = Changes::<CephCluster>::new(api(cluster, place));
    let mut claims = Changes::<PersistentVolumeClaim>::labelled(api(cluster, place), &by.claims);
    let mut jobs = Changes::<Job>::labelled(api(cluster, place), &by.jobs);
    let mut pods = Changes::<Pod>::labelled(api(cluster, place), &by.pods);
    let mut results = Changes::<ConfigMap>::labelled(api(cluster, place), &by.results);
    let mut deployments = Changes::<Deployment>::labelled(api(cluster, place), &by.deployments);
    let mut screen = Screen::new(format, style);
    // Until then nothing is shown: the first lists are the ones that were read before.
    let mut due = Some(tokio::time::Instant::now());
    loop {
        let wait = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let is_open = tokio::select! {
            found = clusters.next() => follow(&mut objects.clusters, found),
            found = claims.next() => follow(&mut objects.claims, found),
            found = jobs.next() => follow(&mut objects.jobs, found),
            found = pods.next() => follow(&mut objects.pods, found),
            found = results.next() => follow(&mut objects.results, found),
            found = deployments.next() => follow(&mut objects.deployments, found),
            () = wait => {
                due = None;
                screen.show(&objects)?;
                continue;
            }
        };
        if !is_open {
            return Ok(());
        }
        due.get_or_insert_with(|| tokio::time::Instant::now() + DEBOUNCE);
    }
}

fn api<K>(cluster: &Cluster, place: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match place {
        Some(place) => Api::namespaced(cluster.client.clone(), place),
        None => Api::all(cluster.client.clone()),
    }
}

/// `false`: the watch has ended.
fn follow<K: Resource>(known: &mut ByKey<K>, changed: Option<Changed<K>>) -> bool {
    let Some(Changed { objects, deleted, is_list }) = changed else { return false };
    match (is_list, deleted) {
        (true, _) => *known = by_key(objects),
        (false, true) => objects.iter().for_each(|one| drop(known.remove(&key(one)))),
        (false, false) => known.extend(by_key(objects)),
    }
    true
}

/// What was printed. An unchanged row is not repeated.
struct Screen {
    format: Format,
    columns: Columns,
    started: bool,
    printed: BTreeMap<(String, String, String, u32), OsdRow>,
    notes: Vec<String>,
}

impl Screen {
    fn new(format: Format, style: Style) -> Self {
        let columns = Columns::new(style).with_room();
        Screen { format, columns, started: false, printed: BTreeMap::new(), notes: Vec::new() }
    }

    fn show(&mut self, objects: &Objects) -> anyhow::Result<()> {
        let found = osds::list(objects);
        output::print(&self.lines(found.rows, Timestamp::now())?)?;
        if matches!(self.format, Format::Table | Format::Wide) {
            let news = found.notes.iter().filter(|note| !self.notes.contains(note));
            news.for_each(|note| print_note(note));
        }
        self.notes = found.notes;
        Ok(())
    }

    fn lines(&mut self, rows: Vec<OsdRow>, now: Timestamp) -> anyhow::Result<String> {
        let rows: BTreeMap<_, OsdRow> = rows.into_iter().map(|row| (row.key(), row)).collect();
        let old = std::mem::replace(&mut self.printed, rows.clone());
        let is_visible_change = |row: &OsdRow, before: Option<&OsdRow>| {
            let cells = |row: &OsdRow| self.columns.without_age(&self.columns.cells(row, now));
            before.is_none_or(|before| match self.format {
                Format::Json | Format::Yaml => before != row,
                Format::Table | Format::Wide => cells(before) != cells(row),
            })
        };
        let changed: Vec<OsdRow> = rows
            .iter()
            .filter(|(key, row)| is_visible_change(row, old.get(key)))
            .map(|(_, row)| row.clone())
            .collect();
        let gone = old.into_iter().filter(|(key, _)| !rows.contains_key(key));
        let gone: Vec<OsdRow> = gone.map(|(_, row)| row.deleted()).collect();
        match self.format {
            Format::Json => Ok(json_lines("CHANGED", &changed) + &json_lines("DELETED", &gone)),
            Format::Yaml => output::yaml_documents(&[changed, gone].concat()),
            Format::Table | Format::Wide => Ok(self.table(&[changed, gone].concat(), now)),
        }
    }

    fn table(&mut self, rows: &[OsdRow], now: Timestamp) -> String {
        let cells: Vec<_> =
            rows.iter().map(|row| (self.columns.cells(row, now), row.tone)).collect();
        let lines = self.columns.lines(&cells);
        let is_first = !self.started && !rows.is_empty();
        self.started |= is_first;
        if is_first { self.columns.header() + &lines } else { lines }
    }
}

fn json_lines(kind: &str, rows: &[OsdRow]) -> String {
    let line =
        |row: &OsdRow| sanitize::json(&json!({"type": kind, "object": row}).to_string()) + "\n";
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_view::osds::{list, samples};

    #[test]
    fn a_watch_prints_the_list_then_only_changes() {
        let mut rows = list(&samples::objects()).rows;
        rows.truncate(4);
        let at = |second: u8| format!("2026-01-01T01:00:0{second}Z").parse::<Timestamp>().unwrap();
        let mut screen = Screen::new(Format::Table, Style::default());
        let mut text = screen.lines(rows.clone(), at(0)).unwrap();
        text += &screen.lines(rows.clone(), at(1)).unwrap();
        rows[2].state = "Prepared";
        rows[2].id = Some(2);
        text += &screen.lines(rows.clone(), at(2)).unwrap();
        rows.truncate(3);
        text += &screen.lines(rows, at(3)).unwrap();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_list_replaces_what_was_known() {
        let all = samples::objects().claims;
        let mut known = all.clone();
        let one: Vec<_> = all.values().take(1).cloned().collect();
        let changed = |deleted, is_list| Changed { objects: one.clone(), deleted, is_list };
        assert!(follow(&mut known, Some(changed(true, false))));
        assert_eq!(known.len(), all.len() - 1);
        assert!(follow(&mut known, Some(changed(false, true))));
        assert_eq!(known.len(), 1);
        assert!(!follow(&mut known, None));
    }
}
