//! Damage: index files of every wrong kind, torn tails, flipped bits, lengths that lie. Bad bytes are never served, what
//! is readable is read, and the error says where to go on.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test may panic"
)]

mod support;

use std::ops::Range;

use support::segments::{EPOCH, Rig, append, batch, config, header, memory, on, read_all, rigs};
use taffrail::{
    Corruption, Error, LeaderEpoch, Offset, ReadBounds, RecoveryOptions, SegmentBatches, SegmentReader, Timestamp,
    verify_checksum,
};

const INTERVAL: u32 = 250;
const BASE: u64 = 100;

/// A closed segment: batches of three records and some hundred bytes.
fn log(rig: &Rig, count: u64) -> Vec<Vec<u8>> {
    let mut segment = rig.create(BASE, &config(INTERVAL));
    let batches: Vec<_> = (0..count).map(|i| batch(BASE + i * 3, 3, 100 + i as usize % 7, 1000 + i as i64)).collect();
    for bytes in &batches {
        append(&mut segment, bytes);
    }
    segment.seal().unwrap();
    batches
}

fn bounds(count: u64) -> ReadBounds<'static> {
    ReadBounds {
        up_to: Offset(BASE + count * 3),
        next_base: Some(Offset(BASE + count * 3)),
        epochs: Some(&[(EPOCH, Offset(0))]),
        contiguous: true,
        ..ReadBounds::default()
    }
}

fn corrupt(answer: taffrail::Result<SegmentBatches>) -> (u64, Range<Offset>, Corruption) {
    match answer {
        Err(Error::Corrupt { position, offsets, reason, .. }) => (position, offsets, reason),
        other => panic!("expected damage, got {other:?}"),
    }
}

