//! BareMetalHosts: the rows of `quarry hosts`, explanations, and which actions their state permits.
//!
//! Owns: `HostRow` and its wording. Joins with nodes are those of `quarry_core::host_join`. Never talks to Ironic, never
//! shows a credential. Next to read: `explain.rs` (one host), `advice.rs` (what it waits for and what to do),
//! `actions.rs` (what a command refuses), `raid.rs`.

pub mod actions;
mod advice;
mod device;
pub mod explain;
mod raid;

pub use device::{device_view, host_of_node};
pub use explain::HostExplanation;
pub use raid::{DeviceRaid, RaidView, device_raid};

use crate::{Tone, reader::Reader, text::split_remedy};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt, api::ListParams};
use quarry_api::{
    BareMetalHost,
    bare_metal_host::{HardwareDetails, OperationalStatus, ProvisioningState as State},
    names,
};
use quarry_core::{
    bare_metal_host::{annotations, is_stable},
    host_join::{self, HostJoin, Outcome, disk_count, joins},
    host_rival::{self, Rival},
    source::Source,
};
use serde::Serialize;

/// A host that no operator has seen yet.
pub const NEW: &str = "new";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostRow {
    pub namespace: String,
    pub name: String,
    /// The provisioning state; `new` before an operator has seen it.
    pub state: String,
    /// The operational status, or `paused`; `None` before an operator has seen it.
    pub status: Option<String>,
    /// It has the annotation that stops every operator.
    pub paused: bool,
    /// It is being deleted.
    pub terminating: bool,
    /// `None`: not known, because Ironic does not manage it.
    pub powered_on: Option<bool>,
    /// Whether it is to be powered on.
    pub online: bool,
    /// The joined node.
    pub node: Option<String>,
    /// Why there is no joined node; `None` with one.
    pub not_joined: Option<String>,
    /// `None`: its hardware is not known.
    pub disks: Option<usize>,
    /// Kind and levels of its RAID volumes, and whether they are verified; `None`: none is requested.
    pub raid: Option<String>,
    /// The first line of its last error, or of what is not carried out.
    pub error: Option<String>,
    pub created: Option<Timestamp>,
    /// Address of the BMC, without credentials.
    pub bmc: Option<String>,
    /// ID of the node in Ironic.
    pub ironic_node: Option<String>,
    /// Manufacturer and model.
    pub hardware: Option<String>,
    /// What uses it, as `Kind namespace/name`.
    pub consumer: Option<String>,
    /// Another operator that drives the hosts of this cluster.
    pub other_operator: Option<String>,
    pub tone: Tone,
}

/// The hosts of all namespaces, or of one.
pub fn list(source: &impl Source, namespace: Option<&str>, rival: Option<&Rival>) -> Vec<HostRow> {
    let joins = joins(source);
    let hosts = source.hosts();
    let rows = hosts
        .iter()
        .zip(&joins)
        .filter(|(_, join)| namespace.is_none_or(|namespace| join.namespace == namespace));
    rows.map(|(host, join)| {
        let data = source.hardware_data(&join.namespace, &join.name);
        HostRow::new(host, host_join::hardware(host, data.as_deref()), join, rival)
    })
    .collect()
}

impl HostRow {
    fn new(
        host: &BareMetalHost,
        hardware: Option<&HardwareDetails>,
        join: &HostJoin,
        rival: Option<&Rival>,
    ) -> Self {
        let status = host.status.clone().unwrap_or_default();
        let paused = is_paused(host);
        let operational = match &status.operational_status {
            _ if paused => Some("paused".to_owned()),
            OperationalStatus::None => None,
            known => Some(known.as_str().to_owned()),
        };
        HostRow {
            namespace: join.namespace.clone(),
            name: join.name.clone(),
            state: state_text(&host.state()),
            status: operational,
            paused,
            terminating: host.metadata.deletion_timestamp.is_some(),
            powered_on: power(host),
            online: host.spec.online,
            node: join.node().map(str::to_owned),
            not_joined: match &join.outcome {
                Outcome::Joined { .. } => None,
                Outcome::NotJoined(why) => Some(why.message()),
            },
            disks: hardware.map(disk_count),
            raid: raid::summary(host),
            error: error(host),
            created: host.metadata.creation_timestamp.as_ref().map(|time| time.0),
            bmc: host.bmc().map(|bmc| without_credentials(&bmc.address)),
            ironic_node: Some(status.provisioning.id).filter(|id| !id.is_empty()),
            hardware: hardware.and_then(model),
            consumer: consumer(host),
            other_operator: rival.map(Rival::message),
            tone: tone(host),
        }
    }

