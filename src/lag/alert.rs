//! What a monitor says, and when.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::{Astray, PartitionLag, Rate};
use crate::config::Ratio;
use crate::types::{Offset, TopicPartition};

/// How near the edge of retention may be before a monitor says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Margin {
    /// A part of what the topic keeps: of its age, or of its bytes, whichever is reached first. Where it is held for groups,
    /// also of the bytes that are held.
    Fraction(Ratio),
    /// So much time.
    Duration(Duration),
}

impl Margin {
    /// The same, and a quarter of it more.
    pub(super) fn and_a_quarter(self) -> Self {
        match self {
            Self::Fraction(part) => Self::Fraction(Ratio::new((part.value() * 1.25).min(1.0))),
            Self::Duration(margin) => Self::Duration(margin.saturating_add(margin / 4)),
        }
    }
}

impl Default for Margin {
    /// A quarter of what is kept.
    fn default() -> Self {
        Self::Fraction(Ratio::new(0.25))
    }
}

/// What a [`Monitor`](super::Monitor) says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Alert {
    /// Retention is nearer to the next unread record than the margin allows. Said once, and again after the group was
    /// beyond the margin.
    #[non_exhaustive]
    NearEdge {
        /// The group.
        group: String,
        /// The partition.
        partition: TopicPartition,
        /// How long until retention reaches the position.
        left: Duration,
        /// How far behind it is.
        lag: Box<PartitionLag>,
    },
    /// Retention, or somebody's hand, has removed records that the group has not read. Said once, and again after the group
    /// had gone on from records that are there.
    #[non_exhaustive]
    Overtaken {
        /// The group.
        group: String,
        /// The partition.
        partition: TopicPartition,
        /// The offsets that are gone.
        lost: Range<Offset>,
    },
    /// A group stands where nothing can be read: beyond the end of the log, or behind a cut. Each of its polls answers an
    /// error there. Said once, and again after it had stood well.
    #[non_exhaustive]
    Astray {
        /// The group.
        group: String,
        /// The partition.
        partition: TopicPartition,
        /// What it has committed.
        position: Offset,
        /// Why nothing can be read there.
        astray: Astray,
    },
    /// One partition takes more than its share of its topic, and has for a whole window: a key that most records have, say.
    /// Said once, and again after that had ended.
    #[non_exhaustive]
    HotPartition {
        /// The partition.
        partition: TopicPartition,
        /// What is appended to it.
        rate: Rate,
        /// The part of the topic's records that it takes, from 0 to 1.
        share: f64,
        /// The same for each partition of the topic, by number.
        shares: Vec<f64>,
    },
    /// Records that were held for a group ([`Retention::hold_for`](crate::Retention::hold_for)) and that it has not read
    /// were removed, since more would have to be held than are. Said for each time that the monitor looks and finds that it
    /// has happened.
    #[non_exhaustive]
    HoldExceeded {
        /// The group.
        group: String,
        /// The partition.
        partition: TopicPartition,
        /// The offsets that are gone, from the first to behind the last.
        lost: Range<Offset>,
        /// Bytes of the segments that were removed.
        bytes: u64,
    },
}

impl Alert {
    /// The partition that it is about.
    #[must_use]
    pub fn partition(&self) -> &TopicPartition {
        match self {
            Self::NearEdge { partition, .. }
            | Self::Overtaken { partition, .. }
            | Self::Astray { partition, .. }
            | Self::HotPartition { partition, .. }
            | Self::HoldExceeded { partition, .. } => partition,
        }
    }

    /// What metrics call it.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::NearEdge { .. } => "near_edge",
            Self::Overtaken { .. } => "overtaken",
            Self::Astray { .. } => "astray",
            Self::HotPartition { .. } => "hot_partition",
            Self::HoldExceeded { .. } => "hold_exceeded",
        }
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NearEdge { group, partition, left, lag } => {
                let records = lag.records;
                let left = Left(*left);
                write!(f, "retention reaches group {group} in {partition} in {left}; it is {records} records behind")
            }
            Self::Overtaken { group, partition, lost } => {
                write!(f, "group {group} in {partition} was overtaken: offsets {} to {} are gone", lost.start, lost.end)
            }
            Self::Astray { group, partition, position, astray: Astray::BeyondEnd { end } } => {
                write!(f, "group {group} stands at offset {position} of {partition}, beyond its end at {end}")
            }
            Self::Astray { group, partition, position, astray: Astray::Cut { end } } => {
                write!(f, "{partition} was cut at offset {end}; group {group}, at {position}, had read what is gone")
            }
            Self::HotPartition { partition, share, rate, .. } => {
                let (percent, records) = (share * 100.0, rate.records);
                write!(f, "{partition} takes {percent:.0} % of its topic, {records:.0} records a second")
            }
            Self::HoldExceeded { group, partition, lost, bytes } => {
                let Range { start, end } = lost;
                write!(
                    f,
                    "{bytes} bytes that were held for group {group} in {partition} are gone: offsets {start} to {end}"
                )
            }
        }
    }
}

/// A time as people say it: in hours and minutes where it is long.
struct Left(Duration);

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0..60 => write!(f, "{:?}", self.0),
            60..3600 => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            3600..86_400 => write!(f, "{} h {} min", seconds / 3600, seconds / 60 % 60),
            _ => write!(f, "{} days {} h", seconds / 86_400, seconds / 3600 % 24),
        }
    }
}
