//! What a host waits for, and what to do about it.

use super::{argument, is_paused};
use crate::{explain::device::Remedy, text::split_remedy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use quarry_api::{
    BareMetalHost,
    bare_metal_host::{
        ErrorType, InspectionMode, OperationalStatus, ProvisioningState as State, conditions::raid,
        raid::HARDWARE_LEVELS,
    },
    names,
};
use quarry_core::{
    bare_metal_host::{CONDITION_IRONIC, HostSettings, annotations, driver, is_stable, raid_rules},
    host_rival::Rival,
};

const QUARRY: &str = "quarry.dev/";

/// Conditions of our own that are False: each is something that is not carried out.
pub(super) fn unmet(host: &BareMetalHost) -> impl Iterator<Item = &Condition> {
    let all = host.status.iter().flat_map(|status| &status.conditions);
    all.filter(|one| one.type_.starts_with(QUARRY) && one.status == "False")
}

/// Carried out once the host is deprovisioned: nothing has failed.
pub(super) fn is_pending(condition: &Condition) -> bool {
    condition.type_ == raid::CURRENT
}

/// `None`: it waits for nothing.
pub(super) fn waits_for(host: &BareMetalHost, rival: Option<&Rival>) -> Option<String> {
    if let Some(rival) = rival {
        return Some(format!(
            "another operator to stop: {}, and Quarry does nothing to hosts meanwhile",
            rival.message()
        ));
    }
    if is_paused(host) {
        return Some(format!(
            "the end of its pause: nothing is done while it has annotation {}",
            names::PAUSED_ANNOTATION
        ));
    }
    let Some(status) = &host.status else {
        return Some("the operator, which has not seen it yet".to_owned());
    };
    if status.error_type.is_some() {
        return Some(match is_refused(host) {
            true => "a change of the host: nothing is repeated until then".to_owned(),
            false => "its next attempt, or a change of its spec or credentials".to_owned(),
        });
    }
    if unmet(host).any(|condition| condition.type_ == CONDITION_IRONIC) {
        return Some("Ironic to answer".to_owned());
    }
    match &status.operational_status {
        OperationalStatus::Detached => {
            return Some("being attached: Ironic does not manage it".to_owned());
        }
        OperationalStatus::Delayed => {
            return Some(
                "other hosts: as many as --max-busy-hosts allows are inspected, cleaned or deployed"
                    .to_owned(),
            );
        }
        OperationalStatus::None
        | OperationalStatus::Ok
        | OperationalStatus::Discovered
        | OperationalStatus::Error
        | OperationalStatus::Servicing
        | OperationalStatus::Other(_) => {}
    }
    let state = &status.provisioning.state;
    let is_off = status.powered_on != host.spec.online;
    let rebooted = annotations::reboot(host).is_ok_and(|request| request.is_some());
    match state {
        State::None => Some("the operator, which has not seen it yet".to_owned()),
        State::Unmanaged => Some("the address and the credentials of its BMC".to_owned()),
        State::Registering => Some("Ironic to reach its BMC with the credentials".to_owned()),
        State::Inspecting => {
            Some("the ramdisk, which boots on the host and reports its hardware".to_owned())
        }
        State::MatchProfile | State::Preparing if requests_raid(host) => {
            Some("Ironic to erase its RAID volumes and to build those of spec.raid".to_owned())
        }
        State::MatchProfile | State::Preparing => Some("Ironic to prepare it".to_owned()),
        State::Provisioning => {
            Some("Ironic to deploy its image and the host to boot from it".to_owned())
        }
        State::Deprovisioning if keeps_raid(host) => {
            Some("Ironic to remove its image; its RAID volumes stay".to_owned())
        }
        State::Deprovisioning => Some(
            "Ironic to remove its image and to erase its RAID volumes, if it has any".to_owned(),
        ),
        State::PoweringOffBeforeDelete => Some("Ironic to power it off".to_owned()),
        State::Deleting => Some("Ironic to remove its node".to_owned()),
        stable if is_stable(stable) && host.metadata.deletion_timestamp.is_some() => {
            Some("the operator to begin its deletion".to_owned())
        }
        State::Ready | State::Available if annotations::asks_for_inspection(host) => {
            Some("its inspection to start".to_owned())
        }
        stable if is_stable(stable) && rebooted => Some("its reboot".to_owned()),
        stable if is_stable(stable) && is_off => {
            let wanted = if host.spec.online { "on" } else { "off" };
            Some(format!("Ironic to power it {wanted}"))
        }
        State::Ready
        | State::Available
        | State::Provisioned
        | State::ExternallyProvisioned
        | State::Other(_) => None,
    }
}

/// What is not carried out, without the remedies.
pub(super) fn problems(host: &BareMetalHost) -> Vec<String> {
    unmet(host).map(|condition| split_remedy(&condition.message).0.to_owned()).collect()
}

/// Each remedy once.
pub(super) fn remedies(host: &BareMetalHost, rival: Option<&Rival>) -> Vec<Remedy> {
    let mut found: Vec<Remedy> = Vec::new();
    let mut add = |text: String| {
        let remedy = Remedy::new(text);
        if !found.contains(&remedy) {
            found.push(remedy);
        }
    };
    if let Some(rival) = rival {
        add(format!(
            "scale the Deployment of baremetal-operator in namespace {} to 0 replicas, if Quarry is to drive the hosts; it starts within two minutes",
            rival.namespace
        ));
    }
    if is_paused(host) {
        let by_capm3 =
            annotations::get(host, names::PAUSED_ANNOTATION) == Some(names::PAUSED_BY_CAPM3);
        add(match by_capm3 {
            true => "resume its Cluster (spec.paused): Cluster API's provider set the annotation and removes it".to_owned(),
            false => format!("run `quarry host move-in {}` to end the pause", argument(host)),
        });
    }
    let Some(status) = &host.status else {
        if rival.is_none() {
            add(OPERATOR.to_owned());
        }
        return found;
    };
    let message = &status.error_message;
    if !message.is_empty() {
        match split_remedy(message).1 {
            Some(remedy) => add(remedy.to_owned()),
            None => add(by_error(status.error_type.as_ref()).to_owned()),
        }
    }
    for condition in unmet(host) {
        let remedy = split_remedy(&condition.message).1;
        if let Some(remedy) = remedy.or_else(|| by_condition(condition)) {
            add(remedy.to_owned());
        }
    }
    let state = &status.provisioning.state;
    match state {
        State::None if rival.is_none() && !is_paused(host) => add(OPERATOR.to_owned()),
        State::Unmanaged => add(
            "set spec.bmc.address and spec.bmc.credentialsName, and create that Secret with the keys username and password".to_owned(),
        ),
        State::Preparing | State::Provisioning | State::Deprovisioning
            if status.error_type.is_none() && status.operational_status == OperationalStatus::Ok =>
        {
            add("if nothing happens for long, check the console of the host: the ramdisk must reach Ironic".to_owned());
        }
        State::Inspecting if status.error_type.is_none() => add(format!(
            "if the ramdisk hangs, run `quarry host reboot {} --force` to start it again",
            argument(host)
        )),
        _ => {}
    }
    if status.operational_status == OperationalStatus::Detached {
        add(format!("run `quarry host attach {}` to have Ironic manage it", argument(host)));
    }
    found
}

const OPERATOR: &str = "check that the operator runs with --ironic-url: `kubectl -n quarry-system get pods` (standalone: `quarry up --ironic-url URL`)";

fn by_error(kind: Option<&ErrorType>) -> &'static str {
    match kind {
        Some(ErrorType::Registration | ErrorType::ProvisionedRegistration) => {
            "check the address of the BMC and the Secret with its credentials"
        }
        Some(ErrorType::PowerManagement) => "check that the BMC can be reached",
        Some(ErrorType::Inspection) => "check the console of the host and Ironic's log",
        Some(ErrorType::Preparation) => {
            "compare spec.raid with the disks of the host, and check Ironic's log: docs/operations/raid-recovery.md"
        }
        Some(ErrorType::Provisioning) => {
            "check the URL and the checksum of the image, the console of the host and Ironic's log"
        }
        Some(ErrorType::Detach | ErrorType::Servicing | ErrorType::Other(_)) | None => {
            "check Ironic's log"
        }
    }
}

