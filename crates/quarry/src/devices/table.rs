//! The table of devices. Never wrapped: in a terminal the last column is cut instead, elsewhere it is whole.

use crate::sanitize;
use quarry_api::node_inventory::DeviceState;
use quarry_view::{
    devices::{DeviceRow, DeviceView, rows},
    text::size,
};

/// How a table is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub wide: bool,
    /// With a column for the node.
    pub nodes: bool,
    pub colors: bool,
    /// The columns of the terminal; `None` where nothing is cut.
    pub width: Option<usize>,
    /// The user is root: what is not permitted now stays so.
    pub root: bool,
}

/// Cells in the order of the headers; the last one is WHY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub cells: Vec<String>,
    pub state: DeviceState,
}

/// In a narrow terminal these columns are cut to so many characters, then omitted; `-o wide` never cuts.
const CUT: [(&str, usize); 6] =
    [("ID", 28), ("MODEL", 20), ("ID", 16), ("MODEL", 12), ("ID", 0), ("MODEL", 0)];
/// A shorter WHY says nothing.
const SHORTEST_WHY: usize = 36;
const GAP: usize = 2;

fn headers(style: Style) -> Vec<&'static str> {
    let mut headers = if style.nodes { vec!["NODE"] } else { Vec::new() };
    headers.extend(["NAME", "TYPE", "SIZE", "MODEL", "ID", "FS", "STATE"]);
    if style.wide {
        headers.extend([
            "VENDOR", "SERIAL", "TRAN", "ROTA", "RO", "RM", "MOUNTS", "IDENTITY", "EVIDENCE",
        ]);
    }
    headers.push("WHY");
    headers
}

pub fn row(row: &DeviceRow, style: Style) -> Row {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let flag = |value: bool| if value { "1" } else { "0" }.to_owned();
    let mut cells = if style.nodes { vec![row.node.clone()] } else { Vec::new() };
    cells.extend([
        format!("{}{}", row.branch, row.name),
        row.kind.clone(),
        size(row.size),
        text(&row.model),
        row.id.clone(),
        row.fs_type.clone(),
        row.state.as_str().to_owned(),
    ]);
    if style.wide {
        let mounts = Some(row.mounts.join(",")).filter(|mounts| !mounts.is_empty());
        cells.extend([
            text(&row.vendor),
            text(&row.serial),
            text(&row.transport),
            flag(row.rotational),
            flag(row.read_only),
            flag(row.removable),
            text(&mounts),
            text(&row.identity),
            row.evidence.to_string(),
        ]);
    }
    cells.push(row.why.clone());
    Row {
        cells: cells.iter().map(|cell| sanitize::line(cell).into_owned()).collect(),
        state: row.state,
    }
}

impl Style {
    /// Whether root could read what this user cannot; published devices were read by root.
    pub fn root_helps(self) -> bool {
        !self.nodes && !self.root
    }
}

pub fn render(devices: &[DeviceView], style: Style) -> String {
    let rows = rows(devices, style.root_helps()).iter().map(|one| row(one, style)).collect();
    let mut columns = Columns::new(style);
    let lines = columns.lines(rows);
    columns.header() + &lines.concat()
}

/// Columns that only widen, so that rows may arrive one by one.
pub struct Columns {
    style: Style,
    headers: Vec<&'static str>,
    widths: Vec<usize>,
}

impl Columns {
    pub fn new(style: Style) -> Self {
        let headers = headers(style);
        Columns { style, widths: headers.iter().map(|header| header.len()).collect(), headers }
    }

    pub fn header(&self) -> String {
        let cells: Vec<String> = self.headers.iter().map(|header| (*header).to_owned()).collect();
        self.line(&cells, None)
    }

