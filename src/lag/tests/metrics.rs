//! What a dashboard is shown: every metric of the table, with its labels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

use super::{Rig, SECOND, SEGMENT, age};
use crate::config::{Cleanup, TopicConfig};
use crate::metrics::{ALL, Kind};
use crate::record::builder::{BatchBuilder, Record};
use crate::sync::Mutex;

/// One value; a gauge's as bits.
#[derive(Debug, Default)]
struct Value(AtomicU64);

impl CounterFn for Value {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::SeqCst);
    }

    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Ordering::SeqCst);
    }
}

impl GaugeFn for Value {
    fn increment(&self, _: f64) {
        panic!("gauges are set");
    }

    fn decrement(&self, _: f64) {
        panic!("gauges are set");
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::SeqCst);
    }
}

/// What was recorded, by name and labels.
#[derive(Debug, Default)]
struct Seen {
    values: Mutex<BTreeMap<String, Arc<Value>>>,
    described: Mutex<BTreeMap<String, Kind>>,
}

fn text(key: &Key) -> String {
    let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

impl Seen {
    fn at(&self, key: &Key) -> Arc<Value> {
        Arc::clone(self.values.lock().entry(text(key)).or_default())
    }

    fn count(&self, key: &str) -> u64 {
        self.values.lock().get(key).unwrap_or_else(|| panic!("{key} is not among {self:#?}")).0.load(Ordering::SeqCst)
    }

    fn gauge(&self, key: &str) -> f64 {
        f64::from_bits(self.count(key))
    }
}

impl Recorder for Seen {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().insert(key.as_str().to_owned(), Kind::Counter);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().insert(key.as_str().to_owned(), Kind::Gauge);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("{key:?}");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.at(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.at(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("{key:?}");
    }
}

/// Everything that there is to be measured happens, once or so.
fn everything() -> Rig {
    let rig = Rig::new();
    rig.topic("t", 2, age(100).hold_for(["billing"], 3 * SEGMENT));
    rig.append("t", 1, 4);
    rig.commit("billing", "t", 1, 1);
    rig.make("keys", TopicConfig::new().cleanup(Cleanup::Compact));
    for _ in 0..2 {
        let mut batch = BatchBuilder::new();
        batch.push(&Record::new("value").key("key")).unwrap();
        rig.partition("keys", 0).append(&mut batch).unwrap().wait().unwrap();
    }
    rig.partition("keys", 0).roll().unwrap();
    rig.node.compact("keys", 0).unwrap();
    let rig = rig.reopened();
    let monitor = rig.monitor();
    rig.pass(20 * SECOND, SECOND);
    rig.append("t", 1, 1);
    rig.pass(90 * SECOND, SECOND);
    drop(monitor);
    rig
}

#[test]
fn every_metric_of_the_table_is_seen() {
    let seen = Seen::default();
    with_local_recorder(&seen, everything);
    for metric in ALL {
        let values = seen.values.lock();
        let mut found = values.keys().filter(|key| key.starts_with(&format!("{}{{", metric.name))).peekable();
        assert!(found.peek().is_some(), "{} is never seen", metric.name);
        for key in found {
            let labels = key.split_once('{').unwrap().1.trim_end_matches('}').split(',');
            let labels: Vec<_> = labels.filter_map(|label| label.split_once('=')).map(|(label, _)| label).collect();
            assert_eq!(labels, metric.labels, "{key}");
        }
        assert_eq!(seen.described.lock().get(metric.name), Some(&metric.kind), "{}", metric.name);
    }
    let names: Vec<_> = ALL.iter().map(|metric| metric.name).collect();
    for key in seen.values.lock().keys() {
        assert!(names.contains(&key.split('{').next().unwrap()), "{key} is not in the table");
    }
}

#[test]
fn metrics_say_what_is_so() {
    let seen = Seen::default();
    let rig = with_local_recorder(&seen, everything);
    let partition = rig.partition("t", 1);
    assert_eq!(seen.gauge("taffrail_partition_end{topic=t,partition=1}"), 5.0);
    assert_eq!(seen.gauge("taffrail_partition_high_watermark{topic=t,partition=1}"), 5.0);
    assert_eq!(seen.gauge("taffrail_topic_bytes{topic=t}"), partition.stats().bytes as f64);
    // Before and after the log was opened again: a total is since then, so it is the greater of the two.
    assert_eq!(seen.count("taffrail_records_in_total{topic=t}"), 1);
    assert_eq!(seen.count("taffrail_bytes_in_total{topic=t}"), SEGMENT);
    assert_eq!(seen.gauge("taffrail_group_lag_records{group=billing,topic=t,partition=1}"), 3.0);
    assert_eq!(seen.gauge("taffrail_group_lag_bytes{group=billing,topic=t,partition=1}"), 3.0 * SEGMENT as f64);
    assert_eq!(seen.gauge("taffrail_group_lag_seconds{group=billing,topic=t,partition=1}"), 110.0);
    assert_eq!(seen.gauge("taffrail_groups{}"), 1.0);
    assert_eq!(seen.count("taffrail_retention_segments_total{topic=t,reason=age}"), 1);
    assert_eq!(seen.count("taffrail_retention_segments_total{topic=t,reason=hold_exceeded}"), 1);
    assert_eq!(seen.count("taffrail_retention_bytes_total{topic=t,reason=hold_exceeded}"), SEGMENT);
    assert_eq!(seen.count("taffrail_alerts_total{kind=hold_exceeded}"), 1);
    assert_eq!(seen.count("taffrail_compactions_total{topic=keys}"), 1);
    assert!(seen.count("taffrail_compaction_bytes_total{topic=keys}") > 0);
    assert!(seen.count("taffrail_recoveries_total{outcome=clean}") > 0);
    assert!(seen.count("taffrail_syncs_total{topic=t}") > 0);
}
