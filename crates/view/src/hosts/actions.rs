//! Which actions the state of a host permits. A refusal names the remedy; CLI and console show the same one.

use super::{argument, is_paused};
use kube::ResourceExt;
use quarry_api::{
    BareMetalHost,
    bare_metal_host::{InspectionMode, OperationalStatus, ProvisioningState as State},
    names,
};
use quarry_core::bare_metal_host::annotations;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Inspect,
    /// `force`: also restarts the ramdisk of an inspection.
    Reboot {
        force: bool,
    },
    /// `force`: in any state.
    Detach {
        force: bool,
    },
    Attach,
    /// Pause it and save its status.
    MoveOut,
    /// End its pause. `force`: although nothing is known about it.
    MoveIn {
        force: bool,
    },
}

const BY_CAPM3: &str = "was paused by Cluster API's provider, which ends the pause with that of the Cluster; set spec.paused of the Cluster to false";

/// Why the action is not possible now, with the remedy; `None`: it is.
pub fn refusal(host: &BareMetalHost, action: Action) -> Option<String> {
    let name = host.name_any();
    let deleted = host.metadata.deletion_timestamp.is_some();
    if let Action::MoveOut | Action::MoveIn { .. } = action {
        return if deleted {
            Some(format!(
                "host {name} is being deleted; wait until it is gone, or run `quarry explain host/{}` to see what it waits for",
                argument(host)
            ))
        } else {
            match action {
                Action::MoveIn { force } => move_in(host, force),
                _ => None,
            }
        };
    }
    if annotations::get(host, names::PAUSED_ANNOTATION) == Some(names::PAUSED_BY_CAPM3) {
        return Some(format!("host {name} {BY_CAPM3}"));
    }
    if is_paused(host) {
        return Some(format!(
            "host {name} is paused (annotation {}), so that nothing is done to it; run `quarry host move-in {}` first",
            names::PAUSED_ANNOTATION,
            argument(host)
        ));
    }
    match action {
        Action::Inspect if deleted => {
            Some(format!("host {name} is being deleted; create it again to have it inspected"))
        }
        Action::Inspect => inspect(host),
        Action::Reboot { .. } if deleted => {
            Some(format!("host {name} is being deleted; its machine is powered off"))
        }
        Action::Reboot { force } => reboot(host, force),
        Action::Detach { force } => detach(host, force),
        Action::Attach => attach(host),
        Action::MoveOut | Action::MoveIn { .. } => None,
    }
}

fn state_word(host: &BareMetalHost) -> String {
    super::state_text(&host.state())
}

fn is_detached(host: &BareMetalHost) -> bool {
    annotations::get(host, names::DETACHED_ANNOTATION).is_some()
        || host
            .status
            .as_ref()
            .is_some_and(|status| status.operational_status == OperationalStatus::Detached)
}

fn detached_text(host: &BareMetalHost) -> Option<String> {
    is_detached(host).then(|| {
        format!(
            "host {} is detached, so that Ironic does not manage it; run `quarry host attach {}` first",
            host.name_any(),
            argument(host)
        )
    })
}

fn inspect(host: &BareMetalHost) -> Option<String> {
    let name = host.name_any();
    if let Some(text) = detached_text(host) {
        return Some(text);
    }
    if annotations::get(host, names::INSPECT_ANNOTATION) == Some(names::INSPECT_DISABLED) {
        return Some(format!(
            "inspection of host {name} is disabled by annotation {}; remove it with `kubectl -n {} annotate bmh {name} {}-`",
            names::INSPECT_ANNOTATION,
            host.namespace().unwrap_or_default(),
            names::INSPECT_ANNOTATION,
        ));
    }
    match &host.spec.inspection_mode {
        Some(InspectionMode::Disabled) => {
            return Some(format!(
                "inspection of host {name} is disabled; set spec.inspectionMode to agent"
            ));
        }
        Some(InspectionMode::Fast) => {
            return Some(format!(
                "host {name} has spec.inspectionMode fast, which is not supported; set it to agent"
            ));
        }
        Some(InspectionMode::Agent | InspectionMode::Other(_)) | None => {}
    }
    match host.state() {
        State::Available | State::Ready => None,
        State::Inspecting => Some(format!(
            "host {name} is being inspected already; run `quarry host reboot {} --force` if its ramdisk hangs",
            argument(host)
        )),
        State::Provisioned | State::ExternallyProvisioned => Some(format!(
            "host {name} is {}, and an inspection would reboot it; deprovision it first",
            state_word(host)
        )),
        _ => Some(format!(
            "host {name} is {}, and only an available host is inspected again; wait, and run `quarry explain host/{}` to see what for",
            state_word(host),
            argument(host)
        )),
    }
}

fn reboot(host: &BareMetalHost, force: bool) -> Option<String> {
    let name = host.name_any();
    if let Some(text) = detached_text(host) {
        return Some(text);
    }
    let mut all = host.metadata.annotations.iter().flatten();
    if let Some((key, _)) = all.find(|(name, _)| name.starts_with(names::REBOOT_ANNOTATION_PREFIX))
    {
        return Some(format!(
            "another client holds host {name} powered off with annotation {key}; wait until it is removed, or remove it with `kubectl -n {} annotate bmh {name} {key}-`",
            host.namespace().unwrap_or_default()
        ));
    }
    match host.state() {
        State::Available | State::Ready | State::Provisioned | State::ExternallyProvisioned => {
            (!host.spec.online).then(|| {
                format!("host {name} is to be off (spec.online is false); set spec.online to true to power it on")
            })
        }
        State::Inspecting if force => None,
        State::Inspecting => Some(format!(
            "host {name} is being inspected; add --force to restart its ramdisk"
        )),
        _ => Some(format!(
            "host {name} is {}, and its power is switched only while it is available, provisioned or externally provisioned; wait, and run `quarry explain host/{}` to see what for",
            state_word(host),
            argument(host)
        )),
    }
}

fn detach(host: &BareMetalHost, force: bool) -> Option<String> {
    let stable = quarry_core::bare_metal_host::is_stable(&host.state());
    // A deletion that cannot reach Ironic ends by it.
    let deleted = host.metadata.deletion_timestamp.is_some();
    (!stable && !force && !deleted && !is_detached(host)).then(|| {
        format!(
            "host {} is {}, and a host is detached only while it is available, provisioned or externally provisioned; wait, or add --force, which stops what Ironic does with it",
            host.name_any(),
            state_word(host)
        )
    })
}

fn attach(host: &BareMetalHost) -> Option<String> {
    (!is_detached(host)).then(|| {
        format!(
            "host {} is not detached; run `quarry explain host/{}` to see its state",
            host.name_any(),
            argument(host)
        )
    })
}

fn move_in(host: &BareMetalHost, force: bool) -> Option<String> {
    let name = host.name_any();
    let paused = annotations::get(host, names::PAUSED_ANNOTATION)?;
    if paused == names::PAUSED_BY_CAPM3 {
        return Some(format!("host {name} {BY_CAPM3}"));
    }
    let known = host.status.as_ref().is_some_and(|status| status.last_updated.is_some());
    match annotations::saved_status(host) {
        _ if known || force => None,
        Ok(Some(_)) => None,
        Ok(None) => Some(format!(
            "host {name} has neither a status nor annotation {}: it would be registered and inspected as a new one; run `quarry host move-out` where it came from and move it again, or add --force if it is new",
            names::STATUS_ANNOTATION
        )),
        Err(error) => Some(format!("host {name}: {error}")),
    }
}
