//! One producer's transactions in one partition, step by step: SEMANTICS 14.3, and the same by the later rule.

use taffrail::{
    Appended, BatchBuilder, Commits, Durability, Error, Fault, Isolation, Marker, MemoryStorage, Moment, Now, Offset,
    Operation, OperationKind, Outcome, Partition, PartitionConfig, ProducerEpoch, ProducerId, ReadOptions, Record,
    Result, Sequence, Timestamp, TransactionVersion,
};

const ID: ProducerId = ProducerId(7);
const DIRECTORY: &str = "data/wal-0";

fn config() -> PartitionConfig {
    PartitionConfig::default().durability(Durability::Os).commits(Commits::ByHost)
}

fn open(storage: &MemoryStorage) -> Partition {
    Partition::builder(DIRECTORY).config(config()).storage(storage.shared()).open().expect("it opens")
}

fn batch(count: u32) -> BatchBuilder {
    let mut batch = BatchBuilder::new();
    for _ in 0..count {
        batch.push(&Record::new("v").timestamp(Timestamp(5))).expect("small");
    }
    batch
}

/// Ends at offset 100, all of it committed.
fn hundred(storage: &MemoryStorage) -> Partition {
    let partition = open(storage);
    partition.append(&mut batch(100)).expect("appended").wait().expect("stored");
    partition.commit_to(Offset(100)).expect("committed");
    partition
}

fn data(partition: &Partition, epoch: i16, first: i32, last: i32, transactional: bool) -> Result<(u64, u64)> {
    let mut batch = batch((last - first + 1).cast_unsigned());
    batch.producer(ID, ProducerEpoch(epoch), Sequence(first));
    batch.transactional(transactional);
    partition.append(&mut batch).map(|appended| at(&appended))
}

fn marker(
    partition: &Partition,
    outcome: Outcome,
    epoch: i16,
    coordinator: i32,
    v: TransactionVersion,
) -> Result<(u64, u64)> {
    let marker = Marker {
        outcome,
        producer_id: ID,
        producer_epoch: ProducerEpoch(epoch),
        coordinator_epoch: coordinator,
        timestamp: Timestamp(6),
    };
    partition.append_marker(&marker, v).map(|appended| at(&appended))
}

fn at(appended: &Appended<'_>) -> (u64, u64) {
    (appended.offsets.start.0, appended.offsets.end.0)
}

/// The transaction index of the first segment.
fn aborted(storage: &MemoryStorage) -> Vec<[i64; 4]> {
    let Some(bytes) = storage.bytes_of(format!("{DIRECTORY}/00000000000000000000.txnindex")) else { return Vec::new() };
    let word = |entry: &[u8], at: usize| i64::from_be_bytes(entry[at..at + 8].try_into().expect("eight"));
    bytes.chunks_exact(34).map(|entry| [word(entry, 2), word(entry, 10), word(entry, 18), word(entry, 26)]).collect()
}

/// The last stable offset, which is the first unstable one where that is below the high watermark.
fn stable(partition: &Partition) -> (u64, u64) {
    (partition.last_stable().0, partition.high_watermark().0)
}

fn offsets(partition: &Partition, isolation: Isolation) -> Vec<u64> {
    let fetched = partition.read(Offset(100), ReadOptions::new().isolation(isolation)).expect("readable");
    fetched.records().map(|record| record.offset().0).collect()
}

