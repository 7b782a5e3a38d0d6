//! Taking records away from the front: by the retention, by hand, by a host's rule; and what holds them.
//!
//! The order makes every crash leave a suffix of the log: first the new log start is on the disk (from then on an
//! open removes what lies below), then the view without the segments is published, then their files are renamed,
//! lowest first; they are unlinked when their last reader is gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::books::Mark;
use super::retention::{self, Limits, Policy, Reached, RemovalReason, Removed, SegmentSummary, SoftHold};
use super::view::View;
use super::{Inner, Partition, Writer};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::mutants;
use crate::segment::SegmentReader;
use crate::sync::{Arc as Pointer, Mutex, MutexGuard};
use crate::trace;
use crate::types::{Offset, Timestamp};

/// Keeps records from being removed from the front while it lives: those at its offset and above.
///
/// Truncation from the end does not ask for it.
#[derive(Debug)]
pub struct Hold {
    number: u64,
    offset: Offset,
    holds: Arc<Holds>,
}

impl Hold {
    /// The first offset that is held.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.offset
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.holds.table.lock().offsets.remove(&self.number);
    }
}

/// The holds on a partition.
#[derive(Debug)]
pub(super) struct Holds {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    offsets: BTreeMap<u64, Offset>,
}

impl Holds {
    pub(super) fn new() -> Self {
        Self { table: Mutex::new(Table::default()) }
    }

    pub(super) fn add(self: &Arc<Self>, offset: Offset) -> Hold {
        let mut table = self.table.lock();
        let number = table.next;
        table.next += 1;
        table.offsets.insert(number, offset);
        Hold { number, offset, holds: Arc::clone(self) }
    }

    pub(super) fn least(&self) -> Option<Offset> {
        self.table.lock().offsets.values().min().copied()
    }
}

/// A segment that left the view, while readers may still hold it.
#[derive(Debug)]
pub(super) struct Retired {
    pub(super) reader: Weak<SegmentReader>,
    pub(super) bytes: u64,
    pub(super) since: Moment,
}

impl Partition {
    /// Keeps the records at `offset` and above from being removed, by retention or by hand, while the hold lives. Where a
    /// compaction has failed half-way ([`Partition::failure`]), the reopen may complete what it had decided before.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] outside of the log.
    pub fn hold(&self, offset: Offset) -> Result<Hold> {
        self.inner.check_readable()?;
        let _writer = self.inner.writer.lock();
        self.inner.check_in_log(offset, self.inner.picture.end())?;
        Ok(self.inner.holds.add(offset))
    }

    /// Removes the records below `offset`, whatever the policy, as far as no [`Hold`] holds them (what
    /// [`Retention::hold_for`](crate::Retention::hold_for) keeps for groups goes too). Answers the log start
    /// afterwards. It is durable when this returns; whole segments below it are gone. An offset below the log start
    /// changes nothing.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] above the high watermark, [`Error::Io`].
    pub fn trim_before(&self, offset: Offset) -> Result<Offset> {
        self.inner.check_writable()?;
        let mut writer = self.inner.writer.lock();
        self.inner.check_writable()?;
        let held = self.inner.holds.least().unwrap_or(Offset::MAX);
        self.inner.check_in_log(offset.max(self.start()), self.high_watermark())?;
        self.inner.move_start(&mut writer, offset.min(held))?;
        Ok(self.start())
    }

    /// Removes the records below `offset`, or below the high watermark where it is `None`. What
    /// [`Retention::hold_for`](crate::Retention::hold_for) keeps for groups goes too.
    ///
    /// # Errors
    /// [`Error::Policy`] where the policy does not delete, [`Error::Held`] where a hold is in the way,
    /// [`Error::OffsetOutOfRange`] above the high watermark, [`Error::Io`].
    #[doc(alias = "DeleteRecords")]
    pub fn delete_records(&self, offset: Option<Offset>) -> Result<Offset> {
        let inner = &*self.inner;
        inner.check_writable()?;
        let mut writer = inner.writer.lock();
        inner.check_writable()?;
        if !writer.config.cleanup.deletes() {
            return Err(Error::Policy("delete_records needs a cleanup that deletes"));
        }
        let requested = offset.unwrap_or_else(|| self.high_watermark());
        inner.check_in_log(requested.max(self.start()), self.high_watermark())?;
        if let Some(held) = inner.holds.least().filter(|held| *held < requested) {
            return Err(Error::Held { held, requested });
        }
        inner.move_start(&mut writer, requested)?;
        Ok(self.start())
    }

