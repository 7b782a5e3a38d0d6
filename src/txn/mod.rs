//! Transactions: who has a transactional id, what a transaction has written to, and how it ended.
//!
//! ```text
//!                       Add                        End                            Complete
//!  Init ──► Empty ──────────────► Ongoing ────────────────► Prepared(outcome) ─────────────► Complete(outcome)
//!            ▲                     │  ▲  │ Init of another,      │  ▲  action WriteMarkers,       │
//!            │                     └──┘  └─── time-out: abort ───┘  └─ repeated until Complete    │
//!            └────────────────────────────────── Init ────────────────────────────────────────────┘
//!                      Empty, Complete ── nobody uses it for 7 days ──► forgotten
//! ```
//!
//! The coordinator is a [`Machine`] over one partition of `__transaction_state`, of all ids that hash to it
//! ([`partition_of`](crate::machine::home::partition_of)): commands are decided against the state (`decide`), what happens is a record of Kafka's (`codec`
//! draws its bytes), and records alone change the state (`state`).
//!
//! **Epochs.** Each instance that takes an id over gets a higher epoch than the one before, and so does each
//! transaction (KIP-890, Kafka's transaction version 2): the markers that end a transaction carry the epoch above that
//! of its records, and whoever began it goes on with that one. So whatever is late, a record, an end or a marker of an
//! earlier transaction, meets a higher epoch and is refused. Where the epochs of a producer id are used up, a new id
//! follows, which the asker brings along ([`Reply::NeedsProducerId`] asks for it).
//!
//! **Ends.** What is prepared is decided: the asker may be answered, and markers are written to all partitions until
//! [`Command::Complete`] says that they are stored. They are idempotent, so that they are written again after a crash.
//! A transaction that is to be taken over, or takes too long, is aborted the same way, with the epoch raised.
//!
//! Consumers' positions in a transaction will be records of partitions of the groups' topic, which are added to the
//! transaction as any other and get its markers: nothing here knows them apart.
//!
//! Invariants: an id has one producer id and one epoch at a time, and (id, epoch) pairs never come again; a prepared
//! transaction ends as it was prepared; what is refused changes nothing.

mod codec;
mod decide;
mod state;

use std::time::Duration;

use crate::clock::{Moment, Now};
use crate::error::Result;
use crate::machine::{Applied, Decision, KeyValue, Machine, ProducerIdentity, Recorded};
use crate::record::control::Outcome;
use crate::types::{ProducerId, TopicPartition};

pub(crate) use state::{Bump, Coordinator, Kept};
#[cfg(test)]
use state::{Partitions, Status};

/// The topic whose partitions the coordinators keep their records in.
pub(crate) const STATE_TOPIC: &str = "__transaction_state";

/// How many partitions it is made with, as in Kafka (`transaction.state.log.num.partitions`).
pub(crate) const STATE_PARTITIONS: u32 = 50;

/// The longest time-out that a transaction may have, as in Kafka (`transaction.max.timeout.ms`).
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(15 * 60);

/// An id that nobody has used for so long is forgotten, as in Kafka (`transactional.id.expiration.ms`).
const ID_EXPIRATION: Duration = Duration::from_secs(7 * 24 * 3600);

/// How often they are looked for (Kafka: `transaction.remove.expired.transaction.cleanup.interval.ms`).
const EXPIRY_INTERVAL: Duration = Duration::from_secs(3600);

/// What is asked of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// An instance takes the id, and fences the one before.
    Init {
        id: String,
        timeout: Duration,
        /// Who the asker is already: it goes on, unless another has the id meanwhile.
        expected: Option<ProducerIdentity>,
        /// A producer id that nobody has, where the last reply asked for one.
        fresh: Option<ProducerId>,
    },
    /// Records are about to be written to these partitions; the first ones begin the transaction.
    Add { id: String, producer: ProducerIdentity, partitions: Vec<TopicPartition> },
    /// The transaction ends.
    End {
        id: String,
        producer: ProducerIdentity,
        outcome: Outcome,
        /// As in `Init`.
        fresh: Option<ProducerId>,
    },
    /// The markers of an action are stored in all partitions.
    Complete { id: String, producer: ProducerIdentity },
    /// The transaction takes too long.
    TimeOut { id: String, producer: ProducerIdentity },
    /// Ids that nobody uses are forgotten.
    Expire { ids: Vec<String> },
}

/// What the asker is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The id is the asker's, under this identity; with it the next transaction is written.
    Identity(ProducerIdentity),
    /// A transaction of the instance before is being aborted: ask again.
    Aborting,
    /// Ask again with a fresh producer id.
    NeedsProducerId,
    /// It is as was asked for.
    Done,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// This is what there is to say of an id now.
    Changed {
        id: String,
        kept: Kept,
        /// Why the epoch rose, where it did. It is not in the record.
        bump: Option<Bump>,
    },
    /// Nobody has the id any more.
    Forgotten { id: String },
}

/// Work for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Write a marker to each of the partitions that is there still; then [`Command::Complete`].
    WriteMarkers {
        id: String,
        producer: ProducerIdentity,
        outcome: Outcome,
        partitions: Vec<TopicPartition>,
        /// Whether the epoch is above that of the records, as since transaction version 2.
        bumped: bool,
    },
    /// [`Command::TimeOut`].
    TimeOut { id: String, producer: ProducerIdentity },
    /// [`Command::Expire`].
    Expire { ids: Vec<String> },
}

impl Machine for Coordinator {
    type Command = Command;
    type Event = Event;
    type Reply = Result<Reply>;
    type Action = Action;

    fn decide(&mut self, now: Now, command: Command) -> Decision<Event, Result<Reply>> {
        match decide::decide(self, now, command) {
            Ok((events, reply)) => {
                debug_assert!(events.iter().all(|event| self.is_legal(event)), "{events:?}");
                Decision::events(events, Ok(reply))
            }
            Err(refusal) => Decision::reply(Err(refusal)),
        }
    }

    fn apply(&mut self, _at: Applied, event: &Event) {
        self.take(event);
    }

    fn loaded(&mut self, now: Now) {
        self.start_deadlines(now);
    }

    fn actions(&self, now: Now) -> Vec<Action> {
        self.due(now)
    }

    fn deadline(&self) -> Option<Moment> {
        // The ids that ask for nothing are looked at seldom, and only where there are any.
        let expiry = self.transactions().next().map(|_| self.next_expiry);
        self.timeouts.values().copied().chain(expiry).min()
    }
}

impl Recorded for Coordinator {
    fn encode(event: &Event) -> KeyValue {
        codec::encode(event)
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> std::result::Result<Option<Event>, String> {
        codec::decode(key, value)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
mod tests;
