//! A consumer of a group: how it comes and goes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use taffrail::{Clock, Consumer, Moment, TopicId};

use super::groups::Wish;
use super::model::Slot;
use super::positions::{Outcome, Sending};
use super::told::Told;
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
    pub(super) replaced: Replaced,
    /// Commits behind this one were made when it was.
    pub(super) replaced_at: u64,
    pub(super) told: Told,
    pub(super) owned: BTreeMap<(String, u32), Owned>,
    /// How many partitions each topic had when it came.
    there: BTreeMap<TopicId, u32>,
    pub(super) given_up: GivenUp,
    /// Commits that nobody has waited for.
    pub(super) pending: Vec<Commit>,
}

/// A commit.
#[derive(Debug)]
pub(super) struct Commit {
    /// What is stored, if it is.
    pub(super) sure: Sending,
    /// What may be stored then, too: a first offset counts as a position once it was looked there.
    pub(super) maybe: Sending,
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
pub(super) enum Replaced {
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
    /// Records of it were handed out since it was sent to where it goes on from; and since it said how far it is.
    pub(super) handed_out: bool,
    pub(super) unsaid: bool,
}

/// Whether a consumer has given up what it had read, and not said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GivenUp {
    pub(super) perhaps: bool,
    pub(super) surely: bool,
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

    /// Whether the partition has come since it has.
    pub(super) fn is_older_than(&self, (topic, number): Slot) -> bool {
        self.there.get(&topic).is_none_or(|count| *count <= number)
    }

    pub(super) fn consumer(&mut self) -> &mut Consumer {
        self.consumer.as_mut().expect("it is there until it closes")
    }
}

/// Coming and going.
impl World {
    pub(super) fn open_member(&mut self, index: usize) {
        let habit = self.a_habit();
        let instance = self.choice.one_in(2).then(|| self.choice.pick(&["one", "two"]));
        let max_poll = Duration::from_secs(self.choice.pick(&[2, 5, 5, 30]));
        let commits = self.choice.one_in(2) && matches!(habit, Habit::Waits | Habit::DoesNotWait);
        let is_successor =
            instance.is_some() && self.groups[index].members.iter().any(|member| member.instance == instance);
        self.open_member_as(index, habit, instance, max_poll, commits);
        if is_successor {
            self.succeed(index);
        }
    }

    /// The newest comes in, and whoever had its instance id before has not heard of it.
    fn succeed(&mut self, index: usize) {
        let at = self.groups[index].members.len() - 1;
        for _ in 0..3 {
            self.advance(Duration::from_millis(10));
            self.log().tick();
            if self.is_over() {
                return;
            }
            self.poll_member(index, at);
        }
        self.replaced_commits(index);
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
        let there = self.names().iter().filter_map(|name| self.ask(name));
        let there = there.map(|topic| (topic.id, topic.partitions.len() as u32)).collect();
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
            there,
            given_up: GivenUp::default(),
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
        let mut is_contested = false;
        for other in &mut self.groups[index].members {
            let is_other = instance.is_some() && other.instance == instance && other.number != number;
            if !is_other {
                continue;
            }
            // Who joins meanwhile may come before, or after.
            is_contested |= other.consumer.as_ref().and_then(Consumer::member_id).is_none();
            if other.replaced == Replaced::Yes {
                continue;
            }
            let stays = other.id.is_some() && other.consumer.as_ref().and_then(Consumer::member_id) == other.id;
            let is_before = stays && other.joined <= before;
            other.replaced = if has_joined && is_before { Replaced::Yes } else { Replaced::Maybe };
            other.replaced_at = sendings;
        }
        let member = &mut self.groups[index].members[at];
        if is_contested && member.replaced == Replaced::No {
            (member.replaced, member.replaced_at) = (Replaced::Maybe, sendings);
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
