//! What the polls of a group's consumers hand out: of each partition what its owner is to see, in order, and of nobody
//! else's.

use std::ops::Range;
use std::path::Path;

use taffrail::{Clock, Error, Moment, Offset, OutOfRange, Polled, TopicPartition, Which};

use super::members::{At, Habit, Owned};
use super::model::Slot;
use super::positions::Outcome;
use super::world::World;

/// A partition of a consumer, as a poll has found it.
pub(super) struct Before {
    pub(super) name: TopicPartition,
    slot: Slot,
    at: u64,
    start: u64,
    end: u64,
}

impl World {
    /// One poll; says whether there may be more.
    pub(super) fn poll_member(&mut self, index: usize, at: usize) -> bool {
        self.look_at_positions(index, at);
        let now = self.clock.monotonic();
        let automatic = match self.groups[index].members[at].habit {
            Habit::Automatic(interval, due) => Some((interval, due)),
            _ => None,
        };
        let commit = automatic.map(|_| self.begin_commit(index, at, true));
        let member = &mut self.groups[index].members[at];
        let polled = member.consumer().try_poll();
        member.has_lapsed = member.may_be_out(now);
        member.polled = now;
        self.note_joined(index, at);
        let is_lost = self.groups[index].members[at].told.has_lost();
        self.take_news(index, at);
        if let Some((commit, (interval, due))) = commit.zip(automatic) {
            let is_stored = polled.is_ok() && due <= now && !is_lost && !self.storage.has_lost_power();
            self.end_commit(index, &commit, if is_stored { Outcome::Stored } else { Outcome::Unknown });
            // Where what came with this poll begins may be stored, too.
            let fresh = self.begin_commit(index, at, true);
            self.end_commit(index, &fresh, Outcome::Unknown);
            if due <= now {
                // Whether it came so far before it failed is not known.
                let next = if polled.is_ok() { now.after(interval) } else { Moment(u64::MAX) };
                self.groups[index].members[at].habit = Habit::Automatic(interval, next);
                self.trace.count("automatic commits");
            }
            self.forget_committed(index, at);
        }
        self.check_assignment(index, at);
        let before = self.as_found(index, at);
        match polled {
            Ok(polled) if polled.is_empty() => {
                self.trace.note(format_args!("{} finds nothing", self.groups[index].members[at]));
                self.passed_over(index, at, &before, None);
                false
            }
            Ok(polled) => {
                self.passed_over(index, at, &before, Some((polled.topic(), polled.partition())));
                self.handed_out(index, at, &polled);
                true
            }
            Err(error) => {
                self.trace.note(format_args!("{} is told: {error}", self.groups[index].members[at]));
                self.passed_over(index, at, &before, None);
                self.not_handed_out(index, at, &before, &error)
            }
        }
    }

    /// Whoever commits by itself may have committed or not: what it takes for the group's position is not known.
    fn forget_committed(&mut self, index: usize, at: usize) {
        self.groups[index].members[at].owned.values_mut().for_each(|owned| owned.committed = None);
    }

    /// What it reads, and where, in partitions that are there.
    pub(super) fn as_found(&self, index: usize, at: usize) -> Vec<Before> {
        let mut all = Vec::new();
        for ((topic, number), owned) in &self.groups[index].members[at].owned {
            let (At::Offset(offset) | At::First(offset)) = owned.at else { continue };
            let slot = (owned.topic, *number);
            let Some(partition) = self.partition(topic, slot.0, slot.1) else { continue };
            let (start, end) = (partition.start().0, partition.end().0);
            let name = TopicPartition { topic: topic.clone(), partition: *number };
            all.push(Before { name, slot, at: offset, start, end });
        }
        all
    }

    fn handed_out(&mut self, index: usize, at: usize, polled: &Polled) {
        let name = TopicPartition { topic: polled.topic().to_owned(), partition: polled.partition() };
        let owned = self.owned(index, at, &name);
        let slot = (owned.topic, name.partition);
        let (number, owners) = (self.groups[index].members[at].number, &self.model.groups[index].owners);
        let holder = owners.get(&slot).copied();
        let is_damaged = self.model.groups[index].is_damaged;
        assert!(holder == Some(number) || is_damaged, "{name} is read by {number}, and is {holder:?}'s");
        let (from, shown) = self.take_records(index, at, &name, owned, polled);
        let next = polled.next_offset().0;
        self.check_seen(index, at, &name, slot, from..next, &shown);
        self.trace.note(format_args!("{} reads {name} from {from} to {next}", self.groups[index].members[at]));
        self.set_at(index, at, &name, At::Offset(next));
        if let Some(owned) = self.groups[index].members[at].owned.get_mut(&(name.topic, name.partition)) {
            (owned.handed_out, owned.unsaid) = (true, true);
        }
    }

