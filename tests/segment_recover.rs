//! Recovery of one segment, and what its writer does besides appending: windows, cuts, failed writes, retirement.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test may panic"
)]

mod support;

use std::sync::Arc;

use support::segments::{Rig, append, batch, config, header, memory, on, read_all, rigs};
use taffrail::{
    AbortedTransaction, BatchHeader, Corruption, Error, Fault, MemoryStorage, Offset, ProducerId, ReadBounds,
    RecoveryChecks, RecoveryMode, RecoveryOptions, Segment, Timestamp,
};

const SIZE: usize = 100;

/// Batches of two records, 100 bytes each.
fn batches(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(|i| batch(i * 2, 2, SIZE, 1000 + i as i64)).collect()
}

fn append_all(segment: &mut Segment, batches: &[Vec<u8>]) {
    for bytes in batches {
        append(segment, bytes);
    }
}

fn put_log(rig: &Rig, bytes: &[u8]) -> Segment {
    rig.put(0, "log", bytes);
    rig.load(0, &config(250))
}

/// Notes what it was shown; refuses the batch at `refused`; answers each second batch with an aborted transaction.
#[derive(Default)]
struct Checks {
    seen: Vec<(u64, Offset, usize)>,
    refused: Option<u64>,
}

impl RecoveryChecks for Checks {
    fn batch(
        &mut self,
        position: u64,
        header: &BatchHeader,
        bytes: &[u8],
    ) -> Result<Option<AbortedTransaction>, Corruption> {
        if self.refused == Some(position) {
            return Err(Corruption::Epoch { found: 1, expected: None });
        }
        assert_eq!(BatchHeader::parse(bytes).as_ref(), Ok(header));
        self.seen.push((position, header.base_offset(), bytes.len()));
        Ok((header.base_offset().0 % 4 == 2).then(|| aborted(header.base_offset().0)))
    }
}

fn aborted(offset: u64) -> AbortedTransaction {
    AbortedTransaction {
        producer_id: ProducerId(9),
        first_offset: Offset(offset),
        last_offset: Offset(offset + 1),
        last_stable_offset: Offset(offset + 2),
    }
}

#[test]
fn every_batch_is_shown_and_every_index_rebuilt() {
    for rig in rigs() {
        let all = batches(6);
        rig.put(0, "index", &[1; 16]);
        rig.put(0, "txnindex", &[9; 50]);
        let mut segment = put_log(&rig, &all.concat());
        let mut checks = Checks::default();
        let recovery = segment.recover(&RecoveryOptions::active(), &mut checks).unwrap();
        assert_eq!((recovery.valid_bytes, recovery.batches, recovery.stop), (600, 6, None), "{}", rig.name);
        assert_eq!((recovery.next_offset, recovery.max_timestamp), (Some(Offset(12)), Some(Timestamp(1005))));
        assert_eq!(checks.seen, (0..6).map(|i| (i * 100, Offset(i * 2), 100)).collect::<Vec<_>>());
        assert_eq!(*segment.reader().aborted().unwrap(), [aborted(2), aborted(6), aborted(10)]);
        assert_eq!(rig.take(0, "txnindex").unwrap().len(), 3 * 34);
        assert_eq!(rig.take(0, "index").unwrap(), [0, 0, 0, 7, 0, 0, 1, 44]);
        assert_eq!(rig.take(0, "timeindex").unwrap().len(), 2 * 12);
    }
}

#[test]
fn the_last_segment_ends_before_its_first_bad_batch() {
    let rig = memory();
    let all = batches(6);
    let mut bytes = all.concat();
    bytes[290] ^= 1;
    let recovery = put_log(&rig, &bytes).recover(&RecoveryOptions::active(), &mut ()).unwrap();
    assert_eq!((recovery.valid_bytes, recovery.next_offset), (200, Some(Offset(4))));
    let stop = recovery.stop.unwrap();
    assert!(matches!(stop.reason, Corruption::Checksum { .. }));
    assert_eq!((stop.position, stop.zeros, stop.valid_after, stop.legacy), (200, false, Some(300), None));
    assert_eq!(recovery.damaged, []);
    assert_eq!(rig.take(0, "log").unwrap(), bytes, "a recovery does not change the log");

    let mut checks = Checks { refused: Some(300), ..Checks::default() };
    let recovery = put_log(&rig, &all.concat()).recover(&RecoveryOptions::active(), &mut checks).unwrap();
    assert_eq!((recovery.valid_bytes, checks.seen.len()), (300, 3));
}

