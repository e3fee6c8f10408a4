//! The commands about sets, LocalVolumes and the ledger.

use crate::output::Format;
use clap::{ArgGroup, Args, ValueEnum};
use quarry_api::names;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct SetsArgs {
    #[arg(short, long, value_enum, default_value_t = Format::Table, help = "How to print")]
    pub output: Format,
    /// Only what concerns this node.
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// The namespace of the operator: where sets are acted upon, and where the agents' leases are.
    #[arg(short, long, default_value = names::DEFAULT_NAMESPACE)]
    pub namespace: String,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).args(["file", "target"]))]
pub struct PlanArgs {
    /// Of the cluster: set/NAME or localvolume/NAME.
    #[arg(value_name = "WHAT", value_parser = parse_owner)]
    pub target: Option<Owner>,
    /// A file with LocalVolumeSets and LocalVolumes, as for kubectl apply; - reads standard input. Nothing is sent.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Only this node.
    #[arg(long, value_name = "NAME", conflicts_with = "local")]
    pub node: Option<String>,
    /// This machine, as it is now, as the only node: needs no cluster. nodeSelector and tolerations are not looked at.
    #[arg(long, conflicts_with = "target")]
    pub local: bool,
    /// The root of this machine as seen from here, such as /host in a pod; means --local [default: /].
    #[arg(long, value_name = "DIR", conflicts_with_all = ["target", "node"])]
    pub host_root: Option<PathBuf>,
    #[arg(short, long, value_enum, default_value_t = PlanFormat::Table, help = "How to print")]
    pub output: PlanFormat,
    /// The namespace of the operator: where sets are acted upon, and where the agents' leases are.
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
    /// The root of the node as seen from here, such as /host in a pod.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub host_root: PathBuf,
    /// The agent's folder on the node [default: that of `quarry up` and of the agents].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    #[arg(short, long, value_enum, default_value_t = PlanFormat::Table, help = "How to print")]
    pub output: PlanFormat,
}

/// An object that wants devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    Set(String),
    LocalVolume(String),
}

impl Owner {
    pub fn name(&self) -> &str {
        match self {
            Owner::Set(name) | Owner::LocalVolume(name) => name,
        }
    }

    /// By kubectl's names of the kinds; `None` for another word.
    pub fn parse(kind: &str, name: &str) -> Option<Self> {
        match kind.to_ascii_lowercase().as_str() {
            "set" | "sets" | "lvset" | "localvolumeset" | "localvolumesets" => {
                Some(Owner::Set(name.to_owned()))
            }
            "lvol" | "localvolume" | "localvolumes" => Some(Owner::LocalVolume(name.to_owned())),
            _ => None,
        }
    }
}

fn parse_owner(text: &str) -> Result<Owner, String> {
    let owner = text
        .split_once('/')
        .filter(|(_, name)| !name.is_empty())
        .and_then(|(kind, name)| Owner::parse(kind, name));
    owner.ok_or_else(|| format!("{text:?} is neither a set nor a LocalVolume: write it as set/NAME or localvolume/NAME, or give a file with -f FILE"))
}
