//! Many partitions, most of them idle: what one costs in memory, and how long it takes to open.
//!
//! `TAFFRAIL_IDLE_PARTITIONS` says how many are opened for the figures (200), `TAFFRAIL_IDLE_BYTES` how large the one
//! large log is (32 MiB). Run with `--nocapture` to see the figures; those of the full size are
//! `TAFFRAIL_IDLE_PARTITIONS=10000 TAFFRAIL_IDLE_BYTES=209715200`, on a build with optimisation. Time is printed and
//! not asserted: most of it is the disk's, which has to make durable that the partition is in use again.

#[path = "support/counting.rs"]
mod counting;
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use counting::live;
use support::env_count;
use taffrail::{
    BatchBuilder, Clock, Durability, ManualClock, MemoryStorage, Offset, Operation, OperationKind, Partition,
    PartitionConfig, ReadOptions, Record, Timestamp,
};

/// What an idle partition may keep.
const IDLE_BYTES_MAX: usize = 16 << 10;
/// How many partitions are open at a time: each keeps its lock and some files.
const WAVE: usize = 100;

/// Tests that count memory run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Resident bytes of this process that are not pages of files, where the system says so.
fn resident() -> Option<usize> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages = |field: usize| text.split(' ').nth(field)?.parse::<usize>().ok();
    Some(4096 * (pages(1)? - pages(2)?))
}

fn config() -> PartitionConfig {
    PartitionConfig::new().durability(Durability::Os)
}

fn open(path: &Path, clock: &Arc<ManualClock>) -> Partition {
    let builder = Partition::builder(path).config(config()).clock(Arc::clone(clock) as Arc<dyn Clock>);
    builder.open().expect("it opens")
}

fn append(partition: &Partition, batch: &mut BatchBuilder, value: &[u8]) {
    batch.push(&Record::new(&value).key("k").timestamp(Timestamp(1))).expect("small");
    partition.append(batch).expect("appended").wait().expect("stored");
}

/// Lets a partition have been idle for long enough.
fn idle(partition: &Partition, clock: &Arc<ManualClock>) {
    partition.maintain(clock.now()).expect("maintained");
    clock.advance(Duration::from_secs(60));
    assert!(partition.maintain(clock.now()).expect("maintained").index_dropped);
}

/// Makes a partition with `bytes` of log in batches of 16 KiB, closed. Answers the bytes in use when it had become
/// idle.
fn make(path: &Path, bytes: u64) -> usize {
    let clock = Arc::new(ManualClock::at(Timestamp(1)));
    let (mut batch, value) = (BatchBuilder::new(), vec![b'x'; 20_000]);
    batch.push(&Record::new(&value)).expect("small");
    batch.clear();
    let before = live();
    let partition = open(path, &clock);
    let value = &value[..1000];
    while partition.stats().bytes < bytes {
        for _ in 0..15 {
            batch.push(&Record::new(value).key("k").timestamp(Timestamp(1))).expect("small");
        }
        append(&partition, &mut batch, value);
    }
    idle(&partition, &clock);
    let idle = live().saturating_sub(before);
    partition.close().expect("it closes");
    idle
}

/// Copies a closed partition under another number. (Making each one would take a dozen syncs.)
fn copy(from: &Path, to: &Path) {
    let name = |path: &Path| path.file_name().expect("named").to_string_lossy().replace('-', " ");
    fs::create_dir(to).expect("created");
    for entry in fs::read_dir(from).expect("listed") {
        let file = entry.expect("listed").path();
        let mut bytes = fs::read(&file).expect("readable");
        if file.to_string_lossy().ends_with("-offset-checkpoint") {
            let text = String::from_utf8(bytes).expect("text");
            bytes = text.replace(&format!("{} ", name(from)), &format!("{} ", name(to))).into_bytes();
        }
        fs::write(to.join(file.file_name().expect("named")), bytes).expect("written");
    }
}

/// One partition, opened, appended to once, idle: the bytes in use after each of the three.
fn measure(path: &Path) -> [usize; 3] {
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    let (mut batch, value) = (BatchBuilder::new(), [b'y'; 1000]);
    batch.push(&Record::new(&value)).expect("small");
    batch.clear();
    let before = live();
    let partition = open(path, &clock);
    let opened = live() - before;
    append(&partition, &mut batch, &value);
    let appended = live().saturating_sub(before);
    let fetched = partition.read(Offset(partition.end().0 - 1), ReadOptions::new()).expect("readable");
    assert_eq!(fetched.records().count(), 1);
    drop(fetched);
    idle(&partition, &clock);
    let idle = live().saturating_sub(before);
    partition.close().expect("it closes");
    [opened, appended, idle]
}

