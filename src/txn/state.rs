//! What a transaction coordinator knows of each transactional id, and the one place where it changes.
//!
//! What is in [`Transaction::kept`] follows from the latest record of the id. Beside it stands what only this run of
//! the machine has seen ([`Bump`]): it tells a fenced producer why, and a replay does not bring it back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Event;
use crate::clock::Moment;
use crate::machine::ProducerIdentity;
use crate::record::control::Outcome;
use crate::types::{ProducerEpoch, ProducerId, Timestamp, TopicPartition};

/// Where a transactional id stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// A producer has the id and has begun nothing.
    Empty,
    /// Partitions have been added.
    Ongoing,
    /// It is decided, for good: markers are being written.
    Prepared(Outcome),
    /// Every marker is written.
    Complete(Outcome),
}

impl Status {
    /// Whether an id that stands at `self` can go to `next`.
    ///
    /// An abort follows on `Empty` and `Complete` too: of a transaction that has no partition.
    pub(super) fn leads_to(self, next: Self) -> bool {
        use Outcome::{Aborted, Committed};
        match next {
            Self::Empty | Self::Prepared(Aborted) if matches!(self, Self::Empty | Self::Complete(_)) => true,
            Self::Ongoing => matches!(self, Self::Empty | Self::Ongoing | Self::Complete(_)),
            Self::Prepared(Aborted | Committed) => self == Self::Ongoing,
            Self::Complete(outcome) => self == Self::Prepared(outcome),
            Self::Empty => false,
        }
    }
}

/// The partitions of a transaction: numbers by topic.
pub(crate) type Partitions = BTreeMap<String, BTreeSet<u32>>;

/// What a record says of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) producer_id: ProducerId,
    /// In `Prepared` it is the one that the markers carry: with [`VERSION`] one above that of the records.
    pub(crate) producer_epoch: ProducerEpoch,
    /// The id before, where its epochs were used up.
    pub(crate) previous_producer_id: Option<ProducerId>,
    /// In `Prepared`: the id that follows, where the epochs of this one are used up.
    pub(crate) next_producer_id: Option<ProducerId>,
    /// In milliseconds.
    pub(crate) timeout_ms: u32,
    pub(crate) status: Status,
    /// Empty unless `Ongoing` or `Prepared`.
    pub(crate) partitions: Partitions,
    pub(crate) updated: Timestamp,
    pub(crate) started: Option<Timestamp>,
    /// The version of the transactional protocol that the producer speaks.
    pub(crate) version: i16,
}

/// The version that taffrail speaks: the epoch rises with each transaction (KIP-890).
pub(super) const VERSION: i16 = 2;

/// A transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(crate) kept: Kept,
    /// Why the epoch rose last.
    pub(super) bump: Bump,
}

/// Why an epoch rose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bump {
    /// It is not known: it rose before the records were read.
    #[default]
    Unknown,
    /// Its producer asked for it, with this epoch.
    ByOwner(ProducerEpoch),
    /// Another producer took the id over.
    ByOther,
    /// The transaction of this epoch took too long.
    ByTime(ProducerEpoch),
}

/// The transactional ids of one partition of the coordinator's topic, as its records say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coordinator {
    transactions: BTreeMap<String, Transaction>,
    /// Those that are decided and have markers to be written.
    prepared: BTreeSet<String>,
    /// When each ongoing transaction has taken too long.
    pub(super) timeouts: BTreeMap<String, Moment>,
    /// When ids that nobody uses are looked for next.
    pub(super) next_expiry: Moment,
}

impl Coordinator {
    pub(crate) fn transaction(&self, id: &str) -> Option<&Transaction> {
        self.transactions.get(id)
    }

    /// All of them, by id.
    pub(crate) fn transactions(&self) -> impl Iterator<Item = (&String, &Transaction)> {
        self.transactions.iter()
    }

