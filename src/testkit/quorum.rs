//! The contract of [`MetadataQuorum`], as far as one node shows it: a seeded node that writes, syncs, crashes, fails and
//! restarts around an engine, and checks every output.
//!
//! ```text
//!  given ──written, in order──► disk ──reported──► known
//!    │ a crash keeps a prefix      │ a crash before the report keeps it
//! ```
//!
//! `known` is what the engine may rely on; `history` is what was ever committed, over all restarts.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use crate::clock::Moment;
use crate::error::Error;
use crate::quorum::journal::Replay;
use crate::quorum::record::Record;
use crate::quorum::{Entry, EntryId, Journal, MetadataQuorum, Output, Persist, PersistSeq, Role};
use crate::random::Random;
use crate::types::{LeaderEpoch, NodeId, Offset};

/// Makes the engine that goes on from a journal; the number seeds its random choices.
type Restore<'a> = &'a dyn Fn(&Journal, u64) -> Box<dyn MetadataQuorum>;

const STEPS: u64 = 120;
/// By then an engine that nothing disturbs leads.
const ROUNDS_MAX: u32 = 10_000;

/// Checks that an engine with a single voter keeps the contract of [`MetadataQuorum`].
///
/// Each seed is one run: proposals, syncs that end late or twice, crashes before and after them, snapshots, storage
/// faults, resignations, and nonsense from peers. `restore` makes the engine from what its journal holds.
///
/// # Panics
/// At the first rule that is not kept; says which, and the seed.
pub fn quorum_suite(seeds: Range<u64>, restore: &dyn Fn(&Journal, u64) -> Box<dyn MetadataQuorum>) {
    for seed in seeds {
        let mut host = Host::new(seed, restore);
        for _ in 0..STEPS {
            host.random_step();
            host.check_view();
        }
        host.settle();
    }
}

struct Host<'a> {
    restore: Restore<'a>,
    seed: u64,
    random: Random,
    now: Moment,
    engine: Box<dyn MetadataQuorum>,
    node: NodeId,
    /// The records that survive.
    disk: Vec<Vec<u8>>,
    /// Given out, not on the disk yet.
    given: VecDeque<Persist>,
    /// What was reported as synced.
    known: Journal,
    /// What will be, once all that was given out is.
    written: Journal,
    seq: PersistSeq,
    /// Proposals that no persist had yet.
    proposed: VecDeque<Entry>,
    proposals: u64,
    /// The next index to be committed in this incarnation.
    next: Offset,
    /// Up to where entries were there at the restart.
    recovered: Offset,
    /// What was ever committed, from index 0.
    history: Vec<Entry>,
    leading: Option<LeaderEpoch>,
    /// The latest epoch that this node led in, over all restarts.
    led: Option<LeaderEpoch>,
    announced: Option<(LeaderEpoch, Option<NodeId>)>,
    epoch_seen: LeaderEpoch,
}

impl<'a> Host<'a> {
    fn new(seed: u64, restore: Restore<'a>) -> Self {
        let engine = restore(&Journal::default(), seed);
        let node = engine.view().voters.first().copied().unwrap_or_default();
        let host = Self {
            restore,
            seed,
            random: Random::seeded(seed),
            now: Moment::default(),
            engine,
            node,
            disk: Vec::new(),
            given: VecDeque::new(),
            known: Journal::default(),
            written: Journal::default(),
            seq: PersistSeq::default(),
            proposed: VecDeque::new(),
            proposals: 0,
            next: Offset::ZERO,
            recovered: Offset::ZERO,
            history: Vec::new(),
            leading: None,
            led: None,
            announced: None,
            epoch_seen: LeaderEpoch::default(),
        };
        host.check(host.engine.view().voters == [node], "the suite is for an engine with a single voter");
        host
    }

    fn check(&self, holds: bool, rule: &str) {
        assert!(holds, "seed {}: {rule}; it is at {:?}", self.seed, self.engine.view());
    }

    fn random_step(&mut self) {
        match self.random.below(16) {
            0..=4 => self.propose(),
            5..=7 => self.drain(),
            8..=10 => self.sync(),
            11 => self.report_late(),
            12 => self.disturb(),
            13 => self.snapshot(),
            14 => self.resign_or_fail(),
            _ => self.crash(),
        }
    }

    fn propose(&mut self) {
        self.proposals += 1;
        let payload = Bytes::from(format!("proposal {}", self.proposals));
        let Some(epoch) = self.leading else { return self.propose_in(LeaderEpoch(i32::MAX)) };
        match self.engine.propose(epoch, payload.clone()) {
            Ok(index) => {
                let due = self.proposed.back().map_or(self.written.end(), |last| last.index.plus(1));
                self.check(index == due, "7: a proposal gets the next index");
                self.proposed.push_back(Entry { index, epoch, payload });
            }
            Err(_) => self.check(false, "7: a leader takes proposals of its epoch"),
        }
        self.propose_in(LeaderEpoch(epoch.0 - 1));
        self.propose_in(LeaderEpoch(epoch.0 + 1));
    }

