//! The engine of a single node keeps the contract of the metadata quorum, and one that breaks a rule is caught.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod support;

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use support::seeds;
use taffrail::quorum::{
    Entry, EntryId, Journal, MetadataQuorum, NotLeader, Output, Persist, PersistSeq, QuorumFault, QuorumView, Role,
    Solo,
};
use taffrail::testkit::quorum_suite;
use taffrail::{Error, LeaderEpoch, Moment, NodeId, Offset};

fn solo(journal: &Journal) -> Solo {
    Solo::restore(NodeId(7), journal).unwrap()
}

#[test]
fn the_engine_of_a_single_node() {
    quorum_suite(seeds(), &|journal, _| Box::new(solo(journal)));
}

/// A rule, and how it is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Breaks {
    Nothing,
    ReleasesBeforeSync,
    RepeatsCommits,
    SkipsCommits,
    GivesAnEmptyCommit,
    ForgetsItsVote,
    AnnouncesTwice,
    LeadsTwiceInAnEpoch,
    LeadsBeforeItsCommits,
    LeadsWithoutASync,
    TakesAnyEpoch,
    IgnoresFaults,
    HidesFaults,
    ObeysStrangers,
    LosesEntries,
    ReordersEntries,
    SplitsBatches,
    ShowsUnsyncedEpochs,
    NeverLeads,
    RepeatsNumbers,
}

/// The only epoch of an engine that leads twice in one.
const ONE_EPOCH: LeaderEpoch = LeaderEpoch(1);
const NO_EPOCH: LeaderEpoch = LeaderEpoch(i32::MAX);

/// `Solo`, wrong in one way.
#[derive(Debug)]
struct Broken {
    inner: Solo,
    breaks: Breaks,
    waiting: VecDeque<Output>,
    last: PersistSeq,
    failed: bool,
    bonus: i32,
}

impl Broken {
    fn new(breaks: Breaks, journal: &Journal) -> Self {
        let last = PersistSeq::default();
        Self { inner: solo(journal), breaks, waiting: VecDeque::new(), last, failed: false, bonus: 0 }
    }

    fn spoil_persist(&mut self, mut persist: Persist) -> Persist {
        self.last = persist.seq;
        match self.breaks {
            Breaks::ReleasesBeforeSync => self.inner.synced(persist.seq),
            Breaks::LeadsWithoutASync if persist.hard_state.is_some() => self.inner.synced(persist.seq),
            Breaks::ForgetsItsVote => persist.hard_state = None,
            Breaks::LosesEntries => drop(persist.entries.pop()),
            Breaks::ReordersEntries => swap_payloads(&mut persist.entries),
            Breaks::SplitsBatches => {
                persist.entries.iter_mut().for_each(|entry| entry.payload = entry.payload.slice(1..));
            }
            Breaks::LeadsTwiceInAnEpoch => persist.entries.iter_mut().for_each(|entry| entry.epoch = ONE_EPOCH),
            Breaks::RepeatsNumbers => persist.seq.0 = persist.seq.0.min(2),
            _ => {}
        }
        persist
    }

    fn spoil_commit(&mut self, range: Range<Offset>) -> Output {
        match self.breaks {
            Breaks::RepeatsCommits => self.waiting.push_back(Output::Committed(range.clone())),
            Breaks::GivesAnEmptyCommit => self.waiting.push_back(Output::Committed(range.end..range.end)),
            Breaks::SkipsCommits if range.end.0 - range.start.0 > 1 => {
                return Output::Committed(range.start.plus(1)..range.end);
            }
            Breaks::LeadsBeforeItsCommits => {
                if let Some(leadership @ Output::Leadership { .. }) = self.inner.poll() {
                    self.waiting.push_back(Output::Committed(range));
                    return leadership;
                }
            }
            _ => {}
        }
        Output::Committed(range)
    }
}

fn swap_payloads(entries: &mut [Entry]) {
    if let [first, .., last] = entries {
        std::mem::swap(&mut first.payload, &mut last.payload);
    }
}

impl MetadataQuorum for Broken {
    fn tick(&mut self, now: Moment) {
        self.inner.tick(now);
    }

    fn step(&mut self, from: NodeId, message: &[u8]) -> Result<(), QuorumFault> {
        self.bonus += i32::from(self.breaks == Breaks::ObeysStrangers);
        self.inner.step(from, message)
    }

