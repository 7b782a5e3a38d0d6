//! What the consumers of groups have: partitions that come and go, from whom and to whom, and where each goes on.

use taffrail::{Clock, Isolation, StartAt, TopicPartition};

use super::members::{At, Habit, Owned};
use super::model::Slot;
use super::positions::Outcome;
use super::told::{News, Places};
use super::world::World;

impl World {
    /// Asks where it goes on where that was not known, and sees that it is nowhere else where it was.
    pub(super) fn look_at_positions(&mut self, index: usize, at: usize) {
        let keys: Vec<_> = self.groups[index].members[at].owned.keys().cloned().collect();
        for (topic, partition) in keys {
            let found = self.groups[index].members[at].consumer().position(&topic, partition);
            let name = TopicPartition { topic, partition };
            let owned = self.owned(index, at, &name);
            match found {
                Err(_) => {}
                Ok(found) => match owned.at {
                    At::Unknown => self.placed_at(index, at, &name, Some(found.offset.0)),
                    At::First(_) => self.set_at(index, at, &name, At::First(found.offset.0)),
                    At::Offset(due) => {
                        let member = &self.groups[index].members[at];
                        assert_eq!(found.offset.0, due, "{member} is elsewhere in {name}");
                    }
                },
            }
        }
    }

    pub(super) fn owned(&self, index: usize, at: usize, name: &TopicPartition) -> Owned {
        let member = &self.groups[index].members[at];
        let owned = member.owned.get(&(name.topic.clone(), name.partition));
        *owned.unwrap_or_else(|| panic!("{member} has {name}, which it was not given"))
    }

    pub(super) fn set_at(&mut self, index: usize, at: usize, name: &TopicPartition, to: At) {
        if let Some(owned) = self.groups[index].members[at].owned.get_mut(&(name.topic.clone(), name.partition)) {
            owned.at = to;
        }
    }

    /// Takes in what a consumer was told.
    pub(super) fn take_news(&mut self, index: usize, at: usize) {
        for news in self.groups[index].members[at].told.take() {
            self.take_one(index, at, news);
        }
    }

    pub(super) fn take_one(&mut self, index: usize, at: usize, news: News) {
        match news {
            News::Committed(number, outcome) => self.answered_later(index, at, number, &outcome),
            News::Revoked(names, places, committed) => {
                self.say_news(index, at, "gives back", &names);
                self.moved_on(index, at, &places);
                self.committed_by_itself(index, at);
                if let Some(outcome) = committed {
                    self.groups[index].members[at].given_up.surely = false;
                    let commit = self.begin_commit(index, at, true);
                    self.committed(index, at, &commit, &outcome, false);
                }
                self.gone(index, at, &names);
                self.trace.count("partitions given back");
            }
            News::Lost(names, committed) => {
                self.say_news(index, at, "loses", &names);
                assert!(committed.is_err(), "it has lost {names:?}, and has committed something");
                self.check_lost(index, at);
                self.gone(index, at, &names);
                self.trace.count("partitions lost");
            }
            News::Assigned(placed) => {
                let names: Vec<_> = placed.iter().map(|(name, _)| name.clone()).collect();
                self.say_news(index, at, "gets", &names);
                for (name, offset) in placed {
                    self.given(index, at, &name, offset);
                }
                self.trace.count("partitions assigned");
            }
        }
    }

    /// Within the poll it has passed what it is not to see, before it was asked.
    fn moved_on(&mut self, index: usize, at: usize, places: &Places) {
        for one in self.as_found(index, at) {
            let place = places.iter().find(|(name, _)| *name == one.name);
            if let Some(next) = place.and_then(|(_, next)| *next) {
                self.passed_to(index, at, &one, next);
            }
        }
    }

    /// Whoever commits by itself does so before it gives back, unless that fails.
    fn committed_by_itself(&mut self, index: usize, at: usize) {
        if let Habit::Automatic(..) = self.groups[index].members[at].habit {
            let commit = self.begin_commit(index, at, true);
            self.end_commit(index, &commit, Outcome::Unknown);
        }
    }

    fn say_news(&mut self, index: usize, at: usize, what: &str, names: &[TopicPartition]) {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        self.trace.note(format_args!("{} {what} {}", self.groups[index].members[at], names.join(" ")));
    }

    /// What is lost is lost for a reason.
    fn check_lost(&self, index: usize, at: usize) {
        let member = &self.groups[index].members[at];
        let is_sound = !self.excused && !self.model.groups[index].is_damaged;
        let is_late = member.has_lapsed || member.may_be_out(self.clock.monotonic());
        let reason = is_late || member.is_replaced();
        assert!(reason || !is_sound, "{member} has polled in time, and has lost something");
    }

