//! Every reason of the table as a check of one device: passed, failed, or not made, and why not.
//!
//! Class and text of each come from the table (`quarry_api::reason`).

use crate::devices::DeviceView;
use quarry_api::reason::{Class, Meaning, Reason, Row, Source, TABLE};
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
            match (applies(view, reason), not_made(view, row)) {
                (false, _) => {}
                (true, Some(why)) => all.push(check(Verdict::Skipped, why)),
                (true, None) => all.push(check(Verdict::Ok, row.absent.to_owned())),
            }
        }
        all.extend(details.iter().map(|detail| check(failed(row), reason.message(detail))));
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

fn failed(row: &Row) -> Verdict {
    match row.class {
        // Nothing is wrong with it: time alone makes it pass.
        Class::Probe if !row.reason.means(Meaning::Unread) => Verdict::Waiting,
        // Nothing is known to be wrong with it: this process cannot read it, and no other attempt of it will.
        Class::Probe if !row.transient => Verdict::Skipped,
        Class::Identity
        | Class::Owner
        | Class::Use
        | Class::Content
        | Class::Nature
        | Class::Probe => Verdict::Problem,
    }
}

fn applies(view: &DeviceView, reason: Reason) -> bool {
    let is_partition = view.device.kind == "part";
    let of_others = (reason == Reason::BootLabel && !is_partition)
        || (reason == Reason::HasChildren && is_partition);
    // Only standalone Quarry has disks that it must not use; only nodes with thousands of PersistentVolumes list some.
    let is_rare = reason == Reason::ObservedOnly || reason == Reason::UnlistedPersistentVolumes;
    !of_others && !is_rare
}

/// Why a check was not made; `None` for one that was.
fn not_made(view: &DeviceView, row: &Row) -> Option<String> {
    let (reason, local) = (row.reason, view.local.is_some());
    // The last in the table: what kept this process from reading explains the rest.
    let found = view.device.reasons.iter().filter_map(|found| found.reason.known());
    let unread = found.filter(|reason| reason.means(Meaning::Unread)).max();
    let because = |reason: Reason| format!("not checked: it {}", reason.row().text);
    let not_permitted = view.has(Reason::NotPermitted).then(|| because(Reason::NotPermitted));
    if local && row.source == Source::Cluster {
        return Some("known only to the cluster; run `quarry explain NODE/DEVICE`".to_owned());
    }
    if local && reason == Reason::IdentityChanged {
        let why = "needs more than one scan: the agent compares with its previous scan";
        return Some(why.to_owned());
    }
    match row.class {
        Class::Identity => identity_not_made(view, reason, unread.map(because)),
        Class::Owner => (reason == Reason::Claimed && view.device.identity.is_none())
            .then(|| "cannot be claimed without an identity".to_owned()),
        // Found by opening the device, like its content.
        Class::Use if reason == Reason::HeldExclusively => match view.has(Reason::ObservedOnly) {
            true => Some(because(Reason::ObservedOnly)),
            false => unread.map(because),
        },
        // Without udev the type of a partition is only in the partition table of its disk.
        Class::Use if reason == Reason::BootLabel && view.device.part_label.is_none() => {
            not_permitted
        }
        Class::Content => unread.map(because),
        Class::Probe if reason.means(Meaning::Unread) => not_permitted,
        Class::Probe => {
            local.then(|| "needs more than one scan: the agent waits for it".to_owned())
        }
        Class::Use | Class::Nature => None,
    }
}

/// `unread`: why the content was not read.
fn identity_not_made(view: &DeviceView, reason: Reason, unread: Option<String>) -> Option<String> {
    let has_none = reason == Reason::NoIdentity;
    if view.identity_is_hidden() && (has_none || reason == Reason::DuplicateIdentity) {
        return unread;
    }
    (view.device.identity.is_none() && !has_none).then(|| "has no identity to compare".to_owned())
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
