//! A prepare pod's process, one act at a time: the order of `quarry osd prepare`, with its own decisions, on simulated
//! devices and a simulated Ceph.

use super::{
    machine::Machine,
    recording::{DUMP, Exchange, NEW},
};
use crate::fault::{FaultKind, FaultPoint};
use quarry_ceph::{
    Content, Device, Key, Label, OsdInfo, PrepareResult, Role, Uuid, Verdict,
    judge::{Access, Refusal, Target, judge},
    osd::parse_osd_dump,
    registered::{self, Registered},
    result::Reason,
};
use serde_json::Value;
use tokio::time::Instant;

/// How its container ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub code: u8,
    pub message: Option<String>,
}

#[derive(Clone, Debug)]
enum Phase {
    Judge,
    Ask(Verdict),
    Register,
    Mkfs(u32),
    Report(u32),
}

/// What it was started with, from the pod's spec.
#[derive(Clone, Debug)]
pub struct Prepare {
    pub node: String,
    pub claim: String,
    pub since: Instant,
    uuid: Uuid,
    fsid: Uuid,
    /// Role, path in the pod, PV.
    pub devices: Vec<(Role, String, String)>,
    phase: Phase,
}

/// Of SIGKILL.
const KILLED: Ended = Ended { code: 137, message: None };

impl Prepare {
    /// `volume_of`: the PV behind a path in the pod.
    pub fn start(pod: &Value, volume_of: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let command = pod["spec"]["containers"][0]["command"].as_array()?;
        let argument = |name: &str| {
            let start = format!("--{name}=");
            command.iter().find_map(|one| one.as_str()?.strip_prefix(&start)).map(str::to_owned)
        };
        let roles = [("data", Role::Data), ("metadata", Role::Metadata), ("wal", Role::Wal)];
        let devices = roles.into_iter().filter_map(|(name, role)| {
            let path = argument(name)?;
            let volume = volume_of(&path)?;
            Some((role, path, volume))
        });
        Some(Prepare {
            node: pod["spec"]["nodeName"].as_str()?.to_owned(),
            claim: argument("pvc-name")?,
            since: Instant::now(),
            uuid: argument("uuid")?.parse().ok()?,
            fsid: argument("fsid")?.parse().ok()?,
            devices: devices.collect(),
            phase: Phase::Judge,
        })
    }

    pub fn label(&self) -> String {
        let doing = match &self.phase {
            Phase::Judge => "judge",
            Phase::Ask(_) => DUMP,
            Phase::Register => NEW,
            Phase::Mkfs(_) => "mkfs",
            Phase::Report(_) => "report",
        };
        format!("{} {doing}", self.claim)
    }

