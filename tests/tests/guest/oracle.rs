//! Compares `quarry devices --local` in a guest with lsblk and `blkid -p` of the same guest: column
//! by column, device by device.
//!
//! Intended differences: the paths of a multipath map are not separate devices, and the map has the
//! properties of its paths; a suspended device is not read.

use quarry_tests::guest::{Guest, until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const COLUMNS: &str = "name,model,vendor,kname,pkname,fstype,type,uuid,tran,ro,rm,parttype,serial,size,rota,mountpoint,state,partlabel,label,maj:min";

/// Output of `quarry devices` on this machine.
#[derive(Debug)]
pub struct Seen(pub Vec<Value>);

impl Seen {
    /// One scan, without comparison. The binary is at the path of `Guest::bring_quarry`.
    #[track_caller]
    pub fn scan(guest: &mut Guest) -> Self {
        let text = guest.run("/run/quarry-bin devices --local --all -o json");
        Seen(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    #[track_caller]
    pub fn named(&self, name: &str) -> &Value {
        self.0
            .iter()
            .find(|device| title(device) == name || device["name"] == name)
            .unwrap_or_else(|| panic!("no {name} in {:?}", self.names()))
    }

    #[track_caller]
    pub fn serial(&self, serial: &str) -> &Value {
        match self.serials(serial)[..] {
            [one] => one,
            ref other => panic!("{serial} is {} devices of {:?}", other.len(), self.names()),
        }
    }

    pub fn serials(&self, serial: &str) -> Vec<&Value> {
        self.0.iter().filter(|device| device["serial"] == serial).collect()
    }

    fn names(&self) -> Vec<&str> {
        self.0.iter().filter_map(|device| device["name"].as_str()).collect()
    }
}

/// Each reason with its detail: `Mounted: /mnt`.
pub fn reasons(device: &Value) -> Vec<String> {
    let entries = device["reasons"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    entries
        .iter()
        .map(|entries| {
            if entries["detail"].is_null() {
                text(&entries["reason"])
            } else {
                format!("{}: {}", text(&entries["reason"]), text(&entries["detail"]))
            }
        })
        .collect()
}

/// The evidence for its identity: `sysfs:wwid`.
pub fn sources(device: &Value) -> BTreeMap<&str, &str> {
    let all = device["evidence"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter()
        .filter_map(|evidence| Some((evidence["source"].as_str()?, evidence["value"].as_str()?)))
        .collect()
}

fn title(device: &Value) -> &str {
    device["mappedName"].as_str().or(device["name"].as_str()).unwrap_or_default()
}

/// Scans until all three agree: udev may still be processing a new disk.
#[track_caller]
pub fn agreed(guest: &mut Guest) -> Seen {
    until("quarry agrees with lsblk and blkid", || {
        // A queue that is not empty yet is not a failure: the comparison decides.
        guest.run("udevadm settle --timeout=10 || true");
        let seen = Seen::scan(guest);
        let wrong = compare(&seen, &rows(guest), &probed(guest, &seen));
        if wrong.is_empty() { Ok(seen) } else { Err(wrong.join("\n")) }
    })
}

/// lsblk's rows by kernel name, each with all its parents.
fn rows(guest: &mut Guest) -> BTreeMap<String, (Value, BTreeSet<String>)> {
    fn flatten(row: &Value, into: &mut BTreeMap<String, (Value, BTreeSet<String>)>) {
        let text = |column: &str| row[column].as_str().map(str::to_owned);
        let entry = into
            .entry(text("kname").expect("lsblk lists every device"))
            .or_insert_with(|| (row.clone(), BTreeSet::new()));
        entry.1.extend(text("pkname"));
        row["children"].as_array().into_iter().flatten().for_each(|child| flatten(child, into));
    }
    let mut rows = BTreeMap::new();
    guest.lsblk(COLUMNS).iter().for_each(|row| flatten(row, &mut rows));
    rows
}

/// `blkid -p`: TYPE and PTTYPE of every readable device.
fn probed(guest: &mut Guest, seen: &Seen) -> BTreeMap<String, [Option<String>; 2]> {
    let readable = seen
        .0
        .iter()
        .filter(|device| device["kernelState"] != "suspended")
        .filter_map(|device| device["name"].as_str());
    let names = readable.collect::<Vec<_>>().join(" ");
    let text = guest.run(&format!("for name in {names}; do echo DEVICE=$name; /usr/sbin/blkid -p -o export /dev/$name; done; true"));
    let mut found: BTreeMap<String, [Option<String>; 2]> = BTreeMap::new();
    let mut name = String::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        match key {
            "DEVICE" => value.clone_into(&mut name),
            "TYPE" => found.entry(name.clone()).or_default()[0] = Some(value.to_owned()),
            "PTTYPE" => found.entry(name.clone()).or_default()[1] = Some(value.to_owned()),
            _ => {}
        }
    }
    found
}

fn compare(
    seen: &Seen,
    rows: &BTreeMap<String, (Value, BTreeSet<String>)>,
    probed: &BTreeMap<String, [Option<String>; 2]>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let paths: BTreeSet<&str> = seen
        .0
        .iter()
        .filter_map(|device| device["paths"].as_array())
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let ours: BTreeSet<&str> = seen.names().into_iter().collect();
    for (name, (_, parents)) in rows.iter().filter(|(name, _)| !ours.contains(name.as_str())) {
        // Paths of a map, and partitions the kernel finds on them, belong to the map.
        if !paths.contains(name.as_str())
            && !parents.iter().any(|parent| paths.contains(parent.as_str()))
        {
            wrong.push(format!("{name}: listed by lsblk, but not by quarry"));
        }
    }
    for device in &seen.0 {
        let name = device["name"].as_str().unwrap_or_default();
        let Some((row, parents)) = rows.get(name) else {
            if device["size"] != 0 {
                wrong.push(format!("{name}: listed by quarry, but not by lsblk"));
            }
            continue;
        };
        let is_map = device["type"] == "mpath";
        let mut check = |column: &str, ours: String, theirs: String| {
            if ours != theirs {
                wrong.push(format!(
                    "{name}: {column} is {ours:?}, in lsblk or blkid it is {theirs:?}"
                ));
            }
        };
        for (field, column) in [
            ("name", "kname"),
            ("model", "model"),
            ("vendor", "vendor"),
            ("serial", "serial"),
            ("transport", "tran"),
            ("type", "type"),
            ("fsType", "fstype"),
            ("fsUUID", "uuid"),
            ("fsLabel", "label"),
            ("partType", "parttype"),
            ("partLabel", "partlabel"),
            ("kernelState", "state"),
            ("number", "maj:min"),
            ("readOnly", "ro"),
            ("removable", "rm"),
            ("rotational", "rota"),
            ("size", "size"),
        ] {
            let from_paths = is_map
                && ["model", "vendor", "serial", "tran", "rm", "rota"].contains(&column)
                && row[column].is_null();
            if !from_paths {
                check(column, plain(&device[field]), plain(&row[column]));
            }
        }
        check("name", title(device).to_owned(), plain(&row["name"]));
        let below = device["slaves"]
            .as_array()
            .into_iter()
            .flatten()
            .chain(Some(&device["parent"]))
            .filter_map(Value::as_str);
        check("pkname", format!("{:?}", below.collect::<BTreeSet<_>>()), format!("{parents:?}"));
        let mounts: Vec<&str> = device["mountPoints"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let theirs = plain(&row["mountpoint"]);
        let ours = match mounts.first() {
            _ if device["swap"] == true => "[SWAP]",
            _ if mounts.contains(&theirs.as_str()) => &theirs,
            first => first.copied().unwrap_or_default(),
        };
        check("mountpoint", ours.to_owned(), theirs.clone());
        if device["kernelState"] != "suspended" {
            let [kind, table] = probed.get(name).cloned().unwrap_or_default();
            check("blkid's TYPE", plain(&device["fsType"]), kind.unwrap_or_default());
            check("blkid's PTTYPE", plain(&device["tableType"]), table.unwrap_or_default());
        }
    }
    wrong
}

/// A value as text; null, false and blanks are equal.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Null | Value::Bool(false) => String::new(),
        other => other.to_string(),
    }
}
