//! The rule by which batches earn index entries, and the pass that builds indexes by it.
//!
//! A batch whose position lies more than the interval behind that of the last entry (0 without one) gets an entry
//! in the offset index, and with it the greatest timestamp so far goes to the time index. A closed segment's time
//! index ends with its greatest timestamp (FORMATS 8 and 9). Appending, rebuilding and recovering all go by this one
//! rule, so that they make the same bytes.

use std::io;

use super::offset_index::{IndexEntry, OffsetIndex};
use super::rules::Rules;
use super::scan::{CHECK_CHUNK_BYTES, Cursor, HEADER_CHUNK_BYTES, resync};
use super::time_index::{TimeIndex, TimeIndexEntry};
use crate::record::batch::BatchHeader;
use crate::storage::StorageFile;

/// How far the indexes of a segment are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Indexer {
    pub(super) interval: u64,
    /// The position of the last entry of the offset index.
    pub(super) last_position: u64,
    /// The greatest timestamp so far, and the last offset of the earliest batch that has it.
    pub(super) max: Option<TimeIndexEntry>,
}

impl Indexer {
    pub(super) fn new(interval: u32) -> Self {
        Self { interval: interval.into(), last_position: 0, max: None }
    }

    /// Takes in a batch; true where it earned an entry.
    pub(super) fn batch(
        &mut self,
        position: u64,
        header: &BatchHeader,
        offsets: &OffsetIndex,
        times: &TimeIndex,
    ) -> bool {
        self.see(header);
        let due = position.saturating_sub(self.last_position) > self.interval;
        if due {
            offsets.0.push(IndexEntry { offset: header.last_offset(), position });
            self.finish(times);
            self.last_position = position;
        }
        due
    }

    /// Takes in a batch's timestamp only.
    pub(super) fn see(&mut self, header: &BatchHeader) {
        if let Some(timestamp) = header.max_timestamp()
            && self.max.is_none_or(|max| timestamp > max.timestamp)
        {
            self.max = Some(TimeIndexEntry { timestamp, offset: header.last_offset() });
        }
    }

    /// The final entry of the time index.
    pub(super) fn finish(&self, times: &TimeIndex) {
        if let Some(max) = self.max {
            times.0.push(max);
        }
    }
}

/// Builds both indexes from the headers of the log up to `end`; where these are not right, from its checked
/// batches, leaving out what is damaged.
pub(super) fn index_log(
    file: &dyn StorageFile,
    end: u64,
    interval: u32,
    rules: &Rules<'_>,
    offsets: &OffsetIndex,
    times: &TimeIndex,
) -> io::Result<bool> {
    let mut indexer = Indexer::new(interval);
    let mut cursor = Cursor::new(file, end, HEADER_CHUNK_BYTES);
    let (mut at, mut due) = (0, rules.begin());
    while at < end {
        let Ok(header) = cursor.header(at, rules, due)? else { return Ok(false) };
        indexer.batch(at, &header, offsets, times);
        at += header.size();
        due = rules.behind(&header);
    }
    indexer.finish(times);
    Ok(true)
}

/// [`index_log`] for a log that is damaged: every batch is checked.
pub(super) fn index_damaged_log(
    file: &dyn StorageFile,
    end: u64,
    interval: u32,
    rules: &Rules<'_>,
    offsets: &OffsetIndex,
    times: &TimeIndex,
) -> io::Result<()> {
    let mut indexer = Indexer::new(interval);
    let mut cursor = Cursor::new(file, end, CHECK_CHUNK_BYTES);
    let (mut at, mut due) = (0, rules.begin());
    while at < end {
        if let Ok(header) = cursor.settled(at, rules, due)? {
            indexer.batch(at, &header, offsets, times);
            at += header.size();
            due = rules.behind(&header);
        } else {
            due.exact = false;
            match resync(file, end, at, rules, due, |_| None)? {
                Some(next) => at = next,
                None => break,
            }
        }
    }
    indexer.finish(times);
    Ok(())
}
