//! A round of a compaction: what ends it, what a call to the end does beside one that is under way, what its exchange costs,
//! and what becomes of what fails.

mod support {
    pub(crate) mod compacted;
}

use std::time::Duration;

use support::compacted::*;
use taffrail::{
    CleanerConfig, Cleanup, Clock, Compacting, CompactionEnd, Error, ErrorKind, Fault, MemoryStorage, OperationKind,
    Partition, Timestamp,
};

/// Twenty records of three keys in four segments, from `first` on.
fn fill(partition: &Partition, first: u64) {
    for n in first..first + 20 {
        put(partition, &[(Some(&format!("k{}", n % 3)), Some(&format!("{n}")), 1)]);
        if n % 5 == 4 {
            partition.roll().expect("rolled");
        }
    }
}

fn begin(partition: &Partition) {
    assert!(matches!(partition.compact(at(1000), 1).expect("begun"), Compacting::Working { .. }));
}

/// Steps until a round ends or nothing is due.
fn end(partition: &Partition) -> Option<CompactionEnd> {
    loop {
        match partition.compact(at(1000), 1).expect("it goes on") {
            Compacting::Ended(ended) => return Some(ended.end),
            Compacting::Idle => return None,
            _ => {}
        }
    }
}

fn leftovers(storage: &MemoryStorage) -> usize {
    storage.paths().iter().filter(|path| path.extension().is_some_and(|kind| kind == "cleaned")).count()
}

/// A topic that is not compacted any more kept losing records to the round that was under way.
#[test]
fn another_policy_ends_what_is_under_way() {
    for steps in 1..12 {
        let (partition, storage, clock) = fresh(config());
        fill(&partition, 0);
        (0..steps).for_each(|_| begin(&partition));
        let before = lines(&partition);
        partition.set_config(config().cleanup(Cleanup::Delete)).expect("set");
        if steps % 2 == 0 {
            let done = partition.maintain(clock.now()).expect("maintained").compacted.expect("it is given up");
            assert_eq!(done.end, CompactionEnd::Interrupted);
        } else {
            assert_eq!(end(&partition), Some(CompactionEnd::Interrupted));
        }
        assert_eq!(leftovers(&storage), 0);
        assert_eq!((end(&partition), lines(&partition)), (None, before), "after {steps} steps");
        assert!(matches!(partition.compact_all(at(1000)), Err(Error::Policy(_))));
    }
}

/// Records that are to stay as they are for a longer time than the round knows of.
#[test]
fn a_longer_lag_ends_what_is_under_way() {
    let (partition, ..) = fresh(config());
    fill(&partition, 0);
    begin(&partition);
    partition.set_config(config().min_compaction_lag(Duration::from_secs(1))).expect("set");
    assert_eq!(end(&partition), Some(CompactionEnd::Interrupted));
    assert_eq!((end(&partition), lines(&partition).len()), (None, 20), "all of it is too young");
    partition.set_config(config().min_compaction_lag(Duration::from_millis(10))).expect("set");
    begin(&partition);
    partition.set_config(config()).expect("set");
    assert_eq!(end(&partition), Some(CompactionEnd::Complete), "a shorter one takes nothing from it");
}

/// Deletions that are to stay for a longer time than the round gives them.
#[test]
fn a_longer_retention_of_deletions_ends_what_is_under_way() {
    let with = |millis| config().delete_retention(Duration::from_millis(millis));
    let (partition, ..) = fresh(with(100));
    put(&partition, &[(Some("a"), None, 1)]);
    partition.roll().expect("rolled");
    begin(&partition);
    partition.set_config(with(200)).expect("set");
    assert_eq!(end(&partition), Some(CompactionEnd::Interrupted));
    assert_eq!(end(&partition), Some(CompactionEnd::Complete));
    assert_eq!(headers(&partition)[0].delete_horizon(), Some(Timestamp(1200)));
}

/// What was sealed behind the begin of a round was left as it was by a call that answered `Complete`.
#[test]
fn a_call_to_the_end_goes_on_behind_what_it_finds_under_way() {
    let (partition, ..) = fresh(config());
    fill(&partition, 0);
    begin(&partition);
    fill(&partition, 20);
    let done = partition.compact_all(at(1000)).expect("compacted");
    assert_eq!((done.end, done.cleaned_to.0, done.rounds), (CompactionEnd::Complete, 40, 2));
    assert_eq!(lines(&partition), ["37 k1 37", "38 k2 38", "39 k0 39"]);
}

