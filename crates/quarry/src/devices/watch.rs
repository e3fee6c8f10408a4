//! `quarry devices --watch`: the list, then every device that is added, removed or changed.

use super::{
    local,
    table::{self, Columns, Style},
};
use crate::{
    connect::Cluster,
    output::{self, Format},
    sanitize, signals,
};
use anyhow::{Context, anyhow};
use futures::{StreamExt, TryStreamExt};
use kube::{
    Api, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use quarry_api::NodeInventory;
use quarry_node::{
    inspect::Scan,
    uevent::{KernelEvent, Uevents},
};
use quarry_view::devices::{DeviceRow, DeviceView, of_inventory, rows};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A new disk appears together with its partitions: they are shown together.
const DEBOUNCE: Duration = Duration::from_millis(300);
/// Mounts change without a device event.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

pub async fn local(machine: &mut local::Machine, mut screen: Screen) -> anyhow::Result<()> {
    let uevents = Uevents::open().context("listening to the kernel's device events")?;
    let stop = signals::stop_on_signal()?;
    let first = tokio::task::block_in_place(|| machine.scan(Scan::Everything))?;
    first.problems.iter().for_each(|problem| output::note(problem));
    screen.show(first.devices)?;
    loop {
        let mut touched = BTreeSet::new();
        let mut lost = false;
        let mut collect = |event: std::io::Result<KernelEvent>| -> anyhow::Result<()> {
            match event.context("listening to the kernel's device events")? {
                KernelEvent::Device(name) => drop(touched.insert(name)),
                KernelEvent::Lost => lost = true,
            }
            Ok(())
        };
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            event = uevents.next() => collect(event)?,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
        if output::is_closed() {
            return Ok(());
        }
        let until = tokio::time::Instant::now() + DEBOUNCE;
        while let Ok(event) = tokio::time::timeout_at(until, uevents.next()).await {
            collect(event)?;
        }
        let scan = if lost { Scan::Everything } else { Scan::Changed { touched: &touched } };
        screen.show(tokio::task::block_in_place(|| machine.scan(scan))?.devices)?;
    }
}

pub async fn cluster(
    cluster: &Cluster,
    nodes: &[String],
    mut screen: Screen,
) -> anyhow::Result<()> {
    let api: Api<NodeInventory> = Api::all(cluster.client.clone());
    let mut config = watcher::Config::default();
    if let [node] = nodes {
        config = config.fields(&format!("metadata.name={node}"));
    }
    let mut events = watcher(api, config).default_backoff().boxed();
    let stop = signals::stop_on_signal()?;
    let mut known: BTreeMap<String, Vec<DeviceView>> = BTreeMap::new();
    let mut listing = None;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            event = events.try_next() => event,
            () = tokio::time::sleep(POLL_INTERVAL) => {
                if output::is_closed() {
                    return Ok(());
                }
                continue;
            }
        };
        let wanted =
            |inventory: &NodeInventory| nodes.is_empty() || nodes.contains(&inventory.name_any());
        match event {
            Ok(None) => return Err(anyhow!("the API closed the watch; run the command again")),
            Err(error) => {
                output::note(&format!("lost the connection, retrying: {error}"));
                continue;
            }
            Ok(Some(watcher::Event::Init)) => listing = Some(BTreeMap::new()),
            Ok(Some(watcher::Event::InitApply(inventory))) => {
                let listing = listing.get_or_insert_default();
                listing.insert(
                    inventory.name_any(),
                    if wanted(&inventory) { of_inventory(&inventory) } else { Vec::new() },
                );
            }
            Ok(Some(watcher::Event::InitDone)) => known = listing.take().unwrap_or_default(),
            Ok(Some(watcher::Event::Apply(inventory))) if wanted(&inventory) => {
                drop(known.insert(inventory.name_any(), of_inventory(&inventory)))
            }
            Ok(Some(watcher::Event::Delete(inventory))) => {
                drop(known.remove(&inventory.name_any()))
            }
            Ok(Some(watcher::Event::Apply(_))) => {}
        }
        if listing.is_none() {
            screen.show(known.values().flatten().cloned().collect())?;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Added,
    Removed,
    Changed,
}

type Key = (String, String);

/// What was printed: only differences from it are printed.
pub struct Screen {
    format: Format,
    style: Style,
    /// Also what `DeviceView::is_minor` omits.
    all: bool,
    columns: Columns,
    printed: Option<BTreeMap<Key, DeviceView>>,
}

/// In front of every line of a table: the time and the kind of change.
const MARGIN: usize = "00:00:00 + ".len();

impl Screen {
    pub fn new(format: Format, style: Style, all: bool) -> Self {
        let style = Style { width: style.width.map(|width| width.saturating_sub(MARGIN)), ..style };
        Screen { format, style, all, columns: Columns::new(style), printed: None }
    }

    fn show(&mut self, devices: Vec<DeviceView>) -> anyhow::Result<()> {
        let time = jiff::Zoned::now().strftime("%H:%M:%S").to_string();
        output::print(&self.lines(devices, &time)?)
    }

    fn lines(&mut self, devices: Vec<DeviceView>, time: &str) -> anyhow::Result<String> {
        let all = self.all;
        let devices: Vec<DeviceView> =
            devices.into_iter().filter(|view| all || !view.is_minor()).collect();
        let after: BTreeMap<Key, DeviceView> = devices
            .iter()
            .map(|view| ((view.node.clone(), view.device.name.clone()), view.clone()))
            .collect();
        let Some(before) = self.printed.replace(after.clone()) else {
            return self.first(&devices, time);
        };
        let changes = changes(&before, &after, |view| self.visible(view));
        let mut text = String::new();
        for (change, view) in changes {
            text.push_str(&self.line(change, view, time)?);
        }
        Ok(text)
    }

    fn first(&mut self, devices: &[DeviceView], time: &str) -> anyhow::Result<String> {
        match self.format {
            Format::Table | Format::Wide => {
                let style = self.style;
                let rows = rows(devices, style.root_helps());
                let rows = rows.iter().map(|row| table::row(row, style)).collect();
                let lines = self.columns.lines(rows);
                Ok(format!("TIME       {}", self.columns.header())
                    + &lines.iter().map(|line| format!("{time}   {line}")).collect::<String>())
            }
            Format::Json | Format::Yaml => {
                devices.iter().map(|view| self.line(Change::Added, view, time)).collect()
            }
        }
    }

    fn line(&mut self, change: Change, view: &DeviceView, time: &str) -> anyhow::Result<String> {
        let kind = match change {
            Change::Added => "ADDED",
            Change::Removed => "DELETED",
            Change::Changed => "MODIFIED",
        };
        match self.format {
            Format::Json => {
                Ok(sanitize::json(&json!({"type": kind, "object": view}).to_string()) + "\n")
            }
            Format::Yaml => output::yaml_documents(&[json!({"type": kind, "object": view})]),
            Format::Table | Format::Wide => {
                let mark = match change {
                    Change::Added => '+',
                    Change::Removed => '-',
                    Change::Changed => '~',
                };
                let row = self.row(view);
                Ok(self
                    .columns
                    .lines(vec![row])
                    .iter()
                    .map(|line| format!("{time} {mark} {line}"))
                    .collect())
            }
        }
    }

    fn row(&self, view: &DeviceView) -> table::Row {
        table::row(&DeviceRow::new(view, self.style.root_helps()), self.style)
    }

    /// What this format shows of a device.
    fn visible(&self, view: &DeviceView) -> Vec<String> {
        match self.format {
            Format::Table | Format::Wide => self.row(view).cells,
            Format::Json | Format::Yaml => vec![format!("{view:?}")],
        }
    }
}

fn changes<'a>(
    before: &'a BTreeMap<Key, DeviceView>,
    after: &'a BTreeMap<Key, DeviceView>,
    visible: impl Fn(&DeviceView) -> Vec<String>,
) -> Vec<(Change, &'a DeviceView)> {
    // Another disk may have the same name since: the kernel numbers them.
    let same = |was: &DeviceView, now: &DeviceView| {
        was.device.diskseq.is_none()
            || now.device.diskseq.is_none()
            || was.device.diskseq == now.device.diskseq
    };
    let gone = before
        .iter()
        .filter(|(key, was)| !after.get(*key).is_some_and(|now| same(was, now)))
        .map(|(_, was)| (Change::Removed, was));
    let new =
        after.iter().filter_map(|(key, now)| match before.get(key).filter(|was| same(was, now)) {
            None => Some((Change::Added, now)),
            Some(was) => (visible(was) != visible(now)).then_some((Change::Changed, now)),
        });
    gone.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_view::devices::samples;
    use serde_json::json;

    #[test]
    fn a_watch_prints_the_list_then_only_changes() {
        let mut screen = Screen::new(Format::Table, Style::default(), false);
        let mut devices = samples::machine();
        let mut text = screen.lines(devices.clone(), "12:00:00").unwrap();
        text += &screen.lines(devices.clone(), "12:00:01").unwrap();
        devices[4].device.diskseq = Some(7);
        text += &screen.lines(devices.clone(), "12:00:02").unwrap();
        devices[4].device.state = quarry_api::node_inventory::DeviceState::Unknown;
        devices.remove(5);
        devices.push(samples::device(json!({"name": "sdd", "size": 1024, "state": "Unknown", "reasons": [{"reason": "TooNew"}]})));
        devices.push(samples::device(json!({"name": "zram0"})));
        text += &screen.lines(devices.clone(), "12:00:03").unwrap();
        devices[4].device.diskseq = Some(8);
        text += &screen.lines(devices, "12:00:04").unwrap();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn json_has_one_object_per_line() {
        let mut screen = Screen::new(Format::Json, Style::default(), true);
        let hostile = screen.lines(vec![samples::hostile()], "").unwrap();
        let gone = screen.lines(Vec::new(), "").unwrap();
        assert!(!hostile.contains('\u{1b}') && hostile.lines().count() == 1, "{hostile}");
        let read: serde_json::Value = serde_json::from_str(&gone).unwrap();
        assert_eq!(
            (&read["type"], &read["object"]["name"], &read["object"]["node"]),
            (&json!("DELETED"), &json!("sdx"), &json!("n1"))
        );
    }
}
