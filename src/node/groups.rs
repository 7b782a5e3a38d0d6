//! The coordinators of groups: which one has a group, what it is told, and what happens by itself.
//!
//! ```text
//!   ask_group(command) ─► the desk of its partition ─► step ─► answer, once that is stored
//!   heartbeats (members.rs) ─────────┘    ▲
//!                                         └── told: settings and topics, behind each load and whenever they change
//!   timed thread, tick, open: leaves of consumers that were dropped, heartbeats, what is stored, ticks, in this order
//! ```
//!
//! Members report at intervals, as everywhere; those that live here are told to report at once where something in their
//! group has changed, so that partitions change hands in the time that it takes to poll and to sync.
//!
//! What has arrived is decided before anything expires. Where a log opens, no member of before can be alive: the process
//! that had it is gone, or its lock would be there. All leave: those with an instance id for now, as if they had closed.
//!
//! Order of locks: a member's is taken before none and after none; a desk's before a partition's, and after one of the
//! transactions' desks at most.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::coordinator::{Asker, Coordinator, Input};
use super::desk::{AsDesk, Desk, Desks, serve, serve_until};
use super::markers::{Ending, MarkerAsker};
use super::members::Membership;
use super::open::SEED_STRIDE;
use super::slot::Slot;
use super::{Node, Topic};
use crate::clock::{Moment, Now};
use crate::config::{Cleanup, GroupConfig, TopicConfig};
use crate::controller::{Command as Administration, Controller, is_internal};
use crate::error::{Error, Result};
use crate::group::{
    Action, Claim, Command, Committed, Coordinator as GroupMachine, Heartbeat, Intent, Listing, OFFSETS_PARTITIONS,
    OFFSETS_TOPIC, Position, Reply, Report, Settings, Topic as GroupTopic, Topics as GroupTopics,
};
use crate::machine::ProducerIdentity;
use crate::machine::home::partition_of;
use crate::mutants;
use crate::partition::Partition;
use crate::sync::{Arc as Pointer, Mutex};
use crate::types::{Offset, TopicId, TopicPartition};

/// What many members commit at once fits one batch.
const OFFSETS_BATCH_BYTES_MAX: u32 = 64 << 20;
const OFFSETS_SEGMENT_BYTES: u32 = 100 << 20;
/// Members report so soon behind a change of their group, and later the more of them there are.
const HURRY: Duration = Duration::from_millis(20);
const HURRY_EACH: Duration = Duration::from_millis(1);

/// The coordinators, by partition of their topic, and the members that live in this process.
#[derive(Debug)]
pub(super) struct Groups {
    desks: Desks<GroupDesk>,
    settings: Settings,
    /// The topics as the coordinators are told of them, and the catalogue that they were made of.
    topics: Mutex<Option<(Pointer<Controller>, Arc<GroupTopics>)>>,
    pub(super) members: Mutex<Vec<Weak<Membership>>>,
    /// What consumers that were dropped have left to be said.
    pub(super) leaving: Mutex<Vec<Heartbeat>>,
}

impl Groups {
    pub(super) fn new(config: GroupConfig) -> Self {
        let GroupConfig { session_timeout, heartbeat_interval, offsets_retention, members_max } = config;
        let settings = Settings { session_timeout, heartbeat_interval, offsets_retention, members_max };
        let (members, leaving) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        Self { desks: Desks::new(), settings, topics: Mutex::new(None), members, leaving }
    }
}

/// One coordinator.
#[derive(Debug)]
struct GroupDesk {
    desk: Desk<GroupMachine, Reply>,
    told: Option<Told>,
}

/// What a machine was told.
#[derive(Debug)]
struct Told {
    generation: u64,
    topics: Arc<GroupTopics>,
}

impl AsDesk for GroupDesk {
    type Machine = GroupMachine;
    type Reply = Reply;

    fn desk(&mut self) -> &mut Desk<GroupMachine, Reply> {
        &mut self.desk
    }
}