    /// The records of a poll, and where they begin.
    fn take_records(
        &mut self,
        index: usize,
        at: usize,
        name: &TopicPartition,
        owned: Owned,
        polled: &Polled,
    ) -> (u64, Vec<u64>) {
        let slot = (owned.topic, name.partition);
        let start = self.partition(&name.topic, slot.0, slot.1).map_or(0, |partition| partition.start().0);
        let first = polled.records().next().map_or(0, |record| record.offset().0);
        let from = match owned.at {
            At::Offset(offset) if self.groups[index].policy == OutOfRange::Earliest && offset < start => start,
            // What was cut off is read anew.
            At::Offset(offset) if owned.doubtful && offset > first => start,
            At::Offset(offset) | At::First(offset) => offset.max(if owned.at == At::First(offset) { start } else { 0 }),
            At::Unknown => first,
        };
        let (power, stamps) = (self.model.survives(slot), self.model.stamps(slot.0));
        let next = polled.next_offset().0;
        let mut shown = Vec::new();
        for record in polled {
            let offset = record.offset().0;
            let follows = (from..next).contains(&offset) && shown.last().is_none_or(|last| *last < offset);
            let member = &self.groups[index].members[at];
            assert!(follows, "{member} goes back in {name}, or on elsewhere: {offset}, not {from}");
            let serial = self.model.read(slot, &record, power, stamps);
            self.model.groups[index].handed.insert(serial);
            shown.push(offset);
            self.trace.count("records read in groups");
        }
        (from, shown)
    }

    /// What it was shown of what it has passed is what it is to see.
    pub(super) fn check_seen(
        &mut self,
        index: usize,
        at: usize,
        name: &TopicPartition,
        slot: Slot,
        range: Range<u64>,
        shown: &[u64],
    ) {
        let group = &self.groups[index];
        let (who, isolation) = (group.members[at].to_string(), group.isolation);
        self.check_shown_to(&who, isolation, (&name.topic, slot), range, shown);
    }

    /// Where nothing was handed out it may have passed what it is not to see.
    fn passed_over(&mut self, index: usize, at: usize, before: &[Before], but: Option<(&str, u32)>) {
        for one in before.iter().filter(|one| but != Some((one.name.topic.as_str(), one.name.partition))) {
            let consumer = self.groups[index].members[at].consumer();
            if let Ok(position) = consumer.position(&one.name.topic, one.name.partition) {
                self.passed_to(index, at, one, position.offset.0);
            }
        }
    }

    /// It is there now, and was handed out nothing on the way.
    pub(super) fn passed_to(&mut self, index: usize, at: usize, one: &Before, next: u64) {
        let (name, from) = (&one.name, one.at);
        let owned = self.owned(index, at, name);
        let is_sent = self.groups[index].policy == OutOfRange::Earliest && (from < one.start || owned.doubtful);
        if is_sent && next != from {
            let to = if next == one.start { At::First(next) } else { At::Offset(next) };
            return self.set_at(index, at, name, to);
        }
        assert!(from <= next, "{} goes back in {name}", self.groups[index].members[at]);
        if from < next {
            self.check_seen(index, at, name, one.slot, from..next, &[]);
            self.set_at(index, at, name, At::Offset(next));
        }
    }

    /// An error, and what a host does about it; says whether there may be more.
    fn not_handed_out(&mut self, index: usize, at: usize, before: &[Before], error: &Error) -> bool {
        match error {
            Error::OffsetOutOfRange { partition, requested, start, end } => {
                let found = self.failed_of(index, at, before, partition);
                let told = found.map(|found| (found.at, found.start, found.end));
                assert_eq!(told, Some((requested.0, start.0, end.0)), "{error}");
                let owned = self.owned(index, at, partition);
                let is_right = requested < start || requested > end && owned.doubtful;
                assert!(is_right, "{}: {error}, and nothing was lost", self.groups[index].members[at]);
                self.trace.count("groups out of range");
                self.seek_to_first(index, at, partition);
            }
            Error::Truncated { partition, end, .. } => {
                let owned = self.owned(index, at, partition);
                assert!(owned.doubtful, "{}: {error}, and nothing was lost", self.groups[index].members[at]);
                self.trace.count("groups cut off");
                self.seek_member_to(index, at, partition, end.0);
            }
            Error::Corrupt { path, offsets, .. } => {
                self.corrupt_in_group(index, at, path, offsets.start.0..offsets.end.0);
            }
            Error::FencedInstance { .. } => {
                let member = &self.groups[index].members[at];
                assert!(member.is_replaced() || self.model.groups[index].is_damaged, "{member}: {error}");
                self.trace.count("replaced consumers told so");
                self.groups[index].members[at].is_silent = true;
                return false;
            }
            Error::GroupFull { limit, .. } => {
                assert_eq!(*limit, self.plan.members_max, "{error}");
                self.trace.count("consumers that found a group full");
                self.groups[index].members[at].is_silent = true;
                return false;
            }
            error => {
                // What an automatic commit answers.
                let _ = self.check_commit_error(index, at, error);
                return false;
            }
        }
        true
    }

