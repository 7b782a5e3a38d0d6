//! What once went wrong, each with its story.

#[path = "support/ledger.rs"]
mod ledger;

use std::sync::Arc;
use std::time::Duration;

use ledger::content;
use taffrail::{
    BatchBuilder, Commits, Durability, Error, Fault, FileStorage, Force, Isolation, LeaderEpoch, ManualClock, Marker,
    MemoryStorage, Offset, OperationKind, Outcome, Partition, PartitionConfig, ProducerEpoch, ProducerId, ReadOptions,
    Record, Result, Sequence, Timestamp, marker_batch, set_base_offset, set_leader_epoch,
};

const DIRECTORY: &str = "data/wal-0";

fn config() -> PartitionConfig {
    PartitionConfig::new().segment_bytes(1_500).index_interval_bytes(200)
}

fn open_with(storage: &MemoryStorage, config: PartitionConfig) -> Result<Partition> {
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    Partition::builder(DIRECTORY).config(config).storage(storage.shared()).clock(clock).open()
}

fn open(storage: &MemoryStorage) -> Partition {
    open_with(storage, config()).expect("it opens")
}

fn batch(records: u64, value: &str) -> BatchBuilder {
    let mut batch = BatchBuilder::new();
    for _ in 0..records {
        batch.push(&Record::new(value).key("k").timestamp(Timestamp(1))).expect("small");
    }
    batch
}

fn append(partition: &Partition, records: u64, value: &str) -> Offset {
    let mut batch = batch(records, value);
    let appended = partition.append(&mut batch).expect("appended");
    let start = appended.offsets.start;
    appended.wait().expect("stored");
    start
}

/// Transactional records of a producer.
fn transactional(partition: &Partition, producer: i64, records: u64, value: &str) {
    let mut batch = batch(records, value);
    batch.producer(ProducerId(producer), ProducerEpoch(0), Sequence(0));
    batch.transactional(true);
    partition.append(&mut batch).expect("appended").wait().expect("stored");
}

/// The end of a producer's transaction, as a coordinator writes it.
fn marker(partition: &Partition, producer: i64, outcome: Outcome) -> Result<()> {
    let mut bytes = marker_batch(&Marker {
        outcome,
        producer_id: ProducerId(producer),
        producer_epoch: ProducerEpoch(0),
        coordinator_epoch: 0,
        timestamp: Timestamp(1),
    });
    set_base_offset(&mut bytes, partition.end());
    set_leader_epoch(&mut bytes, partition.leader_epoch());
    partition.append_replica(&bytes, partition.leader_epoch())?.wait()
}

/// A batch of one record as another copy has it.
fn replica(base: u64, value: &str) -> Vec<u8> {
    let mut batch = batch(1, value);
    batch.base_offset(Offset(base));
    batch.leader_epoch(LeaderEpoch(0));
    batch.encode().expect("encoded").to_vec()
}

/// Every record up to the log's end; there may be gaps.
fn everything(partition: &Partition) -> Vec<(u64, Vec<u8>)> {
    let options = ReadOptions::new().isolation(Isolation::Uncommitted).up_to(taffrail::UpTo::LogEnd);
    let mut records = Vec::new();
    let mut at = partition.start();
    while at < partition.end() {
        let fetched = partition.try_read(at, options).expect("readable");
        assert!(fetched.next_offset() > at, "nothing at {at} of {}", partition.end());
        records.extend(fetched.records().map(|record| (record.offset().0, record.value().expect("set").to_vec())));
        at = fetched.next_offset();
    }
    records
}

fn committed(partition: &Partition) -> Vec<u64> {
    let mut offsets = Vec::new();
    let mut at = partition.start();
    loop {
        let fetched = partition.read(at, ReadOptions::new()).expect("readable");
        offsets.extend(fetched.records().map(|record| record.offset().0));
        if fetched.next_offset() == at {
            return offsets;
        }
        at = fetched.next_offset();
    }
}

/// A truncation took the marker of an aborted transaction away; its records were then shown as committed ones.
#[test]
fn a_truncated_marker_opens_its_transaction_again() {
    for durability in [Durability::Sync, Durability::Os] {
        let partition = open_with(&MemoryStorage::new(1), config().durability(durability)).expect("it opens");
        transactional(&partition, 7, 3, "t");
        append(&partition, 2, "x");
        marker(&partition, 7, Outcome::Aborted).expect("appended");
        assert_eq!(committed(&partition), [3, 4]);
        partition.truncate_from(Offset(5), Force::Yes).expect("truncated");
        assert_eq!((partition.last_stable(), committed(&partition)), (Offset(0), vec![]));
        marker(&partition, 7, Outcome::Committed).expect("appended");
        assert_eq!(committed(&partition), [0, 1, 2, 3, 4]);
    }
}

