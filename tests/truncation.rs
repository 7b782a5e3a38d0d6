//! Taking records back from the end: what is kept stays stored and visible, what comes there later is as new.

#[path = "support/wal.rs"]
mod wal;

use std::time::Duration;

use taffrail::{Commits, Durability, Error, Force, MemoryStorage, Offset, Partition, PartitionConfig, ReadOptions};
use wal::{append, append_replica, append_unsynced, config, late, offsets, open, replica};

fn by_host() -> PartitionConfig {
    config().commits(Commits::ByHost)
}

/// Records up to 4, one behind a gap at 19, committed by the host up to 16.
fn committed_into_a_gap(storage: &MemoryStorage) -> Partition {
    let partition = open(storage, by_host());
    append(&partition, 4, "v");
    append_replica(&partition, &replica(19, "x", 0)).expect("stored");
    partition.commit_to(Offset(16)).expect("in the log");
    partition
}

/// Behind a gap the log ends before the offset at which it was cut, and the recovery point stayed above: records that
/// came there were called synced by the next open, so that no sync covered them.
#[test]
fn into_a_gap_the_recovery_point_follows() {
    for seed in 0..40 {
        let storage = MemoryStorage::new(seed);
        let config = || config().durability(Durability::Os);
        let partition = open(&storage, config());
        append(&partition, 9, "v");
        append_replica(&partition, &replica(16, "x", 0)).expect("stored");
        append(&partition, 1, "y");
        partition.sync().expect("synced");
        assert_eq!(partition.truncate_from(Offset(15), Force::Yes).expect("truncated"), Offset(9));
        append(&partition, 1, &"w".repeat(600));
        partition.roll().expect("rolled");
        append(&partition, 1, "z");
        let storage = storage.kill();
        let partition = open(&storage, config());
        assert_eq!((partition.end(), partition.synced_end()), (Offset(11), Offset(9)));
        partition.sync().expect("synced");
        let partition = open(&storage.crash(seed), config());
        assert_eq!(offsets(&partition).expect("readable"), (0..11).collect::<Vec<_>>(), "seed {seed}");
    }
}

/// Behind a gap what the host had committed stayed above the end: records that came there were shown at once, and after
/// a kill.
#[test]
fn into_a_gap_the_commit_follows() {
    let storage = MemoryStorage::new(1);
    let partition = committed_into_a_gap(&storage);
    assert_eq!(partition.truncate_from(Offset(18), Force::Yes).expect("truncated"), Offset(4));
    append(&partition, 5, "not committed");
    assert_eq!((partition.high_watermark(), partition.end()), (Offset(4), Offset(9)));
    let partition = open(&storage.kill(), by_host());
    assert_eq!((partition.high_watermark(), partition.end()), (Offset(4), Offset(9)));
}

/// The log would end below what the host has committed, so that is not done unless it is forced.
#[test]
fn into_a_gap_the_high_watermark_does_not_go_back() {
    let partition = committed_into_a_gap(&MemoryStorage::new(1));
    let error = partition.truncate_from(Offset(18), Force::No).expect_err("it would end at 4");
    assert!(matches!(error, Error::BelowHighWatermark { high_watermark: Offset(16), .. }), "{error}");
    assert_eq!((partition.high_watermark(), partition.end()), (Offset(16), Offset(20)));
    assert_eq!(offsets(&partition).expect("readable"), [0, 1, 2, 3, 19]);
}

/// Records that nobody waited for, and that a truncation kept, were never synced: they stayed invisible for ever.
#[test]
fn what_is_kept_becomes_visible() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage, config());
    append(&partition, 1, "a");
    append_unsynced(&partition, 1, "b");
    append_unsynced(&partition, 1, "c");
    partition.truncate_from(Offset(2), Force::No).expect("not stored yet");
    assert_eq!((partition.high_watermark(), partition.synced_end()), (Offset(2), Offset(2)));
    let options = ReadOptions::new().max_wait(Duration::from_secs(60));
    assert!(!partition.read(Offset(1), options).expect("readable").is_empty());
    assert_eq!(open(&storage.crash(1), config()).end(), Offset(2), "the cut has synced it");
}

/// The same where segments before the cut one wait for their sync, in a partition that has become a synced one.
#[test]
fn what_is_kept_becomes_visible_in_more_than_one_segment() {
    for seed in 0..20 {
        let storage = MemoryStorage::new(seed);
        let partition = open(&storage, config().durability(Durability::Os));
        append(&partition, 2, "a");
        partition.roll().expect("rolled");
        append(&partition, 2, "b");
        assert_eq!(partition.truncate_from(Offset(2), Force::Yes).expect("truncated"), Offset(2));
        assert_eq!(partition.synced_end(), Offset(0), "the first segment is not synced");
        append(&partition, 2, "b");
        partition.set_config(config()).expect("it becomes a synced one");
        append_unsynced(&partition, 1, "c");
        append_unsynced(&partition, 1, "d");
        partition.truncate_from(Offset(5), Force::No).expect("not stored yet");
        assert_eq!(partition.high_watermark(), Offset(5));
        partition.maintain(late()).expect("nothing is due");
        let partition = open(&storage.crash(seed), config());
        assert_eq!(offsets(&partition).expect("readable"), [0, 1, 2, 3, 4], "seed {seed}");
    }
}
