//! What makes appended records last: the shared sync, the checkpoints that follow it, and closing.
//!
//! ```text
//!   appended ──(sync: window of zeros, file, directory)──▶ synced ──▶ high watermark ──▶ checkpoint of the
//!                                                                                       recovery point
//! ```
//!
//! - Whoever syncs fills the window of zeros first, under the writer lock, and syncs once for both, outside of it.
//! - The recovery point follows the syncs: everything below it is on the disk, whatever happens.
//! - A failed sync says nothing about what reached the disk. The partition is poisoned: readers go on below the
//!   high watermark, whoever waits and whoever writes gets the failure, until [`Partition::reopen`] has read
//!   everything anew. A note in the directory has the next process do so too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::books::Mark;
use super::{Health, Inner, Partition, Recovery, Writer, snapshots};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::segment::SegmentReader;
use crate::trace;
use crate::types::{LeaderEpoch, Offset};

/// A synced partition's file ends in up to this many bytes of zeros that were synced before.
const WINDOW_BYTES: u64 = 512 << 10;
/// With less than this left, the next sync fills the window up again.
const WINDOW_BYTES_LEAST: u64 = WINDOW_BYTES / 2;

/// What one sync has to cover.
struct Due {
    end: Offset,
    /// Of the shared sync: a truncation or a reopen begins another, in which nothing of this counts.
    generation: u64,
    /// Segments that take no more bytes.
    sealed: Vec<Arc<SegmentReader>>,
    /// Producer snapshots, so that a recovery from the end of this sync on need not read what lies before them.
    snapshots: Vec<Offset>,
    /// The one that does: what comes while it is synced is another sync's.
    active: Option<Arc<SegmentReader>>,
    /// Where the directory has to be synced: which names there were, by the active segment and what was removed.
    directory: Option<(Offset, u64)>,
}

impl Partition {
    /// Returns when everything that was appended is synced, and visible.
    ///
    /// # Errors
    /// What the sync failed with: the partition is poisoned then.
    pub fn sync(&self) -> Result<()> {
        self.inner.check_writable()?;
        self.inner.flush()
    }

    /// Returns when everything below `offset` is synced; one sync serves all who wait.
    ///
    /// # Errors
    /// [`Error::UnexpectedEnd`] where the log ends below `offset`, and as [`Partition::sync`].
    pub fn sync_to(&self, offset: Offset) -> Result<()> {
        self.inner.check_writable()?;
        self.inner.sync_to(offset, self.inner.sync.generation())
    }

