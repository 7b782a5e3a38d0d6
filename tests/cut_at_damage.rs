//! Cutting a log at the damage is the natural repair where a copy has the rest. It was once refused, with the very error
//! that it was to mend.

use std::path::PathBuf;

use taffrail::{
    BatchBuilder, BatchHeader, Cleanup, Commits, Error, Force, MemoryStorage, Offset, Partition, PartitionConfig,
    ReadOptions, Record, UpTo,
};

fn open(storage: &MemoryStorage) -> Partition {
    let config = PartitionConfig::new().segment_bytes(1_500).index_interval_bytes(200).commits(Commits::ByHost);
    Partition::builder("data/wal-0").config(config).storage(storage.shared()).open().expect("opens")
}

fn append(partition: &Partition) {
    let mut batch = BatchBuilder::new();
    (0..2).for_each(|_| batch.push(&Record::new(&"v".repeat(100))).expect("small"));
    partition.append(&mut batch).expect("taken").wait().expect("stored");
}

/// A log of ten batches of two records, four in each full segment, and where each batch of the second segment begins.
fn filled() -> (MemoryStorage, Partition, PathBuf, Vec<u64>) {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage);
    (0..10).for_each(|_| append(&partition));
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    let path = storage.paths().into_iter().filter(is_log).nth(1).expect("a second segment");
    let bytes = storage.bytes_of(&path).expect("there");
    let (mut at, mut positions) = (0, Vec::new());
    while let Ok(header) = BatchHeader::parse(bytes.get(at..).unwrap_or_default()) {
        positions.push(at as u64);
        at += usize::try_from(header.size()).expect("fits");
    }
    (storage, partition, path, positions)
}

fn read_all(partition: &Partition) -> Vec<u64> {
    let mut at = partition.start();
    let mut read = Vec::new();
    while at < partition.end() {
        let fetched = partition.try_read(at, ReadOptions::new().up_to(UpTo::LogEnd)).expect("sound");
        read.extend(fetched.records().map(|record| record.offset().0));
        at = fetched.next_offset();
    }
    read
}

#[test]
fn a_cut_at_damage_ends_the_log_with_the_last_sound_batch() {
    let (_, partition, path, positions) = filled();
    let first: u64 = path.file_stem().and_then(|stem| stem.to_str()).expect("digits").parse().expect("digits");
    drop(partition);
    // A payload, the length, the last offset delta, the base offset, the checksum.
    for (byte, bit) in [(80, 1), (11, 2), (26, 0), (26, 4), (7, 1), (17, 3)] {
        for (number, offset) in [(1, 2), (1, 3), (0, 0), (0, 1)] {
            for reopened in [false, true] {
                let (storage, mut partition, path, _) = filled();
                let expected = Offset(first + 2 * number);
                storage.flip_bit(&path, positions[usize::try_from(number).expect("small")] + byte, bit).expect("there");
                if reopened {
                    partition.close().expect("closes");
                    partition = open(&storage);
                }
                let cut = partition.truncate_from(Offset(first + offset), Force::Yes);
                let story = format!("byte {byte} of batch {number}, cut from {offset}, reopened {reopened}");
                assert_eq!(cut.expect(&story), expected, "{story}");
                assert_eq!(read_all(&partition), (0..expected.0).collect::<Vec<_>>(), "{story}");
                append(&partition);
                partition.close().expect("closes");
                assert_eq!(read_all(&open(&storage)), (0..expected.0 + 2).collect::<Vec<_>>(), "{story}");
            }
        }
    }
}

#[test]
fn what_is_not_forced_stays_below_the_high_watermark() {
    let (storage, partition, path, positions) = filled();
    partition.commit_to(partition.end()).expect("in the log");
    storage.flip_bit(&path, positions[1] + 80, 1).expect("there");
    let refused = partition.truncate_from(Offset(11), Force::No);
    assert!(matches!(refused, Err(Error::BelowHighWatermark { .. })), "{refused:?}");
}

/// The power took the front of a last, unsynced batch, its base offset with it, which no checksum covers. In a log that
/// may have gaps it was believed, and the synced batch before it was cut as the one that is wrong.
#[test]
fn a_half_written_last_batch_contradicts_nobody() {
    for records in 1..4 {
        let storage = MemoryStorage::new(1);
        let config = PartitionConfig::new().cleanup(Cleanup::Compact);
        let open = |storage: &MemoryStorage| {
            let builder = Partition::builder("data/wal-0").config(config.clone());
            builder.storage(storage.shared()).open().expect("opens")
        };
        let partition = open(&storage);
        let append = |count: u64| {
            let mut batch = BatchBuilder::new();
            (0..count).for_each(|_| batch.push(&Record::new("v").key("k")).expect("small"));
            partition.append(&mut batch).expect("taken").offsets.start
        };
        append(records);
        partition.sync().expect("synced");
        append(2);
        let storage = storage.kill();
        let log = "data/wal-0/00000000000000000000.log";
        let mut bytes = storage.bytes_of(log).expect("there").to_vec();
        let second = usize::try_from(BatchHeader::parse(&bytes).expect("sound").size()).expect("small");
        bytes[second..second + 8].fill(0);
        storage.set_bytes(log, &bytes).expect("there");
        let partition = open(&storage);
        assert_eq!(partition.end(), Offset(records), "{:?}", partition.recovery());
        assert_eq!(partition.recovery().lost, None);
    }
}
