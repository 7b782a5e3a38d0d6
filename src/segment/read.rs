//! Reading checked batches.

use crate::record::batches::Batches;
use crate::types::{LeaderEpoch, Offset};

/// What the partition knows about a segment that is read, and how far a reader may go.
#[derive(Clone, Copy, Debug)]
pub struct ReadBounds<'a> {
    /// Batches that end beyond this offset are not handed out.
    pub up_to: Offset,
    /// The base of the next segment; `None` for the last one.
    pub next_base: Option<Offset>,
    /// Which leader epoch began at which offset, ascending; `None` where that is not known.
    pub epochs: Option<&'a [(LeaderEpoch, Offset)]>,
    /// Whether every batch begins exactly where the one before ended.
    pub contiguous: bool,
}

/// What a read found.
#[derive(Clone, Debug, Default)]
pub struct SegmentBatches {
    /// Checked batches.
    pub batches: Batches,
    /// Where to go on.
    pub next: Offset,
    /// Whether this segment has nothing behind what was read.
    pub end_of_segment: bool,
}
