//! `quarry devices --watch`: the list, then every device that appears, goes or changes.

use super::{
    cluster, local,
    table::{self, Columns, Style},
    view::Shown,
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
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A disk that is plugged in brings its partitions with it: they are shown together.
const DEBOUNCE: Duration = Duration::from_millis(300);
/// Mounts change without an event of the device.
const GLANCE: Duration = Duration::from_secs(5);

pub async fn local(machine: &mut local::Machine, mut screen: Screen) -> anyhow::Result<()> {
    let uevents = Uevents::open().context("listening to the kernel's device events")?;
    let stop = signals::stop_on_signal()?;
    let first = tokio::task::block_in_place(|| machine.look(Scan::Everything))?;
    first.problems.iter().for_each(|problem| output::note(problem));
    screen.show(first.devices)?;
    loop {
        let mut touched = BTreeSet::new();
        let mut lost = false;
        let mut note = |heard: std::io::Result<KernelEvent>| -> anyhow::Result<()> {
            match heard.context("listening to the kernel's device events")? {
                KernelEvent::Device(name) => drop(touched.insert(name)),
                KernelEvent::Lost => lost = true,
            }
            Ok(())
        };
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            heard = uevents.next() => note(heard)?,
            () = tokio::time::sleep(GLANCE) => {}
        }
        if output::is_closed() {
            return Ok(());
        }
        let until = tokio::time::Instant::now() + DEBOUNCE;
        while let Ok(heard) = tokio::time::timeout_at(until, uevents.next()).await {
            note(heard)?;
        }
        let scan = if lost { Scan::Everything } else { Scan::Changed { touched: &touched } };
        screen.show(tokio::task::block_in_place(|| machine.look(scan))?.devices)?;
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
    let mut known: BTreeMap<String, Vec<Shown>> = BTreeMap::new();
    let mut listing = None;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            event = events.try_next() => event,
            () = tokio::time::sleep(GLANCE) => {
                if output::is_closed() {
                    return Ok(());
                }
                continue;
            }
        };
        let wanted =
            |inventory: &NodeInventory| nodes.is_empty() || nodes.contains(&inventory.name_any());
        match event {
            Ok(None) => return Err(anyhow!("the API ended the watch; start it again")),
            Err(error) => {
                output::note(&format!("the connection was lost, trying again: {error}"));
                continue;
            }
            Ok(Some(watcher::Event::Init)) => listing = Some(BTreeMap::new()),
            Ok(Some(watcher::Event::InitApply(inventory))) => {
                let listing = listing.get_or_insert_default();
                listing.insert(
                    inventory.name_any(),
                    if wanted(&inventory) { cluster::devices(&inventory) } else { Vec::new() },
                );
            }
            Ok(Some(watcher::Event::InitDone)) => known = listing.take().unwrap_or_default(),
            Ok(Some(watcher::Event::Apply(inventory))) if wanted(&inventory) => {
                drop(known.insert(inventory.name_any(), cluster::devices(&inventory)))
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
    Appeared,
    Gone,
    Changed,
}

type Key = (String, String);

/// What is on the screen: only what differs from it is printed.
pub struct Screen {
    format: Format,
    style: Style,
    /// Also what `Shown::is_minor` leaves out.
    all: bool,
    columns: Columns,
    shown: Option<BTreeMap<Key, Shown>>,
}

/// In front of every line of a table: the time, and what happened.
const MARGIN: usize = "00:00:00 + ".len();

impl Screen {
    pub fn new(format: Format, style: Style, all: bool) -> Self {
        let style = Style { width: style.width.map(|width| width.saturating_sub(MARGIN)), ..style };
        Screen { format, style, all, columns: Columns::new(style), shown: None }
    }

    fn show(&mut self, devices: Vec<Shown>) -> anyhow::Result<()> {
        let time = jiff::Zoned::now().strftime("%H:%M:%S").to_string();
        output::print(&self.lines(devices, &time)?)
    }

    fn lines(&mut self, devices: Vec<Shown>, time: &str) -> anyhow::Result<String> {
        let all = self.all;
        let devices: Vec<Shown> =
            devices.into_iter().filter(|shown| all || !shown.is_minor()).collect();
        let after: BTreeMap<Key, Shown> = devices
            .iter()
            .map(|shown| ((shown.node.clone(), shown.device.name.clone()), shown.clone()))
            .collect();
        let Some(before) = self.shown.replace(after.clone()) else {
            return self.first(&devices, time);
        };
        let changes = changes(&before, &after, |shown| self.look(shown));
        let mut text = String::new();
        for (change, shown) in changes {
            text.push_str(&self.line(change, shown, time)?);
        }
        Ok(text)
    }

    fn first(&mut self, devices: &[Shown], time: &str) -> anyhow::Result<String> {
        match self.format {
            Format::Table | Format::Wide => {
                let style = self.style;
                let rows = super::tree::ordered(devices)
                    .into_iter()
                    .map(|(branch, shown)| table::row(&branch, shown, style))
                    .collect();
                let lines = self.columns.lines(rows);
                Ok(format!("TIME       {}", self.columns.header())
                    + &lines.iter().map(|line| format!("{time}   {line}")).collect::<String>())
            }
            Format::Json | Format::Yaml => {
                devices.iter().map(|shown| self.line(Change::Appeared, shown, time)).collect()
            }
        }
    }

    fn line(&mut self, change: Change, shown: &Shown, time: &str) -> anyhow::Result<String> {
        let kind = match change {
            Change::Appeared => "ADDED",
            Change::Gone => "DELETED",
            Change::Changed => "MODIFIED",
        };
        match self.format {
            Format::Json => {
                Ok(sanitize::json(&json!({"type": kind, "object": shown}).to_string()) + "\n")
            }
            Format::Yaml => output::yaml_documents(&[json!({"type": kind, "object": shown})]),
            Format::Table | Format::Wide => {
                let mark = match change {
                    Change::Appeared => '+',
                    Change::Gone => '-',
                    Change::Changed => '~',
                };
                let row = table::row("", shown, self.style);
                Ok(self
                    .columns
                    .lines(vec![row])
                    .iter()
                    .map(|line| format!("{time} {mark} {line}"))
                    .collect())
            }
        }
    }

    /// What of a device is seen on this screen.
    fn look(&self, shown: &Shown) -> Vec<String> {
        match self.format {
            Format::Table | Format::Wide => table::row("", shown, self.style).cells,
            Format::Json | Format::Yaml => vec![format!("{shown:?}")],
        }
    }
}

fn changes<'a>(
    before: &'a BTreeMap<Key, Shown>,
    after: &'a BTreeMap<Key, Shown>,
    look: impl Fn(&Shown) -> Vec<String>,
) -> Vec<(Change, &'a Shown)> {
    // Another disk may have taken the name meanwhile: the kernel counts them.
    let same = |was: &Shown, now: &Shown| {
        was.device.diskseq.is_none()
            || now.device.diskseq.is_none()
            || was.device.diskseq == now.device.diskseq
    };
    let gone = before
        .iter()
        .filter(|(key, was)| !after.get(*key).is_some_and(|now| same(was, now)))
        .map(|(_, was)| (Change::Gone, was));
    let new =
        after.iter().filter_map(|(key, now)| match before.get(key).filter(|was| same(was, now)) {
            None => Some((Change::Appeared, now)),
            Some(was) => (look(was) != look(now)).then_some((Change::Changed, now)),
        });
    gone.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::samples;
    use serde_json::json;

    #[test]
    fn a_watch_shows_the_list_then_changes_only() {
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
    fn programs_get_one_object_a_line() {
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
