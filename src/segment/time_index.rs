//! The time index, `<base>.timeindex`: how far the log must be read to have seen a timestamp.
//!
//! ```text
//!  entry, 12 bytes, big-endian   0           8        12
//!                                | timestamp | offset |
//!  timestamp  i64   the greatest timestamp of the segment up to and including the batch that ends at `offset`
//!  offset     i32   last offset of the earliest batch that carries it, less the segment's base
//! ```
//!
//! So every record with a later timestamp has a greater offset. Both fields rise; a timestamp that is no greater
//! than the last entry's is not entered. A closed segment's last entry holds its greatest timestamp. The file is a
//! hint like the offset index (FORMATS 9).

use std::io;
use std::sync::Arc;

use super::files::{Files, Kind};
use super::table::{Entry, Table};
use crate::error::Corruption;
use crate::types::{Offset, Timestamp};

/// What a time index says: up to the batch that ends at `offset`, no timestamp is later than `timestamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeIndexEntry {
    /// The greatest timestamp so far.
    pub timestamp: Timestamp,
    /// The last offset of the earliest batch that carries it.
    pub offset: Offset,
}

/// A sparse index from timestamps to offsets (Kafka: `TimeIndex`).
///
/// ```
/// use taffrail::{Offset, TimeIndex, TimeIndexEntry, Timestamp};
/// let mut index = TimeIndex::new(Offset(1000));
/// let entry = TimeIndexEntry { timestamp: Timestamp(50), offset: Offset(1010) };
/// assert!(index.append(entry));
/// assert!(!index.append(TimeIndexEntry { timestamp: Timestamp(50), offset: Offset(1015) }));
/// assert_eq!(index.lookup(Timestamp(60)), Some(entry));
/// assert_eq!(index.lookup(Timestamp(49)), None);
/// ```
#[derive(Debug)]
pub struct TimeIndex {
    base: Offset,
    table: Table<Raw, 2>,
}

/// An entry as it lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Raw {
    timestamp: i64,
    offset: i32,
}

impl Entry for Raw {
    const BYTES: usize = 12;

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
    }

    fn parse(bytes: &[u8]) -> Self {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        Self {
            timestamp: i64::from_be_bytes(std::array::from_fn(byte)),
            offset: i32::from_be_bytes(std::array::from_fn(|i| byte(8 + i))),
        }
    }

    fn to_words(self) -> [u64; 2] {
        [self.timestamp.cast_unsigned(), u64::from(self.offset.cast_unsigned())]
    }

    #[expect(clippy::cast_possible_truncation, reason = "the word was made from an i32")]
    fn from_words([timestamp, offset]: [u64; 2]) -> Self {
        Self { timestamp: timestamp.cast_signed(), offset: (offset as u32).cast_signed() }
    }
}

impl TimeIndex {
    /// An empty index in memory for a segment with this base.
    #[must_use]
    pub fn new(base: Offset) -> Self {
        Self { base, table: Table::new(None) }
    }

    pub(super) fn in_files(base: Offset, files: &Arc<Files>) -> Self {
        Self { base, table: Table::new(Some((Arc::clone(files), Kind::TimeIndex))) }
    }

    /// Takes the file as it is; `None` where its form is wrong, or where it is missing.
    pub(super) fn load(base: Offset, files: &Arc<Files>) -> io::Result<Option<Self>> {
        let Some(file) = files.index(Kind::TimeIndex)? else { return Ok(None) };
        let bytes = file.read(0..file.len()?)?;
        let Ok(entries) = check(&bytes) else { return Ok(None) };
        Ok(Some(Self { base, table: Table::of_file(files, Kind::TimeIndex, entries.len()) }))
    }

    /// Reads an index file.
    ///
    /// # Errors
    /// [`Corruption::Form`] where the bytes are no whole entries, or where these do not rise (zero padding does not).
    pub fn from_bytes(base: Offset, bytes: &[u8]) -> Result<Self, Corruption> {
        let index = Self::new(base);
        check(bytes)?.for_each(|entry| index.table.push(entry));
        Ok(index)
    }

