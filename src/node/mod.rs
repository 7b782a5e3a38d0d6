//! What joins the machines: the topics that are open on this node, the catalogue, time, and whatever falls due.
//!
//! Rooms:
//!
//! ```text
//!   home.rs        the directory: lock, owner, marker        metadata.rs   the journal and snapshot of the catalogue
//!   driver.rs      one step of the catalogue                 ledger.rs     a machine over a log
//!   admin.rs       commands to the catalogue                 partitions.rs what the catalogue says is made so
//!   work.rs        what falls due, and the threads           open.rs       opening and closing
//!   coordinator.rs one step of a coordinator                 transactions.rs the coordinators of transactions
//!   markers.rs     what ends a transaction in its partitions  producer_ids.rs ids of producers, in blocks
//!   groups.rs      what is asked of groups                    group_desks.rs their coordinators, as they run
//!   members.rs     the members that live here                 desk.rs     a coordinator as several threads use it
//!   holding.rs     what is held for groups                    cleaning.rs which partition is compacted
//!   measuring.rs   figures of the whole log                   due.rs      when the next of many is to be looked after
//! ```
//!
//! Front ends find topics here ([`Node::topic`]), register what has to be driven ([`Timed`]), and wait here
//! ([`Node::wait`]): with threads in the background they sleep, without any they do what falls due themselves.
//!
//! Order of locks: `producer_ids`, the turn, then the driver, then a partition's. None is held over a call of a front end.
//! The turn ([`Node::turn`]) is whose hands the directory is in: those of one administration, of one piece of upkeep, or of
//! the close, behind which nobody gets it any more.

mod admin;
mod cleaning;
mod coordinator;
mod desk;
mod driver;
mod due;
mod group_desks;
mod groups;
mod holding;
mod home;
mod ledger;
mod loading;
mod markers;
mod measuring;
mod members;
mod metadata;
mod open;
mod partitions;
mod producer_ids;
mod slot;
mod transactions;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::ThreadId;

use crate::clock::{Clock, Moment, Now};
use crate::config::TopicConfig;
use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::partition::{Books, Partition};
use crate::random::Random;
use crate::sync::{Arc as Pointer, Event, Mutex, MutexGuard, Signal, Swap};
use crate::types::{NodeId, TopicId, TopicPartition};

pub(crate) use groups::Committing;
pub(crate) use holding::{Loss, Losses, Readings};
pub(crate) use members::Membership;
pub(crate) use open::NodeOptions;

use cleaning::Cleaning;
use desk::Desks;
use driver::Driver;
use group_desks::Groups;
use holding::Watchers;
use home::Home;
use measuring::Measured;
use producer_ids::ProducerIds;
use transactions::TransactionDesk;
use work::{Alarm, Flusher, Flushes, Intervals, Threads};

/// A topic as it is on this node.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: Arc<str>,
    pub(crate) id: TopicId,
    pub(crate) config: TopicConfig,
    /// By number, without gaps.
    pub(crate) partitions: Vec<Partition>,
}

impl Topic {
    /// One of its partitions.
    pub(crate) fn partition(&self, number: u32) -> Result<&Partition> {
        self.partitions.get(number as usize).ok_or_else(|| Error::UnknownPartition {
            topic: self.name.to_string(),
            partition: number,
            partitions: u32::try_from(self.partitions.len()).unwrap_or(u32::MAX),
        })
    }
}

/// All topics, by name.
pub(crate) type Topics = BTreeMap<Arc<str>, Arc<Topic>>;

/// The names of topics by their ids, of those that are there.
pub(crate) struct TopicNames<'t>(BTreeMap<TopicId, &'t str>);

impl<'t> TopicNames<'t> {
    pub(crate) fn of(topics: &'t Topics) -> Self {
        Self(topics.values().map(|topic| (topic.id, &*topic.name)).collect())
    }

    /// Those of these partitions whose topics are there.
    pub(crate) fn partitions(&self, partitions: impl Iterator<Item = (TopicId, u32)>) -> BTreeSet<TopicPartition> {
        let name = |(id, partition)| Some(TopicPartition { topic: (*self.0.get(&id)?).to_owned(), partition });
        partitions.filter_map(name).collect()
    }
}

/// What the node drives without knowing it.
pub(crate) trait Timed: Send + Sync {
    /// When it wants to run next; `None`: not until it says otherwise (by [`Node::wake`]).
    fn due(&self) -> Option<Moment>;

    /// Does what is due. It does not wait for other nodes or readers.
    fn run(&self, now: Now);

    /// The log closes: what is pending is handed over now; later calls answer [`Error::Closed`].
    fn close(&self);
}

