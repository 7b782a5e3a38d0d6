//! The one writer's handle of a segment.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{
    AbortedTransaction, Incoming, RecoveryChecks, RecoveryOptions, RollReason, SegmentConfig, SegmentReader,
    SegmentRecovery,
};
use crate::error::Result;
use crate::record::batch::BatchHeader;
use crate::storage::Storage;
use crate::types::{Offset, Timestamp};

/// The one writer's handle of a segment.
#[derive(Debug)]
pub struct Segment {}

impl Segment {
    /// Begins an empty segment. `created` is the wall time.
    pub fn create(
        _storage: &Arc<dyn Storage>,
        _directory: &Path,
        _base: Offset,
        _config: &SegmentConfig,
        _created: Timestamp,
    ) -> Result<Self> {
        todo!()
    }
    /// Opens a segment that is there; `len`, the length of its `.log`, is taken for the log's. Reads no record.
    pub fn load(
        _storage: &Arc<dyn Storage>,
        _directory: &Path,
        _base: Offset,
        _len: u64,
        _config: &SegmentConfig,
    ) -> Result<Self> {
        todo!()
    }
    /// What readers share. [`Segment::truncate`] and [`Segment::cut`] replace it.
    pub fn reader(&self) -> &Arc<SegmentReader> {
        todo!()
    }
    /// The offset in the file's name.
    pub fn base_offset(&self) -> Offset {
        todo!()
    }
    /// The bytes of log.
    pub fn size(&self) -> u64 {
        todo!()
    }
    /// Appends batches with one write.
    pub fn append(&mut self, _bytes: &[u8], _headers: &[BatchHeader]) -> Result<()> {
        todo!()
    }
    /// Why the segment should be closed before `incoming` is appended.
    pub fn roll_reason(
        &mut self,
        _incoming: &Incoming,
        _segment_age: Option<Duration>,
        _now: Timestamp,
    ) -> Option<RollReason> {
        todo!()
    }
    /// Where fewer than `at_least` bytes of zeros are left behind the end, makes them `window` again.
    /// Says whether the file has grown.
    pub fn fill_window(&mut self, _at_least: u64, _window: u64) -> Result<bool> {
        todo!()
    }
    /// Cuts the file to the log's end. Says whether it has shrunk.
    pub fn cut_window(&mut self) -> Result<bool> {
        todo!()
    }
    /// Closes the segment: final time-index entry, indexes written out, window cut. No sync.
    pub fn seal(&mut self) -> Result<()> {
        todo!()
    }
    /// Cuts at the batch that holds `offset`, or the first behind it. Replaces the reader.
    pub fn truncate(&mut self, _offset: Offset) -> Result<()> {
        todo!()
    }
    /// Cuts to `bytes`, the start of a batch. Replaces the reader.
    pub fn cut(&mut self, _bytes: u64) -> Result<()> {
        todo!()
    }
    /// Verifies every batch, rebuilds the three indexes. Changes nothing in the `.log`.
    pub fn recover(&mut self, _options: &RecoveryOptions, _checks: &mut dyn RecoveryChecks) -> Result<SegmentRecovery> {
        todo!()
    }
    /// Writes the bytes from `from` to the end again, in place.
    pub fn rewrite(&mut self, _from: u64) -> Result<()> {
        todo!()
    }
    /// Makes the `.log` durable.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }
    /// Adds an entry to the transaction index.
    pub fn append_aborted(&mut self, _aborted: AbortedTransaction) -> Result<()> {
        todo!()
    }
    /// Writes the indexes out and forgets them.
    pub fn drop_index_memory(&mut self) -> Result<()> {
        todo!()
    }
}