fn stays_small(bytes: u64) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = tempfile::tempdir().expect("a place");
    let path = place.path().join("wal-0");
    let written = make(&path, bytes);
    let [opened, appended, idle] = measure(&path);
    println!("{bytes} bytes of log: {written} bytes of memory once written and idle");
    println!("opened again: {opened}, appended to: {appended}, idle again: {idle}");
    for (what, memory) in [("written", written), ("opened", opened), ("idle again", idle)] {
        assert!(memory < IDLE_BYTES_MAX, "a partition with {bytes} bytes keeps {memory} bytes of memory once {what}");
    }
}

#[test]
fn a_small_log_that_is_idle_keeps_little_memory() {
    stays_small(1);
}

#[test]
fn a_large_log_that_is_idle_keeps_as_little() {
    stays_small(env_count("TAFFRAIL_IDLE_BYTES", 32 << 20));
}

/// What opening many partitions took.
#[derive(Debug, Default)]
struct Opened {
    time: Duration,
    /// Bytes of memory for each, in the wave that took most.
    memory: usize,
    /// Resident bytes for each in the first wave, what is no allocation included.
    resident: Option<usize>,
}

/// Opens every partition, a wave at a time.
fn open_all(paths: &[PathBuf]) -> Opened {
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    let mut opened = Opened::default();
    for wave in paths.chunks(WAVE) {
        let mut partitions = Vec::with_capacity(WAVE);
        let (live_before, resident_before, began) = (live(), resident(), Instant::now());
        partitions.extend(wave.iter().map(|path| open(path, &clock)));
        opened.time += began.elapsed();
        opened.memory = opened.memory.max(live().saturating_sub(live_before) / wave.len());
        let grown = || Some(resident()?.saturating_sub(resident_before?) / wave.len());
        opened.resident = opened.resident.or_else(grown);
        assert!(partitions.iter().all(|partition| partition.recovery().clean && partition.end() > Offset(0)));
        std::thread::scope(|scope| {
            for partition in partitions {
                scope.spawn(|| partition.close().expect("it closes"));
            }
        });
    }
    opened
}

/// What the disk takes for that alone: a name in each directory goes, durably.
fn unmark_all(paths: &[PathBuf]) -> Duration {
    let mut took = Duration::ZERO;
    for path in paths {
        let name = path.join("raw");
        fs::write(&name, "marker").expect("written");
        fs::File::open(path).expect("opened").sync_all().expect("synced");
        let began = Instant::now();
        fs::remove_file(&name).expect("removed");
        fs::File::open(path).expect("opened").sync_all().expect("synced");
        took += began.elapsed();
    }
    took
}

#[test]
fn many_partitions_open() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let count = usize::try_from(env_count("TAFFRAIL_IDLE_PARTITIONS", 200)).expect("some");
    let place = tempfile::tempdir().expect("a place");
    let paths: Vec<_> = (0..count).map(|number| place.path().join(format!("wal-{number}"))).collect();
    make(&paths[0], 1);
    paths[1..].iter().for_each(|path| copy(&paths[0], path));
    let raw = unmark_all(&paths);
    let Opened { time, memory, resident } = open_all(&paths);
    println!("{count} partitions opened in {time:?}; the disk alone takes {raw:?} for the mark that each is in use");
    println!("each keeps {memory} bytes of memory, {resident:?} resident");
    assert!(memory < IDLE_BYTES_MAX, "an opened partition keeps {memory} bytes");
}

/// Listing the parent would make each of 10,000 partitions in one directory cost as much as all of them.
#[test]
fn a_partition_does_not_look_at_its_neighbours() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let storage = MemoryStorage::new(1);
    storage.record_history();
    for _ in 0..2 {
        let partition = Partition::builder("data/deep/wal-0").storage(storage.shared()).open().expect("it opens");
        partition.close().expect("it closes");
    }
    let is_list = |operation: &&Operation| operation.kind == OperationKind::List;
    let listed: BTreeSet<_> = storage.history().iter().filter(is_list).map(|listing| listing.path.clone()).collect();
    assert_eq!(listed, BTreeSet::from([PathBuf::from("data/deep/wal-0")]));
}
