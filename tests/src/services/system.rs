//! One system of the lab: an emulated one, or the real machine. Owns its faults and its requests.
//!
//! Dropping it deletes its nodes in Ironic, switches it off, removes its faults and volumes and blanks its disks. Read
//! next: `scripts/services/control.py`, which lists the faults.

use super::{Lab, Shared, request, until};
use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{
    fs::File,
    sync::{Mutex, PoisonError},
};

/// One line of the log of requests to Ironic.
#[derive(Clone, Debug, Deserialize)]
pub struct Request {
    /// Seconds since 1970, when it arrived.
    pub time: f64,
    /// Until the answer was complete.
    pub seconds: f64,
    pub method: String,
    pub path: String,
    pub status: u16,
    pub bytes: u64,
    /// The address that the client used; see `System::ironic_url`.
    pub host: String,
    /// The user agent: `lab-agent` is the stand-in, `lab-test` a test.
    pub agent: String,
}

pub struct System {
    pub name: String,
    pub uuid: String,
    pub mac: String,
    /// Address of its BMC.
    pub redfish: String,
    real: bool,
    index: usize,
    lab: &'static Lab,
    control: Mutex<Map<String, Value>>,
    // Locked while the system is in use, by this or another process.
    _taken: File,
    _shared: Option<Shared>,
}

impl System {
    /// `None`: another test uses it.
    pub(super) fn take(lab: &'static Lab, one: &Value) -> Option<Self> {
        let text = |key: &str| one[key].as_str().unwrap().to_owned();
        let taken = File::create(lab.dir.join("taken").join(text("name"))).unwrap();
        flock(&taken, FlockOperation::NonBlockingLockExclusive).ok()?;
        let index = lab.systems.iter().position(|other| other == one).unwrap();
        Some(System {
            name: text("name"),
            uuid: text("uuid"),
            mac: text("mac"),
            redfish: text("redfish"),
            real: one["real"] == true,
            index,
            lab,
            control: Mutex::default(),
            _taken: taken,
            _shared: None,
        })
    }

    /// Removes what a killed test has left.
    pub(super) fn ready(mut self, shared: Option<Shared>) -> Self {
        self._shared = shared;
        self.reset();
        self
    }

    fn reset(&self) {
        // Most tests set none.
        let control = self.lab.dir.join(format!("control/{}.json", self.name));
        if std::fs::read_to_string(control).is_ok_and(|text| text.trim() != "{}") {
            self.heal();
        }
        self.lab.ironic().remove_nodes(self);
        self.cut_power();
        if self.real {
            self.blank_disks();
        }
        for volume in self.volumes() {
            let path = volume["@odata.id"].as_str().unwrap().to_owned();
            self.redfish_admin("DELETE", path.split_once(&self.uuid).unwrap().1, None);
        }
    }

    /// Address of Ironic for one Quarry: in the log of requests this address is of this system alone.
    pub fn ironic_url(&self) -> String {
        self.lab.ironic_url.replace("127.0.0.1", &format!("127.0.1.{}", self.index + 1))
    }

    /// What `spec.bmc.address` of a host is set to.
    pub fn bmc_address(&self) -> String {
        format!("redfish-virtualmedia+{}/redfish/v1/Systems/{}", self.redfish, self.uuid)
    }

    /// Requests to `ironic_url` since the lab was started.
    pub fn requests(&self) -> Vec<Request> {
        let url = self.ironic_url();
        let host = url.trim_start_matches("http://");
        self.lab.requests().into_iter().filter(|one| one.host == host).collect()
    }

    /// Sets one fault or setting (`scripts/services/control.py`), and waits until it is in effect.
    pub fn set(&self, key: &str, value: impl Into<Value>) {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        control.insert(key.to_owned(), value.into());
        self.apply(&control);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        control.clear();
        self.apply(&control);
    }

    pub fn bmc_down(&self) {
        self.set("bmc", "down");
    }

    /// The ramdisk of the stand-in never comes up.
    pub fn silent_ramdisk(&self) {
        self.set("silent", true);
    }

    /// From now on the BMC accepts this password only.
    pub fn change_password(&self, password: &str) {
        self.set("password", password);
    }

    /// Whether the guest behind the BMC runs: it follows the BMC a moment later. An emulated system
    /// has none.
    fn is_running(&self) -> bool {
        if !self.real {
            return false;
        }
        let state = std::fs::read(self.lab.dir.join("machine/state")).unwrap();
        serde_json::from_slice::<Value>(&state).unwrap()["running"] == true
    }

    /// Only while it is off: the files are the disks of the guest.
    fn blank_disks(&self) {
        let disks = self.lab.dir.join("machine/disks");
        for line in std::fs::read_to_string(disks.join("list")).unwrap().lines() {
            let name = line.split(' ').next().unwrap();
            let file = File::options().write(true).open(disks.join(name)).unwrap();
            let size = file.metadata().unwrap().len();
            file.set_len(0).and_then(|()| file.set_len(size)).unwrap();
        }
    }

    fn apply(&self, control: &Map<String, Value>) {
        let pairs: Vec<String> = control.iter().map(|(key, one)| format!("{key}={one}")).collect();
        let pairs = pairs.iter().map(String::as_str);
        self.lab.script("set", &[self.name.as_str()].into_iter().chain(pairs).collect::<Vec<_>>());
    }

    /// What its BMC says, `On` or `Off`; the fault-free view of the lab.
    pub fn power(&self) -> String {
        let found = self.redfish_admin("GET", "", None);
        found["PowerState"].as_str().unwrap_or_default().to_owned()
    }

    /// A reset as of the BMC's own console: `On`, `ForceOff`, `ForceRestart`.
    pub fn switch(&self, reset: &str) {
        let body = json!({"ResetType": reset});
        self.redfish_admin("POST", "/Actions/ComputerSystem.Reset", Some(&body));
    }

    /// Off, and what ran in it has ended.
    pub fn cut_power(&self) {
        self.switch("ForceOff");
        until(&format!("{} is off", self.name), super::LIMIT, || {
            let state = self.power();
            if state == "Off" && !self.is_running() { Ok(()) } else { Err(state) }
        });
    }

    /// RAID volumes of all its controllers, as its BMC shows them: the oracle for hardware RAID.
    pub fn volumes(&self) -> Vec<Value> {
        let of = |controller| {
            let path = format!("/Storage/{controller}/Volumes");
            let listed = self.redfish_admin("GET", &path, None)["Members"].clone();
            let paths = listed.as_array().into_iter().flatten();
            let names = paths.map(|one| one["@odata.id"].as_str().unwrap().to_owned());
            let relative = names.map(|name| name.split_once(&self.uuid).unwrap().1.to_owned());
            relative.map(|path| self.redfish_admin("GET", &path, None)).collect::<Vec<_>>()
        };
        ["1", "2"].into_iter().flat_map(of).collect()
    }

    fn redfish_admin(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let url = format!("{}/redfish/v1/Systems/{}{path}", self.lab.redfish_url, self.uuid);
        let user = format!("{}:{}", self.lab.bmc_user, self.lab.bmc_password);
        request(method, &url, body, &["--user", &user]).unwrap().ok()
    }

    /// Output of shell commands in the real machine, as root; it must be on.
    pub fn shell(&self, commands: &str) -> String {
        self.lab.script("sh", &[commands])
    }
}

impl Drop for System {
    fn drop(&mut self) {
        super::restore(|| self.reset());
    }
}
