//! A transaction that has results of what its consumer gave up before a position covered it commits nothing: another
//! consumer reads that, too.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]

#[path = "support/consumers.rs"]
mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use support::{Place, drain};
use taffrail::{
    Consumer, Error, Isolation, Offset, Rebalance, RebalanceListener, Record, Result, TopicPartition, Transaction,
    TransactionalProducer, Which,
};

/// Two partitions of five records, of which each poll gives one, and a topic for the results.
fn place() -> (Place, TransactionalProducer, Consumer) {
    let place = Place::with("orders", 2);
    place.topic("results", 1);
    (0..2).for_each(|number| place.send("orders", number, 5));
    let producer = place.log.transactional_producer("t").open().unwrap();
    let consumer = place.member("orders").max_bytes(1).max_poll_interval(Duration::from_secs(60)).open().unwrap();
    (place, producer, consumer)
}

/// Works on what so many polls give: each record has one result.
fn work(consumer: &mut Consumer, transaction: &Transaction<'_>, polls: usize) -> usize {
    let mut worked = 0;
    for _ in 0..polls {
        let polled = consumer.poll(Duration::ZERO).unwrap();
        for record in &polled {
            let result = format!("{}-{}", polled.partition(), record.offset());
            drop(transaction.send("results", Record::new(&result)).unwrap());
            worked += 1;
        }
    }
    worked
}

/// Reads nothing before it is told to.
struct Pausing;

impl RebalanceListener for Pausing {
    fn assigned(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        partitions.iter().try_for_each(|one| rebalance.pause(&one.topic, one.partition))
    }
}

/// Another comes into the group, and one that polls meanwhile gives it a partition.
fn share(place: &Place, one: &mut Consumer, mut poll: impl FnMut(&mut Consumer)) -> Consumer {
    let mut two = place.member("orders").max_bytes(1).on_rebalance(Pausing).open().unwrap();
    for _ in 0..60 {
        place.clock.advance(Duration::from_millis(500));
        place.log.tick();
        assert!(two.try_poll().unwrap().is_empty());
        poll(one);
    }
    assert_eq!((one.assignment().len(), two.assignment().len()), (1, 1));
    two
}

/// It comes back into the group, and reads what its transaction has results of already.
fn is_refused_once_it_reads_again(place: &Place, one: &mut Consumer, transaction: &Transaction<'_>) {
    let mut again = 0;
    for _ in 0..6 {
        again += work(one, transaction, 1);
        place.clock.advance(Duration::from_millis(500));
        place.log.tick();
    }
    assert!(again > 0);
    let refused = transaction.commit_progress(one.progress());
    assert!(matches!(refused, Err(Error::GivenUp { .. })), "{refused:?}");
}

/// How often there is a result of each record.
fn results(place: &Place) -> BTreeMap<String, usize> {
    let mut reader = place.log.reader().topics(["results"]).isolation(Isolation::Committed).open().unwrap();
    let mut results = BTreeMap::new();
    loop {
        let polled = reader.try_poll().unwrap();
        if polled.is_empty() {
            return results;
        }
        for record in &polled {
            *results.entry(record.value_str().unwrap().to_owned()).or_default() += 1;
        }
    }
}

/// All that is left is worked on, each poll in a transaction of its own.
fn finish(place: &Place, producer: &mut TransactionalProducer, consumers: &mut [&mut Consumer]) {
    for _ in 0..60 {
        place.clock.advance(Duration::from_millis(500));
        place.log.tick();
        for consumer in consumers.iter_mut() {
            consumer.resume(Which::All).unwrap();
            let transaction = producer.begin().unwrap();
            if work(consumer, &transaction, 1) == 0 {
                transaction.abort().unwrap();
                continue;
            }
            transaction.commit_progress(consumer.progress()).unwrap();
            transaction.commit().unwrap();
        }
    }
    let results = results(place);
    assert!(results.len() == 10 && results.values().all(|count| *count == 1), "{results:?}");
}

