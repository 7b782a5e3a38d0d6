//! A truncation lowers the recovery point that is on the disk, too.
//!
//! ```text
//!   synced up to 10       |0|1|2|3|4|5|6|7|8|9|            recovery point 10
//!   cut at 4              |0|1|2|3|                        recovery point 4
//!   appended, not synced  |0|1|2|3|a|b|c|d|e|f|g|h|
//!   power lost            |0|1|2|3|a|?|c|d|e|f|g|h|        the header of `?` is there, its records are not
//! ```
//!
//! With a recovery point of 10 the recovery would trust everything below 10: headers lead over `?`, so the log would
//! go on to its end with a hole of unreadable records in it, for good. From 4 on it is verified, and ends before `?`.

use std::sync::Arc;
use std::time::Duration;

use taffrail::{
    BatchBuilder, Clock, Durability, Force, ManualClock, MemoryStorage, Offset, Partition, PartitionConfig,
    ReadOptions, Record, Timestamp, UpTo,
};

const LOG: &str = "data/wal-0/00000000000000000000.log";
const INDEX_INTERVAL_BYTES: u32 = 200;

fn open(storage: &MemoryStorage, durability: Durability, clock: &Arc<ManualClock>) -> Partition {
    let config = PartitionConfig::new()
        .durability(durability)
        .index_interval_bytes(INDEX_INTERVAL_BYTES)
        .checkpoint_interval(Duration::from_secs(1));
    let builder = Partition::builder("data/wal-0").config(config).storage(storage.shared());
    builder.clock(Arc::clone(clock) as Arc<dyn Clock>).open().expect("it opens")
}

/// A batch of one record; answers its bytes in the log.
fn append(partition: &Partition, value: &str) -> u64 {
    let before = partition.stats().bytes;
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new(value).timestamp(Timestamp(1))).expect("small");
    let _ = partition.append(&mut batch).expect("appended");
    partition.stats().bytes - before
}

fn values(partition: &Partition) -> Vec<String> {
    let options = ReadOptions::new().up_to(UpTo::LogEnd);
    let mut values = Vec::new();
    let mut at = partition.start();
    while at < partition.end() {
        let fetched = partition.try_read(at, options).expect("everything in the log is readable");
        values.extend(fetched.records().map(|record| record.value_str().expect("text").to_owned()));
        at = fetched.next_offset();
    }
    values
}

/// Takes the second half of a batch's records away, as a page that was never written would be.
fn tear(storage: &MemoryStorage, batch: std::ops::Range<usize>) {
    let mut bytes = storage.bytes_of(LOG).expect("the segment is there").to_vec();
    let middle = batch.start.midpoint(batch.end);
    bytes[middle..batch.end].fill(0);
    storage.set_bytes(LOG, &bytes).expect("written");
}

fn torn_below_the_old_recovery_point(durability: Durability) {
    let (storage, clock) = (MemoryStorage::new(1), Arc::new(ManualClock::at(Timestamp(1_000_000))));
    let partition = open(&storage, durability, &clock);
    let old = "an old record ".repeat(20);
    let size = append(&partition, &old);
    (1..10).for_each(|_| assert_eq!(append(&partition, &old), size, "all batches have one size"));
    assert!(size > u64::from(INDEX_INTERVAL_BYTES), "each batch has an index entry");
    partition.sync().expect("synced");
    clock.advance(Duration::from_secs(2));
    assert!(partition.maintain(clock.now()).expect("maintained").checkpointed);

    assert_eq!(partition.truncate_from(Offset(4), Force::Yes).expect("truncated"), Offset(4));
    for value in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        assert_eq!(append(&partition, &value.repeat(old.len())), size, "the new ones too");
    }
    let size = usize::try_from(size).expect("small");
    let durable = storage.durable_bytes_of(LOG).expect("the segment is there").len();
    assert_eq!(durable, 4 * size, "what was appended since is not synced");

    let survivor = storage.kill();
    drop(partition);
    tear(&survivor, 5 * size..6 * size);
    let partition = open(&survivor, durability, &clock);
    assert_eq!(partition.end(), Offset(5), "the log ends before the torn batch");
    let kept = values(&partition);
    assert_eq!(kept.len(), 5);
    assert!(kept[..4].iter().all(|value| *value == old) && kept[4].starts_with('a'));
    let cut = partition.recovery().cut.clone().expect("it says what it cut");
    assert_eq!(cut.position, 5 * size as u64);
    assert!(cut.saved_to.is_some_and(|path| survivor.bytes_of(path).is_some()));
}

#[test]
fn torn_below_the_old_recovery_point_of_a_synced_partition() {
    torn_below_the_old_recovery_point(Durability::Sync);
}

#[test]
fn torn_below_the_old_recovery_point_of_an_unsynced_one() {
    torn_below_the_old_recovery_point(Durability::Os);
}
