//! Power is lost, or the process killed, at every storage operation of a compaction: what is found afterwards is, segment
//! by segment, the old or the new, and never a mixture or a hole.

mod support {
    #![allow(dead_code, reason = "a part of it is used")]
    pub(crate) mod compacted;

    /// The number in the environment variable `name`, or `default` where it is not set.
    pub(crate) fn env_count(name: &str, default: u64) -> u64 {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    }
}

use std::sync::Arc;

use bytes::Bytes;
use support::compacted::*;
use support::env_count;
use taffrail::{
    CleanerConfig, Cleanup, Compacting, CompactionEnd, Durability, Fault, Isolation, ManualClock, MemoryStorage,
    Offset, OperationKind, Outcome, Partition, PartitionConfig, Timestamp,
};

/// Groups of several segments, of whose last nothing stays, and some that are written as several segments.
fn fill(partition: &Partition) {
    for round in 0..4_u64 {
        for n in 0..4_u64 {
            put(partition, &[(Some(&format!("k{n}")), Some(&format!("{round}")), 1)]);
        }
        if round == 1 {
            put_of(partition, 9, 0, true, &[(Some("k1"), Some("aborted"), 1)]);
            mark(partition, 9, Outcome::Aborted, 1);
        }
        partition.roll().expect("rolled");
    }
    for n in 0..8_u64 {
        put(partition, &[(Some(&format!("large-{n}")), Some(&"v".repeat(150)), 1)]);
    }
    put_of(partition, 9, 1, true, &[(Some("k0"), Some("aborted too"), 1)]);
    mark(partition, 9, Outcome::Aborted, 1);
    for n in 0..4_u64 {
        put(partition, &[(Some(&format!("k{n}")), Some("last"), 1)]);
    }
    partition.roll().expect("rolled");
    put(partition, &[(Some("k0"), Some("in the active one"), 1)]);
}

fn settings(durability: Durability) -> PartitionConfig {
    config().durability(durability).segment_bytes(1600)
}

/// What is compacted is written to segments of another size than it was.
fn smaller(durability: Durability) -> PartitionConfig {
    config().durability(durability).segment_bytes(700)
}

struct Before {
    storage: MemoryStorage,
    clock: Arc<ManualClock>,
    partition: Partition,
}

fn before(durability: Durability) -> Before {
    let (storage, clock) = (MemoryStorage::new(3), Arc::new(ManualClock::at(Timestamp(1000))));
    let partition = builder(&storage, &clock, settings(durability)).open().expect("it opens");
    fill(&partition);
    partition.sync().expect("synced");
    partition.set_config(smaller(durability)).expect("set");
    Before { storage, clock, partition }
}

/// What the log holds before the compaction, and after each exchange.
fn stages(partition: &Partition) -> Vec<Vec<Bytes>> {
    let mut stages = vec![batches(partition)];
    loop {
        let step = partition.compact(at(1000), 1).expect("compacted");
        let now = batches(partition);
        if stages.last() != Some(&now) {
            stages.push(now);
        }
        if let Compacting::Ended(ended) = step {
            assert_eq!(ended.end, CompactionEnd::Complete);
            assert!(ended.segments_before > stages.len(), "a group is of several segments: {ended}");
            return stages;
        }
    }
}

fn names(storage: &MemoryStorage) -> Vec<String> {
    storage.paths().iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect()
}

#[test]
fn what_is_found_is_the_old_or_the_new() {
    for durability in [Durability::Sync, Durability::Os] {
        let whole = before(durability);
        let stages = stages(&whole.partition);
        let end = whole.partition.end();
        let visible = read(&whole.partition, Isolation::Committed);
        assert!(stages.len() >= 4, "{} stages", stages.len());
        let whole = before(durability);
        let begin = whole.storage.operations();
        let done = whole.partition.compact_all(at(1000)).expect("compacted");
        assert!(done.segments_after >= stages.len(), "a group became several segments: {done}");
        let count = whole.storage.operations() - begin;
        let mut seen = vec![0; stages.len()];
        for number in 0..=count {
            for seed in 0..env_count("TAFFRAIL_CRASH_SEEDS", 3) {
                let start = before(durability);
                let begin = start.storage.operations();
                match seed {
                    0 => start.storage.fail_from(begin + number, Fault::Io),
                    _ => start.storage.crash_at(begin + number),
                }
                drop(start.partition.compact_all(at(1000)));
                drop(start.partition);
                let left = if seed == 0 { start.storage.kill() } else { start.storage.crash(seed) };
                let context = format!("{durability:?}, operation {number}, seed {seed}");
                // The recovery is interrupted as well, here and there.
                let left = interrupt(left, &start.clock, durability, number + seed);
                let partition = builder(&left, &start.clock, smaller(durability)).open().expect("it opens");
                let found = batches(&partition);
                let stage = stages.iter().position(|stage| *stage == found);
                seen[stage.unwrap_or_else(|| panic!("{context}: a mixture: {:?}", shape(&partition)))] += 1;
                assert!(
                    names(&left).iter().all(|name| !name.ends_with(".cleaned") && !name.ends_with(".swap")),
                    "{context}: {:?}",
                    names(&left)
                );
                partition.compact_all(at(1000)).expect("compacted");
                assert_eq!(read(&partition, Isolation::Committed), visible, "{context}");
                assert_eq!(partition.end(), end, "{context}");
            }
        }
        assert!(seen.iter().all(|count| *count > 10), "each was seen: {seen:?}");
    }
}

