//! What becomes of transactions: wholly there, or wholly not.
//!
//! ```text
//!   open ──(commit answers)───────────────────────────────► committed: readers of committed records see all of it
//!     │ └──(commit fails, and does not say how it ended)──► asked ──(the next `begin`, or whoever looks)──► either
//!     └────(abort, drop, the process ends, another instance, its time is up)──► aborted: nobody ever sees any of it
//! ```
//!
//! The fate is one for all partitions: what one of them shows of a transaction, or leaves out, no other contradicts. The
//! exception is what a loss of power takes in a topic that is not synced: there records of a committed transaction, or
//! its marker, may be gone. Records of an aborted one are not shown there either.

use std::collections::BTreeMap;
use std::time::Duration;

use taffrail::{Moment, ProducerEpoch, ProducerId};

use super::model::{Model, Slot};

/// What is known of how a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Open,
    /// A commit was asked for, and it is not known what came of it.
    Asked,
    Committed,
    Aborted,
}

/// A transaction.
#[derive(Debug)]
pub(super) struct TransactionModel {
    pub(super) fate: Fate,
    pub(super) identity: (ProducerId, ProducerEpoch),
    /// What was sent in it, by number, and was not refused.
    pub(super) records: Vec<u64>,
    /// Whether positions of a group were to be committed in it.
    pub(super) has_progress: bool,
    /// Whether a `send` was refused: it can only be aborted then.
    pub(super) has_failed: bool,
    begun: Moment,
    timeout: Duration,
    /// Another may have taken the id, by a call that failed.
    pub(super) may_be_fenced: bool,
    /// Where the partitions began when it was to be committed.
    pub(super) starts: BTreeMap<Slot, u64>,
}

impl TransactionModel {
    pub(super) fn new(identity: (ProducerId, ProducerEpoch), begun: Moment, timeout: Duration) -> Self {
        let (records, starts) = (Vec::new(), BTreeMap::new());
        let (fate, has_failed, may_be_fenced, has_progress) = (Fate::Open, false, false, false);
        Self { fate, identity, records, has_progress, has_failed, begun, timeout, may_be_fenced, starts }
    }

    /// Whether there is anything in it.
    pub(super) fn counts(&self) -> bool {
        !self.records.is_empty() || self.has_progress
    }

    /// Whether it may have taken too long.
    pub(super) fn may_be_late(&self, now: Moment) -> bool {
        now.since(self.begun) >= self.timeout
    }
}

impl Model {
    fn transaction_of(&mut self, serial: u64) -> Option<(usize, &mut TransactionModel)> {
        let number = self.sent.get(usize::try_from(serial).ok()?)?.transaction?;
        self.transactions.get_mut(number).map(|transaction| (number, transaction))
    }

    /// Whether readers of committed records may see this one, as far as is known.
    pub(super) fn is_aborted(&self, serial: u64) -> bool {
        let sent = &self.sent[usize::try_from(serial).expect("it was sent")];
        sent.transaction.is_some_and(|number| self.transactions[number].fate == Fate::Aborted)
    }

    /// Whether it is known to count, or not to.
    pub(super) fn is_decided(&self, serial: u64) -> bool {
        let sent = &self.sent[usize::try_from(serial).expect("it was sent")];
        let fate = sent.transaction.map(|number| self.transactions[number].fate);
        !matches!(fate, Some(Fate::Open | Fate::Asked))
    }

    /// A reader of committed records sees it, or a marker says that it is one.
    ///
    /// # Panics
    /// Where it is none.
    pub(super) fn shown(&mut self, slot: Slot, serial: u64) {
        let Some((number, transaction)) = self.transaction_of(serial) else { return };
        let is_right = matches!(transaction.fate, Fate::Committed | Fate::Asked);
        assert!(is_right, "record {serial} of {slot:?} counts, and is of transaction {number}: {transaction:?}");
        transaction.fate = Fate::Committed;
    }

    /// A reader of committed records does not see it, or a marker says that it is none.
    ///
    /// # Panics
    /// Where it is one.
    pub(super) fn hidden(&mut self, slot: Slot, serial: u64, now: Moment) {
        let is_shaken = self.is_shaken(slot, serial);
        let Some((number, transaction)) = self.transaction_of(serial) else {
            panic!("record {serial} of {slot:?} is outside of any transaction, and does not count");
        };
        if is_shaken && transaction.fate != Fate::Open {
            return;
        }
        let may_be = match transaction.fate {
            Fate::Committed => false,
            Fate::Asked | Fate::Aborted => true,
            Fate::Open => transaction.may_be_late(now) || transaction.may_be_fenced,
        };
        assert!(may_be, "record {serial} of {slot:?} does not count, and is of transaction {number}: {transaction:?}");
        transaction.fate = Fate::Aborted;
    }

    /// Whether a loss of power may have taken the marker of the transaction that this record is of.
    pub(super) fn is_shaken(&self, slot: Slot, serial: u64) -> bool {
        self.shaken.get(&slot).is_some_and(|below| serial < *below)
    }

    /// Whether this one of a transaction may not count, since the power took its marker.
    pub(super) fn may_have_lost_its_marker(&self, slot: Slot, serial: u64) -> bool {
        let sent = &self.sent[usize::try_from(serial).expect("it was sent")];
        sent.transaction.is_some() && self.is_shaken(slot, serial)
    }

    /// The process has ended: what was not to be committed never is.
    pub(super) fn end_transactions(&mut self) {
        for transaction in &mut self.transactions {
            if transaction.fate == Fate::Open {
                transaction.fate = Fate::Aborted;
            }
        }
    }

    /// A transaction is to be committed now.
    pub(super) fn is_to_be_committed(&mut self, number: usize) {
        let slots = |sent: &super::record::Sent| (sent.topic, sent.partition);
        let sent = |serial: &u64| slots(&self.sent[usize::try_from(*serial).expect("it was sent")]);
        let slots: Vec<Slot> = self.transactions[number].records.iter().map(sent).collect();
        let start = |slot: Slot| (slot, self.partitions.get(&slot).map_or(0, |partition| partition.start));
        self.transactions[number].starts = slots.into_iter().map(start).collect();
    }

    /// Every record of every committed transaction has been found in a partition that was looked at from its start.
    ///
    /// # Panics
    /// Where one has not.
    pub(super) fn check_whole(&self, slot: Slot) {
        let start = self.partitions.get(&slot).map_or(0, |partition| partition.start);
        for (number, transaction) in self.transactions.iter().enumerate() {
            if transaction.fate != Fate::Committed || transaction.starts.get(&slot) != Some(&start) {
                continue;
            }
            for serial in &transaction.records {
                let sent = &self.sent[usize::try_from(*serial).expect("it was sent")];
                let is_due = (sent.topic, sent.partition) == slot && !self.is_shaken(slot, *serial);
                let compacts = self.compacts(slot.0);
                let is_there = sent.offset.is_some() || compacts || !is_due;
                assert!(is_there, "transaction {number} is committed without its record {serial}: {transaction:?}");
            }
        }
    }
}
