//! The disk fails at every operation, one at a time: no space, an I/O error, a short write, a failed sync. The call
//! that ran into it says so; nothing that was acknowledged is lost; after a reopen the partition goes on.

#[path = "support/ledger.rs"]
mod ledger;

use std::sync::{Arc, Barrier};
use std::time::Duration;

use ledger::{Ledger, content};
use taffrail::{
    BatchBuilder, Clock, Durability, Error, ErrorKind, Fault, Force, ManualClock, MemoryStorage, Offset, OperationKind,
    Partition, PartitionConfig, ReadOptions, Record, Result, Retention, Timestamp,
};

const DIRECTORY: &str = "data/wal-0";

fn open(storage: &MemoryStorage, durability: Durability) -> Result<Partition> {
    let config = PartitionConfig::new()
        .durability(durability)
        .segment_bytes(700)
        .index_interval_bytes(100)
        .checkpoint_interval(Duration::from_secs(1))
        .retention(Retention::forever().bytes(1_600));
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    Partition::builder(DIRECTORY).config(config).storage(storage.shared()).clock(clock).open()
}

/// One step of the workload, which is tried again where it fails. After a failure that poisons, the partition is
/// reopened.
struct Steps {
    storage: MemoryStorage,
    durability: Durability,
    ledger: Ledger,
    failures: u64,
}

impl Steps {
    fn until_it_works<T>(&mut self, partition: &Partition, mut step: impl FnMut(&Partition) -> Result<T>) -> T {
        for _ in 0..4 {
            match step(partition) {
                Ok(done) => return done,
                Err(error) => self.recover(partition, &error),
            }
        }
        panic!("a fault that comes once is met four times");
    }

    fn recover(&mut self, partition: &Partition, error: &Error) {
        self.failures += 1;
        match error.kind() {
            ErrorKind::Reopen => {
                while partition.reopen().is_err() {
                    self.failures += 1;
                    assert!(self.failures < 10, "it never reopens");
                }
            }
            ErrorKind::Retry => {}
            kind => panic!("a failing disk is {kind:?}: {error}"),
        }
        self.ledger.check(partition);
    }

    fn append(&mut self, partition: &Partition, records: u64, bytes: usize) {
        for _ in 0..4 {
            let (mut batch, values) = self.ledger.batch(records, bytes);
            self.ledger.attempt(partition.end(), &values);
            let outcome = partition.append(&mut batch).and_then(|appended| {
                let at = appended.offsets.start;
                appended.wait().map(|()| at)
            });
            match outcome {
                Ok(at) => {
                    self.ledger.acknowledge(at, &values);
                    self.ledger.look(partition);
                    return;
                }
                Err(error) => self.recover(partition, &error),
            }
        }
        panic!("a fault that comes once is met four times");
    }

    fn open(&mut self) -> Partition {
        for _ in 0..4 {
            match open(&self.storage, self.durability) {
                Ok(partition) => return partition,
                Err(_) => self.failures += 1,
            }
        }
        panic!("a fault that comes once is met four times");
    }

    fn run(&mut self) {
        let clock = ManualClock::at(Timestamp(1_000_000));
        let partition = self.open();
        for _ in 0..3 {
            self.append(&partition, 1, 40);
            self.append(&partition, 3, 100);
            self.append(&partition, 1, 300);
            let (mut batch, values) = self.ledger.batch(1, 200);
            self.ledger.attempt(partition.end(), &values);
            if partition.append(&mut batch).is_err() && partition.sync().is_err() {
                while partition.reopen().is_err() {}
            }
            let cut = partition.high_watermark();
            self.until_it_works(&partition, |partition| {
                partition.truncate_from(cut.min(partition.end()), Force::No).map(drop).or_else(|error| match error {
                    // A reopen has made it visible meanwhile.
                    Error::BelowHighWatermark { .. } => Ok(()),
                    other => Err(other),
                })
            });
            self.append(&partition, 2, 70);
            clock.advance(Duration::from_secs(2));
            self.ledger.start_at_most = partition.end().0;
            self.until_it_works(&partition, |partition| partition.maintain(clock.now()));
            self.ledger.start_at_least = partition.start().0;
        }
        self.ledger.check(&partition);
        drop(partition.close());
        let partition = self.open();
        self.ledger.check(&partition);
    }
}

fn every_operation(durability: Durability, fault: Fault) {
    let run = |fail_at: Option<u64>| {
        let storage = MemoryStorage::new(fail_at.unwrap_or_default());
        if let Some(number) = fail_at {
            storage.fail_at(number, fault);
        }
        let mut steps = Steps { storage, durability, ledger: Ledger::default(), failures: 0 };
        steps.run();
        (steps.storage.operations(), steps.failures)
    };
    let (total, failures) = run(None);
    assert_eq!(failures, 0, "without a fault nothing fails");
    let met: u64 = (0..total).map(|number| run(Some(number)).1).sum();
    assert!(met > 10, "{fault:?} was met {met} times only");
}

