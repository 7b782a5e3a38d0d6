//! A partition: one append-only log, made of segments, that survives what its durability promises.
//!
//! Rooms:
//!
//! ```text
//!   open.rs     builder; recovery: what is on the disk becomes a view          recover.rs, names.rs
//!   append.rs   check → assign → roll → write → publish, under the writer lock
//!   replica.rs  the same for batches that another copy of the log has       marker.rs   the ends of transactions
//!   producers.rs, transactions.rs   idempotent producers, and who has a transaction open
//!   snapshot.rs, snapshots.rs       the same as files           aborted.rs   which aborts are indexed
//!   durable.rs  the shared sync, waiting, poisoning, checkpoints, close
//!   read.rs     view and marks → checked batches; waiting for more
//!   retention.rs, trim.rs   what goes from the front          truncate.rs   what goes from the end
//!   home.rs     the directory's lock, checkpoints and marker   view.rs   what readers see
//!   compact/    of each key the last record stays
//!   place.rs    where an offset lies, for whoever works out lag
//!   books.rs    the checkpoints of all partitions of a log     settings.rs   what may change while it is open
//! ```
//!
//! Order of locks: the cleaner, then the writer, then the shared sync's state, then the producers; those of small lists (holds,
//! retired segments) come last, and are held for no I/O. No lock is held over a
//! sync but the writer's at a roll of a synced partition, at truncation, retention, close and reopen. Readers
//! take none of them.
//!
//! Thread rule: every method may be called from any thread. A partition starts no thread: what falls due is
//! done by `sync`, `wait`, a blocking read, and [`Partition::maintain`].

mod aborted;
mod append;
mod books;
mod compact;
mod durable;
mod export;
mod home;
mod maintain;
mod marker;
mod names;
mod open;
mod place;
mod producers;
mod read;
mod receipt;
mod recover;
mod replica;
mod retention;
mod settings;
mod snapshot;
mod snapshots;
mod transactions;
mod trim;
mod truncate;
mod verify;
mod view;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::clock::{Clock, Moment};
use crate::config::{Commits, PartitionConfig};
use crate::epochs::{Epochs, end_offset_for};
use crate::error::{Error, Result};
use crate::segment::{Segment, SegmentConfig, SegmentReader};
use crate::sync::{Event, Mutex, SharedSync};
use crate::types::{LeaderEpoch, Offset, TopicPartition};

pub use append::Appended;
pub(crate) use books::Books;
pub(crate) use compact::Dirtiness;
pub use compact::{Compacting, Compaction, CompactionEnd};
pub use maintain::{Maintenance, Stats};
pub use open::PartitionBuilder;
pub(crate) use open::{InLog, Unsynced};
pub(crate) use place::{Place, Volume};
pub(crate) use producers::OpenTransaction;
pub use read::{Fetched, FetchedRecords, Found, ReadOptions};
pub(crate) use receipt::{Listening, Receipt, WeakPartition};
pub use recover::{Cut, DamagedRange, Recovery};
pub(crate) use retention::Reached;
pub use retention::{RemovalReason, Removed, SegmentSummary};
#[cfg(feature = "testkit")]
pub(crate) use snapshot::fuzz as fuzz_snapshot;
pub use trim::Hold;
pub use truncate::Force;
pub use view::UpTo;

use aborted::Noted;
use home::{History, Home};
use producers::Producers;
use settings::Settings;
use snapshots::Snapshots;
use view::{Picture, View};

