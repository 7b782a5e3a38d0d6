//! Compaction: of each key the last record stays (SEMANTICS 5).
//!
//! ```text
//!   select.rs    what is dirty, and what of it can be cleaned        plan.rs     one round, as it begins
//!   mapping.rs   pass 1: dirty records ──► map.rs (key → last offset), tally.rs (whole batches that go, or stay)
//!   copying.rs   pass 2: [log start, end of the map) is written again, group.rs by group; keep.rs says what stays
//!   output.rs    the new segments        swap.rs     they take the place of the old ones
//!   report.rs    what was done
//! ```
//!
//! It is done in steps of bounded work, so that whoever drives it can stop between any two: a step reads and writes some
//! pieces of log, or completes a group. Nobody who appends waits for more than an exchange: no lock of the writer is held
//! while anything is read, written or synced but names. Readers see the old segments or the new ones.
//!
//! Invariants:
//! - Offsets never change, and neither do those of batches: first, last, sequence, leader epoch.
//! - What is compacted is sealed, decided, readable by everybody, and synced: nothing goes for the sake of a record that a
//!   loss of power, a truncation or an abort could take back.
//! - Truncation, reopen and close come first, and so do a hold and another policy: a step that finds that its plan does not
//!   stand any more ([`Plan::stands`]) gives the round up, and what it has written and not exchanged goes.
//! - What fails and may pass is tried again, later each time, and not for ever. A partition whose compaction fails for a
//!   reason that will not pass is left alone from then on, until it is reopened. Either is said by
//!   [`Partition::compaction_error`].

mod copying;
mod group;
mod keep;
mod map;
mod mapping;
mod output;
mod plan;
mod report;
mod select;
mod swap;
mod tally;

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

pub use report::{Compacting, Compaction, CompactionEnd};

use super::books::Mark;
use super::{Inner, Partition};
use crate::clock::{Moment, Now};
use crate::config::CleanerConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::random::Random;
use crate::trace;
use crate::types::Offset;

use copying::{Copied, Copying};
use mapping::{Counting, Mapped, Mapping};
use plan::{Found, Look, Plan};

/// A round that finds the log changed is begun anew, so often within one call.
const ATTEMPTS: usize = 16;
/// What one step of a call that goes to the end does.
const STEP_BYTES: u64 = 8 << 20;
/// What may pass is tried again, so often in a row.
const TRIES: u32 = 10;

/// The compaction of one partition: what is under way.
#[derive(Debug)]
pub(super) struct Cleaner {
    config: CleanerConfig,
    random: Random,
    round: Option<Round>,
    /// Not before this, after something that may pass.
    retry_at: Option<Moment>,
    /// How many rounds were begun: the number of the last one.
    begun: u64,
    /// The last one that has compacted everything that was to be compacted when it began.
    completed: u64,
    /// What was found of segments.
    found: RefCell<Found>,
}

/// What a compaction has failed with.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    error: Error,
    /// How often in a row.
    tries: u32,
    /// It is not tried again.
    is_final: bool,
}

/// When a call begins a round.
#[derive(Clone, Copy, Debug)]
enum Begin {
    /// When one is due.
    WhenDue,
    /// At once, unless one is completed that has a greater number.
    Behind(u64),
}

/// A round: the passes over one plan.
#[derive(Debug)]
struct Round {
    number: u64,
    plan: Plan,
    phase: Phase,
    report: Compaction,
}

#[derive(Debug)]
enum Phase {
    Count(Counting),
    Map(Mapping),
    Copy(Box<Copying>),
}

/// What a step of a round came to.
enum Step {
    Done { bytes: u64 },
    Ended(CompactionEnd),
}

impl Round {
    /// Whether the plan stands, as far as the group that is being written needs it.
    fn stands(&self, inner: &Inner) -> bool {
        let end = match &self.phase {
            Phase::Copy(copying) => copying.end_of_group(&self.plan),
            Phase::Count(_) | Phase::Map(_) => Offset::ZERO,
        };
        self.plan.stands(inner, &inner.writer.lock(), end)
    }
}

impl Cleaner {
    pub(super) fn new(config: CleanerConfig) -> Self {
        let (random, found) = (Random::from_system(), RefCell::default());
        Self { config, random, round: None, retry_at: None, begun: 0, completed: 0, found }
    }

    /// Gives up what is under way.
    pub(super) fn reset(&mut self) {
        self.round = None;
        self.retry_at = None;
    }
}

/// How much a partition is in need of compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dirtiness {
    /// Bytes that can be cleaned and were not.
    pub(crate) dirty_bytes: u64,
    /// These, and those that were cleaned.
    pub(crate) bytes: u64,
}

