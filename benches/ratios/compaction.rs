//! Compaction beside a raw loop that reads a file of as many bytes, sums them (CRC-32C), writes those that stay to a
//! fresh file, and syncs it.
//!
//! Records have values of 1 KiB and keys of 16 bytes; every key comes twice, so half of the records go. What counts is
//! bytes of log that are read. Ours reads those that stay twice, once for the keys, and removes the old files within its
//! time, which the raw loop does not; the log is made anew outside of the time.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use std::hint::black_box;

use taffrail::{
    BatchBuilder, Cleanup, Clock as _, Compaction, Durability, Partition, PartitionConfig, Record, SystemClock,
};

use crate::measure::Side;
use crate::raw::crc;
use crate::work::Source;

/// The row.
pub(crate) const NAME: &str = "compact 1 KiB";
const RECORD_BYTES: usize = 1024;
const BLOCK_BYTES: usize = 1 << 20;
const CONFIG: PartitionConfig =
    PartitionConfig::new().durability(Durability::Os).cleanup(Cleanup::Compact).segment_bytes(1 << 30);

/// Makes the log anew and compacts it; answers its bytes too, and what the last compaction said.
pub(crate) fn ours(directory: &Path, records: usize) -> (u64, Side) {
    let path = directory.join("compacted-0");
    let log = made(&path, records).stats().bytes;
    let side = move || {
        let _ = fs::remove_dir_all(&path);
        let partition = made(&path, records);
        let started = Instant::now();
        let done: Compaction = partition.compact_all(SystemClock.now()).expect("it is compacted");
        let time = started.elapsed();
        assert_eq!(done.records_dropped as usize, records / 2);
        time
    };
    (log, Box::new(side))
}

/// How many bytes of memory the map takes for each key.
pub(crate) fn bytes_per_key(records: usize) -> f64 {
    let directory = tempfile::TempDir::new().expect("a temporary directory can be made");
    let partition = made(&directory.path().join("keys-0"), records);
    let done = partition.compact_all(SystemClock.now()).expect("it is compacted");
    done.map_bytes as f64 / done.keys as f64
}

fn made(path: &Path, records: usize) -> Partition {
    let partition = Partition::open(path, CONFIG).expect("a new directory opens");
    let mut source = Source::new(RECORD_BYTES);
    let mut batch = BatchBuilder::new();
    for number in 0..records {
        let key = format!("{:016}", number % (records / 2));
        batch.push(&Record::new(source.record()).key(&key)).expect("the record fits");
        if batch.len() == 100 || number + 1 == records {
            let _not_waited_for = partition.append(&mut batch).expect("the partition takes the batch");
        }
    }
    partition.roll().expect("it rolls");
    partition.sync().expect("it is synced");
    partition
}

/// Reads a file of `bytes`, sums it, writes every other block of it to a fresh one, and syncs that.
pub(crate) fn raw(directory: &Path, bytes: u64) -> Side {
    let (from, to) = (directory.join("raw-from"), directory.join("raw-to"));
    let blocks = usize::try_from(bytes).expect("it fits").div_ceil(BLOCK_BYTES);
    let mut file = File::create_new(&from).expect("the file is new");
    for number in 0..blocks {
        file.write_all(&vec![u8::try_from(number % 251).expect("small"); BLOCK_BYTES]).expect("it is written");
    }
    file.sync_all().expect("it is synced");
    let mut buffer = vec![0; BLOCK_BYTES];
    Box::new(move || {
        let _ = fs::remove_file(&to);
        let started = Instant::now();
        let file = File::open(&from).expect("it is there");
        let mut out = File::create_new(&to).expect("the file is new");
        for number in 0..blocks {
            file.read_exact_at(&mut buffer, (number * BLOCK_BYTES) as u64).expect("it is readable");
            black_box(crc(&buffer));
            if number % 2 == 1 {
                out.write_all(&buffer).expect("it is written");
            }
        }
        out.sync_data().expect("it is synced");
        started.elapsed()
    })
}
