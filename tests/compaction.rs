//! Compaction, case by case: the worked examples, and what each rule says.

mod support {
    pub(crate) mod compacted;
}

use std::sync::Arc;
use std::time::Duration;

use support::compacted::*;
use taffrail::{
    BatchBuilder, CleanerConfig, Cleanup, Clock, Compacting, CompactionEnd, Compression, Durability, Error, Fault,
    Force, Isolation, ManualClock, MemoryStorage, Now, Offset, OperationKind, Outcome, Partition, Ratio, ReadOptions,
    Retention, Storage, Timestamp,
};

const HUNDRED: Duration = Duration::from_millis(100);

fn compact(partition: &Partition, millis: i64) -> taffrail::Compaction {
    let done = partition.compact_all(at(millis)).expect("it is compacted");
    assert_eq!(done.end, CompactionEnd::Complete);
    done
}

/// SEMANTICS 14.9: delete.retention 100, now 1000.
#[test]
fn the_worked_example_of_a_batch() {
    let (partition, ..) = fresh(config().delete_retention(HUNDRED));
    let rows =
        [(Some("k1"), Some("v"), 1), (Some("k2"), Some("v"), 2), (Some("k1"), None, 3), (Some("k2"), Some("v"), 4)];
    put(&partition, &rows);
    partition.roll().expect("rolled");
    let done = compact(&partition, 1000);
    assert_eq!((done.records_kept, done.records_dropped, done.cleaned_to), (2, 2, Offset(4)));
    assert_eq!(lines(&partition), ["2 k1 -", "3 k2 v"]);
    assert_eq!(shape(&partition), [(0, 3, 2)]);
    let header = headers(&partition)[0];
    assert_eq!(header.delete_horizon(), Some(Timestamp(1100)));
    assert_eq!(header.max_timestamp(), Some(Timestamp(4)));

    compact(&partition, 1099);
    assert_eq!(lines(&partition), ["2 k1 -", "3 k2 v"], "the time of the tombstone is not over");
    compact(&partition, 1100);
    assert_eq!(lines(&partition), ["3 k2 v"]);
    assert_eq!(shape(&partition), [(0, 3, 1)]);
    assert_eq!(headers(&partition)[0].delete_horizon(), Some(Timestamp(1100)), "it is never changed");

    put(&partition, &[(Some("k2"), Some("w"), 5)]);
    partition.roll().expect("rolled");
    compact(&partition, 1200);
    assert_eq!(shape(&partition), [(4, 4, 1)], "a batch without a record goes, where it is not the last one");
}

/// The same end, where the batch is the last one of the round, or holds the last data of a producer.
#[test]
fn a_batch_that_is_needed_stays_as_its_header() {
    let (partition, ..) = fresh(config().delete_retention(HUNDRED));
    put_of(&partition, 7, 0, false, &[(Some("a"), Some("1"), 1), (Some("b"), Some("1"), 1)]);
    put(&partition, &[(Some("a"), Some("2"), 2), (Some("b"), None, 2)]);
    put(&partition, &[(Some("c"), None, 3)]);
    partition.roll().expect("rolled");
    compact(&partition, 1000);
    assert_eq!(shape(&partition), [(0, 1, 0), (2, 3, 2), (4, 4, 1)]);
    let header = headers(&partition)[0];
    assert_eq!((header.producer_id().map(|id| id.0), header.last_sequence().map(|s| s.0)), (Some(7), Some(1)));
    assert_eq!((header.base_timestamp(), header.max_timestamp()), (-1, Some(Timestamp(1))));
    compact(&partition, 1100);
    assert_eq!(shape(&partition), [(0, 1, 0), (2, 3, 1), (4, 4, 0)], "the last batch of the round");

    put_of(&partition, 7, 2, false, &[(Some("a"), Some("3"), 5)]);
    partition.roll().expect("rolled");
    compact(&partition, 1200);
    assert_eq!(shape(&partition), [(5, 5, 1)], "the producer has a later batch, and the round another last one");
}

