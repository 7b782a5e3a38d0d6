//! A member of a group, or one whose partitions were assigned by hand: it reads where its group has come to, and says how
//! far it has come.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::assignment::Slot;
use super::builder::checked_subscription;
use super::commits::CommittedOffset;
use super::core::Core;
use super::fetcher::{Fetcher, Step};
use super::nap::{self, Polls};
use super::polled::Polled;
use super::rebalance::{RebalanceListener, positions};
use super::waker::PollWaker;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::group::Subscription;
use crate::types::TopicPartition;

/// Reads the topics of a group: its partitions are shared out among the group's consumers, and how far each has come is kept
/// in the log. [`Log::consumer`](crate::Log::consumer) makes it; it is one thread's.
///
/// Each partition is one consumer's at any moment. When consumers come and go, topics are made or get partitions, the group
/// shares anew, and moves as few partitions as it can; a consumer takes and gives back partitions within its polls
/// ([`RebalanceListener`] is told), and keeps what stays with it as it is. So it has to poll: one that does not for
/// [`max_poll_interval`](crate::ConsumerBuilder::max_poll_interval) is out of the group, and its next poll joins anew. The
/// log's own threads tell the group that a consumer is alive.
///
/// A poll hands out records of one partition, and its position there moves behind them. Partitions take turns, also those
/// that answer an error. What a poll has handed out, [`Consumer::commit`] stores as the group's position: whoever gets the
/// partition next, in another process or after a crash, goes on there.
///
/// ```
/// use std::time::Duration;
/// use taffrail::{Log, Record, TopicConfig};
/// # let directory = tempfile::tempdir()?;
/// # let log = Log::open(directory.path().join("data"))?;
/// # log.ensure_topic("orders", TopicConfig::new().partitions(4))?;
/// # log.producer().open()?.send("orders", Record::new("placed").key("customer-7"))?.wait()?;
/// let mut consumer = log.consumer("billing").subscribe(["orders"]).open()?;
/// loop {
///     let polled = consumer.poll(Duration::from_secs(1))?;
///     for record in &polled {
///         println!("{}-{} {} {:?}", polled.topic(), polled.partition(), record.offset(), record.value_str());
///     }
///     consumer.commit()?;
///     # break;
/// }
/// consumer.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # At most once, at least once, exactly once
///
/// It depends on when the position is committed. Behind the work: records whose work was done and not committed come again
/// after a crash, or to whoever gets the partition. **At least once**, so that the work has to bear repetition:
///
/// ```
/// # use std::time::Duration;
/// # use taffrail::{Log, Record, TopicConfig};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// # fn work(_: &str) {}
/// let log = Log::open(&path)?;
/// log.ensure_topic("orders", TopicConfig::new())?;
/// log.producer().open()?.send("orders", Record::new("placed"))?.wait()?;
///
/// let mut consumer = log.consumer("billing").subscribe(["orders"]).open()?;
/// let polled = consumer.poll(Duration::from_secs(1))?;
/// polled.records().filter_map(|record| record.value_str()).for_each(work);
/// drop(consumer); // it ends here, before the commit
///
/// let mut consumer = log.consumer("billing").subscribe(["orders"]).open()?;
/// let again = consumer.poll(Duration::from_secs(1))?;
/// assert_eq!(again.records().count(), 1);
/// again.records().filter_map(|record| record.value_str()).for_each(work);
/// consumer.commit()?;
/// assert_eq!(consumer.committed([("orders", 0)])?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Before the work: what was committed and whose work was not done is never seen again. **At most once**:
///
/// ```
/// # use std::time::Duration;
/// # use taffrail::{Log, Record, TopicConfig};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// let log = Log::open(&path)?;
/// log.ensure_topic("readings", TopicConfig::new())?;
/// log.producer().open()?.send("readings", Record::new("21.5"))?.wait()?;
///
/// let mut consumer = log.consumer("display").subscribe(["readings"]).open()?;
/// let polled = consumer.poll(Duration::from_secs(1))?;
/// consumer.commit()?;
/// drop((polled, consumer)); // it ends here, before the work
///
/// let mut consumer = log.consumer("display").subscribe(["readings"]).open()?;
/// assert!(consumer.poll(Duration::from_millis(10))?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`auto_commit`](crate::ConsumerBuilder::auto_commit) is at least once where the work on what a poll has returned is done
/// before the next poll, and neither where records are handed on to other threads: then a position may be committed before
/// the work.
///
/// **Exactly once** is there where the results are records of the same log: the position is stored in the transaction that
/// writes them, so that both count or neither:
///
/// ```
/// # use std::time::Duration;
/// # use taffrail::{Log, Record, TopicConfig};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// let log = Log::open(&path)?;
/// log.ensure_topic("orders", TopicConfig::new())?;
/// log.ensure_topic("invoices", TopicConfig::new())?;
/// log.producer().open()?.send("orders", Record::new("placed").key("customer-7"))?.wait()?;
///
/// for attempt in ["it ends here, before the commit", "it is committed"] {
///     let mut output = log.transactional_producer("billing-1").open()?; // fences whoever had the id
///     let mut input = log.consumer("billing").subscribe(["orders"]).open()?;
///     let polled = input.poll(Duration::from_secs(1))?;
///     let transaction = output.begin()?;
///     for order in &polled {
///         transaction.send("invoices", Record::new("12.50").key(order.key().unwrap_or_default()))?;
///     }
///     transaction.commit_progress(input.progress())?;
///     if attempt == "it is committed" {
///         transaction.commit()?;
///     }
/// }
///
/// let mut invoices = log.reader().topics(["invoices"]).open()?;
/// assert_eq!(invoices.poll(Duration::from_secs(1))?.records().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A transaction may have the results of several polls. Where one of these gives back a partition that another has read in the
/// same transaction, [`Transaction::commit_progress`](crate::Transaction::commit_progress) answers [`Error::GivenUp`]: abort it,
/// and go on with [`Consumer::seek_to_committed`].
///
/// Whoever writes elsewhere stores the position there, with the results, and seeks to it when a partition is assigned.
#[doc(alias = "KafkaConsumer")]
pub struct Consumer {
    pub(super) core: Core,
    pub(super) listener: Option<Box<dyn RebalanceListener>>,
    /// Whether the first poll has waited for its partitions.
    has_arrived: bool,
    /// The longest time between two polls.
    poll_interval: Duration,
}

