//! The table of OSDs. Never wrapped: in a terminal the last column is cut instead. Columns only widen, so that rows may
//! arrive one by one.

use crate::{devices::table::shorten, host::table::colored, output, sanitize};
use jiff::Timestamp;
use quarry_view::{Tone, osds::OsdRow, text::size};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub wide: bool,
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
        let mut headers = vec!["NAMESPACE", "CLUSTER", "SET", "INDEX", "OSD", STATE, "NODE", "PVC"];
        headers.extend(["SIZE", AGE]);
        if style.wide {
            headers.extend(["CLASS", "VOLUME"]);
        }
        headers.push("MESSAGE");
        Columns { style, widths: headers.iter().map(|header| header.len()).collect(), headers }
    }

    /// Room for the longest state, so that the columns of a watch stay where they are.
    pub fn with_room(mut self) -> Self {
        if let Some(at) = self.headers.iter().position(|header| *header == STATE) {
            self.widths[at] = "PrepareFailed".len();
        }
        self
    }

    pub fn header(&self) -> String {
        let cells: Vec<String> = self.headers.iter().map(|header| (*header).to_owned()).collect();
        self.line(&cells, None)
    }

    pub fn cells(&self, row: &OsdRow, now: Timestamp) -> Vec<String> {
        let none = || "-".to_owned();
        let text = |value: &Option<String>| value.clone().unwrap_or_else(none);
        let mut cells = vec![
            row.namespace.clone(),
            row.cluster.clone(),
            row.set.clone(),
            row.index.to_string(),
            row.id.map_or_else(none, |id| id.to_string()),
            row.state.to_owned(),
            text(&row.node),
            text(&row.pvc),
            row.size.map_or_else(none, size),
            row.since.as_ref().map_or_else(none, |since| output::age(Some(since), now)),
        ];
        if self.style.wide {
            cells.extend([&row.device_class, &row.volume].map(text));
        }
        cells.push(text(&row.message));
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

pub fn render(rows: &[OsdRow], style: Style, now: Timestamp) -> String {
    let mut columns = Columns::new(style);
    let cells: Vec<(Vec<String>, Tone)> =
        rows.iter().map(|row| (columns.cells(row, now), row.tone)).collect();
    let lines = columns.lines(&cells);
    columns.header() + &lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_view::osds::{list, samples::objects};

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    #[test]
    fn wide_output_has_class_and_volume() {
        let rows = list(&objects()).rows;
        insta::assert_snapshot!("table", render(&rows, Style::default(), now()));
        let wide = Style { wide: true, ..Style::default() };
        insta::assert_snapshot!("wide", render(&rows, wide, now()));
        let narrow = render(&rows, Style { width: Some(130), ..Style::default() }, now());
        assert!(narrow.lines().all(|line| line.chars().count() <= 130), "{narrow}");
    }

    #[test]
    fn escape_sequences_in_messages_are_not_printed() {
        let mut rows = list(&objects()).rows;
        rows[0].message = Some("\u{1b}[2J\u{202e}".to_owned());
        rows[0].node = Some("n\u{7}\r".to_owned());
        let text = render(&rows, Style::default(), now());
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{7}', '\r']), "{text:?}");
        let colors = render(&rows, Style { colors: true, ..Style::default() }, now());
        assert!(colors.contains("\u{1b}[32mRunning"), "our own colors are printed");
    }
}