/// SEMANTICS 14.13.
#[test]
fn the_worked_example_of_the_latest_value() {
    let (partition, ..) = fresh(config().delete_retention(HUNDRED));
    for (key, value) in [("ana", "dark"), ("bo", "light"), ("ana", "light"), ("cy", "dark"), ("bo", "dark")] {
        put(&partition, &[(Some(key), Some(value), 1)]);
    }
    partition.roll().expect("rolled");
    compact(&partition, 1000);
    assert_eq!(lines(&partition), ["2 ana light", "3 cy dark", "4 bo dark"]);
    let first = partition.try_read(Offset(0), ReadOptions::new()).expect("read");
    assert_eq!(first.records().next().map(|record| record.offset()), Some(Offset(2)));
    assert_eq!(put(&partition, &[(Some("ana"), None, 2)]), Offset(5));
    partition.roll().expect("rolled");
    compact(&partition, 2000);
    assert_eq!(lines(&partition), ["3 cy dark", "4 bo dark", "5 ana -"]);
    compact(&partition, 2099);
    assert_eq!(lines(&partition), ["3 cy dark", "4 bo dark", "5 ana -"]);
    compact(&partition, 2100);
    assert_eq!(lines(&partition), ["3 cy dark", "4 bo dark"]);
    assert_eq!(shape(&partition), [(3, 3, 1), (4, 4, 1), (5, 5, 0)]);
    assert_eq!((partition.start(), partition.end()), (Offset(0), Offset(6)));
}

#[test]
fn records_without_a_key_go() {
    let (partition, ..) = fresh(config().cleanup(Cleanup::Delete));
    put(&partition, &[(None, Some("x"), 1), (Some(""), Some("empty"), 1), (None, Some("y"), 1)]);
    partition.roll().expect("rolled");
    assert!(matches!(partition.compact_all(at(1)), Err(Error::Policy(_))));
    partition.set_config(config()).expect("it is compacted from now on");
    compact(&partition, 1000);
    assert_eq!(lines(&partition), ["1  empty"], "an empty key is one");
}

/// The data of an aborted transaction goes at once. Its marker stays while data of it was seen, then until its horizon.
#[test]
fn an_aborted_transaction_goes_before_its_marker() {
    let (partition, storage, clock) = fresh(config().delete_retention(HUNDRED));
    put(&partition, &[(Some("a"), Some("old"), 1)]);
    put_of(&partition, 9, 0, true, &[(Some("a"), Some("aborted"), 2), (Some("z"), Some("aborted"), 2)]);
    put_of(&partition, 8, 0, true, &[(Some("b"), Some("committed"), 2)]);
    mark(&partition, 9, Outcome::Aborted, 3);
    mark(&partition, 8, Outcome::Committed, 3);
    put_of(&partition, 9, 2, true, &[(Some("c"), Some("committed"), 4)]);
    mark(&partition, 9, Outcome::Committed, 4);
    put_of(&partition, 8, 1, false, &[(Some("end"), Some("1"), 5)]);
    partition.roll().expect("rolled");
    let expected = ["0 a old", "3 b committed", "6 c committed", "8 end 1"];
    assert_eq!(lines(&partition), expected);
    let entries = |storage: &MemoryStorage| {
        storage.bytes_of(format!("{PATH}/00000000000000000000.txnindex")).map_or(0, |bytes| bytes.len() / 34)
    };
    assert_eq!(entries(&storage), 1);

    compact(&partition, 1000);
    assert_eq!(lines(&partition), expected, "an aborted record replaces nothing");
    assert_eq!(shape(&partition), [(0, 0, 1), (3, 3, 1), (4, 4, 1), (5, 5, 1), (6, 6, 1), (7, 7, 1), (8, 8, 1)]);
    assert_eq!(entries(&storage), 1, "data was seen");
    assert!(headers(&partition).iter().all(|header| header.delete_horizon().is_none()));

    compact(&partition, 1010);
    let horizons = |partition: &Partition| -> Vec<_> {
        headers(partition).iter().filter_map(|h| Some((h.base_offset().0, h.delete_horizon()?.0))).collect()
    };
    assert_eq!(horizons(&partition), [(4, 1110)], "of the aborted one no data was seen; of the others it was");
    assert_eq!(entries(&storage), 0);
    assert_eq!(lines(&partition), expected);
    compact(&partition, 1109);
    assert_eq!(shape(&partition).len(), 7);
    compact(&partition, 1110);
    assert_eq!(shape(&partition), [(0, 0, 1), (3, 3, 1), (5, 5, 1), (6, 6, 1), (7, 7, 1), (8, 8, 1)]);

    partition.clone().close().expect("closed");
    let partition = builder(&storage, &clock, config()).open().expect("it opens");
    assert_eq!(lines(&partition), expected);
    assert_eq!(partition.last_stable(), Offset(9));
}

