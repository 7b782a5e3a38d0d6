//! How far a group has come is kept: over closes, crashes and other consumers; and what is not committed comes again.
#![expect(clippy::unwrap_used, reason = "in a test it is an assertion")]

#[path = "support/consumers.rs"]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::{Place, arrive, committed, drain};
use taffrail::{
    Clock, CommittedOffset, Consumer, Error, Fault, LeaderEpoch, Log, MemoryStorage, Moment, Offset, OutOfRange,
    Record, StartAt, SystemClock, Timestamp, TopicConfig,
};

fn offsets(seen: &[(String, u64)]) -> Vec<u64> {
    seen.iter().map(|(_, offset)| *offset).collect()
}

#[test]
fn a_committed_position_survives_a_close_and_a_crash() {
    for crashes in [false, true] {
        let place = Place::with("orders", 1);
        place.send("orders", 0, 5);
        let mut consumer = place.member("orders").max_bytes(1).open().unwrap();
        let polled = consumer.poll(Duration::ZERO).unwrap();
        assert_eq!(polled.records().count(), 1);
        consumer.try_poll().unwrap();
        consumer.commit().unwrap();
        consumer.try_poll().unwrap();
        let storage = if crashes {
            let storage = place.storage.crash(1);
            drop((consumer, place));
            storage
        } else {
            drop(consumer);
            place.log.close().unwrap();
            place.storage
        };
        let place = Place::at(storage);
        let mut consumer = place.member("orders").open().unwrap();
        assert_eq!(offsets(&arrive(&mut consumer)), [2, 3, 4], "crashes: {crashes}");
        // The epoch of the log that has begun since says nothing against it.
        assert_eq!(consumer.position("orders", 0).unwrap().offset, Offset(5));
    }
}

/// Stored when it returns: a crash right after it changes nothing.
#[test]
fn a_commit_is_stored_when_it_returns() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 2);
    let mut consumer = place.member("orders").open().unwrap();
    arrive(&mut consumer);
    consumer.commit().unwrap();
    for seed in 0..20 {
        let survivor = Place::at(place.storage.crash(seed));
        let consumer = survivor.member("orders").open().unwrap();
        assert_eq!(committed(&consumer, "orders", 0), Some(2), "{seed}");
    }
}

#[test]
fn what_has_not_moved_is_not_written_again() {
    let place = Place::with("orders", 3);
    place.send("orders", 0, 1);
    let mut consumer = place.member("orders").open().unwrap();
    arrive(&mut consumer);
    let written = |place: &Place| -> u64 {
        let all = (0..50).map(|number| place.log.partition("__consumer_offsets", number).unwrap().end().0);
        all.sum()
    };
    let before = written(&place);
    consumer.commit().unwrap();
    let after_first = written(&place);
    // Two of them are empty: that they begin where they do is known by now, and noted with the first one.
    assert_eq!((after_first - before, committed(&consumer, "orders", 1)), (3, Some(0)));
    consumer.commit().unwrap();
    assert_eq!(written(&place), after_first);
    place.send("orders", 2, 1);
    drain(&mut consumer);
    consumer.commit().unwrap();
    assert_eq!(written(&place), after_first + 1);
    // A position that was found is not stored again either.
    drop(consumer);
    place.log.tick();
    let mut next = place.member("orders").open().unwrap();
    arrive(&mut next);
    let before = written(&place);
    next.commit().unwrap();
    assert_eq!(written(&place), before);
}

