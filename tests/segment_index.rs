//! Indexes: which batches earn an entry, what a lookup answers, which bytes lie in the files.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test may panic"
)]

mod support;

use proptest::prelude::*;
use support::segments::{append, batch, config, header, memory, read_all, rigs};
use taffrail::{
    AbortedTransaction, IndexEntry, Offset, OffsetIndex, ProducerId, ReadBounds, RecoveryOptions, TimeIndex,
    TimeIndexEntry, Timestamp, TxnIndex,
};

const T: i64 = 1_700_000_000_000;

fn entry(offset: u64, position: u64) -> IndexEntry {
    IndexEntry { offset: Offset(offset), position }
}

fn time(timestamp: i64, offset: u64) -> TimeIndexEntry {
    TimeIndexEntry { timestamp: Timestamp(timestamp), offset: Offset(offset) }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// SEMANTICS 14.4 with batches three times as long, since no batch has 60 bytes: interval 300, batches of 180 bytes
/// with 10 records each.
#[test]
fn every_batch_beyond_the_interval_gets_an_entry() {
    for rig in rigs() {
        let mut segment = rig.create(0, &config(300));
        for number in 0..5 {
            let bytes = batch(number * 10, 10, 180, T);
            assert_eq!(bytes.len(), 180);
            append(&mut segment, &bytes);
        }
        let index = segment.index();
        assert_eq!(index.entries(), [entry(29, 360), entry(49, 720)], "{}", rig.name);
        assert_eq!(index.lookup(Offset(35)), entry(29, 360));
        assert_eq!(index.lookup(Offset(28)), entry(0, 0));
        let found = segment.reader().read(Offset(35), 1, &ReadBounds::default()).unwrap();
        assert_eq!(found.batches.iter().next().unwrap().header().base_offset(), Offset(30));
        assert_eq!(segment.reader().position_of(Offset(35), &ReadBounds::default()).unwrap(), Some(540));
        assert_eq!(segment.reader().position_of(Offset(50), &ReadBounds::default()).unwrap(), None);
    }
}

/// An append of several batches gives each of them its entry, as a recovery would.
#[test]
fn batches_appended_at_once_are_indexed_one_by_one() {
    let rig = memory();
    let mut segment = rig.create(0, &config(0));
    let batches: Vec<_> = (0..3).map(|i| batch(i * 2, 2, 100, T)).collect();
    let headers: Vec<_> = batches.iter().map(|bytes| header(bytes)).collect();
    segment.append(&batches.concat(), &headers).unwrap();
    assert_eq!(segment.index().entries(), [entry(3, 100), entry(5, 200)]);
}

/// FORMATS 17: files of Kafka's own classes.
#[test]
fn golden_offset_index() {
    let bytes = hex("00000003000000000000000a000010680000001300002102");
    let mut index = OffsetIndex::from_bytes(Offset(1000), &bytes).unwrap();
    assert_eq!(index.entries(), [entry(1003, 0), entry(1010, 4200), entry(1019, 8450)]);
    assert_eq!(index.to_bytes(), bytes);
    let lookups = [(1000, (1000, 0)), (1009, (1003, 0)), (1010, (1010, 4200)), (2000, (1019, 8450))];
    for (offset, (found, position)) in lookups {
        assert_eq!(index.lookup(Offset(offset)), entry(found, position));
    }
    index.truncate(Offset(1010));
    assert_eq!(index.entries(), [entry(1003, 0)]);
    let preallocated = [bytes, vec![0; 40]].concat();
    assert!(OffsetIndex::from_bytes(Offset(1000), &preallocated).is_err(), "zeros are no entries");
    assert!(OffsetIndex::from_bytes(Offset(1000), &[0; 7]).is_err());
}

#[test]
fn golden_time_index() {
    let mut index = TimeIndex::new(Offset(1000));
    assert!(index.append(time(T + 5, 1010)));
    assert!(!index.append(time(T + 5, 1015)));
    assert!(index.append(time(T + 99, 1019)));
    let bytes = hex("0000018bcfe568050000000a0000018bcfe5686300000013");
    assert_eq!(index.to_bytes(), bytes);
    assert_eq!(TimeIndex::from_bytes(Offset(1000), &bytes).unwrap().entries(), index.entries());
    assert_eq!(index.lookup(Timestamp(T)), None);
    assert_eq!(index.lookup(Timestamp(T + 5)), Some(time(T + 5, 1010)));
    assert_eq!(index.lookup(Timestamp(T + 98)), Some(time(T + 5, 1010)));
    index.truncate(Offset(1019));
    assert_eq!(index.last(), Some(time(T + 5, 1010)));
    assert!(TimeIndex::from_bytes(Offset(1000), &[bytes, vec![0; 12]].concat()).is_err());
}

/// Entries rise in both fields; of the time index the offset may stay. What does not is neither added nor taken from a
/// file.
#[test]
fn an_entry_that_does_not_rise_is_refused() {
    let mut offsets = OffsetIndex::new(Offset(1000));
    assert!(offsets.append(entry(1003, 100)));
    for wrong in [entry(1003, 200), entry(1002, 200), entry(1004, 100), entry(1004, 99), entry(999, 200)] {
        assert!(!offsets.append(wrong), "{wrong:?}");
    }
    for wrong in ["0000000300000064", "0000000200000065", "0000000400000063", "fffffff000000065"] {
        let bytes = [offsets.to_bytes(), hex(wrong)].concat();
        assert!(OffsetIndex::from_bytes(Offset(1000), &bytes).is_err(), "{wrong}");
    }
    let mut times = TimeIndex::new(Offset(1000));
    assert!(!times.append(time(-1, 1003)));
    assert!(times.append(time(5, 1003)));
    for wrong in [time(5, 1004), time(4, 1004), time(6, 1002), time(6, 999)] {
        assert!(!times.append(wrong), "{wrong:?}");
    }
    assert!(times.append(time(6, 1003)), "its offset may stay");
    for wrong in ["000000000000000600000004", "000000000000000700000002", "ffffffffffffffff00000004"] {
        let bytes = [times.to_bytes(), hex(wrong)].concat();
        assert!(TimeIndex::from_bytes(Offset(1000), &bytes).is_err(), "{wrong}");
    }
}

#[test]
fn golden_transaction_index() {
    let aborted = |producer, first, last, stable| AbortedTransaction {
        producer_id: ProducerId(producer),
        first_offset: Offset(first),
        last_offset: Offset(last),
        last_stable_offset: Offset(stable),
    };
    let entries = [aborted(1000, 1001, 1012, 1013), aborted(1001, 1005, 1015, 1016)];
    let bytes = hex("000000000000000003e800000000000003e900000000000003f400000000000003f5\
                     000000000000000003e900000000000003ed00000000000003f700000000000003f8");
    let mut index = TxnIndex::from_bytes(Offset(1000), &bytes).unwrap();
    assert_eq!(index.entries(), entries);
    assert_eq!(index.to_bytes(), bytes);
    assert!(!index.append(entries[1]));
    assert_eq!(index.overlapping(Offset(1000), Offset(1005)), [entries[0]]);
    assert_eq!(index.overlapping(Offset(1013), Offset(1020)), [entries[1]]);
    index.truncate(Offset(1015));
    assert_eq!(index.entries(), [entries[0]]);
    assert!(TxnIndex::from_bytes(Offset(1000), &[0, 1]).is_err());
    assert!(TxnIndex::from_bytes(Offset(1000), &[vec![0, 1], vec![0; 32]].concat()).is_err(), "version 1");

    let rig = memory();
    let mut segment = rig.create(1000, &config(4096));
    assert_eq!(*segment.reader().aborted().unwrap(), []);
    segment.append_aborted(entries[0]).unwrap();
    assert_eq!(*segment.reader().aborted().unwrap(), [entries[0]]);
    segment.append_aborted(entries[1]).unwrap();
    assert!(segment.append_aborted(entries[1]).is_err());
    assert_eq!(*segment.reader().aborted().unwrap(), entries);
    assert_eq!(rig.take(1000, "txnindex").unwrap(), bytes);
    assert_eq!(*rig.load(1000, &config(4096)).reader().aborted().unwrap(), entries);
}

/// What an index that is partly on disk and partly in memory answers is what all of it in memory answers.
#[test]
fn an_index_on_disk_is_searched_like_one_in_memory() {
    for rig in rigs() {
        let mut segment = rig.create(500, &config(0));
        for number in 0..1300_u64 {
            append(&mut segment, &batch(500 + number * 3, 1, 70, T + number as i64));
            if number == 600 || number == 1200 {
                segment.drop_index_memory().unwrap();
            }
        }
        let (index, times) = (segment.index(), segment.time_index());
        let (entries, dated) = (index.entries(), times.entries());
        assert_eq!((entries.len(), dated.len()), (1299, 1299), "{}", rig.name);
        for offset in (490..500 + 1300 * 3 + 5).map(Offset) {
            let expected = entries.iter().rfind(|e| e.offset <= offset).copied();
            assert_eq!(index.lookup(offset), expected.unwrap_or(entry(500, 0)), "{} {offset}", rig.name);
        }
        for at in T - 1..T + 1301 {
            let expected = dated.iter().rfind(|e| e.timestamp.0 <= at).copied();
            assert_eq!(times.lookup(Timestamp(at)), expected, "{} {at}", rig.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Lookups of both indexes against a linear scan; the bytes lead back to the same index.
    #[test]
    fn a_lookup_is_a_linear_scan(steps in prop::collection::vec((1_u64..50, 1_u64..5000, 0_i64..3), 0..200)) {
        let (mut offsets, mut times) = (OffsetIndex::new(Offset(7)), TimeIndex::new(Offset(7)));
        let (mut offset, mut position, mut timestamp) = (7, 0, 0);
        let (mut offset_model, mut time_model) = (Vec::new(), Vec::new());
        for (by, bytes, later) in steps {
            (offset, position, timestamp) = (offset + by, position + bytes, timestamp + later);
            prop_assert!(offsets.append(entry(offset, position)));
            prop_assert!(!offsets.append(entry(offset, position + 1)));
            offset_model.push(entry(offset, position));
            let newer = time_model.last().is_none_or(|last: &TimeIndexEntry| last.timestamp.0 < timestamp);
            prop_assert_eq!(times.append(time(timestamp, offset)), newer);
            time_model.extend(newer.then_some(time(timestamp, offset)));
        }
        for wanted in 0..offset + 3 {
            let expected = offset_model.iter().rfind(|e| e.offset.0 <= wanted).copied().unwrap_or(entry(7, 0));
            prop_assert_eq!(offsets.lookup(Offset(wanted)), expected);
        }
        for wanted in -1..timestamp + 2 {
            let expected = time_model.iter().rfind(|e| e.timestamp.0 <= wanted).copied();
            prop_assert_eq!(times.lookup(Timestamp(wanted)), expected);
        }
        let again = OffsetIndex::from_bytes(Offset(7), &offsets.to_bytes()).unwrap();
        prop_assert_eq!(again.entries(), offset_model);
        let again = TimeIndex::from_bytes(Offset(7), &times.to_bytes()).unwrap();
        prop_assert_eq!(again.entries(), time_model);
    }

    /// Whatever happened to a segment (closed and reopened, idle, cut), its indexes are the bytes that a recovery
    /// makes of its log; and every offset is found.
    #[test]
    fn the_indexes_of_a_closed_log_are_those_of_a_recovery(
        steps in prop::collection::vec((0_u8..12, 1_u64..4, 70_usize..400, 0_i64..60), 1..60),
        interval in 0_u32..900,
    ) {
        let rig = memory();
        let config = config(interval);
        let mut segment = rig.create(40, &config);
        let mut model: Vec<Vec<u8>> = Vec::new();
        for (what, records, size, timestamp) in steps {
            match what {
                0 => {
                    segment.seal().unwrap();
                    segment = rig.load(40, &config);
                }
                1 => segment.drop_index_memory().unwrap(),
                2 => segment.seal().unwrap(),
                3 if !model.is_empty() => {
                    model.truncate(model.len() * size / 400);
                    let end = model.last().map_or(Offset(40), |bytes| header(bytes).next_offset());
                    segment.truncate(end).unwrap();
                }
                _ => {
                    let base = model.last().map_or(40, |bytes| header(bytes).next_offset().0);
                    let bytes = batch(base, records, size, timestamp);
                    append(&mut segment, &bytes);
                    model.push(bytes);
                }
            }
        }
        segment.seal().unwrap();
        let closed = (rig.take(40, "index"), rig.take(40, "timeindex"));
        if model.is_empty() {
            return Ok(());
        }
        let bounds = ReadBounds { contiguous: true, ..ReadBounds::default() };
        prop_assert_eq!(read_all(segment.reader(), Offset(40), 700, &bounds).unwrap(), &model[..]);
        for bytes in &model {
            for offset in header(bytes).base_offset().0..header(bytes).next_offset().0 {
                let found = segment.reader().read(Offset(offset), 1, &bounds).unwrap();
                prop_assert_eq!(found.batches.iter().next().map(|b| b.bytes().to_vec()), Some(bytes.clone()));
            }
        }
        let largest = model.iter().filter_map(|bytes| header(bytes).max_timestamp()).max();
        prop_assert_eq!(segment.reader().largest_timestamp().unwrap(), largest);
        prop_assert_eq!(segment.reader().largest_timestamp_by_headers().unwrap(), largest);
        let mut segment = rig.load(40, &config);
        segment.recover(&RecoveryOptions::active(), &mut ()).unwrap();
        prop_assert_eq!((rig.take(40, "index"), rig.take(40, "timeindex")), closed);
    }
}