/// So long at most the first poll waits for the group, before its own time begins.
const ARRIVAL: Duration = Duration::from_secs(30);

/// How often a poll that sleeps looks at commits that nobody waits for.
const LOOK: Duration = Duration::from_millis(10);

impl Consumer {
    pub(super) fn new(core: Core, listener: Option<Box<dyn RebalanceListener>>, poll_interval: Duration) -> Self {
        Self { core, listener, has_arrived: false, poll_interval }
    }

    /// Records of one partition; empty where none came within `timeout`. `Duration::MAX` waits without end, or until
    /// its [waker](Self::waker) ends that.
    ///
    /// The first poll joins the group. Before its own time begins it waits for what the group gives it, 30 seconds at most:
    /// so `poll(Duration::ZERO)` returns records if there are any for it. What other consumers have to give back first
    /// comes when they have polled; a poll wakes for it, and for all that [`Reader::poll`](crate::Reader::poll) wakes for.
    ///
    /// Every poll, also while it waits, gives back what the group asks for, and takes what it gives: see
    /// [`RebalanceListener`]. Then it commits if that is due ([`auto_commit`](crate::ConsumerBuilder::auto_commit)). Nothing
    /// is handed out that another consumer may own by now.
    ///
    /// # Errors
    /// Those of partitions, as [`Reader::poll`](crate::Reader::poll) answers them at their turns ([`Consumer::failed`] says
    /// whose), but for a topic that was deleted: the group takes it from its consumers, and it is waited for. Besides:
    /// - [`Error::FencedInstance`] where another consumer has the instance id, [`Error::GroupFull`]: for good, until
    ///   [`Consumer::subscribe`];
    /// - what a commit that is due by itself answers ([`Consumer::commit`]), and what the listener answers;
    /// - [`Error::Closed`] once the log is closed.
    pub fn poll(&mut self, timeout: Duration) -> Result<Polled> {
        if !self.arrive()? {
            return Ok(Polled::default());
        }
        nap::poll(self, timeout)
    }

    /// Records of one partition, without waiting for any, nor for the group; empty where there are none, or where nothing
    /// is assigned yet.
    ///
    /// # Errors
    /// As [`Consumer::poll`].
    pub fn try_poll(&mut self) -> Result<Polled> {
        nap::try_poll(self)
    }

    /// Ends the wait of a poll, from another thread.
    #[must_use]
    pub fn waker(&self) -> PollWaker {
        self.core.fetcher.waker().clone()
    }

    /// What is done at the head of each poll.
    fn attend(&mut self) -> Result<()> {
        self.core.fetcher.forget_failed();
        self.core.fetcher.update()?;
        self.core.look_at_commits();
        self.rebalance()?;
        self.core.commit_if_due()?;
        self.core.place()
    }

