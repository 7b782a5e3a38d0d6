//! Opening and reopening: the directory's lock, recovery, and the state that follows from what was found.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use super::books::{Books, Mark};
use super::compact::Cleaner;
use super::home::Home;
use super::place::Tally;
use super::recover::{Loaded, Loader};
use super::settings::{Settings, check_knows_groups};
use super::trim::Holds;
use super::view::Picture;
use super::{Health, Inner, Partition, Writer};
use crate::clock::{Clock, SystemClock};
use crate::config::{CleanerConfig, PartitionConfig};
use crate::error::{Error, Result};
use crate::segment::SegmentConfig;
use crate::storage::{FileStorage, Storage};
use crate::sync::{Event, Mutex, SharedSync};
use crate::types::{Offset, TopicId};

/// Opens a [`Partition`] with doors of the host's own.
///
/// ```
/// use std::sync::Arc;
/// use taffrail::{ManualClock, MemoryStorage, Partition, PartitionConfig, Timestamp};
/// let partition = Partition::builder("data/wal-0")
///     .config(PartitionConfig::default())
///     .storage(Arc::new(MemoryStorage::new(7)))
///     .clock(Arc::new(ManualClock::at(Timestamp(0))))
///     .open()?;
/// # partition.close()?;
/// # Ok::<(), taffrail::Error>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct PartitionBuilder {
    directory: PathBuf,
    config: PartitionConfig,
    storage: Option<Arc<dyn Storage>>,
    clock: Arc<dyn Clock>,
    cleaner: CleanerConfig,
    log: Option<InLog>,
}

/// The log that a partition is opened in.
#[derive(Debug)]
pub(crate) struct InLog {
    pub(crate) books: Arc<Books>,
    /// The topic's id, which is on the disk before the first record is.
    pub(crate) topic: TopicId,
    /// Told when an append needs a sync that nobody may ask for.
    pub(crate) unsynced: Option<Arc<dyn Unsynced>>,
    /// Damage with sound batches behind it, or in what was synced, is an error at open: nothing of it is cut.
    pub(crate) refuses_damage: bool,
}

/// Who is told that a partition has something to sync.
pub(crate) trait Unsynced: Send + Sync + fmt::Debug {
    /// Called under the writer's lock, once for all that is unsynced then: it must not wait, nor call the partition.
    fn unsynced(&self);
}

impl PartitionBuilder {
    pub(super) fn new(directory: &Path) -> Self {
        let (config, clock) = (PartitionConfig::default(), Arc::new(SystemClock));
        let cleaner = CleanerConfig::new();
        Self { directory: directory.to_owned(), config, storage: None, clock, cleaner, log: None }
    }

    /// The settings. Default: [`PartitionConfig::default`].
    pub fn config(mut self, config: PartitionConfig) -> Self {
        self.config = config;
        self
    }

    /// Where the bytes lie. Default: the operating system's files, a [`FileStorage::new`] for this partition alone.
    ///
    /// Partitions that share one storage share its bound on open files ([`FileStorage::open_files`]), so many partitions
    /// of one process share one. Opening them on several threads shortens the wait for the disk:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use taffrail::{FileStorage, Partition, Storage};
    /// # let home = tempfile::tempdir()?;
    /// # let home = home.path();
    /// let files: Arc<dyn Storage> = Arc::new(FileStorage::new().open_files(1024));
    /// let open = |number| Partition::builder(home.join(format!("wal-{number}"))).storage(Arc::clone(&files)).open();
    /// let partitions = std::thread::scope(|scope| {
    ///     let threads = [0..4, 4..8].map(|numbers| scope.spawn(move || numbers.map(open).collect::<Vec<_>>()));
    ///     threads.map(|thread| thread.join().expect("an open does not panic"))
    /// });
    /// for partition in partitions.into_iter().flatten() {
    ///     partition?.close()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.storage = Some(storage);
        self
    }

    /// What tells the time. Default: [`SystemClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What compaction may use. Default: [`CleanerConfig::new`].
    pub fn cleaner(mut self, cleaner: CleanerConfig) -> Self {
        self.cleaner = cleaner;
        self
    }

    /// Opens it as a part of a log, which has its lock and its checkpoints.
    pub(crate) fn in_log(mut self, log: InLog) -> Self {
        self.log = Some(log);
        self
    }

    /// Opens the partition.
    ///
    /// # Errors
    /// As [`Partition::open`].
    pub fn open(self) -> Result<Partition> {
        self.config.check()?;
        if self.log.is_none() {
            check_knows_groups(&self.config)?;
        }
        self.cleaner.check()?;
        let storage = self.storage.unwrap_or_else(|| Arc::new(FileStorage::new()));
        let (home, watcher) = match self.log {
            None => (Home::enter(storage, &self.directory)?, None),
            Some(log) => {
                let home = Home::enter_in_log(storage, &self.directory, log.books, log.refuses_damage)?;
                home.settle_topic_id(log.topic)?;
                (home, log.unsynced)
            }
        };
        let was_clean = home.take_clean_marker()?;
        let segment_config = SegmentConfig::from(&self.config);
        let loaded = Loader {
            home: &home,
            config: &self.config,
            segment_config: &segment_config,
            clock: &*self.clock,
            known: &[],
            was_clean,
            committed: None,
        }
        .load()?;
        let now = self.clock.monotonic();
        let Loaded {
            active,
            view,
            marks,
            epochs,
            epoch,
            history,
            producers,
            snapshots,
            aborted,
            synced,
            unsynced,
            directory_dirty,
            cleaned,
            recovery,
        } = loaded;
        let settings = Settings::new(&self.config);
        let commits = self.config.commits;
        let writer = Writer {
            config: self.config,
            segment_config,
            active,
            epochs,
            epoch,
            rewinds: 0,
            history,
            directory_dirty,
            unsynced,
            unretired: Vec::new(),
            retired_count: 0,
            last_checkpoint: now,
            snapshots,
            aborted,
            last_expiry: now,
            cleaned,
            idle: (marks.end, now),
            index_dropped: false,
        };
        let tally = Mutex::new(Tally::at(&view, marks.end));
        let inner = Inner {
            home,
            settings,
            commits,
            clock: self.clock,
            picture: Picture::new(view, marks),
            writer: Mutex::new(writer),
            sync: SharedSync::new(synced.0),
            history_due: AtomicBool::new(false),
            transactional: AtomicBool::new(history.transactions),
            producers: Mutex::new(producers),
            changed: Event::new(),
            unsynced_since: AtomicU64::new(0),
            unsynced: watcher,
            committed: AtomicU64::new(marks.high_watermark.0),
            health: AtomicU8::new(Health::Open as u8),
            poison: Mutex::new(None),
            holds: Arc::new(Holds::new()),
            retired: Mutex::new(Vec::new()),
            cleaner: Mutex::new(Cleaner::new(self.cleaner)),
            uncleanable: Mutex::new(None),
            recovery: Mutex::new(Arc::new(recovery)),
            tally,
            syncs: AtomicU64::new(0),
        };
        inner.stored(marks.high_watermark);
        Ok(Partition { inner: Arc::new(inner) })
    }
}