/// For a condition whose message has no remedy.
fn by_condition(condition: &Condition) -> Option<&'static str> {
    match condition.type_.as_str() {
        raid::VERIFIED => Some(
            "compare spec.raid with the volumes that the BMC shows; to build them again, deprovision the host, or change spec.raid",
        ),
        raid::CURRENT => {
            Some("deprovision the host to apply spec.raid: remove spec.image and spec.customDeploy")
        }
        _ => None,
    }
}

fn requests_raid(host: &BareMetalHost) -> bool {
    host.raid().is_some_and(|raid| {
        raid.hardware_raid_volumes.requested().is_some()
            || raid.software_raid_volumes.requested().is_some()
    })
}

fn keeps_raid(host: &BareMetalHost) -> bool {
    annotations::get(host, names::RETAIN_RAID_ANNOTATION).is_some()
}

/// Settings that no machine can have: nothing was erased for them.
fn has_invalid_raid(host: &BareMetalHost) -> bool {
    let Some(config) = host.raid() else { return false };
    let scheme = host.bmc().map(|bmc| bmc.address.split_once("://").map_or("ipmi", |one| one.0));
    let no_raid =
        scheme.is_some_and(|scheme| matches!(scheme.split('+').next(), Some("ipmi" | "libvirt")));
    let levels = (!no_raid).then_some(HARDWARE_LEVELS.as_slice());
    !raid_rules::invalid(&config, raid_rules::has_hints(host), levels).is_empty()
}

/// Only a person can change what it failed with: there is no next attempt.
pub(super) fn is_refused(host: &BareMetalHost) -> bool {
    let kind = host.status.as_ref().and_then(|status| status.error_type.as_ref());
    match kind {
        Some(ErrorType::Inspection) => host.spec.inspection_mode == Some(InspectionMode::Fast),
        Some(ErrorType::Preparation) => has_invalid_raid(host),
        Some(ErrorType::Detach) => annotations::detached(host).is_err(),
        Some(ErrorType::Registration | ErrorType::ProvisionedRegistration) => {
            // Whether a ramdisk is configured is not known here: as if it were.
            let image = || Some(String::new());
            let settings = HostSettings {
                deploy_iso: image(),
                deploy_kernel: image(),
                deploy_ramdisk: image(),
                ..HostSettings::default()
            };
            host.bmc().is_some_and(|bmc| driver::parse(bmc, &settings).is_err())
        }
        Some(_) | None => false,
    }
}
