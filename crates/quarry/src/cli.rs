//! Every command and flag. Help texts are imperative, one line each, with the default.

mod hosts;
mod osd;
mod sets;

use crate::{data_dir, ironic::HostArgs, output::Format};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, builder::PossibleValuesParser};
pub use hosts::{
    DeleteAction, DetachArgs, HostCommand, HostNameArgs, HostsArgs, MoveInArgs, MoveOutArgs,
    RebootArgs, Which,
};
pub use osd::{OsdCommand, OsdsArgs, PrepareArgs};
use quarry_api::names;
use quarry_operator::Registry;
use quarry_view::{osds::Which as OsdName, sets::OwnerRef};
pub use sets::{LedgerArgs, PlanArgs, PlanFormat, SetsArgs};
use std::{net::SocketAddr, path::PathBuf, time::Duration};

#[derive(Debug, Parser)]
#[command(
    name = "quarry",
    version,
    about = "Turn bare disks into ready Kubernetes volumes",
    propagate_version = true,
    max_term_width = 110
)]
#[command(
    after_help = "First steps: `quarry up --demo` runs everything on this machine and creates a first volume"
)]
pub struct Cli {
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Log format; filter with RUST_LOG, such as RUST_LOG=quarry=debug
    #[arg(long, value_enum, global = true, default_value_t = LogFormat::Text, help_heading = "Global options")]
    pub log_format: LogFormat,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The command line of an operator with these controllers: `--controllers` takes their groups, by default all.
    pub fn command_with(registry: &Registry) -> clap::Command {
        let groups = registry.groups();
        Cli::command().mut_subcommand("operator", |operator| {
            operator.mut_arg("controllers", |controllers| {
                let possible = PossibleValuesParser::new(groups.clone());
                controllers.default_values(groups).value_parser(possible)
            })
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Which Kubernetes API is used.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct ConnectArgs {
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, the pod's service account, then a standalone Quarry on this machine]
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run Quarry standalone: API, operator and agent in one process
    Up(UpArgs),
    /// List volumes
    #[command(visible_alias = "vols")]
    Volumes(VolumesArgs),
    /// Create, delete or retry a volume
    Volume {
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// List the block devices of this machine or of a cluster's nodes, with verdict and reasons
    Devices(DevicesArgs),
    /// List LocalVolumeSets and LocalVolumes with their devices per node
    Sets(SetsArgs),
    /// Show which devices a LocalVolumeSet or LocalVolume would get, without changing anything
    Plan(PlanArgs),
    /// List BareMetalHosts with their state, power and node
    Hosts(HostsArgs),
    /// Inspect, reboot, detach or move a BareMetalHost
    Host {
        #[command(subcommand)]
        command: HostCommand,
    },
    /// List the OSDs of device sets (CephClusters) with their state, node and device
    Osds(OsdsArgs),
    /// Show every check of a volume, device, set, LocalVolume, host or OSD, what blocks it, and what to do
    Explain(ExplainArgs),
    /// Run the operator (in a pod, or against $KUBECONFIG)
    Operator(OperatorArgs),
    /// Run the agent of one node (root)
    Agent(AgentArgs),
    /// Prepare an OSD (in the pod of a prepare Job)
    Osd {
        #[command(subcommand)]
        command: OsdCommand,
    },
    /// Print or install the CustomResourceDefinitions
    Crds(CrdsArgs),
    /// Print the admission policies
    Policies(PoliciesArgs),
    /// Show the intents and outcomes that this node's agent recorded (root)
    Ledger(LedgerArgs),
    /// Inspect the store of a standalone Quarry
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// Print the version
    Version(VersionArgs),
}

#[derive(Debug, Args)]
pub struct UpArgs {
    /// Create a StorageClass and a first volume, and wait until it is Available
    #[arg(long)]
    pub demo: bool,
    /// Directory for volumes, store and kubeconfig [default: /var/lib/quarry as root, else ~/.local/share/quarry]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address of the API; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7420")]
    pub listen: SocketAddr,
    /// Node name of this machine [default: that of the last start, else the host name]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Allow the use of real disks of this machine [default: observe them only, never open them exclusively]
    #[arg(long)]
    pub allow_real_disks: bool,
    #[command(flatten)]
    pub hosts: HostArgs,
}

#[derive(Debug, Args)]
pub struct VolumesArgs {
    #[arg(short, long, value_enum, default_value_t = Format::Table, help = "Output format")]
    pub output: Format,
    /// Watch for changes after listing
    #[arg(short, long)]
    pub watch: bool,
    /// List only volumes of this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Create a volume backed by a sparse file on a node
    Create(CreateArgs),
    /// Delete a volume and its storage (refused while a PVC uses it)
    Delete(DeleteArgs),
    /// Retry a failed volume after fixing the cause
    Retry(RetryArgs),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Name of the Volume
    pub name: String,
    /// Node that holds the storage [default: the only node of the cluster]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// StorageClass; its parameters set the file system
    #[arg(long, value_name = "NAME")]
    pub class: String,
    /// Size, such as 10Gi
    #[arg(long, value_name = "QUANTITY", allow_hyphen_values = true)]
    pub size: String,
    /// Volume mode: Filesystem (formatted) or Block (one raw partition)
    #[arg(long, value_enum, default_value_t = Mode::Filesystem, ignore_case = true)]
    pub mode: Mode,
    /// Label for the volume and its PersistentVolume (repeatable)
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    #[value(name = "Filesystem")]
    Filesystem,
    #[value(name = "Block")]
    Block,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct WaitArgs {
    /// Wait until done, and print every step
    #[arg(long)]
    pub wait: bool,
    /// Maximum time to wait, such as 30s or 5m
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = parse_duration)]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Name of the Volume
    pub name: String,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, Args)]
pub struct RetryArgs {
    /// Name of the Volume
    pub name: String,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, Args)]
pub struct DevicesArgs {
    /// List only these nodes [default: all; without a cluster this machine]
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    #[arg(short, long, value_enum, default_value_t = Format::Table, help = "Output format")]
    pub output: Format,
    /// Watch for added (+), removed (-) and changed (~) devices after listing
    #[arg(short, long)]
    pub watch: bool,
    /// List the devices of this machine, with or without a cluster; without root as far as readable
    #[arg(long, conflicts_with = "nodes")]
    pub local: bool,
    /// Include devices without size and mounted read-only images in tables
    #[arg(short, long)]
    pub all: bool,
    /// Root directory of this machine, such as /host in a pod; implies --local [default: /]
    #[arg(long, value_name = "DIR", conflicts_with = "nodes")]
    pub host_root: Option<PathBuf>,
    /// Namespace of the agents' Leases
    #[arg(long, default_value = names::DEFAULT_NAMESPACE)]
    pub namespace: String,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// What to explain: volume/NAME, set/NAME, localvolume/NAME, host/NAME, osd/ID, osd/PVC, a device of this machine (/dev/sdb, sdb) or of a node (NODE/sdb; for a node named volume or set: node/set/sdb)
    #[arg(value_name = "WHAT", value_parser = parse_target)]
    pub target: Target,
    /// Namespace of the operator, its sets and LocalVolumes, and the agents' Leases [default: quarry-system]; for a host or OSD its own [default: that of the kubeconfig's context]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Root directory of this machine, such as /host in a pod, for a device of this machine [default: /]
    #[arg(long, value_name = "DIR")]
    pub host_root: Option<PathBuf>,
}

impl ExplainArgs {
    /// That of the operator.
    pub fn operator_namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(names::DEFAULT_NAMESPACE)
    }
}

/// What to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Volume(String),
    Owner(OwnerRef),
    /// A BareMetalHost.
    Host(String),
    /// An OSD of a device set.
    Osd(OsdName),
    /// By kernel name, path or identity; without a node, of this machine.
    Device {
        node: Option<String>,
        device: String,
    },
}

