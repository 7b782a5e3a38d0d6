//! The transaction index, `<base>.txnindex`: the aborted transactions whose marker lies in the segment.
//!
//! ```text
//!  entry, 34 bytes, big-endian   0         2             10             18            26                34
//!                                | version | producer id | first offset | last offset | last stable offset |
//!  version             i16   0
//!  first offset        i64   of the transaction's first record in this partition
//!  last offset         i64   of its abort marker
//!  last stable offset  i64   after this abort
//! ```
//!
//! Last offsets rise. The file exists only where there was an abort. It is no hint: it can be rebuilt only by replaying
//! batches with the producers' state (FORMATS 10), so it is synced with the `.log`, and damage in it is an error. Kafka's
//! form has no checksum: a partition keeps one beside it (`partition/aborted.rs`), for what stands in it when a segment is
//! sealed, or closed.

use super::words::Words;
use crate::error::{Corruption, Error, Result};
use crate::types::{Offset, ProducerId};

/// The size of an entry in the file.
pub(super) const ENTRY_BYTES: usize = 34;

/// An aborted transaction that had records in the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose transaction it was.
    pub producer_id: ProducerId,
    /// The offset of its first record in this partition.
    pub first_offset: Offset,
    /// The offset of its abort marker. Where damage has taken that, of the next records of its producer, which are not its
    /// own, or of the next marker.
    pub last_offset: Offset,
    /// The last stable offset after the abort: the first offset of the next transaction that was still open, else the
    /// offset behind the marker.
    pub last_stable_offset: Offset,
}

impl AbortedTransaction {
    fn words(&self) -> [u64; 4] {
        [self.producer_id.0.cast_unsigned(), self.first_offset.0, self.last_offset.0, self.last_stable_offset.0]
    }

    fn from_words([producer_id, first, last, stable]: [u64; 4]) -> Self {
        Self {
            producer_id: ProducerId(producer_id.cast_signed()),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(stable),
        }
    }

    /// The CRC-32 (IEEE) of entries, as they lie in a file.
    pub(crate) fn checksum(entries: &[Self]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        for entry in entries {
            hasher.update(&entry.to_bytes());
        }
        hasher.finalize()
    }

    pub(super) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        for (field, word) in bytes[2..].chunks_exact_mut(8).zip(self.words()) {
            field.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// The aborted transactions of a segment, in the order of their markers (Kafka: `TransactionIndex`).
///
/// ```
/// use taffrail::{AbortedTransaction, Offset, ProducerId, TxnIndex};
/// let mut index = TxnIndex::new(Offset(1000));
/// let aborted = AbortedTransaction {
///     producer_id: ProducerId(1000),
///     first_offset: Offset(1001),
///     last_offset: Offset(1012),
///     last_stable_offset: Offset(1013),
/// };
/// assert!(index.append(aborted));
/// assert_eq!(index.overlapping(Offset(1005), Offset(1020)), [aborted]);
/// assert_eq!(index.overlapping(Offset(1013), Offset(1020)), []);
/// ```
#[derive(Debug)]
pub struct TxnIndex {
    base: Offset,
    entries: Words<4>,
}

impl TxnIndex {
    /// An empty index for a segment with this base.
    #[must_use]
    pub fn new(base: Offset) -> Self {
        Self { base, entries: Words::new() }
    }

    /// Reads an index file.
    ///
    /// # Errors
    /// [`Corruption::Form`] where the bytes are no whole entries of version 0, or where these do not rise.
    pub fn from_bytes(base: Offset, bytes: &[u8]) -> std::result::Result<Self, Corruption> {
        let wrong = |what: String| Err(Corruption::Form(what));
        if !bytes.len().is_multiple_of(ENTRY_BYTES) {
            return wrong(format!("{} bytes are no whole entries of a transaction index", bytes.len()));
        }
        let index = Self::new(base);
        for (number, entry) in bytes.chunks_exact(ENTRY_BYTES).enumerate() {
            let byte = |at: usize| entry.get(at).copied().unwrap_or(0);
            let version = i16::from_be_bytes([byte(0), byte(1)]);
            if version != 0 {
                return wrong(format!("entry {number} of the transaction index has version {version}, 0 is known"));
            }
            let word = |word: usize| u64::from_be_bytes(std::array::from_fn(|i| byte(2 + word * 8 + i)));
            if !index.push(AbortedTransaction::from_words(std::array::from_fn(word))) {
                return wrong(format!("entry {number} of the transaction index is out of order"));
            }
        }
        Ok(index)
    }

    /// The index file's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.entries().iter().flat_map(|entry| entry.to_bytes()).collect()
    }

    /// All entries, in order.
    #[must_use]
    pub fn entries(&self) -> Vec<AbortedTransaction> {
        (0..self.len()).filter_map(|i| self.get(i)).collect()
    }

    /// Its last entry.
    #[must_use]
    pub fn last(&self) -> Option<AbortedTransaction> {
        self.get(self.len().checked_sub(1)?)
    }

    /// How many entries it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The transactions with records or marker in `from..up_to`: what a reader of committed records must leave out.
    #[must_use]
    pub fn overlapping(&self, from: Offset, up_to: Offset) -> Vec<AbortedTransaction> {
        let mut found = Vec::new();
        for entry in (self.first_at(from)..self.len()).filter_map(|i| self.get(i)) {
            if entry.first_offset < up_to {
                found.push(entry);
            }
            if entry.last_stable_offset >= up_to {
                break;
            }
        }
        found
    }

    /// Adds an entry. Says whether it was taken: its marker must lie behind the last one's, at or behind the base, and
    /// not before its first record.
    pub fn append(&mut self, entry: AbortedTransaction) -> bool {
        self.push(entry)
    }

    /// [`TxnIndex::append`] for the one writer of an index that readers share.
    pub(super) fn push(&self, entry: AbortedTransaction) -> bool {
        let offsets = [entry.first_offset, entry.last_offset, entry.last_stable_offset];
        let rises = self.last().is_none_or(|last| last.last_offset < entry.last_offset);
        let fits = entry.last_offset >= self.base && entry.first_offset <= entry.last_offset;
        let taken = rises && fits && offsets.iter().all(|offset| *offset <= Offset::MAX);
        if taken {
            self.entries.push(entry.words());
        }
        taken
    }

    /// Drops the transactions whose marker lies at or behind `offset`.
    pub fn truncate(&mut self, offset: Offset) {
        *self = self.truncated(offset);
    }

    pub(super) fn truncated(&self, offset: Offset) -> Self {
        let next = Self::new(self.base);
        (0..self.first_at(offset)).filter_map(|i| self.entries.get(i)).for_each(|words| next.entries.push(words));
        next
    }

    /// The number of entries whose marker lies below `offset`.
    fn first_at(&self, offset: Offset) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.get(middle) {
                Some(entry) if entry.last_offset < offset => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    fn get(&self, index: usize) -> Option<AbortedTransaction> {
        self.entries.get(index).map(AbortedTransaction::from_words)
    }
}

/// What a caller hears whose entry does not fit.
pub(super) fn refused() -> Result<()> {
    Err(Error::InvalidRecord("the aborted transaction does not lie behind those that are indexed"))
}