/// What the handles of a log share.
pub(crate) struct Node {
    clock: Arc<dyn Clock>,
    home: Home,
    books: Arc<Books>,
    id: NodeId,
    /// Whether threads run in the background.
    background: bool,
    random: Mutex<Random>,
    driver: Mutex<Driver>,
    /// The partition of the catalogue.
    metadata: Partition,
    /// What is committed of the catalogue.
    image: Arc<Swap<Controller>>,
    /// Held by whoever changes what the directory holds.
    turn: Mutex<()>,
    /// Held by whoever closes the log.
    closing: Mutex<()>,
    /// What of the catalogue the directory agrees with; none after a reconciliation that has failed.
    reconciled: Mutex<Option<Pointer<Controller>>>,
    topics: Swap<Topics>,
    producer_ids: Mutex<ProducerIds>,
    desks: Desks<TransactionDesk>,
    groups: Groups,
    /// Counts the changes of the topics.
    version: AtomicU64,
    changed: Event,
    timed: Mutex<Vec<Weak<dyn Timed>>>,
    flushes: Flushes,
    cleaning: Cleaning,
    watchers: Watchers,
    measured: Measured,
    alarm: Alarm,
    intervals: Mutex<Intervals>,
    threads: Mutex<Option<Threads>>,
    /// The threads of the log's own.
    own: OnceLock<Vec<ThreadId>>,
    stopping: AtomicBool,
    closed: AtomicBool,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("directory", &self.home.directory).finish_non_exhaustive()
    }
}

impl Node {
    /// What tells the time.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Where the log lies.
    pub(crate) fn directory(&self) -> &Path {
        &self.home.directory
    }

    /// A seed for a random choice.
    pub(crate) fn seed(&self) -> u64 {
        self.random.lock().below(u64::MAX)
    }

    /// The topic as it is now. Whoever keeps it looks again when [`Self::version`] has changed.
    pub(crate) fn topic(&self, name: &str) -> Result<Arc<Topic>> {
        self.check_open()?;
        let unknown = || Error::UnknownTopic { name: name.to_owned() };
        self.topics.load().get(name).cloned().ok_or_else(unknown)
    }

    /// All topics.
    pub(crate) fn topics(&self) -> Pointer<Topics> {
        self.topics.load()
    }

    /// Rises with every change of the topics.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Exchanges the topics.
    pub(crate) fn publish(&self, topics: Topics) {
        self.topics.store(Pointer::new(topics));
        self.version.fetch_add(1, Ordering::AcqRel);
        self.changed.notify();
        self.wake();
    }

    /// Has `signal` raised by every change of the topics, and by the close, until the answer is dropped. Look after
    /// this: what was there before raises nothing.
    pub(crate) fn listen(self: &Arc<Self>, signal: &Pointer<Signal>) -> NodeListening {
        self.changed.listen(|| true, signal);
        NodeListening { node: Arc::clone(self), signal: Pointer::clone(signal) }
    }

    /// Whoever has the turn changes what the directory holds, and nobody else; a log that is closed changes nothing.
    fn turn(&self) -> Result<MutexGuard<'_, ()>> {
        let turn = self.turn.lock();
        self.check_open()?;
        Ok(turn)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.home.storage.is_forked() {
            return Err(Error::Forked);
        }
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Runs `timed` whenever it is due, for as long as it lives.
    pub(crate) fn register(&self, timed: Weak<dyn Timed>) {
        self.timed.lock().push(timed);
        self.wake();
    }

    /// Something that is registered is due, or due earlier than it said last. Cheap where the thread is awake. Without
    /// threads in the background, those who wait and listen to the node do it.
    pub(crate) fn wake(&self) {
        if self.background {
            self.alarm.ring();
        } else {
            self.changed.notify();
        }
    }

    /// Sleeps until `signal` is raised or `until` has come, and says whether it was raised. Without threads in the
    /// background it does what falls due meanwhile.
    pub(crate) fn wait(&self, signal: &Signal, until: Moment) -> bool {
        if self.background {
            return signal.wait(until.since(self.clock.monotonic()));
        }
        loop {
            self.tick();
            let now = self.clock.monotonic();
            let next = self.next_tick().min(until);
            if signal.wait(next.since(now)) {
                return true;
            }
            if self.clock.monotonic() >= until {
                return false;
            }
        }
    }
}

/// A signal that the node raises.
#[derive(Debug)]
pub(crate) struct NodeListening {
    node: Arc<Node>,
    signal: Pointer<Signal>,
}

impl Drop for NodeListening {
    fn drop(&mut self) {
        self.node.changed.unlisten(&self.signal);
    }
}

#[cfg(test)]
impl Node {
    /// A node without a topic, on a disk of its own, that starts no thread.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::on(&crate::storage::MemoryStorage::new(0), clock)
    }

    /// The node of the log that a disk has, or that is made there. It starts no thread.
    pub(crate) fn on(storage: &crate::storage::MemoryStorage, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (cleaner, groups) = (crate::config::CleanerConfig::new(), crate::config::GroupConfig::new());
        let (directory, storage) = ("/log".into(), storage.shared());
        let options =
            NodeOptions { directory, storage, clock, background: false, cluster: None, cleaner, groups, seed: 7 };
        Self::open(options).expect("it opens")
    }

    #[cfg(not(loom))]
    /// Answers [`Error::Closed`] from now on, and does nothing else of [`Self::close`].
    pub(crate) fn refuse(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.notify();
    }
}
