//! The checkpoints of all partitions of a log: one file of each kind in the log's directory, one entry a partition.
//!
//! ```text
//!   <log>/recovery-point-offset-checkpoint     below it everything is synced
//!   <log>/log-start-offset-checkpoint          where each log starts
//!   <log>/replication-offset-checkpoint        the high watermarks
//!   <log>/cleaner-offset-checkpoint            up to where each was compacted
//! ```
//!
//! (FORMATS 12.) An entry is set, durably, by [`Books::write`], which rewrites the file, or noted by [`Books::note`] and
//! written with the next file, by [`Books::save`] at the latest. What is noted may be lost: a recovery point or high
//! watermark that is too low costs time and nothing else.
//!
//! Invariant: the file holds what the book held at one moment; the lock of a book is held while its file is written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::storage::Storage;
use crate::storage::checkpoint::OffsetCheckpoint;
use crate::sync::Mutex;
use crate::trace;
use crate::types::{Offset, TopicPartition};

/// What a checkpoint is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    RecoveryPoint,
    LogStart,
    HighWatermark,
    Cleaned,
}

impl Mark {
    pub(super) const ALL: [Self; 4] = [Self::RecoveryPoint, Self::LogStart, Self::HighWatermark, Self::Cleaned];

    /// Kafka's name of the file.
    pub(super) const fn file_name(self) -> &'static str {
        match self {
            Self::RecoveryPoint => "recovery-point-offset-checkpoint",
            Self::LogStart => "log-start-offset-checkpoint",
            Self::HighWatermark => "replication-offset-checkpoint",
            Self::Cleaned => "cleaner-offset-checkpoint",
        }
    }

    /// What its file at `path` says; `None` where there is none. A damaged file counts as absent, with a warning, as in
    /// Kafka; and so does one of another version that is about nothing but what is to be gone through once more.
    pub(super) fn read(self, storage: &dyn Storage, path: &Path) -> Result<Option<BTreeMap<TopicPartition, Offset>>> {
        match OffsetCheckpoint::read(storage, path) {
            Err(Error::CorruptFile { path, reason }) => {
                trace::warn(&path, || format!("a damaged checkpoint is ignored: {reason}"));
                Ok(None)
            }
            Err(error @ Error::UnsupportedVersion { .. }) if self == Self::Cleaned => {
                trace::warn(path, || format!("the checkpoint is ignored: {error}"));
                Ok(None)
            }
            other => other,
        }
    }
}

/// The checkpoint files of a log.
#[derive(Debug)]
pub(crate) struct Books {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    /// Whether the last process closed all partitions of the log.
    was_clean: bool,
    by_mark: [Mutex<Book>; 4],
    /// Partitions whose directories were begun in this process, and not finished.
    begun: Mutex<BTreeSet<TopicPartition>>,
}

#[derive(Debug, Default)]
struct Book {
    entries: BTreeMap<TopicPartition, Offset>,
    /// It differs from its file.
    is_dirty: bool,
}

impl Books {
    /// Reads the files; one that is missing has no entries, and one that is damaged neither, with a warning.
    pub(crate) fn open(storage: Arc<dyn Storage>, directory: &Path, was_clean: bool) -> Result<Self> {
        let [a, b, c, d] = Mark::ALL.map(|mark| read(&*storage, mark, &directory.join(mark.file_name())));
        let books = [a?, b?, c?, d?].map(|entries| Mutex::new(Book { entries, is_dirty: false }));
        Ok(Self { storage, directory: directory.to_owned(), was_clean, by_mark: books, begun: Mutex::default() })
    }

    /// Whether a partition that is found need not be recovered.
    pub(super) fn was_clean(&self, name: &TopicPartition) -> bool {
        self.was_clean && !self.is_begun(name)
    }

    /// Whether a partition's directory was begun and not finished.
    pub(super) fn is_begun(&self, name: &TopicPartition) -> bool {
        self.begun.lock().contains(name)
    }

    /// A partition's directory is begun. Whoever finds it unfinished later does not know which of its names are durable.
    pub(super) fn begin(&self, name: &TopicPartition) {
        self.begun.lock().insert(name.clone());
    }

    /// All names in it are durable.
    pub(super) fn finish(&self, name: &TopicPartition) {
        self.begun.lock().remove(name);
    }

    /// Whether any partition was begun and not finished.
    pub(crate) fn has_unfinished(&self) -> bool {
        !self.begun.lock().is_empty()
    }

    fn book(&self, mark: Mark) -> &Mutex<Book> {
        &self.by_mark[mark as usize]
    }

    /// A partition's entry.
    pub(super) fn entry(&self, mark: Mark, name: &TopicPartition) -> Option<Offset> {
        self.book(mark).lock().entries.get(name).copied()
    }

    /// Sets an entry, to be written with the next file.
    pub(super) fn note(&self, mark: Mark, name: &TopicPartition, offset: Offset) {
        let mut book = self.book(mark).lock();
        if book.entries.get(name) != Some(&offset) {
            book.entries.insert(name.clone(), offset);
            book.is_dirty = true;
        }
    }

    /// Sets an entry and writes the file. After an error the book has it, and the file may.
    pub(super) fn write(&self, mark: Mark, name: &TopicPartition, offset: Offset) -> Result<()> {
        let mut book = self.book(mark).lock();
        if book.entries.get(name) == Some(&offset) && !book.is_dirty {
            return Ok(());
        }
        book.entries.insert(name.clone(), offset);
        self.write_book(mark, &mut book)
    }

    /// Strikes a partition that was removed, to be written with the next file.
    pub(crate) fn forget(&self, name: &TopicPartition) {
        self.begun.lock().remove(name);
        for mark in Mark::ALL {
            let mut book = self.book(mark).lock();
            book.is_dirty |= book.entries.remove(name).is_some();
        }
    }

    /// Writes the files that differ from their books.
    pub(crate) fn save(&self) -> Result<()> {
        for mark in Mark::ALL {
            let mut book = self.book(mark).lock();
            if book.is_dirty {
                self.write_book(mark, &mut book)?;
            }
        }
        Ok(())
    }

    fn write_book(&self, mark: Mark, book: &mut Book) -> Result<()> {
        book.is_dirty = true;
        OffsetCheckpoint::write(&*self.storage, &self.directory.join(mark.file_name()), &book.entries)?;
        book.is_dirty = false;
        Ok(())
    }
}

fn read(storage: &dyn Storage, mark: Mark, path: &Path) -> Result<BTreeMap<TopicPartition, Offset>> {
    Ok(mark.read(storage, path)?.unwrap_or_default())
}
