//! A BareMetalHost, driven through Ironic: registered, inspected, prepared, provisioned, erased, deleted.
//!
//! One pure function over host, HardwareData, Secret and Ironic node plans at most one call to Ironic. Nothing is
//! remembered between calls: the state of the host and that of the node say where the work stands, and the name of the
//! node (`NAMESPACE~NAME`) finds it again when an answer was lost.
//! Never talks to a BMC, never touches a disk. Next to read: `plan.rs` (the order of the questions), `state_machine.rs`
//! (the states), `clean.rs` and `raid/` (RAID), `status.rs` (what is reported), `check.rs` (what may never be planned).

pub mod annotations;
pub mod check;
mod clean;
mod delete;
mod deprovision;
pub mod driver;
pub mod hardware;
mod hardware_data;
mod inspect;
mod plan;
mod port;
mod power;
mod prepare;
mod provision;
pub mod raid;
pub mod raid_rules;
mod register;
mod restore;
mod secret;
mod state_machine;
mod status;

pub use annotations::AnnotationError;
pub use hardware_data::{HARDWARE_DATA_LIMIT, STATUS_HARDWARE_LIMIT};
pub use plan::plan;
pub use port::missing_addresses;
pub use provision::needs_user_data;
pub use register::node_name;
pub use secret::former_names;
pub use status::{
    CONDITION_ACCEPTED, CONDITION_CREDENTIALS, CONDITION_HARDWARE_DATA, CONDITION_IRONIC,
    CONDITION_POWER, CONDITION_WRITTEN, Report, backoff, report_failure, report_refusal,
    report_success,
};

use crate::{event::PendingEvent, host_join::raid::Array};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use quarry_api::{
    BareMetalHost, HardwareData,
    bare_metal_host::{BareMetalHostStatus, OperationalStatus, ProvisioningState},
    names,
};
use quarry_ironic::{Call, HistoryEntry, Inventory, Node, Port, ProvisionState};

/// Where the ramdisk comes from, and how many hosts may be worked on at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSettings {
    pub deploy_iso: Option<String>,
    pub deploy_kernel: Option<String>,
    pub deploy_ramdisk: Option<String>,
    /// Hosts that Ironic inspects, cleans or deploys at the same time.
    pub max_busy_hosts: usize,
}

impl Default for HostSettings {
    fn default() -> Self {
        HostSettings {
            deploy_iso: None,
            deploy_kernel: None,
            deploy_ramdisk: None,
            max_busy_hosts: 20,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub host: BareMetalHost,
    /// Of the same name and namespace.
    pub hardware_data: Option<HardwareData>,
    /// The Secret that `spec.bmc.credentialsName` names.
    pub secret: Option<Secret>,
    /// Other hosts use the same Secret.
    pub secret_is_shared: bool,
    /// The Secret that `spec.userData` names. `None`: not read, or there is none.
    pub user_data: Option<Secret>,
    /// Arrays of the node that runs on the host. `None`: not needed, or no node is known to be it.
    pub arrays: Option<Vec<Array>>,
    /// Secrets that the host used, and that its spec does not name any more.
    pub former_secrets: Vec<FormerSecret>,
    pub ironic: IronicView,
    pub settings: HostSettings,
}

#[derive(Clone, Debug)]
pub struct FormerSecret {
    pub secret: Secret,
    /// Another host names it.
    pub is_shared: bool,
}

/// What Ironic says about the host.
#[derive(Clone, Debug, Default)]
pub enum IronicView {
    /// It was not asked: nothing depends on it.
    #[default]
    NotAsked,
    /// It could not be asked.
    Failed(quarry_ironic::Error),
    Seen(Box<IronicNode>),
}

#[derive(Clone, Debug, Default)]
pub struct IronicNode {
    /// By the recorded ID, else by name. `None`: Ironic does not know the host.
    pub node: Option<Node>,
    /// `None`: not read.
    pub ports: Option<Vec<Port>>,
    /// Addresses of the host that other nodes have; read with `ports`, up to the first that no node has.
    pub taken: Vec<TakenAddress>,
    /// `None`: not read, or Ironic has none.
    pub inventory: Option<Inventory>,
    /// What happened to the node, the oldest first. `None`: not read.
    pub history: Option<Vec<HistoryEntry>>,
    /// Nodes that Ironic works on, this one excepted.
    pub busy: usize,
    /// How long ago Ironic was asked.
    pub age: SignedDuration,
}

/// A network address of the host that Ironic knows as that of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenAddress {
    pub address: String,
    /// UUID of that node.
    pub node: String,
    /// Its name; `None`: it has none, or is gone since.
    pub name: Option<String>,
}

/// No call is planned from what was read longer ago than this.
pub const FRESH: SignedDuration = SignedDuration::from_secs(2);

/// How old an answer of Ironic may be. One list serves all hosts at rest; a host that Ironic works on needs its own.
pub fn max_age(host: &BareMetalHost) -> SignedDuration {
    let rests = host.status.as_ref().is_some_and(|status| {
        status.operational_status == OperationalStatus::Ok && is_stable(&status.provisioning.state)
    });
    let changes = host.metadata.deletion_timestamp.is_some() || is_changed(host);
    SignedDuration::from_secs(if rests && !changes { 50 } else { 1 })
}

/// The spec was changed since the last report.
pub(crate) fn is_changed(host: &BareMetalHost) -> bool {
    let conditions = host.status.iter().flat_map(|status| &status.conditions);
    let known = conditions.filter_map(|one| one.observed_generation).max();
    known.is_some_and(|known| Some(known) != host.metadata.generation)
}

/// Nothing happens in this state without a request.
pub fn is_stable(state: &ProvisioningState) -> bool {
    match state {
        ProvisioningState::Ready
        | ProvisioningState::Available
        | ProvisioningState::Provisioned
        | ProvisioningState::ExternallyProvisioned => true,
        ProvisioningState::None
        | ProvisioningState::Unmanaged
        | ProvisioningState::Registering
        | ProvisioningState::Inspecting
        | ProvisioningState::MatchProfile
        | ProvisioningState::Preparing
        | ProvisioningState::Provisioning
        | ProvisioningState::Deprovisioning
        | ProvisioningState::PoweringOffBeforeDelete
        | ProvisioningState::Deleting
        | ProvisioningState::Other(_) => false,
    }
}

/// What else must be read from Ironic before a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    pub ports: bool,
    pub inventory: bool,
    pub history: bool,
}