/// What front ends ask for.
impl Node {
    /// Has the coordinator of a group decide, and answers once that is stored.
    pub(crate) fn ask_group(&self, group: &str, command: Command) -> Result<Reply> {
        let desk = self.group_desk(group)?;
        let asker = self.submit_to_group(desk, command);
        let reply = serve(desk, &asker, || self.now());
        self.note_group_due(desk);
        reply
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

    /// Stores positions.
    pub(crate) fn commit_positions(
        &self,
        group: &str,
        member: Option<Claim>,
        positions: Vec<(TopicPartition, Position)>,
        producer: Option<ProducerIdentity>,
    ) -> Result<()> {
        let group_name = group.to_owned();
        self.ask_group(group, Command::Commit { group: group_name, member, positions, producer }).map(drop)
    }

    /// Begins to store positions, and waits for nothing.
    pub(crate) fn begin_commit(
        self: &Arc<Self>,
        group: &str,
        member: Option<Claim>,
        positions: Vec<(TopicPartition, Position)>,
    ) -> Result<Committing> {
        let desk = self.group_desk(group)?;
        let group = group.to_owned();
        let command = Command::Commit { group: group.clone(), member, positions, producer: None };
        let asker = self.submit_to_group(desk, command);
        self.note_group_due(desk);
        Ok(Committing { node: Arc::clone(self), group, asker })
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
    pub(crate) fn positions_of(&self, group: &str) -> Result<BTreeMap<TopicPartition, Offset>> {
        let found = self.committed(group, None, false)?;
        Ok(found.into_iter().map(|(partition, committed)| (partition, committed.position.offset)).collect())
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
            let asker = self.submit_to_group(desk, Command::List);
            if let Reply::Listed(listed) = serve(desk, &asker, || self.now())? {
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
        self.check_open()?;
        self.open_group_desks(&*self.offsets_topic()?);
        Ok(())
    }

    /// The partition that a group's records are in.
    pub(crate) fn partition_of_group(&self, group: &str) -> Result<(TopicId, TopicPartition, Partition)> {
        let topic = self.offsets_topic()?;
        let count = u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
        let number = partition_of(group, count);
        let name = TopicPartition { topic: OFFSETS_TOPIC.to_owned(), partition: number };
        Ok((topic.id, name, topic.partition(number)?.clone()))
    }

    /// A seed for what must be no other's in a group: also where a log is opened again with the seed that it had, for what
    /// was given out has left records.
    pub(super) fn seed_in_group(&self, group: &str) -> u64 {
        let end = self.known_group_desk(group).map(|desk| desk.lock().desk.coordinator.partition().end());
        self.seed() ^ end.map_or(0, |end| end.0.wrapping_mul(SEED_STRIDE))
    }

    fn group_desk(&self, group: &str) -> Result<&Mutex<GroupDesk>> {
        self.check_open()?;
        if self.groups.desks.all().is_empty() {
            self.ensure_groups()?;
        }
        self.known_group_desk(group).ok_or(Error::Closed)
    }

    fn known_group_desk(&self, group: &str) -> Option<&Mutex<GroupDesk>> {
        let desks = self.groups.desks.all();
        let count = u32::try_from(desks.len()).ok().filter(|count| *count > 0)?;
        desks.get(partition_of(group, count) as usize)
    }

    fn open_group_desks(&self, topic: &Topic) -> &[Mutex<GroupDesk>] {
        let open = |partition: &Partition| {
            let coordinator = Coordinator::new(partition.clone(), Arc::clone(&self.clock));
            Mutex::new(GroupDesk { desk: Desk::new(coordinator), told: None })
        };
        self.groups.desks.or_open(|| topic.partitions.iter().map(open).collect())
    }

    /// The topic of the coordinators' records; made where it is not there.
    fn offsets_topic(&self) -> Result<Arc<Topic>> {
        if let Ok(topic) = self.topic(OFFSETS_TOPIC) {
            return Ok(topic);
        }
        let config = TopicConfig::new()
            .partitions(OFFSETS_PARTITIONS)
            .cleanup(Cleanup::Compact)
            .segment_bytes(OFFSETS_SEGMENT_BYTES)
            .batch_bytes_max(OFFSETS_BATCH_BYTES_MAX);
        let (name, id) = (OFFSETS_TOPIC.to_owned(), self.new_topic_id());
        self.administer(OFFSETS_TOPIC, Administration::EnsureInternal { name, id, config })?;
        self.topic(OFFSETS_TOPIC)
    }

    /// Has a coordinator decide a command.
    fn submit_to_group(&self, desk: &Mutex<GroupDesk>, command: Command) -> Asker<Reply> {
        let asker = Arc::new(Slot::new());
        let now = self.now();
        let touched = {
            let mut desk = desk.lock();
            desk.prepare(self, now);
            desk.desk.step(now, Input::Command(command, Arc::clone(&asker)));
            desk.take_touched()
        };
        self.hurry(&touched, now.monotonic);
        asker
    }

    /// Has the members that live here report soon, of groups in which something has changed: what one has given back another
    /// waits for.
    fn hurry(&self, groups: &BTreeSet<String>, now: Moment) {
        if groups.is_empty() {
            return;
        }
        let members = self.memberships();
        let members: Vec<_> = members.iter().filter(|member| groups.contains(member.group())).collect();
        // Many do not report all over again for each that comes.
        let by = now.after(HURRY + HURRY_EACH * u32::try_from(members.len()).unwrap_or(u32::MAX));
        for member in &members {
            member.hurry(by);
        }
        if !members.is_empty() {
            self.wake();
        }
    }

    /// Hands a heartbeat to the coordinator. Also while the log closes.
    pub(super) fn send_heartbeat(&self, heartbeat: Heartbeat) -> Result<Asker<Reply>> {
        let desk = self.known_group_desk(&heartbeat.group).ok_or(Error::Closed)?;
        let asker = self.submit_to_group(desk, Command::Heartbeat(Box::new(heartbeat)));
        self.note_group_due(desk);
        Ok(asker)
    }

    /// Has the coordinators forget the positions in a topic that is not there, and store that. Their records have no ids of
    /// topics: once there is another of that name, whoever reads the records anew takes the positions for its own.
    pub(super) fn forget_positions_in(&self, topic: &str) -> Result<()> {
        for desk in self.groups.desks.all() {
            let is_spared = mutants::is_in(mutants::POSITIONS_INHERITED);
            let mut is_due = !is_spared && desk.lock().may_have_positions_in(topic);
            while is_due {
                let asker = self.submit_to_group(desk, Command::ForgetTopic { topic: topic.to_owned() });
                let reply = serve(desk, &asker, || self.now());
                self.note_group_due(desk);
                reply?;
                is_due = desk.lock().has_positions_in(topic);
            }
        }
        Ok(())
    }

    /// Waits until something is answered that the coordinator of a group was asked.
    pub(super) fn serve_group<T>(&self, group: &str, slot: &Slot<T>) {
        if let Some(desk) = self.known_group_desk(group) {
            serve_until(desk, slot, || self.now());
            self.note_group_due(desk);
        }
    }

    fn note_group_due(&self, desk: &Mutex<GroupDesk>) {
        let due = desk.lock().desk.due(self.now());
        if due.is_some_and(|due| self.groups.desks.is_due_by(due)) {
            self.wake();
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
        let topic = self.topics.load().get(OFFSETS_TOPIC).cloned()?;
        let desk = self.open_group_desks(&topic).get(name.partition as usize)?;
        let asker = Arc::new(Slot::new());
        let mut locked = desk.lock();
        locked.prepare(self, now);
        locked.desk.step(now, Input::Marker(ending, Arc::clone(&asker)));
        drop(locked);
        self.note_group_due(desk);
        Some(asker)
    }

    /// Waits until it is appended.
    pub(super) fn serve_group_until(&self, name: &TopicPartition, asker: &MarkerAsker) {
        if let Some(desk) = self.groups.desks.all().get(name.partition as usize) {
            serve_until(desk, asker, || self.now());
            self.note_group_due(desk);
        }
    }
}

/// What is done without anybody asking.
impl Node {
    /// Reads what the coordinators know, and has every member of before leave.
    pub(super) fn recover_groups(&self) {
        let Ok(topic) = self.topic(OFFSETS_TOPIC) else { return };
        let now = self.now();
        for desk in self.open_group_desks(&topic) {
            let mut locked = desk.lock();
            if !locked.desk.coordinator.has_stopped() {
                continue;
            }
            locked.prepare(self, now);
            for heartbeat in locked.desk.coordinator.machine().map(leaves).unwrap_or_default() {
                locked.desk.order(now, Command::Heartbeat(Box::new(heartbeat)));
            }
            drop(locked);
            self.note_group_due(desk);
        }
    }

    /// When a coordinator or a member has something to do.
    pub(super) fn groups_due(&self) -> Option<Moment> {
        let now = || self.clock.monotonic();
        let members = self.memberships().iter().filter_map(|membership| membership.due(now())).min();
        let leaving = (!self.groups.leaving.lock().is_empty()).then(now);
        let retold = (!self.groups.desks.all().is_empty() && self.are_topics_new()).then(now);
        members.into_iter().chain(leaving).chain(retold).chain(self.groups.desks.due()).min()
    }

    /// Does what is due; says whether there was anything.
    pub(super) fn run_groups(&self, now: Now) -> bool {
        if self.groups_due().is_none_or(|due| due > now.monotonic) || self.check_open().is_err() {
            return false;
        }
        // The first that is told of new topics makes them known ones.
        let is_retold = self.are_topics_new();
        self.say_leaves();
        let members = self.memberships();
        for membership in members.iter().filter(|one| one.due(now.monotonic).is_some_and(|due| due <= now.monotonic)) {
            membership.drive(now.monotonic);
        }
        if self.groups.desks.take_due(now.monotonic) || is_retold {
            for desk in self.groups.desks.all() {
                let touched = {
                    let mut desk = desk.lock();
                    desk.advance(self, now);
                    desk.take_touched()
                };
                self.hurry(&touched, now.monotonic);
                self.note_group_due(desk);
            }
        }
        for membership in &members {
            membership.collect(now.monotonic);
        }
        true
    }

    /// Says what consumers that were dropped have left to be said.
    pub(super) fn say_leaves(&self) {
        // The lock is given back first: whoever is told here may be the last to hold a member, which then leaves, too.
        let leaving = std::mem::take(&mut *self.groups.leaving.lock());
        for heartbeat in leaving {
            drop(self.send_heartbeat(heartbeat));
        }
    }

    /// The members leave, since the log closes. What they say is stored with their partition.
    pub(super) fn close_groups(&self) {
        let last_words = std::mem::take(&mut *self.groups.leaving.lock());
        let members = self.memberships();
        let left = members.iter().filter_map(|membership| membership.part());
        for heartbeat in last_words.into_iter().chain(left) {
            drop(self.send_heartbeat(heartbeat));
        }
    }

    pub(super) fn memberships(&self) -> Vec<Arc<Membership>> {
        let mut members = self.groups.members.lock();
        members.retain(|member| member.strong_count() > 0);
        members.iter().filter_map(Weak::upgrade).collect()
    }

    fn are_topics_new(&self) -> bool {
        let told = self.groups.topics.lock();
        let image = self.image.load();
        told.as_ref().is_none_or(|(known, _)| !Pointer::ptr_eq(known, &image))
    }

    /// The topics as coordinators are told of them: the same ones as long as nothing of them changes.
    fn group_topics(&self) -> Arc<GroupTopics> {
        let image = self.image.load();
        let mut told = self.groups.topics.lock();
        if let Some((known, topics)) = &mut *told {
            if !Pointer::ptr_eq(known, &image) {
                let now = topics_of(&image);
                *known = image;
                if **topics != now {
                    *topics = Arc::new(now);
                }
            }
            return Arc::clone(topics);
        }
        let topics = Arc::new(topics_of(&image));
        *told = Some((image, Arc::clone(&topics)));
        topics
    }
}

fn topics_of(image: &Controller) -> GroupTopics {
    let topic = |state: &crate::controller::TopicState| {
        let (id, partitions, is_internal) = (state.id, state.config.partitions, is_internal(&state.name));
        (state.name.clone(), GroupTopic { id, partitions, racks: Vec::new(), is_internal })
    };
    GroupTopics(image.topics().map(topic).collect())
}

/// What every member says that cannot be alive.
fn leaves(machine: &GroupMachine) -> Vec<Heartbeat> {
    let leave = |(group, member): (&String, &String)| Heartbeat {
        group: group.clone(),
        member: member.clone(),
        intent: Intent::LeaveForNow,
        details: crate::group::Details::default(),
        report: Report::default(),
    };
    machine.members().map(leave).collect()
}

impl GroupDesk {
    /// Whether its records may have positions in a topic, those that are stored or those that are not.
    fn may_have_positions_in(&self, topic: &str) -> bool {
        let coordinator = &self.desk.coordinator;
        let is_unsettled = coordinator.generation().is_some() && coordinator.settled().is_none();
        is_unsettled || coordinator.has_stopped() || self.has_positions_in(topic)
    }

    fn has_positions_in(&self, topic: &str) -> bool {
        self.desk.coordinator.machine().is_some_and(|machine| machine.has_positions_in(topic))
    }

    /// Makes the machine where there is none, and tells it what no record says.
    fn prepare(&mut self, node: &Node, now: Now) {
        let coordinator = &self.desk.coordinator;
        if coordinator.generation().is_none() || coordinator.partition().is_poisoned() {
            self.desk.step(now, Input::Load);
        }
        self.tell(node, now);
    }

    fn tell(&mut self, node: &Node, now: Now) {
        let Some(generation) = self.desk.coordinator.generation() else { return };
        let topics = node.group_topics();
        let told = self.told.as_ref().filter(|told| told.generation == generation);
        let is_new = told.is_none();
        if told.is_some_and(|told| Arc::ptr_eq(&told.topics, &topics)) {
            return;
        }
        self.told = Some(Told { generation, topics: Arc::clone(&topics) });
        if is_new {
            self.desk.order(now, Command::Settings(node.groups.settings));
        }
        self.desk.order(now, Command::Topics(topics));
    }

    fn take_touched(&mut self) -> BTreeSet<String> {
        self.desk.coordinator.machine_mut().map(GroupMachine::take_touched).unwrap_or_default()
    }

    /// Goes on with everything as far as nothing has to be waited for.
    fn advance(&mut self, node: &Node, now: Now) {
        if self.desk.coordinator.has_stopped() {
            self.prepare(node, now);
        } else {
            self.tell(node, now);
        }
        self.desk.look_after_tasks(now);
        // A tick goes by what the machine holds, as every command does: what is on its way need not be waited for.
        let actions = self.desk.coordinator.machine().map(|machine| crate::machine::Machine::actions(machine, now));
        for action in actions.unwrap_or_default() {
            let command = match action {
                Action::Tick => Command::Tick,
                Action::Expire => Command::Expire,
            };
            self.desk.order(now, command);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
mod tests;
