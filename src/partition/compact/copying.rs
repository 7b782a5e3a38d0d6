//! The second pass: everything from the start of the log to the end of what was mapped is written again, group by group.
//!
//! A group is exchanged as soon as it is written; the writer's lock is held for that alone. The state of the transactions
//! is carried over segments and groups. The last batch of the pass keeps its header, and so does the last batch of a
//! group whose last segment would leave nothing else: what takes the place of several segments has to reach into the last
//! of them, for that is how an open that finds the exchange half done knows which ones it stands for.

use std::sync::Arc;

use super::super::Inner;
use super::super::snapshots::GoneMarker;
use super::group::{Member, group};
use super::keep::{Fate, Judge, Seen};
use super::map::OffsetMap;
use super::output::Output;
use super::plan::Plan;
use super::report::Compaction;
use super::tally::Tally;
use crate::error::Result;
use crate::record::batch::BatchHeader;
use crate::record::batches::{Batch, Batches};
use crate::record::rewrite::Rewriter;
use crate::segment::{Segment, SegmentReader};
use crate::types::Offset;

/// Batches that stay are written from where they are, where so many bytes of them follow each other.
const RUN_BYTES: usize = 64 << 10;
/// What waits is written once it is so much.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// How far the copying is.
#[derive(Debug)]
pub(super) struct Copying {
    map: OffsetMap,
    tally: Tally,
    /// Everything below was mapped.
    pub(super) end: Offset,
    seen: Seen,
    rewriter: Rewriter,
    /// The first source that is in no group yet, and how many there are.
    next: usize,
    count: usize,
    group: Option<Group>,
}

/// A group that is being written.
#[derive(Debug)]
struct Group {
    /// Its sources, by number.
    first: usize,
    behind: usize,
    /// The last of them that has a batch.
    last: usize,
    /// Whether the pass ends with it.
    is_final: bool,
    /// The one that is read, from this position on.
    index: usize,
    position: u64,
    due: Offset,
    output: Output,
    /// The markers that go with the exchange.
    markers: Vec<GoneMarker>,
    kept: u64,
    dropped: u64,
}

/// What a step of the copying came to.
pub(super) enum Copied {
    /// It goes on.
    Some { bytes: u64 },
    /// All groups are exchanged.
    All,
    /// The log has changed: what is left of the pass counts for nothing.
    Interrupted,
}

impl Copying {
    pub(super) fn new((map, tally): (OffsetMap, Tally), end: Offset, plan: &Plan) -> Self {
        let count = plan.sources.partition_point(|source| source.base_offset() < end);
        let (seen, rewriter) = (Seen::default(), Rewriter::default());
        Self { map, tally, end, seen, rewriter, next: 0, count, group: None }
    }

    /// Writes a piece, or exchanges a group that is complete.
    pub(super) fn step(
        &mut self,
        inner: &Inner,
        plan: &Plan,
        read_bytes: u64,
        report: &mut Compaction,
    ) -> Result<Copied> {
        let Some(mut group) = self.group.take().map_or_else(|| self.begin(inner, plan), |group| Ok(Some(group)))?
        else {
            return Ok(Copied::All);
        };
        let Some(source) = plan.sources.get(group.index).filter(|_| group.index < group.behind) else {
            return exchange(inner, plan, group, report);
        };
        let next_base = plan.ends.get(group.index).copied();
        let passed = self.pass_over(plan, &mut group, source, read_bytes)?;
        if passed >= read_bytes {
            self.group = Some(group);
            return Ok(Copied::Some { bytes: passed });
        }
        let batches = source.batches_at(group.position, read_bytes, group.due, plan.bounds(next_base))?;
        let mut bytes = passed + batches.size_bytes() as u64;
        if batches.is_empty() {
            group.index += 1;
            group.position = 0;
            group.due = next_base.unwrap_or(group.due);
        } else {
            let ends_source = group.position + batches.size_bytes() as u64 == source.size();
            bytes += self.write(plan, &mut group, &batches, ends_source)?;
            group.position += batches.size_bytes() as u64;
        }
        self.group = Some(group);
        Ok(Copied::Some { bytes })
    }

