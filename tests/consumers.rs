//! Consumers of a group share its partitions: they come, leave, are dropped, fall silent and come back.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]

#[path = "support/consumers.rs"]
mod support;

use std::time::Duration;

use support::{Place, Told, arrive, committed, drain, names};
use taffrail::Error;

#[test]
fn the_first_poll_has_its_partitions_before_its_time_begins() {
    let place = Place::with("orders", 4);
    place.send("orders", 1, 3);
    let mut consumer = place.member("orders").open().unwrap();
    assert_eq!((names(&consumer).len(), consumer.member_id()), (0, None));
    let polled = consumer.poll(Duration::ZERO).unwrap();
    assert_eq!((polled.topic(), polled.partition(), polled.records().count()), ("orders", 1, 3));
    assert_eq!(names(&consumer), ["orders-0", "orders-1", "orders-2", "orders-3"]);
    assert!(consumer.member_id().is_some());
}

/// It waits neither for the coordinator's disk nor for anybody else.
#[test]
fn a_poll_without_waiting_joins_too() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 1);
    let mut consumer = place.member("orders").open().unwrap();
    assert!(consumer.try_poll().unwrap().is_empty());
    assert!(names(&consumer).is_empty());
    assert_eq!(place.pass(&mut [&mut consumer], 1)[0].len(), 1);
}

#[test]
fn two_share_and_the_other_takes_over_when_one_closes_or_is_dropped() {
    for closes in [true, false] {
        let place = Place::with("orders", 6);
        let mut one = place.member("orders").open().unwrap();
        let mut two = place.member("orders").open().unwrap();
        arrive(&mut one);
        let before = names(&one);
        assert_eq!((before.len(), arrive(&mut two).len()), (6, 0));
        place.pass(&mut [&mut one, &mut two], 15);
        let (kept, moved) = (names(&one), names(&two));
        assert_eq!((kept.len(), moved.len()), (3, 3));
        assert!(kept.iter().all(|name| before.contains(name)));
        // What comes is read once, by whoever has the partition.
        (0..6).for_each(|number| place.send("orders", number, 2));
        let seen = place.pass(&mut [&mut one, &mut two], 1);
        assert_eq!((seen[0].len(), seen[1].len()), (6, 6));
        assert!(seen[1].iter().all(|(name, _)| moved.contains(name)));
        one.commit().unwrap();
        if closes {
            two.commit().unwrap();
            two.close().unwrap();
        } else {
            drop(two);
        }
        // Long before a session is over. What was not committed comes again.
        let seen = place.pass(&mut [&mut one], 6);
        assert_eq!(names(&one).len(), 6);
        assert_eq!(seen[0].len(), if closes { 0 } else { 6 });
    }
}

/// A consumer that is not polled any more is out after its time, and nothing of it is anybody's before.
#[test]
fn whoever_does_not_poll_is_out_and_comes_back_as_another() {
    let place = Place::with("orders", 2);
    let told = Told { commits: true, ..Told::default() };
    let silent = place.member("orders").max_poll_interval(Duration::from_secs(60)).on_rebalance(told.clone());
    let mut silent = silent.open().unwrap();
    let mut other = place.member("orders").open().unwrap();
    arrive(&mut silent);
    arrive(&mut other);
    place.pass(&mut [&mut silent, &mut other], 15);
    let (had, id) = (names(&silent), silent.member_id());
    assert_eq!((had.len(), names(&other).len()), (1, 1));
    (0..2).for_each(|number| place.send("orders", number, 2));
    assert_eq!(drain(&mut silent).len(), 2);

    place.pass(&mut [&mut other], 58);
    assert_eq!(names(&other).len(), 1);
    let seen = place.pass(&mut [&mut other], 10);
    assert_eq!(names(&other).len(), 2);
    assert_eq!(seen[0].iter().filter(|(name, _)| *name == had[0]).count(), 2, "what it had not committed");
    other.commit().unwrap();

    told.take();
    let refused = silent.commit().unwrap_err();
    assert!(matches!(refused, Error::UnknownMember { .. }), "{refused}");
    // The poll tells what is lost; a commit of the listener is refused, and the poll answers that.
    let refused = silent.try_poll().unwrap_err();
    assert!(matches!(&refused, Error::UnknownMember { member, .. } if Some(member) == id.as_ref()), "{refused}");
    assert_eq!(told.take(), [format!("lost {}", had[0])]);
    assert!(silent.failed().is_none() && names(&silent).is_empty());
    let seen = place.pass(&mut [&mut silent, &mut other], 15);
    assert_eq!((names(&silent).len(), names(&other).len()), (1, 1));
    assert!(silent.member_id().is_some() && silent.member_id() != id);
    assert!(seen[0].is_empty(), "it goes on where the other one has come to");
}

