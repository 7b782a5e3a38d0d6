//! The pass over the batches: what recovery verifies, and what follows from the batches it sees.

use std::ops::Range;
use std::sync::Arc;

use super::append::control_of;
use super::home::{History, Home, base_of};
use super::recover::{DamagedRange, Recovery};
use super::snapshot;
use super::transactions::Transactions;
use crate::epochs::Epochs;
use crate::error::{Corruption, Error, Result};
use crate::record::batch::BatchHeader;
use crate::segment::{
    AbortedTransaction, RecoveryChecks, RecoveryMode, RecoveryOptions, Segment, SegmentReader, SegmentRecovery,
};
use crate::trace;
use crate::types::Offset;

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
    pub(super) transactions: Transactions,
    pub(super) recovery: Recovery,
}

impl Work {
    /// Synced records are not there any more: that was no clean end.
    pub(super) fn note_lost(&mut self, lost: Option<Range<Offset>>) {
        self.recovery.clean &= lost.is_none();
        self.recovery.lost = self.recovery.lost.take().or(lost);
    }

    /// Where verification begins: the segment that holds the recovery point, and a byte at or before it.
    pub(super) fn start_of_verification(&self) -> Result<(usize, u64)> {
        let holds = |segment: &Segment| segment.base_offset() <= self.recovery_point;
        let index = self.segments.partition_point(holds).saturating_sub(1);
        let Some(segment) = self.segments.get(index) else { return Ok((index, 0)) };
        let position = segment.reader().indexed_position(self.recovery_point)?;
        Ok((index, position))
    }

    /// The offset of the batch that begins at a byte of a segment.
    pub(super) fn offset_at(&self, (index, position): (usize, u64)) -> Result<Offset> {
        let Some(segment) = self.segments.get(index) else { return Ok(self.end) };
        let header = if position == 0 { None } else { segment.reader().header_at(position)? };
        Ok(header.map_or(segment.base_offset(), |header| header.base_offset()))
    }

    /// Verifies one segment from a byte on, and takes in what its batches say.
    pub(super) fn verify_one(&mut self, index: usize, from: u64) -> Result<SegmentRecovery> {
        let is_last = index + 1 == self.segments.len();
        let next_base = self.segments.get(index + 1).map(Segment::base_offset);
        let mode = if is_last { RecoveryMode::Active } else { RecoveryMode::Sealed };
        let options = RecoveryOptions { mode, from, contiguous: self.contiguous, next_base };
        let mut checks = Checks {
            epochs: &mut self.epochs,
            adopts: self.adopts_epochs,
            transactions: self.history.transactions.then_some(&mut self.transactions),
        };
        let Some(segment) = self.segments.get_mut(index) else { return Ok(SegmentRecovery::default()) };
        let base = segment.base_offset();
        let found = segment.recover(&options, &mut checks)?;
        if found.next_offset.is_none() && from > 0 {
            // Not even the batch that verification began with is sound: the ones before it say where the log ends.
            return self.verify_one(index, 0);
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
    /// `None` where no transaction was ever appended.
    transactions: Option<&'a mut Transactions>,
}

impl RecoveryChecks for Checks<'_> {
    fn batch(
        &mut self,
        _position: u64,
        header: &BatchHeader,
        bytes: &[u8],
    ) -> std::result::Result<Option<AbortedTransaction>, Corruption> {
        self.check_epoch(header)?;
        let transactions = self.transactions.as_mut();
        Ok(transactions.and_then(|transactions| transactions.observe(header, control_of(header, bytes))))
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
    /// The transactions that are open below `end`. The transaction indexes are compared with what the batches say on
    /// the way: one that is damaged, or lacks an aborted transaction, is made anew, for records would be shown else.
    pub(super) fn rebuild_transactions(&mut self, home: &Home, end: Offset) -> Result<()> {
        let readers: Vec<_> = self.segments.iter().map(|segment| Arc::clone(segment.reader())).collect();
        let damaged = |reader: &Arc<SegmentReader>| matches!(reader.aborted(), Err(Error::CorruptFile { .. }));
        let start = if readers.iter().any(damaged) { None } else { newest_snapshot(home, end)? };
        let (from, mut transactions) = start.unwrap_or_default();
        for (segment, reader) in self.segments.iter_mut().zip(&readers) {
            let aborted = observe(&mut transactions, reader, from, end)?;
            let known = match reader.aborted() {
                Ok(known) => aborted.iter().all(|entry| known.contains(entry)),
                Err(Error::CorruptFile { .. }) => false,
                Err(error) => return Err(error),
            };
            if !known {
                trace::warn(&reader.path(), || "its transaction index is made anew from the batches");
                segment.replace_transactions(0, &aborted)?;
            }
        }
        self.transactions = transactions;
        Ok(())
    }
}

/// Feeds the batches of a segment from `from` up to `end` to the transactions; answers what was aborted.
fn observe(
    transactions: &mut Transactions,
    reader: &SegmentReader,
    from: Offset,
    end: Offset,
) -> Result<Vec<AbortedTransaction>> {
    let mut aborted = Vec::new();
    reader.for_each_batch(from, end, &mut |header, bytes| {
        aborted.extend(transactions.observe(header, control_of(header, bytes)));
    })?;
    Ok(aborted)
}

/// The transactions that are open or undecided at `end`: from the newest sound snapshot at or below it, the batches
/// behind that are walked.
pub(super) fn rebuild_transactions(home: &Home, readers: &[Arc<SegmentReader>], end: Offset) -> Result<Transactions> {
    let (from, mut transactions) = newest_snapshot(home, end)?.unwrap_or_default();
    for reader in readers {
        observe(&mut transactions, reader, from, end)?;
    }
    Ok(transactions)
}

/// The newest sound producer snapshot at or below `end`.
fn newest_snapshot(home: &Home, end: Offset) -> Result<Option<(Offset, Transactions)>> {
    let mut snapshots: Vec<Offset> = home
        .list()?
        .iter()
        .filter_map(|entry| base_of(&entry.name, ".snapshot"))
        .filter(|offset| *offset <= end)
        .collect();
    snapshots.sort_unstable();
    for offset in snapshots.into_iter().rev() {
        let path = home.path(&format!("{:020}.snapshot", offset.0));
        if let Some(found) = snapshot::read(&*home.storage, &path)? {
            return Ok(Some((offset, found)));
        }
    }
    Ok(None)
}
