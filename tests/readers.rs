//! Readers run while the log is appended to, rolled, trimmed, truncated and deleted from: they see whole batches in
//! order, never a torn or half-published one, and the process lives. Bounded by work done, not by time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use taffrail::{
    BatchBuilder, Clock, Durability, Error, FileStorage, Force, Isolation, Offset, Partition, PartitionConfig,
    ReadOptions, Reads, Record, Retention, SystemClock, Timestamp, UpTo,
};

const BATCH: u64 = 4;

fn open(directory: &tempfile::TempDir, reads: Reads, open_files: usize) -> Partition {
    let config = PartitionConfig::new()
        .durability(Durability::Os)
        .segment_bytes(8 << 10)
        .index_interval_bytes(256)
        .retention(Retention::forever().bytes(64 << 10));
    let storage = FileStorage::new().reads(reads).open_files(open_files);
    let path = directory.path().join("wal-0");
    Partition::builder(path).config(config).storage(Arc::new(storage)).open().expect("it opens")
}

/// Each record of the batch at `base` says its own offset and the generation of the writer (how often it truncated).
fn batch(base: u64, generation: u64, builder: &mut BatchBuilder) {
    for offset in base..base + BATCH {
        let value = format!("{offset} {generation} {}", "x".repeat(usize::try_from(offset % 97).expect("small")));
        builder.push(&Record::new(&value).key("k").timestamp(Timestamp(1))).expect("small");
    }
}

/// Checks what a read gave: offsets in order without holes, each record where it says it is, batches of one generation.
fn check(fetched: &taffrail::Fetched, from: Offset) -> u64 {
    let mut due = None;
    let mut count = 0;
    for batch in fetched.batches() {
        let base = batch.header().base_offset();
        assert!(due.is_none_or(|due| due == base), "{base} follows, {due:?} was due");
        due = Some(batch.header().next_offset());
        let mut generations = batch.records().map(|record| {
            let value = record.value_str().expect("text");
            let mut words = value.split(' ');
            let offset: u64 = words.next().and_then(|word| word.parse().ok()).expect("an offset");
            assert_eq!(offset, record.offset().0);
            words.next().map(str::to_owned)
        });
        let first = generations.next();
        assert!(generations.all(|generation| Some(generation) == first), "a batch of two generations");
        count += BATCH;
    }
    assert!(fetched.batches().iter().next().is_none_or(|batch| batch.header().next_offset() > from));
    count
}

struct Shared {
    partition: Partition,
    done: AtomicBool,
    records: AtomicU64,
}

impl Shared {
    /// Follows the log until the writer is done; what is removed before it is read is skipped, as a reader is told to.
    fn follow(&self, up_to: UpTo, hold: bool) {
        let options = ReadOptions::new().isolation(Isolation::Uncommitted).up_to(up_to).max_bytes(3_000);
        let mut at = self.partition.start();
        let mut kept = Vec::new();
        while !self.done.load(Ordering::Acquire) {
            match self.partition.try_read(at, options) {
                Ok(fetched) => {
                    self.records.fetch_add(check(&fetched, at), Ordering::Relaxed);
                    let next = fetched.next_offset();
                    at = if next == at { self.partition.start() } else { next };
                    if hold && kept.len() < 50 {
                        kept.push(fetched);
                    }
                }
                Err(Error::OffsetOutOfRange { start, end, .. }) => at = start.min(end),
                Err(error) => panic!("a reader fails at {at}: {error}"),
            }
        }
        for fetched in &kept {
            check(fetched, Offset(0));
        }
    }

    fn write(&self, rounds: u64) {
        let mut builder = BatchBuilder::new();
        let mut generation = 0;
        for round in 0..rounds {
            let end = self.partition.end();
            batch(end.0, generation, &mut builder);
            self.partition.append(&mut builder).expect("appended").wait().expect("stored");
            match round % 50 {
                11 => drop(self.partition.maintain(SystemClock.now()).expect("maintained")),
                23 => self.partition.roll().expect("rolled"),
                37 => {
                    generation += 1;
                    let back = Offset(end.0.saturating_sub(round % 30 * BATCH).max(self.partition.start().0));
                    self.partition.truncate_from(back, Force::Yes).expect("truncated");
                }
                41 => drop(self.partition.trim_before(Offset(self.partition.start().0 + 6).min(end)).expect("trimmed")),
                _ => {}
            }
        }
        self.done.store(true, Ordering::Release);
    }
}

fn run(reads: Reads, open_files: usize) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let partition = open(&directory, reads, open_files);
    let shared = Shared { partition, done: AtomicBool::new(false), records: AtomicU64::new(0) };
    std::thread::scope(|scope| {
        scope.spawn(|| shared.follow(UpTo::HighWatermark, false));
        scope.spawn(|| shared.follow(UpTo::LogEnd, true));
        shared.write(6_000);
    });
    assert!(shared.records.load(Ordering::Relaxed) > 1_000, "the readers hardly read");
}

#[test]
fn mapped_reads() {
    run(Reads::Mapped, 1_000);
}

#[test]
fn buffered_reads() {
    run(Reads::Buffered, 1_000);
}

/// The files of cold segments are closed and reopened under way.
#[test]
fn with_hardly_any_open_files() {
    run(Reads::Mapped, 4);
}

/// A tailing reader is woken by the append, and by the close.
#[test]
fn a_waiting_reader_is_woken() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let partition = open(&directory, Reads::Mapped, 100);
    let (all_read, everything) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let partition = &partition;
        let reader = scope.spawn(move || {
            let options = ReadOptions::new().max_wait(Duration::from_secs(600));
            let mut at = Offset(0);
            let mut count = 0;
            while count < 100 * BATCH {
                let fetched = partition.read(at, options).expect("it waits");
                count += fetched.records().count() as u64;
                at = fetched.next_offset();
            }
            all_read.send(()).expect("the writer listens");
            assert!(matches!(partition.read(at, options), Err(Error::Closed)), "closing wakes it too");
        });
        let mut builder = BatchBuilder::new();
        for round in 0..100 {
            batch(round * BATCH, 0, &mut builder);
            partition.append(&mut builder).expect("appended").wait().expect("stored");
        }
        everything.recv().expect("the reader reads everything");
        partition.clone().close().expect("closed");
        reader.join().expect("the reader does not panic");
    });
}

/// In a synced partition nobody syncs but who needs it: a waiting reader does what falls due.
#[test]
fn a_waiting_reader_makes_an_unawaited_append_visible() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = PartitionConfig::new().durability(Durability::Sync).flush_interval(Duration::from_millis(1));
    let partition = Partition::open(directory.path().join("wal-0"), config).expect("it opens");
    let mut builder = BatchBuilder::new();
    batch(0, 0, &mut builder);
    let _ = partition.append(&mut builder).expect("appended");
    assert_eq!(partition.high_watermark(), Offset(0));
    let options = ReadOptions::new().max_wait(Duration::from_secs(600));
    let fetched = partition.read(Offset(0), options).expect("it waits");
    assert_eq!(fetched.records().count() as u64, BATCH);
    assert_eq!(partition.synced_end(), Offset(BATCH));
}
