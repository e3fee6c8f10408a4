//! Lifecycle of a claimed disk with real processes: operator and agent are killed at every
//! failpoint, on real loop devices. An unclaimed neighbor disk is hashed before and after.

use super::kills::Tally;
use k8s_openapi::api::{
    core::v1::{Event, PersistentVolume},
    storage::v1::StorageClass,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use quarry_api::{LocalVolumeSet, NodeInventory, names, node_job::hex_digest, reason::Reason};
use quarry_tests::process::{NODE, Processes, Role, Setup};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(60);
const NAMESPACE: &str = names::DEFAULT_NAMESPACE;
/// An unusual size, because the machine may have other loop devices.
pub const SIZE: u64 = (41 << 20) + 4096 * 7;
const SECRET: &[u8] = b"user data, secret";

pub struct LoopDisk {
    pub file: PathBuf,
    pub device: String,
}

impl LoopDisk {
    pub fn attach(dir: &Path, name: &str, size: u64) -> Self {
        let file = dir.join(name);
        fs::File::create(&file).unwrap().set_len(size).unwrap();
        LoopDisk::over(file)
    }

    pub fn over(file: PathBuf) -> Self {
        let output = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        LoopDisk { file, device: String::from_utf8(output.stdout).unwrap().trim().to_owned() }
    }

    fn write(&self, at: u64) {
        let device = fs::File::options().write(true).open(&self.device).unwrap();
        device.write_all_at(SECRET, at).unwrap();
        device.sync_all().unwrap();
    }

    fn holds_secret(&self) -> bool {
        fs::read(&self.file).unwrap().windows(SECRET.len()).any(|window| window == SECRET)
    }

    fn hash(&self) -> String {
        hex_digest(&[&String::from_utf8_lossy(&fs::read(&self.file).unwrap())])
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if !Command::new("losetup")
            .args(["--detach", &self.device])
            .status()
            .is_ok_and(|status| status.success())
        {
            eprintln!("failed to detach {}", self.device);
        }
    }
}

pub fn sets(processes: &Processes) -> Api<LocalVolumeSet> {
    Api::namespaced(processes.client(), NAMESPACE)
}

pub async fn make_set(processes: &Processes, name: &str, spec: Value) {
    let mut spec = spec;
    spec["storageClassName"] = json!(name);
    spec["deviceInclusionSpec"] =
        json!({"deviceTypes": ["loop"], "minSize": SIZE.to_string(), "maxSize": SIZE.to_string()});
    let set = json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": name}, "spec": spec});
    sets(processes)
        .create(&PostParams::default(), &serde_json::from_value(set).unwrap())
        .await
        .unwrap();
}

pub async fn pvs(processes: &Processes) -> Vec<PersistentVolume> {
    let api: Api<PersistentVolume> = Api::all(processes.client());
    api.list(&ListParams::default()).await.unwrap().items
}

/// Polls; a process that died in the meantime is restarted. Returns whether one had.
pub async fn until(
    processes: &mut Processes,
    what: &str,
    mut wanted: impl AsyncFnMut(&Processes) -> Result<(), String>,
) -> bool {
    let deadline = Instant::now() + LIMIT;
    let mut died = false;
    loop {
        died |= processes.restart_dead().await;
        match wanted(processes).await {
            Ok(()) => return died,
            Err(seen) => {
                assert!(
                    Instant::now() < deadline,
                    "timed out waiting until {what}; last seen: {seen}\n{}",
                    processes.logs()
                )
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The only PersistentVolume: Available, with another UID than `not`.
pub async fn offered(processes: &mut Processes, not: Option<&str>) -> (PersistentVolume, bool) {
    let mut found = None;
    let died = until(processes, "one PersistentVolume is offered", async |processes| {
        let all = pvs(processes).await;
        match all.as_slice() {
            [pv] if pv.metadata.deletion_timestamp.is_none()
                && pv.uid().as_deref() != not
                && phase(pv) == "Available" =>
            {
                found = Some(pv.clone());
                Ok(())
            }
            other => Err(format!(
                "{:?}",
                other
                    .iter()
                    .map(|pv| (
                        pv.name_any(),
                        phase(pv).to_owned(),
                        pv.metadata.deletion_timestamp.is_some()
                    ))
                    .collect::<Vec<_>>()
            )),
        }
    })
    .await;
    (found.unwrap(), died)
}

fn phase(pv: &PersistentVolume) -> &str {
    pv.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// As the binder and a user would: bind, write, release.
async fn use_and_release(processes: &Processes, pv: &PersistentVolume, disk: &LoopDisk) {
    let api: Api<PersistentVolume> = Api::all(processes.client());
    let name = pv.name_any();
    let claim = json!({"spec": {"claimRef": {"namespace": "default", "name": "c", "uid": "11111111-2222-3333-4444-555555555555"}}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(claim)).await.unwrap();
    for phase in ["Bound", "Released"] {
        if phase == "Released" {
            disk.write(20 << 20);
            disk.write(0);
        }
        api.patch_status(
            &name,
            &PatchParams::default(),
            &Patch::Merge(json!({"status": {"phase": phase}})),
        )
        .await
        .unwrap();
    }
}

/// From an attached disk to a PersistentVolume that is used, wiped, offered again and removed.
/// Returns whether a process died.
async fn run_lifecycle(processes: &mut Processes, dir: &Path, number: usize) -> bool {
    let name = format!("life-{number}");
    let disk = LoopDisk::attach(dir, &name, SIZE);
    make_set(processes, &name, json!({"volumeMode": "Block"})).await;
    let (first, mut died) = offered(processes, None).await;
    let link = PathBuf::from(first.spec.as_ref().unwrap().local.as_ref().unwrap().path.clone());
    assert_eq!(
        fs::canonicalize(&link).unwrap(),
        Path::new(&disk.device),
        "the link points to the disk"
    );
    use_and_release(processes, &first, &disk).await;
    let (again, more) = offered(processes, first.uid().as_deref()).await;
    died |= more;
    assert_eq!(again.name_any(), first.name_any());
    assert!(!disk.holds_secret(), "nothing of the old data is left");
    sets(processes).delete(&name, &DeleteParams::default()).await.unwrap();
    died |= until(processes, "the LocalVolumeSet is deleted", async |processes| {
        match sets(processes).get_opt(&name).await.unwrap() {
            None => Ok(()),
            Some(set) => Err(json!(set.status).to_string()),
        }
    })
    .await;
    assert_eq!(pvs(processes).await.len(), 0, "no PersistentVolume is left");
    assert!(fs::symlink_metadata(&link).is_err(), "no link is left");
    let classes: Api<StorageClass> = Api::all(processes.client());
    assert!(
        classes.get_opt(&name).await.unwrap().is_none(),
        "our StorageClass is deleted with its LocalVolumeSet"
    );
    let inventory = Api::<NodeInventory>::all(processes.client()).get(NODE).await.unwrap();
    assert_eq!(inventory.spec.device_claims, [], "no device claim is left");
    died
}

pub async fn inventory(processes: &Processes) -> NodeInventory {
    let api: Api<NodeInventory> = Api::all(processes.client());
    api.get(NODE).await.unwrap()
}

/// Whether an Event with this reason and text exists.
pub async fn event_exists(processes: &Processes, reason: &str, words: &str) -> Result<(), String> {
    let api: Api<Event> = Api::all(processes.client());
    let all = api.list(&ListParams::default()).await.unwrap().items;
    let found = all.iter().any(|event| {
        event.reason.as_deref() == Some(reason)
            && event.message.as_deref().unwrap_or_default().contains(words)
    });
    found.then_some(()).ok_or_else(|| {
        format!(
            "{:?}",
            all.into_iter().map(|event| (event.reason, event.message)).collect::<Vec<_>>()
        )
    })
}

/// The PersistentVolume is bound and released after its LocalVolumeSet was force-deleted: no owner
/// requests the wipe, and this must be reported.
#[tokio::test]
async fn released_pv_without_its_set_waits_and_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = Processes::start_as(dir.path(), Setup::claims()).await;
    let disk = LoopDisk::attach(dir.path(), "orphan", SIZE);
    make_set(&processes, "orphan", json!({"volumeMode": "Block"})).await;
    let (pv, _) = offered(&mut processes, None).await;
    until(&mut processes, "the DeviceSummary of the node is published", async |processes| {
        event_exists(processes, "DeviceSummary", "Available 1").await
    })
    .await;
    use_and_release(&processes, &pv, &disk).await;
    let torn = json!({"metadata": {"finalizers": null}});
    sets(&processes).patch("orphan", &PatchParams::default(), &Patch::Merge(torn)).await.unwrap();
    sets(&processes).delete("orphan", &DeleteParams::default()).await.unwrap();
    // Either it was wiped before its LocalVolumeSet was deleted, or it waits and reports that.
    until(&mut processes, "it is reported, or wiped", async |processes| {
        let over = pvs(processes).await.is_empty()
            && inventory(processes).await.spec.device_claims.is_empty();
        if over {
            Ok(())
        } else {
            event_exists(processes, "OwnerGone", "set its persistentVolumeReclaimPolicy to Retain")
                .await
        }
    })
    .await;
    let api: Api<PersistentVolume> = Api::all(processes.client());
    if let [waiting] = pvs(&processes).await.as_slice() {
        let keep = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
        api.patch(&waiting.name_any(), &PatchParams::default(), &Patch::Merge(keep)).await.unwrap();
    }
    until(&mut processes, "nothing is left of it", async |processes| {
        let spec = inventory(processes).await.spec;
        let erased = !disk.holds_secret();
        let over = pvs(processes).await.is_empty()
            && spec.device_claims.is_empty()
            && (erased || spec.retained_data.len() == 1);
        over.then_some(()).ok_or(format!("{spec:?}"))
    })
    .await;
    processes.stop().await;
}

/// Both ends of the disk are zero, and its middle has user data: only the record distinguishes it
/// from a new disk.
// invariant: 1
#[tokio::test]
async fn disk_of_a_force_deleted_pv_stays_blocked() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = Processes::start_as(dir.path(), Setup::claims()).await;
    let disk = LoopDisk::attach(dir.path(), "torn", SIZE);
    make_set(&processes, "torn", json!({"volumeMode": "Block"})).await;
    let (pv, _) = offered(&mut processes, None).await;
    let (name, uid) = (pv.name_any(), pv.uid().unwrap());
    let api: Api<PersistentVolume> = Api::all(processes.client());
    let claim = json!({"spec": {"claimRef": {"namespace": "default", "name": "c", "uid": "11111111-2222-3333-4444-555555555555"}}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(claim)).await.unwrap();
    api.patch_status(
        &name,
        &PatchParams::default(),
        &Patch::Merge(json!({"status": {"phase": "Bound"}})),
    )
    .await
    .unwrap();
    disk.write(20 << 20);
    until(&mut processes, "its use is recorded", async |processes| {
        let spec = inventory(processes).await.spec;
        spec.device_claims
            .iter()
            .any(|claim| claim.last_pv.as_ref().is_some_and(|last| last.uid == uid))
            .then_some(())
            .ok_or(format!("{:?}", spec.device_claims))
    })
    .await;

    api.patch(
        &name,
        &PatchParams::default(),
        &Patch::Merge(json!({"metadata": {"finalizers": null}})),
    )
    .await
    .unwrap();
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    until(
        &mut processes,
        "the device claim is removed, and the disk is not available",
        async |processes| {
            let found = inventory(processes).await;
            let status = found.status.unwrap_or_default();
            let explained =
                status.devices.iter().flat_map(|device| &device.reasons).any(|entry| {
                    entry.reason == Reason::RetainedData && entry.detail.contains(&uid)
                });
            let free = found.spec.device_claims.is_empty() && pvs(processes).await.is_empty();
            (explained && free && found.spec.retained_data.len() == 1)
                .then_some(())
                .ok_or(format!("{:?} {:?}", found.spec, status.devices))
        },
    )
    .await;
    assert!(disk.holds_secret());

    let inventories: Api<NodeInventory> = Api::all(processes.client());
    let forget =
        json!({"metadata": {"annotations": {names::FORGET_RETAINED_DATA_ANNOTATION: uid}}});
    inventories.patch(NODE, &PatchParams::default(), &Patch::Merge(forget)).await.unwrap();
    let (again, _) = offered(&mut processes, Some(&uid)).await;
    assert_eq!(again.name_any(), name);
    assert!(inventory(&processes).await.spec.retained_data.is_empty());
    sets(&processes).delete("torn", &DeleteParams::default()).await.unwrap();
    until(&mut processes, "everything is deleted", async |processes| {
        let deleted = pvs(processes).await.is_empty()
            && inventory(processes).await.spec.device_claims.is_empty();
        deleted.then_some(()).ok_or_else(String::new)
    })
    .await;
    processes.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claimed_disk_survives_a_kill_at_every_failpoint() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = Processes::start_as(dir.path(), Setup::claims()).await;
    // An unclaimed disk, full of data.
    let neighbor = LoopDisk::attach(dir.path(), "neighbor", 40 << 20);
    (0..40).for_each(|mebibyte| neighbor.write(mebibyte << 20));
    let before = neighbor.hash();
    let reached = |name: &&&str| {
        ["claim-", "confirm.", "wipe.", "ledger.", "status.finished", "inventory."]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    let agent = quarry_node::failpoints::ALL
        .iter()
        .filter(reached)
        .map(|name| (Role::Agent, (*name).to_owned()));
    let operator = quarry_operator::writer::FAILPOINTS
        .iter()
        .flat_map(|name| (1..=3).map(move |hit| (Role::Operator, format!("{name}:{hit}"))));
    let mut tally = Tally::default();
    for (role, point) in agent.chain(operator) {
        processes.restart(role, Some(&point)).await;
        let died = run_lifecycle(&mut processes, dir.path(), tally.runs).await;
        tally.add(&point, died);
    }
    assert_eq!(neighbor.hash(), before, "the neighbor was never written to");
    processes.stop().await;
    // A loop device supports discard: nothing is zeroed block by block here (`wipe.rs` tests that).
    let elsewhere = ["wipe.zeroing", "wipe.overwritten"];
    tally.assert_all_reached("lifecycle of claimed disks", &elsewhere);
}

// invariant: 3
#[tokio::test(flavor = "multi_thread")]
async fn fifty_sets_share_the_same_disks_without_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = Processes::start_as(dir.path(), Setup::claims()).await;
    let disks: Vec<LoopDisk> = (0..12)
        .map(|number| LoopDisk::attach(dir.path(), &format!("disk-{number}"), SIZE))
        .collect();
    for number in 0..50 {
        make_set(&processes, &format!("set-{number:02}"), json!({"maxDeviceCount": 1})).await;
    }
    until(&mut processes, "every disk is offered once", async |processes| {
        let found = pvs(processes).await.len();
        if found == disks.len() { Ok(()) } else { Err(format!("{found} PersistentVolumes")) }
    })
    .await;
    let mut owners: Vec<String> = pvs(&processes)
        .await
        .iter()
        .map(|pv| pv.labels()["storage.openshift.com/owner-name"].clone())
        .collect();
    let mut targets: Vec<PathBuf> = pvs(&processes)
        .await
        .iter()
        .map(|pv| {
            fs::canonicalize(&pv.spec.as_ref().unwrap().local.as_ref().unwrap().path).unwrap()
        })
        .collect();
    owners.sort();
    owners.dedup();
    targets.sort();
    targets.dedup();
    assert_eq!((owners.len(), targets.len()), (12, 12), "{owners:?} {targets:?}");
    until(&mut processes, "a set without a disk reports who has them", async |processes| {
        let waiting = sets(processes).list(&ListParams::default()).await.unwrap().items;
        let empty = waiting.iter().filter(|set| {
            set.status
                .as_ref()
                .is_some_and(|status| status.total_provisioned_device_count == Some(0))
        });
        let explained =
            empty.filter(|set| json!(set.status).to_string().contains("has it")).count();
        if explained == 38 { Ok(()) } else { Err(format!("{explained} of 38")) }
    })
    .await;
    for set in sets(&processes).list(&ListParams::default()).await.unwrap().items {
        sets(&processes).delete(&set.name_any(), &DeleteParams::default()).await.unwrap();
    }
    until(&mut processes, "all are deleted", async |processes| {
        let left = sets(processes).list(&ListParams::default()).await.unwrap().items.len();
        if left == 0 { Ok(()) } else { Err(format!("{left} sets")) }
    })
    .await;
    processes.stop().await;
}
