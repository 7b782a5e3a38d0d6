//! What is refused at once, and what fails later: that and nothing else.

use super::{HOUR, House, unsynced};
use crate::config::{Cleanup, PartitionConfig};
use crate::error::Error;
use crate::producer::{Choice, Delivery, Partitioner, Producer};
use crate::record::builder::Record;
use crate::storage::{Fault, OperationKind};
use crate::types::{Acks, Timestamp};

fn send(producer: &Producer, value: &str) -> Delivery {
    producer.send("orders", Record::new(value)).expect("it is sent")
}

#[track_caller]
fn refused(producer: &Producer, record: &Record<'_>) -> Error {
    let error = producer.send("orders", record).expect_err("it is refused");
    assert_eq!(
        (producer.accumulator.open_batches(), producer.accumulator.memory_used()),
        (0, 0),
        "nothing is left open"
    );
    error
}

#[derive(Debug)]
struct Beyond;

impl Partitioner for Beyond {
    fn partition(&self, choice: &Choice<'_>) -> u32 {
        choice.partitions
    }
}

#[test]
fn what_no_batch_takes_is_refused_at_once() {
    let minute = std::time::Duration::from_secs(60);
    let house = House::new(2, &unsynced().cleanup(Cleanup::Compact).timestamp_after_max(Some(minute)));
    let producer = house.lingering();
    let record = || Record::new("a").key("k");
    assert!(matches!(producer.send("nobody", record()), Err(Error::UnknownTopic { name }) if name == "nobody"));
    let unknown = |error| matches!(error, Error::UnknownPartition { partition: 2, partitions: 2, .. });
    assert!(unknown(refused(&producer, &record().partition(2))));
    assert!(unknown(refused(&house.builder().partitioner(Beyond).open().expect("it opens"), &record())));
    assert!(matches!(refused(&producer, &Record::new("a")), Error::NullKey { index: 0 }));
    for time in [-1, super::START.0 + 60_001] {
        let error = refused(&producer, &record().timestamp(Timestamp(time)));
        assert!(matches!(error, Error::InvalidTimestamp { timestamp: Timestamp(found), .. } if found == time));
    }
    producer.send("orders", record().timestamp(Timestamp(super::START.0 + 60_000))).expect("it is inside");
}

#[test]
fn the_largest_record_that_fits_is_known_to_the_byte() {
    let value = "v".repeat(500);
    let size = Record::new(&value).batch_size_bytes();
    let limit = u32::try_from(size).expect("it is small");
    let house = House::new(1, &unsynced().batch_bytes_max(limit));
    let producer = house.lingering();
    send(&producer, &value).wait().expect("it fits");
    let more = format!("{value}v");
    let error = refused(&producer, &Record::new(&more));
    assert!(matches!(error, Error::BatchTooLarge { size: found, limit } if limit == size && found == size + 1));
    for _ in 0..20 {
        send(&producer, "v");
        send(&producer, &value);
    }
    producer.flush().expect("batches are filled to what the topic takes");
}

#[test]
fn a_batch_that_cannot_be_written_fails_alone() {
    let house = House::unsynced(2);
    let producer = house.lingering();
    let before = send(&producer, "before");
    producer.flush().expect("it is stored");
    let failed = ["a", "b"].map(|value| producer.send("orders", Record::new(value).partition(0)).expect("it is sent"));
    let elsewhere = producer.send("orders", Record::new("c").partition(1)).expect("it is sent");
    house.storage.fail_when(|operation| {
        (operation.kind == OperationKind::Write && operation.path.ends_with("orders-0/00000000000000000000.log"))
            .then_some(Fault::NoSpace)
    });
    let flushed = producer.flush();
    assert!(matches!(flushed, Err(Error::Io { .. })), "{flushed:?}");
    house.storage.clear_faults();
    producer.flush().expect("it was told once");
    let after = producer.send("orders", Record::new("d").partition(0)).expect("it is sent");
    assert!(after.wait().is_ok() && elsewhere.wait().is_ok() && before.wait().is_ok());
    for delivery in failed {
        assert!(matches!(delivery.try_wait(), Some(Err(Error::Io { .. }))));
        assert!(matches!(delivery.wait(), Err(Error::Io { .. })));
    }
    let mut values = [house.values(0), house.values(1)].concat();
    values.sort_unstable();
    assert_eq!(values, ["before", "c", "d"]);
    assert_eq!(producer.accumulator.memory_used(), 0);
}