    /// Syncs several partitions, each up to its end.
    ///
    /// # Errors
    /// The first failure; the others are synced all the same.
    pub fn sync_many<'p>(partitions: impl IntoIterator<Item = &'p Self>) -> Result<()> {
        partitions.into_iter().map(Self::sync).fold(Ok(()), Result::and)
    }

    /// Moves the high watermark of a partition that commits by its host, forward only. What is committed and not
    /// stored becomes visible once it is stored.
    ///
    /// # Errors
    /// [`Error::Policy`] where the partition commits by itself, [`Error::OffsetOutOfRange`] beyond the end.
    pub fn commit_to(&self, offset: Offset) -> Result<()> {
        let inner = &*self.inner;
        inner.check_writable()?;
        if inner.commits != crate::config::Commits::ByHost {
            return Err(Error::Policy("commit_to is for Commits::ByHost: this partition commits what it has stored"));
        }
        let writer = inner.writer.lock();
        inner.check_health()?;
        let end = inner.picture.end();
        if offset > end {
            let (partition, start) = (self.name().clone(), self.start());
            return Err(Error::OffsetOutOfRange { partition, requested: offset, start, end });
        }
        inner.committed.fetch_max(offset.0, Ordering::AcqRel);
        inner.stored(if inner.is_synced() { self.synced_end() } else { end });
        drop(writer);
        inner.changed.notify();
        Ok(())
    }

    /// Begins a leader epoch at the end of the log: batches of clients carry it from now on. It is on the disk
    /// when this returns.
    ///
    /// # Errors
    /// [`Error::Policy`] where it is not later than the current one.
    pub fn begin_epoch(&self, epoch: LeaderEpoch) -> Result<()> {
        self.inner.check_writable()?;
        let mut writer = self.inner.writer.lock();
        self.inner.check_health()?;
        if epoch <= writer.epoch {
            return Err(Error::Policy("a leader epoch is later than the one before"));
        }
        let mut epochs = writer.epochs.clone();
        epochs.assign(epoch, self.inner.picture.end());
        self.inner.replace_epochs(&mut writer, epochs)?;
        writer.epoch = epoch;
        Ok(())
    }

    /// Why the partition takes no writes until it is reopened ([`Partition::reopen`]); `None` where it takes them, or is
    /// closed.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<Error>> {
        let cause = self.inner.poison.lock().clone();
        cause.filter(|_| self.inner.health() == Health::Poisoned)
    }

    /// Syncs, writes the indexes and checkpoints, marks the partition as cleanly closed, and releases the
    /// directory. Every other handle answers [`Error::Closed`] from then on. Closing twice is no error.
    ///
    /// # Errors
    /// What the disk refused, or [`Error::Poisoned`]: then it is closed all the same, without the marker, and the
    /// next open recovers it. [`Error::Policy`] for a partition of a log, which is closed with it.
    pub fn close(self) -> Result<()> {
        if !self.inner.home.is_alone() {
            return Err(Error::Policy("a partition of a log is closed with the log"));
        }
        self.inner.close()
    }

    /// The same for a partition of a log.
    pub(crate) fn close_in_log(&self) -> Result<()> {
        self.inner.close()
    }
}

impl Inner {
    /// Syncs up to a mark that was taken in a generation of the shared sync.
    pub(super) fn sync_to(&self, offset: Offset, generation: u64) -> Result<()> {
        if self.history_due.load(Ordering::Acquire) {
            self.settle_history_first()?;
        }
        let publish = |end| {
            self.stored_synced(Offset(end));
            self.changed.notify();
        };
        self.sync.sync_to(offset.0, generation, || self.run_sync(), publish, || self.writer.lock())
    }

    /// A disk that is full for a small file fences nothing.
    fn settle_history_first(&self) -> Result<()> {
        let writer = self.writer.lock();
        if self.check_writable().is_err() {
            return Ok(()); // a close may have synced what is waited for: the shared sync knows
        }
        self.settle_history(&writer).map_err(|error| {
            if !is_full(&error) {
                return self.poison(error);
            }
            if self.unsynced_since.load(Ordering::Relaxed) > 0 {
                self.unsynced_since.store(self.clock.monotonic().0.saturating_add(1), Ordering::Release);
            }
            error
        })
    }

    /// Syncs all that was appended when it is called, as far as it is not taken back meanwhile. What is appended
    /// afterwards is none of its business: it ends, whatever others do.
    pub(super) fn flush(&self) -> Result<()> {
        let (mut mark, mut generation, mut recovered) = self.now_due();
        loop {
            match self.sync_to(mark, generation) {
                Err(Error::Superseded { .. } | Error::UnexpectedEnd { .. }) => {}
                outcome => return outcome,
            }
            let _nobody_truncates = self.writer.lock();
            let now = self.now_due();
            let kept = self.sync.kept_since(generation).filter(|_| Arc::ptr_eq(&recovered, &now.2));
            // Of what a reopen has left it is not known what was there before.
            mark = kept.map_or(now.0, |kept| mark.min(Offset(kept)).min(now.0));
            (generation, recovered) = (now.1, now.2);
        }
    }

    /// The end, the generation that it is a mark of (or an earlier one), and the recovery that the log had gone through
    /// by then.
    fn now_due(&self) -> (Offset, u64, Arc<Recovery>) {
        loop {
            let recovered = Arc::clone(&self.recovery.lock());
            let generation = self.sync.generation();
            let end = self.picture.end();
            if self.sync.generation() == generation {
                return (end, generation, recovered);
            }
        }
    }

