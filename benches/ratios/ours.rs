//! Our side of each row: a [`Partition`] used as a host uses it, through the public interface alone.
//!
//! Partitions are opened and closed outside of the time that counts, except where opening is what counts.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use taffrail::{
    BatchBuilder, Durability, Fetched, FileStorage, Offset, Partition, PartitionConfig, ProducerEpoch, ProducerId,
    ReadOptions, Reads, Record, RecordView, Sequence,
};

use crate::measure::Side;
use crate::raw_sync::together;
use crate::rows::read_bytes;
use crate::work::{Shape, Source, SyncShape, batch_bytes, touch};

const OS: PartitionConfig = PartitionConfig::new().durability(Durability::Os);
const SYNC: PartitionConfig = PartitionConfig::new().durability(Durability::Sync);

/// A partition that was just made, and goes with its directory.
fn fresh(path: &Path, config: PartitionConfig) -> Partition {
    Partition::open(path, config).expect("a new directory opens")
}

fn remove(path: &Path) {
    fs::remove_dir_all(path).expect("the partition's directory is there");
}

fn fill(batch: &mut BatchBuilder, source: &mut Source, records: usize) {
    for _ in 0..records {
        batch.push(&Record::new(source.record())).expect("the record fits");
    }
}

/// Appends, nobody waits.
pub(crate) fn append(directory: &Path, shape: Shape) -> Side {
    append_as(directory, shape, None)
}

/// The same as batches of an idempotent producer.
pub(crate) fn append_idempotent(directory: &Path, shape: Shape) -> Side {
    append_as(directory, shape, Some(ProducerId(1000)))
}

fn append_as(directory: &Path, shape: Shape, producer: Option<ProducerId>) -> Side {
    let path = directory.join("ours-0");
    let mut source = Source::new(shape.record_bytes);
    let mut batch = BatchBuilder::with_capacity(batch_bytes(shape.record_bytes, shape.batch_records));
    fill(&mut batch, &mut source, shape.batch_records);
    let expected = batch_bytes(shape.record_bytes, shape.batch_records);
    assert_eq!(batch.size_bytes(), expected, "the raw loop writes as many bytes");
    batch.clear();
    Box::new(move || {
        let partition = fresh(&path, OS);
        let mut next = Sequence(0);
        let started = Instant::now();
        for _ in 0..shape.batches {
            fill(&mut batch, &mut source, shape.batch_records);
            if let Some(id) = producer {
                batch.producer(id, ProducerEpoch(0), next);
                next = next.plus(u32::try_from(shape.batch_records).expect("it is small"));
            }
            let _not_waited_for = partition.append(&mut batch).expect("the partition takes the batch");
        }
        let time = started.elapsed();
        drop(partition);
        remove(&path);
        time
    })
}

/// Appends one record at a time from each thread, and waits until it is synced.
pub(crate) fn appends(directory: PathBuf, shape: SyncShape) -> Side {
    Box::new(move || {
        let paths: Vec<_> = (0..shape.files).map(|number| directory.join(format!("ours-{number}"))).collect();
        let partitions: Vec<_> = paths.iter().map(|path| fresh(path, SYNC)).collect();
        let time = together(shape.threads, |thread| {
            let partition = &partitions[thread % partitions.len()];
            let mut source = Source::new(shape.record_bytes);
            let mut batch = BatchBuilder::with_capacity(batch_bytes(shape.record_bytes, 1));
            move || {
                for _ in 0..shape.operations / shape.threads {
                    fill(&mut batch, &mut source, 1);
                    partition.append(&mut batch).expect("it is taken").wait().expect("it is synced");
                }
            }
        });
        drop(partitions);
        for path in &paths {
            remove(path);
        }
        time
    })
}

