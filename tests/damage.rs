//! Damaged files under a partition: found, named with their place, never served, never silently skipped.

#[path = "support/ledger.rs"]
mod ledger;

use std::sync::Arc;

use ledger::{Ledger, content};
use taffrail::{
    BatchHeader, Durability, Error, ErrorKind, Isolation, ManualClock, MemoryStorage, Offset, Partition,
    PartitionConfig, ReadOptions, Result, Timestamp, UpTo,
};

const DIRECTORY: &str = "data/wal-0";

fn config() -> PartitionConfig {
    PartitionConfig::new().durability(Durability::Os).segment_bytes(2_000).index_interval_bytes(300)
}

fn open(storage: &MemoryStorage) -> Result<Partition> {
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    Partition::builder(DIRECTORY).config(config()).storage(storage.shared()).clock(clock).open()
}

/// A partition of some 40 batches in several segments, closed or killed.
fn written(close: bool) -> (MemoryStorage, Ledger) {
    let storage = MemoryStorage::new(1);
    let mut ledger = Ledger::default();
    let partition = open(&storage).expect("it opens");
    for round in 0..40_u64 {
        let (mut batch, values) = ledger.batch(1 + round % 3, 20 + usize::try_from(round % 50).expect("small"));
        ledger.attempt(partition.end(), &values);
        let _ = partition.append(&mut batch).expect("appended");
    }
    if close {
        partition.close().expect("closed");
        return (storage, ledger);
    }
    (storage.kill(), ledger)
}

/// The segments: path, and where its batches begin and end, with their headers.
fn layout(storage: &MemoryStorage) -> Vec<(String, Vec<(u64, BatchHeader)>)> {
    let mut segments = Vec::new();
    for path in storage.paths() {
        let name = path.to_string_lossy().into_owned();
        if !name.ends_with(".log") {
            continue;
        }
        let bytes = storage.bytes_of(&name).expect("it is there");
        let mut batches = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let header = BatchHeader::parse(&bytes[at..]).expect("sound");
            batches.push((at as u64, header));
            at += usize::try_from(header.size()).expect("small");
        }
        segments.push((name, batches));
    }
    segments
}

fn options() -> ReadOptions {
    ReadOptions::new().isolation(Isolation::Uncommitted).up_to(UpTo::LogEnd).max_bytes(700)
}

/// Reads everything, seeking past what is damaged: the offsets read, and the ranges skipped.
fn read_past_damage(partition: &Partition) -> (Vec<u64>, Vec<std::ops::Range<u64>>) {
    let (mut read, mut skipped) = (Vec::new(), Vec::new());
    let mut at = partition.start();
    while at < partition.end() {
        match partition.try_read(at, options()) {
            Ok(fetched) => {
                assert!(!fetched.is_empty(), "nothing at {at}");
                read.extend(fetched.records().map(|record| record.offset().0));
                at = fetched.next_offset();
            }
            Err(Error::Corrupt { offsets, .. }) => {
                assert!(offsets.start <= at && at < offsets.end, "{at} is not in {offsets:?}");
                skipped.push(at.0..offsets.end.0);
                at = offsets.end;
            }
            Err(error) => panic!("{error}"),
        }
    }
    (read, skipped)
}

/// A flipped bit in every byte of a batch in the middle of a sealed segment: an error there, everything else reads.
#[test]
fn a_flipped_bit_in_a_sealed_segment() {
    let (storage, _) = written(true);
    let segments = layout(&storage);
    let (path, batches) = &segments[1];
    let number = batches.len() / 2;
    let (position, header) = batches[number];
    let all: Vec<u64> = (0..open(&storage.kill()).expect("it opens").end().0).collect();
    for byte in 0..header.size() {
        for bit in [0, 6] {
            let damaged = storage.kill();
            damaged.flip_bit(path, position + byte, bit).expect("it is there");
            let partition = open(&damaged).expect("sealed segments are not read at open");
            let (read, skipped) = read_past_damage(&partition);
            let lost: Vec<u64> = all.iter().copied().filter(|offset| !read.contains(offset)).collect();
            let expected: Vec<u64> = (header.base_offset().0..header.next_offset().0).collect();
            assert_eq!(lost, expected, "byte {byte} bit {bit}");
            assert_eq!(skipped, [header.base_offset().0..header.next_offset().0], "byte {byte} bit {bit}");
            let error = partition.try_read(header.base_offset(), options()).expect_err("it is damaged");
            assert_eq!(error.kind(), ErrorKind::Restore);
            assert!(
                matches!(&error, Error::Corrupt { path: told, position: at, .. }
                if told.to_string_lossy() == *path && *at == position),
                "byte {byte} bit {bit}: {error}"
            );
        }
    }
}

