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
//! Invariants: at most one batch is under way; replies leave in the order of their commands; actions are asked for only
//! where everything is committed.
//!
//! A batch is the events of its decisions, each behind its length (4 bytes, big-endian).

use std::collections::VecDeque;

use bytes::Bytes;

use crate::clock::{Moment, Now};
use crate::machine::{Applied, Decision, Machine};
use crate::types::Offset;

/// A machine, and what is on its way. `A` is who asked, handed back with the reply.
#[derive(Debug)]
pub(super) struct Ledger<M: Machine, A> {
    machine: M,
    /// The offset of the next batch that is appended.
    next: Offset,
    /// Events that no batch has yet.
    open: Vec<u8>,
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

impl<M: Machine, A> Ledger<M, A> {
    /// A machine that has everything below `next`, all of it committed; its deadlines begin at `now`.
    pub(super) fn new(mut machine: M, next: Offset, now: Now) -> Self {
        machine.loaded(now);
        Self { machine, next, open: Vec::new(), under_way: false, held: VecDeque::new(), committed: next }
    }

    /// The machine. What it holds may not be committed yet: see [`Self::is_settled`].
    pub(super) const fn machine(&self) -> &M {
        &self.machine
    }

    /// Whether everything that the machine holds is committed.
    pub(super) fn is_settled(&self) -> bool {
        self.open.is_empty() && !self.under_way
    }

    /// Has the machine decide, and applies what it decided.
    pub(super) fn submit(&mut self, now: Now, command: M::Command, asker: A) {
        let Decision { events, reply, .. } = self.machine.decide(now, command);
        let at = Applied { offset: self.next_open(), timestamp: Some(now.wall), producer: None };
        for event in &events {
            self.machine.apply(at, event);
            put::<M>(event, &mut self.open);
        }
        let behind = match (self.open.is_empty(), self.under_way) {
            (false, _) => self.next_open().plus(1),
            (true, true) => self.next,
            (true, false) => self.committed,
        };
        self.held.push_back(Held { behind, asker, reply });
    }

    /// The offset that the open batch will have.
    const fn next_open(&self) -> Offset {
        self.next
    }

    /// The next batch to append, where none is under way.
    pub(super) fn next_batch(&mut self) -> Option<Bytes> {
        if self.under_way || self.open.is_empty() {
            return None;
        }
        self.under_way = true;
        self.next = self.next.plus(1);
        Some(Bytes::from(std::mem::take(&mut self.open)))
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

fn put<M: Machine>(event: &M::Event, into: &mut Vec<u8>) {
    let at = into.len();
    into.extend_from_slice(&[0; 4]);
    M::encode(event, into);
    let length = u32::try_from(into.len() - at - 4).expect("an event is small");
    into[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Applies a batch that was committed earlier; the error is a reason for a person, and the machine is of no use then.
pub(super) fn replay<M: Machine>(machine: &mut M, at: Applied, batch: &[u8]) -> Result<(), String> {
    let mut rest = batch;
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk().ok_or("the batch ends inside of a length")?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| "an event is too long")?;
        let (event, behind) = behind.split_at_checked(length).ok_or("the batch ends inside of an event")?;
        machine.apply(at, &M::decode(event)?);
        rest = behind;
    }
    Ok(())
}
