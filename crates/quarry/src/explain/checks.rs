//! Every reason of the table as a check of one device: passed, failed, or not made, and why not.
//!
//! Exhaustive over `Reason`: a new one does not compile until it has a group and a sentence for its absence.

use crate::devices::view::Shown;
use quarry_core::{
    device::{Reason, reason::TABLE},
    volume::explain::Verdict,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Identity,
    Owner,
    Use,
    Content,
    Nature,
    Look,
}

impl Group {
    pub const ALL: [Group; 6] =
        [Group::Identity, Group::Owner, Group::Use, Group::Content, Group::Nature, Group::Look];

    pub fn title(self) -> &'static str {
        match self {
            Group::Identity => "Is it certain which device it is?",
            Group::Owner => "Does it have an owner?",
            Group::Use => "Does anything use it?",
            Group::Content => "Is anything on it?",
            Group::Nature => "Is it fit for storage?",
            Group::Look => "Could it be looked at?",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub group: Group,
    /// A reason's constant.
    pub name: String,
    pub verdict: Verdict,
    pub text: String,
}

/// In the order of the table, those that fail several times with each of their details.
pub fn checks(shown: &Shown) -> Vec<Check> {
    let mut all = Vec::new();
    for row in TABLE {
        let reason = row.reason;
        let (group, fine) = passed(reason);
        let told: Vec<&str> = shown.details(reason).collect();
        let check = |verdict, text: String| Check {
            group,
            name: reason.as_str().to_owned(),
            verdict,
            text,
        };
        if told.is_empty() {
            match (applies(shown, reason), not_made(shown, reason)) {
                (false, _) => {}
                (true, Some(why)) => all.push(check(Verdict::Skipped, why)),
                (true, None) => all.push(check(Verdict::Ok, fine.to_owned())),
            }
        }
        all.extend(told.iter().map(|detail| check(failed(reason), reason.message(detail))));
    }
    // What a newer agent says and we have no word for.
    let unknown = shown.device.reasons.iter().filter(|told| Reason::parse(&told.reason).is_none());
    all.extend(unknown.map(|told| Check {
        group: Group::Look,
        name: told.reason.clone(),
        verdict: Verdict::Problem,
        text: told.detail.clone(),
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

/// Where a check belongs, and what is true when it is passed.
fn passed(reason: Reason) -> (Group, &'static str) {
    match reason {
        Reason::IdentityElsewhere => {
            (Group::Identity, "no other node has a device of this identity")
        }
        Reason::DuplicateIdentity => {
            (Group::Identity, "no other device of this node has its identity")
        }
        Reason::IdentityChanged => (Group::Identity, "shows the same identity as before"),
        Reason::AmbiguousIdentity => (Group::Identity, "nothing contradicts its identity"),
        Reason::NoIdentity => (Group::Identity, "can be recognised after a reboot"),
        Reason::Claimed => (Group::Owner, "nobody has claimed it"),
        Reason::BacksVolume => (Group::Owner, "is not the storage of a Volume"),
        Reason::BacksPersistentVolume => (Group::Owner, "is behind no PersistentVolume"),
        Reason::RetainedData => (Group::Owner, "keeps nothing of a volume that is gone"),
        Reason::UnlistedPersistentVolumes => {
            (Group::Owner, "all PersistentVolumes of its node are known")
        }
        Reason::Mounted => (Group::Use, "is not mounted"),
        Reason::Swap => (Group::Use, "is not used as swap"),
        Reason::HasHolders => (Group::Use, "is part of no other device"),
        Reason::HasChildren => (Group::Use, "has no partitions"),
        Reason::LoopOnTop => (Group::Use, "has no loop device on top of it"),
        Reason::HeldExclusively => (Group::Use, "nobody holds it exclusively"),
        Reason::BootLabel => (Group::Use, "is not a boot partition"),
        Reason::Signature => (Group::Content, "holds no file system or other known data"),
        Reason::PartitionTable => (Group::Content, "has no partition table"),
        Reason::UnknownData => (Group::Content, "holds no bytes that nothing explains"),
        Reason::ReadOnly => (Group::Nature, "can be written"),
        Reason::Removable => (Group::Nature, "is not removable"),
        Reason::Suspended => (Group::Nature, "is not suspended"),
        Reason::NotLocal => (Group::Nature, "is a local device"),
        Reason::ObservedOnly => (Group::Nature, "may be used by this Quarry"),
        Reason::NoMedium => (Group::Nature, "has a medium"),
        Reason::ZeroSize => (Group::Nature, "has a size"),
        Reason::TooNew => (Group::Look, "has been there, unchanged, for the settling time"),
        Reason::TimedOut => (Group::Look, "answers in time"),
        Reason::Unreadable => (Group::Look, "can be read"),
        Reason::NotPermitted => (Group::Look, "may be opened"),
    }
}

fn applies(shown: &Shown, reason: Reason) -> bool {
    match reason {
        Reason::BootLabel => shown.device.kind == "part",
        Reason::HasChildren => shown.device.kind != "part",
        // Only a standalone Quarry has disks that it does not use.
        Reason::ObservedOnly => false,
        // Of thousands of PersistentVolumes; nobody misses it elsewhere.
        Reason::UnlistedPersistentVolumes => false,
        _ => true,
    }
}

/// Why nobody knows the answer; `None` for a check that was made.
fn not_made(shown: &Shown, reason: Reason) -> Option<String> {
    let (local, nameless) = (shown.local.is_some(), shown.device.identity.is_none());
    let unread = [
        Reason::NotPermitted,
        Reason::TimedOut,
        Reason::Unreadable,
        Reason::NoMedium,
        Reason::ZeroSize,
        Reason::Suspended,
    ]
    .into_iter()
    .find(|reason| shown.has(*reason));
    let because = |reason: Reason| format!("not looked at, because it {}", reason.row().sentence);
    match reason {
        Reason::IdentityElsewhere
        | Reason::Claimed
        | Reason::BacksPersistentVolume
        | Reason::RetainedData
            if local =>
        {
            Some("only the cluster knows: quarry explain NODE/DEVICE".to_owned())
        }
        Reason::IdentityChanged if local => {
            Some("one look cannot tell: the agent compares with the look before".to_owned())
        }
        Reason::TooNew if local => Some("one look cannot tell: the agent waits for it".to_owned()),
        Reason::NoIdentity | Reason::DuplicateIdentity if shown.identity_is_hidden() => {
            unread.map(because)
        }
        Reason::DuplicateIdentity
        | Reason::IdentityElsewhere
        | Reason::IdentityChanged
        | Reason::AmbiguousIdentity
            if nameless =>
        {
            Some("without an identity there is nothing to compare".to_owned())
        }
        Reason::Claimed if nameless => Some("without an identity nobody can claim it".to_owned()),
        Reason::HeldExclusively if shown.has(Reason::ObservedOnly) => {
            Some(because(Reason::ObservedOnly))
        }
        Reason::TimedOut | Reason::Unreadable if shown.has(Reason::NotPermitted) => {
            Some(because(Reason::NotPermitted))
        }
        Reason::Signature
        | Reason::PartitionTable
        | Reason::UnknownData
        | Reason::HeldExclusively => unread.map(because),
        // Without udev the type of a partition is in the disk's table alone.
        Reason::BootLabel
            if shown.has(Reason::NotPermitted) && shown.device.part_label.is_none() =>
        {
            Some(because(Reason::NotPermitted))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{
        samples::{device, machine},
        view::Local,
    };
    use serde_json::json;

    #[test]
    fn nothing_of_the_table_is_forgotten() {
        let shown = device(json!({"type": "part"}));
        let names: Vec<String> = checks(&shown).into_iter().map(|check| check.name).collect();
        let mut expected: Vec<&str> = TABLE.iter().map(|row| row.reason.as_str()).collect();
        expected.retain(|name| {
            !["HasChildren", "ObservedOnly", "UnlistedPersistentVolumes"].contains(name)
        });
        assert_eq!(names, expected);
        for group in Group::ALL {
            assert!(checks(&shown).iter().any(|check| check.group == group), "{group:?}");
        }
    }

    #[test]
    fn what_nobody_looked_at_is_not_passed() {
        let verdict = |shown: &Shown, name: &str| {
            checks(shown).into_iter().find(|check| check.name == name).unwrap().verdict
        };
        let mut shown = machine().remove(5);
        for name in [
            "Signature",
            "PartitionTable",
            "UnknownData",
            "HeldExclusively",
            "NotPermitted",
            "DuplicateIdentity",
            "Claimed",
        ] {
            assert_eq!(verdict(&shown, name), Verdict::Skipped, "{name}");
        }
        assert_eq!(verdict(&shown, "Mounted"), Verdict::Ok);
        assert_eq!(verdict(&shown, "TooNew"), Verdict::Ok);
        shown.local = Some(Local::default());
        for name in ["TooNew", "IdentityElsewhere", "IdentityChanged", "BacksPersistentVolume"] {
            assert_eq!(verdict(&shown, name), Verdict::Skipped, "{name}");
        }
    }

    #[test]
    fn a_reason_of_a_newer_agent_is_shown_as_it_is() {
        let all = checks(&device(json!({"reasons": [{"reason": "OnFire", "detail": "hot"}]})));
        let last = all.last().unwrap();
        assert_eq!(
            (last.name.as_str(), last.verdict, last.text.as_str()),
            ("OnFire", Verdict::Problem, "hot")
        );
    }
}
