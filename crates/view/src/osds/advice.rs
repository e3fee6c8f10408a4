//! What an OSD waits for, and what a person can do. From its objects alone.

use super::{blocked, pods};
use crate::{explain::device::Remedy, text::split_remedy};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use quarry_core::device_set::{Observed, Osd, OsdState};

/// What went wrong, without the remedy. `None`: nothing did.
pub fn problem(observed: &Observed, osd: &Osd<'_>) -> Option<String> {
    let of_state = osd.state.message().map(|text| split_remedy(text).0.to_owned());
    of_state.or_else(|| stuck_container(observed, osd))
}

/// `None`: it waits for nothing.
pub fn waits_for(observed: &Observed, osd: &Osd<'_>) -> Option<String> {
    let job = osd.job.map(ResourceExt::name_any).unwrap_or_default();
    let operator = |what: &str| match blocked(&observed.cluster) {
        Some(condition) => format!("the cluster: {}", split_remedy(&condition.message).0),
        None => format!("the operator, which {what}"),
    };
    let text = match &osd.state {
        OsdState::New => operator("creates its PVCs"),
        OsdState::Unprepared => operator("creates its prepare Job"),
        OsdState::Unscheduled(_) => {
            "a node that has a free device for each of its PVCs and room for its pod".to_owned()
        }
        OsdState::Preparing => format!("prepare Job {job} to end"),
        OsdState::ResultLost => {
            operator("prepares it again: the OSD that is on the device is adopted")
        }
        OsdState::PrepareFailed(_) => format!("prepare Job {job}, or the next one, to succeed"),
        OsdState::Refused(_) => {
            "a change by a person; it is tried again every 5 minutes".to_owned()
        }
        OsdState::Prepared => operator("creates its Deployment"),
        OsdState::Starting => "its pod to be active in Ceph".to_owned(),
        OsdState::Running => return None,
        OsdState::NotReady(_) => "its pod to be ready again".to_owned(),
        OsdState::ClaimLost(_) | OsdState::Conflict(_) => {
            "a decision by a person; nothing is changed here before it".to_owned()
        }
    };
    Some(text)
}

/// Empty when there is nothing to do.
pub fn remedies(observed: &Observed, osd: &Osd<'_>) -> Vec<Remedy> {
    let mut found: Vec<String> = Vec::new();
    let namespace = observed.cluster.namespace().unwrap_or_default();
    found.extend(osd.state.message().and_then(|text| split_remedy(text).1).map(str::to_owned));
    let log = |kind: &str, name: &str, container: &str| {
        format!("run `kubectl logs -n {namespace} {kind}/{name} -c {container}` for its log")
    };
    match &osd.state {
        OsdState::Unscheduled(_) => {
            let classes = classes(osd);
            found.push(format!(
                "check that StorageClass {classes} has an Available PersistentVolume that is large enough, on a node that the placement of set {} permits: run `kubectl get pv` and, for disks of a LocalVolumeSet, `quarry sets`",
                osd.set.name
            ));
        }
        OsdState::PrepareFailed(_) | OsdState::Refused(_) => {
            found.extend(osd.job.map(|job| log("job", &job.name_any(), "prepare")));
        }
        OsdState::NotReady(_) => {
            found.extend(osd.deployment.map(|one| log("deployment", &one.name_any(), "osd")));
        }
        OsdState::Preparing | OsdState::Starting => {
            if stuck_container(observed, osd).is_some() {
                let pods = pods(observed, osd);
                let name = pods.first().map(|pod| pod.name_any()).unwrap_or_default();
                found.push(format!("run `kubectl describe pod -n {namespace} {name}`"));
            }
        }
        OsdState::New | OsdState::Unprepared | OsdState::ResultLost | OsdState::Prepared => {
            let condition = blocked(&observed.cluster);
            let remedy = condition.and_then(|one| split_remedy(&one.message).1);
            found.extend(remedy.map(str::to_owned));
        }
        OsdState::Running | OsdState::ClaimLost(_) | OsdState::Conflict(_) => {}
    }
    found.into_iter().map(Remedy::new).collect()
}

fn classes(osd: &Osd<'_>) -> String {
    let mut names: Vec<&str> = osd
        .claims
        .0
        .values()
        .filter_map(|claim| claim.spec.as_ref()?.storage_class_name.as_deref())
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { "of its PVCs".to_owned() } else { crate::text::join(&names, "and") }
}

/// A container of its newest pod that does not start, as with a missing image or Secret.
fn stuck_container(observed: &Observed, osd: &Osd<'_>) -> Option<String> {
    if !matches!(osd.state, OsdState::Preparing | OsdState::Starting) {
        return None;
    }
    let pods = pods(observed, osd);
    let pod: &Pod = pods.first()?;
    let status = pod.status.as_ref()?;
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses);
    containers.flatten().find_map(|one| {
        let (reason, message) = waiting(one)?;
        Some(format!("container {} of Pod {} waits: {reason}{message}", one.name, pod.name_any()))
    })
}

/// `None` for what every start goes through.
fn waiting(container: &ContainerStatus) -> Option<(&str, String)> {
    const NORMAL: [&str; 2] = ["ContainerCreating", "PodInitializing"];
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().filter(|reason| !NORMAL.contains(reason))?;
    let message = waiting.message.as_deref().filter(|text| !text.is_empty());
    Some((reason, message.map_or_else(String::new, |text| format!(" ({text})"))))
}
