//! A log in memory whose time a test moves, and consumers that poll meanwhile.
#![allow(dead_code, reason = "each file in tests/ is a program of its own that uses a part of this")]
#![allow(clippy::unwrap_used, reason = "in a test it is an assertion")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taffrail::{
    Consumer, ConsumerBuilder, Durability, Error, Log, ManualClock, MemoryStorage, Rebalance, RebalanceListener,
    Record, Result, Timestamp, TopicConfig, TopicPartition,
};

pub(crate) struct Place {
    pub(crate) log: Log,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) storage: MemoryStorage,
}

/// What a consumer was handed: topic and partition, and the offset.
pub(crate) type Seen = (String, u64);

impl Place {
    /// A log with one topic.
    pub(crate) fn with(topic: &str, partitions: u32) -> Self {
        let place = Self::at(MemoryStorage::new(5));
        place.topic(topic, partitions);
        place
    }

    pub(crate) fn at(storage: MemoryStorage) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
        let builder = Log::builder("data").storage(storage.shared()).clock(Arc::clone(&clock) as _).seed(7);
        Self { log: builder.background(false).open().unwrap(), clock, storage }
    }

    pub(crate) fn topic(&self, name: &str, partitions: u32) {
        let config = TopicConfig::new().partitions(partitions).durability(Durability::Sync);
        self.log.create_topic(name, config).unwrap();
    }

    pub(crate) fn send(&self, topic: &str, partition: u32, count: usize) {
        let producer = self.log.producer().open().unwrap();
        for _ in 0..count {
            let sent = producer.send(topic, Record::new("v").partition(partition)).unwrap();
            sent.wait().unwrap();
        }
    }

    /// A member of the group `g`.
    pub(crate) fn member(&self, topic: &str) -> ConsumerBuilder {
        self.log.consumer("g").subscribe([topic])
    }

    /// Time passes, and all of them poll twice a second; no partition is two's. What each was handed.
    pub(crate) fn pass(&self, consumers: &mut [&mut Consumer], seconds: u64) -> Vec<Vec<Seen>> {
        let mut seen = vec![Vec::new(); consumers.len()];
        for _ in 0..seconds * 2 {
            self.clock.advance(Duration::from_millis(500));
            self.log.tick();
            for (consumer, seen) in consumers.iter_mut().zip(&mut seen) {
                seen.extend(drain(consumer));
            }
            let all: Vec<_> = consumers.iter().flat_map(|consumer| consumer.assignment()).collect();
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "owned twice: {all:?}");
        }
        seen
    }
}

/// Everything that polls give until nothing comes.
pub(crate) fn drain(consumer: &mut Consumer) -> Vec<Seen> {
    let mut seen = Vec::new();
    loop {
        let polled = consumer.try_poll().unwrap();
        if polled.is_empty() {
            return seen;
        }
        let name = format!("{}-{}", polled.topic(), polled.partition());
        seen.extend(polled.records().map(|record| (name.clone(), record.offset().0)));
    }
}

/// What the first poll gives, and those that follow.
pub(crate) fn arrive(consumer: &mut Consumer) -> Vec<Seen> {
    let polled = consumer.poll(Duration::ZERO).unwrap();
    let name = format!("{}-{}", polled.topic(), polled.partition());
    let mut seen: Vec<_> = polled.records().map(|record| (name.clone(), record.offset().0)).collect();
    seen.extend(drain(consumer));
    seen
}

pub(crate) fn names(consumer: &Consumer) -> Vec<String> {
    consumer.assignment().iter().map(ToString::to_string).collect()
}

/// The group's position in a partition.
pub(crate) fn committed(consumer: &Consumer, topic: &str, partition: u32) -> Option<u64> {
    let found = consumer.committed([(topic, partition)]).unwrap();
    found.values().next().map(|committed| committed.offset.0)
}

/// Notes what it is told, and may commit when something is to be given back.
#[derive(Clone, Default)]
pub(crate) struct Told {
    pub(crate) news: Arc<Mutex<Vec<String>>>,
    pub(crate) commits: bool,
}

impl Told {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.news.lock().unwrap())
    }

    fn note(&self, what: &str, partitions: &[TopicPartition]) {
        let names: Vec<_> = partitions.iter().map(ToString::to_string).collect();
        self.news.lock().unwrap().push(format!("{what} {}", names.join(" ")));
    }
}

impl RebalanceListener for Told {
    fn assigned(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        self.note("assigned", partitions);
        check_here(rebalance, partitions);
        Ok(())
    }

    fn revoked(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        self.note("revoked", partitions);
        check_here(rebalance, partitions);
        if self.commits { rebalance.commit() } else { Ok(()) }
    }

    fn lost(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        self.note("lost", partitions);
        check_here(rebalance, partitions);
        if self.commits { rebalance.commit() } else { Ok(()) }
    }
}

/// They are assigned while it is told of them.
fn check_here(rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) {
    for TopicPartition { topic, partition } in partitions {
        let position = rebalance.position(topic, *partition);
        assert!(matches!(position, Ok(_) | Err(Error::UnknownTopic { .. })), "{position:?}");
    }
}