/// Whether Ironic is asked about this host at all.
pub fn needs_ironic(host: &BareMetalHost) -> bool {
    let annotated = |name: &str| annotations::get(host, name).is_some();
    let status = host.status.as_ref().map(|status| &status.operational_status);
    let detached = annotated(names::DETACHED_ANNOTATION)
        && status == Some(&OperationalStatus::Detached)
        && host_id(host).is_empty();
    !annotated(names::PAUSED_ANNOTATION) && !detached && (host.bmc().is_some() || has_node(host))
}

/// Ports matter while the node is enrolled; the inventory once an inspection has ended; the history where Ironic has lost
/// the reason of a failure.
pub fn reads(host: &BareMetalHost, node: Option<&Node>) -> Reads {
    let Some(node) = node else { return Reads::default() };
    Reads {
        ports: node.provision_state == ProvisionState::Enroll,
        inventory: node.inspection_finished_at.is_some()
            && !is_busy(node)
            && (inspect::wants_inventory(host, node) || prepare::wants_drives(host, node)),
        history: state_machine::lacks_reason(node)
            && host.status.as_ref().is_none_or(|status| status.error_type.is_none()),
    }
}

/// Ironic inspects, cleans or deploys the node.
pub fn is_busy(node: &Node) -> bool {
    use ProvisionState as State;
    matches!(
        node.provision_state,
        State::Inspecting
            | State::InspectWait
            | State::Cleaning
            | State::CleanWait
            | State::Deploying
            | State::DeployWait
            | State::Deleting
    )
}

fn host_id(host: &BareMetalHost) -> &str {
    host.status.as_ref().map(|status| status.provisioning.id.as_str()).unwrap_or_default()
}

/// Ironic may have a node for it.
fn has_node(host: &BareMetalHost) -> bool {
    !host_id(host).is_empty()
        || !matches!(host.state(), ProvisioningState::None | ProvisioningState::Unmanaged)
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Writes to the API, in order, before the call.
    pub steps: Vec<Step>,
    /// The one change that is requested from Ironic.
    pub call: Option<Call>,
    /// Writes to the API after the call was accepted.
    pub after: Vec<Step>,
    /// The status when all of that has succeeded; `None`: unchanged.
    pub status: Option<Box<BareMetalHostStatus>>,
    pub events: Vec<PendingEvent>,
    pub requeue: Option<SignedDuration>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    AddFinalizer,
    /// The host is gone after this.
    RemoveFinalizer,
    /// Label, finalizer and owner reference: the Secret is watched, stays as long as its host, and moves with it.
    ClaimSecret,
    /// The finalizer is removed, unless another host uses the Secret; the owner reference always.
    ReleaseSecret,
    /// The same for one of `former_secrets`, by name; also the label, unless the host is deleted.
    ReleaseFormerSecret(String),
    /// Annotations that have been acted on.
    RemoveAnnotations(Vec<&'static str>),
    /// The request for an inspection becomes the record of it, in one write: the inspection before it, which shows
    /// whether Ironic has started the one that is requested.
    RecordInspection(String),
    SetArchitecture(String),
    CreateHardwareData(Box<HardwareData>),
    /// Our finalizers are removed, so that it can be deleted.
    ReleaseHardwareData,
    /// Adds owner reference and finalizer to one that an administrator restored, or that was moved here.
    ClaimHardwareData,
    DeleteHardwareData,
    /// Recorded before anything else is done.
    WriteStatus(Box<BareMetalHostStatus>),
    /// A saved status, with the fields of it that this version does not know.
    RestoreStatus(serde_json::Value),
}

impl Step {
    pub fn name(&self) -> &'static str {
        match self {
            Step::AddFinalizer => "AddFinalizer",
            Step::RemoveFinalizer => "RemoveFinalizer",
            Step::ClaimSecret => "ClaimSecret",
            Step::ReleaseSecret => "ReleaseSecret",
            Step::ReleaseFormerSecret(_) => "ReleaseFormerSecret",
            Step::RemoveAnnotations(_) => "RemoveAnnotations",
            Step::RecordInspection(_) => "RecordInspection",
            Step::SetArchitecture(_) => "SetArchitecture",
            Step::CreateHardwareData(_) => "CreateHardwareData",
            Step::ReleaseHardwareData => "ReleaseHardwareData",
            Step::ClaimHardwareData => "ClaimHardwareData",
            Step::DeleteHardwareData => "DeleteHardwareData",
            Step::WriteStatus(_) => "WriteStatus",
            Step::RestoreStatus(_) => "RestoreStatus",
        }
    }
}

#[cfg(test)]
mod tests;
