//! How far a consumer has read counts with the transaction that it is committed in, or not at all.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]

#[path = "support/consumers.rs"]
mod support;

use std::time::Duration;

use support::{Place, arrive, committed, drain};
use taffrail::{Consumer, Error, Offset, Record, ResetTo, TransactionalProducer};

fn place() -> Place {
    let place = Place::with("orders", 1);
    place.topic("invoices", 1);
    place.send("orders", 0, 5);
    place
}

/// What readers of committed records see, once the markers are synced.
fn results(place: &Place) -> usize {
    place.clock.advance(Duration::from_millis(10));
    place.log.tick();
    let mut reader = place.log.reader().topics(["invoices"]).open().unwrap();
    let mut count = 0;
    loop {
        let polled = reader.try_poll().unwrap();
        if polled.is_empty() {
            return count;
        }
        count += polled.records().count();
    }
}

/// One result, and the progress of a consumer.
fn transact(output: &mut TransactionalProducer, input: &mut Consumer, commits: bool) -> taffrail::Result<()> {
    let transaction = output.begin()?;
    transaction.send("invoices", Record::new("result"))?;
    transaction.commit_progress(input.progress())?;
    if commits { transaction.commit() } else { transaction.abort() }
}

#[test]
fn results_and_progress_are_one_step() {
    let place = place();
    let mut input = place.member("orders").open().unwrap();
    let mut output = place.log.transactional_producer("t").open().unwrap();
    assert_eq!(arrive(&mut input).len(), 5);
    transact(&mut output, &mut input, false).unwrap();
    assert_eq!((results(&place), committed(&input, "orders", 0)), (0, None));
    transact(&mut output, &mut input, true).unwrap();
    assert_eq!((results(&place), committed(&input, "orders", 0)), (1, Some(5)));
    // It is there after a crash, both of it.
    place.send("orders", 0, 1);
    assert_eq!(drain(&mut input).len(), 1);
    transact(&mut output, &mut input, true).unwrap();
    let place = Place::at(place.storage.crash(1));
    let mut next = place.member("orders").open().unwrap();
    assert_eq!((results(&place), arrive(&mut next).len(), committed(&next, "orders", 0)), (2, 0, Some(6)));
}

/// Dropped, a transaction takes its positions back; until it has ended nobody reads on from the ones before.
#[test]
fn whoever_takes_over_waits_for_the_transaction() {
    let place = place();
    let mut input = place.member("orders").open().unwrap();
    let mut output = place.log.transactional_producer("t").open().unwrap();
    arrive(&mut input);
    for is_committed in [false, true] {
        let transaction = output.begin().unwrap();
        transaction.commit_progress(input.progress()).unwrap();
        drop(input);
        let mut other = place.member("orders").open().unwrap();
        assert_eq!(arrive(&mut other).len(), 0, "it is not known yet where it begins");
        assert_eq!(place.pass(&mut [&mut other], 3)[0].len(), 0);
        if is_committed {
            transaction.commit().unwrap();
        } else {
            drop(transaction);
        }
        let seen = place.pass(&mut [&mut other], 3);
        assert_eq!(seen[0].len(), if is_committed { 0 } else { 5 });
        input = other;
    }
}

#[test]
fn a_consumer_that_was_replaced_commits_nothing() {
    let place = place();
    let mut old = place.member("orders").max_poll_interval(Duration::from_secs(10)).open().unwrap();
    let mut output = place.log.transactional_producer("t").open().unwrap();
    arrive(&mut old);
    let mut new = place.member("orders").open().unwrap();
    arrive(&mut new);
    assert_eq!(place.pass(&mut [&mut new], 30)[0].len(), 5, "the old one is out");
    let refused = transact(&mut output, &mut old, true);
    assert!(matches!(refused, Err(Error::UnknownMember { .. } | Error::FencedMember { .. })), "{refused:?}");
    assert_eq!((results(&place), committed(&new, "orders", 0)), (0, None));
    transact(&mut output, &mut new, true).unwrap();
    assert_eq!((results(&place), committed(&new, "orders", 0)), (1, Some(5)));
}

