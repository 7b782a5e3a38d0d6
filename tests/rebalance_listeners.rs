//! What a consumer's listener is told, in which order, and what it can do meanwhile; and what stays as it is.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]

#[path = "support/consumers.rs"]
mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::{Place, Told, arrive, committed, drain, names};
use taffrail::{Consumer, Error, Offset, Rebalance, RebalanceListener, Result, TopicPartition};

/// Two consumers of two partitions, each with one of them, and the first with a listener.
fn two(place: &Place, told: &Told) -> (Consumer, Consumer) {
    let mut one = place.member("orders").on_rebalance(told.clone()).open().unwrap();
    arrive(&mut one);
    let mut two = place.member("orders").open().unwrap();
    arrive(&mut two);
    (one, two)
}

#[test]
fn what_comes_is_assigned_and_what_goes_was_revoked() {
    let place = Place::with("orders", 2);
    let told = Told::default();
    let (mut one, mut two) = two(&place, &told);
    assert_eq!(told.take(), ["assigned orders-0 orders-1"]);
    place.pass(&mut [&mut one, &mut two], 15);
    let moved = names(&two);
    assert_eq!(told.take(), [format!("revoked {}", moved[0])], "what stays is not named");
    two.close().unwrap();
    place.pass(&mut [&mut one], 10);
    assert_eq!(told.take(), [format!("assigned {}", moved[0])]);
    // What is given back by the close is told too; a drop tells nothing.
    one.close().unwrap();
    assert_eq!(told.take(), ["revoked orders-0 orders-1"]);
    let mut dropped = place.member("orders").on_rebalance(told.clone()).open().unwrap();
    arrive(&mut dropped);
    drop(dropped);
    assert_eq!(told.take(), ["assigned orders-0 orders-1"]);
}

/// What is to be given back can be committed before: whoever gets it begins behind it.
#[test]
fn a_listener_commits_what_is_revoked() {
    for commits in [false, true] {
        let place = Place::with("orders", 2);
        let (mut one, mut two) = two(&place, &Told { commits, ..Told::default() });
        (0..2).for_each(|number| place.send("orders", number, 3));
        place.log.tick();
        assert_eq!(drain(&mut one).len(), 6);
        let seen = place.pass(&mut [&mut one, &mut two], 15);
        assert_eq!((names(&two).len(), seen[1].len()), (1, if commits { 0 } else { 3 }));
    }
}

#[test]
fn automatic_commits_come_before_the_revocation() {
    let place = Place::with("orders", 2);
    let told = Told::default();
    let builder = place.member("orders").auto_commit(Duration::from_secs(3600)).on_rebalance(told.clone());
    let mut one = builder.open().unwrap();
    arrive(&mut one);
    (0..2).for_each(|number| place.send("orders", number, 3));
    assert_eq!(drain(&mut one).len(), 6);
    let mut two = place.member("orders").open().unwrap();
    arrive(&mut two);
    let seen = place.pass(&mut [&mut one, &mut two], 15);
    assert_eq!((names(&two).len(), seen[1].len()), (1, 0));
}

/// What is given back by a poll moves the member's epoch, and the answer is on its way: what stays is committed all the same.
#[test]
fn a_commit_goes_on_with_the_epoch_that_its_member_is_led_to() {
    for waits in [true, false] {
        let place = Place::with("orders", 2);
        let told = Told::default();
        let (mut one, mut two) = two(&place, &told);
        (0..2).for_each(|number| place.send("orders", number, 3));
        assert_eq!(drain(&mut one).len(), 6);
        told.take();
        while told.news.lock().unwrap().is_empty() {
            place.clock.advance(Duration::from_millis(500));
            place.log.tick();
            one.try_poll().unwrap();
        }
        let outcome: Arc<Mutex<Option<Result<()>>>> = Arc::default();
        if waits {
            one.commit().unwrap();
        } else {
            let telling = Arc::clone(&outcome);
            one.commit_async(move |answer| *telling.lock().unwrap() = Some(answer));
            place.pass(&mut [&mut one], 3);
            assert!(matches!(*outcome.lock().unwrap(), Some(Ok(()))), "{outcome:?}");
        }
        let kept = one.assignment()[0].partition;
        assert_eq!(committed(&one, "orders", kept), Some(3));
        let seen = place.pass(&mut [&mut one, &mut two], 15);
        assert_eq!((names(&two).len(), seen[1].len()), (1, 3), "the other one was not");
    }
}

/// Sends a partition that is assigned back to its first record, and looks where things are meanwhile.
struct Seeking;

impl RebalanceListener for Seeking {
    fn assigned(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        for TopicPartition { topic, partition } in partitions {
            assert_eq!(rebalance.position(topic, *partition)?.offset, Offset(3), "the group's position");
            rebalance.seek(topic, *partition, Offset(1))?;
        }
        rebalance.pause("orders", 1)
    }

    fn revoked(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        let TopicPartition { topic, partition } = &partitions[0];
        rebalance.commit_offsets([((topic.as_str(), *partition), Offset(2))])
    }
}