#[test]
fn the_table_of_a_transaction() {
    use Outcome::{Aborted, Committed};
    use TransactionVersion::V1;
    let storage = MemoryStorage::new(1);
    let partition = hundred(&storage);
    assert_eq!(data(&partition, 0, 0, 1, true).expect("taken"), (100, 102));
    partition.commit_to(Offset(102)).expect("committed");
    assert_eq!(stable(&partition), (100, 102));
    let plain = data(&partition, 0, 2, 2, false);
    assert!(matches!(plain, Err(Error::InvalidTransactionState(_))), "{plain:?}");
    assert_eq!(marker(&partition, Aborted, 0, 3, V1).expect("taken"), (102, 103));
    assert_eq!(aborted(&storage), [[7, 100, 102, 103]]);
    assert_eq!(stable(&partition), (100, 102), "the marker itself is not below the high watermark");
    partition.commit_to(Offset(103)).expect("committed");
    assert_eq!(stable(&partition), (103, 103));
    assert_eq!(marker(&partition, Committed, 0, 3, V1).expect("an empty transaction"), (103, 104));
    assert_eq!(aborted(&storage).len(), 1, "it has no entry");
    let older = marker(&partition, Committed, 0, 2, V1);
    assert!(matches!(older, Err(Error::CoordinatorFenced { producer_id: ID, epoch: 2, current: 3 })), "{older:?}");
    assert_eq!(marker(&partition, Aborted, 1, 4, V1).expect("taken"), (104, 105));
    assert_eq!(aborted(&storage).len(), 1, "it was empty, too");
    let fenced = data(&partition, 0, 2, 2, true);
    let (epoch, current) = (ProducerEpoch(0), ProducerEpoch(1));
    assert!(
        matches!(fenced, Err(Error::ProducerFenced { producer_id: ID, epoch: e, current: c }) if (e, c) == (epoch, current)),
        "{fenced:?}"
    );
    let restart = data(&partition, 1, 2, 2, true);
    assert!(
        matches!(
            restart,
            Err(Error::OutOfOrderSequence { producer_id: ID, expected: Sequence(0), found: Sequence(2) })
        ),
        "{restart:?}"
    );
    assert_eq!(partition.end(), Offset(105), "what is refused leaves nothing");
    assert_eq!(data(&partition, 1, 0, 0, true).expect("taken"), (105, 106));
    partition.commit_to(Offset(106)).expect("committed");
    assert_eq!(stable(&partition), (105, 106));
    assert_eq!(offsets(&partition, Isolation::Committed), []);
    assert_eq!(offsets(&partition, Isolation::Uncommitted), [100, 101, 105]);
}

/// The marker's epoch is that of the records plus one, and the next transaction has it.
#[test]
fn the_table_by_the_later_version() {
    use Outcome::{Aborted, Committed};
    use TransactionVersion::V2;
    let storage = MemoryStorage::new(1);
    let partition = hundred(&storage);
    assert_eq!(data(&partition, 0, 0, 1, true).expect("taken"), (100, 102));
    let same = marker(&partition, Aborted, 0, 3, V2);
    assert!(
        matches!(
            same,
            Err(Error::ProducerFenced { producer_id: ID, epoch: ProducerEpoch(0), current: ProducerEpoch(0) })
        ),
        "a late marker of the transaction before would have this epoch: {same:?}"
    );
    assert_eq!(marker(&partition, Aborted, 1, 3, V2).expect("taken"), (102, 103));
    assert_eq!(aborted(&storage), [[7, 100, 102, 103]]);
    partition.commit_to(Offset(103)).expect("committed");
    assert_eq!(stable(&partition), (103, 103));
    assert_eq!(marker(&partition, Aborted, 1, 3, V2).expect("it is there"), (103, 103));
    assert_eq!(marker(&partition, Aborted, 1, 4, V2).expect("from a later coordinator, too"), (103, 103));
    let older = marker(&partition, Aborted, 1, 2, V2);
    assert!(matches!(older, Err(Error::CoordinatorFenced { epoch: 2, current: 3, .. })), "{older:?}");
    let earlier = marker(&partition, Aborted, 0, 3, V2);
    assert!(matches!(earlier, Err(Error::ProducerFenced { current: ProducerEpoch(1), .. })), "{earlier:?}");
    let fenced = data(&partition, 0, 2, 2, true);
    assert!(matches!(fenced, Err(Error::ProducerFenced { current: ProducerEpoch(1), .. })), "{fenced:?}");
    let restart = data(&partition, 1, 2, 2, true);
    assert!(matches!(restart, Err(Error::OutOfOrderSequence { expected: Sequence(0), .. })), "{restart:?}");
    assert_eq!(partition.end(), Offset(103), "nothing of this was written");
    assert_eq!(data(&partition, 1, 0, 0, true).expect("taken"), (103, 104));
    let late = marker(&partition, Aborted, 1, 3, V2);
    assert!(matches!(late, Err(Error::ProducerFenced { current: ProducerEpoch(1), .. })), "{late:?}");
    assert_eq!(marker(&partition, Committed, 2, 3, V2).expect("taken"), (104, 105));
    assert_eq!(marker(&partition, Committed, 3, 3, V2).expect("an empty transaction"), (105, 106));
    assert_eq!(aborted(&storage).len(), 1);
    partition.commit_to(Offset(106)).expect("committed");
    assert_eq!(stable(&partition), (106, 106));
    assert_eq!(offsets(&partition, Isolation::Committed), [103]);
}

