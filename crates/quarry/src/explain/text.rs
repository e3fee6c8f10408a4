//! What is said about a device. Pure: everything was gathered before.

use super::{
    checks::{checks, title as class_title},
    device::Seen,
    event_lines,
    evidence::said,
    mark,
};
use crate::{
    devices::view::{Shown, size},
    sanitize,
};
use jiff::Timestamp;
use quarry_api::{
    node_inventory::DeviceState,
    reason::{Class, Meaning, Reason, ReasonCode},
};

/// As wide as the longest constant.
const NAME: usize = 21;

pub fn render(seen: &Seen, now: Timestamp, colours: bool) -> String {
    let shown = &seen.shown;
    let mut text = String::new();
    let mut say = |line: &str| {
        text.push_str(line.trim_end());
        text.push('\n');
    };
    say(&sanitize::line(&title(seen)));
    for (what, value) in names(shown) {
        say(&format!("  {what:<9} {}", sanitize::line(&value)));
    }
    say("");
    identity(shown, colours).iter().for_each(|line| say(line));
    let all = checks(shown);
    for class in Class::ALL {
        say("");
        say(class_title(class));
        for check in all.iter().filter(|check| check.class == class) {
            say(&format!(
                "  {} {:<NAME$} {}",
                mark(check.verdict, colours),
                sanitize::line(&check.name),
                sanitize::line(&check.text)
            ));
        }
    }
    say("");
    for owner in &seen.owners {
        say(&format!("Owner: {}", sanitize::line(owner)));
    }
    for claim in &seen.claims {
        say(&format!("Claim: {}", sanitize::line(claim)));
    }
    verdict(shown).iter().for_each(|line| say(line));
    for note in &seen.notes {
        say(&format!("Note: {}", sanitize::line(note)));
    }
    if let Some(events) = &seen.events {
        say("");
        event_lines(events, now).iter().for_each(|line| say(line));
    }
    text
}

fn title(seen: &Seen) -> String {
    let device = &seen.shown.device;
    let mut traits = vec![device.kind.clone(), size(device.size)];
    traits.extend(device.vendor.iter().chain(&device.model).cloned());
    traits.extend(device.serial.iter().map(|serial| format!("serial {serial}")));
    traits.extend(device.transport.clone());
    format!(
        "device {} on {}: {} ({})",
        device.name,
        seen.place,
        device.state.as_str(),
        traits.join(", ")
    )
}

/// Under which other names people know it.
fn names(shown: &Shown) -> Vec<(&'static str, String)> {
    let device = &shown.device;
    let mut names = Vec::new();
    names
        .extend(device.mapped_name.iter().map(|name| ("mapped as", format!("/dev/mapper/{name}"))));
    names.extend(device.parent.iter().map(|disk| {
        (
            "partition",
            format!(
                "of {disk}{}",
                device
                    .part_label
                    .as_ref()
                    .map_or_else(String::new, |label| format!(", called {label}"))
            ),
        )
    }));
    if !device.paths.is_empty() {
        names.push(("paths", device.paths.join(", ")));
    }
    names.extend(device.backing_file.iter().map(|file| ("file", file.clone())));
    names.extend(device.device_id.iter().map(|link| ("device ID", link.clone())));
    names.extend(device.link.iter().map(|link| ("link", link.clone())));
    names.extend(device.fs_type.iter().map(|fs| {
        (
            "holds",
            format!(
                "{fs}{}",
                device.fs_uuid.as_ref().map_or_else(String::new, |uuid| format!(", UUID {uuid}"))
            ),
        )
    }));
    names
}

fn identity(shown: &Shown, colours: bool) -> Vec<String> {
    let device = &shown.device;
    let mut lines = vec![match &device.identity {
        Some(identity) => sanitize::line(&format!("Identity: {identity}")).into_owned(),
        None if shown.identity_is_hidden() => "Identity: not known".to_owned(),
        None => "Identity: none".to_owned(),
    }];
    for one in said(device) {
        let value = format!("{:<NAME$} {} ({})", one.source, one.value, one.meaning);
        lines.push(format!("  {} {}", mark(one.verdict, colours), sanitize::line(&value)));
    }
    match (&device.identity, device.evidence.is_empty()) {
        (_, false) => {}
        (None, true) if shown.identity_is_hidden() => lines.push("  what can be seen without opening it says nothing about it".to_owned()),
        (None, true) => lines.push("  nothing was said about it: neither the kernel nor udev has a WWN, serial or UUID of it".to_owned()),
        (Some(_), true) => lines.push("  who said so is not in the inventory: quarry explain on the node itself shows it".to_owned()),
    }
    lines
}