    /// Passes over the next batches that go and need not be read for it. Answers how many bytes they have: they count as
    /// read, so that the pace of a round goes by the bytes of the log, whatever becomes of them.
    fn pass_over(&mut self, plan: &Plan, group: &mut Group, source: &SegmentReader, bytes_max: u64) -> Result<u64> {
        let Self { map, tally, seen, .. } = self;
        let judge = judge(plan, map, tally, self.end);
        let (from, mut dropped) = (group.position, 0);
        let bounds = plan.bounds(plan.ends.get(group.index).copied());
        (group.position, group.due) = source.pass_over(from, bytes_max, group.due, bounds, &mut |header, bytes| {
            let goes = judge.passes_over(header, bytes, seen);
            dropped += if goes { u64::from(header.record_count()) } else { 0 };
            goes
        })?;
        group.dropped += dropped;
        Ok(group.position - from)
    }

    /// Where the group ends that is being written; where there is none, it needs nothing.
    pub(super) fn end_of_group(&self, plan: &Plan) -> Offset {
        let behind = self.group.as_ref().map(|group| group.behind);
        behind.and_then(|behind| plan.ends.get(behind.checked_sub(1)?).copied()).unwrap_or_default()
    }

    /// Begins the next group, where there is one.
    fn begin(&mut self, inner: &Inner, plan: &Plan) -> Result<Option<Group>> {
        let sources = plan.sources.get(..self.count).unwrap_or_default();
        let Some(first) = sources.get(self.next) else { return Ok(None) };
        let mut members = Vec::new();
        let mut bytes = 0;
        for (source, end) in sources.iter().zip(&plan.ends).skip(self.next) {
            if bytes > u64::from(plan.segment_config.segment_bytes) {
                break;
            }
            bytes += source.size();
            let (base, index_bytes) = (source.base_offset(), source.index_bytes()?);
            members.push(Member { base, end: *end, bytes: source.size(), index_bytes });
        }
        let behind = self.next + group(&members, &plan.segment_config);
        let has_batches = |index: &usize| sources.get(*index).is_some_and(|source| source.size() > 0);
        let last = (self.next..behind).rev().find(has_batches).unwrap_or(self.next);
        let home = &inner.home;
        let output = Output::new(&home.storage, &home.directory, first.base_offset(), plan.segment_config)?;
        let group = Group {
            first: self.next,
            behind,
            last,
            is_final: !(behind..sources.len()).any(|index| has_batches(&index)),
            index: self.next,
            position: 0,
            due: first.base_offset(),
            output,
            markers: Vec::new(),
            kept: 0,
            dropped: 0,
        };
        self.next = behind;
        Ok(Some(group))
    }

    /// Judges the batches of a piece and writes what stays. Answers how many bytes that were.
    fn write(&mut self, plan: &Plan, group: &mut Group, batches: &Batches, ends_source: bool) -> Result<u64> {
        let judge = judge(plan, &self.map, &self.tally, self.end);
        let source_base = plan.sources.get(group.index).map_or(group.due, |source| source.base_offset());
        let mut run = Run::default();
        let mut written = 0;
        for (number, batch) in batches.iter().enumerate() {
            let ends_group = ends_source && group.index == group.last && number + 1 == batches.len();
            let reaches = group.first == group.last || run.next_offset(&group.output) > source_base;
            let verdict = judge.judge(&batch, &mut self.seen, ends_group && (group.is_final || !reaches));
            group.due = batch.header().next_offset();
            group.markers.extend(verdict.marker);
            let records = u64::from(batch.header().record_count());
            if verdict.fate == Fate::Stays && verdict.aborted.is_none() {
                written += batch.header().size();
                group.kept += if batch.header().is_control() { 0 } else { records };
                run.push(&batch);
                continue;
            }
            run.write(&mut group.output)?;
            let bytes = rewrite(&mut self.rewriter, &batch, &verdict.fate)?;
            let Some(bytes) = bytes else {
                group.dropped += if batch.header().is_control() { 0 } else { records };
                continue;
            };
            let header = BatchHeader::parse(bytes)
                .map_err(|reason| crate::error::Error::InvalidBatch { position: 0, reason })?;
            if !header.is_control() {
                group.kept += u64::from(header.record_count());
                group.dropped += records - u64::from(header.record_count()).min(records);
            }
            written += header.size();
            group.output.add(header, bytes, verdict.aborted);
            if group.output.waiting_bytes() >= WAITING_BYTES_MAX {
                group.output.flush()?;
            }
        }
        run.write(&mut group.output)?;
        group.output.flush()?;
        Ok(written)
    }
}