/// A batch whose records all have later ones is not read again: what it says of its transaction and its producer counts.
#[test]
fn what_is_passed_over_counts_all_the_same() {
    let (partition, ..) = fresh(config().delete_retention(HUNDRED));
    for sequence in 0..2 {
        put_of(&partition, 9, 2 * sequence, true, &[(Some("a"), Some("v"), 1), (Some("b"), Some("v"), 1)]);
        mark(&partition, 9, Outcome::Committed, 1);
    }
    put(&partition, &[(Some("a"), Some("w"), 1), (Some("b"), Some("w"), 1)]);
    partition.roll().expect("rolled");
    let done = compact(&partition, 1000);
    assert_eq!((done.records_kept, done.records_dropped), (2, 4));
    assert_eq!(shape(&partition), [(2, 2, 1), (3, 4, 0), (5, 5, 1), (6, 7, 2)], "the first one is not needed");
    assert!(headers(&partition).iter().all(|header| header.delete_horizon().is_none()), "there was data");
    compact(&partition, 1001);
    let horizons: Vec<_> = headers(&partition).iter().map(|header| header.delete_horizon().map(|at| at.0)).collect();
    assert_eq!(horizons, [Some(1101), None, None, None], "of the first transaction there is none");
}

/// A producer that has nothing but a marker left keeps that marker's batch, for its epoch.
#[test]
fn the_marker_of_a_producer_without_data_stays_as_its_header() {
    let (partition, ..) = fresh(config().delete_retention(HUNDRED));
    mark(&partition, 9, Outcome::Aborted, 1);
    put(&partition, &[(Some("a"), Some("1"), 2)]);
    partition.roll().expect("rolled");
    compact(&partition, 1000);
    assert_eq!(headers(&partition)[0].delete_horizon(), Some(Timestamp(1100)));
    compact(&partition, 1100);
    assert_eq!(shape(&partition), [(0, 0, 0), (1, 1, 1)]);
    assert!(headers(&partition)[0].is_control());
    compact(&partition, 1200);
    assert_eq!(shape(&partition), [(0, 0, 0), (1, 1, 1)]);
}

#[test]
fn what_is_open_or_held_or_young_stays() {
    let (partition, ..) = fresh(config());
    for round in 0..4_i64 {
        put(&partition, &[(Some("a"), Some("v"), 1000 * round)]);
        partition.roll().expect("rolled");
    }
    let hold = partition.hold(Offset(2)).expect("held");
    compact(&partition, 10_000);
    assert_eq!(shape(&partition), [(1, 1, 1), (2, 2, 1), (3, 3, 1)], "nothing at or behind the hold goes");
    drop(hold);
    partition.set_config(config().min_compaction_lag(Duration::from_secs(7))).expect("set");
    compact(&partition, 9999);
    assert_eq!(shape(&partition).len(), 2, "the record of 3000 is younger than 7000");
    put_of(&partition, 5, 0, true, &[(Some("a"), Some("open"), 4000)]);
    partition.roll().expect("rolled");
    partition.set_config(config()).expect("set");
    compact(&partition, 20_000);
    assert_eq!(shape(&partition), [(3, 3, 1), (4, 4, 1)], "what is not decided replaces nothing");
    mark(&partition, 5, Outcome::Committed, 4001);
    partition.roll().expect("rolled");
    compact(&partition, 20_000);
    assert_eq!(shape(&partition), [(4, 4, 1), (5, 5, 1)]);
}

/// Batches keep their codec, and those of which nothing goes their bytes.
#[test]
#[cfg(all(feature = "gzip", feature = "lz4", feature = "snappy", feature = "zstd"))]
fn codecs_and_untouched_batches_stay() {
    let (partition, ..) = fresh(config());
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        for part in 0..2 {
            let mut batch = BatchBuilder::new().compression(codec);
            for key in 0..5 {
                push(&mut batch, (Some(&format!("{codec:?}{}", key + 3 * part)), Some("value"), 7));
            }
            append(&partition, &mut batch);
        }
    }
    partition.roll().expect("rolled");
    let before = batches(&partition);
    compact(&partition, 1000);
    let after = batches(&partition);
    for (before, after) in before.chunks(2).zip(after.chunks(2)) {
        assert_eq!(before[1], after[1]);
        let (old, new) = (records_of(&before[0]), records_of(&after[0]));
        let (old, new) = (old.iter().next().expect("one"), new.iter().next().expect("one"));
        assert_eq!(new.header().compression(), old.header().compression());
        assert_eq!((old.records().len(), new.records().len()), (5, 3));
    }
}

