//! The face of it all: a directory of topics, their admin calls, and the doors to producers and readers.
//!
//! Thread rule: a [`Log`] is a handle, cheap to clone, of one open directory; every method may be called from any
//! thread.

mod groups;
mod stats;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::{Clock, SystemClock};
use crate::config::{CleanerConfig, GroupConfig, SettingDifference, TopicConfig};
use crate::consumer::{ConsumerBuilder, ReaderBuilder};
use crate::controller::{Command, Reply, TopicState, is_internal};
use crate::error::{Error, Result};
use crate::lag::{GroupLag, MonitorBuilder, Monitors, lag_of};
use crate::node::{Node, NodeOptions};
use crate::partition::{Compaction, Partition, Recovery, Stats};
use crate::producer::{ProducerBuilder, TransactionalProducerBuilder};
use crate::random::Random;
use crate::storage::{FileStorage, Storage};
use crate::types::{TopicId, TopicPartition};

pub use groups::{GroupDescription, GroupListing, GroupMember, GroupPosition, MemberState, ResetTo};
pub use stats::LogStats;

/// A log of topics in one directory, which one process has open at a time.
///
/// ```
/// use std::time::Duration;
/// use taffrail::{Log, Record, TopicConfig};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// let log = Log::open(&path)?;
/// log.ensure_topic("orders", TopicConfig::new().partitions(4))?;
///
/// let producer = log.producer().open()?;
/// let stored = producer.send("orders", Record::new("placed").key("customer-7"))?.wait()?;
/// println!("stored in partition {} at offset {}", stored.partition, stored.offset);
///
/// let mut reader = log.reader().topics(["orders"]).open()?;
/// for record in &reader.poll(Duration::from_secs(1))? {
///     println!("{} {:?}", record.offset(), record.value_str());
/// }
/// log.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Log {
    handle: Arc<Handle>,
}

/// What the clones share. The last one closes.
#[derive(Debug)]
struct Handle {
    node: Arc<Node>,
    monitors: Arc<Monitors>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // What fails is traced; `Log::close` answers it.
        drop(self.node.close());
    }
}

/// Opens a [`Log`] with doors of the host's own.
///
/// ```
/// use std::sync::Arc;
/// use taffrail::{Log, ManualClock, MemoryStorage, Timestamp};
/// let log = Log::builder("data")
///     .storage(Arc::new(MemoryStorage::new(7)))
///     .clock(Arc::new(ManualClock::at(Timestamp(0))))
///     .background(false)
///     .open()?;
/// log.tick();
/// log.close()?;
/// # Ok::<(), taffrail::Error>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct LogBuilder {
    directory: PathBuf,
    storage: Option<Arc<dyn Storage>>,
    clock: Arc<dyn Clock>,
    background: bool,
    cluster: Option<String>,
    cleaner: CleanerConfig,
    groups: GroupConfig,
    seed: Option<u64>,
}

impl LogBuilder {
    /// Where the bytes lie. Default: the operating system's files, [`FileStorage::new`].
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.storage = Some(storage);
        self
    }

    /// What tells the time. Default: [`SystemClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Whether threads of the log's own (five) do what falls due. Without them no thread is started, ever: the host calls
    /// [`Log::tick`], and calls that wait do what falls due meanwhile. Default: they do.
    pub const fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// The id of the cluster that the directory has to be of (Kafka: `cluster.id` in `meta.properties`); a new one
    /// becomes of it. Default: whichever the directory is of; a new one gets an id of its own.
    #[doc(alias = "cluster.id")]
    pub fn cluster_id(mut self, id: impl Into<String>) -> Self {
        self.cluster = Some(id.into());
        self
    }

    /// What compaction may use: memory, and how much it may read and write. Default: [`CleanerConfig::new`].
    pub const fn cleaner(mut self, cleaner: CleanerConfig) -> Self {
        self.cleaner = cleaner;
        self
    }

    /// What holds for all groups: how long a member may be silent, how long positions are kept. Default:
    /// [`GroupConfig::new`].
    pub const fn groups(mut self, groups: GroupConfig) -> Self {
        self.groups = groups;
        self
    }

    /// Makes every random choice (ids of topics, partitions for records without a key) follow from `seed`, so that a
    /// test can repeat a run. Default: nobody can foresee them.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Opens the log: recovers what was not closed, on several threads.
    ///
    /// Topics that lie in the directory and are not in its catalogue (copied from a broker, say) are adopted: nothing of
    /// them is removed until [`Log::set_topic_config`] gives them settings.
    ///
    /// # Errors
    /// [`Error::Locked`] where another process has it open, or a partition in it is open alone;
    /// [`Error::ForeignDirectory`] where a directory in it is none of a partition; [`Error::InvalidName`] where the cluster's
    /// id is none, or a directory has the name of what is no topic (a broker's `__cluster_metadata`); [`Error::WrongCluster`], [`Error::CorruptCatalogue`], [`Error::Io`].
    pub fn open(self) -> Result<Log> {
        let options = NodeOptions {
            directory: self.directory,
            storage: self.storage.unwrap_or_else(|| Arc::new(FileStorage::new())),
            clock: self.clock,
            background: self.background,
            cluster: self.cluster,
            cleaner: self.cleaner,
            groups: self.groups,
            seed: self.seed.unwrap_or_else(|| Random::from_system().below(u64::MAX)),
        };
        let node = Node::open(options)?;
        Ok(Log { handle: Arc::new(Handle { node, monitors: Arc::default() }) })
    }
}

