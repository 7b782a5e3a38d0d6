//! Writing the markers of a transaction that is decided, to each of its partitions.
//!
//! ```text
//!   left ──(marker appended)──► written ──(its partition has stored it)──► stored;   all of them: Complete
//! ```
//!
//! A partition whose topic was deleted, or that a later epoch has spoken to, needs none. One that takes no writes is tried
//! again: the transaction does not end before it has its marker. After a crash all of them are written again, which a
//! partition that has its marker answers without writing.
//!
//! There is one coordinator of an id in a log. Where a partition knows a later one, it has it from elsewhere, from the log
//! that it was copied from, say; the marker is written as of that one then, for readers wait for it.
//!
//! A marker ends the transaction before it, and no earlier one: where that hangs, because its own marker is lost, it is
//! aborted first. (Where the power goes, a partition whose topic is not synced may keep the records of an aborted
//! transaction and lose its marker; the records of the next one are lost then, too, and its marker must not commit them.)
//!
//! Where the partition is that of a group's coordinator, it is the coordinator who appends the marker, in its turn: it goes
//! by the offsets of what it has appended, and what it knows of positions changes with the marker.

use std::sync::Arc;
use std::time::Duration;

use super::slot::Slot;
use super::{Node, Topics};
use crate::clock::{Moment, Now};
use crate::error::{Error, Result};
use crate::machine::ProducerIdentity;
use crate::partition::{Appended, Partition, Receipt};
use crate::record::control::{Marker, Outcome, TransactionVersion};
use crate::trace;
use crate::types::{LeaderEpoch, ProducerEpoch, TopicPartition};

/// A partition that takes no marker is asked again after so long.
const RETRY: Duration = Duration::from_millis(100);
/// What is written is looked after so long; partitions sync what nobody waits for sooner.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How a transaction ends, as its markers say it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) producer: ProducerIdentity,
    outcome: Outcome,
    version: TransactionVersion,
    /// Of whoever decided so.
    epoch: LeaderEpoch,
}

/// Who asked a coordinator to append a marker: what to ask after then, or nothing where none is needed.
pub(super) type MarkerAsker = Arc<Slot<Result<Option<Receipt>>>>;

/// The markers of one transaction.
#[derive(Debug)]
pub(super) struct Marking {
    pub(super) producer: ProducerIdentity,
    outcome: Outcome,
    version: TransactionVersion,
    left: Vec<TopicPartition>,
    /// What coordinators were asked to append.
    asked: Vec<(TopicPartition, MarkerAsker)>,
    written: Vec<(Partition, Receipt)>,
    /// When it is looked at next.
    pub(super) due: Moment,
}

impl Marking {
    pub(super) fn new(
        producer: ProducerIdentity,
        outcome: Outcome,
        bumped: bool,
        partitions: Vec<TopicPartition>,
    ) -> Self {
        let version = if bumped { TransactionVersion::V2 } else { TransactionVersion::V1 };
        let (asked, written) = (Vec::new(), Vec::new());
        Self { producer, outcome, version, left: partitions, asked, written, due: Moment(0) }
    }

    /// Goes on as far as that is possible without waiting; says whether every marker is stored.
    pub(super) fn proceed(&mut self, node: &Node, epoch: LeaderEpoch, now: Now) -> bool {
        let topics = node.topics();
        let ending = Ending { producer: self.producer, outcome: self.outcome, version: self.version, epoch };
        let left = std::mem::take(&mut self.left);
        self.due = now.monotonic.after(LOOK_AGAIN);
        for name in left {
            let topic = topics.get(name.topic.as_str());
            let Some(partition) = topic.and_then(|topic| topic.partitions.get(name.partition as usize)) else {
                continue; // its topic was deleted
            };
            match node.mark_in_group(&name, ending, now) {
                Some(asker) => self.asked.push((name, asker)),
                None => self.take(&topics, name, now, ending.write(partition, now, |_, _| {})),
            }
        }
        for (name, asker) in std::mem::take(&mut self.asked) {
            match asker.take() {
                Some(answer) => self.take(&topics, name, now, answer),
                None => self.asked.push((name, asker)),
            }
        }
        self.look_after_written(&topics, now);
        self.left.is_empty() && self.asked.is_empty() && self.written.is_empty()
    }

