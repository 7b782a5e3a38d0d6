//! Whatever lies in a `.log`: recovery ends, what it keeps is sound, doing it again changes nothing, and reads serve
//! nothing but batches whose checksum is right, in order.
//!
//! The first byte chooses how a sound log is damaged by the rest; checksums are made right where bit 7 is set, so that
//! the checks behind them are reached.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use taffrail::{
    BatchHeader, Error, MemoryStorage, Offset, ReadBounds, RecoveryOptions, Segment, SegmentConfig, SegmentReader,
    Storage, Timestamp, verify_checksum,
};

const NAME: &str = "/00000000000000000000.log";

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if choice & 0x80 != 0 {
        seal(&mut bytes);
    }
    let memory = MemoryStorage::new(1);
    memory.set_bytes(NAME, &bytes).expect("nothing fails here");
    let storage = memory.shared();
    let contiguous = choice & 1 != 0;
    let end = Offset(u64::from(choice >> 1 & 0x3f) * 4 + 1);

    let sealed = RecoveryOptions { contiguous, ..RecoveryOptions::sealed(end) };
    let mut segment = load(&storage, &bytes);
    let recovery = segment.recover(&sealed, &mut ()).expect("nothing fails here");
    assert!(recovery.damaged.is_sorted_by_key(|damage| damage.position));
    read_over(segment.reader(), &ReadBounds { up_to: end, next_base: Some(end), contiguous, ..ReadBounds::default() });

    let active = RecoveryOptions { contiguous, ..RecoveryOptions::active() };
    let mut segment = load(&storage, &bytes);
    let recovery = segment.recover(&active, &mut ()).expect("nothing fails here");
    assert!(recovery.valid_bytes <= bytes.len() as u64);
    segment.cut(recovery.valid_bytes).expect("nothing fails here");
    let again = segment.recover(&active, &mut ()).expect("nothing fails here");
    assert_eq!((again.valid_bytes, again.stop), (recovery.valid_bytes, None));
    assert_eq!((again.batches, again.next_offset), (recovery.batches, recovery.next_offset));
    read_over(segment.reader(), &ReadBounds { contiguous, ..ReadBounds::default() });
});

fn load(storage: &Arc<dyn Storage>, bytes: &[u8]) -> Segment {
    let config =
        SegmentConfig { index_interval_bytes: 100, decompressed_bytes_max: 1 << 16, ..SegmentConfig::default() };
    Segment::load(storage, Path::new("/"), Offset(0), bytes.len() as u64, &config).expect("nothing fails here")
}

/// Makes checksums right along the headers.
fn seal(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..) {
        let Ok(header) = BatchHeader::parse(rest) else { return };
        let size = usize::try_from(header.size()).unwrap_or(usize::MAX);
        let Some(batch) = rest.get_mut(..size) else { return };
        if let Err(taffrail::Corruption::Checksum { computed, .. }) = verify_checksum(batch, &header) {
            batch[17..21].copy_from_slice(&computed.to_be_bytes());
        }
        at += size;
    }
}

fn read_over(reader: &SegmentReader, bounds: &ReadBounds<'_>) {
    let mut next = Offset(0);
    for _ in 0..1000 {
        if next >= bounds.up_to {
            return;
        }
        match reader.read(next, 300, bounds) {
            Ok(found) => {
                for batch in &found.batches {
                    verify_checksum(batch.bytes(), batch.header()).expect("what is served was checked");
                    assert!(batch.header().next_offset() <= bounds.up_to);
                    assert_eq!(batch.records().count() as u32, batch.header().record_count());
                }
                if found.batches.is_empty() {
                    break;
                }
                assert!(found.next > next);
                next = found.next;
            }
            Err(Error::Corrupt { offsets, .. }) => {
                assert!(offsets.start == next && offsets.end > next);
                next = offsets.end;
            }
            Err(_) => break,
        }
    }
    let _ = reader.find_timestamp(Timestamp(1), Offset(0), bounds);
    let _ = reader.largest_timestamp();
}
