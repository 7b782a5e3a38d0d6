//! Transactional producers: what they send in transactions, how these end, and who has an id.
//!
//! An id has any number of instances at a time, of which the last one that was opened has it: the others are told so, and
//! nothing that they do counts. A transaction stays open from step to step, over time, faults and whatever others do.

use std::time::Duration;

use taffrail::{Acks, Clock, Compression, Delivery, Error, WhenFull};

use super::choice::Choice;
use super::fates::{Fate, TransactionModel};
use super::instance::{Answer, Call, Instance};
use super::plan::compression;
use super::producers::Answers;
use super::record::Outgoing;
use super::world::World;

/// Whoever uses a transactional id, over every opening of the log.
pub(super) struct TransactionActor {
    /// Its number among all producers.
    number: usize,
    id: &'static str,
    timeout: Duration,
    batch_bytes: usize,
    memory_bytes: usize,
    compression: Option<Compression>,
    /// The newest last.
    pub(super) instances: Vec<InstanceActor>,
}

pub(super) struct InstanceActor {
    pub(super) instance: Instance,
    /// The open transaction, by number.
    pub(super) open: Option<usize>,
    /// The last one, where it is not known how it ended.
    asked: Option<usize>,
    pending: Vec<(u64, Delivery)>,
    pub(super) fenced: Fenced,
    /// So often in a row it could not begin.
    refusals: u32,
}

/// Whether another has the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fenced {
    No,
    /// Another has tried to take it.
    Maybe,
    Yes,
}

const IDS: [&str; 3] = ["billing", "shipping", "audit"];
/// Their numbers begin behind those of all others.
const FIRST: usize = 100;
const INSTANCES_MAX: usize = 3;

impl TransactionActor {
    pub(super) fn new(index: usize, choice: &mut Choice) -> Self {
        let batch_bytes = choice.pick(&[100, 200, 500, 16 << 10]);
        Self {
            number: FIRST + index,
            id: IDS[index],
            timeout: Duration::from_millis(choice.pick(&[500, 5_000, 60_000, 60_000, 900_000])),
            batch_bytes,
            memory_bytes: choice.pick(&[8 * batch_bytes, 32 << 20]),
            compression: choice.one_in(3).then(|| compression(choice)),
            instances: Vec::new(),
        }
    }
}

impl World {
    /// One turn of one of them.
    pub(super) fn transact(&mut self) {
        if self.transactors.is_empty() {
            return self.produce();
        }
        let index = self.choice.index(self.transactors.len());
        let count = self.transactors[index].instances.len();
        if count == 0 || count < INSTANCES_MAX && self.choice.one_in(25) {
            self.open_instance(index);
            return;
        }
        let at = if self.choice.one_in(4) { self.choice.index(count) } else { count - 1 };
        match self.choice.below(40) {
            0 => self.drop_instance(index, at),
            1 => self.wait_in(index, at),
            _ if self.transactors[index].instances[at].open.is_none() => {
                if self.begin(index, at) {
                    self.send_some_in(index, at);
                }
            }
            2..=25 => self.send_some_in(index, at),
            26..=34 => self.commit(index, at),
            35..=37 => self.abort(index, at, Call::Abort),
            _ => self.abort(index, at, Call::Drop),
        }
        self.poll_transactor(index, Answers::Open);
    }

