//! What the numbers of an idempotent producer's batches are, and that no failure makes it store anything twice, out of
//! order, or not at all without an error.

use super::{HOUR, House, read, unsynced};
use crate::config::PartitionConfig;
use crate::error::Error;
use crate::partition::{Force, Partition, ReadOptions};
use crate::producer::Producer;
use crate::record::builder::{BatchBuilder, Record};
use crate::storage::{Fault, OperationKind};
use crate::types::{Acks, Offset, ProducerEpoch, ProducerId, Sequence};

/// Producer id, first sequence and number of records of each batch.
fn numbers(partition: &Partition) -> Vec<(Option<i64>, Option<i32>, u32)> {
    let fetched = partition.try_read(partition.start(), ReadOptions::default()).expect("it reads");
    let number = |batch: crate::record::batches::Batch<'_>| {
        let header = batch.header();
        (header.producer_id().map(|id| id.0), header.base_sequence().map(|first| first.0), header.record_count())
    };
    fetched.batches().iter().map(number).collect()
}

/// One batch.
fn send(producer: &Producer, records: u32, value: &str) -> Result<(), Error> {
    for _ in 0..records {
        producer.send("orders", Record::new(value).partition(0))?;
    }
    producer.flush()
}

#[test]
fn batches_are_numbered_per_partition() {
    let house = House::unsynced(2);
    let (one, other) = (house.lingering(), house.lingering());
    let plain = house.builder().idempotent(false).linger(HOUR).open().expect("it opens");
    send(&one, 2, "a").expect("stored");
    send(&other, 1, "b").expect("stored");
    send(&plain, 1, "c").expect("stored");
    send(&one, 3, "a").expect("stored");
    one.send("orders", Record::new("d").partition(1)).expect("sent").wait().expect("stored");
    let ids = [one.accumulator.producer_id, other.accumulator.producer_id].map(|id| id.map(|id| id.0));
    assert!(ids[0] < ids[1] && ids[0].is_some() && plain.accumulator.producer_id.is_none());
    assert_eq!(
        numbers(house.partition(0)),
        [(ids[0], Some(0), 2), (ids[1], Some(0), 1), (None, None, 1), (ids[0], Some(2), 3)]
    );
    assert_eq!(numbers(house.partition(1)), [(ids[0], Some(0), 1)], "each partition has its own");
}

#[test]
fn whoever_is_asked_for_less_is_numbered_too() {
    for acks in [Acks::Leader, Acks::None] {
        let house = House::unsynced(1);
        let producer = house.builder().acks(acks).linger(HOUR).open().expect("it opens");
        send(&producer, 1, "a").expect("stored");
        assert_eq!(numbers(house.partition(0)), [(producer.accumulator.producer_id.map(|id| id.0), Some(0), 1)]);
    }
}

#[test]
fn a_batch_that_was_not_written_leaves_no_gap() {
    let house = House::unsynced(1);
    let producer = house.lingering();
    send(&producer, 1, "a").expect("stored");
    house.storage.fill_up();
    assert!(matches!(send(&producer, 2, &"b".repeat(5_000)), Err(Error::Io { .. })));
    house.storage.free();
    send(&producer, 3, "c").expect("stored");
    let id = producer.accumulator.producer_id.map(|id| id.0);
    assert_eq!(numbers(house.partition(0)), [(id, Some(0), 1), (id, Some(1), 3)]);
}

fn values(partition: &Partition) -> Vec<String> {
    read(partition).into_iter().map(|(_, value)| value).collect()
}

/// A write that fails, and cannot be cut back: whether the batch is there shows when the partition is opened again.
#[test]
fn a_batch_in_doubt_is_not_in_the_way_of_the_next() {
    let house = House::unsynced(1);
    let producer = house.lingering();
    send(&producer, 1, "a").expect("stored");
    let partition = house.partition(0);
    house.storage.fail_when(|operation| {
        matches!(operation.kind, OperationKind::Write | OperationKind::Truncate).then_some(Fault::Io)
    });
    let failed = send(&producer, 1, "b");
    assert!(matches!(failed, Err(Error::Poisoned { .. })), "{failed:?}");
    house.storage.clear_faults();
    assert!(matches!(send(&producer, 3, "x"), Err(Error::Poisoned { .. })), "until it is opened again");
    partition.reopen().expect("the disk is well again");
    send(&producer, 1, "c").expect("it goes on");
    send(&producer, 1, "d").expect("it goes on");
    assert_eq!(values(partition), ["a", "c", "d"]);
}

