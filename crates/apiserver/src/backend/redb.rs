//! Owns the durable store: one redb file, one flushed transaction per batch, a checksum for every
//! value. Opening never overwrites what it cannot read: a damaged file, a file with a newer format
//! or a file in use is an error.

use super::{Backend, Batch, CommitError, Loaded, Snapshot};
use crate::files::{self, FileError};
use crate::server::SetupError;
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition,
};
use serde_json::Value;
use std::path::{Path, PathBuf};

const OBJECTS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("objects");
const NUMBERS: TableDefinition<'static, &str, u64> = TableDefinition::new("numbers");
const FILE: &str = "api.redb";
/// Incremented when older versions of Quarry cannot read what this one writes.
const FORMAT: u64 = 1;
/// redb's cache; small, because the engine holds all objects in memory.
const CACHE_BYTES: usize = 8 << 20;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a store does not open. Nothing was changed on disk.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the store {path} is in use by another process; stop that process or use another --data-dir"
    )]
    InUse { path: PathBuf },
    #[error(
        "the store {path} is damaged and was left unchanged; restore it from a backup, or move it away to start empty"
    )]
    Damaged { path: PathBuf, source: Cause },
    #[error(
        "the store {path} has format {found}, this version of Quarry supports {FORMAT}; use the version that wrote it"
    )]
    Format { path: PathBuf, found: u64 },
    #[error("the store {path} does not exist; run `quarry up` once, or set --data-dir")]
    Missing { path: PathBuf },
    #[error("failed to open the store {path}; check the permissions and the disk")]
    Failed { path: PathBuf, source: Cause },
    #[error(transparent)]
    Files(#[from] FileError),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("failed to prepare the store")]
    Commit(#[source] CommitError),
    #[error("failed to start the thread that writes the store")]
    Thread(#[source] std::io::Error),
}

impl OpenError {
    pub fn retryable(&self) -> bool {
        match self {
            OpenError::InUse { .. } | OpenError::Thread(_) => true,
            OpenError::Commit(why) => why.retryable(),
            OpenError::Damaged { .. }
            | OpenError::Format { .. }
            | OpenError::Missing { .. }
            | OpenError::Failed { .. }
            | OpenError::Files(_)
            | OpenError::Setup(_) => false,
        }
    }
}

pub struct Redb {
    path: PathBuf,
    /// `None` after a failed write: redb refuses everything until the file is reopened.
    database: Option<Database>,
    version: u64,
}

impl Redb {
    /// Opens the store of a data directory and creates whichever of them is missing.
    pub fn open(data_dir: &Path) -> Result<(Self, Snapshot), OpenError> {
        files::create_private_dir(data_dir)?;
        let path = data_dir.join(FILE);
        if !files::is_file(&path)? {
            create(&path)?;
        }
        let database = open(&path)?;
        let snapshot = load(&path, &database)?;
        Ok((Self { path, database: Some(database), version: snapshot.version }, snapshot))
    }

    fn write(&mut self, batch: &Batch) -> Result<(), Cause> {
        let database = match self.database.take() {
            Some(database) => database,
            None => self.reopen()?,
        };
        // Stored back only on success: a redb handle that failed once keeps failing.
        write_batch(&database, batch)?;
        self.database = Some(database);
        self.version = batch.version;
        Ok(())
    }

    fn reopen(&self) -> Result<Database, Cause> {
        let database = open(&self.path)?;
        let found = load(&self.path, &database)?.version;
        if found != self.version {
            return Err(
                format!("the store is at version {found} instead of {}", self.version).into()
            );
        }
        Ok(database)
    }
}

impl Backend for Redb {
    fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        self.write(batch).map_err(|source| {
            let path = self.path.display().to_string();
            if is_full(&*source) {
                CommitError::Full { path, source }
            } else {
                CommitError::Failed { path, source }
            }
        })
    }
}

fn write_batch(database: &Database, batch: &Batch) -> Result<(), Cause> {
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        for change in &batch.changes {
            let key = format!("{}\u{0}{}", change.bucket, change.key);
            match &change.value {
                Some(json) => {
                    let mut value = Vec::with_capacity(json.len() + 8);
                    value.extend_from_slice(&checksum(&key, json).to_le_bytes());
                    value.extend_from_slice(json);
                    objects.insert(key.as_str(), value.as_slice())?;
                }
                None => {
                    objects.remove(key.as_str())?;
                }
            }
        }
        transaction.open_table(NUMBERS)?.insert("version", batch.version)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Creates the file under another name and renames it: a crash leaves no store or a complete one.
fn create(path: &Path) -> Result<(), OpenError> {
    let new = path.with_extension("redb.new");
    files::remove_if_there(&new)?;
    files::create_private_file(&new)?;
    let failed = |source: Cause| OpenError::Failed { path: path.to_owned(), source };
    {
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create(&new)
            .map_err(|why| failed(why.into()))?;
        let write = || -> Result<(), Cause> {
            let transaction = database.begin_write()?;
            transaction.open_table(OBJECTS)?;
            transaction.open_table(NUMBERS)?.insert("format", FORMAT)?;
            transaction.open_table(NUMBERS)?.insert("version", 0)?;
            transaction.commit()?;
            Ok(())
        };
        write().map_err(failed)?;
    }
    files::rename_durably(&new, path)?;
    Ok(())
}

fn open(path: &Path) -> Result<Database, OpenError> {
    Database::builder().set_cache_size(CACHE_BYTES).open(path).map_err(|why| open_error(path, why))
}

fn open_error(path: &Path, why: DatabaseError) -> OpenError {
    let path = path.to_owned();
    match why {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { path },
        DatabaseError::Storage(StorageError::Io(ref error))
            if error.kind() == std::io::ErrorKind::NotFound =>
        {
            OpenError::Missing { path }
        }
        // redb reports a file that is not its own as an I/O error of this kind.
        DatabaseError::Storage(StorageError::Io(ref error))
            if !matches!(
                error.kind(),
                std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof
            ) =>
        {
            OpenError::Failed { path, source: why.into() }
        }
        other => OpenError::Damaged { path, source: other.into() },
    }
}

fn load(path: &Path, database: &impl ReadableDatabase) -> Result<Snapshot, OpenError> {
    let damaged = |source: Cause| OpenError::Damaged { path: path.to_owned(), source };
    let read = || -> Result<(u64, Snapshot), Cause> {
        let transaction = database.begin_read()?;
        let numbers = transaction.open_table(NUMBERS)?;
        let number = |name: &str| -> Result<u64, Cause> {
            Ok(numbers.get(name)?.ok_or_else(|| format!("the number {name} is missing"))?.value())
        };
        let mut snapshot = Snapshot { version: number("version")?, objects: Vec::new() };
        for entry in transaction.open_table(OBJECTS)?.iter()? {
            let (key, value) = entry?;
            snapshot.objects.push(parse(key.value(), value.value())?);
        }
        Ok((number("format")?, snapshot))
    };
    let (format, snapshot) = read().map_err(damaged)?;
    if format != FORMAT {
        return Err(OpenError::Format { path: path.to_owned(), found: format });
    }
    Ok(snapshot)
}

fn parse(key: &str, value: &[u8]) -> Result<Loaded, Cause> {
    let (sum, json) = value.split_first_chunk::<8>().ok_or("a value is too short")?;
    if u64::from_le_bytes(*sum) != checksum(key, json) {
        return Err(format!("the checksum of {key:?} is wrong").into());
    }
    let (bucket, name) = key.split_once('\u{0}').ok_or("a key has no bucket")?;
    let value: Value = serde_json::from_slice(json)?;
    Ok(Loaded { bucket: bucket.to_owned(), key: name.to_owned(), value })
}

/// FNV-1a over key and value. Finds flipped bits that redb, which trusts a cleanly closed file,
/// would not notice.
fn checksum(key: &str, json: &[u8]) -> u64 {
    key.bytes().chain(json.iter().copied()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let full = |kind: std::io::ErrorKind| {
            use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
            matches!(kind, StorageFull | QuotaExceeded | FileTooLarge)
        };
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && full(io.kind())
        {
            return true;
        }
        // redb does not chain its causes: check its own types.
        if let Some(StorageError::Io(io)) = error.downcast_ref::<StorageError>()
            && full(io.kind())
        {
            return true;
        }
        if let Some(redb::CommitError::Storage(StorageError::Io(io))) =
            error.downcast_ref::<redb::CommitError>()
            && full(io.kind())
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// One object of a dump.
#[derive(Debug)]
pub struct DumpedObject {
    pub group_resource: String,
    pub value: Value,
}

/// Everything in a store, without changing it. Fails while a server has it open.
pub fn dump(data_dir: &Path) -> Result<Vec<DumpedObject>, OpenError> {
    let path = data_dir.join(FILE);
    if !files::is_file(&path)? {
        return Err(OpenError::Missing { path });
    }
    let snapshot = match redb::ReadOnlyDatabase::open(&path) {
        Ok(database) => load(&path, &database)?,
        // It was not closed cleanly and must be repaired before it can be read: on a copy, never in
        // place.
        Err(DatabaseError::RepairAborted) => {
            let copy = files::private_copy(&path)?;
            load(&path, &open(copy.path())?)?
        }
        Err(why) => return Err(open_error(&path, why)),
    };
    Ok(snapshot
        .objects
        .into_iter()
        .map(|object| DumpedObject { group_resource: object.bucket, value: object.value })
        .collect())
}
