//! Every command and flag. Help texts are a product surface: short, exact, with the default.

mod device_claims;

use crate::output::Format;
use clap::{Args, Parser, Subcommand, ValueEnum, builder::PossibleValuesParser};
pub use device_claims::{LedgerArgs, Owner, PlanArgs, PlanFormat, SetsArgs};
use quarry_api::names;
use quarry_operator::Registry;
use std::{net::SocketAddr, path::PathBuf, time::Duration};

#[derive(Debug, Parser)]
#[command(
    name = "quarry",
    version,
    about = "Turns bare disks into ready Kubernetes volumes",
    propagate_version = true,
    max_term_width = 110
)]
#[command(
    after_help = "New here? `quarry up --demo` runs everything on this machine and makes a first volume."
)]
pub struct Cli {
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// How log lines are written (what is logged: RUST_LOG, such as RUST_LOG=quarry=debug).
    #[arg(long, value_enum, global = true, default_value_t = LogFormat::Text, help_heading = "Global options")]
    pub log_format: LogFormat,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Which Kubernetes API is asked.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct ConnectArgs {
    /// The kubeconfig file [default: $KUBECONFIG, ~/.kube/config, the pod's service account, then a standalone Quarry on this machine].
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one].
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run Quarry standalone: API, operator and agent in one process.
    Up(UpArgs),
    /// List volumes.
    #[command(visible_alias = "vols")]
    Volumes(VolumesArgs),
    /// Create, delete or retry a volume.
    Volume {
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// List the block devices of this machine or of a cluster's nodes: what each is, whether it may be used, and why not.
    Devices(DevicesArgs),
    /// List LocalVolumeSets and LocalVolumes: which devices of each node they have, wait for, and are refused.
    Sets(SetsArgs),
    /// Show which devices each node would give to a LocalVolumeSet or LocalVolume, and why not the others. Changes nothing.
    Plan(PlanArgs),
    /// Tell every check of a volume, a device, a set or a LocalVolume, what blocks it, and what to do.
    Explain(ExplainArgs),
    /// Run the operator (in a pod, or against $KUBECONFIG).
    Operator(OperatorArgs),
    /// Run the agent of one node (root).
    Agent(AgentArgs),
    /// Print the CustomResourceDefinitions, or install them.
    Crds(CrdsArgs),
    /// Print the admission policies.
    Policies(PoliciesArgs),
    /// Show what this node's agent set out to do, and how it ended (root).
    Ledger(LedgerArgs),
    /// Look into the store of a standalone Quarry.
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// Print the version.
    Version(VersionArgs),
}

#[derive(Debug, Args)]
pub struct UpArgs {
    /// Create a StorageClass and a first volume, and show it becoming available.
    #[arg(long)]
    pub demo: bool,
    /// Where volumes, the store and the kubeconfig live [default: /var/lib/quarry as root, else ~/.local/share/quarry].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where the API listens; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7420")]
    pub listen: SocketAddr,
    /// The name of this machine as a node [default: the one of the last start, else the host name].
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Let it use the real disks of this machine [default: they are only observed, and never opened exclusively].
    #[arg(long)]
    pub allow_real_disks: bool,
}

#[derive(Debug, Args)]
pub struct VolumesArgs {
    #[arg(short, long, value_enum, default_value_t = Format::Table, help = "How to print")]
    pub output: Format,
    /// Go on and print every change.
    #[arg(short, long)]
    pub watch: bool,
    /// Only the volumes of this node.
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Create a volume backed by a sparse file on a node.
    Create(CreateArgs),
    /// Delete a volume and its storage. Refused while a claim uses it.
    Delete(DeleteArgs),
    /// Try a failed volume again, once its cause is mended.
    Retry(RetryArgs),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    pub name: String,
    /// The node that holds the storage [default: the only node, if there is one].
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// The StorageClass: its parameters say how to format.
    #[arg(long, value_name = "NAME")]
    pub class: String,
    /// The size, such as 10Gi.
    #[arg(long, value_name = "QUANTITY", allow_hyphen_values = true)]
    pub size: String,
    /// Filesystem (formatted) or Block (one raw partition).
    #[arg(long, value_enum, default_value_t = Mode::Filesystem, ignore_case = true)]
    pub mode: Mode,
    /// A label for the volume and its PersistentVolume (repeatable).
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
    /// Wait until it is done, showing every step.
    #[arg(long)]
    pub wait: bool,
    /// How long to wait, such as 30s or 5m.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = parse_duration)]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    pub name: String,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, Args)]
pub struct RetryArgs {
    pub name: String,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, Args)]
pub struct DevicesArgs {
    /// Only these nodes of the cluster [default: all; without a cluster this machine].
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    #[arg(short, long, value_enum, default_value_t = Format::Table, help = "How to print")]
    pub output: Format,
    /// Go on and print every device that appears (+), goes (-) or changes (~).
    #[arg(short, long)]
    pub watch: bool,
    /// The devices of this machine, whether there is a cluster or not. Without root it shows what can be seen.
    #[arg(long, conflicts_with = "nodes")]
    pub local: bool,
    /// In a table, also devices without size and mounted read-only images.
    #[arg(short, long)]
    pub all: bool,
    /// The root of this machine as seen from here, such as /host in a pod; means --local [default: /].
    #[arg(long, value_name = "DIR", conflicts_with = "nodes")]
    pub host_root: Option<PathBuf>,
    /// The namespace of the agents' leases.
    #[arg(long, default_value = names::DEFAULT_NAMESPACE)]
    pub namespace: String,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// What to explain: volume/NAME, set/NAME, localvolume/NAME (a LocalVolume), a device of this machine (/dev/sdb, sdb), or one of a node (NODE/sdb; if the node is called volume, set or lv: node/set/sdb).
    #[arg(value_name = "WHAT", value_parser = parse_target)]
    pub target: Target,
    /// The namespace of the operator: of sets, LocalVolumes and the agents' leases.
    #[arg(short, long, default_value = names::DEFAULT_NAMESPACE)]
    pub namespace: String,
    /// For a device of this machine: its root as seen from here, such as /host in a pod [default: /].
    #[arg(long, value_name = "DIR")]
    pub host_root: Option<PathBuf>,
}

/// What `explain` is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Volume(String),
    Owner(Owner),
    /// By kernel name, path or identity; without a node, of this machine.
    Device {
        node: Option<String>,
        device: String,
    },
}

