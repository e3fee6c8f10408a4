//! `quarry devices --local` in a guest, beside lsblk and `blkid -p` of the same guest: column by column, device by device.
//!
//! What differs on purpose: the paths of a multipath map are no devices of their own, and the map says of itself what
//! its paths say; a suspended device is not read.

use quarry_tests::guest::{Guest, until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const COLUMNS: &str = "name,model,vendor,kname,pkname,fstype,type,uuid,tran,ro,rm,parttype,serial,size,rota,mountpoint,state,partlabel,label,maj:min";

/// What `quarry devices` said of this machine.
#[derive(Debug)]
pub struct Seen(pub Vec<Value>);

impl Seen {
    /// One look, without any oracle. The path of the binary is that of `Guest::bring_quarry`.
    #[track_caller]
    pub fn look(guest: &mut Guest) -> Self {
        let text = guest.run("/run/quarry devices --local --all -o json");
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
    let told = device["reasons"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    told.iter()
        .map(|told| {
            if told["detail"].is_null() {
                text(&told["reason"])
            } else {
                format!("{}: {}", text(&told["reason"]), text(&told["detail"]))
            }
        })
        .collect()
}

/// The sources of its identity that said so: `sysfs:wwid`.
pub fn sources(device: &Value) -> BTreeMap<&str, &str> {
    let all = device["evidence"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter()
        .filter_map(|evidence| Some((evidence["source"].as_str()?, evidence["value"].as_str()?)))
        .collect()
}

fn title(device: &Value) -> &str {
    device["mappedName"].as_str().or(device["name"].as_str()).unwrap_or_default()
}

/// Looks until all three agree: udev may still be at work on a disk that has just come.
#[track_caller]
pub fn agreed(guest: &mut Guest) -> Seen {
    until("quarry agrees with lsblk and blkid", || {
        // A queue that is still not empty is one more thing to wait for, not a failure: the comparison decides.
        guest.run("udevadm settle --timeout=10 || true");
        let seen = Seen::look(guest);
        let wrong = compare(&seen, &rows(guest), &probed(guest, &seen));
        if wrong.is_empty() { Ok(seen) } else { Err(wrong.join("\n")) }
    })
}

/// lsblk's rows by kernel name, each with all its parents.
fn rows(guest: &mut Guest) -> BTreeMap<String, (Value, BTreeSet<String>)> {
    fn flatten(row: &Value, into: &mut BTreeMap<String, (Value, BTreeSet<String>)>) {
        let text = |column: &str| row[column].as_str().map(str::to_owned);
        let entry = into
            .entry(text("kname").expect("lsblk names every device"))
            .or_insert_with(|| (row.clone(), BTreeSet::new()));
        entry.1.extend(text("pkname"));
        row["children"].as_array().into_iter().flatten().for_each(|child| flatten(child, into));
    }
    let mut rows = BTreeMap::new();
    guest.lsblk(COLUMNS).iter().for_each(|row| flatten(row, &mut rows));
    rows
}

/// `blkid -p`: TYPE and PTTYPE of every device that can be read.
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
        // The paths of a map, and what the kernel finds on them, are the map.
        if !paths.contains(name.as_str())
            && !parents.iter().any(|parent| paths.contains(parent.as_str()))
        {
            wrong.push(format!("{name}: lsblk has it, quarry has not"));
        }
    }
    for device in &seen.0 {
        let name = device["name"].as_str().unwrap_or_default();
        let Some((row, parents)) = rows.get(name) else {
            if device["size"] != 0 {
                wrong.push(format!("{name}: quarry has it, lsblk has not"));
            }
            continue;
        };
        let is_map = device["type"] == "mpath";
        let mut check = |column: &str, ours: String, theirs: String| {
            if ours != theirs {
                wrong.push(format!("{name}: {column} is {ours:?}, lsblk or blkid says {theirs:?}"));
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

/// A value as text; nothing, false and blanks are all the same.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Null | Value::Bool(false) => String::new(),
        other => other.to_string(),
    }
}
