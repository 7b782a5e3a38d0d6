//! What the consumers of groups commit, and what becomes of it.

use taffrail::{Clock, Error, Offset, TopicPartition};

use super::members::{At, Commit, GivenUp, Habit, Replaced};
use super::model::Slot;
use super::positions::{Mark, Outcome, Sending};
use super::told::News;
use super::world::World;

impl World {
    /// Where it is in each partition that is there still: what is stored by a commit, and what may be.
    fn marks(&self, index: usize, at: usize, all: bool) -> [Vec<(TopicPartition, Option<Mark>)>; 2] {
        let (mut sure, mut maybe) = (Vec::new(), Vec::new());
        for ((topic, partition), owned) in &self.groups[index].members[at].owned {
            if self.ask(topic).is_none_or(|found| found.id != owned.topic) {
                continue;
            }
            let power = self.model.survives((owned.topic, *partition));
            let mark = |offset| Some(Mark { topic: owned.topic, offset, power, doubtful: owned.doubtful });
            let name = TopicPartition { topic: topic.clone(), partition: *partition };
            match owned.at {
                At::Offset(offset) if all || owned.committed != Some(offset) => sure.push((name, mark(offset))),
                At::First(offset) => maybe.push((name, mark(offset))),
                At::Offset(_) | At::Unknown => {}
            }
        }
        [sure, maybe]
    }

    /// What it has read is about to be stored: everything, or what the group does not have.
    pub(super) fn begin_commit(&mut self, index: usize, at: usize, all: bool) -> Commit {
        let [sure, maybe] = self.marks(index, at, all);
        let maybe = self.model.send_positions(index, maybe);
        let sure = self.model.send_positions(index, sure);
        self.groups[index].members[at].owned.values_mut().for_each(|owned| owned.unsaid = false);
        Commit { sure, maybe }
    }

    pub(super) fn end_commit(&mut self, index: usize, commit: &Commit, outcome: Outcome) {
        self.model.positions_sent(index, &commit.sure, outcome);
        let maybe = if outcome == Outcome::Stored { Outcome::Unknown } else { outcome };
        self.model.positions_sent(index, &commit.maybe, maybe);
    }

    /// It takes these for the group's positions, or knows that they are not.
    fn note_committed(&mut self, index: usize, at: usize, commit: &Commit, is_stored: bool) {
        for (name, mark) in &commit.sure.marks {
            let owned = self.groups[index].members[at].owned.get_mut(&(name.topic.clone(), name.partition));
            if let Some((owned, mark)) = owned.zip(*mark).filter(|(owned, mark)| owned.topic == mark.topic) {
                owned.committed = is_stored.then_some(mark.offset);
            }
        }
    }

    pub(super) fn commit_by_habit(&mut self, index: usize, at: usize) {
        self.look_at_positions(index, at);
        match self.groups[index].members[at].habit {
            Habit::DoesNotWait if !self.choice.one_in(5) => self.commit_later(index, at),
            Habit::InTransactions => self.commit_in_transaction(index, at),
            Habit::Automatic(..) => drop(self.poll_member(index, at)),
            _ if self.choice.one_in(12) => self.commit_back(index, at),
            _ => drop(self.commit_now(index, at)),
        }
    }

    /// Says whether it was stored.
    pub(super) fn commit_now(&mut self, index: usize, at: usize) -> bool {
        // Whoever commits by itself may have done so before.
        let is_automatic = matches!(self.groups[index].members[at].habit, Habit::Automatic(..));
        let is_something = !is_automatic && !self.marks(index, at, false)[0].is_empty();
        let commit = self.begin_commit(index, at, true);
        let member = &mut self.groups[index].members[at];
        let outcome = member.consumer().commit();
        let line = format!("{member} commits {}: {outcome:?}", say(&commit));
        self.trace.note(line);
        // Those that it has not waited for come before.
        self.take_news(index, at);
        self.committed(index, at, &commit, &outcome, is_something);
        if outcome.is_ok() {
            self.groups[index].members[at].given_up = GivenUp::default();
        }
        outcome.is_ok()
    }

    /// Stores an earlier position in one partition.
    pub(super) fn commit_back(&mut self, index: usize, at: usize) {
        let mut marks: Vec<_> = self.marks(index, at, true)[0].clone();
        let Some(which) = (!marks.is_empty()).then(|| self.choice.index(marks.len())) else { return };
        let (name, mark) = marks.swap_remove(which);
        let Some(mark) = mark else { return };
        let offset = mark.offset.saturating_sub(self.choice.below(5));
        let sure = self.model.send_positions(index, vec![(name.clone(), Some(Mark { offset, ..mark }))]);
        let commit = Commit { sure, maybe: Sending::default() };
        let member = &mut self.groups[index].members[at];
        let outcome = member.consumer().commit_offsets([(name, Offset(offset))]);
        let line = format!("{member} commits {} by hand: {outcome:?}", say(&commit));
        self.trace.note(line);
        self.take_news(index, at);
        self.committed(index, at, &commit, &outcome, true);
    }

    fn commit_later(&mut self, index: usize, at: usize) {
        let commit = self.begin_commit(index, at, false);
        let number = commit.sure.number;
        let member = &mut self.groups[index].members[at];
        let told = member.told.clone();
        member.consumer().commit_async(move |outcome| told.tell(News::Committed(number, outcome)));
        let line = format!("{member} commits {}, and does not wait: {number}", say(&commit));
        self.trace.note(line);
        self.trace.count("commits that nobody waits for");
        // Earlier ones are answered first.
        let earlier = self.groups[index].members[at].told.take();
        for news in earlier {
            self.take_one(index, at, news);
        }
        self.note_committed(index, at, &commit, true);
        self.groups[index].members[at].pending.push(commit);
    }

