//! Groups: who comes and goes, who polls and who does not, and what an operator does to a group.

use std::time::Duration;

use taffrail::{
    Clock, Error, GroupConfig, Isolation, Offset, OutOfRange, ResetTo, StartAt, Timestamp, TopicPartition, Which,
};

use super::choice::Choice;
use super::members::MemberActor;
use super::plan::Plan;
use super::positions::{Look, Mark, Outcome};
use super::world::World;

/// One group, over every opening of the log.
pub(super) struct GroupActor {
    pub(super) name: &'static str,
    pub(super) wish: Wish,
    pub(super) isolation: Isolation,
    pub(super) start_at: StartAt,
    pub(super) policy: OutOfRange,
    pub(super) max_bytes: usize,
    pub(super) seats: usize,
    pub(super) members: Vec<MemberActor>,
}

/// What a group reads.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    Topics(Vec<&'static str>),
    Pattern(&'static str),
}

const NAMES: [&str; 2] = ["readings", "mail"];

impl GroupActor {
    pub(super) fn new(index: usize, plan: &Plan, names: &[&'static str], choice: &mut Choice) -> Self {
        let wish = match choice.below(4) {
            0 => Wish::Pattern(choice.pick(&["t[01]", "t.", "t[0-2]"])),
            1 => Wish::Topics(vec![choice.pick(names)]),
            _ => Wish::Topics(names.to_vec()),
        };
        Self {
            name: NAMES[index],
            wish,
            isolation: choice.pick(&[Isolation::Committed, Isolation::Committed, Isolation::Uncommitted]),
            start_at: choice.pick(&[StartAt::Earliest, StartAt::Earliest, StartAt::Earliest, StartAt::Latest]),
            policy: choice.pick(&[OutOfRange::Error, OutOfRange::Error, OutOfRange::Earliest]),
            max_bytes: choice.pick(&[1, 300, 2_000, 256 << 10]),
            seats: if plan.groups == 1 { choice.between(1, 4) } else { choice.between(1, 3) } as usize,
            members: Vec::new(),
        }
    }

    /// Whether it reads a topic.
    pub(super) fn wants(&self, name: &str) -> bool {
        match &self.wish {
            Wish::Topics(names) => names.contains(&name),
            Wish::Pattern("t[01]") => ["t0", "t1"].contains(&name),
            Wish::Pattern("t[0-2]") => name != "t3",
            Wish::Pattern(_) => true,
        }
    }
}

/// What holds for all groups of a run.
pub(super) fn group_config(plan: &Plan) -> GroupConfig {
    let config = GroupConfig::new().session_timeout(plan.session).heartbeat_interval(plan.session / 4);
    config.members_max(plan.members_max).offsets_retention(plan.positions_kept)
}

impl World {
    /// One turn of one group.
    pub(super) fn assemble(&mut self) {
        if self.groups.is_empty() {
            return self.read();
        }
        let index = self.choice.index(self.groups.len());
        let count = self.groups[index].members.len();
        if count == 0 {
            return if self.choice.one_in(5) { self.operate(index) } else { self.open_member(index) };
        }
        self.replaced_commits(index);
        let at = self.choice.index(count);
        match self.choice.below(32) {
            0..=2 if count < self.groups[index].seats => self.open_member(index),
            3 => self.close_member(index, at),
            4 => self.drop_member(index, at),
            5 => {
                let member = &mut self.groups[index].members[at];
                member.is_silent = !member.is_silent;
                let line = format!("{member} {}", if member.is_silent { "polls no more" } else { "polls again" });
                self.trace.note(line);
            }
            6 => self.seek_member(index, at),
            7 => self.pause_member(index, at),
            8 => self.observe_group(index),
            9 => self.operate(index),
            10..=16 => self.pass(index),
            17..=21 => self.commit_by_habit(index, at),
            _ => {
                for _ in 0..self.choice.between(1, 3) {
                    self.poll_member(index, at);
                }
            }
        }
    }

    /// Whoever was replaced and has not heard of it tries to commit.
    pub(super) fn replaced_commits(&mut self, index: usize) {
        let is_unaware = |member: &MemberActor| member.is_replaced() && !member.owned.is_empty();
        let replaced = self.groups[index].members.iter().position(is_unaware);
        if let Some(at) = replaced.filter(|_| self.choice.one_in(2)) {
            self.look_at_positions(index, at);
            if self.choice.one_in(2) {
                self.commit_back(index, at);
            } else {
                self.commit_now(index, at);
            }
        }
    }

    /// Some time passes, in which all of them poll.
    fn pass(&mut self, index: usize) {
        let millis = self.choice.pick(&[5, 100, 600, 600]);
        for _ in 0..self.choice.between(1, 5) {
            self.advance(Duration::from_millis(millis));
            self.log().tick();
            self.poll_all(index);
            if self.is_over() {
                return;
            }
        }
        self.trace.note(format_args!("  {millis} ms each pass"));
    }

