//! The directory of a partition: its lock, its checkpoints, its marker.
//!
//! Opened alone, a partition keeps them inside of its own directory:
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
//!   <topic>-<n>/aborted.taffrail                which aborted transactions are indexed (aborted.rs)
//!   <topic>-<n>/sync-failed.taffrail            what the last process wrote may not be what a sync covers (below)
//!   <topic>-<n>/export-unfinished.taffrail      an export is under way, or was interrupted: no open takes the directory
//! ```
//!
//! In a log the checkpoints are the log's ([`Books`]), and so are the lock and the marker. What a partition that was once
//! opened alone has inside counts then (where an inner `.lock` lies), and goes once the log's files have it.
//!
//! `history.taffrail`, version 1, is a file of ours: one byte of flags, and where the epoch checkpoint does not say it
//! four more.
//!
//! ```text
//!   0  1  bit 0  an offset was left out between two batches at least once
//!         bit 1  a transactional batch was appended at least once
//!         bit 2  a batch of an idempotent or transactional producer was appended at least once
//!   1  4  the highest leader epoch that was ever begun, big-endian; absent: the last of the epoch checkpoint
//! ```
//!
//! A bit is set, and synced, before the first such batch is written; bit 2 before the recovery point passes it, since what
//! lies behind that is read by a recovery. Where the file is missing beside segments
//! (a directory copied from a broker) all count as set. The epoch is noted before the epoch checkpoint loses it: there
//! an epoch without a record goes with the end of the log, as Kafka wants it, and its number must not be given again.
//!
//! `sync-failed.taffrail` is empty, and its presence counts. After a failed sync no later one covers what was written
//! before (assumption 4 of [`crate::storage`]), also in another process, where nothing else tells of it. So it is made
//! when a partition is fenced or cannot be recovered, and it goes when a recovery has written everything above the
//! recovery point again. It is not synced: what a loss of power leaves is what the disk has.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::books::{Books, Mark};
use crate::error::{Error, Result};
use crate::storage::checkpoint::{self, OffsetCheckpoint, clean_marker, own, partition_metadata};
use crate::storage::directory::{
    LOCK, list, list_or_create, list_or_create_name, parent_of, sync_ancestors, sync_directory, take_lock,
};
use crate::storage::{Entry, LockMode, Storage, StorageLock};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::trace;
use crate::types::{LeaderEpoch, Offset, TopicId, TopicPartition};

const EPOCHS: &str = "leader-epoch-checkpoint";
const HISTORY: &str = "history.taffrail";
const SYNC_FAILED: &str = "sync-failed.taffrail";
/// Stands in the directory of an export until everything else is there, durably.
const EXPORT: &str = "export-unfinished.taffrail";
const EXPORT_VERSION: u16 = 1;
const HISTORY_VERSION: u16 = 1;
/// More than this release writes, so that a later version is recognised as one.
const HISTORY_BYTES_MAX: u64 = 4096;

/// What ever happened to a partition that its records do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct History {
    pub(super) gaps: bool,
    pub(super) transactions: bool,
    pub(super) producers: bool,
    /// The highest leader epoch that was ever begun, where the epoch checkpoint may not have it.
    pub(super) epoch: Option<LeaderEpoch>,
}

impl History {
    /// Of a partition without a record.
    pub(super) const NONE: Self = Self { gaps: false, transactions: false, producers: false, epoch: None };
    /// Of a partition of which nothing is known.
    pub(super) const UNKNOWN: Self = Self { gaps: true, transactions: true, producers: true, epoch: None };
}

impl History {
    fn parse(bytes: &[u8]) -> Self {
        let Some((flags, rest)) = bytes.split_first() else { return Self::UNKNOWN };
        let epoch = rest.first_chunk().and_then(|bytes| LeaderEpoch::from_i32(i32::from_be_bytes(*bytes)));
        // A transaction is a producer's, whatever the other bit says.
        let (gaps, transactions, producers) = (flags & 1 != 0, flags & 2 != 0, flags & 6 != 0);
        Self { gaps, transactions, producers, epoch }
    }

    fn to_bytes(self) -> Vec<u8> {
        let flags = u8::from(self.gaps) | u8::from(self.transactions) << 1 | u8::from(self.producers) << 2;
        let mut bytes = vec![flags];
        bytes.extend(self.epoch.iter().flat_map(|epoch| epoch.0.to_be_bytes()));
        bytes
    }
}

/// Where the last process stopped, as the checkpoints say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checkpoints {
    pub(super) recovery_point: Option<Offset>,
    pub(super) log_start: Option<Offset>,
    pub(super) high_watermark: Option<Offset>,
    /// Up to where a cleaner has come, which has left gaps.
    pub(super) cleaned: Option<Offset>,
}

