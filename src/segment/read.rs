//! Reading checked batches.
//!
//! The usual way ([`SegmentReader::read`]): the index says where to begin, one read takes the bytes, one pass over
//! them skips what lies before the wanted offset, checks each further batch (its place, its CRC, its framing) and
//! gathers it. Whatever is wrong ends the answer before it.
//!
//! If that leaves nothing to answer with, the careful way (`locate`) finds out why: from the last index entry that
//! holds, it checks the CRC of every batch, steps over what is damaged, and so knows which offsets cannot be read and
//! where reading goes on. It answers [`Error::Corrupt`] only where the wanted offset is among them.

use std::io;

use bytes::Bytes;

use super::files::Kind;
use super::gather::{Gathered, Wanted, gather};
use super::offset_index::OffsetIndex;
use super::reader::SegmentReader;
use super::rules::{Due, Rules};
use super::scan::{CHECK_CHUNK_BYTES, Cursor, resync};
use crate::error::{Corruption, Error, Result};
use crate::record::Rejection;
use crate::record::batch::{BatchHeader, HEADER_BYTES};
use crate::record::batches::Batches;
use crate::types::{LeaderEpoch, Offset};

/// What the partition knows about a segment that is read, and how far a reader may go.
///
/// ```
/// use taffrail::{Offset, ReadBounds};
/// let bounds = ReadBounds { up_to: Offset(100), ..ReadBounds::default() };
/// assert_eq!(bounds.next_base, None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ReadBounds<'a> {
    /// Batches that do not end below this offset are not handed out.
    pub up_to: Offset,
    /// Where the log ends, where that is known: below it every offset is in a batch that ends there at the latest, or
    /// in a gap before one.
    pub end: Offset,
    /// The base of the next segment; `None` for the last one.
    pub next_base: Option<Offset>,
    /// Which leader epoch began at which offset, ascending; `None` where that is not known. Batches must carry it.
    pub epochs: Option<&'a [(LeaderEpoch, Offset)]>,
    /// Whether every batch begins exactly where the one before ended: what was never compacted has no gaps.
    pub contiguous: bool,
}

impl Default for ReadBounds<'_> {
    /// Everything, in a segment of which nothing else is known.
    fn default() -> Self {
        Self { up_to: Offset::MAX, end: Offset::MAX, next_base: None, epochs: None, contiguous: false }
    }
}

impl ReadBounds<'_> {
    /// Whether the segment ended before the next one begins, where there are no gaps.
    fn has_hole_at(&self, found: &SegmentBatches) -> bool {
        self.contiguous && found.end_of_segment && self.next_base.is_some_and(|next| found.next < next)
    }

    /// The end of a segment is where the next one begins, as far as the reader may go, unless offsets are missing before
    /// that: then the next read says so. Nothing is known yet of what will stand in a gap beyond.
    fn complete(&self, mut found: SegmentBatches) -> SegmentBatches {
        if self.has_hole_at(&found) {
            found.end_of_segment = false;
        } else if let Some(next) = self.next_base.filter(|_| found.end_of_segment) {
            found.next = found.next.max(next.min(self.up_to));
        }
        found
    }
}

/// What a read found.
#[derive(Clone, Debug, Default)]
pub struct SegmentBatches {
    /// Checked batches. The first one holds the wanted offset, or is the first behind it.
    pub batches: Batches,
    /// Where to go on.
    pub next: Offset,
    /// Whether this segment has nothing from `next` on.
    pub end_of_segment: bool,
}

/// A batch that is readable, and what lay before it.
#[derive(Debug)]
struct Located {
    position: u64,
    header: BatchHeader,
}