    /// Everybody who polls does so once.
    pub(super) fn poll_all(&mut self, index: usize) -> bool {
        let mut has_more = false;
        for at in 0..self.groups[index].members.len() {
            if !self.groups[index].members[at].is_silent && !self.is_over() {
                has_more |= self.poll_member(index, at);
            }
        }
        has_more
    }

    /// How a position is looked at now.
    pub(super) fn look_now(&self, name: &str, is_stable: bool) -> Look {
        let topic = self.ask(name).map(|topic| topic.id);
        Look { topic, is_stable, now: self.clock.monotonic() }
    }

    /// What the log says of a group is what may be.
    pub(super) fn observe_group(&mut self, index: usize) {
        let name = self.groups[index].name;
        let described = match self.log().describe_group(name) {
            Ok(described) => described,
            Err(Error::UnknownGroup { .. }) => return self.observe_positions(index, &[]),
            Err(error) => return self.excuse(&error, "a group cannot be described"),
        };
        let is_damaged = self.model.groups[index].is_damaged;
        let mut owned: Vec<_> =
            described.members.iter().flat_map(|one| one.assigned.iter().chain(&one.revoking)).collect();
        owned.sort();
        let twice = owned.windows(2).find(|pair| pair[0] == pair[1]);
        assert!(twice.is_none() || is_damaged, "{name}: {twice:?} is owned twice: {described:?}");
        // Of those with an instance id some may have been replaced, and be in still.
        let count = described.members.iter().filter(|one| one.instance_id.is_none()).count();
        assert!(count <= self.plan.members_max || is_damaged, "{name} is full, and has {count} members");
        let found: Vec<_> =
            described.positions.iter().map(|one| (one.partition.clone(), one.committed.offset.0)).collect();
        self.trace.note(format_args!("{name} is {:?}, at {found:?}", described.state));
        self.observe_positions(index, &found);
    }

    fn observe_positions(&mut self, index: usize, found: &[(TopicPartition, u64)]) {
        if self.storage.has_lost_power() {
            return;
        }
        let mut names = self.model.placed(index);
        names.extend(found.iter().map(|(name, _)| name.clone()));
        names.sort();
        names.dedup();
        for name in names {
            let at = found.iter().find(|(one, _)| *one == name).map(|(_, at)| *at);
            self.found_at(index, &name, at, false);
        }
    }

    /// A group was found at a position.
    pub(super) fn found_at(
        &mut self,
        index: usize,
        name: &TopicPartition,
        at: Option<u64>,
        is_stable: bool,
    ) -> Option<Mark> {
        let look = self.look_now(&name.topic, is_stable);
        if look.topic.is_none() && at.is_some() && self.excused {
            // Its topic is gone, and the disk does not let go of it yet.
            return None;
        }
        if at.is_none() && self.may_have_expired(index, name) {
            self.expired(index, name, look);
        }
        if self.model.groups[index].is_damaged && !self.model.may_be_found(index, name, look, at) {
            let is_named = self.model.was_named || self.names_damaged_positions();
            assert!(is_named, "{name} is at {at:?}, and nothing is damaged, they say");
        }
        self.model.position_found(index, name, look, at)
    }

    /// Whether the log says that something of its groups is damaged, or was cut off.
    pub(super) fn names_damaged_positions(&self) -> bool {
        let is_cut = self.log().damaged().iter().any(|(one, _)| one.topic == "__consumer_offsets");
        is_cut || !self.log().damaged_groups().is_empty()
    }

    /// Whether it is so long ago that somebody stored the group's position, or was there who reads it, that it may be
    /// forgotten.
    pub(super) fn may_have_expired(&self, index: usize, name: &TopicPartition) -> bool {
        let group = &self.model.groups[index];
        let Some(sent) = group.sent_since(name) else { return false };
        let is_used = self.groups[index].wants(&name.topic);
        let used = if is_used { group.inhabited.max(sent) } else { sent };
        self.is_long_ago(used) || is_used && sent <= group.lapsed
    }

    /// The wall may be set back, and a member that is not heard of may be out before it knows.
    fn is_long_ago(&self, used: Timestamp) -> bool {
        self.latest.0 - used.0 >= self.kept_at_least()
    }

    fn kept_at_least(&self) -> i64 {
        self.plan.positions_kept.saturating_sub(Duration::from_secs(120)).as_millis() as i64
    }

    /// The group was found to have no position there: it was forgotten, or never was.
    fn expired(&mut self, index: usize, name: &TopicPartition, look: Look) {
        if !self.model.may_be_found(index, name, look, None) {
            self.trace.note(format_args!("{} has forgotten {name}", self.groups[index].name));
            self.trace.count("positions expired");
            self.model.position_expired(index, name);
        }
    }

