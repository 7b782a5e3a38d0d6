//! What a read has handed out stays what it is, also when the partition is closed, opened again and cut. On files that
//! were mapped the bytes once went with the cut: looking at them ended the process.

use std::path::Path;
use std::sync::Arc;

use taffrail::{
    BatchBuilder, FileStorage, Force, MemoryStorage, Offset, Partition, PartitionConfig, ReadOptions, Reads, Record,
    Storage, Timestamp,
};

fn open(storage: &Arc<dyn Storage>, path: &Path) -> Partition {
    let config = PartitionConfig::new().segment_bytes(90 << 10).index_interval_bytes(4096);
    Partition::builder(path).config(config).storage(Arc::clone(storage)).open().expect("opens")
}

fn append(partition: &Partition, value: &str, count: usize) {
    for _ in 0..count {
        let mut batch = BatchBuilder::new();
        batch.push(&Record::new(&value.repeat(10_000))).expect("small");
        partition.append(&mut batch).expect("taken").wait().expect("stored");
    }
}

fn outlives(new_storage: impl Fn() -> Arc<dyn Storage>, path: &Path) {
    let (storage, next) = (new_storage(), new_storage());
    let partition = open(&storage, path);
    append(&partition, "a", 60);
    partition.close().expect("closes");
    let partition = open(&storage, path);
    let held: Vec<_> =
        (0..60).map(|offset| partition.read(Offset(offset), ReadOptions::new().max_bytes(1)).expect("sound")).collect();
    assert!(partition.find_timestamp(Timestamp(0)).expect("sound").is_some());
    partition.close().expect("closes");

    let partition = open(&next, path);
    assert_eq!(partition.truncate_from(Offset(30), Force::Yes).expect("cut"), Offset(30));
    append(&partition, "b", 40);
    assert_eq!(partition.truncate_from(Offset(5), Force::Yes).expect("cut"), Offset(5));
    append(&partition, "c", 20);
    for (offset, fetched) in held.iter().enumerate() {
        let record = fetched.records().next().expect("one record");
        assert_eq!(record.offset().0, offset as u64);
        assert!(record.value().expect("a value").iter().all(|byte| *byte == b'a'), "offset {offset} has changed");
    }
    partition.trim_before(Offset(25)).expect("trimmed");
    drop(held);
    partition.close().expect("closes");
}

#[test]
fn in_memory() {
    let storage = MemoryStorage::new(1);
    outlives(|| storage.shared(), Path::new("data/wal-0"));
}

#[test]
fn in_files() {
    for reads in [Reads::Mapped, Reads::Buffered] {
        let place = tempfile::tempdir().expect("a place");
        let storage: Arc<dyn Storage> = Arc::new(FileStorage::new().reads(reads));
        outlives(|| Arc::clone(&storage), &place.path().join("wal-0"));
        let place = tempfile::tempdir().expect("a place");
        outlives(|| Arc::new(FileStorage::new().reads(reads)), &place.path().join("wal-0"));
    }
}
