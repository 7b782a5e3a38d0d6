//! The pass over the batches: what recovery verifies, and what follows from the batches it sees.

use std::ops::Range;
use std::sync::Arc;

use super::aborted::Noted;
use super::append::control_of;
use super::home::{History, Home};
use super::producers::Producers;
use super::recover::{DamagedRange, Recovery, readers_of};
use super::snapshots::Snapshots;
use crate::epochs::Epochs;
use crate::error::{Corruption, Error, Result};
use crate::record::batch::BatchHeader;
use crate::segment::{
    AbortedTransaction, RecoveryChecks, RecoveryMode, RecoveryOptions, Segment, SegmentReader, SegmentRecovery,
};
use crate::trace;
use crate::types::{Offset, Timestamp};

/// The segments while they are recovered.
pub(super) struct Work {
    pub(super) segments: Vec<Segment>,
    pub(super) log_start: Offset,
    /// The offset behind the last batch seen so far.
    pub(super) end: Offset,
    pub(super) recovery_point: Offset,
    pub(super) contiguous: bool,
    pub(super) epochs: Epochs,
    /// Whether batches may bring epochs that the checkpoint does not know.
    pub(super) adopts_epochs: bool,
    pub(super) history: History,
    pub(super) producers: Producers,
    pub(super) snapshots: Snapshots,
    pub(super) aborted: Noted,
    /// The local time, at which all that is loaded counts as heard of.
    pub(super) now: Timestamp,
    pub(super) recovery: Recovery,
}

impl Work {
    /// Synced records are not there any more: that was no clean end.
    pub(super) fn note_lost(&mut self, lost: Option<Range<Offset>>) {
        self.recovery.clean &= lost.is_none();
        self.recovery.lost = self.recovery.lost.take().or(lost);
    }

    /// Where verification begins: the segment that holds the recovery point, and a byte at or before it. Where no batch
    /// begins there that says which it is, the first one.
    pub(super) fn start_of_verification(&self) -> Result<(usize, u64)> {
        let holds = |segment: &Segment| segment.base_offset() <= self.recovery_point;
        let index = self.segments.partition_point(holds).saturating_sub(1);
        let Some(segment) = self.segments.get(index) else { return Ok((index, 0)) };
        let position = segment.reader().indexed_position(self.recovery_point)?;
        let is_known = position == 0 || segment.reader().header_at(position)?.is_some();
        Ok((index, if is_known { position } else { 0 }))
    }

    /// The offset of the batch that begins at a byte of a segment.
    pub(super) fn offset_at(&self, (index, position): (usize, u64)) -> Result<Offset> {
        let Some(segment) = self.segments.get(index) else { return Ok(self.end) };
        let header = if position == 0 { None } else { segment.reader().header_at(position)? };
        Ok(header.map_or(segment.base_offset(), |header| header.base_offset()))
    }

    /// Verifies one segment from a byte on, and takes in what its batches say.
    pub(super) fn verify_one(&mut self, home: &Home, index: usize, from: u64) -> Result<SegmentRecovery> {
        let is_last = index + 1 == self.segments.len();
        let next_base = self.segments.get(index + 1).map(Segment::base_offset);
        let mode = if is_last { RecoveryMode::Active } else { RecoveryMode::Sealed };
        let options = RecoveryOptions { mode, from, contiguous: self.contiguous, next_base };
        let mut checks = Checks {
            epochs: &mut self.epochs,
            adopts: self.adopts_epochs,
            producers: &mut self.producers,
            sees_producers: self.history.producers,
            now: self.now,
        };
        let Some(segment) = self.segments.get_mut(index) else { return Ok(SegmentRecovery::default()) };
        let base = segment.base_offset();
        let found = segment.recover(&options, &mut checks)?;
        self.history.producers |= checks.sees_producers;
        if found.next_offset.is_none() && from > 0 {
            // Not even the batch that verification began with is sound: the ones before it say where the log ends.
            if self.history.producers {
                self.rebuild_producers(home, base)?;
            }
            return self.verify_one(home, index, 0);
        }
        self.end = found.next_offset.unwrap_or(base);
        self.recovery.segments_verified += 1;
        self.recovery.bytes_verified += found.valid_bytes.saturating_sub(from);
        let path = segment.reader().path();
        self.recovery.damaged.extend(found.damaged.iter().map(|damage| DamagedRange {
            path: path.clone(),
            position: damage.position,
            offsets: damage.offsets.clone(),
            reason: damage.reason.clone(),
        }));
        Ok(found)
    }
}

/// What the partition says about a batch whose bytes are sound.
struct Checks<'a> {
    epochs: &'a mut Epochs,
    adopts: bool,
    producers: &'a mut Producers,
    /// Whether there ever was one.
    sees_producers: bool,
    now: Timestamp,
}

impl RecoveryChecks for Checks<'_> {
    fn batch(
        &mut self,
        _position: u64,
        header: &BatchHeader,
        bytes: &[u8],
    ) -> std::result::Result<Option<AbortedTransaction>, Corruption> {
        self.check_epoch(header)?;
        if header.producer_id().is_none() {
            return Ok(None);
        }
        self.sees_producers = true;
        Ok(self.producers.observe(header, control_of(header, bytes), self.now))
    }
}