    /// What is written and not known to be stored.
    pub(super) fn written(&self) -> Vec<(Partition, Receipt)> {
        self.written.clone()
    }

    /// What coordinators have not answered yet.
    pub(super) fn asked(&self) -> Vec<(TopicPartition, MarkerAsker)> {
        self.asked.clone()
    }

    /// What became of one marker. One that was refused is written again later.
    fn take(&mut self, topics: &Topics, name: TopicPartition, now: Now, written: Result<Option<Receipt>>) {
        let topic = topics.get(name.topic.as_str());
        let partition = topic.and_then(|topic| topic.partitions.get(name.partition as usize));
        match (written, partition) {
            (Ok(Some(receipt)), Some(partition)) => self.written.push((partition.clone(), receipt)),
            (Ok(_), _) => {}
            (Err(error), partition) => {
                if let Some(partition) = partition {
                    trace::warn(partition.path(), || format!("takes no marker yet: {error}"));
                }
                self.left.push(name);
                self.due = now.monotonic.after(RETRY);
            }
        }
    }

    fn look_after_written(&mut self, topics: &Topics, now: Now) {
        for (partition, receipt) in std::mem::take(&mut self.written) {
            match partition.try_stored(receipt) {
                Some(Ok(())) => {}
                None => self.written.push((partition, receipt)),
                // Whether it is there is not known: it is written again.
                Some(Err(_)) => {
                    self.left.extend(name_of(topics, &partition));
                    self.due = now.monotonic.after(RETRY);
                }
            }
        }
    }
}

impl Ending {
    /// Appends the marker, and that of an earlier transaction which hangs before it; `appended` is told of each. Answers
    /// what to ask after, or nothing where the partition needs none.
    pub(super) fn write(
        self,
        partition: &Partition,
        now: Now,
        mut appended: impl FnMut(&Appended<'_>, Outcome),
    ) -> Result<Option<Receipt>> {
        if self.version == TransactionVersion::V2
            && let Some(open) = partition.open_epoch(self.producer.id)
        {
            let end = ProducerEpoch(open.0.saturating_add(1));
            if end < self.producer.epoch {
                appended(&self.append(partition, Outcome::Aborted, end, now)?, Outcome::Aborted);
            }
        }
        match self.append(partition, self.outcome, self.producer.epoch, now) {
            Ok(marker) => {
                appended(&marker, self.outcome);
                Ok(Some(marker.receipt()))
            }
            Err(Error::ProducerFenced { epoch, current, .. }) if epoch < current => Ok(None),
            Err(Error::CoordinatorFenced { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Appends a marker, as of the coordinator that the partition knows where that is a later one and has left the
    /// transaction open.
    fn append(
        self,
        partition: &Partition,
        outcome: Outcome,
        producer_epoch: ProducerEpoch,
        now: Now,
    ) -> Result<Appended<'_>> {
        let producer_id = self.producer.id;
        let mut marker =
            Marker { outcome, producer_id, producer_epoch, coordinator_epoch: self.epoch.0, timestamp: now.wall };
        match partition.append_marker(&marker, self.version) {
            Err(Error::CoordinatorFenced { current, .. }) if partition.open_epoch(producer_id).is_some() => {
                marker.coordinator_epoch = current;
                partition.append_marker(&marker, self.version)
            }
            other => other,
        }
    }
}

/// The name of a partition that is there still.
fn name_of(topics: &Topics, partition: &Partition) -> Option<TopicPartition> {
    topics.values().find_map(|topic| {
        let number = topic.partitions.iter().position(|other| other.path() == partition.path())?;
        let number = u32::try_from(number).ok()?;
        Some(TopicPartition { topic: topic.name.to_string(), partition: number })
    })
}
