//! The coordinators of groups as they run: what each is told, and what happens by itself.
//!
//! ```text
//!   asked (groups.rs) ──► a desk ─► step ─► those hear of it whom it concerns: members that live here (members.rs)
//!                          ▲
//!                          └── told: settings and topics, behind each load and whenever they change
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

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Node;
use super::coordinator::Input;
use super::desk::{AsDesk, Desk, Desks};
use super::members::Members;
use crate::clock::{Moment, Now};
use crate::config::GroupConfig;
use crate::controller::{Controller, is_internal};
use crate::group::{
    Action, Command, Coordinator as GroupMachine, Heartbeat, Intent, OFFSETS_PARTITIONS, OFFSETS_TOPIC, Reply, Report,
    Topic as GroupTopic, Topics as GroupTopics,
};
use crate::sync::{Arc as Pointer, Mutex};

/// Members report so soon behind a change of their group, and later the more of them there are.
const HURRY: Duration = Duration::from_millis(20);
const HURRY_EACH: Duration = Duration::from_millis(1);

/// The coordinators, by partition of their topic, and the members that live in this process.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) desks: Desks<GroupDesk>,
    config: GroupConfig,
    /// The topics as the coordinators are told of them, and the catalogue that they were made of.
    topics: Mutex<Option<(Pointer<Controller>, Arc<GroupTopics>)>>,
    pub(super) members: Members,
    /// What consumers that were dropped have left to be said.
    pub(super) leaving: Mutex<Vec<Heartbeat>>,
}

impl Groups {
    pub(super) fn new(config: GroupConfig) -> Self {
        let (members, leaving) = (Members::new(), Mutex::new(Vec::new()));
        Self { desks: Desks::new(), config, topics: Mutex::new(None), members, leaving }
    }
}

/// One coordinator.
#[derive(Debug)]
pub(super) struct GroupDesk {
    pub(super) desk: Desk<GroupMachine, Reply>,
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

    const TOPIC: &'static str = OFFSETS_TOPIC;
    const PARTITIONS: u32 = OFFSETS_PARTITIONS;
    /// What many members commit at once fits one batch.
    const BATCH_BYTES_MAX: u32 = 64 << 20;

    fn desks(node: &Node) -> &Desks<Self> {
        &node.groups.desks
    }

    fn open(desk: Desk<GroupMachine, Reply>) -> Self {
        Self { desk, told: None }
    }

    fn due(&self, now: Now) -> Option<Moment> {
        self.desk.due(now)
    }

    fn desk(&mut self) -> &mut Desk<GroupMachine, Reply> {
        &mut self.desk
    }
}

/// What is done without anybody asking.
impl Node {
    /// Reads what the coordinators know, and has every member of before leave.
    pub(super) fn recover_groups(&self) {
        let now = self.now();
        for desk in self.known_desks::<GroupDesk>() {
            let mut locked = desk.lock();
            if !locked.desk.coordinator.has_stopped() {
                continue;
            }
            locked.prepare(self, now);
            for heartbeat in locked.desk.coordinator.machine().map(leaves).unwrap_or_default() {
                locked.desk.order(now, Command::Heartbeat(Box::new(heartbeat)));
            }
            drop(locked);
            self.note_due(desk);
        }
    }

    /// When a coordinator or a member has something to do.
    pub(super) fn groups_due(&self) -> Option<Moment> {
        let Groups { desks, members, leaving, .. } = &self.groups;
        // At once is before any moment: whoever looks at the clock has done so already.
        let is_urgent = !leaving.lock().is_empty() || !desks.all().is_empty() && self.are_topics_new();
        let urgent = is_urgent.then(Moment::default);
        urgent.into_iter().chain(members.due.get()).chain(desks.due.get()).min()
    }

    /// Does what is due; says whether there was anything.
    pub(super) fn run_groups(&self, now: Now) -> bool {
        if self.groups_due().is_none_or(|due| due > now.monotonic) || self.check_open().is_err() {
            return false;
        }
        // The first that is told of new topics makes them known ones.
        let is_retold = self.are_topics_new();
        self.say_leaves();
        self.groups.members.drive(self, now.monotonic);
        if self.groups.desks.due.take(now.monotonic) || is_retold {
            for desk in self.groups.desks.all() {
                let due = self.turn_of(desk, now, |desk| desk.advance(self, now));
                self.note_due_by::<GroupDesk>(due);
            }
        }
        self.groups.members.collect(now.monotonic);
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
        let members = self.groups.members.all();
        let left = members.iter().filter_map(|membership| membership.part());
        for heartbeat in last_words.into_iter().chain(left) {
            drop(self.send_heartbeat(heartbeat));
        }
    }

    /// Does something to a coordinator, and has those hear of it whom it concerns; says when there is something to do next.
    pub(super) fn turn_of(
        &self,
        desk: &Mutex<GroupDesk>,
        now: Now,
        act: impl FnOnce(&mut GroupDesk),
    ) -> Option<Moment> {
        let (touched, due) = {
            let mut desk = desk.lock();
            act(&mut desk);
            (desk.take_touched(), desk.due(now))
        };
        self.hurry(&touched, now.monotonic);
        due
    }

    /// Has the members that live here report soon, of groups in which something has changed: what one has given back another
    /// waits for.
    fn hurry(&self, groups: &BTreeSet<String>, now: Moment) {
        if groups.is_empty() {
            return;
        }
        let members = self.groups.members.all();
        let members: Vec<_> = members.iter().filter(|member| groups.contains(member.group())).collect();
        // Many do not report all over again for each that comes.
        let by = now.after(HURRY + HURRY_EACH * u32::try_from(members.len()).unwrap_or(u32::MAX));
        for member in &members {
            member.hurry(now, by);
        }
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
    pub(super) fn may_have_positions_in(&self, topic: &str) -> bool {
        let coordinator = &self.desk.coordinator;
        let is_unsettled = coordinator.generation().is_some() && coordinator.settled().is_none();
        is_unsettled || coordinator.has_stopped() || self.has_positions_in(topic)
    }

    pub(super) fn has_positions_in(&self, topic: &str) -> bool {
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
        // Also where no machine can be made: topics that nobody has asked for are new ones, and urgent.
        let topics = node.group_topics();
        let Some(generation) = self.desk.coordinator.generation() else { return };
        let told = self.told.as_ref().filter(|told| told.generation == generation);
        let is_new = told.is_none();
        if told.is_some_and(|told| Arc::ptr_eq(&told.topics, &topics)) {
            return;
        }
        self.told = Some(Told { generation, topics: Arc::clone(&topics) });
        if is_new {
            self.desk.order(now, Command::Settings(node.groups.config));
        }
        self.desk.order(now, Command::Topics(topics));
    }

    /// Feeds one input to a machine that was told everything.
    pub(super) fn step(&mut self, node: &Node, now: Now, input: Input<Command, Reply>) {
        self.prepare(node, now);
        self.desk.step(now, input);
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