impl Checks<'_> {
    /// The epoch of a batch is in the checkpoint before its bytes are written, so another one is damage.
    fn check_epoch(&mut self, header: &BatchHeader) -> std::result::Result<(), Corruption> {
        let Some(found) = header.leader_epoch() else { return Ok(()) };
        let base = header.base_offset();
        if self.adopts && self.epochs.latest().is_none_or(|latest| found > latest) {
            self.epochs.assign(found, base);
        }
        match self.epochs.at(base) {
            Some(expected) if expected != found => Err(Corruption::Epoch { found: found.0, expected: Some(expected) }),
            // Below the first entry: the epochs of what lies before the log start are forgotten.
            _ => Ok(()),
        }
    }
}

impl Work {
    /// What is known of the producers below `end`: from the newest snapshot on. Where a transaction index is damaged, or
    /// has not what was noted, the batches from there on are read before, so that it is mended.
    pub(super) fn rebuild_producers(&mut self, home: &Home, end: Offset) -> Result<()> {
        let readers = readers_of(&self.segments);
        if let Some(lacking) = self.first_lacking(&readers)? {
            self.replay_producers(home, &readers, lacking, end)?;
            self.aborted.note_again(home, &readers);
        }
        self.replay_producers(home, &readers, end, end)
    }

    /// Has the producers be what the newest snapshot at or below `at` tells, and the batches from there up to `end`. The
    /// transaction indexes are compared with these on the way: one that lacks an aborted transaction is made anew, for
    /// records would be shown else.
    fn replay_producers(&mut self, home: &Home, readers: &[Arc<SegmentReader>], at: Offset, end: Offset) -> Result<()> {
        let (from, mut producers) = self.snapshots.read_newest(home, at)?.unwrap_or_default();
        producers.loaded(self.now);
        for index in first_behind(readers, from)..readers.len() {
            let Some((segment, reader)) = self.segments.get_mut(index).zip(readers.get(index)) else { break };
            if index + 1 == readers.len() && (from..end).contains(&reader.base_offset()) {
                self.snapshots.write(home, reader.base_offset(), &producers);
            }
            let aborted = observe(&mut producers, reader, from..end, self.now)?;
            if self.history.transactions && !is_indexed(reader, &aborted)? {
                trace::warn(&reader.path(), || "its transaction index is made anew from the batches");
                segment.replace_transactions(0, &aborted)?;
            }
        }
        self.producers = producers;
        Ok(())
    }

    /// Where the first segment begins whose transaction index is not what it was.
    fn first_lacking(&self, readers: &[Arc<SegmentReader>]) -> Result<Option<Offset>> {
        for reader in readers.iter().filter(|_| self.history.transactions) {
            if self.aborted.is_lacking(reader)? {
                return Ok(Some(reader.base_offset()));
            }
        }
        Ok(None)
    }

    /// A snapshot of the producers as they are where segment number `index` begins, so that the next recovery need not
    /// read what lies before.
    pub(super) fn write_snapshot(&mut self, home: &Home, index: usize) {
        let Some(segment) = self.segments.get(index).filter(|_| self.history.producers) else { return };
        self.snapshots.write(home, segment.base_offset(), &self.producers);
    }
}

/// Which is the first segment that has something behind `offset`.
fn first_behind(readers: &[Arc<SegmentReader>], offset: Offset) -> usize {
    readers.partition_point(|reader| reader.base_offset() <= offset).saturating_sub(1)
}

/// Whether the segment's transaction index has these.
fn is_indexed(reader: &SegmentReader, aborted: &[AbortedTransaction]) -> Result<bool> {
    match reader.aborted() {
        Ok(known) => Ok(aborted.iter().all(|entry| known.contains(entry))),
        Err(Error::CorruptFile { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Has the producers take in the batches of a segment in a range of offsets; answers what was aborted.
fn observe(
    producers: &mut Producers,
    reader: &SegmentReader,
    range: Range<Offset>,
    now: Timestamp,
) -> Result<Vec<AbortedTransaction>> {
    let mut aborted = Vec::new();
    reader.for_each_batch(range.start, range.end, &mut |header, bytes| {
        aborted.extend(producers.observe(header, control_of(header, bytes), now));
    })?;
    Ok(aborted)
}

/// What is known of the producers below `end`: from the newest sound snapshot at or below it, the batches behind that are
/// walked.
pub(super) fn rebuild_producers(
    home: &Home,
    snapshots: &mut Snapshots,
    readers: &[Arc<SegmentReader>],
    end: Offset,
    now: Timestamp,
) -> Result<Producers> {
    let (from, mut producers) = snapshots.read_newest(home, end)?.unwrap_or_default();
    producers.loaded(now);
    for reader in readers.iter().skip(first_behind(readers, from)) {
        observe(&mut producers, reader, from..end, now)?;
    }
    Ok(producers)
}