    /// The row of a host that was deleted while it was watched.
    pub fn deleted(self) -> Self {
        HostRow { state: "deleted".to_owned(), status: None, tone: Tone::Other, ..self }
    }
}

/// Another operator that drives the hosts of this cluster: its leader Lease in any namespace is renewed.
pub async fn read_rival<R: Reader>(reader: &R, now: Timestamp) -> Result<Option<Rival>, R::Error> {
    let api: Api<Lease> = Api::all(reader.client());
    let name = format!("metadata.name={}", names::METAL3_LEADER_LEASE);
    let params = ListParams::default().fields(&name);
    let found = reader.call("listing the Leases of other operators", api.list(&params)).await?;
    Ok(host_rival::find(&found.items, now))
}

pub(crate) fn is_paused(host: &BareMetalHost) -> bool {
    annotations::get(host, names::PAUSED_ANNOTATION).is_some()
}

/// `NAME`, or `NAME -n NAMESPACE`: how a command names the host.
pub(crate) fn argument(host: &BareMetalHost) -> String {
    format!("{} -n {}", host.name_any(), host.namespace().unwrap_or_default())
}

fn state_text(state: &State) -> String {
    match state {
        State::None => NEW.to_owned(),
        known => known.as_str().to_owned(),
    }
}

/// `None`: Ironic does not manage it, so that what was last reported may be wrong.
fn power(host: &BareMetalHost) -> Option<bool> {
    let status = host.status.as_ref()?;
    (!status.provisioning.id.is_empty()).then_some(status.powered_on)
}

fn error(host: &BareMetalHost) -> Option<String> {
    let status = host.status.as_ref()?;
    let reported = Some(&status.error_message).filter(|message| !message.is_empty());
    let message = reported.or_else(|| {
        let mut failed = advice::unmet(host);
        failed.next().map(|condition| &condition.message)
    })?;
    let line = message.lines().next().unwrap_or_default();
    Some(split_remedy(line).0.to_owned())
}

fn tone(host: &BareMetalHost) -> Tone {
    let Some(status) = &host.status else { return Tone::Waiting };
    match &status.operational_status {
        _ if is_paused(host) => Tone::Other,
        OperationalStatus::Error => Tone::Bad,
        OperationalStatus::Detached | OperationalStatus::Discovered => Tone::Other,
        OperationalStatus::Delayed => Tone::Waiting,
        OperationalStatus::None
        | OperationalStatus::Ok
        | OperationalStatus::Servicing
        | OperationalStatus::Other(_) => {
            let deleted = host.metadata.deletion_timestamp.is_some();
            if advice::unmet(host).any(|condition| !advice::is_pending(condition)) {
                Tone::Bad
            } else if advice::unmet(host).next().is_none()
                && is_stable(&status.provisioning.state)
                && !deleted
            {
                Tone::Good
            } else {
                Tone::Waiting
            }
        }
    }
}

fn model(hardware: &HardwareDetails) -> Option<String> {
    let vendor = &hardware.system_vendor;
    let words = [vendor.manufacturer.as_str(), vendor.product_name.as_str()];
    let text = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    Some(text).filter(|text| !text.is_empty())
}

fn consumer(host: &BareMetalHost) -> Option<String> {
    let consumer = host.spec.consumer_ref.as_ref()?;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let (kind, namespace, name) =
        (part(&consumer.kind), part(&consumer.namespace), part(&consumer.name));
    let name = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
    Some(format!("{kind} {name}").trim().to_owned()).filter(|text| !text.is_empty())
}

/// A URL may carry a user and a password.
fn without_credentials(address: &str) -> String {
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), address),
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}{host}{path}")
}

#[cfg(any(test, feature = "samples"))]
pub mod samples;
#[cfg(test)]
mod tests;
