//! SIGINT and SIGTERM: the first asks everything to stop, the second ends the process.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled by the first signal.
pub fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let attempt = "listening for signals";
    let mut interrupt = signal(SignalKind::interrupt()).context(attempt)?;
    let mut terminate = signal(SignalKind::terminate()).context(attempt)?;
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => 130,
                _ = terminate.recv() => 143,
            }
        };
        next().await;
        asked.cancel();
        // Whoever asks twice does not want to wait; everything is written so that it may be killed anywhere.
        let code = next().await;
        std::process::exit(code);
    });
    Ok(stop)
}
