//! The append pipeline: check, assign, roll, write, publish.
//!
//! Under the writer lock, in this order:
//!
//! 1. **check**: the partition takes writes; what the batch's producer has sent before (`marker.rs`): a batch that is there
//!    is answered here; the end is where the caller expects it, offsets suffice;
//! 2. **roll** where the batch does not fit the active segment;
//! 3. **assign**: base offset and leader epoch lie outside the checksum and are patched in place; an epoch that
//!    is new here is in the synced epoch checkpoint before the bytes are written, and so are the flags of the
//!    history;
//! 4. **write**: one write for all batches of the call;
//! 5. **publish**: the producer, then the end, then (where the operating system's copy counts as stored) the
//!    high watermark; whoever waits is woken.
//!
//! Nothing is changed before the write has succeeded but what is harmless when repeated: an empty new segment,
//! a new epoch at the end. The sync is outside the lock; see `durable.rs`. A replica's batches come by `replica.rs`,
//! which shares the steps from the roll on.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::home::History;
use super::marker::Check;
use super::producers::Origin;
use super::{Inner, Partition, Writer};
use bytes::Bytes;

use crate::config::Commits;
use crate::epochs::Epochs;
use crate::error::{Error, Result};
use crate::mutants;
use crate::record::batch::{self, BatchHeader, HEADER_BYTES};
use crate::record::batches::Batches;
use crate::record::builder::BatchBuilder;
use crate::record::control::ControlRecord;
use crate::segment::{Incoming, Segment};
use crate::trace;
use crate::types::{Compression, LeaderEpoch, Offset, Timestamp};

/// An append that has its offsets. It is in the page cache; [`Appended::wait`] returns when it is stored.
///
/// Dropping it changes nothing.
#[derive(Debug)]
#[must_use = "the records are stored as the durability promises only after `wait`"]
pub struct Appended<'p> {
    /// The offsets of the records.
    pub offsets: Range<Offset>,
    /// The producer had sent the batch before: these are the offsets that it got then, and nothing was written.
    pub duplicate: bool,
    pub(super) partition: &'p Partition,
    /// The generation of the shared sync that the offsets are marks of.
    pub(super) generation: u64,
    /// The timestamp of all its records, where the log stamps them.
    pub(crate) append_time: Option<Timestamp>,
}

impl Appended<'_> {
    /// Returns when the records are stored as the partition's durability promises. One sync serves all who wait.
    ///
    /// # Errors
    /// What the sync failed with; [`Error::Superseded`] where the log was truncated or reopened meanwhile.
    pub fn wait(self) -> Result<()> {
        self.partition.wait_stored(self.receipt())
    }
}

