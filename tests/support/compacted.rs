//! Partitions that are compacted, as tests make and read them. Batches are appended as a copy of a log has them, so that
//! producers, sequences and markers are whatever the test wants.
#![allow(dead_code, unreachable_pub, reason = "each file in tests/ is a program of its own that uses a part of this")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use taffrail::{
    BatchBuilder, BatchHeader, Batches, Cleanup, Clock, Isolation, LeaderEpoch, ManualClock, Marker, MemoryStorage,
    Now, Offset, Outcome, Partition, PartitionBuilder, PartitionConfig, ProducerEpoch, ProducerId, ReadOptions, Record,
    Sequence, Timestamp, UpTo, marker_batch, set_base_offset, set_leader_epoch,
};

pub const PATH: &str = "data/kept-0";

pub fn config() -> PartitionConfig {
    PartitionConfig::new().cleanup(Cleanup::Compact).index_interval_bytes(100)
}

pub fn builder(storage: &MemoryStorage, clock: &Arc<ManualClock>, config: PartitionConfig) -> PartitionBuilder {
    let clock: Arc<ManualClock> = Arc::clone(clock);
    Partition::builder(PATH).config(config).storage(storage.shared()).clock(clock)
}

/// A new partition on a disk of its own, at time 1000.
pub fn fresh(config: PartitionConfig) -> (Partition, MemoryStorage, Arc<ManualClock>) {
    let (storage, clock) = (MemoryStorage::new(3), Arc::new(ManualClock::at(Timestamp(1000))));
    let partition = builder(&storage, &clock, config).open().expect("a new partition opens");
    (partition, storage, clock)
}

/// A record of a test: key, value, time.
pub type Row<'a> = (Option<&'a str>, Option<&'a str>, i64);

pub fn push(batch: &mut BatchBuilder, (key, value, time): Row<'_>) {
    let record = match (key, value) {
        (Some(key), Some(value)) => batch.push(&Record::new(value).key(key).timestamp(Timestamp(time))),
        (Some(key), None) => batch.push(&Record::tombstone(key).timestamp(Timestamp(time))),
        (None, value) => batch.push(&Record::new(value.unwrap_or("")).timestamp(Timestamp(time))),
    };
    record.expect("a record of a test is small");
}

/// Appends a batch as it is, at the end; answers where.
pub fn append(partition: &Partition, batch: &mut BatchBuilder) -> Offset {
    let bytes = batch.encode().expect("it is not empty").to_vec();
    batch.clear();
    append_bytes(partition, bytes)
}

pub fn append_bytes(partition: &Partition, mut bytes: Vec<u8>) -> Offset {
    let (end, epoch) = (partition.end(), partition.leader_epoch());
    set_base_offset(&mut bytes, end);
    set_leader_epoch(&mut bytes, epoch);
    let appended = partition.append_replica(&bytes, LeaderEpoch(i32::MAX)).expect("it follows");
    appended.wait().expect("it is stored");
    end
}

/// Appends records in one batch.
pub fn put(partition: &Partition, rows: &[Row<'_>]) -> Offset {
    let mut batch = BatchBuilder::new();
    for row in rows {
        push(&mut batch, *row);
    }
    append(partition, &mut batch)
}

/// Appends records of a producer in one batch.
pub fn put_of(partition: &Partition, id: i64, sequence: i32, transactional: bool, rows: &[Row<'_>]) -> Offset {
    let mut batch = BatchBuilder::new();
    for row in rows {
        push(&mut batch, *row);
    }
    batch.producer(ProducerId(id), ProducerEpoch(0), Sequence(sequence));
    batch.transactional(transactional);
    append(partition, &mut batch)
}

/// Ends a transaction.
pub fn mark(partition: &Partition, id: i64, outcome: Outcome, time: i64) -> Offset {
    let (producer_id, producer_epoch) = (ProducerId(id), ProducerEpoch(0));
    let timestamp = Timestamp(time);
    append_bytes(
        partition,
        marker_batch(&Marker { outcome, producer_id, producer_epoch, coordinator_epoch: 1, timestamp }),
    )
}

pub fn at(millis: i64) -> Now {
    let now = ManualClock::at(Timestamp(millis)).now();
    Now { wall: Timestamp(millis), ..now }
}

/// Every batch of the log, to its end.
pub fn batches(partition: &Partition) -> Vec<Bytes> {
    let options = ReadOptions::new().isolation(Isolation::Uncommitted).up_to(UpTo::LogEnd);
    let mut found = Vec::new();
    let mut next = partition.start();
    while next < partition.end() {
        let fetched = partition.try_read(next, options).expect("it is readable");
        assert!(fetched.next_offset() > next, "a read at {next} gets nowhere");
        next = fetched.next_offset();
        found.extend(fetched.batches().iter().map(|batch| Bytes::copy_from_slice(batch.bytes())));
    }
    found
}

pub fn headers(partition: &Partition) -> Vec<BatchHeader> {
    batches(partition).iter().map(|bytes| BatchHeader::parse(bytes).expect("it was read")).collect()
}

/// The offsets of each batch, first and last, and its number of records.
pub fn shape(partition: &Partition) -> Vec<(u64, u64, u32)> {
    headers(partition).iter().map(|h| (h.base_offset().0, h.last_offset().0, h.record_count())).collect()
}

/// A record as it was read: offset, key, value.
pub type Seen = (u64, Option<String>, Option<String>);

/// Every record that a reader is given.
pub fn read(partition: &Partition, isolation: Isolation) -> Vec<Seen> {
    read_from(partition, partition.start(), isolation)
}

pub fn read_from(partition: &Partition, from: Offset, isolation: Isolation) -> Vec<Seen> {
    let options = ReadOptions::new().isolation(isolation);
    let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let (mut found, mut next) = (Vec::new(), from);
    loop {
        let fetched = partition.try_read(next, options).expect("it is readable");
        found.extend(fetched.records().map(|r| (r.offset().0, text(r.key()), text(r.value()))));
        if fetched.next_offset() <= next {
            return found;
        }
        next = fetched.next_offset();
    }
}

/// The same, short: `offset key value`, `-` for none.
pub fn lines(partition: &Partition) -> Vec<String> {
    let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let line = |(offset, key, value): &Seen| format!("{offset} {} {}", or(key), or(value));
    read(partition, Isolation::Committed).iter().map(line).collect()
}

/// Records of one batch.
pub fn records_of(bytes: &Bytes) -> Batches {
    Batches::parse(bytes.clone(), 1 << 20).expect("it was read")
}

pub const MILLI: Duration = Duration::from_millis(1);
