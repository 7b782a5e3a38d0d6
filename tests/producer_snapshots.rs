//! Producer snapshots: what they keep over an open, what damage to them costs, and how little of the log is read with them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use taffrail::{
    BatchBuilder, Clock, Durability, Error, ManualClock, MemoryStorage, Offset, Partition, PartitionConfig,
    ProducerEpoch, ProducerId, Record, Result, Sequence, Timestamp,
};

const DIRECTORY: &str = "data/wal-0";
const HOUR: Duration = Duration::from_secs(3_600);
/// Ten years after the records.
const NOW: Timestamp = Timestamp(1_700_000_000_000);
const OLD: Timestamp = Timestamp(1_384_000_000_000);

fn open_at(storage: &MemoryStorage, clock: &Arc<ManualClock>) -> Partition {
    let config = PartitionConfig::new().durability(Durability::Os).segment_bytes(1_000);
    let clock: Arc<ManualClock> = Arc::clone(clock);
    Partition::builder(DIRECTORY).config(config).storage(storage.shared()).clock(clock).open().expect("it opens")
}

fn open(storage: &MemoryStorage) -> Partition {
    open_at(storage, &Arc::new(ManualClock::at(NOW)))
}

/// Appends one record of a producer; answers its offset, and whether it was there.
fn send(partition: &Partition, id: i64, sequence: i32) -> Result<(u64, bool)> {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new(&"v".repeat(50)).timestamp(OLD)).expect("small");
    batch.producer(ProducerId(id), ProducerEpoch(0), Sequence(sequence));
    partition.append(&mut batch).map(|appended| (appended.offsets.start.0, appended.duplicate))
}

fn is_due(outcome: &Result<(u64, bool)>, due: i32) -> bool {
    matches!(outcome, Err(Error::OutOfOrderSequence { expected, .. }) if expected.0 == due)
}

fn snapshots(storage: &MemoryStorage) -> Vec<PathBuf> {
    storage.paths().into_iter().filter(|path| path.extension().is_some_and(|e| e == "snapshot")).collect()
}

fn name(offset: u64) -> String {
    format!("{DIRECTORY}/{offset:020}.snapshot")
}

/// A log of forty records in several segments, by two producers; closed.
fn closed() -> MemoryStorage {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage);
    for sequence in 0..20 {
        send(&partition, 7, sequence).expect("appended");
        send(&partition, 8, sequence).expect("appended");
    }
    partition.close().expect("closed");
    storage
}

/// What was appended last is known, and what is due.
fn check(partition: &Partition, what: &str) {
    assert_eq!(send(partition, 7, 19).expect("known"), (38, true), "{what}");
    assert_eq!(send(partition, 8, 19).expect("known"), (39, true), "{what}");
    let gap = send(partition, 7, 21);
    assert!(is_due(&gap, 20), "{what}: {gap:?}");
}

#[test]
fn a_producer_of_events_ten_years_old_stays_known_for_a_day() {
    let (storage, clock) = (MemoryStorage::new(1), Arc::new(ManualClock::at(NOW)));
    let partition = open_at(&storage, &clock);
    send(&partition, 7, 0).expect("appended");
    clock.advance(23 * HOUR);
    assert_eq!(partition.maintain(clock.now()).expect("maintained").producers_expired, 0);
    assert_eq!(send(&partition, 7, 0).expect("known"), (0, true));
    partition.roll().expect("rolled");
    partition.close().expect("closed");
    let partition = open_at(&storage, &clock);
    clock.advance(23 * HOUR);
    assert_eq!(partition.maintain(clock.now()).expect("maintained").producers_expired, 0);
    assert_eq!(send(&partition, 7, 0).expect("known"), (0, true), "over a snapshot, an open and 23 hours");
    let gap = send(&partition, 7, 2);
    assert!(is_due(&gap, 1), "{gap:?}");
    clock.advance(HOUR);
    assert_eq!(partition.maintain(clock.now()).expect("maintained").producers_expired, 1);
    assert_eq!(send(&partition, 7, 2).expect("nobody knows it"), (1, false));
}

