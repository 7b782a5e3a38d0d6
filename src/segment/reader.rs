//! What the readers of a segment share.

use std::path::PathBuf;
use std::sync::Arc;

use super::{AbortedTransaction, ReadBounds, SegmentBatches};
use crate::error::Result;
use crate::types::{LeaderEpoch, Offset, Timestamp};

/// What the readers of a segment share.
#[derive(Debug)]
pub struct SegmentReader {}

impl SegmentReader {
    /// The offset in the file's name.
    pub fn base_offset(&self) -> Offset {
        todo!()
    }
    /// The bytes of log that are published.
    pub fn size(&self) -> u64 {
        todo!()
    }
    /// The `.log` file.
    pub fn path(&self) -> PathBuf {
        todo!()
    }
    /// Checked batches.
    pub fn read(&self, _from: Offset, _max_bytes: usize, _bounds: &ReadBounds<'_>) -> Result<SegmentBatches> {
        todo!()
    }
    /// The position of the first batch whose last offset is at or behind `offset`.
    pub fn position_of(&self, _offset: Offset, _bounds: &ReadBounds<'_>) -> Result<Option<u64>> {
        todo!()
    }
    /// The first record at or behind `from` whose timestamp is at or after `timestamp`.
    pub fn find_timestamp(
        &self,
        _timestamp: Timestamp,
        _from: Offset,
        _bounds: &ReadBounds<'_>,
    ) -> Result<Option<(Timestamp, Offset, Option<LeaderEpoch>)>> {
        todo!()
    }
    /// The greatest timestamp, by the time index and the batches behind its last entry.
    pub fn largest_timestamp(&self) -> Result<Option<Timestamp>> {
        todo!()
    }
    /// The greatest timestamp by every batch's header.
    pub fn largest_timestamp_by_headers(&self) -> Result<Option<Timestamp>> {
        todo!()
    }
    /// The greatest timestamp of the first batch.
    pub fn first_timestamp(&self) -> Result<Option<Timestamp>> {
        todo!()
    }
    /// The aborted transactions whose marker lies in this segment.
    pub fn aborted(&self) -> Result<Arc<Vec<AbortedTransaction>>> {
        todo!()
    }
    /// Renames the segment's files to `<name>.<serial>.deleted`; they are removed with the last reader.
    pub fn retire(&self, _serial: u64) -> Result<()> {
        todo!()
    }
}
