//! What does not fit together: batches with each other and with their place, indexes with the log, epochs with
//! their checkpoint.

use std::ops::Range;
use std::path::Path;

use taffrail::{
    AbortedTransaction, Batch, BatchHeader, ControlRecord, IndexEntry, LeaderEpoch, Offset, OffsetIndex, ProducerId,
    Result, TimeIndex, TimeIndexEntry, Timestamp, TxnIndex,
};

use super::Event;
use super::directory::{Contents, SegmentFile, read};

/// Where the segment before ended.
#[derive(Clone, Copy)]
pub(super) struct End {
    next: Offset,
    epoch: Option<LeaderEpoch>,
}

/// What the indexes are held against: one of these per batch.
struct Seen {
    position: u64,
    last_offset: Offset,
    max_timestamp: Option<Timestamp>,
    /// Of a marker that aborts a transaction: whose.
    aborts: Option<ProducerId>,
}

/// Checks one segment as it comes by.
pub(super) struct SegmentCheck<'c> {
    segment: &'c SegmentFile,
    next_base: Option<Offset>,
    contents: &'c Contents,
    end: Option<End>,
    seen: Vec<Seen>,
    has_damage: bool,
    pub(super) wrong: Vec<String>,
}

impl<'c> SegmentCheck<'c> {
    pub(super) fn new(
        segment: &'c SegmentFile,
        next_base: Option<Offset>,
        contents: &'c Contents,
        end: Option<End>,
    ) -> Self {
        Self { segment, next_base, contents, end, seen: Vec::new(), has_damage: false, wrong: Vec::new() }
    }

    /// Where this segment ended.
    pub(super) fn end(self) -> End {
        self.end.unwrap_or(End { next: self.segment.base, epoch: None })
    }

    pub(super) fn wrong(&mut self, position: u64, what: &str) {
        self.wrong.push(format!("{} at byte {position}: {what}", self.segment.name));
    }

    pub(super) fn damage(&mut self, bytes: &Range<u64>, reason: &str) {
        self.has_damage = true;
        self.wrong(bytes.start, &format!("{} bytes are no batch: {reason}", bytes.end - bytes.start));
    }

    /// Only the last segment has a window, and only until it is closed.
    pub(super) fn window(&mut self, bytes: &Range<u64>) {
        if self.next_base.is_some() || self.contents.is_clean {
            self.wrong(bytes.start, &format!("{} zeros at the end of a closed segment", bytes.end - bytes.start));
        }
    }

    pub(super) fn batch(&mut self, position: u64, batch: &Batch<'_>) {
        self.header(position, batch.header());
        if let (Some(ControlRecord::Abort { .. }), Some(seen)) = (batch.control(), self.seen.last_mut()) {
            seen.aborts = batch.header().producer_id();
        }
    }

    pub(super) fn header(&mut self, position: u64, header: &BatchHeader) {
        let (base, epoch) = (header.base_offset(), header.leader_epoch());
        if base < self.segment.base || self.next_base.is_some_and(|next| header.last_offset() >= next) {
            self.wrong(position, &format!("offsets {base} to {} are not of this segment", header.last_offset()));
        }
        if let Some(end) = self.end {
            if base < end.next {
                self.wrong(position, &format!("offset {base} comes after {}", end.next));
            }
            if epoch < end.epoch {
                self.wrong(position, &format!("leader epoch {epoch:?} comes after {:?}", end.epoch));
            }
        }
        let expected = self.contents.epochs.at(base);
        if expected.is_some() && epoch.is_some() && epoch != expected {
            self.wrong(position, &format!("leader epoch {epoch:?}, the checkpoint says {expected:?}"));
        }
        self.end = Some(End { next: header.next_offset(), epoch });
        let (last_offset, max_timestamp) = (header.last_offset(), header.max_timestamp());
        self.seen.push(Seen { position, last_offset, max_timestamp, aborts: None });
    }

    /// Reads the segment's indexes and holds them against the batches that came by.
    pub(super) fn indexes(&mut self, directory: &Path) -> Result<Event<'static>> {
        let base = self.segment.base;
        let offsets = self.index(directory, "index", |bytes| OffsetIndex::from_bytes(base, bytes))?;
        let times = self.index(directory, "timeindex", |bytes| TimeIndex::from_bytes(base, bytes))?;
        let aborted = self.index(directory, "txnindex", |bytes| TxnIndex::from_bytes(base, bytes))?;
        let offsets = offsets.map(|index| index.entries()).unwrap_or_default();
        let times = times.map(|index| index.entries()).unwrap_or_default();
        let aborted = aborted.map(|index| index.entries()).unwrap_or_default();
        if !self.has_damage {
            for entry in &offsets {
                self.offset_entry(*entry);
            }
            for entry in &times {
                self.time_entry(*entry);
            }
            for entry in &aborted {
                self.aborted_entry(*entry);
            }
        }
        Ok(Event::Indexes { offsets, times, aborted })
    }

    /// Reads an index; a missing one is wrong where the segment is closed. (A transaction index is there only if
    /// needed.)
    fn index<I>(
        &mut self,
        directory: &Path,
        kind: &str,
        parse: impl FnOnce(&[u8]) -> std::result::Result<I, taffrail::Corruption>,
    ) -> Result<Option<I>> {
        let name = Path::new(&self.segment.name).with_extension(kind);
        let path = directory.join(&name);
        let is_closed = self.next_base.is_some() || self.contents.is_clean;
        if !path.exists() {
            if is_closed && kind != "txnindex" {
                self.wrong.push(format!("{} is missing", name.display()));
            }
            return Ok(None);
        }
        match parse(&read(&path)?) {
            Ok(index) => Ok(Some(index)),
            Err(reason) => {
                self.wrong.push(format!("{}: {reason}", name.display()));
                Ok(None)
            }
        }
    }

    fn index_entry_is_wrong(&mut self, kind: &str, what: &str) {
        self.wrong.push(format!("{}: {what}", Path::new(&self.segment.name).with_extension(kind).display()));
    }

    /// A batch begins at the position, and the offset is the last one of it or of one written together with it.
    fn offset_entry(&mut self, entry: IndexEntry) {
        let at = self.seen.partition_point(|seen| seen.position < entry.position);
        let leads = self.seen.get(at).is_some_and(|s| s.position == entry.position && s.last_offset <= entry.offset);
        if !leads || self.seen.binary_search_by_key(&entry.offset, |seen| seen.last_offset).is_err() {
            self.index_entry_is_wrong("index", &format!("no batch fits {} at byte {}", entry.offset, entry.position));
        }
    }

    /// The timestamp is the greatest up to the offset.
    fn time_entry(&mut self, entry: TimeIndexEntry) {
        let below = self.seen.partition_point(|seen| seen.last_offset <= entry.offset);
        let greatest = self.seen[..below].iter().filter_map(|seen| seen.max_timestamp).max();
        if greatest != Some(entry.timestamp) {
            let what = format!("up to offset {} it has {}, the log {greatest:?}", entry.offset, entry.timestamp);
            self.index_entry_is_wrong("timeindex", &what);
        }
    }

    /// The offset is that of a marker that aborts a transaction of this producer.
    fn aborted_entry(&mut self, entry: AbortedTransaction) {
        let marker = self.seen.binary_search_by_key(&entry.last_offset, |seen| seen.last_offset);
        if !marker.is_ok_and(|at| self.seen[at].aborts == Some(entry.producer_id)) {
            let what = format!("no marker at {} aborts a transaction of {:?}", entry.last_offset, entry.producer_id);
            self.index_entry_is_wrong("txnindex", &what);
        }
    }
}
