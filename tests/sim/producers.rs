//! Producers: what they send, and what becomes of it.

use std::time::Duration;

use taffrail::{Acks, Clock, Compression, Delivery, Error, Producer, Stored, Timestamp, TopicId, WhenFull};

use super::choice::Choice;
use super::plan::{acks, compression};
use super::record::{Outgoing, Sent};
use super::world::World;

/// One producer, over every opening of the log.
pub(super) struct ProducerActor {
    number: usize,
    acks: Acks,
    linger: Duration,
    batch_bytes: usize,
    memory_bytes: usize,
    compression: Option<Compression>,
    producer: Option<Producer>,
    /// How many producers there were before this one.
    before: u64,
    pending: Vec<Pending>,
}

/// A record of which it is not known yet what became of it.
struct Pending {
    serial: u64,
    /// How many producers there were before the one that sent it.
    before: u64,
    delivery: Delivery,
}

/// What the ends of deliveries are worth.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// The log is open.
    Open,
    /// It is closed or killed: every delivery ends.
    Closed,
    /// The power went before anybody could hear them.
    Unheard,
}

impl ProducerActor {
    pub(super) fn new(number: usize, choice: &mut Choice) -> Self {
        let batch_bytes = choice.pick(&[100, 200, 500, 16 << 10]);
        Self {
            number,
            acks: acks(choice),
            linger: Duration::from_millis(choice.pick(&[0, 0, 5, 1_000])),
            batch_bytes,
            memory_bytes: choice.pick(&[4 * batch_bytes, 32 << 20]),
            compression: choice.one_in(3).then(|| compression(choice)),
            producer: None,
            before: 0,
            pending: Vec::new(),
        }
    }
}

impl ProducerActor {
    /// One without anything odd.
    pub(super) fn of(number: usize, acks: Acks) -> Self {
        let (linger, batch_bytes, memory_bytes) = (Duration::ZERO, 16 << 10, 32 << 20);
        let (compression, producer, before, pending) = (None, None, 0, Vec::new());
        Self { number, acks, linger, batch_bytes, memory_bytes, compression, producer, before, pending }
    }
}

impl World {
    pub(super) fn produce(&mut self) {
        let index = self.choice.index(self.producers.len());
        if !self.open_producer(index) {
            return;
        }
        match self.choice.below(20) {
            0 => self.flush(index),
            1 => self.wait(index),
            2 if self.choice.one_in(3) => {
                self.trace.note(format_args!("producer {index} ends"));
                self.end_producer(index);
            }
            3..=5 => {}
            _ => {
                for _ in 0..self.choice.between(1, 6) {
                    self.send(index);
                }
            }
        }
        self.poll(index, Answers::Open);
    }

    fn end_producer(&mut self, index: usize) {
        self.producers[index].producer = None;
        self.producers[index].before += 1;
    }

    /// Says whether there is one now: its id takes the disk.
    pub(super) fn open_producer(&mut self, index: usize) -> bool {
        if self.producers[index].producer.is_some() {
            return true;
        }
        let actor = &self.producers[index];
        let mut builder = self.log().producer().acks(actor.acks).linger(actor.linger).when_full(WhenFull::Fail);
        builder = builder.batch_bytes(actor.batch_bytes).memory_bytes(actor.memory_bytes);
        if let Some(compression) = actor.compression {
            builder = builder.compression(compression);
        }
        match builder.open() {
            Ok(opened) => self.producers[index].producer = Some(opened),
            Err(error) => self.excuse(&error, "a producer does not open"),
        }
        self.producers[index].producer.is_some()
    }

    fn send(&mut self, index: usize) {
        let name = self.a_name();
        let (sent, partition, timestamp) = self.any_record(self.producers[index].number);
        self.send_as(index, name, sent, partition, timestamp);
    }

