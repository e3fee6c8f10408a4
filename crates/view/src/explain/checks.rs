//! Every reason of the table as a check of one device: passed, failed, or not made, and why not.
//!
//! Exhaustive over `Reason`: a new one does not compile until it has a group and a text for its absence.

use crate::devices::DeviceView;
use quarry_core::{
    device::{Reason, reason::TABLE},
    volume::explain::Verdict,
};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Group {
    Identity,
    Owner,
    Use,
    Content,
    Nature,
    Access,
}

impl Group {
    pub const ALL: [Group; 6] =
        [Group::Identity, Group::Owner, Group::Use, Group::Content, Group::Nature, Group::Access];

    pub fn title(self) -> &'static str {
        match self {
            Group::Identity => "Is its identity certain?",
            Group::Owner => "Does it have an owner?",
            Group::Use => "Does anything use it?",
            Group::Content => "Does it contain data?",
            Group::Nature => "Is it suitable for storage?",
            Group::Access => "Could it be read?",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    #[serde(skip)]
    pub group: Group,
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
    let group = |group: Group| CheckGroup {
        title: group.title(),
        checks: all.iter().filter(|check| check.group == group).cloned().collect(),
    };
    Group::ALL.into_iter().map(group).collect()
}

/// In the order of the table; a check that fails several times once for each detail.
fn checks(view: &DeviceView) -> Vec<Check> {
    let mut all = Vec::new();
    for row in TABLE {
        let reason = row.reason;
        let (group, fine) = passed(reason);
        let details: Vec<&str> = view.details(reason).collect();
        let check = |verdict, text: String| Check {
            group,
            name: reason.as_str().to_owned(),
            verdict,
            text,
        };
        if details.is_empty() {
            match (applies(view, reason), not_made(view, reason)) {
                (false, _) => {}
                (true, Some(why)) => all.push(check(Verdict::Skipped, why)),
                (true, None) => all.push(check(Verdict::Ok, fine.to_owned())),
            }
        }
        all.extend(details.iter().map(|detail| check(failed(reason), reason.message(detail))));
    }
    // Reasons of a newer agent.
    let unknown = view.device.reasons.iter().filter(|given| Reason::parse(&given.reason).is_none());
    all.extend(unknown.map(|given| Check {
        group: Group::Access,
        name: given.reason.clone(),
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

/// The group of a check, and its text when it passes.
fn passed(reason: Reason) -> (Group, &'static str) {
    match reason {
        Reason::IdentityElsewhere => {
            (Group::Identity, "no other node has a device with this identity")
        }
        Reason::DuplicateIdentity => {
            (Group::Identity, "no other device on this node has this identity")
        }
        Reason::IdentityChanged => (Group::Identity, "has the same identity as before"),
        Reason::AmbiguousIdentity => (Group::Identity, "nothing contradicts its identity"),
        Reason::NoIdentity => (Group::Identity, "can be identified after a reboot"),
        Reason::Claimed => (Group::Owner, "has no device claim"),
        Reason::BacksVolume => (Group::Owner, "does not back a Volume"),
        Reason::BacksPersistentVolume => (Group::Owner, "does not back a PersistentVolume"),
        Reason::RetainedData => (Group::Owner, "has no retained data"),
        Reason::UnlistedPersistentVolumes => {
            (Group::Owner, "all PersistentVolumes of its node are listed")
        }
        Reason::Mounted => (Group::Use, "is not mounted"),
        Reason::Swap => (Group::Use, "is not used as swap"),
        Reason::HasHolders => (Group::Use, "is not part of another device"),
        Reason::HasChildren => (Group::Use, "has no partitions"),
        Reason::LoopOnTop => (Group::Use, "has no loop device on top of it"),
        Reason::HeldExclusively => (Group::Use, "is not opened exclusively by another process"),
        Reason::BootLabel => (Group::Use, "is not a boot partition"),
        Reason::Signature => (Group::Content, "contains no file system or other known data"),
        Reason::PartitionTable => (Group::Content, "has no partition table"),
        Reason::UnknownData => (Group::Content, "contains no unrecognized data"),
        Reason::ReadOnly => (Group::Nature, "can be written"),
        Reason::Removable => (Group::Nature, "is not removable"),
        Reason::Suspended => (Group::Nature, "is not suspended"),
        Reason::NotLocal => (Group::Nature, "is a local device"),
        Reason::ObservedOnly => (Group::Nature, "may be used by this Quarry"),
        Reason::NoMedium => (Group::Nature, "has a medium"),
        Reason::ZeroSize => (Group::Nature, "has a size"),
        Reason::TooNew => (Group::Access, "has been unchanged for the settling time"),
        Reason::TimedOut => (Group::Access, "answers in time"),
        Reason::Unreadable => (Group::Access, "can be read"),
        Reason::NotPermitted => (Group::Access, "can be opened"),
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
    let unread = [
        Reason::NotPermitted,
        Reason::TimedOut,
        Reason::Unreadable,
        Reason::NoMedium,
        Reason::ZeroSize,
        Reason::Suspended,
    ]
    .into_iter()
    .find(|reason| view.has(*reason));
    let because = |reason: Reason| format!("not checked: it {}", reason.row().sentence);
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

    #[test]
    fn every_reason_has_a_check() {
        let view = device(json!({"type": "part"}));
        let names: Vec<String> = checks(&view).into_iter().map(|check| check.name).collect();
        let mut expected: Vec<&str> = TABLE.iter().map(|row| row.reason.as_str()).collect();
        expected.retain(|name| {
            !["HasChildren", "ObservedOnly", "UnlistedPersistentVolumes"].contains(name)
        });
        assert_eq!(names, expected);
        for group in Group::ALL {
            assert!(checks(&view).iter().any(|check| check.group == group), "{group:?}");
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
