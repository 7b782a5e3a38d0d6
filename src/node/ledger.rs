//! Runs a machine over a log: decide, apply, append; what is seen is committed.
//!
//! ```text
//!  submit ─► decide ─► apply ─► events of the open batch ─ next_batch ─► one batch under way ─ committed ─► answers
//!                └── reply, held with that batch ───────────────────────────────────────────┘
//! ```
//!
//! Commands that arrive while a batch is under way share the next one. A reply that changes nothing is held too: what it
//! says may rest on events that are not committed. When an append fails, or a leadership is lost, the machine is of no
//! use any more: [`Ledger::fail`] answers who waits for it, and another is made from the records that are there.
//!
//! Two forms of log ([`Form`]): in a journal a batch is one entry, the events of its decisions each behind its length
//! (4 bytes, big-endian), and has one offset; in a partition each event is a record with an offset of its own, and a
//! batch holds the events of one producer, or of none.
//!
//! Invariants: at most one batch is under way; replies leave in the order of their commands; actions are asked for only
//! where everything is committed.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use crate::clock::{Moment, Now};
use crate::machine::{Applied, Decision, Journaled, Machine, ProducerIdentity, Recorded};
use crate::mutants;
use crate::record::control::Outcome;
use crate::types::Offset;

/// What an event is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Part of the entry that its batch is.
    Journal,
    /// A record.
    Records,
}

/// A machine, and what is on its way. `A` is who asked, handed back with the reply.
#[derive(Debug)]
pub(super) struct Ledger<M: Machine, A> {
    machine: M,
    form: Form,
    /// The offset behind the last batch that was handed out.
    next: Offset,
    /// Events that no batch has yet.
    open: VecDeque<(Option<ProducerIdentity>, M::Event)>,
    under_way: bool,
    /// Replies, each with the offset behind the last batch that it rests on.
    held: VecDeque<Held<M::Reply, A>>,
    committed: Offset,
}

#[derive(Debug)]
struct Held<R, A> {
    behind: Offset,
    asker: A,
    reply: R,
}

/// Events to append together.
#[derive(Debug)]
pub(super) struct Batch<E> {
    /// The offset that it is to have.
    pub(super) at: Offset,
    /// In whose transaction.
    pub(super) producer: Option<ProducerIdentity>,
    pub(super) events: Vec<E>,
}

impl<M: Journaled, A> Ledger<M, A> {
    /// A machine that has everything below `next` of a journal, all of it committed; its deadlines begin at `now`.
    pub(super) fn journal(machine: M, next: Offset, now: Now) -> Self {
        Self::new(machine, Form::Journal, next, now)
    }
}

impl<M: Recorded, A> Ledger<M, A> {
    /// A machine that has everything below `next` of a partition; its deadlines begin at `now`. Nothing of it counts
    /// as committed before [`Self::committed`] says so.
    pub(super) fn records(machine: M, next: Offset, now: Now) -> Self {
        let ledger = Self::new(machine, Form::Records, next, now);
        Self { under_way: true, committed: Offset::ZERO, ..ledger }
    }
}

impl<M: Machine, A> Ledger<M, A> {
    fn new(mut machine: M, form: Form, next: Offset, now: Now) -> Self {
        machine.loaded(now);
        let (open, held) = (VecDeque::new(), VecDeque::new());
        Self { machine, form, next, open, under_way: false, held, committed: next }
    }

    /// The machine. What it holds may not be committed yet: see [`Self::is_settled`].
    pub(super) const fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, for what is soft of it alone.
    pub(super) const fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Whether everything that the machine holds is committed.
    pub(super) fn is_settled(&self) -> bool {
        self.open.is_empty() && !self.under_way
    }

    /// Has the machine decide, and applies what it decided.
    pub(super) fn submit(&mut self, now: Now, command: M::Command, asker: A) {
        self.submit_if(now, command, asker, |_| None);
    }

    /// The same, unless the producer in whose transaction it is decided may not: then nothing happens, and that is the
    /// reply.
    pub(super) fn submit_if(
        &mut self,
        now: Now,
        command: M::Command,
        asker: A,
        refuse: impl FnOnce(ProducerIdentity) -> Option<M::Reply>,
    ) {
        let Decision { events, producer, reply } = self.machine.decide(now, command);
        let refused = producer.filter(|_| !events.is_empty()).and_then(refuse);
        let (events, reply) = refused.map_or((events, reply), |refusal| (Vec::new(), refusal));
        for event in events {
            let offset = self.next_open();
            self.machine.apply(Applied { offset, timestamp: Some(now.wall), producer }, &event);
            self.open.push_back((producer, event));
        }
        let behind = match (self.open.is_empty(), self.under_way) {
            (false, _) => self.behind_open(),
            (true, true) => self.next,
            (true, false) => self.committed,
        };
        self.held.push_back(Held { behind, asker, reply });
    }

