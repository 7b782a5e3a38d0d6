//! The directory of a partition that is opened alone: its lock, its checkpoints, its marker.
//!
//! ```text
//!   <parent>/.lock                              taken shared, where it is there
//!   <parent>/<checkpoint>                       read at open where the inner one is missing
//!   <parent>/.kafka_cleanshutdown               counts only where no inner .lock lies
//!   <topic>-<n>/.lock                           held exclusively while the partition is open
//!   <topic>-<n>/.kafka_cleanshutdown            written by close, removed first thing by open
//!   <topic>-<n>/recovery-point-offset-checkpoint, log-start-offset-checkpoint,
//!               replication-offset-checkpoint   FORMATS 12, one entry each
//!   <topic>-<n>/leader-epoch-checkpoint, partition.metadata
//!   <topic>-<n>/history.taffrail                what the records themselves do not tell (below)
//! ```
//!
//! `history.taffrail`, version 1, is a file of ours: one byte of flags.
//!
//! ```text
//!   bit 0  an offset was left out between two batches at least once
//!   bit 1  a transactional batch was appended at least once
//! ```
//!
//! A bit is set, and synced, before the first such batch is written. Where the file is missing beside segments
//! (a directory copied from a broker) both count as set.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::storage::checkpoint::{self, OffsetCheckpoint, clean_marker, partition_metadata};
use crate::storage::{Entry, LockMode, Storage, StorageLock};
use crate::sync::Mutex;
use crate::trace;
use crate::types::{LeaderEpoch, Offset, TopicPartition};

const LOCK: &str = ".lock";
const CLEAN_MARKER: &str = ".kafka_cleanshutdown";
const RECOVERY_POINT: &str = "recovery-point-offset-checkpoint";
const LOG_START: &str = "log-start-offset-checkpoint";
const HIGH_WATERMARK: &str = "replication-offset-checkpoint";
const CLEANED: &str = "cleaner-offset-checkpoint";
const EPOCHS: &str = "leader-epoch-checkpoint";
const METADATA: &str = "partition.metadata";
const HISTORY: &str = "history.taffrail";
const HISTORY_VERSION: u16 = 1;
/// More than this release writes, so that a later version is recognised as one.
const HISTORY_BYTES_MAX: u64 = 4096;

/// What ever happened to a partition that its records do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct History {
    pub(super) gaps: bool,
    pub(super) transactions: bool,
}

impl History {
    /// Of a partition without a record.
    pub(super) const NONE: Self = Self { gaps: false, transactions: false };
    /// Of a partition of which nothing is known.
    pub(super) const UNKNOWN: Self = Self { gaps: true, transactions: true };
}

/// Where the last process stopped, as the checkpoints say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checkpoints {
    pub(super) recovery_point: Option<Offset>,
    pub(super) log_start: Option<Offset>,
    pub(super) high_watermark: Option<Offset>,
    /// Whether a cleaner ever left gaps here.
    pub(super) cleaned: bool,
}

/// The directory, and the lock on it.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) directory: PathBuf,
    pub(super) name: TopicPartition,
    /// Released by close, or when they are dropped.
    locks: Mutex<Vec<Box<dyn StorageLock>>>,
    /// Whether an inner lock file lay here before this open.
    lock_was_there: bool,
}

impl Home {
    /// Creates the directory where it is missing and takes its lock.
    pub(super) fn enter(storage: Arc<dyn Storage>, directory: &Path) -> Result<Self> {
        let file_name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = TopicPartition::from_directory_name(file_name)?;
        let entries = list_or_create(&*storage, directory)?;
        let lock_was_there = entries.iter().any(|entry| entry.name == LOCK);
        if !lock_was_there {
            sync_ancestors(&*storage, directory)?;
        }
        let mut locks = vec![take_lock(&*storage, &directory.join(LOCK), LockMode::Exclusive)?];
        if let Some(parent) = parent_of(directory) {
            let outer = parent.join(LOCK);
            if storage.modified(&outer).is_ok() {
                locks.push(take_lock(&*storage, &outer, LockMode::Shared)?);
            }
        }
        if !lock_was_there {
            sync_directory(&*storage, directory)?;
        }
        let locks = Mutex::new(locks);
        Ok(Self { storage, directory: directory.to_owned(), name, locks, lock_was_there })
    }

