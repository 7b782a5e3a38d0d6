//! The settings of a topic: those of each of its partitions, and those that all of them share.

use std::time::Duration;

use super::{Cleanup, Commits, Durability, PartitionConfig, Ratio, Retention, TimestampType};
use crate::error::{Error, Result};
use crate::types::Compression;

/// How many partitions a topic has at most.
pub(crate) const PARTITIONS_MAX: u32 = 100_000;
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const KAFKAS_RETENTION: Retention = Retention::forever().age(WEEK);
/// Above this Kafka's `i64` of milliseconds is "never".
const MILLIS_END: u128 = i64::MAX as u128;

/// The settings of a topic. The default is Kafka's: one partition, records are kept for 7 days, a segment is closed
/// after 7 days at the latest.
///
/// What is set can be read from the fields; the [`settings`](Self::settings) are the same as text, by Kafka's names.
///
/// ```
/// use taffrail::{Compression, Retention, TopicConfig};
/// let config = TopicConfig::new().partitions(4).retention(Retention::forever()).compression(Compression::Lz4);
/// assert_eq!((config.partitions, config.partition.segment_bytes), (4, 1 << 30));
/// let text = [("retention.ms", "-1".to_owned()), ("compression.type", "lz4".to_owned())];
/// assert_eq!(config.settings(), text);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct TopicConfig {
    /// Into how many partitions the topic is divided.
    pub partitions: u32,
    /// How many copies each partition has; `None` leaves it to the log.
    pub replication_factor: Option<u32>,
    /// How many copies must be in sync for `Acks::All`; `None` leaves it to the log.
    pub min_insync_replicas: Option<u32>,
    /// What producers use unless they set their own.
    pub compression: Option<Compression>,
    /// What each partition is opened with, but for a retention that does not apply: see
    /// [`partition_config`](Self::partition_config).
    pub partition: PartitionConfig,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl TopicConfig {
    /// Kafka's default settings.
    pub const fn new() -> Self {
        let mut partition = PartitionConfig::new().segment_age(Some(WEEK));
        partition.retention.age = Some(WEEK);
        Self { partitions: 1, replication_factor: None, min_insync_replicas: None, compression: None, partition }
    }

    /// A single partition, nothing of which is ever removed: what a topic is that was found and not described.
    pub(crate) fn keeping_everything() -> Self {
        Self::new().retention(Retention::forever())
    }

    /// Into how many partitions the topic is divided. Default: 1; at most 100,000. It grows by
    /// [`Log::add_partitions`](crate::Log::add_partitions), and never shrinks.
    #[doc(alias = "num.partitions")]
    pub const fn partitions(mut self, count: u32) -> Self {
        self.partitions = count;
        self
    }

    /// How many copies each partition has. Default: what the log says. A log without a cluster has one, and refuses
    /// more.
    #[doc(alias = "replication.factor")]
    #[doc(alias = "default.replication.factor")]
    pub const fn replication_factor(mut self, copies: u32) -> Self {
        self.replication_factor = Some(copies);
        self
    }

    /// How many copies must be in sync for a record to be taken with [`Acks::All`](crate::Acks::All). Default: what the
    /// log says. A log without a cluster has one copy, and refuses to ask for more.
    #[doc(alias = "min.insync.replicas")]
    pub const fn min_insync_replicas(mut self, copies: u32) -> Self {
        self.min_insync_replicas = Some(copies);
        self
    }

    /// What producers use unless they set their own. Default: [`Compression::None`]. The log stores what it is given:
    /// it does not compress again, as a broker would.
    #[doc(alias = "compression.type")]
    pub const fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// How long and how much of each partition is kept. Default: 7 days by the records' own timestamps, and any number of
    /// bytes.
    #[doc(alias = "retention.ms")]
    #[doc(alias = "retention.bytes")]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.partition.retention = retention;
        self
    }

    /// What each partition is opened with. As in Kafka the default retention of 7 days does not apply where the policy
    /// is [`Cleanup::Compact`] alone.
    pub fn partition_config(&self) -> PartitionConfig {
        let mut config = self.partition.clone();
        if !config.cleanup.deletes() && config.retention == KAFKAS_RETENTION {
            config.retention = Retention::forever();
        }
        config
    }

    /// Refuses settings that are out of bounds or contradict each other. Durations are kept exactly, so one that is
    /// finer than a millisecond, which Kafka's settings cannot say, is refused.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_counts().map_err(|(setting, reason)| Error::InvalidConfig { setting, reason })?;
        self.check_texts().map_err(|(setting, reason)| Error::InvalidConfig { setting, reason })?;
        self.partition_config().check()
    }

    /// Whether the numbers of partitions and copies can be.
    pub(crate) fn check_counts(&self) -> std::result::Result<(), (&'static str, String)> {
        let (copies, in_sync) = (self.replication_factor, self.min_insync_replicas);
        match () {
            () if self.partitions == 0 || self.partitions > PARTITIONS_MAX => {
                Err(("partitions", format!("{} is outside of 1 to {PARTITIONS_MAX}", self.partitions)))
            }
            () if copies == Some(0) => Err(("replication_factor", "a partition has at least one copy".to_owned())),
            () if in_sync == Some(0) => Err(("min_insync_replicas", "at least one copy is in sync".to_owned())),
            () if copies.zip(in_sync).is_some_and(|(copies, in_sync)| in_sync > copies) => {
                let reason = format!("{} of {} copies cannot be", in_sync.unwrap_or(0), copies.unwrap_or(0));
                Err(("min_insync_replicas", reason))
            }
            () => Ok(()),
        }
    }

    /// Whether every setting can be said in Kafka's numbers.
    fn check_texts(&self) -> std::result::Result<(), (&'static str, String)> {
        for (setting, duration) in self.durations() {
            let millis = duration.as_millis();
            if Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)) != duration || millis >= MILLIS_END {
                return Err((setting, format!("{duration:?} is not a number of milliseconds below 2^63 - 1")));
            }
        }
        match self.partition.retention.bytes {
            Some(bytes) if i64::try_from(bytes).is_err() => Err(("retention", format!("{bytes} is above 2^63 - 1"))),
            _ => Ok(()),
        }
    }

    fn durations(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let of = &self.partition;
        [
            ("retention", of.retention.age),
            ("segment_age", of.segment_age),
            ("timestamp_before_max", of.timestamp_before_max),
            ("timestamp_after_max", of.timestamp_after_max),
            ("flush_interval", Some(of.flush_interval)),
            ("checkpoint_interval", Some(of.checkpoint_interval)),
            ("idle_after", Some(of.idle_after)),
            ("producer_id_expiration", Some(of.producer_id_expiration)),
            ("min_compaction_lag", Some(of.min_compaction_lag)),
            ("max_compaction_lag", of.max_compaction_lag),
            ("delete_retention", Some(of.delete_retention)),
        ]
        .into_iter()
        .filter_map(|(setting, duration)| Some((setting, duration?)))
    }
}

