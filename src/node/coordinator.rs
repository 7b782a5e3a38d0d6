//! One coordinator: a machine over a partition, step by step.
//!
//! ```text
//!  command ─► ledger ─► one batch ─► partition (page cache) ─► Task: wait until it is stored ─┐
//!                ▲                                                                            │ outside of the lock
//!                └────────────── answers ◄── committed ◄──────── Input::Stored ◄──────────────┘
//! ```
//!
//! [`Coordinator::step`] never waits for a sync: that is a task, done by whoever called, and its end is an input. Where
//! written counts as stored there is no task. The machine is made by the first command, from the partition's records,
//! and counts as committed once they are stored. A failed append or sync drops it and fails what is pending; the next
//! command reads the records again (and reopens the partition first, where it is poisoned), or answers why it cannot.
//!
//! A marker that ends a transaction here ([`Input::Marker`]) is appended like a batch of its own: it waits until the batch
//! before it is stored, and commands that come behind it wait with it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::ledger::{Batch as Events, Ledger};
use super::loading::{Loaded, load};
use super::markers::{Ending, MarkerAsker};
use super::slot::Slot;
use crate::clock::{Clock, Moment, Now};
use crate::error::{Error, Result};
use crate::machine::{KeyValue, ProducerIdentity, Recorded};
use crate::mutants;
use crate::partition::{Partition, Receipt};
use crate::record::builder::{BatchBuilder, Record};
use crate::trace;
use crate::types::{LeaderEpoch, Offset, Sequence};

/// Who asked for something.
pub(super) type Asker<R> = Arc<Slot<Result<R>>>;

/// What a step is given.
pub(super) enum Input<C, R> {
    Command(C, Asker<R>),
    /// The records are to be read, if they are not.
    Load,
    /// What a task waited for is stored, or is not.
    Stored(Ticket, Result<()>),
    /// A transaction is to be ended here.
    Marker(Ending, MarkerAsker),
}

/// Which append of which machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    generation: u64,
    end: Offset,
}

/// Wait until this append is stored, and report it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) ticket: Ticket,
    pub(super) receipt: Receipt,
}

/// A machine's place.
#[derive(Debug)]
pub(super) struct Coordinator<M: Recorded<Reply = Result<R>>, R> {
    partition: Partition,
    clock: Arc<dyn Clock>,
    running: Option<Running<M, R>>,
    /// Counts the machines.
    generation: u64,
}

struct Running<M: Recorded<Reply = Result<R>>, R> {
    ledger: Ledger<M, Asker<R>>,
    /// A marker, and what has come behind it.
    waiting: VecDeque<Waiting<M::Command, R>>,
    builder: BatchBuilder,
    epoch: LeaderEpoch,
    /// What could not be read when it was made.
    damage: Vec<Error>,
}

enum Waiting<C, R> {
    Command(C, Asker<R>),
    Marker(Ending, MarkerAsker),
}

impl<M: Recorded<Reply = Result<R>>, R> fmt::Debug for Running<M, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("epoch", &self.epoch).field("damage", &self.damage).finish_non_exhaustive()
    }
}

impl<M: Recorded<Reply = Result<R>> + Default, R> Coordinator<M, R> {
    pub(super) fn new(partition: Partition, clock: Arc<dyn Clock>) -> Self {
        Self { partition, clock, running: None, generation: 0 }
    }

    pub(super) const fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Whether there are records, and no machine: it was dropped, or could not be made.
    pub(super) fn has_stopped(&self) -> bool {
        self.running.is_none() && self.partition.end() > self.partition.start()
    }

    /// The machine, where there is one and everything that it holds is committed.
    pub(super) fn settled(&self) -> Option<&M> {
        let running = self.running.as_ref().filter(|running| running.ledger.is_settled())?;
        Some(running.ledger.machine())
    }

    /// The machine, where there is one. What it holds may not be committed yet.
    pub(super) fn machine(&self) -> Option<&M> {
        Some(self.running.as_ref()?.ledger.machine())
    }

    /// The same, for what is soft of it alone.
    pub(super) fn machine_mut(&mut self) -> Option<&mut M> {
        Some(self.running.as_mut()?.ledger.machine_mut())
    }

    /// Which of the machines it is; another has to be told again what no record says.
    pub(super) fn generation(&self) -> Option<u64> {
        self.running.as_ref().map(|_| self.generation)
    }

