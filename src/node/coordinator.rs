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

use std::sync::Arc;

use super::ledger::{Batch, Ledger};
use super::slot::Slot;
use crate::clock::{Clock, Moment, Now};
use crate::error::{Error, Result};
use crate::machine::{Applied, KeyValue, Recorded};
use crate::mutants;
use crate::partition::{Partition, ReadOptions, Receipt, UpTo};
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

#[derive(Debug)]
struct Running<M: Recorded<Reply = Result<R>>, R> {
    ledger: Ledger<M, Asker<R>>,
    builder: BatchBuilder,
    epoch: LeaderEpoch,
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
            Some(running) => running.ledger.submit(now, command, asker),
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
        }
        tasks.extend(self.drain());
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
        let (machine, end) = load(&self.partition)?;
        let epoch = self.partition.leader_epoch();
        self.running =
            Some(Running { ledger: Ledger::records(machine, end, now), builder: BatchBuilder::new(), epoch });
        self.generation += 1;
        Ok(self.store(end, self.partition.receipt()))
    }

    /// The task that is left until an append is stored.
    fn store(&mut self, end: Offset, receipt: Receipt) -> Option<Task> {
        let ticket = Ticket { generation: self.generation, end };
        if mutants::is_in(mutants::DECISION_NOT_STORED) {
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
    }

    fn drain(&mut self) -> Vec<Task> {
        let mut tasks = Vec::new();
        while let Some(batch) = self.running.as_mut().and_then(|running| running.ledger.next_batch()) {
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

    fn append(&mut self, batch: &Batch<M::Event>) -> Result<(Offset, Receipt)> {
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

/// The machine that the records make, and where they end.
fn load<M: Recorded + Default>(partition: &Partition) -> Result<(M, Offset)> {
    let mut machine = M::default();
    let options = ReadOptions::new().up_to(UpTo::LogEnd);
    let (mut offset, end) = (partition.start(), partition.end());
    while offset < end {
        let fetched = partition.try_read(offset, options)?;
        for record in &fetched {
            let at = Applied { offset: record.offset(), timestamp: record.timestamp(), producer: None };
            let event = M::decode(record.key().unwrap_or_default(), record.value()).map_err(|reason| {
                let path = partition.path().to_owned();
                Error::CorruptState { path, offset: record.offset(), reason }
            })?;
            if let Some(event) = event {
                machine.apply(at, &event);
            }
        }
        if fetched.next_offset() <= offset {
            break;
        }
        offset = fetched.next_offset();
    }
    Ok((machine, end))
}
