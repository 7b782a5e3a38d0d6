//! What compaction asks of a segment, and the one that it writes in the place of others.
//!
//! A segment that is being written is called `.cleaned`; [`Segment::to_swap`] says that it is complete, and
//! [`Segment::install_log`] with [`Segment::install_indexes`] that it has the place (FORMATS 14). Dropped while it is
//! `.cleaned`, its files go.

use std::path::Path;
use std::sync::Arc;

use super::SegmentConfig;
use super::files::{Files, Kind};
use super::read::ReadBounds;
use super::reader::SegmentReader;
use super::rules::{Due, Rules};
use super::scan::{CHECK_CHUNK_BYTES, Cursor};
use super::writer::Segment;
use crate::error::{Corruption, Error, Result};
use crate::record::batch::{BatchHeader, HEADER_BYTES};
use crate::record::batches::Batches;
use crate::storage::Storage;
use crate::types::{Offset, Timestamp};

/// So many decompressed bytes are held at once, and one batch where that is larger.
const DECOMPRESSED_BYTES_AT_ONCE: usize = 16 << 20;

impl Segment {
    /// Begins a segment that is to take the place of others.
    pub(crate) fn create_cleaned(
        storage: &Arc<dyn Storage>,
        directory: &Path,
        base: Offset,
        config: &SegmentConfig,
    ) -> Result<Self> {
        let (capacity, index_bytes) = (config.segment_bytes.into(), config.index_bytes_max.into());
        let files = Files::create_cleaned(storage, directory, base, capacity, index_bytes)?;
        Ok(Self::of_files(files, base, 0, config).begun(Timestamp::default()))
    }

    /// It is written, sealed and synced. Its files are called `.swap` from now on.
    pub(crate) fn to_swap(&self) -> Result<()> {
        self.reader().files.to_swap()
    }

    /// It is not to take the place for all that.
    pub(crate) fn back_to_cleaned(&self) -> Result<()> {
        self.reader().files.back_to_cleaned()
    }

    /// Its `.log` has the place. The directory is to be synced before the indexes follow.
    pub(crate) fn install_log(&self) -> Result<()> {
        self.reader().files.install_log()
    }

    /// Its indexes have the place.
    pub(crate) fn install_indexes(&self) -> Result<()> {
        self.reader().files.install_indexes()
    }

    /// Its `.log` counts as last written when `other` was.
    pub(crate) fn set_modified_as(&self, other: &SegmentReader) -> Result<()> {
        let (time, path) = (other.modified()?, self.reader().path());
        let storage = self.reader().files.storage();
        storage.set_modified(&path, time).map_err(|e| Error::io("set the modification time of", path, e))
    }
}

impl SegmentReader {
    /// Checked batches from the one at byte `position` on, whose base is `due` or later: as many as lie in `bytes_max`
    /// bytes, one at least, none at the end. Whatever is wrong is an error, a batch of another leader epoch than the one
    /// that was begun there too: no checksum covers it.
    pub(crate) fn batches_at(
        &self,
        position: u64,
        bytes_max: u64,
        due: Offset,
        bounds: ReadBounds<'_>,
    ) -> Result<Batches> {
        let rules = Rules::of(self.base, &bounds);
        let bytes = self.bytes_at(position, bytes_max)?;
        let mut batches = Batches::new(bytes.clone());
        let mut due = Due { offset: due, exact: false };
        loop {
            let start = batches.size_bytes();
            let rest = bytes.get(start..).unwrap_or_default();
            let is_enough = !batches.is_empty() && batches.decompressed_bytes() >= DECOMPRESSED_BYTES_AT_ONCE;
            if rest.is_empty() || is_enough {
                return Ok(batches);
            }
            let at = position + start as u64;
            let header = match BatchHeader::parse(rest) {
                Ok(header) if header.size() > rest.len() as u64 && at + header.size() <= self.size() => {
                    if batches.is_empty() {
                        return self.batches_at(at, header.size(), due.offset, bounds);
                    }
                    return Ok(batches);
                }
                // A header that the piece cuts off.
                Err(Corruption::Truncated { .. }) if at + (rest.len() as u64) < self.size() && !batches.is_empty() => {
                    return Ok(batches);
                }
                parsed => parsed.and_then(|header| rules.check(&header, rest, due).map(|()| header)),
            };
            let header = header.map_err(|reason| self.wrong_at(at, due.offset, reason))?;
            let pushed = batches.push(start, header, self.config.decompressed_bytes_max);
            pushed.map_err(|rejection| rejection.into_error(|reason| self.wrong_at(at, due.offset, reason)))?;
            due = rules.behind(&header);
        }
    }

