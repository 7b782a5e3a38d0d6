//! What the reader promises, over topics in memory.

mod group;
mod led_on;
mod model;
mod positions;
mod topics;
mod turns;
mod waiting;

use std::path::PathBuf;
use std::sync::Arc;

use super::reader::{Reader, ReaderBuilder};
use crate::clock::{Clock, ManualClock};
use crate::config::{Durability, PartitionConfig, TopicConfig};
use crate::error::Error;
use crate::node::{Node, Topic, Topics};
use crate::partition::Partition;
use crate::record::batch::{set_base_offset, set_leader_epoch};
use crate::record::builder::{BatchBuilder, Record};
use crate::record::control::{Marker, Outcome, marker_batch};
use crate::storage::MemoryStorage;
use crate::types::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId};

/// A node with topics in memory. What is appended is readable at once.
struct Rig {
    node: Arc<Node>,
    storage: MemoryStorage,
    clock: Arc<dyn Clock>,
}

impl Rig {
    fn new() -> Self {
        Self::with_clock(Arc::new(ManualClock::at(Timestamp(0))))
    }

    fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { node: Node::new(Arc::clone(&clock)), storage: MemoryStorage::new(3), clock }
    }

    fn open(&self, storage: &MemoryStorage, id: u8, name: &str, number: usize) -> Partition {
        let config = PartitionConfig::new().durability(Durability::Os).segment_bytes(600).index_interval_bytes(100);
        let directory = PathBuf::from(format!("data/{id}")).join(format!("{name}-{number}"));
        let builder = Partition::builder(directory).config(config).storage(storage.shared());
        builder.clock(Arc::clone(&self.clock)).open().expect("it opens")
    }

    /// A topic of this identity has so many partitions from now on: those that it has stay.
    fn topic(&self, name: &str, id: u8, partitions: usize) {
        let mut topics = Topics::clone(&self.node.topics());
        let same = topics.get(name).filter(|topic| topic.id == TopicId([id; 16]));
        let mut opened = same.map(|topic| topic.partitions.clone()).unwrap_or_default();
        for number in opened.len()..partitions {
            opened.push(self.open(&self.storage, id, name, number));
        }
        put(&mut topics, name, id, opened);
        self.node.publish(topics);
    }

    fn delete(&self, name: &str) {
        let mut topics = Topics::clone(&self.node.topics());
        topics.remove(name).expect("it is there");
        self.node.publish(topics);
    }

    fn partition(&self, topic: &str, number: u32) -> Partition {
        self.node.topic(topic).expect("it is there").partition(number).expect("it is there").clone()
    }

    /// Appends one batch of so many records.
    fn append(&self, topic: &str, number: u32, records: u64) {
        append(&self.partition(topic, number), records);
    }

    fn reader(&self) -> ReaderBuilder {
        ReaderBuilder::new(Arc::clone(&self.node))
    }
}

fn put(topics: &mut Topics, name: &str, id: u8, partitions: Vec<Partition>) {
    let (name, config): (Arc<str>, _) = (Arc::from(name), TopicConfig::default());
    let topic = Topic { name: Arc::clone(&name), id: TopicId([id; 16]), config, partitions };
    topics.insert(name, Arc::new(topic));
}

/// A batch whose records carry the given timestamp.
fn batch(records: u64, timestamp: Timestamp) -> BatchBuilder {
    let mut batch = BatchBuilder::new();
    for _ in 0..records {
        batch.push(&Record::new("value").key("key").timestamp(timestamp)).expect("small");
    }
    batch
}

/// Appends one batch of so many records.
fn append(partition: &Partition, records: u64) {
    append_at(partition, records, Timestamp(1));
}

fn append_at(partition: &Partition, records: u64, timestamp: Timestamp) {
    let _ = partition.append(&mut batch(records, timestamp)).expect("appended");
}

/// Appends records of a producer's transaction.
fn append_transactional(partition: &Partition, producer: i64, records: u64, timestamp: Timestamp) {
    let mut batch = batch(records, timestamp);
    batch.producer(ProducerId(producer), ProducerEpoch(0), Sequence(0));
    batch.transactional(true);
    let _ = partition.append(&mut batch).expect("appended");
}

/// Appends the end of a producer's transaction, as a coordinator writes it.
fn end_transaction(partition: &Partition, producer: i64, outcome: Outcome) {
    let mut bytes = marker_batch(&Marker {
        outcome,
        producer_id: ProducerId(producer),
        producer_epoch: ProducerEpoch(0),
        coordinator_epoch: 0,
        timestamp: Timestamp(1),
    });
    set_base_offset(&mut bytes, partition.end());
    set_leader_epoch(&mut bytes, partition.leader_epoch());
    let _ = partition.append_replica(&bytes, partition.leader_epoch()).expect("appended");
}

/// One poll: the partition and the offsets that it gave; `None` where nothing came.
fn take(reader: &mut Reader) -> Result<Option<(String, u32, Vec<u64>)>, Error> {
    let polled = reader.try_poll()?;
    let offsets: Vec<_> = polled.records().map(|record| record.offset().0).collect();
    assert_eq!(polled.is_empty(), offsets.is_empty());
    Ok((!polled.is_empty()).then(|| (polled.topic().to_owned(), polled.partition(), offsets)))
}

/// Everything that polls give until nothing comes, without their batches.
fn drain(reader: &mut Reader) -> Vec<(String, u32, u64)> {
    let mut all = Vec::new();
    while let Some((topic, partition, offsets)) = take(reader).expect("readable") {
        all.extend(offsets.into_iter().map(|offset| (topic.clone(), partition, offset)));
    }
    all
}

/// The offsets of one partition among those.
fn offsets(drained: &[(String, u32, u64)], topic: &str, number: u32) -> Vec<u64> {
    let of = drained.iter().filter(|(name, partition, _)| name == topic && *partition == number);
    of.map(|(_, _, offset)| *offset).collect()
}

fn is_out_of_range(error: &Error, requested: u64, start: u64, end: u64) -> bool {
    let wanted = (Offset(requested), Offset(start), Offset(end));
    matches!(error, Error::OffsetOutOfRange { requested, start, end, .. } if (*requested, *start, *end) == wanted)
}
