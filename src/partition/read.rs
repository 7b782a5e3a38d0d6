//! Reading: the view and the marks, one segment's checked batches, and waiting for more.
//!
//! A read takes no lock that a writer holds: it loads the marks and the view, finds the segment, and lends bytes
//! of it. What it hands out was checked (checksum and framing) and does not change afterwards. The answer holds
//! whole batches of one segment; [`Fetched::next_offset`] says where to go on.

use std::sync::Arc;
use std::time::Duration;

use super::view::{Marks, UpTo, View};
use super::{Health, Inner, Partition};
use crate::epochs::end_offset_for;
use crate::error::{Error, Result};
use crate::record::batches::{Batch, BatchIter, Batches};
use crate::record::control::ControlRecord;
use crate::record::decode::{RecordView, Records};
use crate::segment::{AbortedTransaction, ReadBounds, SegmentReader};
use crate::sync::Arc as Pointer;
use crate::types::{Isolation, LeaderEpoch, Offset, ProducerId, Timestamp, TopicPartition};

/// How a partition is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct ReadOptions {
    max_bytes: usize,
    isolation: Isolation,
    up_to: UpTo,
    max_wait: Duration,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadOptions {
    /// Committed records below the high watermark, up to 256 KiB, without waiting.
    pub const fn new() -> Self {
        let (isolation, up_to) = (Isolation::Committed, UpTo::HighWatermark);
        Self { max_bytes: 256 << 10, isolation, up_to, max_wait: Duration::ZERO }
    }

    /// How many bytes of batches to hand out at most; one batch is handed out whole even where it is larger.
    /// Default: 256 KiB (Kafka: 1 MiB), so that what was checked is still in the cache when it is looked at.
    #[doc(alias = "max.partition.fetch.bytes")]
    pub const fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Which records of transactions are shown. Default: committed ones.
    #[doc(alias = "isolation.level")]
    pub const fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Up to where to read. Default: the high watermark.
    pub const fn up_to(mut self, up_to: UpTo) -> Self {
        self.up_to = up_to;
        self
    }

    /// How long [`Partition::read`] waits where there is nothing to read yet. Default: not at all.
    #[doc(alias = "fetch.max.wait.ms")]
    pub const fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = wait;
        self
    }

    fn bound(&self, marks: Marks) -> Offset {
        match (self.up_to, self.isolation) {
            (UpTo::LogEnd, _) => marks.end,
            (UpTo::HighWatermark, Isolation::Committed) => marks.last_stable,
            (UpTo::HighWatermark, Isolation::Uncommitted) => marks.high_watermark,
        }
    }
}

/// The answer to a search by timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The record's timestamp, at or after the one asked for.
    pub timestamp: Timestamp,
    /// The record's offset.
    pub offset: Offset,
    /// The leader epoch that its batch carries.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// What a read hands out: checked batches, and where to go on. Iterating cannot fail.
///
/// It keeps its bytes alive by itself: they do not change whatever happens to the log.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    start: Offset,
    next: Offset,
    /// The leader epoch of what lies right before `next`, as far as the read has seen it.
    epoch: Option<LeaderEpoch>,
    high_watermark: Offset,
    log_start: Offset,
    batches: Batches,
    /// Batches of aborted transactions, by number; empty where there are none.
    aborted: Vec<bool>,
    /// Keeps the segment's files from being unlinked.
    segment: Option<Arc<SegmentReader>>,
}

impl Fetched {
    /// Where the next read goes on: behind the last batch handed out, or where the read began.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.next
    }

    /// Where the read began.
    pub(crate) fn start(&self) -> Offset {
        self.start
    }

    /// The leader epoch of the record before [`Fetched::next_offset`], or of the one that compaction took from there.
    /// `None` where it is not known, or nothing was passed.
    pub(crate) fn epoch(&self) -> Option<LeaderEpoch> {
        self.epoch
    }

    /// The high watermark at the time of the read.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// The start of the log at the time of the read.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// Whether no batch was handed out. (Batches may hold no record that is shown: go on at `next_offset`.)
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The batches as they lie in the log, whole: also control batches, and records below the offset asked for.
    #[must_use]
    pub fn batches(&self) -> &Batches {
        &self.batches
    }

    /// The batches without those of aborted transactions (where the read was [`Isolation::Committed`]), control batches
    /// included.
    pub(crate) fn settled_batches(&self) -> impl Iterator<Item = Batch<'_>> {
        let aborted = self.aborted.iter().copied().chain(std::iter::repeat(false));
        self.batches.iter().zip(aborted).filter(|(_, is_aborted)| !is_aborted).map(|(batch, _)| batch)
    }

    /// Iterates over [`Fetched::records`].
    pub fn iter(&self) -> FetchedRecords<'_> {
        self.records()
    }

    /// The records to show, in order: from the offset asked for on, without control records and without those of
    /// aborted transactions (where the read was [`Isolation::Committed`]).
    pub fn records(&self) -> FetchedRecords<'_> {
        let visible = VisibleBatches { batches: self.batches.iter(), aborted: self.aborted.iter() };
        FetchedRecords { visible, current: Records::none(), start: self.start }
    }
}

