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
use super::offset_index::OffsetIndex;
use super::reader::SegmentReader;
use super::rules::{Due, Rules};
use super::scan::{CHECK_CHUNK_BYTES, Cursor, overruled, resync};
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
        Self { up_to: Offset::MAX, next_base: None, epochs: None, contiguous: false }
    }
}

impl ReadBounds<'_> {
    /// Whether the segment ended before the next one begins, where there are no gaps.
    fn has_hole_at(&self, found: &SegmentBatches) -> bool {
        self.contiguous && found.end_of_segment && self.next_base.is_some_and(|next| found.next < next)
    }

    /// The end of a segment is where the next one begins, unless offsets are missing before that: then the next
    /// read says so.
    fn complete(&self, mut found: SegmentBatches) -> SegmentBatches {
        if self.has_hole_at(&found) {
            found.end_of_segment = false;
        } else if let Some(next) = self.next_base.filter(|_| found.end_of_segment) {
            found.next = found.next.max(next);
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

/// What the pass over the bytes came to.
struct Gathered {
    found: SegmentBatches,
    /// Why it stopped, if that was not the end, the bounds or the budget.
    trouble: Option<Trouble>,
}

struct Trouble {
    position: u64,
    rejection: Rejection,
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
        let pass = Pass { reader: self, rules, from, max_bytes, up_to: bounds.up_to, end: self.size() };
        let gathered = pass.gather(entry.position, due, meets)?;
        match gathered.trouble {
            None if gathered.found.batches.is_empty() && bounds.has_hole_at(&gathered.found) => {
                self.read_carefully(&pass, bounds)
            }
            None => Ok(bounds.complete(gathered.found)),
            Some(_) if !gathered.found.batches.is_empty() => Ok(gathered.found),
            Some(_) => self.read_carefully(&pass, bounds),
        }
    }

    #[cold]
    fn read_carefully(&self, pass: &Pass<'_>, bounds: &ReadBounds<'_>) -> Result<SegmentBatches> {
        let Some(located) = self.locate(pass.from, bounds)? else {
            let next = bounds.next_base.unwrap_or(pass.from).max(pass.from);
            return Ok(SegmentBatches { next, end_of_segment: true, ..SegmentBatches::default() });
        };
        let due = Due { offset: located.header.base_offset(), exact: true };
        let gathered = pass.gather(located.position, due, None)?;
        match gathered.trouble {
            Some(trouble) if gathered.found.batches.is_empty() => Err(trouble.rejection.into_error(|reason| {
                let behind = located.header.next_offset().max(pass.from.plus(1));
                self.corrupt(trouble.position, pass.from..behind, reason)
            })),
            Some(_) => Ok(gathered.found),
            None => Ok(bounds.complete(gathered.found)),
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
            match self.inspect(&mut cursor, at, &rules, due, from).map_err(read)? {
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
    ) -> io::Result<std::result::Result<BatchHeader, Corruption>> {
        let header = match cursor.settled(at, rules, due)? {
            Ok(header) => header,
            Err(reason) => return Ok(Err(reason)),
        };
        if header.last_offset() >= from {
            let bytes = Bytes::copy_from_slice(cursor.bytes(at, header.size())?);
            let pushed = Batches::new(bytes).push(0, header, self.config.decompressed_bytes_max);
            if let Err(Rejection::Corrupt(reason)) = pushed {
                return Ok(Err(reason));
            }
        }
        Ok(Ok(header))
    }

    /// The error for a damaged batch, unless it is a message of an older format.
    fn damaged(
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

/// One pass over the bytes of a segment.
struct Pass<'a> {
    reader: &'a SegmentReader,
    rules: Rules<'a>,
    from: Offset,
    max_bytes: usize,
    up_to: Offset,
    end: u64,
}

/// The bytes that a pass has, and where they lie in the file.
struct Chunk {
    bytes: Bytes,
    start: u64,
}

impl Chunk {
    /// What it has from `at` on.
    #[inline]
    fn from(&self, at: u64) -> &[u8] {
        let skip = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        self.bytes.get(skip..).unwrap_or_default()
    }
}

impl Pass<'_> {
    /// Gathers batches from `position` on. `due` is what may begin there, and `meets` an offset that an index entry
    /// promised: a batch must end exactly there.
    fn gather(&self, position: u64, mut due: Due, mut meets: Option<Offset>) -> Result<Gathered> {
        let mut chunk = self.read(position, self.budget())?;
        let mut first = position;
        let mut batches = Batches::default();
        let mut at = position;
        let mut next = self.from;
        let trouble = loop {
            if at >= self.end {
                return Ok(ended(batches, next));
            }
            if chunk.from(at).len() < HEADER_BYTES && self.end - at >= HEADER_BYTES as u64 {
                if !batches.is_empty() {
                    break None;
                }
                chunk = self.read(at, self.budget())?;
            }
            let header = match self.header(&chunk, at, due) {
                Ok(header) => header,
                Err(reason) => break Some(reason.into()),
            };
            if let Some(offset) = meets.filter(|offset| header.last_offset() >= *offset) {
                if header.last_offset() != offset {
                    break Some(Corruption::Order { found: header.base_offset().to_i64(), expected: offset }.into());
                }
                meets = None;
                due = Due { offset: header.base_offset(), exact: true };
            }
            if header.last_offset() >= self.from {
                if header.next_offset() > self.up_to || !self.has_room(&batches, &header) {
                    break None;
                }
                if (chunk.from(at).len() as u64) < header.size() {
                    if !batches.is_empty() {
                        break None;
                    }
                    chunk = self.read(at, self.budget().max(header.size()))?;
                }
                if self.contradicted(&chunk, at, &header, due)? {
                    let found = header.base_offset().to_i64();
                    break Some(Corruption::Order { found, expected: due.offset }.into());
                }
                if batches.is_empty() {
                    first = at;
                    batches = Batches::new(chunk.bytes.slice(chunk.bytes.len() - chunk.from(at).len()..));
                }
                let start = usize::try_from(at - first).unwrap_or(usize::MAX);
                if let Err(rejection) = batches.push(start, header, self.reader.config.decompressed_bytes_max) {
                    break Some(rejection);
                }
                next = header.next_offset();
            }
            due = self.rules.behind(&header);
            at += header.size();
        };
        let trouble = trouble.map(|rejection| Trouble { position: at, rejection });
        Ok(Gathered { found: SegmentBatches { batches, next, end_of_segment: false }, trouble })
    }

    /// How much is read at once: what is asked for, what an index entry leaves to be skipped, and one more header.
    fn budget(&self) -> u64 {
        let skipped = u64::from(self.reader.config.index_interval_bytes).min(CHECK_CHUNK_BYTES);
        (self.max_bytes as u64).saturating_add(skipped).saturating_add(CHUNK_SLACK_BYTES)
    }

    fn read(&self, at: u64, len: u64) -> Result<Chunk> {
        let to = at.saturating_add(len).min(self.end);
        let log = self.reader.files.log();
        let bytes = if at < to { log.read(at..to) } else { Ok(Bytes::new()) };
        let bytes = bytes.map_err(|e| self.reader.files.error("read", Kind::Log, e))?;
        Ok(Chunk { bytes, start: at })
    }

    #[inline]
    fn header(&self, chunk: &Chunk, at: u64, due: Due) -> std::result::Result<BatchHeader, Corruption> {
        let bytes = chunk.from(at);
        let header = BatchHeader::parse(bytes)?;
        let present = self.end - at;
        if header.size() > present {
            return Err(Corruption::Truncated { needed: header.size(), present });
        }
        self.rules.check(&header, bytes, due)?;
        Ok(header)
    }

    /// Whether the batch still fits the answer. A compressed one counts with what it decompressed to as well.
    #[inline]
    fn has_room(&self, batches: &Batches, header: &BatchHeader) -> bool {
        let bytes = batches.size_bytes() as u64 + header.size();
        let memory = batches.decompressed_bytes() < self.reader.config.decompressed_bytes_max;
        batches.is_empty() || (bytes <= self.max_bytes as u64 && memory)
    }

    /// Whether the batches behind this one say that its offsets are wrong, where the one before does not say exactly
    /// which are due.
    #[inline]
    fn contradicted(&self, chunk: &Chunk, at: u64, header: &BatchHeader, due: Due) -> Result<bool> {
        let behind = at + header.size();
        if due.exact || behind >= self.end {
            return Ok(false);
        }
        match BatchHeader::parse(chunk.from(behind)) {
            Ok(next) if self.rules.follows(header, &next) => Ok(false),
            _ => {
                let mut cursor = self.reader.headers(self.end);
                overruled(&mut cursor, at, header, &self.rules, due)
                    .map_err(|e| self.reader.files.error("read", Kind::Log, e))
            }
        }
    }
}

/// Beyond what is asked for: the batch that holds the wanted offset may have to be skipped to, and a header peeked at.
const CHUNK_SLACK_BYTES: u64 = 4096;

/// The pass reached the end of the segment.
fn ended(batches: Batches, next: Offset) -> Gathered {
    Gathered { found: SegmentBatches { batches, next, end_of_segment: true }, trouble: None }
}
