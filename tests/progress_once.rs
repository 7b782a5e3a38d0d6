//! What a transaction has committed of a consumer's progress is not committed once more, and what it has not is.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]

#[path = "support/consumers.rs"]
mod support;

use std::time::Duration;

use support::{Place, arrive, committed};
use taffrail::{Consumer, Offset, TransactionalProducer, Which};

/// Two partitions of five records, of which each poll gives one.
fn place() -> (Place, TransactionalProducer, Consumer) {
    let place = Place::with("orders", 2);
    (0..2).for_each(|number| place.send("orders", number, 5));
    let producer = place.log.transactional_producer("t").open().unwrap();
    let mut consumer = place.member("orders").max_bytes(1).open().unwrap();
    assert_eq!(arrive(&mut consumer).len(), 10);
    seek(&mut consumer, 1);
    (place, producer, consumer)
}

fn seek(consumer: &mut Consumer, offset: u64) {
    (0..2).for_each(|number| consumer.seek("orders", number, Offset(offset)).unwrap());
}

/// Commits in a transaction; how many positions that has stored.
fn transact(place: &Place, producer: &mut TransactionalProducer, consumer: &mut Consumer) -> usize {
    place.clock.advance(Duration::from_secs(1));
    let transaction = producer.begin().unwrap();
    transaction.commit_progress(consumer.progress()).unwrap();
    transaction.commit().unwrap();
    stored_now(place)
}

/// How many positions were stored since the clock has moved.
fn stored_now(place: &Place) -> usize {
    let now = taffrail::Clock::wall(&*place.clock);
    let positions = place.log.describe_group("g").unwrap().positions;
    positions.iter().filter(|one| one.timestamp == now).count()
}

fn stored(consumer: &Consumer) -> [Option<u64>; 2] {
    [0, 1].map(|number| committed(consumer, "orders", number))
}

#[test]
fn what_is_committed_is_not_committed_again() {
    let (place, mut producer, mut consumer) = place();
    assert_eq!(transact(&place, &mut producer, &mut consumer), 2);
    assert_eq!(transact(&place, &mut producer, &mut consumer), 0);
    assert_eq!(consumer.poll(Duration::ZERO).unwrap().records().count(), 1);
    assert_eq!(transact(&place, &mut producer, &mut consumer), 1);
    place.clock.advance(Duration::from_secs(1));
    consumer.commit().unwrap();
    assert_eq!(stored_now(&place), 0);
}

#[test]
fn what_is_aborted_or_forgotten_is_committed_later() {
    let (place, mut producer, mut consumer) = place();
    let transaction = producer.begin().unwrap();
    transaction.commit_progress(consumer.progress()).unwrap();
    transaction.abort().unwrap();
    drop(consumer.progress());
    assert_eq!(transact(&place, &mut producer, &mut consumer), 2);
    seek(&mut consumer, 2);
    let transaction = producer.begin().unwrap();
    transaction.commit_progress(consumer.progress()).unwrap();
    drop(transaction);
    assert_eq!(stored(&consumer), [Some(1); 2]);
    assert_eq!(transact(&place, &mut producer, &mut consumer), 2);
    assert_eq!(stored(&consumer), [Some(2); 2]);
}

/// By the consumer itself, or by a transaction.
#[test]
fn what_was_committed_last_counts() {
    for itself_last in [true, false] {
        let (_place, mut producer, mut consumer) = place();
        let transaction = producer.begin().unwrap();
        transaction.commit_progress(consumer.progress()).unwrap();
        seek(&mut consumer, 4);
        let earlier = if itself_last {
            transaction.commit().unwrap();
            consumer.commit().unwrap();
            1
        } else {
            consumer.commit().unwrap();
            transaction.commit().unwrap();
            4
        };
        // Back to what the group does not have any more.
        seek(&mut consumer, earlier);
        consumer.commit().unwrap();
        assert_eq!(stored(&consumer), [Some(earlier); 2], "{itself_last}");
    }
}

#[test]
fn a_commit_by_hand_behind_it_counts() {
    let (place, mut producer, mut consumer) = place();
    seek(&mut consumer, 4);
    assert_eq!(transact(&place, &mut producer, &mut consumer), 2);
    consumer.commit_offsets((0..2).map(|number| (("orders", number), Offset(3)))).unwrap();
    consumer.commit().unwrap();
    assert_eq!(stored(&consumer), [Some(4); 2], "the consumer is there");
}

#[test]
fn an_aborted_transaction_is_done_again_from_where_the_group_is() {
    let (place, mut producer, mut consumer) = place();
    assert_eq!(transact(&place, &mut producer, &mut consumer), 2);
    let two_polls = |consumer: &mut Consumer| {
        let mut offsets = [0, 1].map(|_| consumer.poll(Duration::ZERO).unwrap().records().next().unwrap().offset().0);
        offsets.sort_unstable();
        offsets
    };
    assert_eq!(two_polls(&mut consumer), [1, 1]);
    let transaction = producer.begin().unwrap();
    transaction.commit_progress(consumer.progress()).unwrap();
    transaction.abort().unwrap();
    consumer.seek_to_committed(Which::All).unwrap();
    assert_eq!(two_polls(&mut consumer), [1, 1]);
    assert_eq!(transact(&place, &mut producer, &mut consumer), 2);
    consumer.seek_to_committed(("orders", 1)).unwrap();
    assert_eq!(consumer.position("orders", 1).unwrap().offset, Offset(2));
    assert_eq!(transact(&place, &mut producer, &mut consumer), 0);
    assert!(consumer.seek_to_committed("elsewhere").is_err());
}

/// Where the group has no position, a partition begins anew.
#[test]
fn without_a_position_it_begins_anew() {
    let (_place, _producer, mut consumer) = place();
    consumer.pause(("orders", 0)).unwrap();
    consumer.seek_to_committed(("orders", 1)).unwrap();
    assert_eq!(consumer.poll(Duration::ZERO).unwrap().records().next().unwrap().offset(), Offset(0));
}
