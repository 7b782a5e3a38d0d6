//! What one round of a compaction goes by from its begin to its end, and how it is begun.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::producers::LastRecord;
use super::super::view::{Marks, View};
use super::super::{Inner, Writer};
use super::keep::Aborted;
use super::select::{self, Piece, Policy, Selection, State, Times};
use crate::config::PartitionConfig;
use crate::error::Result;
use crate::segment::{SegmentConfig, SegmentReader};
use crate::sync::Arc as Pointer;
use crate::types::{Offset, ProducerId, Timestamp};

/// The log as it is at the begin of a round, and what is to be done with it.
#[derive(Debug)]
pub(super) struct Plan {
    /// The sealed segments below the limit.
    pub(super) sources: Vec<Arc<SegmentReader>>,
    /// Where the segment behind each of them begins.
    pub(super) ends: Vec<Offset>,
    pub(super) selection: Selection,
    /// The truncations and reopens that the log had been through.
    pub(super) rewinds: u64,
    pub(super) segment_config: SegmentConfig,
    pub(super) now: Timestamp,
    /// What a delete horizon is set to.
    pub(super) horizon: Timestamp,
    pub(super) aborted: Aborted,
    /// The last record of each producer that is known.
    pub(super) producers: BTreeMap<ProducerId, LastRecord>,
}

/// What is looked at under the writer's lock.
pub(super) struct Look {
    view: Pointer<View>,
    marks: Marks,
    state: State,
    config: PartitionConfig,
    segment_config: SegmentConfig,
    rewinds: u64,
}

/// The times of the segments of a view.
struct ViewTimes<'a> {
    inner: &'a Inner,
    view: &'a View,
    now: Timestamp,
    /// Who has a record that is younger need not be looked at closely.
    oldest: Timestamp,
}

impl Times for ViewTimes<'_> {
    fn largest(&self, index: usize) -> Result<Timestamp> {
        self.inner.largest_timestamp(self.view, index, self.oldest, self.now)
    }

    fn first(&self, index: usize) -> Result<Option<Timestamp>> {
        let header = self.view.segments.get(index).map(|segment| segment.header_at(0)).transpose()?;
        Ok(header.flatten().and_then(|header| header.max_timestamp()))
    }
}

impl Look {
    pub(super) fn new(inner: &Inner, writer: &Writer) -> Self {
        // The marks before the view: what they say is decided is in its transaction indexes.
        let (view, marks) = inner.picture.load();
        let state = State {
            log_start: view.log_start,
            cleaned: writer.cleaned,
            last_stable: marks.last_stable,
            held: inner.least_held(),
        };
        let config = writer.config.clone();
        Self { view, marks, state, config, segment_config: writer.segment_config, rewinds: writer.rewinds }
    }

    /// What can be cleaned at `now`, and whether it should be; `None` where the log is not compacted.
    pub(super) fn select(&self, inner: &Inner, now: Timestamp) -> Result<Option<Selection>> {
        if !self.config.cleanup.compacts() {
            return Ok(None);
        }
        let piece = |segment: &Arc<SegmentReader>| Piece { base: segment.base_offset(), bytes: segment.size() };
        let pieces: Vec<_> = self.view.segments.iter().map(piece).collect();
        let policy = Policy::from(&self.config);
        let lag = i64::try_from(policy.lag_min.as_millis()).unwrap_or(i64::MAX);
        let oldest = Timestamp(now.0.saturating_sub(lag).saturating_add(1));
        let times = ViewTimes { inner, view: &self.view, now, oldest };
        select::select(&pieces, self.state, policy, now, &times).map(Some)
    }

    /// Begins a round; `None` where there is no segment to be compacted.
    pub(super) fn plan(self, inner: &Inner, selection: Selection, now: Timestamp) -> Result<Option<Plan>> {
        let count = self.view.segments.partition_point(|segment| segment.base_offset() < selection.limit);
        let count = count.min(self.view.segments.len().saturating_sub(1));
        let sources = self.view.segments.get(..count).unwrap_or_default().to_vec();
        if sources.iter().all(|segment| segment.size() == 0) {
            return Ok(None);
        }
        let mut entries = Vec::new();
        for segment in &self.view.segments {
            entries.extend(
                segment.aborted()?.iter().copied().filter(|entry| entry.last_offset < self.marks.high_watermark),
            );
        }
        let delay = i64::try_from(self.config.delete_retention.as_millis()).unwrap_or(i64::MAX);
        Ok(Some(Plan {
            ends: (0..count).map(|index| self.view.next_base(index).unwrap_or(selection.limit)).collect(),
            sources,
            selection,
            rewinds: self.rewinds,
            segment_config: self.segment_config,
            now,
            horizon: Timestamp(now.0.saturating_add(delay)),
            aborted: Aborted::new(entries),
            producers: inner.active_producers(),
        }))
    }
}

impl Plan {
    /// The number of the source that holds `offset`.
    pub(super) fn source_of(&self, offset: Offset) -> usize {
        self.sources.partition_point(|source| source.base_offset() <= offset).saturating_sub(1)
    }
}
