//! Batches as compaction leaves them: some records gone, everything else of the header as it was.
//!
//! What stays: base offset and last offset (so that nobody's position moves), producer id, epoch and sequences,
//! leader epoch, the flags, the codec. What is made anew: the number of records, the base timestamp with the
//! deltas against it, and the greatest timestamp unless it is the log's own.
//!
//! A delete horizon is set once, by the first compaction that met a tombstone or marker: it takes the place of the
//! base timestamp, and the deltas count from it.
//!
//! A batch without any record left is its header alone: 61 bytes, no codec, no horizon, base timestamp −1, the
//! greatest timestamp as it was. It is kept where its sequence or its last offset is still needed.

use crate::error::Result;
use crate::record::batch::BatchHeader;
use crate::record::decode::RecordView;
use crate::record::encode::{BatchEncoder, RecordParts};
use crate::types::Timestamp;

/// Writes a batch again with fewer records. Its buffers are kept from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct Rewriter {
    encoder: BatchEncoder,
    header: Option<BatchHeader>,
    /// The greatest timestamp of the records kept so far.
    max_timestamp: i64,
}

impl Rewriter {
    /// Begins the batch that had `original` as its header, none of its records kept yet. `delete_horizon` is set
    /// unless the batch has one.
    pub(crate) fn begin(&mut self, original: &BatchHeader, delete_horizon: Option<Timestamp>) {
        let mut header = *original;
        header.record_count = 0;
        match original.delete_horizon().or(delete_horizon) {
            Some(horizon) => header.set_delete_horizon(horizon),
            None => header.base_timestamp = -1,
        }
        self.encoder.clear();
        self.max_timestamp = -1;
        self.header = Some(header);
    }

    /// Keeps a record of the batch that was begun; they come in their order.
    ///
    /// # Errors
    /// [`Error::RecordTooLarge`](crate::error::Error::RecordTooLarge) where the deltas of the new timestamps made
    /// the batch pass 2^31 − 1 bytes.
    pub(crate) fn push(&mut self, record: &RecordView<'_>) -> Result<()> {
        let Some(header) = &mut self.header else { return Ok(()) };
        let timestamp = Timestamp::to_i64(record.timestamp());
        if header.record_count == 0 && header.delete_horizon().is_none() {
            header.base_timestamp = timestamp;
        }
        let parts = RecordParts {
            timestamp_delta: timestamp.wrapping_sub(header.base_timestamp),
            offset_delta: record.offset_delta(),
            key: record.key(),
            value: record.value(),
        };
        self.encoder.push(parts, record.headers())?;
        header.record_count += 1;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        Ok(())
    }

    /// Seals what was kept and lends its bytes.
    ///
    /// # Errors
    /// [`Error::CodecDisabled`](crate::error::Error::CodecDisabled) where the codec is compiled out.
    pub(crate) fn finish(&mut self) -> Result<&[u8]> {
        let Some(mut header) = self.header.take() else { return Ok(&[]) };
        if header.record_count == 0 {
            header.set_empty();
        } else if header.timestamp_type() == crate::config::TimestampType::CreateTime {
            header.max_timestamp = self.max_timestamp;
        }
        self.encoder.seal(header)?;
        Ok(self.encoder.sealed_mut())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
mod tests;