/// A program that hangs, or leaks its consumer: nobody waits for it for ever.
#[test]
fn a_leaked_consumer_dies_with_its_time_between_polls() {
    let place = Place::with("orders", 2);
    let mut one = place.member("orders").open().unwrap();
    let mut two = place.member("orders").open().unwrap();
    arrive(&mut one);
    arrive(&mut two);
    place.pass(&mut [&mut one, &mut two], 15);
    std::mem::forget(two);
    place.pass(&mut [&mut one], 290);
    assert_eq!(names(&one).len(), 1);
    place.pass(&mut [&mut one], 20);
    assert_eq!(names(&one).len(), 2);
}

#[test]
fn a_close_is_the_end_at_once() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 3);
    let mut one = place.member("orders").open().unwrap();
    assert_eq!(arrive(&mut one).len(), 3);
    one.close().unwrap();
    let mut two = place.member("orders").open().unwrap();
    assert_eq!(arrive(&mut two).len(), 3, "it did not commit");
    two.commit().unwrap();
    drop(two);
    // Dropped, it has left before anybody else comes.
    let mut three = place.member("orders").open().unwrap();
    assert_eq!((arrive(&mut three).len(), names(&three).len()), (0, 1));
    assert_eq!(committed(&three, "orders", 0), Some(3));
}

/// One with an instance id has its partitions again when it comes back, and nobody has them meanwhile.
#[test]
fn an_instance_comes_back_to_its_partitions() {
    let place = Place::with("orders", 4);
    let fixed = || place.member("orders").instance_id("a").open().unwrap();
    let mut one = fixed();
    let mut other = place.member("orders").open().unwrap();
    arrive(&mut one);
    arrive(&mut other);
    place.pass(&mut [&mut one, &mut other], 15);
    let had = names(&one);
    assert_eq!(had.len(), 2);
    one.close().unwrap();
    place.pass(&mut [&mut other], 20);
    assert_eq!(names(&other).len(), 2);
    let mut again = fixed();
    arrive(&mut again);
    assert_eq!(names(&again), had);
    // Away for longer than a session, it is gone.
    drop(again);
    place.pass(&mut [&mut other], 60);
    assert_eq!(names(&other).len(), 4);
}

#[test]
fn whoever_comes_with_the_same_instance_id_fences_the_one_before() {
    let place = Place::with("orders", 2);
    let told = Told::default();
    place.send("orders", 0, 2);
    let mut one = place.member("orders").instance_id("a").on_rebalance(told.clone()).open().unwrap();
    assert_eq!(arrive(&mut one).len(), 2);
    let mut two = place.member("orders").instance_id("a").open().unwrap();
    arrive(&mut two);
    let refused = one.commit().unwrap_err();
    assert!(matches!(refused, Error::FencedInstance { .. }), "{refused}");
    told.take();
    let mut seen = None;
    for _ in 0..20 {
        place.clock.advance(Duration::from_millis(500));
        place.log.tick();
        let refused = one.commit().unwrap_err();
        assert!(matches!(refused, Error::FencedInstance { .. }), "also once it was told so: {refused}");
        if let Err(error) = one.try_poll() {
            seen = Some(error);
            break;
        }
    }
    assert!(matches!(seen, Some(Error::FencedInstance { .. })), "{seen:?}");
    assert_eq!((told.take(), names(&one).len()), (vec!["lost orders-0 orders-1".to_owned()], 0));
    assert!(matches!(one.try_poll(), Err(Error::FencedInstance { .. })), "for good");
    assert_eq!(told.take(), Vec::<String>::new());
    let seen = place.pass(&mut [&mut two], 10);
    assert_eq!((names(&two).len(), seen[0].len()), (2, 2));
}

#[test]
fn partitions_assigned_by_hand_need_no_group_of_members() {
    let place = Place::with("orders", 3);
    place.send("orders", 2, 2);
    let open = || place.log.consumer("g").assign([("orders", 2)]).open().unwrap();
    let mut one = open();
    assert_eq!((drain(&mut one).len(), names(&one), one.member_id()), (2, vec!["orders-2".to_owned()], None));
    one.commit().unwrap();
    place.send("orders", 2, 1);
    let mut two = open();
    assert_eq!(drain(&mut two), [("orders-2".to_owned(), 2)]);
    // A group that has members is theirs.
    let mut member = place.member("orders").open().unwrap();
    arrive(&mut member);
    assert!(matches!(two.commit(), Err(Error::UnknownMember { member, .. }) if member.is_empty()));
    member.close().unwrap();
    two.commit().unwrap();
    assert_eq!(committed(&two, "orders", 2), Some(3));
    let subscribed = two.subscribe(["orders"]);
    assert!(matches!(subscribed, Err(Error::InvalidConfig { setting: "subscribe", .. })));
}

