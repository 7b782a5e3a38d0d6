//! With `Durability::Os` records are stored when they are written; what a `sync` has acknowledged survives more: a loss
//! of power.

#[path = "support/hooked.rs"]
mod hooked;
#[path = "support/wal.rs"]
mod wal;

use hooked::{At, Hooked};
use taffrail::{Commits, Durability, Fault, MemoryStorage, Offset, OperationKind, Partition, PartitionConfig};
use wal::{DIRECTORY, append, append_replica, config, offsets, open, replica};

fn os() -> PartitionConfig {
    config().durability(Durability::Os)
}

/// Opens a partition in which `meanwhile` runs once, right behind the sync of the file `name` with this number.
fn open_hooked(
    storage: &MemoryStorage,
    name: &'static str,
    number: u32,
    meanwhile: impl Fn(&Partition) + Send + 'static,
) -> Partition {
    let hooked = Hooked::new(storage.shared());
    let partition = Partition::builder(DIRECTORY).config(os()).storage(hooked.shared()).open().expect("it opens");
    let other = partition.clone();
    let mut syncs = 0;
    hooked.set_one_at_a_time(At::Synced, move |path| {
        if path.ends_with(name) {
            syncs += 1;
            if syncs == number {
                meanwhile(&other);
            }
        }
    });
    partition
}

/// The active segment grew and was closed while it was synced; the sync struck it from the list of what is to be synced
/// all the same, and no later one covered what had come.
#[test]
fn a_segment_that_grows_during_a_sync_is_synced_again() {
    for (seed, killed, number) in (0..240).map(|case| (case / 4, case % 2 == 1, 1 + u32::from(case % 4 > 1))) {
        let begin = |partition: &Partition| {
            append(partition, 3, "v");
            partition.roll().expect("rolled");
            append(partition, 1, "v");
        };
        let mut storage = MemoryStorage::new(seed);
        if killed {
            let partition = open(&storage, os());
            begin(&partition);
            storage = storage.kill();
        }
        let partition = open_hooked(&storage, "00000000000000000003.log", number, |partition| {
            append(partition, 1, "later");
            partition.roll().expect("rolled");
            append(partition, 1, "later still");
        });
        if !killed {
            begin(&partition);
        }
        partition.sync().expect("synced");
        partition.sync().expect("everything is synced");
        let end = partition.end();
        assert_eq!((partition.synced_end(), number > 1 || end == Offset(6)), (end, true));
        let partition = open(&storage.crash(seed), os());
        let found = offsets(&partition).expect("readable");
        assert_eq!(found, (0..end.0).collect::<Vec<_>>(), "seed {seed}, killed {killed}, sync {number}");
    }
}

/// A segment was begun, and then the partition reopened, or opened after a kill: the segment's name was never synced,
/// and a loss of power took the whole file, with records that a sync had acknowledged.
#[test]
fn the_name_of_a_new_segment_is_synced_after_a_reopen_and_a_kill() {
    for (by_host, reopens) in [(true, true), (true, false), (false, true), (false, false)] {
        for seed in 0..60 {
            let config = || if by_host { os().commits(Commits::ByHost) } else { os() };
            let storage = MemoryStorage::new(seed);
            let partition = open(&storage, config());
            append(&partition, 3, "v");
            partition.close().expect("closed");
            let partition = open(&storage, config());
            partition.roll().expect("rolled");
            let (storage, partition) = if reopens {
                partition.reopen().expect("reopened");
                (storage, partition)
            } else {
                let killed = storage.kill();
                let partition = open(&killed, config());
                (killed, partition)
            };
            append(&partition, 1, "acknowledged");
            partition.sync().expect("synced");
            let end = open(&storage.crash(seed), config()).end();
            assert_eq!(end, Offset(4), "by host {by_host}, reopened {reopens}, seed {seed}");
        }
    }
}

/// An append that failed had left an empty segment behind a gap, and the upkeep called everything below it synced: what
/// came before it was in no later sync.
#[test]
fn the_synced_end_is_not_beyond_the_end() {
    for seed in 0..40 {
        let storage = MemoryStorage::new(seed);
        let config = || os().commits(Commits::ByHost);
        let partition = open(&storage, config());
        append(&partition, 3, "v");
        storage.fail_when(|operation| {
            let is_log = operation.path.extension().is_some_and(|e| e == "log");
            (operation.kind == OperationKind::Write && is_log).then_some(Fault::NoSpace)
        });
        append_replica(&partition, &replica(3 + (1 << 32), "far", 0)).expect_err("the disk is full");
        storage.clear_faults();
        partition.maintain(wal::late()).expect("due");
        assert!(partition.synced_end() <= partition.end());
        append(&partition, 2, "acknowledged");
        partition.sync().expect("synced");
        assert_eq!(open(&storage.crash(seed), config()).end(), Offset(5), "seed {seed}");
    }
}