    pub fn possible(&self) -> &'static [(FaultPoint, FaultKind)] {
        use FaultKind::{Crash, Error};
        use FaultPoint::{After, Before, During};
        match &self.phase {
            Phase::Judge | Phase::Report(_) => &[(Before, Crash)],
            Phase::Ask(_) => &[(Before, Crash), (Before, Error)],
            Phase::Register => &[(Before, Crash), (Before, Error), (After, Crash), (After, Error)],
            Phase::Mkfs(_) => &[(Before, Crash), (During, Crash), (After, Crash)],
        }
    }

    /// One act; how it ended, if it did.
    pub fn step(
        &mut self,
        machine: &mut Machine,
        fault: Option<(FaultPoint, FaultKind)>,
    ) -> Option<Ended> {
        if fault == Some((FaultPoint::Before, FaultKind::Crash)) {
            return Some(KILLED);
        }
        let next = match self.phase.clone() {
            Phase::Judge => self.judge(machine),
            Phase::Ask(verdict) => self.ask(machine, &verdict, fault.is_some()),
            Phase::Register => self.register(machine, fault),
            Phase::Mkfs(id) => self.mkfs(machine, id, fault.map(|(when, _)| when)),
            Phase::Report(id) => {
                let message = Some(self.result(id).to_json());
                return Some(Ended { code: 0, message });
            }
        };
        if fault.is_some_and(|(_, what)| what == FaultKind::Crash) {
            return Some(KILLED);
        }
        match next {
            Ok(phase) => {
                self.phase = phase;
                None
            }
            Err(refusal) => Some(Ended {
                code: refusal.reason.exit_code(),
                message: Some(PrepareResult::failed(refusal.reason, refusal.message).to_json()),
            }),
        }
    }

    fn target(&self) -> Target {
        Target { osd: self.uuid.clone(), fsid: self.fsid.clone() }
    }

    fn key(&self) -> Key {
        Key::of_osd(&Machine::bootstrap_key(), &self.uuid).expect("the key of the story is one")
    }

    fn judge(&self, machine: &Machine) -> Result<Phase, Refusal> {
        let mut read = self.devices.iter().map(|(role, path, volume)| {
            let found = &machine.devices[volume];
            let access = if machine.is_busy(volume) { Access::Busy } else { Access::Free };
            Device {
                role: *role,
                path: path.clone(),
                size: found.size,
                access,
                content: found.content.clone(),
            }
        });
        let data = read.next().expect("there is always a data device");
        let others: Vec<Device> = read.collect();
        match judge(&self.target(), &data, &others) {
            Verdict::Refuse(refusal) => Err(refusal),
            verdict => Ok(Phase::Ask(verdict)),
        }
    }

    fn ask(&self, machine: &Machine, verdict: &Verdict, fails: bool) -> Result<Phase, Refusal> {
        let ceph = &machine.ceph;
        let answer = if fails { ceph.unreachable(DUMP) } else { ceph.osd_dump() };
        if answer.code != 0 {
            return Err(unreachable(&answer));
        }
        let dump = parse_osd_dump(answer.stdout.to_string().as_bytes());
        let dump = dump.map_err(|error| failed(error.to_string()))?;
        let data = &self.devices[0].1;
        registered::verify(&self.target(), verdict, &dump, data, "10.0.0.1")?;
        Ok(match verdict {
            Verdict::Adopt { id } => Phase::Report(*id),
            _ => Phase::Register,
        })
    }

    fn register(
        &self,
        machine: &mut Machine,
        fault: Option<(FaultPoint, FaultKind)>,
    ) -> Result<Phase, Refusal> {
        if fault == Some((FaultPoint::Before, FaultKind::Error)) {
            return Err(unreachable(&machine.ceph.unreachable(NEW)));
        }
        let mut answer = machine.ceph.osd_new(&self.uuid, &self.key());
        if fault == Some((FaultPoint::After, FaultKind::Error)) {
            answer = machine.ceph.unreachable(NEW);
        }
        let stdout = answer.stdout.as_str().unwrap_or_default().as_bytes();
        let read = registered::registered(
            &self.uuid,
            "client.admin",
            Some(answer.code),
            stdout,
            &answer.stderr,
        );
        match read.map_err(|error| failed(error.to_string()))? {
            Registered::Id(id) => Ok(Phase::Mkfs(id)),
            Registered::Refused(refusal) => Err(refusal),
            Registered::Failed => Err(unreachable(&answer)),
        }
    }

    fn mkfs(
        &self,
        machine: &mut Machine,
        id: u32,
        fault: Option<FaultPoint>,
    ) -> Result<Phase, Refusal> {
        let is_whole = fault != Some(FaultPoint::During);
        for (role, _, volume) in &self.devices {
            let description = match role {
                Role::Data => "main",
                Role::Metadata => "bluefs db",
                Role::Wal => "bluefs wal",
            };
            let main = is_whole && *role == Role::Data;
            let label = Label {
                osd_uuid: self.uuid.clone(),
                size: machine.devices[volume].size,
                description: description.to_owned(),
                ceph_fsid: main.then(|| self.fsid.clone()),
                whoami: main.then_some(id),
                osd_key: main.then(|| self.key()),
                ready: main,
            };
            machine.format(volume, label);
        }
        Ok(Phase::Report(id))
    }

    fn result(&self, id: u32) -> PrepareResult {
        let osd = OsdInfo {
            id,
            cluster: "ceph".into(),
            uuid: self.uuid.clone(),
            device_class: String::new(),
            block_path: self.devices[0].1.clone(),
            metadata_path: String::new(),
            wal_path: String::new(),
            location: format!("root=default host={}", self.node),
            mode: "raw".into(),
            store: "bluestore".into(),
            encrypted: false,
            node_name: self.node.clone(),
            pvc_name: self.claim.clone(),
        };
        PrepareResult::completed(osd, format!("osd.{id} is ready"))
    }
}

fn unreachable(answer: &Exchange) -> Refusal {
    Refusal { reason: Reason::MonitorsUnreachable, message: answer.stderr.clone() }
}

fn failed(message: String) -> Refusal {
    Refusal { reason: Reason::CommandFailed, message }
}

/// Whether a device is as mkfs may find it.
pub fn may_be_formatted(content: &Content, uuid: &Uuid) -> bool {
    match content {
        Content::Blank => true,
        Content::Label(label) => label.osd_uuid == *uuid && !label.ready,
        Content::Other(_) | Content::Unreadable(_) => false,
    }
}
