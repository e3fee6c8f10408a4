//! The table of volumes: the columns of kubectl.

use crate::{output, sanitize};
use comfy_table::{Cell, Color, ContentArrangement, Table, presets::NOTHING};
use jiff::Timestamp;
use quarry_view::{Tone, volumes::VolumeRow};

/// The cells of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub cells: Vec<String>,
    pub tone: Tone,
}

pub const STATUS: usize = 5;
pub const AGE: usize = 7;

pub fn headers(wide: bool) -> Vec<&'static str> {
    let mut headers = vec!["NAME", "NODE", "CLASS", "SIZE", "MODE", "STATUS", "DEVICE", "AGE"];
    if wide {
        headers.extend(["PVC", "MESSAGE"]);
    }
    headers
}

pub fn row(view: &VolumeRow, wide: bool, now: Timestamp) -> Row {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let mut cells = vec![
        view.name.clone(),
        view.node.clone(),
        view.class.clone(),
        text(&view.size),
        view.mode.clone(),
        view.status.clone(),
        text(&view.device),
        output::age(view.created.as_ref(), now),
    ];
    if wide {
        cells.extend([text(&view.pvc), text(&view.message)]);
    }
    let cells = cells.iter().map(|cell| sanitize::line(cell).into_owned()).collect();
    Row { cells, tone: view.tone }
}

pub fn render(rows: &[Row], wide: bool, colors: bool) -> String {
    let mut table = Table::new();
    // Never wrapped: every volume is one line, also for grep.
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if colors {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table.set_header(headers(wide));
    for row in rows {
        table.add_row(row.cells.iter().enumerate().map(|(column, text)| {
            match (column, row.tone) {
                (STATUS, Tone::Good) => Cell::new(text).fg(Color::Green),
                (STATUS, Tone::Waiting) => Cell::new(text).fg(Color::Yellow),
                (STATUS, Tone::Bad) => Cell::new(text).fg(Color::Red),
                _ => Cell::new(text),
            }
        }));
    }
    let last = headers(wide).len() - 1;
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index == last { 0 } else { 3 }));
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PersistentVolume;
    use quarry_api::Volume;
    use serde_json::{Value, json};

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    fn volume(name: &str, status: Value) -> Volume {
        serde_json::from_value(json!({
            "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume",
            "metadata": {"name": name, "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "node-1", "storageClassName": "fast", "mode": "Filesystem", "sparseLoopDevice": {"size": "10Gi"}},
            "status": status,
        }))
        .unwrap()
    }

    fn rows(wide: bool) -> Vec<Row> {
        let pv: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": "data", "ownerReferences": [{"apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "name": "data", "uid": "u1", "controller": true}]},
            "spec": {"claimRef": {"namespace": "shop", "name": "db"}},
        }))
        .unwrap();
        let ready = |status: &str, message: Option<&str>| json!([{"type": "Ready", "status": status, "message": message}]);
        let none = Some("no agent has been seen on node node-1");
        let hostile = Some("mkfs:\n\u{1b}[31mno space");
        [
            (
                volume("data", json!({"phase": "Available", "deviceName": "loop3", "conditions": ready("True", None)})),
                Some(&pv),
            ),
            (volume("waits", json!({"phase": "Pending", "conditions": ready("Unknown", none)})), None),
            (volume("broken", json!({"phase": "Failed", "conditions": ready("False", hostile)})), None),
            (volume("fresh", json!({})), None),
        ]
        .map(|(volume, pv)| row(&VolumeRow::new(&volume, pv), wide, now()))
        .to_vec()
    }

    #[test]
    fn wide_output_has_more_columns() {
        insta::assert_snapshot!("table", render(&rows(false), false, false));
        insta::assert_snapshot!("wide", render(&rows(true), true, false));
    }

    #[test]
    fn escape_sequences_of_an_object_are_not_printed() {
        let text = render(&rows(true), true, false);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(render(&rows(true), true, true).contains("\u{1b}["), "our own colors are printed");
    }
}