    /// Removes segments from the front while `goes` says so of the first one, whatever the policy, as far as the
    /// high watermark has passed them and nothing holds them.
    ///
    /// No lock is held while the rule is asked: it may call the partition. A segment that has changed since the rule
    /// was asked about it stays, and so does what the rule has taken a hold on.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove_while(&self, mut goes: impl FnMut(&SegmentSummary) -> bool) -> Result<Vec<Removed>> {
        let inner = &*self.inner;
        inner.check_writable()?;
        let (seen, asked) = inner.removable()?;
        let count = asked.iter().take_while(|summary| goes(summary)).count();
        let mut writer = inner.writer.lock();
        inner.check_writable()?;
        let (view, removable) = inner.removable()?;
        let first = asked.iter().zip(&removable).zip(seen.segments.iter().zip(&view.segments));
        let same = first.take_while(|((asked, now), (seen, there))| asked == now && Arc::ptr_eq(seen, there)).count();
        let count = count.min(same);
        inner.remove_segments(&mut writer, &vec![RemovalReason::Host; count], inner.picture.view().log_start)
    }
}

impl Inner {
    fn check_in_log(&self, requested: Offset, end: Offset) -> Result<()> {
        let start = self.picture.view().log_start;
        if requested < start || requested > end {
            return Err(Error::OffsetOutOfRange { partition: self.home.name.clone(), requested, start, end });
        }
        Ok(())
    }

    /// What the policy says has to go, goes.
    pub(super) fn retain(
        &self,
        writer: MutexGuard<'_, Writer>,
        now: Timestamp,
        reached: Option<Reached<'_>>,
    ) -> Result<Vec<Removed>> {
        let mut writer = writer;
        let mut plan = self.removal_plan(&writer, now, reached)?;
        // What is not on the disk yet must not push out what is: a loss of power would take both.
        if !plan.is_empty() && self.is_synced() && self.sync.synced() < self.picture.end().0 {
            drop(writer);
            self.flush()?;
            writer = self.writer.lock();
            self.check_writable()?;
            let count = plan.len();
            plan = self.removal_plan(&writer, now, reached)?;
            plan.truncate(count);
        }
        let start = self.picture.view().log_start;
        let removed = self.remove_segments(&mut writer, &plan, start)?;
        for Removed { base_offset, end_offset, bytes, .. } in removed.iter().filter(|removed| removed.is_unread()) {
            trace::warn(&self.home.directory, || {
                format!(
                    "removed {bytes} bytes, the offsets {base_offset} to {end_offset}, that were held for groups: more than is held"
                )
            });
        }
        Ok(removed)
    }

    /// Which segments go from the front, and why each.
    fn removal_plan(&self, writer: &Writer, now: Timestamp, reached: Option<Reached<'_>>) -> Result<retention::Plan> {
        let view = self.picture.view();
        let summaries = self.summaries();
        let age = writer.config.retention.age.unwrap_or_default();
        let oldest = now.0.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        let largest = |index: usize| self.largest_timestamp(&view, index, Timestamp(oldest), now);
        let limits = self.limits();
        let limits = Limits { soft: SoftHold::of(&writer.config, reached, limits.high_watermark), ..limits };
        retention::plan(&summaries, Policy::from(&writer.config), limits, now, largest)
    }

    /// The index nominates, the batch headers decide: a segment goes by time only if no header in it is younger.
    pub(super) fn largest_timestamp(
        &self,
        view: &View,
        index: usize,
        oldest: Timestamp,
        now: Timestamp,
    ) -> Result<Timestamp> {
        let Some(segment) = view.segments.get(index) else { return Ok(now) };
        let by_index = segment.largest_timestamp()?;
        if by_index.is_some_and(|largest| largest >= oldest) {
            return Ok(by_index.unwrap_or(now));
        }
        match segment.largest_timestamp_by_headers()? {
            Some(largest) => Ok(largest),
            None => self
                .home
                .storage
                .modified(&segment.path())
                .map_err(|error| Error::io("ask the modification time of", segment.path(), error)),
        }
    }

    /// The segments that may go from the front at all, and the view that they are the first of.
    fn removable(&self) -> Result<(Pointer<View>, Vec<SegmentSummary>)> {
        let (view, marks) = self.picture.load();
        let mut summaries = summaries_of(&view, marks.end);
        let everything = Policy { bytes: Some(0), age: None };
        let most = retention::plan(&summaries, everything, self.limits(), Timestamp(0), |_| Ok(Timestamp(0)))?.len();
        summaries.truncate(most);
        Ok((view, summaries))
    }

    fn limits(&self) -> Limits {
        Limits {
            log_start: self.picture.view().log_start,
            high_watermark: self.picture.high_watermark(),
            held: self.holds.least().filter(|_| !mutants::is_in(mutants::RETENTION_PAST_HOLD)),
            soft: None,
        }
    }

    fn summaries(&self) -> Vec<SegmentSummary> {
        summaries_of(&self.picture.view(), self.picture.end())
    }

    /// The log begins at `start` from now on; segments that lie below it go.
    fn move_start(&self, writer: &mut Writer, start: Offset) -> Result<()> {
        if start <= self.picture.view().log_start {
            return Ok(());
        }
        let summaries = self.summaries();
        let below = |summary: &&SegmentSummary| summary.end_offset <= start;
        let mut count = summaries.iter().take_while(below).count();
        if count == summaries.len() && summaries.last().is_some_and(|active| active.bytes == 0) {
            count -= 1; // an empty active segment stays
        }
        self.remove_segments(writer, &vec![RemovalReason::BelowStart; count], start).map(drop)
    }

