//! Groups as those use them who ask: front ends, members that live here, and transactions that end in a group.
//!
//! ```text
//!   ask_group(command) ────────┐
//!   begin_commit, heartbeats ──┼─► the desk of its partition (group_desks.rs) ─► step ─► answer, once that is stored
//!   mark_in_group ─────────────┘
//! ```
//!
//! What stands here finds the desk, hands in what is asked, and waits, or leaves the answer to be looked for. What a desk is
//! told, and what it does by itself, stands in `group_desks.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Node;
use super::coordinator::{Asker, Input};
use super::desk::number_of;
use super::group_desks::GroupDesk;
use super::markers::{Ending, MarkerAsker};
use super::open::SEED_STRIDE;
use super::slot::Slot;
use crate::clock::{Moment, Now};
use crate::error::{Error, Result};
use crate::group::{Claim, Command, Committed, Heartbeat, Listing, OFFSETS_TOPIC, Position, Reply};
use crate::machine::ProducerIdentity;
use crate::mutants;
use crate::partition::Partition;
use crate::sync::Mutex;
use crate::types::{Offset, TopicId, TopicPartition};

/// What front ends ask for.
impl Node {
    /// Has the coordinator of a group decide, and answers once that is stored.
    pub(crate) fn ask_group(&self, group: &str, command: Command) -> Result<Reply> {
        self.ask_desk(self.desk_of(group)?, command, &[])
    }

