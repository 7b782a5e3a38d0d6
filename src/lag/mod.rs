//! How far behind a group is, how fast it goes, and how long until retention reaches it.
//!
//! ```text
//!             retention ──►│           position            end
//!   ───────────────────────┼──────────────┼─────────────────┤ ◄── producers
//!          gone            │◄─── left ───►│◄───── lag ─────►│
//!
//!   gather.rs   a node ──► Facts         figures.rs   Facts, rates, now ──► PartitionLag    pure
//!   series.rs   samples ──► a rate       crossing.rs  PartitionLag ──► an alert, once       pure
//!   monitor.rs, round.rs   all of it at intervals   hot.rs   rates ──► a partition that takes too much   pure
//!   gauges.rs   PartitionLag ──► what dashboards are shown
//! ```
//!
//! Nothing here costs anything while records are appended or read: positions in bytes come from the offset indexes, what
//! was appended from the sizes of segments, and of the records themselves only the next unread batch is looked at.

mod alert;
mod crossing;
mod figures;
mod gather;
mod gauges;
mod hot;
mod monitor;
mod round;
mod samples;
mod series;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
mod tests;

use std::ops::Range;
use std::time::Duration;

use crate::types::{Offset, TopicPartition};

pub use alert::{Alert, Margin};
pub(crate) use gather::lag_of;
pub(crate) use monitor::Monitors;
pub use monitor::{Monitor, MonitorBuilder};

/// How far behind a group is. (What Kafka's `kafka-consumer-groups --describe` shows, and more.)
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupLag {
    /// The group.
    pub group: String,
    /// Each partition that the group has a position in, or that one of its members is to read; sorted.
    pub partitions: Vec<PartitionLag>,
    /// All of them together.
    pub total: TotalLag,
}

/// How far behind a group is in one partition.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartitionLag {
    /// The partition.
    pub partition: TopicPartition,
    /// What the group has committed: the next record that it wants. `None` where it has committed nothing here; what
    /// follows is then counted from the start of the log.
    pub committed: Option<Offset>,
    /// Where the log begins.
    pub start: Offset,
    /// Up to where a reader of committed records sees them: the last stable offset.
    pub end: Offset,
    /// Up to where a reader of uncommitted records sees them.
    pub high_watermark: Offset,
    /// Offsets from the position to [`end`](Self::end); where the log was cut below the position, from the cut. Where
    /// records were compacted, or markers end transactions, there are fewer records than that.
    pub records: u64,
    /// Bytes of log from the position, or the cut, to [`end`](Self::end), by the index: up to the topic's
    /// `index_interval_bytes` and a batch too many, and where `end` lies before the end of the log as much too few.
    pub bytes: u64,
    /// How old the next unread record is: now less its timestamp. `None` where there is none, or where it could not be
    /// read.
    pub time: Option<Duration>,
    /// What is appended, of late. `None` without a [`Monitor`], or where it has not looked twice yet.
    pub rate_in: Option<Rate>,
    /// What the group reads, of late: how fast its committed position moves. `None` as with `rate_in`.
    pub rate_out: Option<Rate>,
    /// When it will have caught up, if both rates stay: `records / (rate_out - rate_in)`. `None` where it gains no ground,
    /// the rates are not known, or it is [`astray`](Self::astray).
    ///
    /// Zero where there is nothing to catch up: nothing is unread, or no more than what has come in since the monitor's
    /// last sample but one (samples lie a twelfth of its [`window`](MonitorBuilder::window) apart, or its interval). A group
    /// that keeps pace has so much unread now and then, and gains no ground.
    pub catch_up: Option<Duration>,
    /// How long until retention may remove the next unread record. `None` where nothing removes it: there is none, the
    /// topic keeps everything, its size does not grow, or the rate at which it does is not known.
    ///
    /// By age: the largest timestamp of the segment that holds the position, by its index, plus `retention.ms`, less now.
    /// By size: `retention.bytes` less the bytes from that segment's end to the log's end, over the bytes of `rate_in`. The
    /// smaller counts. Where the topic is held for groups ([`Retention::hold_for`](crate::Retention::hold_for)) that have
    /// not read it, what the hold has room for counts where that is longer. It may be longer in truth: younger segments in
    /// front of that segment, and a [`Partition::hold`](crate::Partition::hold), are not looked at.
    pub left: Option<Duration>,
    /// The group was overtaken: these offsets it wanted, and they are gone. `left` is zero then.
    pub lost: Option<Range<Offset>>,
    /// The group has committed a position at which nothing can be read, although nothing was removed before it was read:
    /// its polls answer an error. `records` may be zero then, and it has not caught up.
    pub astray: Option<Astray>,
}

/// Why nothing can be read at a position. [`Log::reset_group`](crate::Log::reset_group) sends a group without members
/// elsewhere, and a seek its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Astray {
    /// It lies beyond the end of the log: polls answer [`Error::OffsetOutOfRange`](crate::Error::OffsetOutOfRange) until
    /// the log has grown so far, where their consumer has no other policy ([`OutOfRange`](crate::OutOfRange)). Such a
    /// position can be committed, as in Kafka.
    #[non_exhaustive]
    BeyondEnd {
        /// Where the log ends.
        end: Offset,
    },
    /// The log was cut below it, even if it has grown again (the leader epoch that was committed tells): polls answer
    /// [`Error::Truncated`](crate::Error::Truncated) under every policy. From the cut to the position the group has read
    /// records that are gone.
    #[non_exhaustive]
    Cut {
        /// Where it was cut: reading goes on from here.
        end: Offset,
    },
}

/// How far behind a group is in all of its partitions.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TotalLag {
    /// The sum of all [`PartitionLag::records`].
    pub records: u64,
    /// The sum of all [`PartitionLag::bytes`].
    pub bytes: u64,
    /// The greatest [`PartitionLag::time`].
    pub time: Option<Duration>,
    /// The sum of those that are known; `None` where none is.
    pub rate_in: Option<Rate>,
    /// The sum of those that are known; `None` where none is.
    pub rate_out: Option<Rate>,
    /// When the last partition will have caught up: the greatest [`PartitionLag::catch_up`], to which those that keep pace
    /// add nothing. `None` where one of them is behind and gains no ground or is astray, or where it is not known.
    pub catch_up: Option<Duration>,
    /// The least [`PartitionLag::left`].
    pub left: Option<Duration>,
    /// How many offsets were lost, in all partitions.
    pub lost: u64,
    /// In how many partitions the group is [`astray`](PartitionLag::astray).
    pub astray: usize,
}

/// How much in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[non_exhaustive]
pub struct Rate {
    /// Offsets a second.
    pub records: f64,
    /// Bytes of log a second.
    pub bytes: f64,
}

impl Rate {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { records: self.records + other.records, bytes: self.bytes + other.bytes }
    }
}