    /// Passes over batches from the one at byte `position` on, whose base is `due` or later, while `passes` says so of their
    /// headers, and `bytes_max` bytes are not passed. Answers where it has stopped, and what is due there: at the last batch
    /// at the latest, and before one whose header is not right there.
    pub(crate) fn pass_over(
        &self,
        position: u64,
        bytes_max: u64,
        due: Offset,
        bounds: ReadBounds<'_>,
        passes: &mut dyn FnMut(&BatchHeader, &[u8]) -> bool,
    ) -> Result<(u64, Offset)> {
        let rules = Rules::of(self.base, &bounds);
        let mut cursor = self.headers(self.size());
        let (mut at, mut due) = (position, Due { offset: due, exact: false });
        while at < self.size().min(position.saturating_add(bytes_max)) {
            let failed = |e| self.files.error("read", Kind::Log, e);
            let Ok(header) = cursor.header(at, &rules, due).map_err(failed)? else { break };
            let bytes = cursor.bytes(at, HEADER_BYTES as u64).map_err(failed)?;
            if at + header.size() >= self.size() || !passes(&header, bytes) {
                break;
            }
            due = rules.behind(&header);
            at += header.size();
        }
        Ok((at, due.offset))
    }

    fn bytes_at(&self, position: u64, bytes_max: u64) -> Result<bytes::Bytes> {
        let end = self.size().min(position.saturating_add(bytes_max.max(HEADER_BYTES as u64)));
        self.files.log().read(position..end.max(position)).map_err(|e| self.files.error("read", Kind::Log, e))
    }

    fn wrong_at(&self, position: u64, from: Offset, reason: Corruption) -> Error {
        let mut cursor = Cursor::new(self.files.log().as_ref(), self.size(), CHECK_CHUNK_BYTES);
        self.damaged(&mut cursor, position, from..from.plus(1), reason)
    }

    /// How many records there are in the batches that end behind `from`, as their headers say. What is damaged ends the
    /// count.
    pub(crate) fn count_records(&self, from: Offset) -> Result<u64> {
        let rules = Rules::bare(self.base);
        let mut cursor = self.headers(self.size());
        let (mut at, mut due, mut count) = (self.indexed_position(from)?, rules.anywhere(), 0_u64);
        while at < self.size() {
            let header = cursor.header(at, &rules, due).map_err(|e| self.files.error("read", Kind::Log, e))?;
            let Ok(header) = header else { break };
            if header.last_offset() >= from && !header.is_control() {
                count += u64::from(header.record_count());
            }
            due = rules.behind(&header);
            at += header.size();
        }
        Ok(count)
    }

    /// The bytes of the offset index, and of the time index.
    pub(crate) fn index_bytes(&self) -> Result<[u64; 2]> {
        const OFFSET_ENTRY_BYTES: u64 = 8;
        const TIME_ENTRY_BYTES: u64 = 12;
        let rules = Rules::bare(self.base);
        let (offsets, times) = (self.offsets(&rules)?.len() as u64, self.times(&rules)?.len() as u64);
        Ok([offsets * OFFSET_ENTRY_BYTES, times * TIME_ENTRY_BYTES])
    }
}
