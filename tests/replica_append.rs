//! Batches as another copy of the log has them: all that is acknowledged can be read, and what is refused changes
//! nothing.

#[path = "support/wal.rs"]
mod wal;

use taffrail::{BatchHeader, Commits, Error, ErrorKind, LeaderEpoch, MemoryStorage, Offset, ReadOptions, UpTo};
use wal::{append, append_replica, config, everything, offsets, open, replica};

/// Batches of one call whose offsets span more than 2^31 went into one segment, whose index cannot point to them: they
/// were acknowledged, could not be read, and the next open cut them.
#[test]
fn one_call_spans_more_offsets_than_a_segment_can() {
    const SPAN: u64 = i32::MAX as u64;
    for bases in [vec![0, SPAN], vec![0, SPAN + 1], vec![0, 1 << 32], vec![5, 6, 6 + SPAN, 7 + SPAN, 1 << 40]] {
        let storage = MemoryStorage::new(1);
        let partition = open(&storage, config());
        let bytes: Vec<u8> = bases.iter().flat_map(|base| replica(*base, "v", 0)).collect();
        append_replica(&partition, &bytes).expect("stored");
        assert_eq!(offsets(&partition).expect("readable"), bases);
        let partition = open(&storage.kill(), config());
        assert_eq!(partition.recovery().cut, None, "{bases:?}");
        assert!(partition.recovery().damaged.is_empty(), "{bases:?}");
        assert_eq!(offsets(&partition).expect("readable"), bases);
    }
}
