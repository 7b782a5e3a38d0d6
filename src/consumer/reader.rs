//! A consumer without a group: it keeps its positions itself, and commits nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::assignment::{Slot, Which};
use super::fetcher::{FetchOptions, Fetcher};
use super::nap;
use super::polled::Polled;
use super::position::{OutOfRange, Position, StartAt};
use super::waker::PollWaker;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::types::{Isolation, Timestamp, TopicPartition};

/// Opens a [`Reader`]. [`Log::reader`](crate::Log::reader) makes it.
///
/// ```
/// use taffrail::{Isolation, Log, StartAt, TopicConfig};
/// # let directory = tempfile::tempdir()?;
/// # let log = Log::open(directory.path().join("data"))?;
/// # log.ensure_topic("orders", TopicConfig::new().partitions(4))?;
/// let all = log.reader().topics(["orders"]).start_at(StartAt::Latest).open()?;
/// let one = log.reader().partitions([("orders", 2)]).isolation(Isolation::Uncommitted).open()?;
/// assert_eq!((all.assignment().len(), one.assignment().len()), (4, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct ReaderBuilder {
    node: Arc<Node>,
    topics: Vec<String>,
    partitions: Vec<(String, u32)>,
    start_at: StartAt,
    options: FetchOptions,
}

impl ReaderBuilder {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        let options = FetchOptions::default();
        Self { node, topics: Vec::new(), partitions: Vec::new(), start_at: StartAt::Earliest, options }
    }

    /// Reads all partitions of these topics, besides what was named before. Partitions that a topic gets later are
    /// read too, from their first record on, wherever reading started.
    #[doc(alias = "subscribe")]
    pub fn topics(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.topics.extend(names.into_iter().map(Into::into));
        self
    }

    /// Reads these partitions, by topic and number from 0, besides what was named before.
    #[doc(alias = "assign")]
    pub fn partitions(mut self, partitions: impl IntoIterator<Item = (impl Into<String>, u32)>) -> Self {
        self.partitions.extend(partitions.into_iter().map(|(topic, number)| (topic.into(), number)));
        self
    }

    /// Where reading begins, in each partition, until a seek says otherwise. Default: [`StartAt::Earliest`] (Kafka: the
    /// latest).
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
    /// Default: 256 KiB (Kafka: 50 MiB, and 1 MiB of one partition).
    #[doc(alias = "fetch.max.bytes")]
    #[doc(alias = "max.partition.fetch.bytes")]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.options.max_bytes = bytes;
        self
    }

    /// Opens the reader.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`], [`Error::InvalidConfig`] where nothing is to be read,
    /// [`Error::Closed`], and with [`StartAt::Time`] what a search by time answers.
    pub fn open(self) -> Result<Reader> {
        self.node.check_open()?;
        if self.topics.is_empty() && self.partitions.is_empty() {
            let reason = "a reader reads topics or partitions: name one at least".to_owned();
            return Err(Error::InvalidConfig { setting: "topics", reason });
        }
        let mut fetcher = Fetcher::new(Arc::clone(&self.node), self.options);
        for name in &self.topics {
            fetcher.follow(&*self.node.topic(name)?, self.start_at)?;
        }
        for (name, number) in &self.partitions {
            fetcher.assign(&*self.node.topic(name)?, *number, self.start_at)?;
        }
        Ok(Reader { fetcher })
    }
}

impl fmt::Debug for ReaderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaderBuilder")
            .field("topics", &self.topics)
            .field("partitions", &self.partitions)
            .field("start_at", &self.start_at)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Reads partitions without belonging to a group: what it has read, it alone knows.
