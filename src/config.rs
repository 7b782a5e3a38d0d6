//! Settings: what they mean, their defaults, and the one place where they are checked.
//!
//! Invariant: a configuration that an `open` accepted has passed `check` as a whole; no later code asks again.

mod cleaner;
mod groups;
mod retention;
pub(crate) mod settings;
mod topic;

use std::time::Duration;

use crate::error::{Error, Result};

pub(crate) use cleaner::SLOT_BYTES;
pub use cleaner::{CleanerConfig, Ratio};
pub use groups::GroupConfig;
pub use retention::Retention;
pub use settings::SettingDifference;
pub(crate) use topic::PARTITIONS_MAX;
pub use topic::TopicConfig;

/// What "stored" means on a copy of a partition: when an append counts as acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// Decided per acknowledgement: [`Durability::Os`] while two or more copies are in sync,
    /// [`Durability::Sync`] while this copy is alone. A partition opened by itself is always alone.
    #[default]
    Auto,
    /// An acknowledged record survives a loss of power: it has been synced.
    Sync,
    /// An acknowledged record survives the end of the process: the operating system has it.
    Os,
}

/// How old records go (Kafka: `cleanup.policy`).
#[doc(alias = "cleanup.policy")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cleanup {
    /// Whole segments from the front, by [`Retention`].
    #[default]
    Delete,
    /// Records that a later one with the same key replaces. Every record needs a key. Offsets never change, and a deleted
    /// key (a record without a value) is kept for [`PartitionConfig::delete_retention`], so that who reads in time hears
    /// of it.
    Compact,
    /// Both.
    CompactAndDelete,
}

impl Cleanup {
    /// Whether segments are dropped from the front by time and size.
    #[must_use]
    pub const fn deletes(self) -> bool {
        matches!(self, Self::Delete | Self::CompactAndDelete)
    }

    /// Whether the log keeps the latest record per key.
    #[must_use]
    pub const fn compacts(self) -> bool {
        matches!(self, Self::Compact | Self::CompactAndDelete)
    }
}

/// Who says up to where a log is committed, so that readers see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Commits {
    /// The partition: what is stored as its durability demands is committed.
    #[default]
    WhenStored,
    /// A host with a consensus of its own, by `commit_to`. What is not stored is not shown for all that. Leader
    /// epochs are the host's too: an unclean open begins none.
    ByHost,
}

/// Whose clock a record's timestamp is (Kafka: `message.timestamp.type`).
#[doc(alias = "message.timestamp.type")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimestampType {
    /// The producer's.
    #[default]
    CreateTime,
    /// The log's, when it appended the batch.
    LogAppendTime,
}

/// The settings of one partition. The default keeps everything: no retention, no compaction, no roll by time.
///
/// ```
/// use std::time::Duration;
/// use taffrail::{PartitionConfig, Retention};
/// let config = PartitionConfig::new()
///     .segment_bytes(64 << 20)
///     .retention(Retention::forever().age(Duration::from_secs(3600)).bytes(1 << 30));
/// # let _ = config;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct PartitionConfig {
    /// See the [method](Self::durability()) of this name.
    pub durability: Durability,
    /// See the [method](Self::commits()) of this name.
    pub commits: Commits,
    /// See the [method](Self::cleanup()) of this name.
    pub cleanup: Cleanup,
    /// See the [method](Self::retention()) of this name.
    pub retention: Retention,
    /// See the [method](Self::segment_bytes()) of this name.
    pub segment_bytes: u32,
    /// See the [method](Self::segment_age()) of this name.
    pub segment_age: Option<Duration>,
    /// See the [method](Self::index_interval_bytes()) of this name.
    pub index_interval_bytes: u32,
    /// See the [method](Self::index_bytes_max()) of this name.
    pub index_bytes_max: u32,
    /// See the [method](Self::batch_bytes_max()) of this name.
    pub batch_bytes_max: u32,
    /// See the [method](Self::decompressed_bytes_max()) of this name.
    pub decompressed_bytes_max: usize,
    /// See the [method](Self::timestamp_type()) of this name.
    pub timestamp_type: TimestampType,
    /// See the [method](Self::timestamp_before_max()) of this name.
    pub timestamp_before_max: Option<Duration>,
    /// See the [method](Self::timestamp_after_max()) of this name.
    pub timestamp_after_max: Option<Duration>,
    /// See the [method](Self::flush_interval()) of this name.
    pub flush_interval: Duration,
    /// See the [method](Self::checkpoint_interval()) of this name.
    pub checkpoint_interval: Duration,
    /// See the [method](Self::idle_after()) of this name.
    pub idle_after: Duration,
    /// See the [method](Self::producer_id_expiration()) of this name.
    pub producer_id_expiration: Duration,
    /// See the [method](Self::min_dirty_ratio()) of this name.
    pub min_dirty_ratio: Ratio,
    /// See the [method](Self::min_compaction_lag()) of this name.
    pub min_compaction_lag: Duration,
    /// See the [method](Self::max_compaction_lag()) of this name.
    pub max_compaction_lag: Option<Duration>,
    /// See the [method](Self::delete_retention()) of this name.
    pub delete_retention: Duration,
}

