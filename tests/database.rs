//! What a database asks of a partition besides append and read.

#[path = "support/ledger.rs"]
mod ledger;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use ledger::content;
use taffrail::{
    BatchBuilder, Clock, Commits, Durability, Error, Force, Isolation, LeaderEpoch, ManualClock, MemoryStorage, Offset,
    Partition, PartitionConfig, ReadOptions, Record, Retention, Timestamp, UpTo,
};

fn open_on(storage: &MemoryStorage, config: PartitionConfig) -> Partition {
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    Partition::builder("data/wal-0").config(config).storage(storage.shared()).clock(clock).open().expect("it opens")
}

fn batch(records: u64, bytes: usize, timestamp: i64) -> BatchBuilder {
    let mut batch = BatchBuilder::new();
    for _ in 0..records {
        let value = vec![b'v'; bytes];
        batch.push(&Record::new(&value).key("k").timestamp(Timestamp(timestamp))).expect("small");
    }
    batch
}

fn append(partition: &Partition, records: u64, bytes: usize) -> Offset {
    let mut batch = batch(records, bytes, 1_000);
    let appended = partition.append(&mut batch).expect("appended");
    let start = appended.offsets.start;
    appended.wait().expect("stored");
    start
}

fn committed(partition: &Partition, from: u64) -> usize {
    partition.read(Offset(from), ReadOptions::new()).expect("readable").records().count()
}

#[test]
fn an_append_at_an_expected_end() {
    let partition = open_on(&MemoryStorage::new(1), PartitionConfig::new());
    let _ = partition.append_at(Offset(0), &mut batch(2, 10, 1)).expect("the end is 0");
    let error = partition.append_at(Offset(0), &mut batch(2, 10, 1)).expect_err("the end has moved");
    assert!(matches!(error, Error::UnexpectedEnd { expected: Offset(0), end: Offset(2) }), "{error}");
    let _ = partition.append_at(Offset(2), &mut batch(1, 10, 1)).expect("the end is 2");
}

/// The builder is emptied and keeps its buffer, so that it can be filled again.
#[test]
fn the_builder_is_filled_again() {
    let partition = open_on(&MemoryStorage::new(1), PartitionConfig::new());
    let mut builder = BatchBuilder::new();
    for round in 0..10_u64 {
        builder.push(&Record::new("v").key("k")).expect("small");
        assert_eq!(partition.append(&mut builder).expect("appended").offsets, Offset(round)..Offset(round + 1));
        assert!(builder.is_empty());
    }
}

#[test]
fn syncing_to_an_offset() {
    let partition = open_on(&MemoryStorage::new(1), PartitionConfig::new().durability(Durability::Sync));
    let _ = partition.append(&mut batch(2, 10, 1)).expect("appended");
    let _ = partition.append(&mut batch(2, 10, 1)).expect("appended");
    assert_eq!((partition.synced_end(), partition.high_watermark()), (Offset(0), Offset(0)));
    assert_eq!(committed(&partition, 0), 0, "what is not stored is not shown");
    let all = ReadOptions::new().up_to(UpTo::LogEnd);
    assert_eq!(partition.read(Offset(0), all).expect("at the host's risk").records().count(), 4);
    partition.sync_to(Offset(2)).expect("synced");
    assert_eq!(partition.synced_end(), Offset(4), "one sync serves all that was written");
    assert_eq!(committed(&partition, 0), 4);
}

#[test]
fn several_partitions_are_synced_at_once() {
    let storage = MemoryStorage::new(1);
    let open = |name: &str| Partition::builder(name).storage(storage.shared()).open().expect("it opens");
    let partitions = [open("data/wal-0"), open("data/wal-1"), open("data/other-0")];
    for partition in &partitions {
        let _ = partition.append(&mut batch(1, 10, 1)).expect("appended");
    }
    Partition::sync_many(&partitions).expect("synced");
    assert!(partitions.iter().all(|partition| partition.synced_end() == Offset(1)));
}

/// With `Os` nothing waits for a sync, and the recovery point follows an explicit one.
#[test]
fn syncing_a_partition_of_the_page_cache() {
    let storage = MemoryStorage::new(1);
    let partition = open_on(&storage, PartitionConfig::new().durability(Durability::Os).segment_bytes(300));
    for _ in 0..5 {
        append(&partition, 1, 150);
    }
    assert_eq!((partition.high_watermark(), partition.synced_end()), (Offset(5), Offset(0)));
    partition.sync().expect("synced");
    assert_eq!(partition.synced_end(), Offset(5));
    let partition = open_on(&storage.crash(3), PartitionConfig::new().durability(Durability::Os));
    assert_eq!(partition.end(), Offset(5), "synced is synced");
}