/// The setters of [`PartitionConfig`], for every partition of the topic.
macro_rules! for_each_partition {
    ($($(#[$about:meta])* $setting:ident: $kind:ty;)*) => {
        impl TopicConfig {
            $(
                $(#[$about])*
                pub const fn $setting(mut self, $setting: $kind) -> Self {
                    self.partition.$setting = $setting;
                    self
                }
            )*
        }
    };
}

for_each_partition! {
    /// What an acknowledgement promises. Default: [`Durability::Auto`].
    durability: Durability;
    /// Who commits. Default: the partition, as soon as a record is stored.
    commits: Commits;
    /// How old records go. Default: [`Cleanup::Delete`].
    #[doc(alias = "cleanup.policy")]
    cleanup: Cleanup;
    /// A segment is closed before it would grow beyond this many bytes. Default: 1 GiB, at most 2^31 − 1.
    #[doc(alias = "segment.bytes")]
    segment_bytes: u32;
    /// A segment is closed when a record arrives whose timestamp is later than its first one's by more than this.
    /// Default: 7 days; `None` is never.
    #[doc(alias = "segment.ms")]
    segment_age: Option<Duration>;
    /// How many bytes of log lie between two index entries. Default: 4,096; 0 indexes every batch but the first.
    #[doc(alias = "index.interval.bytes")]
    index_interval_bytes: u32;
    /// A segment is closed when one of its indexes would outgrow this many bytes. Default: 10 MiB.
    #[doc(alias = "segment.index.bytes")]
    index_bytes_max: u32;
    /// The largest batch that is taken, in bytes, compressed and with its header. Default: 1,048,588.
    #[doc(alias = "max.message.bytes")]
    batch_bytes_max: u32;
    /// The most bytes that one compressed batch may decompress to. Default: 64 MiB. Kafka has no such bound.
    decompressed_bytes_max: usize;
    /// Whose clock stamps records. Default: the producer's.
    #[doc(alias = "message.timestamp.type")]
    timestamp_type: TimestampType;
    /// How far before now a record's timestamp may lie. Default: any distance.
    #[doc(alias = "message.timestamp.before.max.ms")]
    timestamp_before_max: Option<Duration>;
    /// How far after now a record's timestamp may lie. Default: any distance.
    #[doc(alias = "message.timestamp.after.max.ms")]
    timestamp_after_max: Option<Duration>;
    /// After how long a batch that nobody waits for is synced, and so becomes visible. Default: 5 ms (Kafka leaves it to
    /// the operating system).
    flush_interval: Duration;
    /// How often the recovery point and the high watermark are written to their checkpoints. Default: 5 s.
    checkpoint_interval: Duration;
    /// After how long without an append the memory of a partition's index is let go. Default: 10 s.
    idle_after: Duration;
    /// After how long a producer is forgotten that has no transaction open, and of which nothing was heard. What it sends
    /// again then is taken for new. Default: 24 hours, as in Kafka (where it holds for all topics); not zero.
    #[doc(alias = "producer.id.expiration.ms")]
    producer_id_expiration: Duration;
    /// A compacted partition is compacted once more than this part of what could be cleaned has not been, in bytes.
    /// Default: 0.5.
    #[doc(alias = "min.cleanable.dirty.ratio")]
    min_dirty_ratio: Ratio;
    /// A segment is not compacted while its newest record is younger than this, by its timestamp. Default: 0.
    #[doc(alias = "min.compaction.lag.ms")]
    min_compaction_lag: Duration;
    /// A partition is compacted, whatever the ratio, once a segment that was not is older than this, by the timestamp of
    /// its first batch; and a segment is closed when a record comes whose timestamp is later than its first one's by
    /// more. Default: never.
    #[doc(alias = "max.compaction.lag.ms")]
    max_compaction_lag: Option<Duration>;
    /// For how long a deleted key (a record without a value) is kept once what it deletes is gone; and so is the marker of
    /// a transaction. Default: 24 hours.
    #[doc(alias = "delete.retention.ms")]
    delete_retention: Duration;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_kafkas_and_can_be() {
        let config = TopicConfig::default();
        assert!(config.check().is_ok() && config.settings().is_empty());
        assert_eq!(
            config.partition_config(),
            PartitionConfig::new().retention(KAFKAS_RETENTION).segment_age(Some(WEEK))
        );
    }

    #[test]
    fn seven_days_are_no_bound_where_only_compaction_removes() {
        let compacted = TopicConfig::new().cleanup(Cleanup::Compact);
        assert!(compacted.check().is_ok());
        assert_eq!(compacted.partition_config().retention, Retention::forever());
        assert_eq!(compacted.clone().cleanup(Cleanup::CompactAndDelete).partition_config().retention, KAFKAS_RETENTION);
        let contradiction = compacted.retention(KAFKAS_RETENTION.bytes(5));
        assert!(matches!(contradiction.check(), Err(Error::InvalidConfig { setting: "retention", .. })));
    }

    #[test]
    fn settings_that_cannot_be_are_refused_by_name() {
        let new = TopicConfig::new;
        let nano = Duration::from_nanos(1_000_001);
        let refused = [
            (new().partitions(0), "partitions"),
            (new().partitions(100_001), "partitions"),
            (new().replication_factor(0), "replication_factor"),
            (new().min_insync_replicas(0), "min_insync_replicas"),
            (new().replication_factor(2).min_insync_replicas(3), "min_insync_replicas"),
            (new().retention(Retention::forever().age(nano)), "retention"),
            (new().retention(Retention::forever().bytes(1 << 63)), "retention"),
            (new().segment_age(Some(Duration::from_millis(i64::MAX.cast_unsigned()))), "segment_age"),
            (new().segment_age(Some(Duration::MAX)), "segment_age"),
            (new().timestamp_before_max(Some(nano)), "timestamp_before_max"),
            (new().timestamp_after_max(Some(nano)), "timestamp_after_max"),
            (new().flush_interval(nano), "flush_interval"),
            (new().checkpoint_interval(nano), "checkpoint_interval"),
            (new().idle_after(nano), "idle_after"),
            (new().producer_id_expiration(nano), "producer_id_expiration"),
            (new().producer_id_expiration(Duration::ZERO), "producer_id_expiration"),
            (new().min_compaction_lag(nano), "min_compaction_lag"),
            (new().max_compaction_lag(Some(nano)), "max_compaction_lag"),
            (new().max_compaction_lag(Some(Duration::ZERO)), "max_compaction_lag"),
            (
                new().max_compaction_lag(Some(Duration::from_secs(1))).min_compaction_lag(Duration::from_secs(2)),
                "max_compaction_lag",
            ),
            (new().delete_retention(nano), "delete_retention"),
            (new().min_dirty_ratio(Ratio::new(1.5)), "min_dirty_ratio"),
            (new().segment_bytes(1), "segment_bytes"),
        ];
        for (config, name) in refused {
            let error = config.check().expect_err(name);
            assert!(matches!(error, Error::InvalidConfig { setting, .. } if setting == name), "{name}: {error}");
        }
        assert!(new().partitions(100_000).replication_factor(2).min_insync_replicas(2).check().is_ok());
    }
}