    /// In an epoch that this node does not lead in.
    fn propose_in(&mut self, epoch: LeaderEpoch) {
        let refused = self.engine.propose(epoch, Bytes::from_static(b"of another epoch")).is_err();
        self.check(refused, "4: a proposal of an epoch in which this node does not lead is refused");
    }

    fn drain(&mut self) {
        while let Some(output) = self.engine.poll() {
            match output {
                Output::Persist(persist) => self.on_persist(persist),
                Output::Committed(range) => self.on_committed(range),
                Output::Leadership { epoch, leader } => self.on_leadership(epoch, leader),
                other => panic!("seed {}: a single voter has nobody for {other:?}", self.seed),
            }
        }
    }

    fn on_persist(&mut self, persist: Persist) {
        self.check(persist.seq.0 == self.seq.0 + 1, "a persist is numbered one above the one before");
        self.seq = persist.seq;
        for entry in persist.entries.iter().filter(|entry| !entry.payload.is_empty()) {
            let proposed = self.proposed.pop_front();
            self.check(proposed.as_ref() == Some(entry), "7: what is kept is what was proposed, whole and in order");
        }
        let taken = self.written.persist(&persist);
        self.check(taken.is_ok(), &format!("a persist fits the journal: {taken:?}"));
        self.given.push_back(persist);
    }

    fn on_committed(&mut self, range: Range<Offset>) {
        self.check(range.start == self.next && range.start < range.end, "2: commits are gapless, each index once");
        self.check(range.end <= self.known.end(), "1: nothing is committed before it was reported as synced");
        self.next = range.end;
        for index in (range.start.0..range.end.0).map(Offset) {
            let entry = self.known.entry(index).cloned();
            let before = usize::try_from(index.0).ok().and_then(|at| self.history.get(at)).cloned();
            self.check(before.is_none() || before == entry, "2: what was committed once stays what it was");
            self.history.extend(entry.filter(|_| before.is_none()));
        }
    }

    fn on_leadership(&mut self, epoch: LeaderEpoch, leader: Option<NodeId>) {
        let newer = self.announced.is_none_or(|(known, of)| epoch > known || (epoch == known && of.is_none()));
        self.check(
            newer && self.announced != Some((epoch, leader)),
            "3: an epoch is announced once, and with its leader",
        );
        self.announced = Some((epoch, leader));
        self.leading = (leader == Some(self.node)).then_some(epoch);
        if self.leading.is_some() {
            self.check(self.led.is_none_or(|led| led < epoch), "3: an epoch is led by one incarnation");
            self.check(self.known.hard_state().epoch >= epoch, "1: an epoch is led after it was reported as synced");
            let earlier = self.recovered.max(Offset(self.history.len() as u64));
            self.check(self.next >= earlier, "4: leadership is announced after every earlier commit");
            self.led = self.leading;
        }
    }

    /// The disk takes some of what was given out; sometimes the node crashes before it tells the engine.
    fn sync(&mut self) {
        let count = self.random.below(self.given.len() as u64 + 1);
        let crashes = self.random.one_in(8);
        for _ in 0..count {
            let Some(persist) = self.given.pop_front() else { break };
            self.store(&persist);
            if !crashes {
                let taken = self.known.persist(&persist);
                self.check(taken.is_ok(), "a persist fits the journal");
            }
        }
        if crashes {
            self.restart();
        } else {
            self.report();
        }
    }

    fn store(&mut self, persist: &Persist) {
        self.disk.extend(Record::of(persist).map(|record| record.encode()));
    }

    /// Tells the engine everything that is synced, be it for the second time.
    fn report(&mut self) {
        let open = self.given.front().map_or(self.seq.0 + 1, |persist| persist.seq.0);
        self.engine.synced(PersistSeq(open - 1));
    }

    /// An earlier report comes late.
    fn report_late(&mut self) {
        let open = self.given.front().map_or(self.seq.0 + 1, |persist| persist.seq.0);
        let earlier = self.random.below(open);
        self.engine.synced(PersistSeq(earlier));
        self.drain();
    }

    fn disturb(&mut self) {
        let length = self.random.below(40);
        let message: Vec<u8> = (0..length).map(|_| self.random.below(256).to_le_bytes()[0]).collect();
        let before = format!("{:?}", self.engine.view());
        // A stranger's message is refused, or taken for a late one; either way it changes nothing.
        drop(self.engine.step(NodeId(self.node.0.wrapping_add(1)), &message));
        self.check(before == format!("{:?}", self.engine.view()), "6: nonsense from a peer changes nothing");
        self.tick();
    }

