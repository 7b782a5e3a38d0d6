//! Whether an index file that was found belongs to the log beside it.
//!
//! Its form has been checked already: whole entries, rising. Here its ends are compared with the log's headers:
//! the first and the last entry must lead to the start of a batch with the last offset that they say (of Kafka's
//! appends of several batches at once: to one from which headers lead to it), and no batch behind the last entry
//! may have earned another one. Where the log itself cannot be followed, nothing is held against the index. Every
//! later use of an entry is checked again, where it is used.

use std::io;

use super::offset_index::{IndexEntry, OffsetIndex};
use super::reader::SegmentReader;
use super::rules::Rules;
use super::time_index::{TimeIndex, TimeIndexEntry};
use crate::types::{Offset, Timestamp};

/// Whether the offset index fits the log.
pub(super) fn offsets_agree(reader: &SegmentReader, index: &OffsetIndex) -> io::Result<bool> {
    let (first, last) = (index.first(), index.last());
    if index.is_empty() != first.is_none() || first.is_some() != last.is_some() {
        return Ok(false);
    }
    for entry in first.into_iter().chain(last) {
        if !entry_agrees(reader, entry)? {
            return Ok(false);
        }
    }
    Ok(!more_is_due(reader, last.map_or(0, |entry| entry.position))?)
}

/// Whether a batch begins where the entry says, from which headers lead to the batch that ends at its offset.
fn entry_agrees(reader: &SegmentReader, entry: IndexEntry) -> io::Result<bool> {
    let (size, rules) = (reader.size(), Rules::bare(reader.base));
    let mut cursor = reader.headers(size);
    let (mut at, mut due) = (entry.position, rules.anywhere());
    while at < size {
        let Ok(header) = cursor.header(at, &rules, due)? else { return Ok(false) };
        if header.last_offset() >= entry.offset {
            return Ok(header.last_offset() == entry.offset);
        }
        at += header.size();
        due = rules.behind(&header);
    }
    Ok(false)
}

/// Whether a batch behind the last entry, at `position`, lies far enough from it for an entry of its own.
fn more_is_due(reader: &SegmentReader, position: u64) -> io::Result<bool> {
    let (size, rules) = (reader.size(), Rules::bare(reader.base));
    let mut cursor = reader.headers(size);
    let (mut at, mut due) = (position, rules.anywhere());
    while at < size {
        let Ok(header) = cursor.header(at, &rules, due)? else { return Ok(false) };
        if at - position > reader.config.index_interval_bytes.into() {
            return Ok(true);
        }
        at += header.size();
        due = rules.behind(&header);
    }
    Ok(false)
}

/// Whether the time index fits the log: its ends, and no later timestamp behind its last entry.
pub(super) fn times_agree(reader: &SegmentReader, index: &TimeIndex, offsets: &OffsetIndex) -> io::Result<bool> {
    let (first, last) = (index.first(), index.last());
    if index.is_empty() != first.is_none() || first.is_some() != last.is_some() {
        return Ok(false);
    }
    if let Some(first) = first
        && !time_agrees(reader, first, offsets, false)?
    {
        return Ok(false);
    }
    let none = TimeIndexEntry { timestamp: Timestamp(-1), offset: reader.base };
    time_agrees(reader, last.unwrap_or(none), offsets, true)
}

/// Whether the batch that ends at the entry's offset has its timestamp, and, where `to_end`, none behind has a later.
fn time_agrees(reader: &SegmentReader, entry: TimeIndexEntry, offsets: &OffsetIndex, to_end: bool) -> io::Result<bool> {
    let (size, rules) = (reader.size(), Rules::bare(reader.base));
    let mut cursor = reader.headers(size);
    let mut met = entry.timestamp.0 < 0;
    let start = if met { 0 } else { offsets.lookup(entry.offset).position };
    let (mut at, mut due) = (start, rules.anywhere());
    while at < size {
        let Ok(header) = cursor.header(at, &rules, due)? else { return Ok(true) };
        let last: Offset = header.last_offset();
        if !met && last >= entry.offset {
            met = last == entry.offset && header.max_timestamp() == Some(entry.timestamp);
            if !met || !to_end {
                return Ok(met);
            }
        }
        if met && header.max_timestamp().is_some_and(|timestamp| timestamp > entry.timestamp) {
            return Ok(false);
        }
        at += header.size();
        due = rules.behind(&header);
    }
    Ok(met)
}