/// What a topic is like.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: TopicId,
    /// Its settings.
    pub config: TopicConfig,
    /// It was found in the directory, without settings: everything in it is kept until it gets some.
    pub adopted: bool,
    /// Its partitions, by number.
    pub partitions: Vec<Stats>,
    /// Partitions whose compaction has failed, and how. Where the kind of the error is
    /// [`ErrorKind::Retry`](crate::ErrorKind::Retry) it is tried again, ten times at most; else they are not compacted any
    /// more. A [`Log::reopen`] ends it.
    pub uncleanable: BTreeMap<u32, Error>,
}

/// What [`Log::ensure_topic`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ensured {
    /// The topic was not there and is now.
    pub created: bool,
    /// Settings of the topic that are other than those asked for; they were left as they are.
    pub differences: Vec<SettingDifference>,
}

/// What [`Log::add_partitions`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionsAdded {
    /// How many partitions the topic had.
    pub before: u32,
    /// How many it has. Keys go by this number from now on: records of one key that were sent earlier stay in the
    /// partition they are in, which may be another, so that their order holds only within each.
    pub after: u32,
}

impl Log {
    /// Opens the log in `directory`; creates it where it is missing.
    ///
    /// # Errors
    /// As [`LogBuilder::open`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Self> {
        Self::builder(directory).open()
    }

    /// Opens a log with doors of the host's own.
    pub fn builder(directory: impl AsRef<Path>) -> LogBuilder {
        LogBuilder {
            directory: directory.as_ref().to_owned(),
            storage: None,
            clock: Arc::new(SystemClock),
            background: true,
            cluster: None,
            cleaner: CleanerConfig::new(),
            groups: GroupConfig::new(),
            seed: None,
        }
    }

    fn node(&self) -> &Arc<Node> {
        &self.handle.node
    }

    /// Publishes records. A producer is shared by threads, and one for all topics is enough.
    pub fn producer(&self) -> ProducerBuilder {
        ProducerBuilder::new(Arc::clone(self.node()))
    }

    /// Publishes records in transactions: all of one become visible, or none. `id` is the transactional id, which one
    /// instance has at a time: who opens it fences whoever had it (Kafka: `transactional.id`).
    #[doc(alias = "transactional.id")]
    pub fn transactional_producer(&self, id: impl Into<String>) -> TransactionalProducerBuilder {
        TransactionalProducerBuilder::new(Arc::clone(self.node()), id.into())
    }

    /// Reads records without a group: positions are the host's to keep. A reader is one thread's.
    pub fn reader(&self) -> ReaderBuilder {
        ReaderBuilder::new(Arc::clone(self.node()))
    }

    /// Reads topics as one of a group of consumers, which share their partitions and keep their positions in the log. A
    /// consumer is one thread's.
    #[doc(alias = "group.id")]
    pub fn consumer(&self, group: impl Into<String>) -> ConsumerBuilder {
        ConsumerBuilder::new(Arc::clone(self.node()), group.into())
    }

    /// How far behind a group is, how fast it goes, and how long until retention reaches it. Rates, and what follows from
    /// them, are there while a [`Log::monitor`] watches.
    ///
    /// ```no_run
    /// # let log = taffrail::Log::open("data")?;
    /// for lag in log.lag("billing")?.partitions {
    ///     println!("{}: {} records behind, {:?} left", lag.partition, lag.records, lag.left);
    /// }
    /// # Ok::<(), taffrail::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnknownGroup`]; where its positions cannot be read, why; [`Error::Closed`].
    pub fn lag(&self, group: &str) -> Result<GroupLag> {
        lag_of(self.node(), &self.handle.monitors, group)
    }

    /// Watches groups in the background, and says so before retention reaches what one of them has not read. A group has
    /// no position in a partition before it has committed one there: until then nothing is said of it.
    pub fn monitor(&self) -> MonitorBuilder {
        MonitorBuilder::new(Arc::clone(self.node()), Arc::clone(&self.handle.monitors))
    }

    /// Creates a topic: 1 to 249 letters, digits, dots, underscores and dashes. It is there for ever when this returns.
    ///
    /// # Errors
    /// [`Error::TopicExists`], [`Error::TopicNameCollides`], [`Error::InvalidName`], [`Error::InvalidConfig`]: nothing
    /// is changed. [`Error::InTheWay`]: something has the name of one of its directories; nothing is changed.
    /// [`Error::Io`]: the topic may be there, without all of its partitions; they are made as soon as the disk allows.
    /// [`Error::Poisoned`], by the catalogue's own partition, where writing it down failed: the topic may be there; the
    /// next call of this kind reopens the catalogue by itself.
    pub fn create_topic(&self, name: &str, config: TopicConfig) -> Result<TopicId> {
        let id = self.node().new_topic_id();
        let command = Command::Create { name: name.to_owned(), id, config };
        self.node().administer(name, command).map(|_| id)
    }

    /// Makes sure that there is a topic of this name with so many partitions; says which other settings differ. A program
    /// that calls this at its start names the number that [`Log::add_partitions`] has given the topic meanwhile: with
    /// another number keys would not be where the program looks for them.
    ///
    /// # Errors
    /// [`Error::PartitionCount`] where it has another number of them, and as [`Log::create_topic`].
    pub fn ensure_topic(&self, name: &str, config: TopicConfig) -> Result<Ensured> {
        let id = self.node().new_topic_id();
        let command = Command::Ensure { name: name.to_owned(), id, config };
        match self.node().administer(name, command)? {
            Reply::Found { differences, .. } => Ok(Ensured { created: false, differences }),
            _ => Ok(Ensured { created: true, differences: Vec::new() }),
        }
    }

    /// Deletes a topic with all that is in it. Handles of its partitions answer [`Error::Closed`] from then on; what
    /// readers hold stays as it is until they drop it.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`]. [`Error::Io`]: the topic is gone, and its files go as soon as the disk allows.
    pub fn delete_topic(&self, name: &str) -> Result<()> {
        self.node().administer(name, Command::Delete { name: name.to_owned() }).map(drop)
    }

    /// The partitions whose last recovery found damage, cut something off or missed something, and what that was. Empty
    /// where every record is there that is to be.
    #[must_use]
    pub fn damaged(&self) -> Vec<(TopicPartition, Arc<Recovery>)> {
        let topics = self.node().topics();
        let all = topics.values().flat_map(|topic| &topic.partitions);
        let all = all.map(|partition| (partition.name().clone(), partition.recovery()));
        all.filter(|(_, recovery)| !recovery.is_sound()).collect()
    }

    /// Gives a topic more partitions, `total` in all. Keys move: see [`PartitionsAdded::after`].
    ///
    /// # Errors
    /// [`Error::PartitionCount`] where it has so many or more, [`Error::UnknownTopic`], and as [`Log::create_topic`].
    pub fn add_partitions(&self, name: &str, total: u32) -> Result<PartitionsAdded> {
        let command = Command::AddPartitions { name: name.to_owned(), total };
        match self.node().administer(name, command)? {
            Reply::Grown { before } => Ok(PartitionsAdded { before, after: total }),
            _ => Ok(PartitionsAdded { before: total, after: total }),
        }
    }

    /// Gives a topic other settings, all of them: begin with those of [`Log::describe_topic`] to change one. Those of
    /// segments (sizes, indexes) hold from the next segment on. An adopted topic is none any more: its retention begins.
    ///
    /// ```
    /// use std::time::Duration;
    /// use taffrail::{Log, Retention, TopicConfig};
    /// # let directory = tempfile::tempdir()?;
    /// # let log = Log::open(directory.path().join("data"))?;
    /// log.create_topic("orders", TopicConfig::new().partitions(4))?;
    /// let config = log.describe_topic("orders")?.config;
    /// log.set_topic_config("orders", config.retention(Retention::forever().age(Duration::from_secs(86_400))))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidConfig`], [`Error::PartitionCount`] where they say another number of partitions,
    /// [`Error::UnknownTopic`].
    pub fn set_topic_config(&self, name: &str, config: TopicConfig) -> Result<()> {
        self.node().administer(name, Command::Configure { name: name.to_owned(), config }).map(drop)
    }

    /// What a topic is like.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::Closed`].
    pub fn describe_topic(&self, name: &str) -> Result<TopicDescription> {
        self.node().check_open()?;
        let catalogue = self.node().catalogue();
        let state = catalogue.topic(name).ok_or_else(|| Error::UnknownTopic { name: name.to_owned() })?;
        let open = self.node().topic(name).ok().filter(|topic| topic.id == state.id);
        let partitions = || open.iter().flat_map(|topic| &topic.partitions);
        let failed = (0..).zip(partitions()).filter_map(|(number, one)| Some((number, one.compaction_error()?)));
        Ok(describe(state, partitions().map(Partition::stats).collect(), failed.collect()))
    }

    /// The names of all topics, sorted, without those that the log keeps for itself ([`Log::internal_topics`]).
    #[must_use]
    pub fn topics(&self) -> Vec<String> {
        self.topics_where(|name| !is_internal(name))
    }

    /// The names of the topics that the log keeps for itself, sorted: what it knows of transactions, say. They are made
    /// when they are needed, and cannot be deleted; [`Log::set_topic_config`] sets how durable they are.
    #[must_use]
    pub fn internal_topics(&self) -> Vec<String> {
        self.topics_where(is_internal)
    }

    fn topics_where(&self, is_meant: impl Fn(&str) -> bool) -> Vec<String> {
        let catalogue = self.node().catalogue();
        catalogue.topics().map(|topic| &topic.name).filter(|name| is_meant(name)).cloned().collect()
    }

    /// One partition of a topic, to be used by itself: appended to, read, exported. It is closed with the log and has the
    /// settings of its topic, so that [`Partition::close`] and [`Partition::set_config`] answer [`Error::Policy`].
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`], [`Error::Closed`].
    pub fn partition(&self, topic: &str, partition: u32) -> Result<Partition> {
        self.node().topic(topic)?.partition(partition).cloned()
    }

    /// Recovers a partition anew that a failed write or sync has fenced.
    ///
    /// # Errors
    /// As [`Partition::reopen`].
    pub fn reopen(&self, topic: &str, partition: u32) -> Result<()> {
        self.partition(topic, partition)?.reopen()
    }

    /// Compacts everything of a partition that can be, now and whatever the dirty ratio, and says what it did. In the
    /// background the log does so by itself, the dirtiest partition first. The active segment is not compacted:
    /// [`Partition::roll`] closes it.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`], and as [`Partition::compact_all`].
    pub fn compact(&self, topic: &str, partition: u32) -> Result<Compaction> {
        self.node().compact(topic, partition)
    }

    /// Does everything that is due: what the background threads do where there are any. Without them call it every
    /// few milliseconds.
    pub fn tick(&self) {
        self.node().tick();
    }

    /// The cluster that the log is of.
    #[must_use]
    pub fn cluster_id(&self) -> String {
        self.node().catalogue().cluster().unwrap_or_default().to_owned()
    }

    /// Hands over what producers hold, syncs, writes the checkpoints, marks the log as cleanly closed and releases the
    /// directory. Every handle answers [`Error::Closed`] from then on. The drop of the last `Log` does the same, and
    /// traces what fails.
    ///
    /// # Errors
    /// The first thing that failed: the log is closed all the same, and the next open recovers it.
    pub fn close(self) -> Result<()> {
        self.node().close()
    }
}

fn describe(state: &TopicState, partitions: Vec<Stats>, uncleanable: BTreeMap<u32, Error>) -> TopicDescription {
    TopicDescription {
        name: state.name.clone(),
        id: state.id,
        config: state.config.clone(),
        adopted: state.adopted,
        partitions,
        uncleanable,
    }
}