#[test]
fn explicit_positions_carry_notes_and_go_anywhere() {
    let place = Place::with("orders", 2);
    place.send("orders", 0, 5);
    let mut consumer = place.member("orders").open().unwrap();
    arrive(&mut consumer);
    let noted =
        CommittedOffset { offset: Offset(2), epoch: Some(LeaderEpoch(0)), metadata: "as far as May".to_owned() };
    consumer.commit_offsets([(("orders", 0), noted.clone())]).unwrap();
    assert_eq!(
        consumer.committed([("orders", 0), ("orders", 1)]).unwrap(),
        [(("orders", 0).into(), noted.clone())].into()
    );
    // The consumer reads on where it is, and the next commit says where that is.
    assert_eq!(consumer.position("orders", 0).unwrap().offset, Offset(5));
    consumer.commit().unwrap();
    assert_eq!(committed(&consumer, "orders", 0), Some(5));
    let long = CommittedOffset::from(Offset(1)).metadata("m".repeat(4097));
    let refused = consumer.commit_offsets([(("orders", 0), long)]).unwrap_err();
    assert!(matches!(refused, Error::OffsetMetadataTooLarge { size: 4097, limit: 4096, .. }), "{refused}");
    consumer.commit_offsets([(("orders", 0), CommittedOffset::from(Offset(1)).metadata("m".repeat(4096)))]).unwrap();
    // Nothing is stored of a commit that names what is not there.
    let unknown = consumer.commit_offsets([(("orders", 0), Offset(2)), (("a/b", 0), Offset(1))]);
    assert!(matches!(unknown, Err(Error::UnknownTopic { name }) if name == "a/b"));
    let unknown = consumer.commit_offsets([(("orders", 0), Offset(2)), (("orders", 9), Offset(1))]);
    assert!(matches!(unknown, Err(Error::UnknownPartition { partition: 9, .. })));
    let found = consumer.committed([("orders", 0)]).unwrap();
    assert_eq!(found.values().map(|found| found.offset).collect::<Vec<_>>(), [Offset(1)]);
    assert_eq!(committed(&consumer, "orders", 0), Some(1));
    consumer.close().unwrap();
    let mut next = place.member("orders").open().unwrap();
    assert_eq!(offsets(&arrive(&mut next)), [1, 2, 3, 4]);
}

/// A commit beyond the end, or below what the retention has left, is accepted; the next poll answers by the policy.
#[test]
fn a_position_outside_of_the_log_is_the_next_polls_matter() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 5);
    place.log.partition("orders", 0).unwrap().delete_records(Some(Offset(2))).unwrap();
    for outside in [1, 9] {
        let mut consumer = place.member("orders").open().unwrap();
        consumer.poll(Duration::ZERO).unwrap();
        consumer.commit_offsets([(("orders", 0), Offset(outside))]).unwrap();
        consumer.close().unwrap();
        let mut strict = place.member("orders").open().unwrap();
        let refused = strict.poll(Duration::ZERO).unwrap_err();
        let is_outside = matches!(refused, Error::OffsetOutOfRange { requested, .. } if requested == Offset(outside));
        assert!(is_outside, "{refused}");
        assert_eq!(strict.failed().unwrap().to_string(), "orders-0");
        strict.seek_to_beginning("orders").unwrap();
        assert_eq!(offsets(&drain(&mut strict)), [2, 3, 4]);
        strict.close().unwrap();
        let mut lenient = place.member("orders").out_of_range(OutOfRange::Latest).open().unwrap();
        assert!(arrive(&mut lenient).is_empty());
        lenient.commit().unwrap();
        assert_eq!(committed(&lenient, "orders", 0), Some(5));
        lenient.close().unwrap();
    }
}

/// The log was cut below what was read, and grew again: the epoch of the committed position tells.
#[test]
fn a_committed_position_notices_that_the_log_was_cut() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 5);
    let mut consumer = place.member("orders").open().unwrap();
    arrive(&mut consumer);
    consumer.commit().unwrap();
    consumer.close().unwrap();
    let partition = place.log.partition("orders", 0).unwrap();
    partition.truncate_from(Offset(2), taffrail::Force::Yes).unwrap();
    partition.begin_epoch(LeaderEpoch(7)).unwrap();
    place.send("orders", 0, 8);
    let mut consumer = place.member("orders").out_of_range(OutOfRange::Latest).open().unwrap();
    let told = consumer.poll(Duration::ZERO).unwrap_err();
    assert!(matches!(told, Error::Truncated { position: Offset(5), end: Offset(2), .. }), "{told}");
    consumer.seek("orders", 0, Offset(2)).unwrap();
    assert_eq!(drain(&mut consumer).len(), 8);
}

