//! Coordinators as several threads use them: who asks waits for its answer, and does meanwhile what has to be waited for.
//!
//! ```text
//!   ask ─► step ─► tasks ─┬─ by whoever waits for an answer that rests on them ([`serve`]): one at a time, the others sleep
//!                         └─ where nobody waits: looked after by the timed thread, once their partition has synced
//! ```
//!
//! Who has its answer goes, and wakes another of those that wait: nobody works for the others longer than for itself.
//!
//! There are two kinds of coordinators, of transactions and of groups ([`AsDesk`]): each has a topic of which every partition
//! is one's, and a name that is asked for (of a group, a transactional id) hashes to one of them ([`Node::desk_of`]).
//!
//! ```text
//!   desks are noted to be due ([`Node::note_due`]) ─► the earliest of their kind ─► the timed thread asks all, and notes again
//! ```

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::coordinator::{Asker, Coordinator, Input, Task};
use super::due::Due;
use super::slot::Slot;
use super::{Node, Topic};
use crate::clock::{Moment, Now};
use crate::config::{Cleanup, TopicConfig};
use crate::controller::Command;
use crate::error::{Error, Result};
use crate::machine::Recorded;
use crate::machine::home::partition_of;
use crate::partition::Partition;
use crate::sync::Mutex;

/// A machine that could not be made is tried again after so long.
const REVIVE: Duration = Duration::from_millis(100);
/// What nobody waits for is looked after so often; partitions sync it sooner.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// As large as Kafka's of both topics.
const SEGMENT_BYTES: u32 = 100 << 20;

/// The desks of one kind, by partition of their topic; none until the topic is there.
#[derive(Debug)]
pub(super) struct Desks<D> {
    desks: OnceLock<Vec<Mutex<D>>>,
    /// When any of them has something to do.
    pub(super) due: Due,
}

impl<D: AsDesk> Desks<D> {
    pub(super) const fn new() -> Self {
        Self { desks: OnceLock::new(), due: Due::never() }
    }

    pub(super) fn all(&self) -> &[Mutex<D>] {
        self.desks.get().map_or(&[], Vec::as_slice)
    }

    /// The one that has a name; `None` where there are none.
    pub(super) fn of(&self, name: &str) -> Option<&Mutex<D>> {
        let desks = self.all();
        desks.get(number_of(name, desks.len()) as usize)
    }

    fn or_open(&self, node: &Node, topic: &Topic) -> &[Mutex<D>] {
        let coordinator = |partition: &Partition| Coordinator::new(partition.clone(), Arc::clone(&node.clock));
        let open = |partition| Mutex::new(D::open(Desk { coordinator: coordinator(partition), tasks: Vec::new() }));
        self.desks.get_or_init(|| topic.partitions.iter().map(open).collect())
    }
}

/// A kind of coordinators: what each has beside its tasks.
pub(super) trait AsDesk: Sized {
    type Machine: Recorded<Reply = Result<Self::Reply>> + Default;
    type Reply;

    /// The topic of their records.
    const TOPIC: &'static str;
    /// How many partitions it is made with.
    const PARTITIONS: u32;
    const BATCH_BYTES_MAX: u32;

    /// All of the kind.
    fn desks(node: &Node) -> &Desks<Self>;

    fn open(desk: Desk<Self::Machine, Self::Reply>) -> Self;

    /// When it has something to do.
    fn due(&self, now: Now) -> Option<Moment>;

    fn desk(&mut self) -> &mut Desk<Self::Machine, Self::Reply>;
}

/// One coordinator, and what is to be waited for.
#[derive(Debug)]
pub(super) struct Desk<M: Recorded<Reply = Result<R>>, R> {
    pub(super) coordinator: Coordinator<M, R>,
    tasks: Vec<Task>,
}

impl<M: Recorded<Reply = Result<R>> + Default, R> Desk<M, R> {
    /// Feeds one input; what has to be waited for then is done by whoever serves.
    pub(super) fn step(&mut self, now: Now, input: Input<M::Command, R>) {
        let tasks = self.coordinator.step(now, input);
        self.tasks.extend(tasks);
    }

    /// A command that nobody waits for the answer of.
    pub(super) fn order(&mut self, now: Now, command: M::Command) -> Asker<R> {
        let asker = Asker::new(Slot::new());
        self.step(now, Input::Command(command, Asker::clone(&asker)));
        asker
    }

    /// A machine that was dropped since its records could not be written is made anew: what it has decided is to be
    /// carried out, and what is open to time out, whether or not anybody asks.
    pub(super) fn revive(&mut self, now: Now) {
        if self.coordinator.has_stopped() {
            self.step(now, Input::Load);
        }
    }