    /// A record of a producer, and where and of when it is to be where that is said.
    pub(super) fn any_record(&mut self, producer: usize) -> (Sent, Option<u32>, Option<i64>) {
        let bytes = self.choice.pick(&[0, 20, 60, 60, 150, 400]);
        let bytes = self.choice.below(bytes + 1) as usize;
        let key = (!self.choice.one_in(if self.plan.compacts { 6 } else { 3 })).then(|| self.choice.below(6));
        let key = key.map(|key| format!("key-{key}"));
        let is_deletion = key.is_some() && self.choice.one_in(6);
        let partition = self.choice.one_in(8).then(|| u32::try_from(self.choice.below(3)).unwrap_or(0));
        let timestamp = self.choice.one_in(6).then(|| self.clock.wall().0 - self.choice.below(90_000) as i64);
        let timestamp_or_now = timestamp.map_or(self.clock.wall(), Timestamp);
        let sent = Sent {
            producer,
            topic: TopicId([0; 16]),
            partition: 0,
            key,
            bytes: (!is_deletion).then_some(bytes),
            timestamp: timestamp_or_now,
            at: self.clock.monotonic(),
            offset: None,
            refused: true,
            transaction: None,
        };
        (sent, partition, timestamp)
    }

    /// Sends a record, and notes what is said of it.
    pub(super) fn send_as(
        &mut self,
        index: usize,
        name: &'static str,
        mut sent: Sent,
        partition: Option<u32>,
        timestamp: Option<i64>,
    ) {
        let described = self.describe(name);
        let serial = self.model.sent.len() as u64;
        let outgoing = Outgoing::new(name, serial, &sent, partition, timestamp);
        let producer = self.producers[index].producer.as_ref().expect("it was opened");
        let outcome = producer.try_send(name, outgoing.record());
        match outcome {
            Ok(delivery) => {
                let Some(topic) = described else {
                    // Its deletion was answered with an error, and has come to light since.
                    self.excuse(&Error::TimedOut, "a topic that is not there takes records");
                    self.model.sent.push(sent);
                    return;
                };
                (sent.topic, sent.partition, sent.refused) = (topic.id, delivery.partition(), false);
                if let Some(key) = sent.key.as_ref().filter(|_| partition.is_none()) {
                    let count = u32::try_from(topic.partitions.len()).unwrap_or(0);
                    self.model.key_went(topic.id, key, count, sent.partition);
                }
                self.trace
                    .note(format_args!("producer {index} sends {serial} to {name}-{}, {:?}", sent.partition, sent.key));
                let before = self.producers[index].before;
                self.producers[index].pending.push(Pending { serial, before, delivery });
            }
            Err(error) => {
                self.trace.note(format_args!("producer {index} may not send {serial} to {name}: {error}"));
                self.check_refusal(name, partition, &error);
            }
        }
        self.model.sent.push(sent);
    }

    fn check_refusal(&mut self, name: &str, partition: Option<u32>, error: &Error) {
        let topic = self.model.topic(name);
        match error {
            Error::UnknownTopic { .. } => assert!(!topic.is_certain() || self.excused, "{name} is there: {error}"),
            Error::UnknownPartition { .. } => assert!(partition.is_some(), "it was not chosen by hand: {error}"),
            Error::NullKey { .. } => assert!(topic.compacts, "{name} asks for keys: {error}"),
            Error::MemoryFull { .. } | Error::BatchTooLarge { .. } | Error::RecordTooLarge { .. } => {}
            error => panic!("a record is refused: {error}"),
        }
    }

    fn flush(&mut self, index: usize) {
        let producer = self.producers[index].producer.as_ref().expect("it was opened");
        let outcome = producer.flush();
        self.trace.note(format_args!("producer {index} flushes: {outcome:?}"));
        let actor = &self.producers[index];
        let mut own = actor.pending.iter().filter(|pending| pending.before == actor.before);
        let open = own.find(|pending| pending.delivery.try_wait().is_none());
        // What a full disk keeps from being synced, and nothing else is wrong with, is synced later.
        let may_be_open = outcome.is_err() && self.excused;
        assert!(open.is_none() || may_be_open, "record {:?} is open after a flush", open.map(|pending| pending.serial));
    }

