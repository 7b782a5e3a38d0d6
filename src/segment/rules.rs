//! What makes a batch header right in its place, beyond what it says itself.
//!
//! The CRC does not cover base offset, length and leader epoch (FORMATS 18): these are checked against the batch
//! before, the segment's bounds, and the epochs that the partition knows.

use super::read::ReadBounds;
use crate::error::Corruption;
use crate::record::batch::BatchHeader;
use crate::types::{LeaderEpoch, Offset};

/// The bounds of a segment's batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'a> {
    pub(super) base: Offset,
    pub(super) next_base: Option<Offset>,
    pub(super) contiguous: bool,
    pub(super) epochs: Option<&'a [(LeaderEpoch, Offset)]>,
}

/// Where the next batch begins: at `offset`, or at it or behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) offset: Offset,
    pub(super) exact: bool,
}

impl<'a> Rules<'a> {
    pub(super) fn of(base: Offset, bounds: &ReadBounds<'a>) -> Self {
        Self { base, next_base: bounds.next_base, contiguous: bounds.contiguous, epochs: bounds.epochs }
    }

    /// Nothing but the segment's base is known.
    pub(super) fn bare(base: Offset) -> Self {
        Self { base, next_base: None, contiguous: false, epochs: None }
    }

    /// What is due at the segment's start.
    pub(super) fn begin(&self) -> Due {
        Due { offset: self.base, exact: self.contiguous }
    }

    /// What is due at a position whose predecessor is not known.
    pub(super) fn anywhere(&self) -> Due {
        Due { offset: self.base, exact: false }
    }

    /// What is due behind a batch.
    pub(super) fn behind(&self, header: &BatchHeader) -> Due {
        Due { offset: header.next_offset(), exact: self.contiguous }
    }

    /// Whether the offsets of a batch may come right behind those of another.
    pub(super) fn follows(&self, header: &BatchHeader, next: &BatchHeader) -> bool {
        let due = self.behind(header);
        if due.exact { next.base_offset() == due.offset } else { next.base_offset() >= due.offset }
    }

    /// Checks a header, whose first bytes are `bytes`, against its place.
    #[inline]
    pub(super) fn check(&self, header: &BatchHeader, bytes: &[u8], due: Due) -> Result<(), Corruption> {
        let base = header.base_offset();
        let in_order = if due.exact { base == due.offset } else { base >= due.offset };
        let in_range = header.last_offset().0.wrapping_sub(self.base.0) <= i32::MAX.unsigned_abs().into();
        let before_next = self.next_base.is_none_or(|next| header.last_offset() < next);
        if !(in_order && in_range && before_next) {
            return Err(Corruption::Order { found: base.to_i64(), expected: due.offset });
        }
        self.check_epoch(header, bytes)
    }

    #[inline]
    fn check_epoch(&self, header: &BatchHeader, bytes: &[u8]) -> Result<(), Corruption> {
        let Some(epoch) = header.leader_epoch() else { return check_no_epoch(bytes) };
        let Some(epochs) = self.epochs else { return Ok(()) };
        let count = epochs.partition_point(|(_, start)| *start <= header.base_offset());
        let expected = count.checked_sub(1).and_then(|at| epochs.get(at)).map(|(epoch, _)| *epoch);
        match expected {
            Some(expected) if expected != epoch => Err(Corruption::Epoch { found: epoch.0, expected: Some(expected) }),
            _ => Ok(()),
        }
    }
}

/// A batch without an epoch says -1; what else is negative was damaged.
#[cold]
fn check_no_epoch(bytes: &[u8]) -> Result<(), Corruption> {
    let raw = i32::from_be_bytes(std::array::from_fn(|i| bytes.get(12 + i).copied().unwrap_or(u8::MAX)));
    if raw == -1 { Ok(()) } else { Err(Corruption::Epoch { found: raw, expected: None }) }
}
