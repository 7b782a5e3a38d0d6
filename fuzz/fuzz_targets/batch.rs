//! Whatever the bytes are, a batch is read or refused: no panic, and no memory beyond the bound.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use taffrail::{BatchHeader, Batches, verify_checksum};

const DECOMPRESSED_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Ok(header) = BatchHeader::parse(data) else { return };
    assert!(header.size() >= 61);
    assert!(header.base_offset() <= header.last_offset() && header.last_offset() < header.next_offset());
    let _ = verify_checksum(data, &header);
    let Ok(batches) = Batches::parse(Bytes::copy_from_slice(data), DECOMPRESSED_BYTES_MAX) else { return };
    assert_eq!(batches.size_bytes(), data.len());
    for batch in &batches {
        let _ = batch.control();
        let mut next = batch.header().base_offset();
        let mut count = 0;
        for record in batch.records() {
            assert!(record.offset() >= next && record.offset() <= batch.header().last_offset());
            next = record.offset().plus(1);
            count += 1;
            assert_eq!(record.headers().len(), record.headers().count());
        }
        assert_eq!(count, batch.header().record_count());
    }
});
