//! What a monitor has counted of late: what came into each partition, and where each group's position was.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Rate;
use super::gather::Seen;
use super::series::{Sample, Series};
use crate::clock::Moment;
use crate::partition::Volume;
use crate::types::{Offset, TopicPartition};

/// How a group goes along with a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    pub(super) rate_in: Option<Rate>,
    pub(super) rate_out: Option<Rate>,
    /// How many records came in since the last sample but one; none where that is not known.
    pub(super) lately: u64,
}

impl Pace {
    /// The same, and of another what is not known here.
    pub(super) fn or(self, other: Self) -> Self {
        let lately = if self.rate_in.is_some() { self.lately } else { other.lately };
        Self { rate_in: self.rate_in.or(other.rate_in), rate_out: self.rate_out.or(other.rate_out), lately }
    }
}

/// A group's part of it.
#[derive(Debug, Default)]
struct Outflow {
    series: BTreeMap<TopicPartition, Series>,
}

/// Samples of one window.
#[derive(Debug)]
pub(super) struct Samples {
    window: Duration,
    inflow: BTreeMap<TopicPartition, Series>,
    outflow: BTreeMap<String, Outflow>,
}

impl Samples {
    pub(super) fn new(window: Duration) -> Self {
        Self { window, inflow: BTreeMap::new(), outflow: BTreeMap::new() }
    }

    /// So much has come into a partition.
    pub(super) fn came(&mut self, at: Moment, partition: &TopicPartition, volume: Volume) {
        let bytes = i64::try_from(volume.bytes).unwrap_or(i64::MAX);
        let sample = Sample { at, records: volume.records, bytes };
        self.inflow.entry(partition.clone()).or_default().push(sample, self.window);
    }

    /// A group's position, and its distance from the end in bytes, when so many bytes had come in all.
    pub(super) fn read(
        &mut self,
        at: Moment,
        group: &str,
        partition: &TopicPartition,
        position: Offset,
        bytes_behind: u64,
        came: Volume,
    ) {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let sample = Sample { at, records: position.0, bytes: signed(came.bytes).saturating_sub(signed(bytes_behind)) };
        let outflow = self.outflow.entry(group.to_owned()).or_default();
        outflow.series.entry(partition.clone()).or_default().push(sample, self.window);
    }

    /// How fast records come into a partition.
    pub(super) fn rate_in(&self, partition: &TopicPartition, now: Moment) -> Option<Rate> {
        self.inflow.get(partition)?.rate(now, self.window)
    }

    /// How fast records come into all partitions.
    pub(super) fn total_in(&self, now: Moment) -> Option<Rate> {
        self.inflow.values().filter_map(|series| series.rate(now, self.window)).reduce(Rate::plus)
    }

    /// How a group goes along with a partition.
    pub(super) fn pace(&self, group: &str, partition: &TopicPartition, now: Moment) -> Pace {
        let rate = |series: &Series| series.rate(now, self.window);
        let (inflow, outflow) = (self.inflow.get(partition), self.outflow.get(group));
        let rate_in = inflow.and_then(rate);
        let rate_out = outflow.and_then(|outflow| outflow.series.get(partition)).and_then(rate);
        let lately = inflow.filter(|_| rate_in.is_some()).map_or(0, Series::lately);
        Pace { rate_in, rate_out, lately }
    }

    /// Forgets what was not sampled of late.
    pub(super) fn prune(&mut self, now: Moment) {
        let window = self.window;
        let is_young = |series: &Series| series.is_young(now, window);
        self.inflow.retain(|_, series| is_young(series));
        for outflow in self.outflow.values_mut() {
            outflow.series.retain(|_, series| is_young(series));
        }
        self.outflow.retain(|_, outflow| !outflow.series.is_empty());
    }
}

/// What was found of each group's next records.
#[derive(Debug, Default)]
pub(super) struct SeenByGroup(BTreeMap<String, Seen>);

impl SeenByGroup {
    pub(super) fn of(&mut self, group: &str) -> &mut Seen {
        self.0.entry(group.to_owned()).or_default()
    }

    pub(super) fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|group, _| is_there(group));
    }
}
