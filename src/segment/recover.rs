//! Recovery of a segment.

use std::ops::Range;

use super::AbortedTransaction;
use crate::error::Corruption;
use crate::record::batch::BatchHeader;
use crate::types::{Offset, Timestamp};

/// What the partition checks and rebuilds while a segment is recovered.
pub trait RecoveryChecks {
    /// A batch whose CRC and offsets are right; `bytes` is the whole batch as it lies on disk. An error says that the
    /// batch is damaged all the same (a wrong leader epoch). The abort marker of a transaction that had data answers
    /// with the entry for the transaction index.
    fn batch(
        &mut self,
        position: u64,
        header: &BatchHeader,
        bytes: &[u8],
    ) -> std::result::Result<Option<AbortedTransaction>, Corruption>;
}

/// Whether a damaged batch ends a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryMode {
    /// The last segment: what is valid ends before the first damaged batch.
    Active,
    /// A segment that is never cut: damage is listed, scanning goes on behind it.
    Sealed,
}

/// How a segment is recovered.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryOptions {
    /// What a damaged batch means.
    pub mode: RecoveryMode,
    /// The byte position of the batch to begin with; what lies before is trusted. Usually 0.
    pub from: u64,
    /// Whether every batch begins exactly where the one before ended.
    pub contiguous: bool,
    /// The base of the next segment.
    pub next_base: Option<Offset>,
}

/// Why and where the valid part of a segment ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The byte position of the first batch that is not valid.
    pub position: u64,
    /// What is wrong with it.
    pub reason: Corruption,
    /// Whether every byte from there on is zero.
    pub zeros: bool,
    /// The position of a valid batch behind it.
    pub valid_after: Option<u64>,
    /// The magic, where it is a valid message of Kafka's magic 0 or 1.
    pub legacy: Option<i8>,
}

/// A damaged range of a segment that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The byte position.
    pub position: u64,
    /// The offsets that cannot be read.
    pub offsets: Range<Offset>,
    /// What is wrong.
    pub reason: Corruption,
}

/// What a recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentRecovery {
    /// The bytes from the segment's start that are valid ([`RecoveryMode::Active`]), or the file's length.
    pub valid_bytes: u64,
    /// The offset behind the last valid batch; `None` without any.
    pub next_offset: Option<Offset>,
    /// The greatest timestamp of the valid batches.
    pub max_timestamp: Option<Timestamp>,
    /// The number of valid batches.
    pub batches: u64,
    /// Where and why the valid part ends before the file does ([`RecoveryMode::Active`] only).
    pub stop: Option<Stop>,
    /// What is damaged ([`RecoveryMode::Sealed`] only).
    pub damaged: Vec<Damage>,
}
