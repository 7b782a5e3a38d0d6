//! What stays of a batch: pure, but for the state of the transactions that a pass carries from batch to batch.
//!
//! ```text
//!   at or behind the end of what was mapped     stays as it is
//!   marker of a transaction                     stays while data of it was seen in this pass; else the delete horizon is
//!                                               set, and once that has passed it goes
//!   control batch without a record              goes                       other control records stay
//!   of an aborted transaction                   its records go
//!   record without a key                        goes
//!   record whose key has a later offset         goes
//!   record without a value                      stays until the delete horizon of its batch, which is set by the first
//!                                               pass that keeps it
//!   every other record                          stays
//! ```
//!
//! A batch without a record left goes too, unless its header is needed: (i) it holds the last data of an active producer,
//! whose sequences go on from it; (ii) a producer has nothing but markers left, and this one has its epoch; (iii) it is
//! the last batch of the pass, so that the offset behind it is known.

use std::collections::{BTreeMap, BTreeSet};

use super::super::producers::LastRecord;
use super::super::snapshots::GoneMarker;
use super::map::{Hash, OffsetMap};
use super::tally::{Outlook, Tally};
use crate::mutants;
use crate::record::batch::BatchHeader;
use crate::record::batches::Batch;
use crate::record::control::ControlRecord;
use crate::record::decode::RecordView;
use crate::segment::AbortedTransaction;
use crate::types::{Offset, ProducerId, Timestamp};

/// The aborted transactions of a log, by producer and rising.
#[derive(Clone, Debug, Default)]
pub(super) struct Aborted(BTreeMap<ProducerId, Vec<AbortedTransaction>>);

impl Aborted {
    pub(super) fn new(entries: impl IntoIterator<Item = AbortedTransaction>) -> Self {
        let mut aborted = Self::default();
        for entry in entries {
            aborted.0.entry(entry.producer_id).or_default().push(entry);
        }
        aborted.0.values_mut().for_each(|entries| entries.sort_by_key(|entry| entry.last_offset));
        aborted
    }

    /// Whether a batch of data belongs to one.
    pub(super) fn covers(&self, header: &BatchHeader) -> bool {
        let is_data = header.is_transactional() && !header.is_control();
        // Where its marker is lost it ends before the next records of its producer.
        let behind = header.base_offset().plus(1);
        let entry = header.producer_id().filter(|_| is_data).and_then(|id| self.ending_from(id, behind));
        entry.is_some_and(|entry| entry.first_offset <= header.base_offset())
    }

    /// The one that a marker ends.
    fn ended_by(&self, producer: ProducerId, marker: Offset) -> Option<AbortedTransaction> {
        self.ending_from(producer, marker).filter(|entry| entry.last_offset == marker)
    }

    /// The first one of a producer that ends at or behind `offset`.
    fn ending_from(&self, producer: ProducerId, offset: Offset) -> Option<AbortedTransaction> {
        let entries = self.0.get(&producer)?;
        entries.get(entries.partition_point(|entry| entry.last_offset < offset)).copied()
    }
}

/// What a pass has seen of transactions.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Whose transactions have shown data.
    with_data: BTreeSet<ProducerId>,
    /// The last marker of each producer that stays.
    markers: BTreeMap<ProducerId, Offset>,
}

impl Seen {
    /// Takes in a batch. Of a marker it answers whether there was data of its transaction.
    fn observe(&mut self, header: &BatchHeader, control: Option<ControlRecord>) -> bool {
        let Some(producer) = header.producer_id().filter(|_| header.is_transactional()) else { return false };
        match control {
            Some(ControlRecord::Abort { .. } | ControlRecord::Commit { .. }) => self.with_data.remove(&producer),
            _ if header.is_control() => false,
            _ => {
                self.with_data.insert(producer);
                false
            }
        }
    }

    /// Takes in what becomes of a batch; answers the marker that goes with it.
    fn decide(&mut self, header: &BatchHeader, control: Option<ControlRecord>, fate: &Fate) -> Option<GoneMarker> {
        let is_marker = matches!(control, Some(ControlRecord::Abort { .. } | ControlRecord::Commit { .. }));
        let producer = header.producer_id().filter(|_| is_marker && header.is_transactional())?;
        let offset = header.last_offset();
        if matches!(fate, Fate::Goes | Fate::Header) {
            return Some(GoneMarker { producer, after: self.markers.get(&producer).copied(), offset });
        }
        self.markers.insert(producer, offset);
        None
    }
}

/// What becomes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stays, to the byte.
    Stays,
    /// It is written again, with the records that are marked, and with this delete horizon unless it has one.
    Rewritten { kept: Vec<bool>, horizon: Option<Timestamp> },
    /// Its header stays.
    Header,
    /// It goes.
    Goes,
}

/// A fate, and what goes with it.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) fate: Fate,
    /// The entry of the transaction index.
    pub(super) aborted: Option<AbortedTransaction>,
    /// The marker that is no more.
    pub(super) marker: Option<GoneMarker>,
}

