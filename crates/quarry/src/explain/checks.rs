//! Every reason of the table as a check of one device: passed, failed, or not made, and why not.
//!
//! Class and text of each come from the table (`quarry_api::reason`).

use crate::devices::view::Shown;
use quarry_api::reason::{Class, Meaning, Reason, TABLE};
use quarry_core::volume::explain::Verdict;

pub fn title(class: Class) -> &'static str {
    match class {
        Class::Identity => "Is it certain which device it is?",
        Class::Owner => "Does it have an owner?",
        Class::Use => "Does anything use it?",
        Class::Content => "Is anything on it?",
        Class::Nature => "Is it fit for storage?",
        Class::Probe => "Could it be looked at?",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub class: Class,
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
        let told: Vec<&str> = shown.details(reason).collect();
        let check = |verdict, text: String| Check {
            class: row.class,
            name: reason.as_str().to_owned(),
            verdict,
            text,
        };
        if told.is_empty() {
            match (applies(shown, reason), not_made(shown, reason)) {
                (false, _) => {}
                (true, Some(why)) => all.push(check(Verdict::Skipped, why)),
                (true, None) => all.push(check(Verdict::Ok, row.absent.to_owned())),
            }
        }
        all.extend(told.iter().map(|detail| check(failed(reason), reason.message(detail))));
    }
    // What a newer agent says and we have no word for.
    let unknown = shown.device.reasons.iter().filter(|told| told.reason.known().is_none());
    all.extend(unknown.map(|told| Check {
        class: Class::Probe,
        name: told.reason.to_string(),
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
    // The last in the table: what kept this process from reading explains the rest.
    let found = shown.device.reasons.iter().filter_map(|found| found.reason.known());
    let unread = found.filter(|reason| reason.means(Meaning::Unread)).max();
    let because = |reason: Reason| format!("not looked at, because it {}", reason.row().text);
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
        for class in Class::ALL {
            assert!(checks(&shown).iter().any(|check| check.class == class), "{class:?}");
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