#[test]
fn a_transaction_over_polls_that_give_back_what_they_have_read_is_refused_once() {
    for then in ["seeks", "goes on", "seeks unasked", "commits itself"] {
        let (place, mut producer, mut one) = place();
        let transaction = producer.begin().unwrap();
        assert_eq!(work(&mut one, &transaction, 2), 2);
        one.pause(Which::All).unwrap();
        // A progress that nobody commits makes no difference.
        drop(one.progress());
        let mut two = share(&place, &mut one, |one| assert_eq!(work(one, &transaction, 1), 0));
        let gone = u32::from(one.assignment()[0].partition == 0);
        if then == "seeks" || then == "goes on" {
            let refused = transaction.commit_progress(one.progress());
            let is_it = matches!(&refused, Err(Error::GivenUp { group, partition })
                if group == "g" && partition.to_string() == format!("orders-{gone}"));
            assert!(is_it, "{refused:?}");
            assert!(matches!(transaction.commit(), Err(Error::TransactionFailed { .. })));
        } else {
            transaction.abort().unwrap();
        }
        if then == "commits itself" {
            one.commit().unwrap();
        }
        if then.starts_with("seeks") {
            one.seek_to_committed(Which::All).unwrap();
            finish(&place, &mut producer, &mut [&mut one, &mut two]);
        } else {
            let transaction = producer.begin().unwrap();
            transaction.commit_progress(one.progress()).unwrap();
            transaction.commit().unwrap();
        }
    }
}

#[test]
fn what_is_lost_is_given_up_too() {
    let (place, mut producer, mut one) = place();
    let transaction = producer.begin().unwrap();
    assert_eq!(work(&mut one, &transaction, 2), 2);
    for _ in 0..140 {
        place.clock.advance(Duration::from_millis(500));
        place.log.tick();
    }
    // It is a member again, and reads from the start.
    is_refused_once_it_reads_again(&place, &mut one, &transaction);
    transaction.abort().unwrap();
    one.seek_to_committed(Which::All).unwrap();
    finish(&place, &mut producer, &mut [&mut one]);
}

/// Another has come with its instance id, and it comes back.
#[test]
fn what_goes_with_the_membership_is_given_up_too() {
    let (place, mut producer, _) = place();
    let member = || place.member("orders").max_bytes(1).instance_id("i").open().unwrap();
    let mut one = member();
    let transaction = producer.begin().unwrap();
    assert_eq!(work(&mut one, &transaction, 2), 2);
    let mut two = member();
    assert!(two.poll(Duration::ZERO).is_ok());
    place.clock.advance(Duration::from_secs(6));
    place.log.tick();
    assert!(matches!(one.poll(Duration::ZERO), Err(Error::FencedInstance { .. })));
    one.subscribe(["orders"]).unwrap();
    is_refused_once_it_reads_again(&place, &mut one, &transaction);
}

/// By a transaction that is open still, or by the consumer itself; or it was sought away from.
#[test]
fn what_is_covered_by_a_position_may_be_given_up() {
    for by in ["a transaction", "the consumer", "a seek"] {
        let (place, mut producer, mut one) = place();
        let transaction = producer.begin().unwrap();
        if by == "a transaction" {
            assert_eq!(work(&mut one, &transaction, 2), 2);
            transaction.commit_progress(one.progress()).unwrap();
        } else {
            (0..2).for_each(|_| assert_eq!(one.poll(Duration::ZERO).unwrap().records().count(), 1));
        }
        if by == "the consumer" {
            one.commit().unwrap();
        } else if by == "a seek" {
            (0..2).for_each(|number| one.seek("orders", number, Offset(0)).unwrap());
        }
        one.pause(Which::All).unwrap();
        let mut two = share(&place, &mut one, |one| assert!(one.try_poll().unwrap().is_empty()));
        transaction.commit_progress(one.progress()).unwrap();
        transaction.commit().unwrap();
        if by == "the consumer" {
            assert_eq!(drain(&mut two).len(), 0, "it is paused");
        } else {
            finish(&place, &mut producer, &mut [&mut one, &mut two]);
        }
    }
}