/// The verdict, and what to do about each reason: a remedy once.
fn verdict(shown: &Shown) -> Vec<String> {
    let device = &shown.device;
    let mut lines = vec![match (device.state, shown.local.is_some()) {
        (DeviceState::Available, false) => {
            "Verdict: Available. Nothing speaks against using it.".to_owned()
        }
        (DeviceState::Available, true) => {
            "Verdict: Available, as far as one look on this machine can tell.".to_owned()
        }
        (state @ (DeviceState::NotAvailable | DeviceState::Unknown), _) => {
            format!("Verdict: {}", state.as_str())
        }
    }];
    let mut reasons: Vec<&ReasonCode> = device.reasons.iter().map(|found| &found.reason).collect();
    reasons.dedup();
    // How to erase what is on it is no advice for a device that is in use.
    if reasons.iter().filter_map(|code| code.known()).any(is_used) {
        reasons.retain(|code| code.class() != Some(Class::Content));
    }
    if !reasons.is_empty() {
        lines.push("Do:".to_owned());
    }
    for code in reasons {
        let name = sanitize::line(code.as_str());
        lines.push(format!("  {name:<w$} {}", code.remedy(), w = NAME + 2));
    }
    lines
}

/// Erasing the device would lose data of another user.
pub fn is_used(reason: Reason) -> bool {
    reason.class() == Class::Use
        || reason.means(Meaning::Owned)
        || reason.means(Meaning::Quarantine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{
        samples::{hostile, machine},
        view::Local,
    };
    use k8s_openapi::api::core::v1::Event;
    use serde_json::json;

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    fn seen(shown: Shown) -> Seen {
        Seen {
            shown,
            place: "node n1".into(),
            owners: Vec::new(),
            claims: Vec::new(),
            events: Some(Vec::new()),
            notes: Vec::new(),
        }
    }

    fn event(reason: &str, message: &str) -> Event {
        serde_json::from_value(
            json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:01Z"}, "involvedObject": {}, "type": "Normal", "reason": reason, "message": message}),
        )
        .unwrap()
    }

    #[test]
    fn a_volumes_device_is_told_with_its_owner() {
        let mut seen = seen(machine().remove(6));
        seen.owners =
            vec!["Volume first, published as PersistentVolume first, used by claim shop/db".into()];
        seen.events = Some(vec![event(
            "DeviceAppeared",
            "loop0 (loop, 1 GiB) appeared: NotAvailable, because it is the storage of a Volume",
        )]);
        insta::assert_snapshot!(render(&seen, now(), false));
    }

    #[test]
    fn without_root_this_machines_disk_is_told_as_far_as_it_can_be() {
        let mut shown = machine().remove(5);
        shown.local = Some(Local::default());
        let seen = Seen { place: "this machine".into(), events: None, ..seen(shown) };
        insta::assert_snapshot!(render(&seen, now(), false));
    }

    #[test]
    fn the_evidence_of_a_disk_is_weighed() {
        let mut seen = seen(machine().remove(0));
        seen.notes = vec!["the agent on node n1 is absent".into()];
        insta::assert_snapshot!(render(&seen, now(), false));
    }

    #[test]
    fn nobody_is_told_to_erase_what_is_used() {
        for used in [0, 1, 2, 3, 6] {
            let text = render(&seen(machine().remove(used)), now(), false);
            assert!(!text.contains("wipefs"), "{text}");
        }
        let free = crate::devices::samples::device(
            json!({"reasons": [{"reason": "Signature", "detail": "xfs"}]}),
        );
        assert!(render(&seen(free), now(), false).contains("wipefs"));
    }

    #[test]
    fn an_available_disk_has_nothing_to_do() {
        let text = render(&seen(machine().remove(4)), now(), false);
        assert!(
            text.contains("Verdict: Available. Nothing speaks against using it.")
                && !text.contains("Do:"),
            "{text}"
        );
    }

    #[test]
    fn a_hostile_disk_is_shown_and_not_obeyed() {
        let mut seen = seen(hostile());
        seen.owners = vec!["Volume \u{1b}[2J".into()];
        seen.notes = vec!["\u{1b}c\nx".into()];
        seen.events = Some(vec![event("X\u{1b}[2J", "a\nb")]);
        let text = render(&seen, now(), false);
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}', '\t', '\r']), "{text:?}");
        insta::assert_snapshot!(text);
    }
}
