//! What the lanes of a transactional producer ask before they append: whose transaction it is.
//!
//! ```text
//!            begin                     the first batch of a partition: the coordinator is told
//!   idle ───────────► open ──────────────────────────────────────────────────────────────────────► open, with partitions
//!    ▲                 │ a send fails: it can only be aborted                                        │
//!    └─────────────────┴──────────────── commit, abort: another identity ◄──────────────────────────┘
//! ```
//!
//! Invariants: a partition is in the transaction, as its coordinator has stored, before a record of it is appended, and is
//! asked about again wherever a batch would open a transaction there; a topic that was deleted and made again is another
//! one; no batch is appended outside of a transaction, or in one that has failed. So what is late, of an instance that was
//! fenced or whose transaction took too long, is appended nowhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::machine::ProducerIdentity;
use crate::node::Node;
use crate::partition::Partition;
use crate::sync::Mutex;
use crate::txn::{Command, Reply};
use crate::types::{TopicId, TopicPartition};

/// A transactional id, and where its producer stands.
#[derive(Debug)]
pub(super) struct Transactional {
    pub(super) id: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    producer: ProducerIdentity,
    phase: Phase,
    /// The partitions that the coordinator knows of.
    partitions: BTreeSet<(TopicId, u32)>,
    /// It may know of others: it was told, and what it answered is an error.
    may_know_more: bool,
    /// Why the open transaction cannot be committed.
    failure: Option<Error>,
}

/// A partition that is to be in the transaction.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) topic: TopicId,
    pub(super) name: TopicPartition,
    pub(super) partition: Partition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Open,
}

/// So often an earlier transaction is waited for: each time its markers are written and synced.
const ATTEMPTS: usize = 3;

impl Transactional {
    pub(super) fn new(id: String, producer: ProducerIdentity) -> Arc<Self> {
        let state =
            State { producer, phase: Phase::Idle, partitions: BTreeSet::new(), may_know_more: false, failure: None };
        Arc::new(Self { id, state: Mutex::new(state) })
    }

    pub(super) fn producer(&self) -> ProducerIdentity {
        self.state.lock().producer
    }

    /// The next transaction is to be written under this identity.
    pub(super) fn identify(&self, producer: ProducerIdentity) {
        self.state.lock().producer = producer;
    }

    /// A transaction begins, under this identity.
    pub(super) fn begin(&self, producer: ProducerIdentity) {
        *self.state.lock() =
            State { producer, phase: Phase::Open, partitions: BTreeSet::new(), may_know_more: false, failure: None };
    }

    /// No batch is appended from now on. Says whether the coordinator may know of the transaction.
    pub(super) fn end(&self) -> bool {
        let mut state = self.state.lock();
        state.phase = Phase::Idle;
        state.may_know_more || !state.partitions.is_empty()
    }

    /// Whether the coordinator knows of the transaction.
    pub(super) fn has_partitions(&self) -> bool {
        !self.state.lock().partitions.is_empty()
    }

    /// Something of the transaction was not written. The first failure is the one to tell.
    pub(super) fn failed(&self, error: &Error) {
        let mut state = self.state.lock();
        if state.phase == Phase::Open {
            state.failure.get_or_insert_with(|| error.clone());
        }
    }

    /// Why the transaction cannot be committed.
    pub(super) fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }

    /// Whose transaction a batch belongs to; the coordinator is told of its partition, unless it was by `known`.
    pub(super) fn enter(
        &self,
        node: &Node,
        known: Option<ProducerIdentity>,
        entry: impl FnOnce() -> Entry,
    ) -> Result<ProducerIdentity> {
        let producer = self.check_open()?;
        if known == Some(producer) {
            return Ok(producer);
        }
        let entry = entry();
        let is_added = self.state.lock().partitions.contains(&entry.key());
        if !is_added {
            self.add(node, producer, &[entry])?;
        }
        Ok(producer)
    }

    /// Tells the coordinator of partitions. They expect the transaction from before it is asked on, so that whoever ends it
    /// behind its answer ends that too.
    pub(super) fn add(&self, node: &Node, producer: ProducerIdentity, entries: &[Entry]) -> Result<()> {
        for entry in entries {
            entry.partition.expect_transaction(producer.id, producer.epoch);
        }
        let partitions: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
        let id = &self.id;
        let added = insist(node, id, || {
            let add = |_| Command::Add { id: id.clone(), producer, partitions: partitions.clone() };
            node.transact(id, add)
        });
        let mut state = self.state.lock();
        match added {
            Ok(_) => state.partitions.extend(entries.iter().map(Entry::key)),
            Err(error) => {
                // While the one before has not ended nothing of this one was taken.
                state.may_know_more |= !matches!(error, Error::ConcurrentTransactions);
                for entry in entries {
                    entry.partition.expect_no_transaction(producer.id, producer.epoch);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn check_open(&self) -> Result<ProducerIdentity> {
        let state = self.state.lock();
        match (&state.failure, state.phase) {
            (_, Phase::Idle) => Err(Error::TransactionAborted),
            (Some(failure), Phase::Open) => Err(failed(failure)),
            (None, Phase::Open) => Ok(state.producer),
        }
    }
}

impl Entry {
    const fn key(&self) -> (TopicId, u32) {
        (self.topic, self.name.partition)
    }
}

/// A transaction that has failed with `cause` before.
pub(super) fn failed(cause: &Error) -> Error {
    match cause {
        Error::TransactionFailed { .. } => cause.clone(),
        other => Error::TransactionFailed { cause: Arc::new(other.clone()) },
    }
}

/// Asks again where an earlier transaction of the id has to end first, after it was helped to.
pub(super) fn insist(node: &Node, id: &str, ask: impl Fn() -> Result<Reply>) -> Result<Reply> {
    for _ in 0..ATTEMPTS {
        match ask() {
            Ok(Reply::Aborting) | Err(Error::ConcurrentTransactions) => node.settle(id)?,
            other => return other,
        }
    }
    match ask()? {
        Reply::Aborting => Err(Error::ConcurrentTransactions),
        other => Ok(other),
    }
}
