//! Which producer snapshots lie in a partition's directory, and what becomes of them (FORMATS 11).
//!
//! ```text
//!   written   at a roll, at the base of the new segment; at close, at the end; before the first batch of a producer, where
//!             records stand before it (it says that there was none); by recovery, where one is missing before the last
//!             segment; where the log is to begin, if it is missing there
//!   read      the newest sound one at or below the offset that is asked for; what lies behind it is read in the log
//!   changed   before the marker of a transaction goes that it says to be open: it is not, and nothing else would tell
//!   removed   above a new end; with the segment that begins there; those between, once a newer one is synced
//! ```
//!
//! A snapshot is a hint: one that cannot be written, or is lost or damaged, costs a longer way through the log, and nothing
//! else. So one is synced with the sealed segments, at close, and before segments go whose batches it tells of. What one
//! says is true only if everything below its offset is as it was: an unclean open believes those alone that lie at or below where it begins to verify, which is
//! synced, and removes the others, durably before anything that is appended there counts as synced.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::home::{Home, base_of};
use super::producers::{Producer, Producers};
use super::snapshot;
use super::verify::rebuild_producers;
use super::{Inner, Writer};
use crate::error::{Error, Result};
use crate::segment::SegmentReader;
use crate::storage::{Entry, checkpoint};
use crate::trace;
use crate::types::{Offset, ProducerId};

/// No file is read that is larger: 46 million producers.
const SNAPSHOT_BYTES_MAX: u64 = i32::MAX.unsigned_abs() as u64;

/// The snapshots that lie in the directory.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    offsets: BTreeSet<Offset>,
    /// Those that may not be synced.
    unsynced: BTreeSet<Offset>,
}

/// The marker of a transaction that compaction takes away, because nothing else of the transaction is left.
#[derive(Clone, Copy, Debug)]
pub(super) struct GoneMarker {
    pub(super) producer: ProducerId,
    /// The last marker of the producer before it that is there.
    pub(super) after: Option<Offset>,
    pub(super) offset: Offset,
}

impl GoneMarker {
    /// Whether it ends what a snapshot at `offset` says to be open.
    fn ends_from(&self, offset: Offset) -> bool {
        self.after.is_none_or(|after| after < offset) && offset <= self.offset
    }
}

impl Snapshots {
    /// Those among the files of a directory.
    pub(super) fn among(entries: &[Entry]) -> Self {
        let files = entries.iter().filter(|entry| !entry.is_directory);
        let offsets = files.filter_map(|entry| base_of(&entry.name, ".snapshot")).collect();
        Self { offsets, unsynced: BTreeSet::new() }
    }

    pub(super) fn newest(&self) -> Option<Offset> {
        self.offsets.last().copied()
    }

    /// Those that may not be synced.
    pub(super) fn unsynced(&self) -> Vec<Offset> {
        self.unsynced.iter().copied().collect()
    }

    /// These are synced now.
    pub(super) fn synced(&mut self, offsets: &[Offset]) {
        self.unsynced.retain(|offset| !offsets.contains(offset));
    }

    /// The newest sound one at or below `end`, and its offset. Those that are damaged are removed on the way.
    pub(super) fn read_newest(&mut self, home: &Home, end: Offset) -> Result<Option<(Offset, Producers)>> {
        while let Some(offset) = self.offsets.range(..=end).next_back().copied() {
            if let Some(producers) = self.read(home, offset)? {
                return Ok(Some((offset, producers)));
            }
        }
        Ok(None)
    }

    /// What one of them says; `None` where it is missing or damaged: then it is none of them any more.
    fn read(&mut self, home: &Home, offset: Offset) -> Result<Option<Producers>> {
        let path = path_of(home, offset);
        let bytes = match checkpoint::read_all(&*home.storage, &path, SNAPSHOT_BYTES_MAX) {
            Err(Error::CorruptFile { reason, .. }) => Err(reason),
            other => Ok(other?),
        };
        match bytes.and_then(|bytes| bytes.map(|bytes| snapshot::parse(&bytes, offset)).transpose()) {
            Ok(Some(producers)) => return Ok(Some(producers)),
            Ok(None) => {}
            Err(reason) => {
                trace::warn(&path, || format!("a damaged producer snapshot is rebuilt from the log: {reason}"));
                home.remove(&name_of(offset))?;
            }
        }
        self.forget(offset);
        Ok(None)
    }

    /// Before markers go: those that lie before one of them, and say that its transaction is open, say from now on that it
    /// is not, durably. Nothing of it is left in the log by then but the marker.
    pub(super) fn close_transactions(&mut self, home: &Home, gone: &[GoneMarker]) -> Result<()> {
        let Some(last) = gone.iter().map(|marker| marker.offset).max() else { return Ok(()) };
        let offsets: Vec<_> = self.offsets.range(..=last).copied().collect();
        let mut changed = false;
        for offset in offsets {
            let ended: BTreeSet<_> =
                gone.iter().filter(|marker| marker.ends_from(offset)).map(|marker| marker.producer).collect();
            if ended.is_empty() {
                continue;
            }
            let Some(told) = self.read(home, offset)? else { continue };
            let is_over = |id: ProducerId, one: &Producer| one.transaction.is_some() && ended.contains(&id);
            if !told.iter().any(|(id, one)| is_over(id, one)) {
                continue;
            }
            let mut producers = Producers::default();
            for (id, one) in told.iter() {
                let transaction = one.transaction.filter(|_| !is_over(id, one));
                producers.restore(id, Producer { transaction, ..one.clone() });
            }
            checkpoint::replace(&*home.storage, &path_of(home, offset), &snapshot::render(&producers))?;
            self.unsynced.remove(&offset);
            changed = true;
        }
        if changed { home.sync_directory() } else { Ok(()) }
    }

