//! The offset index, `<base>.index`: from an offset to the byte position where its batch is looked for.
//!
//! ```text
//!  entry, 8 bytes, big-endian   0        4         8
//!                               | offset | position |
//!  offset    i32   last offset of the batch at `position`, less the segment's base
//!  position  i32   first byte of that batch in the `.log`
//! ```
//!
//! Entries rise in both. The file has no header, no checksum and no padding: it is a hint, checked where it is used
//! and rebuilt from the `.log` where it is wrong (FORMATS 8). An entry of Kafka can stand for several batches that
//! were appended at once; its offset is then the last of the last batch.

use std::io;
use std::sync::Arc;

use super::files::{Files, Kind};
use super::table::{Entry, Table};
use crate::error::Corruption;
use crate::types::Offset;

/// What an offset index says: the batch that ends at `offset` begins at `position`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The last offset of the batch, or of the batches that were appended at once.
    pub offset: Offset,
    /// The byte position of its first byte in the `.log`.
    pub position: u64,
}

/// A sparse index from offsets to byte positions (Kafka: `OffsetIndex`).
///
/// ```
/// use taffrail::{IndexEntry, Offset, OffsetIndex};
/// let mut index = OffsetIndex::new(Offset(1000));
/// assert!(index.append(IndexEntry { offset: Offset(1010), position: 4200 }));
/// assert_eq!(index.lookup(Offset(1015)).position, 4200);
/// assert_eq!(index.lookup(Offset(1009)), IndexEntry { offset: Offset(1000), position: 0 });
/// ```
#[derive(Debug)]
pub struct OffsetIndex {
    base: Offset,
    table: Table<Raw, 1>,
}

/// An entry as it lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Raw {
    offset: i32,
    position: i32,
}

impl Entry for Raw {
    const BYTES: usize = 8;

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn parse(bytes: &[u8]) -> Self {
        let field = |at: usize| i32::from_be_bytes(std::array::from_fn(|i| bytes.get(at + i).copied().unwrap_or(0)));
        Self { offset: field(0), position: field(4) }
    }

    fn to_words(self) -> [u64; 2] {
        [u64::from(self.offset.cast_unsigned()) << 32 | u64::from(self.position.cast_unsigned()), 0]
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the word are taken apart")]
    fn from_words([word, _]: [u64; 2]) -> Self {
        Self { offset: ((word >> 32) as u32).cast_signed(), position: (word as u32).cast_signed() }
    }
}

impl OffsetIndex {
    /// An empty index in memory for a segment with this base.
    #[must_use]
    pub fn new(base: Offset) -> Self {
        Self { base, table: Table::new(None) }
    }

    pub(super) fn in_files(base: Offset, files: &Arc<Files>) -> Self {
        Self { base, table: Table::new(Some((Arc::clone(files), Kind::OffsetIndex))) }
    }

    /// Takes the file as it is; `None` where its form is wrong, or where it is missing.
    pub(super) fn load(base: Offset, files: &Arc<Files>) -> io::Result<Option<Self>> {
        let Some(file) = files.index(Kind::OffsetIndex)? else { return Ok(None) };
        let bytes = file.read(0..file.len()?)?;
        let Ok(entries) = check(&bytes) else { return Ok(None) };
        Ok(Some(Self { base, table: Table::of_file(files, Kind::OffsetIndex, entries.len()) }))
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

    /// The greatest entry at or below `offset`; the segment's start where there is none, or where the index file
    /// cannot be read: an index only says where to begin looking.
    #[must_use]
    pub fn lookup(&self, offset: Offset) -> IndexEntry {
        let found = self.table.last_where(|entry| self.offset(*entry) <= offset).ok().flatten();
        found.map_or(IndexEntry { offset: self.base, position: 0 }, |entry| self.entry(entry))
    }

    /// The first entry whose position lies behind `position`.
    pub(super) fn after(&self, position: u64) -> Option<IndexEntry> {
        self.entries().into_iter().find(|entry| entry.position > position)
    }

    /// The last entry whose position lies before `position`.
    pub(super) fn before(&self, position: u64) -> Option<IndexEntry> {
        let found = self.table.last_where(|entry| u64::from(entry.position.cast_unsigned()) < position);
        found.ok().flatten().map(|entry| self.entry(entry))
    }

    /// Its last entry.
    #[must_use]
    pub fn last(&self) -> Option<IndexEntry> {
        self.table.last().map(|entry| self.entry(entry))
    }

    /// Its first entry.
    #[must_use]
    pub fn first(&self) -> Option<IndexEntry> {
        self.table.get(0).map(|entry| self.entry(entry))
    }

    /// All entries, in order.
    #[must_use]
    pub fn entries(&self) -> Vec<IndexEntry> {
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

    /// Adds an entry. Says whether it was taken: it must lie behind the last one, and within 2^31 − 1 of the base.
    pub fn append(&mut self, entry: IndexEntry) -> bool {
        self.push(entry)
    }

    /// [`OffsetIndex::append`] for the one writer of an index that readers share.
    pub(super) fn push(&self, entry: IndexEntry) -> bool {
        let offset = entry.offset.0.checked_sub(self.base.0).and_then(|offset| i32::try_from(offset).ok());
        let (Some(offset), Ok(position)) = (offset, i32::try_from(entry.position)) else { return false };
        if self.table.last().is_some_and(|last| last.offset >= offset || last.position >= position) {
            return false;
        }
        self.table.push(Raw { offset, position });
        true
    }

    /// Drops the entries at and behind `offset`.
    pub fn truncate(&mut self, offset: Offset) {
        *self = self.truncated(|entry| entry.offset < offset);
    }

    /// The front part of the entries for which `keep` holds.
    pub(super) fn truncated(&self, keep: impl Fn(&IndexEntry) -> bool) -> Self {
        Self { base: self.base, table: self.table.truncated(self.entries().partition_point(keep)) }
    }

    pub(super) fn table(&self) -> &Table<impl Entry, 1> {
        &self.table
    }

    /// The same index with everything in the file, where it has been written out.
    pub(super) fn forgotten(&self) -> Option<Self> {
        Some(Self { base: self.base, table: self.table.forgotten()? })
    }

    fn offset(&self, entry: Raw) -> Offset {
        self.base.plus(u64::from(entry.offset.cast_unsigned()))
    }

    fn entry(&self, entry: Raw) -> IndexEntry {
        IndexEntry { offset: self.offset(entry), position: u64::from(entry.position.cast_unsigned()) }
    }
}

/// The entries of a file whose form is right.
fn check(bytes: &[u8]) -> Result<impl ExactSizeIterator<Item = Raw> + '_, Corruption> {
    let entries = || bytes.chunks_exact(Raw::BYTES).map(Raw::parse);
    if !bytes.len().is_multiple_of(Raw::BYTES) {
        return Err(Corruption::Form(format!("{} bytes are no whole entries of an offset index", bytes.len())));
    }
    let mut last = Raw { offset: -1, position: -1 };
    for (number, entry) in entries().enumerate() {
        if entry.offset <= last.offset || entry.position <= last.position {
            return Err(Corruption::Form(format!("entry {number} of the offset index does not rise")));
        }
        last = entry;
    }
    Ok(entries())
}
