//! NodeJobs as typed tasks: what a job asks for, what the ledger records about it, and how it ends.
//!
//! A spec is parsed once (`Task::try_from`) by the operator, the agent and the simulator; whatever follows matches on
//! the task, so that no field is there that does not fit the action. What may invalidate a valid task is decided
//! elsewhere, live. Next to read: `precondition.rs` (may it run now?), `storage/mod.rs` (what are its steps?),
//! `queue.rs` (which one runs next?).

pub mod queue;

use crate::mkfs_options;
use quarry_api::{
    NodeJob, NodeJobSpec,
    ids::{Identity, JobName, PvName, Uid},
    node_job::{
        Action, ClaimedDevice, FilesystemParameters, FsType, JobDevice, JobResult, Parameters,
        PartitionParameters, SparseFile, WipeParameters, WipePolicy,
    },
    quantity::Bytes,
};
use serde::{Deserialize, Serialize};

/// What a NodeJob asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Run by a storage backend.
    Volume(VolumeTask),
    /// Erases a claimed device whose PersistentVolume was released.
    Wipe(WipeDevice),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeTask {
    Prepare(PrepareVolume),
    Cleanup(CleanupVolume),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareVolume {
    /// The Volume's, and the storage's.
    pub uid: Uid,
    pub size: Bytes,
    pub format: Format,
}

/// What to put on a volume's storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    Filesystem { fs: FsType, options: Vec<String> },
    Partition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanupVolume {
    pub uid: Uid,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WipeDevice {
    pub identity: Identity,
    pub size: Bytes,
    /// The PersistentVolume whose data is erased.
    pub pv: PvName,
    pub pv_uid: Uid,
    /// The PVC whose data is erased: one that is bound to the same PersistentVolume later has other data.
    pub pvc_uid: Option<Uid>,
    pub policy: WipePolicy,
}

/// Why a spec is no task. Final: a spec cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTask {
    #[error("the job names no device")]
    NoSparseFile,
    #[error("the job names no claimed device")]
    NoClaimedDevice,
    #[error("the job's device is not that of the volume that owns it")]
    OtherVolume,
    #[error("the job does not say what to prepare")]
    NoFormat,
    #[error("{0}")]
    MkfsOption(String),
    #[error("the job does not say whose data is erased, on which device")]
    NoSubject,
    #[error("the job does not say how to erase the device")]
    NoWipePolicy,
    #[error("{0} bytes is not a size")]
    Size(i64),
}

impl TryFrom<&NodeJobSpec> for Task {
    type Error = InvalidTask;

    fn try_from(spec: &NodeJobSpec) -> Result<Self, InvalidTask> {
        Ok(match spec.action {
            Action::Prepare => Task::Volume(VolumeTask::Prepare(parse_prepare(spec)?)),
            Action::Cleanup => {
                Task::Volume(VolumeTask::Cleanup(CleanupVolume { uid: parse_volume(spec)? }))
            }
            Action::Wipe => Task::Wipe(parse_wipe(spec)?),
        })
    }
}

fn parse_volume(spec: &NodeJobSpec) -> Result<Uid, InvalidTask> {
    let file = spec.device.sparse_file.as_ref().ok_or(InvalidTask::NoSparseFile)?;
    // The precondition is checked for the owner: it must be the owner's storage that is touched.
    if file.volume_uid != spec.owner.uid {
        return Err(InvalidTask::OtherVolume);
    }
    Ok(Uid::from(file.volume_uid.as_str()))
}

fn parse_prepare(spec: &NodeJobSpec) -> Result<PrepareVolume, InvalidTask> {
    let uid = parse_volume(spec)?;
    let parameters = spec.parameters.as_ref().ok_or(InvalidTask::NoFormat)?;
    let format = match (&parameters.filesystem, &parameters.partition) {
        (Some(fs), None) => Format::Filesystem { fs: fs.kind, options: fs.mkfs_options.clone() },
        (None, Some(PartitionParameters {})) => Format::Partition,
        (Some(_), Some(_)) | (None, None) => return Err(InvalidTask::NoFormat),
    };
    if let Format::Filesystem { fs, options } = &format {
        // Who may create jobs must not gain more than who may write a StorageClass.
        mkfs_options::check(*fs, options).map_err(InvalidTask::MkfsOption)?;
    }
    Ok(PrepareVolume { uid, size: parse_size(parameters.size)?, format })
}

fn parse_wipe(spec: &NodeJobSpec) -> Result<WipeDevice, InvalidTask> {
    let device = spec.device.claimed.as_ref().ok_or(InvalidTask::NoClaimedDevice)?;
    if [&device.identity, &device.pv_name, &device.pv_uid].iter().any(|text| text.is_empty()) {
        return Err(InvalidTask::NoSubject);
    }
    let parameters = spec.parameters.as_ref().filter(|parameters| parameters.size == device.size);
    let wipe = parameters
        .and_then(|parameters| parameters.wipe.as_ref())
        .ok_or(InvalidTask::NoWipePolicy)?;
    Ok(WipeDevice {
        identity: Identity::from(device.identity.as_str()),
        size: parse_size(device.size)?,
        pv: PvName::from(device.pv_name.as_str()),
        pv_uid: Uid::from(device.pv_uid.as_str()),
        pvc_uid: device.pvc_uid.as_deref().map(Uid::from),
        policy: wipe.policy,
    })
}

fn parse_size(size: i64) -> Result<Bytes, InvalidTask> {
    match u64::try_from(size) {
        Ok(bytes) if bytes > 0 => Ok(Bytes(bytes)),
        Ok(_) | Err(_) => Err(InvalidTask::Size(size)),
    }
}

impl Task {
    pub fn action(&self) -> Action {
        match self {
            Task::Volume(VolumeTask::Prepare(_)) => Action::Prepare,
            Task::Volume(VolumeTask::Cleanup(_)) => Action::Cleanup,
            Task::Wipe(_) => Action::Wipe,
        }
    }

    /// `spec.device` of a job with this task.
    pub fn device(&self) -> JobDevice {
        match self {
            Task::Volume(task) => JobDevice {
                sparse_file: Some(SparseFile { volume_uid: task.uid().to_string() }),
                claimed: None,
            },
            Task::Wipe(wipe) => JobDevice {
                sparse_file: None,
                claimed: Some(ClaimedDevice {
                    identity: wipe.identity.to_string(),
                    size: wire_size(wipe.size),
                    pv_name: wipe.pv.to_string(),
                    pv_uid: wipe.pv_uid.to_string(),
                    pvc_uid: wipe.pvc_uid.as_ref().map(ToString::to_string),
                }),
            },
        }
    }

    /// `spec.parameters` of a job with this task; `None`: there is nothing to say.
    pub fn parameters(&self) -> Option<Parameters> {
        let none = |size: Bytes| Parameters {
            size: wire_size(size),
            filesystem: None,
            partition: None,
            wipe: None,
        };
        Some(match self {
            Task::Volume(VolumeTask::Cleanup(_)) => return None,
            Task::Volume(VolumeTask::Prepare(task)) => match &task.format {
                Format::Filesystem { fs, options } => Parameters {
                    filesystem: Some(FilesystemParameters {
                        kind: *fs,
                        mkfs_options: options.clone(),
                    }),
                    ..none(task.size)
                },
                Format::Partition => {
                    Parameters { partition: Some(PartitionParameters {}), ..none(task.size) }
                }
            },
            Task::Wipe(wipe) => {
                Parameters { wipe: Some(WipeParameters { policy: wipe.policy }), ..none(wipe.size) }
            }
        })
    }

    /// For the ledger, which people read.
    pub fn describe(&self) -> String {
        match self {
            Task::Volume(VolumeTask::Cleanup(_)) => "remove".into(),
            Task::Volume(VolumeTask::Prepare(PrepareVolume { size, format, .. })) => match format {
                Format::Partition => format!("{size}, one partition"),
                Format::Filesystem { fs, options } => {
                    [size.to_string(), fs.as_str().to_owned(), options.join(" ")]
                        .join(" ")
                        .trim_end()
                        .to_owned()
                }
            },
            Task::Wipe(wipe) => format!("{} of {}", wipe.policy.as_str(), wipe.size),
        }
    }
}

fn wire_size(size: Bytes) -> i64 {
    i64::try_from(size.0).unwrap_or(i64::MAX)
}

impl VolumeTask {
    pub fn uid(&self) -> &Uid {
        match self {
            VolumeTask::Prepare(PrepareVolume { uid, .. })
            | VolumeTask::Cleanup(CleanupVolume { uid }) => uid,
        }
    }
}

impl WipeDevice {
    /// Whether the device claim is about a device of this size.
    pub fn has_size(&self, claimed: i64) -> bool {
        u64::try_from(claimed).is_ok_and(|claimed| claimed == self.size.0)
    }
}

/// One run of one NodeJob, by any executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRun {
    pub job: JobName,
    pub task: Task,
}