#[test]
fn zeros_are_told_from_damage() {
    for rig in rigs() {
        let mut bytes = batches(3).concat();
        bytes.resize(5_000_000, 0);
        let mut segment = put_log(&rig, &bytes);
        let recovery = segment.recover(&RecoveryOptions::active(), &mut ()).unwrap();
        let stop = recovery.stop.unwrap();
        assert_eq!((recovery.valid_bytes, stop.zeros, stop.valid_after), (300, true, None), "{}", rig.name);
        segment.cut(300).unwrap();
        assert_eq!(rig.take(0, "log").unwrap().len(), 300);
        *bytes.last_mut().unwrap() = 1;
        let recovery = put_log(&rig, &bytes).recover(&RecoveryOptions::active(), &mut ()).unwrap();
        assert!(!recovery.stop.unwrap().zeros);
    }
}

/// In a segment that is not cut, what lies behind the damage stays indexed and readable.
#[test]
fn a_sealed_segment_keeps_what_is_behind_the_damage() {
    let rig = memory();
    let all = batches(12);
    let mut bytes = all.concat();
    bytes[150] ^= 1;
    bytes[508] = 0x7f;
    bytes.truncate(1150);
    let options = RecoveryOptions { contiguous: true, ..RecoveryOptions::sealed(Offset(24)) };
    let mut segment = put_log(&rig, &bytes);
    let recovery = segment.recover(&options, &mut ()).unwrap();
    let damaged: Vec<_> = recovery.damaged.iter().map(|d| (d.position, d.offsets.start.0..d.offsets.end.0)).collect();
    assert_eq!(damaged, [(100, 2..4), (500, 10..12), (1100, 22..24)]);
    assert_eq!((recovery.batches, recovery.next_offset, recovery.stop), (9, Some(Offset(22)), None));
    assert_eq!(segment.index().lookup(Offset(20)).position, 900);
    bytes.truncate(1100);
    let recovery = put_log(&rig, &bytes).recover(&options, &mut ()).unwrap();
    assert_eq!(recovery.damaged.last().unwrap().offsets, Offset(22)..Offset(24), "its end is missing");
}

#[test]
fn a_gap_is_damage_only_where_there_are_none() {
    let rig = memory();
    let all = batches(6);
    let bytes = [&all[..2], &all[3..]].concat().concat();
    let recovery = put_log(&rig, &bytes).recover(&RecoveryOptions::active(), &mut ()).unwrap();
    assert_eq!((recovery.batches, recovery.stop), (5, None));
    let contiguous = RecoveryOptions { contiguous: true, ..RecoveryOptions::active() };
    let recovery = put_log(&rig, &bytes).recover(&contiguous, &mut ()).unwrap();
    assert_eq!(recovery.stop.unwrap().reason, Corruption::Order { found: 6, expected: Offset(4) });
    let lower = [&all[..3], &all[1..2]].concat().concat();
    let recovery = put_log(&rig, &lower).recover(&RecoveryOptions::active(), &mut ()).unwrap();
    assert_eq!(recovery.stop.unwrap().position, 300);
}

/// What lies before the given position is not verified, but indexed.
#[test]
fn a_recovery_begins_where_it_is_told() {
    let rig = memory();
    let all = batches(8);
    let mut segment = put_log(&rig, &all.concat());
    segment.recover(&RecoveryOptions::active(), &mut Checks::default()).unwrap();
    let whole = (rig.take(0, "index"), rig.take(0, "timeindex"), rig.take(0, "txnindex"));
    let mut checks = Checks::default();
    let options = RecoveryOptions { from: 500, ..RecoveryOptions::active() };
    let recovery = segment.recover(&options, &mut checks).unwrap();
    assert_eq!(checks.seen.iter().map(|seen| seen.0).collect::<Vec<_>>(), [500, 600, 700]);
    assert_eq!((recovery.valid_bytes, recovery.batches), (800, 3));
    assert_eq!((rig.take(0, "index"), rig.take(0, "timeindex"), rig.take(0, "txnindex")), whole);
}

