//! The stories: what people do, one step after the other, each when its time has come.
//!
//! A step is taken when its condition is seen in API and on disk; nothing waits by the clock. Beside the script
//! there is an administrator who does what the message of a failed Volume says: requests a retry.

use crate::{
    device_claim_stories,
    disk::{Disk, SeededBug},
    kind::{Kind, NAMESPACE},
    pv_stories,
    raw_disks::RawDisk,
    world::World,
};
use quarry_api::names;
use serde_json::{Value, json};
use std::time::Duration;

pub const NODE: &str = "n1";
pub const VOLUME: &str = "v1";
pub const CLAIM: &str = "c1";
pub const CLASS: &str = "local";

#[derive(Clone, Debug)]
pub enum Step {
    Create(Kind, Value),
    Delete(Kind, String),
    /// A merge patch.
    Patch(Kind, String, Value),
    Await(&'static str, fn(&World, &Disk) -> bool),
    StartPod,
    EndPod,
    /// The agent is replaced, as an update does it.
    RestartAgent,
    Reboot,
    BreakTool,
    MendTool,
    /// Another file under the name that the volume's file will have.
    PutUnmanagedFile,
    RemoveUnmanagedFile,
    /// A disk is plugged in, gets or loses a file system, is pulled; comes back, perhaps with another by-id name.
    Plug(&'static str, RawDisk),
    Format(&'static str, Option<&'static str>),
    Unplug(&'static str),
    PlugAgain(&'static str, u64, Option<&'static str>),
    /// Writing to it fails from now on, or no more.
    Break(&'static str, bool),
    /// It is read-only from now on, or no more.
    WriteProtect(&'static str, bool),
    /// A process opens it exclusively, or closes it.
    Take(&'static str, bool),
    /// The owner of the data allows that it is erased.
    GiveUpData(&'static str),
    /// The owner of the data will ask for it, whatever becomes of the objects.
    KeepData(&'static str),
    /// What is on it lies in its middle from now on: it looks blank.
    HideData(&'static str),
    StopAgent,
    StartAgent,
    /// Another machine stands in the node's place.
    ReplaceMachine,
    /// All objects are put aside; all are put back as they were then.
    Snapshot,
    Restore,
    /// From now on the API must be right again about what is on the disks.
    Learned,
    /// So that ages differ.
    Pause(Duration),
}

#[derive(Clone, Debug)]
pub struct Story {
    pub name: &'static str,
    pub udev: bool,
    pub parser: bool,
    /// How long each disk operation takes.
    pub pace: Duration,
    /// One operator for each, and how far its watches are behind.
    pub operators: Vec<Duration>,
    pub steps: Vec<Step>,
    /// A deliberate mistake that the checks must find.
    pub seeded_bug: Option<SeededBug>,
    /// Agents go on renewing their leases every few seconds when all is quiet.
    pub awake: bool,
}

fn volume(world: &World) -> Option<&Value> {
    world.get(Kind::Volume, VOLUME)
}

fn phase(world: &World) -> &str {
    volume(world).and_then(|volume| volume["status"]["phase"].as_str()).unwrap_or_default()
}

fn message(world: &World) -> &str {
    volume(world)
        .and_then(|volume| volume["status"]["conditions"][0]["message"].as_str())
        .unwrap_or_default()
}

fn available(world: &World, _: &Disk) -> bool {
    phase(world) == "Available"
}

fn gone(world: &World, _: &Disk) -> bool {
    volume(world).is_none() && world.get(Kind::Pv, VOLUME).is_none()
}

fn waits_because_bound(world: &World, _: &Disk) -> bool {
    phase(world) == "Terminating" && message(world).contains("is bound to PVC default/c1")
}

/// The device that the status names is the one that the volume is behind now.
fn device_is_true(world: &World, disk: &Disk) -> bool {
    let Some(volume) = volume(world) else { return false };
    let uid = volume["metadata"]["uid"].as_str().unwrap_or_default();
    let named = volume["status"]["deviceName"].as_str().unwrap_or_default();
    let loops: Vec<String> =
        disk.loops_over(uid).iter().map(|number| format!("loop{number}")).collect();
    loops == [named]
        && disk.device_of(uid).is_some_and(|device| device.starts_with(named))
        && phase(world) == "Available"
}

pub(crate) fn mounted(_: &World, disk: &Disk) -> bool {
    !disk.mounts.is_empty()
}

fn pending_with_job(world: &World, _: &Disk) -> bool {
    phase(world) == "Pending"
        && volume(world).is_some_and(|volume| volume["status"]["job"].is_string())
}

/// Best effort: a job whose announcement was lost is first heard of at its end.
fn job_running(world: &World, _: &Disk) -> bool {
    world.all(Kind::Job).any(|job| job["status"]["phase"].is_string())
}

fn failed(world: &World, _: &Disk) -> bool {
    phase(world) == "Failed"
}

fn volume_exists(world: &World, _: &Disk) -> bool {
    volume(world).is_some()
}

/// What the inventory and the discovery's result say of a disk: `Available`, or the state with its reasons.
fn verdict(world: &World, name: &str) -> Option<String> {
    let inventory = world.get(Kind::Inventory, NODE)?;
    let device =
        inventory["status"]["devices"].as_array()?.iter().find(|device| device["name"] == name)?;
    let reasons = device["reasons"].as_array().cloned().unwrap_or_default();
    let reasons: Vec<&str> =
        reasons.iter().filter_map(|reason| reason["reason"].as_str()).collect();
    let state = device["state"].as_str()?;
    let result = world.all(Kind::Result).find(|result| result["spec"]["nodeName"] == NODE)?;
    let row = result["status"]["discoveredDevices"]
        .as_array()?
        .iter()
        .find(|row| row["path"] == format!("/dev/{name}"))?;
    (row["status"]["state"] == state).then(|| [&[state], &reasons[..]].concat().join(" "))
}

/// A late observer finds it settled already.
fn disk_is_seen(world: &World, _: &Disk) -> bool {
    verdict(world, "sda")
        .is_some_and(|verdict| verdict == "Unknown TooNew" || verdict == "Available")
}

fn disk_is_free(world: &World, _: &Disk) -> bool {
    verdict(world, "sda").as_deref() == Some("Available")
}

fn disk_holds_data(world: &World, _: &Disk) -> bool {
    verdict(world, "sda").is_some_and(|verdict| verdict.starts_with("NotAvailable Signature"))
}

fn disk_is_duplicate(world: &World, _: &Disk) -> bool {
    verdict(world, "sdb")
        .is_some_and(|verdict| verdict.starts_with("NotAvailable DuplicateIdentity"))
        && verdict(world, "sda")
            .is_some_and(|verdict| verdict.starts_with("NotAvailable DuplicateIdentity"))
}

fn no_disk(world: &World, _: &Disk) -> bool {
    let rows = |object: &Value, list: &str| {
        object["status"][list].as_array().is_some_and(|rows| rows.len() == 1)
    };
    world.get(Kind::Inventory, NODE).is_some_and(|inventory| rows(inventory, "devices"))
        && world.all(Kind::Result).any(|result| rows(result, "discoveredDevices"))
}

fn discovery() -> Step {
    let discovery = json!({
        "apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeDiscovery",
        "metadata": {"name": "auto-discover-devices", "namespace": names::DEFAULT_NAMESPACE},
    });
    Step::Create(Kind::Discovery, discovery)
}

pub(crate) fn class(fs: &str) -> Step {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer", "parameters": {"fsType": fs}, "mountOptions": ["noatime"],
    });
    Step::Create(Kind::Class, class)
}

pub(crate) fn node() -> Step {
    Step::Create(
        Kind::Node,
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}}),
    )
}

fn wanted(mode: &str) -> Step {
    let volume = json!({
        "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "metadata": {"name": VOLUME},
        "spec": {"nodeName": NODE, "storageClassName": CLASS, "mode": mode, "sparseLoopDevice": {"size": "1Gi"}, "template": {"metadata": {"labels": {"tier": "gold"}}}},
    });
    Step::Create(Kind::Volume, volume)
}

pub(crate) fn pvc(mode: &str) -> Step {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM, "namespace": NAMESPACE},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "volumeMode": mode, "resources": {"requests": {"storage": "1Mi"}}},
    });
    Step::Create(Kind::Pvc, claim)
}

