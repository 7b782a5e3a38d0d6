//! What a partition knows of its idempotent and transactional producers (SEMANTICS 6 and 7.1).
//!
//! ```text
//!   producer id ─▶ epoch, coordinator's epoch, when it was heard of, first offset of its open transaction,
//!                  the last five batches of this epoch: sequences, offsets, timestamp
//! ```
//!
//! A batch is **checked** before anything of it is written, which changes nothing here, and **taken in** once it is: what
//! failed in between has left no trace. Recovery, truncation and replicas take in what they see, unchecked.
//!
//! - A client's batch that is one of the five is a duplicate: it is answered with the offsets of the first time. Else its
//!   epoch is not earlier than the known one, and its first sequence follows the last (0 follows 2^31 − 1), or is 0 in a
//!   later epoch. Of a producer that is not known every sequence is taken.
//! - A coordinator's batch is asked for its epoch alone. A marker is asked for both epochs, as its version says.
//! - In an open transaction its producer appends nothing else, and a later epoch appends nothing at all before a marker has
//!   ended it: no transaction takes in records of another one.
//! - What opens a transaction here, in a log that has coordinators, is asked for whether somebody vouches for it
//!   ([`Producers::expect`]): its coordinator has said, after it was expected here, that it goes on and has the partition.
//!   A marker ends that too, so that nothing of a transaction comes behind its marker, however late it is and whatever has
//!   been forgotten of its producer meanwhile.
//! - A producer is forgotten once nothing was heard of it for a time: neither by the timestamps of its records, which may
//!   be old ones, nor by the clock when they were appended here, or loaded. An open transaction keeps it. What retention
//!   removes makes nobody forgotten.
//!
//! Nothing here does I/O. A producer takes less than half a kilobyte, whatever it has sent.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::transactions::Transactions;
use crate::error::{Error, Result};
use crate::record::batch::BatchHeader;
use crate::record::control::{ControlRecord, Marker, Outcome, TransactionVersion};
use crate::segment::AbortedTransaction;
use crate::types::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// The producers of one partition, and their transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Producers {
    known: BTreeMap<ProducerId, Producer>,
    transactions: Transactions,
    /// Transactions that may be opened, as their coordinator says.
    expected: BTreeMap<ProducerId, ProducerEpoch>,
}

/// One producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Producer {
    pub(super) epoch: ProducerEpoch,
    /// Of the coordinator that wrote the last marker.
    pub(super) coordinator_epoch: Option<i32>,
    /// The timestamp of its last batch or marker.
    pub(super) updated: Option<Timestamp>,
    /// When that was appended here, or loaded, by the local clock.
    pub(super) heard: Timestamp,
    /// The first offset of its open transaction.
    pub(super) transaction: Option<Offset>,
    pub(super) window: Window,
}

/// The last batches of a producer's epoch, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    batches: [Sent; WINDOW],
    len: usize,
}

/// As many batches a producer may have under way at once.
const WINDOW: usize = 5;

/// A batch that was appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// None where a coordinator sent it, which counts nothing.
    pub(super) last_sequence: Option<Sequence>,
    pub(super) last_offset: Offset,
    /// How many offsets before that its first one is.
    pub(super) offset_delta: u32,
    pub(super) timestamp: Option<Timestamp>,
}

/// Who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Client,
    /// A client whose transactions a coordinator of this log decides on.
    Member,
    Coordinator,
}

/// A batch that is there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Duplicate {
    pub(super) offsets: Range<Offset>,
    pub(super) timestamp: Option<Timestamp>,
}

/// A transaction that no marker has ended yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenTransaction {
    pub(crate) producer_id: ProducerId,
    /// Of its records.
    pub(crate) epoch: ProducerEpoch,
}

/// The last that a producer that is known has appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastRecord {
    pub(super) epoch: ProducerEpoch,
    /// The offset of its last record; `None` where this epoch has only a marker.
    pub(super) last_data: Option<Offset>,
}

impl Producers {
    /// Whether no later epoch of a producer is known.
    pub(super) fn check_epoch(&self, id: ProducerId, epoch: ProducerEpoch) -> Result<()> {
        match self.known.get(&id) {
            Some(producer) if epoch < producer.epoch => Err(producer.fence(id, epoch)),
            _ => Ok(()),
        }
    }