#[test]
fn what_cannot_be_is_refused_before_anything_happens() {
    let place = Place::with("orders", 1);
    let log = &place.log;
    for group in [String::new(), "g".repeat(32_768)] {
        assert!(matches!(log.consumer(group).subscribe(["orders"]).open(), Err(Error::InvalidName { .. })));
    }
    let consumer = || log.consumer("g");
    let config = |refused: taffrail::Result<_>, name: &str| {
        let refused: Error = refused.map(|_: taffrail::Consumer| ()).unwrap_err();
        assert!(matches!(&refused, Error::InvalidConfig { setting, .. } if *setting == name), "{refused}");
    };
    config(consumer().open(), "subscribe");
    config(consumer().subscribe(["orders"]).assign([("orders", 0)]).open(), "assign");
    config(consumer().subscribe_pattern("a").assign([("orders", 0)]).open(), "assign");
    config(consumer().subscribe(["orders"]).max_poll_interval(Duration::ZERO).open(), "max_poll_interval");
    config(consumer().subscribe(["orders"]).session_timeout(Duration::ZERO).open(), "session_timeout");
    for pattern in ["a(", ""] {
        assert!(matches!(consumer().subscribe_pattern(pattern).open(), Err(Error::InvalidPattern { .. })), "{pattern}");
    }
    assert!(matches!(consumer().subscribe(["a/b"]).open(), Err(Error::InvalidName { .. })));
    assert!(matches!(consumer().subscribe(["orders"]).instance_id("").open(), Err(Error::InvalidName { .. })));
    assert!(matches!(consumer().assign([("orders", 1)]).open(), Err(Error::UnknownPartition { .. })));
    assert!(matches!(consumer().assign([("bills", 0)]).open(), Err(Error::UnknownTopic { .. })));
    assert_eq!(log.internal_topics(), Vec::<String>::new(), "nothing was made for it");

    let mut open = consumer().subscribe(["orders"]).open().unwrap();
    assert!(matches!(open.subscribe(["a/b"]), Err(Error::InvalidName { .. })));
    assert!(matches!(open.subscribe_pattern("a("), Err(Error::InvalidPattern { .. })));
    assert!(matches!(open.subscribe(Vec::<String>::new()), Err(Error::InvalidConfig { .. })));
    assert!(matches!(open.commit_offsets([(("orders", 0), taffrail::Offset(1))]), Err(Error::UnknownMember { .. })));
}

/// It is shorter than the interval at which members report by default.
#[test]
fn a_short_session_lasts_as_long_as_its_consumer() {
    let place = Place::with("orders", 1);
    let told = Told::default();
    let mut consumer =
        place.member("orders").session_timeout(Duration::from_secs(2)).on_rebalance(told.clone()).open().unwrap();
    arrive(&mut consumer);
    place.pass(&mut [&mut consumer], 60);
    assert_eq!(told.take(), ["assigned orders-0"]);
}

/// Also that of the first poll for what its group gives it, here one whose records cannot be stored.
#[test]
fn a_waker_ends_the_wait_of_a_poll() {
    let place = Place::with("orders", 1);
    let mut consumer = place.member("orders").open().unwrap();
    arrive(&mut consumer);
    consumer.waker().wake();
    assert!(consumer.poll(Duration::MAX).unwrap().is_empty());
    consumer.pause("orders").unwrap();
    assert_eq!(consumer.paused(), consumer.assignment());
    consumer.waker().wake();
    assert!(consumer.poll(Duration::MAX).unwrap().is_empty());
    consumer.resume(taffrail::Which::All).unwrap();
    assert!(consumer.paused().is_empty());
    drop(consumer);

    let mut consumer = place.member("orders").open().unwrap();
    let is_of_groups = |path: &std::path::Path| path.to_string_lossy().contains("__consumer_offsets");
    place.storage.fail_when(move |operation| is_of_groups(&operation.path).then_some(taffrail::Fault::Io));
    consumer.waker().wake();
    assert!(consumer.poll(Duration::MAX).unwrap().is_empty());
    assert_eq!(consumer.member_id(), None);
    place.storage.clear_faults();
    consumer.waker().wake();
    assert!(consumer.poll(Duration::MAX).unwrap().is_empty());
}

#[test]
fn a_closed_log_answers_so() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 1);
    let mut consumer = place.member("orders").open().unwrap();
    assert_eq!(arrive(&mut consumer).len(), 1);
    place.log.clone().close().unwrap();
    assert!(matches!(consumer.poll(Duration::MAX), Err(Error::Closed)));
    assert!(matches!(consumer.commit(), Err(Error::Closed)));
    assert!(matches!(consumer.subscribe(["orders"]), Err(Error::Closed)));
    assert!(matches!(consumer.committed([("orders", 0)]), Err(Error::Closed)));
    assert!(matches!(place.log.consumer("g").subscribe(["orders"]).open(), Err(Error::Closed)));
}
