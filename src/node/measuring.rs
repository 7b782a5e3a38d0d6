//! Figures of the whole log, and what dashboards are shown of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Node, Topic, Topics};
use crate::controller::is_internal;
use crate::metrics;
use crate::partition::{Compaction, Partition, RemovalReason, Removed, Stats, Volume};
use crate::sync::Mutex;
use crate::types::TopicId;

/// What was counted since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) appended: Volume,
    pub(crate) syncs: u64,
}

impl Counted {
    fn of(topic: &Topic) -> Self {
        topic.partitions.iter().fold(Self::default(), Self::and)
    }

    fn and(self, partition: &Partition) -> Self {
        self.plus(Self { appended: partition.appended(), syncs: partition.syncs() })
    }

    fn plus(self, more: Self) -> Self {
        let records = self.appended.records + more.appended.records;
        let bytes = self.appended.bytes + more.appended.bytes;
        Self { appended: Volume { records, bytes }, syncs: self.syncs + more.syncs }
    }
}

/// Figures of all partitions of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) topics: usize,
    pub(crate) internal_topics: usize,
    pub(crate) partitions: usize,
    pub(crate) fenced: usize,
    pub(crate) segments: usize,
    pub(crate) bytes: u64,
    pub(crate) held_bytes: u64,
    /// Those of topics that are gone included.
    pub(crate) counted: Counted,
}

impl Totals {
    fn take(&mut self, partition: &Partition) -> Stats {
        let stats = partition.stats();
        self.partitions += 1;
        self.fenced += usize::from(partition.is_poisoned());
        self.segments += stats.segments;
        self.bytes += stats.bytes;
        self.held_bytes += stats.held_bytes;
        self.counted = self.counted.and(partition);
        stats
    }
}

/// What is remembered, so that no total goes back and no gauge stays behind.
#[derive(Debug, Default)]
pub(super) struct Measured {
    gone: Mutex<Gone>,
    /// What dashboards have been shown of the topics that there are. Held while they are shown more.
    shown: Mutex<BTreeMap<TopicId, Counted>>,
}

/// Topics that were deleted since the log was opened.
#[derive(Debug, Default)]
struct Gone {
    /// All of them together.
    counted: Counted,
    /// Those that dashboards have not been told of.
    untold: Vec<Departed>,
}

/// A topic that was deleted.
#[derive(Debug)]
struct Departed {
    name: Arc<str>,
    id: TopicId,
    partitions: usize,
    counted: Counted,
}

impl Node {
    /// Figures of the whole log, its catalogue excepted.
    pub(crate) fn totals(&self) -> Totals {
        // Held throughout, so that no topic that goes meanwhile is missed or counted twice.
        let gone = self.measured.gone.lock();
        let mut totals = Totals { counted: gone.counted, ..Totals::default() };
        for topic in self.topics.load().values() {
            let count = if is_internal(&topic.name) { &mut totals.internal_topics } else { &mut totals.topics };
            *count += 1;
            for partition in &topic.partitions {
                totals.take(partition);
            }
        }
        totals
    }

    /// Publishes the topics without one that was deleted. What was counted of it stays in the totals.
    pub(super) fn publish_without(&self, gone: &Topic, topics: Topics) {
        let counted = Counted::of(gone);
        let mut all = self.measured.gone.lock();
        all.counted = all.counted.plus(counted);
        if metrics::ARE_ON {
            let (name, partitions) = (Arc::clone(&gone.name), gone.partitions.len());
            all.untold.push(Departed { name, id: gone.id, partitions, counted });
        }
        self.publish(topics);
    }

    /// How many files the log's storage has open, where it says so.
    pub(crate) fn open_files(&self) -> Option<usize> {
        self.home.storage.open_files()
    }

    /// Shows the figures of each topic.
    pub(super) fn measure(&self) {
        if !metrics::ARE_ON {
            return;
        }
        let mut shown = self.measured.shown.lock();
        // Before the topics are looked at: what is gone by now is not among them.
        let departed = std::mem::take(&mut self.measured.gone.lock().untold);
        for gone in departed {
            let before = shown.remove(&gone.id);
            count(&gone.name, before.unwrap_or_default(), gone.counted);
            if before.is_some() {
                set_to_nothing(&gone);
            }
        }
        for topic in self.topics.load().values() {
            let before = shown.entry(topic.id).or_default();
            let counted = measure_topic(topic);
            count(&topic.name, std::mem::replace(before, counted), counted);
        }
    }

    /// Shows what the open found.
    pub(super) fn measure_recovery(&self) {
        if !metrics::ARE_ON {
            return;
        }
        metrics::describe();
        for partition in self.topics.load().values().flat_map(|topic| &topic.partitions) {
            let recovery = partition.recovery();
            let outcome = match () {
                () if !recovery.is_sound() => "damaged",
                () if recovery.clean => "clean",
                () => "recovered",
            };
            metrics::RECOVERIES.count(&[outcome], 1);
        }
    }
}

/// Shows what a topic has, and answers what it has counted.
fn measure_topic(topic: &Topic) -> Counted {
    let name: &str = &topic.name;
    let mut totals = Totals::default();
    for (number, partition) in topic.partitions.iter().enumerate() {
        let Stats { end, high_watermark, .. } = totals.take(partition);
        let number = number.to_string();
        metrics::PARTITION_END.set(&[name, &number], metrics::number(end.0));
        metrics::PARTITION_HIGH_WATERMARK.set(&[name, &number], metrics::number(high_watermark.0));
    }
    metrics::TOPIC_BYTES.set(&[name], metrics::number(totals.bytes));
    metrics::TOPIC_SEGMENTS.set(&[name], metrics::number(totals.segments as u64));
    totals.counted
}

/// Counts what came since the topic was shown last. Not its sum: another topic may have had the name before.
fn count(name: &str, before: Counted, now: Counted) {
    metrics::RECORDS_IN.count(&[name], now.appended.records.saturating_sub(before.appended.records));
    metrics::BYTES_IN.count(&[name], now.appended.bytes.saturating_sub(before.appended.bytes));
    metrics::SYNCS.count(&[name], now.syncs.saturating_sub(before.syncs));
}

/// A topic that is gone has nothing.
fn set_to_nothing(gone: &Departed) {
    let name: &str = &gone.name;
    metrics::TOPIC_BYTES.set(&[name], 0.0);
    metrics::TOPIC_SEGMENTS.set(&[name], 0.0);
    for number in 0..gone.partitions {
        let number = number.to_string();
        metrics::PARTITION_END.set(&[name, &number], 0.0);
        metrics::PARTITION_HIGH_WATERMARK.set(&[name, &number], 0.0);
    }
}

/// Counts what retention has removed of a topic.
pub(super) fn measure_removal(topic: &Topic, removed: &[Removed]) {
    if !metrics::ARE_ON {
        return;
    }
    for one in removed {
        let reason = match one.reason {
            RemovalReason::BelowStart => "below_start",
            RemovalReason::Size => "size",
            RemovalReason::Age => "age",
            RemovalReason::Host => "host",
            RemovalReason::HoldExceeded => "hold_exceeded",
        };
        metrics::RETENTION_SEGMENTS.count(&[&topic.name, reason], 1);
        metrics::RETENTION_BYTES.count(&[&topic.name, reason], one.bytes);
    }
}

/// Counts a compaction.
pub(super) fn measure_compaction(topic: &str, compaction: &Compaction) {
    metrics::COMPACTIONS.count(&[topic], 1);
    metrics::COMPACTION_BYTES.count(&[topic], compaction.bytes_before.saturating_sub(compaction.bytes_after));
}
