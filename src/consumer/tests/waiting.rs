//! A poll sleeps while there is nothing, wakes for whatever it waits for, and returns in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::Rig;
use crate::clock::{Clock, Moment, SystemClock};
use crate::consumer::{Reader, Which};
use crate::error::Error;
use crate::types::Timestamp;

/// Longer than any test takes: who sleeps so long was not woken.
const LONG: Duration = Duration::from_secs(60);

/// How often each test gives a wake-up the chance to be missed.
const ROUNDS: u64 = 200;

fn rig() -> Rig {
    Rig::with_clock(Arc::new(SystemClock))
}

/// Counts how often it is asked.
#[derive(Debug, Default)]
struct CountingClock(AtomicU64);

impl Clock for CountingClock {
    fn wall(&self) -> Timestamp {
        SystemClock.wall()
    }

    fn monotonic(&self) -> Moment {
        self.0.fetch_add(1, Ordering::Relaxed);
        SystemClock.monotonic()
    }
}

/// Has `poll` go on in a thread of its own while `cause` is done here once the thread has begun.
fn woken(reader: &mut Reader, timeout: Duration, cause: impl FnOnce()) -> crate::error::Result<Vec<u64>> {
    thread::scope(|scope| {
        let (begun, begins) = mpsc::channel();
        let sleeper = scope.spawn(move || {
            begun.send(()).expect("somebody waits for it");
            let polled = reader.poll(timeout)?;
            Ok(polled.records().map(|record| record.offset().0).collect())
        });
        begins.recv().expect("it begins");
        cause();
        sleeper.join().expect("it does not panic")
    })
}

#[test]
fn an_append_to_any_partition_wakes() {
    let rig = rig();
    rig.topic("t", 1, 3);
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    for round in 0..ROUNDS {
        let number = u32::try_from(round % 3).expect("small");
        let offsets = woken(&mut reader, LONG, || rig.append("t", number, 1));
        assert_eq!(offsets.expect("readable"), [round / 3], "round {round}");
    }
}

/// The other thread appends only once the record before has come, so the reader sleeps nearly every time.
#[test]
fn records_come_one_by_one_to_a_reader_that_sleeps() {
    let rig = rig();
    rig.topic("t", 1, 2);
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    thread::scope(|scope| {
        let (came, comes) = mpsc::channel();
        let rig = &rig;
        scope.spawn(move || {
            for next in comes {
                rig.append("t", next, 1);
            }
        });
        for round in 0..ROUNDS * 5 {
            let number = u32::try_from(round % 2).expect("small");
            came.send(number).expect("the other thread runs");
            let polled = reader.poll(LONG).expect("readable");
            assert!(!polled.is_empty(), "round {round}: nothing came");
            assert_eq!(polled.partition(), number);
        }
        drop(came);
    });
}

#[test]
fn a_partition_that_is_added_wakes() {
    let rig = rig();
    rig.topic("t", 1, 1);
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    for round in 1..=20 {
        let number = u32::try_from(round).expect("small");
        let offsets = woken(&mut reader, LONG, || {
            rig.topic("t", 1, round + 1);
            rig.append("t", number, 1);
        });
        assert_eq!(offsets.expect("readable"), [0], "round {round}");
    }
}

#[test]
fn the_close_of_the_log_wakes_even_who_listens_to_no_partition() {
    for round in 0..ROUNDS {
        let rig = rig();
        rig.topic("t", 1, 1);
        let mut reader = rig.reader().topics(["t"]).open().expect("opened");
        if round % 2 == 0 {
            reader.pause(Which::All).expect("assigned");
        }
        let answer = woken(&mut reader, LONG, || rig.node.close().expect("closed"));
        assert!(matches!(answer, Err(Error::Closed)), "round {round}: {answer:?}");
    }
}

#[test]
fn the_deletion_of_a_topic_wakes() {
    for round in 0..ROUNDS {
        let rig = rig();
        rig.topic("t", 1, 1);
        let mut reader = rig.reader().topics(["t"]).open().expect("opened");
        let partition = rig.partition("t", 0);
        let answer = woken(&mut reader, LONG, || {
            rig.delete("t");
            partition.close().expect("closed");
        });
        assert!(matches!(answer, Err(Error::UnknownTopic { .. })), "round {round}: {answer:?}");
    }
}

#[test]
fn a_poll_without_end_is_woken_too() {
    let rig = rig();
    rig.topic("t", 1, 1);
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    let offsets = woken(&mut reader, Duration::MAX, || rig.append("t", 0, 1));
    assert_eq!(offsets.expect("readable"), [0]);
}

#[test]
fn an_idle_poll_returns_in_time_and_does_not_spin() {
    let clock = Arc::new(CountingClock::default());
    let rig = Rig::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    rig.topic("t", 1, 3);
    rig.append("t", 1, 1);
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    assert!(!reader.poll(LONG).expect("readable").is_empty());
    let (asked, began) = (clock.0.load(Ordering::Relaxed), SystemClock.monotonic());
    assert!(reader.poll(Duration::from_millis(50)).expect("readable").is_empty());
    let slept = SystemClock.monotonic().since(began);
    assert!(slept >= Duration::from_millis(50) && slept < LONG, "{slept:?}");
    let looks = clock.0.load(Ordering::Relaxed) - asked;
    assert!(looks < 20, "it looked at the clock {looks} times");
}

#[test]
fn it_listens_only_while_it_sleeps() {
    let rig = rig();
    rig.topic("t", 1, 3);
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    assert!(reader.poll(Duration::from_millis(1)).expect("readable").is_empty());
    assert_eq!(reader.listeners(), 0);
    let polled = woken(&mut reader, LONG, || rig.append("t", 2, 1));
    assert_eq!(polled.expect("readable"), [0]);
    assert_eq!(reader.listeners(), 0);
}

#[test]
fn without_time_it_does_not_wait() {
    let rig = Rig::new(); // its clock stands still
    rig.topic("t", 1, 1);
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    assert!(reader.poll(Duration::ZERO).expect("readable").is_empty());
    rig.append("t", 0, 1);
    assert!(!reader.poll(Duration::ZERO).expect("readable").is_empty());
}
