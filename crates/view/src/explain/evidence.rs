//! What each source says about a device's identity, and how it counts.

use quarry_api::node_inventory::{Device, Evidence};
use quarry_core::{
    device::{Facts, identity::identify},
    volume::explain::Verdict,
};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EvidenceView {
    pub verdict: Verdict,
    pub source: String,
    pub value: String,
    /// What it means for the identity.
    pub meaning: String,
}

/// In the order in which it was read.
pub fn evidence(device: &Device) -> Vec<EvidenceView> {
    device.evidence.iter().map(|one| weigh(device, one)).collect()
}

fn weigh(device: &Device, one: &Evidence) -> EvidenceView {
    let (verdict, meaning) = match (candidate(device, one), &device.identity) {
        (Some(found), Some(identity)) if found == *identity => {
            (Verdict::Ok, "this is its identity".to_owned())
        }
        (Some(found), Some(_))
            if form(&found) == form(device.identity.as_deref().unwrap_or_default()) =>
        {
            (Verdict::Waiting, format!("another identity: {found}"))
        }
        (Some(found), Some(_)) => (Verdict::Skipped, format!("weaker: {found}")),
        (Some(found), None) => {
            (Verdict::Waiting, format!("would be {found}, but not every path reports it"))
        }
        (None, _) => (Verdict::Skipped, "does not identify a device alone".to_owned()),
    };
    EvidenceView { verdict, source: one.source.clone(), value: one.value.clone(), meaning }
}

/// The identity from this evidence alone, by the rules that decide.
fn candidate(device: &Device, one: &Evidence) -> Option<String> {
    let mut evidence = vec![one.clone()];
    // A serial counts together with the model.
    evidence.extend(
        device
            .evidence
            .iter()
            .filter(|other| other.source == "sysfs:model" && *other != one)
            .cloned(),
    );
    identify(&Facts { kind: device.kind.clone(), evidence, ..Facts::default() }).identity
}

fn form(identity: &str) -> &str {
    identity.split(':').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::samples::device;
    use serde_json::json;

    #[test]
    fn evidence_is_weighed_by_the_rules_that_decide() {
        let view = device(json!({"identity": "wwn:5000c500a1b2c3d4", "evidence": [
            {"source": "sysfs:wwid", "value": "naa.5000c500a1b2c3d4"},
            {"source": "udev:ID_WWN", "value": "0x5000c500ffffffff"},
            {"source": "sysfs:model", "value": "ST4000"},
            {"source": "sysfs:vpd80", "value": "Z1Z2"},
            {"source": "sysfs:serial", "value": "00000000"},
        ]}));
        let meanings: Vec<(Verdict, String)> =
            evidence(&view.device).into_iter().map(|one| (one.verdict, one.meaning)).collect();
        assert_eq!(
            meanings,
            [
                (Verdict::Ok, "this is its identity".to_owned()),
                (Verdict::Waiting, "another identity: wwn:5000c500ffffffff".to_owned()),
                (Verdict::Skipped, "does not identify a device alone".to_owned()),
                (Verdict::Skipped, "weaker: serial:ST4000:Z1Z2".to_owned()),
                (Verdict::Skipped, "does not identify a device alone".to_owned()),
            ]
        );
    }
}