/// The directory, and the lock on it.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) directory: PathBuf,
    pub(super) name: TopicPartition,
    keeper: Keeper,
    /// Whether an inner lock file lay here before this open.
    lock_was_there: bool,
    /// What lay here when it was entered, until somebody asks.
    entries: Mutex<Option<Vec<Entry>>>,
    /// Nothing lay here in a log: names are synced once, by [`Home::settle`], and not one by one.
    is_fresh: AtomicBool,
}

/// Who keeps lock, checkpoints and marker.
#[derive(Debug)]
enum Keeper {
    /// The partition itself. The locks are released by close, or when they are dropped.
    Alone(Mutex<Vec<Box<dyn StorageLock>>>),
    Log {
        books: Arc<Books>,
        refuses_damage: bool,
    },
}

impl Home {
    /// Creates the directory where it is missing and takes its lock.
    pub(super) fn enter(storage: Arc<dyn Storage>, directory: &Path) -> Result<Self> {
        let file_name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = TopicPartition::from_directory_name(file_name)?;
        // First the lock of the log around it, so that nothing is made in a log that somebody has open.
        let outer = parent_of(directory).map(|parent| parent.join(LOCK)).filter(|lock| storage.modified(lock).is_ok());
        let outer = outer.map(|lock| take_lock(&*storage, &lock, LockMode::Shared)).transpose()?;
        let entries = list_or_create(&*storage, directory)?;
        let lock_was_there = entries.iter().any(|entry| entry.name == LOCK);
        if !lock_was_there {
            sync_ancestors(&*storage, directory)?;
        }
        let inner = take_lock(&*storage, &directory.join(LOCK), LockMode::Exclusive)?;
        let locks: Vec<_> = std::iter::once(inner).chain(outer).collect();
        if !lock_was_there {
            sync_directory(&*storage, directory)?;
        }
        let keeper = Keeper::Alone(Mutex::new(locks));
        Ok(Self {
            storage,
            directory: directory.to_owned(),
            name,
            keeper,
            lock_was_there,
            entries: Mutex::new(Some(entries)),
            is_fresh: AtomicBool::new(false),
        })
    }

    /// Enters a partition's directory inside of a log's, whose lock is held; creates it where it is missing. The log
    /// makes the directory's name durable.
    pub(super) fn enter_in_log(
        storage: Arc<dyn Storage>,
        directory: &Path,
        books: Arc<Books>,
        refuses_damage: bool,
    ) -> Result<Self> {
        let file_name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = TopicPartition::from_directory_name(file_name)?;
        let entries = list_or_create_name(&*storage, directory)?;
        let lock_was_there = entries.iter().any(|entry| entry.name == LOCK);
        if lock_was_there {
            drop(take_lock(&*storage, &directory.join(LOCK), LockMode::Exclusive)?);
        }
        // One that an earlier attempt has begun, and not finished, is finished by this one.
        let is_fresh = entries.is_empty() || books.is_begun(&name);
        if is_fresh {
            books.begin(&name);
        }
        let keeper = Keeper::Log { books, refuses_damage };
        Ok(Self {
            storage,
            directory: directory.to_owned(),
            name,
            keeper,
            lock_was_there,
            is_fresh: AtomicBool::new(is_fresh),
            entries: Mutex::new(Some(entries)),
        })
    }

    pub(super) fn is_alone(&self) -> bool {
        matches!(self.keeper, Keeper::Alone(_))
    }

    /// Whether damage that cannot be a torn end is an error, and nothing is cut.
    pub(super) fn refuses_damage(&self) -> bool {
        matches!(self.keeper, Keeper::Log { refuses_damage: true, .. })
    }

    /// Gives the directory free.
    pub(super) fn release(&self) {
        if let Keeper::Alone(locks) = &self.keeper {
            locks.lock().clear();
        }
    }

    /// Removes what a partition opened alone has kept inside, the lock last, now that the log has it.
    pub(super) fn remove_inner_files(&self) -> Result<()> {
        if !self.lock_was_there {
            return Ok(());
        }
        for mark in Mark::ALL {
            self.remove(mark.file_name())?;
        }
        self.sync_directory()?;
        self.remove(LOCK)?;
        self.sync_directory()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn list(&self) -> Result<Vec<Entry>> {
        list(&*self.storage, &self.directory)
    }

    /// What lay here when the directory was entered, the first time; what lies here, later.
    pub(super) fn list_once(&self) -> Result<Vec<Entry>> {
        let entries = self.entries.lock().take();
        entries.map_or_else(|| self.list(), Ok)
    }

    /// Makes the names durable that a new directory has been given, where that was put off.
    pub(super) fn settle(&self) -> Result<()> {
        if self.is_fresh.load(Ordering::Relaxed) {
            self.sync_directory()?;
            self.is_fresh.store(false, Ordering::Relaxed);
            if let Keeper::Log { books, .. } = &self.keeper {
                books.finish(&self.name);
            }
        }
        Ok(())
    }

    /// Makes names durable, unless [`Self::settle`] will.
    pub(super) fn sync_names(&self) -> Result<()> {
        if self.is_fresh.load(Ordering::Relaxed) { Ok(()) } else { self.sync_directory() }
    }

    /// Replaces a small file, durably but for what [`Self::settle`] will do.
    pub(super) fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        checkpoint::replace(&*self.storage, &self.path(name), bytes)?;
        self.sync_names()
    }

