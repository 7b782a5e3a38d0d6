//! What a partition asks of a segment besides reading: where it ends, its headers one after the other, copies of its
//! files, and the writer's handle of one that was sealed.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::files::Kind;
use super::reader::{Picture, SegmentReader};
use super::rules::Rules;
use super::scan::{Cursor, resync};
use super::writer::Segment;
use super::{ReadBounds, SegmentConfig};
use crate::error::{Error, Result};
use crate::record::batch::{BatchHeader, verify_checksum};
use crate::storage::Storage;
use crate::types::Offset;

/// How much of a file is copied at once.
const COPY_CHUNK_BYTES: u64 = 1 << 20;

impl Segment {
    /// The writer's handle of a segment that readers have: it goes on with their file, so that what they hold stays
    /// sound when it is cut. The file's length is taken for the log's.
    pub(crate) fn resume(reader: &Arc<SegmentReader>) -> Result<Self> {
        let len = reader.files.log().len().map_err(|e| reader.files.error("read", Kind::Log, e))?;
        let config = SegmentConfig { decompressed_bytes_max: reader.decompressed_bytes_max(), ..reader.config };
        let resumed = SegmentReader::new(Arc::clone(&reader.files), reader.base, config, len, Picture::default());
        Ok(Self::of_reader(Arc::new(resumed), len))
    }

    /// Where the log of a segment ends that was closed: headers lead from its last index entry exactly to the end of
    /// its file. `None` where they do not.
    pub(crate) fn closed_end(&self) -> Result<Option<Offset>> {
        let rules = Rules::bare(self.base_offset());
        let start = self.reader().offsets(&rules)?.last().map_or(0, |entry| entry.position);
        let mut cursor = self.reader().headers(self.size());
        let (mut at, mut due) = (start, rules.anywhere());
        while at < self.size() {
            let header = cursor.header(at, &rules, due).map_err(|e| self.reader().files.error("read", Kind::Log, e))?;
            let Ok(header) = header else { return Ok(None) };
            due = rules.behind(&header);
            at += header.size();
        }
        Ok(Some(if start == 0 && at == 0 { self.base_offset() } else { due.offset }).filter(|_| at == self.size()))
    }
}

impl SegmentReader {
    /// The offset behind the last batch that ends at or below `offset`; the segment's base where there is none. What is
    /// damaged is passed over, as by a cut.
    pub(crate) fn end_before(&self, offset: Offset) -> Result<Offset> {
        let position = match self.position_of(offset, &ReadBounds::default()) {
            Ok(Some(position)) | Err(Error::Corrupt { position, .. } | Error::LegacyFormat { position, .. }) => {
                position
            }
            Ok(None) => self.size(),
            Err(error) => return Err(error),
        };
        let rules = Rules::bare(self.base);
        self.end_at(position, &*self.offsets(&rules)?, &rules)
    }

    /// The position of the last indexed batch that ends at or below `offset`; 0 where there is none.
    pub(crate) fn indexed_position(&self, offset: Offset) -> Result<u64> {
        if offset <= self.base {
            return Ok(0);
        }
        Ok(self.offsets(&Rules::bare(self.base))?.lookup(offset).position)
    }

    /// The header of the batch at a byte position; `None` where there is none.
    pub(crate) fn header_at(&self, position: u64) -> Result<Option<BatchHeader>> {
        let rules = Rules::bare(self.base);
        let header = self.headers(self.size()).header(position, &rules, rules.anywhere());
        Ok(header.map_err(|e| self.files.error("read", Kind::Log, e))?.ok())
    }

    /// Calls `visit` with every sound batch that holds an offset from `from` on and begins below `to`.
    pub(crate) fn for_each_batch(
        &self,
        from: Offset,
        to: Offset,
        visit: &mut dyn FnMut(&BatchHeader, &[u8]),
    ) -> Result<()> {
        if self.base >= to {
            return Ok(());
        }
        let rules = Rules::bare(self.base);
        let log = self.files.log().as_ref();
        let failed = |e| self.files.error("read", Kind::Log, e);
        let end = self.size();
        let mut cursor = Cursor::new(log, end, COPY_CHUNK_BYTES);
        let (mut at, mut due) = (self.indexed_position(from)?, rules.anywhere());
        while at < end {
            let Ok(header) = cursor.header(at, &rules, due).map_err(failed)? else {
                at = resync(log, end, at, &rules, due, |_| None).map_err(failed)?.unwrap_or(end);
                continue;
            };
            if header.base_offset() >= to {
                break;
            }
            if header.last_offset() >= from {
                visit(&header, cursor.bytes(at, header.size()).map_err(failed)?);
            }
            due = rules.behind(&header);
            at += header.size();
        }
        Ok(())
    }

    /// Where the last sound batch ends that ends at `offset` or before it; the base where there is none.
    pub(crate) fn sound_end(&self, offset: Offset) -> Result<Offset> {
        let mut end = self.base;
        self.for_each_batch(self.base, offset, &mut |header, bytes| {
            if header.next_offset() <= offset && verify_checksum(bytes, header).is_ok() {
                end = end.max(header.next_offset());
            }
        })?;
        Ok(end)
    }

    /// Copies bytes of the `.log` to a new file, and syncs it.
    pub(crate) fn copy_range(&self, range: Range<u64>, to: &Path, storage: &Arc<dyn Storage>) -> Result<()> {
        let copy = storage.create(to, 0).map_err(|e| Error::io("create", to, e))?;
        let mut at = range.start;
        while at < range.end {
            let chunk = at..range.end.min(at + COPY_CHUNK_BYTES);
            let bytes = self.files.log().read(chunk).map_err(|e| self.files.error("read", Kind::Log, e))?;
            if bytes.is_empty() {
                let cut = io::Error::new(io::ErrorKind::UnexpectedEof, "the file was cut while it was copied");
                return Err(self.files.error("copy", Kind::Log, cut));
            }
            copy.write(at - range.start, &[IoSlice::new(&bytes)]).map_err(|e| Error::io("write", to, e))?;
            at += bytes.len() as u64;
        }
        copy.sync().map_err(|e| Error::io("sync", to, e))
    }

    /// Writes the transaction index, as far as markers below `end` go, to a new file, and syncs it. Where no transaction
    /// was aborted there is no file.
    pub(crate) fn copy_aborted(&self, end: Offset, to: &Path, storage: &Arc<dyn Storage>) -> Result<()> {
        let index = self.transactions()?.truncated(end);
        if index.is_empty() {
            return Ok(());
        }
        let copy = storage.create(to, 0).map_err(|e| Error::io("create", to, e))?;
        copy.write(0, &[IoSlice::new(&index.to_bytes())]).map_err(|e| Error::io("write", to, e))?;
        copy.sync().map_err(|e| Error::io("sync", to, e))
    }
}
