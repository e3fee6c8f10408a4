//! `quarry explain volume/NAME`: every check that the planner makes, with its result, from the same functions.

use super::{
    Observed,
    deletion::{Deletable, decide_deletable},
    deploy::{StorageProblem, terminating_message},
    jobs, pv,
    request::{NoRequest, parse_request},
    usage::{PvUsage, pv_usage},
};
use crate::{mkfs_options, presence::Presence};
use quarry_api::{
    node_job::{FsType, JobPhase},
    validate,
    volume::VolumeMode,
};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    Ok,
    Waiting,
    Problem,
    /// Not checked, because something before it is missing.
    Skipped,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    pub check: &'static str,
    pub verdict: Verdict,
    pub text: String,
}

fn line(check: &'static str, verdict: Verdict, text: impl Into<String>) -> Line {
    Line { check, verdict, text: text.into() }
}

/// Every check, in the order in which the planner meets them.
pub fn explain(seen: &Observed) -> Vec<Line> {
    let spec = &seen.volume.spec;
    let problems = validate::validate_volume(&seen.volume);
    let mut lines = vec![match problems.as_slice() {
        [] => line(
            "spec",
            Verdict::Ok,
            format!("valid: {} on node {}", spec.mode.as_str(), spec.node_name),
        ),
        _ => line("spec", Verdict::Problem, validate::message(&problems)),
    }];
    lines.push(class_line(seen));
    lines.push(match &seen.node {
        Some(_) => line("node", Verdict::Ok, format!("{} exists", spec.node_name)),
        None => line(
            "node",
            Verdict::Waiting,
            format!(
                "node {} does not exist; check the name, or wait until it has joined",
                spec.node_name
            ),
        ),
    });
    lines.push(match (&seen.agent, seen.agent.problem(&spec.node_name)) {
        (Presence::Present { .. }, _) | (_, None) => {
            line("agent", Verdict::Ok, format!("present on {}", spec.node_name))
        }
        (_, Some(problem)) => line("agent", Verdict::Waiting, problem),
    });
    lines.extend(
        seen.other_ledger.iter().map(|problem| line("ledger", Verdict::Waiting, problem.clone())),
    );
    lines.push(job_line(seen));
    lines.push(device_line(seen));
    lines.push(pv_line(seen));
    lines.push(match decide_deletable(&seen.volume, seen.pv.as_ref()) {
        Deletable::Yes => line("delete", Verdict::Ok, "can be deleted now"),
        Deletable::No(why) => line("delete", Verdict::Waiting, why),
    });
    lines
}

/// What blocks the Volume now, as one text; `None` if nothing does.
pub fn blocker(seen: &Observed) -> Option<String> {
    let message = seen
        .volume
        .ready()
        .filter(|ready| ready.status != quarry_api::volume::ConditionStatus::True)
        .and_then(|ready| ready.message.clone());
    message.or_else(|| match seen.own_pv() {
        Some(_) => None,
        None => match parse_request(seen) {
            Err(NoRequest::Waiting(message) | NoRequest::Invalid { message, .. }) => Some(message),
            Ok(_) => None,
        },
    })
}

fn class_line(seen: &Observed) -> Line {
    let name = &seen.volume.spec.storage_class_name;
    let Some(class) = &seen.class else {
        return line(
            "class",
            Verdict::Waiting,
            format!("StorageClass {name} does not exist; create it"),
        );
    };
    let late = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    let hint = if late {
        ""
    } else {
        "; its volumeBindingMode is not WaitForFirstConsumer: a pod may be scheduled to another node than its volume"
    };
    let good = if late { Verdict::Ok } else { Verdict::Waiting };
    let unknown: Vec<&str> = class
        .parameters
        .iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .filter(|key| !["fsType", "mkfsOptions"].contains(key))
        .collect();
    let hint = if unknown.is_empty() {
        hint.to_owned()
    } else {
        format!("{hint}; its parameters {} are not used", unknown.join(", "))
    };
    if seen.volume.spec.mode == VolumeMode::Block {
        return line("class", good, format!("{name} exists{hint}"));
    }
    let parameter = |key: &str| {
        class
            .parameters
            .iter()
            .flatten()
            .find(|(found, _)| *found == key)
            .map(|(_, value)| value.as_str())
    };
    match parameter("fsType").map(|text| (text, FsType::parse(text))) {
        None => line(
            "class",
            Verdict::Problem,
            format!("StorageClass {name} has no parameter fsType (ext4 or xfs)"),
        ),
        Some((text, None)) => line(
            "class",
            Verdict::Problem,
            format!("StorageClass {name}: fsType {text:?} is not supported (ext4 or xfs)"),
        ),
        Some((text, Some(fs))) => match mkfs_options::parse(fs, parameter("mkfsOptions")) {
            Err(error) => line("class", Verdict::Problem, format!("StorageClass {name}: {error}")),
            Ok(_) => line("class", good, format!("{name} formats with {text}{hint}")),
        },
    }
}