/// A commit log in one directory, usable by itself.
///
/// Cloning is cheap: clones are handles of the same log. [`Partition::close`] or the drop of the last handle
/// syncs it, writes its checkpoints and marks it as cleanly closed.
///
/// ```
/// use taffrail::{BatchBuilder, Partition, PartitionConfig, ReadOptions, Record};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("wal-0");
/// let partition = Partition::open(&path, PartitionConfig::default())?;
/// let mut batch = BatchBuilder::new();
/// batch.push(&Record::new("placed").key("customer-7"))?;
/// let appended = partition.append(&mut batch)?;
/// let first = appended.offsets.start;
/// appended.wait()?;
/// for record in &partition.read(first, ReadOptions::default())? {
///     println!("{} {:?}", record.offset(), record.value_str());
/// }
/// partition.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Partition {
    inner: Arc<Inner>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("directory", &self.home.directory).finish_non_exhaustive()
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition")
            .field("directory", &self.inner.home.directory)
            .field("start", &self.start())
            .field("end", &self.end())
            .field("high_watermark", &self.high_watermark())
            .field("health", &self.inner.health())
            .finish_non_exhaustive()
    }
}

/// Whether a partition takes calls.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Open = 0,
    /// A write or sync failed: reads go on, writes wait for a reopen.
    Poisoned = 1,
    Closed = 2,
}

/// What the handles share.
struct Inner {
    home: Home,
    settings: Settings,
    commits: Commits,
    clock: Arc<dyn Clock>,
    picture: Picture,
    writer: Mutex<Writer>,
    sync: SharedSync,
    /// What the history says of producers is not on the disk yet: it is before a sync counts.
    history_due: AtomicBool,
    /// Set once a transactional batch is in the log; until then the last stable offset is the high watermark.
    transactional: AtomicBool,
    /// The writer's to change, and the sync's, where a decided transaction is forgotten.
    producers: Mutex<Producers>,
    /// Something became readable, or the partition changed its health.
    changed: Event,
    /// When the oldest append that is not synced was made (nanoseconds of `Moment`, plus one); 0 for none.
    unsynced_since: AtomicU64,
    /// Who is told then.
    unsynced: Option<Arc<dyn open::Unsynced>>,
    /// Up to where a host that commits by itself has committed.
    committed: AtomicU64,
    health: AtomicU8,
    poison: Mutex<Option<Arc<Error>>>,
    holds: Arc<trim::Holds>,
    /// Segments that were taken out of the view, with when: readers may still hold them.
    retired: Mutex<Vec<trim::Retired>>,
    /// The compaction that is under way. Held for a step of it.
    cleaner: Mutex<compact::Cleaner>,
    /// What its compaction has failed with.
    uncleanable: Mutex<Option<compact::Trouble>>,
    recovery: Mutex<Arc<Recovery>>,
    /// What was appended, as of the last look.
    tally: Mutex<place::Tally>,
    /// Counts the syncs.
    syncs: AtomicU64,
}

/// What only the holder of the writer lock may touch.
#[derive(Debug)]
struct Writer {
    config: PartitionConfig,
    segment_config: SegmentConfig,
    active: Segment,
    epochs: Epochs,
    /// The epoch that the next batch of a client gets: the highest that was ever begun.
    epoch: LeaderEpoch,
    /// Counts truncations and reopens: what was looked at before one is not the log any more.
    rewinds: u64,
    history: History,
    /// Sealed segments whose bytes may not all be synced.
    unsynced: Vec<Arc<SegmentReader>>,
    snapshots: Snapshots,
    aborted: Noted,
    /// When it was last looked for producers to be forgotten.
    last_expiry: Moment,
    /// A name was created, renamed or removed since the directory was last synced.
    directory_dirty: bool,
    /// Removed from the front, and not renamed yet, because that failed.
    unretired: Vec<Arc<SegmentReader>>,
    /// Distinguishes the names of retired files.
    retired_count: u64,
    last_checkpoint: Moment,
    /// Up to where the log is compacted, as the checkpoint has it.
    cleaned: Option<Offset>,
    /// The end at the last call of `maintain`, and since when it has not moved.
    idle: (Offset, Moment),
    index_dropped: bool,
}

