//! Where a partition is read next, where reading begins, and what happens where a position is not in the log.
//!
//! Invariant: the epoch of a position is that of the record before it, the last one that was read. Where reading was
//! sent by hand nothing was read yet, so there is no epoch to compare.

use crate::error::Result;
use crate::partition::Partition;
use crate::types::{Isolation, LeaderEpoch, Offset, Timestamp};

/// Where a partition is read next.
///
/// It says nothing of the topic. One that was kept from a topic that was deleted is an offset like any other in the topic
/// that has its name now: a seek there skips what lies before, if there is so much. Whoever deletes topics keeps the
/// topic's id with the position ([`TopicDescription::id`](crate::TopicDescription::id)), and begins anew where it is another.
///
/// ```
/// use taffrail::{LeaderEpoch, Offset, Position};
/// let by_hand = Position::from(Offset(40));
/// let kept = Position { offset: Offset(40), epoch: Some(LeaderEpoch(3)) };
/// assert_eq!(by_hand.offset, kept.offset);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The next record's offset, or one before it where offsets are left out.
    pub offset: Offset,
    /// The leader epoch of the record before it. Whoever keeps a position keeps this too: when the log was cut and
    /// grew again meanwhile, the epoch tells ([`Error::Truncated`](crate::Error::Truncated)). `None`: not known,
    /// nothing is compared.
    pub epoch: Option<LeaderEpoch>,
}

impl From<Offset> for Position {
    fn from(offset: Offset) -> Self {
        Self { offset, epoch: None }
    }
}

/// Where reading begins in a partition that has no position yet.
///
/// ```
/// use taffrail::{StartAt, Timestamp};
/// assert_eq!(StartAt::default(), StartAt::Earliest);
/// let since = StartAt::Time(Timestamp(1_700_000_000_000));
/// # let _ = since;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StartAt {
    /// At the first record that is there when it is first read. The default; Kafka's is the latest.
    #[default]
    Earliest,
    /// Behind the last record that can be read at the time of the call: what is appended after it is read.
    Latest,
    /// At the first record whose timestamp is at or after this one, in milliseconds since 1970, among those that
    /// [`Isolation::Committed`] can reach; behind them where there is none.
    Time(Timestamp),
}

/// What a poll does where its position is not in the log (Kafka: `auto.offset.reset`).
///
/// ```
/// assert_eq!(taffrail::OutOfRange::default(), taffrail::OutOfRange::Error);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutOfRange {
    /// It answers [`Error::OffsetOutOfRange`](crate::Error::OffsetOutOfRange) with both ends, until a seek. The
    /// default: nothing is skipped unasked.
    #[default]
    Error,
    /// It goes on at the first record. What the retention removed before it was read is skipped.
    Earliest,
    /// It goes on behind the last record that can be read. What lies between is skipped.
    Latest,
}

/// A position as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// What the group has committed, which is not known yet: nothing is read.
    Unknown,
    /// The first record, whichever that is when it is read.
    Earliest,
    At(Position),
}

impl Target {
    /// Where that is now, where it is known.
    pub(super) fn position(self, partition: &Partition) -> Option<Position> {
        match self {
            Self::Unknown => None,
            Self::Earliest => Some(partition.start().into()),
            Self::At(position) => Some(position),
        }
    }
}

impl StartAt {
    /// Where that is in this partition.
    pub(super) fn target(self, partition: &Partition, isolation: Isolation) -> Result<Target> {
        match self {
            Self::Earliest => Ok(Target::Earliest),
            Self::Latest => Ok(Target::At(readable_end(partition, isolation).into())),
            Self::Time(timestamp) => {
                // Taken before the search: what becomes readable during it is not passed over where nothing is found.
                let searched = readable_end(partition, Isolation::Committed);
                let found = partition.find_timestamp(timestamp)?;
                Ok(Target::At(found.map_or(searched, |found| found.offset).into()))
            }
        }
    }
}

/// Behind the last record that is shown.
fn readable_end(partition: &Partition, isolation: Isolation) -> Offset {
    let end = match isolation {
        Isolation::Committed => partition.last_stable(),
        Isolation::Uncommitted => partition.high_watermark(),
    };
    // While records are removed from the front the start moves before the marks do.
    end.max(partition.start())
}