#[test]
fn a_listener_seeks_pauses_and_commits_what_it_likes() {
    let place = Place::with("orders", 2);
    (0..2).for_each(|number| place.send("orders", number, 3));
    let mut first = place.member("orders").open().unwrap();
    arrive(&mut first);
    first.commit().unwrap();
    first.close().unwrap();
    let mut consumer = place.member("orders").on_rebalance(Seeking).open().unwrap();
    assert_eq!(arrive(&mut consumer), [("orders-0".to_owned(), 1), ("orders-0".to_owned(), 2)]);
    consumer.resume("orders").unwrap();
    assert_eq!(drain(&mut consumer), [("orders-1".to_owned(), 1), ("orders-1".to_owned(), 2)]);
    consumer.close().unwrap();
    let other = place.member("orders").open().unwrap();
    assert_eq!((committed(&other, "orders", 0), committed(&other, "orders", 1)), (Some(2), Some(3)));
}

/// Fails whenever it is told something.
struct Failing;

impl RebalanceListener for Failing {
    fn assigned(&mut self, _: &mut Rebalance<'_>, _: &[TopicPartition]) -> Result<()> {
        Err(Error::Policy("it fails"))
    }
}

#[test]
fn an_error_of_a_listener_is_answered_and_holds_up_nothing() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 2);
    let mut consumer = place.member("orders").on_rebalance(Failing).open().unwrap();
    assert!(matches!(consumer.poll(Duration::ZERO), Err(Error::Policy(_))));
    assert_eq!((names(&consumer).len(), consumer.failed()), (1, None));
    assert_eq!(arrive(&mut consumer).len(), 2);
}

/// Positions, seeks and pauses of what stays assigned outlast a rebalance; what comes again comes anew.
#[test]
fn what_stays_is_left_as_it_is() {
    let place = Place::with("orders", 4);
    (0..4).for_each(|number| place.send("orders", number, 4));
    let mut one = place.member("orders").open().unwrap();
    arrive(&mut one);
    one.commit().unwrap();
    for number in 0..4 {
        one.seek("orders", number, Offset(2)).unwrap();
    }
    one.pause("orders").unwrap();
    let mut two = place.member("orders").open().unwrap();
    arrive(&mut two);
    let seen = place.pass(&mut [&mut one, &mut two], 15);
    assert_eq!((names(&one).len(), names(&two).len()), (2, 2));
    assert_eq!((seen[0].len(), seen[1].len()), (0, 0), "the others are where the group is");
    two.close().unwrap();
    let seen = place.pass(&mut [&mut one], 10);
    assert_eq!((names(&one).len(), seen[0].len()), (4, 0));
    place.send("orders", 0, 1);
    place.send("orders", 1, 1);
    place.send("orders", 2, 1);
    place.send("orders", 3, 1);
    let seen = place.pass(&mut [&mut one], 1);
    assert_eq!(seen[0].len(), 2, "what came again is not paused");
    one.resume("orders").unwrap();
    let seen = place.pass(&mut [&mut one], 1);
    assert_eq!(seen[0].iter().map(|(_, offset)| *offset).collect::<Vec<_>>(), [2, 3, 4, 2, 3, 4]);
}

/// One that sleeps in a poll gives back what others are to have, and takes what they leave.
#[test]
fn a_poll_that_waits_takes_part() {
    let home = tempfile::tempdir().unwrap();
    let groups = taffrail::GroupConfig::new().heartbeat_interval(Duration::from_millis(50));
    let log = taffrail::Log::builder(home.path().join("data")).groups(groups).open().unwrap();
    log.create_topic("orders", taffrail::TopicConfig::new().partitions(2)).unwrap();
    let mut one = log.consumer("g").subscribe(["orders"]).open().unwrap();
    one.poll(Duration::ZERO).unwrap();
    assert_eq!(names(&one).len(), 2);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let polling = scope.spawn(|| {
            let polled = one.poll(Duration::MAX).unwrap();
            tell.send(polled.partition()).unwrap();
        });
        let mut two = log.consumer("g").subscribe(["orders"]).open().unwrap();
        let begun = std::time::Instant::now();
        while names(&two).is_empty() {
            two.poll(Duration::from_millis(200)).unwrap();
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing was given back");
        }
        let other = 1 - two.assignment()[0].partition;
        let producer = log.producer().open().unwrap();
        producer.send("orders", taffrail::Record::new("v").partition(other)).unwrap().wait().unwrap();
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(other));
        polling.join().unwrap();
    });
}

/// It sleeps for longer than it may between two polls.
#[test]
fn a_poll_that_waits_polls() {
    let home = tempfile::tempdir().unwrap();
    let log = taffrail::Log::open(home.path().join("data")).unwrap();
    log.create_topic("orders", taffrail::TopicConfig::new()).unwrap();
    let told = Told::default();
    let builder = log.consumer("g").subscribe(["orders"]).max_poll_interval(Duration::from_secs(1));
    let mut consumer = builder.on_rebalance(told.clone()).open().unwrap();
    consumer.poll(Duration::from_secs(4)).unwrap();
    assert_eq!(told.take(), ["assigned orders-0"]);
}

