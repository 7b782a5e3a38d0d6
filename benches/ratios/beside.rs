//! Appending and tailing beside other readers. Both sides use the same partition in the same way; what differs is what
//! the other thread does: it scans the oldest segments of that partition, or it makes the same scan over a raw file; it
//! holds a batch of it and sleeps, or there is none.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use taffrail::{BatchBuilder, Durability, Force, Offset, Partition, PartitionConfig, ReadOptions, Record};

use crate::measure::Side;
use crate::ours::write_log;
use crate::work::{Source, touch};

const RECORD_BYTES: usize = 1024;
const BATCH_RECORDS: usize = 100;
const SEGMENT_BYTES: u32 = 16 << 20;

/// What the thread that counts does.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    Append,
    /// Appends a batch and reads it, in turn.
    Tail,
}

/// What is beside it.
#[derive(Clone, Copy)]
pub(crate) enum Beside {
    /// A thread that scans the oldest segments at full speed.
    Scan,
    /// The same scan over a raw file.
    RawScan,
    /// A reader that holds a batch of the oldest segment, and sleeps.
    Held,
    Nothing,
}

/// A partition with `old_bytes` in its sealed segments, to which each call appends `batches` batches, which are cut off
/// again outside of the time that counts.
pub(crate) fn side(directory: &Path, old_bytes: usize, batches: usize, work: Work, beside: Beside) -> Side {
    let config = PartitionConfig::new().durability(Durability::Os).segment_bytes(SEGMENT_BYTES);
    let partition = Partition::open(directory.join("beside-0"), config).expect("a new directory opens");
    write_log(&partition, RECORD_BYTES, old_bytes);
    partition.roll().expect("it rolls");
    let old_end = partition.end();
    let raw = directory.join("raw");
    std::fs::write(&raw, vec![7; old_bytes]).expect("a file of the same size");
    Box::new(move || {
        let held = partition.read(Offset(0), ReadOptions::default()).expect("the log is sound");
        let held = matches!(beside, Beside::Held).then_some(held);
        let scanner = Scanner::start(&partition, old_end, &raw, beside);
        let started = Instant::now();
        run(&partition, batches, work);
        let time = started.elapsed();
        drop((scanner, held));
        partition.truncate_from(old_end, Force::Yes).expect("it is cut");
        time
    })
}

fn run(partition: &Partition, batches: usize, work: Work) {
    let mut source = Source::new(RECORD_BYTES);
    let mut batch = BatchBuilder::new();
    for _ in 0..batches {
        for _ in 0..BATCH_RECORDS {
            batch.push(&Record::new(source.record())).expect("the record fits");
        }
        let first = partition.append(&mut batch).expect("the partition takes the batch").offsets.start;
        if matches!(work, Work::Tail) {
            let fetched = partition.read(first, ReadOptions::default()).expect("the log is sound");
            black_box(fetched.records().map(|record| record.value().map_or(0, touch)).sum::<u64>());
        }
    }
}

/// A thread that scans until this is dropped.
struct Scanner {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Scanner {
    fn start(partition: &Partition, end: Offset, raw: &Path, beside: Beside) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, partition, raw) = (Arc::clone(&stop), partition.clone(), raw.to_owned());
        let thread = match beside {
            Beside::Scan => Some(std::thread::spawn(move || scan(&partition, end, &stopped))),
            Beside::RawScan => Some(std::thread::spawn(move || scan_raw(&raw, &stopped))),
            Beside::Held | Beside::Nothing => None,
        };
        if thread.is_some() {
            std::thread::sleep(Duration::from_millis(5)); // it is at full speed when the time begins
        }
        Self { stop, thread }
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the scan does not panic");
        }
    }
}

fn scan(partition: &Partition, end: Offset, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut offset = Offset(0);
        while offset < end && !stop.load(Ordering::Relaxed) {
            let fetched = partition.read(offset, ReadOptions::default()).expect("the log is sound");
            black_box(fetched.records().map(|record| record.value().map_or(0, touch)).sum::<u64>());
            offset = fetched.next_offset();
        }
    }
}

fn scan_raw(path: &PathBuf, stop: &AtomicBool) {
    let file = std::fs::File::open(path).expect("the file is there");
    // SAFETY: the file lies in a directory of this run alone, and nobody writes to it while it is mapped.
    let map = unsafe { memmap2::Mmap::map(&file) }.expect("the file can be mapped");
    while !stop.load(Ordering::Relaxed) {
        for block in map.chunks(256 << 10).take_while(|_| !stop.load(Ordering::Relaxed)) {
            black_box(touch(block));
        }
    }
}
