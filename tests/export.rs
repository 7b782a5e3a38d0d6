//! A copy of an open partition: it is the log as it was at one moment, or it does not open.

#[path = "support/hooked.rs"]
mod hooked;
#[path = "support/wal.rs"]
mod wal;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use hooked::{At, Hooked};
use taffrail::{
    Commits, Error, ErrorKind, Fault, FileStorage, Force, Isolation, Marker, MemoryStorage, Offset, OperationKind,
    Outcome, Partition, ProducerEpoch, ProducerId, ReadOptions, Sequence, Storage, Timestamp, marker_batch,
    set_base_offset,
};
use wal::{append, append_replica, batch, config, everything, open, try_open};

const COPY: &str = "data/copy-0";
/// How many segments of the log in a race are linked; the last is copied.
const LINKS: usize = 4;

fn open_copy(storage: Arc<dyn Storage>, copy: &Path) -> taffrail::Result<Partition> {
    Partition::builder(copy).config(config()).storage(storage).open()
}

/// What an export begins with, and where a truncation comes in between.
struct Race {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    copy: PathBuf,
    /// A link, or the creation of a copy.
    at: At,
    /// Which one of them, from 0.
    number: usize,
    /// How long a link waits for what may not come in between.
    patience: Duration,
}

/// A record of the log, before it is cut or behind that: of the same length, so that the segments are too.
fn record(age: &str, number: u64) -> String {
    format!("{age} {number} {}", "v".repeat(100))
}

impl Race {
    /// Exports 40 records; meanwhile the log is cut to `kept` and appended to, and again afterwards.
    fn run(&self, kept: u64, append_again: fn(&Partition)) {
        let hooked = Hooked::new(Arc::clone(&self.storage));
        let source = Partition::builder(&self.directory).config(config()).storage(hooked.shared()).open();
        let source = source.expect("it opens");
        for number in 0..40 {
            append(&source, 1, &record("old", number));
        }
        let expected = everything(&source).expect("readable");
        let (other, copy, at, patience) = (source.clone(), self.copy.clone(), self.at, self.patience);
        let mut left = self.number + 1;
        let running = Arc::new(Mutex::new(Vec::new()));
        let threads = Arc::clone(&running);
        hooked.set_one_at_a_time(at, move |path| {
            let is_one = path.starts_with(&copy) && path.extension().is_some_and(|e| e == "log");
            if is_one && left > 0 {
                left -= 1;
                if left == 0 {
                    let other = other.clone();
                    let (done, cut) = mpsc::channel();
                    threads.lock().expect("no panic").push(std::thread::spawn(move || {
                        other.truncate_from(Offset(kept), Force::Yes).expect("truncated");
                        append_again(&other);
                        drop(done);
                    }));
                    // A copy is made beside the truncation. A link is made under the lock that this waits for, and
                    // held for so long, the lock goes to whoever waits for it.
                    let patience = if at == At::Link { patience } else { Duration::MAX };
                    let _: Result<(), _> = cut.recv_timeout(patience);
                }
            }
        });
        let exported = source.export(&self.copy);
        hooked.clear();
        let threads = std::mem::take(&mut *running.lock().expect("no panic"));
        assert_eq!(threads.len(), 1, "it came in between");
        for thread in threads {
            thread.join().expect("no panic");
        }
        append(&source, 1, &"new after the copy".repeat(20));
        append(&source, 1, "new after the copy");
        match (exported, open_copy(Arc::clone(&self.storage), &self.copy)) {
            (Ok(end), Ok(copy)) => {
                assert_eq!((end, copy.end()), (Offset(40), Offset(40)));
                assert_eq!(everything(&copy).expect("readable"), expected);
            }
            (Err(error), Err(refused)) => {
                assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
                assert!(matches!(refused, Error::UnfinishedExport { .. }), "{refused}");
            }
            (exported, opened) => panic!("exported: {exported:?}, then opened: {opened:?}"),
        }
    }
}

/// Runs a race on a disk and in memory.
fn race(at: At, number: usize, patience: Duration, kept: u64, append_again: fn(&Partition)) {
    let memory = MemoryStorage::new(1);
    let (directory, copy) = (PathBuf::from("data/wal-0"), PathBuf::from(COPY));
    Race { storage: memory.shared(), directory, copy, at, number, patience }.run(kept, append_again);
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let (directory, copy) = (temporary.path().join("wal-0"), temporary.path().join("copy-0"));
    Race { storage: Arc::new(FileStorage::new()), directory, copy, at, number, patience }.run(kept, append_again);
}

/// A truncation beside an export: the copy had segments of after the truncation, or shared a file that was appended to,
/// and was called cleanly closed.
#[test]
fn a_truncation_beside_an_export() {
    for (at, number) in (0..LINKS).map(|number| (At::Link, number)).chain([(At::Create, 0)]) {
        for kept in [3, 39] {
            race(at, number, Duration::from_millis(5), kept, |source| {
                append(source, 1, "new before the copy");
            });
        }
    }
}

