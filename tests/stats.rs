//! Figures of a whole log, without any feature: what is there, what came since it was opened, and how fast.

use std::sync::Arc;
use std::time::Duration;

use taffrail::{Clock, Error, Log, ManualClock, MemoryStorage, Record, Retention, Timestamp, TopicConfig};

fn open(storage: &MemoryStorage, clock: &Arc<ManualClock>) -> Log {
    let builder = Log::builder("/data").storage(storage.shared()).clock(Arc::clone(clock) as _).background(false);
    builder.seed(1).open().expect("it opens")
}

fn send(log: &Log, topic: &str, partition: u32, records: u64) {
    let producer = log.producer().open().expect("it opens");
    let wall = Timestamp(0);
    for _ in 0..records {
        let record = Record::new("value").partition(partition).timestamp(wall);
        producer.send(topic, record).expect("it is taken").wait().expect("it is stored");
    }
    producer.close().expect("it closes");
}

#[test]
fn what_is_there_and_what_came_since_the_open() {
    let (storage, clock) = (MemoryStorage::new(1), Arc::new(ManualClock::at(Timestamp(0))));
    let log = open(&storage, &clock);
    let empty = log.stats().expect("it is open");
    assert_eq!((empty.topics, empty.partitions, empty.bytes, empty.appended_records), (0, 0, 0, 0));
    assert_eq!((empty.groups, empty.open_files, empty.rate_in), (Some(0), None, None));

    let config = TopicConfig::new().partitions(2).retention(Retention::forever());
    log.create_topic("orders", config.clone()).expect("it is new");
    log.create_topic("refunds", config.partitions(1)).expect("it is new");
    send(&log, "orders", 0, 3);
    send(&log, "orders", 1, 2);
    let stats = log.stats().expect("it is open");
    let bytes: u64 = (0..2).map(|number| log.partition("orders", number).expect("it is there").stats().bytes).sum();
    assert_eq!((stats.topics, stats.partitions, stats.segments), (2, 3, 3));
    assert_eq!((stats.appended_records, stats.appended_bytes, stats.bytes), (5, bytes, bytes));
    assert!(stats.syncs > 0 && stats.fenced == 0);

    log.close().expect("it closes");
    let log = open(&storage, &clock);
    let stats = log.stats().expect("it is open");
    assert_eq!((stats.bytes, stats.appended_records, stats.appended_bytes), (bytes, 0, 0), "since it was opened");
    send(&log, "orders", 1, 4);
    log.partition("orders", 1).expect("it is there").roll().expect("it rolls");
    send(&log, "orders", 1, 4);
    let stats = log.stats().expect("it is open");
    assert_eq!((stats.appended_records, stats.appended_bytes), (8, stats.bytes - bytes), "over a new segment too");
    let other = log.clone();
    log.close().expect("it closes");
    assert!(matches!(other.stats(), Err(Error::Closed)));
}

#[test]
fn what_is_gone_was_appended_all_the_same() {
    let (storage, clock) = (MemoryStorage::new(1), Arc::new(ManualClock::at(Timestamp(0))));
    let log = open(&storage, &clock);
    let config = TopicConfig::new().segment_bytes(200).retention(Retention::forever().age(Duration::from_secs(10)));
    log.create_topic("orders", config).expect("it is new");
    send(&log, "orders", 0, 10);
    let before = log.partition("orders", 0).expect("it is there").stats();
    // The log looks once a second.
    for seconds in [1, 60] {
        clock.advance(Duration::from_secs(seconds));
        log.tick();
    }
    let after = log.stats().expect("it is open");
    assert_eq!((after.bytes, after.segments), (0, 1));
    assert_eq!((after.appended_records, after.appended_bytes), (10, before.bytes));
    let partition = log.partition("orders", 0).expect("it is there");
    send(&log, "orders", 0, 3);
    partition.truncate_from(taffrail::Offset(11), taffrail::Force::Yes).expect("forced");
    log.stats().expect("it is open");
    send(&log, "orders", 0, 1);
    assert_eq!(
        log.stats().expect("it is open").appended_records,
        12,
        "what was cut before anybody looked is not counted"
    );
}

#[test]
fn what_a_deleted_topic_has_counted_stays_counted() {
    let (storage, clock) = (MemoryStorage::new(1), Arc::new(ManualClock::at(Timestamp(0))));
    let log = open(&storage, &clock);
    for (topic, partitions) in [("orders", 2), ("refunds", 1)] {
        log.create_topic(topic, TopicConfig::new().partitions(partitions)).expect("it is new");
    }
    send(&log, "orders", 0, 3);
    send(&log, "orders", 1, 4);
    send(&log, "refunds", 0, 1);
    let before = log.stats().expect("it is open");
    assert_eq!((before.appended_records, before.topics), (8, 2));
    log.delete_topic("orders").expect("it is there");
    let after = log.stats().expect("it is open");
    assert_eq!((after.appended_records, after.appended_bytes), (8, before.appended_bytes));
    assert!(after.syncs >= before.syncs, "{} {}", after.syncs, before.syncs);
    assert!((after.topics, after.partitions) == (1, 1) && after.bytes < before.bytes, "{after:?}");
    log.create_topic("orders", TopicConfig::new()).expect("it is new");
    send(&log, "orders", 0, 2);
    assert_eq!(log.stats().expect("it is open").appended_records, 10);
}

#[test]
fn the_rate_comes_with_a_monitor() {
    let (storage, clock) = (MemoryStorage::new(1), Arc::new(ManualClock::at(Timestamp(0))));
    let log = open(&storage, &clock);
    log.create_topic("orders", TopicConfig::new().partitions(2)).expect("it is new");
    let monitor = log.monitor().start().expect("it starts");
    log.tick();
    for _ in 0..10 {
        clock.advance(Duration::from_secs(1));
        send(&log, "orders", 0, 4);
        send(&log, "orders", 1, 1);
        log.tick();
    }
    let rate = log.stats().expect("it is open").rate_in.expect("it has looked");
    assert!((rate.records - 5.0).abs() < 0.6, "{rate:?}");
    drop(monitor);
    assert_eq!(log.stats().expect("it is open").rate_in, None);
    assert_eq!(clock.wall(), Timestamp(10_000));
}

#[test]
fn files_that_are_open_are_counted_where_the_storage_says_so() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let log = Log::builder(home.path().join("data")).background(false).open().expect("it opens");
    log.create_topic("orders", TopicConfig::new().partitions(3)).expect("it is new");
    let open = log.stats().expect("it is open").open_files.expect("files are counted");
    assert!(open >= 3, "{open}");
    log.delete_topic("orders").expect("it is there");
    let fewer = log.stats().expect("it is open").open_files.expect("files are counted");
    assert!(fewer < open, "{fewer} {open}");
}