/// Small segments become one; a map without room for all keys takes several rounds.
#[test]
fn segments_are_joined_and_a_small_map_gets_there_too() {
    let fill = |partition: &Partition| {
        for n in 0..200_u64 {
            put(partition, &[(Some(&format!("key-{}", n % 50)), Some("value"), 1)]);
            if n % 10 == 9 {
                partition.roll().expect("rolled");
            }
        }
    };
    let (whole, ..) = fresh(config());
    fill(&whole);
    let done = compact(&whole, 1000);
    assert_eq!((done.segments_before, done.segments_after, done.rounds), (20, 1, 1));
    assert_eq!((done.records_kept, done.records_dropped, done.keys), (50, 150, 50));
    assert_eq!((whole.stats().segments, shape(&whole)[0]), (2, (150, 150, 1)));

    let (storage, clock) = (MemoryStorage::new(3), Arc::new(ManualClock::at(Timestamp(1000))));
    let small = CleanerConfig::new().map_bytes_max(24 * 12);
    let partition = builder(&storage, &clock, config()).cleaner(small).open().expect("it opens");
    fill(&partition);
    let mut ends = Vec::new();
    loop {
        match partition.compact(at(1000), 1 << 30).expect("compacted") {
            Compacting::Ended(ended) => {
                assert!(ended.keys <= 10 && ended.map_bytes <= 24 * 12);
                assert_eq!(lines(&partition).last(), lines(&whole).last());
                ends.push(ended.cleaned_to.0);
            }
            Compacting::Idle => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ends[..3], [10, 20, 30], "each round goes as far as ten keys");
    let done = compact(&partition, 1000);
    assert_eq!(lines(&partition), lines(&whole));
    assert!(done.rounds >= 1 && partition.end() == whole.end());
}

/// One key more than the map holds, all in one batch: the round ends inside of it.
#[test]
fn a_round_ends_inside_of_a_batch() {
    let (storage, clock) = (MemoryStorage::new(3), Arc::new(ManualClock::at(Timestamp(1000))));
    let small = CleanerConfig::new().map_bytes_max(24 * 4);
    let partition =
        builder(&storage, &clock, config().delete_retention(HUNDRED)).cleaner(small).open().expect("it opens");
    let keys = ["a", "b", "c", "d", "e", "f", "a", "b", "c", "d", "e", "f"];
    let rows: Vec<_> = keys.iter().map(|key| (Some(*key), Some("v"), 1)).collect();
    put(&partition, &rows);
    put(&partition, &[(Some("a"), None, 2)]);
    partition.roll().expect("rolled");
    let done = compact(&partition, 1000);
    assert_eq!(done.rounds, 5, "three keys a round: {done}");
    let expected: Vec<String> =
        (7..12).map(|n: usize| format!("{n} {} v", keys[n])).chain(["12 a -".to_owned()]).collect();
    assert_eq!(lines(&partition), expected);
    assert_eq!(shape(&partition), [(0, 11, 5), (12, 12, 1)]);
}

/// The rest of a batch that is mapped in part is not clean yet, and the time of its deletions has not begun.
#[test]
fn the_time_of_a_deletion_begins_when_its_batch_is_clean() {
    let (storage, clock) = (MemoryStorage::new(3), Arc::new(ManualClock::at(Timestamp(1000))));
    let small = CleanerConfig::new().map_bytes_max(24 * 4);
    let config = config().delete_retention(HUNDRED).min_dirty_ratio(Ratio::new(0.0));
    let partition = builder(&storage, &clock, config).cleaner(small).open().expect("it opens");
    let rows = [(Some("a"), None, 1), (Some("b"), Some("v"), 1), (Some("c"), Some("v"), 1), (Some("d"), None, 1)];
    put(&partition, &[&rows[..], &[(None, Some("no key"), 1)]].concat());
    partition.roll().expect("rolled");
    let mut rounds = Vec::new();
    for millis in [1000, 2000] {
        let ended = loop {
            match partition.compact(at(millis), 1).expect("compacted") {
                Compacting::Ended(ended) => break ended,
                Compacting::Idle => panic!("it is due"),
                _ => {}
            }
        };
        let header = headers(&partition)[0];
        rounds.push((ended.cleaned_to.0, header.record_count(), header.delete_horizon().map(|at| at.0)));
    }
    assert_eq!(rounds, [(3, 5, None), (5, 4, Some(2100))]);
    assert_eq!(lines(&partition), ["0 a -", "1 b v", "2 c v", "3 d -"]);
}

/// Output that is larger than a segment rolls: here the bound has become smaller.
#[test]
fn what_does_not_fit_one_segment_becomes_several() {
    let (partition, storage, clock) = fresh(config());
    for n in 0..20_u64 {
        put(&partition, &[(Some(&format!("key-{n}")), Some(&"v".repeat(100)), 1)]);
    }
    partition.roll().expect("rolled");
    let before = batches(&partition);
    partition.set_config(config().segment_bytes(1000)).expect("set");
    let done = compact(&partition, 1000);
    assert_eq!((done.segments_before, done.segments_after), (1, 4));
    assert_eq!(batches(&partition), before);
    assert!(storage.paths().iter().all(|path| !path.to_string_lossy().ends_with(".swap")));
    partition.clone().close().expect("closed");
    let partition = builder(&storage, &clock, config()).open().expect("it opens");
    assert_eq!(batches(&partition), before);
}

#[test]
fn compaction_begins_by_its_ratio_and_by_age() {
    let (partition, ..) = fresh(config());
    let steps = |partition: &Partition, millis| {
        let mut ended = 0;
        loop {
            match partition.compact(at(millis), 1).expect("compacted") {
                Compacting::Idle => return ended,
                Compacting::Ended(_) => ended += 1,
                _ => {}
            }
        }
    };
    assert_eq!(steps(&partition, 1000), 0);
    for key in ["a", "b", "c", "d"] {
        put(&partition, &[(Some(key), Some("v"), 10)]);
        partition.roll().expect("rolled");
    }
    assert_eq!(steps(&partition, 1000), 1, "all is dirty; step by step it comes to its end");
    put(&partition, &[(Some("a"), Some("w"), 50)]);
    partition.roll().expect("rolled");
    assert_eq!(steps(&partition, 1000), 0, "a fifth is not enough");
    partition.set_config(config().max_compaction_lag(Some(HUNDRED))).expect("set");
    assert_eq!(steps(&partition, 150), 0, "as old as it may be");
    assert_eq!(steps(&partition, 151), 1);
    partition.set_config(config().min_dirty_ratio(Ratio::new(0.1))).expect("set");
    put(&partition, &[(Some("a"), Some("x"), 50)]);
    partition.roll().expect("rolled");
    assert_eq!(steps(&partition, 1000), 1);
    partition.set_config(config().max_compaction_lag(Some(HUNDRED))).expect("set");
    put(&partition, &[(Some("a"), Some("x"), 1000)]);
    put(&partition, &[(Some("a"), Some("x"), 1100)]);
    assert_eq!(partition.stats().segments, 2, "as late as it may be");
    put(&partition, &[(Some("a"), Some("x"), 1101)]);
    assert_eq!(partition.stats().segments, 3, "a segment is closed in time");
}

/// A partition alone is compacted by its maintenance, which goes on with everything else.
#[test]
fn maintenance_compacts_a_partition_alone() {
    let both = config().cleanup(Cleanup::CompactAndDelete).retention(Retention::forever().age(HUNDRED));
    let (partition, _storage, clock) = fresh(both);
    for time in [10, 20, 30] {
        put(&partition, &[(Some("a"), Some("v"), time)]);
        partition.roll().expect("rolled");
    }
    let now = |millis| Now { wall: Timestamp(millis), ..clock.now() };
    let done = partition.maintain(now(40)).expect("maintained");
    assert_eq!(done.compacted.map(|done| done.records_dropped), Some(2));
    assert_eq!((lines(&partition), partition.start()), (vec!["2 a v".to_owned()], Offset(0)));
    let done = partition.maintain(now(131)).expect("maintained");
    assert!(done.removed.len() == 1 && done.compacted.is_none());
    assert_eq!((lines(&partition).len(), partition.start()), (0, Offset(3)));
}

/// The files that were written say when the last of those that they stand for was.
#[test]
fn the_time_of_the_files_stays() {
    let (partition, storage, _) = fresh(config());
    for time in [100, 200] {
        storage.set_time(Timestamp(time));
        put(&partition, &[(Some("a"), Some("v"), 1)]);
        partition.roll().expect("rolled");
    }
    storage.set_time(Timestamp(900));
    compact(&partition, 1000);
    let path = format!("{PATH}/00000000000000000000.log");
    assert_eq!(storage.modified(path.as_ref()).expect("it is there"), Timestamp(200));
}

/// Readers that hold what they have read, and those that go on in the middle.
#[test]
fn readers_in_the_middle_see_the_old_or_the_new() {
    let (partition, ..) = fresh(config());
    for n in 0..30_u64 {
        put_of(&partition, 4, i32::try_from(n).expect("small"), true, &[(Some(&format!("k{}", n % 3)), Some("v"), 1)]);
        if n % 5 == 4 {
            mark(&partition, 4, if n == 14 { Outcome::Aborted } else { Outcome::Committed }, 1);
            partition.roll().expect("rolled");
        }
    }
    let held: Vec<_> =
        (0..36).step_by(6).map(|at| partition.try_read(Offset(at), ReadOptions::new()).expect("read")).collect();
    let before: Vec<Vec<u64>> = held.iter().map(|f| f.records().map(|r| r.offset().0).collect()).collect();
    let all = read(&partition, Isolation::Committed);
    compact(&partition, 1000);
    assert!(partition.stats().held_bytes > 0, "the old segments live while somebody holds them");
    let still: Vec<Vec<u64>> = held.iter().map(|f| f.records().map(|r| r.offset().0).collect()).collect();
    assert_eq!(before, still);
    drop(held);
    let now = read(&partition, Isolation::Committed);
    assert_eq!(now.len(), 3);
    for from in 0..36 {
        let expected: Vec<_> = now.iter().filter(|(offset, ..)| *offset >= from).cloned().collect();
        assert_eq!(read_from(&partition, Offset(from), Isolation::Committed), expected, "from {from}");
    }
    assert!(now.iter().all(|record| all.contains(record)));
}

/// What a cleaning is under way for may change: then it counts for nothing, and the next one begins anew.
#[test]
fn truncation_removal_reopen_and_close_come_first() {
    let prepare = || {
        let (partition, storage, clock) = fresh(config().durability(Durability::Os));
        for n in 0..40_u64 {
            put(&partition, &[(Some(&format!("k{}", n % 4)), Some(&format!("{n}")), 1)]);
            if n % 10 == 9 {
                partition.roll().expect("rolled");
            }
        }
        (partition, storage, clock)
    };
    let step =
        |partition: &Partition| matches!(partition.compact(at(1), 1).expect("compacted"), Compacting::Working { .. });
    let leftovers = |storage: &MemoryStorage| {
        storage.paths().iter().filter(|p| p.extension().is_some_and(|e| e == "cleaned" || e == "swap")).count()
    };
    for steps in 0..40 {
        let (partition, ..) = prepare();
        (0..steps).take_while(|_| step(&partition)).count();
        let under_way = shape(&partition).len() == 40;
        let end = partition.truncate_from(Offset(25), Force::Yes).expect("truncated");
        // Where the compaction has ended nothing is left before, so that the log ends with its start.
        assert!(end == if under_way { Offset(25) } else { Offset(0) }, "{end} after {steps} steps");
        assert_eq!(put(&partition, &[(Some("k1"), Some("again"), 1)]), end);
        partition.roll().expect("rolled");
        let done = compact(&partition, 1000);
        let kept: &[&str] = &["22 k2 22", "23 k3 23", "24 k0 24", "25 k1 again"];
        assert_eq!(lines(&partition), if under_way { kept } else { &["0 k1 again"] }, "{steps}: {done}");

        let (partition, ..) = prepare();
        (0..steps).take_while(|_| step(&partition)).count();
        partition.trim_before(Offset(10)).expect("trimmed");
        compact(&partition, 1000);
        assert_eq!(lines(&partition), ["36 k0 36", "37 k1 37", "38 k2 38", "39 k3 39"]);
        assert_eq!(partition.start(), Offset(10));

        let (partition, storage, _) = prepare();
        (0..steps).take_while(|_| step(&partition)).count();
        partition.reopen().expect("reopened");
        assert_eq!(leftovers(&storage), 0, "after {steps} steps");
        compact(&partition, 1000);
        assert_eq!(lines(&partition).len(), 4);

        let (partition, storage, clock) = prepare();
        (0..steps).take_while(|_| step(&partition)).count();
        partition.clone().close().expect("closed");
        assert_eq!(leftovers(&storage), 0, "after {steps} steps");
        assert!(matches!(partition.compact(at(1), 1), Err(Error::Closed)));
        let partition = builder(&storage, &clock, config()).open().expect("it opens");
        assert!(partition.recovery().clean);
        assert_eq!(lines(&partition).last().map(String::as_str), Some("39 k3 39"));
    }
}

/// A cleaning that is told to stop by a hold leaves what it holds.
#[test]
fn a_hold_that_comes_while_it_is_under_way_counts() {
    let (partition, ..) = fresh(config());
    for _ in 0..2 {
        put(&partition, &[(Some("a"), Some("v"), 1)]);
    }
    partition.roll().expect("rolled");
    assert!(matches!(partition.compact(at(1), 1).expect("begun"), Compacting::Working { .. }));
    let hold = partition.hold(Offset(0)).expect("held");
    let ended = loop {
        match partition.compact(at(1), 1).expect("goes on") {
            Compacting::Ended(ended) => break ended,
            Compacting::Idle => panic!("it ends with a report"),
            _ => {}
        }
    };
    assert_eq!(ended.end, CompactionEnd::Interrupted);
    assert_eq!(shape(&partition), [(0, 0, 1), (1, 1, 1)]);
    drop(hold);
    compact(&partition, 1);
    assert_eq!(shape(&partition), [(1, 1, 1)]);
}

/// Up to where the log is compacted is known to the next open; what is appended behind a cut is dirty again.
#[test]
fn the_checkpoint_is_kept_and_lowered() {
    let (partition, storage, clock) = fresh(config());
    for n in 0..6 {
        put(&partition, &[(Some("a"), Some("v"), 1)]);
        if n % 2 == 1 {
            partition.roll().expect("rolled");
        }
    }
    compact(&partition, 1);
    let checkpoint = |storage: &MemoryStorage| {
        let bytes = storage.bytes_of(format!("{PATH}/cleaner-offset-checkpoint")).expect("it is there");
        String::from_utf8(bytes.to_vec()).expect("UTF-8")
    };
    assert_eq!(checkpoint(&storage), "0\n1\nkept 0 6\n");
    partition.clone().close().expect("closed");
    let partition = builder(&storage, &clock, config()).open().expect("it opens");
    assert!(matches!(partition.compact(at(1), 1), Ok(Compacting::Idle)), "nothing is dirty");
    partition.truncate_from(Offset(5), Force::Yes).expect("truncated");
    assert_eq!(checkpoint(&storage), "0\n1\nkept 0 0\n");
}

/// What was compacted and lies in the segment of a cut counts as dirty, at once and for the next open.
#[test]
fn what_is_appended_behind_a_cut_is_dirty() {
    let (partition, storage, _) = fresh(config());
    for n in 0..6 {
        put(&partition, &[(Some(&format!("k{n}")), Some("v"), 1)]);
        if n % 2 == 1 {
            partition.roll().expect("rolled");
        }
    }
    // Each segment stays by itself.
    partition.set_config(config().segment_bytes(200)).expect("set");
    assert_eq!(compact(&partition, 1).cleaned_to, Offset(6));
    assert_eq!(partition.truncate_from(Offset(5), Force::Yes).expect("truncated"), Offset(5));
    let checkpoint = storage.bytes_of(format!("{PATH}/cleaner-offset-checkpoint")).expect("it is there");
    assert_eq!(checkpoint, &b"0\n1\nkept 0 4\n"[..], "where the segment of the cut begins");
    for key in ["k1", "k9"] {
        put(&partition, &[(Some(key), Some("again"), 1)]);
    }
    partition.roll().expect("rolled");
    compact(&partition, 1);
    assert_eq!(lines(&partition), ["0 k0 v", "2 k2 v", "3 k3 v", "4 k4 v", "5 k1 again", "6 k9 again"]);
}

/// A full disk: the old segments are all there, the report says so, and it is tried again later.
#[test]
fn on_a_full_disk_the_old_segments_stay() {
    let (partition, storage, clock) = fresh(config());
    for _ in 0..6 {
        put(&partition, &[(Some("a"), Some("v"), 1)]);
    }
    partition.roll().expect("rolled");
    let before = (batches(&partition), partition.stats().segments);
    storage.fill_up();
    let done = partition.compact_all(clock.now()).expect("a full disk is no error");
    assert!(matches!(&done.end, CompactionEnd::DiskFull { path } if path.starts_with(PATH)), "{done}");
    assert_eq!((done.segments_before, done.cleaned_to), (0, Offset(0)));
    assert_eq!((batches(&partition), partition.stats().segments), before);
    assert!(partition.compaction_error().is_none());
    storage.free();
    assert!(matches!(partition.compact(clock.now(), 1), Ok(Compacting::Idle)), "not yet");
    clock.advance(Duration::from_secs(15));
    assert!(matches!(partition.compact(clock.now(), 1), Ok(Compacting::Working { .. })));
    compact(&partition, 1);
    assert_eq!(lines(&partition), ["5 a v"]);
}

/// The same, where there is no room for any one of the writes: no record is left out of what takes the place of the old ones.
#[test]
fn a_disk_that_is_full_for_a_moment_leaves_no_record_out() {
    let run = |number: Option<u64>| {
        let (partition, storage, clock) = fresh(config());
        for n in 0..8_u64 {
            put(&partition, &[(Some(&format!("k{}", n % 3)), Some("v"), 1)]);
        }
        partition.roll().expect("rolled");
        let before = batches(&partition);
        storage.record_history();
        if let Some(number) = number {
            storage.fail_at(number, Fault::NoSpace);
        }
        let done = partition.compact_all(clock.now()).expect("a full disk is no error");
        let takes_room = |kind| matches!(kind, OperationKind::Create | OperationKind::Write);
        let history = storage.history().into_iter().filter(|one| takes_room(one.kind));
        let numbers: Vec<u64> = history.map(|one| one.number).collect();
        storage.clear_faults();
        let is_full = matches!(done.end, CompactionEnd::DiskFull { .. });
        if is_full && done.segments_after == 0 {
            assert_eq!(batches(&partition), before, "{number:?}");
        }
        compact(&partition, 1);
        assert_eq!(lines(&partition), ["5 k2 v", "6 k0 v", "7 k1 v"], "{number:?}");
        (numbers, is_full)
    };
    let (numbers, _) = run(None);
    let full = numbers.iter().filter(|number| run(Some(**number)).1).count();
    assert!(full >= 3, "{full} of {} operations found no room", numbers.len());
}

/// Damage ends the compaction of a partition until it is reopened; everything else goes on.
#[test]
fn a_partition_that_fails_is_left_alone_until_it_is_reopened() {
    let (partition, storage, clock) = fresh(config());
    for n in 0..6 {
        put(&partition, &[(Some("a"), Some("v"), n)]);
    }
    partition.roll().expect("rolled");
    let log = format!("{PATH}/00000000000000000000.log");
    storage.flip_bit(&log, 100, 3).expect("it is there");
    let failed = partition.compact_all(clock.now()).expect_err("it is damaged");
    assert!(matches!(failed, Error::Corrupt { .. }), "{failed}");
    assert!(matches!(partition.compaction_error(), Some(Error::Corrupt { .. })));
    assert!(matches!(partition.compact_all(clock.now()), Err(Error::Corrupt { .. })), "for the same reason");
    assert_eq!(partition.maintain(clock.now()).expect("maintained").compacted, None);
    put(&partition, &[(Some("a"), Some("w"), 9)]);
    storage.flip_bit(&log, 100, 3).expect("it is there");
    partition.reopen().expect("reopened");
    assert!(partition.compaction_error().is_none());
    partition.roll().expect("rolled");
    compact(&partition, 1);
    assert_eq!(lines(&partition), ["6 a w"]);
}

/// What fails in the exchange is undone, or the reopen ends it.
#[test]
fn every_operation_may_fail() {
    let run = |fault: Option<u64>| {
        let (partition, storage, clock) = fresh(config());
        for n in 0..8_u64 {
            put(&partition, &[(Some(&format!("k{}", n % 2)), Some("v"), 1)]);
            if n % 2 == 1 {
                partition.roll().expect("rolled");
            }
        }
        let begin = storage.operations();
        if let Some(number) = fault {
            storage.fail_at(begin + number, Fault::Io);
        }
        let outcome = partition.compact_all(clock.now());
        let count = storage.operations() - begin;
        storage.clear_faults();
        let (last, names) = (lines(&partition), ["6 k0 v", "7 k1 v"]);
        assert_eq!(last[last.len() - 2..], names, "{fault:?}: {outcome:?}");
        if outcome.is_err() {
            partition.reopen().expect("reopened");
            partition.roll().expect("rolled");
        }
        compact(&partition, 1);
        assert_eq!(lines(&partition), names, "{fault:?}");
        assert!(storage.paths().iter().all(|path| {
            let name = path.to_string_lossy();
            !name.ends_with(".cleaned") && !name.ends_with(".swap")
        }));
        put(&partition, &[(Some("k0"), Some("more"), 1)]);
        partition.clone().close().expect("closed");
        let partition = builder(&storage, &clock, config()).open().expect("it opens");
        assert_eq!(lines(&partition), ["6 k0 v", "7 k1 v", "8 k0 more"], "{fault:?}");
        (count, outcome.is_ok())
    };
    let (count, _) = run(None);
    let failed = (0..count).filter(|number| !run(Some(*number)).1).count();
    assert!(failed > 20, "{failed} of {count} operations were needed");
}
