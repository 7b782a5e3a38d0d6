//! Which records share a batch, who appends it, and what its deliveries answer.

use std::time::Duration;

use super::{HOUR, House, START, batch_sizes, read, unsynced};
use crate::clock::Moment;
use crate::config::TimestampType;
use crate::node::Timed;
use crate::partition::ReadOptions;
use crate::random::Random;
use crate::record::builder::Record;
use crate::types::{Acks, Compression, Offset, Timestamp};

const MS: Duration = Duration::from_millis(1);

#[test]
fn who_waits_appends_the_batch_and_needs_no_tick() {
    let house = House::new(1, &crate::config::PartitionConfig::new());
    let producer = house.lingering();
    let first = producer.send("orders", Record::new("a")).expect("it is sent");
    let second = producer.send("orders", Record::new("b")).expect("it is sent");
    assert!(first.try_wait().is_none() && house.counts() == [0], "asking appends nothing");
    let stored = second.wait().expect("it is stored");
    assert_eq!((stored.partition, stored.offset, stored.timestamp), (0, Offset(1), START));
    assert_eq!(house.partition(0).synced_end(), Offset(2), "it is synced, as the topic promises");
    assert_eq!(first.try_wait().expect("its batch is stored").expect("well").offset, Offset(0));
    assert_eq!(house.values(0), ["a", "b"]);
}

#[test]
fn what_is_only_written_is_stored_for_acks_of_the_leader_alone() {
    let house = House::new(1, &crate::config::PartitionConfig::new());
    for acks in [Acks::Leader, Acks::None, Acks::All] {
        let producer = house.builder().acks(acks).open().expect("it opens");
        let delivery = producer.send("orders", Record::new("a")).expect("it is sent");
        house.node.tick();
        assert_eq!(delivery.try_wait().is_some(), acks != Acks::All, "{acks:?}");
        let synced = house.partition(0).synced_end();
        delivery.wait().expect("it is stored");
        assert_eq!(house.partition(0).synced_end() > synced, acks == Acks::All, "{acks:?}");
    }
}

#[test]
fn without_linger_the_next_tick_appends() {
    let house = House::unsynced(2);
    let producer = house.producer();
    let deliveries = [0, 1, 1].map(|number| producer.send("orders", Record::new("a").partition(number)));
    assert_eq!(house.counts(), [0, 0]);
    house.node.tick();
    assert_eq!(house.counts(), [1, 2]);
    assert!(deliveries.iter().flatten().all(|delivery| matches!(delivery.try_wait(), Some(Ok(_)))));
}

#[test]
fn a_lingering_batch_is_appended_when_it_is_due() {
    let house = House::unsynced(2);
    let producer = house.builder().linger(5 * MS).open().expect("it opens");
    let send = |number| producer.send("orders", Record::new("a").partition(number)).expect("it is sent");
    send(0);
    house.clock.advance(3 * MS);
    send(0);
    send(1);
    house.clock.advance(MS);
    house.node.tick();
    assert_eq!(house.counts(), [0, 0]);
    house.clock.advance(MS);
    house.node.tick();
    assert_eq!(house.counts(), [2, 0], "five after its first record, and it alone");
    house.clock.advance(3 * MS);
    house.node.tick();
    assert_eq!(house.counts(), [2, 1]);
}

/// Whoever drives the node is woken where something is due earlier than it knows, and not for every record.
#[test]
fn the_node_is_told_when_to_come() {
    let house = House::unsynced(2);
    let producer = house.builder().linger(5 * MS).open().expect("it opens");
    let accumulator = &producer.accumulator;
    let lane = |number| {
        let route = producer.routes.route("orders").expect("it is there");
        std::sync::Arc::clone(route.lane(number).expect("it is there"))
    };
    assert_eq!(accumulator.due(), None);
    let (first, is_earlier) = accumulator.enter(&lane(0)).expect("it is open");
    assert!(is_earlier);
    house.clock.advance(MS);
    let (second, is_earlier) = accumulator.enter(&lane(1)).expect("it is open");
    assert!(!is_earlier && accumulator.due() == Some(Moment(5_000_000)));
    accumulator.leave(first);
    assert_eq!(accumulator.due(), Some(Moment(5_000_000)), "it comes too early then, never too late");
    accumulator.run(house.node.clock().now());
    assert_eq!(accumulator.due(), Some(Moment(6_000_000)));
    accumulator.leave(second);
    accumulator.run(house.node.clock().now());
    assert_eq!(accumulator.due(), None);
}

