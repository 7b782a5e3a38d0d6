//! A consumer that falls behind: how far that is, that it is said in time, and that what is held for it stays.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use taffrail::{
    Alert, Clock, Log, ManualClock, Margin, MemoryStorage, Offset, Record, Retention, Timestamp, TopicConfig,
};

const DAY: Duration = Duration::from_secs(86_400);

fn publish(log: &Log, records: u64, at: Timestamp) {
    let producer = log.producer().open().expect("it opens");
    for number in 0..records {
        let value = number.to_string();
        let sent = producer.send("orders", Record::new(&value).timestamp(at)).expect("it is taken");
        sent.wait().expect("it is stored");
    }
    producer.close().expect("it closes");
}

/// Reads so many records of a group's, one at a time, and commits.
fn read(log: &Log, group: &str, records: usize) {
    let mut consumer = log.consumer(group).subscribe(["orders"]).max_bytes(1).open().expect("it opens");
    for _ in 0..records {
        let polled = consumer.poll(Duration::from_secs(10)).expect("it reads");
        assert_eq!(polled.records().count(), 1);
    }
    consumer.commit().expect("it commits");
    consumer.close().expect("it leaves");
}

#[test]
fn a_consumer_that_stops_is_told_of_and_what_is_held_for_it_stays() {
    let storage = MemoryStorage::new(1);
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    let builder = Log::builder("/data").storage(storage.shared()).clock(Arc::clone(&clock) as _).background(false);
    let log = builder.seed(1).open().expect("it opens");
    let retention = Retention::forever().age(DAY).hold_for(["billing"], 1 << 20);
    log.create_topic("orders", TopicConfig::new().segment_bytes(100).retention(retention)).expect("it is new");
    publish(&log, 10, clock.wall());
    read(&log, "billing", 4);
    read(&log, "audit", 6);
    let lag = log.lag("billing").expect("it is there");
    let [orders] = &lag.partitions[..] else { panic!("{lag:?}") };
    assert_eq!((orders.committed, orders.end, orders.records), (Some(Offset(4)), Offset(10), 6));
    assert_eq!(log.lag("audit").expect("it is there").total.records, 4);
    assert_eq!(log.stats().expect("it is open").groups, Some(2));

    let (said, alerts) = mpsc::channel();
    let monitor = log.monitor().margin(Margin::Duration(DAY / 2)).on_alert(move |alert| drop(said.send(alert.clone())));
    let monitor = monitor.start().expect("it starts");
    clock.advance(3 * DAY);
    for _ in 0..3 {
        clock.advance(Duration::from_secs(1));
        log.tick();
    }
    assert_eq!(log.partition("orders", 0).expect("it is there").start(), Offset(4), "what billing has read goes");
    assert_eq!(log.lag("billing").expect("it is there").total.left, None, "and no more, as long as nothing comes");
    let lost: Vec<_> = alerts.try_iter().filter(|alert| !matches!(alert, Alert::NearEdge { .. })).collect();
    assert_eq!(lost, [], "audit had read more");
    drop(monitor);
    read(&log, "billing", 6);
    assert_eq!(log.lag("billing").expect("it is there").total.records, 0);
    log.close().expect("it closes");
}

/// With threads of the log's own, and the clock of the system.
#[test]
fn a_monitor_runs_by_itself() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let log = Log::open(home.path().join("data")).expect("it opens");
    log.create_topic("orders", TopicConfig::new().retention(Retention::forever().age(DAY))).expect("it is new");
    let now = taffrail::SystemClock.wall();
    publish(&log, 5, Timestamp(now.0 - 80_000_000));
    read(&log, "billing", 2);
    let (said, alerts) = mpsc::channel();
    let monitor =
        log.monitor().interval(Duration::from_millis(20)).on_alert(move |alert| drop(said.send(alert.clone())));
    let monitor = monitor.start().expect("it starts");
    let alert = alerts.recv_timeout(Duration::from_secs(30)).expect("it is said");
    let Alert::NearEdge { group, lag, left, .. } = &alert else { panic!("{alert:?}") };
    assert_eq!((group.as_str(), lag.committed, lag.records), ("billing", Some(Offset(2)), 3));
    assert!(*left < Duration::from_secs(6_401), "{left:?}");
    std::thread::sleep(Duration::from_millis(100));
    let rate_out = log.lag("billing").expect("it is there").partitions.remove(0).rate_out;
    assert!(rate_out.is_some_and(|rate| rate.records < 0.1), "{rate_out:?}");
    drop(monitor);
    assert!(alerts.recv().is_err(), "its callback is gone, and nothing else was said");
    log.close().expect("it closes");
}

/// The callback is one of the log's own threads, which a close waits for elsewhere.
#[test]
fn a_monitor_may_close_the_log() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("data");
    let log = Log::open(&path).expect("it opens");
    log.create_topic("orders", TopicConfig::new().retention(Retention::forever().age(DAY))).expect("it is new");
    publish(&log, 5, Timestamp(taffrail::SystemClock.wall().0 - 80_000_000));
    read(&log, "billing", 2);
    let (said, closed) = mpsc::channel();
    let mut handle = Some(log.clone());
    let monitor = log.monitor().interval(Duration::from_millis(20)).on_alert(move |_| {
        if let Some(log) = handle.take() {
            said.send(log.close()).expect("somebody waits");
        }
    });
    let monitor = monitor.start().expect("it starts");
    closed.recv_timeout(Duration::from_secs(60)).expect("it returns").expect("it is closed");
    drop(monitor);
    assert!(matches!(log.close(), Ok(())));
    // It was closed cleanly, and its directory is free.
    let log = Log::open(&path).expect("it opens");
    assert_eq!(log.lag("billing").expect("it is there").total.records, 3);
    log.close().expect("it closes");
}

/// The same while another thread closes it, and waits for the thread that the callback is on.
#[test]
fn a_monitor_may_close_the_log_that_another_thread_closes() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let log = Log::open(home.path().join("data")).expect("it opens");
    log.create_topic("orders", TopicConfig::new().retention(Retention::forever().age(DAY))).expect("it is new");
    publish(&log, 5, Timestamp(taffrail::SystemClock.wall().0 - 80_000_000));
    read(&log, "billing", 2);
    let (begun, alerted) = mpsc::channel();
    let (said, closed) = mpsc::channel();
    let mut handle = Some(log.clone());
    let monitor = log.monitor().interval(Duration::from_millis(20)).on_alert(move |_| {
        if let Some(log) = handle.take() {
            begun.send(()).expect("somebody waits");
            while log.describe_topic("orders").is_ok() {
                std::thread::yield_now();
            }
            said.send(log.close()).expect("somebody waits");
        }
    });
    let monitor = monitor.start().expect("it starts");
    alerted.recv_timeout(Duration::from_secs(60)).expect("it alerts");
    let elsewhere = std::thread::spawn(move || log.close());
    closed.recv_timeout(Duration::from_secs(60)).expect("it returns").expect("the log is being closed");
    elsewhere.join().expect("it ends").expect("it is closed");
    drop(monitor);
}
