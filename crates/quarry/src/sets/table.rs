//! The tables of `quarry sets` and `quarry plan`. Never wrapped: in a terminal the last column is cut instead.

use crate::{devices::table::shorten, output, sanitize};
use jiff::Timestamp;
use quarry_view::{
    Tone,
    sets::{plan::PlanRow, rows::OwnerRow},
    text::size,
};

/// A line, and the tone of its colored cell.
struct Line {
    cells: Vec<String>,
    tone: Tone,
}

/// Where and how a table is printed.
struct Layout<'a> {
    headers: &'a [&'a str],
    /// The column that is colored.
    colored: usize,
    colors: bool,
    /// The columns of the terminal; `None` where nothing is cut.
    width: Option<usize>,
}

/// A shorter last column says nothing.
const SHORTEST: usize = 24;
const GAP: usize = 3;
const NONE: &str = "-";

const SETS: [&str; 8] =
    ["NAME", "CLASS", "MODE", "NODE", "MATCHED", "PROVISIONED", "WAITING", "REFUSED"];
const SETS_WIDE: [&str; 12] = [
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
const PLAN: [&str; 5] = ["NODE", "DEVICE", "SIZE", "RESULT", "WHY"];
const RESULT: usize = 3;

pub fn render_sets(
    rows: &[OwnerRow],
    wide: bool,
    now: Timestamp,
    colors: bool,
    width: Option<usize>,
) -> String {
    let headers: &[&str] = if wide { &SETS_WIDE } else { &SETS };
    let width = width.filter(|_| !wide);
    let lines: Vec<Line> = rows.iter().map(|row| set_line(row, wide, now)).collect();
    render(&Layout { headers, colored: headers.len() - 1, colors, width }, &lines)
}

fn set_line(row: &OwnerRow, wide: bool, now: Timestamp) -> Line {
    let join = |words: &[String]| or_none(words.join(","));
    let mut cells = vec![row.name.clone()];
    if wide {
        cells.push(row.namespace.clone());
    }
    cells.extend([join(&row.classes), join(&row.volume_modes)]);
    if wide {
        cells.extend([row.status.clone(), output::age(row.created.as_ref(), now)]);
    }
    cells.push(row.node.clone().unwrap_or_else(|| NONE.to_owned()));
    cells.extend([row.matched, row.provisioned, row.waiting].map(|count| count.to_string()));
    if wide {
        cells.push(row.not_matched.to_string());
    }
    cells.push(or_none(row.refused.clone()));
    Line { cells, tone: row.tone }
}

pub fn render_plan(rows: &[PlanRow], colors: bool, width: Option<usize>) -> String {
    let text = |cell: &Option<String>| cell.clone().unwrap_or_else(|| NONE.to_owned());
    let line = |row: &PlanRow| Line {
        cells: vec![
            row.node.clone(),
            text(&row.device),
            text(&row.size.map(size)),
            text(&row.result),
            row.why.clone(),
        ],
        tone: row.tone,
    };
    let lines: Vec<Line> = rows.iter().map(line).collect();
    render(&Layout { headers: &PLAN, colored: RESULT, colors, width }, &lines)
}

fn or_none(text: String) -> String {
    if text.is_empty() { NONE.to_owned() } else { text }
}

fn render(layout: &Layout<'_>, lines: &[Line]) -> String {
    let row = |line: &Line| {
        let cells = line.cells.iter().map(|cell| sanitize::line(cell).into_owned());
        (cells.collect(), line.tone)
    };
    let rows: Vec<(Vec<String>, Tone)> = lines.iter().map(row).collect();
    let mut widths: Vec<usize> = layout.headers.iter().map(|header| header.len()).collect();
    for (row, _) in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let head: Vec<String> = layout.headers.iter().map(|header| (*header).to_owned()).collect();
    let mut text = render_line(layout, &widths, &head, None);
    for (cells, tone) in &rows {
        text.push_str(&render_line(layout, &widths, cells, Some(*tone)));
    }
    text
}

fn render_line(
    layout: &Layout<'_>,
    widths: &[usize],
    cells: &[String],
    tone: Option<Tone>,
) -> String {
    let last = layout.headers.len().saturating_sub(1);
    let before: usize = widths.iter().take(last).map(|width| width + GAP).sum();
    let room = layout.width.map(|columns| columns.saturating_sub(before).max(SHORTEST));
    let mut text = String::new();
    for (at, cell) in cells.iter().enumerate() {
        let cell = if at == last {
            room.map_or_else(|| cell.clone(), |room| shorten(cell, room))
        } else {
            format!("{cell:<width$}", width = widths[at])
        };
        match tone.filter(|_| layout.colors && at == layout.colored) {
            Some(tone) => text.push_str(&colored(&cell, tone)),
            None => text.push_str(&cell),
        }
        if at != last {
            text.push_str(&" ".repeat(GAP));
        }
    }
    text.trim_end().to_owned() + "\n"
}

fn colored(text: &str, tone: Tone) -> String {
    let color = match tone {
        Tone::Good => "32",
        Tone::Waiting => "33",
        Tone::Bad => "31",
        Tone::Spare | Tone::Other => "2",
    };
    format!("\u{1b}[{color}m{text}\u{1b}[0m")
}
