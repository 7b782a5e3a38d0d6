//! The way of one producer into one partition: the open batch, and the order in which batches are appended.
//!
//! ```text
//!   send ──(fill lock)──▶ open batch ──taken, sealed and appended (send lock)──▶ partition
//! ```
//!
//! Two locks. The **fill lock** guards the open batch, for as long as one record is encoded. The **send lock** is held
//! from the moment at which a batch is taken until it is appended, and never over a sync: so batches are appended in the
//! order in which they were filled, whoever appends them, while `send` fills the next one. Order of locks: send, fill,
//! agenda or memory.
//!
//! Invariants: a record that was pushed before another is in the same batch before it, or in an earlier batch; every
//! batch is open, or is being appended by the holder of the send lock, or has its outcome.

use std::fmt;
use std::sync::Arc;

use super::accumulator::Accumulator;
use super::agenda::Key;
use super::delivery::{Batch, Delivery, Placed};
use super::memory::Buffer;
use super::sequences::Sequences;
use super::transactional::Entry;
use crate::error::{Error, Result};
use crate::machine::ProducerIdentity;
#[cfg(mutants)]
use crate::mutants;
use crate::node::Topic;
use crate::partition::{Appended, Partition, Receipt};
use crate::record::builder::{BatchBuilder, Record};
use crate::sync::Mutex;
use crate::trace;
use crate::types::{Acks, Compression, Sequence, Timestamp, TopicId, TopicPartition};

/// One partition, as one producer sees it.
pub(super) struct Lane {
    accumulator: Arc<Accumulator>,
    topic: Arc<str>,
    id: TopicId,
    number: u32,
    partition: Partition,
    fill: Mutex<Option<Open>>,
    send: Mutex<Sending>,
}

/// A batch that takes records.
struct Open {
    buffer: Buffer,
    batch: Arc<Batch>,
    compression: Compression,
    /// Its one record filled it: what its sender is going to answer nobody else needs to be told.
    is_senders: bool,
}

/// What only the holder of the send lock may touch.
#[derive(Default)]
struct Sending {
    /// The version of the node's topics at which the topic was seen there last.
    seen_at: Option<u64>,
    /// The last append, until it is known to be stored.
    last: Option<Receipt>,
    /// Appends before the partition was reopened or truncated, until it is known what became of them.
    earlier: Vec<Receipt>,
    /// Whose transaction the partition is in, and the sequence of the next record of that.
    entered: Option<(ProducerIdentity, Sequence)>,
    /// Of an idempotent producer, from its first batch here on.
    sequences: Option<Sequences>,
    /// A batch that the next one overtakes.
    #[cfg(mutants)]
    delayed: Option<Open>,
}

/// How a push went.
pub(super) enum Pushed {
    Done(Sent),
    /// The open batch has no room for it.
    NoRoom(Key),
    /// There is no open batch, and no buffer was brought for one.
    NoBuffer,
}

/// A record that is in its batch.
pub(super) struct Sent {
    pub(super) delivery: Delivery,
    /// The bytes it takes there.
    pub(super) bytes: usize,
    /// Its batch, if that takes no more.
    pub(super) filled: Option<Key>,
    /// Whether its batch is due earlier than anything was before.
    pub(super) is_due_earlier: bool,
}

