//! What must be true of a group's positions: which value each of them may have.
//!
//! ```text
//!   counted ── sent, and not answered ── failed, and not known ── of a transaction ─►   in the order in which they were sent
//!      └── the last of these that counts is the position
//! ```
//!
//! What was answered well counts, and nothing before it does any more. What was refused never does. What the disk has
//! answered, or nobody has heard, counts or not, until somebody looks. What is of a transaction counts when that is
//! committed, and as of when it was sent. A position goes with its topic.

use std::collections::{BTreeMap, BTreeSet};

use taffrail::{Moment, Timestamp, TopicId, TopicPartition};

use super::fates::Fate;
use super::model::{Model, Slot};

/// What is known of one group.
#[derive(Debug, Default)]
pub(super) struct GroupModel {
    positions: BTreeMap<TopicPartition, Vec<Possible>>,
    /// All that were ever sent.
    sent: BTreeSet<(TopicPartition, TopicId, u64)>,
    /// When somebody was in it last.
    pub(super) inhabited: Timestamp,
    /// Positions that were stored before that may have expired since.
    pub(super) lapsed: Timestamp,
    /// Bits of its records were flipped: positions may be lost, and members.
    pub(super) is_damaged: bool,
    /// Who was given a partition last, and has not given it back, by number of the consumer.
    pub(super) owners: BTreeMap<Slot, u64>,
    /// Records that were handed out.
    pub(super) handed: BTreeSet<u64>,
    /// Below which offset records may have been left out, for a reason.
    pub(super) left_out: BTreeMap<Slot, u64>,
}

/// A value that a position may have.
#[derive(Clone, Copy, Debug)]
struct Possible {
    /// Of all that were sent.
    number: u64,
    /// None: it was forgotten.
    at: Option<Mark>,
    /// When it was sent.
    wall: Timestamp,
    state: State,
}

/// Where a group stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) topic: TopicId,
    pub(super) offset: u64,
    /// What was read before it cannot be lost with the power.
    pub(super) power: bool,
    /// Something was lost since that it may be behind.
    pub(super) doubtful: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It did count, when it was sent.
    Counted,
    UnderWay,
    /// Nobody knows.
    Unknown,
    /// It is of this transaction.
    Of(usize),
    /// It is of this transaction, or was not sent.
    Perhaps(usize),
}

/// Positions that were sent, as one commit.
#[derive(Clone, Debug, Default)]
pub(super) struct Sending {
    pub(super) number: u64,
    pub(super) marks: Vec<(TopicPartition, Option<Mark>)>,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Stored,
    Refused,
    Unknown,
    Of(usize),
    Perhaps(usize),
}

/// How a position is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// The topic that has the name now.
    pub(super) topic: Option<TopicId>,
    /// Whether it is looked at only where no transaction is open about it.
    pub(super) is_stable: bool,
    pub(super) now: Moment,
}

const NOTHING: Possible = Possible { number: 0, at: None, wall: Timestamp(0), state: State::Counted };

impl Possible {
    fn seen(&self, look: Look) -> Option<Mark> {
        self.at.filter(|mark| Some(mark.topic) == look.topic)
    }

    fn shows(&self, look: Look, found: Option<u64>) -> bool {
        self.seen(look).map(|mark| mark.offset) == found
    }
}

impl Model {
    /// Positions are about to be stored.
    pub(super) fn send_positions(&mut self, group: usize, marks: Vec<(TopicPartition, Option<Mark>)>) -> Sending {
        self.sendings += 1;
        let number = self.sendings;
        for (name, at) in &marks {
            let possible = Possible { number, at: *at, wall: self.wall, state: State::UnderWay };
            let known = &mut self.groups[group];
            known.sent.extend(at.map(|mark| (name.clone(), mark.topic, mark.offset)));
            let positions = &mut known.positions;
            positions.entry(name.clone()).or_insert_with(|| vec![NOTHING]).push(possible);
        }
        Sending { number, marks }
    }

