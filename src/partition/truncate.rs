//! Taking records away from the end.
//!
//! Behind a gap the log ends before the offset at which it is cut: where, is found out before anything is changed, and
//! everything goes by that.
//!
//! The order makes every crash leave a prefix of the log that was there: the recovery point is lowered on the disk
//! first, so that nothing that is appended later is taken for synced; then the marks are lowered, so that no reader
//! goes beyond; whole segments go from the highest base down, each durable before the next; the segment that holds
//! the offset is cut at the batch that holds it, and synced; then the view with the cut segment is published.
//! Old views keep what they had: their bytes do not change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::books::Mark;
use super::home::base_of;
use super::read::bounds;
use super::verify::rebuild_producers;
use super::view::View;
use super::{Inner, Partition, Writer};
use crate::config::Commits;
use crate::epochs::Epochs;
use crate::error::{Error, Result};
use crate::segment::{Segment, SegmentReader};
use crate::trace;
use crate::types::{LeaderEpoch, Offset};

/// Whether a truncation may take back what readers have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Force {
    /// Below the high watermark nothing is cut.
    #[default]
    No,
    /// Everything may be cut: readers may have seen what goes.
    Yes,
}

impl Partition {
    /// Removes the records at `offset` and above, by whole batches: the batch that holds `offset` goes too. Answers
    /// the end afterwards, which is durable: behind the last record that is left, so below `offset` where that lies in a
    /// gap. An offset at or beyond the end takes no record; where the host commits, an epoch that was begun at the end and
    /// has no record is forgotten there too (its number is not given again), as a follower's next fetch needs it.
    ///
    /// A forced cut below the high watermark begins a leader epoch where the log decides for itself, so that readers who
    /// have seen what goes are told ([`Error::Truncated`]). Where the batch that holds `offset` is damaged, the log ends
    /// with the last sound batch before the damage: so a log is cut at what [`Error::Corrupt`] names, and what was there
    /// is appended again from a copy.
    ///
    /// # Errors
    /// [`Error::BelowHighWatermark`] where the log would end below the high watermark, unless it is forced: readers may
    /// have seen what would go, or stand where other records would come; [`Error::Io`]: the partition is poisoned then,
    /// and a reopen finds a prefix of what was there.
    pub fn truncate_from(&self, offset: Offset, force: Force) -> Result<Offset> {
        let inner = &*self.inner;
        inner.check_writable()?;
        let mut writer = inner.writer.lock();
        inner.check_writable()?;
        let end = inner.picture.end();
        if offset >= end {
            inner.forget_empty_epoch(&mut writer, end)?;
        } else {
            // A sync under way would raise the high watermark after it was looked at, and answer whoever waits.
            inner.sync.void(end.0);
            let high_watermark = inner.picture.high_watermark();
            let view = inner.picture.view();
            let to = inner.end_of_cut(&view, offset)?;
            if to < high_watermark && force == Force::No {
                return Err(Error::BelowHighWatermark { requested: to, high_watermark });
            }
            inner.truncate(&mut writer, &view, to).map_err(|error| inner.poison(error))?;
            trace::info(&inner.home.directory, || format!("truncated from {end} to {to}"));
        }
        drop(writer);
        inner.changed.notify();
        Ok(inner.picture.end())
    }
}

impl Inner {
    /// Where the log ends once it is cut at the batch that holds `offset`: behind the record before; where the batch is
    /// damaged, behind the last sound one before it. An offset below the log begins everything anew there.
    fn end_of_cut(&self, view: &View, offset: Offset) -> Result<Offset> {
        let index = view.segment_of(offset);
        let Some(segment) = view.segments.get(index).filter(|segment| segment.base_offset() <= offset) else {
            return Ok(offset);
        };
        let limit = bounds(view, index, self.picture.end());
        match segment.batch_at(offset, &limit) {
            Ok(batch) => segment.end_before(batch.map_or(offset, |batch| batch.base_offset().min(offset))),
            Err(Error::Corrupt { .. }) => Ok(segment.sound_end(offset)?.max(view.log_start.min(offset))),
            Err(error) => Err(error),
        }
    }