impl Dirtiness {
    /// Whether this one is dirtier than another.
    pub(crate) fn exceeds(self, other: Self) -> bool {
        u128::from(self.dirty_bytes) * u128::from(other.bytes) > u128::from(other.dirty_bytes) * u128::from(self.bytes)
    }
}

impl Partition {
    /// Compacts a piece: reads and writes some `budget` bytes, and says how far that came. It begins where the dirty ratio
    /// or the age of what is dirty says that it is time, and goes on with what an earlier call has begun. Calls of several
    /// threads take turns.
    ///
    /// The active segment is not compacted ([`Partition::roll`] closes it), nor is what a transaction, a [`Hold`](crate::Hold)
    /// or `min_compaction_lag` needs as it is.
    ///
    /// # Errors
    /// What the partition cannot be written for; what made the compaction fail ([`Partition::compaction_error`] says it
    /// from then on). What may pass is tried again, after [`backoff`](crate::CleanerConfig::backoff) and later each time;
    /// of what will not, or has failed ten times in a row, the partition is not compacted any more until it is reopened.
    pub fn compact(&self, now: Now, budget: u64) -> Result<Compacting> {
        self.inner.compact(now, budget, Begin::WhenDue)
    }

    /// Compacts everything that can be when it is called, whatever the dirty ratio, and says what it did. What was compacted
    /// before is gone through too, so that deleted keys whose time is over go. What an earlier call has begun is gone on
    /// with first.
    ///
    /// ```
    /// use taffrail::{BatchBuilder, Cleanup, Clock, Partition, PartitionConfig, ReadOptions, Record, SystemClock};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("lights-0");
    /// let partition = Partition::open(&path, PartitionConfig::new().cleanup(Cleanup::Compact))?;
    /// for (who, light) in [("ana", "dark"), ("bo", "light"), ("ana", "light")] {
    ///     let mut batch = BatchBuilder::new();
    ///     batch.push(&Record::new(light).key(who))?;
    ///     partition.append(&mut batch)?.wait()?;
    /// }
    /// partition.roll()?;
    /// let done = partition.compact_all(SystemClock.now())?;
    /// assert_eq!((done.records_kept, done.records_dropped), (2, 1));
    /// let left = partition.read(partition.start(), ReadOptions::default())?;
    /// assert_eq!(left.records().next().and_then(|record| record.value_str()), Some("light"));
    /// # partition.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Policy`] where the partition is not compacted, and as [`Partition::compact`]. A full disk is none: the
    /// answer says so.
    pub fn compact_all(&self, now: Now) -> Result<Compaction> {
        let inner = &*self.inner;
        inner.check_writable()?;
        if !inner.settings.compacts() {
            return Err(Error::Policy("compact_all needs a cleanup that compacts"));
        }
        let mut total = inner.nothing_done();
        // A round that was begun before may not see what was sealed since.
        let before = inner.cleaner.lock().begun;
        let mut attempts = 0;
        loop {
            let ended = match inner.compact(now, STEP_BYTES, Begin::Behind(before))? {
                Compacting::Idle => break,
                Compacting::Working { .. } => continue,
                Compacting::Ended(ended) => *ended,
            };
            attempts += usize::from(matches!(ended.end, CompactionEnd::Interrupted));
            let goes_on = match ended.end {
                CompactionEnd::MapFull | CompactionEnd::Complete => true,
                CompactionEnd::Interrupted => attempts < ATTEMPTS,
                CompactionEnd::DiskFull { .. } => false,
            };
            total = total.and(ended);
            if !goes_on {
                return Ok(total);
            }
        }
        let end = if inner.settings.compacts() { CompactionEnd::Complete } else { CompactionEnd::Interrupted };
        Ok(Compaction { end, ..total })
    }

    /// What the compaction of the partition has failed with; `None` where nothing is wrong with it. Where its
    /// [kind](Error::kind) is [`ErrorKind::Retry`] it is tried again, and a round that ends well ends it, or it has failed
    /// too often; else the partition is not compacted any more. A reopen ends either.
    #[must_use]
    pub fn compaction_error(&self) -> Option<Error> {
        self.inner.uncleanable.lock().as_ref().map(|trouble| trouble.error.clone())
    }

    /// How much the partition is in need of compaction at `now`; `None` where nothing is due.
    pub(crate) fn dirtiness(&self, now: Now) -> Result<Option<Dirtiness>> {
        let inner = &*self.inner;
        if !inner.settings.compacts() || inner.is_uncleanable() || !self.takes_writes() {
            return Ok(None);
        }
        let Some(mut cleaner) = inner.cleaner.try_lock() else { return Ok(None) };
        if cleaner.retry_at.is_some_and(|at| now.monotonic < at) {
            return Ok(None);
        }
        let selected = inner.survey().select(inner, &cleaner.found, now.wall);
        // What cannot be looked at cannot be compacted either.
        let selected = selected.inspect_err(|error| inner.note_trouble(&mut cleaner, now, error))?;
        let selection = selected.filter(|selection| selection.is_due);
        Ok(selection.map(|selection| {
            let (dirty_bytes, bytes) = selection.dirtiness();
            Dirtiness { dirty_bytes, bytes }
        }))
    }
}