/// What was sealed is synced by `maintain`, off the path of appends, so that a recovery reads the last segment alone.
#[test]
fn sealed_segments_are_not_read_after_a_crash() {
    let storage = MemoryStorage::new(1);
    let config = PartitionConfig::new().durability(Durability::Os).segment_bytes(300);
    let partition = open_on(&storage, config.clone());
    for _ in 0..6 {
        append(&partition, 1, 150);
    }
    let verified = |storage: &MemoryStorage| open_on(&storage.snapshot(), config.clone()).recovery().segments_verified;
    assert_eq!(verified(&storage), 6);
    let clock = ManualClock::at(Timestamp(1_000_000));
    clock.advance(Duration::from_secs(60));
    assert_eq!(partition.maintain(clock.now()).expect("maintained").segments_synced, 5);
    assert_eq!((verified(&storage), partition.synced_end()), (1, Offset(5)));
    let partition = open_on(&storage.crash(1), config);
    assert!(partition.end() >= Offset(5));
}

#[test]
fn truncation_and_the_high_watermark() {
    let partition = open_on(&MemoryStorage::new(1), PartitionConfig::new().segment_bytes(400));
    for _ in 0..6 {
        append(&partition, 3, 40);
    }
    let error = partition.truncate_from(Offset(4), Force::No).expect_err("readers have seen it");
    assert!(matches!(error, Error::BelowHighWatermark { high_watermark: Offset(18), .. }), "{error}");
    assert_eq!(partition.end(), Offset(18));
    // The batch 3..6 holds offset 4: it goes whole.
    assert_eq!(partition.truncate_from(Offset(4), Force::Yes).expect("forced"), Offset(3));
    assert_eq!((partition.end(), partition.high_watermark()), (Offset(3), Offset(3)));
    assert_eq!(append(&partition, 1, 10), Offset(3));
    assert_eq!(partition.truncate_from(Offset(100), Force::No).expect("nothing to cut"), Offset(4));
    assert_eq!(partition.truncate_from(Offset(0), Force::Yes).expect("everything"), Offset(0));
    assert_eq!(append(&partition, 1, 10), Offset(0));
}

/// Epochs end where a truncation ends them, and the answer to "where did your epoch end" follows.
#[test]
fn leader_epochs() {
    let storage = MemoryStorage::new(1);
    let config = PartitionConfig::new().commits(Commits::ByHost);
    let partition = open_on(&storage, config.clone());
    append(&partition, 2, 10);
    partition.begin_epoch(LeaderEpoch(3)).expect("later");
    append(&partition, 2, 10);
    partition.begin_epoch(LeaderEpoch(5)).expect("later");
    append(&partition, 1, 10);
    let end_of = |epoch| partition.epoch_end(LeaderEpoch(epoch)).map(|(epoch, end)| (epoch.0, end.0));
    assert_eq!(
        [end_of(0), end_of(1), end_of(3), end_of(4), end_of(5), end_of(6)],
        [Some((0, 2)), Some((0, 2)), Some((3, 4)), Some((3, 4)), Some((5, 5)), None]
    );
    let epochs: Vec<_> = partition
        .read(Offset(0), ReadOptions::new().up_to(UpTo::LogEnd))
        .expect("readable")
        .batches()
        .iter()
        .map(|batch| batch.header().leader_epoch().expect("set").0)
        .collect();
    assert_eq!(epochs, [0, 3, 5]);
    partition.truncate_from(Offset(3), Force::No).expect("nothing is committed");
    assert_eq!((end_of(0), end_of(3)), (Some((0, 2)), None), "the batch that held offset 3 was the first of its epoch");
    // An unclean open begins no epoch here: the host decides.
    let partition = open_on(&storage.kill(), config);
    assert!(!partition.recovery().clean && partition.recovery().epoch_begun.is_none());
}

