//! The quorum of one node: it leads as soon as it has written down that it does.
//!
//! ```text
//!  restore ─► Persist(epoch + 1) ─synced─► Committed(what was there) ─► Leadership ─► propose ─► Persist ─synced─► Committed
//! ```
//!
//! What a journal holds was synced by its only voter, so all of it is committed. Each start leads in an epoch of its
//! own. Proposals that arrive between two polls share a [`Persist`], and several may be under way.
//!
//! Invariants: `given ≤ stored ≤ next`; what lies below `stored` was reported as synced; `ballot` is the last persist
//! of an epoch that is not announced yet.

use std::collections::VecDeque;
use std::mem;

use bytes::Bytes;

use super::{
    Entry, EntryId, HardState, Journal, MetadataQuorum, NotLeader, Output, Persist, PersistSeq, QuorumFault,
    QuorumView, Role,
};
use crate::clock::Moment;
use crate::error::Error;
use crate::types::{LeaderEpoch, NodeId, Offset};

/// The engine of a log without a cluster.
///
/// ```
/// use bytes::Bytes;
/// use taffrail::quorum::{Journal, MetadataQuorum, Output, PersistSeq, Solo};
/// use taffrail::{LeaderEpoch, NodeId, Offset};
///
/// let mut solo = Solo::restore(NodeId(0), &Journal::default())?;
/// let Some(Output::Persist(ballot)) = solo.poll() else { panic!("its epoch comes first") };
/// solo.synced(ballot.seq); // once the journal has it
/// assert!(matches!(solo.poll(), Some(Output::Leadership { epoch: LeaderEpoch(1), .. })));
///
/// let index = solo.propose(LeaderEpoch(1), Bytes::from_static(b"a topic")).expect("it leads");
/// let Some(Output::Persist(entry)) = solo.poll() else { panic!("then the entry") };
/// solo.synced(entry.seq);
/// assert_eq!(solo.poll(), Some(Output::Committed(index..Offset(1))));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug)]
pub struct Solo {
    node: NodeId,
    /// What is in the journal.
    epoch: LeaderEpoch,
    standing: Standing,
    /// The number of the last persist that was given out.
    seq: PersistSeq,
    /// Persists that are given out and not reported: each with the end of its entries.
    under_way: VecDeque<(PersistSeq, Offset)>,
    /// Proposals that no persist has yet.
    proposed: Vec<Entry>,
    /// The index of the next proposal.
    next: Offset,
    /// The end of what was reported as synced.
    stored: Offset,
    /// The end of what was given out as committed.
    given: Offset,
}

/// How far the node is on its way to lead.
#[derive(Debug)]
enum Standing {
    /// The new epoch is in no persist yet.
    Begins(LeaderEpoch),
    /// It is in this one, which is not reported.
    Asks(PersistSeq, LeaderEpoch),
    /// It is durable and not announced.
    Elected,
    Leads,
    Stopped(Error),
}

impl Solo {
    /// The engine of `node`, whose journal this is. It leads in an epoch above every earlier one.
    ///
    /// # Errors
    /// A reason for a person, where no epoch is left.
    pub fn restore(node: NodeId, journal: &Journal) -> Result<Self, String> {
        let epoch = journal.hard_state().epoch;
        let end = journal.end();
        Ok(Self {
            node,
            epoch,
            standing: Standing::Begins(after(epoch).ok_or_else(|| format!("no epoch is left after {epoch}"))?),
            seq: PersistSeq::default(),
            under_way: VecDeque::new(),
            proposed: Vec::new(),
            next: end,
            stored: end,
            given: journal.start(),
        })
    }

    fn leads_in(&self, epoch: LeaderEpoch) -> bool {
        matches!(self.standing, Standing::Leads) && epoch == self.epoch
    }

    fn leader(&self) -> Option<NodeId> {
        matches!(self.standing, Standing::Leads).then_some(self.node)
    }