/// Magic 0 and 1 are named, not read.
#[test]
fn a_legacy_message_is_named() {
    let rig = memory();
    // magic 0, attributes 0, null key, value "hello", with its CRC-32
    let mut message = vec![0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 5];
    message.extend(b"hello");
    let crc = crc32(&message);
    let framed = [&2_u64.to_be_bytes()[..], &(message.len() as u32 + 4).to_be_bytes(), &crc.to_be_bytes(), &message];
    let bytes = [batches(1).concat(), framed.concat()].concat();
    let mut segment = put_log(&rig, &bytes);
    let found = segment.reader().read(Offset(2), 100, &ReadBounds::default());
    assert!(matches!(found, Err(Error::LegacyFormat { position: 100, magic: 0, .. })), "{found:?}");
    let recovery = segment.recover(&RecoveryOptions::active(), &mut ()).unwrap();
    assert_eq!(recovery.stop.unwrap().legacy, Some(0));
}

/// CRC-32 (IEEE), bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

/// A window of zeros is no part of the log, before and after a failed write in it.
#[test]
fn a_window_is_filled_written_into_and_cut() {
    let storage = MemoryStorage::new(5);
    let rig = on(&storage);
    let mut segment = rig.create(0, &config(250));
    assert!(segment.fill_window(256, 512).unwrap());
    assert_eq!(rig.take(0, "log").unwrap(), [0; 512]);
    assert!(!segment.fill_window(256, 512).unwrap());
    let all = batches(12);
    append(&mut segment, &all[0]);
    assert_eq!((segment.size(), rig.take(0, "log").unwrap().len()), (100, 512));

    for size in [0, 50, 99] {
        storage.fail_at(storage.operations(), Fault::ShortWrite(size));
        assert!(matches!(segment.append(&all[1], &[header(&all[1])]), Err(Error::Io { .. })));
        let bytes = rig.take(0, "log").unwrap();
        assert_eq!(bytes[..100], all[0]);
        assert_eq!(bytes[100..], [0; 412], "torn bytes are zeroed again");
    }
    for bytes in &all[1..4] {
        append(&mut segment, bytes);
    }
    assert!(segment.fill_window(256, 512).unwrap());
    assert_eq!(rig.take(0, "log").unwrap().len(), 400 + 512);
    assert!(segment.cut_window().unwrap() && !segment.cut_window().unwrap());
    assert_eq!(rig.take(0, "log").unwrap(), all[..4].concat());
    for bytes in &all[4..] {
        append(&mut segment, bytes);
    }
    assert_eq!(read_all(segment.reader(), Offset(0), 300, &ReadBounds::default()).unwrap(), all);
}

#[test]
fn a_failed_write_is_taken_back_or_poisons() {
    let storage = MemoryStorage::new(6);
    let rig = on(&storage);
    let mut segment = rig.create(0, &config(0));
    let all = batches(4);
    append(&mut segment, &all[0]);
    for fault in [Fault::NoSpace, Fault::Io, Fault::ShortWrite(70)] {
        storage.fail_at(storage.operations(), fault);
        assert!(matches!(segment.append(&all[1], &[header(&all[1])]), Err(Error::Io { operation: "write", .. })));
        assert_eq!(rig.take(0, "log").unwrap(), all[0]);
        assert_eq!((segment.size(), segment.index().len()), (100, 0));
    }
    append(&mut segment, &all[1]);
    storage.fail_from(storage.operations(), Fault::Io);
    assert!(matches!(segment.append(&all[2], &[header(&all[2])]), Err(Error::Poisoned { .. })));
    storage.clear_faults();
    assert_eq!(read_all(segment.reader(), Offset(0), 300, &ReadBounds::default()).unwrap(), all[..2]);
}

