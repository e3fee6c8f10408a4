//! A wipe and the API: asked before the device is opened and again while it is held; what changes between counts.

use super::{
    device_claims::Ground,
    devices::{Loop, file},
    wipe::{Cable, fill, has_begun},
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
    node_inventory::{DeviceClaim, Quarantine, RetainedData},
    node_job::{JobPhase, WipePolicy},
};
use quarry_core::sparse::{Observed, Step};
use quarry_node::{
    Agent, AgentOptions, HeldDevice, HoldRequest, Intent, LinuxNode, NodeError, NodeOps, NodeScan,
    Outcome, ScanRequest,
    agent::{RunResult, Workers},
};
use quarry_tests::{
    device_claim::{NODE, SET, World},
    disk::run,
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

/// The node's own hands; whoever tests is told when the device is held for the first time, and says when to go on.
struct Between {
    ops: Arc<LinuxNode>,
    pause: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl NodeOps for Between {
    fn look(&self, uid: &str) -> Result<Observed, NodeError> {
        self.ops.look(uid)
    }
    fn act(&self, uid: &str, step: &Step) -> Result<(), NodeError> {
        self.ops.act(uid, step)
    }
    fn record_intent(&self, entry: &Intent) -> Result<(), NodeError> {
        self.ops.record_intent(entry)
    }
    fn record_outcome(&self, entry: &Outcome) -> Result<(), NodeError> {
        self.ops.record_outcome(entry)
    }
    fn known_volumes(&self) -> Result<Vec<String>, NodeError> {
        self.ops.known_volumes()
    }
    fn scan_node(&self, request: &ScanRequest) -> Result<NodeScan, NodeError> {
        self.ops.scan_node(request)
    }
    fn record_retained(&self, kept: &[RetainedData]) -> Result<(), NodeError> {
        self.ops.record_retained(kept)
    }
    fn hold(&self, request: &HoldRequest) -> Result<Box<dyn HeldDevice>, NodeError> {
        let held = self.ops.hold(request)?;
        if let Some((held, go_on)) = self.pause.lock().unwrap().take() {
            held.send(()).unwrap();
            go_on.recv().unwrap();
        }
        Ok(held)
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

/// Runs the job up to where the device is held, lets `meanwhile` happen, and lets it go on.
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
    let ops = Arc::new(Between { ops: ground.ops.clone(), pause: Mutex::new(Some((held, waits))) });
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

/// What happens while the device is held ends the job; nothing is written, and nothing was meant.
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
        Ok(RunResult::Failed(why)) => why,
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_is_asked_again_while_the_device_is_held() {
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
    refused(&ground, &device, &path, "is gone", async |scene: &Scene<'_>| {
        let sets: Api<LocalVolumeSet> =
            Api::namespaced(scene.world.client.clone(), names::DEFAULT_NAMESPACE);
        sets.delete(SET, &DeleteParams::default()).await.unwrap();
    })
    .await;
    refused(&ground, &device, &path, "is not claimed any more", async |scene: &Scene<'_>| {
        scene.patch_inventory(json!({"spec": {"deviceClaims": null}})).await
    })
    .await;
    refused(&ground, &device, &path, "the claim was changed", async |scene: &Scene<'_>| {
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
    // Something else is known about the device now: it is looked at again, with that.
    refused(&ground, &device, &path, "is quarantined", async |scene: &Scene<'_>| {
        let entry = Quarantine {
            identity: scene.claim.identity.clone(),
            reason: "IdentityElsewhere".into(),
            detail: "sdx of node n2".into(),
        };
        scene.patch_inventory(json!({"spec": {"quarantine": [entry]}})).await;
    })
    .await;
    // What does not concern it is no reason to stop.
    let (ran, job) = run_with(&ground, &device, async |scene: &Scene<'_>| {
        scene
            .patch_inventory(
                json!({"spec": {"unmanagedPVs": [{"name": "p", "path": "/mnt/somewhere"}]}}),
            )
            .await;
    })
    .await;
    assert_eq!(ran, Ok(RunResult::Succeeded(None)));
    assert_eq!(job.unwrap().status.unwrap().message.as_deref(), Some("zeroed"));
    assert!(bytes(&path).iter().all(|byte| *byte == 0));
    assert_eq!(intents(&ground), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wipe_that_takes_long_says_how_far_it_is() {
    let ground = Ground::new().await;
    let path = file(ground.folder.path(), "image", 256 << 20);
    fill(&path);
    let export = ground.folder.path().join("export");
    let cable = Arc::new(Cable::new(&path, &export));
    let device = Loop::new(&export);
    let world = World::new().await;
    let claim = quarry_tests::device_claim::claim_of(&ground.facts(&device), world.owner());
    world.claim(std::slice::from_ref(&claim)).await;
    let pv = world.release(&claim).await;
    let job = world.wipe_job(&claim, &pv, WipePolicy::Zero).await;
    let jobs: Api<NodeJob> = world.all();
    // Every word that the agent writes, not only those that are there when somebody looks.
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
    // A slow disk: it answers for a tenth of the time.
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
    assert_eq!(running.await.unwrap(), RunResult::Succeeded(None));
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
