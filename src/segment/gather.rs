//! One pass over the bytes of a segment, gathering checked batches.
//!
//! The bytes are read once; a second read is needed only where the wanted batch lies farther from the index entry
//! than an index should leave it, or where it is larger than what was asked for. The pass stops before whatever is
//! wrong, and says what that was.

use bytes::Bytes;

use super::files::Kind;
use super::read::SegmentBatches;
use super::reader::SegmentReader;
use super::rules::{Due, Rules};
use super::scan::{CHECK_CHUNK_BYTES, overruled};
use crate::error::{Corruption, Error, Result};
use crate::record::Rejection;
use crate::record::batch::{BatchHeader, HEADER_BYTES, verify_checksum};
use crate::record::batches::Batches;
use crate::types::Offset;

/// Beyond what is asked for: the batch that holds the wanted offset may have to be skipped to, and a header peeked at.
const SLACK_BYTES: u64 = 4096;

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) rules: Rules<'a>,
    pub(super) from: Offset,
    pub(super) max_bytes: usize,
    pub(super) up_to: Offset,
    /// No sound batch that follows on `from` ends behind this.
    pub(super) log_end: Offset,
    /// The published bytes of the segment.
    pub(super) end: u64,
}

/// What a pass came to.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) found: SegmentBatches,
    /// Where and why it stopped, if that was not the end, the bounds or the budget.
    pub(super) trouble: Option<(u64, Rejection)>,
}

/// Why a pass stops.
enum Stop {
    End,
    Enough,
    Trouble(Rejection),
    Failed(Error),
}

impl From<Corruption> for Stop {
    fn from(reason: Corruption) -> Self {
        Self::Trouble(Rejection::Corrupt(reason))
    }
}

/// A pass under way.
struct Pass<'a> {
    reader: &'a SegmentReader,
    wanted: &'a Wanted<'a>,
    /// The bytes at hand, and where they begin in the file.
    chunk: Bytes,
    start: u64,
    at: u64,
    due: Due,
    /// An index entry promised a batch that ends here.
    meets: Option<Offset>,
    batches: Batches,
    /// Where the bytes of `batches` begin in the file.
    first: u64,
    next: Offset,
}

/// Gathers batches from `position` on. `due` is what may begin there, and `meets` an offset that an index entry
/// promised: a batch must end exactly there.
pub(super) fn gather(
    reader: &SegmentReader,
    wanted: &Wanted<'_>,
    position: u64,
    due: Due,
    meets: Option<Offset>,
) -> Result<Gathered> {
    let mut pass = Pass {
        reader,
        wanted,
        chunk: Bytes::new(),
        start: position,
        at: position,
        due,
        meets,
        batches: Batches::default(),
        first: position,
        next: wanted.from,
    };
    let stop = loop {
        if let Err(stop) = pass.step() {
            break stop;
        }
    };
    let (end_of_segment, trouble) = match stop {
        Stop::End => (true, None),
        Stop::Enough => (false, None),
        Stop::Trouble(rejection) => (false, Some((pass.at, rejection))),
        Stop::Failed(error) => return Err(error),
    };
    let found = SegmentBatches { batches: pass.batches, next: pass.next, end_of_segment };
    Ok(Gathered { found, trouble })
}

