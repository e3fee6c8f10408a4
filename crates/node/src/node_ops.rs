//! The hands of an agent: look at one volume, carry out one step, keep the ledger.
//!
//! The trait is what the agent drives; the simulator implements it as well. `RealHands` is the node itself: it holds
//! the node's lock for as long as it lives. Calls block; the agent makes them on its workers.
//! Next to read: `quarry_core::sparse` (what to do), `act/mod.rs` (how).

use crate::{
    act::{self, attach::find_partition, volume_link},
    device_claim::{
        self, ConfirmRequest, Confirmation, HeldDevice, HoldRequest, LinkOrder, LinkState, Spare,
    },
    error::NodeError,
    host_root::{HostRoot, is_uid},
    inspect::{
        device_users, gpt,
        link_read::{self, LinkTarget},
        loops::{self, Attached},
        probe::Care,
        scan::{Limits, Reach, Scan, Scanned, Scanner},
        unmanaged_pvs,
    },
    ledger::{Ledger, Record},
    lock::Lock,
};
use jiff::Timestamp;
use quarry_api::{
    node_inventory::{PathReport, RetainedData, UnmanagedPv},
    node_job::Action,
    quantity::Bytes,
};
use quarry_core::{
    device::{BackingFile, Facts},
    device_claim::confirm::Remembered,
    sparse::{self, Link, Loop, Observed, Step, User},
};
use quarry_failpoint::failpoint;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs::{self, Metadata, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use uuid::Uuid;

pub trait NodeOps: Send + Sync + 'static {
    /// Everything about one volume, users included.
    fn look(&self, uid: &str) -> Result<Observed, NodeError>;

    /// As `look`, without opening any device exclusively: for a volume that a pod may be about to mount.
    fn glance(&self, uid: &str) -> Result<Observed, NodeError> {
        self.look(uid)
    }

    fn act(&self, uid: &str, step: &Step) -> Result<(), NodeError>;

    /// Durable when it returns. Only for a plan that is not a refusal: an intent makes the volume's files ours.
    fn record_intent(&self, entry: &Intent) -> Result<(), NodeError>;

    /// Durable when it returns.
    fn record_outcome(&self, entry: &Outcome) -> Result<(), NodeError>;

    /// The UIDs of finished files that the ledger knows.
    fn known_volumes(&self) -> Result<Vec<String>, NodeError>;

    /// Every block device of the node, and who the node is.
    fn scan_node(&self, request: &ScanRequest) -> Result<NodeScan, NodeError>;

    /// Looks at devices while it holds them, and links those that are as claimed. Never for one that was confirmed
    /// before: it may be in use.
    fn confirm(&self, request: &ConfirmRequest) -> Result<Confirmation, NodeError> {
        let _ = request;
        Err(no_devices("confirming claims"))
    }

    /// In the order of the orders.
    fn follow_links(&self, orders: &[LinkOrder]) -> Result<Vec<LinkState>, NodeError> {
        let _ = orders;
        Err(no_devices("making links"))
    }

    /// Which devices these paths of the node are.
    fn resolve(&self, paths: &[String]) -> Result<Vec<PathReport>, NodeError> {
        let _ = paths;
        Err(no_devices("following paths"))
    }

    /// That this data stays is known on the node from now on, whatever an older API may ask for later.
    fn record_retained(&self, kept: &[RetainedData]) -> Result<(), NodeError> {
        let _ = kept;
        Err(no_devices("remembering what is kept"))
    }

    /// Opens a device exclusively, to be erased, and verifies all that can be seen on the node while it is held.
    fn hold(&self, request: &HoldRequest) -> Result<Box<dyn HeldDevice>, NodeError> {
        let _ = request;
        Err(no_devices("holding a device"))
    }
}

/// For hands that know volumes alone.
fn no_devices(attempt: &str) -> NodeError {
    NodeError::Other {
        attempt: format!("{attempt}: not with these hands"),
        retryable: false,
        source: None,
    }
}

