//! A log of topics: opened, filled, closed, opened again; its admin calls, and what they refuse.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]

use std::sync::Arc;
use std::time::Duration;

use taffrail::{
    BatchBuilder, Error, Log, MemoryStorage, Offset, Partition, PartitionConfig, ReadOptions, Record, Retention,
    TopicConfig,
};

fn append(partition: &Partition, values: &[&str]) {
    let mut batch = BatchBuilder::new();
    for value in values {
        batch.push(&Record::new(value)).unwrap();
    }
    partition.append(&mut batch).unwrap().wait().unwrap();
}

fn values(partition: &Partition) -> Vec<String> {
    let fetched = partition.read(partition.start(), ReadOptions::default()).unwrap();
    fetched.iter().map(|record| record.value_str().unwrap().to_owned()).collect()
}

#[test]
fn topics_are_there_when_the_log_is_opened_again() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    let log = Log::open(&path).unwrap();
    let id = log.create_topic("orders", TopicConfig::new().partitions(3)).unwrap();
    append(&log.partition("orders", 2).unwrap(), &["a", "b"]);
    let cluster = log.cluster_id();
    log.close().unwrap();

    let log = Log::open(&path).unwrap();
    let found = log.describe_topic("orders").unwrap();
    assert_eq!((found.id, found.partitions.len(), found.adopted), (id, 3, false));
    assert_eq!((log.topics(), log.cluster_id()), (vec!["orders".to_owned()], cluster));
    assert_eq!(values(&log.partition("orders", 2).unwrap()), ["a", "b"]);
    assert!(log.partition("orders", 2).unwrap().recovery().clean);
    drop(log);
    let log = Log::open(&path).unwrap();
    assert!(log.partition("orders", 2).unwrap().recovery().clean, "the drop closes too");
}

#[test]
fn a_deleted_topic_is_gone_with_its_directories() {
    let home = tempfile::tempdir().unwrap();
    let log = Log::open(home.path()).unwrap();
    log.create_topic("orders", TopicConfig::new().partitions(2)).unwrap();
    let partition = log.partition("orders", 0).unwrap();
    append(&partition, &["a"]);
    let held = partition.read(Offset(0), ReadOptions::default()).unwrap();
    log.delete_topic("orders").unwrap();
    assert!(matches!(log.partition("orders", 0), Err(Error::UnknownTopic { .. })));
    assert!(matches!(partition.read(Offset(0), ReadOptions::default()), Err(Error::Closed)));
    assert_eq!(held.iter().next().unwrap().value_str(), Some("a"), "what was read stays");
    assert!(!home.path().join("orders-0").exists() && !home.path().join("orders-1").exists());
    log.create_topic("orders", TopicConfig::new()).unwrap();
    assert!(values(&log.partition("orders", 0).unwrap()).is_empty());
}

#[test]
fn one_process_has_a_log_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let log = Log::open(home.path()).unwrap();
    assert!(matches!(Log::open(home.path()), Err(Error::Locked { .. })));
    log.create_topic("orders", TopicConfig::new()).unwrap();
    let alone = Partition::open(home.path().join("orders-0"), PartitionConfig::default());
    assert!(matches!(alone, Err(Error::Locked { .. })), "{alone:?}");
    log.close().unwrap();
    let alone = Partition::open(home.path().join("orders-0"), PartitionConfig::default()).unwrap();
    append(&alone, &["alone"]);
    assert!(matches!(Log::open(home.path()), Err(Error::Locked { .. })));
    alone.close().unwrap();
    let log = Log::open(home.path()).unwrap();
    assert_eq!(values(&log.partition("orders", 0).unwrap()), ["alone"]);
    assert!(!home.path().join("orders-0/.lock").exists());
    assert!(!home.path().join("orders-0/recovery-point-offset-checkpoint").exists());
}

#[test]
fn without_threads_a_tick_does_what_is_due() {
    let storage = MemoryStorage::new(1);
    let log = Log::builder("data").storage(storage.shared()).background(false).open().unwrap();
    log.create_topic("orders", TopicConfig::new().partitions(2)).unwrap();
    log.tick();
    let mut reader = log.reader().topics(["orders"]).open().unwrap();
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new("nobody waits")).unwrap();
    drop(log.partition("orders", 1).unwrap().append(&mut batch).unwrap());
    let polled = reader.poll(Duration::from_secs(10)).unwrap();
    assert_eq!(polled.records().next().unwrap().value_str(), Some("nobody waits"));
    log.close().unwrap();
    let _ = Arc::new(storage);
}

