//! The settings of a producer, and the one place where they are checked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Producer;
use super::partitioner::{Murmur2, Partitioner};
use crate::error::{Error, Result};
use crate::node::Node;
use crate::types::{Acks, Compression};

/// What `send` does where the producer holds as many unsent bytes as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// Appends open batches, the oldest first, and waits at most so long for those that other threads are appending;
    /// then [`Error::MemoryFull`] (Kafka: `max.block.ms`). The default, with 60 s.
    #[doc(alias = "max.block.ms")]
    Block(Duration),
    /// Answers [`Error::MemoryFull`] at once.
    Fail,
}

/// Opens a [`Producer`]. [`Log::producer`](crate::Log::producer) makes it.
///
/// ```
/// use std::time::Duration;
/// use taffrail::{Acks, Compression, Log};
/// # let directory = tempfile::tempdir()?;
/// # let log = Log::open(directory.path().join("data"))?;
/// let producer = log
///     .producer()
///     .acks(Acks::Leader)
///     .linger(Duration::from_millis(5))
///     .batch_bytes(64 << 10)
///     .compression(Compression::None)
///     .open()?;
/// # drop(producer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct ProducerBuilder {
    node: Arc<Node>,
    settings: Settings,
}

/// What was set; once a producer is open, it has passed the check as a whole.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) acks: Acks,
    pub(super) idempotent: bool,
    pub(super) linger: Duration,
    pub(super) batch_bytes: usize,
    pub(super) memory_bytes: usize,
    pub(super) when_full: WhenFull,
    /// None: as the topic says.
    pub(super) compression: Option<Compression>,
    pub(super) partitioner: Arc<dyn Partitioner>,
    pub(super) seed: u64,
}

impl ProducerBuilder {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        let settings = Settings {
            acks: Acks::All,
            idempotent: true,
            linger: Duration::ZERO,
            batch_bytes: 16 << 10,
            memory_bytes: 32 << 20,
            when_full: WhenFull::Block(Duration::from_secs(60)),
            compression: None,
            partitioner: Arc::new(Murmur2),
            seed: node.seed(),
        };
        Self { node, settings }
    }

    /// What is waited for before a record counts as stored. Default: [`Acks::All`], as in Kafka.
    ///
    /// - [`Acks::All`]: it is stored as the topic's [`Durability`](crate::Durability) says; one sync serves all who wait.
    /// - [`Acks::Leader`]: it is written. No sync is waited for.
    /// - [`Acks::None`]: as `Leader`, since on this node nothing has to be waited for to know a record's offset; but
    ///   nobody is told of a failure who did not ask for that very record: `flush` and `close` answer none. A
    ///   [`Delivery`](crate::Delivery) of a record that was not written has no offset to answer, so it answers the error.
    pub fn acks(mut self, acks: Acks) -> Self {
        self.settings.acks = acks;
        self
    }

    /// Whether the producer numbers its batches in each partition, so that none is stored twice or out of order, also where
    /// an append is tried again. Default: yes, as in Kafka; with any [`Acks`] (Kafka asks for all of them).
    ///
    /// It costs next to nothing. The first batch of a partition that never had one of an idempotent producer waits for a
    /// sync of a small file.
    #[doc(alias = "enable.idempotence")]
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.settings.idempotent = idempotent;
        self
    }

    /// How long a batch waits for more records, if nobody fills, waits on or flushes it. Default: 0 (Kafka: 5 ms since 4.0), it is
    /// appended as soon as the log's thread is free; what is sent meanwhile joins it. In a log without threads
    /// ([`LogBuilder::background`](crate::LogBuilder::background)) a tick does that.
    #[doc(alias = "linger.ms")]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.settings.linger = linger;
        self
    }

    /// How many bytes a batch is filled to, uncompressed and with its header, at most. A record that is larger gets a
    /// batch of its own. Where the topic takes less, or readers decompress less, that is the bound. Default: 16,384.
    #[doc(alias = "batch.size")]
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.settings.batch_bytes = bytes;
        self
    }

    /// How many bytes of memory all batches may take, open ones, those that are being appended, and buffers that are kept
    /// for the next. One takes `batch_bytes`, or what its topic takes where that is less, however many records it has, and
    /// more where its record is larger. What compresses is not counted: as much again, and what the codec needs, for each
    /// batch that is being compressed and two more. Default: 32 MiB.
    #[doc(alias = "buffer.memory")]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.settings.memory_bytes = bytes;
        self
    }

    /// What `send` does where that memory is full. Default: [`WhenFull::Block`] for 60 s.
    #[doc(alias = "max.block.ms")]
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.settings.when_full = when_full;
        self
    }

    /// How batches are compressed. A batch that compression makes larger than the topic takes, or that readers would not
    /// decompress, goes uncompressed where that is small enough.
    /// Default: as the topic says ([`TopicConfig::compression`](crate::TopicConfig::compression)), and where it does not,
    /// not at all.
    #[doc(alias = "compression.type")]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.settings.compression = Some(compression);
        self
    }

    /// What chooses the partition of a record. Default: [`Murmur2`].
    #[doc(alias = "partitioner.class")]
    pub fn partitioner(mut self, partitioner: impl Partitioner) -> Self {
        self.settings.partitioner = Arc::new(partitioner);
        self
    }

    /// What the random choices follow from: which partition records without a key go to next. The same seed repeats
    /// them. Default: one that follows from [`LogBuilder::seed`](crate::LogBuilder::seed), or that nobody can foresee.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Opens the producer.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`], [`Error::CodecDisabled`] where the codec is compiled out, [`Error::Closed`]; what the
    /// log's catalogue answers where it cannot give an id to an idempotent producer.
    pub fn open(self) -> Result<Producer> {
        let (node, settings) = self.checked()?;
        let producer_id = settings.idempotent.then(|| node.producer_id()).transpose()?;
        Ok(Producer::new(node, settings, producer_id, None))
    }

    /// The settings, where they go together.
    pub(super) fn checked(self) -> Result<(Arc<Node>, Settings)> {
        self.settings.check()?;
        self.node.check_open()?;
        Ok((self.node, self.settings))
    }
}

impl Settings {
    fn check(&self) -> Result<()> {
        let refuse = |setting, reason: String| Err(Error::InvalidConfig { setting, reason });
        let (batch, memory) = (self.batch_bytes, self.memory_bytes);
        if batch == 0 || batch > BATCH_BYTES_MAX {
            return refuse("batch_bytes", format!("{batch} is outside of 1 to 2^31 - 1"));
        }
        if batch > memory {
            return refuse("memory_bytes", format!("{memory} do not hold one batch of {batch} bytes"));
        }
        self.compression.map_or(Ok(()), Compression::check_enabled)
    }
}

impl fmt::Debug for ProducerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProducerBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}

const BATCH_BYTES_MAX: usize = i32::MAX as usize;