#[derive(Debug, Args)]
pub struct OperatorArgs {
    /// Groups of controllers to run
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub controllers: Vec<String>,
    /// Namespace of the operator, its agents and their Leases
    #[arg(long, env = "POD_NAMESPACE", default_value = names::DEFAULT_NAMESPACE)]
    pub namespace: String,
    /// Run without leader election, for a single operator
    #[arg(long)]
    pub no_leader_election: bool,
    /// Image of the agents [default: that of the operator's own pod; outside a pod no agents are deployed]
    #[arg(long, env = "QUARRY_IMAGE", value_name = "IMAGE")]
    pub agent_image: Option<String>,
    /// Data directory of the agents on each node
    #[arg(long, default_value = data_dir::SYSTEM, value_name = "DIR")]
    pub agent_data_dir: PathBuf,
    /// Interval at which agents rescan every device, also without a kernel event
    #[arg(long, default_value = "60m", value_name = "TIME", value_parser = parse_duration)]
    pub agent_rescan_interval: Duration,
    /// Settling time: how long a device must stay unchanged before it can be Available
    #[arg(long, default_value = "1m", value_name = "TIME", value_parser = parse_duration_or_zero)]
    pub agent_settling_time: Duration,
    /// Address of metrics and health
    #[arg(long, default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub metrics_listen: SocketAddr,
    /// Identity of this operator in leader election [default: the pod's name, else the host name]
    #[arg(long, env = "POD_NAME")]
    pub identity: Option<String>,
    /// Run the OSDs of device sets (CephClusters); needs the component deploy/ceph
    #[arg(long)]
    pub device_sets: bool,
    #[command(flatten)]
    pub hosts: HostArgs,
}

