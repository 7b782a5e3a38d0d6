//! Compaction in a log: which partition is compacted when, how fast, and what is said where it fails.

mod support {
    pub(crate) mod compacted;
    #[allow(dead_code, reason = "a part of it is used")]
    pub(crate) mod kafka;
}

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use support::compacted::{at, headers, lines, read, shape};
use support::kafka::{check_content, copy};
use taffrail::{
    BatchBuilder, CleanerConfig, Cleanup, CompactionEnd, Error, Isolation, Log, LogBuilder, ManualClock, MemoryStorage,
    Offset, Partition, PartitionConfig, ReadOptions, Record, Timestamp, TopicConfig,
};

const SECOND: Duration = Duration::from_secs(1);

struct House {
    storage: MemoryStorage,
    clock: Arc<ManualClock>,
}

impl House {
    fn new() -> Self {
        Self { storage: MemoryStorage::new(3), clock: Arc::new(ManualClock::at(Timestamp(1_000_000))) }
    }

    fn builder(&self) -> LogBuilder {
        let clock = Arc::clone(&self.clock) as Arc<_>;
        Log::builder("data").storage(self.storage.shared()).clock(clock).background(false)
    }
}

fn compacted(partitions: u32) -> TopicConfig {
    TopicConfig::new().partitions(partitions).cleanup(Cleanup::Compact).segment_bytes(2000)
}

fn fill(partition: &Partition, keys: u64, records: u64) {
    append(partition, keys, records);
    partition.roll().expect("rolled");
}

fn append(partition: &Partition, keys: u64, records: u64) {
    for n in 0..records {
        let mut batch = BatchBuilder::new();
        let key = format!("key-{}", n % keys);
        batch.push(&Record::new(&[b'v'; 100]).key(&key).timestamp(Timestamp(1_000_000))).expect("small");
        partition.append(&mut batch).expect("appended").wait().expect("stored");
    }
}

fn records(partition: &Partition) -> u32 {
    headers(partition).iter().map(taffrail::BatchHeader::record_count).sum()
}

/// The dirtiest partition goes first, and every one that is due is compacted, by ticks alone.
#[test]
fn the_dirtiest_partition_goes_first() {
    let house = House::new();
    let log = house.builder().open().expect("it opens");
    log.create_topic("a", compacted(2)).expect("made");
    log.create_topic("b", TopicConfig::new()).expect("made");
    let [first, second] = [0, 1].map(|number| log.partition("a", number).expect("open"));
    fill(&first, 5, 50);
    log.compact("a", 0).expect("compacted");
    fill(&first, 5, 10);
    fill(&second, 5, 50);
    fill(&log.partition("b", 0).expect("open"), 5, 50);
    assert!(matches!(log.compact("b", 0), Err(Error::Policy(_))));
    let mut order = Vec::new();
    for _ in 0..40 {
        for (number, partition) in [(0, &first), (1, &second)] {
            if records(partition) == 5 && !order.contains(&number) {
                order.push(number);
            }
        }
        house.clock.advance(SECOND);
        log.tick();
    }
    assert_eq!(order, [1, 0], "all of the second is dirty, of the first two thirds");
    assert_eq!(records(&log.partition("b", 0).expect("open")), 50);
    let checkpoint = house.storage.bytes_of("data/cleaner-offset-checkpoint").expect("it is in the log's books");
    assert_eq!(checkpoint, &b"0\n2\na 0 60\na 1 50\n"[..]);
    log.close().expect("closed");
    let log = house.builder().open().expect("it opens");
    assert_eq!(records(&log.partition("a", 1).expect("open")), 5);
}

/// With a rate, pieces are followed by pauses.
#[test]
fn a_rate_is_kept_to() {
    let seconds = |rate: Option<u64>| {
        let house = House::new();
        let cleaner = CleanerConfig::new().bytes_per_second(rate).read_bytes(1000);
        let log = house.builder().cleaner(cleaner).open().expect("it opens");
        log.create_topic("a", compacted(1).segment_bytes(1 << 20)).expect("made");
        let partition = log.partition("a", 0).expect("open");
        fill(&partition, 1000, 4000);
        let bytes = partition.stats().bytes;
        house.clock.advance(Duration::from_secs(20));
        let mut millis = 0;
        while records(&partition) > 1000 {
            log.tick();
            house.clock.advance(Duration::from_millis(50));
            millis += 50;
            assert!(millis < 100_000, "it never ends");
        }
        (bytes, millis)
    };
    let (_, fast) = seconds(None);
    let (bytes, slow) = seconds(Some(100_000));
    // It is read twice, and a quarter of it is written.
    let due = bytes * 9 / 4 * 1000 / 100_000;
    assert!(fast <= 1000, "{fast} ms");
    assert!((due * 8 / 10..due * 13 / 10).contains(&slow), "{slow} ms, {due} are due");
}