    /// The offset that the next event will have.
    fn next_open(&self) -> Offset {
        match self.form {
            Form::Journal => self.next,
            Form::Records => self.next.plus(self.open.len() as u64),
        }
    }

    /// The offset behind everything that is open.
    fn behind_open(&self) -> Offset {
        match self.form {
            Form::Journal => self.next.plus(1),
            Form::Records => self.next_open(),
        }
    }

    /// The next batch to append, where none is under way.
    pub(super) fn next_batch(&mut self) -> Option<Batch<M::Event>> {
        if self.under_way {
            return None;
        }
        let producer = self.open.front()?.0;
        let count = self.open.iter().take_while(|(other, _)| *other == producer).count();
        let count = if self.form == Form::Journal { self.open.len() } else { count };
        let at = self.next;
        let events: Vec<_> = self.open.drain(..count).map(|(_, event)| event).collect();
        self.under_way = true;
        self.next = match self.form {
            Form::Journal => at.plus(1),
            Form::Records => at.plus(events.len() as u64),
        };
        Some(Batch { at, producer, events })
    }

    /// A transaction of `producer` has ended, by a marker that was appended in the turn of the next batch and takes the
    /// offsets `at`; like a batch it is under way then. Only where everything is committed.
    pub(super) fn marked(&mut self, at: Range<Offset>, producer: ProducerIdentity, outcome: Outcome) {
        if !mutants::is_in(mutants::MARKER_UNHEARD) {
            self.machine.end_transaction(at.start, producer, outcome);
        }
        self.next = at.end;
        self.under_way = true;
    }

    /// The next of those that wait whom `is_meant` takes.
    pub(super) fn pending(&self, is_meant: impl Fn(&A) -> bool) -> Option<&A> {
        self.held.iter().map(|held| &held.asker).find(|asker| is_meant(asker))
    }

    /// Everything below `end` is committed.
    pub(super) fn committed(&mut self, end: Offset) {
        self.committed = self.committed.max(end);
        self.under_way &= self.committed < self.next;
    }

    /// The next reply that rests on nothing uncommitted, with who asked.
    pub(super) fn answer(&mut self) -> Option<(A, M::Reply)> {
        self.held.front().filter(|held| held.behind <= self.committed)?;
        self.held.pop_front().map(|held| (held.asker, held.reply))
    }

    /// Nothing of what is on its way will be answered; who waits.
    pub(super) fn fail(&mut self) -> Vec<A> {
        self.held.drain(..).map(|held| held.asker).collect()
    }

    /// What is to be done, as far as everything is committed.
    pub(super) fn actions(&self, now: Now) -> Vec<M::Action> {
        if self.is_settled() { self.machine.actions(now) } else { Vec::new() }
    }

    /// When the machine has something to do without a command.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.machine.deadline()
    }
}

/// A batch as an entry of a journal.
pub(super) fn entry<M: Journaled>(batch: &Batch<M::Event>) -> Bytes {
    let mut bytes = Vec::new();
    for event in &batch.events {
        put::<M>(event, &mut bytes);
    }
    Bytes::from(bytes)
}

fn put<M: Journaled>(event: &M::Event, into: &mut Vec<u8>) {
    let at = into.len();
    into.extend_from_slice(&[0; 4]);
    M::encode(event, into);
    let length = u32::try_from(into.len() - at - 4).expect("an event is small");
    into[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Applies an entry that was committed earlier; the error is a reason for a person, and the machine is of no use then.
pub(super) fn replay<M: Journaled>(machine: &mut M, at: Applied, entry: &[u8]) -> Result<(), String> {
    let mut rest = entry;
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk().ok_or("the batch ends inside of a length")?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| "an event is too long")?;
        let (event, behind) = behind.split_at_checked(length).ok_or("the batch ends inside of an event")?;
        machine.apply(at, &M::decode(event)?);
        rest = behind;
    }
    Ok(())
}
