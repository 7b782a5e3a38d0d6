//! A consumer of a group: how it comes and goes, and what it commits.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use taffrail::{Clock, Consumer, Error, Moment, Offset, TopicId, TopicPartition};

use super::groups::Wish;
use super::model::Slot;
use super::positions::{Mark, Outcome, Sending};
use super::told::{News, Told};
use super::world::World;

/// One consumer.
pub(super) struct MemberActor {
    /// No other has ever had it.
    pub(super) number: u64,
    group: &'static str,
    /// None only while it closes.
    consumer: Option<Consumer>,
    instance: Option<&'static str>,
    pub(super) habit: Habit,
    pub(super) max_poll: Duration,
    /// When it has polled last.
    pub(super) polled: Moment,
    /// It had not polled within its time then.
    pub(super) has_lapsed: bool,
    /// It is kept, and does not poll.
    pub(super) is_silent: bool,
    /// By which it was in the group when it polled last.
    id: Option<String>,
    /// In which poll of all it was known to have joined as that, and which was its last.
    joined: u64,
    turn: u64,
    replaced: Replaced,
    /// Commits behind this one were made when it was.
    replaced_at: u64,
    pub(super) told: Told,
    pub(super) owned: BTreeMap<(String, u32), Owned>,
    /// Commits that nobody has waited for.
    pub(super) pending: Vec<Commit>,
}

/// A commit.
#[derive(Debug)]
pub(super) struct Commit {
    /// What is stored, if it is.
    sure: Sending,
    /// What may be stored then, too: a first offset counts as a position once it was looked there.
    maybe: Sending,
}

/// How it commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    Waits,
    DoesNotWait,
    /// By itself, so often, and next then.
    Automatic(Duration, Moment),
    InTransactions,
}

/// Whether another has joined with its instance id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replaced {
    No,
    Maybe,
    Yes,
}

/// A partition that it reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owned {
    pub(super) topic: TopicId,
    pub(super) at: At,
    /// What it takes the group's position for.
    pub(super) committed: Option<u64>,
    /// What was read before it may be lost.
    pub(super) doubtful: bool,
}

/// Where it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// It is not known yet.
    Unknown,
    /// At whatever is first then; it was this.
    First(u64),
    Offset(u64),
}

impl fmt::Display for MemberActor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.number)
    }
}

impl MemberActor {
    /// Whether it has not polled for so long that the group may be without it.
    pub(super) fn may_be_out(&self, now: Moment) -> bool {
        now.since(self.polled) > self.max_poll
    }

    pub(super) fn is_replaced(&self) -> bool {
        self.replaced != Replaced::No
    }

    pub(super) fn consumer(&mut self) -> &mut Consumer {
        self.consumer.as_mut().expect("it is there until it closes")
    }
}

/// Coming and going.
impl World {
    pub(super) fn open_member(&mut self, index: usize) {
        let habit = self.a_habit();
        let instance = self.choice.one_in(3).then(|| self.choice.pick(&["one", "two"]));
        let max_poll = Duration::from_secs(self.choice.pick(&[2, 5, 5, 30]));
        let commits = self.choice.one_in(2) && matches!(habit, Habit::Waits | Habit::DoesNotWait);
        self.open_member_as(index, habit, instance, max_poll, commits);
    }

    fn a_habit(&mut self) -> Habit {
        let interval = Duration::from_millis(self.choice.pick(&[1, 500, 5_000]));
        let transacts = self.plan.transactors > 0;
        match self.choice.below(8) {
            0..=2 => Habit::Waits,
            3 | 4 => Habit::DoesNotWait,
            5 | 6 if transacts => Habit::InTransactions,
            _ => Habit::Automatic(interval, self.clock.monotonic().after(interval)),
        }
    }

    pub(super) fn open_member_as(
        &mut self,
        index: usize,
        habit: Habit,
        instance: Option<&'static str>,
        max_poll: Duration,
        commits: bool,
    ) {
        let group = &self.groups[index];
        let told = Told::new(commits);
        let builder = self.log().consumer(group.name).isolation(group.isolation).start_at(group.start_at);
        let builder = builder.out_of_range(group.policy).max_bytes(group.max_bytes).max_poll_interval(max_poll);
        let mut builder = match &group.wish {
            Wish::Topics(names) => builder.subscribe(names.iter().copied()),
            Wish::Pattern(pattern) => builder.subscribe_pattern(*pattern),
        };
        if let Some(instance) = instance {
            builder = builder.instance_id(instance);
        }
        if let Habit::Automatic(interval, _) = habit {
            builder = builder.auto_commit(interval);
        }
        let consumer = builder.on_rebalance(told.clone()).open();
        let consumer = Some(consumer.unwrap_or_else(|error| panic!("a consumer does not open: {error}")));
        let group = group.name;
        self.consumers += 1;
        let (number, polled, is_silent) = (self.consumers, self.clock.monotonic(), false);
        let (replaced, owned, pending) = (Replaced::No, BTreeMap::new(), Vec::new());
        let member = MemberActor {
            number,
            group,
            consumer,
            instance,
            habit,
            max_poll,
            polled,
            has_lapsed: false,
            is_silent,
            replaced,
            id: None,
            joined: 0,
            turn: self.polls,
            replaced_at: 0,
            told,
            owned,
            pending,
        };
        self.trace.note(format_args!("{member} comes as {instance:?}, {habit:?}, {max_poll:?}"));
        self.groups[index].members.push(member);
        let at = self.groups[index].members.len() - 1;
        self.poll_member(index, at);
        self.shrink("__consumer_offsets", 8_000);
    }

