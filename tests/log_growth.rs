//! A topic gets more partitions while it is written and read: nothing is lost, order holds within each partition, and
//! readers find the new ones by themselves.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use taffrail::{Error, Log, Polled, Reader, Record, TopicConfig};

const THREADS: u64 = 4;
const KEYS: u64 = 40;
const BEFORE: u32 = 8;
const AFTER: u32 = 10;

/// What a reader has seen: by partition and key, the numbers in their order.
type Seen = BTreeMap<(u32, String), Vec<u64>>;

fn note(polled: &Polled, seen: &mut Seen) {
    for record in polled {
        let key = String::from_utf8_lossy(record.key().expect("it has one")).into_owned();
        let number = record.value_str().expect("digits").parse().expect("digits");
        seen.entry((polled.partition(), key)).or_default().push(number);
    }
}

/// Publishes until it is told to stop; answers how many records of each key it sent.
fn publish(log: &Log, thread: u64, stop: &AtomicBool) -> BTreeMap<String, u64> {
    let producer = log.producer().batch_bytes(500).open().expect("it opens");
    let mut sent = BTreeMap::new();
    for turn in 0.. {
        let key = format!("{thread}-{}", turn % KEYS);
        let number = sent.entry(key.clone()).or_insert(0_u64);
        let delivery = producer.send("orders", Record::new(&number.to_string()).key(&key)).expect("it is taken");
        *number += 1;
        if turn % 64 == 0 {
            delivery.wait().expect("it is stored");
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    producer.flush().expect("everything is stored");
    sent
}

/// Reads until everything that was sent is there.
fn read(mut reader: Reader, total: impl Fn() -> Option<u64>) -> Seen {
    let (mut seen, mut count, began) = (Seen::new(), 0, Instant::now());
    while total().is_none_or(|total| count < total) {
        let polled = reader.poll(Duration::from_millis(50)).expect("it reads");
        count += polled.records().count() as u64;
        note(&polled, &mut seen);
        assert!(began.elapsed() < Duration::from_secs(60), "{count} of {:?} records came", total());
    }
    let due: Vec<_> = (0..AFTER).collect();
    let assigned: Vec<_> = reader.assignment().iter().map(|assigned| assigned.partition).collect();
    assert_eq!(assigned, due, "the reader follows the topic");
    seen
}

#[test]
fn a_topic_grows_while_it_is_used() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let log = Log::open(home.path()).expect("it opens");
    log.create_topic("orders", TopicConfig::new().partitions(BEFORE)).expect("it is made");
    let (stop, total) = (AtomicBool::new(false), std::sync::OnceLock::new());
    let (sent, seen) = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let reader = log.reader().topics(["orders"]).open().expect("it opens");
                let total = &total;
                scope.spawn(move || read(reader, || total.get().copied()))
            })
            .collect();
        let producers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (log, stop) = (&log, &stop);
                scope.spawn(move || publish(log, thread, stop))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let added = log.add_partitions("orders", AFTER).expect("it grows");
        assert_eq!((added.before, added.after), (BEFORE, AFTER));
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        let mut sent = BTreeMap::new();
        for producer in producers {
            sent.extend(producer.join().expect("it publishes"));
        }
        total.set(sent.values().sum()).expect("once");
        let seen: Vec<_> = readers.into_iter().map(|reader| reader.join().expect("it reads")).collect();
        (sent, seen)
    });
    assert_eq!(seen[0], seen[1], "both readers see the same");
    check(&sent, &seen[0]);
    let again = log.add_partitions("orders", AFTER).expect_err("it has so many");
    assert!(matches!(again, Error::PartitionCount { partitions: AFTER, requested: AFTER, .. }), "{again}");
    log.close().expect("it closes");
    let log = Log::open(home.path()).expect("it opens");
    assert_eq!(log.describe_topic("orders").expect("it is there").partitions.len(), AFTER as usize);
}

/// Everything is there once; each key has moved once at most, and its numbers rise within each partition.
fn check(sent: &BTreeMap<String, u64>, seen: &Seen) {
    let mut by_key: BTreeMap<&String, Vec<u64>> = BTreeMap::new();
    for ((partition, key), numbers) in seen {
        assert!(numbers.is_sorted_by(|a, b| a < b), "key {key} in partition {partition}: {numbers:?}");
        by_key.entry(key).or_default().extend(numbers);
        let places = seen.keys().filter(|(_, other)| other == key).count();
        assert!(places <= 2, "key {key} lies in {places} partitions");
    }
    for (key, count) in sent {
        let mut numbers = by_key.remove(key).unwrap_or_default();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..*count), "key {key}: not each of {count} records is there once");
    }
    assert!(by_key.is_empty());
    let moved = seen.keys().filter(|(partition, _)| *partition >= BEFORE).count();
    assert!(moved > 0, "the new partitions are used");
}
