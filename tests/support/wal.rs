//! A small partition in memory: what the tests of a partition's behaviour begin with.
#![allow(dead_code, unreachable_pub, reason = "each file in tests/ is a program of its own that uses a part of this")]

use std::sync::Arc;

use taffrail::{
    BatchBuilder, Isolation, LeaderEpoch, ManualClock, MemoryStorage, Moment, Now, Offset, Partition, PartitionConfig,
    ReadOptions, Record, Result, Timestamp, UpTo,
};

pub const DIRECTORY: &str = "data/wal-0";

pub fn config() -> PartitionConfig {
    PartitionConfig::new().segment_bytes(1_500).index_interval_bytes(200)
}

pub fn try_open(storage: &MemoryStorage, directory: &str, config: PartitionConfig) -> Result<Partition> {
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    Partition::builder(directory).config(config).storage(storage.shared()).clock(clock).open()
}

pub fn open(storage: &MemoryStorage, config: PartitionConfig) -> Partition {
    try_open(storage, DIRECTORY, config).expect("it opens")
}

/// A time at which everything is due.
pub fn late() -> Now {
    Now { monotonic: Moment(u64::MAX / 2), ..Default::default() }
}

pub fn batch(records: u64, value: &str) -> BatchBuilder {
    let mut batch = BatchBuilder::new();
    for _ in 0..records {
        batch.push(&Record::new(value).key("k").timestamp(Timestamp(1))).expect("small");
    }
    batch
}

/// Appends a batch and waits until it is stored; answers where it begins.
pub fn append(partition: &Partition, records: u64, value: &str) -> Offset {
    let mut batch = batch(records, value);
    let appended = partition.append(&mut batch).expect("appended");
    let start = appended.offsets.start;
    appended.wait().expect("stored");
    start
}

/// Appends a batch that nobody waits for.
pub fn append_unsynced(partition: &Partition, records: u64, value: &str) {
    drop(partition.append(&mut batch(records, value)).expect("appended"));
}

/// A batch of one record as another copy has it.
pub fn replica(base: u64, value: &str, epoch: i32) -> Vec<u8> {
    let mut batch = batch(1, value);
    batch.base_offset(Offset(base));
    batch.leader_epoch(LeaderEpoch(epoch));
    batch.encode().expect("encoded").to_vec()
}

/// Appends what another copy has, and waits until it is stored.
pub fn append_replica(partition: &Partition, bytes: &[u8]) -> Result<()> {
    partition.append_replica(bytes, LeaderEpoch(i32::MAX))?.wait()
}

/// The records that a reader is given from `from` on, and where he stands then.
pub fn read_from(partition: &Partition, from: Offset, up_to: UpTo) -> Result<(Vec<(u64, String)>, Offset)> {
    let options = ReadOptions::new().isolation(Isolation::Uncommitted).up_to(up_to);
    let (mut records, mut at) = (Vec::new(), from);
    loop {
        let fetched = partition.try_read(at, options)?;
        let text = |value: Option<&str>| value.expect("it is text").to_owned();
        records.extend(fetched.records().map(|record| (record.offset().0, text(record.value_str()))));
        if fetched.next_offset() == at {
            return Ok((records, at));
        }
        at = fetched.next_offset();
    }
}

/// Every record up to the log's end; there may be gaps.
pub fn everything(partition: &Partition) -> Result<Vec<(u64, String)>> {
    Ok(read_from(partition, partition.start(), UpTo::LogEnd)?.0)
}

/// The offsets of every record up to the log's end.
pub fn offsets(partition: &Partition) -> Result<Vec<u64>> {
    Ok(everything(partition)?.into_iter().map(|(offset, _)| offset).collect())
}