/// A partition that fails is left alone, and described; the others go on; a reopen ends it.
#[test]
fn a_partition_that_fails_is_described() {
    let house = House::new();
    let log = house.builder().open().expect("it opens");
    log.create_topic("a", compacted(3)).expect("made");
    let partitions = [0, 1, 2].map(|number| log.partition("a", number).expect("open"));
    for partition in &partitions {
        fill(partition, 5, 50);
    }
    let path = "data/a-1/00000000000000000000.log";
    house.storage.flip_bit(path, 200, 1).expect("it is there");
    let run = || {
        for _ in 0..40 {
            house.clock.advance(SECOND);
            log.tick();
        }
    };
    run();
    let described = log.describe_topic("a").expect("it is there").uncleanable;
    assert_eq!(described.keys().copied().collect::<Vec<_>>(), [1]);
    assert!(matches!(&described[&1], Error::Corrupt { path: at, .. } if at.ends_with("a-1/00000000000000000000.log")));
    assert_eq!([records(&partitions[0]), records(&partitions[2])], [5, 5], "the others are compacted");
    house.storage.flip_bit(path, 200, 1).expect("it is there");
    assert_eq!(records(&partitions[1]), 50);
    run();
    assert_eq!(records(&partitions[1]), 50, "it is left alone although nothing is wrong any more");
    log.reopen("a", 1).expect("reopened");
    assert!(log.describe_topic("a").expect("it is there").uncleanable.is_empty());
    partitions[1].roll().expect("rolled");
    run();
    assert_eq!(records(&partitions[1]), 5);
}

/// One that cannot even be looked at was passed over in silence, for ever.
#[test]
fn a_partition_that_cannot_be_looked_at_is_described() {
    let house = House::new();
    let log = house.builder().open().expect("it opens");
    let config = compacted(2).max_compaction_lag(Some(SECOND));
    log.create_topic("a", config).expect("made");
    let partitions = [0, 1].map(|number| log.partition("a", number).expect("open"));
    for partition in &partitions {
        fill(partition, 50, 10);
    }
    ["a"; 2].iter().zip([0, 1]).for_each(|(topic, number)| drop(log.compact(topic, number).expect("compacted")));
    for partition in &partitions {
        fill(partition, 1, 1);
    }
    house.storage.flip_bit("data/a-1/00000000000000000010.log", 16, 1).expect("it is there");
    for _ in 0..40 {
        house.clock.advance(SECOND);
        log.tick();
    }
    let described = log.describe_topic("a").expect("it is there").uncleanable;
    assert_eq!(described.keys().copied().collect::<Vec<_>>(), [1]);
    assert!(matches!(&described[&1], Error::Corrupt { path, .. } if path.ends_with("a-1/00000000000000000010.log")));
}

/// It says up to where partitions are compacted, and no more than that: one that cannot be read has them gone through again.
#[test]
fn a_checkpoint_of_another_version_refuses_nothing() {
    let house = House::new();
    let log = house.builder().open().expect("it opens");
    log.create_topic("a", compacted(1)).expect("made");
    fill(&log.partition("a", 0).expect("open"), 5, 50);
    log.close().expect("closed");
    let path = std::path::Path::new("data/cleaner-offset-checkpoint");
    let storage = house.storage.shared();
    drop(storage.remove(path));
    let file = storage.create(path, 0).expect("created");
    file.write(0, &[std::io::IoSlice::new(b"1\n1\na 0 30 what is new\n")]).expect("written");
    let log = house.builder().open().expect("it opens");
    log.compact("a", 0).expect("compacted");
    assert_eq!(records(&log.partition("a", 0).expect("open")), 5);
    log.close().expect("closed");
    assert_eq!(house.storage.bytes_of(path).expect("it is written anew"), &b"0\n1\na 0 50\n"[..]);
}

