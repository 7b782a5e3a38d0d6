//! Opening a log's directory, and closing it.
//!
//! ```text
//!   all directories belong here → lock → owner → marker away → books → catalogue → what it does not know is adopted
//!   → partitions are recovered, in parallel → books saved → inner files of partitions once opened alone go → threads
//! ```
//!
//! An open that fails leaves the log as it was: one that was closed gets its marker back, if nothing of it was changed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::cleaning::Cleaning;
use super::desk::Desks;
use super::driver::Driver;
use super::group_desks::Groups;
use super::holding::Watchers;
use super::home::{Home, check_owner};
use super::measuring::Measured;
use super::partitions::{Adoption, adoptions};
use super::producer_ids::ProducerIds;
use super::work::{Alarm, Flushes, Intervals, Threads};
use super::{Node, Timed};
use crate::clock::Clock;
use crate::config::{CleanerConfig, GroupConfig};
use crate::controller::{Command, check_cluster};
use crate::error::{Error, Result};
use crate::partition::{Books, Partition};
use crate::random::Random;
use crate::storage::Storage;
use crate::storage::checkpoint::properties::Owner;
use crate::sync::{Arc as Shared, Event, Mutex, Swap};
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
    /// What compaction may use.
    pub(crate) cleaner: CleanerConfig,
    /// What holds for all groups.
    pub(crate) groups: GroupConfig,
    pub(crate) seed: u64,
}

impl Node {
    /// Opens a log's directory; creates it where it is missing.
    pub(crate) fn open(options: NodeOptions) -> Result<Arc<Self>> {
        let NodeOptions { directory, storage, clock, background, cluster, cleaner, groups, seed } = options;
        cleaner.check()?;
        groups.check()?;
        if let Some(name) = cluster.as_deref() {
            check_cluster(name).map_err(|reason| Error::InvalidName { name: name.to_owned(), reason })?;
        }
        let home = Home::enter(Arc::clone(&storage), &directory, cluster.as_deref())?;
        let owner = home.owner()?;
        check_owner(&home.directory, owner.as_ref(), cluster.as_deref())?;
        let was_clean = home.take_clean_marker()?;
        let restore = |_: &Error| restore_marker(&home, was_clean);
        let books = Arc::new(Books::open(storage, &directory, was_clean).inspect_err(restore)?);
        let id = owner.as_ref().map_or(NodeId(0), |owner| owner.node);
        let mut driver = Driver::open(&home, &books, &clock, id).inspect_err(restore)?;
        let known = driver.image().load();
        check_catalogue(&home.directory, known.cluster(), owner.as_ref(), cluster.as_deref()).inspect_err(restore)?;
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
            // The same seed must not give the same ids in a log that has given them already.
            random: Mutex::new(Random::seeded(seed ^ known.version().wrapping_mul(SEED_STRIDE))),
            driver: Mutex::new(driver),
            turn: Mutex::new(()),
            closing: Mutex::new(()),
            reconciled: Mutex::new(None),
            topics: Swap::new(Shared::default()),
            producer_ids: Mutex::new(ProducerIds::default()),
            desks: Desks::new(),
            groups: Groups::new(groups),
            version: AtomicU64::new(0),
            changed: Event::new(),
            timed: Mutex::new(Vec::new()),
            flushes: Flushes::new(),
            cleaning: Cleaning::new(cleaner, now),
            watchers: Watchers::default(),
            measured: Measured::default(),
            alarm: Alarm::new(),
            intervals: Mutex::new(Intervals::at(now)),
            threads: Mutex::new(None),
            own: OnceLock::new(),
            stopping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        node.run_tasks(begun);
        let started =
            node.begin(owner.as_ref(), cluster).and_then(|()| if background { node.start_threads() } else { Ok(()) });
        if let Err(error) = started {
            node.abandon(was_clean);
            return Err(error);
        }
        Ok(node)
    }

    fn start_threads(self: &Arc<Self>) -> Result<()> {
        let threads = Threads::start(self)?;
        self.own.get_or_init(|| threads.ids());
        *self.threads.lock() = Some(threads);
        Ok(())
    }

    /// Lets go of a log that could not be opened. Partitions that nobody got to were closed only if all were.
    fn abandon(&self, was_clean: bool) {
        self.closed.store(true, Ordering::Release);
        let closed = self.close_partitions().and_then(|()| self.books.save());
        restore_marker(&self.home, was_clean && closed.is_ok() && !self.books.has_unfinished());
        self.home.release();
    }

    /// What follows once the catalogue is there.
    fn begin(&self, owner: Option<&Owner>, cluster: Option<String>) -> Result<()> {
        self.settle_owner(owner, cluster)?;
        // What was deleted goes before what lies there is taken in.
        self.reconcile_all()?;
        let found = adoptions(&self.home, &self.image.load())?;
        if !found.is_empty() {
            found.into_iter().try_for_each(|adoption| self.adopt(adoption))?;
            self.reconcile_all()?;
        }
        let topics = self.topics.load();
        let partitions = || topics.values().flat_map(|topic| &topic.partitions).chain([&self.metadata]);
        partitions().try_for_each(Partition::enter_books)?;
        self.books.save()?;
        partitions().try_for_each(Partition::leave_inner_files)?;
        self.skip_known_producer_ids();
        self.recover_groups();
        self.recover_transactions();
        self.measure_recovery();
        Ok(())
    }

