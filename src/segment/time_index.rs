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

use super::files::Kind;
use super::index::{Index, IndexedEntry, absolute, relative};
use super::table::Entry;
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
pub struct TimeIndex(pub(super) Index<Raw, 2>);

/// An entry as it lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw {
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

impl IndexedEntry for Raw {
    type Meaning = TimeIndexEntry;
    const KIND: Kind = Kind::TimeIndex;
    const NAME: &'static str = "time index";
    const LEAST: Self = Self { timestamp: -1, offset: 0 };

    fn rises(&self, last: &Self) -> bool {
        self.timestamp > last.timestamp && self.offset >= last.offset
    }

    fn saying(entry: TimeIndexEntry, base: Offset) -> Option<Self> {
        Some(Self { timestamp: entry.timestamp.0, offset: relative(entry.offset, base)? })
    }

    fn meaning(self, base: Offset) -> TimeIndexEntry {
        TimeIndexEntry { timestamp: Timestamp(self.timestamp), offset: absolute(self.offset, base) }
    }
}

impl TimeIndex {
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

    /// The last entry whose timestamp is at or before `timestamp`; `None` where there is none, or where the index
    /// file cannot be read: then the search begins at the segment's start.
    #[must_use]
    pub fn lookup(&self, timestamp: Timestamp) -> Option<TimeIndexEntry> {
        self.0.last_where(|entry| entry.timestamp <= timestamp.0)
    }

    /// Its last entry.
    #[must_use]
    pub fn last(&self) -> Option<TimeIndexEntry> {
        self.0.last()
    }

    /// Its first entry.
    #[must_use]
    pub fn first(&self) -> Option<TimeIndexEntry> {
        self.0.first()
    }

    /// All entries, in order.
    #[must_use]
    pub fn entries(&self) -> Vec<TimeIndexEntry> {
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

    /// Adds an entry. Says whether it was taken: its timestamp must be later than the last entry's, its offset no
    /// less, and within 2^31 − 1 of the base.
    pub fn append(&mut self, entry: TimeIndexEntry) -> bool {
        self.0.push(entry)
    }

    /// Drops the entries at and behind `offset`.
    pub fn truncate(&mut self, offset: Offset) {
        self.0 = self.0.truncated(|entry| entry.offset < offset);
    }
}