impl Inner {
    /// What a partition alone does of it in one call of its maintenance; what ended then. What fails is noted, and fails
    /// nothing else.
    pub(super) fn compact_alone(&self, now: Now) -> Option<Compaction> {
        if !self.home.is_alone() || self.is_uncleanable() {
            return None;
        }
        // What the policy was changed under is given up.
        let is_under_way = || self.cleaner.try_lock().is_some_and(|cleaner| cleaner.round.is_some());
        if !self.settings.compacts() && !is_under_way() {
            return None;
        }
        match self.compact(now, STEP_BYTES, Begin::WhenDue) {
            Ok(Compacting::Ended(ended)) => Some(*ended),
            Ok(Compacting::Idle | Compacting::Working { .. }) | Err(_) => None,
        }
    }

    /// Whether it is left alone.
    fn is_uncleanable(&self) -> bool {
        self.uncleanable.lock().as_ref().is_some_and(|trouble| trouble.is_final)
    }

    /// The first offset that something holds.
    fn least_held(&self) -> Option<Offset> {
        self.holds.least()
    }

    fn survey(&self) -> Look {
        Look::new(self, &self.writer.lock())
    }

    /// A report of nothing.
    fn nothing_done(&self) -> Compaction {
        let cleaned_to = self.writer.lock().cleaned.unwrap_or(self.picture.view().log_start);
        Compaction { cleaned_to, ..Compaction::default() }
    }

    /// As [`Partition::compact`]; `begin` says when a round is begun.
    fn compact(&self, now: Now, budget: u64, begin: Begin) -> Result<Compacting> {
        self.check_writable()?;
        let mut cleaner = self.cleaner.lock();
        self.check_writable()?;
        if let Some(trouble) = self.uncleanable.lock().as_ref().filter(|trouble| trouble.is_final) {
            return Err(trouble.error.clone());
        }
        let outcome = self.run(&mut cleaner, now, budget, begin);
        outcome.or_else(|error| self.failed(&mut cleaner, now, error))
    }

    fn run(&self, cleaner: &mut Cleaner, now: Now, budget: u64, begin: Begin) -> Result<Compacting> {
        if cleaner.round.is_none() {
            cleaner.round = self.begin_round(cleaner, now, begin)?;
        }
        let Some(round) = &mut cleaner.round else { return Ok(Compacting::Idle) };
        let mut done = 0;
        while done < budget.max(1) {
            if !round.stands(self) {
                return Ok(self.end_round(cleaner, CompactionEnd::Interrupted));
            }
            let step = self.step(round, &cleaner.config, &mut cleaner.random);
            // What a truncation has cut is not there to be read any more, or other records are: then it is no damage.
            let was_cut = step.is_err() && !round.stands(self);
            match if was_cut { Ok(Step::Ended(CompactionEnd::Interrupted)) } else { step }? {
                Step::Done { bytes } => done += bytes.max(1),
                Step::Ended(end) => return Ok(self.end_round(cleaner, end)),
            }
        }
        Ok(Compacting::Working { bytes: done })
    }

    fn end_round(&self, cleaner: &mut Cleaner, end: CompactionEnd) -> Compacting {
        let Some(round) = cleaner.round.take() else { return Compacting::Idle };
        cleaner.reset();
        if end == CompactionEnd::Complete {
            cleaner.completed = round.number;
        }
        if matches!(end, CompactionEnd::Complete | CompactionEnd::MapFull) {
            *self.uncleanable.lock() = None;
        }
        Compacting::Ended(Box::new(self.ended(Compaction { end, ..round.report })))
    }

    fn begin_round(&self, cleaner: &mut Cleaner, now: Now, begin: Begin) -> Result<Option<Round>> {
        let is_forced = match begin {
            Begin::Behind(before) if cleaner.completed > before => return Ok(None),
            Begin::WhenDue if cleaner.retry_at.is_some_and(|at| now.monotonic < at) => return Ok(None),
            Begin::Behind(_) => true,
            Begin::WhenDue => false,
        };
        let look = self.survey();
        let selected = look.select(self, &cleaner.found, now.wall)?;
        let Some(selection) = selected.filter(|selection| selection.is_due || is_forced) else { return Ok(None) };
        let Some(plan) = look.plan(self, selection, now.wall)? else { return Ok(None) };
        cleaner.begun += 1;
        let phase = Phase::Count(Counting::new(&plan));
        let report = Compaction { rounds: 1, ..self.nothing_done() };
        Ok(Some(Round { number: cleaner.begun, plan, phase, report }))
    }

