//! What this node's agent set out to do, and how it ended: append-only, one JSON line per record.
//!
//! An intent is on disk before the first byte of the volume is, an outcome after the last. The intents decide which
//! files are ours. A line that a crash cut short was never acted upon and is dropped; a line damaged later is reported
//! and skipped, the others count. Never rewritten: it is the record of what happened on the node.

use crate::error::NodeError;
use jiff::Timestamp;
use quarry_api::{
    node_inventory::{DeviceClaim, RetainedData},
    node_job::{Action, WipePolicy},
};
use quarry_core::{
    device_claim::{
        history::{DataOf, History, claim_key},
        owner_text,
    },
    job::{Intent, Outcome, OutcomeResult, Task},
};
use quarry_failpoint::failpoint;
use rustix::fs::FallocateFlags;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// Kept allocated behind the end: a cleanup must be recorded even when volumes have filled the file system.
const RESERVE: u64 = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub time: Timestamp,
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub job: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// Empty for a device that is no volume's file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[serde(rename = "volumeUID")]
    pub volume_uid: String,
    /// The identity of a claimed device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The PersistentVolume whose data is on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pv: Option<Pv>,
    /// The device claim that the device was confirmed for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimRound>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<OutcomeResult>,
    /// How thoroughly a wipe erases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<WipePolicy>,
    /// The ID of the ledger.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[serde(rename = "ledgerID")]
    pub ledger_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pv {
    pub name: String,
    pub uid: String,
    /// The PVC that was bound to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "pvcUID")]
    pub pvc_uid: Option<String>,
}

impl Pv {
    fn data(&self) -> DataOf {
        DataOf::new(&self.uid, self.pvc_uid.as_deref())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRound {
    #[serde(rename = "ownerUID")]
    pub owner_uid: String,
    /// The ID of the device claim; the UID of the owner in records of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    pub round: i64,
}

impl ClaimRound {
    fn of(claim: &DeviceClaim) -> Self {
        ClaimRound {
            owner_uid: claim.owner.uid.clone(),
            id: claim_key(claim).to_owned(),
            round: claim.round,
        }
    }

    fn key(&self) -> &str {
        if self.id.is_empty() { &self.owner_uid } else { &self.id }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Intent,
    Outcome,
    /// The first record: the ID of this ledger.
    Created,
    /// The device was read and found as claimed: nothing of an earlier device claim applies to it any more.
    Confirmed,
    /// The device claim has ended on this node.
    Released,
    /// A discard of this device left data: it is zeroed from now on.
    #[serde(rename = "discard-ineffective")]
    DiscardIneffective,
    /// The data of this PersistentVolume stays on the device.
    #[serde(alias = "kept")]
    Retained,
}

impl Kind {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Created => "created",
            Kind::Intent => "intent",
            Kind::Outcome => "outcome",
            Kind::Confirmed => "confirmed",
            Kind::Released => "released",
            Kind::DiscardIneffective => "discard-ineffective",
            Kind::Retained => "retained",
        }
    }
}

impl Record {
    pub fn intent(time: Timestamp, entry: &Intent) -> Self {
        Record {
            job: entry.job.to_string(),
            text: entry.task.describe(),
            ..Record::of_task(time, Kind::Intent, &entry.task)
        }
    }

    pub fn outcome(time: Timestamp, entry: &Outcome) -> Self {
        Record {
            job: entry.job.to_string(),
            result: Some(entry.result),
            text: entry.text.clone(),
            ..Record::of_task(time, Kind::Outcome, &entry.task)
        }
    }

    fn of_task(time: Timestamp, kind: Kind, task: &Task) -> Self {
        let of_action = Record { action: Some(task.action()), ..Record::bare(time, kind) };
        match task {
            Task::Volume(task) => Record { volume_uid: task.uid().to_string(), ..of_action },
            Task::Wipe(wipe) => Record {
                device: Some(wipe.identity.to_string()),
                pv: Some(Pv {
                    name: wipe.pv.to_string(),
                    uid: wipe.pv_uid.to_string(),
                    pvc_uid: wipe.pvc_uid.as_ref().map(ToString::to_string),
                }),
                policy: Some(wipe.policy),
                ..of_action
            },
        }
    }

    pub fn confirmed(time: Timestamp, claim: &DeviceClaim) -> Self {
        Record::of_claim(time, Kind::Confirmed, claim)
    }

    pub fn released(time: Timestamp, claim: &DeviceClaim) -> Self {
        Record::of_claim(time, Kind::Released, claim)
    }

