//! Which producer snapshots lie in a partition's directory, and what becomes of them (FORMATS 11).
//!
//! ```text
//!   written   at a roll, at the base of the new segment; at close, at the end; before the first batch of a producer, where
//!             records stand before it (it says that there was none); by recovery, where one is missing before the last
//!             segment
//!   read      the newest sound one at or below the offset that is asked for; what lies behind it is read in the log
//!   removed   above a new end; with the segment that begins there; those between, once there is a newer one
//! ```
//!
//! A snapshot is a hint: one that cannot be written, or is lost or damaged, costs a longer way through the log, and nothing
//! else. So none is synced for itself but at the roll of a synced partition. What one says is true only if everything below
//! its offset is as it was: an unclean open believes those alone that lie at or below where it begins to verify, which is
//! synced, and removes the others, durably before anything that is appended there counts as synced.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::home::{Home, base_of};
use super::producers::Producers;
use super::snapshot;
use super::{Inner, Writer};
use crate::error::{Error, Result};
use crate::segment::SegmentReader;
use crate::storage::{Entry, checkpoint};
use crate::trace;
use crate::types::Offset;

/// No file is read that is larger: 46 million producers.
const SNAPSHOT_BYTES_MAX: u64 = i32::MAX.unsigned_abs() as u64;

/// The snapshots that lie in the directory.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    offsets: BTreeSet<Offset>,
    /// Those that may not be synced.
    unsynced: BTreeSet<Offset>,
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

    /// Those that are to be synced before what they tell of counts as synced. They need not be again.
    pub(super) fn take_unsynced(&mut self) -> Vec<Offset> {
        std::mem::take(&mut self.unsynced).into_iter().collect()
    }

    /// The newest sound one at or below `end`, and its offset. Those that are damaged are removed on the way.
    pub(super) fn read_newest(&mut self, home: &Home, end: Offset) -> Result<Option<(Offset, Producers)>> {
        while let Some(offset) = self.offsets.range(..=end).next_back().copied() {
            let path = path_of(home, offset);
            let bytes = match checkpoint::read_all(&*home.storage, &path, SNAPSHOT_BYTES_MAX) {
                Err(Error::CorruptFile { reason, .. }) => Err(reason),
                other => Ok(other?),
            };
            match bytes.and_then(|bytes| bytes.map(|bytes| snapshot::parse(&bytes, offset)).transpose()) {
                Ok(Some(producers)) => return Ok(Some((offset, producers))),
                Ok(None) => {}
                Err(reason) => {
                    trace::warn(&path, || format!("a damaged producer snapshot is rebuilt from the log: {reason}"));
                    home.remove(&name_of(offset))?;
                }
            }
            self.forget(offset);
        }
        Ok(None)
    }

    /// Writes what is known of everything below `offset`, unless that is written already. What fails is traced.
    pub(super) fn write(&mut self, home: &Home, offset: Offset, producers: &Producers) {
        if self.newest().is_some_and(|newest| newest >= offset) {
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

    /// Removes those that are no segment's, but for the newest. What fails is tried again by the next call.
    pub(super) fn tidy(&mut self, home: &Home, segments: &[Arc<SegmentReader>]) {
        let newest = self.newest();
        let is_base = |offset: Offset| segments.binary_search_by_key(&offset, |segment| segment.base_offset()).is_ok();
        let gone: Vec<_> =
            self.offsets.iter().copied().filter(|offset| Some(*offset) != newest && !is_base(*offset)).collect();
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

/// Syncs a snapshot; one that is gone needs none.
pub(super) fn sync(home: &Home, offset: Offset) {
    let path = path_of(home, offset);
    let synced = home.storage.open(&path, 0).and_then(|file| file.sync());
    if let Err(error) = synced
        && error.kind() != io::ErrorKind::NotFound
    {
        trace::warn(&path, || format!("the producer snapshot is not synced: {error}"));
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

    /// Removes the snapshots that belong to no segment of the view, but for the newest.
    pub(super) fn tidy_snapshots(&self, writer: &mut Writer) {
        writer.snapshots.tidy(&self.home, &self.picture.view().segments);
    }
}