#[test]
fn what_a_producer_sends_a_reader_gets_in_order() {
    let home = tempfile::tempdir().unwrap();
    let log = Log::open(home.path()).unwrap();
    log.ensure_topic("orders", TopicConfig::new().partitions(4)).unwrap();
    let producer = log.producer().open().unwrap();
    let stored = producer.send("orders", Record::new("first").key("k")).unwrap().wait().unwrap();
    for number in 0..1000 {
        drop(producer.send("orders", Record::new(&format!("{number}")).key("k")).unwrap());
    }
    producer.flush().unwrap();
    let mut reader = log.reader().topics(["orders"]).open().unwrap();
    let mut seen = Vec::new();
    while seen.len() < 1001 {
        let polled = reader.poll(Duration::from_secs(10)).unwrap();
        assert_eq!(polled.partition(), stored.partition);
        seen.extend(polled.records().map(|record| record.value_str().unwrap().to_owned()));
    }
    assert_eq!(seen[0], "first");
    assert!(seen[1..].iter().enumerate().all(|(number, value)| *value == number.to_string()));
    log.close().unwrap();
    assert!(matches!(producer.send("orders", Record::new("late")), Err(Error::Closed)));
    assert!(matches!(reader.poll(Duration::ZERO), Err(Error::Closed)));
}

/// The fixture's records are years old: an age limit would remove them at once.
#[test]
fn a_topic_copied_from_a_broker_is_adopted_and_kept_until_it_gets_settings() {
    let home = tempfile::tempdir().unwrap();
    let from = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kafka-partition-a/orders-0");
    std::fs::create_dir_all(home.path().join("orders-0")).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), home.path().join("orders-0").join(file.file_name())).unwrap();
    }
    let log = Log::open(home.path()).unwrap();
    let found = log.describe_topic("orders").unwrap();
    assert!(found.adopted && found.config.partition.retention == Retention::forever());
    let before = values_read(&log, "orders");
    assert!(!before.is_empty());
    let producer = log.producer().open().unwrap();
    producer.send("orders", Record::new("ours").key("k")).unwrap().wait().unwrap();
    let ensured = log.ensure_topic("orders", TopicConfig::new()).unwrap();
    assert!(!ensured.created && ensured.differences.iter().any(|one| one.setting == "retention.ms"), "{ensured:?}");
    assert!(log.describe_topic("orders").unwrap().adopted, "it has no settings yet");
    assert_eq!(values_read(&log, "orders").len(), before.len() + 1);

    log.set_topic_config("orders", found.config).unwrap();
    log.close().unwrap();
    let log = Log::open(home.path()).unwrap();
    assert!(!log.describe_topic("orders").unwrap().adopted);
    assert_eq!(values_read(&log, "orders").len(), before.len() + 1);
}

/// What a reader gets of a topic, from the first record to the end.
fn values_read(log: &Log, topic: &str) -> Vec<String> {
    let mut reader = log.reader().topics([topic]).open().unwrap();
    let mut values = Vec::new();
    loop {
        let polled = reader.try_poll().unwrap();
        if polled.is_empty() {
            return values;
        }
        values.extend(
            polled.records().map(|record| String::from_utf8_lossy(record.value().unwrap_or_default()).into_owned()),
        );
    }
}

#[test]
fn a_producer_goes_by_the_settings_that_a_topic_has_now() {
    let home = tempfile::tempdir().unwrap();
    let log = Log::open(home.path()).unwrap();
    let config = TopicConfig::new().batch_bytes_max(1000);
    log.create_topic("orders", config.clone()).unwrap();
    let producer = log.producer().open().unwrap();
    let large = "x".repeat(2000);
    assert!(matches!(producer.send("orders", Record::new(&large)), Err(Error::BatchTooLarge { limit: 1000, .. })));
    log.set_topic_config("orders", config.batch_bytes_max(5000)).unwrap();
    producer.send("orders", Record::new(&large)).unwrap().wait().unwrap();
    log.set_topic_config("orders", TopicConfig::new().cleanup(taffrail::Cleanup::Compact)).unwrap();
    assert!(matches!(producer.send("orders", Record::new("no key")), Err(Error::NullKey { .. })));
    producer.send("orders", Record::new("a key").key("k")).unwrap().wait().unwrap();
}

#[test]
fn nothing_is_made_in_a_log_that_somebody_has_open() {
    let home = tempfile::tempdir().unwrap();
    let log = Log::open(home.path()).unwrap();
    log.create_topic("orders", TopicConfig::new()).unwrap();
    let into_the_log = home.path().join("copy-0");
    assert!(matches!(log.partition("orders", 0).unwrap().export(&into_the_log), Err(Error::Locked { .. })));
    assert!(matches!(Partition::open(&into_the_log, PartitionConfig::default()), Err(Error::Locked { .. })));
    assert!(!into_the_log.exists());
}