    fn of_claim(time: Timestamp, kind: Kind, claim: &DeviceClaim) -> Self {
        Record {
            device: Some(claim.identity.clone()),
            claim: Some(ClaimRound::of(claim)),
            text: owner_text(&claim.owner),
            ..Record::bare(time, kind)
        }
    }

    pub fn discard_ineffective(time: Timestamp, identity: &str) -> Self {
        Record { device: Some(identity.to_owned()), ..Record::bare(time, Kind::DiscardIneffective) }
    }

    fn created(time: Timestamp) -> Self {
        let ledger_id = uuid::Uuid::new_v4().to_string();
        Record { ledger_id, ..Record::bare(time, Kind::Created) }
    }

    pub fn retained(time: Timestamp, retained: &RetainedData) -> Self {
        let pv = Pv { name: retained.pv_name.clone(), uid: retained.pv_uid.clone(), pvc_uid: None };
        Record {
            device: Some(retained.identity.clone()),
            pv: Some(pv),
            ..Record::bare(time, Kind::Retained)
        }
    }

    fn bare(time: Timestamp, kind: Kind) -> Self {
        Record {
            time,
            kind,
            job: String::new(),
            action: None,
            volume_uid: String::new(),
            device: None,
            pv: None,
            claim: None,
            result: None,
            policy: None,
            ledger_id: String::new(),
            text: String::new(),
        }
    }

    /// The volume whose files this record makes ours.
    fn makes_ours(&self) -> Option<&str> {
        Some(self.volume_uid.as_str()).filter(|uid| self.kind == Kind::Intent && !uid.is_empty())
    }
}

#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: File,
    /// Where the last whole line ends.
    end: u64,
    /// How far the file's blocks are allocated, as far as we asked for it.
    reserved: u64,
    index: LedgerIndex,
    damaged: Vec<usize>,
}

/// What the records say, for lookup.
#[derive(Debug, Default)]
struct LedgerIndex {
    id: String,
    ours: HashSet<String>,
    history: History,
}

impl LedgerIndex {
    fn add(&mut self, record: &Record) {
        self.ours.extend(record.makes_ours().map(str::to_owned));
        let device = record.device.as_deref().unwrap_or_default();
        let (claim, pv) = (record.claim.as_ref(), record.pv.as_ref());
        match record.kind {
            Kind::Created => self.id.clone_from(&record.ledger_id),
            Kind::Confirmed => {
                if let Some(claim) = claim {
                    self.history.confirm(device, claim.key(), &claim.owner_uid, claim.round);
                }
            }
            Kind::Released => {
                if let Some(claim) = claim {
                    self.history.release(device, claim.key());
                }
            }
            Kind::Retained => {
                if let Some(pv) = pv {
                    self.history.retain(device, &pv.uid);
                }
            }
            Kind::DiscardIneffective => self.history.distrust_discard(device),
            Kind::Intent => {
                if let Some(pv) = pv.filter(|_| record.action == Some(Action::Wipe)) {
                    self.history.begin_erase(&pv.data());
                }
            }
            Kind::Outcome => {
                let erased = record.action == Some(Action::Wipe)
                    && record.result == Some(OutcomeResult::Succeeded);
                if let Some(pv) = pv.filter(|_| erased) {
                    // A record of an earlier version does not say how: at least the signatures are gone.
                    let policy = record.policy.unwrap_or(WipePolicy::Quick);
                    self.history.erase(device, pv.data(), policy);
                }
            }
        }
    }

    /// Whether the record would say anything that is not recorded.
    fn is_new(&self, record: &Record) -> bool {
        let device = record.device.as_deref().unwrap_or_default();
        match (record.kind, &record.claim, &record.pv) {
            (Kind::Confirmed, Some(claim), _) => {
                !self.history.is_confirmed(device, claim.key(), claim.round)
            }
            (Kind::Released, Some(claim), _) => !self.history.is_released(device, claim.key()),
            (Kind::Retained, _, Some(pv)) => !self.history.is_retained(&pv.uid),
            (Kind::DiscardIneffective, ..) => !self.history.is_discard_ineffective(device),
            (Kind::Confirmed | Kind::Released | Kind::Retained, ..)
            | (Kind::Created | Kind::Intent | Kind::Outcome, ..) => true,
        }
    }
}