impl<'a> IntoIterator for &'a Fetched {
    type Item = RecordView<'a>;
    type IntoIter = FetchedRecords<'a>;

    fn into_iter(self) -> FetchedRecords<'a> {
        self.records()
    }
}

#[derive(Clone, Debug)]
struct VisibleBatches<'a> {
    batches: BatchIter<'a>,
    aborted: std::slice::Iter<'a, bool>,
}

impl<'a> VisibleBatches<'a> {
    fn next(&mut self) -> Option<Batch<'a>> {
        loop {
            let batch = self.batches.next()?;
            let aborted = self.aborted.next().copied().unwrap_or_default();
            if !aborted && !batch.header().is_control() {
                return Some(batch);
            }
        }
    }
}

/// The records of a [`Fetched`].
#[derive(Clone, Debug)]
pub struct FetchedRecords<'a> {
    visible: VisibleBatches<'a>,
    current: Records<'a>,
    start: Offset,
}

impl FetchedRecords<'_> {
    /// Goes on to the next batch; `false` where there is none.
    #[inline(never)]
    fn advance(&mut self) -> bool {
        let batch = self.visible.next();
        self.current = batch.map_or(Records::none(), |batch| batch.records());
        batch.is_some()
    }
}

impl<'a> Iterator for FetchedRecords<'a> {
    type Item = RecordView<'a>;

    #[expect(clippy::inline_always, reason = "a call per record, and its result through memory, take as long again")]
    #[inline(always)]
    fn next(&mut self) -> Option<RecordView<'a>> {
        loop {
            match self.current.next() {
                Some(record) if record.offset() >= self.start => return Some(record),
                Some(_) => {}
                None if self.advance() => {}
                None => return None,
            }
        }
    }

    fn fold<B, F: FnMut(B, RecordView<'a>) -> B>(mut self, initial: B, mut visit: F) -> B {
        let mut folded = initial;
        loop {
            for record in std::mem::replace(&mut self.current, Records::none()) {
                if record.offset() >= self.start {
                    folded = visit(folded, record);
                }
            }
            if !self.advance() {
                return folded;
            }
        }
    }
}

impl Partition {
    /// Reads from `offset` on, waiting for up to the options' `max_wait` where there is nothing yet.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] below the start or above the end of the log, with both; [`Error::Corrupt`] where
    /// the batch that holds `offset` is damaged (its range's end is where reading can go on);
    /// [`Error::CodecDisabled`], [`Error::DecompressionBound`], [`Error::LegacyFormat`], [`Error::Io`],
    /// [`Error::Closed`].
    #[doc(alias = "fetch")]
    pub fn read(&self, offset: Offset, options: ReadOptions) -> Result<Fetched> {
        let fetched = self.try_read(offset, options)?;
        if !fetched.is_empty() || options.max_wait.is_zero() || fetched.next > offset {
            return Ok(fetched);
        }
        self.inner.wait_for_data(offset, options)?;
        self.try_read(offset, options)
    }

    /// Reads from `offset` on what is there, without waiting.
    ///
    /// # Errors
    /// As [`Partition::read`].
    pub fn try_read(&self, offset: Offset, options: ReadOptions) -> Result<Fetched> {
        self.inner.look(|view, marks| read_view(self.name(), view, marks, offset, options))
    }

    /// As [`Partition::try_read`], for whoever has read up to `offset` and found `epoch` to be the leader epoch of
    /// the record before it: that is still so, or the answer is an error. Epochs and records are looked up in one
    /// view, so no truncation comes between; no lock of the writer is taken.
    ///
    /// # Errors
    /// [`Error::Truncated`] where the epoch ends below `offset`, or is not in the log any more. Else as
    /// [`Partition::try_read`].
    pub(crate) fn try_read_after(
        &self,
        offset: Offset,
        epoch: Option<LeaderEpoch>,
        options: ReadOptions,
    ) -> Result<Fetched> {
        self.inner.look(|view, marks| {
            check_epoch(self.name(), view, marks, offset, epoch)?;
            read_view(self.name(), view, marks, offset, options)
        })
    }

