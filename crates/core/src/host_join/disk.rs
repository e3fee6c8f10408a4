//! One disk as each side sees it, and whether two of them are the same.
//!
//! By world-wide name; else by serial and model, where not both have a world-wide name. Which values identify a disk at
//! all is decided by `device::identity`: a serial of zeros or of a slot never does.

use crate::device::{
    Facts,
    identity::{SERIAL, identify, is_world_wide},
};
use quarry_api::{
    bare_metal_host::{HardwareDetails, hardware::Storage},
    node_inventory::{Device, Evidence},
};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// A disk that inspection of the host found. Several paths to it are one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostDisk {
    /// As inspection named it, once per path.
    pub names: Vec<String>,
    pub size: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub vendor: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial: String,
    /// With the extension, where inspection found one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wwn: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MatchedBy {
    Wwn,
    SerialAndModel,
}

impl MatchedBy {
    pub fn as_str(self) -> &'static str {
        match self {
            MatchedBy::Wwn => "WWN",
            MatchedBy::SerialAndModel => "serial and model",
        }
    }
}

/// What identifies a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskKeys {
    /// Hexadecimal digits; one that is the beginning of another is left out.
    wwns: BTreeSet<String>,
    /// Serial and model, without what sources spell differently.
    serials: BTreeSet<(String, String)>,
}

/// A world-wide name without its extension has this many digits.
const SHORT: usize = 16;
/// The kernel cuts the model of some disks; a shorter beginning says nothing.
const SHORTEST_MODEL: usize = 4;

impl DiskKeys {
    fn new(facts: &Facts, identity: Option<&str>, model: &str) -> Self {
        let mut candidates = identify(facts).candidates;
        candidates.extend(identity.map(str::to_owned));
        let mut keys = DiskKeys::default();
        for candidate in &candidates {
            let Some((_, value)) = candidate.split_once(':') else { continue };
            if is_world_wide(candidate) {
                keys.wwns.insert(value.to_owned());
            } else if candidate.starts_with(SERIAL) {
                keys.serials.insert((plain(value), plain(model)));
            }
        }
        let all = keys.wwns.clone();
        let is_beginning = |one: &String| all.iter().any(|other| begins(other, one));
        keys.wwns.retain(|one| !is_beginning(one));
        keys
    }

    pub fn of_host(storage: &Storage) -> Self {
        let mut facts = Facts { kind: "disk".to_owned(), ..Facts::default() };
        let mut add = |source: &str, value: &str| {
            facts.evidence.push(Evidence { source: source.to_owned(), value: value.to_owned() });
        };
        add("udev:ID_WWN_WITH_EXTENSION", &spelled(&storage.wwn_with_extension));
        add("udev:ID_WWN", &spelled(&storage.wwn));
        add("udev:ID_SERIAL_SHORT", &storage.serial_number);
        DiskKeys::new(&facts, None, &storage.model)
    }

    pub fn of_node(device: &Device) -> Self {
        let mut evidence = device.evidence.clone();
        // The model is added to the key below, as the host's is.
        evidence.retain(|one| one.source != "sysfs:model");
        evidence.extend(
            device
                .serial
                .iter()
                .map(|value| Evidence { source: "sysfs:serial".to_owned(), value: value.clone() }),
        );
        let facts = Facts {
            kind: device.kind.clone(),
            transport: device.transport.clone(),
            evidence,
            ..Facts::default()
        };
        let identity = device.identity.as_deref().filter(|one| is_world_wide(one));
        DiskKeys::new(&facts, identity, device.model.as_deref().unwrap_or_default())
    }

    pub fn is_empty(&self) -> bool {
        self.wwns.is_empty() && self.serials.is_empty()
    }

    /// By which equal disks of other machines are found.
    pub fn lookups(&self) -> impl Iterator<Item = String> {
        let wwns = self.wwns.iter().map(|wwn| format!("wwn {}", wwn.get(..SHORT).unwrap_or(wwn)));
        wwns.chain(self.serials.iter().map(|(serial, _)| format!("serial {serial}")))
    }

    /// By which a disk that several machines see is found: it says nothing about which of them this is.
    pub fn exact(&self) -> impl Iterator<Item = String> {
        let wwns = self.wwns.iter().map(|wwn| format!("wwn {wwn}"));
        let serials = self.serials.iter();
        wwns.chain(serials.map(|(serial, model)| format!("serial {serial} {model}")))
    }

    fn matches(&self, other: &DiskKeys, tier: Tier) -> bool {
        match tier {
            Tier::Wwn => !self.wwns.is_disjoint(&other.wwns),
            Tier::ShortWwn => self.wwns.iter().any(|one| {
                let mut theirs = other.wwns.iter();
                theirs.any(|two| begins(one, two) || begins(two, one))
            }),
            Tier::Serial => {
                let different = !self.wwns.is_empty() && !other.wwns.is_empty();
                !different
                    && self.serials.iter().any(|(serial, model)| {
                        other
                            .serials
                            .iter()
                            .any(|(theirs, other)| serial == theirs && same_model(model, other))
                    })
            }
        }
    }
}

/// The strongest first.
#[derive(Clone, Copy)]
enum Tier {
    Wwn,
    /// One side has it without its extension, which disks of one array share: counts only where it is unique.
    ShortWwn,
    Serial,
}