    /// Waits for what the group gives, the first time; `false` where somebody has ended that.
    fn arrive(&mut self) -> Result<bool> {
        let deadline = self.core.now().after(ARRIVAL);
        while !self.has_arrived {
            self.attend()?;
            let Some(membership) = self.core.join()? else { break };
            if membership.claim().is_some() || self.core.now() >= deadline {
                break;
            }
            membership.settle();
            if membership.claim().is_none() {
                if self.core.fetcher.waker().take() {
                    return Ok(false);
                }
                self.core.fetcher.node().wait(self.core.fetcher.signal(), self.wake_by(deadline));
            }
        }
        self.has_arrived = true;
        Ok(true)
    }
}

impl Polls for Consumer {
    fn fetcher(&self) -> &Fetcher {
        &self.core.fetcher
    }

    fn step(&mut self) -> Result<Step> {
        self.attend()?;
        self.core.fetcher.step()
    }

    /// When there is something to do, though nothing comes.
    fn wake_by(&self, deadline: Moment) -> Moment {
        let now = self.core.now();
        let Core { commits, placing, seat, .. } = &self.core;
        let stay = seat.as_ref().map(|_| now.after(self.poll_interval / 2));
        let look = commits.is_pending().then(|| now.after(LOOK));
        let commit = commits.due().filter(|_| self.core.has_moved());
        [stay, look, commit, placing.due()].into_iter().flatten().fold(deadline, Moment::min)
    }
}

/// Commits.
impl Consumer {
    /// Stores what polls have handed out as the group's position, in each partition that is assigned and whose position has
    /// changed since: it is stored when this returns, as durably as the topic of positions says
    /// (`__consumer_offsets`; [`Durability::Auto`](crate::Durability::Auto) by default). Earlier commits that are under way
    /// are waited for.
    ///
    /// What a seek has set is stored too, and where reading begins in a partition in which the group has no position, once that
    /// is known: whoever gets the partition later begins there, though nothing was read of it.
    ///
    /// # Errors
    /// The position is not stored in these cases, and whoever gets the partition reads the records again:
    /// - [`Error::UnknownMember`], [`Error::FencedMember`]: the consumer was out of its group for a while, or has not joined
    ///   yet. The next poll joins anew;
    /// - [`Error::FencedInstance`]: another consumer has taken over the instance id;
    /// - [`Error::UnknownMember`] also where partitions were assigned by hand and the group has members: it is theirs.
    ///
    /// [`Error::UnknownTopic`] where a topic was deleted meanwhile: the next commit stores the others. It may be stored, or
    /// not, after what the disk says ([`Error::Io`], [`Error::Poisoned`]); the next commit stores it.
    /// [`Error::Closed`] once the log is closed. (A member that the group leads on meanwhile commits with its new epoch by
    /// itself; should it be led on again and again, that is [`Error::StaleMember`].)
    #[doc(alias = "commitSync")]
    pub fn commit(&mut self) -> Result<()> {
        self.core.commit()
    }

    /// As [`Consumer::commit`], without waiting. A later call tells `callback` what became of it: [`Consumer::poll`],
    /// [`Consumer::try_poll`], a commit, [`Consumer::seek_to_committed`] or [`Consumer::close`]. If the consumer is dropped, the callback is dropped too.
    ///
    /// What has failed is stored by the next commit, if it is not overtaken by then. A poll that gives partitions back waits
    /// for what is under way.
    #[doc(alias = "commitAsync")]
    pub fn commit_async(&mut self, callback: impl FnOnce(Result<()>) + Send + 'static) {
        self.core.commit_async(Box::new(callback));
    }

    /// Stores these as positions of the group: an [`Offset`](crate::Offset), a [`Position`](crate::Position), or a [`CommittedOffset`] with a
    /// note. Each is that of the next record to read, and may lie before the one stored now. The consumer reads on where it
    /// is, and its next [`commit`](Consumer::commit) stores where that is: also where nothing was read meanwhile.
    ///
    /// ```
    /// use std::time::Duration;
    /// use taffrail::{CommittedOffset, Log, Offset, TopicConfig};
    /// # let directory = tempfile::tempdir()?;
    /// # let log = Log::open(directory.path().join("data"))?;
    /// # log.ensure_topic("orders", TopicConfig::new().partitions(4))?;
    /// let mut consumer = log.consumer("billing").subscribe(["orders"]).open()?;
    /// consumer.poll(Duration::ZERO)?;
    /// consumer.commit_offsets([(("orders", 2), CommittedOffset::from(Offset(7)).metadata("by hand"))])?;
    /// let found = consumer.committed([("orders", 2)])?;
    /// assert_eq!(found.values().next().map(|committed| committed.offset), Some(Offset(7)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`]: nothing is stored. [`Error::OffsetMetadataTooLarge`], and as
    /// [`Consumer::commit`]. That an offset lies outside of the log is no error here, but at the next poll of whoever
    /// begins there.
    #[doc(alias = "commitSync")]
    pub fn commit_offsets(
        &mut self,
        offsets: impl IntoIterator<Item = (impl Into<TopicPartition>, impl Into<CommittedOffset>)>,
    ) -> Result<()> {
        self.core.commit_offsets(positions(offsets))
    }

