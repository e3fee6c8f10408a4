//! The table of devices. Never wrapped: in a terminal the last column is cut instead, elsewhere it is whole.

use super::{
    tree,
    view::{Shown, size},
};
use crate::sanitize;
use quarry_api::node_inventory::DeviceState;
use quarry_core::device::Reason;

/// How it is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub wide: bool,
    /// With a column for the node.
    pub nodes: bool,
    pub colours: bool,
    /// The columns of the terminal; `None` where nothing is cut.
    pub width: Option<usize>,
    /// Whoever looks is root: what is refused to root is not to be had by becoming it.
    pub root: bool,
}

/// Cells in the order of the headers; the last one says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub cells: Vec<String>,
    pub state: DeviceState,
}

/// In a terminal that is too narrow these are cut, down to so many characters, then left out; `-o wide` has them whole.
const CUT: [(&str, usize); 6] =
    [("ID", 28), ("MODEL", 20), ("ID", 16), ("MODEL", 12), ("ID", 0), ("MODEL", 0)];
/// Less than this says nothing.
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

pub fn row(branch: &str, shown: &Shown, style: Style) -> Row {
    let device = &shown.device;
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let flag = |value: bool| if value { "1" } else { "0" }.to_owned();
    let mut cells = if style.nodes { vec![shown.node.clone()] } else { Vec::new() };
    cells.extend([
        format!("{branch}{}", shown.title()),
        device.kind.clone(),
        size(device.size),
        text(&device.model),
        id(shown),
        // Nobody knows what is on it: that is not the same as nothing.
        device
            .fs_type
            .clone()
            .unwrap_or_else(|| if shown.is_unread() { "?" } else { "-" }.to_owned()),
        device.state.as_str().to_owned(),
    ]);
    if style.wide {
        let mounts: Vec<&str> = shown.details(Reason::Mounted).collect();
        cells.extend([
            text(&device.vendor),
            text(&device.serial),
            text(&device.transport),
            flag(device.rotational),
            flag(device.read_only),
            flag(device.removable),
            if mounts.is_empty() { "-".to_owned() } else { mounts.join(",") },
            text(&device.identity),
            device.evidence.len().to_string(),
        ]);
    }
    cells.push(why(shown, !style.nodes && !style.root));
    Row {
        cells: cells.iter().map(|cell| sanitize::line(cell).into_owned()).collect(),
        state: device.state,
    }
}

/// Its name below /dev/disk/by-id, else what identifies it.
fn id(shown: &Shown) -> String {
    let link =
        shown.device.device_id.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
    let none = if shown.identity_is_hidden() { "?" } else { "-" };
    link.or(shown.device.identity.as_deref()).unwrap_or(none).to_owned()
}

/// Every reason in words, in the order of the table of reasons.
fn why(shown: &Shown, root_helps: bool) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut last = None;
    for one in &shown.device.reasons {
        match one.reason.known() {
            Some(Reason::NotPermitted) if root_helps => told.push("needs root".to_owned()),
            // Several of the same kind: said once, with all that it is about.
            Some(reason) if last == Some(reason) && !one.detail.is_empty() => match told.last_mut()
            {
                Some(sentence) => sentence.push_str(&format!(", {}", one.detail)),
                None => told.push(reason.message(&one.detail)),
            },
            Some(reason) => told.push(reason.message(&one.detail)),
            None => told.push(one.message()),
        }
        last = one.reason.known();
    }
    told.join("; ")
}

pub fn render(devices: &[Shown], style: Style) -> String {
    let rows: Vec<Row> = tree::ordered(devices)
        .into_iter()
        .map(|(branch, shown)| row(&branch, shown, style))
        .collect();
    let mut columns = Columns::new(style);
    let lines = columns.lines(rows);
    columns.header() + &lines.concat()
}

/// Columns that only ever widen, so that rows may arrive one by one.
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
        // Whoever asks for all columns gets them whole, and scrolls.
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

    /// One line, its state coloured.
    fn line(&self, cells: &[String], state: Option<DeviceState>) -> String {
        let mut text = String::new();
        for (at, (cell, width)) in
            cells.iter().zip(&self.widths).enumerate().filter(|(_, (_, width))| **width > 0)
        {
            let pad = " ".repeat((width + GAP).saturating_sub(cell.chars().count()));
            match state.filter(|_| self.style.colours && self.headers[at] == "STATE") {
                Some(state) => {
                    text.push_str(&format!("\u{1b}[{}m{cell}\u{1b}[0m{pad}", colour(state)))
                }
                None => text.push_str(&format!("{cell}{pad}")),
            }
        }
        text.trim_end().to_owned() + "\n"
    }
}

fn colour(state: DeviceState) -> &'static str {
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

/// A name differs from its neighbours at its end (the serial) as much as at its beginning.
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
    use crate::devices::samples;

    #[test]
    fn a_table_is_narrow_unless_asked_to_be_wide() {
        insta::assert_snapshot!("table", render(&samples::machine(), Style::default()));
        insta::assert_snapshot!(
            "wide",
            render(&samples::machine(), Style { wide: true, nodes: true, ..Style::default() })
        );
    }

    #[test]
    fn in_a_narrow_terminal_nothing_is_wrapped() {
        let text = render(&samples::machine(), Style { width: Some(100), ..Style::default() });
        insta::assert_snapshot!("narrow", text);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let tiny = render(&samples::machine(), Style { width: Some(20), ..Style::default() });
        assert_eq!(
            tiny.lines().count(),
            samples::machine().len() + 1,
            "however narrow, one line each"
        );
    }

    #[test]
    fn nothing_from_a_device_reaches_the_terminal_as_an_escape() {
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
            render(&[samples::hostile()], Style { colours: true, ..Style::default() })
                .contains("\u{1b}[31mNotAvailable"),
            "our own colours do"
        );
    }

    #[test]
    fn a_cut_text_says_so() {
        assert_eq!((shorten("abcdef", 4).as_str(), shorten("abc", 3).as_str()), ("abc…", "abc"));
        assert_eq!(shorten_middle("ata-INTEL_PHYF0042", 9), "ata-…0042");
    }
}
