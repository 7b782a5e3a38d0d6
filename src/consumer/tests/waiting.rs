//! A poll sleeps while there is nothing, wakes for whatever it waits for, and returns in time.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::{Rig, append, put};
use crate::clock::{Clock, Moment, SystemClock};
use crate::consumer::{Polled, Reader, Which};
use crate::error::{Error, Result};
use crate::node::{Node, Topics};
use crate::sync::Mutex;
use crate::types::Timestamp;

/// Longer than any poll takes that is woken.
const LONG: Duration = Duration::from_secs(10);

/// How often each test with threads gives a wake-up the chance to be missed.
const ROUNDS: u64 = 50;

fn rig() -> Rig {
    Rig::with_clock(Arc::new(SystemClock))
}

/// What happens when a clock is read for the nth time.
type Happening = Box<dyn Fn(u64) + Send + Sync>;

/// Counts how often it is read, and has something happen meanwhile: so a test comes between any two steps of a poll.
#[derive(Default)]
struct HookedClock {
    reads: AtomicU64,
    happening: Mutex<Option<Happening>>,
}

impl HookedClock {
    fn set(&self, happening: impl Fn(u64) + Send + Sync + 'static) {
        self.reads.store(0, Ordering::Relaxed);
        *self.happening.lock() = Some(Box::new(happening));
    }
}

impl fmt::Debug for HookedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HookedClock").field(&self.reads).finish()
    }
}

impl Clock for HookedClock {
    fn wall(&self) -> Timestamp {
        SystemClock.wall()
    }

    fn monotonic(&self) -> Moment {
        let read = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(happening) = &*self.happening.lock() {
            happening(read);
        }
        SystemClock.monotonic()
    }
}

/// A topic of three partitions on a node whose clock is hooked, and a reader of it.
fn hooked() -> (Arc<HookedClock>, Arc<Rig>, Reader) {
    let clock = Arc::new(HookedClock::default());
    let rig = Arc::new(Rig { node: Node::new(Arc::clone(&clock) as Arc<dyn Clock>), ..rig() });
    rig.topic("t", 1, 3);
    let reader = rig.reader().topics(["t"]).open().expect("opened");
    (clock, rig, reader)
}

/// A poll that has to be woken: it looks once more when its time is up, which is too late here.
fn poll_woken(reader: &mut Reader) -> Result<Polled> {
    let began = SystemClock.monotonic();
    let answer = reader.poll(LONG);
    assert!(SystemClock.monotonic().since(began) < LONG, "nothing woke it");
    answer
}

/// When something happens in the tests below: the clock is read as the poll begins, before it listens, and before it
/// sleeps.
const WHENEVER: std::ops::RangeInclusive<u64> = 1..=3;

#[test]
fn an_append_to_any_partition_is_noticed_whenever_it_comes() {
    for number in 0..3 {
        for when in WHENEVER {
            let (clock, rig, mut reader) = hooked();
            let partition = rig.partition("t", number);
            clock.set(move |read| {
                if read == when {
                    append(&partition, 1);
                }
            });
            let polled = poll_woken(&mut reader).expect("readable");
            assert_eq!((polled.is_empty(), polled.partition()), (false, number), "{when}");
            assert_eq!(reader.listeners(), 0);
        }
    }
}

#[test]
fn a_change_of_the_topics_is_noticed_whenever_it_comes() {
    for when in WHENEVER {
        let (clock, rig, mut reader) = hooked();
        clock.set(move |read| {
            if read == when {
                let (storage, id) = (&rig.storage, 1);
                let mut partitions = rig.node.topic("t").expect("it is there").partitions.clone();
                partitions.push(rig.open(storage, id, "t", 3));
                append(&partitions[3], 1);
                let mut topics = Topics::clone(&rig.node.topics());
                put(&mut topics, "t", id, partitions);
                rig.node.publish(topics);
            }
        });
        assert_eq!(poll_woken(&mut reader).expect("readable").partition(), 3, "{when}");

        let (clock, rig, mut reader) = hooked();
        clock.set(move |read| {
            if read == when {
                rig.delete("t");
            }
        });
        let answer = poll_woken(&mut reader).map(drop);
        assert!(matches!(answer, Err(Error::UnknownTopic { .. })), "{when}: {answer:?}");
    }
}

/// Nothing wakes but the partition that came while the reader slept.
#[test]
fn partitions_that_come_meanwhile_are_listened_to() {
    let (clock, rig, mut reader) = hooked();
    clock.set(move |read| match read {
        3 => rig.topic("t", 1, 4),
        5.. => append(&rig.partition("t", 3), 1),
        _ => {}
    });
    assert_eq!(poll_woken(&mut reader).expect("readable").partition(), 3);
}