impl TryFrom<&NodeJob> for JobRun {
    type Error = InvalidTask;

    fn try_from(job: &NodeJob) -> Result<Self, InvalidTask> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        Ok(JobRun { job: name.into(), task: Task::try_from(&job.spec)? })
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    Prepared(JobResult),
    /// Nothing of the volume is left on the node.
    Removed,
    /// The device is blank again; how it was done.
    Erased(String),
    Failed(String),
}

impl JobRun {
    pub fn intent(&self) -> Intent {
        Intent { job: self.job.clone(), task: self.task.clone() }
    }

    pub fn outcome(&self, outcome: &JobOutcome) -> Outcome {
        let (result, text) = match outcome {
            JobOutcome::Prepared(JobResult { path, device_name, .. }) => {
                (OutcomeResult::Succeeded, format!("{path} on {device_name}"))
            }
            JobOutcome::Removed => (OutcomeResult::Succeeded, String::new()),
            JobOutcome::Erased(how) => (OutcomeResult::Succeeded, how.clone()),
            JobOutcome::Failed(why) => (OutcomeResult::Failed, why.clone()),
        };
        Outcome { job: self.job.clone(), task: self.task.clone(), result, text }
    }
}

/// What the ledger records before the first step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    pub job: JobName,
    pub task: Task,
}

/// What the ledger records after the last step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub job: JobName,
    pub task: Task,
    pub result: OutcomeResult,
    /// For people.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutcomeResult {
    Succeeded,
    Failed,
}

#[cfg(test)]
mod tests;