/// A replica's batch behind a gap began a segment, its write failed, and the next record went into that segment
/// although it begins before it.
#[test]
fn an_append_that_failed_behind_a_gap() {
    let config = || config().segment_bytes(200);
    let filled = |storage: &MemoryStorage| {
        let partition = open_with(storage, config()).expect("it opens");
        for _ in 0..3 {
            append(&partition, 1, &"v".repeat(100));
        }
        partition
    };
    for later in 0..30 {
        let storage = MemoryStorage::new(1);
        let partition = filled(&storage);
        storage.fail_at(storage.operations() + later, Fault::NoSpace);
        let failed = partition.append_replica(&replica(20, "far"), LeaderEpoch(0)).is_err();
        storage.clear_faults();
        if !failed {
            continue;
        }
        if matches!(partition.append_at(partition.end(), &mut batch(1, "probe")), Err(Error::Poisoned { .. })) {
            partition.reopen().expect("the disk is well again");
        }
        let seen = partition.read(Offset(2), ReadOptions::new().up_to(taffrail::UpTo::LogEnd)).expect("readable");
        assert!(seen.next_offset() <= partition.end(), "operation {later}");
        let at = append(&partition, 1, "near");
        let partition = open_with(&storage.kill(), config()).expect("it opens");
        assert!(partition.recovery().damaged.is_empty(), "operation {later}: {:?}", partition.recovery());
        let options = ReadOptions::new().isolation(Isolation::Uncommitted);
        let found = partition.read(at, options).expect("readable");
        assert_eq!(found.records().next().and_then(|record| record.value_str()), Some("near"), "operation {later}");
    }
}

/// A transaction index that was torn, or is missing, made the partition impossible to open, or aborted records visible.
#[test]
fn transaction_indexes_are_made_anew() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage);
    for producer in 0..5 {
        transactional(&partition, producer, 1, "t");
        marker(&partition, producer, Outcome::Aborted).expect("appended");
        append(&partition, 2, "x");
    }
    partition.maintain(taffrail::Now { monotonic: taffrail::Moment(u64::MAX / 2), ..Default::default() }).expect("due");
    append(&partition, 1, "after");
    let expected = committed(&partition);
    let killed = storage.snapshot();
    partition.close().expect("closed");
    for found in [storage, killed] {
        let paths: Vec<_> = found.paths();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "txnindex")) {
            let sound = found.bytes_of(path).expect("there").to_vec();
            for wrong in [vec![], sound[..sound.len() - 1].to_vec(), [&sound[..], &[7]].concat(), sound[34..].to_vec()]
            {
                let damaged = found.snapshot();
                damaged.set_bytes(path, &wrong).expect("placed");
                assert_eq!(committed(&open(&damaged)), expected, "{} of {} bytes", wrong.len(), sound.len());
            }
        }
    }
}

/// A removal from the front that failed half-way left a log start on the disk that was ahead of the log, or files that
/// came back behind a later truncation.
#[test]
fn a_removal_that_failed_then_a_truncation() {
    let prepared = || {
        let storage = MemoryStorage::new(1);
        let partition = open(&storage);
        for _ in 0..10 {
            append(&partition, 5, &"v".repeat(50));
        }
        (storage, partition)
    };
    for later in 0..40 {
        let (storage, partition) = prepared();
        storage.fail_at(storage.operations() + later, Fault::Io);
        let failed = partition.trim_before(Offset(40)).is_err();
        storage.clear_faults();
        partition.truncate_from(Offset(20), Force::Yes).expect("truncated");
        let at = append(&partition, 1, "after");
        let before = content(&partition);
        let partition = open(&storage.kill());
        assert!(failed || later > 5, "the fault is met");
        assert_eq!(partition.end(), at.plus(1), "operation {later}");
        assert!(partition.recovery().damaged.is_empty(), "operation {later}");
        assert_eq!(content(&partition), before, "operation {later}");
    }
}