    fn propose(&mut self, epoch: LeaderEpoch, batch: Bytes) -> Result<Offset, NotLeader> {
        let own = self.inner.view().epoch;
        let asked = match self.breaks {
            Breaks::TakesAnyEpoch => own,
            Breaks::LeadsTwiceInAnEpoch if epoch == ONE_EPOCH => own,
            Breaks::LeadsTwiceInAnEpoch => NO_EPOCH,
            _ => epoch,
        };
        self.inner.propose(asked, batch)
    }

    fn resign(&mut self, epoch: LeaderEpoch, to: Option<NodeId>) {
        self.inner.resign(epoch, to);
    }

    fn compacted(&mut self, at: EntryId) {
        self.inner.compacted(at);
    }

    fn snapshot_installed(&mut self, at: EntryId) {
        self.inner.snapshot_installed(at);
    }

    fn synced(&mut self, upto: PersistSeq) {
        self.inner.synced(upto);
    }

    fn failed(&mut self, cause: Error) {
        self.failed = true;
        if self.breaks != Breaks::IgnoresFaults {
            self.inner.failed(cause);
        }
    }

    fn poll(&mut self) -> Option<Output> {
        if let Some(output) = self.waiting.pop_front() {
            return Some(output);
        }
        match self.inner.poll()? {
            Output::Persist(persist) => Some(Output::Persist(self.spoil_persist(persist))),
            Output::Committed(range) => Some(self.spoil_commit(range)),
            Output::Leadership { .. } if self.breaks == Breaks::NeverLeads => None,
            Output::Leadership { leader, .. } if self.breaks == Breaks::LeadsTwiceInAnEpoch => {
                Some(Output::Leadership { epoch: ONE_EPOCH, leader })
            }
            leadership @ Output::Leadership { .. } if self.breaks == Breaks::AnnouncesTwice => {
                self.waiting.push_back(leadership.clone());
                Some(leadership)
            }
            other => Some(other),
        }
    }

    fn deadline(&self) -> Option<Moment> {
        self.inner.deadline()
    }

    fn view(&self) -> QuorumView {
        let mut view = self.inner.view();
        view.epoch.0 += self.bonus + i32::from(self.breaks == Breaks::ShowsUnsyncedEpochs);
        if self.failed && self.breaks == Breaks::HidesFaults {
            (view.role, view.fault) = (Role::Follower, None);
        }
        view
    }
}

/// What the suite says of an engine that breaks a rule; `None` where it notices nothing.
fn verdict(breaks: Breaks) -> Option<String> {
    let run = || quorum_suite(0..200, &|journal, _| Box::new(Broken::new(breaks, journal)));
    let panic = catch_unwind(AssertUnwindSafe(run)).err()?;
    Some(panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[test]
fn the_suite_catches_each_broken_rule() {
    assert_eq!(verdict(Breaks::Nothing), None);
    let broken = [
        (Breaks::ReleasesBeforeSync, "1: "),
        (Breaks::LeadsWithoutASync, "1: "),
        (Breaks::ShowsUnsyncedEpochs, "1: "),
        (Breaks::RepeatsCommits, "2: commits are gapless"),
        (Breaks::SkipsCommits, "2: commits are gapless"),
        (Breaks::GivesAnEmptyCommit, "2: commits are gapless"),
        (Breaks::ForgetsItsVote, "1: an epoch is"),
        (Breaks::AnnouncesTwice, "3: an epoch is announced once"),
        (Breaks::LeadsTwiceInAnEpoch, "3: an epoch is"),
        (Breaks::LeadsBeforeItsCommits, "4: leadership is announced after"),
        (Breaks::TakesAnyEpoch, "4: a proposal of an epoch"),
        (Breaks::IgnoresFaults, "6: after a storage fault"),
        (Breaks::HidesFaults, "6: a storage fault can be seen"),
        (Breaks::ObeysStrangers, "6: nonsense from a peer"),
        (Breaks::LosesEntries, "1: nothing is committed"),
        (Breaks::ReordersEntries, "7: what is kept is what was proposed"),
        (Breaks::SplitsBatches, "7: what is kept is what was proposed"),
        (Breaks::NeverLeads, "undisturbed, a single node leads"),
        (Breaks::RepeatsNumbers, "a persist is numbered"),
    ];
    for (breaks, rule) in broken {
        let said = verdict(breaks).unwrap_or_else(|| panic!("{breaks:?} was not noticed"));
        assert!(said.contains(rule), "{breaks:?}: {said}");
    }
}
