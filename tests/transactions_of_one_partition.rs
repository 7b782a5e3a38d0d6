//! One producer's transactions in one partition, step by step: SEMANTICS 14.3, and the same by the later rule.

use taffrail::{
    Appended, BatchBuilder, Commits, Durability, Error, Isolation, Marker, MemoryStorage, Offset, Outcome, Partition,
    PartitionConfig, ProducerEpoch, ProducerId, ReadOptions, Record, Result, Sequence, Timestamp, TransactionVersion,
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