impl SegmentReader {
    /// Checked batches from the one that holds `from`, or the first behind it, on: whole batches that end at or below
    /// `bounds.up_to`, `max_bytes` of them at most, but one even where that is larger.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the batch that holds `from` is damaged: seek to the end of its range to go on.
    /// [`Error::LegacyFormat`] where it is an undamaged message of Kafka's magic 0 or 1; [`Error::CodecDisabled`],
    /// [`Error::DecompressionBound`], [`Error::Io`].
    pub fn read(&self, from: Offset, max_bytes: usize, bounds: &ReadBounds<'_>) -> Result<SegmentBatches> {
        let from = from.max(self.base);
        if from >= bounds.up_to {
            return Ok(SegmentBatches { next: from, ..SegmentBatches::default() });
        }
        let rules = Rules::of(self.base, bounds);
        let entry = self.offsets(&rules)?.lookup(from);
        let (due, meets) = match entry.position {
            0 => (rules.begin(), None),
            _ => (rules.anywhere(), Some(entry.offset)),
        };
        let wanted = Wanted { rules, from, max_bytes, up_to: bounds.up_to, log_end: bounds.end, end: self.size() };
        let Gathered { found, trouble } = gather(self, &wanted, entry.position, due, meets)?;
        match trouble {
            _ if !found.batches.is_empty() => Ok(bounds.complete(found)),
            None if !bounds.has_hole_at(&found) => Ok(bounds.complete(found)),
            _ => self.read_carefully(&wanted, bounds),
        }
    }

    #[cold]
    fn read_carefully(&self, wanted: &Wanted<'_>, bounds: &ReadBounds<'_>) -> Result<SegmentBatches> {
        let Some(located) = self.locate(wanted.from, bounds)? else {
            let next = bounds.next_base.unwrap_or(wanted.from).min(bounds.up_to).max(wanted.from);
            return Ok(SegmentBatches { next, end_of_segment: true, ..SegmentBatches::default() });
        };
        let due = Due { offset: located.header.base_offset(), exact: true };
        let Gathered { found, trouble } = gather(self, wanted, located.position, due, None)?;
        match trouble {
            Some((position, rejection)) if found.batches.is_empty() => Err(rejection.into_error(|reason| {
                let behind = located.header.next_offset().max(wanted.from.plus(1));
                self.corrupt(position, wanted.from..behind, reason)
            })),
            _ => Ok(bounds.complete(found)),
        }
    }

    /// The byte position of the first batch whose last offset is `offset` or behind it; `None` where there is none.
    ///
    /// # Errors
    /// As [`SegmentReader::read`].
    pub fn position_of(&self, offset: Offset, bounds: &ReadBounds<'_>) -> Result<Option<u64>> {
        Ok(self.locate(offset.max(self.base), bounds)?.map(|located| located.position))
    }

    /// The header of the first batch whose last offset is `offset` or behind it.
    pub(crate) fn batch_at(&self, offset: Offset, bounds: &ReadBounds<'_>) -> Result<Option<BatchHeader>> {
        Ok(self.locate(offset.max(self.base), bounds)?.map(|located| located.header))
    }

    /// The first readable batch whose last offset is `from` or behind it.
    fn locate(&self, from: Offset, bounds: &ReadBounds<'_>) -> Result<Option<Located>> {
        let rules = Rules::of(self.base, bounds);
        let read = |e: io::Error| self.files.error("read", Kind::Log, e);
        let end = self.size();
        let (offsets, mut at, mut due) = self.anchor(from, &rules, end)?;
        let mut cursor = Cursor::new(self.files.log().as_ref(), end, CHECK_CHUNK_BYTES);
        let mut damage: Option<(u64, Corruption)> = None;
        while at < end {
            match self.inspect(&mut cursor, at, &rules, due, from, bounds.end).map_err(read)? {
                Ok(header) if header.last_offset() < from => {
                    damage = None;
                    due = rules.behind(&header);
                    at += header.size();
                }
                Ok(header) => {
                    return match damage {
                        Some((position, reason)) if header.base_offset() > from => {
                            Err(self.damaged(&mut cursor, position, from..header.base_offset(), reason))
                        }
                        _ => Ok(Some(Located { position: at, header })),
                    };
                }
                Err(reason) => {
                    let anchor = |position| offsets.after(position).map(|entry| entry.position);
                    let next = resync(self.files.log().as_ref(), end, at, &rules, due, anchor).map_err(read)?;
                    damage.get_or_insert((at, reason));
                    due.exact = false;
                    at = next.unwrap_or(end);
                }
            }
        }
        let behind = bounds.next_base.unwrap_or(bounds.up_to).max(from.plus(1));
        match (damage, bounds.next_base) {
            (Some((position, reason)), _) => Err(self.damaged(&mut cursor, position, from..behind, reason)),
            (None, Some(next)) if bounds.contiguous && due.offset.max(from) < next => {
                let missing = Corruption::Truncated { needed: end + HEADER_BYTES as u64, present: end };
                Err(self.corrupt(end, from..behind, missing))
            }
            _ => Ok(None),
        }
    }

