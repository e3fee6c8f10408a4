//! Owns durable storage of objects: a redb file (`redb`), or none, because the in-memory server has
//! no backend (`commit`). A backend loads everything once and then writes batches; it never reads
//! back and knows no rules.

pub mod redb;

use crate::engine::Change;
use serde_json::Value;

/// Changes made durable together, and the version they result in.
#[derive(Debug, Default)]
pub struct Batch {
    pub changes: Vec<Change>,
    pub version: u64,
}

/// An object as found on disk.
#[derive(Debug)]
pub struct Loaded {
    pub bucket: String,
    pub key: String,
    pub value: Value,
}

/// Everything found on disk.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub version: u64,
    pub objects: Vec<Loaded>,
}

/// A batch that could not be made durable. None of its changes count.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("the disk of the store {path} is full; free space on it and retry")]
    Full { path: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("failed to write the store {path}; check the disk and restart Quarry")]
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

/// Makes batches durable before returning.
pub trait Backend: Send {
    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError>;
}