impl Lane {
    pub(super) fn new(accumulator: &Arc<Accumulator>, topic: &Topic, number: u32, partition: &Partition) -> Arc<Self> {
        Arc::new(Self {
            accumulator: Arc::clone(accumulator),
            topic: Arc::clone(&topic.name),
            id: topic.id,
            number,
            partition: partition.clone(),
            fill: Mutex::new(None),
            send: Mutex::default(),
        })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn acks(&self) -> Acks {
        self.accumulator.settings.acks
    }

    /// A batch that has reached this many bytes takes no more records. The topic's settings may change.
    #[inline]
    pub(super) fn batch_bytes(&self, compression: Compression) -> usize {
        let limit = self.partition.batch_limit();
        let limit = if compression == Compression::None { limit } else { limit.min(self.unpacked_limit()) };
        self.accumulator.settings.batch_bytes.min(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// The largest batch, uncompressed, that readers take back out of a compressed one.
    fn unpacked_limit(&self) -> u64 {
        self.partition.decompressed_limit() as u64 + HEADER_BYTES
    }

    /// Refuses a record that no batch of the partition can hold. How far compression gets it down shows only when it
    /// is done.
    #[inline]
    pub(super) fn check(&self, record: &Record<'_>, compression: Compression) -> Result<()> {
        if record.timestamp.is_some() || self.partition.needs_keys() {
            self.partition.check_record(record.key.is_some(), record.timestamp)?;
        }
        let limit = self.partition.batch_limit();
        if record.size_bytes_max() + HEADER_BYTES > limit {
            let size = record.batch_size_bytes();
            if size > limit && compression == Compression::None {
                return Err(Error::BatchTooLarge { size, limit });
            }
            if size > limit.max(self.unpacked_limit()) {
                let limit = self.partition.decompressed_limit();
                return Err(Error::DecompressionBound { codec: compression.name(), limit });
            }
        }
        Ok(())
    }

    /// Encodes a record into the open batch; opens one in the buffer that was brought, where there is none.
    pub(super) fn push(
        self: &Arc<Self>,
        record: &Record<'_>,
        stamp: Timestamp,
        compression: Compression,
        buffer: &mut Option<Buffer>,
    ) -> Result<Pushed> {
        let mut fill = self.fill.lock();
        let mut is_due_earlier = false;
        let open = match &mut *fill {
            Some(open) if !self.has_room(open, record, stamp) => return Ok(Pushed::NoRoom(open.batch.key())),
            Some(open) => open,
            none => {
                let Some(buffer) = buffer.take() else { return Ok(Pushed::NoBuffer) };
                let (open, is_earlier) = self.open(buffer, compression)?;
                is_due_earlier = is_earlier;
                none.insert(open)
            }
        };
        let before = open.buffer.builder.size_bytes();
        let delivery = match open.push(record, stamp) {
            Ok(delivery) => delivery,
            Err(error) => {
                self.drop_empty(&mut fill);
                return Err(error);
            }
        };
        let size = open.buffer.builder.size_bytes();
        let filled = (size >= self.limit_of(open)).then(|| open.batch.key());
        open.is_senders = filled.is_some() && open.buffer.builder.len() == 1;
        Ok(Pushed::Done(Sent { delivery, bytes: size - before, filled, is_due_earlier }))
    }

    #[inline]
    fn has_room(&self, open: &Open, record: &Record<'_>, stamp: Timestamp) -> bool {
        let (builder, limit) = (&open.buffer.builder, self.limit_of(open) as u64);
        builder.size_bytes() as u64 + record.size_bytes_max() <= limit || builder.size_with(record, stamp) <= limit
    }

    /// How far a batch is filled: the topic may take less by now, and no more than its memory is charged with fits.
    #[inline]
    fn limit_of(&self, open: &Open) -> usize {
        self.batch_bytes(open.compression).min(open.buffer.charge())
    }

    fn open(self: &Arc<Self>, mut buffer: Buffer, compression: Compression) -> Result<(Open, bool)> {
        buffer.builder = std::mem::take(&mut buffer.builder).compression(compression);
        let (key, is_earlier) = self.accumulator.enter(self)?;
        Ok((Open { buffer, batch: Batch::new(self, key), compression, is_senders: false }, is_earlier))
    }

    /// A batch that was opened for a record that was refused.
    #[cold]
    fn drop_empty(&self, fill: &mut Option<Open>) {
        if let Some(open) = fill.take_if(|open| open.buffer.builder.is_empty()) {
            self.accumulator.leave(open.batch.key());
        }
    }

    /// Appends the open batch, if there is one, and if it is the one asked for; returns after whatever another thread
    /// appends here at the moment. The error is told to the deliveries of the batch, too.
    pub(super) fn hand_over(&self, which: Option<Key>) -> Result<()> {
        let outcome = self.append_open(&mut self.send.lock(), which);
        self.accumulator.lane_is_free();
        outcome
    }

    /// As [`Self::hand_over`]; nothing where another thread is appending here.
    pub(super) fn try_hand_over(&self, which: Key) -> Option<Result<()>> {
        let outcome = self.append_open(&mut *self.send.try_lock()?, Some(which));
        self.accumulator.lane_is_free();
        Some(outcome)
    }

    fn append_open(&self, sending: &mut Sending, which: Option<Key>) -> Result<()> {
        let open = self.take(which);
        #[cfg(mutants)]
        let open = self.delay(sending, which, open);
        let Some(open) = open else { return Ok(()) };
        self.append_taken(sending, open)
    }

    fn append_taken(&self, sending: &mut Sending, open: Open) -> Result<()> {
        self.accumulator.take(open.batch.key());
        let mut appending = Appending { lane: self, open, outcome: Err(Error::Closed) };
        appending.outcome = self.append(sending, &mut appending.open);
        let outcome = appending.outcome.as_ref().map(drop).map_err(Clone::clone);
        drop(appending);
        outcome
    }

    /// Lets a batch be overtaken by the one after it, where that is the mutant; answers what is to be appended last.
    #[cfg(mutants)]
    fn delay(&self, sending: &mut Sending, which: Option<Key>, open: Option<Open>) -> Option<Open> {
        let delays = mutants::is_in(mutants::OVERTAKING_BATCH) && which.is_some() && sending.delayed.is_none();
        match open {
            Some(open) if delays => {
                sending.delayed = Some(open);
                None
            }
            open => {
                let Some(delayed) = sending.delayed.take() else { return open };
                if let Some(open) = open {
                    drop(self.append_taken(sending, open));
                }
                Some(delayed)
            }
        }
    }

    /// Takes the open batch, so that the next record opens another.
    fn take(&self, which: Option<Key>) -> Option<Open> {
        let mut fill = self.fill.lock();
        fill.take_if(|open| which.is_none_or(|key| key == open.batch.key()))
    }

    fn append(&self, sending: &mut Sending, open: &mut Open) -> Result<Placed> {
        self.check_topic(sending)?;
        if open.compression != Compression::None {
            open.buffer.lend_press();
        }
        let appended = self.append_in_order(sending, open).map_err(|error| self.explain(error))?;
        let placed = placed(&appended);
        self.follow(sending, placed.receipt);
        Ok(placed)
    }

    /// The append to wait for is this one now. One sync says of all before it that they are stored, but for those that a
    /// reopen or a truncation may have taken in between.
    fn follow(&self, sending: &mut Sending, receipt: Receipt) {
        let Some(before) = sending.last.replace(receipt).filter(|before| before.is_of_another_log(receipt)) else {
            return;
        };
        match self.try_stored(before).filter(|_| self.acks() == Acks::All) {
            Some(Ok(())) => {}
            Some(Err(error)) => self.accumulator.failed(&error),
            None => sending.earlier.push(before),
        }
    }

    /// Appends a batch behind the ones before, as the producer's next where that is idempotent.
    fn append_in_order(&self, sending: &mut Sending, open: &mut Open) -> Result<Appended<'_>> {
        let compression = open.compression;
        let append = |builder: &mut BatchBuilder| self.append_fitting(builder, compression);
        if self.accumulator.transactional.is_some() {
            return self.append_in_transaction(sending, &mut open.buffer.builder, append);
        }
        let Some(id) = self.accumulator.producer_id else { return append(&mut open.buffer.builder) };
        let node = &self.accumulator.node;
        let sequences = match &mut sending.sequences {
            Some(sequences) => sequences,
            unnumbered => unnumbered.insert(Sequences::begin(id, node, &self.partition)?),
        };
        sequences.append(node, &self.partition, &mut open.buffer.builder, append)
    }

    /// Appends a batch as the next one of the open transaction.
    fn append_in_transaction<'l>(
        &'l self,
        sending: &mut Sending,
        builder: &mut BatchBuilder,
        append: impl Fn(&mut BatchBuilder) -> Result<Appended<'l>>,
    ) -> Result<Appended<'l>> {
        let records = u32::try_from(builder.len()).unwrap_or(u32::MAX);
        self.enter(sending, builder)?;
        let appended = match append(builder) {
            // It would open a transaction, and nobody has said that there is one.
            Err(Error::TransactionAborted) => {
                self.verify(sending)?;
                append(builder)?
            }
            other => other?,
        };
        if let Some((_, next)) = &mut sending.entered {
            *next = next.plus(records);
        }
        Ok(appended)
    }

