//! The replica's origin of an append: batches as another copy of the log has them.
//!
//! ```text
//!   bytes ──parse──▶ whole, checked batches up to the epoch fetched under
//!         ──sets that fit a segment──▶ history and epochs durable ──roll──▶ write        (append.rs)
//! ```
//!
//! Offsets, leader epochs and compression stay as they are. All batches are parsed and checked before the first is
//! written. A set is one write, so readers see all of it or none; a set that is refused leaves those before it.

use super::append::NO_OFFSETS_LEFT;
use super::{Appended, Inner, Partition, Writer};
use crate::epochs::Epochs;
use crate::error::{Corruption, Error, Result};
use crate::record::batch::{self, BatchHeader, HEADER_BYTES};
use crate::types::{LeaderEpoch, Offset};

impl Partition {
    /// Appends batches as another copy of this log has them: offsets, leader epochs and compression are kept.
    ///
    /// `batches` is a piece of a log; a batch that is cut off at its end is left out, and so is everything from the
    /// first batch on whose leader epoch is later than `epoch`, the one that the copy is fetching under. Batches
    /// begin at or behind the end and rise; gaps are what compaction left.
    ///
    /// # Errors
    /// [`Error::InvalidBatch`] where one is damaged or steps back, [`Error::UnexpectedEnd`] where the first begins
    /// below the end, [`Error::BatchTooLarge`] where one does not fit a segment: then nothing is changed. Besides, what
    /// [`Partition::append`] answers about the partition; a batch before the one that failed may have been appended.
    pub fn append_replica(&self, batches: &[u8], epoch: LeaderEpoch) -> Result<Appended<'_>> {
        self.inner.check_writable()?;
        let headers = parse_replica(batches, epoch)?;
        let mut writer = self.inner.writer.lock();
        self.inner.check_writable()?;
        let appended = self.inner.append_replica(&mut writer, batches, &headers);
        let end = self.inner.picture.end();
        let generation = self.inner.sync.generation();
        drop(writer);
        self.inner.changed.notify();
        let offsets = appended?..end;
        Ok(Appended { offsets, duplicate: false, partition: self, generation, append_time: None })
    }
}

impl Inner {
    /// Appends a replica's batches in sets that fit a segment; answers where the first begins.
    fn append_replica(&self, writer: &mut Writer, bytes: &[u8], headers: &[BatchHeader]) -> Result<Offset> {
        let end = self.picture.end();
        let Some(first) = headers.first() else { return Ok(end) };
        let limit = u64::from(writer.config.segment_bytes);
        if let Some(large) = headers.iter().find(|header| header.size() > limit) {
            return Err(Error::BatchTooLarge { size: large.size(), limit });
        }
        if first.base_offset() < end && !self.replace_empty(writer, first)? {
            return Err(Error::UnexpectedEnd { expected: first.base_offset(), end });
        }
        let mut rest = bytes;
        let mut pending = headers;
        while !pending.is_empty() {
            let (count, size) = fitting(pending, limit);
            let (set, behind) = pending.split_at(count);
            let (set_bytes, rest_bytes) = rest.split_at(size);
            self.prepare_replica_set(writer, set, set_bytes.len() as u64)?;
            self.write(writer, set_bytes, set)?;
            (pending, rest) = (behind, rest_bytes);
        }
        Ok(first.base_offset())
    }

    /// An empty log whose end lies inside the first batch (the leader's log begins there) begins anew at its base.
    fn replace_empty(&self, writer: &mut Writer, first: &BatchHeader) -> Result<bool> {
        let end = self.picture.end();
        let is_empty = self.picture.view().log_start == end && writer.active.reader().size() == 0;
        if !is_empty || first.last_offset() < end {
            return Ok(false);
        }
        self.restart_at(writer, first.base_offset())?;
        Ok(true)
    }

    /// Everything that has to be durable before a replica's batches are written. What can be refused is, before anything
    /// is.
    fn prepare_replica_set(&self, writer: &mut Writer, set: &[BatchHeader], bytes: u64) -> Result<()> {
        let Some(first) = set.first() else { return Ok(()) };
        let epochs = self.epochs_with(writer, set)?;
        let mut due = self.picture.end();
        let mut history = writer.history;
        for header in set {
            history.gaps |= header.base_offset() != due;
            history.transactions |= header.is_transactional();
            due = header.next_offset();
        }
        if set.iter().any(|header| header.producer_id().is_some()) {
            self.expect_producers(writer);
            history.producers = true;
        }
        self.note(writer, history)?;
        if epochs != writer.epochs {
            let latest = epochs.latest().unwrap_or_default();
            self.replace_epochs(writer, epochs)?;
            writer.epoch = writer.epoch.max(latest);
        }
        self.roll_for(writer, first.base_offset(), bytes, set)
    }

