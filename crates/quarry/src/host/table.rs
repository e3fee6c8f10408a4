//! The table of hosts. Never wrapped: in a terminal the last column is cut instead. Columns only widen, so that rows may
//! arrive one by one.

use crate::{devices::table::shorten, output, sanitize};
use jiff::Timestamp;
use quarry_view::{Tone, hosts::HostRow};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub wide: bool,
    /// With a column for the namespace.
    pub namespaces: bool,
    pub colors: bool,
    /// The columns of the terminal; `None` where nothing is cut.
    pub width: Option<usize>,
}

const GAP: usize = 3;
/// A shorter last column says nothing.
const SHORTEST: usize = 24;
const STATE: &str = "STATE";
const AGE: &str = "AGE";

pub struct Columns {
    style: Style,
    headers: Vec<&'static str>,
    widths: Vec<usize>,
}

impl Columns {
    pub fn new(style: Style) -> Self {
        let mut headers = if style.namespaces { vec!["NAMESPACE"] } else { Vec::new() };
        headers.extend(["NAME", STATE, "STATUS", "POWER", "ONLINE", "NODE", "DISKS", AGE]);
        if style.wide {
            headers.extend(["BMC", "IRONIC NODE", "HARDWARE", "RAID", "CONSUMER"]);
        }
        headers.push("ERROR");
        Columns { style, widths: headers.iter().map(|header| header.len()).collect(), headers }
    }

    /// Room for the longest state, so that the columns of a watch stay where they are.
    pub fn with_room(mut self) -> Self {
        if let Some(at) = self.headers.iter().position(|header| *header == STATE) {
            self.widths[at] = "externally provisioned".len();
        }
        self
    }

    pub fn header(&self) -> String {
        let cells: Vec<String> = self.headers.iter().map(|header| (*header).to_owned()).collect();
        self.line(&cells, None)
    }

    pub fn cells(&self, row: &HostRow, now: Timestamp) -> Vec<String> {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        let power = row.powered_on.map(|on| if on { "on" } else { "off" }.to_owned());
        let mut cells =
            if self.style.namespaces { vec![row.namespace.clone()] } else { Vec::new() };
        let deletes = row.terminating && !row.state.starts_with("delet");
        let state =
            if deletes { format!("{} (terminating)", row.state) } else { row.state.clone() };
        cells.extend([
            row.name.clone(),
            state,
            text(&row.status),
            text(&power),
            row.online.to_string(),
            text(&row.node),
            text(&row.disks.map(|disks| disks.to_string())),
            output::age(row.created.as_ref(), now),
        ]);
        if self.style.wide {
            cells.extend(
                [&row.bmc, &row.ironic_node, &row.hardware, &row.raid, &row.consumer].map(text),
            );
        }
        cells.push(text(&row.error));
        cells.iter().map(|cell| sanitize::line(cell).into_owned()).collect()
    }

    /// What a watch compares: a changed age is no change.
    pub fn without_age(&self, cells: &[String]) -> Vec<String> {
        let all = self.headers.iter().zip(cells);
        all.filter(|(header, _)| **header != AGE).map(|(_, cell)| cell.clone()).collect()
    }

    pub fn lines(&mut self, rows: &[(Vec<String>, Tone)]) -> String {
        for (cells, _) in rows {
            for (width, cell) in self.widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        rows.iter().map(|(cells, tone)| self.line(cells, Some(*tone))).collect()
    }

    fn line(&self, cells: &[String], tone: Option<Tone>) -> String {
        let last = self.headers.len() - 1;
        let before: usize = self.widths.iter().take(last).map(|width| width + GAP).sum();
        let room = self.style.width.filter(|_| !self.style.wide);
        let mut text = String::new();
        for (at, cell) in cells.iter().enumerate() {
            let cell = match room {
                Some(columns) if at == last => {
                    shorten(cell, columns.saturating_sub(before).max(SHORTEST))
                }
                _ if at == last => cell.clone(),
                _ => format!("{cell:<width$}", width = self.widths[at]),
            };
            let color = tone.filter(|_| self.style.colors && self.headers[at] == STATE);
            text.push_str(&color.map_or_else(|| cell.clone(), |tone| colored(&cell, tone)));
            if at != last {
                text.push_str(&" ".repeat(GAP));
            }
        }
        text.trim_end().to_owned() + "\n"
    }
}

pub fn colored(text: &str, tone: Tone) -> String {
    let color = match tone {
        Tone::Good => "32",
        Tone::Waiting => "33",
        Tone::Bad => "31",
        Tone::Spare | Tone::Other => "2",
    };
    format!("\u{1b}[{color}m{text}\u{1b}[0m")
}

pub fn render(rows: &[HostRow], style: Style, now: Timestamp) -> String {
    let mut columns = Columns::new(style);
    let cells: Vec<(Vec<String>, Tone)> =
        rows.iter().map(|row| (columns.cells(row, now), row.tone)).collect();
    let lines = columns.lines(&cells);
    columns.header() + &lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_view::hosts::{list, samples::snapshot};

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    #[test]
    fn wide_output_has_more_columns() {
        let mut rows = list(&snapshot(), None, None);
        rows[0].raid = Some("software 1, 1+0 (verified)".to_owned());
        insta::assert_snapshot!("table", render(&rows, Style::default(), now()));
        let wide = Style { wide: true, namespaces: true, ..Style::default() };
        insta::assert_snapshot!("wide", render(&rows, wide, now()));
        let narrow = Style { width: Some(100), ..Style::default() };
        insta::assert_snapshot!("narrow", render(&rows, narrow, now()));
    }

    #[test]
    fn escape_sequences_of_a_host_are_not_printed() {
        let mut rows = list(&snapshot(), None, None);
        rows[0].error = Some("\u{1b}[2J\u{202e}".to_owned());
        let text = render(&rows, Style::default(), now());
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        let colors = render(&rows, Style { colors: true, ..Style::default() }, now());
        assert!(colors.contains("\u{1b}[32mavailable"), "our own colors are printed");
    }
}
