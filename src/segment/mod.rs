//! A segment: one `.log` file with its sparse indexes.

mod read;
mod reader;
mod recover;
mod roll;
mod txn_index;
mod writer;

pub use read::{ReadBounds, SegmentBatches};
pub use reader::SegmentReader;
pub use recover::{Damage, RecoveryChecks, RecoveryMode, RecoveryOptions, SegmentRecovery, Stop};
pub use roll::{Incoming, RollReason};
pub use txn_index::AbortedTransaction;
pub use writer::Segment;

use crate::config::PartitionConfig;

/// The settings that a segment needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentConfig {
    /// Roll before the segment grows beyond this many bytes.
    pub segment_bytes: u32,
    /// How many bytes of log lie between two index entries.
    pub index_interval_bytes: u32,
    /// Roll before an index grows beyond this many bytes.
    pub index_bytes_max: u32,
    /// The most bytes that one compressed batch may decompress to.
    pub decompressed_bytes_max: usize,
}

impl From<&PartitionConfig> for SegmentConfig {
    fn from(config: &PartitionConfig) -> Self {
        Self {
            segment_bytes: config.segment_bytes,
            index_interval_bytes: config.index_interval_bytes,
            index_bytes_max: config.index_bytes_max,
            decompressed_bytes_max: config.decompressed_bytes_max,
        }
    }
}
