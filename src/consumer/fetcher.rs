//! Fetching: partitions take turns, each turn is one read, and where none has anything the fetcher sleeps.
//!
//! ```text
//!   poll ─▶ step ─▶ a turn ─▶ records            → handed out, the position moves
//!            ▲        │     ─▶ nothing to show   → the position moves, the next turn
//!            │        │     ─▶ an error          → answered, the position stays
//!            │        └─────▶ nothing there      → the next turn; after a whole round: idle
//!            └── woken ◀── sleep ◀── look again ◀── listen ◀── idle
//! ```
//!
//! Invariants:
//! - Whatever a turn comes to, the next one is the next partition's: neither endless data nor an error that stays
//!   holds up the others.
//! - A position moves only with the records before it, or past what is not shown (markers, aborted records, gaps); it
//!   is set elsewhere only by a seek, and by the policy for positions that are out of range.
//! - A member of a group reads nothing, and moves no position, while others may own what it owned.
//! - It listens to its partitions and to the node before it looks a last time, and sleeps after (`nap.rs`): no change is
//!   missed. It listens only within a poll that found nothing.

use std::sync::Arc;

use super::assignment::{Assignment, Slot, Which};
use super::nap::Polls;
use super::polled::Polled;
use super::position::{OutOfRange, Position, StartAt, Target};
use super::waker::PollWaker;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::group::Partitions;
use crate::node::{Membership, Node, Topic};
use crate::partition::{Fetched, Partition, ReadOptions};
use crate::sync::{Arc as Pointer, Signal};
use crate::types::{Isolation, Offset, TopicPartition};

/// How a fetcher reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchOptions {
    pub(super) isolation: Isolation,
    pub(super) out_of_range: OutOfRange,
    pub(super) max_bytes: usize,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self { isolation: Isolation::Committed, out_of_range: OutOfRange::Error, max_bytes: 256 << 10 }
    }
}

/// Reads the partitions that are assigned to it, in turns.
pub(super) struct Fetcher {
    node: Arc<Node>,
    assignment: Assignment,
    options: FetchOptions,
    waker: PollWaker,
    /// By which it reads, in a group that gives its partitions to members.
    membership: Option<Arc<Membership>>,
    /// Whose turn the last poll ended at with an error.
    failed: Option<TopicPartition>,
}

/// What a step came to.
pub(super) enum Step {
    Records(Polled),
    /// The position moved past something that is not shown: there may be more at once.
    Passed,
    /// No partition has anything.
    Idle,
}

/// What is assigned.
impl Fetcher {
    /// Reads nothing yet.
    pub(super) fn new(node: Arc<Node>, options: FetchOptions) -> Self {
        let assignment = Assignment::new(node.version());
        Self { node, assignment, options, waker: PollWaker::new(), membership: None, failed: None }
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// What wakes it.
    pub(super) fn signal(&self) -> &Pointer<Signal> {
        self.waker.signal()
    }

    pub(super) fn waker(&self) -> &PollWaker {
        &self.waker
    }

    pub(super) fn isolation(&self) -> Isolation {
        self.options.isolation
    }

    pub(super) fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    pub(super) fn assignment_mut(&mut self) -> &mut Assignment {
        &mut self.assignment
    }

    /// Reads by this from now on.
    pub(super) fn read_by(&mut self, membership: Arc<Membership>) {
        self.membership = Some(membership);
    }

    /// Those of these that are read, by name.
    pub(super) fn names(&self, partitions: &Partitions) -> Vec<TopicPartition> {
        self.assignment.within(partitions).map(Slot::name).collect()
    }

    /// Adds all partitions of a topic, also those that come later: these from their first record on.
    pub(super) fn follow(&mut self, topic: &Topic, start: StartAt) -> Result<()> {
        let isolation = self.options.isolation;
        self.assignment.follow(topic, |partition| start.target(partition, isolation))
    }

    /// Adds one partition.
    pub(super) fn assign(&mut self, topic: &Topic, number: u32, start: StartAt) -> Result<()> {
        let isolation = self.options.isolation;
        self.assignment.add(topic, number, |partition| start.target(partition, isolation))
    }

    /// Follows the topics where they have changed.
    pub(super) fn update(&mut self) -> Result<()> {
        self.node.check_open()?;
        // The version first: topics that are exchanged in between are looked at once more.
        let version = self.node.version();
        if version != self.assignment.version() {
            self.assignment.update(version, &self.node.topics());
        }
        Ok(())
    }

    fn find(&self, topic: &str, number: u32) -> Result<usize> {
        self.assignment.find(topic, number).ok_or_else(|| self.not_assigned(topic, Some(number)))
    }

    fn select(&self, which: Which<'_>) -> Result<Vec<usize>> {
        let selected = self.assignment.select(which);
        match which {
            Which::Topic(topic) if selected.is_empty() => Err(self.not_assigned(topic, None)),
            Which::Partition(topic, number) if selected.is_empty() => Err(self.not_assigned(topic, Some(number))),
            _ => Ok(selected),
        }
    }

    /// Why there is no such slot.
    fn not_assigned(&self, topic: &str, partition: Option<u32>) -> Error {
        let there = self.node.topic(topic).and_then(|found| match partition {
            Some(number) => found.partition(number).map(drop),
            None => Ok(()),
        });
        there.err().unwrap_or_else(|| Error::NotAssigned { topic: topic.to_owned(), partition })
    }
}

/// Positions.
impl Fetcher {
    /// Where a partition is read next; `None` where that is not known yet.
    pub(super) fn position(&self, topic: &str, number: u32) -> Result<Option<Position>> {
        self.assignment.slots()[self.find(topic, number)?].position()
    }