fn judge<'a>(plan: &'a Plan, map: &'a OffsetMap, tally: &'a Tally, end: Offset) -> Judge<'a> {
    let Plan { now, horizon, aborted, producers, .. } = plan;
    Judge { map, tally, end, now: *now, horizon: *horizon, aborted, producers }
}

/// Batches that stay and follow each other.
#[derive(Default)]
struct Run<'a> {
    batches: Vec<Batch<'a>>,
    bytes: usize,
}

impl<'a> Run<'a> {
    fn push(&mut self, batch: &Batch<'a>) {
        self.bytes += batch.bytes().len();
        self.batches.push(*batch);
    }

    /// Behind the last batch that stays, with what was added to `output`.
    fn next_offset(&self, output: &Output) -> Offset {
        self.batches.last().map_or(output.next_offset(), |batch| batch.header().next_offset())
    }

    /// Hands them over: a long run as it lies, a short one with what else waits.
    fn write(&mut self, output: &mut Output) -> Result<()> {
        let headers = || self.batches.iter().map(|batch| *batch.header());
        if self.bytes >= RUN_BYTES {
            let bytes = self.batches.first().map(|batch| batch.bytes_with_following(self.bytes)).unwrap_or_default();
            output.write_run(&headers().collect::<Vec<_>>(), bytes)?;
        } else {
            for batch in &self.batches {
                output.add(*batch.header(), batch.bytes(), None);
            }
        }
        self.batches.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// The batch as its fate has it; `None` where it goes.
fn rewrite<'a>(rewriter: &'a mut Rewriter, batch: &Batch<'a>, fate: &Fate) -> Result<Option<&'a [u8]>> {
    match fate {
        Fate::Stays => Ok(Some(batch.bytes())),
        Fate::Goes => Ok(None),
        Fate::Header => {
            rewriter.begin(batch.header(), None);
            rewriter.finish().map(Some)
        }
        Fate::Rewritten { kept, horizon } => {
            rewriter.begin(batch.header(), *horizon);
            for (record, _) in batch.records().zip(kept).filter(|(_, stays)| **stays) {
                rewriter.push(&record)?;
            }
            rewriter.finish().map(Some)
        }
    }
}

/// Completes the new segments of a group and exchanges them for the old ones, unless the log has changed.
fn exchange(inner: &Inner, plan: &Plan, group: Group, report: &mut Compaction) -> Result<Copied> {
    let Group { first, behind, last, output, markers, kept, dropped, .. } = group;
    let old = plan.sources.get(first..behind).unwrap_or_default();
    let Some(source) = plan.sources.get(last) else { return Ok(Copied::All) };
    let new = output.finish(source)?;
    let end = plan.ends.get(behind - 1).copied().unwrap_or(plan.selection.limit);
    let mut writer = inner.writer.lock();
    inner.check_writable()?;
    if !plan.stands(inner, &writer, end) {
        return Ok(Copied::Interrupted);
    }
    let view = inner.picture.view();
    let at = view.segments.iter().position(|segment| old.first().is_some_and(|first| Arc::ptr_eq(first, segment)));
    let is_there = |at: usize| {
        let there = view.segments.get(at..at + old.len()).unwrap_or_default();
        there.len() == old.len() && there.iter().zip(old).all(|(a, b)| Arc::ptr_eq(a, b))
    };
    match at {
        Some(at) if is_there(at) => {
            writer.snapshots.close_transactions(&inner.home, &markers)?;
            inner.swap(&mut writer, old, &new)?;
            drop(writer);
            count(report, old, &new, (kept, dropped));
            Ok(Copied::Some { bytes: 0 })
        }
        // All of it was taken away from the front: there is nothing left to do for it.
        None if view.segments.first().is_some_and(|segment| segment.base_offset() >= end) => {
            Ok(Copied::Some { bytes: 0 })
        }
        _ => Ok(Copied::Interrupted),
    }
}

fn count(report: &mut Compaction, old: &[Arc<SegmentReader>], new: &[Segment], (kept, dropped): (u64, u64)) {
    report.segments_before += old.len();
    report.segments_after += new.len();
    report.bytes_before += old.iter().map(|segment| segment.size()).sum::<u64>();
    report.bytes_after += new.iter().map(Segment::size).sum::<u64>();
    report.records_kept += kept;
    report.records_dropped += dropped;
}