    /// Whether a batch may be appended: it is new, or a duplicate. Nothing is changed.
    pub(super) fn check(&self, batch: &BatchHeader, origin: Origin) -> Result<Option<Duplicate>> {
        let (Some(id), Some(epoch)) = (batch.producer_id(), batch.producer_epoch()) else { return Ok(None) };
        let Some(producer) = self.known.get(&id) else {
            return self.check_opening(batch, id, epoch, origin).map(|()| None);
        };
        let is_client = origin != Origin::Coordinator;
        if is_client && epoch == producer.epoch {
            let sent = producer.window.find(batch);
            if sent.is_some() {
                return Ok(sent.map(Sent::as_duplicate));
            }
        }
        if epoch < producer.epoch {
            return Err(producer.fence(id, epoch));
        }
        if let Some(found) = batch.base_sequence().filter(|_| is_client) {
            let expected = producer.due(epoch);
            if found != expected {
                return Err(Error::OutOfOrderSequence { producer_id: id, expected, found });
            }
        }
        match producer.transaction {
            None => self.check_opening(batch, id, epoch, origin).map(|()| None),
            Some(_) if !batch.is_transactional() => {
                Err(Error::InvalidTransactionState("the producer has a transaction open in the partition"))
            }
            Some(_) if epoch > producer.epoch => Err(Error::InvalidTransactionState(
                "an earlier transaction of the producer has not ended in the partition",
            )),
            Some(_) => Ok(None),
        }
    }

    /// Whether a batch may open a transaction, where it does.
    fn check_opening(&self, batch: &BatchHeader, id: ProducerId, epoch: ProducerEpoch, origin: Origin) -> Result<()> {
        let opens = origin == Origin::Member && batch.is_transactional();
        if opens && self.expected.get(&id) != Some(&epoch) {
            return Err(Error::TransactionAborted);
        }
        Ok(())
    }

    /// A transaction may be opened here from now on, until a marker of its producer comes. Its coordinator is asked
    /// behind this.
    pub(super) fn expect(&mut self, id: ProducerId, epoch: ProducerEpoch) {
        // A later one is its successor's.
        let expected = self.expected.entry(id).or_insert(epoch);
        *expected = epoch.max(*expected);
    }

    /// No transaction of the producer that is of this epoch, or an earlier one, may be opened here.
    pub(super) fn expect_no_more(&mut self, id: ProducerId, epoch: ProducerEpoch) {
        if self.expected.get(&id).is_some_and(|expected| *expected <= epoch) {
            self.expected.remove(&id);
        }
    }

    /// Whether a marker may be appended; `false` where it is there already. Nothing is changed.
    pub(super) fn check_marker(&self, marker: &Marker, version: TransactionVersion) -> Result<bool> {
        let (producer_id, epoch) = (marker.producer_id, marker.producer_epoch);
        let Some(producer) = self.known.get(&producer_id) else { return Ok(true) };
        if epoch < producer.epoch {
            return Err(producer.fence(producer_id, epoch));
        }
        if let Some(current) = producer.coordinator_epoch.filter(|current| marker.coordinator_epoch < *current) {
            return Err(Error::CoordinatorFenced { producer_id, epoch: marker.coordinator_epoch, current });
        }
        if marker.outcome == Outcome::Committed && producer.transaction.is_some() && producer.is_jumped_by(epoch) {
            return Err(Error::InvalidTransactionState(
                "the commit is of a later transaction than the one that is open",
            ));
        }
        if version == TransactionVersion::V1 || epoch > producer.epoch {
            return Ok(true);
        }
        if producer.transaction.is_some() {
            return Err(producer.fence(producer_id, epoch));
        }
        Ok(false)
    }