impl Default for PartitionConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl PartitionConfig {
    /// The default settings.
    pub const fn new() -> Self {
        Self {
            durability: Durability::Auto,
            commits: Commits::WhenStored,
            cleanup: Cleanup::Delete,
            retention: Retention::forever(),
            segment_bytes: 1 << 30,
            segment_age: None,
            index_interval_bytes: 4096,
            index_bytes_max: 10 << 20,
            batch_bytes_max: 1_048_588,
            decompressed_bytes_max: 64 << 20,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max: None,
            timestamp_after_max: None,
            flush_interval: Duration::from_millis(5),
            checkpoint_interval: Duration::from_secs(5),
            idle_after: Duration::from_secs(10),
            producer_id_expiration: Duration::from_secs(24 * 60 * 60),
            min_dirty_ratio: Ratio::new(0.5),
            min_compaction_lag: Duration::ZERO,
            max_compaction_lag: None,
            delete_retention: Duration::from_secs(24 * 60 * 60),
        }
    }

    /// What an acknowledgement promises. Default: [`Durability::Auto`].
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Who commits. Default: the partition, as soon as a record is stored.
    pub const fn commits(mut self, commits: Commits) -> Self {
        self.commits = commits;
        self
    }

    /// How old records go. Default: [`Cleanup::Delete`], which with the default retention removes nothing.
    #[doc(alias = "cleanup.policy")]
    pub const fn cleanup(mut self, cleanup: Cleanup) -> Self {
        self.cleanup = cleanup;
        self
    }

    /// How long and how much is kept. Default: everything.
    #[doc(alias = "retention.ms")]
    #[doc(alias = "retention.bytes")]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// A segment is closed before it would grow beyond this many bytes. Default: 1 GiB, at most 2^31 − 1.
    #[doc(alias = "segment.bytes")]
    pub const fn segment_bytes(mut self, bytes: u32) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// A segment is closed when a record arrives whose timestamp is later than its first one's by more than
    /// this. Default: never (Kafka: 7 days).
    #[doc(alias = "segment.ms")]
    pub const fn segment_age(mut self, age: Option<Duration>) -> Self {
        self.segment_age = age;
        self
    }

    /// How many bytes of log lie between two index entries. Default: 4,096; 0 indexes every batch but the first.
    #[doc(alias = "index.interval.bytes")]
    pub const fn index_interval_bytes(mut self, bytes: u32) -> Self {
        self.index_interval_bytes = bytes;
        self
    }

    /// A segment is closed when one of its indexes would outgrow this many bytes. Default: 10 MiB.
    #[doc(alias = "segment.index.bytes")]
    pub const fn index_bytes_max(mut self, bytes: u32) -> Self {
        self.index_bytes_max = bytes;
        self
    }

    /// The largest batch that is taken, in bytes, compressed and with its header, as in Kafka. A larger record is taken
    /// where compression gets it down. Default: 1,048,588.
    #[doc(alias = "max.message.bytes")]
    pub const fn batch_bytes_max(mut self, bytes: u32) -> Self {
        self.batch_bytes_max = bytes;
        self
    }

    /// The most bytes of records that one compressed batch may hold: what has more is not appended
    /// ([`Error::DecompressionBound`](crate::Error::DecompressionBound)), and where a replica or a broker brought it, not
    /// decompressed. A change holds for what is there already, too. Default: 64 MiB. Kafka has no such bound.
    pub const fn decompressed_bytes_max(mut self, bytes: usize) -> Self {
        self.decompressed_bytes_max = bytes;
        self
    }

    /// Whose clock stamps records. Default: the producer's.
    #[doc(alias = "message.timestamp.type")]
    pub const fn timestamp_type(mut self, timestamp_type: TimestampType) -> Self {
        self.timestamp_type = timestamp_type;
        self
    }

    /// How far before now a record's timestamp may lie. Default: any distance.
    #[doc(alias = "message.timestamp.before.max.ms")]
    pub const fn timestamp_before_max(mut self, distance: Option<Duration>) -> Self {
        self.timestamp_before_max = distance;
        self
    }

    /// How far after now a record's timestamp may lie. Default: any distance.
    #[doc(alias = "message.timestamp.after.max.ms")]
    pub const fn timestamp_after_max(mut self, distance: Option<Duration>) -> Self {
        self.timestamp_after_max = distance;
        self
    }

    /// After how long a batch that nobody waits for is synced, and so becomes visible. Default: 5 ms (Kafka leaves it to
    /// the operating system).
    pub const fn flush_interval(mut self, interval: Duration) -> Self {
        self.flush_interval = interval;
        self
    }

    /// How often `maintain` writes the recovery point and the high watermark to their checkpoints. Default: 5 s.
    pub const fn checkpoint_interval(mut self, interval: Duration) -> Self {
        self.checkpoint_interval = interval;
        self
    }