    /// The index file's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len() * Raw::BYTES);
        self.table.entries().iter().for_each(|entry| entry.write(&mut bytes));
        bytes
    }

    /// The last entry whose timestamp is at or before `timestamp`; `None` where there is none, or where the index
    /// file cannot be read: then the search begins at the segment's start.
    #[must_use]
    pub fn lookup(&self, timestamp: Timestamp) -> Option<TimeIndexEntry> {
        let found = self.table.last_where(|entry| entry.timestamp <= timestamp.0).ok().flatten();
        found.map(|entry| self.entry(entry))
    }

    /// Its last entry.
    #[must_use]
    pub fn last(&self) -> Option<TimeIndexEntry> {
        self.table.last().map(|entry| self.entry(entry))
    }

    /// Its first entry.
    #[must_use]
    pub fn first(&self) -> Option<TimeIndexEntry> {
        self.table.get(0).map(|entry| self.entry(entry))
    }

    /// All entries, in order.
    #[must_use]
    pub fn entries(&self) -> Vec<TimeIndexEntry> {
        self.table.entries().into_iter().map(|entry| self.entry(entry)).collect()
    }

    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an entry. Says whether it was taken: its timestamp must be later than the last entry's, its offset no
    /// less, and within 2^31 − 1 of the base.
    pub fn append(&mut self, entry: TimeIndexEntry) -> bool {
        self.push(entry)
    }

    /// [`TimeIndex::append`] for the one writer of an index that readers share.
    pub(super) fn push(&self, entry: TimeIndexEntry) -> bool {
        let offset = entry.offset.0.checked_sub(self.base.0).and_then(|offset| i32::try_from(offset).ok());
        let Some(offset) = offset.filter(|_| entry.timestamp.0 >= 0) else { return false };
        if self.table.last().is_some_and(|last| last.timestamp >= entry.timestamp.0 || last.offset > offset) {
            return false;
        }
        self.table.push(Raw { timestamp: entry.timestamp.0, offset });
        true
    }

    /// Drops the entries at and behind `offset`.
    pub fn truncate(&mut self, offset: Offset) {
        *self = self.truncated(offset);
    }

    /// The entries below `offset`.
    pub(super) fn truncated(&self, offset: Offset) -> Self {
        let count = self.entries().partition_point(|entry| entry.offset < offset);
        Self { base: self.base, table: self.table.truncated(count) }
    }

    pub(super) fn table(&self) -> &Table<impl Entry, 2> {
        &self.table
    }

    /// The same index with everything in the file, where it has been written out.
    pub(super) fn forgotten(&self) -> Option<Self> {
        Some(Self { base: self.base, table: self.table.forgotten()? })
    }

    fn entry(&self, entry: Raw) -> TimeIndexEntry {
        TimeIndexEntry {
            timestamp: Timestamp(entry.timestamp),
            offset: self.base.plus(u64::from(entry.offset.cast_unsigned())),
        }
    }
}

/// The entries of a file whose form is right.
fn check(bytes: &[u8]) -> Result<impl ExactSizeIterator<Item = Raw> + '_, Corruption> {
    let entries = || bytes.chunks_exact(Raw::BYTES).map(Raw::parse);
    if !bytes.len().is_multiple_of(Raw::BYTES) {
        return Err(Corruption::Form(format!("{} bytes are no whole entries of a time index", bytes.len())));
    }
    let mut last = Raw { timestamp: -1, offset: 0 };
    for (number, entry) in entries().enumerate() {
        if entry.timestamp <= last.timestamp || entry.offset < last.offset {
            return Err(Corruption::Form(format!("entry {number} of the time index does not rise")));
        }
        last = entry;
    }
    Ok(entries())
}
