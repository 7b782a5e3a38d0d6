//! A producer over partitions in memory, without a log: time stands still until a test moves it.

mod batches;
mod ending;
mod failures;
mod idempotence;
mod memory;
mod order;
mod settings;
mod topics;

use std::sync::Arc;
use std::time::Duration;

use super::{Producer, ProducerBuilder};
use crate::clock::ManualClock;
use crate::config::{Durability, PartitionConfig, TopicConfig};
use crate::node::{Node, Topic, Topics};
use crate::partition::{Partition, ReadOptions};
use crate::storage::MemoryStorage;
use crate::types::{Offset, Timestamp, TopicId};

/// When the clock of a test begins.
const START: Timestamp = Timestamp(1_700_000_000_000);

/// A node with topics, and what a test needs of it.
struct House {
    node: Arc<Node>,
    clock: Arc<ManualClock>,
    storage: MemoryStorage,
    topics: Topics,
}

impl House {
    /// With one topic, `orders`.
    fn new(partitions: u32, config: &PartitionConfig) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let node = Node::new(Arc::clone(&clock) as _);
        let mut house = Self { node, clock, storage: MemoryStorage::new(7), topics: Topics::new() };
        house.create("orders", 1, partitions, config);
        house
    }

    /// Where "stored" is "written", so that nothing has to be synced.
    fn unsynced(partitions: u32) -> Self {
        Self::new(partitions, &unsynced())
    }

    /// Publishes a topic, in place of one of the same name; `id` tells them apart.
    fn create(&mut self, name: &str, id: u8, partitions: u32, config: &PartitionConfig) {
        let open = |number| self.open(name, id, number, config);
        let partitions = (0..partitions).map(open).collect();
        self.publish(name, id, partitions);
    }

    /// Publishes more partitions of the same topic.
    fn grow(&mut self, name: &str, partitions: u32) {
        let topic = Arc::clone(&self.topics[name]);
        let mut all = topic.partitions.clone();
        let from = u32::try_from(all.len()).expect("it is small");
        all.extend((from..partitions).map(|number| self.open(name, topic.id.0[0], number, &unsynced())));
        self.publish(name, topic.id.0[0], all);
    }

    fn delete(&mut self, name: &str) {
        self.topics.remove(name);
        self.node.publish(self.topics.clone());
    }

    fn open(&self, name: &str, id: u8, number: u32, config: &PartitionConfig) -> Partition {
        Partition::builder(format!("{id}/{name}-{number}"))
            .config(config.clone())
            .storage(self.storage.shared())
            .clock(Arc::clone(&self.clock) as _)
            .open()
            .expect("it opens")
    }

    fn publish(&mut self, name: &str, id: u8, partitions: Vec<Partition>) {
        let name: Arc<str> = name.into();
        let topic =
            Topic { name: Arc::clone(&name), id: TopicId([id; 16]), config: TopicConfig::default(), partitions };
        self.topics.insert(name, Arc::new(topic));
        self.node.publish(self.topics.clone());
    }

    fn builder(&self) -> ProducerBuilder {
        ProducerBuilder::new(Arc::clone(&self.node)).seed(7)
    }

    /// With the defaults.
    fn producer(&self) -> Producer {
        self.builder().open().expect("it opens")
    }

    /// A producer whose batches stay open.
    fn lingering(&self) -> Producer {
        self.builder().linger(HOUR).open().expect("it opens")
    }

    fn partition(&self, number: usize) -> &Partition {
        &self.topics["orders"].partitions[number]
    }

    /// The keys and values of a partition of `orders`, in order.
    fn records(&self, number: usize) -> Vec<(String, String)> {
        read(self.partition(number))
    }

    /// The values of a partition of `orders`, in order.
    fn values(&self, number: usize) -> Vec<String> {
        self.records(number).into_iter().map(|(_, value)| value).collect()
    }

    /// How many records each partition of `orders` has.
    fn counts(&self) -> Vec<u64> {
        self.topics["orders"].partitions.iter().map(|partition| partition.end().0).collect()
    }
}

const HOUR: Duration = Duration::from_secs(3600);

fn unsynced() -> PartitionConfig {
    PartitionConfig::new().durability(Durability::Os)
}

/// Key and value of each record.
fn read(partition: &Partition) -> Vec<(String, String)> {
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let mut records = Vec::new();
    let mut at = Offset::ZERO;
    while at < partition.high_watermark() {
        let fetched = partition.try_read(at, ReadOptions::default()).expect("it reads");
        for record in &fetched {
            records.push((text(record.key()), text(record.value())));
            at = record.offset().plus(1);
        }
    }
    records
}

/// The sizes, in records, of the batches of a partition.
fn batch_sizes(partition: &Partition) -> Vec<u32> {
    let mut sizes = Vec::new();
    let mut at = Offset::ZERO;
    while at < partition.high_watermark() {
        let fetched = partition.try_read(at, ReadOptions::default()).expect("it reads");
        for batch in fetched.batches() {
            sizes.push(batch.header().record_count());
            at = batch.header().next_offset();
        }
    }
    sizes
}