    /// The first record at or after `timestamp`, among those that [`Isolation::Committed`] can reach.
    /// `None` where there is none.
    ///
    /// # Errors
    /// As [`Partition::read`].
    #[doc(alias = "offsetsForTimes")]
    #[doc(alias = "ListOffsets")]
    pub fn find_timestamp(&self, timestamp: Timestamp) -> Result<Option<Found>> {
        self.inner.look(|view, marks| find_in_view(view, marks, timestamp))
    }
}

impl Inner {
    /// Has `look` look at a view. What fails is looked at again where the log has changed meanwhile: what looked
    /// damaged or out of reach may have been cut off or replaced while it was read. (A truncation lowers the marks
    /// before it cuts, and cuts before it publishes the view.)
    pub(super) fn look<T>(&self, look: impl Fn(&View, Marks) -> Result<T>) -> Result<T> {
        loop {
            self.check_readable()?;
            let (view, marks) = self.picture.load();
            let outcome = look(&view, marks);
            if outcome.is_ok() {
                return outcome;
            }
            let (view_now, marks_now) = self.picture.load();
            if Pointer::ptr_eq(&view, &view_now) && marks_now.reach(marks) {
                return outcome;
            }
        }
    }

    /// Returns when there is something to read at `offset`, when reading it would fail, or when time is up.
    /// Syncs what nobody waits for, once that is due.
    fn wait_for_data(&self, offset: Offset, options: ReadOptions) -> Result<()> {
        let deadline = self.clock.monotonic().after(options.max_wait);
        loop {
            let ready = || {
                let (view, marks) = self.picture.load();
                let in_reach = view.log_start <= offset && offset <= marks.end;
                options.bound(marks) > offset || !in_reach || self.health() == Health::Closed
            };
            let mut flush_is_due = false;
            let remaining = || {
                let now = self.clock.monotonic();
                let flush = self.flush_due().filter(|_| self.health() == Health::Open);
                flush_is_due = flush.is_some_and(|due| due <= now);
                let until = flush.map_or(deadline, |due| due.min(deadline));
                Some(until.since(now)).filter(|left| !left.is_zero() && !flush_is_due)
            };
            if self.changed.wait_until(|| self.writer.try_lock(), ready, remaining) || !flush_is_due {
                return Ok(());
            }
            self.flush()?;
        }
    }
}

/// One pass over a view.
fn read_view(of: &TopicPartition, view: &View, marks: Marks, offset: Offset, options: ReadOptions) -> Result<Fetched> {
    check_range(of, view, marks, offset)?;
    let bound = options.bound(marks);
    let mut fetched = Fetched {
        start: offset,
        next: offset,
        high_watermark: marks.high_watermark,
        log_start: view.log_start,
        ..Fetched::default()
    };
    let mut index = view.segment_of(offset);
    while let Some(segment) = view.segments.get(index).filter(|_| fetched.next < bound) {
        let limits = ReadBounds { end: marks.end, ..bounds(view, index, bound) };
        let read = segment.read(fetched.next, options.max_bytes, &limits)?;
        fetched.next = read.next.max(fetched.next);
        if !read.batches.is_empty() {
            fetched.batches = read.batches;
            fetched.segment = Some(Arc::clone(segment));
            if options.isolation == Isolation::Committed {
                fetched.aborted = aborted_batches(view, index, &fetched)?;
            }
            break;
        }
        if !read.end_of_segment {
            break;
        }
        index += 1;
    }
    fetched.epoch = epoch_before_next(view, &fetched);
    Ok(fetched)
}

/// The leader epoch of the last batch; behind a gap, that of the view.
fn epoch_before_next(view: &View, fetched: &Fetched) -> Option<LeaderEpoch> {
    if fetched.next == fetched.start {
        return None;
    }
    match fetched.batches.iter().next_back() {
        Some(batch) if batch.header().next_offset() == fetched.next => batch.header().leader_epoch(),
        _ => view.epoch_before(fetched.next),
    }
}

/// Refuses a position before which another epoch's record stands now, or none (KIP-320). Of a log that knows no
/// epoch, and of records below its first, nothing can be said.
fn check_epoch(
    of: &TopicPartition,
    view: &View,
    marks: Marks,
    position: Offset,
    epoch: Option<LeaderEpoch>,
) -> Result<()> {
    match cut_below(view, marks, position, epoch) {
        None => Ok(()),
        Some((epoch, end)) => Err(Error::Truncated { partition: of.clone(), epoch, position, end }),
    }
}

