//! Our side of the producer's rows: a [`Log`] with its threads, used as a service uses it; and the raw loops beside it.
//!
//! * One partition: the raw loop is that of `raw.rs`, which copies, sums and writes each record by itself.
//! * 200 partitions: the raw loop copies each record into the buffer of its file, and sums and writes a buffer when it
//!   has as many bytes as the producer's batches.

use std::fs::File;
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use taffrail::{Durability, Log, Record, TopicConfig};

use crate::measure::Side;
use crate::raw::crc;
use crate::work::Source;

const TOPIC: &str = "events";
const RECORD_BYTES: usize = 1024;
/// What a producer gathers in a batch unless it is told otherwise.
const BATCH_BYTES: usize = 16 << 10;

/// Sends `records` records of 1 KiB, with keys over all partitions or to the one that is there; nobody waits for one,
/// the flush at the end counts.
pub(crate) fn send(directory: &Path, partitions: u32, records: usize, idempotent: bool) -> Side {
    let path = directory.join("log");
    let mut source = Source::new(RECORD_BYTES);
    let keys: Vec<_> = (0..10_000_u32).map(|number| format!("customer-{number}")).collect();
    Box::new(move || {
        let log = Log::open(&path).expect("a new directory opens");
        let config = TopicConfig::new().partitions(partitions).durability(Durability::Os);
        log.create_topic(TOPIC, config).expect("the topic is new");
        let producer = log.producer().idempotent(idempotent).open().expect("the settings are sound");
        let started = Instant::now();
        for number in 0..records {
            let record = Record::new(source.record());
            let record = if partitions > 1 { record.key(&keys[place(number, keys.len())]) } else { record };
            let _not_waited_for = producer.send(TOPIC, record).expect("the record is taken");
        }
        producer.flush().expect("everything is appended");
        let time = started.elapsed();
        drop((producer, log));
        std::fs::remove_dir_all(&path).expect("the log's directory is there");
        time
    })
}

/// The same records into as many files, in blocks of the producer's batch size.
pub(crate) fn write(directory: &Path, files: usize, records: usize) -> Side {
    let directory = directory.to_owned();
    let mut source = Source::new(RECORD_BYTES);
    Box::new(move || {
        let path = |number: usize| directory.join(format!("raw-{number}"));
        let mut open: Vec<_> = (0..files).map(|number| File::create_new(path(number)).expect("it is new")).collect();
        let mut buffers: Vec<Vec<u8>> = (0..files).map(|_| Vec::with_capacity(BATCH_BYTES)).collect();
        let mut put = |file: usize, buffer: &mut Vec<u8>| {
            black_box(crc(buffer));
            open[file].write_all(buffer).expect("the file takes the block");
            buffer.clear();
        };
        let started = Instant::now();
        for number in 0..records {
            let file = place(number, files);
            if buffers[file].len() + RECORD_BYTES > BATCH_BYTES {
                put(file, &mut buffers[file]);
            }
            buffers[file].extend_from_slice(source.record());
        }
        buffers.iter_mut().enumerate().for_each(|(file, buffer)| put(file, buffer));
        let time = started.elapsed();
        (0..files).for_each(|number| std::fs::remove_file(path(number)).expect("the file is there"));
        time
    })
}

/// Which of `count` places a record goes to: all of them, in an order that is none.
const fn place(number: usize, count: usize) -> usize {
    number.wrapping_mul(7919) % count
}