    /// Takes as many segments as there are reasons from the front. The log starts at `start`, or where the first
    /// segment that stays begins, whichever is later; where none goes, at `start`: a gap before the first segment is
    /// still to be passed by the high watermark.
    fn remove_segments(&self, writer: &mut Writer, reasons: &[RemovalReason], start: Offset) -> Result<Vec<Removed>> {
        let summaries = self.summaries();
        if reasons.len() == summaries.len() {
            self.roll(writer, self.picture.end())?;
        }
        let view = self.picture.view();
        let gone: Vec<_> = view.segments.iter().take(reasons.len()).cloned().collect();
        if gone.is_empty() && start <= view.log_start {
            return Ok(Vec::new());
        }
        // What lies below the start is not read for what it tells of producers where nothing says that there were any.
        self.settle_history(writer)?;
        let first_kept = view.segments.get(gone.len()).filter(|_| !gone.is_empty());
        if let Some(first) = first_kept {
            self.keep_producers(writer, first.base_offset())?;
        }
        let start = first_kept.map_or(start, |segment| start.max(segment.base_offset()));
        let mut epochs = writer.epochs.clone();
        epochs.truncate_from_start(start);
        let noted = self.home.write(Mark::LogStart, start).and_then(|()| self.home.write_epochs(epochs.entries()));
        if let Err(error) = noted {
            // It may be on the disk for all that, and is taken back there.
            let undone = self.home.write(Mark::LogStart, view.log_start);
            let undone = undone.and_then(|()| self.home.write_epochs(writer.epochs.entries()));
            return Err(if undone.is_ok() { error } else { self.poison(error) });
        }
        writer.epochs = epochs;
        let epochs = writer.epochs.entries().to_vec();
        self.picture.publish(self.next_view(|view| {
            view.segments.drain(..gone.len());
            view.log_start = start;
            view.epochs = epochs;
        }));
        self.stored_again();
        writer.unsynced.retain(|segment| !gone.iter().any(|other| Arc::ptr_eq(segment, other)));
        self.changed.notify();
        // It has taken effect: a file that cannot be renamed now is renamed later.
        for segment in gone {
            if let Err(error) = self.retire_all(writer, std::slice::from_ref(&segment)) {
                trace::warn(&self.home.directory, || format!("a removed segment keeps its name for now: {error}"));
                writer.unretired.push(segment);
            }
        }
        self.tidy_snapshots(writer);
        let removed = |(summary, reason): (&SegmentSummary, &RemovalReason)| Removed {
            base_offset: summary.base_offset,
            end_offset: summary.end_offset,
            bytes: summary.bytes,
            reason: *reason,
        };
        Ok(summaries.iter().zip(reasons).map(removed).collect())
    }

    /// A moved log start can move the last stable offset: it is never below.
    fn stored_again(&self) {
        self.stored(self.picture.high_watermark());
    }

    /// Tries again to rename the files of removed segments. Those whose place in the log is taken again have been dealt
    /// with by the truncation that gave it away.
    pub(super) fn retire_leftovers(&self, writer: &mut Writer) {
        let start = self.picture.view().segments.first().map_or(Offset::ZERO, |segment| segment.base_offset());
        for segment in std::mem::take(&mut writer.unretired) {
            writer.retired_count += 1;
            if segment.base_offset() >= start {
                continue;
            }
            match segment.retire(writer.retired_count) {
                Ok(()) => writer.directory_dirty = true,
                Err(_) => writer.unretired.push(segment),
            }
        }
    }

    /// Renames the files of segments that left the view. One that cannot be renamed is removed by the next open.
    pub(super) fn retire_all(&self, writer: &mut Writer, gone: &[Arc<SegmentReader>]) -> Result<()> {
        writer.directory_dirty |= !gone.is_empty();
        let now = self.clock.monotonic();
        let mut outcome = Ok(());
        for segment in gone {
            let retired = Retired { reader: Arc::downgrade(segment), bytes: segment.size(), since: now };
            self.retired.lock().push(retired);
            writer.retired_count += 1;
            let base = segment.base_offset();
            trace::info(&self.home.directory, || format!("removed the segment at offset {base}"));
            outcome = outcome.and(segment.retire(writer.retired_count));
        }
        self.retired.lock().retain(|retired| retired.reader.strong_count() > 0);
        outcome
    }
}

fn summaries_of(view: &View, end: Offset) -> Vec<SegmentSummary> {
    let one = |(index, segment): (usize, &Arc<SegmentReader>)| SegmentSummary {
        base_offset: segment.base_offset(),
        end_offset: view.next_base(index).unwrap_or(end),
        bytes: segment.size(),
    };
    view.segments.iter().enumerate().map(one).collect()
}
