//! What a consumer subscribes to: topics that are there or will be, patterns, partitions that are added; and changes of it.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]

#[path = "support/consumers.rs"]
mod support;

use std::time::Duration;

use support::{Place, Seen, Told, arrive, drain, names};
use taffrail::{Assignor, Error, Fault, Offset, StartAt, Timestamp, TopicConfig};

#[test]
fn a_topic_that_is_not_there_yet_is_waited_for() {
    let place = Place::with("orders", 1);
    let mut consumer = place.member("bills").open().unwrap();
    assert!(arrive(&mut consumer).is_empty());
    assert!(names(&consumer).is_empty());
    place.topic("bills", 2);
    place.send("bills", 1, 2);
    let seen = place.pass(&mut [&mut consumer], 8);
    assert_eq!((names(&consumer), seen[0].len()), (vec!["bills-0".to_owned(), "bills-1".to_owned()], 2));
}

#[test]
fn a_topic_that_is_deleted_is_taken_away_without_an_error() {
    let place = Place::with("orders", 1);
    place.topic("bills", 1);
    let told = Told::default();
    let mut consumer =
        place.log.consumer("g").subscribe(["orders", "bills"]).on_rebalance(told.clone()).open().unwrap();
    place.send("bills", 0, 2);
    assert_eq!(arrive(&mut consumer).len(), 2);
    told.take();
    place.log.delete_topic("bills").unwrap();
    assert!(drain(&mut consumer).is_empty());
    assert!(matches!(consumer.seek("bills", 0, taffrail::Offset(0)), Err(Error::UnknownTopic { .. })));
    place.pass(&mut [&mut consumer], 8);
    assert_eq!(names(&consumer), ["orders-0"]);
}

#[test]
fn partitions_that_are_added_come_and_are_read_from_their_first_record() {
    let place = Place::with("orders", 1);
    let mut one = place.member("orders").open().unwrap();
    arrive(&mut one);
    place.log.add_partitions("orders", 3).unwrap();
    place.send("orders", 2, 2);
    let seen = place.pass(&mut [&mut one], 8);
    assert_eq!((names(&one).len(), &seen[0][..]), (3, &[("orders-2".to_owned(), 0), ("orders-2".to_owned(), 1)][..]));
}

#[test]
fn a_pattern_takes_in_what_is_made_later_and_no_internal_topic() {
    let place = Place::with("orders-a", 1);
    place.topic("reorders-a", 1);
    let mut consumer = place.log.consumer("g").subscribe_pattern("orders-.*|_.*").open().unwrap();
    arrive(&mut consumer);
    assert_eq!(names(&consumer), ["orders-a-0"]);
    place.topic("orders-b", 1);
    place.pass(&mut [&mut consumer], 8);
    assert_eq!(names(&consumer), ["orders-a-0", "orders-b-0"]);
    let mut both = place.log.consumer("h").subscribe_pattern("orders-a").subscribe(["reorders-a"]).open().unwrap();
    arrive(&mut both);
    assert_eq!(names(&both), ["orders-a-0", "reorders-a-0"]);
}

#[test]
fn another_subscription_takes_the_place_of_the_one_before() {
    let place = Place::with("orders", 1);
    place.topic("bills", 1);
    place.topic("mails", 1);
    let told = Told::default();
    let mut consumer = place.member("orders").on_rebalance(told.clone()).open().unwrap();
    // Before the first poll too.
    consumer.subscribe(["orders", "mails"]).unwrap();
    arrive(&mut consumer);
    assert_eq!(
        (names(&consumer), told.take()),
        (vec!["mails-0".to_owned(), "orders-0".to_owned()], vec!["assigned mails-0 orders-0".to_owned()])
    );
    consumer.subscribe(["bills", "mails"]).unwrap();
    place.pass(&mut [&mut consumer], 8);
    assert_eq!(
        (names(&consumer), told.take()),
        (
            vec!["bills-0".to_owned(), "mails-0".to_owned()],
            vec!["revoked orders-0".to_owned(), "assigned bills-0".to_owned()]
        )
    );
    consumer.subscribe_pattern("o.*").unwrap();
    place.pass(&mut [&mut consumer], 8);
    assert_eq!(names(&consumer), ["orders-0"]);
}