    pub(super) fn seek(&mut self, topic: &str, number: u32, position: Position) -> Result<()> {
        self.update()?;
        let index = self.find(topic, number)?;
        let slot = self.assignment.slot(index);
        let partition = slot.partition()?;
        if position.offset > Offset::MAX {
            // No log has it, nor can it be committed.
            let (start, end) = (partition.start(), partition.end());
            let (partition, requested) = (slot.name(), position.offset);
            return Err(Error::OffsetOutOfRange { partition, requested, start, end });
        }
        slot.send_to(Target::At(position));
        Ok(())
    }

    /// Sends each of them to where `to` is in it.
    pub(super) fn seek_to(&mut self, which: Which<'_>, to: StartAt) -> Result<()> {
        let isolation = self.options.isolation;
        self.send(which, |partition| to.target(partition, isolation))
    }

    /// Where each of them goes on is to be found out.
    pub(super) fn forget(&mut self, which: Which<'_>) -> Result<()> {
        self.send(which, |_| Ok(Target::Unknown))
    }

    /// Sends each of them somewhere; on an error none. Where several are meant, those that are gone are left as they are:
    /// their turns say so. Where every one of a topic is, that is the error.
    fn send(&mut self, which: Which<'_>, to: impl Fn(&Partition) -> Result<Target>) -> Result<()> {
        self.update()?;
        let (mut found, mut gone) = (Vec::new(), None);
        for index in self.select(which)? {
            match self.assignment.slots()[index].partition() {
                Ok(partition) => found.push((index, to(partition)?)),
                Err(error) => gone = gone.or(Some(error)),
            }
        }
        if let Some(gone) = gone.filter(|_| found.is_empty() && which != Which::All) {
            return Err(gone);
        }
        for (index, target) in found {
            self.assignment.slot(index).send_to(target);
        }
        Ok(())
    }

    /// Has turns of these pass by, or come again.
    pub(super) fn set_paused(&mut self, which: Which<'_>, paused: bool) -> Result<()> {
        self.update()?;
        for index in self.select(which)? {
            self.assignment.slot(index).paused = paused;
        }
        self.assignment.revise();
        Ok(())
    }

    /// Those whose turns pass by, by name.
    pub(super) fn paused(&self) -> Vec<TopicPartition> {
        self.assignment.slots().iter().filter(|slot| slot.paused).map(Slot::name).collect()
    }
}

impl Polls for Fetcher {
    fn fetcher(&self) -> &Fetcher {
        self
    }

    /// Takes turns until one comes to something, once around at most.
    fn step(&mut self) -> Result<Step> {
        self.failed = None;
        self.update()?;
        if !self.may_read() {
            return Ok(Step::Idle);
        }
        for _ in 0..self.assignment.len() {
            let index = self.assignment.take_turn();
            match self.turn(index) {
                Ok(Step::Idle) => {}
                Ok(something) => return Ok(something),
                Err(error) => {
                    self.failed = Some(self.assignment.slots()[index].name());
                    if matches!(error, Error::UnknownTopic { .. }) {
                        self.assignment.tell(index, &self.node.topics());
                    }
                    return Err(error);
                }
            }
        }
        Ok(Step::Idle)
    }