/// Reads everything, over the damage: the batches, and the ranges that were answered with [`Error::Corrupt`].
fn read_over(reader: &SegmentReader, bounds: &ReadBounds<'_>) -> (Vec<Vec<u8>>, Vec<Range<u64>>) {
    let (mut all, mut holes) = (Vec::new(), Vec::new());
    let mut next = reader.base_offset();
    while next < bounds.up_to {
        match reader.read(next, 350, bounds) {
            Ok(found) => {
                all.extend(found.batches.iter().map(|batch| batch.bytes().to_vec()));
                assert!(found.next > next || found.end_of_segment, "a read goes on");
                next = found.next;
            }
            Err(Error::Corrupt { offsets, .. }) => {
                assert_eq!(offsets.start, next);
                assert!(offsets.end > next, "seeking to the end of the range goes on");
                holes.push(offsets.start.0..offsets.end.0);
                next = offsets.end;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    (all, holes)
}

#[test]
fn wrong_index_files_are_found_and_built_anew() {
    for rig in rigs() {
        let batches = log(&rig, 40);
        for extension in ["index", "timeindex"] {
            let good = rig.take(BASE, extension).unwrap();
            let size = if extension == "index" { 8 } else { 12 };
            let edit = |change: &dyn Fn(&mut Vec<u8>)| {
                let mut bytes = good.clone();
                change(&mut bytes);
                Some(bytes)
            };
            let wrong = [
                ("missing", None),
                ("empty", Some(Vec::new())),
                ("short", edit(&|b| b.truncate(b.len() - size * 2))),
                ("torn", edit(&|b| b.truncate(b.len() - 3))),
                ("zero-padded", edit(&|b| b.resize(b.len() + size * 4, 0))),
                ("long", edit(&|b| b.extend([0x7f; 12].iter().cycle().take(size)))),
                ("zeros", edit(&|b| b.fill(0))),
                ("not rising", edit(&|b| b.copy_within(0..size, size))),
                ("a wrong first entry", edit(&|b| b[size - 1] ^= 1)),
                ("a wrong last entry", edit(&|b| *b.last_mut().unwrap() ^= 1)),
                (
                    "of another segment",
                    edit(&|b| b.iter_mut().skip(size - 1).step_by(size).for_each(|byte| *byte += 1)),
                ),
            ];
            for (what, bytes) in wrong {
                match bytes {
                    Some(bytes) => rig.put(BASE, extension, &bytes),
                    None => rig.remove(BASE, extension),
                }
                let segment = rig.load(BASE, &config(INTERVAL));
                let found = read_all(segment.reader(), Offset(BASE), 400, &bounds(40)).unwrap();
                assert_eq!(found, batches, "{} {extension} {what}", rig.name);
                let found = segment.reader().find_timestamp(Timestamp(1030), Offset(0), &bounds(40)).unwrap();
                assert_eq!(found.unwrap().1, Offset(BASE + 30 * 3), "{} {extension} {what}", rig.name);
                assert_eq!(segment.reader().largest_timestamp().unwrap(), Some(Timestamp(1039)), "{extension} {what}");
                drop(segment);
                assert_eq!(rig.take(BASE, extension).unwrap(), good, "{} {extension} {what}", rig.name);
            }
        }
    }
}

/// A wrong entry in the middle passes the first look, and is found when it is used.
#[test]
fn a_wrong_entry_is_found_where_it_is_used() {
    let rig = memory();
    let batches = log(&rig, 60);
    let good = rig.take(BASE, "index").unwrap();
    let entries = good.len() / 8;
    let middle = entries / 2 * 8;
    let position = u32::from_be_bytes(good[middle + 4..middle + 8].try_into().unwrap());
    let mut starts = batches.iter().scan(0, |at, bytes| Some(std::mem::replace(at, *at + bytes.len() as u32)));
    let next_start = starts.find(|start| *start > position).unwrap();
    let positions = [position + 1, position + 2, position - 1, next_start];
    let offsets = [good[middle + 3] + 1, good[middle + 3] + 2, good[middle + 3] - 1];
    let wrong = positions.map(|wrong| (4, wrong.to_be_bytes().to_vec())).into_iter();
    for (field, change) in wrong.chain(offsets.map(|wrong| (3, vec![wrong]))) {
        let mut bytes = good.clone();
        bytes[middle + field..middle + field + change.len()].copy_from_slice(&change);
        rig.put(BASE, "index", &bytes);
        let segment = rig.load(BASE, &config(INTERVAL));
        for limits in [bounds(60), ReadBounds { contiguous: false, ..bounds(60) }] {
            for (number, bytes) in batches.iter().enumerate() {
                for offset in 0..3 {
                    let found = segment.reader().read(Offset(BASE + number as u64 * 3 + offset), 1, &limits).unwrap();
                    assert_eq!(found.batches.iter().next().unwrap().bytes(), bytes);
                }
            }
        }
    }
}

/// An index that cannot be read or written costs a scan, and fails nothing.
#[test]
fn an_index_that_cannot_be_written_stays_in_memory() {
    let storage = taffrail::MemoryStorage::new(3);
    let rig = on(&storage);
    let batches = log(&rig, 40);
    rig.remove(BASE, "index");
    let segment = rig.load(BASE, &config(INTERVAL));
    storage.fail_when(|operation| {
        let index = operation.path.extension().is_some_and(|e| e == "index");
        index.then_some(taffrail::Fault::Denied)
    });
    assert_eq!(read_all(segment.reader(), Offset(BASE), 400, &bounds(40)).unwrap(), batches);
    assert!(rig.take(BASE, "index").is_none());
    assert!(!segment.index().is_empty());
}

/// Every bit of every byte of a batch, at the front, in the middle (with an index entry and without) and at the end.
#[test]
fn a_flipped_bit_hides_its_batch_and_nothing_else() {
    let rig = memory();
    let batches = log(&rig, 12);
    let good = batches.concat();
    let index = rig.take(BASE, "index").unwrap();
    for target in [0, 3, 4, 5, 11] {
        let start: usize = batches[..target].iter().map(Vec::len).sum();
        let hole = BASE + target as u64 * 3..BASE + target as u64 * 3 + 3;
        for at in start..start + batches[target].len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                rig.put(BASE, "log", &bytes);
                rig.put(BASE, "index", &index);
                let segment = rig.load(BASE, &config(INTERVAL));
                let (read, holes) = read_over(segment.reader(), &bounds(12));
                let expected: Vec<_> = [&batches[..target], &batches[target + 1..]].concat();
                let what = format!("batch {target} byte {} bit {bit}", at - start);
                assert_eq!(holes, std::slice::from_ref(&hole), "{what}");
                assert!(read == expected, "{what}");
                for (number, batch) in batches.iter().enumerate() {
                    let offset = Offset(BASE + number as u64 * 3 + at as u64 % 3);
                    let answer = segment.reader().read(offset, 1, &bounds(12));
                    if number == target {
                        let (position, offsets, _) = corrupt(answer);
                        assert_eq!((position, offsets.end), (start as u64, Offset(hole.end)), "{what}");
                    } else {
                        assert_eq!(answer.unwrap().batches.iter().next().unwrap().bytes(), batch, "{what}");
                    }
                }
            }
        }
    }
}

/// In a log with gaps, what contradicts its neighbours is found too.
#[test]
fn a_base_offset_that_is_too_high_is_contradicted_by_what_follows() {
    let rig = memory();
    let batches = log(&rig, 12);
    let gaps = ReadBounds { contiguous: false, ..bounds(12) };
    let mut bytes = batches.concat();
    let start: usize = batches[..5].iter().map(Vec::len).sum();
    bytes[start + 7] += 4;
    rig.put(BASE, "log", &bytes);
    let segment = rig.load(BASE, &config(100_000));
    let (read, holes) = read_over(segment.reader(), &gaps);
    assert_eq!(holes, [BASE + 15..BASE + 18]);
    assert_eq!(read.len(), 11);
    assert!(read.iter().all(|bytes| batches.contains(bytes)));
}

/// A base offset lies outside of its batch's checksum. Behind damage nothing says what is due, but that what was damaged
/// had an offset: a loss of power that tore the front and zeroed the base offset behind it once had a record served as the
/// segment's first.
#[test]
fn a_base_offset_that_was_torn_behind_damage_is_not_believed() {
    for rig in rigs() {
        let mut bytes = log(&rig, 6).concat();
        let last = bytes.len() - 100 - 5;
        let end = Offset(BASE + 18);
        bytes[..last].fill(0);
        for (base, is_served) in [(BASE, false), (BASE + 15, true)] {
            bytes[last..last + 8].copy_from_slice(&base.to_be_bytes());
            rig.put(BASE, "log", &bytes);
            let mut segment = rig.load(BASE, &config(INTERVAL));
            let options = RecoveryOptions { contiguous: true, ..RecoveryOptions::sealed(end) };
            let recovery = segment.recover(&options, &mut ()).unwrap();
            assert_eq!(recovery.next_offset, is_served.then_some(end), "{}", rig.name);
            let (served, holes) = read_over(segment.reader(), &bounds(6));
            assert_eq!((served.len(), holes[0].start, holes.len()), (usize::from(is_served), BASE, 1), "{}", rig.name);
        }
    }
}

#[test]
fn a_wrong_epoch_is_found_by_the_epoch_list() {
    let rig = memory();
    let batches = log(&rig, 12);
    let segment = rig.load(BASE, &config(INTERVAL));
    let epochs = [(EPOCH, Offset(0)), (LeaderEpoch(9), Offset(BASE + 30))];
    let later = ReadBounds { epochs: Some(&epochs), ..bounds(12) };
    let (read, holes) = read_over(segment.reader(), &later);
    assert_eq!(read, batches[..10]);
    assert_eq!(holes, [BASE + 30..BASE + 36]);
    let (_, _, reason) = corrupt(segment.reader().read(Offset(BASE + 31), 1, &later));
    assert_eq!(reason, Corruption::Epoch { found: EPOCH.0, expected: Some(LeaderEpoch(9)) });
}

/// Any byte of the length, any value: a seek past the batch goes on.
#[test]
fn a_damaged_length_does_not_stop_a_seek_past_it() {
    for rig in rigs().into_iter().take(2) {
        let batches = log(&rig, 30);
        let start: usize = batches[..9].iter().map(Vec::len).sum();
        for length in [0, 1, 48, 49, 50, 90, 91, 200, 195, 1000, 5000, u32::MAX >> 1, u32::MAX] {
            let mut bytes = batches.concat();
            if bytes[start + 8..start + 12] == length.to_be_bytes() {
                continue;
            }
            bytes[start + 8..start + 12].copy_from_slice(&length.to_be_bytes());
            rig.put(BASE, "log", &bytes);
            let segment = rig.load(BASE, &config(INTERVAL));
            let (read, holes) = read_over(segment.reader(), &bounds(30));
            assert_eq!(holes, [BASE + 27..BASE + 30], "{} {length}", rig.name);
            assert_eq!(read.len(), 29);
            let found = segment.reader().read(Offset(BASE + 31), 1, &bounds(30)).unwrap();
            assert_eq!(found.batches.iter().next().unwrap().bytes(), batches[10]);
        }
    }
}

/// A batch inside a record's value is not taken for one of the log's.
#[test]
fn a_batch_in_a_value_is_not_a_batch_of_the_log() {
    let rig = memory();
    let inner = batch(BASE + 4, 2, 100, 5);
    let mut builder = taffrail::BatchBuilder::new();
    builder.base_offset(Offset(BASE + 3));
    builder.leader_epoch(EPOCH);
    for _ in 0..3 {
        builder.push(&taffrail::Record::new(&inner).timestamp(Timestamp(1))).unwrap();
    }
    let outer = builder.encode().unwrap().to_vec();
    let batches = [batch(BASE, 3, 100, 1), outer, batch(BASE + 6, 3, 100, 1), batch(BASE + 9, 3, 100, 1)];
    let mut bytes = batches.concat();
    bytes[batches[0].len() + 11] ^= 0x40;
    rig.put(BASE, "log", &bytes);
    let segment = rig.load(BASE, &config(INTERVAL));
    let (read, holes) = read_over(segment.reader(), &bounds(4));
    assert_eq!(holes, [BASE + 3..BASE + 6]);
    assert_eq!(read, [&batches[0][..], &batches[2], &batches[3]]);
}

/// A segment that ends before the next one begins has lost batches: an error, not a silent step.
#[test]
fn a_missing_end_is_damage() {
    for rig in rigs() {
        let batches = log(&rig, 12);
        let cut: usize = batches[..10].iter().map(Vec::len).sum();
        for keep in [cut, cut + 5, cut + 70] {
            rig.put(BASE, "log", &batches.concat()[..keep]);
            let segment = rig.load(BASE, &config(INTERVAL));
            let (read, holes) = read_over(segment.reader(), &bounds(12));
            assert_eq!(read, batches[..10], "{}", rig.name);
            assert_eq!(holes, [BASE + 30..BASE + 36]);
        }
        rig.put(BASE, "log", &batches.concat()[..cut]);
        let segment = rig.load(BASE, &config(INTERVAL));
        let gaps = ReadBounds { contiguous: false, ..bounds(12) };
        let found = segment.reader().read(Offset(BASE + 30), 1, &gaps).unwrap();
        assert!(found.end_of_segment && found.batches.is_empty());
        assert_eq!(found.next, Offset(BASE + 36));
    }
}

/// The file may end anywhere in the last batch: what is whole before it is kept, and appending goes on there.
#[test]
fn a_torn_tail_is_cut_at_every_byte() {
    for rig in rigs().into_iter().take(2) {
        let batches = log(&rig, 6);
        let whole: usize = batches[..5].iter().map(Vec::len).sum();
        for torn in 0..batches[5].len() {
            rig.put(BASE, "log", &batches.concat()[..whole + torn]);
            let mut segment = rig.load(BASE, &config(INTERVAL));
            let recovery = segment.recover(&RecoveryOptions::active(), &mut ()).unwrap();
            assert_eq!(recovery.valid_bytes, whole as u64, "{} {torn}", rig.name);
            assert_eq!(recovery.next_offset, Some(Offset(BASE + 15)));
            assert_eq!(recovery.stop.as_ref().map(|stop| stop.position), (torn > 0).then_some(whole as u64));
            assert_eq!(recovery.stop.and_then(|stop| stop.valid_after), None);
            segment.cut(recovery.valid_bytes).unwrap();
            append(&mut segment, &batches[5]);
            assert_eq!(read_all(segment.reader(), Offset(BASE), 500, &bounds(6)).unwrap(), batches);
        }
    }
}

/// Whatever the bytes of a segment are: what is served has a right checksum and stands in order. (Between
/// two damaged batches, or two gaps, nothing tells a base offset that fits from the right one.)
#[test]
fn noise_is_never_served() {
    let rig = memory();
    let batches = log(&rig, 20);
    for seed in support::seeds() {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % below as u64) as usize
        };
        let mut bytes = batches.concat();
        for _ in 0..=draw(6) {
            let at = draw(bytes.len());
            match draw(4) {
                0 => bytes[at] = draw(256) as u8,
                1 => drop(bytes.drain(at..(at + draw(200)).min(at + bytes.len() - at).min(bytes.len()))),
                2 => bytes.insert(at, draw(256) as u8),
                _ => bytes.extend_from_within(at..(at + 150).min(bytes.len())),
            }
            if bytes.is_empty() {
                break;
            }
        }
        rig.put(BASE, "log", &bytes);
        let mut segment = rig.load(BASE, &config(INTERVAL));
        for limits in [bounds(20), ReadBounds { contiguous: false, ..bounds(20) }] {
            let (read, _) = read_over(segment.reader(), &limits);
            let mut next = Offset(BASE);
            for bytes in &read {
                let header = header(bytes);
                verify_checksum(bytes, &header).unwrap();
                let in_order = header.base_offset() >= next || !limits.contiguous;
                assert!(in_order && header.next_offset() <= limits.up_to, "seed {seed}");
                assert!(
                    batches.iter().any(|good| good[8..] == bytes[8..]),
                    "seed {seed}: a batch that was never written"
                );
                next = header.next_offset();
            }
            let found = segment.reader().find_timestamp(Timestamp(1010), Offset(0), &limits);
            assert!(!matches!(found, Ok(Some((timestamp, ..))) if timestamp < Timestamp(1010)));
        }
        segment.recover(&RecoveryOptions::sealed(Offset(BASE + 60)), &mut ()).unwrap();
        let recovery = segment.recover(&RecoveryOptions::active(), &mut ()).unwrap();
        segment.cut(recovery.valid_bytes).unwrap();
        let after = segment.recover(&RecoveryOptions::active(), &mut ()).unwrap();
        assert_eq!((after.valid_bytes, after.stop), (recovery.valid_bytes, None), "seed {seed}");
    }
}