    /// The same where there need not be a coordinator: nothing is made for a group that nobody has named before.
    fn ask_known_group(&self, group: &str, command: Command) -> Result<Option<Reply>> {
        self.check_open()?;
        match self.topic(OFFSETS_TOPIC) {
            Ok(_) => self.ask_group(group, command).map(Some),
            Err(Error::UnknownTopic { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores positions of these topics.
    pub(crate) fn commit_positions(
        &self,
        group: &str,
        member: Option<Claim>,
        (positions, topics): (Vec<(TopicPartition, Position)>, &[TopicId]),
        producer: Option<ProducerIdentity>,
    ) -> Result<()> {
        let command = Command::Commit { group: group.to_owned(), member, positions, producer };
        self.ask_desk(self.desk_of(group)?, command, topics).map(drop)
    }

    /// Begins to store positions of these topics, and waits for nothing.
    pub(crate) fn begin_commit(
        self: &Arc<Self>,
        group: &str,
        member: Option<Claim>,
        (positions, topics): (Vec<(TopicPartition, Position)>, &[TopicId]),
    ) -> Result<Committing> {
        let command = Command::Commit { group: group.to_owned(), member, positions, producer: None };
        let asker = self.leave_with(self.desk_of(group)?, command, topics)?;
        Ok(Committing { node: Arc::clone(self), group: group.to_owned(), asker })
    }

    /// What a group has committed, of these partitions or of all.
    pub(crate) fn committed(
        &self,
        group: &str,
        partitions: Option<Vec<TopicPartition>>,
        require_stable: bool,
    ) -> Result<Vec<(TopicPartition, Committed)>> {
        let fetch = Command::Fetch { group: group.to_owned(), partitions, require_stable };
        match self.ask_known_group(group, fetch)? {
            Some(Reply::Fetched(found)) => Ok(found),
            _ => Ok(Vec::new()),
        }
    }

    /// The positions of a group, those that are stored.
    pub(crate) fn stored_positions(&self, group: &str) -> Result<BTreeMap<TopicPartition, Position>> {
        let found = self.committed(group, None, false)?;
        Ok(found.into_iter().map(|(partition, committed)| (partition, committed.position)).collect())
    }

    /// The offsets of these.
    pub(crate) fn positions_of(&self, group: &str) -> Result<BTreeMap<TopicPartition, Offset>> {
        let found = self.stored_positions(group)?;
        Ok(found.into_iter().map(|(partition, position)| (partition, position.offset)).collect())
    }

    /// What is asked of a group that is there.
    pub(crate) fn ask_existing_group(&self, group: &str, command: Command) -> Result<Reply> {
        let unknown = || Error::UnknownGroup { group: group.to_owned() };
        self.ask_known_group(group, command)?.ok_or_else(unknown)
    }

    /// All groups, by name.
    pub(crate) fn list_groups(&self) -> Result<Vec<Listing>> {
        self.check_open()?;
        let mut all = Vec::new();
        for desk in self.groups.desks.all() {
            let is_used = {
                let locked = desk.lock();
                locked.desk.coordinator.generation().is_some() || locked.desk.coordinator.has_stopped()
            };
            if !is_used {
                continue;
            }
            if let Reply::Listed(listed) = self.ask_desk(desk, Command::List, &[])? {
                all.extend(listed);
            }
        }
        all.sort_by(|one, other| one.group.cmp(&other.group));
        Ok(all)
    }

    /// The records of the coordinators that could not be read.
    pub(crate) fn group_damage(&self) -> Vec<Error> {
        let desks = self.groups.desks.all().iter();
        desks.flat_map(|desk| desk.lock().desk.coordinator.damage().to_vec()).collect()
    }

    /// Makes the topic of the coordinators, where it is not there.
    pub(crate) fn ensure_groups(&self) -> Result<()> {
        self.ensure_desks::<GroupDesk>().map(drop)
    }

    /// The partition that a group's records are in.
    pub(crate) fn partition_of_group(&self, group: &str) -> Result<(TopicId, TopicPartition, Partition)> {
        let topic = self.topic_of_desks::<GroupDesk>()?;
        let number = number_of(group, topic.partitions.len());
        let name = TopicPartition { topic: OFFSETS_TOPIC.to_owned(), partition: number };
        Ok((topic.id, name, topic.partition(number)?.clone()))
    }

    /// A seed for what must be no other's in a group: also where a log is opened again with the seed that it had, for what
    /// was given out has left records.
    pub(super) fn seed_in_group(&self, group: &str) -> u64 {
        let end = self.groups.desks.of(group).map(|desk| desk.lock().desk.coordinator.partition().end());
        self.seed() ^ end.map_or(0, |end| end.0.wrapping_mul(SEED_STRIDE))
    }

    /// Has a coordinator be given a command, if the topics that it has positions in are still these; says when it has
    /// something to do, for whoever does not serve it.
    ///
    /// Records of positions have no ids of topics: whoever makes one of that name asks this coordinator to forget, and comes
    /// before the look at the ids or behind it.
    fn feed(
        &self,
        desk: &Mutex<GroupDesk>,
        command: Command,
        topics: &[TopicId],
    ) -> Result<(Asker<Reply>, Option<Moment>)> {
        let (asker, now) = (Asker::new(Slot::new()), self.now());
        let mut checked = Ok(());
        let due = self.turn_of(desk, now, |desk| {
            checked = self.check_topics(&command, topics);
            if checked.is_ok() {
                desk.step(self, now, Input::Command(command, Arc::clone(&asker)));
            }
        });
        checked.map(|()| (asker, due))
    }

    fn check_topics(&self, command: &Command, topics: &[TopicId]) -> Result<()> {
        let Command::Commit { positions, .. } = command else { return Ok(()) };
        let image = self.image.load();
        let is_gone = |name: &str, id| image.topic(name).is_none_or(|topic| topic.id != id);
        let mut named = positions.iter().map(|(partition, _)| &partition.topic).zip(topics);
        let gone = named.find(|(name, id)| is_gone(name, **id));
        gone.map_or(Ok(()), |(name, _)| Err(Error::UnknownTopic { name: name.clone() }))
    }

    fn ask_desk(&self, desk: &Mutex<GroupDesk>, command: Command, topics: &[TopicId]) -> Result<Reply> {
        let (asker, _) = self.feed(desk, command, topics)?;
        self.serve(desk, &asker);
        asker.wait()
    }

    /// Gives a command whose answer nobody waits for now.
    fn leave_with(&self, desk: &Mutex<GroupDesk>, command: Command, topics: &[TopicId]) -> Result<Asker<Reply>> {
        let (asker, due) = self.feed(desk, command, topics)?;
        self.note_due_by::<GroupDesk>(due);
        Ok(asker)
    }

    /// Hands a heartbeat to the coordinator. Also while the log closes.
    pub(super) fn send_heartbeat(&self, heartbeat: Heartbeat) -> Result<Asker<Reply>> {
        let desk = self.groups.desks.of(&heartbeat.group).ok_or(Error::Closed)?;
        self.leave_with(desk, Command::Heartbeat(Box::new(heartbeat)), &[])
    }

    /// Has the coordinators forget the positions in a topic that is not there, and store that. Their records have no ids of
    /// topics: once there is another of that name, whoever reads the records anew takes the positions for its own.
    pub(super) fn forget_positions_in(&self, topic: &str) -> Result<()> {
        for desk in self.groups.desks.all() {
            let is_spared = mutants::is_in(mutants::POSITIONS_INHERITED);
            let mut is_due = !is_spared && desk.lock().may_have_positions_in(topic);
            while is_due {
                self.ask_desk(desk, Command::ForgetTopic { topic: topic.to_owned() }, &[])?;
                is_due = desk.lock().has_positions_in(topic);
            }
        }
        Ok(())
    }

    /// Waits until something is answered that the coordinator of a group was asked.
    pub(super) fn serve_group<T>(&self, group: &str, slot: &Slot<T>) {
        if let Some(desk) = self.groups.desks.of(group) {
            self.serve(desk, slot);
        }
    }
}

/// A commit that is on its way.
#[derive(Debug)]
pub(crate) struct Committing {
    node: Arc<Node>,
    group: String,
    asker: Asker<Reply>,
}

impl Committing {
    /// What became of it, once, and if that is known.
    pub(crate) fn try_take(&self) -> Option<Result<()>> {
        self.asker.take().map(|reply| reply.map(drop))
    }

    /// What became of it, once that is known.
    pub(crate) fn wait(self) -> Result<()> {
        self.node.serve_group(&self.group, &self.asker);
        self.asker.wait().map(drop)
    }
}

/// What transactions end here.
impl Node {
    /// Has the coordinator of groups append a marker to its partition, where this is one.
    pub(super) fn mark_in_group(&self, name: &TopicPartition, ending: Ending, now: Now) -> Option<MarkerAsker> {
        if name.topic != OFFSETS_TOPIC {
            return None;
        }
        let desk = self.known_desks::<GroupDesk>().get(name.partition as usize)?;
        let asker = Arc::new(Slot::new());
        // Whom it concerns hears of it later: a desk of transactions is locked here.
        desk.lock().step(self, now, Input::Marker(ending, Arc::clone(&asker)));
        self.note_due(desk);
        Some(asker)
    }

    /// Waits until it is appended.
    pub(super) fn serve_group_of(&self, name: &TopicPartition, asker: &MarkerAsker) {
        if let Some(desk) = self.groups.desks.all().get(name.partition as usize) {
            self.serve(desk, asker);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
mod tests;
