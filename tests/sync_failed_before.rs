//! A failed sync says nothing of what reached the disk, and no later sync covers what was written before it. A process
//! that ended there used to leave nothing that told the next one: with `Durability::Os`, where recovery does not write
//! again what it finds, a sync that succeeded then, or a clean close, promised more than the disk had.

#[path = "support/wal.rs"]
mod wal;

use taffrail::{
    Appended, BatchBuilder, Durability, Error, Fault, MemoryStorage, Offset, Operation, OperationKind, Partition,
    PartitionConfig, ProducerEpoch, ProducerId, Record, Sequence,
};
use wal::{DIRECTORY, append, config, offsets, open};

const NOTE: &str = "data/wal-0/sync-failed.taffrail";

fn os() -> PartitionConfig {
    config().durability(Durability::Os)
}

fn fail_syncs(storage: &MemoryStorage) {
    storage.fail_when(|operation| (operation.kind == OperationKind::Sync).then_some(Fault::SyncFails));
}

/// A process that ends after a failed sync, as `end` has it.
fn ended(seed: u64, end: impl Fn(Partition)) -> MemoryStorage {
    let storage = MemoryStorage::new(seed);
    let partition = open(&storage, os());
    append(&partition, 3, "v");
    partition.roll().expect("rolled");
    append(&partition, 2, "w");
    fail_syncs(&storage);
    end(partition);
    storage.clear_faults();
    assert!(storage.bytes_of(NOTE).is_some(), "it is noted in {DIRECTORY}");
    storage.kill()
}

fn fails_and_is_killed(partition: Partition) {
    assert!(matches!(partition.sync(), Err(Error::Poisoned { .. })));
    std::mem::forget(partition);
}

fn fails_at_the_close(partition: Partition) {
    assert!(partition.close().is_err());
}

/// What the next process says is synced survives a loss of power.
fn survives(promise: impl Fn(Partition), config: &PartitionConfig) {
    for seed in 0..32 {
        for end in [fails_and_is_killed, fails_at_the_close] {
            let storage = ended(seed, end);
            promise(open(&storage, config.clone()));
            assert!(storage.bytes_of(NOTE).is_none(), "everything was written again");
            let storage = storage.crash(seed + 1);
            assert_eq!(offsets(&open(&storage, os())).expect("readable"), (0..5).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_sync_of_the_next_process_covers_it() {
    survives(
        |partition| {
            partition.sync().expect("the disk is sound");
            std::mem::forget(partition);
        },
        &os(),
    );
}

#[test]
fn a_clean_close_of_the_next_process_covers_it() {
    survives(|partition| partition.close().expect("the disk is sound"), &os());
}

#[test]
fn a_partition_that_becomes_synced_covers_it() {
    survives(std::mem::forget, &config().durability(Durability::Sync));
}

/// The process after the next must not take the note for gone where the next one could not do what it asks for.
#[test]
fn a_recovery_that_fails_leaves_the_note() {
    let storage = ended(1, fails_and_is_killed);
    storage.fail_when(|operation| (operation.kind == OperationKind::Write).then_some(Fault::Io));
    assert!(wal::try_open(&storage, DIRECTORY, os()).is_err());
    storage.clear_faults();
    assert!(storage.bytes_of(NOTE).is_some());
}

/// The disk was full when the partition was to become synced. Who asked again was told that it is, and the records that
/// readers had seen before were not.
#[test]
fn a_partition_becomes_synced_when_it_is_asked_again() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage, os());
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new("v").key("k")).expect("small");
    batch.producer(ProducerId(1), ProducerEpoch(0), Sequence(0));
    partition.append(&mut batch).and_then(Appended::wait).expect("stored");
    let full = |operation: &Operation| operation.path.ends_with("history.taffrail.tmp").then_some(Fault::NoSpace);
    storage.fail_when(full);
    partition.set_config(config().durability(Durability::Sync)).expect_err("it cannot be synced");
    storage.clear_faults();
    partition.set_config(config().durability(Durability::Sync)).expect("the disk is sound");
    let stats = partition.stats();
    assert_eq!((stats.high_watermark, stats.synced_end), (Offset(1), Offset(1)));
}