#[test]
fn members_of_several_topics_share_each_among_who_wants_it() {
    let place = Place::with("orders", 2);
    place.topic("bills", 2);
    let mut one = place.log.consumer("g").subscribe(["orders", "bills"]).assignor(Assignor::Range).open().unwrap();
    let mut two = place.log.consumer("g").subscribe(["orders", "bills"]).assignor(Assignor::Range).open().unwrap();
    arrive(&mut one);
    arrive(&mut two);
    place.pass(&mut [&mut one, &mut two], 20);
    // By range, partitions of one number meet.
    let numbers =
        |consumer: &taffrail::Consumer| -> Vec<_> { consumer.assignment().iter().map(|one| one.partition).collect() };
    let (mine, others) = (numbers(&one), numbers(&two));
    assert_eq!((mine.len(), others.len()), (2, 2));
    assert!(mine[0] == mine[1] && others[0] == others[1] && mine[0] != others[0], "{mine:?} {others:?}");
}

/// The group knows a topic before its files are made here: what it gives of it is taken up when they are.
#[test]
fn what_is_assigned_and_not_open_yet_comes_when_it_is() {
    let place = Place::with("orders", 1);
    let told = Told::default();
    let mut consumer =
        place.log.consumer("g").subscribe(["orders", "bills"]).on_rebalance(told.clone()).open().unwrap();
    arrive(&mut consumer);
    told.take();
    place.storage.fail_when(|operation| {
        let is_meant = operation.path.to_string_lossy().contains("bills-1") && operation.kind.changes();
        is_meant.then_some(Fault::NoSpace)
    });
    place.log.create_topic("bills", TopicConfig::new().partitions(2)).unwrap_err();
    place.pass(&mut [&mut consumer], 20);
    assert_eq!((names(&consumer), told.take()), (vec!["orders-0".to_owned()], Vec::<String>::new()));
    place.storage.clear_faults();
    place.pass(&mut [&mut consumer], 20);
    assert_eq!(names(&consumer), ["bills-0", "bills-1", "orders-0"]);
    assert_eq!(told.take(), ["assigned bills-0 bills-1"]);
}

fn seen(name: &str, count: u64) -> Vec<Seen> {
    (0..count).map(|offset| (name.to_owned(), offset)).collect()
}

/// It begins at the end of what was there when it was opened. Of what comes meanwhile nothing is passed over, though it hears
/// of it later.
#[test]
fn partitions_that_come_are_read_from_their_first_record_by_who_begins_at_the_end() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 3);
    let mut one = place.member("orders").start_at(StartAt::Latest).open().unwrap();
    assert!(arrive(&mut one).is_empty());
    place.log.add_partitions("orders", 2).unwrap();
    place.send("orders", 1, 2);
    assert_eq!(place.pass(&mut [&mut one], 8)[0], seen("orders-1", 2));
    // A topic of that name is another one.
    place.log.delete_topic("orders").unwrap();
    place.topic("orders", 1);
    place.send("orders", 0, 4);
    assert_eq!(place.pass(&mut [&mut one], 8)[0], seen("orders-0", 4));
}

/// Also where the first poll comes after the topic.
#[test]
fn topics_that_come_are_read_from_their_first_record_by_who_begins_at_the_end() {
    let place = Place::with("orders-a", 1);
    place.send("orders-a", 0, 1);
    let latest = || place.log.consumer("g").subscribe_pattern("orders-.*").start_at(StartAt::Latest);
    let mut one = latest().open().unwrap();
    let mut other = place.log.consumer("h").subscribe(["orders-b"]).start_at(StartAt::Latest).open().unwrap();
    assert!(arrive(&mut one).is_empty());
    place.topic("orders-b", 1);
    place.send("orders-b", 0, 2);
    assert_eq!(place.pass(&mut [&mut one], 8)[0], seen("orders-b-0", 2));
    assert_eq!(arrive(&mut other), seen("orders-b-0", 2));
    // Whoever is opened later begins at the end; where nothing was committed, also in the same group.
    one.close().unwrap();
    let mut late = latest().open().unwrap();
    assert!(arrive(&mut late).is_empty());
    place.send("orders-b", 0, 1);
    assert_eq!(drain(&mut late), [("orders-b-0".to_owned(), 2)]);
}

