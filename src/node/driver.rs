//! One step of the catalogue: an input goes in, every machine is drained, what is to be done comes out.
//!
//! ```text
//!  command ─► ledger ─► quorum ─► Persist ─► journal (page cache) ─► Task::Sync ─┐
//!                ▲                                                               │ done outside of the lock
//!                └────────── Committed ◄──────── quorum ◄──── Input::Synced ◄────┘
//! ```
//!
//! [`Driver::step`] never waits: a sync is a task, done by whoever called (or by a simulator when it pleases), and its
//! end is an input. A fault of the journal stops the quorum; the next command rebuilds machine and quorum from what the
//! disk has ([`Driver::step`] does so first), or answers why it cannot.

use std::sync::Arc;

use super::home::Home;
use super::ledger::{Ledger, entry, replay};
use super::metadata::Metadata;
use super::slot::Slot;
use crate::clock::{Clock, Moment, Now};
use crate::controller::{Action, Command, Controller, Reply};
use crate::error::{Error, Result};
use crate::machine::{Applied, Journaled};
use crate::partition::{Books, Partition, Receipt};
use crate::quorum::record::Record as JournalRecord;
use crate::quorum::{Journal, MetadataQuorum, Output, PersistSeq, Solo};
use crate::sync::{Arc as Shared, Swap};
use crate::trace;
use crate::types::{LeaderEpoch, NodeId, Offset};

/// So many entries behind the last snapshot make a new one due.
const ENTRIES_PER_SNAPSHOT: usize = 1000;

/// Who asked for something of the catalogue.
pub(super) type Asker = Arc<Slot<Result<Reply>>>;

/// What a step is given.
#[derive(Debug)]
pub(super) enum Input {
    Command(Box<Command>, Asker),
    /// The journal is synced up to this persist.
    Synced(Ticket),
    /// It could not be synced.
    Failed(Ticket, Error),
}

/// Which persist of which quorum: one that was rebuilt numbers its own from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    generation: u64,
    seq: PersistSeq,
}

/// What a step wants done outside of it.
#[derive(Debug)]
pub(super) enum Task {
    /// Wait until this append is synced, and report it.
    Sync(Ticket, Receipt),
    /// Take a snapshot ([`Driver::compact`]).
    Compact,
}

/// The catalogue's machine, its quorum and their journal.
#[derive(Debug)]
pub(super) struct Driver {
    ledger: Ledger<Controller, Asker>,
    quorum: Box<dyn MetadataQuorum>,
    journal: Journal,
    metadata: Metadata,
    node: NodeId,
    epoch: Option<LeaderEpoch>,
    /// Counts the quorums.
    generation: u64,
    /// Why machine and quorum are of no use any more.
    fault: Option<Error>,
    /// What is committed, for whoever looks.
    image: Arc<Swap<Controller>>,
}

impl Driver {
    /// Reads the catalogue. Steps follow: [`Self::begin`] says what is to be done first.
    pub(super) fn open(home: &Home, books: &Arc<Books>, clock: &Arc<dyn Clock>, node: NodeId) -> Result<Self> {
        let metadata = Metadata::open(home, books, clock)?;
        let (controller, journal) = load(&metadata)?;
        let image = Arc::new(Swap::new(Shared::new(controller.clone())));
        let quorum = engine(&metadata, node, &journal)?;
        let ledger = Ledger::journal(controller, journal.end(), clock.now());
        Ok(Self { ledger, quorum, journal, metadata, node, epoch: None, generation: 0, fault: None, image })
    }

    /// The partition that the journal is in.
    pub(super) const fn partition(&self) -> &Partition {
        self.metadata.partition()
    }

    /// Where what is committed is published.
    pub(super) const fn image(&self) -> &Arc<Swap<Controller>> {
        &self.image
    }

    /// What is to be done before the first command can be decided.
    pub(super) fn begin(&mut self) -> Vec<Task> {
        self.drain()
    }

    /// What follows from the committed state alone.
    pub(super) fn actions(&self, now: Now) -> Vec<Action> {
        if self.fault.is_some() { Vec::new() } else { self.ledger.actions(now) }
    }

