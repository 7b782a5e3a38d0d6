//! The producer: records of any topic go into batches per partition, and the batches into the log.
//!
//! ```text
//!   send ─▶ routes      the topic as it is now, the partition              routes.rs, partitioner.rs, sticky.rs
//!        ─▶ lane        encoded into the open batch of its partition       lane.rs
//!        ─▶ sequences   numbered, so that nothing is stored twice          sequences.rs
//!        ─▶ memory      a buffer, for the first record of a batch          memory.rs
//!        ─▶ agenda      what is open, by age: linger, and who goes first   agenda.rs, accumulator.rs
//!        ─▶ delivery    what becomes of the record                         delivery.rs
//! ```
//!
//! Thread rule: a producer starts no thread, and every method may be called from any. Whoever fills a batch appends
//! it; so does who waits on one of its records, who flushes, and who needs its memory; what none of them takes the node
//! appends when it is due.
//!
//! Invariants: records of one partition are appended in the order in which their `send` calls returned; every delivery
//! ends in metadata or an error; open batches never take more memory than is allowed.

mod accumulator;
mod agenda;
mod builder;
mod delivery;
mod lane;
mod memory;
mod partitioner;
mod routes;
mod sequences;
mod sticky;
#[cfg(test)]
mod tests;
mod transaction;
mod transactional;

use std::borrow::Borrow;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::error::Result;
use crate::node::{Node, Timed};
use crate::record::builder::Record;
use crate::types::ProducerId;

pub use builder::{ProducerBuilder, WhenFull};
pub use delivery::{Delivery, Stored};
pub use partitioner::{Choice, Murmur2, Partitioner, Spread, murmur2};
pub use transaction::{Transaction, TransactionalProducer, TransactionalProducerBuilder};

use accumulator::Accumulator;
use builder::Settings;
use lane::{Pushed, Sent};
use routes::{Route, Routes};
use transactional::Transactional;

/// Sends records to topics.
///
/// Records of one partition, and so records with one key, are stored in the order in which the `send` calls returned,
/// from however many threads, as long as the topic keeps its number of partitions. A failed batch fails alone: those
/// behind it go on.
///
/// It is shared by reference: `send` takes `&self`. Dropping it appends what is open, without waiting for a sync; what
/// fails then is traced. [`Producer::close`] waits and answers.
///
/// ```
/// use taffrail::{Log, Record, TopicConfig};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// let log = Log::open(&path)?;
/// log.ensure_topic("orders", TopicConfig::new().partitions(4))?;
/// let producer = log.producer().open()?;
///
/// // One record, waited for:
/// let stored = producer.send("orders", Record::new("placed").key("customer-7"))?.wait()?;
/// println!("stored in partition {} at offset {}", stored.partition, stored.offset);
///
/// // Many, and one wait for all of them:
/// for amount in 1..=100 {
///     let value = format!("{{\"amount\":{amount}}}");
///     producer.send("orders", Record::new(&value).key("customer-7"))?;
/// }
/// producer.flush()?;
/// producer.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "KafkaProducer")]
pub struct Producer {
    accumulator: Arc<Accumulator>,
    routes: Arc<Routes>,
}

impl Producer {
    fn new(
        node: Arc<Node>,
        settings: Settings,
        producer_id: Option<ProducerId>,
        transactional: Option<Arc<Transactional>>,
    ) -> Self {
        let accumulator = Accumulator::new(node, settings, producer_id, transactional);
        let routes = Arc::new(Routes::new(&accumulator));
        let (batches, topics) = (Arc::downgrade(&accumulator), Arc::downgrade(&routes));
        let timed: [Weak<dyn Timed>; 2] = [batches, topics];
        for timed in timed {
            accumulator.node.register(timed);
        }
        Self { accumulator, routes }
    }