#[test]
fn a_group_without_a_position_begins_where_it_is_told_to_once() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 3);
    let latest = || place.member("orders").start_at(StartAt::Latest).open().unwrap();
    let mut consumer = latest();
    assert!(arrive(&mut consumer).is_empty());
    // Where it has begun is its position: whoever comes next begins there too, not at the latest of then.
    consumer.commit().unwrap();
    assert_eq!(committed(&consumer, "orders", 0), Some(3));
    consumer.close().unwrap();
    place.send("orders", 0, 2);
    assert_eq!(offsets(&arrive(&mut latest())), [3, 4]);
    let since = |time| place.log.consumer("other").subscribe(["orders"]).start_at(StartAt::Time(Timestamp(time)));
    assert_eq!(arrive(&mut since(0).open().unwrap()).len(), 5);
}

#[test]
fn commits_that_nobody_waits_for_tell_a_later_call() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 4);
    let mut consumer = place.member("orders").max_bytes(1).open().unwrap();
    let told: Arc<Mutex<Vec<(u32, bool)>>> = Arc::default();
    let commit = |consumer: &mut Consumer, number| {
        let told = Arc::clone(&told);
        consumer.commit_async(move |outcome| told.lock().unwrap().push((number, outcome.is_ok())));
    };
    let count = || told.lock().unwrap().len();
    consumer.poll(Duration::ZERO).unwrap();
    commit(&mut consumer, 1);
    consumer.try_poll().unwrap();
    assert_eq!(count(), 0, "it waits for the disk");
    commit(&mut consumer, 2);
    commit(&mut consumer, 3); // nothing is left to commit
    for _ in 0..5 {
        place.clock.advance(Duration::from_millis(10));
        place.log.tick();
    }
    assert_eq!(count(), 0, "no callback of a tick");
    consumer.try_poll().unwrap();
    assert_eq!(*told.lock().unwrap(), [(1, true), (2, true), (3, true)]);
    assert_eq!(committed(&consumer, "orders", 0), Some(2));
    // A commit waits for those before it, and so does a close.
    commit(&mut consumer, 4);
    consumer.commit().unwrap();
    assert_eq!((count(), committed(&consumer, "orders", 0)), (4, Some(3)));
    consumer.try_poll().unwrap();
    commit(&mut consumer, 5);
    consumer.close().unwrap();
    assert_eq!(count(), 5);
}

/// A commit that failed is not taken for stored: the next one stores it.
#[test]
fn what_failed_is_committed_by_the_next_commit() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 2);
    let mut consumer = place.member("orders").open().unwrap();
    arrive(&mut consumer);
    let told: Arc<Mutex<Option<bool>>> = Arc::default();
    place.storage.fail_from(place.storage.operations(), Fault::NoSpace);
    let telling = Arc::clone(&told);
    consumer.commit_async(move |outcome| *telling.lock().unwrap() = Some(outcome.is_ok()));
    assert!(consumer.commit().is_err());
    assert_eq!(*told.lock().unwrap(), Some(false));
    place.storage.clear_faults();
    consumer.commit().unwrap();
    assert_eq!(committed(&consumer, "orders", 0), Some(2));
}

/// What the last poll has returned is committed by the next one that is due, before anything else is handed out.
#[test]
fn automatic_commits_follow_the_work() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 4);
    let mut consumer = place.member("orders").max_bytes(1).auto_commit(Duration::from_secs(5)).open().unwrap();
    consumer.poll(Duration::ZERO).unwrap();
    consumer.try_poll().unwrap();
    assert_eq!(committed(&consumer, "orders", 0), None);
    place.clock.advance(Duration::from_secs(5));
    assert_eq!(committed(&consumer, "orders", 0), None, "by a poll, and nobody else");
    consumer.try_poll().unwrap();
    assert_eq!(committed(&consumer, "orders", 0), Some(2), "not what this poll returns");
    consumer.try_poll().unwrap();
    assert_eq!(committed(&consumer, "orders", 0), Some(2), "not before the interval is over again");
    consumer.close().unwrap();
    let other = place.member("orders").open().unwrap();
    assert_eq!(committed(&other, "orders", 0), Some(4));
}

#[test]
fn it_does_not_commit_by_itself_unless_told_to() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 1);
    let mut consumer = place.member("orders").open().unwrap();
    arrive(&mut consumer);
    place.pass(&mut [&mut consumer], 20);
    consumer.close().unwrap();
    assert_eq!(committed(&place.member("orders").open().unwrap(), "orders", 0), None);
}