    /// When [`Self::actions`] may have something new without a command.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.ledger.deadline()
    }

    /// Feeds one input, drains the machines, and answers what is left to do.
    pub(super) fn step(&mut self, now: Now, input: Input) -> Vec<Task> {
        let mut tasks = Vec::new();
        match input {
            Input::Command(command, asker) => match self.revive(now) {
                Ok(begun) => {
                    tasks = begun;
                    match &self.fault {
                        None => self.ledger.submit(now, *command, asker),
                        // What stopped the catalogue is there still.
                        Some(fault) => asker.set(Err(fault.clone())),
                    }
                }
                Err(error) => asker.set(Err(error)),
            },
            Input::Synced(ticket) if ticket.generation == self.generation => self.quorum.synced(ticket.seq),
            Input::Failed(ticket, error) if ticket.generation == self.generation => self.fail(error),
            // It is about a quorum that is no more: whoever waited for that has been answered.
            Input::Synced(_) | Input::Failed(..) => {}
        }
        tasks.extend(self.drain());
        tasks
    }

    /// Rebuilds what a fault has stopped.
    fn revive(&mut self, now: Now) -> Result<Vec<Task>> {
        // Whoever failed to sync it may have been somebody else: maintenance, or the work of a snapshot.
        let is_poisoned = self.metadata.partition().is_poisoned();
        if self.fault.is_none() && !is_poisoned {
            return Ok(Vec::new());
        }
        if is_poisoned {
            self.metadata.partition().reopen()?;
        }
        let (controller, journal) = load(&self.metadata)?;
        self.quorum = engine(&self.metadata, self.node, &journal)?;
        self.ledger = Ledger::journal(controller, journal.end(), now);
        self.journal = journal;
        self.epoch = None;
        self.generation += 1;
        self.fault = None;
        Ok(self.drain())
    }

    fn fail(&mut self, error: Error) {
        for asker in self.ledger.fail() {
            asker.set(Err(error.clone()));
        }
        self.quorum.failed(error.clone());
        self.fault.get_or_insert(error);
    }

    fn drain(&mut self) -> Vec<Task> {
        let mut tasks = Vec::new();
        loop {
            self.propose();
            let Some(output) = self.quorum.poll() else { break };
            match output {
                Output::Persist(persist) => match self.keep(&persist) {
                    Ok(receipt) => {
                        let ticket = Ticket { generation: self.generation, seq: persist.seq };
                        tasks.push(Task::Sync(ticket, receipt));
                    }
                    Err(error) => self.fail(error),
                },
                Output::Committed(range) => {
                    self.committed(range.end);
                    tasks.extend(self.is_compaction_due().then_some(Task::Compact));
                }
                Output::Leadership { epoch, leader } => self.epoch = leader.is_some().then_some(epoch),
                // A node that is alone has nobody to send to, and restores from its own journal.
                _ => {}
            }
        }
        // A reply that changes nothing, and rests on nothing that is under way, has nothing to wait for.
        self.answer();
        if let Some(fault) = &self.fault {
            // It may have come before a command was submitted, whose asker nobody would answer.
            let fault = fault.clone();
            self.ledger.fail().into_iter().for_each(|asker| asker.set(Err(fault.clone())));
        }
        tasks
    }

    /// Hands the ledger's next batch to the quorum, once this node leads.
    fn propose(&mut self) {
        let Some(epoch) = self.epoch else { return };
        let Some(batch) = self.ledger.next_batch() else { return };
        if self.quorum.propose(epoch, entry::<Controller>(&batch)).is_err() {
            let fault = self.quorum.view().fault;
            self.fail(fault.unwrap_or(Error::Superseded { offset: self.journal.end() }));
        }
    }

    fn keep(&mut self, persist: &crate::quorum::Persist) -> Result<Receipt> {
        let receipt = self.metadata.append(persist)?;
        let kept = self.journal.persist(persist);
        kept.map_err(|reason| self.metadata.corrupt(self.journal.end(), reason))?;
        Ok(receipt)
    }

    fn committed(&mut self, end: Offset) {
        self.ledger.committed(end);
        if self.ledger.is_settled() {
            self.image.store(Shared::new(self.ledger.machine().clone()));
        }
        self.answer();
    }

    fn answer(&mut self) {
        while let Some((asker, reply)) = self.ledger.answer() {
            asker.set(reply);
        }
    }

    fn is_compaction_due(&self) -> bool {
        self.journal.entries().len() >= ENTRIES_PER_SNAPSHOT && self.ledger.is_settled()
    }

    /// Takes a snapshot where one is due. One that fails is tried again with the next commit: nothing needs it.
    pub(super) fn compact(&mut self) {
        let Some(at) = self.journal.last().filter(|_| self.fault.is_none() && self.is_compaction_due()) else { return };
        let snapshot = self.ledger.machine().snapshot();
        let mut journal = self.journal.clone();
        let marked = journal.apply(JournalRecord::Snapshot(at));
        let marked = marked.map_err(|reason| self.metadata.corrupt(at.index, reason));
        match marked.and_then(|()| self.metadata.compact(&journal, at, &snapshot)) {
            Ok(()) => {
                self.journal = journal;
                self.quorum.compacted(at);
            }
            Err(error) => trace::warn(self.metadata.path(), || format!("the snapshot is put off: {error}")),
        }
    }
}

/// The machine and the journal, as the disk has them.
fn load(metadata: &Metadata) -> Result<(Controller, Journal)> {
    let (journal, snapshot) = metadata.load()?;
    let corrupt = |offset: Offset, reason| metadata.corrupt(offset, reason);
    let (mut controller, from) = match snapshot {
        None => (Controller::default(), Offset::ZERO),
        Some((at, bytes)) => {
            let restored = Controller::restore(&bytes).map_err(|reason| corrupt(at.index, reason))?;
            (restored, at.index.plus(1))
        }
    };
    for entry in journal.entries().iter().filter(|entry| entry.index >= from) {
        let at = Applied { offset: entry.index, timestamp: None, producer: None };
        replay(&mut controller, at, &entry.payload).map_err(|reason| corrupt(entry.index, reason))?;
    }
    Ok((controller, journal))
}

fn engine(metadata: &Metadata, node: NodeId, journal: &Journal) -> Result<Box<dyn MetadataQuorum>> {
    let solo = Solo::restore(node, journal).map_err(|reason| metadata.corrupt(journal.end(), reason))?;
    Ok(Box::new(solo))
}