    fn step(&self, round: &mut Round, config: &CleanerConfig, random: &mut Random) -> Result<Step> {
        let Round { plan, phase, report, .. } = round;
        let read_bytes = config.read_bytes as u64;
        match phase {
            Phase::Count(counting) => {
                if let Some(bytes) = counting.step(plan)? {
                    return Ok(Step::Done { bytes });
                }
                let mapping = counting.mapping(plan, config, random)?;
                report.map_bytes = mapping.map.bytes();
                *phase = Phase::Map(mapping);
                Ok(Step::Done { bytes: 0 })
            }
            Phase::Map(mapping) => match mapping.step(plan, read_bytes)? {
                Mapped::Some { bytes } => Ok(Step::Done { bytes }),
                Mapped::All | Mapped::Full => {
                    // What goes next goes for the sake of what is mapped, which therefore has to last, and with it the
                    // markers that commit it, which may lie in the active segment.
                    self.sync_sealed()?;
                    if self.transactional.load(Ordering::Acquire) {
                        self.flush()?;
                    }
                    report.keys = mapping.map.keys();
                    let end = mapping.end;
                    *phase = Phase::Copy(Box::new(Copying::new(mapping.take_map(), end, plan)));
                    Ok(Step::Done { bytes: 0 })
                }
            },
            Phase::Copy(copying) => match copying.step(self, plan, read_bytes, report)? {
                Copied::Some { bytes } => Ok(Step::Done { bytes }),
                Copied::Interrupted => Ok(Step::Ended(CompactionEnd::Interrupted)),
                Copied::All => self.note_cleaned(plan, copying.end, report),
            },
        }
    }

    /// Everything below `end` is compacted.
    fn note_cleaned(&self, plan: &Plan, end: Offset, report: &mut Compaction) -> Result<Step> {
        let mut writer = self.writer.lock();
        self.check_writable()?;
        if !plan.stands(self, &writer, Offset::ZERO) {
            return Ok(Step::Ended(CompactionEnd::Interrupted));
        }
        let cleaned = end.max(plan.selection.first_dirty);
        self.home.note(Mark::Cleaned, cleaned)?;
        writer.cleaned = Some(cleaned);
        report.cleaned_to = cleaned;
        let is_all = end >= plan.selection.limit;
        Ok(Step::Ended(if is_all { CompactionEnd::Complete } else { CompactionEnd::MapFull }))
    }

    fn ended(&self, report: Compaction) -> Compaction {
        trace::info(&self.home.directory, || format!("compacted: {report}"));
        report
    }

    /// What follows from a failure: it passes, or the partition is left alone from now on.
    fn failed(&self, cleaner: &mut Cleaner, now: Now, error: Error) -> Result<Compacting> {
        let report = cleaner.round.take().map_or_else(|| self.nothing_done(), |round| round.report);
        cleaner.reset();
        if let Some(path) = full_disk(&error) {
            cleaner.retry_at = Some(now.monotonic.after(cleaner.config.backoff));
            let report = Compaction { end: CompactionEnd::DiskFull { path }, ..report };
            return Ok(Compacting::Ended(Box::new(self.ended(report))));
        }
        self.note_trouble(cleaner, now, &error);
        Err(error)
    }

    /// It is tried again later, or not at all.
    fn note_trouble(&self, cleaner: &mut Cleaner, now: Now, error: &Error) {
        // Of these the partition itself says what is to be done.
        if matches!(error, Error::Poisoned { .. } | Error::Closed | Error::Forked) {
            return;
        }
        let mut trouble = self.uncleanable.lock();
        let tries = trouble.as_ref().map_or(0, |trouble| trouble.tries) + 1;
        let is_final = error.kind() != ErrorKind::Retry || tries >= TRIES;
        if is_final {
            trace::warn(&self.home.directory, || format!("is not compacted any more until it is reopened: {error}"));
        } else {
            let pause = cleaner.config.backoff.saturating_mul(tries);
            cleaner.retry_at = Some(now.monotonic.after(pause));
            trace::warn(&self.home.directory, || format!("its compaction is tried again in {pause:?}: {error}"));
        }
        *trouble = Some(Trouble { error: error.clone(), tries, is_final });
    }
}

/// The file that there was no room for, where that is what failed.
fn full_disk(error: &Error) -> Option<PathBuf> {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    match error {
        Error::Io { source, path, .. } if full.contains(&source.kind()) => Some(path.clone()),
        _ => None,
    }
}
