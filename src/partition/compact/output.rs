//! The segments that a group is written to.
//!
//! Batches are gathered and written in pieces. The first segment has the base of the group, whatever its first batch is;
//! where it is full (batches that are compressed anew may have grown) another begins at the next batch. What was written
//! is synced every now and then, so that the last sync is short.

use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::record::batch::BatchHeader;
use crate::segment::{AbortedTransaction, Incoming, Segment, SegmentConfig, SegmentReader};
use crate::storage::Storage;
use crate::types::{Offset, Timestamp};

/// So much is written without a sync.
const UNSYNCED_BYTES_MAX: u64 = 32 << 20;

/// What a group becomes.
#[derive(Debug)]
pub(super) struct Output {
    storage: Arc<dyn Storage>,
    directory: Box<Path>,
    config: SegmentConfig,
    /// Those that are full, sealed and synced.
    full: Vec<Segment>,
    current: Segment,
    unsynced_bytes: u64,
    /// Batches that are not written yet, and entries of the transaction index whose markers are among them.
    bytes: Vec<u8>,
    headers: Vec<BatchHeader>,
    aborted: Vec<AbortedTransaction>,
    /// Behind the last batch.
    next: Offset,
}

impl Output {
    /// Begins with an empty segment at `base`.
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        directory: &Path,
        base: Offset,
        config: SegmentConfig,
    ) -> Result<Self> {
        Ok(Self {
            storage: Arc::clone(storage),
            directory: directory.into(),
            config,
            full: Vec::new(),
            current: Segment::create_cleaned(storage, directory, base, &config)?,
            unsynced_bytes: 0,
            bytes: Vec::new(),
            headers: Vec::new(),
            aborted: Vec::new(),
            next: base,
        })
    }

    /// The offset behind the last batch that was added; the base where there is none.
    pub(super) fn next_offset(&self) -> Offset {
        self.next
    }

    /// Adds a batch.
    pub(super) fn add(&mut self, header: BatchHeader, bytes: &[u8], aborted: Option<AbortedTransaction>) {
        self.next = header.next_offset();
        self.bytes.extend_from_slice(bytes);
        self.headers.push(header);
        self.aborted.extend(aborted);
    }

    /// How many bytes wait to be written.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds batches that stand one behind the other in `bytes`, and writes everything.
    pub(super) fn write_run(&mut self, headers: &[BatchHeader], bytes: &[u8]) -> Result<()> {
        self.flush()?;
        self.next = headers.last().map_or(self.next, BatchHeader::next_offset);
        self.write(headers, bytes)
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self) -> Result<()> {
        let (headers, bytes) = (std::mem::take(&mut self.headers), std::mem::take(&mut self.bytes));
        self.write(&headers, &bytes)?;
        // The buffers are kept.
        (self.headers, self.bytes) = (headers, bytes);
        self.headers.clear();
        self.bytes.clear();
        Ok(())
    }

    fn write(&mut self, mut headers: &[BatchHeader], mut bytes: &[u8]) -> Result<()> {
        while let Some(first) = headers.first() {
            let mut count = if self.takes(headers, bytes.len()) { headers.len() } else { self.fitting(headers) };
            if count == 0 {
                self.begin(first.base_offset())?;
                count = self.fitting(headers).max(1);
            }
            let (set, rest) = headers.split_at(count);
            let size = set.iter().map(BatchHeader::size).sum::<u64>();
            let (set_bytes, rest_bytes) = bytes.split_at(usize::try_from(size).unwrap_or(usize::MAX).min(bytes.len()));
            self.current.append(set_bytes, set)?;
            self.note_aborted(set)?;
            self.sync_now_and_then(size)?;
            (headers, bytes) = (rest, rest_bytes);
        }
        Ok(())
    }

    /// How many of the first batches the segment takes; one that is empty takes one.
    fn fitting(&mut self, headers: &[BatchHeader]) -> usize {
        let mut size = 0;
        for count in 0..headers.len() {
            size += headers.get(count).map_or(0, BatchHeader::size);
            let set = headers.get(..=count).unwrap_or_default();
            if !self.takes(set, usize::try_from(size).unwrap_or(usize::MAX)) {
                return count;
            }
        }
        headers.len()
    }

    fn takes(&mut self, set: &[BatchHeader], size: usize) -> bool {
        let Some(last) = set.last() else { return true };
        let is_one = set.len() == 1 && self.current.size() == 0;
        let incoming = Incoming { bytes: size as u64, max_timestamp: None, last_offset: last.last_offset() };
        let fits = u64::from(self.config.segment_bytes) >= self.current.size() + size as u64;
        is_one || fits && self.current.roll_reason(&incoming, None, Timestamp::default()).is_none()
    }

    /// Closes the segment and begins one at `base`.
    fn begin(&mut self, base: Offset) -> Result<()> {
        let next = Segment::create_cleaned(&self.storage, &self.directory, base, &self.config)?;
        let mut full = std::mem::replace(&mut self.current, next);
        full.seal()?;
        full.sync()?;
        self.unsynced_bytes = 0;
        self.full.push(full);
        Ok(())
    }

    /// The entries whose markers were just written.
    fn note_aborted(&mut self, written: &[BatchHeader]) -> Result<()> {
        let Some(last) = written.last() else { return Ok(()) };
        let count = self.aborted.partition_point(|entry| entry.last_offset <= last.last_offset());
        for entry in self.aborted.drain(..count) {
            self.current.append_aborted(entry)?;
        }
        Ok(())
    }

    fn sync_now_and_then(&mut self, written: u64) -> Result<()> {
        self.unsynced_bytes += written;
        if self.unsynced_bytes >= UNSYNCED_BYTES_MAX {
            self.unsynced_bytes = 0;
            self.current.sync()?;
        }
        Ok(())
    }

    /// Completes the segments: sealed, synced, and as old as `source`, the last one that they stand for.
    pub(super) fn finish(mut self, source: &SegmentReader) -> Result<Vec<Segment>> {
        self.flush()?;
        self.current.seal()?;
        self.current.sync()?;
        let mut segments = self.full;
        segments.push(self.current);
        segments.iter().try_for_each(|segment| segment.set_modified_as(source))?;
        Ok(segments)
    }
}