///
/// A poll hands out records of one partition, and its position there moves behind them. Partitions take turns, also
/// those that answer an error: the next poll goes on with the next partition, and one with endless data holds up no
/// other. Order is kept within each partition.
///
/// Positions are not stored anywhere: whoever wants to go on after a restart keeps [`Reader::position`] with what it
/// made of the records, and hands it to [`Reader::seek`].
///
/// ```
/// use std::time::Duration;
/// use taffrail::{Log, Record, TopicConfig};
/// # let directory = tempfile::tempdir()?;
/// # let log = Log::open(directory.path().join("data"))?;
/// # log.ensure_topic("orders", TopicConfig::new().partitions(4))?;
/// # log.producer().open()?.send("orders", Record::new("placed").key("customer-7"))?;
/// let mut reader = log.reader().topics(["orders"]).open()?;
/// loop {
///     let polled = reader.poll(Duration::from_secs(1))?;
///     for record in &polled {
///         println!("{}-{} {} {:?}", polled.topic(), polled.partition(), record.offset(), record.value_str());
///     }
///     # break;
/// }
///
/// // What there is without waiting, up to the end of all partitions:
/// reader.seek_to_beginning("orders")?;
/// let mut count = 0;
/// loop {
///     let polled = reader.try_poll()?;
///     if polled.is_empty() {
///         break;
///     }
///     count += polled.records().count();
/// }
/// assert_eq!(count, 1);
///
/// // To go on later, keep positions with what was made of the records:
/// let kept = reader.position("orders", 3)?;
/// reader.seek("orders", 3, kept)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "KafkaConsumer")]
pub struct Reader {
    fetcher: Fetcher,
}

impl Reader {
    /// Records of one partition; empty where none came within `timeout`. `Duration::MAX` waits without end.
    ///
    /// It wakes when records can be read, when topics change, and when the log is closed. What is not shown (aborted
    /// transactions, say) is passed over meanwhile, so that an empty answer says that time ran out, not that the end
    /// is reached: [`Reader::try_poll`] says that.
    ///
    /// # Errors
    /// An error is answered when the turn of its partition comes ([`Reader::failed`] says whose), at each of its turns,
    /// and nothing is skipped, until a seek or a pause:
    /// - [`Error::OffsetOutOfRange`], with both ends, where the position is not in the log (unless
    ///   [`ReaderBuilder::out_of_range`] says otherwise);
    /// - [`Error::Truncated`] where the log was cut below the position, even if it has grown again: what was read is
    ///   not what stands there now, so this is an error under every policy;
    /// - [`Error::Corrupt`] where bytes are damaged: a seek to the end of its offsets goes on behind them;
    /// - [`Error::UnknownTopic`] where the topic was deleted. If there is another of that name by then, it is read from
    ///   its first record on after this has been answered once. A partition that the other one does not have is no
    ///   longer assigned then, if its topic was named ([`ReaderBuilder::topics`]);
    /// - [`Error::UnknownPartition`] in that case, if the partition was named ([`ReaderBuilder::partitions`]);
    /// - what else a read answers: [`Error::Io`], [`Error::CodecDisabled`], [`Error::DecompressionBound`],
    ///   [`Error::LegacyFormat`].
    ///
    /// [`Error::Closed`] once the log is closed.
    pub fn poll(&mut self, timeout: Duration) -> Result<Polled> {
        nap::poll(&mut self.fetcher, timeout)
    }

    /// Records of one partition, without waiting; empty where no partition has any to show.
    ///
    /// # Errors
    /// As [`Reader::poll`].
    pub fn try_poll(&mut self) -> Result<Polled> {
        nap::try_poll(&mut self.fetcher)
    }

    /// Ends the wait of a poll, from another thread.
    #[must_use]
    pub fn waker(&self) -> PollWaker {
        self.fetcher.waker().clone()
    }

    /// Reads a partition from `position` on: an [`Offset`](crate::Offset), or a [`Position`] that was kept with its
    /// leader epoch. Whether it is in the log, the next poll says.
    ///
    /// # Errors
    /// [`Error::UnknownTopic`], [`Error::UnknownPartition`], [`Error::NotAssigned`] where it is none of this reader's,
    /// [`Error::OffsetOutOfRange`] for 2^63 and above, which no log has,
    /// [`Error::Closed`].
    pub fn seek(&mut self, topic: &str, partition: u32, position: impl Into<Position>) -> Result<()> {
        self.fetcher.seek(topic, partition, position.into())
    }