    /// What became of it.
    pub(super) fn positions_sent(&mut self, group: usize, sending: &Sending, outcome: Outcome) {
        for (name, _) in &sending.marks {
            let Some(all) = self.groups[group].positions.get_mut(name) else { continue };
            let Some(index) = all.iter().position(|possible| possible.number == sending.number) else { continue };
            match outcome {
                Outcome::Stored => {
                    all[index].state = State::Counted;
                    all.drain(..index);
                }
                Outcome::Refused => drop(all.remove(index)),
                Outcome::Unknown => all[index].state = State::Unknown,
                Outcome::Of(transaction) => all[index].state = State::Of(transaction),
                Outcome::Perhaps(transaction) => all[index].state = State::Perhaps(transaction),
            }
        }
    }

    /// The process has ended: what was under way is not known.
    pub(super) fn end_positions(&mut self, lost_power: bool) {
        for group in &mut self.groups {
            group.owners.clear();
            for possible in group.positions.values_mut().flatten() {
                if possible.state == State::UnderWay {
                    possible.state = State::Unknown;
                }
                if let Some(mark) = possible.at.as_mut().filter(|_| lost_power) {
                    mark.doubtful |= !mark.power;
                }
            }
        }
    }

    /// The group was found at `found`; where that is, where it is known.
    ///
    /// # Panics
    /// Where it cannot be there.
    pub(super) fn position_found(
        &mut self,
        group: usize,
        name: &TopicPartition,
        look: Look,
        found: Option<u64>,
    ) -> Option<Mark> {
        if self.groups[group].is_damaged {
            return self.found_in_damage(group, name, look, found);
        }
        let may_be = self.may_be(group, name, look);
        let matching: Vec<_> = may_be.iter().filter(|possible| possible.shows(look, found)).copied().collect();
        let all = self.groups[group].positions.entry(name.clone()).or_insert_with(|| vec![NOTHING]);
        let Some(first) = matching.first() else {
            panic!("group {group} is at {found:?} of {name} as {look:?}, and may be: {all:?}");
        };
        let stays = |possible: &Possible| match possible.state {
            _ if possible.number < first.number => false,
            State::Counted | State::Unknown => possible.shows(look, found),
            State::UnderWay => true,
            // Where it can be looked at, all that came before have ended.
            State::Of(_) | State::Perhaps(_) => !look.is_stable || possible.shows(look, found),
        };
        all.retain(stays);
        all[0].state = State::Counted;
        let mark = matching.iter().find_map(|possible| possible.seen(look));
        let doubtful = matching.iter().filter_map(|possible| possible.seen(look)).any(|mark| mark.doubtful);
        self.decide_by(&may_be, &matching, look);
        mark.map(|mark| Mark { doubtful, ..mark })
    }

    /// The same where records of the group were damaged: it is where it was once, or nowhere. That may have been in an
    /// earlier topic of that name: the record that forgot it can be the damaged one.
    fn found_in_damage(&mut self, group: usize, name: &TopicPartition, look: Look, found: Option<u64>) -> Option<Mark> {
        let known = &mut self.groups[group];
        let at = found.zip(look.topic);
        let is_it = |(one, _, at): &(TopicPartition, TopicId, u64)| one == name && Some(*at) == found;
        let was_sent = at.is_none() || known.sent.iter().any(is_it);
        assert!(was_sent, "group {group} is at {found:?} of {name}, and was never sent there");
        let at = at.map(|(offset, topic)| Mark { topic, offset, power: false, doubtful: true });
        let all = known.positions.entry(name.clone()).or_default();
        let wall = all.iter().map(|possible| possible.wall).min().unwrap_or_default();
        all.retain(|possible| !matches!(possible.state, State::Counted | State::Unknown));
        all.insert(0, Possible { at, wall, ..NOTHING });
        at
    }

