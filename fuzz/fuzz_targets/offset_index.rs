//! Whatever the bytes are, an offset index is read or refused; a lookup in it is a linear scan. As the file of a segment
//! it is never in the way of a read.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use taffrail::{
    BatchBuilder, MemoryStorage, Offset, OffsetIndex, ReadBounds, Record, Segment, SegmentConfig, Timestamp,
};

const BASE: u64 = 1000;

fuzz_target!(|data: &[u8]| {
    if let Ok(index) = OffsetIndex::from_bytes(Offset(BASE), data) {
        assert_eq!(index.to_bytes(), data);
        let entries = index.entries();
        for wanted in entries.iter().flat_map(|e| [e.offset.0 - 1, e.offset.0, e.offset.0 + 1]).map(Offset) {
            let expected = entries.iter().rfind(|e| e.offset <= wanted);
            assert_eq!(index.lookup(wanted).position, expected.map_or(0, |e| e.position));
        }
    }
    let storage = MemoryStorage::new(1);
    let log = log();
    storage.set_bytes(format!("/{BASE:020}.log"), &log).expect("nothing fails here");
    storage.set_bytes(format!("/{BASE:020}.index"), data).expect("nothing fails here");
    let config = SegmentConfig { index_interval_bytes: 0, ..SegmentConfig::default() };
    let loaded = Segment::load(&storage.shared(), Path::new("/"), Offset(BASE), log.len() as u64, &config);
    let segment = loaded.expect("nothing fails here");
    let bounds = ReadBounds { contiguous: true, ..ReadBounds::default() };
    for offset in BASE..BASE + 8 {
        let found = segment.reader().read(Offset(offset), 1, &bounds).expect("the log is sound");
        let batch = found.batches.iter().next().expect("every offset has its batch");
        assert!(batch.header().base_offset().0 == offset / 2 * 2);
    }
});

/// Four batches of two records.
fn log() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut builder = BatchBuilder::new();
    for number in 0..4 {
        builder.clear();
        builder.base_offset(Offset(BASE + number * 2));
        for _ in 0..2 {
            builder.push(&Record::new("value").timestamp(Timestamp(5))).expect("it is small");
        }
        bytes.extend_from_slice(builder.encode().expect("it has records"));
    }
    bytes
}
