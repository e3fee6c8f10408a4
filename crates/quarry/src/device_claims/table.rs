//! The tables of `quarry sets` and `quarry plan`. Never wrapped: in a terminal the last column is cut instead.

use super::view::{Node, Shown, Tone};
use crate::{
    devices::{table::shorten, view::size},
    sanitize,
};

/// A line, and how one of its cells is coloured.
pub struct Line {
    pub cells: Vec<String>,
    pub tone: Tone,
}

/// Less than this says nothing.
const SHORTEST: usize = 24;
const GAP: usize = 3;

pub fn render(
    headers: &[&str],
    lines: &[Line],
    toned: usize,
    colours: bool,
    width: Option<usize>,
) -> String {
    let cells = |line: &Line| {
        line.cells.iter().map(|cell| sanitize::line(cell).into_owned()).collect::<Vec<_>>()
    };
    let rows: Vec<(Vec<String>, Tone)> =
        lines.iter().map(|line| (cells(line), line.tone)).collect();
    let mut widths: Vec<usize> = headers.iter().map(|header| header.len()).collect();
    for (row, _) in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let last = headers.len().saturating_sub(1);
    let before: usize = widths.iter().take(last).map(|width| width + GAP).sum();
    let room = width.map(|columns| columns.saturating_sub(before).max(SHORTEST));
    let line = |cells: &[String], tone: Option<Tone>| {
        let mut text = String::new();
        for (at, cell) in cells.iter().enumerate() {
            let shown = if at == last {
                room.map_or_else(|| cell.clone(), |room| shorten(cell, room))
            } else {
                format!("{cell:<width$}", width = widths[at])
            };
            match tone.filter(|_| colours && at == toned) {
                Some(tone) => text.push_str(&coloured(&shown, tone)),
                None => text.push_str(&shown),
            }
            if at != last {
                text.push_str(&" ".repeat(GAP));
            }
        }
        text.trim_end().to_owned() + "\n"
    };
    let head: Vec<String> = headers.iter().map(|header| (*header).to_owned()).collect();
    rows.iter().fold(line(&head, None), |text, (cells, tone)| text + &line(cells, Some(*tone)))
}

fn coloured(text: &str, tone: Tone) -> String {
    let colour = match tone {
        Tone::Good => "32",
        Tone::Waiting => "33",
        Tone::Bad => "31",
        Tone::Spare | Tone::Other => "2",
    };
    format!("\u{1b}[{colour}m{text}\u{1b}[0m")
}

pub const SETS: [&str; 8] =
    ["NAME", "CLASS", "MODE", "NODE", "MATCHED", "PROVISIONED", "WAITING", "REFUSED"];
pub const SETS_WIDE: [&str; 12] = [
    "NAME",
    "NAMESPACE",
    "CLASS",
    "MODE",
    "STATUS",
    "AGE",
    "NODE",
    "MATCHED",
    "PROVISIONED",
    "WAITING",
    "NOT MATCHED",
    "REFUSED",
];

/// What of an object only `wide` shows.
pub struct Wide {
    pub status: String,
    pub age: String,
}

/// One line for each node that has to do with it, whole lines each: they are to be read by grep, too.
pub fn set_lines(shown: &Shown, handle: &str, wide: Option<&Wide>) -> Vec<Line> {
    let line = |node: Option<&Node>| {
        let mut cells = vec![handle.to_owned()];
        if wide.is_some() {
            cells.push(shown.namespace.clone().unwrap_or_default());
        }
        cells.extend([joined(&shown.classes), joined(&shown.volume_modes)]);
        if let Some(wide) = wide {
            cells.extend([wide.status.clone(), wide.age.clone()]);
        }
        let counts = node.map_or([0; 4], |node| {
            [node.matched, node.provisioned, node.waiting, node.not_matched]
        });
        let [matched, provisioned, waiting, other] = counts.map(|count| count.to_string());
        cells.extend([
            node.map_or_else(|| "-".to_owned(), |node| node.node.clone()),
            matched,
            provisioned,
            waiting,
        ]);
        if wide.is_some() {
            cells.push(other);
        }
        let (refused, tone) = refused(shown, node);
        cells.push(refused);
        Line { cells, tone }
    };
    let lines: Vec<Line> = shown.concerned().map(|node| line(Some(node))).collect();
    if lines.is_empty() { vec![line(None)] } else { lines }
}

fn refused(shown: &Shown, node: Option<&Node>) -> (String, Tone) {
    if !shown.problems.is_empty() {
        return ("InvalidSpec".to_owned(), Tone::Bad);
    }
    let Some(node) = node else { return ("no node is selected".to_owned(), Tone::Bad) };
    let counts: Vec<String> =
        node.refused.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    let text = node.note.iter().cloned().chain(counts).collect::<Vec<_>>().join(", ");
    let tone = match () {
        () if node.devices.iter().any(|device| device.tone == Tone::Bad) || node.note.is_some() => {
            Tone::Bad
        }
        () if node.waiting > 0 => Tone::Waiting,
        () if node.provisioned > 0 => Tone::Good,
        () => Tone::Other,
    };
    (if text.is_empty() { "-".to_owned() } else { text }, tone)
}

fn joined(words: &[String]) -> String {
    if words.is_empty() { "-".to_owned() } else { words.join(",") }
}

pub const PLAN: [&str; 5] = ["NODE", "DEVICE", "SIZE", "RESULT", "WHY"];
/// The column of the answer.
pub const RESULT: usize = 3;

pub fn plan_lines(nodes: &[&Node]) -> Vec<Line> {
    nodes
        .iter()
        .flat_map(|node| {
            let note = node.note.as_ref().map(|note| Line {
                cells: [&node.node, "-", "-", "-", note].map(str::to_owned).to_vec(),
                tone: Tone::Bad,
            });
            note.into_iter().chain(node.folded().into_iter().map(|device| Line {
                cells: vec![
                    node.node.clone(),
                    device.device.clone(),
                    if device.size > 0 { size(device.size) } else { "-".to_owned() },
                    answer(&device),
                    why(&device),
                ],
                tone: device.tone,
            }))
        })
        .collect()
}

/// In a plan people ask who gets it, not how far it is.
fn answer(device: &super::view::Device) -> String {
    match (device.persistent_volume.is_some() || device.link.is_some(), device.eligibility.as_str())
    {
        (true, stage) => format!("has it ({stage})"),
        (false, "Matched") => "gets it".to_owned(),
        (false, word) => word.to_owned(),
    }
}

/// Of what it gets, which device that is: kernel names change.
fn why(device: &super::view::Device) -> String {
    match (device.eligibility.as_str(), &device.identity) {
        ("Matched", Some(identity)) => identity.clone(),
        _ => device.why.clone(),
    }
}