    /// After how long without an append `maintain` lets go of the memory of a partition's index. Default: 10 s.
    pub const fn idle_after(mut self, idle: Duration) -> Self {
        self.idle_after = idle;
        self
    }

    /// After how long a producer is forgotten that has no transaction open, and of which nothing was heard: neither by the
    /// timestamps of its records nor by the clock when they were appended, or the partition was opened. What it sends again
    /// then is taken for new. Default: 24 hours, as in Kafka (where it holds for all topics); not zero.
    #[doc(alias = "producer.id.expiration.ms")]
    pub const fn producer_id_expiration(mut self, expiration: Duration) -> Self {
        self.producer_id_expiration = expiration;
        self
    }

    /// A compacted partition is compacted once more than this part of what could be cleaned has not been, in bytes.
    /// Default: 0.5.
    #[doc(alias = "min.cleanable.dirty.ratio")]
    pub const fn min_dirty_ratio(mut self, ratio: Ratio) -> Self {
        self.min_dirty_ratio = ratio;
        self
    }

    /// A segment is not compacted while its newest record is younger than this, by its timestamp. Default: 0.
    #[doc(alias = "min.compaction.lag.ms")]
    pub const fn min_compaction_lag(mut self, lag: Duration) -> Self {
        self.min_compaction_lag = lag;
        self
    }

    /// A partition is compacted, whatever the ratio, once a segment that was not is older than this, by the timestamp of
    /// its first batch; and a segment is closed when a record comes whose timestamp is later than its first one's by
    /// more. Default: never.
    #[doc(alias = "max.compaction.lag.ms")]
    pub const fn max_compaction_lag(mut self, lag: Option<Duration>) -> Self {
        self.max_compaction_lag = lag;
        self
    }

    /// For how long a deleted key (a record without a value) is kept once what it deletes is gone; and so is the marker of
    /// a transaction. Whoever reads the log from its start to its end within that time hears of the deletion.
    /// Default: 24 hours.
    #[doc(alias = "delete.retention.ms")]
    pub const fn delete_retention(mut self, time: Duration) -> Self {
        self.delete_retention = time;
        self
    }

    /// After which time a segment is closed: a compacted one is, so that it can be compacted in time.
    pub(crate) fn segment_age_in_force(&self) -> Option<Duration> {
        let lag = self.max_compaction_lag.filter(|lag| self.cleanup.compacts() && !lag.is_zero());
        self.segment_age.into_iter().chain(lag).min()
    }

    /// Refuses settings that are out of bounds or contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |setting, reason: String| Err(Error::InvalidConfig { setting, reason });
        let own_time = self.timestamp_type == TimestampType::LogAppendTime;
        match () {
            () if self.segment_bytes < SEGMENT_BYTES_MIN || self.segment_bytes > i32::MAX.cast_unsigned() => {
                refuse("segment_bytes", format!("{} is outside of {SEGMENT_BYTES_MIN} to 2^31 - 1", self.segment_bytes))
            }
            () if self.batch_bytes_max < SEGMENT_BYTES_MIN || self.batch_bytes_max > i32::MAX.cast_unsigned() => {
                refuse(
                    "batch_bytes_max",
                    format!("{} is outside of {SEGMENT_BYTES_MIN} to 2^31 - 1", self.batch_bytes_max),
                )
            }
            () if self.index_bytes_max < 24 => refuse(
                "index_bytes_max",
                format!("{} bytes do not hold two entries of the time index", self.index_bytes_max),
            ),
            () if own_time && (self.timestamp_before_max.is_some() || self.timestamp_after_max.is_some()) => refuse(
                "timestamp_type",
                "LogAppendTime stamps every record itself, so bounds on the producer's timestamps contradict it"
                    .to_owned(),
            ),
            () if !self.min_dirty_ratio.is_possible() => {
                refuse("min_dirty_ratio", "a ratio is a number from 0 to 1".to_owned())
            }
            () if self.max_compaction_lag.is_some_and(|most| most.is_zero() || most < self.min_compaction_lag) => {
                refuse(
                    "max_compaction_lag",
                    "what has to be compacted may not be: it is 0, or less than min_compaction_lag".to_owned(),
                )
            }
            () if self.retention.check().is_err() => {
                refuse("retention", self.retention.check().err().unwrap_or_default())
            }
            () if !self.cleanup.deletes() && self.retention != Retention::forever() => refuse(
                "retention",
                "Cleanup::Compact alone drops nothing by time or size: choose CompactAndDelete, or no retention"
                    .to_owned(),
            ),
            () if self.producer_id_expiration < Duration::from_millis(1) => {
                refuse("producer_id_expiration", "it is below one millisecond".to_owned())
            }
            () => Ok(()),
        }
    }

    /// The largest batch that fits: `batch_bytes_max`, or a whole segment where that is less.
    pub(crate) fn batch_limit(&self) -> u64 {
        u64::from(self.batch_bytes_max.min(self.segment_bytes))
    }
}

/// Less than this holds no batch with a record.
const SEGMENT_BYTES_MIN: u32 = 70;