    /// Opens another instance, which takes the id; says whether it has.
    pub(super) fn open_instance(&mut self, index: usize) -> bool {
        let actor = &self.transactors[index];
        let mut builder = self.log().transactional_producer(actor.id).transaction_timeout(actor.timeout);
        builder = builder.batch_bytes(actor.batch_bytes).memory_bytes(actor.memory_bytes).when_full(WhenFull::Fail);
        if let Some(compression) = actor.compression {
            builder = builder.compression(compression);
        }
        let opened = builder.open();
        let id = actor.id;
        let is_open = opened.is_ok();
        match &opened {
            Ok(producer) => {
                let identity = (producer.producer_id(), producer.epoch());
                self.trace.note(format_args!("{id} has another instance, {identity:?}"));
                self.trace.count("ids taken");
            }
            Err(error) => {
                self.trace.note(format_args!("{id} does not open: {error}"));
                self.excuse(error, "a transactional producer does not open");
            }
        }
        let is_heard = !self.storage.has_lost_power();
        for at in 0..self.transactors[index].instances.len() {
            self.fence(index, at, is_open && is_heard);
        }
        if let Ok(producer) = opened {
            let instance = Instance::new(producer);
            let (pending, fenced) = (Vec::new(), Fenced::No);
            let newest = InstanceActor { instance, open: None, asked: None, pending, fenced, refusals: 0 };
            self.transactors[index].instances.push(newest);
            self.shrink("__transaction_state", 400);
        }
        is_open
    }

    /// Has the coordinators' own topic roll and be compacted soon, where that is the plan.
    pub(super) fn shrink(&mut self, topic: &str, segment_bytes: u32) {
        if !self.plan.small_state {
            return;
        }
        let Ok(found) = self.log().describe_topic(topic) else { return };
        let config = found.config.clone().segment_bytes(segment_bytes).min_dirty_ratio(taffrail::Ratio::new(0.1));
        let config = config.delete_retention(Duration::from_secs(1));
        if config != found.config {
            let outcome = self.log().set_topic_config(topic, config);
            self.trace.note(format_args!("makes the segments of {topic} small: {outcome:?}"));
        }
    }

    /// Another instance has taken the id, or may have.
    fn fence(&mut self, index: usize, at: usize, surely: bool) {
        let instance = &mut self.transactors[index].instances[at];
        instance.fenced = if surely { Fenced::Yes } else { instance.fenced.max_with(Fenced::Maybe) };
        let Some(number) = instance.open else { return };
        let transaction = &mut self.model.transactions[number];
        transaction.may_be_fenced = true;
        if surely && transaction.fate == Fate::Open && transaction.counts() {
            transaction.fate = Fate::Aborted;
        }
    }

    pub(super) fn begin(&mut self, index: usize, at: usize) -> bool {
        let (id, timeout) = (self.transactors[index].id, self.transactors[index].timeout);
        let now = self.clock.monotonic();
        let instance = &mut self.transactors[index].instances[at];
        let Answer::Begun(begun) = instance.instance.ask(Call::Begin) else { panic!("it was to begin") };
        let asked = instance.asked;
        let fenced = instance.fenced;
        self.trace.note(format_args!("{id}/{at} begins: {begun:?}"));
        match begun {
            Ok(identity) => {
                instance.asked = None;
                instance.refusals = 0;
                instance.open = Some(self.model.transactions.len());
                self.model.transactions.push(TransactionModel::new(identity, now, timeout));
                self.trace.count("transactions begun");
                if let Some(asked) = asked {
                    self.ended_as(asked, Fate::Committed);
                }
                true
            }
            Err(error) => {
                instance.refusals += 1;
                let refusals = instance.refusals;
                match (&error, asked) {
                    (Error::TransactionTimedOut { .. } | Error::TransactionAborted, Some(asked)) => {
                        self.transactors[index].instances[at].asked = None;
                        self.ended_as(asked, Fate::Aborted);
                    }
                    (Error::ProducerFenced { .. } | Error::UnknownTransactionalId { .. }, _) => {
                        assert!(fenced != Fenced::No || self.excused, "{id}/{at}: {error}, and it has the id");
                        self.trace.count("fenced instances told so");
                    }
                    _ => self.excuse(&error, "a transaction does not begin"),
                }
                let is_sound = !self.armed && self.doom.is_none();
                let is_stuck = fenced == Fenced::No && refusals > 20 && is_sound;
                let is_told = matches!(error, Error::ProducerFenced { .. } | Error::UnknownTransactionalId { .. });
                assert!(!is_stuck || is_told, "{id}/{at} never begins again: {error}");
                false
            }
        }
    }

