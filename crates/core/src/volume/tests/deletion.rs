//! The criteria for deleting a Volume.

use super::*;

#[test]
fn the_deletion_criteria() {
    let deletable = |phase: Option<&str>, pv: Option<&str>| {
        let mut seen = available();
        seen.volume.status =
            phase.map(|phase| serde_json::from_value(json!({"phase": phase})).unwrap());
        let pv = pv.map(|phase| {
            let mut pv = seen.pv.clone().unwrap();
            pv.status = serde_json::from_value(json!({"phase": phase})).unwrap();
            pv
        });
        decide_deletable(&seen.volume, pv.as_ref()) == Deletable::Yes
    };
    for (phase, pv, expected) in [
        (None, None, false),
        (Some("Pending"), None, false),
        (Some("Terminating"), None, false),
        (Some("Pending"), Some("Available"), false),
        (Some("Available"), None, true),
        (Some("Failed"), None, true),
        (Some("Available"), Some("Available"), true),
        (Some("Available"), Some("Released"), true),
        (Some("Available"), Some("Failed"), true),
        (Some("Available"), Some("Bound"), false),
        (Some("Failed"), Some("Bound"), false),
        (Some("Available"), Some("Pending"), false),
    ] {
        assert_eq!(deletable(phase, pv), expected, "{phase:?} {pv:?}");
    }
}