    /// Nobody has used the position for so long that it was forgotten.
    pub(super) fn position_expired(&mut self, group: usize, name: &TopicPartition) {
        let transactions = &self.transactions;
        let Some(all) = self.groups[group].positions.get_mut(name) else { return };
        all.retain(|possible| match possible.state {
            State::Counted | State::Unknown => false,
            State::UnderWay => true,
            State::Of(number) | State::Perhaps(number) => transactions[number].fate != Fate::Committed,
        });
        all.insert(0, NOTHING);
    }

    /// Whether the group may be found there.
    pub(super) fn may_be_found(&mut self, group: usize, name: &TopicPartition, look: Look, found: Option<u64>) -> bool {
        self.may_be(group, name, look).iter().any(|possible| possible.shows(look, found))
    }

    /// The values of which one must be found.
    fn may_be(&mut self, group: usize, name: &TopicPartition, look: Look) -> Vec<Possible> {
        let transactions = &self.transactions;
        let all = self.groups[group].positions.entry(name.clone()).or_insert_with(|| vec![NOTHING]);
        let fate = |possible: &Possible| match possible.state {
            State::Of(transaction) | State::Perhaps(transaction) => Some(transactions[transaction].fate),
            _ => None,
        };
        all.retain(|possible| fate(possible) != Some(Fate::Aborted));
        let counts = |possible: &Possible| match possible.state {
            State::Counted => true,
            State::Of(_) => look.is_stable && fate(possible) == Some(Fate::Committed),
            _ => false,
        };
        let last = all.iter().rposition(counts).unwrap_or(0);
        let behind = all.iter().skip(last + 1).filter(|possible| fate(possible) != Some(Fate::Open));
        std::iter::once(all[last]).chain(behind.copied()).collect()
    }

    /// What was seen says how a transaction has ended.
    fn decide_by(&mut self, may_be: &[Possible], matching: &[Possible], look: Look) {
        let of = |possible: &Possible| match possible.state {
            State::Of(transaction) => Some(transaction),
            _ => None,
        };
        let [only] = matching else { return };
        if let State::Of(transaction) | State::Perhaps(transaction) = only.state {
            let fate = &mut self.transactions[transaction].fate;
            assert!(matches!(fate, Fate::Asked | Fate::Committed), "a position is that of {transaction}: {fate:?}");
            *fate = Fate::Committed;
        }
        let later = may_be.iter().filter(|possible| look.is_stable && possible.number > only.number);
        for transaction in later.filter_map(of) {
            let fate = &mut self.transactions[transaction].fate;
            assert!(*fate != Fate::Committed, "a position of {transaction} does not count, which is committed");
            *fate = Fate::Aborted;
        }
    }

    /// Nobody begins to read where a transaction that is open may change the position.
    ///
    /// # Panics
    /// Where somebody does.
    pub(super) fn check_stable(&self, group: usize, name: &TopicPartition, look: Look) {
        let all = self.groups[group].positions.get(name).into_iter().flatten();
        for possible in all.filter(|possible| possible.at.is_some_and(|mark| Some(mark.topic) == look.topic)) {
            let State::Of(number) = possible.state else { continue };
            let transaction = &self.transactions[number];
            let may_have_ended = transaction.may_be_late(look.now) || transaction.may_be_fenced;
            let is_open = transaction.fate == Fate::Open && !may_have_ended;
            assert!(!is_open, "{name} is read on while transaction {number} is open about it: {transaction:?}");
        }
    }

    /// The partitions that a group may have a position in.
    pub(super) fn placed(&self, group: usize) -> Vec<TopicPartition> {
        self.groups[group].positions.keys().cloned().collect()
    }
}

impl GroupModel {
    /// Since when at least it may have the position that it has.
    pub(super) fn sent_since(&self, name: &TopicPartition) -> Option<Timestamp> {
        let all = self.positions.get(name)?;
        all.iter().filter(|possible| possible.at.is_some()).map(|possible| possible.wall).min()
    }

    /// Records below may be left out.
    pub(super) fn leaves_out(&mut self, slot: Slot, below: u64) {
        let known = self.left_out.entry(slot).or_default();
        *known = (*known).max(below);
    }
}