    /// Somebody is in a group, whose positions do not expire.
    pub(super) fn note_inhabited(&mut self) {
        let now = self.clock.monotonic();
        let (latest, kept) = (self.latest.max(self.clock.wall()), self.kept_at_least());
        self.latest = latest;
        for (group, model) in self.groups.iter().zip(&mut self.model.groups) {
            let is_in =
                group.members.iter().any(|one| !one.owned.is_empty() && !one.may_be_out(now) && !one.is_replaced());
            if latest.0 - model.inhabited.0 >= kept {
                model.lapsed = Timestamp(latest.0 - kept);
            }
            if is_in {
                model.inhabited = self.clock.wall().max(model.inhabited);
            }
        }
    }

    /// An operator sends a group elsewhere, or forgets it.
    fn operate(&mut self, index: usize) {
        match self.choice.below(4) {
            0 => self.delete_group(index),
            1 | 2 => self.reset_group(index),
            _ => self.observe_group(index),
        }
    }

    fn reset_group(&mut self, index: usize) {
        let (group, topic) = (self.groups[index].name, self.a_name());
        let to = match self.choice.below(4) {
            0 => ResetTo::Earliest,
            1 => ResetTo::Latest,
            // Where that is cannot be said of an attempt that fails.
            2 if !self.excused => ResetTo::Shift(-3),
            _ => ResetTo::Offset(Offset(self.choice.below(40))),
        };
        let Some(found) = self.describe(topic) else { return };
        let mut due = Vec::new();
        for number in (0..).take(found.partitions.len()) {
            let Some(partition) = self.partition(topic, found.id, number) else { return };
            let (start, end) = (partition.start(), partition.last_stable().max(partition.start()));
            let offset = match to {
                ResetTo::Latest => end,
                ResetTo::Offset(offset) => offset.clamp(start, end),
                _ => start,
            };
            due.push((TopicPartition { topic: topic.to_owned(), partition: number }, offset));
        }
        let outcome = self.log().reset_group(group, Which::Topic(topic), to);
        self.trace.note(format_args!("sends {group} to {to:?} of {topic}: {outcome:?}"));
        let moved = match &outcome {
            Ok(moved) => moved.clone(),
            Err(Error::GroupNotEmpty { .. } | Error::NoPosition { .. }) => return,
            Err(error) => {
                self.excuse(error, "a group cannot be sent elsewhere");
                due
            }
        };
        let mut marks = Vec::new();
        for (name, offset) in moved {
            let slot = (found.id, name.partition);
            self.model.groups[index].leaves_out(slot, offset.0);
            let power = self.model.survives(slot);
            marks.push((name, Some(Mark { topic: found.id, offset: offset.0, power, doubtful: false })));
        }
        self.was_set(index, marks, outcome.is_ok(), "groups sent elsewhere");
    }

    fn delete_group(&mut self, index: usize) {
        let group = self.groups[index].name;
        let outcome = self.log().delete_group(group);
        self.trace.note(format_args!("forgets {group}: {outcome:?}"));
        match &outcome {
            Ok(()) => {}
            Err(Error::GroupNotEmpty { .. } | Error::UnknownGroup { .. } | Error::UnstableOffset { .. }) => return,
            Err(error) => self.excuse(error, "a group cannot be forgotten"),
        }
        let marks = self.model.placed(index).into_iter().map(|name| (name, None)).collect();
        self.was_set(index, marks, outcome.is_ok(), "groups forgotten");
    }

    /// An operator has set the positions of a group without members.
    fn was_set(&mut self, index: usize, marks: Vec<(TopicPartition, Option<Mark>)>, is_done: bool, what: &'static str) {
        let sending = self.model.send_positions(index, marks);
        if is_done && !self.storage.has_lost_power() {
            self.check_empty(index);
            self.model.positions_sent(index, &sending, Outcome::Stored);
            self.trace.count(what);
        } else {
            self.model.positions_sent(index, &sending, Outcome::Unknown);
        }
    }

    /// Nobody is in the group who has polled within its time.
    fn check_empty(&mut self, index: usize) {
        let now = self.clock.monotonic();
        let is_damaged = self.model.groups[index].is_damaged || self.excused;
        let members = &self.groups[index].members;
        let alive = members.iter().find(|one| !one.owned.is_empty() && !one.may_be_out(now) && !one.is_replaced());
        assert!(
            alive.is_none() || is_damaged,
            "it is empty, they say, and {} owns something",
            alive.expect("as was seen")
        );
    }

    /// The log has ended, and all members with it.
    pub(super) fn end_groups(&mut self, lost_power: bool) {
        for group in &mut self.groups {
            group.members.clear();
        }
        self.model.end_positions(lost_power);
    }
}