/// The state survives, whichever way the partition is opened again.
#[test]
fn the_state_is_the_same_after_an_open() {
    use TransactionVersion::{V1, V2};
    let storage = MemoryStorage::new(1);
    let partition = hundred(&storage);
    data(&partition, 0, 0, 1, true).expect("taken");
    marker(&partition, Outcome::Committed, 1, 3, V2).expect("taken");
    data(&partition, 1, 0, 2, true).expect("taken");
    partition.sync().expect("synced");
    let killed = storage.snapshot();
    partition.close().expect("closed");
    for (what, storage) in [("closed", storage), ("killed", killed)] {
        let partition = open(&storage);
        partition.commit_to(Offset(106)).expect("committed");
        assert_eq!((partition.end(), partition.last_stable()), (Offset(106), Offset(103)), "{what}");
        assert_eq!(data(&partition, 1, 0, 2, true).expect("a duplicate"), (103, 106), "{what}");
        let older = marker(&partition, Outcome::Committed, 1, 2, V1);
        assert!(matches!(older, Err(Error::CoordinatorFenced { current: 3, .. })), "{what}: {older:?}");
        assert_eq!(data(&partition, 1, 3, 3, true).expect("the next"), (106, 107), "{what}");
        assert_eq!(marker(&partition, Outcome::Aborted, 2, 3, V2).expect("taken"), (107, 108), "{what}");
        assert_eq!(aborted(&storage), [[7, 103, 107, 108]], "{what}");
    }
}

/// Kafka's form of a transaction index has no checksum. A bit of it that flipped while the log was closed showed records of
/// an aborted transaction.
#[test]
fn a_flipped_bit_of_a_transaction_index_shows_nothing() {
    use TransactionVersion::V2;
    let storage = MemoryStorage::new(1);
    let config = config().commits(Commits::WhenStored);
    let open = |storage: &MemoryStorage| {
        Partition::builder(DIRECTORY).config(config.clone()).storage(storage.shared()).open().expect("it opens")
    };
    let send = |partition: &Partition, id: i64, epoch: i16, first: i32| {
        let mut batch = batch(1);
        batch.producer(ProducerId(id), ProducerEpoch(epoch), Sequence(first));
        batch.transactional(true);
        partition.append(&mut batch).expect("taken").wait().expect("stored");
    };
    let mark = |partition: &Partition, id: i64, epoch: i16, outcome: Outcome| {
        let (producer_id, producer_epoch) = (ProducerId(id), ProducerEpoch(epoch));
        let marker = Marker { outcome, producer_id, producer_epoch, coordinator_epoch: 3, timestamp: Timestamp(6) };
        partition.append_marker(&marker, V2).expect("taken").wait().expect("stored");
    };
    let partition = open(&storage);
    for epoch in 0..4 {
        for id in [1, 2, 3] {
            send(&partition, id, epoch, 0);
        }
        if epoch == 2 {
            partition.roll().expect("rolled");
        }
        mark(&partition, 1, epoch + 1, Outcome::Aborted);
        send(&partition, 2, epoch, 1);
        mark(&partition, 3, epoch + 1, Outcome::Committed);
        mark(&partition, 2, epoch + 1, Outcome::Aborted);
    }
    let read = |partition: &Partition| -> Vec<u64> {
        let mut at = partition.start();
        let mut seen = Vec::new();
        loop {
            // A batch at a time: none is read together with the marker that would tell.
            let fetched = partition.try_read(at, ReadOptions::new().max_bytes(1)).expect("it is read");
            seen.extend(fetched.records().map(|record| record.offset().0));
            if fetched.next_offset() <= at {
                return seen;
            }
            at = fetched.next_offset();
        }
    };
    let right = read(&partition);
    assert_eq!(right.len(), 4);
    partition.close().expect("closed");
    let mut flips = 0;
    for path in storage.paths().into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "txnindex")) {
        let length = storage.bytes_of(&path).expect("it is there").len() as u64;
        for (at, bit) in (0..length).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let flipped = storage.snapshot();
            flipped.flip_bit(&path, at, bit).expect("it is there");
            let partition = open(&flipped);
            assert_eq!(read(&partition), right, "{} byte {at}, bit {bit}", path.display());
            partition.close().expect("closed");
            assert_eq!(read(&open(&flipped)), right, "and again: {} byte {at}, bit {bit}", path.display());
            flips += 1;
        }
    }
    assert!(flips > 1000, "{flips}");
}

