//! A removal from the front that has taken effect is answered, whatever fails afterwards: it was once an error where a
//! file could not be renamed, although the records were gone, and which segments had gone was never told.

use std::sync::Arc;

use taffrail::{
    BatchBuilder, Fault, ManualClock, MemoryStorage, Moment, Now, Offset, OperationKind, Partition, PartitionConfig,
    Record, Retention, Timestamp,
};

fn open(storage: &MemoryStorage, retention: Retention) -> Partition {
    let config = PartitionConfig::new().segment_bytes(1_500).retention(retention);
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    Partition::builder("data/wal-0").config(config).storage(storage.shared()).clock(clock).open().expect("opens")
}

fn filled(retention: Retention) -> (MemoryStorage, Partition) {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage, retention);
    for _ in 0..50 {
        let mut batch = BatchBuilder::new();
        batch.push(&Record::new(&"v".repeat(100))).expect("small");
        partition.append(&mut batch).expect("taken").wait().expect("stored");
    }
    (storage, partition)
}

fn logs(storage: &MemoryStorage) -> usize {
    storage.paths().iter().filter(|path| path.extension().is_some_and(|extension| extension == "log")).count()
}

fn later(nanoseconds: u64) -> Now {
    Now { monotonic: Moment(nanoseconds), wall: Timestamp(1_000_000) }
}

/// No segment can be renamed.
fn refuse_renames(storage: &MemoryStorage) {
    storage.fail_when(|operation| {
        let of_segment = operation.path.extension().is_some_and(|extension| extension == "log");
        (operation.kind == OperationKind::Rename && of_segment).then_some(Fault::Io)
    });
}

#[test]
fn a_rename_that_fails_afterwards_is_tried_again() {
    type Removal = fn(&Partition) -> usize;
    let forever = Retention::forever;
    let removals: [(Retention, Removal); 4] = [
        (forever(), |partition| usize::from(partition.trim_before(Offset(25)).expect("removed") == Offset(25))),
        (forever(), |partition| {
            usize::from(partition.delete_records(Some(Offset(25))).expect("removed") == Offset(25))
        }),
        (forever(), |partition| {
            partition.remove_while(|segment| segment.end_offset <= Offset(25)).expect("removed").len()
        }),
        (forever().bytes(3_000), |partition| partition.maintain(later(1)).expect("removed").removed.len()),
    ];
    for (number, (retention, removal)) in removals.into_iter().enumerate() {
        for reopened in [false, true] {
            let (storage, mut partition) = filled(retention.clone());
            let before = logs(&storage);
            refuse_renames(&storage);
            assert!(removal(&partition) > 0, "removal {number}");
            let (start, segments) = (partition.start(), partition.stats().segments);
            assert!(start > Offset(0) && segments < before, "removal {number}");
            storage.clear_faults();
            if reopened {
                partition.close().expect("closes");
                partition = open(&storage, Retention::forever());
            } else {
                partition.maintain(later(2)).expect("renamed");
            }
            assert_eq!((logs(&storage), partition.start()), (segments, start), "removal {number}, {reopened}");
        }
    }
}

/// What maintenance does beside it fails: nothing is removed yet, or it is told.
#[test]
fn no_removal_is_lost_in_an_error() {
    for number in 0..200 {
        let (storage, partition) = filled(Retention::forever().bytes(3_000));
        let begun = storage.operations();
        storage.fail_at(begun + number, Fault::Io);
        let outcome = partition.maintain(later(u64::MAX / 2));
        if storage.operations() <= begun + number {
            assert!(number > 3, "it does more than that");
            return;
        }
        match outcome {
            Ok(done) => assert_eq!(done.removed.is_empty(), partition.start() == Offset(0), "operation {number}"),
            Err(error) => assert_eq!(partition.start(), Offset(0), "operation {number}: {error}"),
        }
    }
    panic!("200 operations");
}
