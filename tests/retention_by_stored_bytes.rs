//! What is not on the disk yet does not push out what is. Retention by size once counted records that no sync had covered:
//! it removed the oldest segments for their sake, and a loss of power then took both.

use std::sync::Arc;
use std::time::Duration;

use taffrail::{
    BatchBuilder, Clock, Durability, ManualClock, MemoryStorage, Partition, PartitionConfig, Record, Retention,
    Timestamp,
};

const KEPT_BYTES: u64 = 1000;

fn open(storage: &MemoryStorage, clock: &Arc<ManualClock>) -> Partition {
    let config = PartitionConfig::new()
        .durability(Durability::Sync)
        .segment_bytes(300)
        .retention(Retention::forever().bytes(KEPT_BYTES))
        .flush_interval(Duration::from_secs(3600));
    let partition = Partition::builder("data/wal-0").config(config).storage(storage.shared()).clock(clock.clone());
    partition.open().expect("it opens")
}

fn append(partition: &Partition, is_waited_for: bool) {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new(&"v".repeat(30))).expect("small");
    let appended = partition.append(&mut batch).expect("taken");
    if is_waited_for {
        appended.wait().expect("stored");
    }
}

#[test]
fn a_loss_of_power_leaves_as_much_as_is_kept() {
    let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
    let storage = MemoryStorage::new(1);
    let partition = open(&storage, &clock);
    (0..12).for_each(|_| append(&partition, true));
    // In one segment with what nobody waits for, so that no roll syncs it.
    partition.roll().expect("rolled");
    (0..2).for_each(|_| append(&partition, false));
    let removed = partition.maintain(clock.now()).expect("maintained").removed;
    assert!(!removed.is_empty(), "there was too much");
    for seed in 0..20 {
        let after = open(&storage.snapshot().crash(seed), &clock);
        assert!(after.stats().bytes >= KEPT_BYTES, "{} bytes are left", after.stats().bytes);
    }
}