    /// Replaces a file that may be lost, or torn by a crash.
    pub(super) fn write_hint(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.remove(name)?;
        let path = self.path(name);
        let file = self.storage.create(&path, 0).map_err(|error| Error::io("create", &path, error))?;
        let written = file.write(0, &[IoSlice::new(bytes)]).map_err(|error| Error::io("write", &path, error));
        if written.is_err() {
            self.remove(name)?;
        }
        written
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

    /// What was written may not be what a later sync covers: the next recovery writes it again. A disk that does not even
    /// take this is asked again when the partition is closed.
    pub(super) fn note_failed_sync(&self) {
        match self.storage.create(&self.path(SYNC_FAILED), 0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                trace::warn(&self.directory, || format!("cannot note that a sync has failed: {error}"));
            }
            _ => {}
        }
    }

    /// Whether a sync has failed since a recovery wrote everything again.
    pub(super) fn has_failed_sync(&self) -> bool {
        self.storage.modified(&self.path(SYNC_FAILED)).is_ok()
    }

    /// Everything above the recovery point was written again.
    pub(super) fn forget_failed_sync(&self) -> Result<()> {
        self.remove(SYNC_FAILED)
    }

    /// From here until [`Self::end_export`] nobody opens the directory.
    pub(super) fn begin_export(&self) -> Result<()> {
        checkpoint::write_own(&*self.storage, &self.path(EXPORT), EXPORT_VERSION, &[])
    }

    /// Everything is there, durably.
    pub(super) fn end_export(&self) -> Result<()> {
        self.remove(EXPORT)?;
        self.sync_directory()
    }

    /// Refuses a directory whose export was not finished.
    pub(super) fn check_exported(&self, entries: &[Entry]) -> Result<()> {
        if entries.iter().any(|entry| entry.name == EXPORT) {
            return Err(Error::UnfinishedExport { path: self.directory.clone() });
        }
        Ok(())
    }

    /// Whether the last process closed the partition. The inner marker is gone, durably, when this returns.
    pub(super) fn take_clean_marker(&self) -> Result<bool> {
        let inner = || clean_marker::remove(&*self.storage, &self.path(clean_marker::NAME));
        match (&self.keeper, self.lock_was_there) {
            (_, true) => inner(),
            (Keeper::Log { books, .. }, false) => Ok(books.was_clean(&self.name)),
            (Keeper::Alone(_), false) => {
                let marker = self.parent_path(clean_marker::NAME);
                let outer = marker.map_or(Ok(false), |path| clean_marker::is_present(&*self.storage, &path));
                Ok(inner()? || outer?)
            }
        }
    }

    /// In a log the marker is the log's, written when all of its partitions are closed.
    pub(super) fn write_clean_marker(&self) -> Result<()> {
        match &self.keeper {
            Keeper::Alone(_) => clean_marker::write(&*self.storage, &self.path(clean_marker::NAME)),
            Keeper::Log { .. } => Ok(()),
        }
    }

    pub(super) fn read_checkpoints(&self) -> Result<Checkpoints> {
        Ok(Checkpoints {
            recovery_point: self.read_offset(Mark::RecoveryPoint)?,
            log_start: self.read_offset(Mark::LogStart)?,
            high_watermark: self.read_offset(Mark::HighWatermark)?,
            cleaned: self.read_offset(Mark::Cleaned)?,
        })
    }

    /// The inner file's entry, else the parent's. A damaged file counts as absent, as in Kafka, with a warning.
    fn read_offset(&self, mark: Mark) -> Result<Option<Offset>> {
        let name = mark.file_name();
        let (inner, outer) = match &self.keeper {
            Keeper::Alone(_) => (Some(self.path(name)), self.parent_path(name)),
            Keeper::Log { .. } => (Some(self.path(name)).filter(|_| self.lock_was_there), None),
        };
        for path in inner.into_iter().chain(outer) {
            if let Some(offsets) = mark.read(&*self.storage, &path)? {
                return Ok(offsets.get(&self.name).copied());
            }
        }
        match &self.keeper {
            Keeper::Alone(_) => Ok(None),
            Keeper::Log { books, .. } => Ok(books.entry(mark, &self.name)),
        }
    }