    /// What could not be read when the machine was made.
    pub(super) fn damage(&self) -> &[Error] {
        self.running.as_ref().map_or(&[], |running| &running.damage)
    }

    /// Wakes one of those that wait for an answer, where anybody does.
    pub(super) fn wake_one(&self) {
        if let Some(running) = &self.running {
            running.ledger.pending(|asker| asker.wake());
        }
    }

    /// How many wait for an answer.
    #[cfg(all(test, not(loom)))]
    pub(super) fn waiting(&self) -> usize {
        let count = std::cell::Cell::new(0);
        let counted = |_: &Asker<R>| {
            count.set(count.get() + 1);
            false
        };
        self.running.as_ref().map(|running| running.ledger.pending(counted));
        count.get()
    }

    /// The epoch in which this node keeps the machine: a later coordinator has a higher one.
    pub(super) fn epoch(&self) -> LeaderEpoch {
        self.running.as_ref().map_or(LeaderEpoch(0), |running| running.epoch)
    }

    /// What follows from the committed state alone.
    pub(super) fn actions(&self, now: Now) -> Vec<M::Action> {
        self.running.as_ref().map_or_else(Vec::new, |running| running.ledger.actions(now))
    }

    /// When [`Self::actions`] may have something new without a command.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.running.as_ref()?.ledger.deadline()
    }

    /// Has the machine decide, where there is one; what it decides is appended with what the next step brings.
    pub(super) fn submit(&mut self, now: Now, command: M::Command, asker: Asker<R>) {
        match &mut self.running {
            Some(running) if running.waiting.is_empty() => running.submit(&self.partition, now, command, asker),
            Some(running) => running.waiting.push_back(Waiting::Command(command, asker)),
            None => asker.set(Err(Error::Superseded { offset: self.partition.end() })),
        }
    }

    fn submit_marker(&mut self, ending: Ending, asker: MarkerAsker) {
        match &mut self.running {
            Some(running) => running.waiting.push_back(Waiting::Marker(ending, asker)),
            None => asker.set(Err(Error::Superseded { offset: self.partition.end() })),
        }
    }

    /// Feeds one input, and answers what is left to do.
    pub(super) fn step(&mut self, now: Now, input: Input<M::Command, R>) -> Vec<Task> {
        let mut tasks = Vec::new();
        match input {
            Input::Command(command, asker) => match self.revive(now) {
                Ok(begun) => {
                    tasks.extend(begun);
                    self.submit(now, command, asker);
                }
                Err(error) => asker.set(Err(error)),
            },
            Input::Load => match self.revive(now) {
                Ok(begun) => tasks.extend(begun),
                Err(error) => trace::warn(self.partition.path(), || format!("is not read: {error}")),
            },
            Input::Stored(ticket, stored) if ticket.generation == self.generation => match stored {
                Ok(()) => self.committed(ticket.end),
                Err(error) => self.fail(&error),
            },
            // It is about a machine that is no more: whoever waited for that has been answered.
            Input::Stored(..) => {}
            Input::Marker(ending, asker) => match self.revive(now) {
                Ok(begun) => {
                    tasks.extend(begun);
                    self.submit_marker(ending, asker);
                }
                Err(error) => asker.set(Err(error)),
            },
        }
        tasks.extend(self.drain(now));
        tasks
    }

    /// Reads the records, where there is no machine; what is read has to be stored before anything counts.
    fn revive(&mut self, now: Now) -> Result<Option<Task>> {
        if self.partition.is_poisoned() {
            self.fail(&Error::Superseded { offset: self.partition.end() });
            self.partition.reopen()?;
        }
        if self.running.is_some() {
            return Ok(None);
        }
        let Loaded { machine, end, damage, .. } = load(&self.partition)?;
        for error in &damage {
            trace::warn(self.partition.path(), || error.to_string());
        }
        let epoch = self.partition.leader_epoch();
        let (ledger, waiting) = (Ledger::records(machine, end, now), VecDeque::new());
        self.running = Some(Running { ledger, waiting, builder: BatchBuilder::new(), epoch, damage });
        self.generation += 1;
        Ok(self.store(end, self.partition.receipt()))
    }

    /// The task that is left until an append is stored.
    fn store(&mut self, end: Offset, receipt: Receipt) -> Option<Task> {
        let ticket = Ticket { generation: self.generation, end };
        // Of the coordinators, those of groups are the ones that pass over damage.
        let is_early = M::PASSES_OVER_DAMAGE && mutants::is_in(mutants::POSITION_NOT_STORED);
        if is_early || mutants::is_in(mutants::DECISION_NOT_STORED) {
            self.committed(end);
            return None;
        }
        match self.partition.try_stored(receipt) {
            Some(Ok(())) => self.committed(end),
            Some(Err(error)) => self.fail(&error),
            None => return Some(Task { ticket, receipt }),
        }
        None
    }

    fn committed(&mut self, end: Offset) {
        if let Some(running) = &mut self.running {
            running.ledger.committed(end);
        }
    }

    /// Drops the machine, and fails what is pending.
    fn fail(&mut self, error: &Error) {
        let Some(mut running) = self.running.take() else { return };
        for asker in running.ledger.fail() {
            asker.set(Err(error.clone()));
        }
        for waiting in running.waiting {
            match waiting {
                Waiting::Command(_, asker) => asker.set(Err(error.clone())),
                Waiting::Marker(_, asker) => asker.set(Err(error.clone())),
            }
        }
    }

    fn drain(&mut self, now: Now) -> Vec<Task> {
        let mut tasks = Vec::new();
        loop {
            if let Some((ending, asker)) = self.take_waiting(now) {
                tasks.extend(self.mark(now, ending, &asker));
                continue;
            }
            let Some(batch) = self.running.as_mut().and_then(|running| running.ledger.next_batch()) else { break };
            match self.append(&batch) {
                Ok((end, receipt)) => tasks.extend(self.store(end, receipt)),
                Err(error) => self.fail(&error),
            }
        }
        if let Some(running) = &mut self.running {
            while let Some((asker, reply)) = running.ledger.answer() {
                asker.set(reply);
            }
        }
        tasks
    }

    /// Has the machine decide the commands whose turn has come; answers the marker whose turn it is then.
    fn take_waiting(&mut self, now: Now) -> Option<(Ending, MarkerAsker)> {
        let running = self.running.as_mut()?;
        while matches!(running.waiting.front()?, Waiting::Command(..)) || running.ledger.is_settled() {
            match running.waiting.pop_front()? {
                Waiting::Command(command, asker) => running.submit(&self.partition, now, command, asker),
                Waiting::Marker(ending, asker) => return Some((ending, asker)),
            }
        }
        None
    }

    /// Ends a transaction here.
    fn mark(&mut self, now: Now, ending: Ending, asker: &MarkerAsker) -> Option<Task> {
        let running = self.running.as_mut()?;
        let mut marked = None;
        let written = ending.write(&self.partition, now, |appended, outcome| {
            let at = appended.offsets.clone();
            if at.is_empty() {
                return; // it is there already
            }
            marked = Some((at.end, appended.receipt()));
            running.ledger.marked(at, ending.producer, outcome);
        });
        asker.set(written);
        let (end, receipt) = marked?;
        self.store(end, receipt)
    }

    fn append(&mut self, batch: &Events<M::Event>) -> Result<(Offset, Receipt)> {
        let Some(Running { builder, .. }) = &mut self.running else { return Err(Error::Closed) };
        builder.clear();
        builder.stamp(self.clock.wall());
        if let Some(producer) = batch.producer {
            builder.producer(producer.id, producer.epoch, Sequence(0));
            builder.transactional(true);
        }
        for event in &batch.events {
            let KeyValue { key, value } = M::encode(event);
            let record = value.as_ref().map_or(Record::tombstone(&key), |value| Record::new(value).key(&key));
            builder.push(&record)?;
        }
        let appended = self.partition.append_coordinator(builder)?;
        // Somebody else has appended here: what the machine says of offsets is not so.
        if appended.offsets.start != batch.at {
            return Err(Error::UnexpectedEnd { expected: batch.at, end: appended.offsets.start });
        }
        Ok((appended.offsets.end, appended.receipt()))
    }
}

impl<M: Recorded<Reply = Result<R>>, R> Running<M, R> {
    /// Has the machine decide. Whoever was fenced in the partition writes nothing: what is appended in its transaction
    /// comes before the marker that is next here, so that it is seen now.
    fn submit(&mut self, partition: &Partition, now: Now, command: M::Command, asker: Asker<R>) {
        let refuse = |producer: ProducerIdentity| partition.check_producer(producer.id, producer.epoch).err().map(Err);
        self.ledger.submit_if(now, command, asker, refuse);
    }
}
