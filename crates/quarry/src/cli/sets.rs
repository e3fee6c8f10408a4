//! Arguments of `quarry sets`, `quarry plan` and `quarry ledger`.

use crate::output::Format;
use clap::{ArgGroup, Args, ValueEnum};
use quarry_api::names;
use quarry_view::sets::OwnerRef;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct SetsArgs {
    #[arg(short, long, value_enum, default_value_t = Format::Table, help = "Output format")]
    pub output: Format,
    /// List only what concerns this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Namespace of the operator, its sets and LocalVolumes, and the agents' Leases
    #[arg(short, long, default_value = names::DEFAULT_NAMESPACE)]
    pub namespace: String,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).args(["file", "target"]))]
pub struct PlanArgs {
    /// Owner in the cluster: set/NAME or localvolume/NAME
    #[arg(value_name = "WHAT", value_parser = parse_owner)]
    pub target: Option<OwnerRef>,
    /// File with LocalVolumeSets and LocalVolumes to plan without creating them; - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Plan only this node
    #[arg(long, value_name = "NAME", conflicts_with = "local")]
    pub node: Option<String>,
    /// Plan for this machine as the only node, without a cluster, ignoring nodeSelector and tolerations
    #[arg(long, conflicts_with = "target")]
    pub local: bool,
    /// Root directory of this machine, such as /host in a pod; implies --local [default: /]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["target", "node"])]
    pub host_root: Option<PathBuf>,
    #[arg(short, long, value_enum, default_value_t = PlanFormat::Table, help = "Output format")]
    pub output: PlanFormat,
    /// Namespace of the operator, its sets and LocalVolumes, and the agents' Leases
    #[arg(short, long, default_value = names::DEFAULT_NAMESPACE)]
    pub namespace: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    Table,
    Json,
}

#[derive(Debug, Args)]
pub struct LedgerArgs {
    /// Root directory of the node, such as /host in a pod
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub host_root: PathBuf,
    /// Data directory of the agent on the node [default: that of `quarry up` and of the agents]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    #[arg(short, long, value_enum, default_value_t = PlanFormat::Table, help = "Output format")]
    pub output: PlanFormat,
}

fn parse_owner(text: &str) -> Result<OwnerRef, String> {
    let owner = text
        .split_once('/')
        .filter(|(_, name)| !name.is_empty())
        .and_then(|(kind, name)| OwnerRef::parse(kind, name));
    owner.ok_or_else(|| format!("{text:?} is neither a set nor a LocalVolume; write it as set/NAME or localvolume/NAME, or name a file with -f FILE"))
}
