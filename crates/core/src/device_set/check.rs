//! What a plan for device sets must never do, written apart from the planner.

use super::{Observed, Plan, Step};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{PodSpec, Volume},
};
use kube::ResourceExt;
use quarry_api::{CephCluster, names::ceph};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Something is written although another operator or another CephCluster serves the namespace, the cluster runs
    /// elsewhere, or it is being deleted.
    NotOurs(String),
    /// A PVC is made in the place of one that exists, or is in use.
    ClaimExists(String),
    /// A device would be used by two pods that are not of one OSD.
    SharedClaim {
        claim: String,
        first: String,
        second: String,
    },
    /// A device would be prepared while its OSD exists.
    PreparedTwice(String),
    /// A Job is deleted that is not one of ours, or still runs.
    RunningJob(String),
    /// A Deployment of this name exists.
    DeploymentExists(String),
    /// An object of another namespace.
    OtherNamespace(String),
    Privileged(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::NotOurs(what) => write!(f, "{what} for a cluster that is not served here"),
            Violation::ClaimExists(name) => write!(f, "PVC {name} exists already"),
            Violation::SharedClaim { claim, first, second } => {
                write!(f, "PVC {claim} would be used by {first} and by {second}")
            }
            Violation::PreparedTwice(claim) => {
                write!(f, "PVC {claim} belongs to an OSD and would be prepared")
            }
            Violation::RunningJob(name) => {
                write!(f, "Job {name} may still run and would be deleted")
            }
            Violation::DeploymentExists(name) => write!(f, "Deployment {name} exists already"),
            Violation::OtherNamespace(name) => write!(f, "{name} is in another namespace"),
            Violation::Privileged(name) => write!(f, "{name} would run with privileges"),
        }
    }
}

pub fn check(observed: &Observed, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    let cluster = &observed.cluster;
    let served = observed.rook.is_none()
        && cluster.metadata.deletion_timestamp.is_none()
        && !cluster.spec.is_external()
        && !observed.others.iter().any(|other| is_older(other, cluster));
    // Who uses which PVC, from what exists.
    let mut users: BTreeMap<String, String> = BTreeMap::new();
    for deployment in &observed.deployments {
        let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        for claim in claims_of(pod) {
            users.insert(claim, format!("Deployment {}", deployment.name_any()));
        }
    }
    let deployed: BTreeSet<String> = users.keys().cloned().collect();
    for job in &observed.jobs {
        let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        for claim in claims_of(pod) {
            users.entry(claim).or_insert_with(|| format!("Job {}", job.name_any()));
        }
    }
    let jobs: BTreeMap<&str, &Job> =
        observed.jobs.iter().filter_map(|job| Some((job.metadata.uid.as_deref()?, job))).collect();
    // Jobs by data PVC: a Deployment follows its own.
    let mut preparing: BTreeSet<(Option<&str>, String)> = BTreeSet::new();
    for job in &observed.jobs {
        preparing.insert((data_claim(job.labels()), format!("Job {}", job.name_any())));
    }
    let claims: BTreeSet<String> = observed.claims.iter().map(|one| one.name_any()).collect();
    let deployments: BTreeSet<String> =
        observed.deployments.iter().map(|one| one.name_any()).collect();
    let namespace = cluster.namespace();
    let place = |name: String, of: Option<String>| {
        (of != namespace).then_some(Violation::OtherNamespace(name))
    };
    for step in &plan.steps {
        if !served {
            found.push(Violation::NotOurs(step.name().to_owned()));
        }
        match step {
            Step::CreateClaim(claim) => {
                found.extend(place(claim.name_any(), claim.namespace()));
                let name = claim.name_any();
                if claims.contains(&name) || users.contains_key(&name) {
                    found.push(Violation::ClaimExists(name));
                }
            }
            Step::ApplyConfig(map) | Step::RecordResult(map) => {
                found.extend(place(map.name_any(), map.namespace()));
            }
            Step::CreateJob(job) => {
                found.extend(place(job.name_any(), job.namespace()));
                let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
                found.extend(privileged(&job.name_any(), pod));
                for claim in claims_of(pod) {
                    if deployed.contains(&claim) {
                        found.push(Violation::PreparedTwice(claim.clone()));
                    }
                    use_claim(&mut users, &mut found, claim, format!("Job {}", job.name_any()));
                }
            }
            Step::DeleteJob { name, uid } => {
                let job = jobs.get(uid.as_str()).filter(|one| one.name_any() == *name);
                let ended = job.is_some_and(|job| {
                    let ours = job
                        .labels()
                        .get(ceph::APP_LABEL)
                        .is_some_and(|app| app == ceph::PREPARE_APP);
                    let status = job.status.as_ref();
                    let active = status.and_then(|status| status.active).unwrap_or_default();
                    let conditions = status.and_then(|status| status.conditions.as_ref());
                    let done = conditions.is_some_and(|all| {
                        all.iter().any(|one| {
                            one.status == "True"
                                && (one.type_ == "Complete" || one.type_ == "Failed")
                        })
                    });
                    ours && active == 0 && done
                });
                if !ended {
                    found.push(Violation::RunningJob(name.clone()));
                }
            }
            Step::CreateDeployment(deployment) => {
                let name = deployment.name_any();
                found.extend(place(name.clone(), deployment.namespace()));
                if deployments.contains(&name) {
                    found.push(Violation::DeploymentExists(name.clone()));
                }
                let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
                found.extend(privileged(&name, pod));
                let own = data_claim(deployment.labels());
                for claim in claims_of(pod) {
                    if let Some(user) = users.get(&claim)
                        && preparing.contains(&(own, user.clone()))
                    {
                        users.remove(&claim);
                    }
                    use_claim(&mut users, &mut found, claim, format!("Deployment {name}"));
                }
            }
        }
    }
    found
}

fn is_older(one: &CephCluster, than: &CephCluster) -> bool {
    let made = |one: &CephCluster| one.creation_timestamp().map(|time| time.0);
    match made(one).cmp(&made(than)) {
        Ordering::Equal => one.name_any() < than.name_any(),
        found => found == Ordering::Less,
    }
}

fn data_claim(labels: &BTreeMap<String, String>) -> Option<&str> {
    labels.get(ceph::PVC_LABEL).map(String::as_str)
}

fn use_claim(
    users: &mut BTreeMap<String, String>,
    found: &mut Vec<Violation>,
    claim: String,
    second: String,
) {
    match users.get(&claim) {
        Some(first) if *first != second => {
            found.push(Violation::SharedClaim { claim, first: first.clone(), second });
        }
        _ => drop(users.insert(claim, second)),
    }
}

fn claims_of(pod: Option<&PodSpec>) -> Vec<String> {
    let claim = |volume: &Volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone());
    pod.and_then(|pod| pod.volumes.as_ref()).into_iter().flatten().filter_map(claim).collect()
}

fn privileged(name: &str, pod: Option<&PodSpec>) -> Option<Violation> {
    let pod = pod?;
    let containers = pod.containers.iter().chain(pod.init_containers.iter().flatten());
    let is_privileged = containers.into_iter().any(|one| {
        let security = one.security_context.as_ref();
        security.is_none_or(|security| {
            security.privileged.unwrap_or_default()
                || security.allow_privilege_escalation != Some(false)
        })
    });
    let of_host = pod.host_network.or(pod.host_pid).or(pod.host_ipc).unwrap_or_default()
        || pod.volumes.iter().flatten().any(|volume| volume.host_path.is_some());
    (is_privileged || of_host).then(|| Violation::Privileged(name.to_owned()))
}