/// Pairs of disks of a host and of a node, by position. Where one disk matches several, none of them is paired.
pub fn pairs(host: &[DiskKeys], node: &[DiskKeys]) -> Vec<(usize, usize, MatchedBy)> {
    let mut found: Vec<(usize, usize, MatchedBy)> = Vec::new();
    let mut by_key: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, keys) in node.iter().enumerate() {
        for key in keys.lookups() {
            by_key.entry(key).or_default().push(at);
        }
    }
    for tier in [Tier::Wwn, Tier::ShortWwn, Tier::Serial] {
        let paired_hosts: BTreeSet<usize> = found.iter().map(|pair| pair.0).collect();
        let paired_nodes: BTreeSet<usize> = found.iter().map(|pair| pair.1).collect();
        let mut theirs: HashMap<usize, BTreeSet<usize>> = HashMap::new();
        let mut mine: HashMap<usize, BTreeSet<usize>> = HashMap::new();
        for (at, keys) in host.iter().enumerate().filter(|(at, _)| !paired_hosts.contains(at)) {
            let near: BTreeSet<usize> =
                keys.lookups().filter_map(|key| by_key.get(&key)).flatten().copied().collect();
            for other in near.into_iter().filter(|other| !paired_nodes.contains(other)) {
                if keys.matches(&node[other], tier) {
                    mine.entry(at).or_default().insert(other);
                    theirs.entry(other).or_default().insert(at);
                }
            }
        }
        let by = match tier {
            Tier::Wwn | Tier::ShortWwn => MatchedBy::Wwn,
            Tier::Serial => MatchedBy::SerialAndModel,
        };
        for (at, others) in mine {
            let Some(other) = others.first().filter(|_| others.len() == 1) else { continue };
            if theirs.get(other).is_some_and(|hosts| hosts.len() == 1) {
                found.push((at, *other, by));
            }
        }
    }
    found.sort_by_key(|pair| (pair.0, pair.1));
    found
}

/// The disks of a host with their keys. Entries with one world-wide name are paths to one disk; arrays of md are no disks.
pub fn host_disks(hardware: &HardwareDetails) -> Vec<(HostDisk, DiskKeys)> {
    let mut found: Vec<(HostDisk, DiskKeys)> = Vec::new();
    let mut by_wwn: HashMap<String, usize> = HashMap::new();
    let disks = hardware.storage.iter().filter(|disk| !disk.name.starts_with("/dev/md"));
    for storage in disks {
        let keys = DiskKeys::of_host(storage);
        let name = short_name(storage);
        if let Some(at) = keys.wwns.iter().find_map(|wwn| by_wwn.get(wwn)) {
            found[*at].0.names.push(name);
            continue;
        }
        by_wwn.extend(keys.wwns.iter().map(|wwn| (wwn.clone(), found.len())));
        let wwn = Some(&storage.wwn_with_extension).filter(|wwn| !wwn.is_empty());
        let disk = HostDisk {
            names: vec![name],
            size: storage.size_bytes,
            vendor: storage.vendor.clone(),
            model: storage.model.clone(),
            serial: storage.serial_number.clone(),
            wwn: wwn.unwrap_or(&storage.wwn).clone(),
        };
        found.push((disk, keys));
    }
    found
}

/// Whole disks of a node, by position in the inventory: no partition, no loop device, no path of a map.
pub fn node_disks(devices: &[Device]) -> Vec<(usize, DiskKeys)> {
    let whole = |device: &Device| matches!(device.kind.as_str(), "disk" | "mpath");
    let mut disks: Vec<(usize, DiskKeys)> = devices
        .iter()
        .enumerate()
        .filter(|(_, device)| whole(device) && device.size > 0)
        .map(|(at, device)| (at, DiskKeys::of_node(device)))
        .collect();
    // Memory as a disk has neither name nor serial, and inspection does not list it.
    disks.retain(|(at, _)| {
        let name = &devices[*at].name;
        !name.starts_with("zram") && !name.starts_with("ram")
    });
    disks
}

/// `/dev/sda` where it is known: a path of the bus is long, and the same for no other machine.
fn short_name(storage: &Storage) -> String {
    let is_short = |name: &&String| {
        name.strip_prefix("/dev/").is_some_and(|name| !name.is_empty() && !name.contains('/'))
    };
    let mut all = std::iter::once(&storage.name).chain(&storage.alternate_names);
    all.find(is_short).unwrap_or(&storage.name).clone()
}

/// `NAA.5000…`, `0X5000…` and `5000…` as udev spells them.
fn spelled(wwn: &str) -> String {
    let wwn = wwn.trim().to_ascii_lowercase();
    let bare = wwn.len() >= SHORT && wwn.chars().all(|c| c.is_ascii_hexdigit());
    if bare { format!("0x{wwn}") } else { wwn }
}

/// Without case, spaces and punctuation: udev writes `_` for what the disk pads with spaces.
fn plain(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

fn same_model(one: &str, other: &str) -> bool {
    let cut = |long: &str, short: &str| short.len() >= SHORTEST_MODEL && long.starts_with(short);
    one == other || cut(one, other) || cut(other, one)
}

/// `beginning` is `whole` without its extension.
fn begins(whole: &str, beginning: &str) -> bool {
    whole.len() > beginning.len() && beginning.len() >= SHORT && whole.starts_with(beginning)
}