/// Opens the partition, and loses power in the midst of it.
fn interrupt(storage: MemoryStorage, clock: &Arc<ManualClock>, durability: Durability, number: u64) -> MemoryStorage {
    let stride = env_count("TAFFRAIL_CRASH_STRIDE", 3).max(1);
    let mut storage = storage;
    for round in 0..2 {
        if !(number + round).is_multiple_of(stride) {
            continue;
        }
        storage.crash_at(storage.operations() + 3 + (number * 7 + round * 5) % 40);
        drop(builder(&storage, clock, smaller(durability)).open());
        storage = storage.crash(number);
    }
    storage
}

/// One segment becomes several. Of names that are not synced a loss of power takes any, and leaves any: what is found is the
/// old segment or all of the new ones, with the transaction index that the last of them has.
#[test]
fn the_names_of_several_segments_change_together() {
    let long = "v".repeat(150);
    let prepare = || {
        let (storage, clock) = (MemoryStorage::new(3), Arc::new(ManualClock::at(Timestamp(1000))));
        // Three keys: what is aborted lies behind them, and stays.
        let cleaner = CleanerConfig::new().map_bytes_max(24 * 4);
        let partition = builder(&storage, &clock, config()).cleaner(cleaner).open().expect("it opens");
        put(&partition, &[(Some("gone"), Some("before"), 1)]);
        partition.roll().expect("rolled");
        partition.trim_before(Offset(1)).expect("trimmed");
        put(&partition, &[(Some("k0"), Some(&long), 1)]);
        put_of(&partition, 9, 0, true, &[(Some("k0"), Some("committed"), 1)]);
        mark(&partition, 9, Outcome::Committed, 1);
        for n in 0..5_u64 {
            put(&partition, &[(Some(&format!("k{n}")), Some(&long), 1)]);
        }
        put_of(&partition, 9, 1, true, &[(Some("k0"), Some("aborted"), 1)]);
        mark(&partition, 9, Outcome::Aborted, 1);
        partition.roll().expect("rolled");
        put(&partition, &[(Some("z"), Some("in the active one"), 1)]);
        partition.set_config(config().segment_bytes(500)).expect("set");
        // What an earlier attempt could not remove.
        storage.set_bytes(format!("{PATH}/00000000000000000000.timeindex.cleaned"), b"").expect("it is there");
        (partition, storage, clock)
    };
    let round = |partition: &Partition| loop {
        match partition.compact(at(1000), 1 << 20) {
            Ok(Compacting::Working { .. }) => {}
            ended => break ended,
        }
    };
    let (whole, storage, _) = prepare();
    let before = batches(&whole);
    storage.record_history();
    let Ok(Compacting::Ended(done)) = round(&whole) else { panic!("it ends") };
    assert_eq!((done.segments_before, done.segments_after, done.end), (1, 4, CompactionEnd::MapFull));
    let (after, visible) = (batches(&whole), read(&whole, Isolation::Committed));
    let all = read(&whole, Isolation::Uncommitted);
    assert!(all.len() == visible.len() + 1, "what is aborted is there still: {all:?}");
    let renames = storage.history().into_iter().filter(|one| one.kind == OperationKind::Rename);
    let begin = renames.map(|one| one.number).min().expect("the new ones get their names");
    for number in begin..=storage.operations() {
        let (partition, storage, clock) = prepare();
        storage.crash_at(number);
        drop(round(&partition));
        for seed in 0..env_count("TAFFRAIL_CRASH_SEEDS", 40).max(10) {
            let left = storage.crash(seed);
            // It need not be a topic that is compacted still: there are gaps all the same.
            let cleanup = if seed % 2 == 0 { Cleanup::Compact } else { Cleanup::Delete };
            let partition = builder(&left, &clock, config().cleanup(cleanup)).open().expect("it opens");
            let found = batches(&partition);
            let context = format!("operation {number}, seed {seed}: {:?}", shape(&partition));
            assert!(found == before || found == after, "{context}");
            let visible_now: Vec<_> = read(&partition, Isolation::Committed);
            assert_eq!(visible_now.last(), visible.last(), "{context}");
            assert!(visible_now.iter().all(|seen| seen.2.as_deref() != Some("aborted")), "{context}");
        }
    }
}

/// What was synced does not go for the sake of what was not, nor of what a marker decides that was not: a loss of power would
/// take both.
#[test]
fn what_goes_goes_for_the_sake_of_what_lasts() {
    for seed in 0..env_count("TAFFRAIL_SEEDS", 200).min(50) {
        for is_transactional in [false, true] {
            let (storage, clock) = (MemoryStorage::new(seed), Arc::new(ManualClock::at(Timestamp(1000))));
            // Two segments do not fit one, so that each is exchanged by itself.
            let config = config().durability(Durability::Os).segment_bytes(400);
            let partition = builder(&storage, &clock, config.clone()).open().expect("it opens");
            put(&partition, &[(Some("a"), Some(&"first".repeat(60)), 1)]);
            partition.sync().expect("synced");
            partition.roll().expect("rolled");
            put_of(&partition, 9, 0, is_transactional, &[(Some("a"), Some(&"later".repeat(60)), 1)]);
            partition.roll().expect("rolled");
            if is_transactional {
                mark(&partition, 9, Outcome::Committed, 1);
            }
            while shape(&partition).iter().any(|batch| batch.0 == 0) {
                partition.compact(at(1000), 1).expect("compacted");
            }
            // As it is: a partition that is let go of is closed, and synced by that.
            let left = storage.crash(seed);
            drop(partition);
            let partition = builder(&left, &clock, config).open().expect("it opens");
            let found = read(&partition, Isolation::Committed);
            assert_eq!(found.len(), 1, "seed {seed}, transactional: {is_transactional}: the key is gone");
        }
    }
}