/// Writes `bytes` of records with a key of 8 bytes each, in batches of 100, and returns the log file they are in.
pub(crate) fn write_log(partition: &Partition, record_bytes: usize, bytes: usize) {
    let mut source = Source::new(record_bytes);
    let mut batch = BatchBuilder::new();
    for number in 0..bytes / record_bytes {
        batch.push(&Record::new(source.record()).key(&number.to_be_bytes())).expect("the record fits");
        if batch.len() == 100 {
            let _not_waited_for = partition.append(&mut batch).expect("the partition takes the batch");
        }
    }
}

/// A log to read, in `directory`; returns its one `.log` file.
pub(crate) fn log_to_read(directory: &Path, record_bytes: usize, bytes: usize) -> PathBuf {
    let path = directory.join("read-0");
    let partition = fresh(&path, OS);
    write_log(&partition, record_bytes, bytes);
    partition.close().expect("it closes");
    path.join("00000000000000000000.log")
}

/// Reads a log from its start to its end, and shows every record to `visit`.
fn read_through(log: &Path, reads: Reads, mut visit: impl FnMut(RecordView<'_>) -> u64 + 'static) -> Side {
    let directory = log.parent().expect("the log lies in a directory");
    let storage = Arc::new(FileStorage::new().reads(reads));
    let options = ReadOptions::new().max_bytes(read_bytes(reads));
    let partition = Partition::builder(directory).config(OS).storage(storage).open().expect("the log opens");
    Box::new(move || {
        let started = Instant::now();
        let mut offset = partition.start();
        while offset < partition.end() {
            let fetched: Fetched = partition.read(offset, options).expect("the log is sound");
            let sum = fetched.records().fold(0_u64, |sum, record| sum.wrapping_add(visit(record)));
            black_box(sum);
            offset = fetched.next_offset();
        }
        started.elapsed()
    })
}

/// Reads, and touches every byte of keys and values.
pub(crate) fn read(log: &Path, reads: Reads) -> Side {
    let of = |bytes: Option<&[u8]>| bytes.map_or(0, touch);
    read_through(log, reads, move |record| of(record.key()).wrapping_add(of(record.value())))
}

/// Reads, and looks at each key and value as a slice: where it is and how long, not what is in it.
pub(crate) fn iterate(log: &Path, reads: Reads) -> Side {
    let of = |bytes: Option<&[u8]>| bytes.map_or(0, |slice| (slice.as_ptr().addr() ^ slice.len()) as u64);
    read_through(log, reads, move |record| of(record.key()).wrapping_add(of(record.value())))
}

/// A partition that was not closed: a sealed segment below the recovery point, and behind it a tail of `tail_bytes`.
pub(crate) struct Crashed {
    directory: PathBuf,
    tail: Offset,
}

impl Crashed {
    pub(crate) fn new(directory: &Path, tail_bytes: usize) -> Self {
        let directory = directory.join("crashed-0");
        let partition = fresh(&directory, OS);
        write_log(&partition, 1024, tail_bytes);
        partition.roll().expect("it rolls");
        let tail = partition.end();
        write_log(&partition, 1024, tail_bytes);
        partition.close().expect("it closes");
        Self { directory, tail }
    }

    /// The log file that recovery has to check.
    pub(crate) fn tail_log(&self) -> PathBuf {
        self.directory.join(format!("{:020}.log", self.tail.0))
    }

    /// Leaves the directory as a process does that dies after its last sync at the tail's start.
    fn crash(&self) {
        fs::remove_file(self.directory.join(".kafka_cleanshutdown")).expect("it was closed cleanly");
        let checkpoint = format!("0\n1\ncrashed 0 {}\n", self.tail);
        fs::write(self.directory.join("recovery-point-offset-checkpoint"), checkpoint).expect("it can be written");
    }

    /// Opens it after a crash.
    pub(crate) fn open(self) -> Side {
        Box::new(move || {
            self.crash();
            let started = Instant::now();
            let partition = Partition::open(&self.directory, OS).expect("it recovers");
            let time = started.elapsed();
            assert!(!partition.recovery().clean, "it was recovered");
            time
        })
    }
}