#[derive(Debug, Args)]
pub struct OperatorArgs {
    /// Groups of controllers to run
    #[arg(
        long,
        value_delimiter = ',',
        default_values = Registry::standard().groups(),
        value_parser = PossibleValuesParser::new(Registry::standard().groups()),
        value_name = "LIST"
    )]
    pub controllers: Vec<String>,
    /// The namespace of the operator, its agents and their leases.
    #[arg(long, env = "POD_NAMESPACE", default_value = names::DEFAULT_NAMESPACE)]
    pub namespace: String,
    /// Do not elect a leader: for one operator only, such as on a developer's machine.
    #[arg(long)]
    pub no_leader_election: bool,
    /// The image of the agents [default: that of the operator's own pod; outside a pod no agents are deployed].
    #[arg(long, env = "QUARRY_IMAGE", value_name = "IMAGE")]
    pub agent_image: Option<String>,
    /// The agents' folder on each node.
    #[arg(long, default_value = "/var/lib/quarry", value_name = "DIR")]
    pub agent_data_dir: PathBuf,
    /// How often agents read every device again, whether the kernel told of a change or not.
    #[arg(long, default_value = "60m", value_name = "TIME", value_parser = parse_duration)]
    pub agent_rescan_interval: Duration,
    /// How long a device must have been there, unchanged, before agents call it Available.
    #[arg(long, default_value = "1m", value_name = "TIME", value_parser = parse_duration_or_zero)]
    pub agent_settling_time: Duration,
    /// Where metrics and health are served.
    #[arg(long, default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub metrics_listen: SocketAddr,
    /// Who this operator is among others [default: the pod's name, else the host name].
    #[arg(long, env = "POD_NAME")]
    pub identity: Option<String>,
}