#[test]
fn after_a_refusal_only_an_abort_is_left() {
    let place = place();
    let mut input = place.member("orders").auto_commit(Duration::from_secs(5)).open().unwrap();
    let mut output = place.log.transactional_producer("t").open().unwrap();
    arrive(&mut input);
    let transaction = output.begin().unwrap();
    let refused = transaction.commit_progress(input.progress());
    assert!(matches!(refused, Err(Error::InvalidConfig { setting: "auto_commit", .. })), "{refused:?}");
    let sent = transaction.send("invoices", Record::new("result"));
    assert!(matches!(sent, Err(Error::TransactionFailed { .. })), "{sent:?}");
    let committed = transaction.commit();
    assert!(matches!(committed, Err(Error::TransactionFailed { .. })), "{committed:?}");
    assert_eq!(results(&place), 0);
    // The next one is a new one; without anything to commit it is none.
    let transaction = output.begin().unwrap();
    transaction.send("invoices", Record::new("result")).unwrap();
    transaction.commit().unwrap();
    assert_eq!(results(&place), 1);
}

/// An instance that was fenced changes no position, and one whose time is up neither.
#[test]
fn a_fenced_producer_changes_no_position() {
    let place = place();
    let mut input = place.member("orders").open().unwrap();
    let mut output = place.log.transactional_producer("t").open().unwrap();
    arrive(&mut input);
    let transaction = output.begin().unwrap();
    transaction.commit_progress(input.progress()).unwrap();
    let mut later = place.log.transactional_producer("t").open().unwrap();
    let late = transaction.commit_progress(input.progress());
    assert!(late.is_err(), "{late:?}");
    assert!(transaction.commit().is_err());
    assert_eq!(committed(&input, "orders", 0), None);
    transact(&mut later, &mut input, true).unwrap();
    assert_eq!(committed(&input, "orders", 0), Some(5));
    let transaction = later.begin().unwrap();
    place.send("orders", 0, 1);
    drain(&mut input);
    transaction.commit_progress(input.progress()).unwrap();
    for _ in 0..70 {
        place.clock.advance(Duration::from_secs(1));
        place.log.tick();
        drain(&mut input);
    }
    let timed_out = transaction.commit();
    assert!(matches!(timed_out, Err(Error::TransactionTimedOut { .. })), "{timed_out:?}");
    place.log.tick();
    assert_eq!(committed(&input, "orders", 0), Some(5));
}

/// What was read of a topic says nothing of another one that has its name, here or in another log.
#[test]
fn progress_of_another_topic_is_refused() {
    let place = place();
    // Topics that are made in another order have other ids.
    let elsewhere = Place::with("first", 1);
    for name in ["orders", "invoices"] {
        elsewhere.topic(name, 1);
    }
    let mut input = place.log.consumer("h").assign([("orders", 0)]).open().unwrap();
    let mut output = place.log.transactional_producer("t").open().unwrap();
    assert_eq!(drain(&mut input).len(), 5);
    let mut other = elsewhere.log.transactional_producer("t").open().unwrap();
    let refused = transact(&mut other, &mut input, true);
    assert!(matches!(refused, Err(Error::UnknownTopic { .. })), "{refused:?}");
    let progress = input.progress();
    place.log.delete_topic("orders").unwrap();
    place.topic("orders", 1);
    let transaction = output.begin().unwrap();
    let refused = transaction.commit_progress(progress);
    assert!(matches!(refused, Err(Error::UnknownTopic { .. })), "{refused:?}");
    transaction.abort().unwrap();
    assert!(place.log.describe_group("h").is_err(), "nothing was committed");
}

/// A consumer of partitions that were assigned by hand commits for a group without members.
#[test]
fn progress_goes_with_assigned_partitions_too() {
    let place = place();
    let mut input = place.log.consumer("h").assign([("orders", 0)]).open().unwrap();
    let mut output = place.log.transactional_producer("t").open().unwrap();
    assert_eq!(drain(&mut input).len(), 5);
    transact(&mut output, &mut input, true).unwrap();
    assert_eq!(committed(&input, "orders", 0), Some(5));
    place.log.reset_group("h", "orders", ResetTo::Offset(Offset(2))).unwrap();
    let mut input = place.log.consumer("h").assign([("orders", 0)]).open().unwrap();
    assert_eq!(drain(&mut input).len(), 3);
}