    /// Makes the partitions what the catalogue says, or answers why not. What is left of deleted topics holds up no other:
    /// it is tried again later.
    fn reconcile_all(&self) -> Result<()> {
        let catalogue = self.image.load();
        let mut failures = self.reconcile_noting().into_iter();
        failures.find(|(topic, _)| catalogue.topic(topic).is_some()).map_or(Ok(()), |(_, error)| Err(error))
    }

    /// The catalogue and `meta.properties` name the same cluster; who is missing learns it from the other.
    fn settle_owner(&self, owner: Option<&Owner>, cluster: Option<String>) -> Result<()> {
        let named = owner.and_then(|owner| owner.cluster.clone());
        let known = self.image.load().cluster().map(str::to_owned);
        let due = known.clone().or(named).or(cluster).unwrap_or_else(|| self.new_id());
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

    /// Takes a topic in that lies in the directory and that the catalogue does not know, or more partitions of one that it
    /// knows. Nothing of a topic that is taken in is removed until somebody sets its settings.
    fn adopt(&self, adoption: Adoption) -> Result<()> {
        let Adoption { topic: name, id, partitions } = adoption;
        trace::info(&self.home.directory, || format!("adopts topic {name} of {partitions} partitions"));
        let is_known = self.image.load().topic(&name).is_some();
        let id = id.unwrap_or_else(|| self.new_topic_id());
        self.administer_alone(if is_known {
            Command::AddPartitions { name, total: partitions }
        } else {
            Command::Adopt { name, id, partitions }
        })
        .map(drop)
    }

    /// Hands over what producers hold, closes every partition, and marks the log as closed. Later calls find it closed.
    ///
    /// The first thing that failed is answered; the rest is done for all that, and the log is not marked then. A second
    /// call returns when the log is closed, too; on one of the log's own threads, which the first one waits for, at once.
    pub(crate) fn close(&self) -> Result<()> {
        if self.home.storage.is_forked() {
            return Err(Error::Forked);
        }
        let _closing = match self.closing.try_lock() {
            Some(closing) => closing,
            None if self.is_on_own_thread() => return Ok(()),
            None => self.closing.lock(),
        };
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.close_groups();
        let timed: Vec<Arc<dyn Timed>> = self.timed.lock().iter().filter_map(std::sync::Weak::upgrade).collect();
        for timed in &timed {
            timed.close();
        }
        let threads = self.threads.lock().take();
        if let Some(mut threads) = threads {
            threads.stop(self);
        }
        // Who has the turn finishes; nobody gets it behind this.
        let turn = self.turn.lock();
        let outcome = self.close_partitions().and_then(|()| self.books.save()).and_then(|()| self.mark_clean());
        self.changed.notify();
        self.home.release();
        drop(turn);
        if let Err(error) = &outcome {
            trace::warn(&self.home.directory, || format!("was not closed cleanly: {error}"));
        }
        outcome
    }

    fn is_on_own_thread(&self) -> bool {
        self.own.get().is_some_and(|own| own.contains(&std::thread::current().id()))
    }

    /// A topic that could not be made wholly is to be recovered by the next open, and with it the others.
    fn mark_clean(&self) -> Result<()> {
        if self.books.has_unfinished() { Ok(()) } else { self.home.write_clean_marker() }
    }

    fn close_partitions(&self) -> Result<()> {
        let topics = self.topics.load();
        let partitions: Vec<_> = topics.values().flat_map(|topic| &topic.partitions).chain([&self.metadata]).collect();
        self.for_each_of(&partitions, |partition| partition.close_in_log()).into_iter().fold(Ok(()), Result::and)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Acquire) {
            drop(self.close());
        }
    }
}

/// 2^64 over the golden ratio: the seeds of a log's openings lie far apart.
pub(super) const SEED_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// A log that was closed, and of which nothing was changed, is closed still.
fn restore_marker(home: &Home, was_clean: bool) {
    if was_clean && let Err(error) = home.write_clean_marker() {
        trace::warn(&home.directory, || format!("will be recovered by the next open: {error}"));
    }
}

/// The catalogue, `meta.properties` and whoever opens the log name one cluster, as far as they name any.
fn check_catalogue(directory: &Path, known: Option<&str>, owner: Option<&Owner>, cluster: Option<&str>) -> Result<()> {
    let Some(known) = known else { return Ok(()) };
    let wrong =
        |found: String, expected: String| Err(Error::WrongCluster { path: directory.to_owned(), found, expected });
    let catalogues = || format!("cluster {known}, as its catalogue says");
    match (owner.and_then(|owner| owner.cluster.as_deref()), cluster) {
        (Some(named), _) if named != known => wrong(format!("cluster {named}, as meta.properties says"), catalogues()),
        (_, Some(asked)) if asked != known => wrong(catalogues(), format!("cluster {asked}")),
        _ => Ok(()),
    }
}
