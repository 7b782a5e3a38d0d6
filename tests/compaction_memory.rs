//! How much memory the keys of a compaction take: 24 bytes a slot, nine of ten filled, and no more than the bound.
//!
//! `TAFFRAIL_COMPACTION_KEYS` says how many keys of 16 bytes there are (200,000). The full size is 10,000,000, in 300 MB:
//! `TAFFRAIL_COMPACTION_KEYS=10000000 cargo test --release --test compaction_memory -- --nocapture`.

#[path = "support/counting.rs"]
mod counting;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use counting::live;
use taffrail::{
    BatchBuilder, CleanerConfig, Cleanup, Clock, Compacting, CompactionEnd, Durability, Offset, Partition,
    PartitionConfig, Record, SystemClock, Timestamp,
};

fn keys() -> u64 {
    std::env::var("TAFFRAIL_COMPACTION_KEYS").map_or(200_000, |text| text.parse().expect("a number of keys"))
}

#[test]
fn keys_of_sixteen_bytes_fit_the_bound() {
    let count = keys();
    let directory = tempfile::tempdir().expect("a temporary directory");
    // 28 bytes a key: 280 MB for ten million, so that they fit in 300 with all that is beside the map.
    let bound = usize::try_from(count * 28).expect("it fits");
    let config = PartitionConfig::new().cleanup(Cleanup::Compact).durability(Durability::Os).segment_bytes(256 << 20);
    let cleaner = CleanerConfig::new().map_bytes_max(bound);
    let partition =
        Partition::builder(directory.path().join("keys-0")).config(config).cleaner(cleaner).open().expect("it opens");
    let mut batch = BatchBuilder::new();
    for round in 0..2 {
        for n in 0..count {
            let key = format!("{n:016}");
            batch.push(&Record::new(&[round]).key(&key).timestamp(Timestamp(1))).expect("small");
            if batch.len() == 1000 || n + 1 == count {
                let _stored_later = partition.append(&mut batch).expect("appended");
            }
        }
    }
    partition.roll().expect("rolled");
    drop(batch);
    let before = live();
    let (most, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                most.fetch_max(live(), Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_micros(200));
            }
        });
        let ended = loop {
            if let Compacting::Ended(ended) = partition.compact(SystemClock.now(), 1 << 20).expect("compacted") {
                break ended;
            }
        };
        stop.store(true, Ordering::Relaxed);
        ended
    });
    let taken = most.load(Ordering::Relaxed).saturating_sub(before);
    println!("{count} keys: the map {} bytes, at most {taken} in all, {} a key", ended.map_bytes, taken as u64 / count);
    assert_eq!((ended.end.clone(), ended.keys), (CompactionEnd::Complete, count), "in one round: {ended}");
    assert_eq!(ended.records_dropped, count);
    assert_eq!(ended.cleaned_to, Offset(2 * count));
    assert!(ended.map_bytes <= bound as u64 && ended.map_bytes / count <= 28);
    // Beside the map there are the pieces that are read and written.
    assert!(taken <= bound + (8 << 20), "{taken} bytes, {bound} are the bound of the map");
}
