//! A log of many partitions, most of them idle: how long it takes to make, close and open it, what a partition keeps in
//! memory, how many files are open at most, and which operations of the disk each of them takes.
//!
//! `TAFFRAIL_MANY_PARTITIONS` says how many there are (300). Run with `--nocapture` to see the figures; those of the
//! full size are `TAFFRAIL_MANY_PARTITIONS=10000`, on a build with optimisation. Time is printed; the bound that is
//! asserted is a loose one, for most of it is the disk's.

#[path = "support/counting.rs"]
mod counting;
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use counting::live;
use support::env_count;
use taffrail::{BatchBuilder, Log, MemoryStorage, Offset, OperationKind, ReadOptions, Record, TopicConfig};

/// The directory that the child works in.
const CHILD: &str = "TAFFRAIL_MANY_PARTITIONS_CHILD";
const OPEN_FILES: usize = 1024;
const IDLE_BYTES_MAX: usize = 16 << 10;
/// Each so-manieth partition gets a record.
const USED: usize = 97;

fn timed<T>(what: &str, run: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let outcome = run();
    let took = began.elapsed();
    println!("{what}: {took:?}");
    (outcome, took)
}

/// Counts the open files until it is told to stop; answers the most there were.
fn watch_files(stop: &AtomicBool) -> usize {
    let mut most = 0;
    while !stop.load(Ordering::Relaxed) {
        most = most.max(std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count));
        std::thread::sleep(Duration::from_millis(2));
    }
    most
}

fn records_of(log: &Log, count: usize, what: &str) {
    for number in (0..count).step_by(USED) {
        let partition = log.partition("orders", u32::try_from(number).expect("small")).expect("it is open");
        let fetched = partition.read(Offset(0), ReadOptions::new()).expect("it reads");
        let values: Vec<_> = fetched.records().map(|record| record.value_str().expect("text").to_owned()).collect();
        assert_eq!(values, [number.to_string()], "{what}");
    }
}

fn child(path: &Path, count: usize) {
    let partitions = u32::try_from(count).expect("small");
    let (log, _) = timed("opened empty", || Log::open(path).expect("it opens"));
    let before = live();
    timed("created", || log.create_topic("orders", TopicConfig::new().partitions(partitions)).expect("it is made"));
    println!("each keeps {} bytes of memory once created", (live() - before) / count);
    for number in (0..count).step_by(USED) {
        let partition = log.partition("orders", u32::try_from(number).expect("small")).expect("it is open");
        let mut batch = BatchBuilder::new();
        batch.push(&Record::new(&number.to_string())).expect("small");
        partition.append(&mut batch).expect("appended").wait().expect("stored");
    }
    records_of(&log, count, "written");
    timed("closed", || log.close().expect("it closes"));

    for round in ["opened", "opened again"] {
        let before = live();
        let (log, took) = timed(round, || Log::open(path).expect("it opens"));
        let memory = live().saturating_sub(before) / count;
        println!("each keeps {memory} bytes of memory");
        assert!(memory < IDLE_BYTES_MAX, "an idle partition keeps {memory} bytes");
        let bound = Duration::from_secs(5) + Duration::from_millis(2) * partitions;
        assert!(took < bound, "{count} partitions took {took:?} to open");
        for number in 0..partitions {
            assert!(log.partition("orders", number).expect("it is open").recovery().clean);
        }
        records_of(&log, count, round);
        timed("closed untouched", || log.close().expect("it closes"));
    }
    std::fs::remove_file(path.join(".kafka_cleanshutdown")).expect("it is there");
    let (log, _) = timed("opened as after a kill", || Log::open(path).expect("it opens"));
    records_of(&log, count, "recovered");
    timed("deleted", || log.delete_topic("orders").expect("it goes"));
    log.close().expect("it closes");
}