    /// It has polled. Where it has joined since the last time, whoever had its instance id is replaced.
    pub(super) fn note_joined(&mut self, index: usize, at: usize) {
        self.polls += 1;
        let (polls, sendings) = (self.polls, self.model.sendings);
        let member = &mut self.groups[index].members[at];
        let (before, id) = (member.turn, member.consumer.as_ref().and_then(Consumer::member_id));
        member.turn = polls;
        if id.is_some() && id == member.id {
            return;
        }
        // Who is out, or joins, has not heard yet that another has its instance id.
        let (number, instance, has_joined) = (member.number, member.instance, id.is_some());
        if has_joined {
            (member.id, member.joined) = (id, polls);
            // It may have joined after the other, or before.
            member.replaced = if member.replaced == Replaced::No { Replaced::No } else { Replaced::Maybe };
        }
        for other in &mut self.groups[index].members {
            let is_other = instance.is_some() && other.instance == instance && other.number != number;
            if !is_other || other.replaced == Replaced::Yes {
                continue;
            }
            let stays = other.id.is_some() && other.consumer.as_ref().and_then(Consumer::member_id) == other.id;
            let is_before = stays && other.joined <= before;
            other.replaced = if has_joined && is_before { Replaced::Yes } else { Replaced::Maybe };
            other.replaced_at = sendings;
        }
    }

    /// Nothing is its own any more, and nobody hears what became of its commits.
    fn part(&mut self, index: usize, at: usize) {
        self.take_news(index, at);
        let gone = self.groups[index].members.remove(at);
        for commit in gone.pending {
            self.model.positions_sent(index, &commit.sure, Outcome::Unknown);
            self.model.positions_sent(index, &commit.maybe, Outcome::Unknown);
        }
        self.model.groups[index].owners.retain(|_, owner| *owner != gone.number);
    }

    pub(super) fn drop_member(&mut self, index: usize, at: usize) {
        self.trace.note(format_args!("{} is dropped", self.groups[index].members[at]));
        self.groups[index].members[at].consumer = None;
        self.part(index, at);
        self.trace.count("consumers dropped");
    }

    pub(super) fn close_member(&mut self, index: usize, at: usize) {
        self.look_at_positions(index, at);
        let commit = self.begin_commit(index, at, true);
        let member = &mut self.groups[index].members[at];
        let consumer = member.consumer.take().expect("it is there");
        let closed = consumer.close();
        let line = format!("{member} closes: {closed:?}");
        let is_automatic = matches!(member.habit, Habit::Automatic(..));
        self.trace.note(line);
        let outcome = match &closed {
            _ if !is_automatic => Outcome::Refused,
            Ok(()) if !self.storage.has_lost_power() && !self.was_lost(index, at) => Outcome::Stored,
            _ => Outcome::Unknown,
        };
        self.end_commit(index, &commit, outcome);
        if let Err(error) = &closed {
            self.check_commit_error(index, at, error);
        }
        self.part(index, at);
        self.trace.count("consumers closed");
    }

    /// Whether it is told that something was lost.
    fn was_lost(&self, index: usize, at: usize) -> bool {
        self.groups[index].members[at].told.has_lost()
    }
}

/// Commits.
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
        let changed = self.marks(index, at, false)[0].len();
        let commit = self.begin_commit(index, at, true);
        let member = &mut self.groups[index].members[at];
        let outcome = member.consumer().commit();
        let line = format!("{member} commits {}: {outcome:?}", say(&commit));
        self.trace.note(line);
        // Those that it has not waited for come before.
        self.take_news(index, at);
        self.committed(index, at, &commit, &outcome, changed > 0);
        outcome.is_ok()
    }

    /// Stores an earlier position in one partition.
    fn commit_back(&mut self, index: usize, at: usize) {
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
        let outcome = match begun {
            Some((number, Ok(()))) => {
                self.check_committed_by(index, at, &commit);
                self.trace.count("positions in transactions");
                Outcome::Of(number)
            }
            Some((_, Err(_))) | None => Outcome::Refused,
        };
        self.model.positions_sent(index, &commit.sure, outcome);
        let maybe = if let Outcome::Of(number) = outcome { Outcome::Perhaps(number) } else { outcome };
        self.model.positions_sent(index, &commit.maybe, maybe);
    }
}

fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::UnknownMember { .. }
            | Error::FencedMember { .. }
            | Error::StaleMember { .. }
            | Error::FencedInstance { .. }
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