/// What a pass goes by.
#[derive(Debug)]
pub(super) struct Judge<'a> {
    pub(super) map: &'a OffsetMap,
    pub(super) tally: &'a Tally,
    /// Where what was mapped ends.
    pub(super) end: Offset,
    pub(super) now: Timestamp,
    /// What a delete horizon is set to.
    pub(super) horizon: Timestamp,
    pub(super) aborted: &'a Aborted,
    pub(super) producers: &'a BTreeMap<ProducerId, LastRecord>,
}

impl Judge<'_> {
    /// Says what becomes of a batch. `is_last`: its header stays whatever goes.
    pub(super) fn judge(&self, batch: &Batch<'_>, seen: &mut Seen, is_last: bool) -> Verdict {
        let header = batch.header();
        let control = batch.control();
        let had_data = seen.observe(header, control) && !mutants::is_in(mutants::MARKER_BEFORE_DATA);
        let ended = || header.producer_id().and_then(|id| self.aborted.ended_by(id, header.last_offset()));
        let marks_abort = matches!(control, Some(ControlRecord::Abort { .. }));
        if header.base_offset() >= self.end {
            let marker = seen.decide(header, control, &Fate::Stays);
            return Verdict { fate: Fate::Stays, aborted: ended().filter(|_| marks_abort), marker };
        }
        let fate = if header.is_control() {
            self.judge_control(header, control, had_data)
        } else if self.aborted.covers(header) {
            Fate::Goes
        } else {
            self.judge_data(batch)
        };
        let is_needed = is_last || self.is_last_of_producer(header);
        let fate = if fate == Fate::Goes && is_needed { Fate::Header } else { fate };
        let marker = seen.decide(header, control, &fate);
        Verdict { fate, aborted: ended().filter(|_| marks_abort && had_data), marker }
    }

    fn judge_control(&self, header: &BatchHeader, control: Option<ControlRecord>, had_data: bool) -> Fate {
        match control {
            None => Fate::Goes,
            Some(ControlRecord::Abort { .. } | ControlRecord::Commit { .. }) if !had_data => {
                match header.delete_horizon() {
                    Some(horizon) if horizon <= self.now => Fate::Goes,
                    Some(_) => Fate::Stays,
                    None => Fate::Rewritten { kept: all_of(header), horizon: Some(self.horizon) },
                }
            }
            Some(_) => Fate::Stays,
        }
    }

    /// Whether a batch, which begins with these bytes, goes without being read: every record of it was counted, and not
    /// even its header is needed.
    pub(super) fn passes_over(&self, header: &BatchHeader, bytes: &[u8], seen: &mut Seen) -> bool {
        let goes = !header.is_control()
            && self.tally.outlook(header, bytes) == Some(Outlook::Goes)
            && !self.is_last_of_producer(header);
        if goes {
            seen.observe(header, None);
        }
        goes
    }

    fn judge_data(&self, batch: &Batch<'_>) -> Fate {
        let header = batch.header();
        match self.tally.outlook(header, batch.bytes()) {
            Some(Outlook::Goes) => return Fate::Goes,
            Some(Outlook::Stays) => return Fate::Stays,
            None => {}
        }
        let is_past_horizon = header.delete_horizon().is_some_and(|horizon| horizon <= self.now)
            || mutants::is_in(mutants::DELETION_FORGOTTEN);
        let mut count = 0_u32;
        let mut keeps_tombstone = false;
        let hashes: Vec<_> = batch.records().map(|record| record.key().map(|key| self.map.hash(key))).collect();
        self.map.warm(hashes.iter().filter_map(|hash| *hash));
        let judge = |(record, hash): (RecordView<'_>, &Option<Hash>)| {
            let stays = self.keeps(&record, *hash, is_past_horizon);
            count += u32::from(stays);
            keeps_tombstone |= stays && record.value().is_none();
            stays
        };
        let kept: Vec<bool> = batch.records().zip(&hashes).map(judge).collect();
        // Of a batch that is mapped in part the rest is not clean yet: the time of its tombstones has not begun.
        let begins = keeps_tombstone && header.delete_horizon().is_none() && header.last_offset() < self.end;
        match count {
            0 => Fate::Goes,
            all if all == header.record_count() && !begins => Fate::Stays,
            _ => Fate::Rewritten { kept, horizon: begins.then_some(self.horizon) },
        }
    }

    fn keeps(&self, record: &RecordView<'_>, key: Option<Hash>, is_past_horizon: bool) -> bool {
        if record.offset() >= self.end {
            return true;
        }
        let Some(key) = key else { return false };
        let is_latest = self.map.get(key).is_none_or(|last| last <= record.offset());
        is_latest && (record.value().is_some() || !is_past_horizon)
    }

    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        let last = header.producer_id().and_then(|id| self.producers.get(&id));
        last.is_some_and(|last| match last.last_data {
            Some(offset) => header.last_offset() == offset,
            None => header.is_control() && header.producer_epoch() == Some(last.epoch),
        })
    }
}

fn all_of(header: &BatchHeader) -> Vec<bool> {
    // One is there at least: the batch was checked, and holds no more records than its bytes do.
    vec![true; header.record_count() as usize]
}