    /// Forgets the epoch that was begun at the end and has no record, where a host decides on epochs.
    fn forget_empty_epoch(&self, writer: &mut Writer, end: Offset) -> Result<()> {
        let mut epochs = writer.epochs.clone();
        if self.commits == Commits::ByHost && epochs.truncate_from_end(end) {
            self.replace_epochs(writer, epochs)?;
        }
        Ok(())
    }

    /// The epochs of a log that is cut at `to`. What readers have seen and is taken back ends with its epoch, where nobody
    /// else decides on epochs.
    fn epochs_after(&self, writer: &Writer, to: Offset) -> Epochs {
        let mut epochs = writer.epochs.clone();
        epochs.truncate_from_end(to);
        let was_seen = to.max(self.picture.view().log_start) < self.picture.high_watermark();
        if let Some(next) = writer.epoch.0.checked_add(1).filter(|_| was_seen && self.commits == Commits::WhenStored) {
            epochs.assign(LeaderEpoch(next), to);
        }
        epochs
    }

    /// The log ends at `to`, where a record ended or a segment begins, from now on.
    fn truncate(&self, writer: &mut Writer, view: &View, to: Offset) -> Result<()> {
        writer.rewinds += 1;
        let epochs = self.epochs_after(writer, to);
        self.note_epoch(writer, &epochs)?;
        self.home.write(Mark::RecoveryPoint, self.recovery_point().min(to))?;
        self.lower_cleaned(writer, view, to)?;
        self.sync.reset(self.sync.synced().min(to.0), to.0);
        self.committed.fetch_min(to.0, Ordering::AcqRel);
        self.unsynced_since.store(0, Ordering::Release);
        self.lower_producers(writer, to)?;
        self.picture.lower(to);
        if self.commits == Commits::ByHost {
            self.home.write(Mark::HighWatermark, self.picture.high_watermark())?;
        }
        // The checkpoint may be ahead of the view, where a removal from the front failed half-way.
        self.home.write(Mark::LogStart, view.log_start.min(to))?;
        let kept = view.segments.partition_point(|segment| segment.base_offset() <= to);
        let (kept, gone) = view.segments.split_at(kept);
        self.remove_strays(view)?;
        self.retire_from_the_end(writer, gone)?;
        match kept.split_last() {
            None => self.begin_at(writer, to, epochs),
            Some((cut, before)) => {
                self.cut(writer, cut, to)?;
                self.publish_truncated(writer, before, to, epochs)
            }
        }
    }

    /// What is appended behind the cut is not compacted: the segment that is the active one then counts as dirty.
    fn lower_cleaned(&self, writer: &mut Writer, view: &View, to: Offset) -> Result<()> {
        if writer.cleaned.is_some_and(|cleaned| cleaned > to) {
            let cut = view.segments.iter().rev().find(|segment| segment.base_offset() <= to);
            let lowered = cut.map_or(to, |segment| segment.base_offset());
            self.home.write(Mark::Cleaned, lowered)?;
            writer.cleaned = Some(lowered);
        }
        Ok(())
    }

    /// What is known of the producers is what it was at `to`. What is cut off may have decided a transaction that is open
    /// again then: the last stable offset sinks to where it was, before anything is cut.
    fn lower_producers(&self, writer: &mut Writer, to: Offset) -> Result<()> {
        if !writer.history.producers {
            return Ok(());
        }
        let (readers, now) = (&self.picture.view().segments, self.clock.wall());
        let mut producers = rebuild_producers(&self.home, &mut writer.snapshots, readers, to, now)?;
        let stable = producers.last_stable(self.picture.high_watermark().min(to));
        *self.producers.lock() = producers;
        if writer.history.transactions {
            self.picture.lower_last_stable(stable.max(self.picture.view().log_start.min(to)));
        }
        Ok(())
    }

