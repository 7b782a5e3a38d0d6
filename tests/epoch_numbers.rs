//! The number of a leader epoch is given once, whatever happens to its records: readers and other copies tell by it that
//! records are not those that they knew (KIP-320).

#[path = "support/wal.rs"]
mod wal;

use taffrail::{Commits, Force, LeaderEpoch, MemoryStorage, Offset, Partition, PartitionConfig};
use wal::{append, append_replica, append_unsynced, config, open, replica};

fn by_host() -> PartitionConfig {
    config().commits(Commits::ByHost)
}

/// How a partition comes to be opened again.
const ENDS: [&str; 3] = ["closed", "killed", "reopened"];

fn open_again(storage: &MemoryStorage, partition: Partition, end: &str, config: PartitionConfig) -> Partition {
    match end {
        "closed" => partition.close().expect("closed"),
        "killed" => return open(&storage.kill(), config),
        _ => {
            partition.reopen().expect("reopened");
            return partition;
        }
    }
    open(storage, config)
}

/// A cut below what readers had seen took the latest epoch along, and the records that came there got its number, at
/// once or after the next open: nobody noticed that they were others.
#[test]
fn a_forced_cut_begins_an_epoch() {
    for end in ENDS {
        let storage = MemoryStorage::new(1);
        let partition = open(&storage, config());
        append(&partition, 10, "a");
        let storage = storage.kill();
        let partition = open(&storage, config());
        append(&partition, 10, "seen");
        assert_eq!(partition.epoch_end(LeaderEpoch(1)), Some((LeaderEpoch(1), Offset(20))));
        partition.truncate_from(Offset(10), Force::Yes).expect("truncated");
        let begun = partition.leader_epoch();
        assert!(begun > LeaderEpoch(1), "{end}");
        assert_eq!(partition.epoch_end(LeaderEpoch(1)), Some((LeaderEpoch(0), Offset(10))), "{end}");
        let partition = open_again(&storage, partition, end, config());
        assert!(partition.leader_epoch() >= begun, "{end}");
        append(&partition, 10, "other");
        assert_eq!(partition.epoch_end(LeaderEpoch(1)), Some((LeaderEpoch(0), Offset(10))), "{end}");
    }
}

/// The same where no epoch ends: the cut lies within the records of the latest one.
#[test]
fn a_forced_cut_within_an_epoch_begins_another() {
    let partition = open(&MemoryStorage::new(1), config());
    append(&partition, 5, "a");
    append(&partition, 5, "seen");
    partition.truncate_from(Offset(5), Force::Yes).expect("truncated");
    append(&partition, 5, "other");
    assert_eq!(partition.leader_epoch(), LeaderEpoch(1));
    assert_eq!(partition.epoch_end(LeaderEpoch(0)), Some((LeaderEpoch(0), Offset(5))));
}

/// What nobody has seen is taken back without a new epoch.
#[test]
fn a_cut_that_nobody_sees_begins_none() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage, config());
    append(&partition, 5, "a");
    append_unsynced(&partition, 5, "b");
    partition.truncate_from(Offset(5), Force::No).expect("not stored yet");
    assert_eq!(partition.leader_epoch(), LeaderEpoch(0));
}

/// An epoch whose records were all cut off was forgotten by the next open, and begun again.
#[test]
fn the_epoch_of_what_was_cut_off_is_not_begun_again() {
    for end in ENDS {
        for commits in [Commits::ByHost, Commits::WhenStored] {
            for to in [0, 4] {
                let config = || config().commits(commits);
                let storage = MemoryStorage::new(1);
                let partition = open(&storage, config());
                append(&partition, 4, "a");
                partition.begin_epoch(LeaderEpoch(5)).expect("later");
                append(&partition, 4, "b");
                partition.truncate_from(Offset(to), Force::Yes).expect("truncated");
                let partition = open_again(&storage, partition, end, config());
                assert!(partition.leader_epoch() >= LeaderEpoch(5), "{end}, {commits:?}, cut to {to}");
                partition.begin_epoch(LeaderEpoch(5)).expect_err("it was begun");
                partition.begin_epoch(LeaderEpoch(9)).expect("later");
            }
        }
    }
}

/// The same for an epoch whose records a loss of power took, and for one that gave way to another copy's records.
#[test]
fn an_epoch_without_records_is_not_begun_again() {
    let mut lost = 0;
    for seed in 0..32 {
        let storage = MemoryStorage::new(seed);
        let partition = open(&storage, by_host());
        append(&partition, 2, "a");
        append_unsynced(&partition, 2, "b");
        partition.begin_epoch(LeaderEpoch(5)).expect("later");
        append_unsynced(&partition, 2, "c");
        let storage = storage.crash(seed);
        let partition = open(&storage, by_host());
        lost += u32::from(partition.end() < Offset(4));
        // What the first open knew the second knows too.
        let partition = open_again(&storage, partition, "killed", by_host());
        assert_eq!(partition.leader_epoch(), LeaderEpoch(5), "seed {seed}, end {}", partition.end());
    }
    assert!(lost > 0);
    for end in ENDS {
        let storage = MemoryStorage::new(1);
        let partition = open(&storage, by_host());
        append(&partition, 2, "a");
        partition.begin_epoch(LeaderEpoch(5)).expect("later");
        append_replica(&partition, &replica(2, "b", 3)).expect("epoch 5 has no record");
        let partition = open_again(&storage, partition, end, by_host());
        assert_eq!(partition.leader_epoch(), LeaderEpoch(5), "{end}");
        assert_eq!(partition.epoch_end(LeaderEpoch(3)), Some((LeaderEpoch(3), Offset(3))), "{end}");
        assert_eq!(partition.epoch_end(LeaderEpoch(5)), None, "{end}: no record has it");
    }
}

/// A follower that is told to cut where its log ends forgets the epoch that it had begun there, so that the next fetch
/// names the epoch of its last record; the number stays given.
#[test]
fn a_cut_at_the_end_takes_an_epoch_without_records_away() {
    for end in ENDS {
        let storage = MemoryStorage::new(1);
        let partition = open(&storage, by_host());
        append(&partition, 2, "a");
        partition.begin_epoch(LeaderEpoch(5)).expect("later");
        assert_eq!(partition.epoch_end(LeaderEpoch(5)), Some((LeaderEpoch(5), Offset(2))));
        assert_eq!(partition.truncate_from(Offset(2), Force::No).expect("nothing to cut"), Offset(2));
        assert_eq!(partition.epoch_end(LeaderEpoch(5)), None);
        let partition = open_again(&storage, partition, end, by_host());
        assert_eq!(partition.leader_epoch(), LeaderEpoch(5), "{end}");
        append(&partition, 2, "b");
        assert_eq!(partition.epoch_end(LeaderEpoch(5)), Some((LeaderEpoch(5), Offset(4))), "{end}");
        assert_eq!(partition.epoch_end(LeaderEpoch(0)), Some((LeaderEpoch(0), Offset(2))), "{end}");
    }
}