    /// After a sync of the shared kind; no reset of it can happen meanwhile.
    fn stored_synced(&self, end: Offset) {
        if self.is_synced() {
            self.stored(end);
        }
    }

    /// One sync of everything written so far. Answers up to where that was.
    fn run_sync(&self) -> Result<u64> {
        let mut due = {
            let mut writer = self.writer.lock();
            self.check_writable()?;
            self.due(&mut writer)?
        };
        self.sync_due(&mut due)?;
        self.count_sync();
        if !due.sealed.is_empty() || !due.snapshots.is_empty() || due.directory.is_some() {
            self.forget_synced(&mut self.writer.lock(), &due);
        }
        Ok(due.end.0)
    }

    fn sync_due(&self, due: &mut Due) -> Result<()> {
        due.snapshots.retain(|offset| {
            let synced = snapshots::sync(&self.home, *offset);
            if let Err(error) = &synced {
                trace::warn(&self.home.directory, || format!("a producer snapshot is not synced: {error}"));
            }
            synced.is_ok()
        });
        for file in due.sealed.iter().chain(&due.active) {
            file.sync().map_err(|error| self.poison(error))?;
        }
        if due.directory.is_some() {
            self.home.sync_directory().map_err(|error| self.poison(error))?;
        }
        Ok(())
    }

    /// Takes what is to be synced out of the writer; fills the window so that one sync covers it too.
    fn due(&self, writer: &mut Writer) -> Result<Due> {
        if self.is_synced() {
            // Zeros are a convenience: a disk too full for them is none for the records that are there.
            let filled = writer.active.fill_window(WINDOW_BYTES_LEAST, WINDOW_BYTES);
            if let Err(error @ Error::Poisoned { .. }) = filled {
                return Err(self.poison(error));
            }
        }
        self.settle_history(writer).map_err(|error| self.poison(error))?;
        self.unsynced_since.store(0, Ordering::Release);
        let (sealed, active) = (writer.unsynced.clone(), Some(Arc::clone(writer.active.reader())));
        let directory = writer.directory_dirty.then(|| names_of(writer));
        let snapshots = writer.snapshots.unsynced();
        Ok(Due { end: self.picture.end(), generation: self.sync.generation(), sealed, snapshots, active, directory })
    }

    /// Syncs the sealed segments that are not, outside of the lock; answers how many. The recovery point follows.
    pub(super) fn sync_sealed(&self) -> Result<usize> {
        let mut due = {
            let writer = self.writer.lock();
            self.check_writable()?;
            let directory = writer.directory_dirty.then(|| names_of(&writer));
            self.settle_history(&writer)?;
            let snapshots = writer.snapshots.unsynced();
            // An append that failed may have left an empty segment that begins behind the end.
            let end = writer.active.base_offset().min(self.picture.end());
            let generation = self.sync.generation();
            Due { end, generation, sealed: writer.unsynced.clone(), snapshots, active: None, directory }
        };
        self.sync_due(&mut due)?;
        let mut writer = self.writer.lock();
        if self.forget_synced(&mut writer, &due) && !due.sealed.is_empty() {
            self.sync.raise(due.end.0);
        }
        Ok(due.sealed.len())
    }

    /// What was synced need not be again. Until then it stays noted, for whoever syncs or closes meanwhile. The segment
    /// that was the active one may have grown behind its sync and been sealed: if it is noted, it stays so. Answers
    /// whether the sync counts.
    fn forget_synced(&self, writer: &mut Writer, due: &Due) -> bool {
        writer.snapshots.synced(&due.snapshots);
        if self.sync.generation() != due.generation {
            return false;
        }
        writer.unsynced.retain(|segment| !due.sealed.iter().any(|synced| Arc::ptr_eq(segment, synced)));
        if due.directory.is_some_and(|names| names == names_of(writer)) {
            writer.directory_dirty = false;
        }
        true
    }