/// What was there when a consumer was opened is the same whenever something is assigned to it.
#[test]
fn who_joins_again_begins_where_it_would_have_begun_before() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 3);
    let interval = Duration::from_secs(60);
    let mut one = place.member("orders").max_poll_interval(interval).start_at(StartAt::Latest).open().unwrap();
    assert!(arrive(&mut one).is_empty());
    place.log.add_partitions("orders", 2).unwrap();
    place.send("orders", 1, 2);
    assert_eq!(place.pass(&mut [&mut one], 8)[0], seen("orders-1", 2));
    let before = one.member_id();
    // It does not poll in time, and comes back as another.
    place.pass(&mut [], 120);
    place.send("orders", 0, 1);
    assert_eq!(place.pass(&mut [&mut one], 8)[0], seen("orders-1", 2));
    assert!(one.member_id().is_some() && one.member_id() != before);
    // What was there begins at its end, as that is by then.
    assert_eq!(one.position("orders", 0).unwrap().offset, Offset(4));
}

#[test]
fn what_comes_is_read_whole_by_whoever_of_those_before_gets_it() {
    let place = Place::with("orders", 2);
    (0..2).for_each(|number| place.send("orders", number, 1));
    let latest = || place.member("orders").start_at(StartAt::Latest).open().unwrap();
    let (mut one, mut two) = (latest(), latest());
    arrive(&mut one);
    arrive(&mut two);
    place.pass(&mut [&mut one, &mut two], 15);
    assert_eq!((names(&one).len(), names(&two).len()), (1, 1));
    place.log.add_partitions("orders", 4).unwrap();
    let sent = [seen("orders-2", 2), seen("orders-3", 2)].concat();
    (2..4).for_each(|number| place.send("orders", number, 2));
    let sorted = |mut all: Vec<Seen>| {
        all.sort();
        all
    };
    assert_eq!(sorted(place.pass(&mut [&mut one, &mut two], 15).concat()), sent);
    let moved: Vec<_> = sent.into_iter().filter(|(name, _)| names(&two).contains(name)).collect();
    assert_eq!(moved.len(), 2);
    // Nothing was committed.
    drop(two);
    assert_eq!(place.pass(&mut [&mut one], 8)[0], moved);
}

/// What is assigned by hand is there, until a topic that comes has its name.
#[test]
fn a_topic_made_again_is_read_from_its_first_record_where_it_was_assigned_by_hand() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 3);
    let mut one = place.log.consumer("g").assign([("orders", 0)]).start_at(StartAt::Latest).open().unwrap();
    place.send("orders", 0, 1);
    assert!(drain(&mut one).is_empty());
    one.seek("orders", 0, Offset(0)).unwrap();
    one.seek_to_committed("orders").unwrap();
    assert!(drain(&mut one).is_empty());
    place.log.delete_topic("orders").unwrap();
    place.topic("orders", 1);
    place.send("orders", 0, 2);
    assert!(matches!(one.try_poll(), Err(Error::UnknownTopic { .. })));
    assert_eq!(drain(&mut one), seen("orders-0", 2));
    one.seek_to_committed("orders").unwrap();
    assert_eq!(drain(&mut one), seen("orders-0", 2));
}

/// By time it is the same in every partition.
#[test]
fn by_time_the_records_say_where_what_comes_is_begun() {
    let place = Place::with("orders", 1);
    let since = StartAt::Time(Timestamp(1_005_000));
    let mut one = place.member("orders").start_at(since).open().unwrap();
    arrive(&mut one);
    place.log.add_partitions("orders", 3).unwrap();
    (1..3).for_each(|number| place.send("orders", number, 2));
    place.clock.advance(Duration::from_secs(5));
    place.send("orders", 1, 1);
    assert_eq!(place.pass(&mut [&mut one], 8)[0], [("orders-1".to_owned(), 2)]);
    assert_eq!(one.position("orders", 2).unwrap().offset, Offset(2));
}
