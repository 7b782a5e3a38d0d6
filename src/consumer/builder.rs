//! Opening a consumer: its settings, and what is refused before anything happens.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::commits::Commits;
use super::core::{Core, Seat};
use super::fetcher::{FetchOptions, Fetcher};
use super::handle::Consumer;
use super::placing::Placing;
use super::position::{OutOfRange, StartAt};
use super::rebalance::RebalanceListener;
use crate::error::{Error, Result};
use crate::group::{Assignor, Details, MAX_POLL_INTERVAL, MemberSettings, Subscription};
use crate::group::{check_details, check_group, check_time};
use crate::node::Node;
use crate::types::Isolation;

/// Opens a [`Consumer`]. [`Log::consumer`](crate::Log::consumer) makes it.
///
/// ```
/// use std::time::Duration;
/// use taffrail::{Assignor, Log, OutOfRange, TopicConfig};
/// # let directory = tempfile::tempdir()?;
/// # let log = Log::open(directory.path().join("data"))?;
/// # log.ensure_topic("orders", TopicConfig::new().partitions(4))?;
/// let mut consumer = log
///     .consumer("billing")
///     .subscribe(["orders"])
///     .instance_id("billing-1")
///     .assignor(Assignor::Range)
///     .max_poll_interval(Duration::from_secs(60))
///     .out_of_range(OutOfRange::Earliest)
///     .open()?;
/// consumer.poll(Duration::ZERO)?;
/// assert_eq!(consumer.assignment().len(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct ConsumerBuilder {
    node: Arc<Node>,
    group: String,
    details: Details,
    max_poll_interval: Duration,
    partitions: BTreeSet<(String, u32)>,
    auto_commit: Option<Duration>,
    start_at: StartAt,
    options: FetchOptions,
    listener: Option<Box<dyn RebalanceListener>>,
}

impl ConsumerBuilder {
    pub(crate) fn new(node: Arc<Node>, group: String) -> Self {
        Self {
            node,
            group,
            details: Details::default(),
            max_poll_interval: MAX_POLL_INTERVAL,
            partitions: BTreeSet::new(),
            auto_commit: None,
            start_at: StartAt::Earliest,
            options: FetchOptions::default(),
            listener: None,
        }
    }

    /// Wants all partitions of these topics, besides what was named before; the group shares them out among its consumers.
    /// A topic that is not there yet, or is deleted, is waited for; partitions that a topic gets later come by themselves.
    pub fn subscribe(mut self, topics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.details.subscription.topics.extend(topics.into_iter().map(Into::into));
        self
    }

    /// Wants all partitions of the topics whose whole name this regular expression matches, those that are made later too;
    /// besides the topics that were named. The topics that a log keeps for itself do not match. The syntax is that of the
    /// crate `regex-lite`; `orders-.*` matches `orders-paid`, not `reorders-paid`.
    pub fn subscribe_pattern(mut self, pattern: impl Into<String>) -> Self {
        self.details.subscription.pattern = Some(pattern.into());
        self
    }

    /// Reads these partitions, by topic and number from 0, besides what was named before, and is no member of its group:
    /// nothing is shared out, nothing taken away. It goes on from the group's positions, and commits them, as long as the
    /// group has no members.
    pub fn assign(mut self, partitions: impl IntoIterator<Item = (impl Into<String>, u32)>) -> Self {
        self.partitions.extend(partitions.into_iter().map(|(topic, number)| (topic.into(), number)));
        self
    }

    /// The name of this instance of the program, of which there is one in a group at a time: a consumer that closes or is
    /// dropped keeps its partitions for a session, and whoever comes with its instance id has them at once. Who comes while
    /// the one before is there takes its place, and that one is told [`Error::FencedInstance`]. (A log that is opened again
    /// knows no shorter sessions than its own: [`GroupConfig::session_timeout`](crate::GroupConfig::session_timeout()).)
    /// Default: none.
    #[doc(alias = "group.instance.id")]
    pub fn instance_id(mut self, id: impl Into<String>) -> Self {
        self.details.instance = Some(id.into());
        self
    }

    /// Where it runs, so that it gets partitions that have a copy there. Default: not said.
    #[doc(alias = "client.rack")]
    pub fn rack(mut self, rack: impl Into<String>) -> Self {
        self.details.rack = Some(rack.into());
        self
    }

