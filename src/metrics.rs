//! What a dashboard shows, through the `metrics` facade where the feature is on, else nothing.
//!
//! The names stand in one table. Nothing here is called per record: gauges and totals are set at intervals, by the log's
//! keeper and by monitors, and rare events count when they happen. Totals count since the log was opened, and go on
//! where a topic is made again under its name; the gauges of what is gone are set once more, to nothing.

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is what was set last.
    Gauge,
    /// It rises.
    Counter,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "nobody listens"))]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) about: &'static str,
}

macro_rules! table {
    ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $about:literal;)*) => {
        $(
            pub(crate) const $id: Metric =
                Metric { name: $name, kind: Kind::$kind, labels: &[$($label),*], about: $about };
        )*

        /// Every metric that there is.
        #[cfg(feature = "metrics")]
        pub(crate) const ALL: &[Metric] = &[$($id),*];
    };
}

table! {
    TOPIC_BYTES = Gauge "taffrail_topic_bytes" ["topic"] "bytes of log";
    TOPIC_SEGMENTS = Gauge "taffrail_topic_segments" ["topic"] "segments";
    PARTITION_END = Gauge "taffrail_partition_end" ["topic", "partition"] "the offset that the next record gets";
    PARTITION_HIGH_WATERMARK = Gauge "taffrail_partition_high_watermark" ["topic", "partition"] "up to where readers see records";
    RECORDS_IN = Counter "taffrail_records_in_total" ["topic"] "records appended";
    BYTES_IN = Counter "taffrail_bytes_in_total" ["topic"] "bytes of log appended";
    SYNCS = Counter "taffrail_syncs_total" ["topic"] "syncs that records waited for";
    RETENTION_SEGMENTS = Counter "taffrail_retention_segments_total" ["topic", "reason"] "segments that retention removed";
    RETENTION_BYTES = Counter "taffrail_retention_bytes_total" ["topic", "reason"] "bytes of log that retention removed";
    COMPACTIONS = Counter "taffrail_compactions_total" ["topic"] "compactions that came to an end";
    COMPACTION_BYTES = Counter "taffrail_compaction_bytes_total" ["topic"] "bytes of log that compaction removed";
    RECOVERIES = Counter "taffrail_recoveries_total" ["outcome"] "partitions opened: clean, recovered, or damaged";
    GROUPS = Gauge "taffrail_groups" [] "groups that are known";
    GROUP_LAG_RECORDS = Gauge "taffrail_group_lag_records" ["group", "topic", "partition"] "records not read";
    GROUP_LAG_BYTES = Gauge "taffrail_group_lag_bytes" ["group", "topic", "partition"] "bytes of log not read";
    GROUP_LAG_SECONDS = Gauge "taffrail_group_lag_seconds" ["group", "topic", "partition"] "age of the next record to read; 0 where there is none";
    GROUP_EDGE_SECONDS = Gauge "taffrail_group_edge_seconds" ["group", "topic", "partition"] "until retention reaches the position; infinite where it does not";
    ALERTS = Counter "taffrail_alerts_total" ["kind"] "alerts of a monitor: near_edge, overtaken, astray, hot_partition, hold_exceeded";
}

/// Whether anybody may listen: what is only worked out for metrics is not worked out without.
pub(crate) const ARE_ON: bool = cfg!(feature = "metrics");

impl Metric {
    /// Sets a gauge. The values of its labels stand in the table's order.
    pub(crate) fn set(&self, labels: &[&str], value: f64) {
        #[cfg(feature = "metrics")]
        ::metrics::gauge!(self.name, &self.labelled(labels)).set(value);
        #[cfg(not(feature = "metrics"))]
        let _ = (self, labels, value);
    }

    /// Counts so many more.
    pub(crate) fn count(&self, labels: &[&str], more: u64) {
        #[cfg(feature = "metrics")]
        ::metrics::counter!(self.name, &self.labelled(labels)).increment(more);
        #[cfg(not(feature = "metrics"))]
        let _ = (self, labels, more);
    }

    #[cfg(feature = "metrics")]
    fn labelled(&self, values: &[&str]) -> Vec<(&'static str, String)> {
        debug_assert_eq!(self.labels.len(), values.len(), "{}", self.name);
        self.labels.iter().copied().zip(values.iter().map(|value| (*value).to_owned())).collect()
    }
}

/// Tells whoever listens what there is.
pub(crate) fn describe() {
    #[cfg(feature = "metrics")]
    for metric in ALL {
        match metric.kind {
            Kind::Gauge => ::metrics::describe_gauge!(metric.name, metric.about),
            Kind::Counter => ::metrics::describe_counter!(metric.name, metric.about),
        }
    }
}

/// A count as what gauges hold, and rates are worked out with.
#[expect(clippy::cast_precision_loss, reason = "a gauge holds no more, and rates are estimates")]
pub(crate) const fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use super::*;

    /// The README has a line for each, with its kind, labels and meaning, and for no other.
    #[test]
    fn the_readme_has_the_table() {
        let readme = include_str!("../README.md");
        let line = |metric: &Metric| {
            let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let kind = if metric.kind == Kind::Gauge { "gauge" } else { "counter" };
            format!("| `{}` | {kind} | {} | {} |", metric.name, labels.join(", "), metric.about)
        };
        let found: Vec<_> = readme.lines().filter(|line| line.starts_with("| `taffrail_")).collect();
        assert_eq!(found, ALL.iter().map(line).collect::<Vec<_>>());
    }
}