impl Ledger {
    /// Opens or creates it, reads it all, and drops a torn last line.
    pub fn open(path: &Path) -> Result<Self, NodeError> {
        let attempt = |what: &str| format!("{what} the ledger {}", path.display());
        let existed = path.exists();
        let mut file = crate::lock::open_own(path).map_err(NodeError::io(attempt("opening")))?;
        if !existed {
            sync_directory(path.parent().unwrap_or(Path::new("/")))?;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(NodeError::io(attempt("reading")))?;
        let Parsed { records, damaged, whole } = parse(&bytes);
        if whole < bytes.len() {
            // Its writer never learned that it was on disk, so nothing was done because of it.
            tracing::warn!(ledger = %path.display(), bytes = bytes.len() - whole, "dropped the unfinished last line");
            file.set_len(whole as u64)
                .and_then(|()| file.sync_all())
                .map_err(NodeError::io(attempt("repairing")))?;
        }
        for line in &damaged {
            tracing::error!(ledger = %path.display(), line, "skipped a damaged line; volumes that only this line records are not recognized as the agent's");
        }
        let mut index = LedgerIndex::default();
        records.iter().for_each(|record| index.add(record));
        let mut ledger =
            Ledger { path: path.to_owned(), file, end: whole as u64, reserved: 0, index, damaged };
        ledger.reserve();
        // Before anything is recorded: the API learns from the ID that this is not the ledger that it knew.
        if ledger.index.id.is_empty() {
            ledger.append(&Record::created(Timestamp::now()))?;
        }
        Ok(ledger)
    }

    /// Created with the ledger: another data directory has another.
    pub fn id(&self) -> &str {
        &self.index.id
    }

    /// An intent for this volume was recorded on this node: files named after it are our work.
    pub fn knows(&self, uid: &str) -> bool {
        self.index.ours.contains(uid)
    }

    /// What is recorded about claimed devices.
    pub fn history(&self) -> &History {
        &self.index.history
    }

    /// Those of these that are not recorded yet.
    pub fn unrecorded(&self, records: Vec<Record>) -> Vec<Record> {
        records.into_iter().filter(|record| self.index.is_new(record)).collect()
    }

    /// Numbers of lines that could not be read.
    pub fn damaged(&self) -> &[usize] {
        &self.damaged
    }

    /// On disk when this returns.
    pub fn append(&mut self, record: &Record) -> Result<(), NodeError> {
        self.append_all(std::slice::from_ref(record))
    }

    /// All of them on disk when this returns, or none counts.
    pub fn append_all(&mut self, records: &[Record]) -> Result<(), NodeError> {
        let attempt = || format!("writing to the ledger {}", self.path.display());
        let mut lines = Vec::new();
        for record in records {
            serde_json::to_writer(&mut lines, record)
                .map_err(|error| NodeError::io(attempt())(io::Error::from(error)))?;
            lines.push(b'\n');
        }
        if lines.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.write_lines(&lines) {
            // Half a line must not stay in front of the next one. What cannot be cut off now is cut off at the next start.
            let _ = self.file.set_len(self.end);
            return Err(NodeError::io(attempt())(error));
        }
        self.end += lines.len() as u64;
        records.iter().for_each(|record| self.index.add(record));
        self.reserve();
        Ok(())
    }

    fn write_lines(&self, line: &[u8]) -> io::Result<()> {
        let torn = line.len() / 2;
        self.file.write_all_at(&line[..torn], self.end)?;
        failpoint!("ledger.torn");
        self.file.write_all_at(&line[torn..], self.end + torn as u64)?;
        self.file.sync_data()
    }

    fn reserve(&mut self) {
        if self.reserved >= self.end + RESERVE / 2 {
            return;
        }
        // Best effort: a file system without it only loses the promise to record while full.
        if rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.end, RESERVE).is_ok() {
            self.reserved = self.end + RESERVE;
        }
    }
}

/// Makes a name in a directory durable.
pub fn sync_directory(directory: &Path) -> Result<(), NodeError> {
    File::open(directory)
        .and_then(|dir| dir.sync_all())
        .map_err(NodeError::io(format!("syncing the directory {}", directory.display())))
}

#[derive(Debug)]
pub struct Parsed {
    pub records: Vec<Record>,
    /// One-based numbers of the lines that are not records.
    pub damaged: Vec<usize>,
    /// How many bytes make up whole lines.
    pub whole: usize,
}

pub fn parse(bytes: &[u8]) -> Parsed {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut parsed = Parsed { records: Vec::new(), damaged: Vec::new(), whole };
    for (index, line) in bytes[..whole].split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(record) => parsed.records.push(record),
            Err(_) => parsed.damaged.push(index + 1),
        }
    }
    parsed
}

#[cfg(test)]
mod tests;
