//! Log lines on standard error: filtered by RUST_LOG, as text or JSON.

use crate::cli::{Cli, Command, LogFormat};
use tracing_subscriber::EnvFilter;

pub fn start(cli: &Cli) {
    let fallback = default_filter(&cli.command);
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(fallback));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match cli.log_format {
        LogFormat::Text => {
            builder.with_ansi(crate::output::is_interactive() && crate::output::colors()).init()
        }
        LogFormat::Json => builder.json().init(),
    }
}

/// A service logs what it does; a command prints its own messages.
fn default_filter(command: &Command) -> &'static str {
    match command {
        Command::Operator(_) | Command::Agent(_) | Command::Osd { .. } => "info",
        Command::Up(_) => "warn",
        Command::Volumes(_)
        | Command::Volume { .. }
        | Command::Devices(_)
        | Command::Sets(_)
        | Command::Hosts(_)
        | Command::Osds(_)
        | Command::Host { .. }
        | Command::Plan(_)
        | Command::Explain(_)
        | Command::Ledger(_)
        | Command::Crds(_)
        | Command::Policies(_)
        | Command::Store { .. }
        | Command::Version(_) => "error,kube_client=off",
    }
}