impl Partition {
    /// Appends a batch, which gets the next offsets, and empties the builder (its buffer stays).
    ///
    /// A batch that carries a producer ([`BatchBuilder::producer`]) is appended once, however often it is handed in, as
    /// long as it is among the last five of its producer here; and in the order of its sequences.
    ///
    /// # Errors
    /// Nothing is appended, and the builder keeps its records, on: an empty batch, [`Error::BatchTooLarge`],
    /// [`Error::DecompressionBound`] where no reader would take it out again, [`Error::NullKey`] where the log is
    /// compacted, [`Error::InvalidTimestamp`] outside of the configured bounds,
    /// [`Error::CodecDisabled`], [`Error::Io`] where the disk refused (full, say), [`Error::Poisoned`] after an
    /// earlier failure, [`Error::Closed`], [`Error::Forked`]; for the batch of a producer [`Error::ProducerFenced`] where a
    /// later epoch has appended, [`Error::OutOfOrderSequence`] where it does not follow the batch before, and
    /// [`Error::InvalidTransactionState`] where it is none of the transaction that is open.
    pub fn append(&self, batch: &mut BatchBuilder) -> Result<Appended<'_>> {
        self.append_builder(Check::Batch(Origin::Client), None, batch)
    }

    /// Like [`Partition::append`], if the log still ends at `expected_end`.
    ///
    /// # Errors
    /// [`Error::UnexpectedEnd`] where it ends elsewhere: nothing is appended.
    pub fn append_at(&self, expected_end: Offset, batch: &mut BatchBuilder) -> Result<Appended<'_>> {
        self.append_builder(Check::Batch(Origin::Client), Some(expected_end), batch)
    }

    pub(super) fn append_builder(
        &self,
        check: Check<'_>,
        expected_end: Option<Offset>,
        batch: &mut BatchBuilder,
    ) -> Result<Appended<'_>> {
        let inner = &*self.inner;
        inner.check_writable()?;
        let append_time = inner.check_client(batch)?;
        let header = *batch.seal(append_time)?;
        inner.check_readable_later(&header, batch.size_bytes())?;
        let mut appended = self.append_bytes(check, expected_end, header, batch.sealed())?;
        if append_time.is_none() || !appended.duplicate {
            appended.append_time = append_time;
        }
        batch.clear();
        Ok(appended)
    }

    /// Appends a sealed batch.
    pub(super) fn append_bytes(
        &self,
        check: Check<'_>,
        expected_end: Option<Offset>,
        header: BatchHeader,
        bytes: &mut [u8],
    ) -> Result<Appended<'_>> {
        let inner = &*self.inner;
        let limit = inner.settings.batch_limit();
        if header.size() > limit {
            return Err(Error::BatchTooLarge { size: header.size(), limit });
        }
        let mut writer = inner.writer.lock();
        inner.check_health()?;
        let known = inner.check_producer(check, &header)?;
        let (duplicate, append_time) = (known.is_some(), known.as_ref().and_then(|known| known.timestamp));
        let offsets = match known {
            Some(known) => known.offsets,
            None => inner.append_sealed(&mut writer, expected_end, header, bytes)?,
        };
        let generation = inner.sync.generation();
        let somebody_waits = inner.changed.has_waiters();
        drop(writer);
        if somebody_waits && !duplicate {
            inner.changed.notify();
        }
        Ok(Appended { offsets, duplicate, partition: self, generation, append_time })
    }

    /// Closes the active segment and begins a new one at the end; an empty one is left as it is.
    ///
    /// # Errors
    /// [`Error::Io`]; a synced partition whose sync fails is poisoned.
    pub fn roll(&self) -> Result<()> {
        self.inner.check_writable()?;
        let mut writer = self.inner.writer.lock();
        self.inner.check_writable()?;
        if writer.active.reader().size() == 0 {
            return Ok(());
        }
        let end = self.inner.picture.end();
        let outcome = self.inner.roll(&mut writer, end);
        drop(writer);
        self.inner.changed.notify();
        outcome
    }
}

impl Inner {
    /// Refuses a batch that no reader would take out again.
    fn check_readable_later(&self, header: &BatchHeader, size: usize) -> Result<()> {
        let (records, limit) = (size - HEADER_BYTES, self.settings.decompressed_limit());
        if header.compression() != Compression::None && records > limit {
            return Err(Error::DecompressionBound { codec: header.compression().name(), limit });
        }
        Ok(())
    }

    /// What can be said of a client's batch without the lock. Answers the append time where the log stamps.
    fn check_client(&self, batch: &BatchBuilder) -> Result<Option<Timestamp>> {
        if let Some(index) = batch.first_null_key().filter(|_| self.settings.compacts()) {
            return Err(Error::NullKey { index });
        }
        if self.settings.stamps() {
            return Ok(Some(self.clock.wall()));
        }
        if let Some((least, greatest)) = batch.timestamps() {
            self.check_timestamps(least, greatest)?;
        }
        Ok(None)
    }

    /// Whether timestamps from `least` to `greatest` are inside of the configured bounds.
    pub(super) fn check_timestamps(&self, least: Timestamp, greatest: Timestamp) -> Result<()> {
        let Some((before, after)) = self.settings.timestamp_bounds() else { return Ok(()) };
        let now = self.clock.wall().0;
        if least.0 < now.saturating_sub(before) {
            let reason = "it lies further in the past than timestamp_before_max allows";
            return Err(Error::InvalidTimestamp { timestamp: least, reason });
        }
        if greatest.0 > now.saturating_add(after) {
            let reason = "it lies further in the future than timestamp_after_max allows";
            return Err(Error::InvalidTimestamp { timestamp: greatest, reason });
        }
        Ok(())
    }

    /// Appends one sealed batch that has passed the check of its producer.
    fn append_sealed(
        &self,
        writer: &mut Writer,
        expected: Option<Offset>,
        header: BatchHeader,
        bytes: &mut [u8],
    ) -> Result<Range<Offset>> {
        let start = self.picture.end();
        if let Some(expected) = expected.filter(|expected| *expected != start) {
            return Err(Error::UnexpectedEnd { expected, end: start });
        }
        let epoch_is_current = |(epoch, began): &(LeaderEpoch, Offset)| *epoch == writer.epoch && *began <= start;
        if !writer.epochs.entries().last().is_some_and(epoch_is_current) {
            let mut epochs = writer.epochs.clone();
            epochs.assign(writer.epoch, start);
            self.replace_epochs(writer, epochs)?;
        }
        batch::set_base_offset(bytes, start);
        batch::set_leader_epoch(bytes, writer.epoch);
        let header = header.assigned(start, Some(writer.epoch));
        if header.next_offset() > Offset::MAX {
            return Err(Error::InvalidRecord(NO_OFFSETS_LEFT));
        }
        self.roll_for(writer, start, bytes.len() as u64, std::slice::from_ref(&header))?;
        if header.producer_id().is_some() {
            self.expect_producers(writer);
            let transactions = writer.history.transactions || header.is_transactional();
            self.note(writer, History { transactions, ..writer.history })?;
        }
        self.write(writer, bytes, std::slice::from_ref(&header))?;
        Ok(start..header.next_offset())
    }