    /// The group's positions in these partitions, assigned here or not; those without one are left out. What an open
    /// transaction is about to store does not count yet.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::CoordinatorLoading`], and what the disk says.
    pub fn committed(
        &self,
        partitions: impl IntoIterator<Item = impl Into<TopicPartition>>,
    ) -> Result<BTreeMap<TopicPartition, CommittedOffset>> {
        let node = self.core.fetcher.node();
        node.check_open()?;
        let partitions = partitions.into_iter().map(Into::into).collect();
        let found = node.committed(&self.core.group, Some(partitions), false)?;
        Ok(found.into_iter().map(|(partition, found)| (partition, found.position.into())).collect())
    }
}

/// The group.
impl Consumer {
    /// What is read, by topic and number: as the last poll has found it.
    #[must_use]
    pub fn assignment(&self) -> Vec<TopicPartition> {
        self.core.fetcher.assignment().slots().iter().map(Slot::name).collect()
    }

    /// The partition whose error the last poll has answered: the one to seek in, or to pause. `None` where it answered
    /// records, or an error that is no partition's.
    #[must_use]
    pub fn failed(&self) -> Option<&TopicPartition> {
        self.core.fetcher.failed()
    }

    /// Wants these topics from now on, all of their partitions, and no others: the group shares anew. What it has of others
    /// is read until a poll gives it back. A topic that is not there yet is waited for.
    ///
    /// # Errors
    /// [`Error::InvalidName`], and [`Error::InvalidConfig`] where there is none, or where partitions were assigned by hand;
    /// [`Error::Closed`].
    pub fn subscribe(&mut self, topics: impl IntoIterator<Item = impl Into<String>>) -> Result<()> {
        let topics = topics.into_iter().map(Into::into).collect();
        self.resubscribe(Subscription { topics, pattern: None })
    }

    /// Wants the topics from now on whose whole name the pattern matches, and no others: see
    /// [`ConsumerBuilder::subscribe_pattern`](crate::ConsumerBuilder::subscribe_pattern).
    ///
    /// # Errors
    /// [`Error::InvalidPattern`], and as [`Consumer::subscribe`].
    pub fn subscribe_pattern(&mut self, pattern: impl Into<String>) -> Result<()> {
        self.resubscribe(Subscription { pattern: Some(pattern.into()), ..Subscription::default() })
    }

    fn resubscribe(&mut self, subscription: Subscription) -> Result<()> {
        self.core.fetcher.node().check_open()?;
        let Some(seat) = &mut self.core.seat else {
            let reason = "its partitions were assigned by hand".to_owned();
            return Err(Error::InvalidConfig { setting: "subscribe", reason });
        };
        let details = checked_subscription(&seat.settings.details, subscription)?;
        if let Some(membership) = seat.membership() {
            membership.subscribe(details.subscription.clone());
        }
        seat.settings.details = details;
        Ok(())
    }

    /// By which id the group knows this consumer; `None` before it has joined, while it is out of its group, and where
    /// partitions were assigned by hand. Whoever was out comes back with another id.
    #[must_use]
    pub fn member_id(&self) -> Option<String> {
        let membership = self.core.seat.as_ref().and_then(|seat| seat.membership());
        membership.and_then(|membership| membership.claim()).map(|claim| claim.member)
    }

    /// Commits if it does so by itself, gives everything back (the listener is told), and leaves the group, so that the
    /// others have its partitions at once; a consumer with an instance id leaves them to its next instance, for a session.
    /// Commits that are under way are waited for, and their callbacks told.
    ///
    /// A consumer that is dropped leaves as well, and neither commits nor waits for anything; its listener is not told.
    ///
    /// # Errors
    /// The first thing that failed; it has left all the same, or its session ends.
    pub fn close(mut self) -> Result<()> {
        // Whoever has left commits nothing.
        self.core.finish_commits();
        self.leave()
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("group", &self.core.group)
            .field("assignment", self.core.fetcher.assignment())
            .finish_non_exhaustive()
    }
}
