//! The small files of a log, and the journal of its catalogue, made of arbitrary bytes: an open is an answer, it neither
//! panics nor takes much memory, and a log that opened once opens again.
//!
//! The first byte of the input says which file, and by its highest bit whether the log was closed before; the rest is
//! what the file holds, or, for a patch, the places (two bytes) and what is there (one byte).

#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use taffrail::{BatchBuilder, Log, MemoryStorage, Offset, ReadOptions, Record, Result, TopicConfig};

const FILES: [&str; 7] = [
    "data/meta.properties",
    "data/recovery-point-offset-checkpoint",
    "data/log-start-offset-checkpoint",
    "data/replication-offset-checkpoint",
    "data/cleaner-offset-checkpoint",
    CATALOGUE,
    "data/orders-0/partition.metadata",
];
const CATALOGUE: &str = "data/__taffrail_metadata-0/catalogue.taffrail";
const MARKER: &str = "data/.kafka_cleanshutdown";
/// The window of zeros behind a log is the largest thing that an open of this small log needs.
const ALLOCATION_MAX: usize = 16 << 20;

struct Bounded;

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > ALLOCATION_MAX {
            eprintln!("an allocation of {} bytes", layout.size());
            std::process::abort();
        }
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

fn open(storage: &MemoryStorage) -> Result<Log> {
    Log::builder("data").storage(storage.shared()).background(false).seed(1).open()
}

/// A closed log with two topics, a snapshot of its catalogue and a journal behind it.
fn base() -> (&'static MemoryStorage, &'static str) {
    static BASE: OnceLock<(MemoryStorage, String)> = OnceLock::new();
    let (storage, journal) = BASE.get_or_init(|| {
        let storage = MemoryStorage::new(1);
        let log = open(&storage).expect("an empty disk opens");
        log.create_topic("orders", TopicConfig::new().partitions(2)).expect("it is made");
        for number in 0..1_010 {
            log.set_topic_config("orders", TopicConfig::new().partitions(2).segment_bytes(1_000 + number))
                .expect("taken");
        }
        log.create_topic("payments", TopicConfig::new()).expect("it is made");
        let mut batch = BatchBuilder::new();
        batch.push(&Record::new("v").key("k")).expect("small");
        log.partition("orders", 0).expect("open").append(&mut batch).expect("taken").wait().expect("stored");
        log.close().expect("it closes");
        assert!(storage.bytes_of(CATALOGUE).is_some());
        let paths = storage.paths().into_iter().map(|path| path.display().to_string());
        let journal = paths.filter(|path| path.contains("__taffrail_") && path.ends_with(".log")).last();
        (storage, journal.expect("there is one"))
    });
    (storage, journal)
}

/// Other bytes at some places of a file.
fn patch(storage: &MemoryStorage, path: &str, patches: &[u8]) {
    let mut bytes = storage.bytes_of(path).expect("it is there").to_vec();
    for patch in patches.chunks_exact(3) {
        let place = usize::from(u16::from_be_bytes([patch[0], patch[1]])) % bytes.len();
        bytes[place] = patch[2];
    }
    storage.set_bytes(path, &bytes).expect("it is there");
}

fuzz_target!(|data: &[u8]| {
    let Some((which, content)) = data.split_first() else { return };
    let (base, journal) = base();
    let storage = base.snapshot();
    if which & 0x80 != 0 {
        taffrail::Storage::remove(&storage, std::path::Path::new(MARKER)).expect("it is there");
    }
    match usize::from(which & 0x0f) {
        file @ 0..7 => storage.set_bytes(FILES[file], content).expect("it is a file"),
        7 => storage.set_bytes(journal, content).expect("it is a file"),
        8 => patch(&storage, CATALOGUE, content),
        _ => patch(&storage, journal, content),
    }
    let Ok(log) = open(&storage) else { return };
    let topics = log.topics();
    for name in &topics {
        let described = log.describe_topic(name).expect("it is listed");
        for number in 0..described.partitions.len() {
            let partition = log.partition(name, u32::try_from(number).expect("small")).expect("it is open");
            drop(partition.try_read(Offset(0), ReadOptions::new()));
        }
    }
    log.close().expect("nothing fails");
    let again = open(&storage).expect("it opened before");
    assert_eq!(again.topics(), topics);
});
