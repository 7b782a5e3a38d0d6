//! The records behind a right checksum: the header is taken from the input, its length and checksum are made right, so
//! that decompression and framing are reached. What passes is written again and has to read the same.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use taffrail::{Batch, BatchBuilder, BatchHeader, Batches, HEADER_BYTES, Record};

const DECOMPRESSED_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Some(bytes) = sealed(data) else { return };
    let Ok(batches) = Batches::parse(bytes, DECOMPRESSED_BYTES_MAX) else { return };
    for batch in &batches {
        assert!(batch.records().len() == batch.records().count());
        rewrite(batch);
    }
});

/// Sets length, magic and checksum. The checksum is found by asking: the refusal says what it should be.
fn sealed(data: &[u8]) -> Option<Bytes> {
    let mut bytes = data.to_vec();
    let length = u32::try_from(bytes.len().checked_sub(12)?).ok()?;
    bytes.get_mut(8..12)?.copy_from_slice(&length.to_be_bytes());
    *bytes.get_mut(16)? = 2;
    let header = BatchHeader::parse(&bytes).ok()?;
    if let Err(taffrail::Corruption::Checksum { computed, .. }) = taffrail::verify_checksum(&bytes, &header) {
        bytes[17..21].copy_from_slice(&computed.to_be_bytes());
    }
    assert!(bytes.len() >= HEADER_BYTES);
    Some(Bytes::from(bytes))
}

fn rewrite(batch: Batch<'_>) {
    let mut builder = BatchBuilder::new();
    let mut pushed = 0;
    for read in batch.records() {
        let mut record = match (read.key(), read.value()) {
            (None, None) => Record::null(),
            (Some(key), None) => Record::tombstone(key),
            (None, Some(value)) => Record::new(value),
            (Some(key), Some(value)) => Record::new(value).key(key),
        };
        for header in read.headers() {
            let Some(name) = header.name_str() else { return };
            record = match header.value() {
                Some(value) => record.header(name, value),
                None => record.null_header(name),
            };
        }
        let Some(timestamp) = read.timestamp() else { return };
        builder.push(&record.timestamp(timestamp)).expect("it came out of a batch");
        pushed += 1;
    }
    if pushed == 0 {
        return;
    }
    let bytes = Bytes::copy_from_slice(builder.encode().expect("it has records"));
    let again = Batches::parse(bytes, DECOMPRESSED_BYTES_MAX).expect("a builder makes valid batches");
    let again = again.iter().next().expect("one batch");
    for (read, copy) in batch.records().zip(again.records()) {
        assert_eq!((read.key(), read.value(), read.timestamp()), (copy.key(), copy.value(), copy.timestamp()));
        assert!(read.headers().eq(copy.headers()));
    }
}