    /// Those that have markers to be written.
    pub(super) fn prepared(&self) -> impl Iterator<Item = (&String, &Transaction)> {
        self.prepared.iter().filter_map(|id| self.transactions.get_key_value(id))
    }

    /// Whether an event takes its id to a state that may follow.
    pub(super) fn is_legal(&self, event: &Event) -> bool {
        match event {
            Event::Changed { id, kept, .. } => {
                let before = self.transactions.get(id).map_or(Status::Empty, |before| before.kept.status);
                before.leads_to(kept.status)
            }
            Event::Forgotten { .. } => true,
        }
    }

    /// Takes an event in.
    pub(super) fn take(&mut self, event: &Event) {
        match event {
            Event::Changed { id, kept, bump } => {
                if matches!(kept.status, Status::Prepared(_)) {
                    self.prepared.insert(id.clone());
                } else {
                    self.prepared.remove(id);
                }
                if kept.status != Status::Ongoing {
                    self.timeouts.remove(id);
                }
                let before = self.transactions.get(id).map_or(Bump::Unknown, |before| before.bump);
                let bump = bump.unwrap_or(before);
                self.transactions.insert(id.clone(), Transaction { kept: kept.clone(), bump });
            }
            Event::Forgotten { id } => {
                self.transactions.remove(id);
                self.prepared.remove(id);
                self.timeouts.remove(id);
            }
        }
    }
}

impl Kept {
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.timeout_ms))
    }

    /// Whether no epoch is left for another transaction: the last one is for the coordinator, to fence with.
    pub(super) const fn is_exhausted(&self) -> bool {
        self.producer_epoch.0 >= i16::MAX - 1
    }

    /// Whether the epoch is the one that no producer gets.
    pub(super) const fn is_coordinators(&self) -> bool {
        self.producer_epoch.0 == i16::MAX
    }

    /// The epoch above.
    pub(super) const fn next_epoch(&self) -> ProducerEpoch {
        ProducerEpoch(self.producer_epoch.0.saturating_add(1))
    }

    /// The partitions, one by one.
    pub(crate) fn each_partition(&self) -> impl Iterator<Item = TopicPartition> {
        let of = |(topic, numbers): (&String, &BTreeSet<u32>)| {
            let topic = topic.clone();
            let one = move |number: &u32| TopicPartition { topic: topic.clone(), partition: *number };
            numbers.iter().map(one).collect::<Vec<_>>()
        };
        self.partitions.iter().flat_map(of)
    }

    /// Whether it goes on behind a transaction of this very producer: its epoch has risen by one since, or its id has
    /// followed one whose epochs were used up.
    pub(super) fn follows(&self, producer: ProducerIdentity) -> bool {
        let by_epoch =
            self.producer_id == producer.id && i32::from(producer.epoch.0) + 1 == i32::from(self.producer_epoch.0);
        let by_id = self.previous_producer_id == Some(producer.id)
            && producer.epoch.0 >= i16::MAX - 1
            && self.producer_epoch == ProducerEpoch(0);
        by_epoch || by_id
    }

    /// How a transaction of this producer is to be ended that is open in a partition; `None` where its coordinator does
    /// that, or will.
    pub(crate) fn outcome_of(&self, producer: ProducerIdentity, partition: &TopicPartition) -> Option<Outcome> {
        let has_it = self.producer_id == producer.id && self.contains(partition);
        match self.status {
            Status::Ongoing if has_it && self.producer_epoch == producer.epoch => None,
            // By the earlier protocol markers have the epoch of the records.
            Status::Prepared(_) if has_it && (self.follows(producer) || self.producer_epoch == producer.epoch) => None,
            Status::Complete(outcome) if self.follows(producer) => Some(outcome),
            _ => Some(Outcome::Aborted),
        }
    }

    pub(super) fn contains(&self, partition: &TopicPartition) -> bool {
        self.partitions.get(&partition.topic).is_some_and(|numbers| numbers.contains(&partition.partition))
    }
}
