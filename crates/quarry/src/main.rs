//! The one binary: standalone, operator, agent and command line.
//!
//! Owns: arguments, wiring, tables and text in a terminal. Never decides: decisions are in `quarry-core`, what commands
//! show is computed in `quarry-view`. Also runs as `kubectl quarry` when installed as `kubectl-quarry`.
//! Next to read: `cli.rs` (every command), `up/mod.rs` (standalone), `connect.rs` (which API is used).
#![expect(
    clippy::disallowed_methods,
    reason = "the binary writes the kubeconfig and reads its own data directory"
)]

mod changes;
mod cli;
mod connect;
mod crds;
mod daemon;
mod data_dir;
mod devices;
mod explain;
mod host;
mod ironic;
mod ledger;
mod log;
mod osd;
mod osds;
mod output;
mod sanitize;
mod sets;
mod signals;
mod snapshot;
mod store;
mod up;
mod version;
mod volume;

use clap::FromArgMatches;
use cli::{Cli, Command, CrdsAction, HostCommand, StoreCommand, VolumeCommand};
use quarry_operator::Registry;
use std::process::ExitCode;

fn main() -> ExitCode {
    let registry = Registry::standard();
    let cli = parse_arguments(&registry);
    log::start(&cli);
    if let Command::Osd { command } = &cli.command {
        return osd::run(command);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return fail(&anyhow::Error::new(error).context("starting the asynchronous runtime"));
        }
    };
    let result = runtime.block_on(run(cli, registry));
    // A blocked file system call in a task must not keep a finished command from exiting.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// `kubectl-quarry` is called by kubectl as `kubectl quarry …`: usage lines show what was typed.
fn parse_arguments(registry: &Registry) -> Cli {
    let called = std::env::args_os().next().unwrap_or_default();
    let plugin =
        std::path::Path::new(&called).file_stem().is_some_and(|stem| stem == "kubectl-quarry");
    let mut command = Cli::command_with(registry);
    if plugin {
        command = command.name("kubectl-quarry").bin_name("kubectl quarry");
    }
    let matches = command.get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

async fn run(cli: Cli, registry: Registry) -> anyhow::Result<()> {
    let connect = cli.connect;
    match cli.command {
        Command::Up(args) => up::run(&args).await,
        Command::Volumes(args) => volume::list::run(&connect, &args).await,
        Command::Volume { command } => match command {
            VolumeCommand::Create(args) => volume::create::run(&connect, &args).await,
            VolumeCommand::Delete(args) => volume::delete::run(&connect, &args).await,
            VolumeCommand::Retry(args) => volume::retry::run(&connect, &args).await,
        },
        Command::Operator(args) => daemon::operator(&connect, args, registry).await,
        Command::Agent(args) => daemon::agent(&connect, args).await,
        Command::Devices(args) => devices::run(&connect, &args).await,
        Command::Sets(args) => sets::list::run(&connect, &args).await,
        Command::Plan(args) => sets::plan::run(&connect, &args).await,
        Command::Hosts(args) => host::list::run(&connect, &args).await,
        Command::Host { command } => match command {
            HostCommand::Inspect(args) => host::annotate::inspect(&connect, &args).await,
            HostCommand::Reboot(args) => host::annotate::reboot(&connect, &args).await,
            HostCommand::Detach(args) => host::annotate::detach(&connect, &args).await,
            HostCommand::Attach(args) => host::annotate::attach(&connect, &args).await,
            HostCommand::MoveOut(args) => host::move_out::run(&connect, &args).await,
            HostCommand::MoveIn(args) => host::move_in::run(&connect, &args).await,
        },
        Command::Osds(args) => osds::list::run(&connect, &args).await,
        Command::Explain(args) => explain::run(&connect, &args).await,
        Command::Ledger(args) => ledger::run(&args),
        Command::Crds(args) => match args.action {
            None => output::print(&crds::render_crds(args.format)?),
            Some(CrdsAction::Apply { take_over }) => crds::apply(&connect, take_over).await,
        },
        Command::Policies(args) => output::print(&crds::render_policies(args.format)?),
        Command::Store { command: StoreCommand::Dump { data_dir } } => {
            store::dump(data_dir.as_deref())
        }
        Command::Osd { .. } => Err(anyhow::anyhow!("`quarry osd` runs without this runtime")),
        Command::Version(args) => output::print(&version::render(args.output)?),
    }
}

/// The host name, as a name that Kubernetes accepts for a Node and its label.
fn host_name() -> String {
    let name = rustix::system::uname();
    node_name(&name.nodename().to_string_lossy())
}

fn node_name(host: &str) -> String {
    let clean: String = host
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
        .take(63)
        .collect();
    let parts: Vec<&str> = clean
        .split('.')
        .map(|part| part.trim_matches('-'))
        .filter(|part| !part.is_empty())
        .collect();
    if parts.is_empty() { "localhost".into() } else { parts.join(".") }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    // `quarry volumes | head` closes our output early: that is no error.
    let closed = error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    });
    if closed {
        return ExitCode::SUCCESS;
    }
    eprintln!("{}", sanitize::lines(&output::error_lines(error)));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_host_name_gives_a_node_name() {
        for (host, node) in [
            ("Box-1.Example.com", "box-1.example.com"),
            ("my_pc", "my-pc"),
            ("-x-", "x"),
            ("", "localhost"),
            ("..", "localhost"),
            ("größe", "gr--e"),
        ] {
            assert_eq!(super::node_name(host), node);
        }
    }
}
