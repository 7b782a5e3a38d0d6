//! A reader that waits takes no lock that a writer holds over the disk's work. It once took the writer's lock to begin its
//! wait: while a roll synced for two seconds, a wait of at most ten milliseconds took two seconds.

#[path = "support/hooked.rs"]
mod hooked;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hooked::{At, Hooked};
use taffrail::{
    BatchBuilder, Durability, LeaderEpoch, MemoryStorage, Offset, Partition, PartitionConfig, ReadOptions, Record, UpTo,
};

fn append(partition: &Partition) {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new("v")).expect("small");
    partition.append(&mut batch).expect("taken").wait().expect("stored");
}

#[test]
fn a_wait_ends_in_time_while_a_roll_syncs() {
    let slow = Arc::new(AtomicBool::new(false));
    let slows = Arc::clone(&slow);
    let storage = Hooked::new(MemoryStorage::new(1).shared());
    storage.set(At::Sync, move |_| {
        let begun = Instant::now();
        while slows.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    let config = PartitionConfig::new().durability(Durability::Sync);
    let partition = Partition::builder("data/wal-0").config(config).storage(storage.shared()).open().expect("opens");
    append(&partition);
    slow.store(true, Ordering::Relaxed);
    let rolling = partition.clone();
    let roll = std::thread::spawn(move || rolling.roll());
    std::thread::sleep(Duration::from_millis(100));

    let begun = Instant::now();
    let options = ReadOptions::new().max_wait(Duration::from_millis(10));
    assert!(partition.read(Offset(1), options).expect("in the log").is_empty());
    assert!(begun.elapsed() < Duration::from_secs(5), "a wait of 10 ms took {:?}", begun.elapsed());
    let _ = partition.stats();
    assert_eq!(partition.epoch_end(LeaderEpoch(0)), Some((LeaderEpoch(0), Offset(1))));
    assert!(begun.elapsed() < Duration::from_secs(5), "the figures took {:?}", begun.elapsed());
    assert!(!roll.is_finished(), "the roll was to sync all the while");
    slow.store(false, Ordering::Relaxed);
    roll.join().expect("no panic").expect("rolled");
}

/// Whoever begins to wait while the writer is at work is woken by what it appends, at once.
#[test]
fn no_append_is_missed() {
    for durability in [Durability::Os, Durability::Sync] {
        let config = PartitionConfig::new().durability(durability).segment_bytes(4096);
        let storage = MemoryStorage::new(1).shared();
        let partition = Partition::builder("data/wal-0").config(config).storage(storage).open().expect("opens");
        let writing = partition.clone();
        let writer = std::thread::spawn(move || {
            for number in 0..2_000 {
                append(&writing);
                if number % 64 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let options = ReadOptions::new().up_to(UpTo::HighWatermark).max_bytes(1).max_wait(Duration::from_secs(30));
        let begun = Instant::now();
        let mut at = Offset(0);
        while at < Offset(2_000) {
            at = partition.read(at, options).expect("in the log").next_offset();
        }
        assert!(begun.elapsed() < Duration::from_secs(25), "somebody was not woken: {:?}", begun.elapsed());
        writer.join().expect("no panic");
    }
}
