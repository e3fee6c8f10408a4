//! Which device this is, wherever it is connected: the strongest identity in its evidence.
//!
//! WWN, EUI and NGUID before serial with model, before md, LVM and partition UUIDs, before the file of a loop
//! device. Kernel names are never an identity. An identity must not depend on whether udev runs: sysfs comes
//! first within a rank, and evidence that only grew is not a change (`IdentityResult::candidates`).

use super::facts::Facts;

/// The forms of an identity: the text before the first colon.
pub const NGUID: &str = "nguid";
pub const EUI: &str = "eui";
pub const NVME_UUID: &str = "nvme-uuid";
pub const WWN: &str = "wwn";
pub const SERIAL: &str = "serial";
pub const MD: &str = "md";
pub const LVM: &str = "lvm";
pub const DM: &str = "dm";
pub const PARTITION: &str = "part";
pub const FILE: &str = "file";

/// Strongest first. A partition keeps its own when it is mapped (multipath) and when it is not any more.
pub const FORMS: [&str; 10] = [NGUID, EUI, NVME_UUID, WWN, SERIAL, MD, LVM, PARTITION, DM, FILE];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityResult {
    /// `wwn:5000c500a1b2c3d4`
    pub identity: Option<String>,
    /// Everything that would identify it, strongest first.
    pub candidates: Vec<String>,
    /// Two sources that cannot both be right.
    pub contradiction: Option<String>,
}

/// The identity of one device on its own; that of a multipath map comes from its paths (`group.rs`).
pub fn identify(facts: &Facts) -> IdentityResult {
    let claims: Vec<(&str, String)> = facts
        .evidence
        .iter()
        .filter_map(|evidence| candidate(facts, &evidence.source, &evidence.value))
        .collect();
    let mut candidates: Vec<String> = Vec::new();
    // Sources are listed in no particular order: the rank of a form decides, then the order below.
    for form in FORMS {
        for source in SOURCES {
            let named = claims
                .iter()
                .filter(|(from, value)| from == source && value.split(':').next() == Some(form));
            for (_, value) in named {
                if !candidates.contains(value) {
                    candidates.push(value.clone());
                }
            }
        }
    }
    IdentityResult {
        identity: candidates.first().cloned(),
        contradiction: contradiction(&claims),
        candidates,
    }
}

/// By the strongest form that both have: a path that lacks the WWN is the same disk by its serial, two disks with
/// different WWNs are two, even if their serials are equal.
pub fn same_identity(one: &[String], other: &[String]) -> bool {
    let of_form = |candidates: &[String], form: &str| -> Vec<String> {
        let named = |candidate: &&String| candidate.split(':').next() == Some(form);
        candidates.iter().filter(named).cloned().collect()
    };
    for form in FORMS {
        let (mine, theirs) = (of_form(one, form), of_form(other, form));
        if !mine.is_empty() && !theirs.is_empty() {
            return mine.iter().any(|candidate| theirs.contains(candidate));
        }
    }
    false
}

/// Whether a device with these candidates is the one that was recorded under `identity`, with these identifiers. One that
/// shows the identity and contradicts a stronger name is another one: a vendor used a serial twice.
pub fn is_recorded_device(identity: &str, identifiers: &[String], candidates: &[String]) -> bool {
    candidates.iter().any(|candidate| candidate == identity)
        && (identifiers.is_empty() || same_identity(identifiers, candidates))
}

/// Every trusted source, the most trusted first: the kernel before udev's database, which may be stale.
const SOURCES: &[&str] = &[
    "sysfs:nguid",
    "sysfs:eui",
    "sysfs:nvme-uuid",
    "sysfs:wwid",
    "sysfs:vpd83",
    "udev:ID_WWN_WITH_EXTENSION",
    "udev:ID_WWN",
    "sysfs:vpd80",
    "sysfs:serial",
    "udev:ID_SERIAL_SHORT",
    "sysfs:md-uuid",
    "udev:MD_UUID",
    "sysfs:dm-uuid",
    "partition:uuid",
    "loop:file",
];

fn candidate<'a>(facts: &Facts, source: &'a str, value: &str) -> Option<(&'a str, String)> {
    let is_part = facts.kind == "part";
    // udev copies the disk's evidence to its partitions: they share it and must not share an identity.
    if is_part != (source == "partition:uuid") && !(is_part && source == "sysfs:dm-uuid") {
        return None;
    }
    let text = match source {
        "sysfs:nguid" => form(NGUID, hex(value)?),
        "sysfs:eui" => form(EUI, hex(value)?),
        "sysfs:nvme-uuid" => form(NVME_UUID, uuid(value)?),
        "sysfs:wwid" | "sysfs:vpd83" => world_wide(value)?,
        "udev:ID_WWN_WITH_EXTENSION" | "udev:ID_WWN" => world_wide(value)?,
        "sysfs:vpd80" | "sysfs:serial" | "udev:ID_SERIAL_SHORT" => serial(facts, value)?,
        "sysfs:md-uuid" | "udev:MD_UUID" => form(MD, hex(value)?),
        "sysfs:dm-uuid" => mapped(value)?,
        "partition:uuid" => partition(value)?,
        "loop:file" => form(FILE, value.to_owned()),
        _ => return None,
    };
    Some((source, text))
}

fn form(form: &str, value: String) -> String {
    format!("{form}:{value}")
}

