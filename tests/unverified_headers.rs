//! The fields of a header were once believed before its checksum was looked at: a flipped bit in `lastOffsetDelta` made a
//! batch reach behind the high watermark, which counted as "nothing to read yet". A reader was answered nothing, with
//! success, for ever; so was whoever asked for the sound batches behind it, and one that tails the log did not even
//! sleep in between. Now damage is an error that says where to go on, and a bound inside a sound batch is a bound.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use taffrail::{
    BatchBuilder, BatchHeader, Commits, Error, LeaderEpoch, MemoryStorage, Offset, Partition, PartitionConfig,
    ReadOptions, Record, UpTo,
};

fn open(storage: &MemoryStorage, config: PartitionConfig) -> Partition {
    Partition::builder("data/wal-0").config(config).storage(storage.shared()).open().expect("opens")
}

fn batch(records: u64) -> BatchBuilder {
    let mut batch = BatchBuilder::new();
    (0..records).for_each(|_| batch.push(&Record::new("v")).expect("small"));
    batch
}

fn append(partition: &Partition, records: u64) {
    partition.append(&mut batch(records)).expect("taken").wait().expect("stored");
}

/// A replica's batch of one record at `base`, which may leave a gap.
fn append_behind_a_gap(partition: &Partition, base: u64) {
    let mut one = batch(1);
    one.base_offset(Offset(base));
    one.leader_epoch(LeaderEpoch(0));
    let bytes = one.encode().expect("encodes").to_vec();
    partition.append_replica(&bytes, LeaderEpoch(0)).expect("taken").wait().expect("stored");
}

fn last_log(storage: &MemoryStorage) -> PathBuf {
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    storage.paths().into_iter().rfind(is_log).expect("a log")
}

/// The size of the first batch in the file.
fn first_size(storage: &MemoryStorage) -> u64 {
    BatchHeader::parse(&storage.bytes_of(last_log(storage)).expect("there")).expect("sound").size()
}

/// Reads from the start to the end: the offsets read, and the ranges that an error named.
fn survey(partition: &Partition, options: ReadOptions) -> (Vec<u64>, Vec<(u64, u64)>) {
    let (mut read, mut lost) = (Vec::new(), Vec::new());
    let mut at = partition.start();
    while at < partition.end() {
        match partition.read(at, options) {
            Ok(fetched) => {
                assert!(fetched.next_offset() > at, "nothing is answered at {at} of {}", partition.end());
                read.extend(fetched.records().map(|record| record.offset().0));
                at = fetched.next_offset();
            }
            Err(Error::Corrupt { offsets, .. }) => {
                lost.push((offsets.start.0, offsets.end.0));
                at = offsets.end;
            }
            Err(error) => panic!("at {at}: {error}"),
        }
    }
    (read, lost)
}

#[test]
fn damage_in_the_last_offset_delta_is_an_error() {
    for byte in 23..=26 {
        for bit in 0..8 {
            let storage = MemoryStorage::new(1);
            let partition = open(&storage, PartitionConfig::new());
            (0..5).for_each(|_| append(&partition, 2));
            storage.flip_bit(last_log(&storage), first_size(&storage) + byte, bit).expect("there");
            for up_to in [UpTo::HighWatermark, UpTo::LogEnd] {
                let found = survey(&partition, ReadOptions::new().up_to(up_to));
                assert_eq!(found, (vec![0, 1, 4, 5, 6, 7, 8, 9], vec![(2, 4)]), "byte {byte}, bit {bit}");
                let found = survey(&partition, ReadOptions::new().up_to(up_to).max_bytes(1));
                assert_eq!(found, (vec![0, 1, 4, 5, 6, 7, 8, 9], vec![(2, 4)]), "byte {byte}, bit {bit}");
            }
        }
    }
}

/// Base offsets lie outside of the checksum. In a log with gaps the batch before does not say which is due; the ones
/// behind it do, and where there is none, the end of the log.
#[test]
fn damage_in_the_base_offset_of_a_log_with_gaps_is_an_error() {
    for last in [false, true] {
        for (byte, bit) in [(1, 0), (3, 5), (5, 0), (6, 7), (7, 5)] {
            let storage = MemoryStorage::new(1);
            let partition = open(&storage, PartitionConfig::new());
            append(&partition, 1);
            append_behind_a_gap(&partition, 5);
            if !last {
                append(&partition, 2);
            }
            storage.flip_bit(last_log(&storage), first_size(&storage) + byte, bit).expect("there");
            let (read, lost) = survey(&partition, ReadOptions::new());
            let sound = if last { vec![0] } else { vec![0, 6, 7] };
            assert_eq!(read, sound, "byte {byte}, bit {bit}, last {last}");
            assert_eq!(lost.len(), 1, "byte {byte}, bit {bit}, last {last}: {lost:?}");
            assert!(lost[0].0 <= 5 && lost[0].1 == 6, "byte {byte}, bit {bit}, last {last}: {lost:?}");
        }
    }
}

/// What a host has not committed yet, in a sound batch, is waited for, and the wait is one.
#[test]
fn a_bound_inside_a_sound_batch_is_waited_at() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage, PartitionConfig::new().commits(Commits::ByHost));
    append(&partition, 4);
    append_behind_a_gap(&partition, 9);
    partition.commit_to(Offset(2)).expect("in the log");
    assert!(partition.read(Offset(0), ReadOptions::new()).expect("sound").is_empty());
    // Behind the gap stands a batch that is not committed: there is nothing in the gap, and the reader goes on.
    partition.commit_to(Offset(7)).expect("in the log");
    assert_eq!(survey_up_to(&partition, 7), [0, 1, 2, 3]);
    let begun = Instant::now();
    let fetched = partition.read(Offset(7), ReadOptions::new().max_wait(Duration::from_millis(50))).expect("sound");
    assert!(fetched.is_empty() && begun.elapsed() >= Duration::from_millis(50));
    partition.commit_to(Offset(10)).expect("in the log");
    assert_eq!(survey(&partition, ReadOptions::new()).0, [0, 1, 2, 3, 9]);
}

fn survey_up_to(partition: &Partition, end: u64) -> Vec<u64> {
    let mut at = Offset(0);
    let mut read = Vec::new();
    while at < Offset(end) {
        let fetched = partition.read(at, ReadOptions::new()).expect("sound");
        assert!(fetched.next_offset() > at, "nothing is answered at {at}");
        read.extend(fetched.records().map(|record| record.offset().0));
        at = fetched.next_offset();
    }
    read
}