#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The host's root as seen from here: /host in a pod.
    #[arg(long, default_value = "/", value_name = "DIR")]
    pub host_root: PathBuf,
    /// The folder on the host for volumes, ledger and lock.
    #[arg(long, default_value = "/var/lib/quarry", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// This machine as a node of the cluster.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: String,
    /// The namespace of the agent's lease.
    #[arg(long, env = "POD_NAMESPACE", default_value = names::DEFAULT_NAMESPACE)]
    pub namespace: String,
    /// Report the progress of a job that takes longer than this many milliseconds.
    #[arg(long, default_value_t = 1000, value_name = "MS")]
    pub progress_after: u64,
    /// Read every device again this often, whether the kernel told of a change or not.
    #[arg(long, default_value = "60m", value_name = "TIME", value_parser = parse_duration)]
    pub rescan_interval: Duration,
    /// How long a device must have been there, unchanged, before it is Available. Less is for tests and impatient labs: somebody else may be about to format a new disk.
    #[arg(long, default_value = "1m", value_name = "TIME", value_parser = parse_duration_or_zero)]
    pub settling_time: Duration,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CrdsArgs {
    #[command(subcommand)]
    pub action: Option<CrdsAction>,
    #[arg(long, value_enum, default_value_t = ManifestFormat::Yaml, help = "How to print")]
    pub format: ManifestFormat,
}

#[derive(Debug, Subcommand)]
pub enum CrdsAction {
    /// Install or update them. A definition that somebody else installed is left alone.
    Apply {
        /// Replace definitions that somebody else installed, too.
        #[arg(long)]
        take_over: bool,
    },
}

#[derive(Debug, Args)]
pub struct PoliciesArgs {
    /// The namespace of the agents' service account.
    #[arg(long, default_value = names::DEFAULT_NAMESPACE)]
    pub namespace: String,
    #[arg(long, value_enum, default_value_t = ManifestFormat::Yaml, help = "How to print")]
    pub format: ManifestFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ManifestFormat {
    Yaml,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Print every object of the store as JSON lines. Quarry must not be running on it.
    Dump {
        #[arg(
            long,
            value_name = "DIR",
            help = "The data directory [default: that of `quarry up`]"
        )]
        data_dir: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub struct VersionArgs {
    #[arg(short, long, value_enum, default_value_t = VersionFormat::Text, help = "How to print")]
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
        .ok_or_else(|| format!("{text:?} is not a time: write it as 30s, 5m or 1h"))
}

fn parse_duration_or_zero(text: &str) -> Result<Duration, String> {
    let remedy = || format!("{text:?} is not a time: write it as 30s, 5m or 1h, or 0s");
    let span: jiff::SignedDuration = text.parse().map_err(|_| remedy())?;
    Duration::try_from(span).map_err(|_| remedy())
}

fn parse_target(text: &str) -> Result<Target, String> {
    const FORMS: &str = "write it as volume/NAME, set/NAME, localvolume/NAME, /dev/NAME for this machine, or NODE/DEVICE";
    let device = |node: Option<&str>, device: &str| match (node, device) {
        (Some(""), _) | (_, "") => Err(format!("a name is missing in {text:?}: {FORMS}")),
        (node, device) => {
            Ok(Target::Device { node: node.map(str::to_owned), device: device.to_owned() })
        }
    };
    match text.split_once('/') {
        // A kernel name, or an identity.
        None => device(None, text),
        Some(("", "")) => Err(format!("{text:?} names no device: {FORMS}")),
        Some(("", _)) => device(None, text),
        // No node's name has a colon; an identity has one, and after it perhaps a path.
        Some((first, _)) if first.contains(':') => device(None, text),
        Some((first, "")) if is_volume(first) => {
            Err("the name is missing: write it as volume/NAME".into())
        }
        Some((first, name)) if is_volume(first) => Ok(Target::Volume(name.to_owned())),
        Some((first, rest)) if first.eq_ignore_ascii_case("node") => match rest.split_once('/') {
            Some((node, name)) => device(Some(node), name),
            None => Err(format!(
                "the device is missing: write it as node/{rest}/DEVICE (if the node is called node: node/node/{rest})"
            )),
        },
        Some((first, name)) => match Owner::parse(first, name) {
            Some(_) if name.is_empty() => {
                Err(format!("the name is missing: write it as {first}/NAME"))
            }
            Some(owner) => Ok(Target::Owner(owner)),
            None => device(Some(first), name),
        },
    }
}

fn is_volume(kind: &str) -> bool {
    kind.eq_ignore_ascii_case("volume") || kind.eq_ignore_ascii_case("volumes")
}

impl ConnectArgs {
    /// The person named a cluster: another place is not what was asked for.
    pub fn is_chosen(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }
}

#[cfg(test)]
mod tests;