/// The same where nothing was closed and everything is verified at open: it is listed, and left.
#[test]
fn recovery_lists_damage_in_sealed_segments() {
    let (storage, _) = written(false);
    let segments = layout(&storage);
    let (path, batches) = &segments[1];
    let (position, header) = batches[batches.len() / 2];
    let before = storage.bytes_of(path).expect("it is there");
    for byte in 0..header.size() {
        let damaged = storage.kill();
        damaged.flip_bit(path, position + byte, 3).expect("it is there");
        let changed = damaged.bytes_of(path).expect("it is there");
        let partition = open(&damaged).expect("it opens");
        let recovery = partition.recovery();
        let [listed] = &recovery.damaged[..] else { panic!("byte {byte}: {recovery:?}") };
        assert_eq!((listed.position, &listed.offsets), (position, &(header.base_offset()..header.next_offset())));
        assert_eq!(damaged.bytes_of(path).expect("it is there"), changed, "a sealed segment is left as it is");
        let (_, skipped) = read_past_damage(&partition);
        assert_eq!(skipped, [header.base_offset().0..header.next_offset().0], "byte {byte}");
    }
    assert_eq!(storage.bytes_of(path).expect("it is there"), before);
}

/// A flipped bit in the last segment: cut there, and what stood behind is kept beside it and named.
#[test]
fn a_flipped_bit_in_the_last_segment() {
    let (storage, ledger) = written(false);
    let segments = layout(&storage);
    let (path, batches) = segments.last().expect("several");
    let (position, header) = batches[batches.len() / 2];
    let original = storage.bytes_of(path).expect("it is there");
    for byte in 0..header.size() {
        let damaged = storage.kill();
        damaged.flip_bit(path, position + byte, 5).expect("it is there");
        let changed = damaged.bytes_of(path).expect("it is there");
        let partition = open(&damaged).expect("it opens");
        let recovery = partition.recovery();
        let cut = recovery.cut.as_ref().unwrap_or_else(|| panic!("byte {byte}: nothing was cut"));
        assert_eq!((cut.position, cut.bytes), (position, original.len() as u64 - position), "byte {byte}");
        let saved = cut.saved_to.as_ref().expect("valid batches stand behind");
        let start = usize::try_from(position).expect("small");
        assert_eq!(&damaged.bytes_of(saved).expect("it was saved")[..], &changed[start..]);
        assert_eq!(partition.end(), header.base_offset());
        ledger.check(&partition);
    }
}

/// A torn tail at every byte of the last batch: cut, and the log ends before it.
#[test]
fn a_torn_tail() {
    let (storage, ledger) = written(false);
    let segments = layout(&storage);
    let (path, batches) = segments.last().expect("several");
    let (position, header) = *batches.last().expect("some");
    let bytes = storage.bytes_of(path).expect("it is there");
    for len in 0..header.size() {
        for filler in [None, Some(0), Some(0xff)] {
            let torn = storage.kill();
            let keep = usize::try_from(position + len).expect("small");
            let mut left = bytes[..keep].to_vec();
            if let Some(filler) = filler {
                left.resize(bytes.len() + 100, filler);
            }
            if left.starts_with(&bytes) {
                continue; // the batch ends in zeros, so it is whole
            }
            torn.set_bytes(path, &left).expect("placed");
            let partition = open(&torn).expect("it opens");
            assert_eq!(partition.end(), header.base_offset(), "{len} bytes of the last batch, then {filler:?}");
            let torn_bytes = left[usize::try_from(position).expect("small")..].iter().any(|byte| *byte != 0);
            assert_eq!(partition.recovery().cut.is_some(), torn_bytes, "zeros alone are no loss: {len} {filler:?}");
            assert!(partition.recovery().cut.as_ref().is_none_or(|cut| cut.saved_to.is_none()));
            ledger.check(&partition);
        }
    }
}