impl Partition {
    /// Enters into the log's books what this partition knows better; they are saved with those of the others.
    pub(crate) fn enter_books(&self) -> Result<()> {
        let home = &self.inner.home;
        home.note(Mark::RecoveryPoint, self.inner.recovery_point())?;
        home.note(Mark::LogStart, self.start())?;
        let cleaned = self.inner.writer.lock().cleaned;
        cleaned.map_or(Ok(()), |cleaned| home.note(Mark::Cleaned, cleaned))?;
        home.note(Mark::HighWatermark, self.high_watermark())
    }

    /// Removes what a partition that was once opened alone keeps inside, now that the log's saved books have it.
    pub(crate) fn leave_inner_files(&self) -> Result<()> {
        self.inner.home.remove_inner_files()
    }

    /// Whether it takes no writes until it is reopened.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.inner.health() == Health::Poisoned
    }

    /// Recovers the partition anew from what the disk holds, after a failed write or sync has poisoned it. Handles,
    /// readers and holds stay as they are; what was not acknowledged may be there or not.
    ///
    /// # Errors
    /// As [`Partition::open`]; the partition stays poisoned then.
    pub fn reopen(&self) -> Result<()> {
        let inner = &*self.inner;
        inner.check_readable()?;
        let mut cleaner = inner.cleaner.lock();
        let mut writer = inner.writer.lock();
        if inner.health() == Health::Closed {
            return Err(Error::Closed);
        }
        // What it has written and not exchanged goes before the directory is looked at.
        cleaner.reset();
        let known = inner.picture.view();
        let loaded = Loader {
            home: &inner.home,
            config: &writer.config,
            segment_config: &writer.segment_config,
            clock: &*inner.clock,
            known: &known.segments,
            was_clean: false,
            committed: Some(Offset(inner.committed.load(Ordering::Acquire))),
        }
        .load()
        .map_err(|error| {
            // From here on this is why it takes no writes.
            *inner.poison.lock() = None;
            inner.poison(error)
        })?;
        let Loaded {
            active,
            view,
            marks,
            epochs,
            epoch,
            history,
            producers,
            snapshots,
            aborted,
            synced,
            unsynced,
            directory_dirty,
            cleaned,
            recovery,
        } = loaded;
        writer.rewinds += 1;
        writer.active = active;
        writer.epochs = epochs;
        writer.epoch = epoch;
        writer.history = history;
        writer.directory_dirty = directory_dirty;
        writer.unsynced = unsynced;
        writer.unretired.clear(); // the loader has removed them
        writer.index_dropped = false;
        *inner.producers.lock() = producers;
        writer.snapshots = snapshots;
        writer.aborted = aborted;
        inner.history_due.store(false, Ordering::Release);
        writer.cleaned = cleaned;
        inner.transactional.store(history.transactions, Ordering::Release);
        inner.committed.fetch_min(marks.end.0, Ordering::AcqRel);
        inner.unsynced_since.store(0, Ordering::Release);
        inner.sync.reset(synced.0, inner.sync.synced().min(marks.end.0));
        inner.picture.replace(view, marks);
        inner.stored(marks.high_watermark);
        *inner.recovery.lock() = Arc::new(recovery);
        *inner.poison.lock() = None;
        *inner.uncleanable.lock() = None;
        inner.set_health(Health::Open);
        Ok(())
    }
}

/// The first offset of a partition that has no segment and no checkpoint.
pub(super) const FIRST_OFFSET: Offset = Offset::ZERO;
