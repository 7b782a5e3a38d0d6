//! Whatever the bytes are, a time index is read or refused; a lookup in it is a linear scan. As the file of a segment it
//! misleads no search.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use taffrail::{BatchBuilder, MemoryStorage, Offset, ReadBounds, Record, Segment, SegmentConfig, TimeIndex, Timestamp};

const BASE: u64 = 1000;

fuzz_target!(|data: &[u8]| {
    if let Ok(index) = TimeIndex::from_bytes(Offset(BASE), data) {
        assert_eq!(index.to_bytes(), data);
        let entries = index.entries();
        for wanted in entries.iter().flat_map(|e| [e.timestamp.0 - 1, e.timestamp.0, e.timestamp.0.saturating_add(1)]) {
            let expected = entries.iter().rfind(|e| e.timestamp.0 <= wanted).copied();
            assert_eq!(index.lookup(Timestamp(wanted)), expected);
        }
    }
    let storage = MemoryStorage::new(1);
    let log = log();
    storage.set_bytes(format!("/{BASE:020}.log"), &log).expect("nothing fails here");
    storage.set_bytes(format!("/{BASE:020}.timeindex"), data).expect("nothing fails here");
    let config = SegmentConfig { index_interval_bytes: 0, ..SegmentConfig::default() };
    let loaded = Segment::load(&storage.shared(), Path::new("/"), Offset(BASE), log.len() as u64, &config);
    let segment = loaded.expect("nothing fails here");
    for timestamp in 0..8 {
        let found = segment.reader().find_timestamp(Timestamp(timestamp), Offset(0), &ReadBounds::default());
        let expected = (timestamp <= 6).then(|| Offset(BASE + timestamp.cast_unsigned().div_ceil(2)));
        assert_eq!(found.expect("the log is sound").map(|(_, offset, _)| offset), expected);
    }
});

/// Four batches of one record, with the timestamps 0, 2, 4 and 6.
fn log() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut builder = BatchBuilder::new();
    for number in 0..4 {
        builder.clear();
        builder.base_offset(Offset(BASE + number));
        let record = Record::new("value").timestamp(Timestamp(2 * number.cast_signed()));
        builder.push(&record).expect("it is small");
        bytes.extend_from_slice(builder.encode().expect("it has a record"));
    }
    bytes
}
