//! Recovery: what is on the disk becomes a view.
//!
//! ```text
//!   names left by crashes are resolved → segments below the log start go → checkpoints, epochs, history
//!   → clean: the active segment from its last index entry on
//!     not clean: every segment from the recovery point on, every batch
//!   → the torn tail of the last segment is cut; a sealed segment never is
//!   → synced partition: what is kept above the recovery point is written again in place and synced
//!   → a new leader epoch begins at the end, where the log decides for itself
//! ```
//!
//! Invariants:
//! - It can be interrupted anywhere and begun again: it changes nothing before the clean marker is gone, and what it
//!   cuts away is what it would cut away again.
//! - Nothing behind a hole in the last segment is taken for the log; where valid batches stand there, the bytes are
//!   copied to `<base>.cut-<position>` before they are cut.
//! - A damaged batch in a sealed segment is listed and left: reads answer an error there and go on behind it.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::aborted::Noted;
use super::books::Mark;
use super::home::{Checkpoints, History, Home};
use super::names::{Resolved, resolve_names};
use super::open::FIRST_OFFSET;
use super::producers::Producers;
use super::snapshots::Snapshots;
use super::verify::Work;
use super::view::{Marks, View};
use crate::clock::Clock;
use crate::config::{Commits, Durability, PartitionConfig};
use crate::epochs::Epochs;
use crate::error::{Corruption, Error, Result};
use crate::mutants;
use crate::segment::{Segment, SegmentConfig, SegmentReader, Stop};
use crate::trace;
use crate::types::{LeaderEpoch, Offset};

/// What an open found and did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// The partition had been closed: nothing had to be verified.
    pub clean: bool,
    /// The directory was not taffrail's before: a copy out of a broker's, say.
    pub adopted: bool,
    /// Segments that were verified.
    pub segments_verified: usize,
    /// Bytes of log that were verified.
    pub bytes_verified: u64,
    /// What was cut off the end of the last segment. Zeros that were there for speed do not count.
    pub cut: Option<Cut>,
    /// What is damaged inside of sealed segments, and was left as it is.
    pub damaged: Vec<DamagedRange>,
    /// Records that were synced and are not there any more, by their offsets: files were cut or removed by somebody, or the
    /// disk has lost them. Where nothing at all was left the log goes on behind them; else these offsets are given
    /// again, under a new leader epoch.
    pub lost: Option<Range<Offset>>,
    /// The log ended below its own start and was begun anew there.
    pub restarted_at: Option<Offset>,
    /// Where the segments of that log are now, which the log start says were to go: files that no open touches. To have
    /// them back, close the partition, move everything else out of its directory, and take `.kept` off their names.
    pub kept: Vec<PathBuf>,
    /// The leader epoch that was begun because the last end was not a clean one.
    pub epoch_begun: Option<LeaderEpoch>,
}

impl Recovery {
    /// Whether it found everything that is to be there, and no damage. What a crash left half-written is none.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let cut_batches = self.cut.as_ref().is_some_and(|cut| cut.saved_to.is_some());
        !cut_batches && self.damaged.is_empty() && self.lost.is_none() && self.restarted_at.is_none()
    }
}

/// Bytes that were cut off the end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cut {
    /// The segment's file.
    pub path: PathBuf,
    /// From where on.
    pub position: u64,
    /// How many.
    pub bytes: u64,
    /// Why.
    pub reason: Corruption,
    /// Where they were copied to, because valid batches stand in them.
    pub saved_to: Option<PathBuf>,
}

/// A range of a sealed segment that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedRange {
    /// The segment's file.
    pub path: PathBuf,
    /// The byte position.
    pub position: u64,
    /// The offsets that cannot be read.
    pub offsets: Range<Offset>,
    /// What is wrong.
    pub reason: Corruption,
}