/// The host's consensus moves the high watermark, and what is not stored stays hidden for all that.
#[test]
fn a_host_commits_by_itself() {
    let storage = MemoryStorage::new(1);
    let config = PartitionConfig::new().commits(Commits::ByHost);
    let partition = open_on(&storage, config.clone());
    append(&partition, 4, 10);
    assert_eq!(partition.high_watermark(), Offset(0));
    partition.commit_to(Offset(2)).expect("below the end");
    assert_eq!(partition.high_watermark(), Offset(2));
    let _ = partition.append(&mut batch(2, 10, 1)).expect("appended");
    partition.commit_to(Offset(6)).expect("below the end");
    assert_eq!(partition.high_watermark(), Offset(4), "the last batch is not stored");
    partition.sync().expect("synced");
    assert_eq!(partition.high_watermark(), Offset(6));
    partition.commit_to(Offset(1)).expect("never back");
    assert_eq!(partition.high_watermark(), Offset(6));
    partition.close().expect("closed");
    assert_eq!(open_on(&storage, config).high_watermark(), Offset(6), "it was checkpointed");
}

#[test]
fn trimming_and_holds() {
    let partition = open_on(&MemoryStorage::new(1), PartitionConfig::new().segment_bytes(400));
    for _ in 0..8 {
        append(&partition, 2, 100);
    }
    let hold = partition.hold(Offset(5)).expect("in the log");
    assert_eq!(hold.offset(), Offset(5));
    assert_eq!(partition.trim_before(Offset(11)).expect("as far as it is not held"), Offset(5));
    assert!(matches!(partition.delete_records(Some(Offset(11))), Err(Error::Held { held: Offset(5), .. })));
    assert_eq!(partition.start(), Offset(5));
    drop(hold);
    assert_eq!(partition.trim_before(Offset(11)).expect("nothing holds"), Offset(11));
    let before = partition.stats();
    assert_eq!((before.start, before.end), (Offset(11), Offset(16)));
    assert!(before.segments <= 4, "whole segments below are gone: {before:?}");
    // The batch that holds the start is handed out whole; its records below the start are not shown.
    let fetched = partition.read(Offset(11), ReadOptions::new()).expect("readable");
    assert_eq!(fetched.records().next().expect("there").offset(), Offset(11));
    assert_eq!(fetched.batches().iter().next().expect("there").header().base_offset(), Offset(10));
    // To the end: an empty segment is begun, everything else goes.
    assert_eq!(partition.delete_records(None).expect("up to the high watermark"), Offset(16));
    let after = partition.stats();
    assert_eq!((after.segments, after.bytes), (1, 0));
    assert_eq!(append(&partition, 1, 10), Offset(16));
}

/// What was trimmed does not come back after a loss of power.
#[test]
fn a_trimmed_start_is_durable() {
    for seed in 0..20 {
        let storage = MemoryStorage::new(seed);
        let partition = open_on(&storage, PartitionConfig::new().segment_bytes(400));
        for _ in 0..6 {
            append(&partition, 2, 100);
        }
        partition.trim_before(Offset(7)).expect("trimmed");
        let partition = open_on(&storage.crash(seed), PartitionConfig::new());
        assert_eq!(partition.start(), Offset(7), "seed {seed}");
        let left: usize = content(&partition).values().map(Vec::len).sum();
        assert_eq!(left, 6, "the batch that holds the start is whole");
    }
}

/// A host's own rule about what goes.
#[test]
fn a_rule_of_the_hosts_own() {
    let partition = open_on(&MemoryStorage::new(1), PartitionConfig::new().segment_bytes(400));
    for _ in 0..8 {
        append(&partition, 2, 100);
    }
    let removed = partition.remove_while(|segment| segment.end_offset <= Offset(9)).expect("removed");
    assert!(!removed.is_empty() && removed.iter().all(|removed| removed.end_offset <= Offset(9)));
    assert_eq!(partition.start(), removed.last().expect("some").end_offset);
}

/// SEMANTICS 14.6 through a partition: five segments of equal size, and one record each.
#[test]
fn retention_by_size() {
    for (keep_halves, expected_start) in [(5, 2), (0, 5), (10, 0)] {
        let storage = MemoryStorage::new(1);
        let one = 300;
        let config = PartitionConfig::new().segment_bytes(one).durability(Durability::Os);
        let probe = open_on(&storage, config.clone());
        append(&probe, 1, 150);
        let segment = probe.stats().bytes;
        let keep = segment * keep_halves / 2;
        let storage = MemoryStorage::new(1);
        let partition = open_on(&storage, config.retention(Retention::forever().bytes(keep)));
        for _ in 0..5 {
            append(&partition, 1, 150);
        }
        assert_eq!(partition.stats().segments, 5);
        let clock = ManualClock::at(Timestamp(1_000_000));
        let done = partition.maintain(clock.now()).expect("maintained");
        assert_eq!(partition.start(), Offset(expected_start), "{keep_halves} half segments are kept");
        assert_eq!(done.removed.len() as u64, expected_start);
        assert_eq!(partition.end(), Offset(5));
    }
}

