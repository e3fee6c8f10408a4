//! The planner of device sets alone: 5,000 OSDs that run, and 5,000 whose Jobs have just ended.

use crate::figures;
use anyhow::{Result, ensure};
use jiff::Timestamp;
use quarry_core::device_set::{Access, Observed, Settings, Step, check, plan};
use serde_json::json;
use std::{sync::Arc, time::Instant};

const OSDS: usize = 5_000;
const SETS: usize = 10;
const ROUNDS: usize = 11;

pub fn run() -> Result<()> {
    let mut world = World::new()?;
    let now = Timestamp::now();
    while world.seen.claims.len() < OSDS {
        world.apply(now)?;
    }
    world.apply(now)?;
    world.end_jobs()?;
    figure("after their prepare Jobs", &world.seen, now)?;
    world.apply(now)?;
    world.start()?;
    world.apply(now)?;
    ensure!(plan(&world.seen, now).steps.is_empty(), "every OSD runs");
    figure("at rest", &world.seen, now)
}

fn figure(what: &str, seen: &Observed, now: Timestamp) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let made = plan(seen, now);
        let violations = check(seen, &made);
        times.push(begun.elapsed());
        ensure!(violations.is_empty(), "{violations:?}");
    }
    let median = figures::Samples::new(times).percentile(50);
    println!(
        "figure: plan and check of {OSDS} OSDs {what}: median {} (aim: < 50 ms)",
        figures::milliseconds(median)
    );
    Ok(())
}

struct World {
    seen: Observed,
    uids: u64,
}

impl World {
    fn new() -> Result<Self> {
        let set = |at: usize| {
            json!({"name": format!("set-{at}"), "count": OSDS / SETS, "volumeClaimTemplates": [
                {"spec": {"storageClassName": "disks", "resources": {"requests": {"storage": "1"}}}},
            ]})
        };
        let sets: Vec<_> = (0..SETS).map(set).collect();
        let mut nodes = Vec::new();
        for at in 0..100 {
            let name = format!("node-{at}");
            nodes.push(Arc::new(serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            }))?));
        }
        let seen = Observed {
            cluster: serde_json::from_value(json!({
                "apiVersion": "ceph.rook.io/v1", "kind": "CephCluster",
                "metadata": {"name": "store", "namespace": "rook-ceph", "uid": "cluster"},
                "spec": {"cephVersion": {"image": "ceph"}, "storage": {"storageClassDeviceSets": sets}},
            }))?,
            others: Vec::new(),
            rook: None,
            access: Ok(Access {
                fsid: "11111111-2222-4333-8444-555555555555".parse()?,
                mon_host: "10.0.0.1".into(),
                keyring_secret: "keyring".into(),
                config_override: String::new(),
            }),
            claims: Vec::new(),
            volumes: Vec::new(),
            jobs: Vec::new(),
            pods: Vec::new(),
            results: Vec::new(),
            config: None,
            deployments: Vec::new(),
            classes: vec![serde_json::from_value(json!({
                "metadata": {"name": "disks"}, "provisioner": "kubernetes.io/no-provisioner",
            }))?],
            nodes,
            settings: Settings { image: "quarry".into(), image_pull_policy: "Always".into() },
        };
        Ok(World { seen, uids: 0 })
    }

    fn uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012}", self.uids)
    }

    fn apply(&mut self, now: Timestamp) -> Result<()> {
        for step in plan(&self.seen, now).steps {
            match step {
                Step::CreateClaim(mut claim) => {
                    let uid = self.uid();
                    let volume = format!("pv-{uid}");
                    claim.metadata.uid = Some(uid);
                    claim.spec.get_or_insert_default().volume_name = Some(volume.clone());
                    self.seen.claims.push(*claim);
                    let node = format!("node-{}", self.uids % 100);
                    self.seen.volumes.push(serde_json::from_value(json!({
                        "metadata": {"name": volume},
                        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
                        ]}]}}},
                    }))?);
                }
                Step::ApplyConfig(map) => self.seen.config = Some(*map),
                Step::CreateJob(mut job) => {
                    job.metadata.uid = Some(self.uid());
                    self.seen.jobs.push(*job);
                }
                Step::RecordResult(map) => self.seen.results.push(*map),
                Step::CreateDeployment(made) => self.seen.deployments.push(*made),
                Step::DeleteJob { .. } => {}
            }
        }
        Ok(())
    }

    fn end_jobs(&mut self) -> Result<()> {
        let uids: Vec<_> = self.seen.claims.iter().map(|one| one.metadata.uid.clone()).collect();
        for (id, job) in self.seen.jobs.iter_mut().enumerate() {
            job.status = Some(serde_json::from_value(
                json!({"conditions": [{"type": "Complete", "status": "True"}]}),
            )?);
            let result = json!({"osds": [{"id": id, "uuid": uids[id]}], "status": "completed"});
            self.seen.pods.push(serde_json::from_value(json!({
                "metadata": {"name": format!("pod-{id}"), "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": job.metadata.uid},
                ]},
                "status": {"containerStatuses": [{
                    "name": "prepare", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 0, "message": result.to_string()}},
                }]},
            }))?);
        }
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        for deployment in &mut self.seen.deployments {
            let status = json!({"conditions": [{"type": "Available", "status": "True"}]});
            deployment.status = Some(serde_json::from_value(status)?);
        }
        Ok(())
    }
}