/// Where the log was cut below a position, by the epoch of the record before it.
pub(super) fn cut_below(
    view: &View,
    marks: Marks,
    position: Offset,
    epoch: Option<LeaderEpoch>,
) -> Option<(LeaderEpoch, Offset)> {
    let epoch = epoch.filter(|_| !view.epochs.is_empty())?;
    match end_offset_for(&view.epochs, epoch, marks.end) {
        Some((known, end)) if known == epoch && end >= position => None,
        known => Some((epoch, known.map_or(marks.end, |(_, end)| end).min(position))),
    }
}

fn check_range(of: &TopicPartition, view: &View, marks: Marks, offset: Offset) -> Result<()> {
    if offset < view.log_start || offset > marks.end {
        let (partition, start, end) = (of.clone(), view.log_start, marks.end);
        return Err(Error::OffsetOutOfRange { partition, requested: offset, start, end });
    }
    Ok(())
}

pub(super) fn bounds(view: &View, index: usize, up_to: Offset) -> ReadBounds<'_> {
    ReadBounds {
        up_to,
        next_base: view.next_base(index),
        epochs: Some(&view.epochs),
        contiguous: view.contiguous,
        ..ReadBounds::default()
    }
}

/// Which batches belong to aborted transactions (FORMATS 10, SEMANTICS 7.1); empty where none does.
fn aborted_batches(view: &View, index: usize, fetched: &Fetched) -> Result<Vec<bool>> {
    let transactional = |batch: Batch<'_>| batch.header().is_transactional() && !batch.header().is_control();
    if !fetched.batches.iter().any(transactional) {
        return Ok(Vec::new());
    }
    let mut entries = overlapping(view, index, fetched)?;
    entries.sort_by_key(|entry| entry.first_offset);
    let mut pending = entries.into_iter().peekable();
    let mut open: Vec<AbortedTransaction> = Vec::new();
    let mut aborted = Vec::with_capacity(fetched.batches.len());
    for batch in &fetched.batches {
        let header = batch.header();
        while let Some(entry) = pending.next_if(|entry| entry.first_offset <= header.last_offset()) {
            open.push(entry);
        }
        // It ends with its marker, or, where that is lost, with the next records of its producer.
        open.retain(|entry| header.base_offset() < entry.last_offset);
        let is_of = |producer: ProducerId| open.iter().any(|entry| entry.producer_id == producer);
        aborted.push(transactional(batch) && header.producer_id().is_some_and(is_of));
    }
    abort_before_markers(fetched, &mut aborted);
    Ok(aborted)
}

/// What the marker of an abort says of the batches before it, whatever the index has of them.
fn abort_before_markers(fetched: &Fetched, aborted: &mut [bool]) {
    let mut ended: Vec<ProducerId> = Vec::new();
    let mut batches = fetched.batches.iter();
    for aborted in aborted.iter_mut().rev() {
        let Some(batch) = batches.next_back() else { return };
        let Some(producer) = batch.header().producer_id() else { continue };
        match batch.control() {
            Some(ControlRecord::Abort { .. }) if !ended.contains(&producer) => ended.push(producer),
            Some(ControlRecord::Commit { .. }) => ended.retain(|other| *other != producer),
            Some(_) => {}
            None => *aborted |= batch.header().is_transactional() && ended.contains(&producer),
        }
    }
}

/// The aborted transactions that reach into what was fetched.
fn overlapping(view: &View, index: usize, fetched: &Fetched) -> Result<Vec<AbortedTransaction>> {
    let from = fetched.batches.iter().next().map_or(fetched.start, |batch| batch.header().base_offset());
    let mut found = Vec::new();
    for segment in view.segments.iter().skip(index) {
        for entry in segment.aborted()?.iter() {
            if entry.last_offset >= from && entry.first_offset < fetched.next {
                found.push(*entry);
            }
            if entry.last_stable_offset >= fetched.next {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

fn find_in_view(view: &View, marks: Marks, timestamp: Timestamp) -> Result<Option<Found>> {
    let bound = marks.last_stable;
    for (index, segment) in view.segments.iter().enumerate() {
        if segment.base_offset() >= bound {
            break;
        }
        if segment.largest_timestamp()?.is_none_or(|largest| largest < timestamp) {
            continue;
        }
        let limits = ReadBounds { end: marks.end, ..bounds(view, index, bound) };
        let found = segment.find_timestamp(timestamp, view.log_start, &limits)?;
        if let Some((timestamp, offset, leader_epoch)) = found {
            return Ok(Some(Found { timestamp, offset, leader_epoch }));
        }
    }
    Ok(None)
}