impl Partition {
    /// Opens the partition in `directory`, which is named as Kafka names it (`orders-0`); creates it where it is
    /// missing, recovers it where it was not closed.
    ///
    /// Each call has a storage of its own, with a bound of its own on open files. A process that opens many partitions
    /// gives them all one ([`PartitionBuilder::storage`]), and opens them on several threads: an open waits for the disk
    /// more than for a core.
    ///
    /// A parent directory that this process may pass through and not read cannot be synced by it. That is no error: whoever
    /// owns it answers for it that the name of a new partition in it survives a loss of power.
    ///
    /// # Errors
    /// [`Error::Locked`] where another handle has it open, [`Error::InvalidConfig`], [`Error::InvalidName`],
    /// [`Error::Io`].
    pub fn open(directory: impl AsRef<Path>, config: PartitionConfig) -> Result<Self> {
        Self::builder(directory).config(config).open()
    }

    /// Opens a partition with doors of the host's own.
    pub fn builder(directory: impl AsRef<Path>) -> PartitionBuilder {
        PartitionBuilder::new(directory.as_ref())
    }

    /// Its topic and number, as its directory is named.
    #[must_use]
    pub fn name(&self) -> &TopicPartition {
        &self.inner.home.name
    }

    /// The first offset that can be read.
    #[must_use]
    pub fn start(&self) -> Offset {
        self.inner.picture.view().log_start
    }

    /// The end of the log: the offset that the next record gets.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.inner.picture.end()
    }

    /// Up to where records are stored as the partition's durability demands, and readers see them.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.inner.picture.high_watermark()
    }

    /// Up to where it is decided what [`Isolation::Committed`](crate::Isolation::Committed) shows.
    #[must_use]
    pub fn last_stable(&self) -> Offset {
        self.inner.picture.last_stable()
    }

    /// Up to where everything is synced.
    #[must_use]
    pub fn synced_end(&self) -> Offset {
        Offset(self.inner.sync.synced())
    }

    /// The epoch that appended batches carry; every unclean open begins a new one.
    #[must_use]
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.inner.writer.lock().epoch
    }

    /// Where the records of a leader epoch end: the greatest epoch at or below `epoch`, and the offset behind its
    /// last record. `None` where the epoch is later than any here, or nothing is known of it.
    #[doc(alias = "OffsetForLeaderEpoch")]
    #[must_use]
    pub fn epoch_end(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let (view, marks) = self.inner.picture.load();
        end_offset_for(&view.epochs, epoch, marks.end)
    }

    /// What the last open or reopen found and did.
    #[must_use]
    pub fn recovery(&self) -> Arc<Recovery> {
        Arc::clone(&self.inner.recovery.lock())
    }
}

impl Inner {
    fn health(&self) -> Health {
        match self.health.load(Ordering::Acquire) {
            0 => Health::Open,
            1 => Health::Poisoned,
            _ => Health::Closed,
        }
    }

    fn set_health(&self, health: Health) {
        self.health.store(health as u8, Ordering::Release);
        self.changed.notify();
    }

    /// Refuses what a closed partition, or one of another process, does not do.
    fn check_readable(&self) -> Result<()> {
        if self.home.storage.is_forked() {
            return Err(Error::Forked);
        }
        match self.health() {
            Health::Closed => Err(Error::Closed),
            Health::Open | Health::Poisoned => Ok(()),
        }
    }

    /// Refuses what a poisoned partition does not do either.
    fn check_writable(&self) -> Result<()> {
        self.check_readable()?;
        self.check_health()
    }

    /// The same again once the writer lock is held, when only the health may have changed.
    fn check_health(&self) -> Result<()> {
        match self.health() {
            Health::Open => Ok(()),
            Health::Poisoned => Err(self.poisoned()),
            Health::Closed => Err(Error::Closed),
        }
    }

    /// The next view: the current one, changed.
    fn next_view(&self, change: impl FnOnce(&mut View)) -> View {
        let current = self.picture.view();
        let mut next = View {
            segments: current.segments.clone(),
            log_start: current.log_start,
            epochs: current.epochs.clone(),
            contiguous: current.contiguous,
        };
        change(&mut next);
        next
    }
}
