//! Recovery: every batch of a segment is verified, and its indexes are built anew in the same pass.
//!
//! The `.log` is not changed here: the result says where and why its valid part ends, and the partition decides what
//! to cut (SEMANTICS 3). Verified are the CRC, the header's fields, the order and range of the offsets, and whatever
//! [`RecoveryChecks`] adds; compressed records are not decompressed. All three indexes are rebuilt and written out; one
//! that cannot be written stays in memory.
//!
//! ```text
//!  Active   | valid ............ | first bad batch ... anything ... |       stop; what lies behind is looked at only
//!           0               valid_bytes                                     to say whether it is zeros, or valid
//!  Sealed   | valid .. | damage | valid ......... | damage | valid  |       all that is valid stays indexed
//! ```

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::AbortedTransaction;
use super::files::Kind;
use super::index::Index;
use super::indexer::Indexer;
use super::offset_index::OffsetIndex;
use super::reader::written;
use super::rules::{Due, Rules};
use super::scan::{Cursor, RECOVERY_CHUNK_BYTES, resync};
use super::time_index::TimeIndex;
use super::writer::Segment;
use crate::error::{Corruption, Result};
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

/// No further checks, and no transactions.
impl RecoveryChecks for () {
    fn batch(
        &mut self,
        _position: u64,
        _header: &BatchHeader,
        _bytes: &[u8],
    ) -> std::result::Result<Option<AbortedTransaction>, Corruption> {
        Ok(None)
    }
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
    /// The byte position of the batch to begin with; what lies before is indexed by its headers. Usually 0.
    pub from: u64,
    /// Whether every batch begins exactly where the one before ended.
    pub contiguous: bool,
    /// The base of the next segment; `None` for the last one.
    pub next_base: Option<Offset>,
}

impl RecoveryOptions {
    /// Everything, in the last segment of a log that may have gaps.
    #[must_use]
    pub const fn active() -> Self {
        Self { mode: RecoveryMode::Active, from: 0, contiguous: false, next_base: None }
    }

    /// Everything, in a segment that is followed by one with the base `next_base`.
    #[must_use]
    pub const fn sealed(next_base: Offset) -> Self {
        Self { mode: RecoveryMode::Sealed, from: 0, contiguous: false, next_base: Some(next_base) }
    }
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

impl Segment {
    /// Verifies every batch from `options.from` to the file's end, and rebuilds the three indexes. The `.log` stays as
    /// it is; in [`RecoveryMode::Active`] the caller cuts it to [`SegmentRecovery::valid_bytes`] with
    /// [`Segment::cut`] before it appends.
    ///
    /// ```
    /// use std::path::Path;
    /// use taffrail::{MemoryStorage, Offset, RecoveryOptions, Segment, SegmentConfig};
    ///
    /// let storage = MemoryStorage::new(1);
    /// storage.set_bytes("/00000000000000000000.log", b"torn")?;
    /// let mut segment = Segment::load(&storage.shared(), Path::new("/"), Offset(0), 4, &SegmentConfig::default())?;
    /// let recovery = segment.recover(&RecoveryOptions::active(), &mut ())?;
    /// assert_eq!(recovery.valid_bytes, 0);
    /// segment.cut(recovery.valid_bytes)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) where the log cannot be read, or its transaction index not written.
    pub fn recover(&mut self, options: &RecoveryOptions, checks: &mut dyn RecoveryChecks) -> Result<SegmentRecovery> {
        let base = self.base_offset();
        let rules = Rules { base, next_base: options.next_base, contiguous: options.contiguous, epochs: None };
        let mut pass = Recovery {
            cursor: Cursor::new(self.reader.files.log().as_ref(), self.size(), RECOVERY_CHUNK_BYTES),
            end: self.size(),
            rules,
            options: *options,
            offsets: OffsetIndex(Index::in_files(base, &self.reader.files)),
            times: TimeIndex(Index::in_files(base, &self.reader.files)),
            indexer: Indexer::new(self.config.index_interval_bytes),
            aborted: Vec::new(),
            found: SegmentRecovery::default(),
        };
        pass.run(checks).map_err(|e| self.reader.files.error("read", Kind::Log, e))?;
        let Recovery { offsets, times, aborted, mut found, indexer, .. } = pass;
        indexer.finish(&times);
        found.max_timestamp = indexer.max.map(|entry| entry.timestamp);
        let picture = written(Arc::new(offsets), Arc::new(times), true);
        self.live = None;
        self.reader.set_picture(picture, false);
        self.replace_transactions(options.from, &aborted)?;
        Ok(found)
    }
}

/// One pass over a segment.
struct Recovery<'a> {
    cursor: Cursor<'a>,
    end: u64,
    rules: Rules<'a>,
    options: RecoveryOptions,
    offsets: OffsetIndex,
    times: TimeIndex,
    indexer: Indexer,
    aborted: Vec<AbortedTransaction>,
    found: SegmentRecovery,
}

