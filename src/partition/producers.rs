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
//! - In an open transaction its producer appends nothing else.
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
use crate::record::control::{ControlRecord, Marker, TransactionVersion};
use crate::segment::AbortedTransaction;
use crate::types::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// The producers of one partition, and their transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Producers {
    known: BTreeMap<ProducerId, Producer>,
    transactions: Transactions,
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
    Coordinator,
}

/// A batch that is there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Duplicate {
    pub(super) offsets: Range<Offset>,
    pub(super) timestamp: Option<Timestamp>,
}

/// The last that a producer that is known has appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastRecord {
    pub(super) epoch: ProducerEpoch,
    /// The offset of its last record; `None` where this epoch has only a marker.
    pub(super) last_data: Option<Offset>,
}

impl Producers {
    /// Whether a batch may be appended: it is new, or a duplicate. Nothing is changed.
    pub(super) fn check(&self, batch: &BatchHeader, origin: Origin) -> Result<Option<Duplicate>> {
        let (Some(id), Some(epoch)) = (batch.producer_id(), batch.producer_epoch()) else { return Ok(None) };
        let Some(producer) = self.known.get(&id) else { return Ok(None) };
        if origin == Origin::Client && epoch == producer.epoch {
            let sent = producer.window.find(batch);
            if sent.is_some() {
                return Ok(sent.map(Sent::as_duplicate));
            }
        }
        if epoch < producer.epoch {
            return Err(producer.fence(id, epoch));
        }
        if let Some(found) = batch.base_sequence().filter(|_| origin == Origin::Client) {
            let expected = producer.due(epoch);
            if found != expected {
                return Err(Error::OutOfOrderSequence { producer_id: id, expected, found });
            }
        }
        if producer.transaction.is_some() && !batch.is_transactional() {
            return Err(Error::InvalidTransactionState("the producer has a transaction open in the partition"));
        }
        Ok(None)
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
        if version == TransactionVersion::V1 || epoch > producer.epoch {
            return Ok(true);
        }
        if producer.transaction.is_some() {
            return Err(producer.fence(producer_id, epoch));
        }
        Ok(false)
    }

    /// Takes in a batch that is appended. A marker that aborts records yields the entry for the transaction index.
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
            _ => {
                self.known.entry(id).or_insert_with(|| Producer::new(epoch)).data(batch, epoch, now);
                self.open(id, batch);
                return None;
            }
        };
        let producer = self.known.entry(id).or_insert_with(|| Producer::new(epoch));
        producer.hear(batch, epoch, now);
        producer.coordinator_epoch = Some(coordinator_epoch).filter(|epoch| *epoch >= 0);
        let first_offset = producer.transaction.take()?;
        let last_offset = batch.last_offset();
        let last_stable_offset = self.transactions.decide(first_offset, last_offset);
        aborts.then_some(AbortedTransaction { producer_id: id, first_offset, last_offset, last_stable_offset })
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