/// By time the record's timestamp counts, and one young record keeps everything behind it.
#[test]
fn retention_by_time() {
    let config = PartitionConfig::new()
        .segment_bytes(300)
        .durability(Durability::Os)
        .retention(Retention::forever().age(Duration::from_millis(100)));
    let partition = open_on(&MemoryStorage::new(1), config);
    for timestamp in [10, 999_999, 10] {
        let _ = partition.append(&mut batch(1, 150, timestamp)).expect("appended");
    }
    let clock = ManualClock::at(Timestamp(1_000));
    assert_eq!(partition.maintain(clock.now()).expect("maintained").removed.len(), 1);
    assert_eq!(partition.start(), Offset(1));
    clock.set_wall(Timestamp(1_000_099));
    assert!(partition.maintain(clock.now()).expect("maintained").removed.is_empty(), "100 ms are not over");
    clock.set_wall(Timestamp(1_000_100));
    assert_eq!(partition.maintain(clock.now()).expect("maintained").removed.len(), 2);
    assert_eq!(partition.start(), Offset(3));
}

/// SEMANTICS 14.5 through a partition, on record time.
#[test]
fn rolling_by_the_records_time() {
    let config = PartitionConfig::new().segment_age(Some(Duration::from_millis(10))).durability(Durability::Os);
    let partition = open_on(&MemoryStorage::new(1), config);
    for (timestamp, segments) in [(1_000, 1), (1_010, 1), (1_011, 2), (500, 2)] {
        let _ = partition.append(&mut batch(1, 10, timestamp)).expect("appended");
        assert_eq!(partition.stats().segments, segments, "after the record of {timestamp}");
    }
}

/// SEMANTICS 14.12: which segment answers for an offset.
#[test]
fn lookup_of_a_segment() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("orders-2");
    let partition = Partition::open(&path, PartitionConfig::new().commits(Commits::ByHost)).expect("it opens");
    // A copy of a compacted log has gaps: one batch per segment is enough to have its bases.
    for (base, next) in [(0, 1_000_000), (1_000_000, 2_000_000), (2_000_000, 3_000_000), (3_000_000, 3_000_010)] {
        let mut builder = batch(1, 10, 1);
        builder.base_offset(Offset(base));
        builder.leader_epoch(LeaderEpoch(0));
        let _ = partition.append_replica(builder.encode().expect("encoded"), LeaderEpoch(0)).expect("appended");
        let mut last = batch(1, 10, 1);
        last.base_offset(Offset(next - 1));
        last.leader_epoch(LeaderEpoch(0));
        let _ = partition.append_replica(last.encode().expect("encoded"), LeaderEpoch(0)).expect("appended");
        if next % 1_000_000 == 0 {
            partition.roll().expect("rolled");
        }
    }
    let names: Vec<_> = fs::read_dir(&path)
        .expect("readable")
        .filter_map(|entry| entry.expect("readable").file_name().into_string().ok())
        .filter(|name| name.ends_with(".log"))
        .collect();
    for base in ["00000000000000000000", "00000000000001000000", "00000000000002000000", "00000000000003000000"] {
        assert!(names.contains(&format!("{base}.log")), "{names:?}");
    }
    let options = ReadOptions::new().isolation(Isolation::Uncommitted).up_to(UpTo::LogEnd).max_bytes(1);
    let first_of = |offset: u64| {
        let fetched = partition.read(Offset(offset), options).expect("in the log");
        fetched.batches().iter().next().map(|batch| batch.header().base_offset().0)
    };
    assert_eq!(first_of(2_350_000), Some(2_999_999));
    assert_eq!(first_of(2_000_000), Some(2_000_000));
    assert_eq!(first_of(1_999_999), Some(1_999_999));
    assert_eq!(first_of(3_000_000), Some(3_000_000));
    let error = partition.read(partition.end().plus(1), options).expect_err("behind the end");
    assert!(matches!(error, Error::OffsetOutOfRange { start: Offset(0), end: Offset(3_000_010), .. }), "{error}");
}

