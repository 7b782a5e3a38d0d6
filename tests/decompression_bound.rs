//! What a reader would not decompress is not appended: it would be acknowledged, and never be read.
#![cfg(feature = "lz4")]

use taffrail::{
    BatchBuilder, Compression, Error, MemoryStorage, Offset, Partition, PartitionConfig, ReadOptions, Record,
};

fn batch(bytes: usize, compression: Compression) -> BatchBuilder {
    let mut batch = BatchBuilder::new().compression(compression);
    batch.push(&Record::new(&vec![7; bytes])).expect("small");
    batch
}

/// A batch whose records take so many bytes.
fn records_of(bytes: usize) -> BatchBuilder {
    let found = (0..bytes).map(|length| batch(length, Compression::Lz4)).find(|batch| batch.size_bytes() == 61 + bytes);
    found.expect("one length makes it")
}

fn config(bound: usize) -> PartitionConfig {
    PartitionConfig::new().decompressed_bytes_max(bound)
}

fn partition(bound: usize) -> Partition {
    let storage = MemoryStorage::new(1).shared();
    Partition::builder("wal-0").config(config(bound)).storage(storage).open().expect("opens")
}

fn read(partition: &Partition, offset: u64) -> Result<usize, Error> {
    Ok(partition.read(Offset(offset), ReadOptions::default())?.records().count())
}

#[test]
fn the_bound_holds_to_the_byte_and_nothing_is_appended_beyond_it() {
    let partition = partition(1000);
    let _ = partition.append(&mut records_of(1000)).expect("inside");
    let mut beyond = records_of(1001);
    let refused = partition.append(&mut beyond).map(drop);
    assert!(matches!(refused, Err(Error::DecompressionBound { codec: "lz4", limit: 1000 })), "{refused:?}");
    assert_eq!((partition.end(), beyond.len()), (Offset(1), 1), "the builder keeps its records");
    let _ = partition.append(&mut batch(5000, Compression::None)).expect("nothing is to be decompressed");
    partition.sync().expect("synced");
    assert_eq!([0, 1].map(|offset| read(&partition, offset).expect("readable")), [1, 1]);
}

/// Whoever raises the bound because an error says so appends and reads at once, in the segment that is there.
#[test]
fn another_bound_holds_at_once() {
    let partition = partition(1000);
    partition.set_config(config(2000)).expect("changed");
    partition.append(&mut records_of(1500)).expect("inside").wait().expect("stored");
    assert_eq!(read(&partition, 0).expect("readable"), 1);
    partition.set_config(config(1000)).expect("changed");
    assert!(matches!(read(&partition, 0), Err(Error::DecompressionBound { limit: 1000, .. })));
    partition.set_config(config(1500)).expect("changed");
    assert_eq!(read(&partition, 0).expect("readable"), 1);
}

/// A copy takes what its leader has.
#[test]
fn batches_of_a_replica_are_taken_as_they_are() {
    let (leader, copy) = (partition(2000), partition(1000));
    let mut sealed = records_of(1500);
    let bytes = sealed.encode().expect("sealed").to_vec();
    let _ = leader.append(&mut sealed).expect("inside");
    let _ = copy.append_replica(&bytes, copy.leader_epoch()).expect("taken");
    assert_eq!(copy.end(), Offset(1));
}