/// A sync that fails: the batches are in doubt, and they are there.
#[test]
fn a_batch_in_doubt_that_is_there_is_not_taken_for_the_next() {
    let house = House::new(1, &PartitionConfig::new());
    let producer = house.lingering();
    send(&producer, 1, "a").expect("stored");
    let partition = house.partition(0);
    house.storage.fail_when(|operation| (operation.kind == OperationKind::Sync).then_some(Fault::SyncFails));
    let failed = send(&producer, 1, "b");
    assert!(matches!(failed, Err(Error::Poisoned { .. })), "{failed:?}");
    house.storage.clear_faults();
    partition.reopen().expect("the disk is well again");
    send(&producer, 1, "c").expect("it goes on");
    assert_eq!(values(partition), ["a", "b", "c"]);
    let id = producer.accumulator.producer_id.map(|id| id.0);
    assert_eq!(numbers(partition), [(id, Some(0), 1), (id, Some(1), 1), (id, Some(2), 1)]);
}

/// Batches are gone whose numbers were given.
#[test]
fn after_batches_were_lost_it_goes_on_as_another() {
    let house = House::new(1, &PartitionConfig::new());
    let producer = house.lingering();
    send(&producer, 1, "a").expect("stored");
    for value in ["b", "c"] {
        producer.send("orders", Record::new(value)).expect("sent");
        producer.accumulator.hand_over_all();
    }
    let partition = house.partition(0);
    partition.truncate_from(Offset(1), Force::Yes).expect("cut");
    let first = producer.accumulator.producer_id.map(|id| id.0);
    let told = send(&producer, 2, "d");
    assert!(matches!(told, Err(Error::Superseded { .. })), "of what was cut: {told:?}");
    send(&producer, 1, "e").expect("it goes on");
    let found = numbers(partition);
    let second = found[1].0;
    assert!(second > first, "{found:?}");
    assert_eq!(found, [(first, Some(0), 1), (second, Some(0), 2), (second, Some(2), 1)]);
    assert_eq!(values(partition), ["a", "d", "d", "e"]);
}

/// A partition that was copied from another log knows ids that are given here only now.
#[test]
fn ids_that_a_partition_knows_are_not_taken() {
    let house = House::unsynced(1);
    for id in 0..3 {
        let mut batch = BatchBuilder::new();
        batch.push(&Record::new("theirs")).expect("small");
        batch.producer(ProducerId(id), ProducerEpoch(4), Sequence(0));
        batch.transactional(id == 2);
        house.partition(0).append(&mut batch).expect("appended").wait().expect("stored");
    }
    let producer = house.lingering();
    assert!(producer.accumulator.producer_id < Some(ProducerId(3)), "the test asks for nothing else");
    send(&producer, 1, "ours").expect("stored");
    send(&producer, 1, "ours").expect("stored");
    let fetched =
        house.partition(0).try_read(Offset(3), ReadOptions::default().isolation(crate::types::Isolation::Uncommitted));
    let fetched = fetched.expect("it reads");
    let headers: Vec<_> = fetched.batches().iter().map(|batch| *batch.header()).collect();
    assert_eq!(headers.len(), 2);
    assert!(headers[0].producer_id() >= Some(ProducerId(3)) && headers[1].producer_id() == headers[0].producer_id());
    assert_eq!(
        headers.iter().map(crate::record::batch::BatchHeader::base_sequence).collect::<Vec<_>>(),
        [Some(Sequence(0)), Some(Sequence(1))]
    );
}

#[test]
fn a_topic_made_again_is_begun_anew() {
    let mut house = House::unsynced(1);
    let producer = house.lingering();
    send(&producer, 2, "old").expect("stored");
    house.create("orders", 2, 1, &unsynced());
    send(&producer, 1, "new").expect("stored");
    assert_eq!(numbers(house.partition(0)), [(producer.accumulator.producer_id.map(|id| id.0), Some(0), 1)]);
}