impl Pass<'_> {
    /// Steps over one batch.
    #[inline]
    fn step(&mut self) -> std::result::Result<(), Stop> {
        if self.at >= self.wanted.end {
            return Err(Stop::End);
        }
        self.fill(HEADER_BYTES as u64)?;
        let header = self.header()?;
        self.meet(&header)?;
        if header.last_offset() >= self.wanted.from {
            self.take(header)?;
        }
        self.due = self.wanted.rules.behind(&header);
        self.at += header.size();
        Ok(())
    }

    /// Has the next `len` bytes at hand, where the file has them. What has been gathered is not left for that.
    #[inline]
    fn fill(&mut self, len: u64) -> std::result::Result<(), Stop> {
        if self.rest().len() as u64 >= len.min(self.wanted.end - self.at) {
            return Ok(());
        }
        if !self.batches.is_empty() {
            return Err(Stop::Enough);
        }
        let skipped = u64::from(self.reader.config.index_interval_bytes).min(CHECK_CHUNK_BYTES);
        let asked = (self.wanted.max_bytes as u64).saturating_add(skipped + SLACK_BYTES).max(len);
        let to = self.at.saturating_add(asked).min(self.wanted.end);
        let read = self.reader.files.log().read(self.at..to);
        self.chunk = read.map_err(|e| Stop::Failed(self.reader.files.error("read", Kind::Log, e)))?;
        self.start = self.at;
        Ok(())
    }

    /// The bytes at hand from where the pass stands.
    #[inline]
    fn rest(&self) -> &[u8] {
        let skip = usize::try_from(self.at - self.start).unwrap_or(usize::MAX);
        self.chunk.get(skip..).unwrap_or_default()
    }

    #[inline]
    fn header(&self) -> std::result::Result<BatchHeader, Corruption> {
        let bytes = self.rest();
        let header = BatchHeader::parse(bytes)?;
        let present = self.wanted.end - self.at;
        if header.size() > present {
            return Err(Corruption::Truncated { needed: header.size(), present });
        }
        self.wanted.rules.check(&header, bytes, self.due)?;
        Ok(header)
    }

    /// Compares a header with what the index entry promised; where it keeps that, its offsets need no other witness.
    #[inline]
    fn meet(&mut self, header: &BatchHeader) -> std::result::Result<(), Corruption> {
        let Some(offset) = self.meets.filter(|offset| header.last_offset() >= *offset) else { return Ok(()) };
        if header.last_offset() != offset {
            return Err(Corruption::Order { found: header.base_offset().to_i64(), expected: offset });
        }
        self.meets = None;
        self.due = Due { offset: header.base_offset(), exact: true };
        Ok(())
    }

    /// Checks a batch and adds it to what is handed out.
    #[inline]
    fn take(&mut self, header: BatchHeader) -> std::result::Result<(), Stop> {
        let passes = header.next_offset() > self.wanted.up_to;
        if (passes && !self.batches.is_empty()) || !self.has_room(&header) {
            return Err(Stop::Enough);
        }
        self.fill(header.size())?;
        if self.is_contradicted(&header)? {
            let found = header.base_offset().to_i64();
            return Err(Corruption::Order { found, expected: self.due.offset }.into());
        }
        if passes {
            return Err(self.end_before(&header));
        }
        if self.batches.is_empty() {
            self.first = self.at;
            self.batches = Batches::new(self.chunk.slice(self.chunk.len() - self.rest().len()..));
        }
        let start = usize::try_from(self.at - self.first).unwrap_or(usize::MAX);
        self.batches.push(start, header, self.reader.decompressed_bytes_max()).map_err(Stop::Trouble)?;
        self.next = header.next_offset();
        Ok(())
    }

    /// Nothing was gathered, and the first batch passes the bound, as its header says: that is an answer only where the
    /// header is sound. Up to a batch that lies wholly behind the bound there is a gap.
    #[cold]
    fn end_before(&mut self, header: &BatchHeader) -> Stop {
        let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
        let bytes = self.rest().get(..size).unwrap_or_else(|| self.rest());
        if let Err(reason) = verify_checksum(bytes, header) {
            return reason.into();
        }
        if header.next_offset() > self.wanted.log_end {
            return Corruption::Order { found: header.base_offset().to_i64(), expected: self.due.offset }.into();
        }
        if header.base_offset() >= self.wanted.up_to {
            self.next = self.next.max(self.wanted.up_to);
        }
        Stop::Enough
    }

    /// Whether the batch still fits the answer. Compressed ones count with what they decompressed to as well.
    #[inline]
    fn has_room(&self, header: &BatchHeader) -> bool {
        let bytes = self.batches.size_bytes() as u64 + header.size();
        let memory = self.batches.decompressed_bytes() < self.reader.decompressed_bytes_max();
        self.batches.is_empty() || (bytes <= self.wanted.max_bytes as u64 && memory)
    }

    /// Whether the batches behind this one say that its offsets are wrong, where the one before does not say exactly
    /// which are due.
    #[inline]
    fn is_contradicted(&self, header: &BatchHeader) -> std::result::Result<bool, Stop> {
        if self.due.exact || self.at + header.size() >= self.wanted.end {
            return Ok(false);
        }
        let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
        match BatchHeader::parse(self.rest().get(size..).unwrap_or_default()) {
            Ok(next) if self.wanted.rules.follows(header, &next) => Ok(false),
            _ => {
                let mut cursor = self.reader.headers(self.wanted.end);
                overruled(&mut cursor, self.at, header, &self.wanted.rules, self.due)
                    .map_err(|e| Stop::Failed(self.reader.files.error("read", Kind::Log, e)))
            }
        }
    }
}