#[test]
fn who_fills_a_batch_appends_it() {
    let house = House::unsynced(1);
    let producer = house.builder().batch_bytes(400).linger(HOUR).open().expect("it opens");
    let value = "v".repeat(100);
    let deliveries: Vec<_> =
        (0..10).map(|_| producer.send("orders", Record::new(&value)).expect("it is sent")).collect();
    assert_eq!(house.counts(), [9], "three to a batch; the tenth is in an open one");
    assert_eq!(batch_sizes(house.partition(0)), [3, 3, 3]);
    assert!(deliveries.iter().enumerate().all(|(index, delivery)| delivery.try_wait().is_some() == (index < 9)));
}

#[test]
fn a_batch_is_filled_to_its_last_byte_and_not_beyond() {
    let value = "v".repeat(100);
    let three = {
        let mut builder = crate::record::builder::BatchBuilder::new();
        (0..3).for_each(|_| builder.push(&Record::new(&value)).expect("it has room"));
        builder.size_bytes()
    };
    for (bytes, sizes) in [(three - 1, vec![2, 2, 2]), (three, vec![3, 3]), (three + 1, vec![3, 3])] {
        let house = House::unsynced(1);
        let producer = house.builder().batch_bytes(bytes).linger(HOUR).open().expect("it opens");
        (0..6).for_each(|_| drop(producer.send("orders", Record::new(&value)).expect("it is sent")));
        if bytes == three {
            assert_eq!(house.counts(), [6], "a full batch waits for no further record");
        }
        producer.flush().expect("it is stored");
        assert_eq!(batch_sizes(house.partition(0)), sizes, "{bytes}");
    }
}

#[test]
fn a_record_larger_than_a_batch_gets_one_of_its_own_in_its_turn() {
    let house = House::unsynced(1);
    let producer = house.builder().batch_bytes(200).linger(HOUR).open().expect("it opens");
    let large = "L".repeat(1000);
    for value in ["a", "b", large.as_str(), "c"] {
        producer.send("orders", Record::new(value)).expect("it is sent");
    }
    assert_eq!(batch_sizes(house.partition(0)), [2, 1]);
    producer.flush().expect("it is stored");
    assert_eq!(house.values(0), ["a", "b", &large, "c"]);
    assert_eq!(producer.accumulator.memory_used(), 0);
}

/// Every delivery answers the place at which its record is read.
#[test]
fn deliveries_answer_where_their_records_are() {
    let house = House::unsynced(4);
    let producer = house.builder().batch_bytes(1000).linger(3 * MS).open().expect("it opens");
    let mut random = Random::seeded(11);
    let mut sent = Vec::new();
    for count in 0..2000 {
        let size = usize::try_from(random.below(400)).expect("it is small");
        let value = format!("{count} {}", "v".repeat(size));
        let key = format!("key {}", random.below(20));
        let record = Record::new(&value).key(&key);
        sent.push((key.clone(), value.clone(), producer.send("orders", record).expect("it is sent")));
        if random.one_in(10) {
            house.clock.advance(MS);
            house.node.tick();
        }
    }
    producer.flush().expect("it is stored");
    let partitions: Vec<_> = (0..4).map(|number| house.records(number)).collect();
    assert_eq!(partitions.iter().map(Vec::len).sum::<usize>(), 2000);
    for (key, value, delivery) in sent {
        let stored = delivery.try_wait().expect("everything was flushed").expect("it is stored");
        let at = usize::try_from(stored.offset.0).expect("it is small");
        assert_eq!(partitions[stored.partition as usize][at], (key, value));
    }
}