    /// Takes in a batch that is appended. What aborts records yields the entry for the transaction index: a marker, or what
    /// shows that one was lost.
    pub(super) fn observe(
        &mut self,
        batch: &BatchHeader,
        control: Option<ControlRecord>,
        now: Timestamp,
    ) -> Option<AbortedTransaction> {
        let (id, epoch) = (batch.producer_id()?, batch.producer_epoch()?);
        let (coordinator_epoch, aborts) = match control {
            Some(ControlRecord::Abort { coordinator_epoch }) => (coordinator_epoch, true),
            Some(ControlRecord::Commit { coordinator_epoch }) => (coordinator_epoch, false),
            // Compaction has left nothing of a marker, or it is none.
            _ if batch.is_control() => return None,
            _ => return self.observe_data(batch, id, epoch, now),
        };
        let producer = self.known.entry(id).or_insert_with(|| Producer::new(epoch));
        // A commit of a later transaction than the one that is open: the end of that is lost.
        let is_of_another = producer.transaction.is_some() && producer.is_jumped_by(epoch);
        producer.hear(batch, epoch, now);
        producer.coordinator_epoch = Some(coordinator_epoch).filter(|epoch| *epoch >= 0);
        let first_offset = producer.transaction.take()?;
        let last_offset = batch.last_offset();
        let last_stable_offset = self.transactions.decide(first_offset, last_offset);
        let aborted = AbortedTransaction { producer_id: id, first_offset, last_offset, last_stable_offset };
        (aborts || is_of_another).then_some(aborted)
    }

    /// The entry for the transaction index that a marker will yield, where it aborts records.
    pub(super) fn abort_of(&self, batch: &BatchHeader, control: Option<ControlRecord>) -> Option<AbortedTransaction> {
        let producer_id = batch.producer_id().filter(|_| matches!(control, Some(ControlRecord::Abort { .. })))?;
        let first_offset = self.known.get(&producer_id)?.transaction?;
        let last_offset = batch.last_offset();
        let last_stable_offset = self.transactions.stable_behind(first_offset, last_offset);
        Some(AbortedTransaction { producer_id, first_offset, last_offset, last_stable_offset })
    }

    /// Takes in records. Where they are of a later transaction than the one that is open, the marker of that is lost, and
    /// with it whether its records count: they do not.
    fn observe_data(
        &mut self,
        batch: &BatchHeader,
        id: ProducerId,
        epoch: ProducerEpoch,
        now: Timestamp,
    ) -> Option<AbortedTransaction> {
        let producer = self.known.entry(id).or_insert_with(|| Producer::new(epoch));
        let unended = if epoch > producer.epoch { producer.transaction.take() } else { None };
        producer.data(batch, epoch, now);
        self.open(id, batch);
        let (first_offset, last_offset) = (unended?, batch.base_offset());
        let last_stable_offset = self.transactions.decide(first_offset, last_offset);
        Some(AbortedTransaction { producer_id: id, first_offset, last_offset, last_stable_offset })
    }

    fn open(&mut self, id: ProducerId, batch: &BatchHeader) {
        let Some(producer) = self.known.get_mut(&id) else { return };
        if batch.is_transactional() && producer.transaction.is_none() {
            producer.transaction = Some(batch.base_offset());
            self.transactions.open(batch.base_offset());
        }
    }

    /// A producer that a snapshot tells of. Says whether there was none of this id.
    pub(super) fn restore(&mut self, id: ProducerId, producer: Producer) -> bool {
        if let Some(first) = producer.transaction {
            self.transactions.open(first);
        }
        self.known.insert(id, producer).is_none()
    }

    /// What a snapshot tells was heard now.
    pub(super) fn loaded(&mut self, now: Timestamp) {
        for producer in self.known.values_mut() {
            producer.heard = now;
        }
    }

    /// The transactions that are open.
    pub(super) fn open_transactions(&self) -> Vec<OpenTransaction> {
        let open = self.known.iter().filter(|(_, producer)| producer.transaction.is_some());
        open.map(|(id, producer)| OpenTransaction { producer_id: *id, epoch: producer.epoch }).collect()
    }

    /// The epoch of the transaction that a producer has open.
    pub(super) fn open_epoch(&self, id: ProducerId) -> Option<ProducerEpoch> {
        self.known.get(&id).filter(|producer| producer.transaction.is_some()).map(|producer| producer.epoch)
    }

    /// The greatest id that is known, among those that `counts` says count.
    pub(super) fn greatest(&self, counts: impl Fn(ProducerId) -> bool) -> Option<ProducerId> {
        self.known.keys().copied().rfind(|id| counts(*id))
    }

    pub(super) fn knows(&self, id: ProducerId) -> bool {
        self.known.contains_key(&id)
    }