    /// Flushes, and everything is stored.
    pub(super) fn flush_well(&mut self, index: usize) {
        let producer = self.producers[index].producer.as_ref().expect("it was opened");
        producer.flush().unwrap_or_else(|error| panic!("a flush fails on a sound disk: {error}"));
        self.poll(index, Answers::Open);
    }

    /// Waits for one of the records, which takes no other thread.
    fn wait(&mut self, index: usize) {
        let count = self.producers[index].pending.len();
        if count == 0 {
            return;
        }
        let at = self.choice.index(count);
        let Pending { serial, delivery, .. } = self.producers[index].pending.remove(at);
        let answer = delivery.wait();
        self.answered(self.producers[index].acks, serial, answer, Answers::Open);
    }

    /// Looks what became of the records of a producer.
    pub(super) fn poll(&mut self, index: usize, answers: Answers) {
        let pending = std::mem::take(&mut self.producers[index].pending);
        for Pending { serial, before, delivery } in pending {
            if let Some(answer) = delivery.try_wait() {
                self.answered(self.producers[index].acks, serial, answer, answers);
                continue;
            }
            assert!(answers == Answers::Open, "record {serial} has no end after the log's");
            self.producers[index].pending.push(Pending { serial, before, delivery });
        }
    }

    pub(super) fn answered(&mut self, acks: Acks, serial: u64, answer: taffrail::Result<Stored>, answers: Answers) {
        let sent = &self.model.sent[usize::try_from(serial).expect("it was sent")];
        let slot = (sent.topic, sent.partition);
        match answer {
            Ok(_) if answers == Answers::Unheard => {}
            Ok(stored) => {
                let power = acks == Acks::All && self.model.survives(slot);
                let power = power && answers == Answers::Open;
                assert_eq!(stored.partition, slot.1, "record {serial} was sent to another partition");
                self.trace.note(format_args!("record {serial} is stored at {}, power {power}", stored.offset));
                self.trace.count(if power { "acknowledged, power" } else { "acknowledged, process" });
                self.model.told(slot, stored.offset.0, serial, stored.timestamp, power);
            }
            Err(error) => {
                self.trace.note(format_args!("record {serial} fails: {error}"));
                self.trace.count("failed deliveries");
                if answers == Answers::Open {
                    let transaction = self.model.sent[usize::try_from(serial).expect("it was sent")].transaction;
                    self.check_failure(slot.0, &error, transaction.is_some());
                }
            }
        }
    }

    fn check_failure(&self, id: TopicId, error: &Error, is_in_transaction: bool) {
        match error {
            Error::TransactionAborted
            | Error::TransactionFailed { .. }
            | Error::TransactionTimedOut { .. }
            | Error::ProducerFenced { .. }
            | Error::UnknownTransactionalId { .. }
                if is_in_transaction => {}
            Error::NullKey { .. } if self.model.compacts(id) || self.model.topic_of(id).is_none() => {}
            Error::UnknownTopic { .. } => {
                let there = self.model.topic_of(id).is_some_and(super::topics::TopicModel::is_certain);
                assert!(!there || self.excused, "the topic is there: {error}");
            }
            Error::Superseded { .. } => assert!(self.reopened, "nothing was reopened: {error}"),
            Error::BatchTooLarge { .. } => {}
            error => self.excuse(error, "a record is not stored"),
        }
    }

    /// The log has ended: every delivery has, and producers go.
    pub(super) fn end_producers(&mut self, answers: Answers) {
        let first = self.choice.one_in(2);
        for index in 0..self.producers.len() {
            if first {
                self.end_producer(index);
            }
            self.poll(index, answers);
            self.end_producer(index);
        }
    }

    /// Flushes every producer, and sees every delivery end.
    pub(super) fn settle_producers(&mut self) {
        for index in 0..self.producers.len() {
            assert!(self.open_producer(index), "producer {index} does not open");
            self.flush(index);
            self.poll(index, Answers::Open);
            let open = self.producers[index].pending.len();
            assert_eq!(open, 0, "{open} deliveries of producer {index} have no end");
        }
    }
}
