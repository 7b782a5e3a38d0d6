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

use std::time::Duration;

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

/// The markers of one transaction.
#[derive(Debug)]
pub(super) struct Marking {
    pub(super) producer: ProducerIdentity,
    outcome: Outcome,
    version: TransactionVersion,
    left: Vec<TopicPartition>,
    written: Vec<(Partition, Receipt)>,
    /// When it is looked at next.
    pub(super) due: Moment,
}

/// What became of one marker.
enum Written {
    Appended(Partition, Receipt),
    /// Nobody needs it.
    Needless,
}

impl Marking {
    pub(super) fn new(
        producer: ProducerIdentity,
        outcome: Outcome,
        bumped: bool,
        partitions: Vec<TopicPartition>,
    ) -> Self {
        let version = if bumped { TransactionVersion::V2 } else { TransactionVersion::V1 };
        Self { producer, outcome, version, left: partitions, written: Vec::new(), due: Moment(0) }
    }

    /// Goes on as far as that is possible without waiting; says whether every marker is stored.
    pub(super) fn proceed(&mut self, node: &Node, epoch: LeaderEpoch, now: Now) -> bool {
        let topics = node.topics();
        let left = std::mem::take(&mut self.left);
        let mut delay = LOOK_AGAIN;
        for partition in left {
            match self.write(&topics, &partition, epoch, now) {
                Ok(Written::Appended(partition, receipt)) => self.written.push((partition, receipt)),
                Ok(Written::Needless) => {}
                Err(error) => {
                    trace::warn(&node.home.directory, || format!("{partition} takes no marker yet: {error}"));
                    self.left.push(partition);
                    delay = RETRY;
                }
            }
        }
        let written = std::mem::take(&mut self.written);
        for (partition, receipt) in written {
            match partition.try_stored(receipt) {
                Some(Ok(())) => {}
                None => self.written.push((partition, receipt)),
                // Whether it is there is not known: it is written again.
                Some(Err(_)) => {
                    self.left.extend(name_of(&topics, &partition));
                    delay = RETRY;
                }
            }
        }
        self.due = now.monotonic.after(delay);
        self.left.is_empty() && self.written.is_empty()
    }

    /// What is written and not known to be stored.
    pub(super) fn written(&self) -> Vec<(Partition, Receipt)> {
        self.written.clone()
    }

    fn write(&self, topics: &Topics, name: &TopicPartition, epoch: LeaderEpoch, now: Now) -> Result<Written> {
        let topic = topics.get(name.topic.as_str());
        let partition = topic.and_then(|topic| topic.partitions.get(name.partition as usize));
        let Some(partition) = partition else { return Ok(Written::Needless) };
        if self.version == TransactionVersion::V2
            && let Some(open) = partition.open_epoch(self.producer.id)
        {
            let end = ProducerEpoch(open.0.saturating_add(1));
            if end < self.producer.epoch {
                self.append(partition, Outcome::Aborted, end, epoch, now).map(drop)?;
            }
        }
        match self.append(partition, self.outcome, self.producer.epoch, epoch, now) {
            Ok(appended) => Ok(Written::Appended(partition.clone(), appended.receipt())),
            Err(Error::ProducerFenced { epoch, current, .. }) if epoch < current => Ok(Written::Needless),
            Err(Error::CoordinatorFenced { .. }) => Ok(Written::Needless),
            Err(error) => Err(error),
        }
    }

    /// Appends a marker, as of the coordinator that the partition knows where that is a later one and has left the
    /// transaction open.
    fn append<'p>(
        &self,
        partition: &'p Partition,
        outcome: Outcome,
        producer_epoch: ProducerEpoch,
        epoch: LeaderEpoch,
        now: Now,
    ) -> Result<Appended<'p>> {
        let producer_id = self.producer.id;
        let mut marker =
            Marker { outcome, producer_id, producer_epoch, coordinator_epoch: epoch.0, timestamp: now.wall };
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