/// The marker of an abort tells of its records, also where the index is gone.
#[test]
fn what_is_read_with_its_abort_is_not_shown_whatever_the_index_says() {
    let storage = MemoryStorage::new(1);
    let partition = hundred(&storage);
    data(&partition, 0, 0, 0, true).expect("taken");
    marker(&partition, Outcome::Committed, 1, 3, TransactionVersion::V2).expect("taken");
    data(&partition, 1, 0, 1, true).expect("taken");
    marker(&partition, Outcome::Aborted, 2, 3, TransactionVersion::V2).expect("taken");
    data(&partition, 2, 0, 0, true).expect("taken");
    marker(&partition, Outcome::Committed, 3, 3, TransactionVersion::V2).expect("taken");
    partition.close().expect("closed");
    for kind in ["00000000000000000000.txnindex", "aborted.taffrail"] {
        storage.shared().remove(std::path::Path::new(&format!("{DIRECTORY}/{kind}"))).expect("it is there");
    }
    let partition = open(&storage);
    partition.commit_to(partition.end()).expect("committed");
    assert_eq!(offsets(&partition, Isolation::Committed), [100, 105]);
}

/// What readers of committed records see from an offset on.
fn committed(partition: &Partition, from: u64) -> Vec<u64> {
    let (mut at, mut seen) = (Offset(from), Vec::new());
    while at < partition.last_stable() {
        let fetched = partition.try_read(at, ReadOptions::new()).expect("it is read");
        seen.extend(fetched.records().map(|record| record.offset().0));
        at = fetched.next_offset();
    }
    seen
}

/// The marker of an abort lies in a damaged part of a closed segment, and the producer has gone on behind it: its later
/// commit showed the aborted records.
#[test]
fn a_lost_marker_of_an_abort_shows_nothing() {
    let storage = MemoryStorage::new(1);
    let partition = hundred(&storage);
    data(&partition, 0, 0, 0, true).expect("taken");
    partition.roll().expect("rolled");
    marker(&partition, Outcome::Aborted, 1, 3, TransactionVersion::V2).expect("taken");
    partition.append(&mut batch(1)).expect("taken").wait().expect("stored");
    partition.roll().expect("rolled");
    data(&partition, 1, 0, 0, true).expect("taken");
    marker(&partition, Outcome::Committed, 2, 3, TransactionVersion::V2).expect("taken");
    partition.commit_to(partition.end()).expect("committed");
    assert_eq!(committed(&partition, 100), [102, 103]);
    let storage = storage.kill();
    storage.flip_bit(format!("{DIRECTORY}/00000000000000000101.log"), 70, 0).expect("it is there");
    storage
        .shared()
        .remove(std::path::Path::new(&format!("{DIRECTORY}/00000000000000000101.txnindex")))
        .expect("there");
    for kind in ["snapshot", "taffrail"] {
        for path in storage.paths().into_iter().filter(|path| path.extension().is_some_and(|found| found == kind)) {
            storage.shared().remove(&path).expect("it is there");
        }
    }
    for round in 0..2 {
        let partition = open(&storage);
        partition.commit_to(partition.end()).expect("committed");
        let first = partition.try_read(Offset(100), ReadOptions::new()).expect("it is read");
        assert_eq!((first.next_offset(), first.records().count()), (Offset(101), 0), "round {round}");
        assert_eq!(committed(&partition, 102), [102, 103], "round {round}");
        partition.close().expect("closed");
    }
}

