//! Worked examples of the figures, and monitors over a log in memory.

mod alerts;
mod figures;
mod holding;
mod lag;
#[cfg(feature = "metrics")]
mod metrics;

use std::sync::Arc;
use std::time::Duration;

use super::{Alert, GroupLag, Monitor, MonitorBuilder, Monitors, lag_of};
use crate::clock::{Clock, ManualClock};
use crate::config::{Retention, TopicConfig};
use crate::controller::Command;
use crate::error::Result;
use crate::group::{OFFSETS_PARTITIONS, OFFSETS_TOPIC, Position};
use crate::machine::home::partition_of;
use crate::node::Node;
use crate::partition::Partition;
use crate::record::builder::{BatchBuilder, Record};
use crate::storage::{Fault, MemoryStorage, OperationKind};
use crate::sync::Mutex;
use crate::types::{LeaderEpoch, Offset, Timestamp, TopicPartition};

/// When the clock begins.
const BEGIN: i64 = 1_000_000;
/// What a record of [`Rig::append`] takes, with its batch.
const SEGMENT: u64 = 970;
const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// A log in memory without threads; a record is a segment of its own.
struct Rig {
    clock: Arc<ManualClock>,
    storage: MemoryStorage,
    node: Arc<Node>,
    monitors: Arc<Monitors>,
    said: Arc<Mutex<Vec<Alert>>>,
}

fn open(storage: &MemoryStorage, clock: &Arc<ManualClock>) -> Arc<Node> {
    Node::on(storage, Arc::clone(clock) as _)
}

impl Rig {
    fn new() -> Self {
        let storage = MemoryStorage::new(1);
        let clock = Arc::new(ManualClock::at(Timestamp(BEGIN)));
        let node = open(&storage, &clock);
        Self { node, clock, storage, monitors: Arc::default(), said: Arc::new(Mutex::new(Vec::new())) }
    }

    fn reopened(self) -> Self {
        self.node.close().unwrap();
        Self { node: open(&self.storage, &self.clock), monitors: Arc::default(), ..self }
    }

    /// A topic whose segments have one record of [`Rig::append`]'s.
    fn topic(&self, name: &str, partitions: u32, retention: Retention) {
        let config = TopicConfig::new().partitions(partitions).segment_bytes(1_000).segment_age(None);
        self.make(name, config.retention(retention));
    }

    fn make(&self, name: &str, config: TopicConfig) {
        let id = self.node.new_topic_id();
        self.node.administer(name, Command::Create { name: name.to_owned(), id, config }).unwrap();
    }

    fn partition(&self, topic: &str, number: u32) -> Partition {
        self.node.topic(topic).unwrap().partition(number).unwrap().clone()
    }

    /// Appends records of 900 bytes in batches of their own, stamped with the time that it is.
    fn append(&self, topic: &str, number: u32, records: u64) {
        let value = [b'x'; 900];
        for _ in 0..records {
            let mut batch = BatchBuilder::new();
            batch.push(&Record::new(&value).timestamp(self.clock.wall())).unwrap();
            self.partition(topic, number).append(&mut batch).unwrap().wait().unwrap();
        }
    }

    fn commit(&self, group: &str, topic: &str, number: u32, offset: u64) {
        let position = Position { offset: Offset(offset), leader_epoch: None, metadata: String::new() };
        self.node.commit_positions(group, None, (vec![(name(topic, number), position)], &[]), None).unwrap();
    }

    /// The same, and the epoch of the record before.
    fn commit_read(&self, group: &str, topic: &str, number: u32, offset: u64, epoch: LeaderEpoch) {
        let position = Position { offset: Offset(offset), leader_epoch: Some(epoch), metadata: String::new() };
        self.node.commit_positions(group, None, (vec![(name(topic, number), position)], &[]), None).unwrap();
    }

    /// Where the coordinator of a group keeps its records.
    fn partition_of_groups(&self, group: &str) -> Partition {
        self.partition(OFFSETS_TOPIC, partition_of(group, OFFSETS_PARTITIONS))
    }

    /// The coordinator of a group cannot be read from now on: a commit has failed.
    fn break_groups(&self, group: &str) {
        let is_of_groups = |path: &std::path::Path| path.to_string_lossy().contains("__consumer_offsets");
        self.storage.fail_when(move |operation| {
            (operation.kind == OperationKind::Sync && is_of_groups(&operation.path)).then_some(Fault::SyncFails)
        });
        let position = Position { offset: Offset(0), leader_epoch: None, metadata: String::new() };
        let failed = self.node.commit_positions(group, None, (vec![(name("nothing", 0), position)], &[]), None);
        assert!(failed.is_err());
    }

    fn builder(&self) -> MonitorBuilder {
        let said = Arc::clone(&self.said);
        let builder = MonitorBuilder::new(Arc::clone(&self.node), Arc::clone(&self.monitors));
        builder.on_alert(move |alert| said.lock().push(alert.clone()))
    }

    fn monitor(&self) -> Monitor {
        self.builder().start().unwrap()
    }

    /// Time passes in steps, and what falls due at each is done.
    fn pass(&self, time: Duration, step: Duration) {
        for _ in 0..time.as_millis() / step.as_millis() {
            self.clock.advance(step);
            self.node.tick();
        }
    }

    /// What was said since the last call, shortly.
    fn said(&self) -> Vec<String> {
        let said = std::mem::take(&mut *self.said.lock());
        said.iter().map(|alert| format!("{} {}", alert.kind(), alert.partition())).collect()
    }

    fn lag(&self, group: &str) -> Result<GroupLag> {
        lag_of(&self.node, &self.monitors, group)
    }
}

fn name(topic: &str, number: u32) -> TopicPartition {
    TopicPartition { topic: topic.to_owned(), partition: number }
}

fn age(seconds: u64) -> Retention {
    Retention::forever().age(Duration::from_secs(seconds))
}