    /// Reads these from their first record on, as it is when it is read: [`Which::All`], `"topic"`, or
    /// `("topic", 2)`.
    ///
    /// # Errors
    /// As [`Reader::seek`]; on an error no position has moved. Of several, those that were deleted are no error here, but
    /// at their turn: the others are moved. A topic of which none is left is.
    #[doc(alias = "seekToBeginning")]
    pub fn seek_to_beginning<'a>(&mut self, which: impl Into<Which<'a>>) -> Result<()> {
        self.fetcher.seek_to(which.into(), StartAt::Earliest)
    }

    /// Goes behind the last record that can be read now, in each of these: what is appended from now on is read.
    ///
    /// # Errors
    /// As [`Reader::seek_to_beginning`].
    #[doc(alias = "seekToEnd")]
    pub fn seek_to_end<'a>(&mut self, which: impl Into<Which<'a>>) -> Result<()> {
        self.fetcher.seek_to(which.into(), StartAt::Latest)
    }

    /// Goes to the first record whose timestamp (milliseconds since 1970) is at or after this one, in each of these,
    /// as [`StartAt::Time`] does; later records may have earlier timestamps.
    ///
    /// # Errors
    /// As [`Reader::seek_to_beginning`], and what [`Partition::find_timestamp`](crate::Partition::find_timestamp)
    /// answers.
    #[doc(alias = "offsetsForTimes")]
    pub fn seek_to_time<'a>(&mut self, which: impl Into<Which<'a>>, timestamp: Timestamp) -> Result<()> {
        self.fetcher.seek_to(which.into(), StartAt::Time(timestamp))
    }

    /// Where a partition is read next: behind the last record that a poll has handed out.
    ///
    /// # Errors
    /// As [`Reader::seek`], but it is answered in a closed log too.
    pub fn position(&self, topic: &str, partition: u32) -> Result<Position> {
        let position = self.fetcher.position(topic, partition)?;
        // It is known from the beginning: no group has committed it.
        Ok(position.unwrap_or_default())
    }

    /// Reads these no more until [`Reader::resume`]; their positions stay, and their errors keep quiet. Partitions that
    /// come later are not paused.
    ///
    /// # Errors
    /// As [`Reader::seek`]; deleted topics can be paused.
    pub fn pause<'a>(&mut self, which: impl Into<Which<'a>>) -> Result<()> {
        self.fetcher.set_paused(which.into(), true)
    }

    /// Reads these again.
    ///
    /// # Errors
    /// As [`Reader::pause`].
    pub fn resume<'a>(&mut self, which: impl Into<Which<'a>>) -> Result<()> {
        self.fetcher.set_paused(which.into(), false)
    }

    /// Those that are paused, by topic and number.
    #[must_use]
    pub fn paused(&self) -> Vec<TopicPartition> {
        self.fetcher.paused()
    }

    /// What is read, by topic and number: as the last poll or seek has found it.
    #[must_use]
    pub fn assignment(&self) -> Vec<TopicPartition> {
        let slots = self.fetcher.assignment().slots().iter();
        slots.map(Slot::name).collect()
    }

    /// The partition whose error the last [`Reader::poll`] or [`Reader::try_poll`] has answered: the one to seek in, or
    /// to pause. `None` where it answered records, or an error that is no partition's ([`Error::Closed`]).
    ///
    /// ```
    /// use taffrail::{Error, Log, Offset, TopicConfig, Which};
    /// # let directory = tempfile::tempdir()?;
    /// # let log = Log::open(directory.path().join("data"))?;
    /// # log.ensure_topic("orders", TopicConfig::new().partitions(4))?;
    /// let mut reader = log.reader().topics(["orders"]).open()?;
    /// reader.seek("orders", 2, Offset(1000))?;
    /// let error = reader.try_poll().expect_err("there is no such offset");
    /// assert!(matches!(error, Error::OffsetOutOfRange { .. }));
    /// if let Some(failed) = reader.failed().cloned() {
    ///     assert_eq!(failed.to_string(), "orders-2");
    ///     reader.seek_to_beginning(&failed)?;
    /// }
    /// assert!(reader.try_poll()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn failed(&self) -> Option<&TopicPartition> {
        self.fetcher.failed()
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("assignment", self.fetcher.assignment()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
impl Reader {
    pub(super) fn listeners(&self) -> usize {
        self.fetcher.listeners()
    }
}