/// A topic that is deleted while it is compacted is gone.
#[test]
fn a_deleted_topic_stops_its_compaction() {
    let house = House::new();
    let cleaner = CleanerConfig::new().bytes_per_second(Some(1000)).read_bytes(500);
    let log = house.builder().cleaner(cleaner).open().expect("it opens");
    log.create_topic("a", compacted(1)).expect("made");
    fill(&log.partition("a", 0).expect("open"), 5, 50);
    house.clock.advance(Duration::from_secs(20));
    log.tick();
    log.delete_topic("a").expect("deleted");
    for _ in 0..100 {
        house.clock.advance(SECOND);
        log.tick();
    }
    assert!(house.storage.paths().iter().all(|path| !path.starts_with("data/a-0")));
    log.create_topic("a", compacted(1)).expect("made again");
    log.close().expect("closed");
}

/// Threads do it too, while records are appended.
#[test]
fn threads_compact_beside_appends() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let cleaner = CleanerConfig::new().backoff(Duration::from_millis(1));
    let log = Log::builder(directory.path().join("data")).cleaner(cleaner).open().expect("it opens");
    let config = compacted(1).durability(taffrail::Durability::Os).segment_bytes(256 << 10);
    log.create_topic("a", config).expect("made");
    let partition = log.partition("a", 0).expect("open");
    let mut appended = 0_u64;
    let first = || {
        let fetched = partition.try_read(Offset(0), ReadOptions::new()).expect("read");
        fetched.records().next().map_or(0, |record| record.offset().0)
    };
    // It goes on until compaction has been seen at work beside it.
    while first() < 10 {
        append(&partition, 10, 100);
        appended += 100;
        assert!(appended < 5_000_000, "nothing is ever compacted");
    }
    let seen = read(&partition, Isolation::Committed);
    let last: BTreeMap<_, _> = seen.iter().map(|(offset, key, _)| (key.clone(), *offset)).collect();
    let expected: Vec<u64> = (appended - 10..appended).collect();
    assert_eq!(last.into_values().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>(), expected);
    log.close().expect("closed");
}

/// A broker's compacted stretch: what the file beside it says is in it stays in it, at its offsets.
#[test]
fn a_brokers_compacted_stretch_stays_what_it_is() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = copy(directory.path(), true);
    let config = PartitionConfig::new().segment_bytes(32_768).cleanup(Cleanup::Compact);
    let partition = Partition::open(&path, config).expect("it opens");
    check_content(&partition);
    let hold = partition.hold(Offset(167)).expect("what lies behind is not compacted");
    let (before, stretch) = (read(&partition, Isolation::Committed), shape(&partition));
    // Before every horizon in it.
    let done = partition.compact_all(at(1_600_000_000_000)).expect("compacted");
    assert_eq!((done.end.clone(), done.records_dropped), (CompactionEnd::Complete, 0), "{done}");
    assert_eq!(read(&partition, Isolation::Committed), before);
    let kept: Vec<_> = shape(&partition).into_iter().filter(|batch| batch.2 > 0).collect();
    assert_eq!(kept, stretch.into_iter().filter(|batch| batch.2 > 0).collect::<Vec<_>>());
    // After every one: what was deleted goes.
    let done = partition.compact_all(at(1_900_000_000_000)).expect("compacted");
    let tombstones = before.iter().filter(|(offset, _, value)| *offset < 167 && value.is_none()).count();
    assert_eq!(done.records_dropped, tombstones as u64);
    drop(hold);
    let done = partition.compact_all(at(1_900_000_000_000)).expect("compacted");
    assert!(done.records_dropped > 0 && partition.end() == Offset(354), "{done}");
    let keys: Vec<_> = read(&partition, Isolation::Committed).into_iter().filter(|seen| seen.0 < 346).collect();
    let mut latest = BTreeMap::new();
    for (offset, key, value) in before.iter().filter(|(offset, key, _)| *offset < 346 && key.is_some()) {
        latest.insert(key.clone(), (*offset, *offset < 167 && value.is_none()));
    }
    // The deletions of the stretch have gone before.
    latest.retain(|_, (_, has_gone)| !*has_gone);
    let latest: BTreeMap<_, _> = latest.into_iter().map(|(key, (offset, _))| (key, offset)).collect();
    let expected: Vec<u64> = latest.values().copied().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    assert_eq!(keys.iter().map(|seen| seen.0).collect::<Vec<_>>(), expected);
    assert!(!lines(&partition).is_empty());
}
