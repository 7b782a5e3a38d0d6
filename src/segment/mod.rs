//! A segment: one `.log` file with its sparse indexes, as one writer and many readers have it.
//!
//! ```text
//!  writer ........ Segment: append, window, roll, seal
//!    cut ......... back to the start of a batch
//!    transactions  aborted ones, to their index
//!    recover ..... verify everything, build the indexes anew
//!  reader ........ SegmentReader: what readers share, by Arc
//!    read ........ checked batches; the careful way past damage
//!    gather ...... the one pass of the usual way
//!    search ...... timestamps
//!    walk ........ what a partition asks besides
//!  cleaned ....... what compaction asks, and the segment that it writes
//!  scan, rules ... walking batches, stepping over damage; what is right in its place
//!  indexer, check  which batch earns an entry; whether an index file fits its log
//!  offset_index, time_index, txn_index
//!    index ....... what the first two share: entries that rise, counted from the base
//!    table, words  their entries, on disk and in memory
//!  files ......... names, handles, retirement
//! ```
//!
//! Invariants: the `.log` alone is the truth, and every use of an index is verified against the header that it leads
//! to; whatever a reader is given has been checked; the file's length is not the log's while the segment is open.

mod check;
mod cleaned;
mod cut;
mod files;
mod gather;
mod index;
mod indexer;
mod offset_index;
mod read;
mod reader;
mod recover;
mod roll;
mod rules;
mod scan;
mod search;
mod table;
mod time_index;
mod transactions;
mod txn_index;
mod walk;
mod words;
mod writer;

pub use offset_index::{IndexEntry, OffsetIndex};
pub use read::{ReadBounds, SegmentBatches};
pub use reader::SegmentReader;
pub use recover::{Damage, RecoveryChecks, RecoveryMode, RecoveryOptions, SegmentRecovery, Stop};
pub use roll::{Incoming, RollReason};
pub use time_index::{TimeIndex, TimeIndexEntry};
pub use txn_index::{AbortedTransaction, TxnIndex};
pub use writer::Segment;

use crate::config::PartitionConfig;

/// The settings that a segment needs: part of [`PartitionConfig`], whose defaults they have.
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

impl Default for SegmentConfig {
    fn default() -> Self {
        Self::from(&PartitionConfig::new())
    }
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