    /// Goes on with what is stored by now.
    pub(super) fn look_after_tasks(&mut self, now: Now) {
        for task in std::mem::take(&mut self.tasks) {
            match self.coordinator.partition().try_stored(task.receipt) {
                Some(stored) => self.step(now, Input::Stored(task.ticket, stored)),
                None => self.tasks.push(task),
            }
        }
    }

    pub(super) fn due(&self, now: Now) -> Option<Moment> {
        let tasks = (!self.tasks.is_empty()).then(|| now.monotonic.after(LOOK_AGAIN));
        let stopped = self.coordinator.has_stopped().then(|| now.monotonic.after(REVIVE));
        tasks.into_iter().chain(stopped).chain(self.coordinator.deadline()).min()
    }
}

/// Which desk, and when it is due.
impl Node {
    /// The topic of a kind of coordinators; made where it is not there.
    pub(super) fn topic_of_desks<D: AsDesk>(&self) -> Result<Arc<Topic>> {
        if let Ok(topic) = self.topic(D::TOPIC) {
            return Ok(topic);
        }
        let config = TopicConfig::new().partitions(D::PARTITIONS).cleanup(Cleanup::Compact);
        let config = config.segment_bytes(SEGMENT_BYTES).batch_bytes_max(D::BATCH_BYTES_MAX);
        let (name, id) = (D::TOPIC.to_owned(), self.new_topic_id());
        self.administer(D::TOPIC, Command::EnsureInternal { name, id, config })?;
        self.topic(D::TOPIC)
    }

    /// The coordinators of a kind; their topic is made where it is not there.
    pub(super) fn ensure_desks<D: AsDesk>(&self) -> Result<&[Mutex<D>]> {
        self.check_open()?;
        match D::desks(self).all() {
            [] => Ok(D::desks(self).or_open(self, &*self.topic_of_desks::<D>()?)),
            known => Ok(known),
        }
    }

    /// The coordinators of a kind; none where their topic is not there. Also while the log closes.
    pub(super) fn known_desks<D: AsDesk>(&self) -> &[Mutex<D>] {
        match (D::desks(self).all(), self.topics.load().get(D::TOPIC)) {
            ([], Some(topic)) => D::desks(self).or_open(self, topic),
            (known, _) => known,
        }
    }

    /// The coordinator that has a name; made with its topic where there is none.
    pub(super) fn desk_of<D: AsDesk>(&self, name: &str) -> Result<&Mutex<D>> {
        self.ensure_desks::<D>()?;
        D::desks(self).of(name).ok_or(Error::Closed)
    }

    /// Waits as [`serve`] does, where nothing follows that notes when the desk is due.
    pub(super) fn serve<D: AsDesk, T>(&self, desk: &Mutex<D>, slot: &Slot<T>) {
        serve(desk, slot, || self.now());
        self.note_due(desk);
    }

    /// Whoever runs the coordinators knows from now on when this one has something to do.
    pub(super) fn note_due<D: AsDesk>(&self, desk: &Mutex<D>) {
        let due = desk.lock().due(self.now());
        self.note_due_by::<D>(due);
    }

    /// The same of one that was asked already.
    pub(super) fn note_due_by<D: AsDesk>(&self, due: Option<Moment>) {
        if due.is_some_and(|due| D::desks(self).due.is_by(due)) {
            self.wake();
        }
    }

    pub(super) fn now(&self) -> Now {
        self.clock.now()
    }
}

/// The number of the partition that a name's records are in, of so many.
pub(super) fn number_of(name: &str, partitions: usize) -> u32 {
    partition_of(name, u32::try_from(partitions).unwrap_or(u32::MAX))
}

/// Waits for an answer, and leaves it where it is. Meanwhile this thread does what the desk wants waited for, where no other
/// does.
pub(super) fn serve<D: AsDesk, T>(desk: &Mutex<D>, slot: &Slot<T>, now: impl Fn() -> Now) {
    slot.is_awaited();
    while !slot.is_filled() {
        if !serve_once(desk, &now) {
            slot.sleep();
        }
    }
    hand_over(desk);
}

/// Does one task, if there is one, and waits for it.
pub(super) fn serve_once<D: AsDesk>(desk: &Mutex<D>, now: impl Fn() -> Now) -> bool {
    let task = {
        let mut locked = desk.lock();
        let Some(task) = locked.desk().tasks.pop() else { return false };
        (task, locked.desk().coordinator.partition().clone())
    };
    let (Task { ticket, receipt }, partition) = task;
    let stored = partition.wait_stored(receipt);
    desk.lock().desk().step(now(), Input::Stored(ticket, stored));
    true
}

/// Has another of those that wait go on.
fn hand_over<D: AsDesk>(desk: &Mutex<D>) {
    let mut desk = desk.lock();
    let Desk { coordinator, tasks } = desk.desk();
    if !tasks.is_empty() {
        coordinator.wake_one();
    }
}
