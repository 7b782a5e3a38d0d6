//! Power fails at every operation on the disk, and again at every operation of the recovery.
//!
//! A workload of appends, rolls, retention and truncation runs on a disk in memory that loses power at its n-th
//! operation; what was not synced is lost, kept or torn by a seed. Then the partition is opened on what is left:
//! every acknowledged record is there, none stands twice, no batch is half there, nothing that a reader saw below
//! the high watermark has changed. Then the recovery itself is interrupted at each of its operations.
//!
//! `TAFFRAIL_CRASH_SEEDS` says how many seeds of survival each crash is tried with, `TAFFRAIL_CRASH_STRIDE` every
//! which operation is tried.

#[path = "support/ledger.rs"]
mod ledger;
mod support;

use std::sync::Arc;
use std::time::Duration;

use ledger::{Content, Ledger, content};
use support::env_count;
use taffrail::{
    Clock, Durability, Fault, Force, ManualClock, MemoryStorage, Partition, PartitionConfig, Result, Retention,
    Timestamp,
};

const DIRECTORY: &str = "data/wal-0";

fn config(durability: Durability) -> PartitionConfig {
    PartitionConfig::new()
        .durability(durability)
        .segment_bytes(700)
        .index_interval_bytes(100)
        .checkpoint_interval(Duration::from_secs(1))
        .retention(Retention::forever().bytes(1_600))
}

fn open(storage: &MemoryStorage, durability: Durability) -> Result<Partition> {
    Partition::builder(DIRECTORY)
        .config(config(durability))
        .storage(storage.shared())
        .clock(Arc::new(ManualClock::at(Timestamp(1_000_000))))
        .open()
}

/// Appends one batch; `wait` says whether for its storage is waited.
fn append(partition: &Partition, ledger: &mut Ledger, records: u64, bytes: usize, wait: bool) -> Result<()> {
    let (mut batch, values) = ledger.batch(records, bytes);
    ledger.attempt(partition.end(), &values);
    let appended = partition.append(&mut batch)?;
    let at = appended.offsets.start;
    if wait {
        appended.wait()?;
        ledger.acknowledge(at, &values);
    }
    ledger.look(partition);
    Ok(())
}

/// The workload. It stops at the first error, which is the power failure.
fn work(storage: &MemoryStorage, durability: Durability, ledger: &mut Ledger) -> Result<()> {
    let clock = ManualClock::at(Timestamp(1_000_000));
    let partition = open(storage, durability)?;
    let mut checkpointed = 0;
    for round in 0..3_u64 {
        append(&partition, ledger, 1, 40, true)?;
        append(&partition, ledger, 3, 60, false)?;
        append(&partition, ledger, 2, 90, true)?;
        append(&partition, ledger, 1, 200, false)?;
        if round == 1 {
            partition.roll()?;
            append(&partition, ledger, 1, 30, false)?;
        }
        // What was not acknowledged is taken back, up to two segments of it.
        append(&partition, ledger, 1, 350, false)?;
        let cut = partition.high_watermark();
        if durability == Durability::Sync {
            ledger.truncated_to(partition.truncate_from(cut, Force::No)?);
        }
        append(&partition, ledger, 2, 70, true)?;
        if round == 2 {
            // By force, over several segments, and below the recovery point that is on the disk: what is appended
            // there from then on is not synced. The batch that holds the offset goes whole; none has more than three.
            let cut = checkpointed - 2;
            ledger.forget_from(cut - 2);
            ledger.truncated_to(partition.truncate_from(taffrail::Offset(cut), Force::Yes)?);
            for bytes in [60, 150, 90, 60] {
                append(&partition, ledger, 1, bytes, false)?;
            }
            append(&partition, ledger, 1, 60, true)?;
        }
        clock.advance(Duration::from_secs(2));
        ledger.start_at_most = partition.end().0;
        let done = partition.maintain(clock.now())?;
        if let Some(last) = done.removed.last() {
            ledger.start_at_least = last.end_offset.0;
        }
        ledger.look(&partition);
        checkpointed = partition.high_watermark().0;
    }
    let trimmed = partition.trim_before(taffrail::Offset(partition.start().0 + 1))?;
    ledger.start_at_least = trimmed.0;
    append(&partition, ledger, 1, 50, true)?;
    partition.close()
}

/// Opens what a crash left, checks it, appends to it.
fn check(survivor: &MemoryStorage, durability: Durability, ledger: &Ledger, story: &str) -> Content {
    let partition = open(survivor, durability).unwrap_or_else(|error| panic!("{story}: reopen fails: {error}"));
    let content = ledger.check(&partition);
    let mut ledger = ledger.clone();
    append(&partition, &mut ledger, 2, 40, true).unwrap_or_else(|error| panic!("{story}: append fails: {error}"));
    ledger.check(&partition);
    content
}

/// Interrupts the recovery of `survivor` at each of its operations: it loses nothing and changes nothing.
fn crash_again(survivor: &MemoryStorage, seeds: u64, ledger: &Ledger, expected: &Content, story: &str) {
    let operations = {
        let copy = survivor.kill();
        let partition = open(&copy, Durability::Sync).expect("it opened before");
        let operations = copy.operations();
        drop(partition);
        operations
    };
    for second in 0..operations {
        for seed in 0..seeds {
            let copy = survivor.kill();
            copy.crash_at(second);
            drop(open(&copy, Durability::Sync));
            let twice = copy.crash(seed);
            let story = format!("{story}, then at operation {second} of the recovery (seed {seed})");
            let partition = open(&twice, Durability::Sync).unwrap_or_else(|error| panic!("{story}: {error}"));
            ledger.check(&partition);
            assert_eq!(&content(&partition), expected, "{story}: another log");
        }
    }
}

#[test]
fn power_fails_at_every_operation() {
    let seeds = env_count("TAFFRAIL_CRASH_SEEDS", 2);
    let stride = env_count("TAFFRAIL_CRASH_STRIDE", 3);
    let total = {
        let storage = MemoryStorage::new(0);
        work(&storage, Durability::Sync, &mut Ledger::default()).expect("without a crash the workload runs through");
        storage.operations()
    };
    assert!(total > 150, "the workload does too little: {total} operations");
    for operation in 0..total {
        for seed in 0..seeds {
            let storage = MemoryStorage::new(seed);
            storage.crash_at(operation);
            let mut ledger = Ledger::default();
            let ended = work(&storage, Durability::Sync, &mut ledger);
            assert!(ended.is_err() || operation >= total, "operation {operation} did not crash");
            let survivor = storage.crash(seed);
            let story = format!("power fails at operation {operation} of {total} (seed {seed})");
            let content = check(&survivor.kill(), Durability::Sync, &ledger, &story);
            if (operation + seed) % stride == 0 {
                crash_again(&survivor, 2, &ledger, &content, &story);
            }
        }
    }
}

/// With `Os` an acknowledged record survives the end of the process, whenever that comes.
#[test]
fn the_process_is_killed_at_every_operation() {
    let total = {
        let storage = MemoryStorage::new(0);
        work(&storage, Durability::Os, &mut Ledger::default()).expect("without a kill the workload runs through");
        storage.operations()
    };
    for operation in 0..total {
        let storage = MemoryStorage::new(operation);
        // From here on the process does nothing more to the disk.
        storage.fail_from(operation, Fault::Io);
        let mut ledger = Ledger::default();
        assert!(work(&storage, Durability::Os, &mut ledger).is_err(), "operation {operation} did not fail");
        let survivor = storage.kill();
        check(&survivor, Durability::Os, &ledger, &format!("killed at operation {operation} of {total}"));
    }
}