    fn failed_of<'b>(
        &mut self,
        index: usize,
        at: usize,
        before: &'b [Before],
        named: &TopicPartition,
    ) -> Option<&'b Before> {
        let member = &mut self.groups[index].members[at];
        assert_eq!(member.consumer().failed(), Some(named), "two partitions are named");
        before.iter().find(|before| before.name == *named)
    }

    fn corrupt_in_group(&mut self, index: usize, at: usize, path: &Path, offsets: Range<u64>) {
        let directory = path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
        let name = TopicPartition::from_directory_name(directory).expect("a partition's directory");
        let owned = self.owned(index, at, &name);
        self.model.is_corrupt((owned.topic, name.partition), &offsets);
        self.trace.count("damaged batches met");
        self.seek_member_to(index, at, &name, offsets.end);
    }

    pub(super) fn seek_to_first(&mut self, index: usize, at: usize, name: &TopicPartition) {
        let outcome = self.groups[index].members[at].consumer().seek_to_beginning(name);
        self.trace.note(format_args!("{} goes to the first of {name}: {outcome:?}", self.groups[index].members[at]));
        if outcome.is_ok() {
            self.set_at(index, at, name, At::First(0));
            self.sought(index, at, name);
        }
    }

    pub(super) fn seek_member_to(&mut self, index: usize, at: usize, name: &TopicPartition, to: u64) {
        let outcome = self.groups[index].members[at].consumer().seek(&name.topic, name.partition, Offset(to));
        self.trace.note(format_args!("{} goes to {to} of {name}: {outcome:?}", self.groups[index].members[at]));
        if outcome.is_ok() {
            let owned = self.owned(index, at, name);
            if !matches!(owned.at, At::Offset(at) if to <= at) {
                self.model.groups[index].leaves_out((owned.topic, name.partition), to);
            }
            self.set_at(index, at, name, At::Offset(to));
            self.sought(index, at, name);
        }
    }

    /// What it had read before does not matter any more.
    fn sought(&mut self, index: usize, at: usize, name: &TopicPartition) {
        if let Some(owned) = self.groups[index].members[at].owned.get_mut(&(name.topic.clone(), name.partition)) {
            (owned.doubtful, owned.handed_out, owned.unsaid) = (false, false, false);
        }
    }

    fn a_partition_of(&mut self, index: usize, at: usize) -> Option<(TopicPartition, Slot)> {
        let owned: Vec<_> =
            self.groups[index].members[at].owned.iter().map(|(key, owned)| (key.clone(), *owned)).collect();
        if owned.is_empty() {
            return None;
        }
        let ((topic, partition), owned) = self.choice.pick(&owned);
        Some((TopicPartition { topic, partition }, (owned.topic, partition)))
    }

    pub(super) fn seek_member(&mut self, index: usize, at: usize) {
        let Some((name, slot)) = self.a_partition_of(index, at) else { return };
        let Some(partition) = self.partition(&name.topic, slot.0, slot.1) else { return };
        if self.choice.one_in(2) {
            return self.seek_to_first(index, at, &name);
        }
        let to = self.choice.between(partition.start().0, partition.last_stable().0);
        self.seek_member_to(index, at, &name, to);
    }

    pub(super) fn pause_member(&mut self, index: usize, at: usize) {
        let Some((name, _)) = self.a_partition_of(index, at) else { return };
        let resumes = self.choice.one_in(2);
        let consumer = self.groups[index].members[at].consumer();
        let outcome = if resumes { consumer.resume(Which::All) } else { consumer.pause(&name) };
        let what = if resumes { "reads all again" } else { "does not read" };
        self.trace.note(format_args!("{} {what} {name}: {outcome:?}", self.groups[index].members[at]));
    }
}
