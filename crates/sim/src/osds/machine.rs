//! What is outside the API: devices by their PV, the processes on them, and Ceph.

use super::{
    ceph::SimCeph,
    prepare::{Ended, Prepare, may_be_formatted},
};
use quarry_ceph::{Content, Key, Label, Uuid};
use std::collections::{BTreeMap, BTreeSet};

pub const FSID: &str = "b84b331e-f09c-4be5-ac02-c900d1967422";
pub const OTHER_FSID: &str = "0f0e0d0c-0b0a-4908-8706-050403020100";
const BOOTSTRAP_KEY: &str = "AQAAAAAAAAAAABAAAAECAwQFBgcICQoLDA0ODw==";

#[derive(Clone, Debug)]
pub struct SimDevice {
    pub size: u64,
    pub content: Content,
    /// Who formatted it, in their order.
    pub formatted: Vec<Uuid>,
}

pub struct Machine {
    pub ceph: SimCeph,
    /// By PV.
    pub devices: BTreeMap<String, SimDevice>,
    /// PVs whose prepare run never ends.
    pub hang: BTreeSet<String>,
    /// By pod.
    pub prepares: BTreeMap<String, Prepare>,
    pub ended: BTreeMap<String, Ended>,
    /// Running OSDs: the UID of the Deployment, and its PVs.
    pub running: BTreeMap<String, Vec<String>>,
    pub wrong: Vec<String>,
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            ceph: SimCeph::new(FSID.parse().expect("a UUID")),
            devices: BTreeMap::new(),
            hang: BTreeSet::new(),
            prepares: BTreeMap::new(),
            ended: BTreeMap::new(),
            running: BTreeMap::new(),
            wrong: Vec::new(),
        }
    }
}

impl Machine {
    pub fn bootstrap_key() -> Key {
        Key::parse(BOOTSTRAP_KEY).expect("a key")
    }

    /// A blank device, unless there is one.
    pub fn add_device(&mut self, volume: &str) {
        let blank = SimDevice { size: 1 << 30, content: Content::Blank, formatted: Vec::new() };
        self.devices.entry(volume.to_owned()).or_insert(blank);
    }

    /// An OSD has it open.
    pub fn is_used(&self, volume: &str) -> bool {
        self.running.values().flatten().any(|used| used == volume)
    }

    /// That, or a prepare run does. The one that asks is not among them.
    pub fn is_busy(&self, volume: &str) -> bool {
        let mut others = self.prepares.values().flat_map(|one| &one.devices);
        self.is_used(volume) || others.any(|(_, _, used)| used == volume)
    }

    /// mkfs of an OSD writes the label of a device.
    pub fn format(&mut self, volume: &str, label: Label) {
        let used = self.is_used(volume);
        let Some(device) = self.devices.get_mut(volume) else { return };
        let uuid = label.osd_uuid.clone();
        if used {
            self.wrong.push(format!("{volume} was formatted under a running OSD"));
        }
        if !may_be_formatted(&device.content, &uuid) {
            self.wrong.push(format!("{volume} was formatted over {:?}", device.content));
        }
        if device.formatted.iter().any(|other| *other != uuid) {
            self.wrong.push(format!("{volume} was prepared for two OSDs"));
        }
        device.formatted.push(uuid);
        device.content = Content::Label(label);
    }

    /// An OSD starts on the devices of a Deployment.
    pub fn start_osd(&mut self, deployment: &str, id: u32, volumes: &[String]) {
        let found = self.devices.get(&volumes[0]).map(|device| &device.content);
        let uuid = match found {
            Some(Content::Label(label)) if label.ready && label.whoami == Some(id) => {
                label.osd_uuid.clone()
            }
            other => {
                self.wrong.push(format!("osd.{id} was started on {other:?}"));
                return;
            }
        };
        for volume in volumes {
            if self.is_used(volume) {
                self.wrong.push(format!("two OSDs run on {volume}"));
            }
        }
        match self.ceph.osds.get_mut(&id) {
            Some(known) if known.uuid == uuid => known.has_run = true,
            _ => self.wrong.push(format!("Ceph does not know osd.{id} as {uuid}")),
        }
        self.running.insert(deployment.to_owned(), volumes.to_vec());
    }
}