/// Everything that follows from what is on the disk.
pub(super) struct Loaded {
    pub(super) active: Segment,
    pub(super) view: View,
    pub(super) marks: Marks,
    pub(super) epochs: Epochs,
    pub(super) epoch: LeaderEpoch,
    pub(super) history: History,
    pub(super) producers: Producers,
    pub(super) snapshots: Snapshots,
    pub(super) aborted: Noted,
    pub(super) synced: Offset,
    /// Sealed segments whose bytes may not all be synced.
    pub(super) unsynced: Vec<Arc<SegmentReader>>,
    /// Whether names in the directory may not be synced.
    pub(super) directory_dirty: bool,
    /// Up to where the log is compacted.
    pub(super) cleaned: Option<Offset>,
    pub(super) recovery: Recovery,
}

/// One recovery.
pub(super) struct Loader<'a> {
    pub(super) home: &'a Home,
    pub(super) config: &'a PartitionConfig,
    pub(super) segment_config: &'a SegmentConfig,
    pub(super) clock: &'a dyn Clock,
    /// Segments that are open already: their files are gone on with, so that what readers hold stays sound.
    pub(super) known: &'a [Arc<SegmentReader>],
    pub(super) was_clean: bool,
    /// Up to where a host has committed that this process knows of.
    pub(super) committed: Option<Offset>,
}

