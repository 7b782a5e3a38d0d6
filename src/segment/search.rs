//! Looking for timestamps (FORMATS 9).
//!
//! The time index says where no timestamp is late enough yet; from there headers are walked to the first batch whose
//! greatest timestamp is late enough, and that batch is read. Where headers cannot be followed, batches are read one
//! after the other, which says what is wrong.

use std::io;

use super::files::Kind;
use super::read::ReadBounds;
use super::reader::SegmentReader;
use super::rules::{Due, Rules};
use super::scan::{Cursor, resync};
use crate::error::{Error, Result};
use crate::record::batch::BatchHeader;
use crate::types::{LeaderEpoch, Offset, Timestamp};

/// Where a walk over headers came to.
enum Walk {
    Found(BatchHeader),
    End,
    /// A header on the way is not right.
    Broken,
}

impl SegmentReader {
    /// The first record at or behind `from`, in offset order, whose timestamp is `timestamp` or later, and the leader
    /// epoch of its batch; `None` where there is none below `bounds.up_to`. Records that control a transaction count.
    ///
    /// # Errors
    /// As [`SegmentReader::read`], where a damaged batch lies on the way.
    pub fn find_timestamp(
        &self,
        timestamp: Timestamp,
        from: Offset,
        bounds: &ReadBounds<'_>,
    ) -> Result<Option<(Timestamp, Offset, Option<LeaderEpoch>)>> {
        let rules = Rules::of(self.base, bounds);
        let from = from.max(self.base);
        let mut next = self.seen_before(timestamp, &rules)?.max(from);
        while next < bounds.up_to {
            let Some(late) = self.late_enough(timestamp, next, &rules)? else { break };
            next = late;
            let found = self.read(next, 1, bounds)?;
            for batch in &found.batches {
                let header = batch.header();
                let mut records = batch.records();
                let hit = records.find_map(|record| {
                    record
                        .timestamp()
                        .filter(|t| *t >= timestamp && record.offset() >= from)
                        .map(|t| (t, record.offset()))
                });
                if let Some((timestamp, offset)) = hit {
                    return Ok(Some((timestamp, offset, header.leader_epoch())));
                }
            }
            if found.batches.is_empty() {
                break;
            }
            next = found.next;
        }
        Ok(None)
    }

    /// Up to where, by the time index, no record is late enough. An entry that the log contradicts has the indexes
    /// rebuilt.
    fn seen_before(&self, timestamp: Timestamp, rules: &Rules<'_>) -> Result<Offset> {
        loop {
            let Some(entry) = self.times(rules)?.lookup(timestamp) else { return Ok(self.base) };
            let position = self.offsets(rules)?.lookup(entry.offset).position;
            let batch = self.walk_to(position, rules, |header| header.last_offset() >= entry.offset)?;
            match batch {
                Walk::Found(header)
                    if header.last_offset() == entry.offset && header.max_timestamp() == Some(entry.timestamp) =>
                {
                    return Ok(entry.offset);
                }
                _ => {}
            }
            if !self.rebuild(rules)? {
                return Ok(self.base);
            }
        }
    }

    /// The offset of the first batch from `from` on whose greatest timestamp is late enough, if there is one; `from`
    /// where headers cannot be followed.
    fn late_enough(&self, timestamp: Timestamp, from: Offset, rules: &Rules<'_>) -> Result<Option<Offset>> {
        let position = self.offsets(rules)?.lookup(from).position;
        let late = |header: &BatchHeader| {
            header.last_offset() >= from && header.max_timestamp().is_some_and(|max| max >= timestamp)
        };
        Ok(match self.walk_to(position, rules, late)? {
            Walk::Found(header) => Some(header.base_offset().max(from)),
            Walk::Broken => Some(from),
            Walk::End => None,
        })
    }

    /// Walks headers from `position` to the first one that `wanted` says is it.
    fn walk_to(&self, position: u64, rules: &Rules<'_>, wanted: impl Fn(&BatchHeader) -> bool) -> Result<Walk> {
        let end = self.size();
        let mut cursor = self.headers(end);
        let (mut at, mut due) = (position, if position == 0 { rules.begin() } else { rules.anywhere() });
        while at < end {
            let header = cursor.header(at, rules, due).map_err(|e| self.log_error(e))?;
            let Ok(header) = header else { return Ok(Walk::Broken) };
            if wanted(&header) {
                return Ok(Walk::Found(header));
            }
            due = rules.behind(&header);
            at += header.size();
        }
        Ok(Walk::End)
    }

    /// The greatest timestamp in the segment, by the time index and the batches behind the offset index's last entry;
    /// `None` where no record has one. It is as good as the indexes are: see
    /// [`SegmentReader::largest_timestamp_by_headers`].
    pub fn largest_timestamp(&self) -> Result<Option<Timestamp>> {
        let rules = Rules::bare(self.base);
        let indexed = self.times(&rules)?.last().map(|entry| entry.timestamp);
        let position = self.offsets(&rules)?.last().map_or(0, |entry| entry.position);
        Ok(indexed.max(self.largest_from(position, &rules, rules.anywhere())?))
    }

    /// The greatest timestamp in the segment, by the header of each of its batches. Damaged batches are left out.
    pub fn largest_timestamp_by_headers(&self) -> Result<Option<Timestamp>> {
        let rules = Rules::bare(self.base);
        self.largest_from(0, &rules, rules.begin())
    }

    fn largest_from(&self, position: u64, rules: &Rules<'_>, mut due: Due) -> Result<Option<Timestamp>> {
        let end = self.size();
        let mut cursor = self.headers(end);
        let mut largest = None;
        let mut at = position;
        while at < end {
            let header = cursor.header(at, rules, due).map_err(|e| self.log_error(e))?;
            if let Ok(header) = header {
                largest = largest.max(header.max_timestamp());
                due = rules.behind(&header);
                at += header.size();
            } else {
                let log = self.files.log().as_ref();
                at = resync(log, end, at, rules, due, |_| None).map_err(|e| self.log_error(e))?.unwrap_or(end);
            }
        }
        Ok(largest)
    }

    /// The greatest timestamp of the segment's first batch: what its age is counted from (Kafka: `segment.ms`).
    /// `None` where it has none, or where it is damaged.
    pub fn first_timestamp(&self) -> Result<Option<Timestamp>> {
        let rules = Rules::bare(self.base);
        let mut cursor = Cursor::new(self.files.log().as_ref(), self.size(), 0);
        let first = cursor.header(0, &rules, rules.anywhere()).map_err(|e| self.log_error(e))?;
        Ok(first.ok().and_then(|header| header.max_timestamp()))
    }

    /// The position in bytes of the batch that holds `offset`, or of one before it: at most an interval of the index and
    /// a batch too early.
    pub(crate) fn position_before(&self, offset: Offset) -> Result<u64> {
        Ok(self.offsets(&Rules::bare(self.base))?.lookup(offset).position.min(self.size()))
    }

    fn log_error(&self, error: io::Error) -> Error {
        self.files.error("read", Kind::Log, error)
    }
}