    /// Gives the directory free.
    pub(super) fn release(&self) {
        self.locks.lock().clear();
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn list(&self) -> Result<Vec<Entry>> {
        list(&*self.storage, &self.directory)
    }

    pub(super) fn sync_directory(&self) -> Result<()> {
        sync_directory(&*self.storage, &self.directory)
    }

    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        match self.storage.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
            _ => Ok(()),
        }
    }

    /// Producer snapshots of what is gone say nothing of what will stand there.
    pub(super) fn remove_snapshots_above(&self, end: Offset) -> Result<()> {
        for entry in self.list()? {
            if base_of(&entry.name, ".snapshot").is_some_and(|offset| offset > end) {
                self.remove(&entry.name)?;
            }
        }
        Ok(())
    }

    /// Whether the last process closed the partition. The inner marker is gone, durably, when this returns.
    pub(super) fn take_clean_marker(&self) -> Result<bool> {
        let inner = clean_marker::remove(&*self.storage, &self.path(CLEAN_MARKER))?;
        let outer = || {
            let marker = self.parent_path(CLEAN_MARKER);
            marker.map_or(Ok(false), |path| clean_marker::is_present(&*self.storage, &path))
        };
        Ok(inner || (!self.lock_was_there && outer()?))
    }

    pub(super) fn write_clean_marker(&self) -> Result<()> {
        clean_marker::write(&*self.storage, &self.path(CLEAN_MARKER))
    }

    pub(super) fn read_checkpoints(&self) -> Result<Checkpoints> {
        Ok(Checkpoints {
            recovery_point: self.read_offset(RECOVERY_POINT)?,
            log_start: self.read_offset(LOG_START)?,
            high_watermark: self.read_offset(HIGH_WATERMARK)?,
            cleaned: self.read_offset(CLEANED)?.is_some(),
        })
    }

    /// The inner file's entry, else the parent's. A damaged file counts as absent, as in Kafka, with a warning.
    fn read_offset(&self, name: &str) -> Result<Option<Offset>> {
        for path in std::iter::once(self.path(name)).chain(self.parent_path(name)) {
            match OffsetCheckpoint::read(&*self.storage, &path) {
                Ok(Some(offsets)) => return Ok(offsets.get(&self.name).copied()),
                Ok(None) => {}
                Err(Error::CorruptFile { path, reason }) => {
                    trace::warn(&path, || format!("a damaged checkpoint is ignored: {reason}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    pub(super) fn write_recovery_point(&self, offset: Offset) -> Result<()> {
        self.write_offset(RECOVERY_POINT, offset)
    }

    pub(super) fn write_log_start(&self, offset: Offset) -> Result<()> {
        self.write_offset(LOG_START, offset)
    }

    pub(super) fn write_high_watermark(&self, offset: Offset) -> Result<()> {
        self.write_offset(HIGH_WATERMARK, offset)
    }

    fn write_offset(&self, name: &str, offset: Offset) -> Result<()> {
        let entries = std::iter::once((self.name.clone(), offset)).collect();
        OffsetCheckpoint::write(&*self.storage, &self.path(name), &entries)
    }

    /// `None` where the file is missing or damaged: then the batches themselves tell.
    pub(super) fn read_epochs(&self) -> Result<Option<Vec<(LeaderEpoch, Offset)>>> {
        let path = self.path(EPOCHS);
        match checkpoint::read_epochs(&*self.storage, &path) {
            Err(Error::CorruptFile { path, reason }) => {
                trace::warn(&path, || format!("a damaged epoch checkpoint is rebuilt from the batches: {reason}"));
                Ok(None)
            }
            other => other,
        }
    }

    pub(super) fn write_epochs(&self, entries: &[(LeaderEpoch, Offset)]) -> Result<()> {
        checkpoint::write_epochs(&*self.storage, &self.path(EPOCHS), entries)
    }

    /// `None` where there is no such file.
    pub(super) fn read_history(&self) -> Result<Option<History>> {
        let bytes = checkpoint::read_own(&*self.storage, &self.path(HISTORY), HISTORY_VERSION, HISTORY_BYTES_MAX)?;
        Ok(bytes.map(|bytes| match bytes.first() {
            Some(flags) => History { gaps: flags & 1 != 0, transactions: flags & 2 != 0 },
            None => History::UNKNOWN,
        }))
    }

    pub(super) fn write_history(&self, history: History) -> Result<()> {
        let flags = u8::from(history.gaps) | u8::from(history.transactions) << 1;
        checkpoint::write_own(&*self.storage, &self.path(HISTORY), HISTORY_VERSION, &[flags])
    }

    pub(super) fn read_topic_id(&self) -> Result<Option<[u8; 16]>> {
        partition_metadata::read(&*self.storage, &self.path(METADATA))
    }

    pub(super) fn write_topic_id(&self, id: [u8; 16]) -> Result<()> {
        partition_metadata::write(&*self.storage, &self.path(METADATA), &id)
    }

    fn parent_path(&self, name: &str) -> Option<PathBuf> {
        parent_of(&self.directory).map(|parent| parent.join(name))
    }
}

fn parent_of(directory: &Path) -> Option<&Path> {
    let parent = directory.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    parent.filter(|parent| *parent != directory)
}

fn list(storage: &dyn Storage, directory: &Path) -> Result<Vec<Entry>> {
    storage.list(directory).map_err(|error| Error::io("list", directory, error))
}

fn sync_directory(storage: &dyn Storage, directory: &Path) -> Result<()> {
    storage.sync_directory(directory).map_err(|error| Error::io("sync", directory, error))
}

fn take_lock(storage: &dyn Storage, path: &Path, mode: LockMode) -> Result<Box<dyn StorageLock>> {
    storage.lock(path, mode).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::Locked { path: path.to_owned(), owner: owner_of(storage, path) },
        _ => Error::io("lock", path, error),
    })
}

/// The process id that the holder wrote into the lock file.
fn owner_of(storage: &dyn Storage, path: &Path) -> Option<u32> {
    let bytes = checkpoint::read_all(storage, path, 64).ok()??;
    std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
}

/// What is in a directory, which is created where it is missing. What lies above is never listed: a parent may hold
/// thousands of partitions.
fn list_or_create(storage: &dyn Storage, directory: &Path) -> Result<Vec<Entry>> {
    match storage.list(directory) {
        Ok(entries) => return Ok(entries),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io("list", directory, error)),
    }
    create_with_parents(storage, directory)?;
    list(storage, directory)
}

/// Creates a directory and what is missing above it, each durable in its parent before the next.
fn create_with_parents(storage: &dyn Storage, directory: &Path) -> Result<()> {
    let parent = parent_of(directory);
    let created = match (storage.create_directory(directory), parent) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            create_with_parents(storage, parent)?;
            storage.create_directory(directory)
        }
        (outcome, _) => outcome,
    };
    created.map_err(|error| Error::io("create", directory, error))?;
    parent.map_or(Ok(()), |parent| sync_directory(storage, parent))
}

/// Makes the way to a directory durable: an earlier process may have been killed between creating and syncing it.
fn sync_ancestors(storage: &dyn Storage, directory: &Path) -> Result<()> {
    let Some(parent) = parent_of(directory) else { return Ok(()) };
    sync_directory(storage, parent)?;
    let above = std::iter::successors(parent_of(parent), |path| parent_of(path));
    // What lies further up may not be ours to open; whoever made it has made it durable then.
    above.for_each(|path| drop(storage.sync_directory(path)));
    Ok(())
}

/// The base offset in a name that has `suffix` behind twenty digits.
pub(super) fn base_of(name: &str, suffix: &str) -> Option<Offset> {
    let digits = name.strip_suffix(suffix)?;
    let exact = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| exact).map(Offset).filter(|base| *base <= Offset::MAX)
}

/// The number before the first dot.
pub(super) fn number_of(name: &str) -> Option<Offset> {
    let digits = name.split('.').next()?;
    let exact = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| exact).map(Offset)
}
