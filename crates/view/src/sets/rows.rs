//! The rows of `quarry sets`: one for each node that concerns an owner.

use super::{NodeView, OwnerView};
use crate::Tone;
use jiff::Timestamp;
use quarry_api::local_volume_discovery::OperatorCondition;
use quarry_core::source::Source;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerRow {
    /// `set/NAME` or `localvolume/NAME`.
    pub name: String,
    pub namespace: String,
    pub classes: Vec<String>,
    pub volume_modes: Vec<String>,
    /// The reason of its condition Available; `New` before the operator has seen it.
    pub status: String,
    pub created: Option<Timestamp>,
    /// `None` when no node is selected.
    pub node: Option<String>,
    pub matched: usize,
    pub provisioned: usize,
    pub waiting: usize,
    pub not_matched: usize,
    /// Why devices are refused, with counts; empty when none is.
    pub refused: String,
    pub tone: Tone,
}

pub fn rows(source: &impl Source, owners: &[OwnerView]) -> Vec<OwnerRow> {
    owners.iter().flat_map(|owner| owner_rows(source, owner)).collect()
}

fn owner_rows(source: &impl Source, owner: &OwnerView) -> Vec<OwnerRow> {
    let (conditions, created) = conditions(source, owner);
    let available = conditions.iter().find(|condition| condition.kind == "Available");
    let status = available.and_then(|condition| condition.reason.clone());
    let row = |node: Option<&NodeView>| {
        let count = |field: fn(&NodeView) -> usize| node.map_or(0, field);
        let (refused, tone) = refused(owner, node);
        OwnerRow {
            name: owner.handle(),
            namespace: owner.namespace.clone().unwrap_or_default(),
            classes: owner.classes.clone(),
            volume_modes: owner.volume_modes.clone(),
            status: status.clone().unwrap_or_else(|| "New".to_owned()),
            created,
            node: node.map(|node| node.node.clone()),
            matched: count(|node| node.matched),
            provisioned: count(|node| node.provisioned),
            waiting: count(|node| node.waiting),
            not_matched: count(|node| node.not_matched),
            refused,
            tone,
        }
    };
    let rows: Vec<OwnerRow> = owner.concerned().map(|node| row(Some(node))).collect();
    if rows.is_empty() { vec![row(None)] } else { rows }
}

/// The conditions and the creation time of the object.
pub(crate) fn conditions(
    source: &impl Source,
    owner: &OwnerView,
) -> (Vec<OperatorCondition>, Option<Timestamp>) {
    let named = |meta: &kube::core::ObjectMeta| {
        meta.name.as_deref() == Some(owner.name.as_str()) && meta.namespace == owner.namespace
    };
    let (status, meta) = if owner.kind == "LocalVolumeSet" {
        let sets = source.sets();
        let Some(set) = sets.iter().find(|set| named(&set.metadata)) else {
            return (Vec::new(), None);
        };
        (set.status.as_ref().map(|status| status.conditions.clone()), set.metadata.clone())
    } else {
        let volumes = source.local_volumes();
        let Some(volume) = volumes.iter().find(|volume| named(&volume.metadata)) else {
            return (Vec::new(), None);
        };
        (volume.status.as_ref().map(|status| status.conditions.clone()), volume.metadata.clone())
    };
    (status.unwrap_or_default(), meta.creation_timestamp.map(|time| time.0))
}

fn refused(owner: &OwnerView, node: Option<&NodeView>) -> (String, Tone) {
    if !owner.problems.is_empty() {
        return ("InvalidSpec".to_owned(), Tone::Bad);
    }
    let Some(node) = node else { return ("no node is selected".to_owned(), Tone::Bad) };
    let counts = node.refused.iter().map(|(reason, count)| format!("{reason} {count}"));
    let texts: Vec<String> = node.note.iter().cloned().chain(counts).collect();
    let tone = match () {
        () if node.has_bad_devices() || node.note.is_some() => Tone::Bad,
        () if node.waiting > 0 => Tone::Waiting,
        () if node.provisioned > 0 => Tone::Good,
        () => Tone::Other,
    };
    (texts.join(", "), tone)
}