    /// Fences the partition: what the disk holds is not known any more. Returns the error to give to the caller.
    pub(super) fn poison(&self, cause: Error) -> Error {
        let cause = match cause {
            Error::Poisoned { cause, .. } => cause,
            other => Arc::new(other),
        };
        let cause = Arc::clone(self.poison.lock().get_or_insert(cause));
        trace::warn(&self.home.directory, || format!("takes no more writes: {cause}"));
        let error = Error::Poisoned { path: self.home.directory.clone(), cause };
        self.sync.fail(&error);
        if self.health() == Health::Open {
            self.set_health(Health::Poisoned);
        }
        self.home.note_failed_sync();
        self.changed.notify();
        error
    }

    /// The error of a poisoned partition.
    pub(super) fn poisoned(&self) -> Error {
        let cause = self.poison.lock().clone().unwrap_or_else(|| Arc::new(Error::Closed));
        Error::Poisoned { path: self.home.directory.clone(), cause }
    }

    /// Up to where the disk has everything, for the checkpoint.
    pub(super) fn recovery_point(&self) -> Offset {
        Offset(self.sync.synced()).min(self.picture.end())
    }

    /// Writes the recovery point and the high watermark.
    pub(super) fn write_checkpoints(&self, writer: &mut Writer, now: Moment) -> Result<()> {
        self.home.note(Mark::RecoveryPoint, self.recovery_point())?;
        self.home.note(Mark::HighWatermark, self.picture.high_watermark())?;
        writer.last_checkpoint = now;
        Ok(())
    }

    /// Closes once; later calls find it closed.
    pub(super) fn close(&self) -> Result<()> {
        if self.home.storage.is_forked() {
            return Err(Error::Forked);
        }
        let mut cleaner = self.cleaner.lock();
        let mut writer = self.writer.lock();
        // What it has written and not exchanged goes while the directory is still this partition's.
        cleaner.reset();
        let outcome = match self.health() {
            Health::Closed => return Ok(()),
            Health::Poisoned => Err(self.poisoned()),
            Health::Open => self.shut(&mut writer),
        };
        self.set_health(Health::Closed);
        self.sync.fail(&Error::Closed);
        if outcome.is_err() {
            self.home.note_failed_sync();
        }
        self.home.release();
        if let Err(error) = &outcome {
            trace::warn(&self.home.directory, || format!("was not closed cleanly: {error}"));
        }
        outcome
    }

    fn shut(&self, writer: &mut Writer) -> Result<()> {
        let end = self.picture.end();
        let was_cut = writer.active.cut_window()?;
        writer.active.seal()?;
        self.write_snapshot(writer, end);
        self.settle_producers(writer)?;
        let is_synced = self.sync.synced() >= end.0 && writer.unsynced.is_empty() && !writer.directory_dirty;
        // Of ten thousand partitions most are idle: what nobody has written to needs no sync.
        if was_cut || !is_synced || self.home.is_alone() {
            self.shut_files(writer)?;
        }
        self.sync.raise(end.0);
        if self.is_synced() {
            self.stored(end);
        }
        self.write_checkpoints(writer, self.clock.monotonic())?;
        self.home.note(Mark::LogStart, self.picture.view().log_start)?;
        self.home.write_clean_marker()
    }

    fn shut_files(&self, writer: &mut Writer) -> Result<()> {
        for segment in writer.unsynced.drain(..) {
            segment.sync()?;
        }
        writer.active.reader().sync()?;
        self.home.sync_directory()?;
        self.home.write_epochs(writer.epochs.entries())
    }
}

fn is_full(error: &Error) -> bool {
    let full = |kind| matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    matches!(error, Error::Io { source, .. } if full(source.kind()))
}

/// Changes when a name in the directory does.
fn names_of(writer: &Writer) -> (Offset, u64) {
    (writer.active.base_offset(), writer.retired_count)
}

impl Drop for Inner {
    /// The last handle closes; what fails is traced.
    fn drop(&mut self) {
        if self.health() != Health::Closed {
            drop(self.close());
        }
    }
}