pub(crate) fn story(name: &'static str, steps: Vec<Step>) -> Story {
    Story {
        name,
        udev: true,
        parser: true,
        pace: Duration::ZERO,
        operators: vec![Duration::ZERO],
        steps,
        seeded_bug: None,
        awake: false,
    }
}

/// Created, claimed, used, deleted while bound, released, gone.
pub fn whole_life(fs: &str, mode: &str) -> Vec<Step> {
    vec![
        class(fs),
        node(),
        wanted(mode),
        Step::Await("Available", available),
        pvc(mode),
        Step::StartPod,
        Step::Await("mounted", mounted),
        Step::Delete(Kind::Volume, VOLUME.into()),
        Step::Await("waits because it is bound", waits_because_bound),
        Step::EndPod,
        Step::Delete(Kind::Pvc, CLAIM.into()),
        Step::Await("gone", gone),
    ]
}

/// Every story, by name.
pub fn stories() -> Vec<Story> {
    let devices = device_claim_stories::stories().into_iter().chain(pv_stories::stories());
    volumes().into_iter().chain(devices).collect()
}

fn volumes() -> Vec<Story> {
    let made = |fs: &str, mode: &str| vec![class(fs), node(), wanted(mode)];
    vec![
        story("ext4", whole_life("ext4", "Filesystem")),
        Story { udev: false, ..story("xfs-without-udev", whole_life("xfs", "Filesystem")) },
        Story {
            parser: false,
            udev: false,
            ..story("block-without-parser", whole_life("ext4", "Block"))
        },
        story(
            "deleted-while-pending",
            [
                made("ext4", "Filesystem"),
                vec![
                    Step::Await("Pending with a job", pending_with_job),
                    Step::Delete(Kind::Volume, VOLUME.into()),
                    Step::Await("gone", gone),
                ],
            ]
            .concat(),
        ),
        Story {
            pace: Duration::from_millis(400),
            ..story(
                "deleted-while-running",
                [
                    made("xfs", "Filesystem"),
                    vec![
                        Step::Await("job Running", job_running),
                        Step::Delete(Kind::Volume, VOLUME.into()),
                        Step::Await("gone", gone),
                    ],
                ]
                .concat(),
            )
        },
        story(
            "failed-then-retried",
            [
                vec![Step::BreakTool],
                made("ext4", "Filesystem"),
                vec![
                    Step::Await("Failed", failed),
                    Step::MendTool,
                    Step::Await("Available", available),
                    Step::Delete(Kind::Volume, VOLUME.into()),
                    Step::Await("gone", gone),
                ],
            ]
            .concat(),
        ),
        story(
            "restart-and-reboot",
            [
                made("ext4", "Block"),
                vec![
                    Step::Await("Available", available),
                    Step::RestartAgent,
                    Step::Await("device is true", device_is_true),
                    pvc("Block"),
                    Step::StartPod,
                    Step::Await("mounted", mounted),
                    Step::Reboot,
                    Step::Await("device is true", device_is_true),
                    Step::Await("mounted again", mounted),
                ],
            ]
            .concat(),
        ),
        story(
            "unmanaged-file",
            [
                made("ext4", "Filesystem"),
                vec![
                    Step::Await("exists", volume_exists),
                    Step::PutUnmanagedFile,
                    Step::Await("Failed", failed),
                    Step::RemoveUnmanagedFile,
                    Step::Await("Available", available),
                    Step::Delete(Kind::Volume, VOLUME.into()),
                    Step::Await("gone", gone),
                ],
            ]
            .concat(),
        ),
        story(
            "disk-comes-and-goes",
            vec![
                node(),
                discovery(),
                Step::Plug("sda", RawDisk::new(1)),
                Step::Await("a new disk", disk_is_seen),
                Step::Await("a free disk", disk_is_free),
                Step::Format("sda", Some("ext4")),
                Step::Await("a disk with data", disk_holds_data),
                Step::Format("sda", None),
                Step::Await("a free disk again", disk_is_free),
                Step::RestartAgent,
                Step::Plug("sdb", RawDisk::new(1)),
                Step::Await("two that claim to be one", disk_is_duplicate),
                Step::Unplug("sdb"),
                Step::Await("one alone", disk_is_free),
                Step::Unplug("sda"),
                Step::Await("nothing", no_disk),
                // The result outlives it; and no lease has to be renewed every few seconds while an hour is watched.
                Step::Delete(Kind::Discovery, "auto-discover-devices".into()),
            ],
        ),
        Story {
            operators: vec![Duration::ZERO, Duration::from_secs(3)],
            ..story("two-operators", whole_life("ext4", "Filesystem"))
        },
    ]
}

pub fn find(name: &str) -> Option<Story> {
    stories().into_iter().find(|story| story.name == name)
}