#[test]
fn many_partitions_are_made_closed_and_opened_with_few_files() {
    let count = usize::try_from(env_count("TAFFRAIL_MANY_PARTITIONS", 300)).expect("some");
    if let Ok(path) = std::env::var(CHILD) {
        let stop = AtomicBool::new(false);
        let most = std::thread::scope(|scope| {
            let watch = scope.spawn(|| watch_files(&stop));
            child(Path::new(&path), count);
            stop.store(true, Ordering::Relaxed);
            watch.join().expect("it counts")
        });
        println!("{most} open files at most, of {OPEN_FILES}");
        assert!(most < OPEN_FILES);
        return;
    }
    let home = tempfile::tempdir().expect("a temporary directory");
    let status = Command::new("sh")
        .args(["-c", &format!("ulimit -n {OPEN_FILES}; exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().expect("a test knows its own file"))
        .args(["many_partitions_are_made_closed_and_opened_with_few_files", "--exact", "--nocapture"])
        .env(CHILD, home.path().join("data"))
        .env("TAFFRAIL_MANY_PARTITIONS", count.to_string())
        .status()
        .expect("the test starts itself");
    assert!(status.success(), "{status}");
}

/// Per partition of the topic: how often each kind of operation was asked for while `run` ran.
fn operations_of<T>(
    storage: &MemoryStorage,
    partitions: u64,
    run: impl FnOnce() -> T,
) -> (T, BTreeMap<OperationKind, u64>) {
    let before = storage.history().len();
    let outcome = run();
    let is_of_a_partition = |path: &PathBuf| path.starts_with("data") && path.to_string_lossy().contains("orders-");
    let mut counts = BTreeMap::new();
    for operation in storage.history()[before..].iter().filter(|operation| is_of_a_partition(&operation.path)) {
        *counts.entry(operation.kind).or_insert(0) += 1;
    }
    for (kind, count) in &mut counts {
        assert!(*count % partitions == 0, "{kind:?} is not done alike by all");
        *count /= partitions;
    }
    (outcome, counts)
}

fn open(storage: &MemoryStorage) -> Log {
    Log::builder("data").storage(storage.shared()).background(false).open().expect("it opens")
}

/// What an idle partition takes of the disk: each operation is a system call, or several, times ten thousand.
#[test]
fn an_idle_partition_takes_few_operations() {
    const PARTITIONS: u32 = 10;
    let syncs = |counts: &BTreeMap<OperationKind, u64>| {
        let of = |kind| counts.get(&kind).copied().unwrap_or(0);
        of(OperationKind::Sync) + of(OperationKind::SyncDirectory)
    };
    let storage = MemoryStorage::new(1);
    let log = open(&storage);
    storage.record_history();
    let count = PARTITIONS.into();
    let config = TopicConfig::new().partitions(PARTITIONS);
    let (_, created) = operations_of(&storage, count, || log.create_topic("orders", config).expect("it is made"));
    println!("to create one: {created:?}");
    let ((), closed) = operations_of(&storage, count, || log.close().expect("it closes"));
    println!("to close one that was created: {closed:?}");
    let (log, opened) = operations_of(&storage, count, || open(&storage));
    println!("to open one: {opened:?}");
    let ((), untouched) = operations_of(&storage, count, || log.close().expect("it closes"));
    println!("to close one that was opened: {untouched:?}");
    assert!(untouched.is_empty(), "closing what nobody touched: {untouched:?}");
    assert!(syncs(&opened) == 0 && !opened.keys().any(|kind| kind.changes()), "opening changes nothing: {opened:?}");
    assert!(opened.values().sum::<u64>() <= OPENED_MAX, "{opened:?}");
    assert!(syncs(&created) <= CREATED_SYNCS_MAX, "{created:?}");
    assert!(closed.is_empty(), "closing what was only created: {closed:?}");
}

/// What a clean open of one partition may ask of the disk.
const OPENED_MAX: u64 = 15;
/// How often one that is created may be synced, files and directories together.
const CREATED_SYNCS_MAX: u64 = 4;