/// What it was handed before is done with when it polls again: it is committed while it sleeps.
#[test]
fn a_poll_that_waits_commits_by_itself() {
    let home = tempfile::tempdir().unwrap();
    let log = taffrail::Log::open(home.path().join("data")).unwrap();
    log.create_topic("orders", taffrail::TopicConfig::new()).unwrap();
    let producer = log.producer().open().unwrap();
    let send = || {
        let _ = producer.send("orders", taffrail::Record::new("v")).unwrap().wait().unwrap();
    };
    send();
    let builder = log.consumer("g").subscribe(["orders"]).auto_commit(Duration::from_millis(100));
    let mut consumer = builder.open().unwrap();
    assert_eq!(consumer.poll(Duration::ZERO).unwrap().records().count(), 1);
    std::thread::scope(|scope| {
        let polling = scope.spawn(move || consumer.poll(Duration::MAX).unwrap().records().count());
        let other = log.consumer("g").assign([("orders", 0)]).open().unwrap();
        let begun = std::time::Instant::now();
        while committed(&other, "orders", 0).is_none() && begun.elapsed() < Duration::from_secs(4) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let found = committed(&other, "orders", 0);
        send();
        assert_eq!((polling.join().unwrap(), found), (1, Some(1)), "before a heartbeat wakes it, after 5 s");
    });
}

/// What is assigned while it sleeps is listened to from then on.
#[test]
fn a_poll_that_waits_is_woken_by_what_was_assigned_meanwhile() {
    let home = tempfile::tempdir().unwrap();
    let log = taffrail::Log::open(home.path().join("data")).unwrap();
    let told = Told::default();
    let mut consumer = log.consumer("g").subscribe(["orders"]).on_rebalance(told.clone()).open().unwrap();
    consumer.poll(Duration::ZERO).unwrap();
    std::thread::scope(|scope| {
        let polling = scope.spawn(move || {
            let count = consumer.poll(Duration::from_secs(60)).unwrap().records().count();
            (count, std::time::Instant::now())
        });
        log.create_topic("orders", taffrail::TopicConfig::new()).unwrap();
        while told.news.lock().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(300));
        let sent = std::time::Instant::now();
        let _ = log.producer().open().unwrap().send("orders", taffrail::Record::new("v")).unwrap().wait().unwrap();
        let (count, woken) = polling.join().unwrap();
        assert_eq!(count, 1);
        assert!(woken - sent < Duration::from_secs(3), "the next heartbeat, up to 5 s later, has woken it");
    });
}

/// A listener that panics when it is told of a loss: what is lost is not read on, for another has it.
#[test]
fn what_is_lost_is_given_up_also_where_the_listener_panics() {
    struct Panics;
    impl RebalanceListener for Panics {
        fn lost(&mut self, _: &mut Rebalance<'_>, _: &[TopicPartition]) -> Result<()> {
            panic!("a listener of the host's");
        }
    }
    let place = Place::with("orders", 2);
    let builder = place.member("orders").max_poll_interval(Duration::from_secs(10)).on_rebalance(Panics);
    let mut old = builder.open().unwrap();
    arrive(&mut old);
    let mut new = place.member("orders").open().unwrap();
    arrive(&mut new);
    place.pass(&mut [&mut new], 30);
    assert_eq!(names(&new).len(), 2);
    let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| old.try_poll().map(drop)));
    assert!(polled.is_err());
    assert_eq!(names(&old), [""; 0]);
    place.pass(&mut [&mut old, &mut new], 20);
}

/// Takes longer for what is revoked than it may between two polls.
struct Slow(Told, taffrail::Log, Arc<taffrail::ManualClock>);

impl RebalanceListener for Slow {
    fn revoked(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        self.0.revoked(rebalance, partitions)?;
        for _ in 0..20 {
            self.2.advance(Duration::from_millis(500));
            self.1.tick();
        }
        Ok(())
    }

    fn lost(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        self.0.lost(rebalance, partitions)
    }
}

#[test]
fn what_was_revoked_is_not_lost_too() {
    let place = Place::with("orders", 2);
    let told = Told::default();
    let listener = Slow(told.clone(), place.log.clone(), Arc::clone(&place.clock));
    let builder = place.member("orders").max_poll_interval(Duration::from_secs(5));
    let mut one = builder.on_rebalance(listener).open().unwrap();
    arrive(&mut one);
    let mut two = place.member("orders").open().unwrap();
    arrive(&mut two);
    for _ in 0..10 {
        place.clock.advance(Duration::from_millis(500));
        place.log.tick();
        drain(&mut two);
        drain(&mut one);
        if !told.news.lock().unwrap().is_empty() {
            break;
        }
    }
    let told = told.take();
    let [revoked, lost] = &told[..] else { panic!("{told:?}") };
    let revoked = revoked.strip_prefix("revoked orders-").unwrap();
    let lost = lost.strip_prefix("lost orders-").unwrap();
    assert_eq!(BTreeSet::from([revoked, lost]), BTreeSet::from(["0", "1"]));
}