    /// Asks the coordinator whether the transaction goes on, where the partition has none of it.
    #[cold]
    fn verify(&self, sending: &Sending) -> Result<()> {
        let (Some(transactional), Some((producer, next))) = (&self.accumulator.transactional, sending.entered) else {
            return Ok(());
        };
        transactional.add(&self.accumulator.node, producer, &[self.entry()])?;
        if next != Sequence(0) {
            // It had records here before, and they have been taken back.
            return Err(Error::Superseded { offset: self.partition.end() });
        }
        Ok(())
    }

    /// Appends a batch, uncompressed where compression has made it too large.
    fn append_fitting(&self, builder: &mut BatchBuilder, compression: Compression) -> Result<Appended<'_>> {
        match self.append_once(builder) {
            // Compression can make bytes more, and readers may be bound to take out less than they take uncompressed.
            Err(Error::BatchTooLarge { .. } | Error::DecompressionBound { .. })
                if compression != Compression::None && builder.size_bytes() as u64 <= self.partition.batch_limit() =>
            {
                *builder = std::mem::take(builder).compression(Compression::None);
                self.append_once(builder)
            }
            other => other,
        }
    }

    fn append_once(&self, builder: &mut BatchBuilder) -> Result<Appended<'_>> {
        if self.accumulator.transactional.is_some() {
            self.partition.append_member(builder)
        } else {
            self.partition.append(builder)
        }
    }

    /// Makes the batch the next one of the open transaction, where there is to be one.
    fn enter(&self, sending: &mut Sending, builder: &mut BatchBuilder) -> Result<()> {
        let Some(transactional) = &self.accumulator.transactional else { return Ok(()) };
        let known = sending.entered.map(|(producer, _)| producer);
        let producer = transactional.enter(&self.accumulator.node, known, || self.entry())?;
        let (_, next) = *match &mut sending.entered {
            Some(entered) if entered.0 == producer => entered,
            other => other.insert((producer, Sequence(0))),
        };
        builder.producer(producer.id, producer.epoch, next);
        builder.transactional(true);
        Ok(())
    }

    /// The partition, where records are open that are in no transaction yet.
    pub(super) fn to_enter(&self, producer: ProducerIdentity) -> Option<Entry> {
        let is_in = self.send.lock().entered.is_some_and(|(entered, _)| entered == producer);
        (!is_in && self.fill.lock().is_some()).then(|| self.entry())
    }

    fn entry(&self) -> Entry {
        let name = TopicPartition { topic: self.topic.to_string(), partition: self.number };
        Entry { topic: self.id, name, partition: self.partition.clone() }
    }

    /// Refuses where the topic is gone, also where another has its name now.
    fn check_topic(&self, sending: &mut Sending) -> Result<()> {
        let version = self.accumulator.node.version();
        if sending.seen_at != Some(version) {
            if self.is_gone() {
                return Err(Error::UnknownTopic { name: self.topic.to_string() });
            }
            sending.seen_at = Some(version);
        }
        Ok(())
    }

    fn is_gone(&self) -> bool {
        self.accumulator.node.topics().get(&self.topic).is_none_or(|topic| topic.id != self.id)
    }

    /// The partition of a topic that is deleted is closed.
    fn explain(&self, error: Error) -> Error {
        match error {
            Error::Closed if self.is_gone() => Error::UnknownTopic { name: self.topic.to_string() },
            other => other,
        }
    }

    /// Returns once an append is stored as the partition's durability says.
    pub(super) fn wait_stored(&self, receipt: Receipt) -> Result<()> {
        self.partition.wait_stored(receipt).map_err(|error| self.explain(error))
    }

    /// What [`Self::wait_stored`] would answer at once.
    pub(super) fn try_stored(&self, receipt: Receipt) -> Option<Result<()>> {
        self.partition.try_stored(receipt).map(|stored| stored.map_err(|error| self.explain(error)))
    }

    /// Returns once everything that was appended here is stored as `acks` say. A failure is answered once, unless it
    /// passes: what a full disk keeps from being synced is waited for again.
    pub(super) fn settle(&self) -> Result<()> {
        let due: Vec<Receipt> = {
            let sending = self.send.lock();
            sending.earlier.iter().copied().chain(sending.last).collect()
        };
        let mut outcome = Ok(());
        for receipt in due.into_iter().filter(|_| self.acks() == Acks::All) {
            let stored = self.wait_stored(receipt);
            if stored.is_ok() || self.try_stored(receipt).is_some() {
                let mut sending = self.send.lock();
                sending.earlier.retain(|earlier| *earlier != receipt);
                sending.last.take_if(|last| *last == receipt);
            }
            outcome = outcome.and(stored);
        }
        outcome
    }

    /// The topic is gone: what is open fails, and so does what was appended and is not stored.
    pub(super) fn give_up(&self) {
        // What fails is told to its deliveries, and to who flushes.
        drop(self.hand_over(None));
        let due: Vec<Receipt> = {
            let mut sending = self.send.lock();
            let last = sending.last.take();
            std::mem::take(&mut sending.earlier).into_iter().chain(last).collect()
        };
        for receipt in due.into_iter().filter(|_| self.acks() == Acks::All) {
            if let Some(Err(error)) = self.try_stored(receipt) {
                self.accumulator.failed(&error);
            }
        }
    }

    /// Says so where a batch failed and nobody may be left who is told.
    pub(super) fn trace(&self, error: &Error) {
        let path = std::path::Path::new(&*self.topic);
        trace::warn(path, || format!("a batch of a producer to partition {} was not stored: {error}", self.number));
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("topic", &self.topic).field("number", &self.number).finish_non_exhaustive()
    }
}