/// Indexes that are missing, short, long, padded with zeros, of another segment, or noise: found and rebuilt.
#[test]
fn wrong_indexes() {
    let (storage, _) = written(true);
    let expected = content(&open(&storage.kill()).expect("it opens"));
    let segments = layout(&storage);
    let index_of = |number: usize, suffix: &str| segments[number].0.replace(".log", suffix);
    for suffix in [".index", ".timeindex"] {
        for number in 0..segments.len() {
            let path = index_of(number, suffix);
            let sound = storage.bytes_of(&path).expect("closed with its indexes").to_vec();
            let other = storage.bytes_of(index_of((number + 1) % segments.len(), suffix)).expect("there").to_vec();
            let short = sound[..sound.len() / 2].to_vec();
            let long = [&sound[..], &sound[..]].concat();
            let padded = [&sound[..], &[0; 240]].concat();
            let noise = vec![0xa5; sound.len() + 5];
            for (what, wrong) in [
                ("short", short),
                ("long", long),
                ("padded", padded),
                ("foreign", other),
                ("noise", noise),
                ("empty", vec![]),
            ] {
                let damaged = storage.kill();
                damaged.set_bytes(&path, &wrong).expect("placed");
                let partition = open(&damaged).unwrap_or_else(|error| panic!("{what} {path}: {error}"));
                assert_eq!(content(&partition), expected, "{what} {path}");
                for offset in 0..partition.end().0 {
                    let fetched = partition.try_read(Offset(offset), options().max_bytes(1)).expect("readable");
                    assert_eq!(fetched.records().next().map(|record| record.offset().0), Some(offset), "{what} {path}");
                }
                for timestamp in [0, 1_000, 1_020, 1_050, 2_000] {
                    let found = partition.find_timestamp(Timestamp(timestamp)).expect("searched");
                    let first = u64::try_from((timestamp - 1_001).max(0)).expect("not negative");
                    assert_eq!(
                        found.map(|found| found.offset.0),
                        Some(first).filter(|_| timestamp < 2_000),
                        "{what} {path}"
                    );
                }
            }
        }
    }
}

/// A segment that is missing in the middle is not stepped over in silence.
#[test]
fn a_missing_segment() {
    let (storage, _) = written(true);
    let segments = layout(&storage);
    let missing = storage.kill();
    let partition = {
        let shared = missing.shared();
        shared.remove(std::path::Path::new(&segments[1].0)).expect("removed");
        open(&missing).expect("it opens")
    };
    let (first, next) = (segments[1].1[0].1.base_offset().0, segments[2].1[0].1.base_offset().0);
    let (read, skipped) = read_past_damage(&partition);
    assert_eq!(skipped, [first..next]);
    assert!(read.iter().all(|offset| !(first..next).contains(offset)));
}

/// Small files that are damaged: what can be made anew is made anew, and nothing of the log is lost.
#[test]
fn damaged_small_files() {
    for close in [true, false] {
        let (storage, ledger) = written(close);
        let expected = content(&open(&storage.kill()).expect("it opens"));
        let wrong: [&[u8]; 5] = [b"", b"0\n2\n5 10\n3 20\n", b"0\n1\n9 0\n", b"\xff\xfe noise", b"0\n7\n0 0\n"];
        for name in [
            "leader-epoch-checkpoint",
            "recovery-point-offset-checkpoint",
            "replication-offset-checkpoint",
            "log-start-offset-checkpoint",
        ] {
            for bytes in wrong {
                let damaged = storage.kill();
                damaged.set_bytes(format!("{DIRECTORY}/{name}"), bytes).expect("placed");
                let Ok(partition) = open(&damaged) else { panic!("{name}: {}", String::from_utf8_lossy(bytes)) };
                if name == "leader-epoch-checkpoint" && bytes == b"0\n1\n9 0\n" {
                    continue; // of the form, and wrong: every batch contradicts it (below)
                }
                ledger.check(&partition);
                assert_eq!(content(&partition), expected, "{name}: {}", String::from_utf8_lossy(bytes));
            }
        }
    }
}

/// An epoch checkpoint that contradicts the batches: they are not served under a wrong epoch, and not cut away unseen.
#[test]
fn an_epoch_checkpoint_of_another_log() {
    let (storage, _) = written(true);
    storage.set_bytes(format!("{DIRECTORY}/leader-epoch-checkpoint"), b"0\n1\n9 0\n").expect("placed");
    let partition = open(&storage).expect("a closed log is not verified");
    let error = partition.try_read(Offset(0), options()).expect_err("another epoch");
    assert!(matches!(error, Error::Corrupt { reason: taffrail::Corruption::Epoch { found: 0, .. }, .. }), "{error}");
}