    /// Makes the epochs durable, then those of the writer and of the view.
    pub(super) fn replace_epochs(&self, writer: &mut Writer, epochs: Epochs) -> Result<()> {
        self.note_epoch(writer, &epochs)?;
        if let Err(error) = self.home.write_epochs(epochs.entries()) {
            // The new ones may be on the disk for all that.
            return Err(match self.home.write_epochs(writer.epochs.entries()) {
                Ok(()) => error,
                Err(_) => self.poison(error),
            });
        }
        writer.epochs = epochs;
        let entries = writer.epochs.entries().to_vec();
        self.picture.publish(self.next_view(|view| view.epochs = entries));
        Ok(())
    }

    /// Makes durable which epoch was begun last, where the epochs that are to be written do not say it.
    pub(super) fn note_epoch(&self, writer: &mut Writer, epochs: &Epochs) -> Result<()> {
        if epochs.latest() >= Some(writer.epoch) || writer.history.epoch >= Some(writer.epoch) {
            return Ok(());
        }
        self.note(writer, History { epoch: Some(writer.epoch), ..writer.history })
    }

    /// Makes it durable that the log's history is now this, where that is news.
    pub(super) fn note(&self, writer: &mut Writer, history: History) -> Result<()> {
        if history == writer.history {
            return Ok(());
        }
        self.home.write_history(history)?;
        writer.history = history;
        self.history_due.store(false, Ordering::Release);
        self.transactional.store(history.transactions, Ordering::Release);
        if history.gaps && self.picture.view().contiguous {
            self.picture.publish(self.next_view(|view| view.contiguous = false));
        }
        Ok(())
    }

    /// A batch of a producer is to be written. That it becomes durable can wait for a sync.
    pub(super) fn expect_producers(&self, writer: &mut Writer) {
        if !writer.history.producers {
            self.write_first_snapshot(writer);
            writer.history.producers = true;
            self.history_due.store(true, Ordering::Release);
        }
    }