/// Only hexadecimal digits, lower case; `None` for all zeros or all ones, as broken firmware reports.
fn hex(text: &str) -> Option<String> {
    let text = text.trim().strip_prefix("0x").unwrap_or(text.trim());
    let digits: String = text
        .chars()
        .filter(|c| !matches!(c, '-' | ':' | ' '))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let plain = digits.len() >= 8 && digits.chars().all(|c| c.is_ascii_hexdigit());
    (plain && !digits.chars().all(|c| c == '0') && !digits.chars().all(|c| c == 'f'))
        .then_some(digits)
}

fn uuid(text: &str) -> Option<String> {
    hex(text).filter(|digits| digits.len() == 32)
}

/// `naa.5000…`, `eui.0025…`, `0x5000…`, `uuid.…`; vendor-specific forms (`t10.`, `nvme.`) are serials.
fn world_wide(text: &str) -> Option<String> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix("naa.").or_else(|| text.strip_prefix("0x")) {
        return Some(form(WWN, hex(rest)?));
    }
    if let Some(rest) = text.strip_prefix("eui.") {
        let digits = hex(rest)?;
        return Some(form(if digits.len() > 16 { NGUID } else { EUI }, digits));
    }
    text.strip_prefix("uuid.").and_then(uuid).map(|digits| form(NVME_UUID, digits))
}

/// Serials that vendors and emulators put into thousands of disks.
const EMPTY_SERIALS: &[&str] = &[
    "none",
    "na",
    "n/a",
    "unknown",
    "default",
    "serial",
    "123456789",
    "0123456789",
    "1234567890",
    "0123456789abcdef",
];

/// With the model, as the kernel spells it: a serial is unique to its vendor at best.
fn serial(facts: &Facts, value: &str) -> Option<String> {
    let value = value.trim();
    if names_slot(facts, value) {
        return None;
    }
    let empty = value.len() < 2
        || value.chars().all(|c| matches!(c, '0' | ' ' | '-' | '_' | '.'))
        || EMPTY_SERIALS.iter().any(|known| value.eq_ignore_ascii_case(known));
    if empty {
        return None;
    }
    let model = facts
        .evidence
        .iter()
        .find(|evidence| evidence.source == "sysfs:model")
        .map_or("", |evidence| evidence.value.as_str());
    Some(format!(
        "{SERIAL}:{}:{value}{}",
        model.split_whitespace().collect::<Vec<_>>().join(" "),
        namespace(facts)
    ))
}

/// A serial of the place, not of the disk in it: QEMU numbers the ports of its SATA and IDE controllers, a USB bridge
/// reports its own.
fn names_slot(facts: &Facts, serial: &str) -> bool {
    let numbered = serial
        .strip_prefix("QM")
        .is_some_and(|number| number.len() == 5 && number.bytes().all(|b| b.is_ascii_digit()));
    numbered || facts.transport.as_deref() == Some("usb")
}

/// The serial that does not identify the device, because it names its slot.
pub fn slot_serial(facts: &Facts) -> Option<&str> {
    facts.serial.as_deref().filter(|serial| names_slot(facts, serial.trim()))
}

/// Namespaces of one NVMe controller share its serial; the kernel's name of a namespace without an identity of its own
/// ends in its number: `nvme.<vendor>-<serial>-<model>-00000002`.
fn namespace(facts: &Facts) -> String {
    let mut names = facts
        .evidence
        .iter()
        .filter(|evidence| evidence.source == "sysfs:wwid")
        .filter_map(|evidence| evidence.value.strip_prefix("nvme."));
    let number =
        names.next().and_then(|name| u32::from_str_radix(name.rsplit('-').next()?, 16).ok());
    number.filter(|number| *number > 1).map_or_else(String::new, |number| format!(":n{number}"))
}

fn mapped(text: &str) -> Option<String> {
    let text = text.trim();
    match text.split_once('-') {
        Some(("LVM", rest)) if !rest.is_empty() => Some(form(LVM, rest.to_owned())),
        // The identity of a map comes from its paths.
        Some(("mpath", _)) | None => None,
        Some((_, "")) => None,
        Some(_) => Some(form(DM, text.to_owned())),
    }
}

/// GPT: a UUID. MBR: the disk's signature and the number, useless while the signature is zero.
fn partition(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let first = text.split('-').next().unwrap_or_default();
    (text.len() >= 10
        && !first.chars().all(|c| c == '0')
        && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-'))
    .then(|| form(PARTITION, text))
}

/// The kernel and udev's database name different world-wide names.
///
/// A disk may have several (its own, that of its port): only a name of udev's that the kernel does not list at all counts.
/// One that is the beginning of the other is the same, without its extension.
fn contradiction(claims: &[(&str, String)]) -> Option<String> {
    let kernel: Vec<&str> = claims
        .iter()
        .filter(|(source, value)| source.starts_with("sysfs:") && is_world_wide(value))
        .map(|(_, value)| value.as_str())
        .collect();
    let mut udev = claims
        .iter()
        .filter(|(source, value)| source.starts_with("udev:ID_WWN") && is_world_wide(value));
    let wrong = udev.find(|(_, value)| {
        let digits = value.split(':').nth(1).unwrap_or_default();
        !kernel.is_empty()
            && !kernel.iter().any(|known| {
                known
                    .split(':')
                    .nth(1)
                    .is_some_and(|known| known.starts_with(digits) || digits.starts_with(known))
            })
    })?;
    Some(format!("the kernel reports {}, {} reports {}", kernel.join(" and "), wrong.0, wrong.1))
}

/// Unique in the world by its standard, for every vendor.
pub fn is_world_wide(value: &str) -> bool {
    matches!(value.split(':').next(), Some(NGUID | EUI | NVME_UUID | WWN))
}