    /// A transaction of which it was not known has ended like this.
    fn ended_as(&mut self, number: usize, fate: Fate) {
        let transaction = &mut self.model.transactions[number];
        let known = transaction.fate;
        assert!(known == Fate::Asked || known == fate, "transaction {number} is {fate:?}: {transaction:?}");
        transaction.fate = fate;
    }

    fn send_some_in(&mut self, index: usize, at: usize) {
        for _ in 0..self.choice.between(1, 4) {
            self.send_in(index, at, None);
        }
    }

    /// Sends a record of the open transaction.
    fn send_in(&mut self, index: usize, at: usize, to: Option<(&'static str, u32)>) {
        let name = to.map_or_else(|| self.a_name(), |(name, _)| name);
        let (mut sent, mut partition, timestamp) = self.any_record(self.transactors[index].number);
        partition = to.map_or(partition, |(_, number)| Some(number));
        let described = self.describe(name);
        let serial = self.model.sent.len() as u64;
        let number = self.transactors[index].instances[at].open.expect("it is open");
        sent.transaction = Some(number);
        let outgoing = Outgoing::new(name, serial, &sent, partition, timestamp);
        let id = self.transactors[index].id;
        let instance = &mut self.transactors[index].instances[at];
        let Answer::Sent(answer) = instance.instance.ask(Call::Send(outgoing)) else { panic!("it was to send") };
        match answer {
            Ok(delivery) => {
                let topic = described.unwrap_or_else(|| panic!("{name} takes records, and is not there"));
                (sent.topic, sent.partition, sent.refused) = (topic.id, delivery.partition(), false);
                self.trace.note(format_args!(
                    "{id}/{at} sends {serial} to {name}-{}, {:?}, in transaction {number}",
                    sent.partition, sent.key
                ));
                instance.pending.push((serial, delivery));
                self.model.transactions[number].records.push(serial);
            }
            Err(error) => {
                self.trace.note(format_args!("{id}/{at} may not send {serial} to {name}: {error}"));
                self.model.transactions[number].has_failed = true;
                let cause = match &error {
                    Error::TransactionFailed { cause } => (**cause).clone(),
                    other => other.clone(),
                };
                self.check_refusal_in(index, at, name, partition, &cause);
            }
        }
        self.model.sent.push(sent);
    }

    pub(super) fn check_refusal_in(
        &mut self,
        index: usize,
        at: usize,
        name: &str,
        partition: Option<u32>,
        error: &Error,
    ) {
        let fenced = self.transactors[index].instances[at].fenced;
        match error {
            Error::ProducerFenced { .. } | Error::UnknownTransactionalId { .. } => {
                let number = self.transactors[index].instances[at].open.expect("it is open");
                let may_be_late = self.model.transactions[number].may_be_late(self.clock.monotonic());
                assert!(fenced != Fenced::No || may_be_late || self.excused, "it has the id: {error}");
            }
            Error::TransactionTimedOut { .. }
            | Error::OutOfOrderSequence { .. }
            // What failed before was another record's, or a group's position.
            | Error::UnknownMember { .. }
            | Error::FencedMember { .. }
            | Error::FencedInstance { .. }
            | Error::StaleMember { .. }
            | Error::GivenUp { .. }
            | Error::UnknownTopic { .. }
            | Error::UnknownPartition { .. }
            | Error::NullKey { .. }
            | Error::MemoryFull { .. }
            | Error::BatchTooLarge { .. }
            | Error::RecordTooLarge { .. } => {}
            Error::InvalidTransactionState(_) | Error::Superseded { .. } if self.excused || self.reopened => {}
            error => {
                let _ = (name, partition);
                self.excuse(error, "a record of a transaction is refused");
            }
        }
    }

    fn commit(&mut self, index: usize, at: usize) {
        let id = self.transactors[index].id;
        let instance = &mut self.transactors[index].instances[at];
        let number = instance.open.take().expect("it is open");
        let fenced = instance.fenced;
        self.model.is_to_be_committed(number);
        let Answer::Ended(outcome) = instance.instance.ask(Call::Commit) else { panic!("it was to end") };
        self.trace.note(format_args!("{id}/{at} commits {number}: {outcome:?}"));
        // After the power went nobody hears anything.
        let is_heard = !self.storage.has_lost_power();
        let now = self.clock.monotonic();
        let excused = self.excused;
        let transaction = &mut self.model.transactions[number];
        match &outcome {
            Ok(()) if is_heard => {
                let counts = transaction.counts();
                assert!(!counts || fenced != Fenced::Yes, "{id}/{at} is fenced, and has committed: {transaction:?}");
                assert!(!transaction.has_failed, "a send has failed, and was committed: {transaction:?}");
                let may_be = !counts || matches!(transaction.fate, Fate::Open | Fate::Committed);
                assert!(may_be, "it is committed, they say: {transaction:?}");
                transaction.fate = Fate::Committed;
                self.trace.count("transactions committed");
            }
            Err(
                Error::TransactionFailed { .. }
                | Error::TransactionTimedOut { .. }
                | Error::TransactionAborted
                | Error::ProducerFenced { .. }
                | Error::UnknownTransactionalId { .. },
            ) => {
                let may_be = transaction.fate != Fate::Committed;
                assert!(may_be, "it is not committed, they say, and was: {transaction:?}");
                let is_late = transaction.may_be_late(now);
                match outcome.as_ref().expect_err("as was seen") {
                    error @ Error::TransactionTimedOut { .. } => {
                        assert!(is_late, "{error}: {transaction:?}");
                        self.trace.count("transactions timed out");
                    }
                    // Its coordinator was made anew since, and has not kept why.
                    error @ Error::TransactionAborted => {
                        assert!(is_late || fenced != Fenced::No, "{error}: {transaction:?}");
                    }
                    error @ (Error::ProducerFenced { .. } | Error::UnknownTransactionalId { .. }) => {
                        let may_be = fenced != Fenced::No || is_late && excused;
                        assert!(may_be, "{id}/{at} has the id: {error}");
                        self.trace.count("fenced instances told so");
                    }
                    _ => {}
                }
                transaction.fate = Fate::Aborted;
            }
            _ => {
                if transaction.fate == Fate::Open {
                    transaction.fate = Fate::Asked;
                }
                self.transactors[index].instances[at].asked = Some(number);
                if let Err(error) = &outcome {
                    self.excuse(error, "a transaction is not committed");
                }
                self.trace.count("commits without an answer");
            }
        }
        // What is committed was stored.
        self.poll_instance(index, at, if is_heard { Answers::Open } else { Answers::Unheard });
        if outcome.is_ok() && is_heard {
            let sent = &self.model.sent;
            let lost = self.model.transactions[number].records.iter().find(|serial| {
                let sent = &sent[usize::try_from(**serial).expect("it was sent")];
                sent.offset.is_none()
            });
            assert!(lost.is_none(), "transaction {number} is committed, and record {lost:?} was not stored");
        }
    }

    fn abort(&mut self, index: usize, at: usize, how: Call) {
        let id = self.transactors[index].id;
        let what = format!("{how:?}");
        let instance = &mut self.transactors[index].instances[at];
        let number = instance.open.take().expect("it is open");
        let Answer::Ended(outcome) = instance.instance.ask(how) else { panic!("it was to end") };
        self.trace.note(format_args!("{id}/{at}, {what} of {number}: {outcome:?}"));
        self.trace.count("transactions aborted");
        let transaction = &mut self.model.transactions[number];
        assert!(transaction.fate != Fate::Committed, "it was aborted, and was committed: {transaction:?}");
        transaction.fate = Fate::Aborted;
        if let Err(error) = &outcome {
            self.excuse(error, "a transaction is not aborted");
        }
    }

    /// The producer goes, and its open transaction before it.
    fn drop_instance(&mut self, index: usize, at: usize) {
        self.trace.note(format_args!("{}/{at} goes", self.transactors[index].id));
        let gone = self.transactors[index].instances.remove(at);
        drop(gone.instance);
        if let Some(number) = gone.open {
            self.model.transactions[number].fate = Fate::Aborted;
        }
        for (serial, delivery) in gone.pending {
            if let Some(answer) = delivery.try_wait() {
                self.answered(Acks::All, serial, answer, Answers::Open);
            }
        }
    }

    /// Waits for one of the records, which writes it.
    fn wait_in(&mut self, index: usize, at: usize) {
        let count = self.transactors[index].instances[at].pending.len();
        if count == 0 {
            return;
        }
        let which = self.choice.index(count);
        let (serial, delivery) = self.transactors[index].instances[at].pending.remove(which);
        let answer = delivery.wait();
        self.answered(Acks::All, serial, answer, Answers::Open);
    }

    fn poll_transactor(&mut self, index: usize, answers: Answers) {
        for at in 0..self.transactors[index].instances.len() {
            self.poll_instance(index, at, answers);
        }
    }

    fn poll_instance(&mut self, index: usize, at: usize, answers: Answers) {
        let pending = std::mem::take(&mut self.transactors[index].instances[at].pending);
        for (serial, delivery) in pending {
            match delivery.try_wait() {
                Some(answer) => self.answered(Acks::All, serial, answer, answers),
                None => self.transactors[index].instances[at].pending.push((serial, delivery)),
            }
        }
    }

    /// The log has ended, and all instances with it.
    pub(super) fn end_transactors(&mut self, answers: Answers) {
        for index in 0..self.transactors.len() {
            self.poll_transactor(index, answers);
            self.transactors[index].instances.clear();
        }
        self.model.end_transactions();
    }

    /// The faults are over: what is open ends one way or the other, or is left until its time is up.
    pub(super) fn settle_transactors(&mut self) {
        for index in 0..self.transactors.len() {
            for at in 0..self.transactors[index].instances.len() {
                if self.transactors[index].instances[at].open.is_some() {
                    match self.choice.below(4) {
                        0 => self.commit(index, at),
                        1 => self.abort(index, at, Call::Abort),
                        2 => self.abort(index, at, Call::Drop),
                        _ => {}
                    }
                }
            }
        }
        let longest = self.transactors.iter().map(|actor| actor.timeout).max().unwrap_or_default();
        if longest.is_zero() {
            return;
        }
        self.trace.note("every transaction has its time");
        self.advance(longest);
        for _ in 0..MENDING {
            self.advance(Duration::from_millis(250));
            self.log().tick();
        }
        self.assert_decided();
    }

    /// Nothing is open any more, and everything is read.
    pub(super) fn assert_decided(&mut self) {
        for name in self.names() {
            let Some(topic) = self.describe(name) else { continue };
            for number in (0..).take(topic.partitions.len()) {
                let partition = self.partition(name, topic.id, number).expect("it is open");
                let (stable, high_watermark) = (partition.last_stable(), partition.high_watermark());
                assert_eq!(stable, high_watermark, "{name}-{number} has an open transaction for ever");
            }
        }
    }

    /// Every id is taken once more, and commits a transaction in every partition.
    pub(super) fn commit_to_each(&mut self) {
        for index in 0..self.transactors.len() {
            assert!(self.open_instance(index), "a transactional producer does not open");
            let at = self.transactors[index].instances.len() - 1;
            self.transactors[index].memory_bytes = 32 << 20;
            assert!(self.begin(index, at), "a transaction does not begin");
            for name in self.names() {
                let topic = self.describe(name).expect("it was made");
                for number in (0..).take(topic.partitions.len()) {
                    self.send_in(index, at, Some((name, number)));
                }
            }
            let number = self.transactors[index].instances[at].open.expect("it is open");
            self.commit(index, at);
            let transaction = &self.model.transactions[number];
            let is_right = transaction.has_failed || transaction.fate == Fate::Committed;
            assert!(is_right, "it is not committed on a sound disk: {transaction:?}");
        }
    }
}

/// For so many quarters of a second what has had its time may take to end.
const MENDING: u32 = 40;

impl Fenced {
    fn max_with(self, other: Self) -> Self {
        if self == Self::Yes { self } else { other }
    }
}