#[test]
fn what_a_full_batch_fails_with_is_not_the_next_records_error() {
    let house = House::unsynced(1);
    let producer = house.builder().batch_bytes(200).linger(HOUR).open().expect("it opens");
    let value = "v".repeat(100);
    house.storage.fail_from(house.storage.operations(), Fault::NoSpace);
    let failed = send(&producer, &value);
    let next = send(&producer, &value);
    assert!(matches!(failed.try_wait(), Some(Err(Error::Io { .. }))));
    house.storage.clear_faults();
    assert_eq!(next.wait().expect("it is stored").offset.0, 0);
}

#[test]
fn a_sync_that_fails_is_told_to_those_who_asked_for_it() {
    for acks in [Acks::All, Acks::Leader, Acks::None] {
        let house = House::new(1, &PartitionConfig::new());
        let producer = house.builder().acks(acks).linger(HOUR).open().expect("it opens");
        let delivery = send(&producer, "a");
        house.storage.fail_when(|operation| (operation.kind == OperationKind::Sync).then_some(Fault::SyncFails));
        let flushed = producer.flush();
        assert_eq!(flushed.is_err(), acks == Acks::All, "{acks:?}: {flushed:?}");
        assert_eq!(delivery.try_wait().expect("it is known").is_err(), acks == Acks::All);
        assert_eq!(delivery.wait().is_err(), acks == Acks::All);
    }
}

#[test]
fn without_acks_only_who_asks_for_the_record_hears_of_its_failure() {
    let house = House::unsynced(1);
    let producer = house.builder().acks(Acks::None).linger(HOUR).open().expect("it opens");
    let delivery = send(&producer, "a");
    house.storage.fill_up();
    producer.flush().expect("it tells of no failure");
    assert!(matches!(delivery.wait(), Err(Error::Io { .. })), "there is no offset to answer");
    producer.close().expect("nor does this");
}

/// Two flushes at once: both hear of a batch that both waited for.
#[test]
fn a_failure_is_told_to_every_flush_that_began_before_it() {
    let house = House::unsynced(1);
    let producer = house.lingering();
    let told = producer.accumulator.failures_told();
    send(&producer, "a");
    house.storage.fill_up();
    assert!(producer.flush().is_err());
    assert!(producer.accumulator.tell_failures(told).is_err());
    assert!(producer.flush().is_ok());
}

/// What a reader may not take out of a compressed batch is not put in: batches stay small enough, or go uncompressed.
#[cfg(feature = "lz4")]
#[test]
fn no_batch_is_compressed_that_readers_would_not_decompress() {
    let house = House::new(1, &unsynced().decompressed_bytes_max(1000).batch_bytes_max(3000));
    let producer = house.builder().compression(crate::types::Compression::Lz4).linger(HOUR).open().expect("it opens");
    let values = [400, 400, 400, 400, 2900, 400].map(|length| "v".repeat(length));
    let deliveries = values.each_ref().map(|value| send(&producer, value));
    producer.flush().expect("everything is stored");
    assert!(deliveries.iter().all(|delivery| matches!(delivery.try_wait(), Some(Ok(_)))));
    assert_eq!(house.values(0), values);
    let more = "v".repeat(3000);
    let error = refused(&producer, &Record::new(&more));
    assert!(matches!(error, Error::DecompressionBound { codec: "lz4", limit: 1000 }), "{error:?}");
    assert_eq!(error.kind(), crate::error::ErrorKind::Fix);
    let open = send(&producer, "v");
    assert!(
        producer.send("orders", Record::new(&more)).is_err() && open.try_wait().is_none(),
        "nothing is appended for it"
    );
}

/// Compression gets a record down, or it does not: then `send` has said so, and a flush has nothing to add.
#[cfg(feature = "gzip")]
#[test]
fn a_record_that_stays_too_large_is_told_once() {
    let house = House::new(1, &unsynced().batch_bytes_max(1000));
    let producer = house.builder().compression(crate::types::Compression::Gzip).linger(HOUR).open().expect("it opens");
    let before = send(&producer, "before");
    let noise: String =
        (0..4000_u32).map(|n| char::from(33 + (n.wrapping_mul(2_654_435_761) >> 24) as u8 % 90)).collect();
    let error = producer.send("orders", Record::new(&noise)).expect_err("it is refused");
    assert!(matches!(error, Error::BatchTooLarge { limit: 1000, .. }), "{error:?}");
    producer.flush().expect("it was told");
    send(&producer, &"v".repeat(4000)).wait().expect("it is small enough");
    before.wait().expect("it is stored");
    assert_eq!(producer.accumulator.memory_used(), 0);
}