    fn gone(&mut self, index: usize, at: usize, names: &[TopicPartition]) {
        let number = self.groups[index].members[at].number;
        for name in names {
            let key = (name.topic.clone(), name.partition);
            let Some(owned) = self.groups[index].members[at].owned.remove(&key) else { continue };
            let owners = &mut self.model.groups[index].owners;
            let slot = (owned.topic, name.partition);
            if owners.get(&slot) == Some(&number) {
                owners.remove(&slot);
            }
            let is_there = self.ask(&name.topic).is_some_and(|topic| topic.id == owned.topic);
            let given_up = &mut self.groups[index].members[at].given_up;
            given_up.perhaps |= owned.handed_out;
            let is_said = matches!(owned.at, At::Offset(offset) if owned.committed == Some(offset));
            given_up.surely |= owned.unsaid && is_there && !is_said;
        }
    }

    /// A partition is its own from now on.
    fn given(&mut self, index: usize, at: usize, name: &TopicPartition, offset: Option<u64>) {
        let topic = self.ask(&name.topic).unwrap_or_else(|| panic!("{name} is assigned, and is not there"));
        let (handed_out, unsaid) = (false, false);
        let owned = Owned { topic: topic.id, at: At::Unknown, committed: None, doubtful: false, handed_out, unsaid };
        let slot = (topic.id, name.partition);
        self.check_free(index, at, slot);
        let member = &mut self.groups[index].members[at];
        member.owned.insert((name.topic.clone(), name.partition), owned);
        let number = member.number;
        self.model.groups[index].owners.insert(slot, number);
        if offset.is_some() {
            self.placed_at(index, at, name, offset);
        }
    }

    /// Nobody has the partition who has polled within its time.
    fn check_free(&self, index: usize, at: usize, slot: Slot) {
        let group = &self.model.groups[index];
        let Some(owner) = group.owners.get(&slot) else { return };
        let members = &self.groups[index].members;
        let Some(owner) = members.iter().find(|member| member.number == *owner) else { return };
        let is_out =
            owner.may_be_out(self.clock.monotonic()) || owner.is_replaced() || owner.number == members[at].number;
        let is_sound = !self.excused && !group.is_damaged;
        assert!(is_out || !is_sound, "{} gets {slot:?}, which is {owner}'s", members[at]);
    }

    /// It goes on there in a partition that it was given.
    fn placed_at(&mut self, index: usize, at: usize, name: &TopicPartition, offset: Option<u64>) {
        let Some(offset) = offset else { return };
        let look = self.look_now(&name.topic, true);
        let owned = self.owned(index, at, name);
        if Some(owned.topic) != look.topic {
            return;
        }
        let slot = (owned.topic, name.partition);
        let Some(partition) = self.partition(&name.topic, slot.0, slot.1) else { return };
        if !self.model.groups[index].is_damaged {
            self.model.check_stable(index, name, look);
        }
        let is_committed = self.model.may_be_found(index, name, look, Some(offset));
        let may_be_none = self.model.may_be_found(index, name, look, None) || self.may_have_expired(index, name);
        let is_all = self.groups[index].isolation == Isolation::Uncommitted;
        let stable = if is_all { partition.high_watermark() } else { partition.last_stable() };
        let (start, stable) = (partition.start().0, stable.max(partition.start()).0);
        let begins_late = self.groups[index].start_at == StartAt::Latest;
        // What has come since it did is read from its first record on.
        let is_newer = self.groups[index].members[at].is_older_than(slot);
        let is_latest = begins_late && !is_newer;
        let is_begin = offset == if is_latest { stable } else { start };
        let is_damaged = self.model.groups[index].is_damaged;
        let (to, doubtful, committed) = if (is_damaged || is_committed && may_be_none) && is_begin {
            let to = if is_latest { At::Offset(offset) } else { At::First(offset) };
            (to, true, None)
        } else if is_committed || !(may_be_none && is_begin) {
            let mark = self.found_at(index, name, Some(offset), true);
            (At::Offset(offset), mark.is_none_or(|mark| mark.doubtful), Some(offset))
        } else {
            self.found_at(index, name, None, true);
            if begins_late && is_newer && start < stable {
                self.trace.count("beginnings before what has come");
            }
            (if is_latest { At::Offset(offset) } else { At::First(offset) }, false, None)
        };
        let group = &mut self.model.groups[index];
        if doubtful || is_latest && committed.is_none() {
            group.leaves_out(slot, offset);
        }
        let member = &mut self.groups[index].members[at];
        let owned = Owned { at: to, committed, doubtful, ..owned };
        member.owned.insert((name.topic.clone(), name.partition), owned);
        let line = format!("{member} begins {name} at {to:?}");
        self.trace.note(line);
    }

    /// It has what it was told, and nothing else.
    pub(super) fn check_assignment(&mut self, index: usize, at: usize) {
        let member = &mut self.groups[index].members[at];
        let assigned: Vec<_> = member.consumer().assignment();
        let told = member.owned.keys().map(|(topic, partition)| (topic.as_str(), *partition));
        let is_told = told.eq(assigned.iter().map(|one| (one.topic.as_str(), one.partition)));
        assert!(is_told, "{member} has {assigned:?}, and was told {:?}", member.owned.keys());
    }
}