    /// Sets a checkpoint, durably.
    pub(super) fn write(&self, mark: Mark, offset: Offset) -> Result<()> {
        match &self.keeper {
            Keeper::Alone(_) => {
                let entries = std::iter::once((self.name.clone(), offset)).collect();
                OffsetCheckpoint::write(&*self.storage, &self.path(mark.file_name()), &entries)
            }
            Keeper::Log { books, .. } => books.write(mark, &self.name, offset),
        }
    }

    /// Sets a checkpoint that may be lost; in a log it is written with those of the other partitions.
    pub(super) fn note(&self, mark: Mark, offset: Offset) -> Result<()> {
        match &self.keeper {
            Keeper::Alone(_) => self.write(mark, offset),
            Keeper::Log { books, .. } => {
                books.note(mark, &self.name, offset);
                Ok(())
            }
        }
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
        self.write_file(EPOCHS, checkpoint::render_epochs(entries).as_bytes())
    }

    /// `None` where there is no such file.
    pub(super) fn read_history(&self) -> Result<Option<History>> {
        let bytes = checkpoint::read_own(&*self.storage, &self.path(HISTORY), HISTORY_VERSION, HISTORY_BYTES_MAX)?;
        Ok(bytes.map(|bytes| History::parse(&bytes)))
    }

    pub(super) fn write_history(&self, history: History) -> Result<()> {
        self.write_file(HISTORY, &own::frame(HISTORY_VERSION, &history.to_bytes()))
    }

    pub(super) fn read_topic_id(&self) -> Result<Option<[u8; 16]>> {
        partition_metadata::read(&*self.storage, &self.path(partition_metadata::NAME))
    }

    /// The same for a copy, which can do without: `None` also where the file is damaged.
    pub(super) fn sound_topic_id(&self) -> Result<Option<[u8; 16]>> {
        match self.read_topic_id() {
            Err(error @ (Error::CorruptFile { .. } | Error::UnsupportedVersion { .. })) => {
                trace::warn(&self.directory, || format!("is copied without its topic's id: {error}"));
                Ok(None)
            }
            other => other,
        }
    }

    /// Makes sure that the directory is the topic's.
    pub(super) fn settle_topic_id(&self, id: TopicId) -> Result<()> {
        match self.read_topic_id()? {
            None => self.write_topic_id(id.0),
            Some(found) if found == id.0 => Ok(()),
            Some(found) => Err(Error::WrongCluster {
                path: self.directory.clone(),
                found: format!("topic {}", TopicId(found)),
                expected: format!("topic {id}"),
            }),
        }
    }

    pub(super) fn write_topic_id(&self, id: [u8; 16]) -> Result<()> {
        self.write_file(partition_metadata::NAME, partition_metadata::render(&id).as_bytes())
    }

    fn parent_path(&self, name: &str) -> Option<PathBuf> {
        parent_of(&self.directory).map(|parent| parent.join(name))
    }
}

/// The base offset in a name that has `suffix` behind twenty digits.
pub(super) fn base_of(name: &str, suffix: &str) -> Option<Offset> {
    let digits = name.strip_suffix(suffix)?;
    let exact = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| exact).map(Offset).filter(|base| *base <= Offset::MAX)
}

/// The base offset in the name of one of the files that begin with it: those of a segment, and a snapshot.
pub(super) fn base_in(name: &str) -> Option<Offset> {
    [".log", ".index", ".timeindex", ".txnindex", ".snapshot"].iter().find_map(|suffix| base_of(name, suffix))
}

/// Whether an interrupted process of Kafka's or of ours left a file of this name, which nobody needs.
///
/// ```text
///   <base file>.deleted           Kafka's; so are <base file>.cleaned.deleted and <base file>.swap.deleted
///   <base file>.<n>.deleted       a segment that left the view
///   <base file>.copy.deleted      a copy that was to take the file's place
///   <base file>.cleaned           what a cleaner had not finished
///   <small file>.tmp              a small file that had not got its name
/// ```
pub(super) fn is_leftover(name: &str) -> bool {
    if let Some(rest) = name.strip_suffix(".deleted") {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let known = |part: &str| matches!(part, "copy" | "cleaned" | "swap") || is_number(part);
        return base_in(rest).is_some()
            || rest.rsplit_once('.').is_some_and(|(file, part)| known(part) && base_in(file).is_some());
    }
    if let Some(rest) = name.strip_suffix(".tmp") {
        return [clean_marker::NAME, EPOCHS, partition_metadata::NAME, HISTORY].contains(&rest)
            || Mark::ALL.iter().any(|mark| mark.file_name() == rest)
            || base_of(rest, ".snapshot").is_some();
    }
    name.strip_suffix(".cleaned").is_some_and(|file| base_in(file).is_some())
}
