//! What a transaction has committed of a consumer's progress.

use std::sync::Arc;
use std::time::Duration;

use super::append;
use super::group::Place;
use crate::consumer::{Consumer, Which};
use crate::group::Progress;
use crate::producer::{TransactionalProducer, TransactionalProducerBuilder};
use crate::types::Offset;

fn producer(place: &Place) -> TransactionalProducer {
    TransactionalProducerBuilder::new(Arc::clone(&place.node), "x".to_owned()).open().expect("opened")
}

fn moved(progress: &Progress) -> Vec<(u32, u64)> {
    progress.positions.iter().map(|(name, position)| (name.partition, position.offset.0)).collect()
}

/// One poll of each partition.
fn two_polls(consumer: &mut Consumer) {
    for _ in 0..2 {
        assert!(!consumer.poll(Duration::ZERO).expect("readable").is_empty());
    }
}

fn commit(producer: &mut TransactionalProducer, progress: Progress) {
    let transaction = producer.begin().expect("begun");
    transaction.commit_progress(progress).expect("taken");
    transaction.commit().expect("committed");
}

fn place() -> (Place, TransactionalProducer, Consumer) {
    let place = Place::new();
    for number in 0..2 {
        // A poll hands out a batch.
        append(place.node.topic("t").expect("made").partition(number).expect("made"), 10);
        append(place.node.topic("t").expect("made").partition(number).expect("made"), 10);
    }
    let producer = producer(&place);
    let mut consumer = place.consumer().max_bytes(1).open().expect("opened");
    two_polls(&mut consumer);
    (place, producer, consumer)
}

#[test]
fn what_is_committed_is_not_committed_again() {
    let (_place, mut producer, mut consumer) = place();
    let progress = consumer.progress();
    assert_eq!(moved(&progress).len(), 2);
    commit(&mut producer, progress);
    assert_eq!(moved(&consumer.progress()), []);
    let polled = consumer.poll(Duration::ZERO).expect("readable");
    let one = polled.partition();
    let next = polled.records().last().expect("not empty").offset().0 + 1;
    drop(polled);
    // Neither is what was handed on last, as long as nothing has become of it.
    assert_eq!(moved(&consumer.progress()), [(one, next)]);
    assert_eq!(moved(&consumer.progress()), [(one, next)]);
}

#[test]
fn what_is_aborted_or_refused_is_committed_later() {
    let (_place, mut producer, mut consumer) = place();
    let before = moved(&consumer.progress());
    let transaction = producer.begin().expect("begun");
    transaction.commit_progress(consumer.progress()).expect("taken");
    transaction.abort().expect("aborted");
    assert_eq!(moved(&consumer.progress()), before);
    let transaction = producer.begin().expect("begun");
    transaction.commit_progress(consumer.progress()).expect("taken");
    drop(transaction);
    assert_eq!(moved(&consumer.progress()), before);
    // It is not even handed on.
    drop(consumer.progress());
    assert_eq!(moved(&consumer.progress()), before);
}

/// What the group has is what was committed last, by the consumer itself or by a transaction.
#[test]
fn what_was_committed_last_counts() {
    for itself_last in [true, false] {
        let (place, mut producer, mut consumer) = place();
        let transaction = producer.begin().expect("begun");
        let progress = consumer.progress();
        let handed = moved(&progress);
        transaction.commit_progress(progress).expect("taken");
        let seek = |consumer: &mut Consumer, to: &[(u32, u64)]| {
            to.iter().for_each(|(number, offset)| consumer.seek("t", *number, Offset(*offset)).expect("assigned"));
        };
        let sevens = [(0, 7), (1, 7)];
        seek(&mut consumer, &sevens);
        let last = if itself_last {
            transaction.commit().expect("committed");
            consumer.commit().expect("stored");
            &handed[..]
        } else {
            consumer.commit().expect("stored");
            transaction.commit().expect("committed");
            &sevens
        };
        // Where it was the time before is not what the group has.
        seek(&mut consumer, last);
        consumer.commit().expect("stored");
        let stored = place.node.positions_of("g").expect("known");
        let stored: Vec<_> = stored.into_iter().map(|(name, offset)| (name.partition, offset.0)).collect();
        assert_eq!(stored, last, "{itself_last}");
    }
}

#[test]
fn an_aborted_transaction_is_begun_again_from_where_the_group_is() {
    let (place, mut producer, mut consumer) = place();
    commit(&mut producer, consumer.progress());
    let before = place.node.positions_of("g").expect("known");
    two_polls(&mut consumer);
    let transaction = producer.begin().expect("begun");
    transaction.commit_progress(consumer.progress()).expect("taken");
    transaction.abort().expect("aborted");
    consumer.seek_to_committed(Which::All).expect("assigned");
    for (name, offset) in before {
        assert_eq!(consumer.position("t", name.partition).expect("known").offset, offset);
    }
    assert_eq!(moved(&consumer.progress()), []);
    two_polls(&mut consumer);
    assert_eq!(moved(&consumer.progress()).len(), 2);
    assert!(consumer.seek_to_committed("elsewhere").is_err());
}

/// Where the group has no position, a partition begins anew.
#[test]
fn without_a_position_it_begins_anew() {
    let (_place, _producer, mut consumer) = place();
    consumer.pause(("t", 0)).expect("assigned");
    consumer.seek_to_committed(("t", 1)).expect("assigned");
    let polled = consumer.poll(Duration::ZERO).expect("readable");
    assert_eq!(polled.records().next().map(|record| record.offset()), Some(Offset(0)));
    drop(polled);
    consumer.seek_to_committed(("t", 1)).expect("assigned");
    assert_eq!(consumer.position("t", 1).expect("known").offset, Offset(0));
    assert_ne!(consumer.position("t", 0).expect("known").offset, Offset(0));
}
