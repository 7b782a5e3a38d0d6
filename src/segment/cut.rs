//! Cutting a segment back, and writing its bytes again.
//!
//! A cut ends where a batch begins. The indexes are cut with the log, and readers are given another object: who still
//! has the old one keeps its size, and what he reads is checked as ever.

use std::io::IoSlice;
use std::sync::Arc;

use super::ReadBounds;
use super::files::Kind;
use super::offset_index::OffsetIndex;
use super::reader::{Picture, SegmentReader};
use super::rules::Rules;
use super::scan::resync;
use super::time_index::TimeIndex;
use super::writer::{CHUNK_BYTES, Segment};
use crate::error::{Error, Result};
use crate::types::Offset;

impl Segment {
    /// Cuts the segment at the batch that holds `offset`, or at the first one behind it, and its indexes with it.
    /// [`Segment::reader`] is another object afterwards; the old one keeps its size.
    pub fn truncate(&mut self, offset: Offset) -> Result<()> {
        match self.reader.position_of(offset, &ReadBounds::default()) {
            Ok(None) => Ok(()),
            Ok(Some(position)) | Err(Error::Corrupt { position, .. } | Error::LegacyFormat { position, .. }) => {
                self.cut(position)
            }
            Err(error) => Err(error),
        }
    }

    /// Cuts the segment to its first `bytes` bytes, which end where a batch does, and its indexes with it. Replaces
    /// the reader as [`Segment::truncate`] does.
    pub fn cut(&mut self, bytes: u64) -> Result<()> {
        let rules = Rules::bare(self.reader.base);
        let (offsets, times) = (self.reader.offsets(&rules)?, self.reader.times(&rules)?);
        let transactions = self.reader.transactions()?;
        let end = self.reader.end_at(bytes, &offsets, &rules)?;
        self.cut_file(bytes).map_err(|e| self.reader.files.error("truncate", Kind::Log, e))?;
        let offsets = OffsetIndex(offsets.0.truncated(|entry| entry.position < bytes && entry.offset < end));
        let times = TimeIndex(times.0.truncated(|entry| entry.offset < end));
        let picture = Picture { offsets: Some(Arc::new(offsets)), times: Some(Arc::new(times)), built: false };
        let reader = SegmentReader::new(Arc::clone(&self.reader.files), self.reader.base, self.config, bytes, picture);
        reader.files.transactions_changed();
        let kept = transactions.truncated(end);
        let removed = kept.len() < transactions.len();
        reader.set_transactions(Some(Arc::new(kept)));
        self.reader = Arc::new(reader);
        self.file_end = bytes;
        self.live = None;
        self.was_cut = true;
        if removed { self.settle_transactions() } else { Ok(()) }
    }

    /// Writes the bytes of the log from `from` on again, in place: after a failed sync, or a crash, nothing else
    /// proves that a later sync covers them. Nothing is synced.
    pub fn rewrite(&mut self, from: u64) -> Result<()> {
        let log = self.reader.files.log();
        let end = self.size();
        let mut at = from;
        while at < end {
            let to = end.min(at + CHUNK_BYTES);
            let bytes = log.read(at..to).map_err(|e| self.reader.files.error("read", Kind::Log, e))?;
            log.write(at, &[IoSlice::new(&bytes)]).map_err(|e| self.reader.files.error("rewrite", Kind::Log, e))?;
            if bytes.is_empty() {
                break;
            }
            at += bytes.len() as u64;
        }
        Ok(())
    }
}

impl SegmentReader {
    /// The offset behind the last batch that ends at or before `bytes`.
    pub(super) fn end_at(&self, bytes: u64, offsets: &OffsetIndex, rules: &Rules<'_>) -> Result<Offset> {
        let start = offsets.before(bytes).map_or(0, |entry| entry.position);
        let mut cursor = self.headers(bytes);
        let (mut at, mut due) = (start, rules.anywhere());
        let mut end = self.base;
        while at < bytes {
            let header = cursor.header(at, rules, due).map_err(|e| self.files.error("read", Kind::Log, e))?;
            if let Ok(header) = header {
                end = header.next_offset();
                at += header.size();
                due = rules.behind(&header);
            } else {
                let next = resync(self.files.log().as_ref(), bytes, at, rules, due, |_| None);
                at = next.map_err(|e| self.files.error("read", Kind::Log, e))?.unwrap_or(bytes);
            }
        }
        Ok(end)
    }
}