impl Loader<'_> {
    pub(super) fn load(self) -> Result<Loaded> {
        let home = self.home;
        self.recover().inspect_err(|error| {
            // It may have been a sync.
            if matches!(error, Error::Io { .. } | Error::Poisoned { .. }) {
                home.note_failed_sync();
            }
        })
    }

    fn recover(self) -> Result<Loaded> {
        let Resolved { mut bases, replaced, snapshots } = resolve_names(self.home)?;
        let checkpoints = self.home.read_checkpoints()?;
        let is_new = bases.is_empty() && checkpoints.log_start.is_none();
        let (first, below) = Self::below_start(&mut bases, &checkpoints);
        // Where all files are gone the log goes on behind what it had.
        let had = checkpoints.recovery_point.filter(|had| bases.is_empty() && *had > first);
        let log_start = had.filter(|_| !self.home.refuses_damage()).unwrap_or(first);
        let mut work = self.begin(&bases, &replaced, snapshots, &checkpoints, log_start, is_new && had.is_none())?;
        work.note_lost(had.filter(|_| log_start > first).map(|had| first..had));
        if work.segments.is_empty() {
            work.segments.push(self.create(log_start)?);
            if !mutants::is_in(mutants::LOST_DIRECTORY_SYNC) {
                self.home.sync_names()?;
            }
        }
        let verified_from = self.verify(&mut work)?;
        if self.refuses_loss(&work) {
            return Err(
                self.lost(&work, Corruption::Form(format!("the log ends there, {} was synced", work.recovery_point)))
            );
        }
        if mutants::is_in(mutants::REUSED_OFFSET) && !work.recovery.clean && verified_from.0 + 1 == work.segments.len()
        {
            work.end = work.offset_at(verified_from)?;
            work.segments[verified_from.0].cut(verified_from.1)?;
        }
        let synced = work.end.max(work.log_start)..work.recovery_point;
        work.note_lost(Some(synced).filter(|lost| !lost.is_empty()));
        let end = self.end_of(&mut work, &below)?;
        if let Some(lost) = &work.recovery.lost {
            trace::warn(&self.home.directory, || {
                format!("the records from offset {} to {} are lost", lost.start, lost.end)
            });
        }
        work.snapshots.remove_above(self.home, end)?;
        let synced = self.settle(&mut work, verified_from, end)?;
        let cleaned = self.check_cleaned(&checkpoints, log_start, end)?;
        self.begin_epoch(&mut work, end)?;
        self.home.settle()?;
        self.finish(work, &checkpoints, verified_from, (end, synced, cleaned))
    }

    /// Where the log starts. Segments that lie wholly below are taken out of `bases`, the last one excepted: they go once
    /// it is known that the log reaches its start.
    fn below_start(bases: &mut Vec<(Offset, u64)>, checkpoints: &Checkpoints) -> (Offset, Vec<(Offset, u64)>) {
        let first = bases.first().map_or(FIRST_OFFSET, |(base, _)| *base);
        let log_start = checkpoints.log_start.map_or(first, |start| start.max(first));
        let below = bases.windows(2).take_while(|pair| pair[1].0 <= log_start).count();
        (log_start, bases.drain(..below).collect())
    }

    fn drop_below_start(&self, below: &[(Offset, u64)]) -> Result<()> {
        for (base, _) in below {
            for suffix in [".log", ".index", ".timeindex", ".txnindex"] {
                self.home.remove(&format!("{:020}{suffix}", base.0))?;
            }
        }
        if below.is_empty() { Ok(()) } else { self.home.sync_directory() }
    }

    /// The log begins anew beyond its end. Either a loss of power took records that were to go next (a removal from the
    /// front is durable at once, and with `Durability::Os` records are not), or the checkpoint is wrong: it carries no
    /// checksum, and one digit is enough. Kafka removes everything in both cases. The two cannot be told apart, and what
    /// is lost in the second is the whole log; so the files are renamed to what no open touches, and it is said where.
    fn keep_aside(&self, base: Offset, kept: &mut Vec<PathBuf>) -> Result<()> {
        let names: Vec<_> = self.home.list()?.into_iter().map(|entry| entry.name).collect();
        for kind in ["log", "txnindex"] {
            let name = format!("{:020}.{kind}", base.0);
            if !names.contains(&name) {
                continue;
            }
            let mut to = format!("{name}.kept");
            for number in 2.. {
                if !names.contains(&to) {
                    break;
                }
                to = format!("{name}.{number}.kept");
            }
            let (from, to) = (self.home.path(&name), self.home.path(&to));
            // Readers may have it open: through a handle it can be renamed all the same.
            let file = self.home.storage.open(&from, 0).map_err(|error| Error::io("open", &from, error))?;
            file.rename(&to).map_err(|error| Error::io("rename", &from, error))?;
            kept.push(to);
        }
        Ok(())
    }

    fn begin(
        &self,
        bases: &[(Offset, u64)],
        replaced: &[Offset],
        snapshots: Snapshots,
        found: &Checkpoints,
        log_start: Offset,
        is_new: bool,
    ) -> Result<Work> {
        let stored_history = self.read_history()?;
        // A crash may have left the first segment and not the history beside it: nothing has happened in it yet.
        let is_unwritten = is_new || log_start == FIRST_OFFSET && bases.iter().all(|(_, len)| *len == 0);
        let history = stored_history.unwrap_or(if is_unwritten { History::NONE } else { History::UNKNOWN });
        if stored_history.is_none() {
            self.home.write_history(history)?;
        }
        let entries = self.home.read_epochs()?.filter(|entries| self.rise(entries));
        let adopted = stored_history.is_none() && !is_unwritten;
        let adopts_epochs = adopted || entries.is_none();
        let epochs = Epochs::from_entries(entries.unwrap_or_default()).unwrap_or_default();
        let segments = bases.iter().map(|(base, len)| self.open(*base, *len, replaced)).collect::<Result<Vec<_>>>()?;
        Ok(Work {
            segments,
            log_start,
            end: log_start,
            recovery_point: found.recovery_point.unwrap_or(log_start).max(log_start),
            contiguous: !history.gaps && found.cleaned.is_none() && !self.config.cleanup.compacts(),
            epochs,
            adopts_epochs,
            history,
            producers: Producers::default(),
            snapshots,
            aborted: if history.transactions { Noted::read(self.home)? } else { Noted::default() },
            now: self.clock.wall(),
            recovery: Recovery { clean: self.was_clean || is_new, adopted, ..Recovery::default() },
        })
    }

    /// Whether the epoch checkpoint can be believed; else the batches themselves tell.
    fn rise(&self, entries: &[(LeaderEpoch, Offset)]) -> bool {
        let sound = Epochs::from_entries(entries.to_vec());
        if let Err(reason) = &sound {
            trace::warn(&self.home.directory, || format!("the epoch checkpoint is rebuilt from the batches: {reason}"));
        }
        sound.is_ok()
    }

    /// A damaged history says nothing: everything may have happened.
    fn read_history(&self) -> Result<Option<History>> {
        match self.home.read_history() {
            Err(Error::CorruptFile { path, reason }) => {
                trace::warn(&path, || format!("is ignored: {reason}"));
                self.home.write_history(History::UNKNOWN)?;
                Ok(Some(History::UNKNOWN))
            }
            other => other,
        }
    }

    /// A reader that is known has the file still, unless another took its place.
    fn open(&self, base: Offset, len: u64, replaced: &[Offset]) -> Result<Segment> {
        let known = || self.known.iter().find(|reader| reader.base_offset() == base);
        match known().filter(|reader| !replaced.contains(&base) && !reader.is_retired()) {
            Some(reader) => Segment::resume(reader),
            None => Segment::load(&self.home.storage, &self.home.directory, base, len, self.segment_config),
        }
    }

    fn create(&self, base: Offset) -> Result<Segment> {
        Segment::create(&self.home.storage, &self.home.directory, base, self.segment_config, self.clock.wall())
    }

    /// Verifies what has to be, segment by segment; answers the number of the first one, and from which byte.
    fn verify(&self, work: &mut Work) -> Result<(usize, u64)> {
        let last = work.segments.len() - 1;
        let epochs_are_unknown = work.epochs.entries().is_empty() && work.adopts_epochs;
        if work.recovery.clean && !epochs_are_unknown {
            if let Some(end) = work.segments[last].closed_end()?.filter(|end| *end >= work.recovery_point) {
                work.end = end;
                self.rebuild_producers(work, end)?;
                return Ok((last, work.segments[last].size()));
            }
            trace::warn(&self.home.directory, || "was closed, but its last segment has changed since");
        }
        work.recovery.clean &= work.segments[last].size() == 0;
        let from = if epochs_are_unknown { (0, 0) } else { work.start_of_verification()? };
        let start = work.offset_at(from)?;
        // What they say above that may be of what a truncation or a loss of power has taken.
        work.snapshots.remove_above(self.home, start)?;
        self.rebuild_producers(work, start)?;
        let knew_producers = work.history.producers;
        for index in from.0..work.segments.len() {
            let at = if index == from.0 { from.1 } else { 0 };
            if index > from.0 {
                work.write_snapshot(self.home, index);
            }
            let found = work.verify_one(self.home, index, at)?;
            if let Some(stop) = found.stop {
                self.cut(work, index, &stop)?;
            }
        }
        if work.history.producers && !knew_producers {
            self.home.write_history(work.history)?;
        }
        Ok(from)
    }

    /// What is known of producers below `end`, where there ever was one.
    fn rebuild_producers(&self, work: &mut Work, end: Offset) -> Result<()> {
        if work.history.producers {
            work.rebuild_producers(self.home, end)?;
        }
        Ok(())
    }

    /// Cuts the end of the last segment off where it stops being valid.
    fn cut(&self, work: &mut Work, index: usize, stop: &Stop) -> Result<()> {
        let refuses_loss = self.refuses_loss(work);
        let Some(segment) = work.segments.get_mut(index) else { return Ok(()) };
        let path = segment.reader().path();
        if let Some(magic) = stop.legacy {
            return Err(Error::LegacyFormat { path, position: stop.position, magic });
        }
        if self.home.refuses_damage() && !stop.zeros && stop.valid_after.is_some() || refuses_loss {
            let offsets = work.end..work.end.max(work.recovery_point);
            return Err(Error::Corrupt { path, position: stop.position, offsets, reason: stop.reason.clone() });
        }
        if !stop.zeros {
            let bytes = segment.reader().size().saturating_sub(stop.position);
            let saved_to = match stop.valid_after {
                Some(_) => Some(self.save_cut(segment, stop.position)?),
                None => None,
            };
            trace::warn(&path, || format!("cut {bytes} bytes from byte {} on: {}", stop.position, stop.reason));
            let (position, reason) = (stop.position, stop.reason.clone());
            work.recovery.cut = Some(Cut { path, position, bytes, reason, saved_to });
            work.recovery.clean = false;
        }
        segment.cut(stop.position)
    }

    /// Whether the log ends before what was synced does, where that is an error.
    fn refuses_loss(&self, work: &Work) -> bool {
        self.home.refuses_damage() && work.end < work.recovery_point
    }

    /// What is not there any more.
    fn lost(&self, work: &Work, reason: Corruption) -> Error {
        let last = work.segments.last();
        let path = last.map_or_else(|| self.home.directory.clone(), |segment| segment.reader().path());
        let position = last.map_or(0, Segment::size);
        Error::Corrupt { path, position, offsets: work.end..work.recovery_point, reason }
    }

    /// Copies what is about to be cut beside the segment.
    fn save_cut(&self, segment: &Segment, position: u64) -> Result<PathBuf> {
        let path = self.home.path(&format!("{:020}.cut-{position}", segment.base_offset().0));
        match self.home.storage.remove(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(Error::io("remove", path, error)),
            _ => {}
        }
        let end = segment.reader().size();
        segment.reader().copy_range(position..end, &path, &self.home.storage)?;
        self.home.sync_directory()?;
        Ok(path)
    }

    /// The end of the log. A log that ends below its start is begun anew there.
    fn end_of(&self, work: &mut Work, below: &[(Offset, u64)]) -> Result<Offset> {
        let end = work.end;
        if end >= work.log_start {
            self.drop_below_start(below)?;
            return Ok(end);
        }
        trace::warn(&self.home.directory, || format!("ends at {end}, below its start {}: begun anew", work.log_start));
        for segment in work.segments.drain(..).rev() {
            if segment.size() > 0 {
                self.keep_aside(segment.base_offset(), &mut work.recovery.kept)?;
            } else {
                segment.reader().retire(0)?;
            }
            self.home.sync_directory()?;
        }
        for (base, _) in below.iter().rev() {
            self.keep_aside(*base, &mut work.recovery.kept)?;
            self.home.sync_directory()?;
        }
        for path in &work.recovery.kept {
            trace::warn(path, || "was kept aside: it lies below the start of the log, which lies behind its end");
        }
        work.segments.push(self.create(work.log_start)?);
        self.home.sync_directory()?;
        work.end = work.log_start;
        work.recovery.restarted_at = Some(work.log_start);
        work.producers = Producers::default();
        Ok(work.log_start)
    }

    /// Makes what was kept safe where the partition is synced; answers up to where everything is synced.
    fn settle(&self, work: &mut Work, from: (usize, u64), end: Offset) -> Result<Offset> {
        if work.recovery.clean {
            return Ok(end);
        }
        let synced = self.config.durability != Durability::Os;
        // After a failure no later sync covers what is not written again.
        let failed = self.home.has_failed_sync();
        let rewrites = synced || failed || !self.known.is_empty();
        for (index, segment) in work.segments.iter_mut().enumerate().skip(from.0) {
            if rewrites {
                segment.rewrite(if index == from.0 { from.1 } else { 0 })?;
            }
            if synced {
                segment.sync()?;
            }
        }
        if synced {
            self.home.sync_directory()?;
            self.home.note(Mark::RecoveryPoint, end)?;
        }
        if failed {
            self.home.forget_failed_sync()?;
        }
        Ok(if synced { end } else { work.recovery_point.min(end) })
    }

    /// A checkpoint beyond the end says nothing of what will stand there, and is taken back before anything does.
    fn check_cleaned(&self, found: &Checkpoints, log_start: Offset, end: Offset) -> Result<Option<Offset>> {
        let Some(cleaned) = found.cleaned.filter(|cleaned| *cleaned > end) else { return Ok(found.cleaned) };
        trace::warn(&self.home.directory, || format!("was compacted up to {cleaned}, and ends at {end}"));
        self.home.write(Mark::Cleaned, log_start)?;
        Ok(Some(log_start))
    }

    /// A log that decides for itself begins an epoch at its end after an unclean one, and with its first record.
    fn begin_epoch(&self, work: &mut Work, end: Offset) -> Result<()> {
        let before = work.epochs.entries().to_vec();
        // An epoch whose records are lost was begun all the same: readers may know it, so its number is not given
        // to other records. One that began exactly here has no record yet and stays.
        let begun = work.epochs.latest().max(work.history.epoch);
        work.epochs.truncate_from_end(end.plus(1));
        work.epochs.truncate_from_start(work.log_start);
        let decides = self.config.commits == Commits::WhenStored;
        let next = match begun {
            None => Some(LeaderEpoch(0)),
            Some(LeaderEpoch(latest)) if decides && !work.recovery.clean => latest.checked_add(1).map(LeaderEpoch),
            Some(latest) if decides && work.epochs.latest().is_none() => Some(latest),
            Some(_) => None,
        };
        if let Some(epoch) = next {
            work.epochs.assign(epoch, end);
            work.recovery.epoch_begun = Some(epoch).filter(|_| !work.recovery.clean);
        }
        let is_noted = work.epochs.latest() >= begun || work.history.epoch >= begun;
        if !is_noted {
            work.history.epoch = begun;
            self.home.write_history(work.history)?;
        }
        if work.epochs.entries() == before { Ok(()) } else { self.home.write_epochs(work.epochs.entries()) }
    }

    fn finish(
        self,
        work: Work,
        found: &Checkpoints,
        from: (usize, u64),
        (end, synced, cleaned): (Offset, Offset, Option<Offset>),
    ) -> Result<Loaded> {
        let Work {
            mut segments,
            log_start,
            contiguous,
            epochs,
            history,
            mut producers,
            mut snapshots,
            mut aborted,
            recovery,
            ..
        } = work;
        let readers = readers_of(&segments);
        snapshots.tidy(self.home, &readers);
        if history.transactions && !recovery.clean {
            aborted.note(self.home, &readers);
        }
        let sealed = readers.iter().take(readers.len().saturating_sub(1));
        let unsynced = if synced < end { sealed.skip(from.0).cloned().collect() } else { Vec::new() };
        // What the last process had created or renamed: a clean end has synced it, and settling a synced partition.
        let directory_dirty = !recovery.clean && self.config.durability == Durability::Os;
        let active = segments.pop().ok_or(Error::Closed)?;
        let high_watermark = match self.config.commits {
            Commits::WhenStored => end,
            Commits::ByHost => self.committed.or(found.high_watermark).unwrap_or(log_start).clamp(log_start, end),
        };
        let last_stable = producers.last_stable(high_watermark).max(log_start);
        let view = View { segments: readers, log_start, epochs: epochs.entries().to_vec(), contiguous };
        let marks = Marks { end, high_watermark, last_stable };
        let epoch = epochs.latest().max(history.epoch).unwrap_or_default();
        trace::info(&self.home.directory, || format!("open from offset {log_start} to {end}: {recovery:?}"));
        Ok(Loaded {
            active,
            view,
            marks,
            epochs,
            epoch,
            history,
            producers,
            snapshots,
            aborted,
            synced,
            unsynced,
            directory_dirty,
            cleaned,
            recovery,
        })
    }
}

pub(super) fn readers_of(segments: &[Segment]) -> Vec<Arc<SegmentReader>> {
    segments.iter().map(|segment| Arc::clone(segment.reader())).collect()
}