/// The same where everything is written again before the link is made, so that all names are as before. A link that did
/// not keep the truncation waiting would be one to a file of after it.
#[test]
fn a_truncation_beside_an_export_that_leaves_all_names() {
    for number in 0..LINKS {
        race(At::Link, number, Duration::from_millis(200), 3, |source| {
            for number in source.end().0..40 {
                append(source, 1, &record("new", number));
            }
        });
    }
}

/// Power failed in the midst of an export: what was there of the copy opened, with a hole, or with
/// records that had been trimmed away.
#[test]
fn an_interrupted_export_does_not_open() {
    let prepared = |seed| {
        let storage = MemoryStorage::new(seed);
        let partition = open(&storage, config());
        for number in 0..50 {
            append(&partition, 1, &format!("{number} {}", "v".repeat(100)));
        }
        partition.trim_before(Offset(3)).expect("trimmed");
        (storage, partition)
    };
    let operations = {
        let (storage, partition) = prepared(0);
        let before = storage.operations();
        partition.export(COPY).expect("exported");
        storage.operations() - before
    };
    let (mut refused, mut complete) = (0, 0);
    for later in 0..operations + 2 {
        for seed in 0..12 {
            let (storage, partition) = prepared(seed);
            let expected = everything(&partition).expect("readable");
            storage.crash_at(storage.operations() + later);
            let exported = partition.export(COPY).is_ok();
            let storage = storage.crash(seed);
            assert_eq!(everything(&open(&storage, config())).expect("readable"), expected);
            match try_open(&storage, COPY, config()) {
                Ok(copy) => {
                    let found = everything(&copy).expect("readable");
                    let is_new = copy.end() == Offset(0) && later < 30;
                    assert!(found == expected && copy.start() == Offset(3) || is_new, "{later}, {seed}: {found:?}");
                    complete += u64::from(!is_new);
                }
                Err(error) => {
                    assert!(matches!(error, Error::UnfinishedExport { .. }), "{error}");
                    assert_eq!(error.kind(), ErrorKind::Fix);
                    assert!(error.to_string().contains("remove"), "{error}");
                    refused += 1;
                    assert!(!exported, "operation {later}, seed {seed}");
                }
            }
        }
    }
    assert!(refused > 100 && complete > 0, "{refused} refused, {complete} complete");
}

/// An export that failed leaves a directory that neither opens nor takes another export.
#[test]
fn a_failed_export_is_not_opened() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage, config());
    for _ in 0..50 {
        append(&partition, 1, &"v".repeat(100));
    }
    storage.fail_when(|operation| {
        let is_history = operation.path.to_string_lossy().contains("copy-0/history");
        (operation.kind == OperationKind::Create && is_history).then_some(Fault::NoSpace)
    });
    partition.export(COPY).expect_err("the disk is full");
    storage.clear_faults();
    let error = try_open(&storage, COPY, config()).expect_err("it is not complete");
    assert!(matches!(error, Error::UnfinishedExport { .. }), "{error}");
    let error = partition.export(COPY).expect_err("there is something");
    assert_eq!(error.kind(), ErrorKind::Fix, "{error}");
    for path in storage.paths().iter().filter(|path| path.starts_with(COPY)) {
        storage.shared().remove(path).expect("removed");
    }
    partition.export(COPY).expect("exported");
    assert_eq!(try_open(&storage, COPY, config()).expect("it opens").end(), Offset(50));
}

/// The end of a transaction that came while its records were exported was in the copy's index, without the marker: what
/// the copy then committed stayed hidden.
#[test]
fn an_abort_behind_the_copys_end_is_not_in_it() {
    let marker = |partition: &Partition, outcome| {
        let (producer_id, producer_epoch) = (ProducerId(7), ProducerEpoch(0));
        let marker = Marker { outcome, producer_id, producer_epoch, coordinator_epoch: 0, timestamp: Timestamp(1) };
        let mut bytes = marker_batch(&marker);
        set_base_offset(&mut bytes, partition.end());
        append_replica(partition, &bytes).expect("stored");
    };
    let memory = MemoryStorage::new(1);
    let hooked = Hooked::new(memory.shared());
    let config = || config().commits(Commits::WhenStored);
    let source = Partition::builder("data/wal-0").config(config()).storage(hooked.shared()).open().expect("it opens");
    let mut records = batch(3, "t");
    records.producer(ProducerId(7), ProducerEpoch(0), Sequence(0));
    records.transactional(true);
    source.append(&mut records).expect("appended").wait().expect("stored");
    let other = source.clone();
    let mut is_due = true;
    hooked.set_one_at_a_time(At::Create, move |path| {
        let is_log = path.starts_with(COPY) && path.extension().is_some_and(|e| e == "log");
        if is_log && std::mem::take(&mut is_due) {
            marker(&other, Outcome::Aborted);
        }
    });
    assert_eq!(source.export(COPY).expect("exported"), Offset(3));
    hooked.clear();
    let copy = open_copy(memory.shared(), Path::new(COPY)).expect("it opens");
    assert_eq!((copy.end(), copy.last_stable()), (Offset(3), Offset(0)));
    marker(&copy, Outcome::Committed);
    let fetched = copy.read(Offset(0), ReadOptions::new().isolation(Isolation::Committed)).expect("readable");
    assert_eq!(fetched.records().count(), 3);
}
