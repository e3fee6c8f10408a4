//! A wipe and the API: the API is read before the device is opened and again while it is held;
//! changes in between count.

use super::{
    device_claims::Ground,
    devices::{Loop, file},
    exported_file::ExportedFile,
    wipe::{fill, has_begun},
};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use quarry_api::{
    LocalVolumeSet, NodeInventory, NodeJob, names,
    node_inventory::{DeviceClaim, Quarantine},
    node_job::{JobPhase, WipePolicy},
};
use quarry_core::job::JobOutcome;
use quarry_node::{
    Agent, AgentOptions, HeldDevice,
    agent::{RunResult, Workers},
};
use quarry_tests::{
    device_claim::{NODE, SET, World},
    disk::run,
    hooked_node::{HookedNode, Hooks},
};
use rustix::process::Signal;
use serde_json::json;
use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

/// Reports to the test when the device is held for the first time, and waits until the test
/// continues it.
struct PauseOnHold(Mutex<Option<(Sender<()>, Receiver<()>)>>);

impl Hooks for PauseOnHold {
    fn after_hold(&self, device: Box<dyn HeldDevice>) -> Box<dyn HeldDevice> {
        if let Some((held, go_on)) = self.0.lock().unwrap().take() {
            held.send(()).unwrap();
            go_on.recv().unwrap();
        }
        device
    }
}

struct Scene<'a> {
    world: &'a World,
    claim: DeviceClaim,
    pv: String,
    job: String,
}