    /// The epochs with those that the batches bring. An epoch that was begun here and has no record yet gives way.
    fn epochs_with(&self, writer: &Writer, set: &[BatchHeader]) -> Result<Epochs> {
        let mut epochs = writer.epochs.clone();
        let first = set.iter().find_map(BatchHeader::leader_epoch);
        // An append that failed may have left an epoch that was to begin behind the end.
        epochs.truncate_from_end(self.picture.end().plus(1));
        if first.is_some_and(|first| epochs.latest().is_some_and(|latest| first < latest)) {
            epochs.truncate_from_end(self.end_of_records()?);
        }
        for header in set {
            let is_later = |epoch: &LeaderEpoch| epochs.latest().is_none_or(|latest| *epoch > latest);
            if let Some(epoch) = header.leader_epoch().filter(is_later) {
                epochs.assign(epoch, header.base_offset());
            }
        }
        for header in set.iter().filter(|header| header.leader_epoch().is_some()) {
            let (found, expected) = (header.leader_epoch(), epochs.at(header.base_offset()));
            if found != expected {
                let reason = Corruption::Epoch { found: found.map_or(-1, |epoch| epoch.0), expected };
                return Err(Error::InvalidBatch { position: 0, reason });
            }
        }
        Ok(epochs)
    }

    /// The offset behind the last record. The end of the log lies behind it where an empty segment stands behind a gap.
    fn end_of_records(&self) -> Result<Offset> {
        let (view, end) = (self.picture.view(), self.picture.end());
        match view.segments.as_slice() {
            [.., before, active] if active.size() == 0 => Ok(before.end_before(end)?.max(view.log_start)),
            _ => Ok(end),
        }
    }
}

/// The offsets in a segment are at most this far from its base: its indexes count them from there, in 31 bits.
const OFFSETS_FROM_BASE_MAX: u64 = i32::MAX.unsigned_abs() as u64;

/// How many of the batches fit one segment together, by their bytes and their offsets, and their bytes. One does by
/// itself.
fn fitting(headers: &[BatchHeader], segment_bytes: u64) -> (usize, usize) {
    let base = headers.first().map_or(Offset::ZERO, BatchHeader::base_offset);
    let mut count = 0;
    let mut size = 0_u64;
    for header in headers {
        let is_far = header.last_offset().0 - base.0 > OFFSETS_FROM_BASE_MAX;
        if count > 0 && (is_far || size + header.size() > segment_bytes) {
            break;
        }
        size += header.size();
        count += 1;
    }
    (count, usize::try_from(size).unwrap_or(usize::MAX))
}

/// Checks a replica's piece of a log: framing, checksums, order of offsets and epochs. Whole batches up to `epoch` count.
fn parse_replica(bytes: &[u8], epoch: LeaderEpoch) -> Result<Vec<BatchHeader>> {
    let mut headers: Vec<BatchHeader> = Vec::new();
    let mut latest: Option<LeaderEpoch> = None;
    let mut position = 0_usize;
    while bytes.len() - position >= HEADER_BYTES {
        let rest = &bytes[position..];
        let invalid = |reason| Error::InvalidBatch { position: position as u64, reason };
        let header = BatchHeader::parse(rest).map_err(invalid)?;
        let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
        let Some(batch) = rest.get(..size) else { break };
        if header.leader_epoch().is_some_and(|own| own > epoch) {
            break;
        }
        if header.next_offset() > Offset::MAX {
            return Err(Error::InvalidRecord(NO_OFFSETS_LEFT));
        }
        batch::verify_checksum(batch, &header).map_err(invalid)?;
        check_epoch(batch, &header).map_err(invalid)?;
        let due = headers.last().map_or(Offset::ZERO, BatchHeader::next_offset);
        if header.base_offset() < due {
            return Err(invalid(Corruption::Order { found: header.base_offset().to_i64(), expected: due }));
        }
        if let (Some(found), Some(expected)) = (header.leader_epoch(), latest)
            && found < expected
        {
            return Err(invalid(Corruption::Epoch { found: found.0, expected: latest }));
        }
        latest = latest.max(header.leader_epoch());
        headers.push(header);
        position += size;
    }
    Ok(headers)
}

/// A batch without an epoch says −1; nothing else is below zero.
fn check_epoch(batch: &[u8], header: &BatchHeader) -> std::result::Result<(), Corruption> {
    let raw = i32::from_be_bytes(std::array::from_fn(|at| batch.get(12 + at).copied().unwrap_or_default()));
    if header.leader_epoch().is_none() && raw != -1 {
        return Err(Corruption::Epoch { found: raw, expected: None });
    }
    Ok(())
}
