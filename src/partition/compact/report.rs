//! What a compaction did.

use std::fmt;
use std::path::PathBuf;

use crate::types::Offset;

/// What a compaction did, and why it stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compaction {
    /// Segments that were written again.
    pub segments_before: usize,
    /// Segments that took their place.
    pub segments_after: usize,
    /// Bytes of log that were in them.
    pub bytes_before: u64,
    /// Bytes of log that are in them now.
    pub bytes_after: u64,
    /// Records that stayed.
    pub records_kept: u64,
    /// Records that went.
    pub records_dropped: u64,
    /// Different keys that were seen.
    pub keys: u64,
    /// The most bytes of memory that the map of keys took.
    pub map_bytes: u64,
    /// How often the log was gone through: more than once where the map had no room for all keys.
    pub rounds: usize,
    /// Up to where the log is compacted now: below it, of each key its last record is left.
    pub cleaned_to: Offset,
    /// Why it stopped.
    pub end: CompactionEnd,
}

/// Why a compaction stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompactionEnd {
    /// Everything that can be compacted is.
    #[default]
    Complete,
    /// There was no room for more keys in the map; the next round goes on behind
    /// [`cleaned_to`](Compaction::cleaned_to).
    MapFull,
    /// The segments changed meanwhile: the log was truncated or reopened, records were taken away from the front,
    /// something holds them now, or the settings do not have them compacted any more. What was not exchanged yet is as it
    /// was.
    Interrupted,
    /// The disk is full. What was not exchanged yet is as it was: no record is lost, and what was exchanged before stays
    /// compacted.
    DiskFull {
        /// The file that there was no room for.
        path: PathBuf,
    },
}

impl Compaction {
    /// This one, and `next` behind it.
    pub(super) fn and(self, next: Self) -> Self {
        Self {
            segments_before: self.segments_before + next.segments_before,
            segments_after: self.segments_after + next.segments_after,
            bytes_before: self.bytes_before + next.bytes_before,
            bytes_after: self.bytes_after + next.bytes_after,
            records_kept: next.records_kept,
            records_dropped: self.records_dropped + next.records_dropped,
            keys: self.keys.max(next.keys),
            map_bytes: self.map_bytes.max(next.map_bytes),
            rounds: self.rounds + next.rounds,
            cleaned_to: next.cleaned_to,
            end: next.end,
        }
    }
}

impl fmt::Display for Compaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segments_before, segments_after, bytes_before, bytes_after, .. } = self;
        write!(f, "{segments_before} segments of {bytes_before} bytes became {segments_after} of {bytes_after}, ")?;
        let Self { records_kept, records_dropped, cleaned_to, end, .. } = self;
        write!(f, "{records_kept} records stayed, {records_dropped} went, compacted up to {cleaned_to} ({end:?})")
    }
}

/// How far [`Partition::compact`](crate::Partition::compact) came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compacting {
    /// Nothing is due.
    Idle,
    /// It has read and written so many bytes, and goes on with the next call.
    Working {
        /// Bytes of log that this call has read and written.
        bytes: u64,
    },
    /// It has come to an end.
    Ended(Box<Compaction>),
}