/// A topic that is made again under its name is another one: positions of the one before are not its own.
#[test]
fn a_topic_made_again_has_no_position() {
    let place = Place::with("orders", 1);
    place.send("orders", 0, 5);
    let mut consumer = place.member("orders").open().unwrap();
    arrive(&mut consumer);
    place.log.delete_topic("orders").unwrap();
    place.topic("orders", 1);
    place.send("orders", 0, 3);
    // What was read of the one before goes nowhere.
    consumer.commit().unwrap();
    assert_eq!(committed(&consumer, "orders", 0), None);
    let seen = place.pass(&mut [&mut consumer], 10);
    assert_eq!(offsets(&seen[0]), [0, 1, 2]);
    consumer.commit().unwrap();
    assert_eq!(committed(&consumer, "orders", 0), Some(3));
}

/// The system's time, which counts how often it is asked for.
#[derive(Debug, Default)]
struct Counting(AtomicU64);

impl Clock for Counting {
    fn wall(&self) -> Timestamp {
        SystemClock.wall()
    }

    fn monotonic(&self) -> Moment {
        self.0.fetch_add(1, Ordering::Relaxed);
        SystemClock.monotonic()
    }
}

/// A poll that has nothing to commit sleeps, however often it would.
#[test]
fn a_commit_at_each_poll_keeps_nobody_awake() {
    let clock = Arc::new(Counting::default());
    let builder = Log::builder("data").storage(MemoryStorage::new(1).shared()).clock(Arc::clone(&clock) as _);
    let log = builder.background(false).open().unwrap();
    log.create_topic("orders", TopicConfig::new()).unwrap();
    log.producer().open().unwrap().send("orders", Record::new("v")).unwrap().wait().unwrap();
    let mut consumer = log.consumer("g").subscribe(["orders"]).auto_commit(Duration::ZERO).open().unwrap();
    assert_eq!(consumer.poll(Duration::ZERO).unwrap().records().count(), 1);
    clock.0.store(0, Ordering::Relaxed);
    assert!(consumer.poll(Duration::from_millis(400)).unwrap().is_empty());
    assert!(clock.0.load(Ordering::Relaxed) < 5_000, "{clock:?}");
    assert_eq!(committed(&consumer, "orders", 0), Some(1));
}

/// Where a partition begins cannot be found out: that is its error at each attempt, until a seek, and holds up nobody.
#[test]
fn a_beginning_that_cannot_be_found_is_an_error_of_its_partition() {
    let place = Place::with("orders", 2);
    (0..2).for_each(|number| place.send("orders", number, 3));
    let damaged = "data/orders-1/00000000000000000000.log";
    place.storage.flip_bit(damaged, 16, 0).unwrap(); // the magic byte of its first batch
    let mut consumer = place.member("orders").start_at(StartAt::Time(Timestamp(0))).open().unwrap();
    for _ in 0..2 {
        let told = consumer.poll(Duration::ZERO).unwrap_err();
        assert!(matches!(told, Error::Corrupt { .. }), "{told}");
        assert_eq!(consumer.failed().unwrap().to_string(), "orders-1");
        drain(&mut consumer);
        assert_eq!(consumer.position("orders", 0).unwrap().offset, Offset(3));
        place.clock.advance(Duration::from_millis(100));
    }
    consumer.pause(("orders", 1)).unwrap();
    place.clock.advance(Duration::from_millis(100));
    assert!(consumer.poll(Duration::ZERO).unwrap().is_empty());
}

/// It could be neither read nor committed, and held up every commit.
#[test]
fn no_seek_leads_to_an_offset_that_no_log_has() {
    let place = Place::with("orders", 1);
    let mut consumer = place.member("orders").open().unwrap();
    arrive(&mut consumer);
    for beyond in [Offset(1 << 63), Offset(u64::MAX)] {
        let refused = consumer.seek("orders", 0, beyond);
        assert!(matches!(refused, Err(Error::OffsetOutOfRange { requested, .. }) if requested == beyond));
        consumer.commit().unwrap();
        let refused = consumer.commit_offsets([(("orders", 0), beyond)]);
        assert!(matches!(refused, Err(Error::InvalidRecord(_))), "{refused:?}");
    }
    consumer.seek("orders", 0, Offset(i64::MAX as u64)).unwrap();
    consumer.commit().unwrap();
}
