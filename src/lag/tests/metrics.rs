//! What a dashboard is shown: every metric of the table, with its labels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

use super::{Rig, SECOND, SEGMENT, age, name};
use crate::config::{Cleanup, TopicConfig};
use crate::controller::Command;
use crate::group::Command as Ask;
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

    fn absolute(&self, _: u64) {
        panic!("totals are counted up");
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

    fn gauge(&self, key: &str) -> String {
        f64::from_bits(self.count(key)).to_string()
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
    assert_eq!(seen.gauge("taffrail_partition_end{topic=t,partition=1}"), "5");
    assert_eq!(seen.gauge("taffrail_partition_high_watermark{topic=t,partition=1}"), "5");
    assert_eq!(seen.gauge("taffrail_topic_bytes{topic=t}"), partition.stats().bytes.to_string());
    // Before the log was opened again nobody had looked.
    assert_eq!(seen.count("taffrail_records_in_total{topic=t}"), 1);
    assert_eq!(seen.count("taffrail_bytes_in_total{topic=t}"), SEGMENT);
    assert_eq!(seen.gauge("taffrail_group_lag_records{group=billing,topic=t,partition=1}"), "3");
    assert_eq!(seen.gauge("taffrail_group_lag_bytes{group=billing,topic=t,partition=1}"), (3 * SEGMENT).to_string());
    assert_eq!(seen.gauge("taffrail_group_lag_seconds{group=billing,topic=t,partition=1}"), "110");
    assert_eq!(seen.gauge("taffrail_groups{}"), "1");
    assert_eq!(seen.count("taffrail_retention_segments_total{topic=t,reason=age}"), 1);
    assert_eq!(seen.count("taffrail_retention_segments_total{topic=t,reason=hold_exceeded}"), 1);
    assert_eq!(seen.count("taffrail_retention_bytes_total{topic=t,reason=hold_exceeded}"), SEGMENT);
    assert_eq!(seen.count("taffrail_alerts_total{kind=hold_exceeded}"), 1);
    assert_eq!(seen.count("taffrail_compactions_total{topic=keys}"), 1);
    assert!(seen.count("taffrail_compaction_bytes_total{topic=keys}") > 0);
    assert!(seen.count("taffrail_recoveries_total{outcome=clean}") > 0);
    assert!(seen.count("taffrail_syncs_total{topic=t}") > 0);
}

fn delete(rig: &Rig, topic: &str) {
    rig.node.administer(topic, Command::Delete { name: topic.to_owned() }).unwrap();
}

/// A group goes, a topic that another has a position in, and a third's only position.
#[test]
fn the_gauges_of_what_is_gone_are_set_to_nothing_once() {
    let seen = Seen::default();
    let of = |group, topic| format!("{{group={group},topic={topic},partition=0}}");
    let gone = [of("audit", "t"), of("billing", "u"), of("mail", "t")];
    let names = ["records", "bytes", "seconds"].map(|name| format!("taffrail_group_lag_{name}"));
    let figures = |of: &str| {
        let lag = names.each_ref().map(|name| seen.gauge(&format!("{name}{of}")));
        (lag, seen.gauge(&format!("taffrail_group_edge_seconds{of}")))
    };
    let topic = |name| ["topic_bytes", "topic_segments"].map(|gauge| format!("taffrail_{gauge}{{topic={name}}}"));
    let ends = ["end", "high_watermark"].map(|gauge| format!("taffrail_partition_{gauge}{{topic=u,partition=0}}"));
    with_local_recorder(&seen, || {
        let rig = Rig::new();
        let _monitor = rig.monitor();
        for topic in ["t", "u"] {
            rig.topic(topic, 1, age(1_000));
            rig.append(topic, 0, 3);
            rig.commit("billing", topic, 0, 1);
        }
        rig.commit("audit", "t", 0, 1);
        rig.commit("mail", "t", 0, 1);
        rig.pass(20 * SECOND, SECOND);
        let behind = (["2".to_owned(), (2 * SEGMENT).to_string(), "20".to_owned()], "980".to_owned());
        for of in &gone {
            assert_eq!(figures(of), behind, "{of}");
        }
        assert_eq!(topic("u").map(|gauge| seen.gauge(&gauge)), [(3 * SEGMENT).to_string(), "3".to_owned()]);
        assert_eq!(ends.each_ref().map(|gauge| seen.gauge(gauge)), ["3", "3"]);

        rig.node.ask_existing_group("audit", Ask::DeleteGroup { group: "audit".to_owned() }).unwrap();
        let partitions = vec![name("t", 0)];
        let forget = Ask::DeleteOffsets { group: "mail".to_owned(), partitions };
        rig.node.ask_existing_group("mail", forget).unwrap();
        delete(&rig, "u");
        rig.pass(20 * SECOND, SECOND);
        let nothing = (["0", "0", "0"].map(str::to_owned), "inf".to_owned());
        for of in &gone {
            assert_eq!(figures(of), nothing, "{of}");
        }
        assert_eq!(topic("u").map(|gauge| seen.gauge(&gauge)), ["0", "0"]);
        assert_eq!(ends.each_ref().map(|gauge| seen.gauge(gauge)), ["0", "0"]);
        assert_eq!(figures(&of("billing", "t")).0, ["2".to_owned(), (2 * SEGMENT).to_string(), "40".to_owned()]);

        // What somebody else sets now stays.
        let others = [format!("taffrail_group_lag_records{}", of("audit", "t")), topic("u")[0].clone()];
        for gauge in &others {
            seen.values.lock()[gauge].set(7.0);
        }
        rig.pass(20 * SECOND, SECOND);
        assert_eq!(others.each_ref().map(|gauge| seen.gauge(gauge)), ["7", "7"]);
    });
}

/// What cannot be read now is not gone.
#[test]
fn the_gauges_of_a_group_that_cannot_be_read_stay() {
    let seen = Seen::default();
    with_local_recorder(&seen, || {
        let rig = Rig::new();
        let _monitor = rig.monitor();
        rig.topic("t", 1, age(1_000));
        rig.append("t", 0, 3);
        rig.commit("billing", "t", 0, 1);
        rig.pass(2 * SECOND, SECOND);
        rig.break_groups("billing");
        rig.pass(2 * SECOND, SECOND);
    });
    assert_eq!(seen.gauge("taffrail_group_lag_records{group=billing,topic=t,partition=0}"), "2");
}

/// Seven records to the first topic of a name, of which two are not shown before it goes; three to the second.
#[test]
fn totals_go_on_where_a_topic_is_made_again() {
    let seen = Seen::default();
    let total = |name: &str| seen.count(&format!("taffrail_{name}_total{{topic=t}}"));
    with_local_recorder(&seen, || {
        let rig = Rig::new();
        rig.topic("t", 1, age(1_000));
        rig.append("t", 0, 5);
        rig.pass(20 * SECOND, SECOND);
        let syncs = total("syncs");
        assert_eq!((total("records_in"), total("bytes_in"), syncs > 0), (5, 5 * SEGMENT, true));
        rig.append("t", 0, 2);
        delete(&rig, "t");
        rig.topic("t", 1, age(1_000));
        rig.append("t", 0, 3);
        rig.pass(20 * SECOND, SECOND);
        assert_eq!((total("records_in"), total("bytes_in")), (10, 10 * SEGMENT));
        assert!(total("syncs") > syncs);
        assert_eq!(seen.gauge("taffrail_topic_bytes{topic=t}"), (3 * SEGMENT).to_string());
        assert_eq!(seen.gauge("taffrail_partition_end{topic=t,partition=0}"), "3");
    });
}
