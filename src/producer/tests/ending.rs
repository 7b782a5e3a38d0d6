//! What becomes of records when the producer or the log ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{House, unsynced};
use crate::config::PartitionConfig;
use crate::error::Error;
use crate::node::Timed as _;
use crate::record::builder::Record;
use crate::storage::{Fault, OperationKind};

#[test]
fn a_dropped_producer_has_appended_what_was_open() {
    let house = House::new(2, &PartitionConfig::new());
    let producer = house.lingering();
    let deliveries = [0, 1].map(|number| producer.send("orders", Record::new("a").partition(number)).expect("sent"));
    let shared = Arc::downgrade(&producer.accumulator);
    drop(producer);
    assert_eq!(house.counts(), [1, 1]);
    assert_eq!(house.partition(0).synced_end().0, 0, "it waits for no sync");
    for delivery in deliveries {
        assert!(delivery.try_wait().is_none(), "it is not synced yet");
        delivery.wait().expect("it is stored");
    }
    assert!(shared.upgrade().is_none(), "nothing of it is left");
}

#[test]
fn a_dropped_delivery_changes_nothing() {
    let house = House::unsynced(1);
    let producer = house.lingering();
    drop(producer.send("orders", Record::new("a")).expect("it is sent"));
    drop(producer);
    assert_eq!(house.values(0), ["a"]);
}

#[test]
fn close_waits_until_everything_is_stored() {
    let house = House::new(3, &PartitionConfig::new());
    let producer = house.lingering();
    for number in 0..3 {
        producer.send("orders", Record::new("a").partition(number)).expect("it is sent");
    }
    producer.close().expect("everything is stored");
    assert!((0..3).all(|number| house.partition(number).synced_end().0 == 1));
}

#[test]
fn close_tells_what_failed() {
    let house = House::unsynced(1);
    let producer = house.lingering();
    producer.send("orders", Record::new("a")).expect("it is sent");
    house.storage.fail_when(|operation| (operation.kind == OperationKind::Write).then_some(Fault::NoSpace));
    assert!(matches!(producer.close(), Err(Error::Io { .. })));
}

#[test]
fn a_log_that_closes_takes_what_was_sent_and_nothing_more() {
    let house = House::new(1, &PartitionConfig::new());
    let producer = house.lingering();
    let delivery = producer.send("orders", Record::new("a")).expect("it is sent");
    crate::node::Timed::close(&*producer.accumulator);
    assert_eq!(house.counts(), [1]);
    for refused in [producer.send("orders", Record::new("b")), producer.try_send("orders", Record::new("c"))] {
        assert!(matches!(refused, Err(Error::Closed)));
    }
    house.partition(0).clone().close().expect("it closes");
    delivery.wait().expect("the close of the partition has stored it");
    producer.flush().expect("so it has everything");
    assert_eq!(producer.accumulator.due(), None);
}

#[test]
fn where_the_partition_was_closed_first_deliveries_answer_so() {
    let house = House::new(1, &unsynced());
    let producer = house.lingering();
    let delivery = producer.send("orders", Record::new("a")).expect("it is sent");
    house.partition(0).clone().close().expect("it closes");
    drop(producer);
    assert!(matches!(delivery.try_wait(), Some(Err(Error::Closed))));
    assert!(matches!(delivery.wait(), Err(Error::Closed)));
}

/// Sends go on while the log closes: each is refused, or its delivery ends.
#[test]
fn no_delivery_is_left_open_by_a_close_at_any_moment() {
    for round in 0..200 {
        let house = House::unsynced(2);
        let producer = house.lingering();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut deliveries = Vec::new();
                while let Ok(delivery) = producer.send("orders", Record::new("a")) {
                    deliveries.push(delivery);
                }
                deliveries
            });
            (0..round * 50).for_each(|_| std::hint::spin_loop());
            crate::node::Timed::close(&*producer.accumulator);
            let deliveries = sender.join().expect("it does not panic");
            assert!(deliveries.iter().all(|delivery| matches!(delivery.try_wait(), Some(Ok(_)))));
        });
    }
}

/// A batch that another thread is appending is taken out of its lane, and not in the log yet: a close that passed it over
/// would fence the partition before it.
#[test]
fn a_close_waits_for_what_another_thread_appends() {
    let house = House::unsynced(1);
    let producer = house.lingering();
    let delivery = producer.send("orders", Record::new("a")).expect("it is sent");
    let is_reached = Arc::new(AtomicBool::new(false));
    let rule_is_reached = Arc::clone(&is_reached);
    house.storage.fail_when(move |operation| {
        if operation.kind == OperationKind::Write {
            rule_is_reached.store(true, Ordering::Release);
            (0..2000).for_each(|_| std::thread::yield_now());
        }
        None
    });
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| delivery.wait());
        while !is_reached.load(Ordering::Acquire) && !appending.is_finished() {
            std::thread::yield_now();
        }
        producer.accumulator.close();
        assert_eq!(house.counts(), [1]);
        assert!(appending.join().expect("it does not panic").is_ok());
    });
}

/// What the close of a partition has stored is stored, also for who waits or syncs at that moment.
#[test]
fn who_waits_while_the_partition_closes_is_told_what_became_of_the_record() {
    for round in 0..400 {
        let house = House::new(1, &PartitionConfig::new());
        let producer = house.lingering();
        let send = |value| producer.send("orders", Record::new(value)).expect("it is sent");
        let (waited, asked) = (send("a"), send("b"));
        drop(producer);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| waited.wait());
            (0..round * 20).for_each(|_| std::hint::spin_loop());
            house.partition(0).clone().close().expect("it closes");
            let stored = thread.join().expect("it does not panic");
            assert!(stored.is_ok(), "round {round}: {stored:?}");
        });
        assert!(matches!(asked.try_wait(), Some(Ok(_))), "round {round}");
    }
}
