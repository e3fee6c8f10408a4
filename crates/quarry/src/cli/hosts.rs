//! Arguments of `quarry hosts` and `quarry host`.

use super::parse_duration;
use crate::output::Format;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use std::time::Duration;

#[derive(Debug, Args)]
pub struct HostsArgs {
    #[arg(short, long, value_enum, default_value_t = Format::Table, help = "Output format")]
    pub output: Format,
    /// Watch for changes after listing
    #[arg(short, long)]
    pub watch: bool,
    /// Namespace of the hosts [default: that of the kubeconfig's context]
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// List the hosts of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
}

#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Inspect an available host again (reboots it)
    Inspect(HostNameArgs),
    /// Power a host off and on once
    Reboot(RebootArgs),
    /// Have Ironic forget a host, without touching its machine
    Detach(DetachArgs),
    /// Have Ironic manage a detached host again
    Attach(HostNameArgs),
    /// Pause hosts and save their status, before `clusterctl move` to another cluster
    #[command(name = "move-out")]
    MoveOut(MoveOutArgs),
    /// End the pause of hosts, after `clusterctl move` to this cluster
    #[command(name = "move-in")]
    MoveIn(MoveInArgs),
}

#[derive(Debug, Args)]
pub struct HostNameArgs {
    /// Name of the BareMetalHost
    pub name: String,
    /// Namespace of the host [default: that of the kubeconfig's context]
    #[arg(short, long)]
    pub namespace: Option<String>,
}

#[derive(Debug, Args)]
pub struct RebootArgs {
    #[command(flatten)]
    pub host: HostNameArgs,
    /// Cut the power at once [default: shut the operating system down first]
    #[arg(long)]
    pub hard: bool,
    /// Restart a ramdisk that inspects the host, too
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct DetachArgs {
    #[command(flatten)]
    pub host: HostNameArgs,
    /// Detach in any state, also while Ironic works on the host
    #[arg(long)]
    pub force: bool,
    /// What a deletion of the detached host does: wait until it is attached, or delete it without Ironic
    #[arg(long, value_enum, default_value_t = DeleteAction::Delay, value_name = "ACTION")]
    pub delete_action: DeleteAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeleteAction {
    Delay,
    Delete,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["names", "all"]))]
pub struct Which {
    /// Names of the BareMetalHosts
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// All hosts of the namespace
    #[arg(long)]
    pub all: bool,
    /// Namespace of the hosts [default: that of the kubeconfig's context]
    #[arg(short, long)]
    pub namespace: Option<String>,
}

#[derive(Debug, Args)]
pub struct MoveOutArgs {
    #[command(flatten)]
    pub which: Which,
    /// Maximum time to wait until the operator has stopped writing, such as 30s or 5m
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_duration)]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
pub struct MoveInArgs {
    #[command(flatten)]
    pub which: Which,
    /// End the pause also of hosts about which nothing is known: they are registered and inspected as new ones
    #[arg(long)]
    pub force: bool,
}
