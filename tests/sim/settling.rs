//! The faults are over: within bounded time every partition that a group reads is somebody's, and is read to its end; and
//! nothing was left out.

use std::collections::BTreeSet;
use std::time::Duration;

use taffrail::{TopicPartition, Which};

use super::members::{At, Habit};
use super::world::World;

/// So much more than the longest silence that is allowed may pass.
const SLACK: u64 = 20;
/// The longest time between two polls of a consumer.
const SILENCE_MAX: u64 = 30;

impl World {
    /// Every commit is answered.
    pub(super) fn settle_commits(&mut self) {
        for index in 0..self.groups.len() {
            for at in 0..self.groups[index].members.len() {
                self.look_at_positions(index, at);
                self.commit_now(index, at);
            }
        }
    }

    pub(super) fn settle_groups(&mut self) {
        for index in 0..self.groups.len() {
            self.settle_members(index);
            self.read_to_the_end(index);
            for at in 0..self.groups[index].members.len() {
                let is_heard = !self.groups[index].members[at].is_silent;
                assert!(!is_heard || self.commit_now(index, at), "positions are not committed on a sound disk");
            }
            self.observe_group(index);
            self.check_nothing_left_out(index);
        }
    }

    /// Those that are silent stay so, or go; somebody is there.
    fn settle_members(&mut self, index: usize) {
        for at in (0..self.groups[index].members.len()).rev() {
            let is_silent = self.groups[index].members[at].is_silent;
            if self.choice.one_in(4) || is_silent && self.choice.one_in(2) {
                self.drop_member(index, at);
            }
        }
        for at in 0..self.groups[index].members.len() {
            let outcome = self.groups[index].members[at].consumer().resume(Which::All);
            outcome.expect("the log is open");
        }
    }

    fn read_to_the_end(&mut self, index: usize) {
        let seconds = self.plan.session.as_secs() + SILENCE_MAX + SLACK;
        let most = 1_000 + 2 * self.model.sent.len();
        for _ in 0..seconds {
            self.advance(Duration::from_secs(1));
            self.log().tick();
            // What is synced is looked after a little later.
            self.advance(Duration::from_millis(10));
            self.log().tick();
            // Who was told that another has its instance id polls no more.
            if self.groups[index].members.iter().all(|member| member.is_silent) {
                self.open_member_as(index, Habit::Waits, None, Duration::from_secs(SILENCE_MAX), false);
            }
            let polls = (0..most).take_while(|_| self.poll_all(index)).count();
            assert!(polls < most, "{} never comes to an end", self.groups[index].name);
            if self.missing(index).is_empty() {
                return;
            }
        }
        let missing = self.missing(index);
        panic!("{} does not read {missing:?} after {seconds} s", self.groups[index].name);
    }

    /// The partitions that nobody has read to their ends.
    fn missing(&mut self, index: usize) -> BTreeSet<String> {
        let mut missing = BTreeSet::new();
        for name in self.names() {
            let Some(topic) = self.ask(name).filter(|_| self.groups[index].wants(name)) else { continue };
            for number in (0..).take(topic.partitions.len()) {
                let Some(partition) = self.partition(name, topic.id, number) else { continue };
                let end = partition.high_watermark().0;
                let members = self.groups[index].members.iter().filter(|member| !member.is_silent);
                let mut owned = members.filter_map(|member| member.owned.get(&((*name).to_owned(), number)));
                let is_read = owned.any(|owned| {
                    owned.topic == topic.id && matches!(owned.at, At::Offset(at) | At::First(at) if at == end)
                });
                if !is_read {
                    missing.insert(format!("{name}-{number}"));
                }
            }
        }
        missing
    }

    /// What is there below the group's position was handed out to somebody.
    fn check_nothing_left_out(&mut self, index: usize) {
        for name in self.names() {
            let Some(topic) = self.ask(name).filter(|_| self.groups[index].wants(name)) else { continue };
            for number in (0..).take(topic.partitions.len()) {
                let slot = (topic.id, number);
                let Some(partition) = self.partition(name, topic.id, number) else { continue };
                let Some(picture) = self.look(slot, &partition) else { continue };
                let group = &self.model.groups[index];
                let begin = group.left_out.get(&slot).copied().unwrap_or(0);
                let is_due = |(offset, serial): &(u64, u64)| {
                    let is_hidden =
                        self.model.is_aborted(*serial) || self.model.may_have_lost_its_marker(slot, *serial);
                    *offset >= begin && !is_hidden && !group.handed.contains(serial)
                };
                let left_out = picture.records().find(is_due);
                let name = TopicPartition { topic: topic.name.clone(), partition: number };
                assert!(left_out.is_none(), "nobody of {} was given {left_out:?} of {name}", self.groups[index].name);
            }
        }
    }
}
