//! What dashboards are shown of groups; and what is gone is shown once more, as nothing.

use std::collections::BTreeSet;

use super::PartitionLag;
use crate::metrics;
use crate::types::TopicPartition;

/// The positions whose figures were shown last.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    shown: BTreeSet<(String, TopicPartition)>,
}

impl Gauges {
    /// Shows how far behind a group is.
    pub(super) fn show(&mut self, group: &str, lag: &PartitionLag) {
        let (age, left) = (lag.time.unwrap_or_default(), lag.left.map_or(f64::INFINITY, |left| left.as_secs_f64()));
        set(group, &lag.partition, [metrics::number(lag.records), metrics::number(lag.bytes), age.as_secs_f64(), left]);
        self.shown.insert((group.to_owned(), lag.partition.clone()));
    }

    /// Sets those to nothing that are gone.
    pub(super) fn clear(&mut self, is_gone: impl Fn(&str, &TopicPartition) -> bool) {
        self.shown.retain(|(group, partition)| {
            let is_gone = is_gone(group, partition);
            if is_gone {
                set(group, partition, [0.0, 0.0, 0.0, f64::INFINITY]);
            }
            !is_gone
        });
    }
}

fn set(group: &str, of: &TopicPartition, [records, bytes, age, left]: [f64; 4]) {
    let partition = of.partition.to_string();
    let labels = [group, of.topic.as_str(), partition.as_str()];
    metrics::GROUP_LAG_RECORDS.set(&labels, records);
    metrics::GROUP_LAG_BYTES.set(&labels, bytes);
    metrics::GROUP_LAG_SECONDS.set(&labels, age);
    metrics::GROUP_EDGE_SECONDS.set(&labels, left);
}
