//! A client that follows its files: mounted Secrets are replaced while the operator runs.
//!
//! The files are compared before use, at most every few seconds, and the client is rebuilt when their
//! content differs. Files that can no longer be used are an error until they can: an old credential is
//! never used on. Next to read: `config.rs`, `files.rs`.

use crate::client::Client;
use crate::config::{Config, ConfigError, Settings};
use crate::files::{self, Stamp};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long the files are believed unchanged.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Reads of the files until two comparisons around one agree; a replacement takes one rename.
const ATTEMPTS: u32 = 3;

/// Creates clients from settings whose files may change.
pub struct Reloading {
    settings: Settings,
    state: Mutex<Option<Loaded>>,
}

/// Each file with its stamp; None: it cannot be read.
type Stamps = Vec<(PathBuf, Option<Stamp>)>;

struct Reading {
    stamps: Stamps,
    content: [u8; 32],
    config: Result<Config, ConfigError>,
}

struct Loaded {
    checked_at: Instant,
    stamps: Stamps,
    content: [u8; 32],
    client: Result<Client, ConfigError>,
}

impl Reloading {
    /// Reads nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, state: Mutex::new(None) }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The client for the files as they are now, or what is wrong with them.
    pub fn client(&self) -> Result<Client, ConfigError> {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = state.as_mut() {
            if now.duration_since(loaded.checked_at) < CHECK_INTERVAL {
                return loaded.client.clone();
            }
            loaded.checked_at = now;
            if loaded.client.is_ok() && self.stamps() == loaded.stamps {
                return loaded.client.clone();
            }
        }
        let Reading { stamps, content, config } = self.read();
        if let Some(loaded) = state.as_mut()
            && loaded.content == content
            && loaded.client.is_ok()
            && config.is_ok()
        {
            // Touched, or replaced by the same: the connections stay.
            loaded.stamps = stamps;
            return loaded.client.clone();
        }
        let client = config.and_then(|config| Client::new(&config));
        let last_error = state.as_ref().and_then(|loaded| loaded.client.as_ref().err());
        match &client {
            Ok(_) => tracing::info!("applied the settings for Ironic"),
            Err(error) if last_error == Some(error) => {}
            Err(error) => tracing::warn!(%error, "failed to apply the settings for Ironic"),
        }
        *state = Some(Loaded { checked_at: now, stamps, content, client: client.clone() });
        client
    }

    fn stamps(&self) -> Stamps {
        let files = self.settings.files().into_iter();
        files.map(|path| (path.clone(), files::stamp(&path).ok())).collect()
    }

    /// A consistent read: user name and password of the same generation.
    fn read(&self) -> Reading {
        let mut attempt = 1;
        loop {
            let before = self.stamps();
            let content = self.digest();
            let config = self.settings.load();
            let stamps = self.stamps();
            if before == stamps {
                return Reading { stamps, content, config };
            }
            if attempt == ATTEMPTS {
                // Without stamps the next comparison reads again.
                return Reading { stamps: Vec::new(), content, config };
            }
            attempt += 1;
        }
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for path in self.settings.files() {
            digest.update(path.as_os_str().as_encoded_bytes());
            match files::read(&path) {
                Ok(content) => {
                    digest.update([1]);
                    digest.update((content.len() as u64).to_le_bytes());
                    digest.update(&content);
                }
                Err(_) => digest.update([0]),
            }
        }
        digest.finalize().into()
    }
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