    /// A commit that was not waited for was answered.
    pub(super) fn answered_later(&mut self, index: usize, at: usize, number: u64, outcome: &taffrail::Result<()>) {
        let pending = &mut self.groups[index].members[at].pending;
        let Some(which) = pending.iter().position(|commit| commit.sure.number == number) else {
            panic!("the commit {number} is answered, which was not sent");
        };
        assert_eq!(which, 0, "the commit {number} is answered before an earlier one");
        let commit = pending.remove(which);
        let line = format!("{} hears of {number}: {outcome:?}", self.groups[index].members[at]);
        self.trace.note(line);
        self.note_committed(index, at, &commit, outcome.is_ok());
        let became = match outcome {
            _ if self.storage.has_lost_power() => Outcome::Unknown,
            Ok(()) => Outcome::Stored,
            Err(error) if is_refusal(error) => Outcome::Refused,
            Err(error) => {
                self.excuse(error, "a position is not committed");
                Outcome::Unknown
            }
        };
        self.end_commit(index, &commit, became);
    }

    /// What became of a commit.
    pub(super) fn committed(
        &mut self,
        index: usize,
        at: usize,
        commit: &Commit,
        outcome: &taffrail::Result<()>,
        is_something: bool,
    ) {
        self.note_committed(index, at, commit, outcome.is_ok());
        let became = match outcome {
            _ if self.storage.has_lost_power() => Outcome::Unknown,
            Ok(()) => {
                if is_something {
                    self.check_committed_by(index, at, commit);
                }
                self.trace.count("positions committed");
                Outcome::Stored
            }
            Err(error) => self.check_commit_error(index, at, error),
        };
        self.end_commit(index, commit, became);
    }

    /// Only whoever owns partitions commits their positions.
    fn check_committed_by(&self, index: usize, at: usize, commit: &Commit) {
        let member = &self.groups[index].members[at];
        let group = &self.model.groups[index];
        if group.is_damaged {
            return;
        }
        for (name, mark) in &commit.sure.marks {
            let slot = mark.map(|mark| (mark.topic, name.partition));
            let owner = slot.and_then(|slot: Slot| group.owners.get(&slot)).copied();
            let is_own = owner.is_none_or(|owner| owner == member.number);
            assert!(is_own, "{member} has committed {name}, which is {owner:?}'s");
        }
        let is_replaced = member.replaced == Replaced::Yes && commit.sure.number > member.replaced_at;
        assert!(!is_replaced, "{member} has committed, and another has its instance id");
    }

    /// Whether the error says that nothing was stored.
    pub(super) fn check_commit_error(&mut self, index: usize, at: usize, error: &Error) -> Outcome {
        match error {
            error if is_refusal(error) => {
                let now = self.clock.monotonic();
                let member = &self.groups[index].members[at];
                let is_in = !member.owned.is_empty() && !member.may_be_out(now) && member.replaced == Replaced::No;
                let is_sound = !self.excused && !self.model.groups[index].is_damaged;
                assert!(!is_in || !is_sound, "{member} polls, and may not commit: {error}");
                self.trace.count("refused commits");
                Outcome::Refused
            }
            error => {
                self.excuse(error, "a position is not committed");
                self.trace.count("failed commits");
                Outcome::Unknown
            }
        }
    }

    /// What it has read counts with a transaction, or not at all.
    fn commit_in_transaction(&mut self, index: usize, at: usize) {
        let progress = self.groups[index].members[at].consumer().progress();
        let commit = self.begin_commit(index, at, false);
        let begun = self.progress_in(progress, !commit.sure.marks.is_empty());
        let line = format!("{} commits {} in a transaction: {begun:?}", self.groups[index].members[at], say(&commit));
        self.trace.note(line);
        if let Some((_, taken)) = &begun {
            self.check_given_up(index, at, taken);
        }
        let outcome = match begun {
            Some((number, Ok(()))) => {
                // Nobody is asked where there is nothing to store.
                if !commit.sure.marks.is_empty() {
                    self.check_committed_by(index, at, &commit);
                }
                self.trace.count("positions in transactions");
                Outcome::Of(number)
            }
            Some((_, Err(_))) | None => Outcome::Refused,
        };
        self.model.positions_sent(index, &commit.sure, outcome);
        let maybe = if let Outcome::Of(number) = outcome { Outcome::Perhaps(number) } else { outcome };
        self.model.positions_sent(index, &commit.maybe, maybe);
    }

    /// A transaction takes no progress of a consumer that has given up what it had read, and not said; and is told of none
    /// that has not.
    fn check_given_up(&mut self, index: usize, at: usize, taken: &taffrail::Result<()>) {
        let member = &mut self.groups[index].members[at];
        let given_up = std::mem::take(&mut member.given_up);
        match taken {
            Ok(()) => assert!(!given_up.surely, "{member} had given up what it had read, and its progress counts"),
            Err(Error::GivenUp { partition, .. }) => {
                assert!(
                    given_up.perhaps,
                    "{member} is said to have given up {partition}, of which it had read nothing"
                );
                self.trace.count("progress of what was given up");
            }
            Err(_) => {}
        }
    }
}

fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::UnknownMember { .. }
            | Error::FencedMember { .. }
            | Error::StaleMember { .. }
            | Error::FencedInstance { .. }
            | Error::UnknownTopic { .. }
    )
}

fn say(commit: &Commit) -> String {
    let one = |(name, mark): &(TopicPartition, Option<Mark>)| {
        let offset = mark.map(|mark| mark.offset);
        format!("{name}@{}", offset.map_or_else(|| "none".to_owned(), |offset| offset.to_string()))
    };
    let all: Vec<_> = commit.sure.marks.iter().map(one).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(" ") }
}