    /// Makes durable that there are producers, before anything of theirs counts as synced.
    pub(super) fn settle_history(&self, writer: &Writer) -> Result<()> {
        if self.history_due.load(Ordering::Acquire) {
            self.home.write_history(writer.history)?;
            self.history_due.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// The write and everything that follows from its success.
    pub(super) fn write(&self, writer: &mut Writer, bytes: &[u8], headers: &[BatchHeader]) -> Result<()> {
        let Some(last) = headers.last() else { return Ok(()) };
        let aborted = self.index_abort(writer, bytes, headers)?;
        if let Err(error) = writer.active.append(bytes, headers) {
            if aborted.is_some() {
                writer.active.take_back_aborted().map_err(|error| self.poison(error))?;
            }
            return Err(if matches!(error, Error::Poisoned { .. }) { self.poison(error) } else { error });
        }
        writer.index_dropped = false;
        let end = last.next_offset();
        if headers.iter().any(|header| header.producer_id().is_some()) {
            self.observe(writer, bytes, headers, aborted)?;
        }
        let transactional = self.transactional.load(Ordering::Acquire);
        if !transactional && !self.is_synced() && self.commits == Commits::WhenStored {
            self.picture.raise_all(end);
            return Ok(());
        }
        self.picture.raise_end(end);
        if mutants::is_in(mutants::VISIBLE_BEFORE_STORED) {
            self.stored(end);
        }
        if self.is_synced() {
            if self.unsynced_since.load(Ordering::Relaxed) == 0 {
                self.unsynced_since.store(self.clock.monotonic().0.saturating_add(1), Ordering::Release);
                if let Some(unsynced) = &self.unsynced {
                    unsynced.unsynced();
                }
            }
        } else {
            self.stored(end);
        }
        Ok(())
    }

    /// Rolls where the active segment does not take a set of batches.
    pub(super) fn roll_for(&self, writer: &mut Writer, base: Offset, bytes: u64, set: &[BatchHeader]) -> Result<()> {
        let Some(last) = set.last() else { return Ok(()) };
        let max_timestamp = set.iter().filter_map(BatchHeader::max_timestamp).max();
        let incoming = Incoming { bytes, max_timestamp, last_offset: last.last_offset() };
        let age = writer.config.segment_age_in_force();
        // Wall time counts only where the segment's first batch has none.
        let by_wall = age.is_some() && writer.active.first_timestamp().is_none();
        let now = if by_wall { self.clock.wall() } else { Timestamp::default() };
        // An append that failed may have left an empty segment that begins behind this batch.
        let begins_behind = writer.active.base_offset() > base;
        if !begins_behind && writer.active.roll_reason(&incoming, age, now).is_none() {
            return Ok(());
        }
        self.roll(writer, base)
    }

    /// Closes the active segment and begins one at `base`, which is at or behind the end.
    pub(super) fn roll(&self, writer: &mut Writer, base: Offset) -> Result<()> {
        let empty = writer.active.reader().size() == 0;
        if empty && writer.active.reader().base_offset() == base {
            return Ok(());
        }
        if empty {
            self.drop_empty_active(writer)?;
        } else {
            writer.active.seal()?;
            if self.is_synced() {
                self.sync_before_roll(writer)?;
            } else {
                writer.unsynced.push(Arc::clone(writer.active.reader()));
            }
        }
        self.write_snapshot(writer, self.picture.end());
        let home = &self.home;
        let created = self.clock.wall();
        let next = Segment::create(&home.storage, &home.directory, base, &writer.segment_config, created);
        // Where the empty one is gone there is no segment left to append to.
        let next = next.map_err(|error| if empty { self.poison(error) } else { error })?;
        writer.directory_dirty = true;
        if self.is_synced() {
            if !mutants::is_in(mutants::LOST_DIRECTORY_SYNC) {
                home.sync_directory().map_err(|error| self.poison(error))?;
            }
            writer.directory_dirty = false;
        }
        let reader = Arc::clone(next.reader());
        writer.active = next;
        writer.index_dropped = false;
        self.picture.publish(self.next_view(|view| view.segments.push(reader)));
        trace::info(&home.directory, || format!("began the segment at offset {base}"));
        Ok(())
    }

    /// Takes an empty active segment away, so that one with another base can begin.
    fn drop_empty_active(&self, writer: &mut Writer) -> Result<()> {
        let empty = Arc::clone(writer.active.reader());
        self.retire_all(writer, std::slice::from_ref(&empty))?;
        self.picture.publish(self.next_view(|view| view.segments.retain(|segment| !Arc::ptr_eq(segment, &empty))));
        Ok(())
    }

    /// A synced partition has everything on the disk before the next segment takes a record.
    fn sync_before_roll(&self, writer: &mut Writer) -> Result<()> {
        let end = self.picture.end();
        self.settle_history(writer)?;
        for segment in writer.unsynced.drain(..) {
            segment.sync().map_err(|error| self.poison(error))?;
        }
        writer.active.reader().sync().map_err(|error| self.poison(error))?;
        self.sync.raise(end.0);
        self.unsynced_since.store(0, Ordering::Release);
        self.stored(end);
        Ok(())
    }

    /// Everything below `end` is stored as the durability demands: readers may see it, unless the host decides.
    pub(super) fn stored(&self, end: Offset) {
        let high_watermark = match self.commits {
            Commits::WhenStored => end,
            Commits::ByHost => end.min(Offset(self.committed.load(Ordering::Acquire))),
        };
        self.picture.raise_high_watermark(high_watermark);
        let high_watermark = self.picture.high_watermark();
        let last_stable = if self.transactional.load(Ordering::Acquire) {
            self.producers.lock().last_stable(high_watermark).max(self.picture.view().log_start)
        } else {
            high_watermark
        };
        self.picture.raise_last_stable(last_stable);
    }
}

/// The transaction marker or other control record that a batch holds, if it is a control batch.
pub(super) fn control_of(header: &BatchHeader, batch: &[u8]) -> Option<ControlRecord> {
    if !header.is_control() {
        return None;
    }
    let mut one = Batches::new(Bytes::copy_from_slice(batch));
    one.push(0, *header, CONTROL_BYTES_MAX).ok()?;
    one.iter().next()?.control()
}

/// The end of a log is an offset too, so no record has the greatest one.
pub(super) const NO_OFFSETS_LEFT: &str = "the log would end behind the greatest offset there is, 2^63 - 1";

/// Control batches are not compressed; a foreign one that is does not grow beyond this.
const CONTROL_BYTES_MAX: usize = 1 << 20;