/// A sealed segment that an export has linked became the active one without being cut, and was appended to.
#[test]
fn an_export_is_not_appended_to() {
    let check = |partition: Partition, storage: Arc<dyn taffrail::Storage>, copy: &std::path::Path| {
        for base in [0, 1, 1 << 33] {
            let _ = partition.append_replica(&replica(base, "old"), LeaderEpoch(0)).expect("appended");
        }
        partition.export(copy).expect("exported");
        partition.truncate_from(Offset(15), Force::Yes).expect("truncated");
        for _ in 0..3 {
            append(&partition, 1, "new");
        }
        let exported = Partition::builder(copy).config(config()).storage(storage).open().expect("it opens");
        let options = ReadOptions::new().isolation(Isolation::Uncommitted);
        let first = exported.read(Offset(0), options).expect("readable");
        let values: Vec<_> = first.records().map(|record| record.value_str().map(str::to_owned)).collect();
        assert!(values.iter().all(|value| value.as_deref() == Some("old")), "{values:?}");
        assert!(exported.recovery().damaged.is_empty());
    };
    let memory = MemoryStorage::new(1);
    check(open(&memory), memory.shared(), "data/copy-0".as_ref());
    let directory = tempfile::tempdir().expect("a temporary directory");
    let partition = Partition::open(directory.path().join("wal-0"), config()).expect("it opens");
    check(partition, Arc::new(FileStorage::new()), &directory.path().join("copy-0"));
}

/// An export of a partition of the page cache was called clean before its bytes were on the disk.
#[test]
fn an_export_survives_a_loss_of_power() {
    for seed in 0..20 {
        let storage = MemoryStorage::new(seed);
        let partition = open_with(&storage, config().durability(Durability::Os)).expect("it opens");
        for _ in 0..12 {
            append(&partition, 5, &"v".repeat(50));
        }
        partition.export("data/copy-0").expect("exported");
        let copy = Partition::builder("data/copy-0").config(config()).storage(storage.crash(seed).shared()).open();
        let copy = copy.expect("it opens");
        assert_eq!((copy.end(), content(&copy).len()), (Offset(60), 12), "seed {seed}");
    }
}

/// A reopen forgot up to where the host had committed, so that what readers had seen could be taken back.
#[test]
fn a_reopen_keeps_what_the_host_committed() {
    let partition = open_with(&MemoryStorage::new(1), config().commits(Commits::ByHost)).expect("it opens");
    append(&partition, 10, "v");
    partition.commit_to(Offset(10)).expect("committed");
    partition.reopen().expect("reopened");
    assert_eq!(partition.high_watermark(), Offset(10));
    assert!(matches!(partition.truncate_from(Offset(0), Force::No), Err(Error::BelowHighWatermark { .. })));
}

/// The records of an epoch were lost, and the next open gave the same epoch to others.
#[test]
fn a_lost_epoch_is_not_begun_again() {
    let os = || config().durability(Durability::Os);
    let lost = (0..64).find_map(|seed| {
        let storage = MemoryStorage::new(seed);
        let partition = open_with(&storage, os()).expect("it opens");
        append(&partition, 3, "v");
        partition.sync().expect("synced");
        let storage = storage.kill();
        let partition = open_with(&storage, os()).expect("it opens");
        assert_eq!(partition.leader_epoch(), LeaderEpoch(1));
        append(&partition, 5, "w");
        let partition = open_with(&storage.crash(seed), os()).expect("it opens");
        Some(partition).filter(|partition| partition.end() == Offset(3))
    });
    let partition = lost.expect("some crash loses the records");
    assert_eq!(partition.leader_epoch(), LeaderEpoch(2));
    append(&partition, 5, "x");
    assert_eq!(partition.epoch_end(LeaderEpoch(1)), Some((LeaderEpoch(0), Offset(3))));
}

/// An epoch that a host began is there after a clean close, also without a record.
#[test]
fn an_epoch_without_a_record_is_kept() {
    let storage = MemoryStorage::new(1);
    let by_host = || config().commits(Commits::ByHost);
    let partition = open_with(&storage, by_host()).expect("it opens");
    append(&partition, 2, "v");
    partition.begin_epoch(LeaderEpoch(5)).expect("later");
    partition.close().expect("closed");
    assert_eq!(open_with(&storage, by_host()).expect("it opens").leader_epoch(), LeaderEpoch(5));
}

