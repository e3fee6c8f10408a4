//! Every reason of the table as a check of one device: passed, failed, or not made, and why not.
//!
//! Class and text of each come from the table (`quarry_api::reason`).

use crate::devices::DeviceView;
use quarry_api::reason::{Class, Meaning, Reason, TABLE};
use quarry_core::volume::explain::Verdict;
use serde::Serialize;

fn title(class: Class) -> &'static str {
    match class {
        Class::Identity => "Is its identity certain?",
        Class::Owner => "Does it have an owner?",
        Class::Use => "Does anything use it?",
        Class::Content => "Does it contain data?",
        Class::Nature => "Is it suitable for storage?",
        Class::Probe => "Could it be read?",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    #[serde(skip)]
    pub class: Class,
    /// A reason's constant.
    pub name: String,
    pub verdict: Verdict,
    pub text: String,
}

/// The checks of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckGroup {
    pub title: &'static str,
    pub checks: Vec<Check>,
}

pub fn groups(view: &DeviceView) -> Vec<CheckGroup> {
    let all = checks(view);
    let group = |class: Class| CheckGroup {
        title: title(class),
        checks: all.iter().filter(|check| check.class == class).cloned().collect(),
    };
    Class::ALL.into_iter().map(group).collect()
}

/// In the order of the table; a check that fails several times once for each detail.
fn checks(view: &DeviceView) -> Vec<Check> {
    let mut all = Vec::new();
    for row in TABLE {
        let reason = row.reason;
        let details: Vec<&str> = view.details(reason).collect();
        let check = |verdict, text: String| Check {
            class: row.class,
            name: reason.as_str().to_owned(),
            verdict,
            text,
        };
        if details.is_empty() {
            match (applies(view, reason), not_made(view, reason)) {
                (false, _) => {}
                (true, Some(why)) => all.push(check(Verdict::Skipped, why)),
                (true, None) => all.push(check(Verdict::Ok, row.absent.to_owned())),
            }
        }
        all.extend(details.iter().map(|detail| check(failed(reason), reason.message(detail))));
    }
    // Reasons of a newer agent.
    let unknown = view.device.reasons.iter().filter(|given| given.reason.known().is_none());
    all.extend(unknown.map(|given| Check {
        class: Class::Probe,
        name: given.reason.to_string(),
        verdict: Verdict::Problem,
        text: given.detail.clone(),
    }));
    all
}

fn failed(reason: Reason) -> Verdict {
    match reason {
        Reason::TooNew => Verdict::Waiting,
        Reason::NotPermitted => Verdict::Skipped,
        _ => Verdict::Problem,
    }
}

fn applies(view: &DeviceView, reason: Reason) -> bool {
    match reason {
        Reason::BootLabel => view.device.kind == "part",
        Reason::HasChildren => view.device.kind != "part",
        // Only standalone Quarry has disks that it must not use.
        Reason::ObservedOnly => false,
        // Concerns only nodes with thousands of PersistentVolumes.
        Reason::UnlistedPersistentVolumes => false,
        _ => true,
    }
}

/// Why a check was not made; `None` for one that was.
fn not_made(view: &DeviceView, reason: Reason) -> Option<String> {
    let (local, unidentified) = (view.local.is_some(), view.device.identity.is_none());
    // The last in the table: what kept this process from reading explains the rest.
    let found = view.device.reasons.iter().filter_map(|found| found.reason.known());
    let unread = found.filter(|reason| reason.means(Meaning::Unread)).max();
    let because = |reason: Reason| format!("not checked: it {}", reason.row().text);
    match reason {
        Reason::IdentityElsewhere
        | Reason::Claimed
        | Reason::BacksPersistentVolume
        | Reason::RetainedData
            if local =>
        {
            Some("known only to the cluster; run `quarry explain NODE/DEVICE`".to_owned())
        }
        Reason::IdentityChanged if local => {
            Some("needs more than one scan: the agent compares with its previous scan".to_owned())
        }
        Reason::TooNew if local => {
            Some("needs more than one scan: the agent waits for it".to_owned())
        }
        Reason::NoIdentity | Reason::DuplicateIdentity if view.identity_is_hidden() => {
            unread.map(because)
        }
        Reason::DuplicateIdentity
        | Reason::IdentityElsewhere
        | Reason::IdentityChanged
        | Reason::AmbiguousIdentity
            if unidentified =>
        {
            Some("has no identity to compare".to_owned())
        }
        Reason::Claimed if unidentified => Some("cannot be claimed without an identity".to_owned()),
        Reason::HeldExclusively if view.has(Reason::ObservedOnly) => {
            Some(because(Reason::ObservedOnly))
        }
        Reason::TimedOut | Reason::Unreadable if view.has(Reason::NotPermitted) => {
            Some(because(Reason::NotPermitted))
        }
        Reason::Signature
        | Reason::PartitionTable
        | Reason::UnknownData
        | Reason::HeldExclusively => unread.map(because),
        // Without udev the type of a partition is only in the partition table of its disk.
        Reason::BootLabel if view.has(Reason::NotPermitted) && view.device.part_label.is_none() => {
            Some(because(Reason::NotPermitted))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{
        LocalFacts,
        samples::{device, machine},
    };
    use serde_json::json;

    // invariant: 9
    #[test]
    fn every_reason_has_a_check() {
        let view = device(json!({"type": "part"}));
        let names: Vec<String> = checks(&view).into_iter().map(|check| check.name).collect();
        let mut expected: Vec<&str> = TABLE.iter().map(|row| row.reason.as_str()).collect();
        expected.retain(|name| {
            !["HasChildren", "ObservedOnly", "UnlistedPersistentVolumes"].contains(name)
        });
        assert_eq!(names, expected);
        for class in Class::ALL {
            assert!(checks(&view).iter().any(|check| check.class == class), "{class:?}");
        }
    }

    #[test]
    fn a_check_that_was_not_made_does_not_pass() {
        let verdict = |view: &DeviceView, name: &str| {
            checks(view).into_iter().find(|check| check.name == name).unwrap().verdict
        };
        let mut view = machine().remove(5);
        for name in [
            "Signature",
            "PartitionTable",
            "UnknownData",
            "HeldExclusively",
            "NotPermitted",
            "DuplicateIdentity",
            "Claimed",
        ] {
            assert_eq!(verdict(&view, name), Verdict::Skipped, "{name}");
        }
        assert_eq!(verdict(&view, "Mounted"), Verdict::Ok);
        assert_eq!(verdict(&view, "TooNew"), Verdict::Ok);
        view.local = Some(LocalFacts::default());
        for name in ["TooNew", "IdentityElsewhere", "IdentityChanged", "BacksPersistentVolume"] {
            assert_eq!(verdict(&view, name), Verdict::Skipped, "{name}");
        }
    }

    #[test]
    fn a_reason_of_a_newer_agent_is_unchanged() {
        let all = checks(&device(json!({"reasons": [{"reason": "OnFire", "detail": "hot"}]})));
        let last = all.last().unwrap();
        assert_eq!(
            (last.name.as_str(), last.verdict, last.text.as_str()),
            ("OnFire", Verdict::Problem, "hot")
        );
    }
}