    /// All of them, by id.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (ProducerId, &Producer)> {
        self.known.iter().map(|(id, producer)| (*id, producer))
    }

    /// The last record of each of them.
    pub(super) fn last_records(&self) -> BTreeMap<ProducerId, LastRecord> {
        let last = |producer: &Producer| LastRecord {
            epoch: producer.epoch,
            last_data: producer.window.last().map(|sent| sent.last_offset),
        };
        self.known.iter().map(|(id, producer)| (*id, last(producer))).collect()
    }

    /// Forgets whoever nothing was heard of for `expiration`; answers how many these were.
    pub(super) fn expire(&mut self, now: Timestamp, expiration: Duration) -> usize {
        let before = self.known.len();
        let expiration = i64::try_from(expiration.as_millis()).unwrap_or(i64::MAX);
        self.known.retain(|_, producer| {
            let last = producer.updated.map_or(producer.heard, |updated| updated.max(producer.heard));
            producer.transaction.is_some() || now.0.saturating_sub(last.0) < expiration
        });
        before - self.known.len()
    }

    /// The last stable offset under this high watermark. Forgets decided transactions whose marker it passed.
    pub(super) fn last_stable(&mut self, high_watermark: Offset) -> Offset {
        self.transactions.last_stable(high_watermark)
    }
}

impl Producer {
    fn new(epoch: ProducerEpoch) -> Self {
        Self {
            epoch,
            coordinator_epoch: None,
            updated: None,
            heard: Timestamp::default(),
            transaction: None,
            window: Window::default(),
        }
    }

    /// A batch or a marker of this epoch.
    fn hear(&mut self, batch: &BatchHeader, epoch: ProducerEpoch, now: Timestamp) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.window = Window::default();
        }
        self.updated = batch.max_timestamp();
        self.heard = now;
    }

    /// Whether a marker of this epoch is that of a later transaction: it has the epoch of the records that it ends, or the
    /// one above.
    fn is_jumped_by(&self, epoch: ProducerEpoch) -> bool {
        i32::from(epoch.0) > i32::from(self.epoch.0) + 1
    }

    fn data(&mut self, batch: &BatchHeader, epoch: ProducerEpoch, now: Timestamp) {
        self.hear(batch, epoch, now);
        self.window.push(Sent::of(batch));
    }

    /// The first sequence that is due in an epoch, which is not earlier than the known one.
    fn due(&self, epoch: ProducerEpoch) -> Sequence {
        let last = self.window.last().filter(|_| epoch == self.epoch).and_then(|sent| sent.last_sequence);
        last.map_or(Sequence(0), |last| last.plus(1))
    }

    #[cold]
    fn fence(&self, producer_id: ProducerId, epoch: ProducerEpoch) -> Error {
        Error::ProducerFenced { producer_id, epoch, current: self.epoch }
    }
}

impl Window {
    pub(super) fn of(sent: Option<Sent>) -> Self {
        let mut window = Self::default();
        if let Some(sent) = sent {
            window.push(sent);
        }
        window
    }

    pub(super) fn last(&self) -> Option<&Sent> {
        self.sent().last()
    }

    fn sent(&self) -> &[Sent] {
        self.batches.get(..self.len).unwrap_or_default()
    }

    fn push(&mut self, sent: Sent) {
        if self.len == WINDOW {
            self.batches.rotate_left(1);
        } else {
            self.len += 1;
        }
        if let Some(last) = self.batches.get_mut(self.len - 1) {
            *last = sent;
        }
    }

    /// The batch with these very sequences.
    fn find(&self, batch: &BatchHeader) -> Option<Sent> {
        let (first, last) = (batch.base_sequence()?, batch.last_sequence()?);
        let same = |sent: &&Sent| sent.last_sequence == Some(last) && sent.first_sequence() == Some(first);
        self.sent().iter().rev().find(same).copied()
    }
}

impl Sent {
    fn of(batch: &BatchHeader) -> Self {
        let (last_offset, base) = (batch.last_offset(), batch.base_offset());
        Self {
            last_sequence: batch.last_sequence(),
            last_offset,
            // A batch has at most 2^31 offsets.
            offset_delta: u32::try_from(last_offset.0 - base.0).unwrap_or(u32::MAX),
            timestamp: batch.max_timestamp(),
        }
    }

    fn first_sequence(&self) -> Option<Sequence> {
        self.last_sequence.map(|last| last.minus(self.offset_delta))
    }

    fn as_duplicate(self) -> Duplicate {
        let first = Offset(self.last_offset.0.saturating_sub(self.offset_delta.into()));
        Duplicate { offsets: first..self.last_offset.plus(1), timestamp: self.timestamp }
    }
}

#[cfg(test)]
mod tests;