#[test]
fn the_close_is_noticed_whenever_it_comes_and_whatever_is_paused() {
    for when in WHENEVER {
        for paused in [false, true] {
            let (clock, rig, mut reader) = hooked();
            if paused {
                reader.pause(Which::All).expect("assigned");
            }
            clock.set(move |read| {
                if read == when {
                    rig.node.refuse();
                }
            });
            let answer = poll_woken(&mut reader).map(drop);
            assert!(matches!(answer, Err(Error::Closed)), "{when}, {paused}: {answer:?}");
        }
    }
}

#[test]
fn a_waker_ends_one_poll_whenever_it_comes_and_whatever_is_paused() {
    for when in WHENEVER {
        for paused in [false, true] {
            let (clock, rig, mut reader) = hooked();
            if paused {
                reader.pause(Which::All).expect("assigned");
            }
            let waker = reader.waker();
            clock.set(move |read| {
                if read == when {
                    waker.wake();
                }
            });
            assert!(poll_woken(&mut reader).expect("readable").is_empty(), "{when}, {paused}");
            // What is there comes first, and the next poll that would wait is ended then; no further one.
            reader.resume(Which::All).expect("assigned");
            let waker = reader.waker();
            waker.wake();
            waker.clone().wake();
            rig.append("t", 1, 1);
            assert!(!poll_woken(&mut reader).expect("readable").is_empty());
            assert!(poll_woken(&mut reader).expect("readable").is_empty());
            let began = SystemClock.monotonic();
            assert!(reader.poll(Duration::from_millis(5)).expect("readable").is_empty());
            assert!(SystemClock.monotonic().since(began) >= Duration::from_millis(5));
        }
    }
}

/// Has a poll begin in a thread of its own, and `cause` be done here once the thread runs.
fn woken(reader: &mut Reader, cause: impl FnOnce()) -> Result<Vec<u64>> {
    thread::scope(|scope| {
        let (begun, begins) = mpsc::channel();
        let sleeper = scope.spawn(move || {
            begun.send(()).expect("somebody waits for it");
            let polled = poll_woken(reader)?;
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
        let offsets = woken(&mut reader, || rig.append("t", number, 1));
        assert_eq!(offsets.expect("readable"), [round / 3], "round {round}");
    }
}

#[test]
fn a_waker_wakes() {
    let rig = rig();
    rig.topic("t", 1, 3);
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    let waker = reader.waker();
    for round in 0..ROUNDS {
        assert!(woken(&mut reader, || waker.wake()).expect("readable").is_empty(), "round {round}");
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
            let polled = poll_woken(&mut reader).expect("readable");
            assert!(!polled.is_empty(), "round {round}: nothing came");
            assert_eq!(polled.partition(), number);
        }
        drop(came);
    });
}

#[test]
fn the_deletion_of_a_topic_wakes() {
    for round in 0..ROUNDS {
        let rig = rig();
        rig.topic("t", 1, 1);
        let mut reader = rig.reader().topics(["t"]).open().expect("opened");
        let partition = rig.partition("t", 0);
        let answer = woken(&mut reader, || {
            rig.delete("t");
            partition.close().expect("closed");
        });
        assert!(matches!(answer, Err(Error::UnknownTopic { .. })), "round {round}: {answer:?}");
    }
}

#[test]
fn a_poll_without_end_is_woken_too() {
    let (clock, rig, mut reader) = hooked();
    let partition = rig.partition("t", 0);
    clock.set(move |read| {
        if read == 3 {
            append(&partition, 1);
        }
    });
    assert!(!reader.poll(Duration::MAX).expect("readable").is_empty());
}

#[test]
fn an_idle_poll_returns_in_time_and_does_not_spin() {
    let (clock, rig, mut reader) = hooked();
    rig.append("t", 1, 1);
    assert!(!poll_woken(&mut reader).expect("readable").is_empty());
    let (read, began) = (clock.reads.load(Ordering::Relaxed), SystemClock.monotonic());
    assert!(reader.poll(Duration::from_millis(50)).expect("readable").is_empty());
    let slept = SystemClock.monotonic().since(began);
    assert!(slept >= Duration::from_millis(50) && slept < LONG, "{slept:?}");
    let looks = clock.reads.load(Ordering::Relaxed) - read;
    assert!(looks < 20, "it looked at the clock {looks} times");
}

#[test]
fn it_listens_only_while_it_sleeps() {
    let rig = rig();
    rig.topic("t", 1, 3);
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    assert!(reader.poll(Duration::from_millis(1)).expect("readable").is_empty());
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
