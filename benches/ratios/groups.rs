//! Rows of groups, through a [`Log`] with its threads.
//!
//! * Reading through a group, one member, beside readers of the same partitions.
//! * Commits, each waited for and synced: of one member beside the raw loop that writes and syncs one record of the same
//!   size into a window that was filled and synced before; of 32 threads that share one group beside 32 threads that share
//!   a raw file; and such as nobody waits for, beside the raw loop of one thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use taffrail::{Consumer, Durability, Log, Offset, Record, TopicConfig};

use crate::measure::Side;
use crate::raw_sync::together;
use crate::work::{Source, touch};

const TOPIC: &str = "events";
const GROUP: &str = "bench";
const PARTITIONS: u32 = 8;
/// What the record of a position has here, beside the framing of a batch of one record.
pub(crate) const COMMIT_BYTES: usize = 56;

/// Who reads.
#[derive(Clone, Copy)]
pub(crate) enum By {
    Group,
    Reader,
}

/// Fills a topic to read: 1 KiB records over all partitions.
pub(crate) fn topic_to_read(directory: &Path, records: usize) -> Log {
    let log = Log::open(directory.join("log")).expect("a new directory opens");
    let config = TopicConfig::new().partitions(PARTITIONS).durability(Durability::Os);
    log.create_topic(TOPIC, config).expect("the topic is new");
    let producer = log.producer().open().expect("it opens");
    let mut source = Source::new(1024);
    for number in 0..records {
        let partition = u32::try_from(number / 100).unwrap_or(0) % PARTITIONS;
        producer.send(TOPIC, Record::new(source.record()).partition(partition)).expect("it is taken");
    }
    producer.close().expect("everything is appended");
    log
}

/// Reads all of it, and touches every byte.
pub(crate) fn read(log: Log, records: usize, by: By) -> Side {
    let mut rounds = 0;
    Box::new(move || {
        rounds += 1;
        match by {
            By::Group => {
                let consumer = log.consumer(format!("{GROUP}-{rounds}")).subscribe([TOPIC]).open();
                let mut consumer = consumer.expect("it opens");
                // Joining is no part of it.
                let (mut count, mut sum) = (0, 0);
                take(&consumer.poll(Duration::from_secs(10)).expect("it reads"), &mut count, &mut sum);
                let (first, started) = (count, Instant::now());
                while count < records {
                    take(&consumer.poll(Duration::from_secs(10)).expect("it reads"), &mut count, &mut sum);
                }
                let time = started.elapsed();
                std::hint::black_box(sum);
                consumer.close().expect("it leaves");
                time.mul_f64(records as f64 / (records - first) as f64)
            }
            By::Reader => {
                let mut reader = log.reader().topics([TOPIC]).open().expect("it opens");
                let (mut count, mut sum) = (0, 0);
                let started = Instant::now();
                while count < records {
                    take(&reader.poll(Duration::from_secs(10)).expect("it reads"), &mut count, &mut sum);
                }
                let time = started.elapsed();
                std::hint::black_box(sum);
                time
            }
        }
    })
}

fn take(polled: &taffrail::Polled, count: &mut usize, sum: &mut u64) {
    for record in polled {
        *count += 1;
        *sum = sum.wrapping_add(touch(record.value().unwrap_or_default()));
    }
}

fn log_to_commit(directory: &Path, partitions: u32) -> (PathBuf, Log) {
    let path = directory.join("log");
    let log = Log::open(&path).expect("a new directory opens");
    let config = TopicConfig::new().partitions(partitions).durability(Durability::Os);
    log.create_topic(TOPIC, config).expect("the topic is new");
    (path, log)
}

fn commit(consumer: &mut Consumer, partition: u32, offset: u64) {
    let positions = [((TOPIC, partition), Offset(offset))];
    consumer.commit_offsets(positions).expect("it is stored");
}

/// One member commits, and waits each time.
pub(crate) fn commits(directory: &Path, operations: usize) -> Side {
    let directory = directory.to_owned();
    Box::new(move || {
        let (path, log) = log_to_commit(&directory, 1);
        let mut consumer = log.consumer(GROUP).subscribe([TOPIC]).open().expect("it opens");
        consumer.poll(Duration::from_millis(1)).expect("it joins");
        commit(&mut consumer, 0, 0);
        let started = Instant::now();
        for offset in 0..operations {
            commit(&mut consumer, 0, offset as u64);
        }
        let time = started.elapsed();
        drop((consumer, log));
        std::fs::remove_dir_all(&path).expect("the log's directory is there");
        time
    })
}

/// Threads that commit for one group at once, each waiting for its own.
pub(crate) fn commits_at_once(directory: &Path, threads: usize, operations: usize) -> Side {
    let directory = directory.to_owned();
    Box::new(move || {
        let (path, log) = log_to_commit(&directory, u32::try_from(threads).unwrap_or(1));
        let time = together(threads, |thread| {
            let partition = u32::try_from(thread).unwrap_or(0);
            let consumer = log.consumer(GROUP).assign([(TOPIC, partition)]).open();
            let mut consumer = consumer.expect("it opens");
            commit(&mut consumer, partition, 0);
            move || {
                for offset in 0..operations / threads {
                    commit(&mut consumer, partition, offset as u64);
                }
            }
        });
        drop(log);
        std::fs::remove_dir_all(&path).expect("the log's directory is there");
        time
    })
}

/// One member commits behind each poll and does not wait; in the end everything is stored.
pub(crate) fn commits_async(directory: &Path, operations: usize) -> Side {
    let directory = directory.to_owned();
    Box::new(move || {
        let (path, log) = log_to_commit(&directory, 1);
        let producer = log.producer().open().expect("it opens");
        for _ in 0..operations {
            producer.send(TOPIC, Record::new("x")).expect("it is taken");
            producer.flush().expect("it is appended");
        }
        let consumer = log.consumer(GROUP).subscribe([TOPIC]).max_bytes(1).open();
        let mut consumer = consumer.expect("it opens");
        let stored = Arc::new(AtomicU64::new(0));
        let mut count = 0;
        let started = Instant::now();
        while stored.load(Ordering::Acquire) < operations as u64 {
            let wait = if count < operations { Duration::from_secs(10) } else { Duration::from_millis(1) };
            if !consumer.poll(wait).expect("it reads").is_empty() {
                count += 1;
                let stored = Arc::clone(&stored);
                consumer.commit_async(move |outcome| {
                    outcome.expect("it is stored");
                    stored.fetch_add(1, Ordering::Release);
                });
            }
        }
        let time = started.elapsed();
        drop((consumer, producer, log));
        std::fs::remove_dir_all(&path).expect("the log's directory is there");
        time
    })
}