/// Whoever appends waits for an exchange: for as few syncs as it can do with, however many segments there are.
#[test]
fn an_exchange_of_many_segments_has_few_syncs() {
    let syncs = |segment_bytes: u32| {
        let (partition, storage, _) = fresh(config());
        for n in 0..60_u64 {
            put(&partition, &[(Some(&format!("key-{n}")), Some(&"v".repeat(100)), 1)]);
        }
        partition.roll().expect("rolled");
        partition.set_config(config().segment_bytes(segment_bytes)).expect("set");
        storage.record_history();
        let done = partition.compact_all(at(1000)).expect("compacted");
        let count = storage.history().iter().filter(|one| one.kind == OperationKind::SyncDirectory).count();
        assert_eq!(done.segments_before, 1);
        (done.segments_after, count)
    };
    let ((one, few), (many, most)) = (syncs(1 << 20), syncs(500));
    assert!(one == 1 && many >= 20, "{many} segments");
    assert!(most <= few + 1, "{few} syncs for one segment, {most} for {many}");
}

/// One error of a disk left a partition alone until it was reopened, although the error said that it may pass.
#[test]
fn what_may_pass_is_tried_again() {
    let (partition, storage, clock) = fresh(config());
    fill(&partition, 0);
    storage.fail_at(storage.operations() + 1, Fault::Io);
    let failed = partition.compact_all(clock.now()).expect_err("the disk has failed");
    assert_eq!(failed.kind(), ErrorKind::Retry);
    assert!(matches!(partition.compaction_error(), Some(Error::Io { .. })), "it is said");
    assert_eq!(partition.compact(clock.now(), 1).expect("not yet"), Compacting::Idle);
    clock.advance(CleanerConfig::new().backoff);
    assert!(matches!(partition.compact(clock.now(), 1), Ok(Compacting::Working { .. })));
    assert_eq!(end(&partition), Some(CompactionEnd::Complete));
    assert!(partition.compaction_error().is_none() && lines(&partition).len() == 3);
}

#[test]
fn what_does_not_pass_is_not_tried_for_ever() {
    let (partition, storage, clock) = fresh(config());
    fill(&partition, 0);
    storage.fail_when(|operation| (operation.kind == OperationKind::Create).then_some(Fault::Io));
    storage.record_history();
    let tries = || storage.history().iter().filter(|one| one.kind == OperationKind::Create).count();
    let mut tried_at = Vec::new();
    for pause in 0..200 {
        let before = tries();
        clock.advance(CleanerConfig::new().backoff);
        assert!(!matches!(partition.compact(clock.now(), 1 << 20), Ok(Compacting::Ended(_))));
        tried_at.extend((tries() > before).then_some(pause));
    }
    assert_eq!(tried_at, [0, 1, 3, 6, 10, 15, 21, 28, 36, 45], "with pauses that grow, and then not any more");
    storage.clear_faults();
    assert!(matches!(partition.compact_all(at(1)), Err(Error::Io { .. })), "until it is reopened");
    partition.reopen().expect("reopened");
    partition.roll().expect("rolled");
    partition.compact_all(at(1)).expect("compacted");
    assert_eq!(lines(&partition).len(), 3);
}

/// No checksum covers the leader epoch of a batch, and what was copied would have stood in a place of its own.
#[test]
fn another_leader_epoch_is_noticed() {
    let (partition, storage, clock) = fresh(config());
    fill(&partition, 0);
    storage.flip_bit(format!("{PATH}/00000000000000000005.log"), 15, 1).expect("it is there");
    let failed = partition.compact_all(clock.now()).expect_err("it is damaged");
    assert!(matches!(failed, Error::Corrupt { .. }), "{failed}");
    assert_eq!(partition.stats().segments, 5, "nothing is exchanged");
}

/// A look reads the headers of a sealed segment once.
#[test]
fn a_look_at_what_is_not_due_reads_nothing_twice() {
    let lag = Duration::from_millis(1);
    let config = config().min_compaction_lag(lag).max_compaction_lag(Some(Duration::from_secs(1_000_000)));
    let (partition, storage, clock) = fresh(config);
    fill(&partition, 0);
    partition.compact_all(clock.now()).expect("compacted");
    put(&partition, &[(Some("k0"), Some("more"), 1)]);
    partition.roll().expect("rolled");
    assert_eq!(partition.compact(clock.now(), 1).expect("looked"), Compacting::Idle);
    let before = storage.operations();
    for _ in 0..100 {
        assert_eq!(partition.compact(clock.now(), 1).expect("looked"), Compacting::Idle);
    }
    assert_eq!(storage.operations(), before);
    assert_eq!(clock.wall(), Timestamp(1000));
}
