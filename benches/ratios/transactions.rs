//! Rows of transactions, through a [`Log`] with its threads.
//!
//! * Unsynced: transactions of 1,000 records beside plain sends of the same records, both to one partition.
//! * Synced: transactions of one record beside the raw loop that writes and syncs one record, into a window that was
//!   filled and synced before. Behind the row stands how many syncs a transaction waits for, counted on a disk in
//!   memory, and its time as a multiple of one sync.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use taffrail::{Durability, Log, ManualClock, MemoryStorage, OperationKind, Record, Timestamp, TopicConfig};
use taffrail::{TransactionalProducer, WhenFull};

use crate::measure::Side;
use crate::work::Source;

const TOPIC: &str = "events";
const RECORD_BYTES: usize = 1024;
const RECORDS: usize = 1000;
/// The row behind which the syncs stand.
pub(crate) const SYNCED: &str = "transaction of 1 record, synced";

fn prepare(log: &Log, durability: Durability) -> TransactionalProducer {
    log.create_topic(TOPIC, TopicConfig::new().durability(durability)).expect("the topic is new");
    let producer = log.transactional_producer("bench").when_full(WhenFull::Fail).open().expect("it opens");
    for own in log.internal_topics() {
        let config = log.describe_topic(&own).expect("it is there").config.durability(durability);
        log.set_topic_config(&own, config).expect("it may be set");
    }
    producer
}

/// Transactions of 1,000 records each.
pub(crate) fn transactions(directory: &Path, count: usize) -> Side {
    let path = directory.join("log");
    let mut source = Source::new(RECORD_BYTES);
    Box::new(move || {
        let log = Log::open(&path).expect("a new directory opens");
        let mut producer = prepare(&log, Durability::Os);
        let started = Instant::now();
        for _ in 0..count {
            let transaction = producer.begin().expect("nothing is open");
            for _ in 0..RECORDS {
                let _not_waited_for = transaction.send(TOPIC, Record::new(source.record())).expect("it is taken");
            }
            transaction.commit().expect("it commits");
        }
        let time = started.elapsed();
        drop((producer, log));
        std::fs::remove_dir_all(&path).expect("the log's directory is there");
        time
    })
}

/// The same records, sent plainly.
pub(crate) fn plain(directory: &Path, count: usize) -> Side {
    let path = directory.join("log");
    let mut source = Source::new(RECORD_BYTES);
    Box::new(move || {
        let log = Log::open(&path).expect("a new directory opens");
        drop(prepare(&log, Durability::Os));
        let producer = log.producer().open().expect("it opens");
        let started = Instant::now();
        for _ in 0..count {
            for _ in 0..RECORDS {
                let _not_waited_for = producer.send(TOPIC, Record::new(source.record())).expect("it is taken");
            }
            producer.flush().expect("everything is appended");
        }
        let time = started.elapsed();
        drop((producer, log));
        std::fs::remove_dir_all(&path).expect("the log's directory is there");
        time
    })
}

/// Transactions of one record, everything synced.
pub(crate) fn synced(directory: &Path, count: usize) -> Side {
    let path = directory.join("log");
    let mut source = Source::new(RECORD_BYTES);
    Box::new(move || {
        let log = Log::open(&path).expect("a new directory opens");
        let mut producer = prepare(&log, Durability::Sync);
        let started = Instant::now();
        for _ in 0..count {
            one(&mut producer, &mut source);
        }
        let time = started.elapsed();
        drop((producer, log));
        std::fs::remove_dir_all(&path).expect("the log's directory is there");
        time
    })
}

fn one(producer: &mut TransactionalProducer, source: &mut Source) {
    let transaction = producer.begin().expect("nothing is open");
    let _not_waited_for = transaction.send(TOPIC, Record::new(source.record())).expect("it is taken");
    transaction.commit().expect("it commits");
}

/// What stands behind the synced row, whose ratio is that of one sync to one transaction.
pub(crate) fn note(ratio: f64) -> String {
    let storage = MemoryStorage::new(1);
    let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
    let log = Log::builder("/log").storage(storage.shared()).clock(clock).background(false).open().expect("it opens");
    let mut producer = prepare(&log, Durability::Sync);
    let mut source = Source::new(RECORD_BYTES);
    let count = 16;
    one(&mut producer, &mut source);
    storage.record_history();
    for _ in 0..count {
        one(&mut producer, &mut source);
    }
    let syncs = storage.history().iter().filter(|operation| operation.kind == OperationKind::Sync).count();
    let each = syncs as f64 / f64::from(count);
    format!("    a transaction waits for {each:.1} syncs, and takes {:.1} times one sync", 1.0 / ratio)
}
