//! Compaction takes the marker of a transaction once nothing else of it is left. A producer snapshot from before the marker
//! says that the transaction is open, and whoever began with it, and read on in the log, found no marker: a transaction
//! that had ended long ago was open again, and the last stable offset stood still for good.

mod support {
    pub(crate) mod compacted;
}

use std::sync::Arc;
use std::time::Duration;

use support::compacted::*;
use taffrail::{
    Clock, Durability, Fault, Force, Isolation, ManualClock, MemoryStorage, Offset, Outcome, Partition,
    PartitionConfig, Timestamp,
};

fn settings(durability: Durability) -> PartitionConfig {
    config()
        .durability(durability)
        .segment_bytes(500)
        .delete_retention(Duration::ZERO)
        .producer_id_expiration(Duration::from_millis(50))
        .checkpoint_interval(Duration::from_secs(5))
}

/// A transaction in the first segment, its marker in the second, which is rolled; the recovery point lies between. The
/// producer has been forgotten since, so that nothing of it is needed.
fn filled(durability: Durability, outcome: Outcome) -> (Partition, MemoryStorage, Arc<ManualClock>) {
    let (storage, clock) = (MemoryStorage::new(3), Arc::new(ManualClock::at(Timestamp(1000))));
    let partition = builder(&storage, &clock, settings(durability)).open().expect("it opens");
    let long = "x".repeat(220);
    put(&partition, &[(Some("x"), Some(&long), 1)]);
    put_of(&partition, 9, 0, true, &[(Some("a"), Some("1"), 1)]);
    partition.roll().expect("rolled");
    clock.advance(Duration::from_secs(6));
    assert!(partition.maintain(clock.now()).expect("maintained").checkpointed);
    mark(&partition, 9, outcome, 1);
    put(&partition, &[(Some("a"), Some(&long), 1)]);
    put(&partition, &[(Some("c"), Some("2"), 1)]);
    partition.roll().expect("rolled");
    put(&partition, &[(Some("z"), Some("1"), 1)]);
    partition.sync().expect("synced");
    clock.advance(Duration::from_secs(1));
    partition.maintain(clock.now()).expect("maintained");
    (partition, storage, clock)
}

/// The data goes, the horizon of the marker is set, the marker goes.
fn compact(partition: &Partition) {
    (8000..8004).for_each(|millis| drop(partition.compact_all(at(millis))));
}

fn assert_decided(partition: &Partition, context: &str) {
    assert_eq!(partition.last_stable(), partition.high_watermark(), "{context}: a transaction that had ended is open");
    let keys: Vec<_> = read(partition, Isolation::Committed).into_iter().filter_map(|seen| seen.1).collect();
    assert_eq!(keys, ["x", "a", "c", "z"], "{context}");
}

#[test]
fn a_transaction_that_has_ended_is_not_open_after_a_crash() {
    for durability in [Durability::Sync, Durability::Os] {
        let (partition, storage, clock) = filled(durability, Outcome::Committed);
        compact(&partition);
        assert!(headers(&partition).iter().all(|header| header.producer_id().is_none()), "the marker is gone");
        assert_decided(&partition, "before");
        partition.reopen().expect("reopened");
        assert_decided(&partition, "after a reopen");
        for left in [storage.kill(), storage.crash(1)] {
            let partition = builder(&left, &clock, settings(durability)).open().expect("it opens");
            assert_decided(&partition, "after a crash");
        }
    }
}

/// The same where the producer has gone on, and the log is cut where that begins.
#[test]
fn a_transaction_that_has_ended_is_not_open_after_a_cut() {
    let (partition, ..) = fresh(settings(Durability::Sync).producer_id_expiration(Duration::from_secs(3600)));
    let long = "x".repeat(220);
    put(&partition, &[(Some("x"), Some(&long), 1)]);
    put_of(&partition, 9, 0, true, &[(Some("a"), Some("1"), 1)]);
    partition.roll().expect("rolled");
    mark(&partition, 9, Outcome::Committed, 1);
    put(&partition, &[(Some("a"), Some(&long), 1)]);
    put(&partition, &[(Some("c"), Some("2"), 1)]);
    partition.roll().expect("rolled");
    put_of(&partition, 9, 1, true, &[(Some("b"), Some("1"), 1)]);
    mark(&partition, 9, Outcome::Committed, 1);
    partition.roll().expect("rolled");
    put(&partition, &[(Some("z"), Some("1"), 1)]);
    compact(&partition);
    assert_eq!(shape(&partition).iter().map(|batch| batch.0).collect::<Vec<_>>(), [0, 3, 4, 5, 6, 7]);
    assert_eq!(partition.truncate_from(Offset(4), Force::Yes).expect("cut"), Offset(4));
    assert_eq!(partition.last_stable(), Offset(4));
    put(&partition, &[(Some("after"), Some("1"), 1)]);
    assert_eq!(partition.last_stable(), Offset(5));
}

/// Wherever it is interrupted. Until its marker goes, the transaction is what the log says that it is.
#[test]
fn a_transaction_that_has_ended_is_not_open_wherever_compaction_stops() {
    for outcome in [Outcome::Committed, Outcome::Aborted] {
        let (partition, storage, _) = filled(Durability::Sync, outcome);
        let begin = storage.operations();
        compact(&partition);
        let count = storage.operations() - begin;
        for number in 0..=count {
            let seed = number % 3;
            let (partition, storage, clock) = filled(Durability::Sync, outcome);
            let begin = storage.operations();
            match seed {
                0 => storage.fail_from(begin + number, Fault::Io),
                _ => storage.crash_at(begin + number),
            }
            compact(&partition);
            drop(partition);
            let left = if seed == 0 { storage.kill() } else { storage.crash(number) };
            let context = format!("{outcome:?}, operation {number}");
            let partition = builder(&left, &clock, settings(Durability::Sync)).open().expect("it opens");
            assert_eq!(partition.last_stable(), partition.high_watermark(), "{context}");
            compact(&partition);
            assert_decided(&partition, &context);
            let names = left.paths();
            assert!(names.iter().all(|path| path.extension().is_none_or(|kind| kind != "tmp")), "{context}");
        }
    }
}
