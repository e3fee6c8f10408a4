//! The life of a claimed disk on real parts: operator and agent as processes, killed at every failpoint, on real loop
//! devices. A neighbour that nobody asked for is hashed before and after.

use k8s_openapi::api::{
    core::v1::{Event, PersistentVolume},
    storage::v1::StorageClass,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use quarry_api::{LocalVolumeSet, NodeInventory, names, node_job::hex_digest, reason::Reason};
use quarry_tests::process::{NODE, Parts, Setup, Victim};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(60);
const NAMESPACE: &str = names::DEFAULT_NAMESPACE;
/// A size of our own: the machine may have other loop devices.
const SIZE: u64 = (41 << 20) + 4096 * 7;
const SECRET: &[u8] = b"somebody's data";

struct LoopDisk {
    file: PathBuf,
    device: String,
}

impl LoopDisk {
    fn attach(folder: &Path, name: &str, size: u64) -> Self {
        let file = folder.join(name);
        fs::File::create(&file).unwrap().set_len(size).unwrap();
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
            eprintln!("{} could not be detached", self.device);
        }
    }
}

fn sets(parts: &Parts) -> Api<LocalVolumeSet> {
    Api::namespaced(parts.client(), NAMESPACE)
}

async fn make_set(parts: &Parts, name: &str, spec: Value) {
    let mut spec = spec;
    spec["storageClassName"] = json!(name);
    spec["deviceInclusionSpec"] =
        json!({"deviceTypes": ["loop"], "minSize": SIZE.to_string(), "maxSize": SIZE.to_string()});
    let set = json!({"apiVersion": "local.storage.openshift.io/v1alpha1", "kind": "LocalVolumeSet", "metadata": {"name": name}, "spec": spec});
    sets(parts)
        .create(&PostParams::default(), &serde_json::from_value(set).unwrap())
        .await
        .unwrap();
}

async fn pvs(parts: &Parts) -> Vec<PersistentVolume> {
    let api: Api<PersistentVolume> = Api::all(parts.client());
    api.list(&ListParams::default()).await.unwrap().items
}

