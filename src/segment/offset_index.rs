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

use super::files::Kind;
use super::index::{Index, IndexedEntry, absolute, relative};
use super::table::Entry;
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
pub struct OffsetIndex(pub(super) Index<Raw, 1>);

/// An entry as it lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw {
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

impl IndexedEntry for Raw {
    type Meaning = IndexEntry;
    const KIND: Kind = Kind::OffsetIndex;
    const NAME: &'static str = "offset index";
    const LEAST: Self = Self { offset: -1, position: -1 };

    fn rises(&self, last: &Self) -> bool {
        self.offset > last.offset && self.position > last.position
    }

    fn saying(entry: IndexEntry, base: Offset) -> Option<Self> {
        Some(Self { offset: relative(entry.offset, base)?, position: i32::try_from(entry.position).ok()? })
    }

    fn meaning(self, base: Offset) -> IndexEntry {
        IndexEntry { offset: absolute(self.offset, base), position: u64::from(self.position.cast_unsigned()) }
    }
}

impl OffsetIndex {
    /// An empty index in memory for a segment with this base.
    #[must_use]
    pub fn new(base: Offset) -> Self {
        Self(Index::new(base))
    }

    /// Reads an index file.
    ///
    /// # Errors
    /// [`Corruption::Form`] where the bytes are no whole entries, or where these do not rise (zero padding does not).
    pub fn from_bytes(base: Offset, bytes: &[u8]) -> Result<Self, Corruption> {
        Index::from_bytes(base, bytes).map(Self)
    }

    /// The index file's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }

    /// The greatest entry at or below `offset`; the segment's start where there is none, or where the index file
    /// cannot be read: an index only says where to begin looking.
    #[must_use]
    pub fn lookup(&self, offset: Offset) -> IndexEntry {
        let base = self.0.base();
        let found = self.0.last_where(|entry| absolute(entry.offset, base) <= offset);
        found.unwrap_or(IndexEntry { offset: base, position: 0 })
    }

    /// The first entry whose position lies behind `position`.
    pub(super) fn after(&self, position: u64) -> Option<IndexEntry> {
        self.entries().into_iter().find(|entry| entry.position > position)
    }

    /// The last entry whose position lies before `position`.
    pub(super) fn before(&self, position: u64) -> Option<IndexEntry> {
        self.0.last_where(|entry| u64::from(entry.position.cast_unsigned()) < position)
    }

    /// Its last entry.
    #[must_use]
    pub fn last(&self) -> Option<IndexEntry> {
        self.0.last()
    }

    /// Its first entry.
    #[must_use]
    pub fn first(&self) -> Option<IndexEntry> {
        self.0.first()
    }

    /// All entries, in order.
    #[must_use]
    pub fn entries(&self) -> Vec<IndexEntry> {
        self.0.entries()
    }

    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an entry. Says whether it was taken: it must lie behind the last one, and within 2^31 − 1 of the base.
    pub fn append(&mut self, entry: IndexEntry) -> bool {
        self.0.push(entry)
    }

    /// Drops the entries at and behind `offset`.
    pub fn truncate(&mut self, offset: Offset) {
        self.0 = self.0.truncated(|entry| entry.offset < offset);
    }
}