/// An open after a kill made the index of aborted transactions anew and did not sync it, while the recovery point had
/// passed the batches: the power took it, and nobody read them again.
#[test]
fn an_index_that_an_open_has_written_survives_the_power() {
    for seed in 0..60 {
        let storage = MemoryStorage::new(seed);
        let partition = open(&storage);
        data(&partition, 0, 0, 0, true).expect("taken");
        marker(&partition, Outcome::Aborted, 1, 3, TransactionVersion::V2).expect("taken");
        partition.sync().expect("synced");
        let late = Now { wall: Timestamp(1_000_000), monotonic: Moment(1 << 60) };
        partition.maintain(late).expect("the recovery point is noted");
        let storage = storage.kill();
        let index = format!("{DIRECTORY}/00000000000000000000.txnindex");
        let bytes = storage.bytes_of(&index).expect("it is there");
        storage.set_bytes(&index, &bytes[..30]).expect("it is torn");
        let partition = open(&storage);
        partition.roll().expect("rolled");
        let storage = storage.kill();
        let partition = open(&storage);
        partition.commit_to(partition.end()).expect("committed");
        drop(partition);
        let storage = storage.crash(seed);
        drop(storage.shared().remove(std::path::Path::new(&format!("{DIRECTORY}/aborted.taffrail"))));
        let partition = open(&storage);
        partition.commit_to(partition.end()).expect("committed");
        assert_eq!(committed(&partition, 0), [0_u64; 0], "seed {seed}");
    }
}

/// There was no room for the index entry of an abort: its marker was in the log for all that, and the partition took
/// nothing any more.
#[test]
fn an_abort_that_cannot_be_indexed_changes_nothing() {
    let faults: [(OperationKind, Fault); 4] = [
        (OperationKind::Create, Fault::NoSpace),
        (OperationKind::Write, Fault::NoSpace),
        (OperationKind::Write, Fault::ShortWrite(20)),
        (OperationKind::Write, Fault::Io),
    ];
    for (second, (kind, fault)) in [false, true].into_iter().flat_map(|second| faults.map(|fault| (second, fault))) {
        let storage = MemoryStorage::new(1);
        let partition = open(&storage);
        let mut epoch = 0;
        if second {
            data(&partition, 0, 0, 0, true).expect("taken");
            marker(&partition, Outcome::Aborted, 1, 3, TransactionVersion::V2).expect("taken");
            epoch = 1;
        }
        data(&partition, epoch, 0, 0, true).expect("taken");
        let (end, indexed) = (partition.end(), aborted(&storage).len());
        let is_full = move |operation: &Operation| {
            let is_index = operation.path.extension().is_some_and(|extension| extension == "txnindex");
            (is_index && operation.kind == kind).then_some(fault)
        };
        storage.fail_when(is_full);
        let refused = marker(&partition, Outcome::Aborted, epoch + 1, 3, TransactionVersion::V2);
        if refused.is_ok() {
            assert!(second && kind == OperationKind::Create, "the file is there");
            continue;
        }
        assert_eq!((partition.end(), aborted(&storage).len()), (end, indexed), "{kind:?}, {fault:?}: {refused:?}");
        storage.clear_faults();
        let log = |operation: &Operation| {
            let is_log = operation.path.extension().is_some_and(|extension| extension == "log");
            (is_log && operation.kind == OperationKind::Write).then_some(Fault::NoSpace)
        };
        storage.fail_when(log);
        marker(&partition, Outcome::Aborted, epoch + 1, 3, TransactionVersion::V2).expect_err("the log is full");
        assert_eq!((partition.end(), aborted(&storage).len()), (end, indexed), "{kind:?}, {fault:?}");
        storage.clear_faults();
        marker(&partition, Outcome::Aborted, epoch + 1, 3, TransactionVersion::V2).expect("there is room");
        assert_eq!(aborted(&storage).len(), indexed + 1);
        data(&partition, epoch + 1, 0, 0, true).expect("it goes on");
        marker(&partition, Outcome::Committed, epoch + 2, 3, TransactionVersion::V2).expect("taken");
        partition.commit_to(partition.end()).expect("committed");
        let seen = committed(&partition, 0);
        assert_eq!(seen, [end.0 + 1], "{kind:?}, {fault:?}");
        let partition = open(&storage.kill());
        partition.commit_to(partition.end()).expect("committed");
        assert_eq!(committed(&partition, 0), seen, "{kind:?}, {fault:?}, recovered");
    }
}
