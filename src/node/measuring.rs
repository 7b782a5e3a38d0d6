//! Figures of the whole log, and what dashboards are shown of them.

use std::sync::Arc;

use super::{Node, Topic};
use crate::controller::is_internal;
use crate::metrics;
use crate::partition::{Compaction, Partition, RemovalReason, Removed, Stats, Volume};

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
    pub(crate) appended: Volume,
    pub(crate) syncs: u64,
}

impl Totals {
    fn take(&mut self, partition: &Partition) -> Stats {
        let (stats, appended) = (partition.stats(), partition.appended());
        self.partitions += 1;
        self.fenced += usize::from(partition.is_poisoned());
        self.segments += stats.segments;
        self.bytes += stats.bytes;
        self.held_bytes += stats.held_bytes;
        self.appended.records += appended.records;
        self.appended.bytes += appended.bytes;
        self.syncs += partition.syncs();
        stats
    }
}

impl Node {
    /// Figures of the whole log, its catalogue excepted.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for topic in self.topics.load().values() {
            let count = if is_internal(&topic.name) { &mut totals.internal_topics } else { &mut totals.topics };
            *count += 1;
            for partition in &topic.partitions {
                totals.take(partition);
            }
        }
        totals
    }

    /// How many files the log's storage has open, where it says so.
    pub(crate) fn open_files(&self) -> Option<usize> {
        self.home.storage.open_files()
    }

    /// Shows the figures of each topic.
    pub(super) fn measure(&self) {
        if metrics::ARE_ON {
            self.topics.load().values().for_each(measure_topic);
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

fn measure_topic(topic: &Arc<Topic>) {
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
    metrics::RECORDS_IN.reach(&[name], totals.appended.records);
    metrics::BYTES_IN.reach(&[name], totals.appended.bytes);
    metrics::SYNCS.reach(&[name], totals.syncs);
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