impl Scene<'_> {
    async fn patch_pv(&self, patch: serde_json::Value) {
        self.world
            .all::<PersistentVolume>()
            .patch(&self.pv, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    async fn patch_inventory(&self, patch: serde_json::Value) {
        self.world
            .all::<NodeInventory>()
            .patch(NODE, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }
}

/// Runs the job until the device is held, runs `meanwhile`, and continues the job.
async fn run_with(
    ground: &Ground,
    device: &Loop,
    meanwhile: impl AsyncFnOnce(&Scene<'_>),
) -> (Result<RunResult, String>, Option<NodeJob>) {
    let world = World::new().await;
    let claim = quarry_tests::device_claim::claim_of(&ground.facts(device), world.owner());
    world.claim(std::slice::from_ref(&claim)).await;
    let pv = world.release(&claim).await;
    let job = world.wipe_job(&claim, &pv, WipePolicy::Zero).await;
    let ((held, is_held), (go_on, waits)) = (channel(), channel());
    let hooks = PauseOnHold(Mutex::new(Some((held, waits))));
    let ops = Arc::new(HookedNode { ops: ground.ops.clone(), hooks });
    let options =
        AgentOptions { progress_after: Duration::from_secs(60), ..AgentOptions::new(NODE) };
    let agent = Agent::new(world.client.clone(), ops, Workers::pool(2).unwrap(), options);
    let running = {
        let job = job.clone();
        tokio::spawn(async move { agent.run_job(&job).await.map_err(|error| error.message()) })
    };
    tokio::task::spawn_blocking(move || is_held.recv().unwrap()).await.unwrap();
    let scene = Scene { world: &world, claim, pv: pv.name_any(), job: job.name_any() };
    meanwhile(&scene).await;
    go_on.send(()).unwrap();
    let ran = running.await.unwrap();
    let job = world.all::<NodeJob>().get_opt(&scene.job).await.unwrap();
    (ran, job)
}

fn intents(ground: &Ground) -> usize {
    fs::read_to_string(ground.bed.data.join("ledger"))
        .unwrap_or_default()
        .lines()
        .filter(|line| line.contains("\"intent\""))
        .count()
}

fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

/// A change while the device is held fails the job; nothing is written, and no intent is recorded.
async fn refused(
    ground: &Ground,
    device: &Loop,
    path: &Path,
    words: &str,
    meanwhile: impl AsyncFnOnce(&Scene<'_>),
) {
    let before = bytes(path);
    let (ran, job) = run_with(ground, device, meanwhile).await;
    let why = match ran {
        Ok(RunResult::Finished(JobOutcome::Failed(why))) => why,
        Ok(RunResult::Gone) => "the job is gone".to_owned(),
        other => panic!("{words}: {other:?}"),
    };
    assert!(why.contains(words), "{words}: {why}");
    if let Some(job) = job {
        assert_eq!(job.status.and_then(|status| status.phase), Some(JobPhase::Failed), "{words}");
    }
    assert!(bytes(path) == before, "{words}: a byte was written");
    assert_eq!(intents(ground), 0, "{words}: nothing was meant");
    super::device_claims::assert_free(device);
}

// invariant: 2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_is_read_again_while_the_device_is_held() {
    let ground = Ground::new().await;
    let (device, path) = ground.disk("d", 8 << 20);
    run("mkfs.ext4", &["-q", "-F", &device.dev()]);
    refused(&ground, &device, &path, "was replaced by another", async |scene: &Scene<'_>| {
        let sets: Api<LocalVolumeSet> =
            Api::namespaced(scene.world.client.clone(), names::DEFAULT_NAMESPACE);
        sets.delete(SET, &DeleteParams::default()).await.unwrap();
        scene.world.make_set().await;
    })
    .await;
    refused(&ground, &device, &path, "no longer exists", async |scene: &Scene<'_>| {
        let sets: Api<LocalVolumeSet> =
            Api::namespaced(scene.world.client.clone(), names::DEFAULT_NAMESPACE);
        sets.delete(SET, &DeleteParams::default()).await.unwrap();
    })
    .await;
    refused(&ground, &device, &path, "is not claimed any more", async |scene: &Scene<'_>| {
        scene.patch_inventory(json!({"spec": {"deviceClaims": null}})).await
    })
    .await;
    refused(&ground, &device, &path, "the device claim was changed", async |scene: &Scene<'_>| {
        scene
            .patch_inventory(
                json!({"spec": {"deviceClaims": [DeviceClaim { round: 2, ..scene.claim.clone() }]}}),
            )
            .await;
    })
    .await;
    refused(&ground, &device, &path, "keeps its data", async |scene: &Scene<'_>| {
        scene.patch_pv(json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})).await
    })
    .await;
    refused(&ground, &device, &path, "is gone, or is another one", async |scene: &Scene<'_>| {
        scene.patch_pv(json!({"metadata": {"finalizers": null}})).await
    })
    .await;
    refused(&ground, &device, &path, "still exists", async |scene: &Scene<'_>| {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(scene.world.client.clone(), "default");
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = scene.world.all();
        let namespace = k8s_openapi::api::core::v1::Namespace { metadata: quarry_tests::device_claim::meta("default"), ..Default::default() };
        let _ = namespaces.create(&PostParams::default(), &namespace).await;
        let claim = serde_json::from_value(json!({
            "metadata": {"name": "pod-data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
        }))
        .unwrap();
        let claim = claims.create(&PostParams::default(), &claim).await.unwrap();
        scene.patch_pv(json!({"spec": {"claimRef": {"uid": claim.uid()}}})).await;
    })
    .await;
    refused(&ground, &device, &path, "the job is gone", async |scene: &Scene<'_>| {
        drop(
            scene
                .world
                .all::<NodeJob>()
                .delete(&scene.job, &DeleteParams::default())
                .await
                .unwrap(),
        );
    })
    .await;
    // The operator has new information about the device: it is checked again, with that.
    refused(&ground, &device, &path, "is quarantined", async |scene: &Scene<'_>| {
        let entry = Quarantine {
            identity: scene.claim.identity.clone(),
            reason: "IdentityElsewhere".into(),
            detail: "sdx of node n2".into(),
        };
        scene.patch_inventory(json!({"spec": {"quarantine": [entry]}})).await;
    })
    .await;
    // A change that does not concern the device does not stop the wipe.
    let (ran, job) = run_with(&ground, &device, async |scene: &Scene<'_>| {
        scene
            .patch_inventory(
                json!({"spec": {"unmanagedPVs": [{"name": "p", "path": "/mnt/somewhere"}]}}),
            )
            .await;
    })
    .await;
    assert_eq!(ran, Ok(RunResult::Finished(JobOutcome::Erased("zeroed".into()))));
    assert_eq!(job.unwrap().status.unwrap().message.as_deref(), Some("zeroed"));
    assert!(bytes(&path).iter().all(|byte| *byte == 0));
    assert_eq!(intents(&ground), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_wipe_reports_its_progress() {
    let ground = Ground::new().await;
    let path = file(ground.directory.path(), "image", 256 << 20);
    fill(&path);
    let export = ground.directory.path().join("export");
    let cable = Arc::new(ExportedFile::new(&path, &export));
    let device = Loop::new(&export);
    let world = World::new().await;
    let claim = quarry_tests::device_claim::claim_of(&ground.facts(&device), world.owner());
    world.claim(std::slice::from_ref(&claim)).await;
    let pv = world.release(&claim).await;
    let job = world.wipe_job(&claim, &pv, WipePolicy::Zero).await;
    let jobs: Api<NodeJob> = world.all();
    // Every status the agent writes, not only those that exist when the test reads.
    let watched = tokio::spawn({
        let mut words =
            Box::pin(watcher(jobs.clone(), watcher::Config::default()).applied_objects());
        async move {
            let mut seen = Vec::new();
            while let Some(job) = words.try_next().await.unwrap() {
                let status = job.status.unwrap_or_default();
                if status.phase.is_some_and(JobPhase::finished) {
                    break;
                }
                seen.extend(
                    status.progress.map(|percent| (percent, status.message.unwrap_or_default())),
                );
            }
            seen
        }
    });
    let options = AgentOptions {
        progress_after: Duration::from_millis(1),
        progress_every: Duration::from_millis(2),
        ..AgentOptions::new(NODE)
    };
    let agent =
        Agent::new(world.client.clone(), ground.ops.clone(), Workers::pool(2).unwrap(), options);
    let running = {
        let job = job.clone();
        tokio::spawn(async move { agent.run_job(&job).await.unwrap() })
    };
    // A slow disk: it responds for a tenth of the time.
    let slow = std::thread::spawn({
        let (cable, path, running) = (Arc::clone(&cable), path.clone(), running.abort_handle());
        move || {
            while !running.is_finished() {
                if has_begun(&path) {
                    cable.signal(Signal::STOP);
                    std::thread::sleep(Duration::from_millis(20));
                    cable.signal(Signal::CONT);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
    assert_eq!(running.await.unwrap(), RunResult::Finished(JobOutcome::Erased("zeroed".into())));
    slow.join().unwrap();
    let seen = watched.await.unwrap();
    assert!(
        seen.is_sorted()
            && !seen.is_empty()
            && seen.iter().all(|(percent, _)| (1..100).contains(percent)),
        "{seen:?}"
    );
    assert!(seen.iter().all(|(_, words)| *words == format!("zeroing {}", device.name)), "{seen:?}");
    let status = jobs.get(&job.name_any()).await.unwrap().status.unwrap();
    assert_eq!(
        (status.phase, status.progress, status.message.as_deref()),
        (Some(JobPhase::Succeeded), None, Some("zeroed"))
    );
    drop(device);
    let _ = std::process::Command::new("umount").arg("-l").arg(&export).output();
}