#[test]
fn no_space() {
    every_operation(Durability::Sync, Fault::NoSpace);
    every_operation(Durability::Os, Fault::NoSpace);
}

#[test]
fn io_errors() {
    every_operation(Durability::Sync, Fault::Io);
    every_operation(Durability::Os, Fault::Io);
}

#[test]
fn short_writes() {
    every_operation(Durability::Sync, Fault::ShortWrite(7));
    every_operation(Durability::Os, Fault::ShortWrite(7));
}

#[test]
fn failed_syncs() {
    every_operation(Durability::Sync, Fault::SyncFails);
}

fn append(partition: &Partition, value: &str) -> Result<Offset> {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new(value).key("k").timestamp(Timestamp(1)))?;
    let appended = partition.append(&mut batch)?;
    let offset = appended.offsets.start;
    appended.wait().map(|()| offset)
}

fn fail_the_next_sync(storage: &MemoryStorage) {
    storage.fail_when(|operation| (operation.kind == OperationKind::Sync).then_some(Fault::SyncFails));
}

/// A failed sync fences: whoever writes, waits or closes gets the failure, readers go on.
#[test]
fn a_failed_sync_fences_until_reopen() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage, Durability::Sync).expect("it opens");
    append(&partition, "safe").expect("stored");
    fail_the_next_sync(&storage);
    let error = append(&partition, "lost or not").expect_err("the sync fails");
    assert_eq!(error.kind(), ErrorKind::Reopen, "{error}");
    storage.clear_faults();
    for again in [append(&partition, "more").map(drop), partition.sync(), partition.roll()] {
        assert!(matches!(again, Err(Error::Poisoned { .. })), "{again:?}");
    }
    assert_eq!(partition.high_watermark(), Offset(1));
    assert_eq!(partition.read(Offset(0), ReadOptions::new()).expect("readers go on").records().count(), 1);
    partition.reopen().expect("the disk is well again");
    assert_eq!(partition.high_watermark(), partition.end());
    append(&partition, "more").expect("stored");
}

/// Reading back proves nothing after a failed sync: what is acknowledged after the reopen survives a loss of power.
#[test]
fn what_is_acknowledged_after_a_failed_sync_survives() {
    for seed in 0..64 {
        let storage = MemoryStorage::new(seed);
        let partition = open(&storage, Durability::Sync).expect("it opens");
        append(&partition, "first").expect("stored");
        fail_the_next_sync(&storage);
        append(&partition, "unknown").expect_err("the sync fails");
        storage.clear_faults();
        partition.reopen().expect("the disk is well again");
        let kept = partition.end();
        append(&partition, "after").expect("stored");
        let before = content(&partition);
        let survivor = storage.crash(seed);
        let partition = open(&survivor, Durability::Sync).expect("it reopens");
        assert_eq!(content(&partition), before, "seed {seed}");
        assert_eq!(partition.end(), kept.plus(1));
    }
}

/// Every waiter of a sync that fails is woken with the error.
#[test]
fn every_waiter_gets_the_failure() {
    const THREADS: usize = 8;
    let storage = MemoryStorage::new(1);
    let partition = open(&storage, Durability::Sync).expect("it opens");
    append(&partition, "safe").expect("stored");
    fail_the_next_sync(&storage);
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                let error = append(&partition, "lost or not").expect_err("every sync fails");
                assert!(matches!(error, Error::Poisoned { .. }), "{error}");
            });
        }
    });
}

/// A full disk: appends say so, nothing is half there, and when there is space again the log goes on.
#[test]
fn a_full_disk_is_waited_out() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage, Durability::Os).expect("it opens");
    append(&partition, "before").expect("stored");
    storage.fill_up();
    for _ in 0..3 {
        let error = append(&partition, "no room").expect_err("the disk is full");
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    }
    storage.free();
    assert_eq!(append(&partition, "after").expect("there is room"), Offset(1));
    let values: Vec<_> = content(&partition).into_values().flatten().collect();
    assert_eq!(values, [b"before".to_vec(), b"after".to_vec()]);
}

/// A partition that failed does not say that it was closed cleanly.
#[test]
fn a_poisoned_partition_leaves_no_clean_marker() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage, Durability::Sync).expect("it opens");
    fail_the_next_sync(&storage);
    append(&partition, "lost or not").expect_err("the sync fails");
    storage.clear_faults();
    assert!(matches!(partition.close(), Err(Error::Poisoned { .. })));
    let partition = open(&storage, Durability::Sync).expect("it opens again");
    assert!(!partition.recovery().clean);
}