    /// What it is called where a group is described. Default: the empty string.
    #[doc(alias = "client.id")]
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.details.client_id = id.into();
        self
    }

    /// How partitions are to be shared out. Default: it does not mind, which is [`Assignor::Uniform`] where nobody does.
    #[doc(alias = "group.remote.assignor")]
    pub fn assignor(mut self, assignor: Assignor) -> Self {
        self.details.assignor = Some(assignor);
        self
    }

    /// A consumer of which nothing was heard for so long is out of its group. The log's threads tell of it, so this is for
    /// processes that are gone, or stand still: three times in this time at least. Default, and at most: what the group's
    /// coordinator has (45 s). Machines that stand still for a moment under load are out of their groups with a short one.
    #[doc(alias = "session.timeout.ms")]
    #[doc(alias = "group.consumer.session.timeout.ms")]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.details.session_timeout = Some(timeout);
        self
    }

    /// A consumer that does not poll for so long is out of its group, and its partitions go to others; a poll that waits
    /// polls. What is asked back from it is to be given back within the same time. Default: 5 minutes.
    #[doc(alias = "max.poll.interval.ms")]
    pub fn max_poll_interval(mut self, interval: Duration) -> Self {
        self.max_poll_interval = interval;
        self
    }

    /// Commits by itself what the poll before has returned: at the head of a poll, once so much time has passed since the
    /// last time; before partitions are given back; and by [`Consumer::close`]. A poll waits until that is stored.
    ///
    /// Default: it does not. (Kafka: every 5 seconds.) Whoever polls says by the next poll that the work is done: a host that
    /// hands records on to other threads, or commits in transactions, would lose some.
    #[doc(alias = "enable.auto.commit")]
    #[doc(alias = "auto.commit.interval.ms")]
    pub fn auto_commit(mut self, interval: Duration) -> Self {
        self.auto_commit = Some(interval);
        self
    }

    /// Where reading begins in a partition in which the group has no position. Found once, when the partition is assigned;
    /// it is the consumer's position from then on, and the next commit stores it. Default: [`StartAt::Earliest`] (Kafka: the
    /// latest).
    ///
    /// [`StartAt::Latest`] is about partitions that are there when the consumer is opened. Those that come while it lives are
    /// read from their first record on, whenever they are assigned: partitions that a topic gets, and topics that are made,
    /// or made again. (Kafka: these begin at the latest, too, and what was written to them before is skipped.) A consumer that
    /// is opened after a partition came begins at the end of that one, as in Kafka, also where others of its group have read
    /// it and have committed nothing. [`StartAt::Time`] means the same in every partition: the timestamps say what is read.
    #[doc(alias = "auto.offset.reset")]
    pub fn start_at(mut self, start: StartAt) -> Self {
        self.start_at = start;
        self
    }

    /// What a poll does where a position is not in the log, because the retention overtook it, say. Default:
    /// [`OutOfRange::Error`] (Kafka: go on at the latest).
    #[doc(alias = "auto.offset.reset")]
    pub fn out_of_range(mut self, policy: OutOfRange) -> Self {
        self.options.out_of_range = policy;
        self
    }

    /// Which records of transactions are shown. Default: [`Isolation::Committed`] (Kafka: uncommitted).
    #[doc(alias = "isolation.level")]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.options.isolation = isolation;
        self
    }

    /// How many bytes of batches a poll hands out at most; one batch is handed out whole even where it is larger.
    /// Default: 256 KiB (Kafka: 50 MiB, and 1 MiB of one partition; and 500 records).
    #[doc(alias = "fetch.max.bytes")]
    #[doc(alias = "max.partition.fetch.bytes")]
    #[doc(alias = "max.poll.records")]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.options.max_bytes = bytes;
        self
    }

    /// Is told which partitions come and go. Default: nobody.
    pub fn on_rebalance(mut self, listener: impl RebalanceListener + 'static) -> Self {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Opens the consumer. Its first poll joins the group.
    ///
    /// # Errors
    /// [`Error::InvalidName`] where the name of the group or of a topic is none, or an instance id or a rack is empty;
    /// [`Error::InvalidPattern`]; [`Error::InvalidConfig`] where nothing is to be read, where topics are subscribed to and
    /// partitions assigned, or a time is not within 1 ms and 2^31 ms; [`Error::UnknownTopic`] and
    /// [`Error::UnknownPartition`] of partitions that are assigned; [`Error::Closed`].
    pub fn open(self) -> Result<Consumer> {
        self.node.check_open()?;
        check_group(&self.group)?;
        let mut fetcher = Fetcher::new(Arc::clone(&self.node), self.options);
        let seat = if self.partitions.is_empty() {
            Some(Seat::new(self.member()?))
        } else {
            self.check_alone()?;
            for (topic, number) in &self.partitions {
                fetcher.assignment_mut().put(&*self.node.topic(topic)?, *number)?;
            }
            None
        };
        // The topics now: what was just assigned by hand is among them.
        let mut placing = Placing::new(self.start_at, &self.node.topics());
        if seat.is_none() {
            placing.begin();
        }
        let (commits, group) = (Commits::new(self.auto_commit, fetcher.now()), self.group);
        let core = Core { fetcher, group, seat, commits, placing };
        Ok(Consumer::new(core, self.listener, self.max_poll_interval))
    }

    fn member(&self) -> Result<MemberSettings> {
        let asked = Details { rebalance_timeout: self.max_poll_interval, ..self.details.clone() };
        let details = checked_subscription(&asked, asked.subscription.clone())?;
        let mut settings = MemberSettings::new(self.group.clone(), details);
        settings.max_poll_interval = self.max_poll_interval;
        Ok(settings)
    }

    fn check_alone(&self) -> Result<()> {
        if self.details.subscription == Subscription::default() {
            return Ok(());
        }
        let reason = "topics are subscribed to as well: the group shares these out, or the host, not both".to_owned();
        Err(Error::InvalidConfig { setting: "assign", reason })
    }
}

impl fmt::Debug for ConsumerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder")
            .field("group", &self.group)
            .field("details", &self.details)
            .field("partitions", &self.partitions)
            .field("auto_commit", &self.auto_commit)
            .field("start_at", &self.start_at)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// What a member says of itself, with this subscription.
pub(super) fn checked_subscription(details: &Details, subscription: Subscription) -> Result<Details> {
    if subscription.pattern.as_deref() == Some("") {
        let reason = "it is empty: no topic has a name like that".to_owned();
        return Err(Error::InvalidPattern { pattern: String::new(), reason });
    }
    if subscription == Subscription::default() {
        let reason = "a consumer subscribes to topics, or is assigned partitions: name one at least".to_owned();
        return Err(Error::InvalidConfig { setting: "subscribe", reason });
    }
    let details = Details { subscription, ..details.clone() };
    check_details(&details)?;
    if let Some(timeout) = details.session_timeout {
        check_time("session_timeout", timeout)?;
    }
    Ok(details)
}
