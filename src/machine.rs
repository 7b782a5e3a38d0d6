//! What a coordinator is: a state that follows from its records alone.
//!
//! ```text
//!  command ──► decide ──► events ──► encode ──► one batch of its partition
//!                │                                      │ read back, in order
//!                ▼ held until committed                 ▼
//!              reply                        decode ──► apply ──► state ──► actions, deadline, snapshot
//! ```
//!
//! Groups, transactions and cluster metadata are machines. Whoever runs one applies the events of a decision at once,
//! appends them as one batch, and holds the reply, and the actions behind it, until the batch is committed. If the
//! append fails, or leadership is lost, the machine is dropped and another is made from the records that are there.
//!
//! What an event is on the disk is the machine's choice of two: bytes in a journal, with a snapshot that bounds the
//! replay ([`Journaled`]: cluster metadata), or a record of Kafka's, key and value, in a partition that is compacted by
//! key ([`Recorded`]: coordinators). Then the replay is of the latest record of each key.

pub(crate) mod fields;
pub(crate) mod home;
pub(crate) mod message;

use std::fmt;

use crate::clock::{Moment, Now};
use crate::record::control::Outcome;
use crate::types::{Offset, ProducerEpoch, ProducerId, Timestamp};

/// A state machine over the records of a partition: no thread, lock, clock, file or channel inside; time is an argument.
///
/// The contract:
///
/// 1. **`apply` alone changes what is replayed.** `decide` reads the state and may move deadlines, nothing else; a
///    decision whose events are dropped has changed nothing.
/// 2. **The same events in the same order give the same state**, on every machine, whatever the time. Time that
///    matters to the state is in the event.
/// 3. **An event that was decided applies**: `apply` cannot refuse. What an event names and is not there any more is
///    left alone.
/// 4. **Actions follow from the state alone**, are idempotent, and are found again after a replay. They are given out
///    when the events behind them are committed, and repeated until an event says that they are done.
/// 5. **Deadlines are soft**: `loaded` starts them afresh after a replay.
/// 6. **Bytes are not trusted** ([`Journaled`], [`Recorded`]): `decode` and `restore` answer what is wrong, and never panic or allocate by a number
///    that they read. What they take is written again as something that reads the same.
pub(crate) trait Machine {
    /// What is asked of the machine.
    type Command;
    /// What happened: one record each.
    type Event: fmt::Debug;
    /// What the asker is told once the events are committed; refusals are replies without events.
    type Reply: fmt::Debug;
    /// Work that the machine wants done.
    type Action;

    /// Says what follows from `command` in the present state.
    fn decide(&mut self, now: Now, command: Self::Command) -> Decision<Self::Event, Self::Reply>;

    /// Takes an event in, when it was decided or when it is replayed.
    fn apply(&mut self, at: Applied, event: &Self::Event);

    /// A transaction of `producer` ended: its events before `at` count, or never happened. Only a machine that decides
    /// with a producer sees this; the others leave it as it is.
    #[cfg_attr(
        not(any(test, feature = "testkit")),
        expect(dead_code, reason = "the first machine that decides with a producer is that of the groups")
    )]
    fn end_transaction(&mut self, at: Offset, producer: ProducerIdentity, outcome: Outcome) {
        let _ = (at, producer, outcome);
    }

    /// The replay is over and commands follow: deadlines begin at `now`.
    fn loaded(&mut self, now: Now);

    /// Everything that is to be done at `now`, in a fixed order.
    fn actions(&self, now: Now) -> Vec<Self::Action>;

    /// When `actions` or `decide` would have something to say without a command.
    fn deadline(&self) -> Option<Moment>;
}

/// A machine whose events are bytes in a journal.
pub(crate) trait Journaled: Machine {
    /// Appends the event's bytes.
    fn encode(event: &Self::Event, into: &mut Vec<u8>);

    /// Reads an event; the error is a reason for a person.
    fn decode(bytes: &[u8]) -> Result<Self::Event, String>;

    /// The whole replayed state.
    fn snapshot(&self) -> Vec<u8>;

    /// The machine whose `snapshot` this is; the error is a reason for a person.
    fn restore(bytes: &[u8]) -> Result<Self, String>
    where
        Self: Sized;
}

/// A machine whose events are Kafka's records in a partition. The latest record of a key says all that there is to say
/// of it, so that compaction loses nothing.
pub(crate) trait Recorded: Machine {
    /// The event as a record.
    fn encode(event: &Self::Event) -> KeyValue;

    /// Reads a record; `None` where it is of a kind that is not known, and kept; the error is a reason for a person.
    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<Self::Event>, String>;
}

/// The key and the value of a record; without a value the key is forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyValue {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Vec<u8>>,
}

/// What a command leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision<E, R> {
    /// What happens, in this order, all of it or nothing; empty where nothing changes.
    pub(crate) events: Vec<E>,
    /// In whose transaction it happens; `None` where it counts at once.
    pub(crate) producer: Option<ProducerIdentity>,
    /// What the asker is told once the events are committed.
    pub(crate) reply: R,
}

impl<E, R> Decision<E, R> {
    /// Nothing happens.
    pub(crate) const fn reply(reply: R) -> Self {
        Self { events: Vec::new(), producer: None, reply }
    }

    /// `events` happen, outside of any transaction.
    pub(crate) const fn events(events: Vec<E>, reply: R) -> Self {
        Self { events, producer: None, reply }
    }
}

/// Where an event stands in its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    /// The offset of its record.
    pub(crate) offset: Offset,
    /// The timestamp of its record.
    pub(crate) timestamp: Option<Timestamp>,
    /// In whose transaction it happened; it waits for `end_transaction` then.
    pub(crate) producer: Option<ProducerIdentity>,
}

/// A transactional producer, and which incarnation of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProducerIdentity {
    pub(crate) id: ProducerId,
    pub(crate) epoch: ProducerEpoch,
}