    pub fn lines(&mut self, mut rows: Vec<Row>) -> Vec<String> {
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(&row.cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        self.shrink(&mut rows);
        rows.iter().map(|row| self.line(&row.cells, Some(row.state))).collect()
    }

    fn shrink(&mut self, rows: &mut [Row]) {
        // `-o wide` is for scrolling: nothing is cut.
        let Some(terminal) = self.style.width.filter(|_| !self.style.wide) else { return };
        let last = self.headers.len() - 1;
        let before = |widths: &[usize]| {
            widths[..last]
                .iter()
                .filter(|width| **width > 0)
                .map(|width| width + GAP)
                .sum::<usize>()
        };
        for (header, limit) in CUT {
            if before(&self.widths) + SHORTEST_WHY.min(self.widths[last]) <= terminal {
                break;
            }
            let Some(at) = self.headers.iter().position(|name| *name == header) else { continue };
            rows.iter_mut().for_each(|row| row.cells[at] = shorten_middle(&row.cells[at], limit));
            self.widths[at] = self.widths[at].min(limit);
        }
        let room = terminal.saturating_sub(before(&self.widths)).max(SHORTEST_WHY);
        rows.iter_mut().for_each(|row| row.cells[last] = shorten(&row.cells[last], room));
    }

    /// One line, its state colored.
    fn line(&self, cells: &[String], state: Option<DeviceState>) -> String {
        let mut text = String::new();
        for (at, (cell, width)) in
            cells.iter().zip(&self.widths).enumerate().filter(|(_, (_, width))| **width > 0)
        {
            let pad = " ".repeat((width + GAP).saturating_sub(cell.chars().count()));
            match state.filter(|_| self.style.colors && self.headers[at] == "STATE") {
                Some(state) => {
                    text.push_str(&format!("\u{1b}[{}m{cell}\u{1b}[0m{pad}", color(state)))
                }
                None => text.push_str(&format!("{cell}{pad}")),
            }
        }
        text.trim_end().to_owned() + "\n"
    }
}

fn color(state: DeviceState) -> &'static str {
    match state {
        DeviceState::Available => "32",
        DeviceState::NotAvailable => "31",
        DeviceState::Unknown => "33",
    }
}

pub fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Names differ at the end (the serial) as much as at the beginning.
fn shorten_middle(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width || width == 0 {
        return text.to_owned();
    }
    let tail = (width - 1) / 2;
    let head = width - 1 - tail;
    let (first, last): (String, String) =
        (text.chars().take(head).collect(), text.chars().skip(length - tail).collect());
    format!("{first}…{last}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_view::devices::samples;

    #[test]
    fn wide_output_has_more_columns() {
        insta::assert_snapshot!("table", render(&samples::machine(), Style::default()));
        insta::assert_snapshot!(
            "wide",
            render(&samples::machine(), Style { wide: true, nodes: true, ..Style::default() })
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_columns_and_wraps_nothing() {
        let text = render(&samples::machine(), Style { width: Some(100), ..Style::default() });
        insta::assert_snapshot!("narrow", text);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let tiny = render(&samples::machine(), Style { width: Some(20), ..Style::default() });
        assert_eq!(
            tiny.lines().count(),
            samples::machine().len() + 1,
            "one line per device at any width"
        );
    }

    #[test]
    fn escape_sequences_of_a_device_are_not_printed() {
        for width in [None, Some(60)] {
            for wide in [false, true] {
                let text = render(
                    &[samples::hostile()],
                    Style { wide, nodes: true, width, ..Style::default() },
                );
                assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
                assert_eq!(text.lines().count(), 2, "{text}");
            }
        }
        assert!(
            render(&[samples::hostile()], Style { colors: true, ..Style::default() })
                .contains("\u{1b}[31mNotAvailable"),
            "our own colors are printed"
        );
    }

    #[test]
    fn a_cut_text_ends_with_an_ellipsis() {
        assert_eq!((shorten("abcdef", 4).as_str(), shorten("abc", 3).as_str()), ("abc…", "abc"));
        assert_eq!(shorten_middle("ata-INTEL_PHYF0042", 9), "ata-…0042");
    }
}
