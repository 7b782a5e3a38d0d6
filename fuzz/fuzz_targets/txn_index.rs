//! Whatever the bytes are, a transaction index is read or refused; what overlaps a range is what a linear scan finds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taffrail::{Offset, TxnIndex};

const BASE: Offset = Offset(1000);

fuzz_target!(|data: &[u8]| {
    let Ok(mut index) = TxnIndex::from_bytes(BASE, data) else { return };
    assert_eq!(index.to_bytes(), data);
    let entries = index.entries();
    for from in entries.iter().flat_map(|entry| [entry.first_offset, entry.last_offset, entry.last_offset.plus(1)]) {
        let expected: Vec<_> = entries.iter().filter(|entry| entry.last_offset >= from).copied().collect();
        let stable = expected.iter().position(|entry| entry.last_stable_offset >= Offset(u64::MAX));
        assert_eq!(index.overlapping(from, Offset(u64::MAX)), expected[..stable.map_or(expected.len(), |at| at + 1)]);
    }
    if let Some(last) = index.last() {
        index.truncate(last.last_offset);
        assert_eq!(index.entries(), entries[..entries.len() - 1]);
    }
});