    /// Sends a record: encodes it into the open batch of its partition, and appends the batch if that is full. The
    /// record is stored as [`Delivery::wait`] says, at once where that is called, else when its batch is full or due.
    ///
    /// A record without a timestamp gets the time of this call.
    ///
    /// # Errors
    /// The record is not sent on [`Error::UnknownTopic`](crate::Error::UnknownTopic),
    /// [`Error::UnknownPartition`](crate::Error::UnknownPartition), [`Error::NullKey`](crate::Error::NullKey) where the
    /// topic is compacted, [`Error::InvalidTimestamp`](crate::Error::InvalidTimestamp),
    /// [`Error::BatchTooLarge`](crate::Error::BatchTooLarge) where no batch of the partition holds it,
    /// [`Error::DecompressionBound`](crate::Error::DecompressionBound) where no reader would decompress the batch that
    /// does, [`Error::RecordTooLarge`](crate::Error::RecordTooLarge) where the producer's memory does not hold it,
    /// [`Error::MemoryFull`](crate::Error::MemoryFull) as [`WhenFull`] says, [`Error::Closed`](crate::Error::Closed)
    /// after the log was closed. What a full batch fails with is told to its deliveries instead.
    ///
    /// A batch is appended or refused as a whole. What would be refused is not let in; but where that changes while a batch
    /// is open (a timestamp gets too old while it lingers, the topic's settings come to ask for keys), its records fail
    /// together.
    pub fn send<'r>(&self, topic: &str, record: impl Borrow<Record<'r>>) -> Result<Delivery> {
        self.send_as(topic, record.borrow(), self.accumulator.settings.when_full)
    }

    /// As [`Self::send`], but never waits for memory: where it is full it answers
    /// [`Error::MemoryFull`](crate::Error::MemoryFull), as with [`WhenFull::Fail`].
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn try_send<'r>(&self, topic: &str, record: impl Borrow<Record<'r>>) -> Result<Delivery> {
        self.send_as(topic, record.borrow(), WhenFull::Fail)
    }

    /// Returns when everything that was sent before is stored as [`Acks`](crate::Acks) say, but what failed.
    ///
    /// # Errors
    /// The last failure that no flush has answered which had ended when this one began, also where a delivery told of it
    /// already; none with [`Acks::None`](crate::Acks::None). A failure is so answered once, to whoever flushes next: where
    /// several threads flush, who wants to know of a record of its own waits on its delivery. Among the failures is
    /// [`Error::Superseded`](crate::Error::Superseded), as in [`Delivery::wait`]. Everything else is stored all the same.
    pub fn flush(&self) -> Result<()> {
        let told = self.accumulator.failures_told();
        self.accumulator.hand_over_all();
        let lanes = self.routes.lanes();
        for lane in &lanes {
            // Also waits for what another thread is appending; what fails is noted.
            drop(lane.hand_over(None));
        }
        let stored = lanes.iter().map(|lane| lane.settle()).fold(Ok(()), Result::and);
        self.accumulator.tell_failures(told).and(stored)
    }

    /// Flushes, and ends the producer. Deliveries stay good.
    ///
    /// # Errors
    /// As [`Self::flush`]; it is closed all the same.
    pub fn close(self) -> Result<()> {
        self.flush()
    }

    fn send_as(&self, topic: &str, record: &Record<'_>, when_full: WhenFull) -> Result<Delivery> {
        let accumulator = &*self.accumulator;
        accumulator.check_open()?;
        let route = self.routes.route(topic)?;
        let stamp = record.timestamp.unwrap_or_else(|| accumulator.node.clock().wall());
        let mut buffer = None;
        let (mut number, mut sticks) = route.choose(accumulator, record);
        loop {
            let lane = route.lane(number)?;
            lane.check(record, route.compression)?;
            let pushed = lane.push(record, stamp, route.compression, &mut buffer)?;
            if let Pushed::Done(sent) = pushed {
                return self.sent(&route, number, sticks, sent);
            }
            // The batch is ready: the sticky partition may move on.
            if sticks && route.note_sticky(accumulator, number, 0, true) {
                (number, sticks) = route.choose(accumulator, record);
                continue;
            }
            match pushed {
                Pushed::NoBuffer => {
                    let usual = lane.batch_bytes(route.compression);
                    buffer = Some(accumulator.buffer(record.batch_size_bytes(), usual, when_full)?);
                }
                // What fails is told to its deliveries.
                Pushed::NoRoom(full) => drop(lane.hand_over(Some(full))),
                Pushed::Done(_) => {}
            }
        }
    }

    /// What follows once a record is in its batch.
    #[inline]
    fn sent(&self, route: &Route, number: u32, sticks: bool, sent: Sent) -> Result<Delivery> {
        let Sent { delivery, bytes, filled, is_due_earlier } = sent;
        if sticks {
            route.note_sticky(&self.accumulator, number, bytes, filled.is_some());
        }
        if is_due_earlier {
            self.accumulator.node.wake();
        }
        if let Some(filled) = filled {
            // What fails is told to its deliveries.
            drop(route.lane(number)?.hand_over(Some(filled)));
            if let Some(error) = delivery.too_large() {
                return Err(error);
            }
        }
        Ok(delivery)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.accumulator.close();
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("settings", &self.accumulator.settings).finish_non_exhaustive()
    }
}