#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Root directory of the host: /host in a pod
    #[arg(long, default_value = "/", value_name = "DIR")]
    pub host_root: PathBuf,
    /// Directory on the host for volumes, ledger and lock
    #[arg(long, default_value = data_dir::SYSTEM, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Node name of this machine
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: String,
    /// Namespace of the agent's Lease
    #[arg(long, env = "POD_NAMESPACE", default_value = names::DEFAULT_NAMESPACE)]
    pub namespace: String,
    /// Report the progress of jobs that take longer than this many milliseconds
    #[arg(long, default_value_t = 1000, value_name = "MS")]
    pub progress_after: u64,
    /// Interval at which every device is rescanned, also without a kernel event
    #[arg(long, default_value = "60m", value_name = "TIME", value_parser = parse_duration)]
    pub rescan_interval: Duration,
    /// Settling time: how long a device must stay unchanged before it can be Available (another process may be about to format a new disk)
    #[arg(long, default_value = "1m", value_name = "TIME", value_parser = parse_duration_or_zero)]
    pub settling_time: Duration,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CrdsArgs {
    #[command(subcommand)]
    pub action: Option<CrdsAction>,
    #[arg(long, value_enum, default_value_t = ManifestFormat::Yaml, help = "Output format")]
    pub format: ManifestFormat,
}

#[derive(Debug, Subcommand)]
pub enum CrdsAction {
    /// Install or update the definitions, except those that Quarry did not install
    Apply {
        /// Replace definitions that Quarry did not install, too
        #[arg(long)]
        take_over: bool,
    },
}

#[derive(Debug, Args)]
pub struct PoliciesArgs {
    #[arg(long, value_enum, default_value_t = ManifestFormat::Yaml, help = "Output format")]
    pub format: ManifestFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ManifestFormat {
    Yaml,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Print every object of the store as JSON lines, while Quarry does not run on it
    Dump {
        #[arg(long, value_name = "DIR", help = "Data directory [default: that of `quarry up`]")]
        data_dir: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub struct VersionArgs {
    #[arg(short, long, value_enum, default_value_t = VersionFormat::Text, help = "Output format")]
    pub output: VersionFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VersionFormat {
    Text,
    Json,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    parse_duration_or_zero(text)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| format!("{text:?} is not a time; write it as 30s, 5m or 1h"))
}

fn parse_duration_or_zero(text: &str) -> Result<Duration, String> {
    let remedy = || format!("{text:?} is not a time; write it as 30s, 5m or 1h, or 0s");
    let span: jiff::SignedDuration = text.parse().map_err(|_| remedy())?;
    Duration::try_from(span).map_err(|_| remedy())
}

fn parse_target(text: &str) -> Result<Target, String> {
    const FORMS: &str = "write it as volume/NAME, set/NAME, localvolume/NAME, host/NAME, osd/ID, /dev/NAME for this machine, or NODE/DEVICE";
    let device = |node: Option<&str>, device: &str| match (node, device) {
        (Some(""), _) | (_, "") => Err(format!("a name is missing in {text:?}; {FORMS}")),
        (node, device) => {
            Ok(Target::Device { node: node.map(str::to_owned), device: device.to_owned() })
        }
    };
    match text.split_once('/') {
        // A kernel name, or an identity.
        None => device(None, text),
        Some(("", "")) => Err(format!("{text:?} names no device; {FORMS}")),
        Some(("", _)) => device(None, text),
        // An identity has a colon and perhaps a path after it; a node name never has one.
        Some((first, _)) if first.contains(':') => device(None, text),
        Some((first, "")) if is_volume(first) => {
            Err("the name is missing; write it as volume/NAME".into())
        }
        Some((first, name)) if is_volume(first) => Ok(Target::Volume(name.to_owned())),
        Some((first, "")) if is_host(first) => {
            Err("the name is missing; write it as host/NAME".into())
        }
        Some((first, name)) if is_host(first) => Ok(Target::Host(name.to_owned())),
        Some((first, "")) if is_osd(first) => Err(
            "the name is missing; write it as osd/ID, or osd/NAME with the PVC of its data device"
                .into(),
        ),
        Some((first, name)) if is_osd(first) => Ok(Target::Osd(OsdName::parse(name))),
        Some((first, rest)) if first.eq_ignore_ascii_case("node") => match rest.split_once('/') {
            Some((node, name)) => device(Some(node), name),
            None => Err(format!(
                "the device is missing; write it as node/{rest}/DEVICE (for a node named node: node/node/{rest})"
            )),
        },
        Some((first, name)) => match OwnerRef::parse(first, name) {
            Some(_) if name.is_empty() => {
                Err(format!("the name is missing; write it as {first}/NAME"))
            }
            Some(owner) => Ok(Target::Owner(owner)),
            None => device(Some(first), name),
        },
    }
}

fn is_volume(kind: &str) -> bool {
    kind.eq_ignore_ascii_case("volume") || kind.eq_ignore_ascii_case("volumes")
}

fn is_osd(kind: &str) -> bool {
    kind.eq_ignore_ascii_case("osd") || kind.eq_ignore_ascii_case("osds")
}

fn is_host(kind: &str) -> bool {
    let names = ["host", "hosts", "bmh", "bmhost", "baremetalhost", "baremetalhosts"];
    names.iter().any(|name| kind.eq_ignore_ascii_case(name))
}

impl ConnectArgs {
    /// The user named a cluster: this machine does not replace it.
    pub fn is_chosen(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }
}

#[cfg(test)]
mod tests;
