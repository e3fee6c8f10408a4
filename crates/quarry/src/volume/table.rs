//! The table of volumes: columns as in kubectl, so that nobody learns two.

use crate::{output, sanitize};
use comfy_table::{Cell, Color, ContentArrangement, Table, presets::NOTHING};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{Volume, volume::Phase};

/// One volume as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub cells: Vec<String>,
    pub tone: Tone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Waiting,
    Bad,
}

pub const STATUS: usize = 5;
pub const AGE: usize = 7;

pub fn headers(wide: bool) -> Vec<&'static str> {
    let mut headers = vec!["NAME", "NODE", "CLASS", "SIZE", "MODE", "STATUS", "DEVICE", "AGE"];
    if wide {
        headers.extend(["CLAIM", "MESSAGE"]);
    }
    headers
}

pub fn row(volume: &Volume, pv: Option<&PersistentVolume>, wide: bool, now: Timestamp) -> Row {
    let (status, tone) = status(volume);
    let spec = &volume.spec;
    let size = spec
        .sparse_loop_device
        .as_ref()
        .map(|sparse| &sparse.size)
        .or(spec.lvm_logical_volume.as_ref().map(|lvm| &lvm.size));
    let device = volume.status.as_ref().and_then(|status| status.device_name.as_deref());
    let mut cells = vec![
        volume.metadata.name.clone().unwrap_or_default(),
        spec.node_name.clone(),
        spec.storage_class_name.clone(),
        size.map_or("-", |size| size.0.as_str()).to_owned(),
        spec.mode.as_str().to_owned(),
        status.to_owned(),
        device.unwrap_or("-").to_owned(),
        output::age(volume.metadata.creation_timestamp.as_ref().map(|time| &time.0), now),
    ];
    if wide {
        cells.push(claim(volume, pv));
        cells.push(
            volume.ready().and_then(|ready| ready.message.as_deref()).unwrap_or("-").to_owned(),
        );
    }
    Row { cells: cells.iter().map(|cell| sanitize::line(cell).into_owned()).collect(), tone }
}

fn status(volume: &Volume) -> (&'static str, Tone) {
    match volume.phase() {
        Some(Phase::Available) if volume.metadata.deletion_timestamp.is_some() => {
            (Phase::Terminating.as_str(), Tone::Waiting)
        }
        Some(phase @ Phase::Available) => (phase.as_str(), Tone::Good),
        Some(phase @ (Phase::Pending | Phase::Terminating)) => (phase.as_str(), Tone::Waiting),
        Some(phase @ Phase::Failed) => (phase.as_str(), Tone::Bad),
        // No operator has looked at it yet.
        None => ("New", Tone::Waiting),
    }
}

fn claim(volume: &Volume, pv: Option<&PersistentVolume>) -> String {
    let uid = volume.metadata.uid.as_deref().unwrap_or_default();
    let own = pv.filter(|pv| quarry_core::volume::pv::is_owned_by(pv, uid));
    own.and_then(|pv| pv.spec.as_ref()).and_then(|spec| spec.claim_ref.as_ref()).map_or_else(
        || "-".to_owned(),
        |claim| {
            format!(
                "{}/{}",
                claim.namespace.as_deref().unwrap_or_default(),
                claim.name.as_deref().unwrap_or_default()
            )
        },
    )
}

pub fn render(rows: &[Row], wide: bool, colours: bool) -> String {
    let mut table = Table::new();
    // Never wrapped: what is cut into lines cannot be read by grep.
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if colours {
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
        vec![
            row(
                &volume(
                    "data",
                    json!({"phase": "Available", "deviceName": "loop3", "conditions": [{"type": "Ready", "status": "True"}]}),
                ),
                Some(&pv),
                wide,
                now(),
            ),
            row(
                &volume(
                    "waits",
                    json!({"phase": "Pending", "conditions": [{"type": "Ready", "status": "Unknown", "message": "no agent has been seen on node node-1"}]}),
                ),
                None,
                wide,
                now(),
            ),
            row(
                &volume(
                    "broken",
                    json!({"phase": "Failed", "conditions": [{"type": "Ready", "status": "False", "message": "mkfs:\n\u{1b}[31mno space"}]}),
                ),
                None,
                wide,
                now(),
            ),
            row(&volume("fresh", json!({})), None, wide, now()),
        ]
    }

    #[test]
    fn a_table_is_narrow_unless_asked_to_be_wide() {
        insta::assert_snapshot!("table", render(&rows(false), false, false));
        insta::assert_snapshot!("wide", render(&rows(true), true, false));
    }

    #[test]
    fn nothing_from_an_object_reaches_the_terminal_as_an_escape() {
        let text = render(&rows(true), true, false);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(render(&rows(true), true, true).contains("\u{1b}["), "our own colours do");
    }

    #[test]
    fn an_available_volume_that_is_being_deleted_says_so() {
        let mut leaving = volume("v", json!({"phase": "Available"}));
        leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
        assert_eq!(row(&leaving, None, false, now()).cells[STATUS], "Terminating");
    }
}
