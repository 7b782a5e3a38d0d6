//! Where an offset lies in a log, in bytes and in time, and how much was appended: what lag is worked out from.
//!
//! Nothing here reads records, and nothing is counted while they are appended: positions come from the offset index,
//! what was appended from the sizes of segments between two looks. No lock of the writer is taken.

use super::read::cut_below;
use super::view::View;
use super::{Inner, Partition};
use crate::error::Result;
use crate::types::{LeaderEpoch, Offset, Timestamp};

/// What lies before and behind an offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) start: Offset,
    pub(crate) last_stable: Offset,
    pub(crate) high_watermark: Offset,
    /// Where the log ends.
    pub(crate) end: Offset,
    /// Where the log was cut below the offset, even if it has grown again. What follows is then counted from there.
    pub(crate) cut: Option<Offset>,
    /// Bytes of log from the offset to the last stable one. An index names every few KiB a batch, so that each end may lie
    /// an interval of the index and a batch too early.
    pub(crate) bytes_behind: u64,
    /// Bytes of log behind the segment that holds the offset.
    pub(crate) bytes_after: u64,
    /// Bytes of that segment.
    pub(crate) segment_bytes: u64,
    /// The largest timestamp in that segment, by its index; where no record has one, when it was written last.
    pub(crate) largest: Option<Timestamp>,
}

/// Where the log ended when it was looked at last, and what was appended until then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// The active segment, and how long it was.
    base: Offset,
    size: u64,
    end: Offset,
    total: Volume,
}

/// How much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Volume {
    /// Offsets that were given: a marker that ends a transaction takes one too.
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl Tally {
    /// Nothing was appended to this log yet.
    pub(super) fn at(view: &View, end: Offset) -> Self {
        let mut tally = Self::default();
        tally.look(view, end);
        Self { total: Volume::default(), ..tally }
    }

    /// Counts what came since the last look. What was taken away again meanwhile is not counted.
    fn look(&mut self, view: &View, end: Offset) {
        let later = view.segments.iter().rev().take_while(|segment| segment.base_offset() >= self.base);
        let grown = later.map(|segment| {
            let before = if segment.base_offset() == self.base { self.size } else { 0 };
            segment.size().saturating_sub(before)
        });
        self.total.bytes += grown.sum::<u64>();
        self.total.records += end.0.saturating_sub(self.end.0);
        (self.base, self.size) =
            view.segments.last().map_or((self.base, self.size), |active| (active.base_offset(), active.size()));
        self.end = end;
    }
}

impl Partition {
    /// What lies before and behind `offset`; one outside of the log counts as its start or its last stable offset. `epoch`
    /// is the leader epoch of the record before it, where that is known.
    pub(crate) fn place(&self, offset: Offset, epoch: Option<LeaderEpoch>) -> Result<Place> {
        self.inner.look(|view, marks| {
            let cut = cut_below(view, marks, offset, epoch).map(|(_, end)| end);
            let outline = Place {
                start: view.log_start,
                last_stable: marks.last_stable,
                high_watermark: marks.high_watermark,
                end: marks.end,
                cut,
                ..Place::default()
            };
            let offset = cut.unwrap_or(offset).max(view.log_start).min(marks.last_stable.max(view.log_start));
            let index = view.segment_of(offset);
            let Some(segment) = view.segments.get(index) else { return Ok(outline) };
            let bytes_before = |offset| if offset < marks.end { position(view, offset) } else { Ok(view.bytes()) };
            let behind = bytes_before(marks.last_stable)?.saturating_sub(bytes_before(offset)?);
            let largest = match segment.largest_timestamp()? {
                Some(largest) => largest,
                None => segment.modified()?,
            };
            Ok(Place {
                bytes_behind: behind,
                bytes_after: view.segments.iter().skip(index + 1).map(|segment| segment.size()).sum(),
                segment_bytes: segment.size(),
                largest: Some(largest),
                ..outline
            })
        })
    }

    /// What was appended since the partition was opened, as far as it was there when somebody looked: the log does once a
    /// second.
    pub(crate) fn appended(&self) -> Volume {
        let mut tally = self.inner.tally.lock();
        let (view, marks) = self.inner.picture.load();
        tally.look(&view, marks.end);
        tally.total
    }

    /// How many syncs of its files were done since it was opened.
    pub(crate) fn syncs(&self) -> u64 {
        self.inner.syncs.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Inner {
    /// One sync more was done.
    pub(super) fn count_sync(&self) {
        self.syncs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// How many bytes of the view lie before `offset`, or a little less.
fn position(view: &View, offset: Offset) -> Result<u64> {
    let index = view.segment_of(offset);
    let before: u64 = view.segments.iter().take(index).map(|segment| segment.size()).sum();
    let Some(segment) = view.segments.get(index) else { return Ok(before) };
    Ok(before + segment.position_before(offset)?)
}
