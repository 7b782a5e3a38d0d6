//! What the offset index and the time index have in common: rising entries in a [`Table`], counted from the
//! segment's base.
//!
//! An entry lies in the file with its offset less the base; what it says is in offsets of the log. Invariant: each
//! entry rises over the one before, so that a search may halve. One that would not is refused, and a file whose
//! entries do not is not taken.

use std::io;
use std::sync::Arc;

use super::files::{Files, Kind};
use super::table::{Entry, Table};
use crate::error::Corruption;
use crate::trace;
use crate::types::Offset;

/// An entry of one kind of index.
pub(super) trait IndexedEntry: Entry {
    /// What it says.
    type Meaning;
    /// The file it lies in.
    const KIND: Kind;
    /// What a message calls the index.
    const NAME: &'static str;
    /// The first entry rises over this one.
    const LEAST: Self;
    /// Whether it may stand behind `last`.
    fn rises(&self, last: &Self) -> bool;
    /// The entry that says this; `None` where its fields cannot.
    fn saying(meaning: Self::Meaning, base: Offset) -> Option<Self>;
    fn meaning(self, base: Offset) -> Self::Meaning;
}

/// The entries, and the base that their offsets are counted from.
#[derive(Debug)]
pub(super) struct Index<E, const WORDS: usize> {
    base: Offset,
    table: Table<E, WORDS>,
}

impl<E: IndexedEntry, const WORDS: usize> Index<E, WORDS> {
    /// An empty index, in memory alone.
    pub(super) fn new(base: Offset) -> Self {
        Self { base, table: Table::new(None) }
    }

    /// An empty index that is written out to its file.
    pub(super) fn in_files(base: Offset, files: &Arc<Files>) -> Self {
        Self { base, table: Table::new(Some((Arc::clone(files), E::KIND))) }
    }

    /// Takes the file as it is; `None` where its form is wrong, or where it is missing.
    pub(super) fn load(base: Offset, files: &Arc<Files>) -> io::Result<Option<Self>> {
        let Some(file) = files.index(E::KIND)? else { return Ok(None) };
        let len = file.len()?;
        // Its length says nothing yet: a damaged one must not be allocated by.
        if len > files.entries_max()? * E::BYTES as u64 {
            return Ok(None);
        }
        let bytes = file.read(0..len)?;
        let Ok(entries) = check::<E>(&bytes) else { return Ok(None) };
        Ok(Some(Self { base, table: Table::of_file(files, E::KIND, entries.len()) }))
    }

    /// The index that a file's bytes hold, in memory alone.
    pub(super) fn from_bytes(base: Offset, bytes: &[u8]) -> Result<Self, Corruption> {
        let index = Self::new(base);
        check(bytes)?.for_each(|entry| index.table.push(entry));
        Ok(index)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.table.len() * E::BYTES);
        self.table.entries().iter().for_each(|entry| entry.write(&mut bytes));
        bytes
    }

    pub(super) fn base(&self) -> Offset {
        self.base
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The greatest entry for which `below` holds; `None` where there is none, or where the file cannot be read.
    pub(super) fn last_where(&self, below: impl Fn(&E) -> bool) -> Option<E::Meaning> {
        self.table.last_where(below).ok().flatten().map(|entry| entry.meaning(self.base))
    }

    pub(super) fn first(&self) -> Option<E::Meaning> {
        self.table.get(0).map(|entry| entry.meaning(self.base))
    }

    pub(super) fn last(&self) -> Option<E::Meaning> {
        self.table.last().map(|entry| entry.meaning(self.base))
    }

    pub(super) fn entries(&self) -> Vec<E::Meaning> {
        self.table.entries().into_iter().map(|entry| entry.meaning(self.base)).collect()
    }

    /// Adds an entry; one writer at a time. Says whether it was taken.
    pub(super) fn push(&self, meaning: E::Meaning) -> bool {
        let last = self.table.last().unwrap_or(E::LEAST);
        let entry = E::saying(meaning, self.base).filter(|entry| entry.rises(&last));
        entry.map(|entry| self.table.push(entry)).is_some()
    }

    /// The front part of the entries for which `keep` holds.
    pub(super) fn truncated(&self, keep: impl Fn(&E::Meaning) -> bool) -> Self {
        Self { base: self.base, table: self.table.truncated(self.entries().partition_point(keep)) }
    }

    /// Writes out what fills whole blocks.
    pub(super) fn write_blocks(&self) {
        self.table.write_blocks().unwrap_or_else(|error| self.stays_in_memory(&error));
    }

    /// Writes everything out; answers the same index with everything in the file, where that worked.
    pub(super) fn written(&self) -> Option<Self> {
        match self.table.write_all() {
            Ok(()) => Some(Self { base: self.base, table: self.table.forgotten()? }),
            Err(error) => {
                self.stays_in_memory(&error);
                None
            }
        }
    }

    /// An index that cannot be written out costs memory now and a rebuild later, nothing else.
    fn stays_in_memory(&self, error: &io::Error) {
        if let Some(path) = self.table.path() {
            trace::warn(&path, || format!("could not be written ({error}): it is rebuilt when it is next opened"));
        }
    }
}

/// An offset as an entry holds it: less the base.
pub(super) fn relative(offset: Offset, base: Offset) -> Option<i32> {
    offset.0.checked_sub(base.0).and_then(|distance| i32::try_from(distance).ok())
}

/// [`relative`], undone.
pub(super) fn absolute(relative: i32, base: Offset) -> Offset {
    base.plus(u64::from(relative.cast_unsigned()))
}

/// The entries of a file whose form is right.
fn check<E: IndexedEntry>(bytes: &[u8]) -> Result<impl ExactSizeIterator<Item = E>, Corruption> {
    let entries = || bytes.chunks_exact(E::BYTES).map(E::parse);
    if !bytes.len().is_multiple_of(E::BYTES) {
        return Err(Corruption::Form(format!("{} bytes are no whole entries of the {}", bytes.len(), E::NAME)));
    }
    let mut last = E::LEAST;
    for (number, entry) in entries().enumerate() {
        if !entry.rises(&last) {
            return Err(Corruption::Form(format!("entry {number} of the {} does not rise", E::NAME)));
        }
        last = entry;
    }
    Ok(entries())
}
