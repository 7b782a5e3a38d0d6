//! What one round of a compaction goes by from its begin to its end, and how it is begun.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::super::producers::LastRecord;
use super::super::view::{Marks, View};
use super::super::{Inner, Writer};
use super::keep::Aborted;
use super::select::{self, Piece, Policy, Selection, State, Times};
use crate::config::PartitionConfig;
use crate::error::Result;
use crate::segment::{ReadBounds, SegmentConfig, SegmentReader};
use crate::sync::Arc as Pointer;
use crate::types::{LeaderEpoch, Offset, ProducerId, Timestamp};

/// The log as it is at the begin of a round, and what is to be done with it.
#[derive(Debug)]
pub(super) struct Plan {
    /// The sealed segments below the limit.
    pub(super) sources: Vec<Arc<SegmentReader>>,
    /// Where the segment behind each of them begins.
    pub(super) ends: Vec<Offset>,
    pub(super) selection: Selection,
    /// The truncations and reopens that the log had been through.
    rewinds: u64,
    /// What the settings said of the age of what is compacted, and of what is deleted.
    lag_min: Duration,
    delete_retention: Duration,
    /// Where each leader epoch began.
    epochs: Vec<(LeaderEpoch, Offset)>,
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

/// What was found of sealed segments, so that each is looked at once: they do not change.
#[derive(Debug, Default)]
pub(super) struct Found(BTreeMap<Offset, FoundOf>);

#[derive(Debug)]
struct FoundOf {
    /// Which segment it is, and how large: one that is cut, or grows again behind a cut, is another.
    segment: Weak<SegmentReader>,
    size: u64,
    largest: Option<Timestamp>,
    first: Option<Timestamp>,
}

impl Found {
    /// What is known of a segment.
    fn of(&mut self, segment: &Arc<SegmentReader>) -> &mut FoundOf {
        let new = || FoundOf { segment: Arc::downgrade(segment), size: segment.size(), largest: None, first: None };
        let found = self.0.entry(segment.base_offset()).or_insert_with(new);
        if found.segment.as_ptr() != Arc::as_ptr(segment) || found.size != segment.size() {
            *found = new();
        }
        found
    }

    /// Forgets the segments that are no more.
    fn tidy(&mut self) {
        self.0.retain(|_, found| found.segment.strong_count() > 0);
    }
}

/// The times of the segments of a view.
struct ViewTimes<'a> {
    inner: &'a Inner,
    view: &'a View,
    found: &'a RefCell<Found>,
    now: Timestamp,
    /// Who has a record that is younger need not be looked at closely.
    oldest: Timestamp,
}

impl Times for ViewTimes<'_> {
    fn largest(&self, index: usize) -> Result<Timestamp> {
        let Some(segment) = self.view.segments.get(index) else { return Ok(self.now) };
        let mut found = self.found.borrow_mut();
        let found = found.of(segment);
        if let Some(largest) = found.largest {
            return Ok(largest);
        }
        let largest = self.inner.largest_timestamp(self.view, index, self.oldest, self.now)?;
        // What is younger may be what the index says, which tells nothing of the others.
        found.largest = Some(largest).filter(|largest| *largest < self.oldest);
        Ok(largest)
    }

    fn first(&self, index: usize) -> Result<Option<Timestamp>> {
        let Some(segment) = self.view.segments.get(index) else { return Ok(None) };
        let mut found = self.found.borrow_mut();
        let found = found.of(segment);
        if found.first.is_none() {
            let header = segment.header_at(0)?;
            if header.is_none() {
                // Where there are bytes all the same this says what is wrong with them.
                segment.batches_at(0, 1, segment.base_offset(), ReadBounds::default())?;
            }
            found.first = header.and_then(|header| header.max_timestamp());
        }
        Ok(found.first)
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
    pub(super) fn select(&self, inner: &Inner, found: &RefCell<Found>, now: Timestamp) -> Result<Option<Selection>> {
        if !self.config.cleanup.compacts() {
            return Ok(None);
        }
        let piece = |segment: &Arc<SegmentReader>| Piece { base: segment.base_offset(), bytes: segment.size() };
        let pieces: Vec<_> = self.view.segments.iter().map(piece).collect();
        let policy = Policy::from(&self.config);
        let lag = i64::try_from(policy.lag_min.as_millis()).unwrap_or(i64::MAX);
        let oldest = Timestamp(now.0.saturating_sub(lag).saturating_add(1));
        found.borrow_mut().tidy();
        let times = ViewTimes { inner, view: &self.view, found, now, oldest };
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
            lag_min: self.config.min_compaction_lag,
            delete_retention: self.config.delete_retention,
            epochs: self.view.epochs.clone(),
            segment_config: self.segment_config,
            now,
            horizon: Timestamp(now.0.saturating_add(delay)),
            aborted: Aborted::new(entries),
            producers: inner.active_producers(),
        }))
    }
}

impl Plan {
    /// Whether what the round goes by is so still: the log was not rewound, its settings compact it, and leave no more of
    /// it as it is than they did, and nothing holds what lies below `end`. Whatever follows from the plan asks for it first.
    pub(super) fn stands(&self, inner: &Inner, writer: &Writer, end: Offset) -> bool {
        let config = &writer.config;
        writer.rewinds == self.rewinds
            && config.cleanup.compacts()
            && config.min_compaction_lag <= self.lag_min
            && config.delete_retention <= self.delete_retention
            && inner.least_held().is_none_or(|held| held >= end)
    }

    /// What the batches of a source have to keep to.
    pub(super) fn bounds(&self, next_base: Option<Offset>) -> ReadBounds<'_> {
        ReadBounds { next_base, epochs: Some(&self.epochs), ..ReadBounds::default() }
    }

    /// The number of the source that holds `offset`.
    pub(super) fn source_of(&self, offset: Offset) -> usize {
        self.sources.partition_point(|source| source.base_offset() <= offset).saturating_sub(1)
    }
}
