//! SIGINT and SIGTERM: the first stops everything in order, the second exits at once.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled by the first signal.
pub fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let attempt = "listening for signals";
    let mut interrupt = signal(SignalKind::interrupt()).context(attempt)?;
    let mut terminate = signal(SignalKind::terminate()).context(attempt)?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => 130,
                _ = terminate.recv() => 143,
            }
        };
        next().await;
        stopped.cancel();
        // Every part may be killed at any point, so a second signal need not wait.
        let code = next().await;
        std::process::exit(code);
    });
    Ok(stop)
}
