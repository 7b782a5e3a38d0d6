//! When a segment is full (SEMANTICS 2).

use crate::types::{Offset, Timestamp};

/// What is about to be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Its size in bytes.
    pub bytes: u64,
    /// The greatest timestamp in it.
    pub max_timestamp: Option<Timestamp>,
    /// The last offset in it.
    pub last_offset: Offset,
}

/// Why a segment is closed and the next one begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RollReason {
    /// The segment would grow beyond `segment_bytes`.
    Size,
    /// Its first batch is older than the incoming one by more than `segment_age`.
    Age,
    /// The offset index is full.
    OffsetIndexFull,
    /// The time index is full.
    TimeIndexFull,
    /// The incoming offset is too far from the segment's base for an index entry.
    OffsetRange,
}