#[test]
fn a_cut_takes_the_batch_and_all_behind_it() {
    for rig in rigs() {
        let mut segment = rig.create(0, &config(0));
        let all = batches(10);
        append_all(&mut segment, &all);
        for offset in [2, 8, 14] {
            segment.append_aborted(aborted(offset)).unwrap();
        }
        let before = Arc::clone(segment.reader());
        segment.truncate(Offset(20)).unwrap();
        assert_eq!(segment.size(), 1000);
        segment.truncate(Offset(11)).unwrap();
        assert_eq!((segment.size(), before.size()), (500, 1000), "{}", rig.name);
        assert!(!Arc::ptr_eq(&before, segment.reader()));
        assert_eq!(*segment.reader().aborted().unwrap(), [aborted(2), aborted(8)]);
        assert_eq!(segment.index().last().unwrap().offset, Offset(9));
        assert_eq!(segment.time_index().last().unwrap().offset, Offset(9));
        let other = batch(10, 4, 150, 5000);
        append(&mut segment, &other);
        let read = read_all(segment.reader(), Offset(0), 300, &ReadBounds::default()).unwrap();
        assert_eq!(read, [&all[..5], &[other]].concat());
        segment.append_aborted(aborted(12)).unwrap();
        assert_eq!(rig.take(0, "txnindex").unwrap().len(), 3 * 34);
        segment.truncate(Offset(0)).unwrap();
        assert_eq!((segment.size(), rig.take(0, "log").unwrap().len()), (0, 0));
        assert_eq!((segment.index().len(), segment.time_index().len()), (0, 0));
    }
}

/// A retired segment is renamed at once, stays readable, and goes with its last reader.
#[test]
fn a_retired_segment_goes_with_its_last_reader() {
    for rig in rigs() {
        let mut segment = rig.create(0, &config(0));
        let all = batches(5);
        append_all(&mut segment, &all);
        segment.append_aborted(aborted(2)).unwrap();
        segment.seal().unwrap();
        let reader = Arc::clone(segment.reader());
        reader.retire(17).unwrap();
        let names = || rig.storage.list(&rig.directory).unwrap().into_iter().map(|e| e.name).collect::<Vec<_>>();
        let base = "0".repeat(20);
        let gone = ["index", "log", "timeindex", "txnindex"].map(|e| format!("{base}.{e}.17.deleted"));
        assert_eq!(names(), gone, "{}", rig.name);
        assert!(reader.path().ends_with(&gone[1]));
        drop(segment);
        assert_eq!(read_all(&reader, Offset(0), 250, &ReadBounds::default()).unwrap(), all);
        drop(reader);
        assert_eq!(names(), [""; 0], "{}", rig.name);
    }
}

/// After a failed sync the bytes are written again, and then a sync covers them.
#[test]
fn rewritten_bytes_are_covered_by_the_next_sync() {
    let storage = MemoryStorage::new(8);
    let rig = on(&storage);
    let mut segment = rig.create(0, &config(250));
    rig.storage.sync_directory(&rig.directory).unwrap();
    let all = batches(30);
    append_all(&mut segment, &all[..10]);
    segment.sync().unwrap();
    append_all(&mut segment, &all[10..]);
    storage.fail_at(storage.operations(), Fault::SyncFails);
    assert!(matches!(segment.sync(), Err(Error::Io { operation: "sync", .. })));
    segment.rewrite(1000).unwrap();
    segment.sync().unwrap();
    assert_eq!(storage.crash(1).bytes_of("/00000000000000000000.log").unwrap(), all.concat());
}

/// A reader never sees more than what was published, and always whole batches of it.
#[test]
fn readers_follow_a_writer() {
    for rig in rigs() {
        let mut segment = rig.create(0, &config(500));
        let reader = Arc::clone(segment.reader());
        let all = batches(400);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut next = Offset(0);
                    while next < Offset(800) {
                        let bounds = ReadBounds { contiguous: true, ..ReadBounds::default() };
                        let found = reader.read(next, 1000, &bounds).unwrap();
                        for batch in &found.batches {
                            assert_eq!(batch.bytes(), all[batch.header().base_offset().0 as usize / 2]);
                        }
                        next = found.next;
                    }
                });
            }
            for (number, bytes) in all.iter().enumerate() {
                append(&mut segment, bytes);
                if number % 100 == 50 {
                    segment.drop_index_memory().unwrap();
                }
            }
        });
    }
}

#[test]
fn the_mode_decides_what_damage_means() {
    let rig = memory();
    let mut bytes = batches(3).concat();
    bytes[120] ^= 4;
    for (mode, valid) in [(RecoveryMode::Active, 100), (RecoveryMode::Sealed, 300)] {
        let options = RecoveryOptions { mode, ..RecoveryOptions::active() };
        assert_eq!(put_log(&rig, &bytes).recover(&options, &mut ()).unwrap().valid_bytes, valid);
    }
}