    /// Removes segments that left the view and could not be renamed then: they must not be behind a new end.
    fn remove_strays(&self, view: &View) -> Result<()> {
        let mut strays = false;
        for entry in self.home.list()? {
            let base = base_of(&entry.name, ".log");
            if base.is_some_and(|base| !view.segments.iter().any(|segment| segment.base_offset() == base)) {
                self.home.remove(&entry.name)?;
                strays = true;
            }
        }
        if strays { self.home.sync_directory() } else { Ok(()) }
    }

    /// Everything goes; the log begins anew, empty, at `to`, which is below its start.
    pub(super) fn restart_at(&self, writer: &mut Writer, to: Offset) -> Result<()> {
        let view = self.picture.view();
        let end = self.end_of_cut(&view, to)?;
        self.truncate(writer, &view, end)
    }

    /// No segment is left: the first one begins at `to`.
    fn begin_at(&self, writer: &mut Writer, to: Offset, epochs: Epochs) -> Result<()> {
        let home = &self.home;
        writer.active = Segment::create(&home.storage, &home.directory, to, &writer.segment_config, self.clock.wall())?;
        home.sync_directory()?;
        self.publish_truncated(writer, &[], to, epochs)
    }

    /// Highest base first, each durable before the next.
    fn retire_from_the_end(&self, writer: &mut Writer, gone: &[Arc<SegmentReader>]) -> Result<()> {
        for segment in gone.iter().rev() {
            writer.unsynced.retain(|other| !Arc::ptr_eq(segment, other));
            self.retire_all(writer, std::slice::from_ref(segment))?;
            self.home.sync_directory()?;
        }
        Ok(())
    }

    /// Cuts one segment and makes the cut durable. The segment is the active one from then on.
    fn cut(&self, writer: &mut Writer, reader: &Arc<SegmentReader>, to: Offset) -> Result<()> {
        if !Arc::ptr_eq(reader, writer.active.reader()) {
            writer.active = Segment::resume(reader)?;
        }
        writer.unsynced.retain(|other| !Arc::ptr_eq(reader, other));
        writer.active.truncate(to)?;
        writer.active.reader().sync()?;
        self.home.sync_directory()
    }

    /// The view that ends with the active segment, and what follows from the new end.
    fn publish_truncated(
        &self,
        writer: &mut Writer,
        before: &[Arc<SegmentReader>],
        to: Offset,
        epochs: Epochs,
    ) -> Result<()> {
        writer.snapshots.remove_above(&self.home, to)?;
        self.home.write_epochs(epochs.entries())?;
        writer.epoch = writer.epoch.max(epochs.latest().unwrap_or_default());
        writer.epochs = epochs;
        let segments = before.iter().chain([writer.active.reader()]).cloned().collect();
        let epochs = writer.epochs.entries().to_vec();
        writer.index_dropped = false;
        self.picture.publish(self.next_view(|view| {
            view.segments = segments;
            view.epochs = epochs;
            view.log_start = view.log_start.min(to);
        }));
        self.note_aborted(writer);
        self.settle_kept(writer, to)
    }

    /// The segment that was cut is synced. A synced partition syncs what is kept before it too, for nobody may be left who
    /// asks for it; so what is kept is stored.
    fn settle_kept(&self, writer: &mut Writer, to: Offset) -> Result<()> {
        self.settle_history(writer)?;
        if self.is_synced() {
            for segment in writer.unsynced.drain(..) {
                segment.sync()?;
            }
        }
        if writer.unsynced.is_empty() {
            writer.directory_dirty = false;
            self.sync.raise(to.0);
        }
        self.stored(if self.is_synced() { to } else { self.picture.high_watermark() });
        Ok(())
    }
}