    /// Writes what is known of everything below `offset`, unless that is written already. What fails is traced.
    pub(super) fn write(&mut self, home: &Home, offset: Offset, producers: &Producers) {
        if self.offsets.contains(&offset) {
            return;
        }
        match home.write_hint(&name_of(offset), &snapshot::render(producers)) {
            Ok(()) => {
                self.offsets.insert(offset);
                self.unsynced.insert(offset);
            }
            Err(error) => trace::warn(&path_of(home, offset), || format!("the snapshot is left out: {error}")),
        }
    }

    /// Removes those above `end`: they say nothing of what will stand there.
    pub(super) fn remove_above(&mut self, home: &Home, end: Offset) -> Result<()> {
        while let Some(offset) = self.newest().filter(|offset| *offset > end) {
            home.remove(&name_of(offset))?;
            self.forget(offset);
        }
        Ok(())
    }

    /// Removes those that are no segment's, but for the newest, and the newest that is synced: a loss of power takes the
    /// other. What fails is tried again by the next call.
    pub(super) fn tidy(&mut self, home: &Home, segments: &[Arc<SegmentReader>]) {
        let newest = self.newest();
        let durable = self.offsets.iter().copied().rfind(|offset| !self.unsynced.contains(offset));
        let is_base = |offset: Offset| segments.binary_search_by_key(&offset, |segment| segment.base_offset()).is_ok();
        let is_kept = |offset: Offset| [newest, durable].contains(&Some(offset)) || is_base(offset);
        let gone: Vec<_> = self.offsets.iter().copied().filter(|offset| !is_kept(*offset)).collect();
        for offset in gone {
            self.remove(home, offset);
        }
    }

    fn remove(&mut self, home: &Home, offset: Offset) {
        match home.remove(&name_of(offset)) {
            Ok(()) => self.forget(offset),
            Err(error) => trace::warn(&path_of(home, offset), || format!("the producer snapshot stays: {error}")),
        }
    }

    fn forget(&mut self, offset: Offset) {
        self.offsets.remove(&offset);
        self.unsynced.remove(&offset);
    }
}

/// Syncs a snapshot; `false` where there is none. One that cannot be synced is removed: no later sync would cover it.
pub(super) fn sync(home: &Home, offset: Offset) -> Result<bool> {
    let path = path_of(home, offset);
    match home.storage.open(&path, 0).and_then(|file| file.sync()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => {
            home.remove(&name_of(offset))?;
            Err(Error::io("sync", path, error))
        }
    }
}

pub(super) fn name_of(offset: Offset) -> String {
    format!("{:020}.snapshot", offset.0)
}

fn path_of(home: &Home, offset: Offset) -> PathBuf {
    home.path(&name_of(offset))
}

impl Inner {
    /// Writes a snapshot at `offset`, the end, where there ever was a producer; removes what is not needed any more.
    pub(super) fn write_snapshot(&self, writer: &mut Writer, offset: Offset) {
        if writer.history.producers {
            writer.snapshots.write(&self.home, offset, &self.producers.lock());
            self.tidy_snapshots(writer);
            self.note_aborted(writer);
        }
    }

    /// Before the first batch of a producer is appended: none of the records that are there has one.
    pub(super) fn write_first_snapshot(&self, writer: &mut Writer) {
        let end = self.picture.end();
        if self.picture.view().log_start < end {
            writer.snapshots.write(&self.home, end, &Producers::default());
        }
    }

    /// Sees to it that what is known of producers does not go with the segments that tell of it: where the log begins then,
    /// there is a snapshot.
    pub(super) fn keep_producers(&self, writer: &mut Writer, start: Offset) -> Result<()> {
        if !writer.history.producers {
            return Ok(());
        }
        self.settle_history(writer)?;
        // One that is there may be of another process, which has not synced it.
        if !writer.snapshots.offsets.contains(&start) || !sync(&self.home, start)? {
            writer.snapshots.forget(start);
            let (view, now) = (self.picture.view(), self.clock.wall());
            let then = rebuild_producers(&self.home, &mut writer.snapshots, &view.segments, start, now)?;
            writer.snapshots.write(&self.home, start, &then);
            sync(&self.home, start)?;
        }
        self.home.sync_directory()?;
        writer.snapshots.synced(&[start]);
        Ok(())
    }

    /// Makes durable what is known of producers.
    pub(super) fn settle_producers(&self, writer: &mut Writer) -> Result<()> {
        self.settle_history(writer)?;
        let unsynced = writer.snapshots.unsynced();
        if unsynced.is_empty() {
            return Ok(());
        }
        for offset in &unsynced {
            sync(&self.home, *offset)?;
        }
        self.home.sync_directory()?;
        writer.snapshots.synced(&unsynced);
        Ok(())
    }

    /// Removes the snapshots that belong to no segment of the view, but for the newest.
    pub(super) fn tidy_snapshots(&self, writer: &mut Writer) {
        writer.snapshots.tidy(&self.home, &self.picture.view().segments);
    }
}