impl Recovery<'_> {
    fn run(&mut self, checks: &mut dyn RecoveryChecks) -> io::Result<()> {
        let (mut at, mut due) = self.pass_over()?;
        while at < self.end {
            match self.verify(at, due, checks)? {
                Ok(header) => {
                    self.indexer.batch(at, &header, &self.offsets, &self.times);
                    due = self.rules.behind(&header);
                    at += header.size();
                    self.found.batches += 1;
                    self.found.next_offset = Some(header.next_offset());
                }
                Err(reason) if self.options.mode == RecoveryMode::Active => {
                    self.found.stop = Some(self.stop(at, due, reason)?);
                    break;
                }
                Err(reason) => {
                    due.exact = false;
                    at = self.step_over(at, due, reason)?;
                }
            }
        }
        self.found.valid_bytes = at;
        self.note_missing_end(at, due);
        Ok(())
    }

    /// Indexes what lies before the first batch to be verified by its headers; where the verifying begins.
    fn pass_over(&mut self) -> io::Result<(u64, Due)> {
        let (mut at, mut due) = (0, self.rules.begin());
        while at < self.options.from {
            let Ok(header) = self.cursor.header(at, &self.rules, due)? else { break };
            self.indexer.batch(at, &header, &self.offsets, &self.times);
            due = self.rules.behind(&header);
            at += header.size();
            self.found.next_offset = Some(header.next_offset());
        }
        Ok((at, due))
    }

    fn verify(
        &mut self,
        at: u64,
        due: Due,
        checks: &mut dyn RecoveryChecks,
    ) -> io::Result<std::result::Result<BatchHeader, Corruption>> {
        let header = match self.cursor.settled(at, &self.rules, due)? {
            Ok(header) => header,
            Err(reason) => return Ok(Err(reason)),
        };
        let bytes = self.cursor.bytes(at, header.size())?;
        Ok(checks.batch(at, &header, bytes).map(|aborted| {
            self.aborted.extend(aborted);
            header
        }))
    }

    /// What is to be said of the end of the valid part.
    fn stop(&mut self, position: u64, due: Due, reason: Corruption) -> io::Result<Stop> {
        let zeros = self.only_zeros(position)?;
        let valid_after = if zeros { None } else { self.resync(position, due)? };
        Ok(Stop { position, reason, zeros, valid_after, legacy: self.cursor.legacy(position)? })
    }

    fn only_zeros(&mut self, from: u64) -> io::Result<bool> {
        let mut at = from;
        while at < self.end {
            let bytes = self.cursor.bytes(at, RECOVERY_CHUNK_BYTES)?;
            if bytes.is_empty() {
                break;
            }
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
        Ok(true)
    }

    fn resync(&self, at: u64, due: Due) -> io::Result<Option<u64>> {
        resync(self.cursor.file(), self.end, at, &self.rules, due, |_| None)
    }

    /// Notes the damage at `at`; where the next readable batch begins.
    fn step_over(&mut self, at: u64, due: Due, reason: Corruption) -> io::Result<u64> {
        let next = self.resync(at, due)?;
        let behind = match next {
            Some(next) => self.cursor.parse(next)?.ok().map(|header| header.base_offset()),
            None => self.options.next_base,
        };
        let behind = behind.map_or(due.offset.plus(1), |behind| behind.max(due.offset));
        self.found.damaged.push(Damage { position: at, offsets: due.offset..behind, reason });
        Ok(next.unwrap_or(self.end))
    }

    /// A segment without gaps that ends before the next one begins has lost its end.
    fn note_missing_end(&mut self, at: u64, due: Due) {
        let Some(next) = self.options.next_base.filter(|next| self.options.contiguous && due.offset < *next) else {
            return;
        };
        if self.options.mode == RecoveryMode::Sealed && due.exact {
            let reason = Corruption::Truncated { needed: at + 1, present: at };
            self.found.damaged.push(Damage { position: at, offsets: due.offset..next, reason });
        }
    }
}