/// What has to be looked at anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanRequest {
    /// Read every device again, whether it seems to have changed or not.
    pub everything: bool,
    /// Devices that the kernel told about, by kernel name.
    pub touched: BTreeSet<String>,
    /// Whose devices are to be found.
    pub unmanaged_pvs: Vec<UnmanagedPv>,
    /// Devices that are not opened exclusively, not even for a moment.
    pub spare: Vec<Spare>,
    /// Somebody holds the devices and acts on the answer: every byte that counts is read, and slow ones are waited for.
    pub proves: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeScan {
    pub devices: Vec<Facts>,
    /// What kept us from seeing everything, as sentences.
    pub problems: Vec<String>,
    /// When to look again, because a device has not answered yet.
    pub again_in: Option<Duration>,
    pub boot_id: Option<String>,
    pub machine_id: Option<String>,
}

/// What a record in the ledger is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// By its UID.
    Volume(String),
    /// A claimed device, and the PersistentVolume whose data is on it.
    Device { identity: String, pv_name: String, pv_uid: String },
}

impl Subject {
    /// Empty for a device.
    pub fn volume_uid(&self) -> &str {
        match self {
            Subject::Volume(uid) => uid,
            Subject::Device { .. } => "",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    pub job: String,
    pub action: Action,
    pub subject: Subject,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub job: String,
    pub action: Action,
    pub subject: Subject,
    pub result: OutcomeResult,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutcomeResult {
    Succeeded,
    Failed,
}

/// One silent disk must not keep the others from being seen; it is looked at again soon.
const PATIENCE: Duration = Duration::from_millis(300);

pub struct LinuxNode {
    host: HostRoot,
    ledger: Mutex<Ledger>,
    scanner: Mutex<Scanner>,
    _lock: Lock,
}

impl LinuxNode {
    /// Fails with the other's PID while another agent runs on this node.
    pub fn open(host: HostRoot, observe_only: bool) -> Result<Self, NodeError> {
        let lock = Lock::take(&host.lock())?;
        let ledger = Ledger::open(&host.ledger())?;
        let reach = if observe_only { Reach::OwnLoops } else { Reach::Everything };
        let scanner =
            Scanner::new(host.clone(), Limits { reach, patience: PATIENCE, ..Limits::default() });
        Ok(LinuxNode {
            host,
            ledger: Mutex::new(ledger),
            scanner: Mutex::new(scanner),
            _lock: lock,
        })
    }

    pub fn host(&self) -> &HostRoot {
        &self.host
    }

    /// A look, and the devices that have not answered yet: what is said of those is old.
    pub(crate) fn see(&self, request: &ScanRequest) -> Result<(NodeScan, Vec<String>), NodeError> {
        let scan = if request.everything {
            Scan::Everything
        } else {
            Scan::Changed { touched: &request.touched }
        };
        let spared = self.spared(&request.spare);
        let seen = {
            let mut scanner = self.scanner.lock().unwrap_or_else(PoisonError::into_inner);
            scanner.spare(spared);
            scanner.scan_with(scan, if request.proves { Care::Prove } else { Care::Look })?
        };
        let Scanned { devices, problems, again_in, boot_id, silent, .. } = seen;
        let mut devices = devices.to_vec();
        self.mark_volumes(&mut devices)?;
        unmanaged_pvs::mark_unmanaged(&self.host, &mut devices, &request.unmanaged_pvs);
        Ok((
            NodeScan { devices, problems, again_in, boot_id, machine_id: self.host.machine_id()? },
            silent,
        ))
    }

    /// What the ledger says about a device and the PersistentVolume that was on it.
    pub(crate) fn remembered(&self, identity: &str, pv_uid: &str) -> Remembered {
        self.ledger().remembered(identity, pv_uid)
    }

    /// Durable when it returns; what the ledger says already is not said again.
    pub(crate) fn record_news(&self, records: Vec<Record>) -> Result<(), NodeError> {
        let mut ledger = self.ledger();
        let unrecorded = ledger.unrecorded(records);
        ledger.append_all(&unrecorded)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observe(&self, uid: &str, exclusive: bool) -> Result<Observed, NodeError> {
        let id = volume_id(uid)?;
        let host = &self.host;
        let in_ledger = self.ledger().knows(uid);
        let file = plain_file(host, uid)?;
        let partition = match &file {
            Some(_) => self.partition_of(uid, id)?,
            None => None,
        };
        let all = loops::scan(host)?;
        let mut attached = Vec::new();
        for over in all.iter().filter(|a| self.is_over(a, uid, file.as_ref(), in_ledger)) {
            let mut users = device_users::visible(host, &over.name, &all)?;
            // Who is seen already explains a failing exclusive open.
            if exclusive && users.is_empty() && device_users::hold(host, &over.name)?.is_none() {
                users.push(User::Exclusive);
            }
            let partition = partition.and_then(|wanted| kernel_partition(host, &over.name, wanted));
            attached.push(Loop { name: over.name.clone(), partition, users });
        }
        let link = self.link_of(uid, file.is_some(), partition.is_some());
        Ok(Observed {
            in_ledger,
            file: file.map(|meta| sparse::File {
                size: Bytes(meta.len()),
                partitioned: partition.is_some(),
            }),
            draft: fs::symlink_metadata(host.draft_file(uid)).is_ok(),
            loops: attached,
            link,
            udev: host.has_udev(),
        })
    }

    /// An unlinked file is known by its name alone, which counts only for a volume that we made.
    fn is_over(
        &self,
        attached: &Attached,
        uid: &str,
        file: Option<&Metadata>,
        in_ledger: bool,
    ) -> bool {
        match file {
            Some(meta) => attached.is_over(meta),
            None => {
                in_ledger
                    && attached.deleted
                    && loops::names_the_same(&attached.path, &self.host.volume_on_node(uid))
            }
        }
    }

    fn partition_of(&self, uid: &str, id: Uuid) -> Result<Option<gpt::Partition>, NodeError> {
        let path = self.host.volume_file(uid);
        let attempt = || format!("reading {}", path.display());
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(no_follow)
            .open(&path)
            .map_err(NodeError::io(attempt()))?;
        find_partition(&opened, id).map_err(NodeError::io(attempt()))
    }

    fn link_of(&self, uid: &str, file: bool, partitioned: bool) -> Link {
        let [by_uuid, by_partlabel] = volume_link::both(uid);
        if file {
            return link_read::read(&self.host, if partitioned { &by_partlabel } else { &by_uuid })
                .into();
        }
        // Without the file, a link to a device that works is somebody else's; one that leads nowhere is our remains.
        let remains = [by_uuid, by_partlabel].into_iter().find_map(|link| {
            match link_read::read(&self.host, &link) {
                LinkTarget::Dangling(name) => Some(Link::To(name)),
                LinkTarget::Nowhere | LinkTarget::To(_) => None,
            }
        });
        remains.unwrap_or_default()
    }

    /// The loops over a volume's file, each with the volume's link if it resolves to the published device.
    fn storage_of(
        &self,
        uid: &str,
        all: &[Attached],
    ) -> Result<Vec<(String, Option<String>)>, NodeError> {
        let Some(meta) = plain_file(&self.host, uid)? else { return Ok(Vec::new()) };
        let wanted = self.partition_of(uid, volume_id(uid)?)?;
        let mut found = Vec::new();
        for over in all.iter().filter(|attached| attached.is_over(&meta)) {
            let published = match wanted {
                Some(wanted) => {
                    kernel_partition(&self.host, &over.name, wanted).map(|(name, _)| name)
                }
                None => Some(over.name.clone()),
            };
            let link = published.and_then(|device| {
                let link = volume_link::of_device(uid, &device);
                (link_read::read(&self.host, &link) == LinkTarget::To(device)).then_some(link)
            });
            found.push((over.name.clone(), link));
        }
        Ok(found)
    }

    /// Says which devices are the storage of our volumes.
    fn mark_volumes(&self, devices: &mut [Facts]) -> Result<(), NodeError> {
        let known = self.known_volumes()?;
        if known.is_empty() {
            return Ok(());
        }
        // By name first: a loop over somebody's file on a dead server would hang in the question whose inode it is.
        let all = loops::scan_named(&self.host, |name| known.iter().any(|uid| uid == name))?;
        for uid in known {
            for (name, link) in self.storage_of(&uid, &all)? {
                if let Some(facts) = devices.iter_mut().find(|facts| facts.name == name) {
                    facts.volume_uid = Some(uid.clone());
                    facts.link = link;
                    let file = facts.backing.take().and_then(|backing| backing.file);
                    facts.backing = Some(BackingFile {
                        path: self.host.volume_on_node(&uid).display().to_string(),
                        deleted: false,
                        file,
                    });
                }
            }
        }
        Ok(())
    }
}

impl NodeOps for LinuxNode {
    fn look(&self, uid: &str) -> Result<Observed, NodeError> {
        self.observe(uid, true)
    }

    fn glance(&self, uid: &str) -> Result<Observed, NodeError> {
        self.observe(uid, false)
    }

    fn act(&self, uid: &str, step: &Step) -> Result<(), NodeError> {
        volume_id(uid)?;
        act::act(&self.host, uid, step)
    }

    fn record_intent(&self, entry: &Intent) -> Result<(), NodeError> {
        failpoint!("ledger.intent.before");
        self.ledger().append(&Record::intent(Timestamp::now(), entry))?;
        failpoint!("ledger.intent.after");
        Ok(())
    }

    fn record_outcome(&self, entry: &Outcome) -> Result<(), NodeError> {
        failpoint!("ledger.outcome.before");
        self.ledger().append(&Record::outcome(Timestamp::now(), entry))?;
        failpoint!("ledger.outcome.after");
        Ok(())
    }

    fn known_volumes(&self) -> Result<Vec<String>, NodeError> {
        let folder = self.host.volumes();
        let attempt = || format!("listing {}", folder.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).map_err(NodeError::io(attempt()))? {
            let name = entry.map_err(NodeError::io(attempt()))?.file_name();
            found.extend(name.into_string().ok().filter(|name| is_uid(name)));
        }
        let ledger = self.ledger();
        found.retain(|uid| ledger.knows(uid));
        found.sort();
        Ok(found)
    }

    fn scan_node(&self, request: &ScanRequest) -> Result<NodeScan, NodeError> {
        self.see(request).map(|(scan, _)| scan)
    }

    fn confirm(&self, request: &ConfirmRequest) -> Result<Confirmation, NodeError> {
        self.confirm_claims(request)
    }

    fn follow_links(&self, orders: &[LinkOrder]) -> Result<Vec<LinkState>, NodeError> {
        Ok(device_claim::follow_links(&self.host, orders))
    }

    fn resolve(&self, paths: &[String]) -> Result<Vec<PathReport>, NodeError> {
        Ok(paths.iter().map(|path| device_claim::resolve_path(&self.host, path)).collect())
    }

    fn record_retained(&self, kept: &[RetainedData]) -> Result<(), NodeError> {
        self.record_news(kept.iter().map(|kept| Record::retained(Timestamp::now(), kept)).collect())
    }

    fn hold(&self, request: &HoldRequest) -> Result<Box<dyn HeldDevice>, NodeError> {
        self.hold_for_wipe(request)
    }
}

fn volume_id(uid: &str) -> Result<Uuid, NodeError> {
    Uuid::parse_str(uid)
        .ok()
        .filter(|_| is_uid(uid))
        .ok_or_else(|| NodeError::NotAUid(uid.to_owned()))
}

/// The finished file; anything else under its name (a link, a folder) is an error, never followed.
fn plain_file(host: &HostRoot, uid: &str) -> Result<Option<Metadata>, NodeError> {
    let path = host.volume_file(uid);
    match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_file() => Ok(Some(meta)),
        Ok(_) => Err(NodeError::Malformed(format!(
            "{} is not a plain file: it is left alone; move it away",
            path.display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(NodeError::io(format!("reading {}", path.display()))(error)),
    }
}

/// The kernel's partition at the place that the table names.
fn kernel_partition(
    host: &HostRoot,
    device: &str,
    wanted: gpt::Partition,
) -> Option<(String, Bytes)> {
    let name = loops::partitions(host, device)
        .into_iter()
        .find(|name| loops::partition_number(host, name) == Some(wanted.number))?;
    let size = loops::size(host, &name)?;
    (loops::start(host, &name) == Some(wanted.start) && size == wanted.length)
        .then_some((name, Bytes(size)))
}