impl Open {
    fn push(&mut self, record: &Record<'_>, stamp: Timestamp) -> Result<Delivery> {
        let builder: &mut BatchBuilder = &mut self.buffer.builder;
        // A batch has less than 2^32 bytes.
        let index = u32::try_from(builder.len()).unwrap_or(u32::MAX);
        builder.stamp(stamp);
        builder.push(record)?;
        Ok(Delivery::new(&self.batch, index, record.timestamp.unwrap_or(stamp)))
    }
}

/// A batch that was taken. Dropped, it has its outcome, also where its append panicked; then its memory is free.
struct Appending<'a> {
    lane: &'a Lane,
    open: Open,
    outcome: Result<Placed>,
}

impl Drop for Appending<'_> {
    fn drop(&mut self) {
        if let Err(error) = &self.outcome
            && !(self.open.is_senders && is_too_large(error))
        {
            self.lane.accumulator.failed(error);
        }
        self.open.batch.end(self.outcome.clone());
        self.lane.accumulator.leave(self.open.batch.key());
    }
}

/// Whether `send` answers this, for the record that filled the batch.
pub(super) fn is_too_large(error: &Error) -> bool {
    matches!(error, Error::BatchTooLarge { .. } | Error::DecompressionBound { .. })
}

fn placed(appended: &Appended<'_>) -> Placed {
    Placed { first: appended.offsets.start, append_time: appended.append_time, receipt: appended.receipt() }
}

const HEADER_BYTES: u64 = crate::record::batch::HEADER_BYTES as u64;