#[test]
fn a_record_has_its_own_time_or_that_of_its_send() {
    let house = House::unsynced(1);
    let producer = house.lingering();
    let mut deliveries = Vec::new();
    for own in [None, Some(Timestamp(5)), None] {
        let record = Record::new("a");
        let record = own.map_or(record.clone(), |own| record.timestamp(own));
        deliveries.push(producer.send("orders", &record).expect("it is sent"));
        house.clock.advance(MS);
    }
    producer.flush().expect("it is stored");
    let expected = [START, Timestamp(5), Timestamp(START.0 + 2)];
    let answered: Vec<_> = deliveries.into_iter().map(|delivery| delivery.wait().expect("stored").timestamp).collect();
    assert_eq!(answered, expected);
    let fetched = house.partition(0).try_read(Offset::ZERO, ReadOptions::default()).expect("it reads");
    assert!(fetched.iter().map(|record| record.timestamp()).eq(expected.map(Some)));
}

#[test]
fn where_the_topic_stamps_its_time_is_answered() {
    let house = House::new(1, &unsynced().timestamp_type(TimestampType::LogAppendTime));
    let producer = house.lingering();
    let delivery = producer.send("orders", Record::new("a").timestamp(Timestamp(5))).expect("it is sent");
    house.clock.advance(HOUR);
    assert_eq!(delivery.wait().expect("it is stored").timestamp, Timestamp(START.0 + 3_600_000));
}

#[cfg(feature = "lz4")]
#[test]
fn batches_are_compressed_where_that_is_asked_for_and_fit_for_all_that() {
    let mut random = Random::seeded(5);
    let noise: Vec<u8> = (0..900).map(|_| u8::try_from(random.below(256)).expect("it is a byte")).collect();
    let size = Record::new(&noise).batch_size_bytes();
    let limit = u32::try_from(size).expect("it is small");
    let house = House::new(1, &unsynced().batch_bytes_max(limit));
    let producer = house.builder().compression(Compression::Lz4).open().expect("it opens");
    let text = "v".repeat(5000);
    producer.send("orders", Record::new(&text)).expect("compressed it fits").wait().expect("it is stored");
    producer.send("orders", Record::new(&noise)).expect("uncompressed it fits").wait().expect("it is stored");
    let fetched = house.partition(0).try_read(Offset::ZERO, ReadOptions::default()).expect("it reads");
    let codecs: Vec<_> = fetched.batches().iter().map(|batch| batch.header().compression()).collect();
    assert_eq!(codecs, [Compression::Lz4, Compression::None]);
    assert_eq!(read(house.partition(0))[0].1, text);
    let more = [noise.as_slice(), b"!"].concat();
    let refused = producer.send("orders", Record::new(&more));
    assert!(matches!(refused, Err(crate::error::Error::BatchTooLarge { .. })), "{refused:?}");
}

#[test]
fn records_without_a_key_stay_together_and_spread_in_the_end() {
    let house = House::unsynced(8);
    let producer = house.builder().batch_bytes(1000).linger(HOUR).open().expect("it opens");
    // Eight of them fill a batch, nine make more than its bytes.
    let value = "v".repeat(110);
    let mut runs: Vec<(u32, usize)> = Vec::new();
    for _ in 0..4000 {
        let partition = producer.send("orders", Record::new(&value)).expect("it is sent").partition();
        match runs.last_mut() {
            Some((last, length)) if *last == partition => *length += 1,
            _ => runs.push((partition, 1)),
        }
    }
    producer.flush().expect("it is stored");
    runs.pop();
    assert!(runs.iter().all(|(_, length)| *length >= 9), "none is left before a batch's bytes went there: {runs:?}");
    let longer = runs.iter().filter(|(_, length)| *length > 18).count();
    assert!(longer * 4 < runs.len(), "twice as many at most, but for those that were drawn again: {runs:?}");
    assert!(house.counts().iter().all(|count| (250..800).contains(count)), "{:?}", house.counts());
}
