//! What the transaction index of each segment has: `aborted.taffrail`, version 2, a file of ours.
//!
//! ```text
//!   0  8  a segment's base, big-endian │ 8  4  how many entries its transaction index has at least
//!                                      │ 12 4  CRC-32 (IEEE) of these, as they lie in the index   │ the next segment
//! ```
//!
//! A transaction index that is missing looks like one that was never due, Kafka's form has no checksum, and records of
//! aborted transactions would be shown. The batches would tell, but an open does not read them all. So it is noted here at
//! each roll and at close; an open that finds less, or something else, reads the batches, and makes the indexes anew. It is a
//! hint, and is not synced: where it is missing, or of the version before, the indexes are taken as they are, as Kafka
//! takes them. It stands only where there was an abort.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::home::Home;
use super::{Inner, Writer};
use crate::error::{Error, Result};
use crate::segment::{AbortedTransaction, Segment, SegmentReader};
use crate::storage::checkpoint::{self, own};
use crate::trace;
use crate::types::Offset;

const NAME: &str = "aborted.taffrail";
const VERSION: u16 = 2;
const ENTRY_BYTES: usize = 16;
/// A million segments.
const BYTES_MAX: u64 = ENTRY_BYTES as u64 * 1_000_000;

/// What is noted, by the segment's base.
#[derive(Debug, Default)]
pub(super) struct Noted(BTreeMap<Offset, Note>);

/// What is noted of one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    count: u32,
    checksum: u32,
}

impl Note {
    fn of(entries: &[AbortedTransaction]) -> Self {
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        Self { count, checksum: AbortedTransaction::checksum(entries) }
    }
}

impl Noted {
    /// What was noted last; nothing where that is damaged.
    pub(super) fn read(home: &Home) -> Result<Self> {
        match checkpoint::read_own(&*home.storage, &home.path(NAME), VERSION, BYTES_MAX) {
            Ok(bytes) => Ok(Self::parse(&bytes.unwrap_or_default())),
            Err(Error::CorruptFile { path, reason }) => {
                trace::warn(&path, || format!("is ignored: {reason}"));
                Ok(Self::default())
            }
            // Counts alone, as they were noted before.
            Err(Error::UnsupportedVersion { found, .. }) if found < VERSION.into() => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    fn parse(bytes: &[u8]) -> Self {
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let entry = |[o0, o1, o2, o3, o4, o5, o6, o7, c0, c1, c2, c3, s0, s1, s2, s3]: &[u8; ENTRY_BYTES]| {
            let base = u64::from_be_bytes([*o0, *o1, *o2, *o3, *o4, *o5, *o6, *o7]);
            let count = u32::from_be_bytes([*c0, *c1, *c2, *c3]);
            (Offset(base), Note { count, checksum: u32::from_be_bytes([*s0, *s1, *s2, *s3]) })
        };
        Self(entries.iter().map(entry).collect())
    }

    fn render(&self) -> Vec<u8> {
        let entry = |(base, note): (&Offset, &Note)| {
            [&base.0.to_be_bytes()[..], &note.count.to_be_bytes(), &note.checksum.to_be_bytes()].concat()
        };
        self.0.iter().flat_map(entry).collect()
    }

    /// Whether the index of a segment has not what was noted of it, or cannot be read.
    pub(super) fn is_lacking(&self, reader: &SegmentReader) -> Result<bool> {
        match reader.aborted() {
            Ok(found) => Ok(self.0.get(&reader.base_offset()).is_some_and(|note| {
                let noted = found.get(..note.count as usize);
                noted.is_none_or(|noted| Note::of(noted) != *note)
            })),
            Err(Error::CorruptFile { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Forgets what was noted of segments that are to be compacted: the data of aborted transactions goes, and so do its
    /// entries. What fails is traced.
    pub(super) fn forget(&mut self, home: &Home, segments: &[Arc<SegmentReader>]) {
        let before = self.0.clone();
        for segment in segments {
            self.0.remove(&segment.base_offset());
        }
        self.write(home, before);
    }

    /// Notes what the indexes of segments have that compaction has made. What fails is traced.
    pub(super) fn note_made(&mut self, home: &Home, made: &[Segment]) {
        let before = self.0.clone();
        for reader in made.iter().map(Segment::reader) {
            if let Ok(found) = reader.aborted() {
                self.set(reader.base_offset(), &found);
            }
        }
        self.write(home, before);
    }

    /// What the index of one segment has; one that has nothing is not noted.
    fn set(&mut self, base: Offset, found: &[AbortedTransaction]) {
        if found.is_empty() {
            self.0.remove(&base);
        } else {
            self.0.insert(base, Note::of(found));
        }
    }

    /// Notes what the index of the last segment has now, and forgets segments that are gone. What fails is traced.
    pub(super) fn note(&mut self, home: &Home, segments: &[Arc<SegmentReader>]) {
        let Some(last) = segments.last() else { return };
        let Ok(found) = last.aborted() else { return };
        let before = self.0.clone();
        let is_there = |base: &Offset| segments.binary_search_by_key(base, |segment| segment.base_offset()).is_ok();
        self.0.retain(|base, _| is_there(base));
        self.set(last.base_offset(), &found);
        self.write(home, before);
    }

    /// Notes what the indexes have that were made anew. What fails is traced.
    pub(super) fn note_again(&mut self, home: &Home, segments: &[Arc<SegmentReader>]) {
        let before = self.0.clone();
        for segment in segments {
            if let (Some(note), Ok(found)) = (self.0.get_mut(&segment.base_offset()), segment.aborted()) {
                *note = Note::of(&found);
            }
        }
        self.write(home, before);
    }

    /// Writes what has changed since it was `before`, and is that again where it cannot be written.
    fn write(&mut self, home: &Home, before: BTreeMap<Offset, Note>) {
        if self.0 != before
            && let Err(error) = home.write_hint(NAME, &own::frame(VERSION, &self.render()))
        {
            trace::warn(&home.path(NAME), || format!("is left out: {error}"));
            self.0 = before;
        }
    }
}

impl Inner {
    /// Notes what the index of the active segment has.
    pub(super) fn note_aborted(&self, writer: &mut Writer) {
        if writer.history.transactions {
            writer.aborted.note(&self.home, &self.picture.view().segments);
        }
    }
}