    /// Earlier commits come before leadership, and before more is written.
    fn next_output(&mut self) -> Option<Output> {
        if self.may_commit() && self.given < self.stored {
            return Some(Output::Committed(mem::replace(&mut self.given, self.stored)..self.stored));
        }
        if matches!(self.standing, Standing::Elected) {
            self.standing = Standing::Leads;
            return Some(Output::Leadership { epoch: self.epoch, leader: Some(self.node) });
        }
        self.persist().map(Output::Persist)
    }

    /// What the journal held is given out once a sync has covered it.
    const fn may_commit(&self) -> bool {
        matches!(self.standing, Standing::Elected | Standing::Leads)
    }

    fn persist(&mut self) -> Option<Persist> {
        let seq = PersistSeq(self.seq.0 + 1);
        let ballot = match self.standing {
            Standing::Begins(epoch) => Some(epoch),
            _ => None,
        };
        if ballot.is_none() && self.proposed.is_empty() {
            return None;
        }
        if let Some(epoch) = ballot {
            self.standing = Standing::Asks(seq, epoch);
        }
        self.seq = seq;
        self.under_way.push_back((seq, self.next));
        let hard_state = ballot.map(|epoch| HardState { epoch, vote: Some(self.node) });
        Some(Persist { seq, hard_state, entries: mem::take(&mut self.proposed) })
    }
}

impl MetadataQuorum for Solo {
    fn tick(&mut self, _now: Moment) {}

    fn step(&mut self, from: NodeId, _message: &[u8]) -> Result<(), QuorumFault> {
        Err(QuorumFault { from, reason: format!("node {} is alone in its quorum", self.node) })
    }

    fn propose(&mut self, epoch: LeaderEpoch, batch: Bytes) -> Result<Offset, NotLeader> {
        let index = self.next;
        if !self.leads_in(epoch) || index >= Offset::MAX {
            return Err(NotLeader { epoch: self.epoch, leader: self.leader() });
        }
        self.proposed.push(Entry { index, epoch, payload: batch });
        self.next = index.plus(1);
        Ok(index)
    }

    /// There is nobody else: the node leads again, in the next epoch, once what is under way was given out.
    fn resign(&mut self, epoch: LeaderEpoch, _to: Option<NodeId>) {
        if let Some(next) = after(epoch).filter(|_| self.leads_in(epoch)) {
            self.standing = Standing::Begins(next);
        }
    }

    fn compacted(&mut self, _at: EntryId) {}

    fn snapshot_installed(&mut self, _at: EntryId) {}

    fn synced(&mut self, upto: PersistSeq) {
        while let Some((_, end)) = self.under_way.front().filter(|(seq, _)| *seq <= upto) {
            self.stored = *end;
            self.under_way.pop_front();
        }
        if let Standing::Asks(ballot, epoch) = self.standing
            && ballot <= upto
        {
            self.epoch = epoch;
            self.standing = Standing::Elected;
        }
    }

    fn failed(&mut self, cause: Error) {
        if !matches!(self.standing, Standing::Stopped(_)) {
            self.standing = Standing::Stopped(cause);
        }
    }

    fn poll(&mut self) -> Option<Output> {
        if matches!(self.standing, Standing::Stopped(_)) { None } else { self.next_output() }
    }

    fn deadline(&self) -> Option<Moment> {
        None
    }

    fn view(&self) -> QuorumView {
        let (role, fault) = match &self.standing {
            Standing::Leads => (Role::Leader, None),
            Standing::Stopped(cause) => (Role::Stopped, Some(cause.clone())),
            _ => (Role::Candidate, None),
        };
        let voters = vec![self.node];
        QuorumView { epoch: self.epoch, leader: self.leader(), role, commit: self.given, voters, fault }
    }
}

fn after(epoch: LeaderEpoch) -> Option<LeaderEpoch> {
    epoch.0.checked_add(1).map(LeaderEpoch)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
mod tests;