fn job_line(seen: &Observed) -> Line {
    match (seen.job_handle(), &seen.job) {
        (None, _) => line("job", Verdict::Ok, "none is running"),
        (Some(handle), None) => line(
            "job",
            Verdict::Waiting,
            format!(
                "{} is recorded and does not exist yet",
                jobs::parse_handle(handle).map_or(handle, |(_, name)| name)
            ),
        ),
        (Some(handle), Some(job)) => {
            let status = job.status.clone().unwrap_or_default();
            let message = status.message.map_or_else(String::new, |message| format!(": {message}"));
            match status.phase {
                None => line("job", Verdict::Waiting, format!("{handle} waits for the agent")),
                Some(JobPhase::Running) => {
                    line("job", Verdict::Waiting, format!("{handle} runs{message}"))
                }
                Some(JobPhase::Succeeded) => {
                    line("job", Verdict::Ok, format!("{handle} succeeded{message}"))
                }
                Some(JobPhase::Failed) => {
                    line("job", Verdict::Problem, format!("{handle} failed{message}"))
                }
            }
        }
    }
}

fn device_line(seen: &Observed) -> Line {
    match &seen.device {
        None if seen.own_pv().is_some() && !seen.restored => line(
            "device",
            Verdict::Waiting,
            "the agent has not attached the devices of its Volumes yet since the node booted",
        ),
        None if seen.own_pv().is_some() => line(
            "device",
            Verdict::Problem,
            "the NodeInventory lists no device of this Volume although it is published; restart the agent of its node, which attaches it again",
        ),
        None => {
            line("device", Verdict::Skipped, "the NodeInventory lists no device of this Volume")
        }
        Some(device) => {
            let file = device.backing_file.as_deref().unwrap_or("?");
            match &device.link {
                Some(link) => line(
                    "device",
                    Verdict::Ok,
                    format!("/dev/{} over {file}, linked as {link}", device.name),
                ),
                None if seen.own_pv().is_some() => {
                    line("device", Verdict::Problem, StorageProblem::NoLink.message(seen))
                }
                None => line(
                    "device",
                    Verdict::Problem,
                    format!(
                        "/dev/{} over {file} has no persistent link; check that udev runs on the node (`udevadm trigger /dev/{}`)",
                        device.name, device.name
                    ),
                ),
            }
        }
    }
}

fn pv_line(seen: &Observed) -> Line {
    let name = seen.name();
    match &seen.pv {
        None => line("pv", Verdict::Skipped, format!("PersistentVolume {name} does not exist")),
        Some(pv) if !pv::is_owned_by(pv, seen.uid()) => line(
            "pv",
            Verdict::Problem,
            format!(
                "PersistentVolume {name} exists and is not managed by this Volume; create the Volume under another name"
            ),
        ),
        Some(pv)
            if pv.metadata.deletion_timestamp.is_some()
                && seen.volume.metadata.deletion_timestamp.is_none() =>
        {
            line("pv", Verdict::Problem, terminating_message(name))
        }
        Some(pv) => {
            let phase =
                pv.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("unknown");
            match pv_usage(pv) {
                PvUsage::Free => line("pv", Verdict::Ok, format!("{name} is {phase}")),
                PvUsage::InUse(why) => line("pv", Verdict::Ok, why),
            }
        }
    }
}