/// Offsets behind the greatest one were handed out, and cut off by the next open.
#[test]
fn offsets_end() {
    let partition = open(&MemoryStorage::new(1));
    let error = partition.append_replica(&replica(Offset::MAX.0, "v"), LeaderEpoch(0)).expect_err("no end behind it");
    assert!(matches!(error, Error::InvalidRecord(_)), "{error}");
    let _ = partition.append_replica(&replica(Offset::MAX.0 - 1, "v"), LeaderEpoch(0)).expect("the last one");
    let error = partition.append(&mut batch(1, "v")).expect_err("there is none left");
    assert!(matches!(error, Error::InvalidRecord(_)), "{error}");
}

/// Readers beside a reopen were told that their offset was outside of a log without records.
#[test]
fn a_reopen_is_not_seen_by_readers() {
    let partition = open(&MemoryStorage::new(1));
    for _ in 0..10 {
        append(&partition, 10, "v");
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                let fetched = partition.try_read(Offset(50), ReadOptions::new()).expect("it is there all the time");
                assert!(!fetched.is_empty());
            }
        });
        for _ in 0..200 {
            partition.reopen().expect("reopened");
        }
        done.store(true, std::sync::atomic::Ordering::Release);
    });
}

/// A producer snapshot of what was lost told of an open transaction where later records stand.
#[test]
fn snapshots_of_what_is_lost_go() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage);
    transactional(&partition, 1, 1, "t");
    marker(&partition, 1, Outcome::Committed).expect("appended");
    append(&partition, 2, "x");
    let storage = storage.kill();
    let mut snapshot = Vec::new();
    snapshot.extend_from_slice(&1_i32.to_be_bytes());
    snapshot.extend_from_slice(&77_i64.to_be_bytes());
    snapshot.extend_from_slice(&[0; 30]);
    snapshot.extend_from_slice(&5_i64.to_be_bytes());
    let mut file = 1_i16.to_be_bytes().to_vec();
    file.extend_from_slice(&crc32c(&snapshot).to_be_bytes());
    file.extend_from_slice(&snapshot);
    storage.set_bytes(format!("{DIRECTORY}/00000000000000000010.snapshot"), &file).expect("placed");
    let partition = open(&storage);
    append(&partition, 12, "y");
    partition.close().expect("closed");
    let partition = open(&storage);
    assert_eq!((partition.last_stable(), partition.end()), (Offset(16), Offset(16)));
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

/// A reader that waits is told when its offset is truncated away, at once.
#[test]
fn a_truncation_wakes_a_waiting_reader() {
    let partition = open(&MemoryStorage::new(1));
    append(&partition, 10, "v");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| partition.read(Offset(10), ReadOptions::new().max_wait(Duration::MAX)));
        // However the two meet: the reader waits at the end, or finds its offset behind it.
        partition.truncate_from(Offset(5), Force::Yes).expect("truncated");
        let error = reader.join().expect("no panic").expect_err("its offset is gone");
        assert!(matches!(error, Error::OffsetOutOfRange { requested: Offset(10), .. }), "{error}");
    });
}

/// The end that a truncation answers is the one that the next open finds, also behind a gap.
#[test]
fn a_truncation_behind_a_gap() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage);
    for base in [0, 5] {
        let _ = partition.append_replica(&replica(base, "v"), LeaderEpoch(0)).expect("appended");
    }
    let end = partition.truncate_from(Offset(5), Force::Yes).expect("truncated");
    assert_eq!(end, Offset(1));
    let at = append(&partition, 1, "w");
    assert_eq!(at, Offset(1));
    let storage = storage.crash(1);
    let partition = open(&storage);
    assert_eq!(partition.end(), Offset(2), "what was appended there was synced");
}

/// An empty first segment (the first batch was too far behind it) kept everything below a trim.
#[test]
fn a_trim_over_an_empty_segment() {
    let partition = open(&MemoryStorage::new(1));
    let far = 1_u64 << 33;
    for base in [far, far + 1, far + 2] {
        let _ = partition.append_replica(&replica(base, &"v".repeat(1_000)), LeaderEpoch(0)).expect("appended");
    }
    partition.sync().expect("synced");
    partition.trim_before(Offset(far + 2)).expect("trimmed");
    assert_eq!(partition.stats().segments, 1, "{:?}", partition.stats());
}

