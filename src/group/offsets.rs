//! How far a group has come: committed positions, and those of open transactions.
//!
//! A position of a transaction waits beside the committed one. When the transaction is committed it counts, unless the
//! committed one stands behind it in the log; when it is aborted it never was.

use std::collections::{BTreeMap, BTreeSet};

use crate::machine::Applied;
use crate::record::control::Outcome;
use crate::types::{LeaderEpoch, Offset, ProducerId, Timestamp, TopicPartition};

/// How far a partition was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The next record to read.
    pub(crate) offset: Offset,
    /// The leader epoch of the record before.
    pub(crate) leader_epoch: Option<LeaderEpoch>,
    /// Whatever the consumer notes, at most [`METADATA_BYTES_MAX`](super::METADATA_BYTES_MAX) bytes.
    pub(crate) metadata: String,
}

/// A position that was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "it is when it was committed")]
pub(crate) struct Committed {
    pub(crate) position: Position,
    pub(crate) committed: Timestamp,
    /// When it expires, where an old client has said so. It is written in a form that has no leader epoch.
    pub(crate) expires: Option<Timestamp>,
}

/// A position, and where in the log it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed {
    at: Offset,
    committed: Committed,
}

/// The positions of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offsets {
    committed: BTreeMap<TopicPartition, Placed>,
    pending: BTreeMap<ProducerId, BTreeMap<TopicPartition, Placed>>,
}

impl Offsets {
    pub(super) fn is_empty(&self) -> bool {
        self.committed.is_empty() && self.pending.is_empty()
    }

    pub(super) fn get(&self, partition: &TopicPartition) -> Option<&Committed> {
        self.committed.get(partition).map(|placed| &placed.committed)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &Committed)> {
        self.committed.iter().map(|(partition, placed)| (partition, &placed.committed))
    }

    /// Those that have a position, or will have one if a transaction is committed.
    pub(super) fn partitions(&self) -> impl Iterator<Item = &TopicPartition> {
        let pending = self.pending.values().flat_map(BTreeMap::keys);
        let all: BTreeSet<_> = self.committed.keys().chain(pending).collect();
        all.into_iter()
    }

    /// Whether a transaction is open that may change something.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the producer's transaction is open.
    pub(super) fn has_pending_of(&self, producer: ProducerId) -> bool {
        self.pending.contains_key(&producer)
    }

    /// Whether a transaction is open that may change this one.
    pub(super) fn is_pending(&self, partition: &TopicPartition) -> bool {
        self.pending.values().any(|positions| positions.contains_key(partition))
    }

    pub(super) fn take(&mut self, at: Applied, partition: &TopicPartition, committed: Option<&Committed>) {
        let Some(committed) = committed else {
            self.committed.remove(partition);
            return self.drop_pending(partition);
        };
        let placed = Placed { at: at.offset, committed: committed.clone() };
        let positions = match at.producer {
            Some(producer) => self.pending.entry(producer.id).or_default(),
            None => &mut self.committed,
        };
        positions.insert(partition.clone(), placed);
    }

    /// The transaction of a producer has ended, by a marker at `end`.
    pub(super) fn end(&mut self, producer: ProducerId, end: Offset, outcome: Outcome) {
        let Some(positions) = self.pending.get_mut(&producer) else { return };
        let (ended, open) = std::mem::take(positions).into_iter().partition(|(_, placed)| placed.at < end);
        *positions = open;
        if positions.is_empty() {
            self.pending.remove(&producer);
        }
        let ended: BTreeMap<TopicPartition, Placed> = ended;
        if outcome == Outcome::Committed {
            for (partition, placed) in ended {
                self.settle(partition, placed);
            }
        }
    }

    fn settle(&mut self, partition: TopicPartition, placed: Placed) {
        if self.committed.get(&partition).is_none_or(|current| current.at < placed.at) {
            self.committed.insert(partition, placed);
        }
    }

    /// What is forgotten is not brought back by a transaction that wrote before.
    fn drop_pending(&mut self, partition: &TopicPartition) {
        self.pending.retain(|_, positions| {
            positions.remove(partition);
            !positions.is_empty()
        });
    }
}