    /// Where to begin looking: an index entry whose batch is undamaged and ends where the entry says, or the start.
    /// An index that leads astray is rebuilt once.
    fn anchor(&self, from: Offset, rules: &Rules<'_>, end: u64) -> Result<(std::sync::Arc<OffsetIndex>, u64, Due)> {
        let mut offsets = self.offsets(rules)?;
        let mut cursor = self.headers(end);
        let mut target = from;
        loop {
            let entry = offsets.lookup(target);
            if entry.position == 0 {
                return Ok((offsets, 0, rules.begin()));
            }
            let found = cursor.checked(entry.position, rules, rules.anywhere());
            match found.map_err(|e| self.files.error("read", Kind::Log, e))? {
                Ok(header) if header.last_offset() <= entry.offset => {
                    let due = Due { offset: header.base_offset(), exact: true };
                    if self.leads_to_entry(&mut cursor, entry.position, entry.offset, rules)? {
                        return Ok((offsets, entry.position, due));
                    }
                }
                _ => {}
            }
            if self.rebuild(rules)? {
                offsets = self.offsets(rules)?;
                target = from;
            } else if let Some(before) = entry.offset.0.checked_sub(1) {
                target = Offset(before);
            } else {
                return Ok((offsets, 0, rules.begin()));
            }
        }
    }

    /// Whether headers lead from `position` to the batch that ends at `offset`.
    fn leads_to_entry(
        &self,
        cursor: &mut Cursor<'_>,
        position: u64,
        offset: Offset,
        rules: &Rules<'_>,
    ) -> Result<bool> {
        let (mut at, mut due) = (position, rules.anywhere());
        loop {
            let header = cursor.header(at, rules, due).map_err(|e| self.files.error("read", Kind::Log, e))?;
            match header {
                Ok(header) if header.last_offset() < offset => {
                    at += header.size();
                    due = rules.behind(&header);
                }
                Ok(header) => return Ok(header.last_offset() == offset),
                Err(_) => return Ok(false),
            }
        }
    }

    /// A batch that is right in its place; one that would be handed out is checked down to its records.
    fn inspect(
        &self,
        cursor: &mut Cursor<'_>,
        at: u64,
        rules: &Rules<'_>,
        due: Due,
        from: Offset,
        log_end: Offset,
    ) -> io::Result<std::result::Result<BatchHeader, Corruption>> {
        let header = match cursor.settled(at, rules, due)? {
            Ok(header) => header,
            Err(reason) => return Ok(Err(reason)),
        };
        if header.last_offset() >= from {
            if header.next_offset() > log_end {
                let found = header.base_offset().to_i64();
                return Ok(Err(Corruption::Order { found, expected: due.offset }));
            }
            let bytes = Bytes::copy_from_slice(cursor.bytes(at, header.size())?);
            let pushed = Batches::new(bytes).push(0, header, self.decompressed_bytes_max());
            if let Err(Rejection::Corrupt(reason)) = pushed {
                return Ok(Err(reason));
            }
        }
        Ok(Ok(header))
    }

    /// The error for a damaged batch, unless it is a message of an older format.
    pub(super) fn damaged(
        &self,
        cursor: &mut Cursor<'_>,
        position: u64,
        offsets: std::ops::Range<Offset>,
        reason: Corruption,
    ) -> Error {
        match cursor.legacy(position) {
            Ok(Some(magic)) => Error::LegacyFormat { path: self.path(), position, magic },
            _ => self.corrupt(position, offsets, reason),
        }
    }

    fn corrupt(&self, position: u64, offsets: std::ops::Range<Offset>, reason: Corruption) -> Error {
        Error::Corrupt { path: self.path(), position, offsets, reason }
    }
}