/// An export opens as a partition, with the same content, and shares nothing that changes.
#[test]
fn an_export_stands_by_itself() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = PartitionConfig::new().segment_bytes(500);
    let partition = Partition::open(directory.path().join("wal-0"), config.clone()).expect("it opens");
    for _ in 0..9 {
        append(&partition, 2, 100);
    }
    partition.trim_before(Offset(3)).expect("trimmed");
    let before = content(&partition);
    let copy = directory.path().join("backup").join("wal-0");
    assert_eq!(partition.export(&copy).expect("exported"), Offset(18));
    assert!(matches!(partition.export(&copy), Err(Error::Policy(_))), "not over another one");
    // The original goes on: grows, loses its end, loses its front.
    append(&partition, 3, 100);
    partition.truncate_from(Offset(7), Force::Yes).expect("truncated");
    append(&partition, 3, 100);
    partition.trim_before(Offset(8)).expect("trimmed");
    let exported = Partition::open(&copy, config).expect("it opens");
    assert!(exported.recovery().clean && !exported.recovery().adopted);
    assert_eq!(content(&exported), before);
    assert_eq!(append(&exported, 1, 10), Offset(18));
}

/// What readers hold of removed segments is counted, until they let go.
#[test]
fn what_readers_hold_is_counted() {
    let partition = open_on(&MemoryStorage::new(1), PartitionConfig::new().segment_bytes(400));
    for _ in 0..4 {
        append(&partition, 2, 150);
    }
    let fetched = partition.read(Offset(0), ReadOptions::new()).expect("readable");
    partition.trim_before(Offset(8)).expect("trimmed");
    let stats = partition.stats();
    assert!(stats.held_bytes > 0 && stats.held_longest.is_some(), "{stats:?}");
    assert_eq!(fetched.records().count(), 2, "what is held stays readable");
    drop(fetched);
    assert_eq!(partition.stats().held_bytes, 0);
}

/// An idle partition lets its index go, and finds its way and goes on all the same.
#[test]
fn an_idle_partition_forgets_its_index() {
    let storage = MemoryStorage::new(1);
    let config = PartitionConfig::new().index_interval_bytes(100).durability(Durability::Os);
    let partition = open_on(&storage, config);
    for _ in 0..200 {
        append(&partition, 1, 100);
    }
    let clock = ManualClock::at(Timestamp(1_000_000));
    assert!(!partition.maintain(clock.now()).expect("maintained").index_dropped);
    clock.advance(Duration::from_secs(11));
    assert!(partition.maintain(clock.now()).expect("maintained").index_dropped);
    for offset in [0, 77, 199] {
        let fetched = partition.read(Offset(offset), ReadOptions::new().max_bytes(1)).expect("readable");
        assert_eq!(fetched.records().next().expect("there").offset(), Offset(offset));
    }
    assert_eq!(append(&partition, 1, 100), Offset(200));
    partition.close().expect("closed");
    // The indexes are those that a recovery builds.
    let index = storage.bytes_of("data/wal-0/00000000000000000000.index").expect("written");
    let killed = storage.kill();
    killed.set_bytes("data/wal-0/00000000000000000000.index", b"").expect("emptied");
    let partition = open_on(&killed, PartitionConfig::new().index_interval_bytes(100));
    partition.close().expect("closed");
    assert_eq!(killed.bytes_of("data/wal-0/00000000000000000000.index").expect("rebuilt"), index);
}

/// What is held stays, whatever the retention says, and goes once nothing holds it.
#[test]
fn retention_leaves_what_is_held() {
    let config = PartitionConfig::new()
        .segment_bytes(300)
        .durability(Durability::Os)
        .retention(Retention::forever().bytes(0).age(Duration::from_millis(1)));
    let partition = open_on(&MemoryStorage::new(1), config);
    for _ in 0..5 {
        append(&partition, 1, 150);
    }
    let hold = partition.hold(Offset(2)).expect("in the log");
    let clock = ManualClock::at(Timestamp(1_000_000));
    assert_eq!(partition.maintain(clock.now()).expect("maintained").removed.len(), 2);
    assert_eq!(partition.start(), Offset(2));
    drop(hold);
    partition.maintain(clock.now()).expect("maintained");
    assert_eq!(partition.start(), Offset(5));
}

/// The marker of a clean close counts for one open: whoever is killed after that leaves none.
#[test]
fn a_clean_close_counts_once() {
    for durability in [Durability::Sync, Durability::Os] {
        let storage = MemoryStorage::new(1);
        let config = || PartitionConfig::new().durability(durability);
        let partition = open_on(&storage, config());
        append(&partition, 1, 10);
        partition.close().expect("closed");
        let partition = open_on(&storage, config());
        assert!(partition.recovery().clean);
        append(&partition, 1, 10);
        let partition = open_on(&storage.kill(), config());
        assert!(!partition.recovery().clean, "{durability:?}");
        assert_eq!(partition.end(), Offset(2));
    }
}
