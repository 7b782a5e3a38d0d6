//! Where a partition goes on that was assigned: at the position that the group has committed, else where it begins.
//!
//! Invariants: nothing is read of a partition before that is known. A transaction may be about to change it: then it is
//! asked for again. Nothing is left out of a partition that has come since the consumer was opened, whenever that is
//! assigned: a beginning at the end is meant for what was there.

use std::collections::BTreeMap;
use std::time::Duration;

use super::assignment::{Slot, Which};
use super::commits::CommittedOffset;
use super::core::Core;
use super::position::{StartAt, Target};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::node::{Topic, Topics};
use crate::types::{TopicId, TopicPartition};

/// What is not known yet is asked for again after this time (Kafka: `retry.backoff.ms`).
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Where reading begins without a position of the group, and whether positions are to be found out.
#[derive(Debug)]
pub(super) struct Placing {
    start_at: StartAt,
    /// How many partitions each topic had when the consumer was opened; empty where it does not begin at the end.
    there: BTreeMap<TopicId, u32>,
    /// When positions are to be found out; `None` where all are known.
    due: Option<Moment>,
}

impl Placing {
    /// For a consumer that is opened over these topics. It keeps none of them.
    pub(super) fn new(start_at: StartAt, topics: &Topics) -> Self {
        let count = |topic: &Topic| u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
        let topics = topics.values().filter(|_| start_at == StartAt::Latest);
        Self { start_at, there: topics.map(|topic| (topic.id, count(topic))).collect(), due: None }
    }

    /// Where reading begins in this partition.
    fn start_in(&self, topic: TopicId, number: u32) -> StartAt {
        let was_there = || self.there.get(&topic).is_some_and(|count| number < *count);
        match self.start_at {
            StartAt::Latest if !was_there() => StartAt::Earliest,
            start_at => start_at,
        }
    }

    pub(super) fn due(&self) -> Option<Moment> {
        self.due
    }

    pub(super) fn begin(&mut self) {
        self.due = Some(Moment::default());
    }
}

impl Core {
    /// Has these go on where the group has come to by then.
    pub(super) fn seek_to_committed(&mut self, which: Which<'_>) -> Result<()> {
        // What is under way counts.
        self.finish_commits();
        self.fetcher.forget(which)?;
        self.commits.given_up = None;
        self.placing.begin();
        Ok(())
    }

    /// Finds out the positions that are not known, if it is time to. What may pass is tried again later.
    pub(super) fn place(&mut self) -> Result<()> {
        match self.placing.due {
            Some(due) if due <= self.now() => match self.place_now() {
                Err(Error::CoordinatorLoading { .. }) => Ok(()),
                placed => placed,
            },
            _ => Ok(()),
        }
    }

    /// Finds out the positions that are not known, as far as no transaction is about to change them.
    pub(super) fn place_now(&mut self) -> Result<()> {
        self.look_at_progress();
        let is_wanted = |slot: &&Slot| slot.target == Target::Unknown && !slot.is_gone();
        let wanted: Vec<_> = self.fetcher.assignment().slots().iter().filter(is_wanted).map(Slot::name).collect();
        self.placing.due = None;
        if wanted.is_empty() {
            return Ok(());
        }
        self.placing.due = Some(self.now().after(AGAIN_AFTER));
        let mut stable = wanted.clone();
        let committed = self.stable_positions(&mut stable)?;
        let mut outcome = Ok(());
        let mut is_done = stable.len() == wanted.len();
        for name in stable {
            let placed = self.place_one(&name, committed.get(&name));
            is_done &= placed.is_ok();
            if placed.is_err() && outcome.is_ok() && !self.is_paused(&name) {
                self.fetcher.fail(name);
                outcome = placed;
            }
        }
        self.placing.due = self.placing.due.filter(|_| !is_done);
        outcome
    }

    /// Whether its errors keep quiet.
    fn is_paused(&self, name: &TopicPartition) -> bool {
        let assignment = self.fetcher.assignment();
        assignment.find(&name.topic, name.partition).is_some_and(|index| assignment.slots()[index].paused)
    }

    fn place_one(&mut self, name: &TopicPartition, committed: Option<&CommittedOffset>) -> Result<()> {
        let Some(index) = self.fetcher.assignment().find(&name.topic, name.partition) else { return Ok(()) };
        let committed = committed.map(CommittedOffset::position);
        let isolation = self.fetcher.isolation();
        let slot = self.fetcher.assignment_mut().slot(index);
        let start_at = self.placing.start_in(slot.id(), slot.number);
        slot.send_to(match committed {
            Some(position) => Target::At(position),
            None => start_at.target(slot.partition()?, isolation)?,
        });
        slot.committed = committed;
        Ok(())
    }

    /// What the group has committed of these. Those that an open transaction may change are taken out.
    fn stable_positions(
        &self,
        partitions: &mut Vec<TopicPartition>,
    ) -> Result<BTreeMap<TopicPartition, CommittedOffset>> {
        while !partitions.is_empty() {
            match self.fetcher.node().committed(&self.group, Some(partitions.clone()), true) {
                Err(Error::UnstableOffset { partition, .. }) if partitions.contains(&partition) => {
                    partitions.retain(|one| *one != partition);
                }
                found => return Ok(found?.into_iter().map(|(name, found)| (name, found.position.into())).collect()),
            }
        }
        Ok(BTreeMap::new())
    }
}