/// Polls; whoever has died meanwhile is started again. Returns whether somebody had.
async fn until(
    parts: &mut Parts,
    what: &str,
    mut wanted: impl AsyncFnMut(&Parts) -> Result<(), String>,
) -> bool {
    let deadline = Instant::now() + LIMIT;
    let mut died = false;
    loop {
        died |= parts.revive().await;
        match wanted(parts).await {
            Ok(()) => return died,
            Err(seen) => {
                assert!(Instant::now() < deadline, "{what}? last seen: {seen}\n{}", parts.logs())
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// One PersistentVolume, free, that is not the one of this UID.
async fn offered(parts: &mut Parts, not: Option<&str>) -> (PersistentVolume, bool) {
    let mut found = None;
    let died = until(parts, "one PersistentVolume is offered", async |parts| {
        let all = pvs(parts).await;
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

/// As the binder and a user would: bound, written to, released.
async fn use_and_release(parts: &Parts, pv: &PersistentVolume, disk: &LoopDisk) {
    let api: Api<PersistentVolume> = Api::all(parts.client());
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

/// From a plugged disk to a volume, used, wiped, offered again, and away. Whether a process died on the way.
async fn whole_life(parts: &mut Parts, folder: &Path, number: usize) -> bool {
    let name = format!("life-{number}");
    let disk = LoopDisk::attach(folder, &name, SIZE);
    make_set(parts, &name, json!({"volumeMode": "Block"})).await;
    let (first, mut died) = offered(parts, None).await;
    let link = PathBuf::from(first.spec.as_ref().unwrap().local.as_ref().unwrap().path.clone());
    assert_eq!(
        fs::canonicalize(&link).unwrap(),
        Path::new(&disk.device),
        "the link leads to the disk"
    );
    use_and_release(parts, &first, &disk).await;
    let (again, more) = offered(parts, first.uid().as_deref()).await;
    died |= more;
    assert_eq!(again.name_any(), first.name_any());
    assert!(!disk.holds_secret(), "nothing of the old data is left");
    sets(parts).delete(&name, &DeleteParams::default()).await.unwrap();
    died |= until(parts, "the set is gone", async |parts| {
        match sets(parts).get_opt(&name).await.unwrap() {
            None => Ok(()),
            Some(set) => Err(json!(set.status).to_string()),
        }
    })
    .await;
    assert_eq!(pvs(parts).await.len(), 0, "no PersistentVolume is left");
    assert!(fs::symlink_metadata(&link).is_err(), "no link is left");
    let classes: Api<StorageClass> = Api::all(parts.client());
    assert!(classes.get_opt(&name).await.unwrap().is_none(), "our StorageClass goes with its set");
    let inventory = Api::<NodeInventory>::all(parts.client()).get(NODE).await.unwrap();
    assert_eq!(inventory.spec.device_claims, [], "no claim is left");
    died
}

async fn inventory(parts: &Parts) -> NodeInventory {
    let api: Api<NodeInventory> = Api::all(parts.client());
    api.get(NODE).await.unwrap()
}

/// Whether somebody was told this, in these words.
async fn told(parts: &Parts, reason: &str, words: &str) -> Result<(), String> {
    let api: Api<Event> = Api::all(parts.client());
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

/// Bound and released, its set torn away meanwhile: nobody asks for the wipe, and somebody has to be told.
#[tokio::test]
async fn a_volume_whose_set_was_torn_away_waits_for_a_word_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = Parts::start_as(folder.path(), Setup::claims()).await;
    let disk = LoopDisk::attach(folder.path(), "orphan", SIZE);
    make_set(&parts, "orphan", json!({"volumeMode": "Block"})).await;
    let (pv, _) = offered(&mut parts, None).await;
    until(&mut parts, "the account of the node is told", async |parts| {
        told(parts, "DeviceSummary", "Provisioned 1").await
    })
    .await;
    use_and_release(&parts, &pv, &disk).await;
    let torn = json!({"metadata": {"finalizers": null}});
    sets(&parts).patch("orphan", &PatchParams::default(), &Patch::Merge(torn)).await.unwrap();
    sets(&parts).delete("orphan", &DeleteParams::default()).await.unwrap();
    // Either it was wiped before its set was gone, or it waits and says so.
    until(&mut parts, "it is told, or over", async |parts| {
        let over =
            pvs(parts).await.is_empty() && inventory(parts).await.spec.device_claims.is_empty();
        if over {
            Ok(())
        } else {
            told(parts, "OwnerGone", "set its persistentVolumeReclaimPolicy to Retain").await
        }
    })
    .await;
    let api: Api<PersistentVolume> = Api::all(parts.client());
    if let [waiting] = pvs(&parts).await.as_slice() {
        let keep = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
        api.patch(&waiting.name_any(), &PatchParams::default(), &Patch::Merge(keep)).await.unwrap();
    }
    until(&mut parts, "nothing is left of it", async |parts| {
        let spec = inventory(parts).await.spec;
        let erased = !disk.holds_secret();
        let over = pvs(parts).await.is_empty()
            && spec.device_claims.is_empty()
            && (erased || spec.retained_data.len() == 1);
        over.then_some(()).ok_or(format!("{spec:?}"))
    })
    .await;
    parts.stop().await;
}

/// Both ends of the disk are zero, and its middle is somebody's: only what is on record tells it from a new one.
#[tokio::test]
async fn a_volume_that_is_torn_away_leaves_its_disk_to_nobody_until_somebody_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = Parts::start_as(folder.path(), Setup::claims()).await;
    let disk = LoopDisk::attach(folder.path(), "torn", SIZE);
    make_set(&parts, "torn", json!({"volumeMode": "Block"})).await;
    let (pv, _) = offered(&mut parts, None).await;
    let (name, uid) = (pv.name_any(), pv.uid().unwrap());
    let api: Api<PersistentVolume> = Api::all(parts.client());
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
    until(&mut parts, "its use is on record", async |parts| {
        let spec = inventory(parts).await.spec;
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
    until(&mut parts, "the claim has ended, and the disk is nobody's", async |parts| {
        let found = inventory(parts).await;
        let status = found.status.unwrap_or_default();
        let told = status
            .devices
            .iter()
            .flat_map(|device| &device.reasons)
            .any(|told| told.reason == Reason::RetainedData && told.detail.contains(&uid));
        let free = found.spec.device_claims.is_empty() && pvs(parts).await.is_empty();
        (told && free && found.spec.retained_data.len() == 1)
            .then_some(())
            .ok_or(format!("{:?} {:?}", found.spec, status.devices))
    })
    .await;
    assert!(disk.holds_secret());

    let inventories: Api<NodeInventory> = Api::all(parts.client());
    let forget =
        json!({"metadata": {"annotations": {names::FORGET_RETAINED_DATA_ANNOTATION: uid}}});
    inventories.patch(NODE, &PatchParams::default(), &Patch::Merge(forget)).await.unwrap();
    let (again, _) = offered(&mut parts, Some(&uid)).await;
    assert_eq!(again.name_any(), name);
    assert!(inventory(&parts).await.spec.retained_data.is_empty());
    sets(&parts).delete("torn", &DeleteParams::default()).await.unwrap();
    until(&mut parts, "everything is gone", async |parts| {
        let gone =
            pvs(parts).await.is_empty() && inventory(parts).await.spec.device_claims.is_empty();
        gone.then_some(()).ok_or_else(String::new)
    })
    .await;
    parts.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_failpoint_the_life_of_a_disk_ends_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = Parts::start_as(folder.path(), Setup::claims()).await;
    // One that is not asked for, with data all over it.
    let neighbour = LoopDisk::attach(folder.path(), "neighbour", 40 << 20);
    (0..40).for_each(|mebibyte| neighbour.write(mebibyte << 20));
    let before = neighbour.hash();
    let reached = |name: &&&str| {
        ["claim-", "confirm.", "wipe.", "ledger.", "status.finished", "inventory."]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    let agent = quarry_node::failpoints::ALL
        .iter()
        .filter(reached)
        .map(|name| (Victim::Agent, (*name).to_owned()));
    let operator = quarry_operator::writer::FAILPOINTS
        .iter()
        .flat_map(|name| (1..=3).map(move |hit| (Victim::Operator, format!("{name}:{hit}"))));
    let (mut deaths, mut runs): (BTreeMap<String, usize>, usize) = (BTreeMap::new(), 0);
    for (victim, point) in agent.chain(operator) {
        parts.restart(victim, Some(&point)).await;
        let died = whole_life(&mut parts, folder.path(), runs).await;
        *deaths.entry(point.split(':').next().unwrap_or_default().to_owned()).or_default() +=
            usize::from(died);
        runs += 1;
    }
    assert_eq!(neighbour.hash(), before, "the neighbour was never touched");
    parts.stop().await;
    let total: usize = deaths.values().sum();
    let reached = deaths.values().filter(|count| **count > 0).count();
    println!(
        "figure: crash story of claimed disks: {runs} runs, {total} deaths at {reached} of {} failpoints, every run ended the same",
        deaths.len()
    );
    // A loop device can discard: nothing is zeroed block by block here (`wipe.rs` does).
    let missed: Vec<&String> = deaths
        .iter()
        .filter(|(name, count)| {
            **count == 0 && !["wipe.zeroing", "wipe.overwritten"].contains(&name.as_str())
        })
        .map(|(name, _)| name)
        .collect();
    assert!(
        missed.is_empty(),
        "no process died at {missed:?}: a failpoint that nothing reaches proves nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_sets_that_want_the_same_disks_share_them_without_a_quarrel() {
    let folder = tempfile::tempdir().unwrap();
    let mut parts = Parts::start_as(folder.path(), Setup::claims()).await;
    let disks: Vec<LoopDisk> = (0..12)
        .map(|number| LoopDisk::attach(folder.path(), &format!("disk-{number}"), SIZE))
        .collect();
    for number in 0..50 {
        make_set(&parts, &format!("set-{number:02}"), json!({"maxDeviceCount": 1})).await;
    }
    until(&mut parts, "every disk is offered once", async |parts| {
        let found = pvs(parts).await.len();
        if found == disks.len() { Ok(()) } else { Err(format!("{found} PersistentVolumes")) }
    })
    .await;
    let mut owners: Vec<String> = pvs(&parts)
        .await
        .iter()
        .map(|pv| pv.labels()["storage.openshift.com/owner-name"].clone())
        .collect();
    let mut targets: Vec<PathBuf> = pvs(&parts)
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
    until(&mut parts, "one without a disk says who has them", async |parts| {
        let waiting = sets(parts).list(&ListParams::default()).await.unwrap().items;
        let empty = waiting.iter().filter(|set| {
            set.status
                .as_ref()
                .is_some_and(|status| status.total_provisioned_device_count == Some(0))
        });
        let told = empty.filter(|set| json!(set.status).to_string().contains("has it")).count();
        if told == 38 { Ok(()) } else { Err(format!("{told} of 38")) }
    })
    .await;
    for set in sets(&parts).list(&ListParams::default()).await.unwrap().items {
        sets(&parts).delete(&set.name_any(), &DeleteParams::default()).await.unwrap();
    }
    until(&mut parts, "all are gone", async |parts| {
        let left = sets(parts).list(&ListParams::default()).await.unwrap().items.len();
        if left == 0 { Ok(()) } else { Err(format!("{left} sets")) }
    })
    .await;
    parts.stop().await;
}
