//! Opening a log's directory, and closing it.
//!
//! ```text
//!   all directories belong here → lock → owner → marker away → books → catalogue → what it does not know is adopted
//!   → partitions are recovered, in parallel → books saved → inner files of partitions once opened alone go → threads
//! ```
//!
//! An open that fails leaves the log as it was: without the marker, so that the next one recovers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::driver::Driver;
use super::home::{Found, Home};
use super::partitions::unknown;
use super::work::{Alarm, Flushes, Intervals, Threads};
use super::{Node, Timed};
use crate::clock::Clock;
use crate::controller::Command;
use crate::error::{Error, Result};
use crate::partition::{Books, Partition};
use crate::random::Random;
use crate::storage::Storage;
use crate::storage::checkpoint::properties::Owner;
use crate::sync::{Arc as Pointer, Event, Mutex, Swap};
use crate::trace;
use crate::types::NodeId;

/// What a log is opened with.
#[derive(Debug)]
pub(crate) struct NodeOptions {
    pub(crate) directory: PathBuf,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) background: bool,
    /// The cluster that the directory has to be of, or is to be of where it is new.
    pub(crate) cluster: Option<String>,
    pub(crate) seed: u64,
}

impl Node {
    /// Opens a log's directory; creates it where it is missing.
    pub(crate) fn open(options: NodeOptions) -> Result<Arc<Self>> {
        let NodeOptions { directory, storage, clock, background, cluster, seed } = options;
        let home = Home::enter(Arc::clone(&storage), &directory)?;
        let owner = home.owner()?;
        check_owner(&home, owner.as_ref(), cluster.as_deref())?;
        let was_clean = home.take_clean_marker()?;
        let books = Arc::new(Books::open(storage, &directory, was_clean)?);
        let id = owner.as_ref().map_or(NodeId(0), |owner| owner.node);
        let mut driver = Driver::open(&home, &books, &clock, id).inspect_err(|_| restore_marker(&home, was_clean))?;
        let begun = driver.begin();
        let now = clock.monotonic();
        let node = Arc::new(Self {
            metadata: driver.partition().clone(),
            image: Arc::clone(driver.image()),
            clock,
            home,
            books,
            id,
            background,
            random: Mutex::new(Random::seeded(seed)),
            driver: Mutex::new(driver),
            reconciling: Mutex::new(()),
            unreconciled: AtomicBool::new(false),
            topics: Swap::new(Pointer::default()),
            version: AtomicU64::new(0),
            changed: Event::new(),
            timed: Mutex::new(Vec::new()),
            flushes: Flushes::new(),
            alarm: Alarm::new(),
            intervals: Mutex::new(Intervals::at(now)),
            threads: Mutex::new(None),
            stopping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        node.run_tasks(begun);
        let started = node.begin(owner, cluster).and_then(|()| if background { node.start_threads() } else { Ok(()) });
        if let Err(error) = started {
            node.abandon(was_clean);
            return Err(error);
        }
        Ok(node)
    }

    fn start_threads(self: &Arc<Self>) -> Result<()> {
        let threads = Threads::start(self)?;
        *self.threads.lock() = Some(threads);
        Ok(())
    }

    /// Lets go of a log that could not be opened. Partitions that nobody got to were closed only if all were.
    fn abandon(&self, was_clean: bool) {
        self.closed.store(true, Ordering::Release);
        let closed = self.close_partitions().and_then(|()| self.books.save());
        restore_marker(&self.home, was_clean && closed.is_ok());
        self.home.release();
    }

    /// What follows once the catalogue is there.
    fn begin(&self, owner: Option<Owner>, cluster: Option<String>) -> Result<()> {
        self.settle_owner(owner, cluster)?;
        for (topic, found) in unknown(&self.home, &self.image.load())? {
            self.adopt(topic, &found)?;
        }
        if let Some((_, error)) = self.reconcile_noting().into_iter().next() {
            return Err(error);
        }
        let topics = self.topics.load();
        let partitions = || topics.values().flat_map(|topic| &topic.partitions).chain([&self.metadata]);
        partitions().try_for_each(|partition| partition.enter_books())?;
        self.books.save()?;
        partitions().try_for_each(|partition| partition.leave_inner_files())
    }

    /// The catalogue and `meta.properties` name the same cluster; who is missing learns it from the other.
    fn settle_owner(&self, owner: Option<Owner>, cluster: Option<String>) -> Result<()> {
        let named = owner.as_ref().and_then(|owner| owner.cluster.clone());
        let known = self.image.load().cluster().map(str::to_owned);
        let due = known.clone().or_else(|| named.clone()).or(cluster).unwrap_or_else(|| self.new_id());
        if let Some(found) = named.filter(|found| *found != due) {
            let expected = format!("cluster {due}, as its catalogue says");
            return Err(Error::WrongCluster {
                path: self.home.directory.clone(),
                found: format!("cluster {found}, as meta.properties says"),
                expected,
            });
        }
        if known.is_none() {
            self.administer_alone(Command::Format { cluster: due.clone() })?;
        }
        if owner.is_none() {
            self.home.write_owner(&due, self.id, &self.new_id())?;
        }
        Ok(())
    }

    fn new_id(&self) -> String {
        self.new_topic_id().to_string()
    }

    /// Takes a topic in that lies in the directory and that the catalogue does not know: nothing of it is removed
    /// until somebody sets its settings.
    fn adopt(&self, topic: String, found: &[Found]) -> Result<()> {
        let id = found.iter().find_map(|found| found.topic).unwrap_or_else(|| self.new_topic_id());
        let partitions = found.iter().map(|found| found.name.partition.saturating_add(1)).max().unwrap_or(1);
        trace::info(&self.home.directory, || format!("adopts topic {topic} of {partitions} partitions"));
        self.administer_alone(Command::Adopt { name: topic, id, partitions }).map(drop)
    }

    /// Hands over what producers hold, closes every partition, and marks the log as closed. Later calls find it closed.
    ///
    /// The first thing that failed is answered; the rest is done for all that, and the log is not marked then.
    pub(crate) fn close(&self) -> Result<()> {
        if self.home.storage.is_forked() {
            return Err(Error::Forked);
        }
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let timed: Vec<Arc<dyn Timed>> = self.timed.lock().iter().filter_map(std::sync::Weak::upgrade).collect();
        timed.iter().for_each(|timed| timed.close());
        let threads = self.threads.lock().take();
        if let Some(mut threads) = threads {
            threads.stop(self);
        }
        let outcome =
            self.close_partitions().and_then(|()| self.books.save()).and_then(|()| self.home.write_clean_marker());
        self.changed.notify();
        self.home.release();
        if let Err(error) = &outcome {
            trace::warn(&self.home.directory, || format!("was not closed cleanly: {error}"));
        }
        outcome
    }

    fn close_partitions(&self) -> Result<()> {
        let _turn = self.reconciling.lock();
        let topics = self.topics.load();
        let partitions = topics.values().flat_map(|topic| &topic.partitions).chain([&self.metadata]);
        partitions.map(Partition::close_in_log).fold(Ok(()), Result::and)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Acquire) {
            drop(self.close());
        }
    }
}

/// A log that was closed, and of which nothing was changed, is closed still.
fn restore_marker(home: &Home, was_clean: bool) {
    if was_clean && let Err(error) = home.write_clean_marker() {
        trace::warn(&home.directory, || format!("will be recovered by the next open: {error}"));
    }
}

/// Whether the directory is of the cluster that it was opened as.
fn check_owner(home: &Home, owner: Option<&Owner>, cluster: Option<&str>) -> Result<()> {
    let found = owner.and_then(|owner| owner.cluster.as_deref());
    match (found, cluster) {
        (Some(found), Some(expected)) if found != expected => Err(Error::WrongCluster {
            path: home.directory.clone(),
            found: format!("cluster {found}"),
            expected: format!("cluster {expected}"),
        }),
        _ => Ok(()),
    }
}