    fn wake_by(&self, deadline: Moment) -> Moment {
        deadline
    }
}

/// Turns.
impl Fetcher {
    /// Whose error the last poll has answered.
    pub(super) fn failed(&self) -> Option<&TopicPartition> {
        self.failed.as_ref()
    }

    /// A poll begins, or goes on: nobody's error is answered yet.
    pub(super) fn forget_failed(&mut self) {
        self.failed = None;
    }

    /// The error that is answered is that of this one.
    pub(super) fn fail(&mut self, partition: TopicPartition) {
        self.failed = Some(partition);
    }

    pub(super) fn now(&self) -> Moment {
        self.node.clock().monotonic()
    }

    /// Whether nobody else can own what is read.
    fn may_read(&self) -> bool {
        self.membership.as_ref().is_none_or(|membership| membership.may_read())
    }

    /// One partition's turn.
    fn turn(&mut self, index: usize) -> Result<Step> {
        let options = self.options;
        let slot = &self.assignment.slots()[index];
        // A group takes back what is gone.
        if slot.paused || slot.target == Target::Unknown || slot.is_gone() && self.membership.is_some() {
            return Ok(Step::Idle);
        }
        let outcome = read(slot, options);
        let is_nothing = outcome.as_ref().is_ok_and(|fetched| fetched.next_offset() == fetched.start());
        // Reading takes time.
        if !is_nothing && !self.may_read() {
            return Ok(Step::Idle);
        }
        let slot = self.assignment.slot(index);
        match outcome {
            Ok(fetched) => Ok(hand_out(slot, fetched)),
            Err(Error::OffsetOutOfRange { .. }) if slot.target == Target::Earliest => Ok(Step::Passed),
            Err(error @ Error::OffsetOutOfRange { .. }) => return_to_range(slot, error, options),
            Err(Error::Closed) => self.closed(),
            Err(error) => Err(error),
        }
    }

    /// A partition is closed: because the log is, or because the topics have changed since they were looked at.
    fn closed(&self) -> Result<Step> {
        self.node.check_open()?;
        if self.node.version() == self.assignment.version() { Err(Error::Closed) } else { Ok(Step::Passed) }
    }
}

fn read(slot: &Slot, options: FetchOptions) -> Result<Fetched> {
    let partition: &Partition = slot.partition()?;
    // It is known where there is a turn.
    let Position { offset, epoch } = slot.target.position(partition).unwrap_or_default();
    let options = ReadOptions::new().isolation(options.isolation).max_bytes(options.max_bytes);
    partition.try_read_after(offset, epoch, options)
}

/// Moves the position behind what was fetched. A first read that finds nothing fixes where the first record is.
fn hand_out(slot: &mut Slot, fetched: Fetched) -> Step {
    let moved = fetched.next_offset() > fetched.start();
    if moved {
        slot.target = Target::At(Position { offset: fetched.next_offset(), epoch: fetched.epoch() });
    } else if slot.target == Target::Earliest {
        slot.target = Target::At(fetched.start().into());
    }
    match fetched.records().next() {
        Some(_) => {
            slot.has_handed_out = true;
            Step::Records(Polled::new(Arc::clone(&slot.topic), slot.number, fetched))
        }
        None if moved => Step::Passed,
        None => Step::Idle,
    }
}

/// The position is not in the log.
fn return_to_range(slot: &mut Slot, error: Error, options: FetchOptions) -> Result<Step> {
    let to = match options.out_of_range {
        OutOfRange::Error => return Err(error),
        OutOfRange::Earliest => StartAt::Earliest,
        OutOfRange::Latest => StartAt::Latest,
    };
    slot.target = to.target(slot.partition()?, options.isolation)?;
    Ok(Step::Passed)
}

#[cfg(all(test, not(loom)))]
impl Fetcher {
    /// How many things may raise the signal now.
    pub(super) fn listeners(&self) -> usize {
        Pointer::strong_count(self.signal()) - 1
    }
}
