//! What joins the machines: the topics that are open on this node, time, and whatever falls due.
//!
//! Front ends find topics here ([`Node::topic`]), register what has to be driven ([`Timed`]), and wait here
//! ([`Node::wait`]): with threads in the background they sleep, without any they do what falls due themselves.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::clock::{Clock, Moment, Now};
use crate::config::TopicConfig;
use crate::error::{Error, Result};
use crate::partition::Partition;
use crate::sync::{self, Mutex, Signal, Swap};
use crate::types::TopicId;

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
    topics: Swap<Topics>,
    /// Counts the changes of the topics.
    version: AtomicU64,
    timed: Mutex<Vec<Weak<dyn Timed>>>,
    closed: AtomicBool,
}

impl Node {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            topics: Swap::new(sync::Arc::default()),
            version: AtomicU64::new(0),
            timed: Mutex::new(Vec::new()),
            closed: AtomicBool::new(false),
        })
    }

    /// What tells the time.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The topic as it is now. Whoever keeps it looks again when [`Self::version`] has changed.
    pub(crate) fn topic(&self, name: &str) -> Result<Arc<Topic>> {
        self.check_open()?;
        let unknown = || Error::UnknownTopic { name: name.to_owned() };
        self.topics.load().get(name).cloned().ok_or_else(unknown)
    }

    /// All topics.
    pub(crate) fn topics(&self) -> sync::Arc<Topics> {
        self.topics.load()
    }

    /// Rises with every change of the topics.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Exchanges the topics.
    pub(crate) fn publish(&self, topics: Topics) {
        self.topics.store(sync::Arc::new(topics));
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Runs `timed` whenever it is due, for as long as it lives.
    pub(crate) fn register(&self, timed: Weak<dyn Timed>) {
        self.timed.lock().push(timed);
        self.wake();
    }

    /// Something that is registered is due, or due earlier than it said last. Cheap where the thread is awake.
    #[expect(clippy::unused_self, reason = "there is no thread yet")]
    pub(crate) fn wake(&self) {}

    /// Sleeps until `signal` is raised or `until` has come, and says whether it was raised. Without threads in the
    /// background it does what falls due meanwhile. A log that closes raises nothing by itself: partitions do.
    pub(crate) fn wait(&self, signal: &Signal, until: Moment) -> bool {
        signal.wait(until.since(self.clock.monotonic()))
    }

    /// Without threads: does everything that is due now.
    pub(crate) fn tick(&self) {
        let now = self.clock.now();
        let timed: Vec<_> = self.timed.lock().iter().filter_map(Weak::upgrade).collect();
        timed
            .iter()
            .filter(|timed| timed.due().is_some_and(|due| due <= now.monotonic))
            .for_each(|timed| timed.run(now));
    }
}