/// A failed reopen says why it failed, not what failed before.
#[test]
fn a_failed_reopen_gives_its_own_reason() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage);
    append(&partition, 1, "v");
    storage.fail_when(|operation| (operation.kind == OperationKind::Sync).then_some(Fault::SyncFails));
    let _ = partition.append(&mut batch(1, "w")).expect("appended").wait().expect_err("the sync fails");
    storage.clear_faults();
    storage.fail_when(|operation| (operation.kind == OperationKind::List).then_some(Fault::Io));
    let error = partition.reopen().expect_err("nothing can be listed");
    assert!(error.to_string().contains("list"), "{error}");
    storage.clear_faults();
    partition.reopen().expect("the disk is well again");
}

/// A sync that was under way raised the high watermark after a truncation had looked at it: what a waiter had been told
/// was stored, and a reader had seen, was cut off without force.
#[test]
fn a_truncation_beside_a_sync_takes_nothing_back() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let partition = Partition::open(directory.path().join("wal-0"), config()).expect("it opens");
    for _ in 0..100 {
        let before = partition.high_watermark();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut batch = batch(1, "v");
                let appended = partition.append(&mut batch).expect("appended");
                let end = appended.offsets.end;
                appended.wait().map(|()| end)
            });
            let cut = partition.truncate_from(before, Force::No);
            let stored = writer.join().expect("no panic");
            if let (Ok(end), Ok(cut)) = (stored, cut) {
                assert!(cut >= end || cut == before && partition.end() >= end, "{end} was stored, {cut} is the end");
                assert!(partition.high_watermark() >= end);
            }
        });
        partition.sync().expect("synced");
    }
}

/// Behind a gap the log ended below the start that the checkpoint said, and the next open began it anew there.
#[test]
fn a_truncation_into_a_gap_below_the_start() {
    for durability in [Durability::Sync, Durability::Os] {
        let storage = MemoryStorage::new(1);
        let partition = open_with(&storage, config().durability(durability)).expect("it opens");
        append(&partition, 3, "v");
        partition.append_replica(&replica(20, "far"), LeaderEpoch(0)).expect("appended").wait().expect("stored");
        partition.trim_before(Offset(10)).expect("trimmed");
        let end = partition.truncate_from(Offset(15), Force::Yes).expect("truncated");
        assert_eq!(append(&partition, 1, "a"), end);
        append(&partition, 1, "b");
        partition.sync().expect("synced");
        let expected = content(&partition);
        let partition = open(&storage.kill());
        assert_eq!((partition.end(), partition.recovery().restarted_at), (end.plus(2), None));
        assert_eq!(content(&partition), expected);
    }
}

/// Whatever an operation that failed had done by then, what is appended and acknowledged after it is there.
#[test]
fn what_follows_a_failure_is_kept() {
    type Operation = fn(&Partition) -> Result<()>;
    let far_replica: Operation = |partition| partition.append_replica(&replica(20, "far"), LeaderEpoch(0)).map(drop);
    let very_far_replica: Operation =
        |partition| partition.append_replica(&replica(3 + (1 << 32), "far"), LeaderEpoch(0)).map(drop);
    let later_epoch: Operation = |partition| {
        let mut bytes = replica(20, "far");
        set_leader_epoch(&mut bytes, LeaderEpoch(3));
        partition.append_replica(&bytes, LeaderEpoch(3)).map(drop)
    };
    let operations: [Operation; 7] = [
        far_replica,
        very_far_replica,
        later_epoch,
        |partition| partition.begin_epoch(LeaderEpoch(5)),
        |partition| partition.trim_before(Offset(2)).map(drop),
        Partition::roll,
        |partition| partition.truncate_from(Offset(2), Force::Yes).map(drop),
    ];
    for (number, operation) in operations.into_iter().enumerate() {
        for (durability, rolled) in [(Durability::Sync, false), (Durability::Sync, true), (Durability::Os, true)] {
            for fault in [Fault::Io, Fault::NoSpace, Fault::SyncFails] {
                for later in 0..25 {
                    let story = format!("operation {number}, {durability:?}, {fault:?} at {later}, rolled {rolled}");
                    let storage = MemoryStorage::new(1);
                    let config = || config().segment_bytes(400).durability(durability);
                    let partition = open_with(&storage, config()).expect("it opens");
                    append(&partition, 3, "v");
                    if rolled {
                        partition.roll().expect("rolled");
                    }
                    storage.fail_at(storage.operations() + later, fault);
                    let _ = operation(&partition);
                    storage.clear_faults();
                    if partition.sync().is_err() {
                        partition.reopen().unwrap_or_else(|error| panic!("{story}: {error}"));
                    }
                    append(&partition, 1, "a");
                    append(&partition, 1, "b");
                    partition.sync().expect("synced");
                    let (expected, end) = (everything(&partition), partition.end());
                    for storage in [storage.snapshot(), storage.crash(later)] {
                        let partition =
                            open_with(&storage, config()).unwrap_or_else(|error| panic!("{story}: {error}"));
                        assert!(partition.recovery().damaged.is_empty(), "{story}: {:?}", partition.recovery());
                        assert_eq!((everything(&partition), partition.end()), (expected.clone(), end), "{story}");
                    }
                }
            }
        }
    }
}

