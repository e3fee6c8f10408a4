//! Owns where objects live when the process does not: in a redb file (`redb`), or nowhere:
//! the server in memory simply has no backend (`commit`). A backend loads everything once and then writes
//! batches; it never reads back and knows no rules.

pub mod redb;

use crate::engine::Change;
use serde_json::Value;

/// Changes that are made durable together, and the version they lead to.
#[derive(Debug, Default)]
pub struct Batch {
    pub changes: Vec<Change>,
    pub version: u64,
}

/// An object as it was found on the disk.
#[derive(Debug)]
pub struct Loaded {
    pub bucket: String,
    pub key: String,
    pub value: Value,
}

/// Everything that was found.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub version: u64,
    pub objects: Vec<Loaded>,
}

/// A batch that could not be made durable. Nothing of it counts.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("the disk of the store {path} is full; free space there and try again")]
    Full { path: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the store {path} cannot be written; check the disk and restart Quarry")]
    Failed { path: String, source: Box<dyn std::error::Error + Send + Sync> },
}

impl CommitError {
    pub fn retryable(&self) -> bool {
        match self {
            CommitError::Full { .. } => true,
            CommitError::Failed { .. } => false,
        }
    }
}

/// Makes batches durable before it returns.
pub trait Backend: Send {
    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError>;
}