#[test]
fn damage_to_snapshots_costs_nothing_but_the_way_through_the_log() {
    let storage = closed();
    let written = snapshots(&storage);
    assert!(written.len() > 3 && written.contains(&name(40).into()), "{written:?}");
    for clean in [true, false] {
        let found = storage.snapshot();
        if !clean {
            found.shared().remove(Path::new("data/wal-0/.kafka_cleanshutdown")).expect("it was closed");
        }
        for damaged in &written {
            for damage in [&b""[..], b"torn", &[0; 56]] {
                let storage = found.snapshot();
                storage.set_bytes(damaged, damage).expect("placed");
                check(&open(&storage), &format!("{} of {damage:?}", damaged.display()));
            }
            let storage = found.snapshot();
            storage.flip_bit(damaged, 12, 3).expect("flipped");
            let partition = open(&storage);
            check(&partition, "a flipped bit");
            partition.close().expect("closed");
            check(&open(&storage), "closed again");
        }
        let none = found.snapshot();
        for path in &written {
            none.set_bytes(path, b"gone").expect("placed");
        }
        check(&open(&none), "all of them");
    }
}

/// What is told of batches that are gone is not believed, also where others stand in their place.
#[test]
fn a_snapshot_of_what_did_not_survive_is_not_believed() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage);
    for sequence in 0..3 {
        send(&partition, 7, sequence).expect("appended");
    }
    partition.sync().expect("synced");
    let survives = storage.snapshot();
    for sequence in 3..6 {
        send(&partition, 7, sequence).expect("appended");
    }
    partition.roll().expect("rolled");
    let lies = storage.bytes_of(name(6)).expect("written at the roll");
    survives.set_bytes(name(6), &lies).expect("placed");
    let partition = open(&survives.kill());
    assert_eq!(send(&partition, 7, 2).expect("known"), (2, true));
    for (offset, sequence) in (3..).zip(3..9) {
        assert_eq!(send(&partition, 7, sequence).expect("the next"), (offset, false));
    }
}

/// A clean open reads the newest snapshot, and of the log no more than an open without producers does.
#[test]
fn a_clean_open_reads_one_snapshot() {
    let storage = closed();
    storage.record_history();
    let partition = open(&storage);
    let of = |suffix: &str| {
        let opened = storage.history();
        opened.iter().filter(|operation| operation.path.to_string_lossy().ends_with(suffix)).count()
    };
    let read: Vec<_> =
        storage.history().iter().map(ToString::to_string).filter(|text| text.contains(".snapshot")).collect();
    assert!(read.iter().all(|text| text.contains(&format!("{:020}", 40))), "{read:?}");
    assert!(!read.is_empty());
    let sealed = format!("{:020}.log", 0);
    let bytes_of_sealed = storage
        .history()
        .iter()
        .filter(|operation| operation.path.ends_with(&sealed))
        .map(ToString::to_string)
        .filter(|text| text.contains("read"))
        .count();
    assert_eq!(bytes_of_sealed, 0, "{} operations on logs", of(".log"));
    check(&partition, "opened");
}

/// Segments that go take their snapshots along; what is known of producers stays.
#[test]
fn retention_leaves_producers_known() {
    let storage = closed();
    let partition = open(&storage);
    partition.trim_before(Offset(40)).expect("all of it goes");
    assert_eq!((partition.start(), partition.stats().segments), (Offset(40), 1));
    assert_eq!(snapshots(&storage), [PathBuf::from(name(40))]);
    check_forgotten_offsets(&partition);
    check_forgotten_offsets(&open(&storage.kill()));
}

fn check_forgotten_offsets(partition: &Partition) {
    for id in [7, 8] {
        assert!(send(partition, id, 19).expect("known").1);
        let gap = send(partition, id, 21);
        assert!(is_due(&gap, 20), "{gap:?}");
    }
}

/// A log start is durable at once, and where nothing is synced for itself, that there were producers was not: an open began
/// behind their batches and knew none.
#[test]
fn what_was_removed_within_a_segment_is_known_of_producers_after_a_kill() {
    let mut storage = MemoryStorage::new(1);
    let open = |storage: &MemoryStorage| {
        let config = PartitionConfig::new().durability(Durability::Os);
        Partition::builder(DIRECTORY).config(config).storage(storage.shared()).open().expect("it opens")
    };
    let partition = open(&storage);
    assert_eq!(send(&partition, 7, 0).expect("appended"), (0, false));
    for _ in 0..300 {
        let mut batch = BatchBuilder::new();
        batch.push(&Record::new(&"v".repeat(50)).timestamp(NOW)).expect("small");
        partition.append(&mut batch).expect("appended").wait().expect("written");
    }
    partition.trim_before(Offset(250)).expect("trimmed");
    storage = storage.kill();
    std::mem::forget(partition);
    let partition = open(&storage);
    assert_eq!(send(&partition, 7, 0).expect("it is there"), (0, true));
}
