//! A simulated Ceph cluster: it remembers which OSDs are registered, and answers only what a real one was recorded to.

use super::recording::{
    DUMP, Exchange, NEW, OTHER_KEY, REGISTERED, UNREACHABLE, UNREGISTERED, UP, recorded,
};
use quarry_ceph::{Key, Uuid};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub struct SimCeph {
    pub fsid: Uuid,
    pub is_reachable: bool,
    pub osds: BTreeMap<u32, Known>,
    recording: Vec<Exchange>,
}

/// An OSD that is registered.
#[derive(Clone, Debug)]
pub struct Known {
    pub uuid: Uuid,
    key: Key,
    pub has_run: bool,
}

impl SimCeph {
    pub fn new(fsid: Uuid) -> Self {
        SimCeph { fsid, is_reachable: true, osds: BTreeMap::new(), recording: recorded() }
    }

    fn recorded(&self, request: &str, when: &str) -> Exchange {
        let found = self.recording.iter().find(|one| one.request == request && one.when == when);
        found.cloned().unwrap_or_else(|| panic!("{request} was not recorded when {when}"))
    }

    pub fn unreachable(&self, request: &str) -> Exchange {
        self.recorded(request, UNREACHABLE)
    }

    pub fn osd_dump(&self) -> Exchange {
        if !self.is_reachable {
            return self.unreachable(DUMP);
        }
        let mut answer = self.recorded(DUMP, UNREGISTERED);
        answer.stdout["fsid"] = json!(self.fsid.as_str());
        let osds = self.osds.iter().map(|(id, known)| {
            let when = if known.has_run { UP } else { REGISTERED };
            let mut entry = self.recorded(DUMP, when).stdout["osds"][0].clone();
            entry["osd"] = json!(id);
            entry["uuid"] = json!(known.uuid.as_str());
            entry
        });
        answer.stdout["osds"] = osds.collect::<Vec<Value>>().into();
        answer
    }

    pub fn osd_new(&mut self, uuid: &Uuid, key: &Key) -> Exchange {
        if !self.is_reachable {
            return self.unreachable(NEW);
        }
        let known = self.osds.iter().find(|(_, known)| known.uuid == *uuid);
        let (when, id) = match known {
            Some((_, known)) if known.key != *key => (OTHER_KEY, None),
            Some((id, _)) => (REGISTERED, Some(*id)),
            None => {
                let id = (0..).find(|id| !self.osds.contains_key(id)).unwrap_or_default();
                let known = Known { uuid: uuid.clone(), key: key.clone(), has_run: false };
                self.osds.insert(id, known);
                (UNREGISTERED, Some(id))
            }
        };
        let mut answer = self.recorded(NEW, when);
        if let Some(id) = id {
            answer.stdout = json!(id.to_string());
        }
        answer
    }

    pub fn id_of(&self, uuid: &str) -> Option<u32> {
        self.osds.iter().find(|(_, known)| known.uuid.as_str() == uuid).map(|(id, _)| *id)
    }
}
