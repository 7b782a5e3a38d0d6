//! Cleaned segments take the place of those that they were made of (FORMATS 14).
//!
//! ```text
//!   1  new  .cleaned → .swap       those behind the first; once they are durable the first
//!          ── from here on an open finishes it ──
//!   2  old  → .<n>.deleted         durable before the next step
//!   3  new  .swap → its name       each .log; once they are durable the indexes
//!   4  the view with the new segments is published; snapshots of bases that are no more go
//! ```
//!
//! Names that are not synced may change in any order in a loss of power, which is why there is a sync between any two of
//! these that must not change places; there are five in all, however many segments there are, for whoever appends waits
//! for them. While any file of the first segment is called `.cleaned` the others count for nothing. In the third step some
//! `.log` have their names and others have not: an open tells those that have by their indexes, which are called `.swap`
//! until every `.log` has its name (where one has no index, the names are given the lowest first, each durable). Before the first step what earlier attempts have left is removed: a `.cleaned` of a
//! lower base would have an open take the `.swap` files for incomplete.
//!
//! What fails in the first step is undone; what fails behind it poisons the partition, whose reopen finishes it. Readers
//! hold what they hold: the files of the old segments live until the last of them lets go.

use std::sync::Arc;

use super::super::home::{History, base_in};
use super::super::{Inner, Writer};
use crate::error::{Error, Result};
use crate::segment::{Segment, SegmentReader};

impl Inner {
    /// Puts `new` in the place of `old`, which follow each other in the view. Under the writer's lock.
    pub(super) fn swap(&self, writer: &mut Writer, old: &[Arc<SegmentReader>], new: &[Segment]) -> Result<()> {
        self.note(writer, History { gaps: true, ..writer.history })?;
        // What was noted of their aborted transactions is true of the old ones only.
        writer.aborted.forget(&self.home, old);
        self.remove_unfinished(new)?;
        if let Err(error) = self.declare(new) {
            return Err(self.take_back(new, error));
        }
        self.replace(writer, old, new).map_err(|error| self.poison(error))?;
        self.publish_swapped(old, new);
        writer.aborted.note_made(&self.home, new);
        writer.unsynced.retain(|segment| !old.iter().any(|gone| Arc::ptr_eq(segment, gone)));
        writer.directory_dirty = false;
        self.tidy_snapshots(writer);
        Ok(())
    }

    /// Removes what is called `.cleaned` or `.swap` and is none of `new`.
    fn remove_unfinished(&self, new: &[Segment]) -> Result<()> {
        for entry in self.home.list()? {
            let cleaned = entry.name.strip_suffix(".cleaned");
            let base = cleaned.or_else(|| entry.name.strip_suffix(".swap")).and_then(base_in);
            let is_of_new = base.is_some_and(|base| new.iter().any(|segment| segment.base_offset() == base));
            if base.is_some() && !(is_of_new && cleaned.is_some()) {
                self.home.remove(&entry.name)?;
            }
        }
        Ok(())
    }

    /// Step 1.
    fn declare(&self, new: &[Segment]) -> Result<()> {
        let Some((first, others)) = new.split_first() else { return Ok(()) };
        if !others.is_empty() {
            others.iter().rev().try_for_each(Segment::to_swap)?;
            self.home.sync_directory()?;
        }
        first.to_swap()?;
        self.home.sync_directory()
    }

    /// Undoes step 1. First the set is made incomplete again, so that no part of it is ever taken for the whole.
    fn take_back(&self, new: &[Segment], error: Error) -> Error {
        let undo = || -> Result<()> {
            new.first().map_or(Ok(()), Segment::back_to_cleaned)?;
            self.home.sync_directory()?;
            for entry in self.home.list()? {
                if entry.name.strip_suffix(".swap").and_then(base_in).is_some() {
                    self.home.remove(&entry.name)?;
                }
            }
            self.home.sync_directory()
        };
        match undo() {
            Ok(()) => error,
            Err(_) => self.poison(error),
        }
    }

    /// Steps 2 and 3.
    fn replace(&self, writer: &mut Writer, old: &[Arc<SegmentReader>], new: &[Segment]) -> Result<()> {
        self.retire_all(writer, old)?;
        self.home.sync_directory()?;
        let at_once = self.can_be_told(new)?;
        for segment in new {
            segment.install_log()?;
            if !at_once {
                self.home.sync_directory()?;
            }
        }
        self.home.sync_directory()?;
        new.iter().try_for_each(Segment::install_indexes)?;
        self.home.sync_directory()
    }

    /// Whether an open would tell which of the new segments have their names: each has the file of an index. It may have
    /// none where nothing was to be indexed, or could be; then the names are given one after the other.
    fn can_be_told(&self, new: &[Segment]) -> Result<bool> {
        let names: Vec<_> = self.home.list()?.into_iter().map(|entry| entry.name).collect();
        let has_index = |segment: &Segment| {
            let of_base = |kind: &str| format!("{:020}.{kind}.swap", segment.base_offset().0);
            [of_base("index"), of_base("timeindex")].iter().any(|name| names.contains(name))
        };
        Ok(new.len() < 2 || new.iter().all(has_index))
    }

    fn publish_swapped(&self, old: &[Arc<SegmentReader>], new: &[Segment]) {
        let is_old = |segment: &Arc<SegmentReader>| old.iter().any(|gone| Arc::ptr_eq(segment, gone));
        self.picture.publish(self.next_view(|view| {
            let at = view.segments.iter().position(is_old).unwrap_or_default();
            view.segments.retain(|segment| !is_old(segment));
            view.segments.splice(at..at, new.iter().map(|segment| Arc::clone(segment.reader())));
        }));
    }
}