    fn tick(&mut self) {
        let due = self.engine.deadline().unwrap_or_default();
        self.now = Moment(self.now.0.max(due.0) + self.random.below(1_000_000));
        self.engine.tick(self.now);
    }

    fn snapshot(&mut self) {
        let committed = self.next.0.saturating_sub(self.known.start().0);
        let index = Offset(self.known.start().0 + self.random.below(committed));
        let Some(at) = self.known.entry(index).filter(|_| committed > 0).map(Entry::id) else { return };
        self.mark(at);
        if self.given.is_empty() && self.random.one_in(2) {
            self.disk = self.known.records().map(|record| record.encode()).collect();
        }
        self.engine.compacted(at);
    }

    fn mark(&mut self, at: EntryId) {
        let record = Record::Snapshot(at);
        self.disk.push(record.encode());
        for journal in [&mut self.known, &mut self.written] {
            journal.apply(record.clone()).expect("a committed entry stays what it is");
        }
    }

    fn resign_or_fail(&mut self) {
        if self.random.one_in(3) {
            return self.fail();
        }
        if let Some(epoch) = self.leading {
            self.engine.resign(LeaderEpoch(epoch.0 - 1), None);
            self.check(self.engine.view().role == Role::Leader, "an old epoch is not resigned");
            self.engine.resign(epoch, None);
            self.leading = None;
            self.propose_in(epoch);
        }
    }

    fn fail(&mut self) {
        self.engine.failed(Error::TimedOut);
        self.engine.synced(self.seq);
        self.now = self.now.after(std::time::Duration::from_secs(3_600));
        self.engine.tick(self.now);
        let silent = self.engine.poll().is_none();
        self.check(silent, "6: after a storage fault nothing comes out");
        self.propose_in(self.leading.unwrap_or_default());
        let view = self.engine.view();
        self.check(view.fault.is_some() && view.role == Role::Stopped, "6: a storage fault can be seen");
        self.crash();
    }

    /// Some of what was given out reached the disk.
    fn crash(&mut self) {
        let kept = self.random.below(self.given.len() as u64 + 1);
        for _ in 0..kept {
            let Some(persist) = self.given.pop_front() else { break };
            self.store(&persist);
        }
        self.restart();
    }

    fn restart(&mut self) {
        let mut replay = Replay::default();
        let taken = self.disk.iter().try_for_each(|record| replay.take(record));
        let journal = taken.and_then(|()| replay.finish());
        self.check(journal.is_ok(), &format!("what an engine wrote can be read back: {journal:?}"));
        self.known = journal.unwrap_or_default();
        self.check(self.known.end().0 >= self.history.len() as u64, "1: what was committed is on the disk");
        self.written = self.known.clone();
        self.given.clear();
        self.proposed.clear();
        self.seq = PersistSeq::default();
        self.next = self.known.start();
        self.recovered = self.known.end();
        self.leading = None;
        self.announced = None;
        self.engine = (self.restore)(&self.known, self.random.below(u64::MAX));
    }

    fn check_view(&mut self) {
        let view = self.engine.view();
        self.check(view.epoch >= self.epoch_seen, "3: epochs do not go back");
        self.check(view.epoch <= self.known.hard_state().epoch, "1: an epoch is shown after it was reported as synced");
        self.check(view.commit >= self.next, "2: what is given out is committed");
        self.check(view.fault.is_none(), "6: without a storage fault none is shown");
        self.epoch_seen = view.epoch;
    }

    /// Nothing goes wrong any more: the node leads, and commits everything that it was given.
    fn settle(&mut self) {
        self.settle_until(|host| host.leading.is_some(), "undisturbed, a single node leads");
        self.propose();
        let end = self.proposed.back().map_or(Offset::ZERO, |last| last.index.plus(1));
        self.settle_until(|host| host.next >= end, "7: undisturbed, what a leader was given is committed");
        self.check(self.proposed.is_empty(), "7: undisturbed, what a leader was given is kept");
    }

    fn settle_until(&mut self, reached: impl Fn(&Self) -> bool, rule: &str) {
        for _ in 0..ROUNDS_MAX {
            if reached(self) {
                return;
            }
            self.drain();
            while let Some(persist) = self.given.pop_front() {
                self.store(&persist);
                let taken = self.known.persist(&persist);
                self.check(taken.is_ok(), "a persist fits the journal");
            }
            self.report();
            self.drain();
            self.check_view();
            self.tick();
        }
        self.check(false, rule);
    }
}