/// A truncation left the checkpoint of the high watermark where it was: after a kill, records were shown that the host
/// had not committed.
#[test]
fn what_the_host_did_not_commit_stays_hidden_after_a_truncation() {
    let storage = MemoryStorage::new(1);
    let by_host = || config().commits(Commits::ByHost);
    let partition = open_with(&storage, by_host()).expect("it opens");
    append(&partition, 1, "v");
    append(&partition, 3, "v");
    partition.commit_to(Offset(4)).expect("committed");
    let later = taffrail::Now { monotonic: taffrail::Moment(u64::MAX / 2), ..Default::default() };
    assert!(partition.maintain(later).expect("due").checkpointed);
    partition.truncate_from(Offset(1), Force::Yes).expect("truncated");
    append(&partition, 4, "new");
    let partition = open_with(&storage.kill(), by_host()).expect("it opens");
    assert_eq!((partition.high_watermark(), partition.end()), (Offset(1), Offset(5)));
}

/// Power failed between the segment behind a gap and the note that there is one: the gap was taken for damage.
#[test]
fn a_gap_is_noted_before_the_segment_behind_it() {
    for seed in 0..4 {
        for later in 0..20 {
            let storage = MemoryStorage::new(seed);
            let config = || config().segment_bytes(230);
            let partition = open_with(&storage, config()).expect("it opens");
            append(&partition, 3, "v");
            storage.crash_at(storage.operations() + later);
            let _ = partition.append_replica(&replica(20, &"far".repeat(20)), LeaderEpoch(0));
            let partition = open_with(&storage.crash(seed), config()).expect("it opens");
            assert!(partition.recovery().damaged.is_empty(), "operation {later}: {:?}", partition.recovery());
            let fetched = partition.read(Offset(0), ReadOptions::new()).expect("readable");
            let next = partition.read(fetched.next_offset(), ReadOptions::new());
            assert!(next.is_ok(), "operation {later}: {next:?}");
        }
    }
}

/// With `Os` too a sync that was acknowledged after a failed one, and a reopen, holds.
#[test]
fn a_sync_after_a_failed_one_holds_in_the_page_cache_too() {
    for seed in 0..16 {
        let storage = MemoryStorage::new(seed);
        let os = || config().durability(Durability::Os);
        let partition = open_with(&storage, os()).expect("it opens");
        append(&partition, 1, "a");
        partition.sync().expect("synced");
        append(&partition, 1, "b");
        storage.fail_when(|operation| (operation.kind == OperationKind::Sync).then_some(Fault::SyncFails));
        partition.sync().expect_err("every sync fails");
        storage.clear_faults();
        partition.reopen().expect("the disk is well again");
        append(&partition, 1, "c");
        partition.sync().expect("synced");
        assert_eq!(open_with(&storage.crash(seed), os()).expect("it opens").end(), Offset(3), "seed {seed}");
    }
}

/// A trim that failed had its start on the disk already, and a reopen took it over although a hold was there by then.
#[test]
fn a_failed_trim_is_taken_back() {
    for later in 0..20 {
        let storage = MemoryStorage::new(1);
        let partition = open(&storage);
        append(&partition, 6, "v");
        storage.fail_at(storage.operations() + later, Fault::Io);
        let failed = partition.trim_before(Offset(4)).is_err();
        storage.clear_faults();
        if failed && partition.start() == Offset(0) && partition.sync().is_ok() {
            let _hold = partition.hold(Offset(1)).expect("in the log");
            partition.reopen().expect("reopened");
            assert_eq!(partition.start(), Offset(0), "operation {later}");
        }
    }
}
